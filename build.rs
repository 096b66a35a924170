//! Sets the commit, its date and the target for the binary. Without git, the commit is `unknown`
//! and the date is that of the build.
#![allow(clippy::disallowed_methods)] // Cargo talks to build scripts through the environment.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=NODELET_COMMIT={commit}");
    println!("cargo::rustc-env=NODELET_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    println!("cargo::rustc-env=NODELET_BUILT={}", built());
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// Seconds since 1970-01-01T00:00:00Z, equal for all builds of one commit.
fn built() -> u64 {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    given
        .or_else(|| git(&["log", "-1", "--format=%ct"]))
        .and_then(|seconds| seconds.trim().parse().ok())
        .or_else(|| Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs()))
        .unwrap_or_default()
}

fn git(args: &[&str]) -> Option<String> {
    // Only the repository of this file: a tarball that is unpacked in another repository has no
    // commit of its own.
    let output =
        Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success()
        && std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".git").exists())
    .then(|| text.trim().to_owned())
}
