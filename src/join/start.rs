//! The last steps of `nodelet join`: starts the agent, and waits until its Node is Ready.

use std::path::PathBuf;
use std::time::Duration;

use super::files::{JoinPaths, is_undone};
use super::run::{JoinRun, Stop, failed};
use crate::agent::unit::{RESTART, SERVE_SOCKET, SERVICE, UnitProcess, is_masked};
use crate::client::api::Api;
use crate::client::api_config::ApiConfig;
use crate::kube::finding::{Finding, Mark};
use crate::kube::json;
use crate::kube::message::{Accept, Request, accepted};
use crate::kube::object::{self, LEASES};
use crate::kube::text::{Fault, FaultKind};
use crate::os::mounts::{Mount, all_mounts};
use crate::os::write;

const PATH: &str = "nodelet.path";
/// The remedy of an agent that does not run.
const ENABLE: &str = "systemctl enable --now --no-block nodelet";
const START_NOW: &str = "systemctl start --no-block nodelet";

/// Delays between two GETs of the Node: short at first, because a board on a LAN needs 0.1 s.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LAST_POLL: Duration = Duration::from_secs(2);
/// nodelet.path starts the unit within this time.
const TRIGGERED: Duration = Duration::from_secs(3);
/// A unit that is started registers its Node within this time.
const START: Duration = Duration::from_secs(15);

/// The checks `start` and `ready`.
pub(super) fn start_and_wait(run: &mut JoinRun<'_>, config: &ApiConfig) -> Result<(), Finding> {
    // Without systemd nothing starts the agent while join waits.
    let by_hand = run.settings.root.is_none() && !run.paths.has_systemd();
    // A bootstrap token may not read the Lease, and the agent gets its certificate later.
    let may_wait = run.settings.wait && config.certificate.is_some() && !by_hand;
    let stale = UnitProcess::find(&run.paths.host()).why_stale();
    let mut waiting = None;
    if may_wait && stale.is_none() {
        let mut api = run.api(config, "ready", "")?;
        // Read before the start: the first renewal of the agent then differs from it.
        let seen = renewed(run, &mut api).ok();
        waiting = Some((api, seen));
    }
    let started = if run.settings.dry_run {
        Finding::note("start", "--dry-run", "")
    } else if run.settings.root.is_some() {
        Finding::note("start", "--root: the board starts it", "")
    } else {
        match start(&run.paths, &run.server, stale, run.settings.bootstrap_only) {
            started if started.mark == Mark::Ok && !may_wait => triggered(run, started),
            started => started,
        }
    };
    let started = match started.mark {
        Mark::Ok => {
            let mounts = all_mounts().ok();
            let mounts = mounts.as_deref().unwrap_or_default();
            kept(&run.paths, run.settings.bootstrap_only, mounts, started)
        }
        _ => started,
    };
    run.step(started)?;
    let ready = match waiting {
        Some((mut api, seen)) => ready(run, &mut api, seen)?,
        None => {
            let remedy = format!("kubectl get node {}", run.board.name);
            Finding::note("ready", "join does not wait for it", &remedy)
        }
    };
    run.add(ready);
    run.add(metrics(&run.paths, by_hand));
    Ok(())
}

/// A note in the place of `started` if the next boot may not have what join wrote, by this table of
/// mounts.
fn kept(paths: &JoinPaths, bootstrap_only: bool, mounts: &[Mount], started: Finding) -> Finding {
    let identity = if bootstrap_only { paths.bootstrap() } else { paths.kubeconfig() };
    let lost = |path: &PathBuf| {
        Some(match is_undone(path, mounts)? {
            true => "is in memory: a reboot loses it",
            false => "is on an overlay: if its upper layer is in memory, a reboot loses it",
        })
    };
    let files = [identity, paths.flags()];
    let Some((path, lost)) = files.iter().find_map(|path| Some((path, lost(path)?))) else {
        return started;
    };
    let line = format!("{}, but {} {lost}", started.detail, path.display());
    let remedy = "join without the overlay, or put a link to a file on a disk there";
    Finding::note("start", line, remedy)
}

/// How to get `kubectl top`: the one thing that is off after a join.
fn metrics(paths: &JoinPaths, by_hand: bool) -> Finding {
    if paths.is_enabled(SERVE_SOCKET) {
        Finding::ok("metrics", "nodelet-serve.socket is enabled")
    } else {
        let remedy = if by_hand {
            "nodelet serve --listen=0.0.0.0:10250, with the flags of the agent"
        } else {
            "systemctl enable --now nodelet-serve.socket"
        };
        Finding::note("metrics", "kubectl top has no values of this Node", remedy)
    }
}

