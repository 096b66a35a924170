//! `nodelet join`: from a token to a Ready Node, and `nodelet reset`, the way back.
//!
//! `command` parses the command line, `token` a token; `proof` reads kubeadm's ConfigMap and
//! computes the digests that prove the server. `steps` takes the steps of one `run`: `existing`
//! finds an identity, `kubeadm` and `supervisor` find and verify the server and ask it for the
//! certificate, `files` writes it, `start` starts the agent. No credential is sent before the
//! server is proved, and no file is written before there is a certificate.

pub mod command;
mod existing;
mod files;
mod kubeadm;
pub mod proof;
mod run;
mod start;
mod steps;
mod supervisor;
pub mod token;

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::agent::unit::{self, SERVE_SOCKET};
use crate::config::version;
use crate::kube::finding::{Finding, Report};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::x509::Leaf;
use crate::os::command::{CommandFailure, End, no_core_file, print, proxy_variable};
use crate::os::guard;
use crate::os::logging;
use crate::os::write::{self, Disk};

use self::command::{JoinCommand, Reset};
use self::files::{JoinPaths, environment_text};
use self::run::{SUDO, failed};
use self::steps::administered;

/// Runs `nodelet join` or `nodelet reset`. `None` if `args` is another command.
pub fn main(args: &[OsString]) -> Option<End> {
    let command = match command::parse(args)? {
        Ok(command) => command,
        Err(line) => return Some(Err(CommandFailure::Usage(line))),
    };
    no_core_file();
    logging::start(0, false);
    Some(match command {
        JoinCommand::Help => print(&command::usage()),
        JoinCommand::Version => print(&version()),
        JoinCommand::Join(settings) => {
            if let Some(name) = proxy_variable() {
                log::info!("{name} is not used; join connects to the server directly");
            }
            steps::join(&settings)
        }
        JoinCommand::Reset(settings) => reset(&settings),
    })
}

/// A report as JSON, with more members.
fn json_text(report: &Report, members: Vec<(&str, Value)>) -> String {
    let mut whole = report.json();
    for (name, value) in members {
        object::members(&mut whole, &[]).insert(name.to_owned(), value);
    }
    format!("{whole:#}")
}

/// The checks of `nodelet reset`.
const RESET: [&str; 4] = ["running", "metrics", "files", "node"];

fn reset(settings: &Reset) -> End {
    let mut paths = JoinPaths::new(settings.root.as_deref());
    let (report, removed) = run_reset(&mut Disk::default(), &mut paths, settings.force);
    let text = if settings.json {
        json_text(&report, vec![("removed", json!(removed))])
    } else {
        report.text()
    };
    print(&text)?;
    report.end("reset").map_err(CommandFailure::Other)
}

/// The report, and the removed paths.
fn run_reset(disk: &mut Disk, paths: &mut JoinPaths, force: bool) -> (Report, Vec<String>) {
    let followed = follow_flags(paths);
    let node_name = node_name(paths).unwrap_or_default();
    let (findings, removed) = match remove(disk, paths, followed, &node_name, force) {
        Ok((findings, removed)) => (findings.into(), removed),
        Err(finding) => {
            let cause = finding.check;
            let later = RESET.iter().skip_while(|check| **check != cause).skip(1);
            let skipped = later.map(|check| Finding::skipped(check, cause));
            ([finding].into_iter().chain(skipped).collect(), Vec::new())
        }
    };
    (Report { node_name, findings }, removed)
}

/// Finds the folders of the agent, which the flags of the unit name.
fn follow_flags(paths: &mut JoinPaths) -> Result<(), Fault> {
    let words = paths.stored_flags()?.unwrap_or_default().words;
    let values = administered(words, &environment_text(&paths.administrators_flags())?);
    let values = values.map_err(|why| {
        let [own, join] = [paths.administrators_flags(), paths.flags()];
        let what = format!("{} or {}: {why}", own.display(), join.display());
        Fault::new(what, "correct it there")
    })?;
    paths.follow(&values);
    Ok(())
}

/// Removes the files, if the folders of the agent are known: `followed`.
fn remove(
    disk: &mut Disk,
    paths: &JoinPaths,
    followed: Result<(), Fault>,
    node_name: &str,
    force: bool,
) -> Result<([Finding; 4], Vec<String>), Finding> {
    if paths.is_running().map_err(|why| failed("running", why, SUDO))? {
        return Err(failed("running", "nodelet.service runs", "systemctl stop nodelet"));
    }
    if let Some(agent) = paths.agent() {
        return Err(failed("running", format!("{agent}, runs without the unit"), "stop it"));
    }
    let folder = paths.credentials();
    let lock = guard::exists(&folder).then(|| write::lock(&folder)).transpose();
    let lock = lock.map_err(|why| failed("running", why, SUDO))?;
    if let Some(None) = lock {
        return Err(failed("running", "nodelet join runs", "wait for its end"));
    }
    let running = Finding::ok("running", "no agent runs");
    let failed = |why: Fault| Finding::failed("files", why, SUDO);
    let metrics = if paths.is_enabled(SERVE_SOCKET) {
        // It would open the port of a board without an identity.
        let stop = if paths.are_of_image() { "" } else { "systemctl stop nodelet-serve.socket" };
        Finding::note("metrics", "disabled", stop)
    } else {
        Finding::ok("metrics", "nodelet-serve.socket is not enabled")
    };
    let (ops, removed) = followed.and_then(|()| paths.remove(force)).map_err(failed)?;
    disk.carry_out(ops).map_err(failed)?;
    let detail = match removed.as_slice() {
        [] => "nothing to remove".to_owned(),
        removed => format!("removed {}", removed.join(", ")),
    };
    let files = match unit::foreign_credential(&paths.host()) {
        None => Finding::ok("files", detail),
        Some(path) => Finding::note(
            "files",
            format!("{detail}, but {} stays, and the next boot may use it", path.display()),
            "remove it, or systemctl disable nodelet",
        ),
    };
    let node = match node_name {
        "" => Finding::ok("node", "the files do not name a Node"),
        name => Finding::note(
            "node",
            format!(
                "the Node {name} stays, and a copy of its certificate is valid until it expires"
            ),
            &format!("kubectl delete node {name}"),
        ),
    };
    Ok(([running, metrics, files, node], removed))
}

/// The name in the certificate of the board.
fn node_name(paths: &JoinPaths) -> Option<String> {
    let given = || {
        let config = paths.load(&paths.kubeconfig()).ok()?;
        Leaf::of_pem(&config.certificate.as_ref()?.chain.bytes)
    };
    let stored = paths.stored_certificate().map(|(_, leaf)| leaf);
    let leaf = stored.or_else(given)?;
    leaf.subject.node_name().map(str::to_owned)
}

#[cfg(test)]
mod tests;
