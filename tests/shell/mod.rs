//! This machine, asked by other means than our own parsers.
#![allow(dead_code)] // each test binary uses its own part

use std::io::Write as _;
use std::process::Command;

/// Standard output of a shell line, or nothing where it fails, which is told.
pub(crate) fn shell(line: &str) -> Option<String> {
    let output = Command::new("sh")
        .args(["-c", line])
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    if output.status.success() && !text.is_empty() {
        return Some(text);
    }
    told(&format!("no answer from `{line}`"));
    None
}

/// Says what a test could not compare.
pub(crate) fn told(line: &str) {
    // Not eprintln: the harness would keep it for itself.
    let _ = writeln!(
        std::io::stderr(),
        "{}: NOT COMPARED: {line}",
        env!("CARGO_CRATE_NAME")
    );
}
