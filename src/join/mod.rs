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
use std::iter;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::unit::SERVE_SOCKET;
use crate::config::version;
use crate::kube::finding::{Finding, Report};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::x509::Leaf;
use crate::os::command::{CommandFailure, End, no_core_file, print, proxy_variable};
use crate::os::guard;
use crate::os::logging;
use crate::os::mounts::{Mount, all_mounts};
use crate::os::write::{self, Disk, Lock, Op};

use self::command::{JoinCommand, Reset};
use self::files::{JoinPaths, environment_text, is_undone};
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
    let (mut findings, mut removed) = (Vec::new(), Vec::new());
    let steps = || {
        let (running, _lock) = idle(paths)?;
        findings.push(running);
        let failed = |why: Fault| Finding::failed("files", why, SUDO);
        let ops = followed.and_then(|()| paths.remove(force)).map_err(failed);
        let result = ops.and_then(|ops| remove(disk, ops, &mut removed));
        findings.push(metrics(paths, &removed));
        result?;
        let mounts = if paths.are_of_image() { None } else { all_mounts().ok() };
        let mounts = mounts.as_deref().unwrap_or_default();
        findings.extend([files(paths, &removed, mounts), node(&node_name)]);
        Ok::<_, Finding>(())
    };
    if let Err(failed) = steps() {
        let cause = failed.check;
        findings.push(failed);
        let later = RESET.iter().skip_while(|check| **check != cause).skip(1);
        findings.extend(later.map(|check| Finding::skipped(check, cause)));
    }
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

/// No agent runs, and no other command changes the files until the lock is dropped.
fn idle(paths: &JoinPaths) -> Result<(Finding, Option<Lock>), Finding> {
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
    Ok((Finding::ok("running", "no agent runs"), lock.flatten()))
}

/// Carries the operations out, and adds what they remove to `removed`, up to the first that fails.
fn remove(disk: &mut Disk, ops: Vec<Op>, removed: &mut Vec<String>) -> Result<(), Finding> {
    for op in ops {
        let path = match &op {
            Op::Remove(path) => Some(path.display().to_string()),
            _ => None,
        };
        if let Err(why) = disk.carry_out(vec![op]) {
            let remedy = match removed.as_slice() {
                [] => SUDO.to_owned(),
                removed => {
                    format!("removed {} before; correct it and reset again", removed.join(", "))
                }
            };
            return Err(Finding::failed("files", why, &remedy));
        }
        removed.extend(path);
    }
    Ok(())
}

fn metrics(paths: &JoinPaths, removed: &[String]) -> Finding {
    if removed.contains(&paths.port().display().to_string()) {
        // It would open the port of a board without an identity.
        let stop = if paths.are_of_image() { "" } else { "systemctl stop nodelet-serve.socket" };
        Finding::note("metrics", "disabled", stop)
    } else if paths.is_enabled(SERVE_SOCKET) {
        let disable = "systemctl disable --now nodelet-serve.socket";
        let remedy = if paths.are_of_image() { "" } else { disable };
        Finding::note("metrics", "nodelet-serve.socket is enabled", remedy)
    } else if paths.serves() {
        let line = "nodelet-serve.service runs, with its copies of the credentials";
        Finding::note("metrics", line, "systemctl stop nodelet-serve.socket")
    } else {
        Finding::ok("metrics", "nodelet-serve.socket is not enabled")
    }
}

/// `mounts` is the table of mounts of this machine.
fn files(paths: &JoinPaths, removed: &[String], mounts: &[Mount]) -> Finding {
    let detail = match removed {
        [] => "nothing to remove".to_owned(),
        removed => format!("removed {}", removed.join(", ")),
    };
    // A former reset, which the next boot undoes, may have removed the first two.
    let of_join = [paths.kubeconfig(), paths.flags()].into_iter();
    let mut changed = of_join.chain(removed.iter().map(PathBuf::from));
    let undone = changed.find_map(|path| Some((is_undone(&path, mounts)?, path)));
    let undone = undone.map(|(is_in_memory, path)| {
        let when = match is_in_memory {
            true => "in memory: if an image has it",
            false => "on an overlay: if its upper layer is in memory",
        };
        let remedy = "switch the overlay off and reset again, or remove it from the image";
        let what = format!("{} is {when}, the next boot has it again", path.display());
        (what, remedy.to_owned())
    });
    let left = paths.left();
    let (stay, them) = if left.len() == 1 { ("stays", "it") } else { ("stay", "them") };
    let left = (!left.is_empty()).then(|| {
        let what = format!("{} {stay}, and the next boot may use {them}", left.join(", "));
        (what, format!("remove {them}, or systemctl disable nodelet"))
    });
    let (faults, remedies): (Vec<_>, Vec<_>) = left.into_iter().chain(undone).unzip();
    if faults.is_empty() {
        return Finding::ok("files", detail);
    }
    let detail = format!("{detail}, but {}", faults.join(", and "));
    Finding::note("files", detail, &remedies.join("; "))
}

fn node(name: &str) -> Finding {
    if name.is_empty() {
        return Finding::ok("node", "the files do not name a Node");
    }
    let detail =
        format!("the Node {name} stays, and a copy of its certificate is valid until it expires");
    Finding::note("node", detail, &format!("kubectl delete node {name}"))
}

/// The name in the certificate of the board.
fn node_name(paths: &JoinPaths) -> Option<String> {
    let given = || {
        let mut given = iter::once(paths.kubeconfig()).chain(paths.named());
        let config = given.find_map(|path| paths.load(&path).ok())?;
        Leaf::of_pem(&config.certificate.as_ref()?.chain.bytes)
    };
    let stored = paths.stored_certificate().map(|(_, leaf)| leaf);
    let leaf = stored.or_else(given)?;
    leaf.subject.node_name().map(str::to_owned)
}

#[cfg(test)]
mod tests;