/// Whether nodelet.path has started the unit. It is asked only if join does not wait for the Node:
/// a Ready Node would show that the unit runs.
fn triggered(run: &JoinRun<'_>, finding: Finding) -> Finding {
    let start = run.now().mono;
    while !run.paths.is_running().unwrap_or_default() {
        if run.now().mono.since(start) >= TRIGGERED || !run.pause(FIRST_POLL) {
            return Finding::note(
                "start",
                "nodelet.path has not started nodelet.service",
                START_NOW,
            );
        }
    }
    finding
}

/// The line that runs the agent without systemd. The stored flags name the credential with the
/// bootstrap token, which systemd would make, so the file behind it follows them.
fn line_by_hand(paths: &JoinPaths, bootstrap_only: bool) -> String {
    let (flag, file) = match bootstrap_only {
        true => ("bootstrap-kubeconfig", paths.bootstrap()),
        false => ("kubeconfig", paths.kubeconfig()),
    };
    let (stored, file) = (paths.flags(), file.display());
    let (stored, folders) = (stored.display(), paths.folder_flags());
    format!("nodelet, the flags in {stored}, and --{flag}={file} {folders}")
}

/// Starts the agent. It must start at the next boot, too.
fn start(paths: &JoinPaths, server: &str, stale: Option<Fault>, bootstrap_only: bool) -> Finding {
    let is_running = match paths.is_running() {
        Ok(is_running) => is_running,
        Err(why) => return Finding::note("start", why, RESTART),
    };
    if !is_running && let Some(why) = stale {
        return Finding::note("start", why, RESTART);
    }
    let starts_at_boot = paths.is_enabled(SERVICE);
    if !is_running && !paths.has_systemd() {
        return Finding::note(
            "start",
            "systemd does not run",
            &line_by_hand(paths, bootstrap_only),
        );
    }
    if is_masked(&paths.host(), SERVICE) {
        let remedy = format!("systemctl unmask nodelet, then {ENABLE}");
        let line = "nodelet.service is masked: no boot starts it";
        return Finding::failed("start", line, &remedy);
    }
    if let Some(why) = stale {
        let enable = if starts_at_boot { "" } else { "systemctl enable nodelet, then " };
        return Finding::note("start", why.what, &format!("{enable}{RESTART}"));
    }
    if !is_running && let Err(why) = write::publish(&paths.trigger(), format!("{server}\n")) {
        return Finding::note("start", why.what, ENABLE);
    }
    if !starts_at_boot {
        Finding::note("start", "nodelet.service is not enabled: no boot starts it", ENABLE)
    } else if is_running {
        Finding::ok("start", "nodelet.service runs")
    } else if paths.is_enabled(PATH) {
        Finding::ok("start", "by nodelet.path")
    } else {
        Finding::note("start", "nodelet.path is not enabled: the next boot starts it", START_NOW)
    }
}

/// `renewTime` of the Lease; empty if there is none yet.
fn renewed(run: &JoinRun<'_>, api: &mut Api) -> Result<String, Fault> {
    let request = Request::get(format!("{LEASES}/{}", run.board.name), Accept::Object);
    let lease = run.send(api, &request)?.object("leases", &run.board.name)?;
    Ok(object::text(&lease.unwrap_or_default(), &["spec", "renewTime"]).to_owned())
}

