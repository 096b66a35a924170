//! A command of the binary: its environment, its output and its end.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sys::prctl;
use nix::unistd::alarm;

use super::logging;
#[cfg(test)]
use crate::sim::hook as sim;

/// Exit code of [`CommandFailure::Usage`].
const EXIT_USAGE: u8 = 2;
/// Exit code of [`CommandFailure::Other`].
const EXIT_FAILURE: u8 = 1;

/// Why a command failed, in one line for stderr.
#[derive(Debug)]
pub enum CommandFailure {
    /// The command line is invalid, or a value in the `--config` file.
    Usage(String),
    /// Every other failure: a file that cannot be read or parsed, a reservation of more than the
    /// board has, a failed check, a closed stdout.
    Other(String),
}

/// The end of a command.
pub type End = Result<(), CommandFailure>;

/// Prints the failure. Returns the exit code.
pub fn exit(end: End) -> ExitCode {
    let (code, line) = match end {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CommandFailure::Usage(line)) => (EXIT_USAGE, line),
        Err(CommandFailure::Other(line)) => (EXIT_FAILURE, line),
    };
    logging::print_error(line);
    ExitCode::from(code)
}

/// Unlike `println!`, does not panic if stdout is closed.
pub fn print(text: &str) -> End {
    #[cfg(test)]
    if sim::print(text).is_some() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{}", text.trim_end_matches('\n'));
    written.map_err(|e| CommandFailure::Other(format!("stdout: {e}")))
}

/// Keys and tokens in memory must not be in a core file.
pub fn no_core_file() {
    #[cfg(test)]
    if sim::is_on() {
        return;
    }
    // PR_SET_DUMPABLE with 0 cannot fail.
    let _ = prctl::set_dumpable(false);
}

/// Ends this process by SIGALRM after so many seconds, also while it waits for an NFS server that
/// is dead: the kernel interrupts such a wait only by a signal that ends the process. A wait for
/// FUSE, virtiofs or 9p may go on.
pub fn end_after(seconds: u32) {
    #[cfg(test)]
    if sim::end_after(seconds).is_some() {
        return;
    }
    alarm::set(seconds);
}

/// A variable of the environment.
#[expect(clippy::disallowed_methods, reason = "the only reader of the environment")]
pub fn env(name: &str) -> Option<OsString> {
    #[cfg(test)]
    if let Some(value) = sim::env(name) {
        return value;
    }
    std::env::var_os(name)
}

/// Whether stderr is the journal.
pub fn logs_to_journal() -> bool {
    env("JOURNAL_STREAM").is_some()
}

/// The folders that systemd makes for this unit and names in `variable`, in the order of their
/// names.
pub fn systemd_folders(variable: &str) -> Vec<PathBuf> {
    let folders = env(variable).and_then(|folders| folders.into_string().ok()).unwrap_or_default();
    folders.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from).collect()
}

/// The folder of the credentials that systemd passes to this unit.
pub fn credentials_folder() -> Option<PathBuf> {
    env("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// The folder with the credentials of nodelet.service, without the first slash.
pub const AGENT_CREDENTIALS: &str = "run/credentials/nodelet.service/";

/// `path`, or the same name in `folder` if it is below [`AGENT_CREDENTIALS`]: systemd shows a unit
/// no folder of credentials but its own (setup_credentials in exec-credential.c).
pub fn own_credential(path: PathBuf, folder: Option<&Path>) -> PathBuf {
    match (path.strip_prefix(Path::new("/").join(AGENT_CREDENTIALS)), folder) {
        (Ok(name), Some(folder)) => folder.join(name),
        _ => path,
    }
}

/// The variable that other clients take a proxy from, if it is set.
pub fn proxy_variable() -> Option<&'static str> {
    ["HTTPS_PROXY", "https_proxy"].into_iter().find(|name| env(name).is_some())
}
