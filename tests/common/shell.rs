//! What the shell of this machine says, independent of our parsers.

use std::process::Command;

use support::skip;

/// Standard output of a shell line. `None`, and a skip, if the line fails or prints nothing.
pub(crate) fn shell(line: &str) -> Option<String> {
    let output = Command::new("sh").args(["-c", line]).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    if output.status.success() && !text.is_empty() {
        return Some(text);
    }
    skip::optional(&format!("no output from `{line}`"));
    None
}