/// Waits for a Ready Node with the boot id of this machine, and for another `renewTime` than the
/// one that was `seen`: a Node stays Ready for 50 s without an agent.
fn ready(run: &JoinRun<'_>, api: &mut Api, mut seen: Option<String>) -> Result<Finding, Finding> {
    let request = Request::get(format!("/api/v1/nodes/{}", run.board.name), Accept::Object);
    let (start, mut poll, mut was_logged) = (run.now().mono, FIRST_POLL, false);
    run.poll(|| {
        let node = accepted(run.send(api, &request));
        let code = node.as_ref().err().and_then(|error| Some(error.refused.as_ref()?.code));
        let node = node.map_err(|error| error.why);
        let seen_now = node.and_then(|node| Ok((judge_node(run, &node.body)?, renewed(run, api)?)));
        let why = match seen_now {
            Ok((finding, now))
                if !now.is_empty() && now != *seen.get_or_insert_with(|| now.clone()) =>
            {
                return Ok(finding);
            }
            Ok(_) => "its Lease is not renewed: no agent runs, or it is refused".into(),
            Err(_) if code == Some(404) => {
                if run.now().mono.since(start) >= START && !was_logged {
                    log::info!("node {}: not registered yet; {ENABLE}", run.board.name);
                    was_logged = true;
                }
                "it is not registered".into()
            }
            Err(why) => why,
        };
        let line = format!("not Ready after {} s: {}", run.settings.timeout.as_secs(), why.what);
        let remedy = if matches!(why.kind, FaultKind::Credentials | FaultKind::Expired) {
            "nodelet join --force gets another certificate".to_owned()
        } else {
            format!("journalctl -u nodelet; {ENABLE}")
        };
        let pause = poll;
        poll = (poll * 2).min(LAST_POLL);
        Err(Stop::Again(failed("ready", line, &remedy), pause))
    })
}

