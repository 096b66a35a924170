//! `nodelet join`: from a token to a Ready Node, and `nodelet reset`, the way back.
//!
//! `core::join` parses the command line, the token and the ConfigMap of kubeadm; `proof` computes
//! the digests that prove the server. `steps` runs the steps: `kubeadm` and `supervisor` find and
//! verify the server, `certificate` asks for the certificate, `files` writes it, `ready` waits for
//! the Node. No credential is sent before the server is proved, and nothing is written before there
//! is a certificate.

mod certificate;
mod existing;
mod files;
mod kubeadm;
pub mod proof;
mod ready;
mod reset;
mod server;
mod steps;
mod supervisor;
mod walk;

use std::ffi::OsString;

use nix::sys::prctl;
use serde_json::Value;

use crate::check::Report;
use crate::core::join::command::{self, Command, USAGE};
use crate::kube::object;
use crate::process::logging;

/// The end of a command: `Ok`, or a line for stderr and whether the command line is at fault.
pub type End = Result<(), (bool, String)>;

/// Runs `nodelet join` or `nodelet reset`. `None` if `args` is another command. `print` writes a
/// line to stdout; `version` is the text of `--version`.
pub fn main(
    args: &[OsString],
    user_agent: &str,
    version: &str,
    print: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Option<End> {
    let command = match command::parse(args)? {
        Ok(command) => command,
        Err(line) => return Some(Err((true, line))),
    };
    // The token and the key must not be in a core file. PR_SET_DUMPABLE with 0 cannot fail.
    let _ = prctl::set_dumpable(false);
    logging::start(0, false);
    Some(match command {
        Command::Help => print(USAGE).map_err(|line| (false, line)),
        Command::Version => print(version).map_err(|line| (false, line)),
        Command::Join(settings) => steps::join(&settings, user_agent, print),
        Command::Reset(settings) => reset::reset(&settings, print),
    })
}

/// Prints the end of a report: the whole object as JSON, or the line of the skipped steps.
fn finish(
    command: &str,
    report: &Report,
    json: Option<&[(&str, Value)]>,
    print: &mut dyn FnMut(&str) -> Result<(), String>,
) -> End {
    let last = match json {
        Some(members) => {
            let mut whole = report.json();
            for (name, value) in members {
                object::members(&mut whole, &[]).insert((*name).to_owned(), value.clone());
            }
            Some(format!("{whole:#}"))
        }
        None => report.skipped(),
    };
    if let Some(last) = last {
        print(&last).map_err(|line| (false, line))?;
    }
    match report.failed().as_slice() {
        [] => Ok(()),
        failed => Err((false, format!("{command} failed: {}", failed.join(", ")))),
    }
}

#[cfg(test)]
mod tests;
