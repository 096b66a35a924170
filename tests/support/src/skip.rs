//! The one way to leave out a test, or a part of it, for want of something on this machine.
//!
//! The line `SKIPPED <test>: <why>` goes to the real stderr, which the test harness does not
//! capture.

use std::ffi::OsStr;
use std::io::Write as _;

/// Skips for want of something that `.ci/run` needs or installs.
///
/// # Panics
///
/// With the environment variable `CI` set.
pub fn required(why: &str) {
    optional(why);
    let ci = std::env::var_os("CI");
    assert!(!is_set(ci.as_deref()), "not to be skipped under CI: {why}");
}

fn is_set(ci: Option<&OsStr>) -> bool {
    ci.is_some_and(|ci| !ci.is_empty() && ci != "false")
}

/// Whether `command` can be started. If not, skips as [`required`] does.
///
/// # Panics
///
/// With the environment variable `CI` set, if it cannot be started.
#[must_use]
pub fn has_tool(command: &str) -> bool {
    is_on_path(command, required)
}

/// Whether `command` can be started. If not, skips as [`optional`] does.
#[must_use]
pub fn has_optional_tool(command: &str) -> bool {
    is_on_path(command, optional)
}

fn is_on_path(command: &str, skip: fn(&str)) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(command).is_file());
    if !found {
        skip(&format!("no {command} on the PATH"));
    }
    found
}

/// Skips for want of something that only some machines have: a control plane, root, `kubectl`.
pub fn optional(why: &str) {
    let binary = std::env::current_exe().unwrap_or_default();
    // Cargo names a test binary `<name>-<hash>`.
    let binary = binary.file_stem().and_then(OsStr::to_str).unwrap_or("?");
    let binary = binary.rsplit_once('-').map_or(binary, |(name, _)| name);
    let thread = std::thread::current();
    // The harness names each test's thread after the test, except with --test-threads=1.
    let test = thread.name().filter(|name| *name != "main").unwrap_or("?");
    // One write, so that lines of other threads do not come between.
    let line = format!("SKIPPED {binary}::{test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    /// The harness of this binary, which runs the ignored test below.
    fn skipped(ci: Option<&str>) -> Output {
        let mut itself = Command::new(std::env::current_exe().unwrap());
        itself.args(["--ignored", "--exact", "skip::tests::lacks_a_tool"]);
        match ci {
            Some(ci) => itself.env("CI", ci),
            None => itself.env_remove("CI"),
        };
        itself.output().unwrap()
    }

    #[test]
    #[ignore = "run by a_required_skip_fails_under_ci_and_prints_past_the_harness"]
    fn lacks_a_tool() {
        super::required("no such tool");
    }

    #[test]
    fn a_required_skip_fails_under_ci_and_prints_past_the_harness() {
        for (ci, passes) in [
            (None, true),
            (Some(""), true),
            (Some("false"), true),
            (Some("true"), false),
            (Some("1"), false),
        ] {
            let output = skipped(ci);
            assert_eq!(output.status.success(), passes, "CI={ci:?}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            let line = "SKIPPED support::skip::tests::lacks_a_tool: no such tool\n";
            assert_eq!(stderr, line);
        }
    }
}