/// The finding of a Ready Node, or what it lacks.
fn judge_node(run: &JoinRun<'_>, body: &[u8]) -> Result<Finding, String> {
    let node = json::parse(body).unwrap_or_default();
    let info = |member| object::text(&node, &["status", "nodeInfo", member]);
    if !run.board.boot_id.is_empty() && info("bootID") != run.board.boot_id {
        return Err("it has the boot id of another board, or of an earlier boot".into());
    }
    let ready = object::of_type(object::list(&node, &["status", "conditions"]), "Ready")
        .ok_or("it has no condition Ready")?;
    match object::text(ready, &["status"]) {
        "True" => {
            let detail = format!("{}   Ready   {}", run.board.name, info("kubeletVersion"));
            Ok(Finding::ok("ready", detail))
        }
        _ => Err(object::text(ready, &["message"]).to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::os::guard;
    use crate::os::tree::Tree;

    /// A board on which systemd runs, with these units and links.
    fn found(links: &[(&str, &str)], is_running: bool, is_stale: bool) -> (Tree, String) {
        let tree = Tree::new("join-start");
        tree.write("run/systemd/system/other.service", b"");
        tree.write("dev/null", b"");
        tree.write("usr/lib/systemd/system/nodelet.service", b"[Unit]");
        tree.write("usr/lib/systemd/system/nodelet.path", b"[Unit]");
        if is_running {
            tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"7\n");
            let flags: &[u8] = if is_stale { b"NODELET_FLAGS=--v=2" } else { b"" };
            tree.write("proc/7/environ", flags);
            tree.write("proc/7/cmdline", b"/usr/bin/nodelet\0");
        }
        for (path, target) in links {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(Path::new("/usr/lib/systemd/system").join(target), path).unwrap();
        }
        let paths = JoinPaths::new(Some(tree.path()));
        let started =
            start(&paths, "https://cp:6443", UnitProcess::find(&paths.host()).why_stale(), false);
        (tree, started.line())
    }

    /// An init system that is not systemd has started it.
    #[test]
    fn an_agent_without_the_unit_is_not_the_one_with_the_new_files() {
        let tree = Tree::new("join-outside");
        tree.write("proc/12/status", b"Name:\tnodelet\n");
        tree.write("proc/12/cmdline", b"nodelet\0--root-dir=/var/lib/nodelet\0");
        let paths = JoinPaths::new(Some(tree.path()));
        let stale = UnitProcess::find(&paths.host()).why_stale();
        let line = start(&paths, "https://cp:6443", stale, false).line();
        assert!(line.starts_with("– start: process 12, nodelet, runs without the unit"), "{line}");
    }

    #[test]
    fn an_agent_that_no_boot_starts_is_not_ok() {
        let wanted =
            ("etc/systemd/system/multi-user.target.wants/nodelet.service", "nodelet.service");
        let path = ("etc/systemd/system/paths.target.wants/nodelet.path", "nodelet.path");
        let static_one =
            ("usr/lib/systemd/system/special.target.requires/nodelet.service", "nodelet.service");
        let gone = ("etc/systemd/system/multi-user.target.wants/nodelet.service", "gone.service");
        let masked = ("etc/systemd/system/nodelet.service", "/dev/null");
        let masked_now = ("run/systemd/system/nodelet.service", "/dev/null");
        let masked_path = ("etc/systemd/system/nodelet.path", "/dev/null");
        for (links, is_running, is_stale, want) in [
            (&[wanted, path][..], false, false, "✓ start: by nodelet.path"),
            (&[static_one, path], false, false, "✓ start: by nodelet.path"),
            (&[wanted], true, false, "✓ start: nodelet.service runs"),
            // After `systemctl disable --now nodelet`.
            (&[path], false, false, "– start: nodelet.service is not enabled"),
            (&[path], true, false, "– start: nodelet.service is not enabled"),
            (&[gone, path], false, false, "– start: nodelet.service is not enabled"),
            (&[wanted], false, false, "– start: nodelet.path is not enabled"),
            (&[wanted, path, masked_path], false, false, "– start: nodelet.path is not enabled"),
            (&[wanted, path, masked], false, false, "✗ start: nodelet.service is masked"),
            (&[wanted, path, masked_now], true, false, "✗ start: nodelet.service is masked"),
            (&[wanted], true, true, "– start: nodelet.service runs with its copy"),
        ] {
            let (tree, line) = found(links, is_running, is_stale);
            assert!(line.starts_with(want), "{links:?} {is_running} {is_stale}: {line}");
            let is_triggered = guard::exists(&JoinPaths::new(Some(tree.path())).trigger());
            assert_eq!(is_triggered, !is_running && !line.starts_with('✗'), "{line}");
        }
        let (_, line) = found(&[], true, true);
        assert!(line.ends_with("; systemctl enable nodelet, then systemctl restart nodelet"));
    }

    /// The overlay of raspi-config, a board that never leaves its initramfs; and a link to a disk.
    #[test]
    fn a_start_after_which_a_boot_forgets_the_identity_is_not_ok() {
        let tree = Tree::empty("join-memory");
        tree.write("etc/default/nodelet-join", b"");
        tree.write("data/nodelet.kubeconfig", b"");
        let paths = JoinPaths::new(Some(tree.path()));
        let mount = |point: &str, fs_type: &str| {
            let point = tree.path().join(point).components().collect();
            Mount { point, fs_type: fs_type.to_owned(), device: None }
        };
        let disk = || mount("data", "ext4");
        let kubeconfig = paths.kubeconfig().display().to_string();
        let flags = paths.flags().display().to_string();
        for (is_linked, mounts, want) in [
            (false, vec![], None),
            (false, vec![mount("", "ext4")], None),
            (false, vec![mount("", "overlay")], Some((&kubeconfig, "is on an overlay: if its"))),
            (false, vec![mount("etc", "tmpfs")], Some((&kubeconfig, "is in memory: a reboot"))),
            (true, vec![mount("etc", "tmpfs"), disk()], Some((&flags, "is in memory: a reboot"))),
            (true, vec![mount("etc/credstore", "tmpfs"), disk()], None),
        ] {
            let link = tree.path().join("etc/credstore/nodelet.kubeconfig");
            if is_linked && !link.is_symlink() {
                std::fs::create_dir_all(link.parent().unwrap()).unwrap();
                symlink("/data/nodelet.kubeconfig", link).unwrap();
            }
            let line = kept(&paths, false, &mounts, Finding::ok("start", "by nodelet.path")).line();
            let want = want.map_or("✓ start: by nodelet.path".to_owned(), |(path, lost)| {
                format!("– start: by nodelet.path, but {path} {lost}")
            });
            assert!(line.starts_with(&want), "{mounts:?}: {line}");
        }
    }

    #[test]
    fn without_systemd_the_line_to_run_names_the_files_that_were_written() {
        let tree = Tree::empty("join-by-hand");
        let paths = JoinPaths::new(Some(tree.path()));
        let root = tree.path().display();
        for (bootstrap_only, kubeconfig) in [
            (false, format!("--kubeconfig={root}/etc/credstore/nodelet.kubeconfig")),
            (
                true,
                format!("--bootstrap-kubeconfig={root}/etc/credstore/nodelet.bootstrap-kubeconfig"),
            ),
        ] {
            let line = start(&paths, "", None, bootstrap_only).line();
            let want = format!(
                "– start: systemd does not run; nodelet, the flags in \
                 {root}/etc/default/nodelet-join, and {kubeconfig} --root-dir=/var/lib/nodelet"
            );
            assert_eq!(line, want);
        }
    }
}
