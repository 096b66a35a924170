//! Stamps the commit and the target into the binary. Works without git: then the
//! commit is `unknown`.
#![allow(clippy::disallowed_methods)] // Cargo talks to build scripts through the environment.

use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=NODELET_COMMIT={commit}");
    println!(
        "cargo::rustc-env=NODELET_TARGET={}",
        std::env::var("TARGET").unwrap_or_default()
    );
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(args: &[&str]) -> Option<String> {
    // Only the repository that this file lies in: an unpacked tarball inside of
    // another one has no commit of its own.
    let output = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR")])
        .args(args)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success()
        && std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(".git")
            .exists())
    .then(|| text.trim().to_owned())
}
