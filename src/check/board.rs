//! Judges the board: the kernel's files, the clock, the folders, the client certificate, and the
//! sources of the board's health. A problem of the board's health is a note and no failure: a run
//! works all the same.

use crate::health::config::HealthConfig;
use crate::health::{CheckTexts, ConditionKind, KINDS};
use crate::host::cgroup::Mode;
use crate::kube::facts::{FsStats, HealthConditions, Read, is_machine_id, no_machine_id};
use crate::kube::finding::{Finding, Mark};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, NODE_USER_PREFIX, NODES_GROUP, Subject};
use crate::os::mounts::is_volatile;

/// The cgroup version.
pub fn cgroups(mode: Mode) -> Finding {
    let version = match mode {
        Mode::V2 => "v2",
        Mode::V1 => "v1",
        Mode::Hybrid => "v1, with an empty v2 beside it",
        Mode::None => {
            return Finding::note(
                "cgroups",
                "no cgroup is mounted, memory in use is computed from /proc/meminfo",
                "mount cgroup2 at /sys/fs/cgroup",
            );
        }
    };
    Finding::ok("cgroups", version)
}

/// Without the controller, memory in use is computed from /proc/meminfo.
pub fn memory_controller(usable: &Read<bool>) -> Finding {
    let check = "memory-controller";
    let remedy = "boot with cgroup_enable=memory (cmdline.txt of a Raspberry Pi)";
    match usable {
        Ok(true) => Finding::ok(check, "on"),
        Ok(false) => {
            Finding::note(check, "off, memory in use is computed from /proc/meminfo", remedy)
        }
        Err(unread) => Finding::note(check, unread.to_string(), remedy),
    }
}

/// Without PSI, memory pressure is noticed when the next status is computed.
pub fn psi(is_on: &Read<bool>) -> Finding {
    let remedy = "boot with psi=1 (Linux 4.20, CONFIG_PSI)";
    match is_on {
        Ok(true) => Finding::ok("psi", "proc/pressure/memory"),
        Ok(false) => Finding::note(
            "psi",
            "the kernel has no PSI, memory pressure is noticed with the next status",
            remedy,
        ),
        Err(unread) => Finding::note("psi", unread.to_string(), remedy),
    }
}

/// Without a machine id, as on OpenWrt, copies of one SD card cannot be told apart; the Node is
/// Ready all the same.
pub fn machine_id(machine_id: &Read<String>) -> Finding {
    let why = match machine_id.as_deref() {
        Ok(id) if is_machine_id(id) => return Finding::ok("machine-id", id),
        Ok("") => "etc/machine-id: absent or empty".to_owned(),
        Ok(other) => no_machine_id(other),
        Err(unread) => unread.to_string(),
    };
    let remedy = "write one with tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id";
    Finding::note("machine-id", why, remedy)
}

/// The UUID from DMI or the device tree; the machine id replaces a missing one.
pub fn system_uuid(system_uuid: &Read<String>, machine_id: &Read<String>) -> Finding {
    let check = "system-uuid";
    match system_uuid.as_deref() {
        Ok(uuid) if !uuid.is_empty() && system_uuid != machine_id => {
            Finding::ok(check, format!("{uuid}, from DMI or the device tree"))
        }
        _ => Finding::note(
            check,
            "neither DMI nor the device tree has one, the machine id is used",
            "",
        ),
    }
}

/// A clock that is earlier than the build is not set.
pub fn clock(now: Wall, built: Wall) -> Finding {
    let time = now.time();
    if now >= built {
        Finding::ok("clock", time)
    } else {
        Finding::note(
            "clock",
            format!("{time} is earlier than the build of nodelet, {}", built.time()),
            "set the clock (NTP, RTC); until then the API server's time is used",
        )
    }
}

/// `missing` has one line for each fact that the Node would lack.
pub fn facts(missing: &[String]) -> Finding {
    let remedy = "do these files exist (is /proc mounted?), and may nodelet read them?";
    match missing {
        [] => Finding::ok("facts", "everything that the Node reports can be read"),
        // A line has a semicolon before what the Node lacks. In a finding, a semicolon is before
        // the remedy.
        lines => Finding::failed("facts", lines.join(" | ").replace("; ", ", "), remedy),
    }
}

/// `storage` is `None` for a file system without a size. `writable` holds the reason why the folder
/// cannot be written; the caller passes `Ok` for a folder that must not be touched.
pub fn root_dir(
    path: &str,
    storage: Option<&Read<FsStats>>,
    writable: Result<(), Fault>,
) -> Finding {
    match (storage, writable) {
        (Some(Err(unread)), _) => {
            Finding::failed("root-dir", unread.to_string(), "give --root-dir a local file system")
        }
        (Some(Ok(fs)), _) if fs.is_old => {
            let (effect, remedy) = FsStats::ASKED_ONCE;
            Finding::note("root-dir", format!("{path}: {effect}"), remedy)
        }
        (Some(Ok(_)), Ok(())) => Finding::ok("root-dir", path),
        (None, Ok(())) => Finding::ok(
            "root-dir",
            format!("{path}, a file system without a size: ephemeral-storage is not reported"),
        ),
        (_, Err(cause)) => Finding::note(
            "root-dir",
            Fault {
                what: format!("{path}: {}, podCIDRs cannot be written there", cause.what),
                ..cause
            },
            "make it writable if another program needs the file podcidr",
        ),
    }
}

/// The end of the remedies of a certificate that a supervisor does not accept any more.
pub const JOIN_AGAIN: &str = "nodelet join --force";

/// The remedy of a certificate that is not valid yet.
const RENEW: &str = "nodelet uses the last certificate, if that is valid; else join again";

/// The remedy of certificates that a reboot loses. The unit may write below /var/lib/nodelet alone,
/// which systemd makes a link to this folder.
const DISK: &str =
    "mount a folder of a disk at /var/lib/private/nodelet, or without the unit use --cert-dir";

/// `writable` is `None` if no certificate is requested: nothing is written there. `fs_type` is the
/// type of the file system, if the mount table was read.
pub fn cert_dir(path: &str, fs_type: Option<&str>, writable: Option<Result<(), Fault>>) -> Finding {
    let check = "cert-dir";
    let lost = "a reboot loses renewed certificates, and the board when the oldest has expired";
    match writable {
        None => Finding::note(check, "certificates are not requested here", ""),
        Some(Ok(())) => match fs_type.and_then(is_volatile) {
            Some(true) => Finding::note(check, format!("{path} is in memory: {lost}"), DISK),
            Some(false) => Finding::note(
                check,
                format!("{path} is on an overlay: if its upper layer is in memory, {lost}"),
                &format!("then {DISK}"),
            ),
            None => Finding::ok(check, path),
        },
        Some(Err(cause)) => Finding::failed(
            check,
            cause.at(path),
            "make --cert-dir a folder that nodelet may write, on a persistent disk",
        ),
    }
}

/// Whether the subject of the client certificate is this node. It is a failure if the subject is
/// another node, or is in the group system:nodes without the name of a node. It is a note if the
/// subject is no node: RBAC may give any user the permissions that a run needs.
pub fn certificate(leaf: &Leaf, node_name: &str) -> Finding {
    let check = "certificate";
    let (user, groups) = (&leaf.subject.common_name, &leaf.subject.organizations);
    let subject = format!("CN={user}, O={}", groups.join(", "));
    let is_node = groups.iter().any(|group| group == NODES_GROUP);
    if let Some(other) = leaf.subject.other_node(&Subject::of_node(node_name)) {
        return Finding::failed(check, other.at(subject), "");
    }
    match leaf.subject.node_name() {
        Some(_) if is_node => Finding::ok(check, subject),
        None if is_node => Finding::failed(
            check,
            format!("{subject}: in the group {NODES_GROUP}, CN must be {NODE_USER_PREFIX}<name>"),
            &format!("request one with CN={NODE_USER_PREFIX}{node_name}"),
        ),
        _ => Finding::note(
            check,
            format!("{subject}: not a node, see its permissions below"),
            &format!(
                "for a node, request one with O={NODES_GROUP}, CN={NODE_USER_PREFIX}{node_name}"
            ),
        ),
    }
}

/// The validity of the certificate at `now`. It is by the server's clock, which decides, if the
/// server has sent its time, and else by the board's. If the board's clock is behind, a valid
/// certificate may look not yet valid, which does no harm: a note. If that clock is ahead, a valid
/// certificate may look expired, which does no harm `at_supervisor`: a note there, and else a
/// failure.
pub fn certificate_expiry(
    leaf: &Leaf,
    now: Wall,
    is_servers: bool,
    at_supervisor: bool,
) -> Finding {
    let check = "certificate-expiry";
    let (from, until) = (leaf.not_before.time(), leaf.not_after.time());
    let who = if is_servers { "the server" } else { "clock" };
    let says = format!("{who} says {}", now.time());
    if now < leaf.not_before {
        let line = format!("not valid before {from}, {says}");
        if is_servers {
            let remedy = format!("if the server's clock is right, the signer's was ahead: {RENEW}");
            return Finding::failed(check, line, &remedy);
        }
        return Finding::note(check, line, "set the clock (NTP, RTC); the server's clock decides");
    }
    if leaf.not_after < now {
        let line = format!("expired at {until}, {says}");
        let remedy = match (is_servers, at_supervisor) {
            (false, true) => {
                let remedy = format!("correct the clock; if it is right, {JOIN_AGAIN}");
                return Finding::note(check, line, &remedy);
            }
            (true, true) => JOIN_AGAIN,
            (_, false) => "renew it, or correct the clock",
        };
        return Finding::failed(check, line, remedy);
    }
    let hours = leaf.not_after.since(now).as_secs() / 3600;
    let left = if hours < 48 { format!("{hours} hours") } else { format!("{} days", hours / 24) };
    Finding::ok(check, format!("valid until {until}, for {left}"))
}

/// Who renews the certificate, and when. `due` is the time of the renewal, 1970 for at once; `None`
/// if nodelet does not renew it. `supervisor` is the supervisor's URL, and why it cannot be asked,
/// with a remedy. A supervisor refuses an expired certificate. `now` is by the same clock as for
/// the expiry.
pub fn certificate_renewal(
    leaf: &Leaf,
    now: Wall,
    due: Option<Wall>,
    supervisor: Option<(&str, Option<&Fault>)>,
) -> Finding {
    let check = "certificate-renewal";
    let Some(due) = due else {
        return Finding::note(check, "not by nodelet", "replace it before it expires");
    };
    // Each agent begins to renew before 90 % of the life, or soon after it if its clock is not set.
    let last = leaf.last_tenth();
    let when = if due == Wall::default() {
        "at once".to_owned()
    } else {
        format!("from {} on", due.time())
    };
    match supervisor {
        Some((_, Some(why))) => Finding::note(check, why.clone(), ""),
        Some((url, None)) if leaf.not_after < now => Finding::note(
            check,
            format!("the supervisor {url} answers an expired certificate with 401"),
            &format!("join again: {JOIN_AGAIN}"),
        ),
        Some((url, None)) => Finding::ok(check, format!("{when}, at the supervisor {url}")),
        // A board that was off for long renews it when it starts.
        None if due < now && last < now => Finding::note(
            check,
            format!("overdue since {}", last.time()),
            "if nodelet runs: kubectl get csr, journalctl -u nodelet",
        ),
        None => Finding::ok(check, format!("{when}, if the cluster approves")),
    }
}

/// The condition `kind` of the board's health. `conditions` has those of all sources, `sources`
/// their files.
pub fn health(
    kind: &ConditionKind,
    config: &HealthConfig,
    conditions: &HealthConditions,
    sources: &[String],
) -> Finding {
    let CheckTexts { name: check, absent, remedy } = kind.check;
    if !config.detects(kind.name) {
        return Finding::note(check, "not detected, by --node-problem-detection", "");
    }
    let with_sources = |text: &str| match sources {
        [] => text.to_owned(),
        sources => format!("{text} ({})", sources.join(", ")),
    };
    let Some(condition) = conditions.known.iter().find(|c| c.name == kind.name) else {
        return Finding::note(check, with_sources(absent), "");
    };
    let detail = with_sources(&condition.message);
    if condition.is_true {
        Finding::note(check, format!("{} would be True: {detail}", condition.name), remedy)
    } else {
        Finding::ok(check, detail)
    }
}

/// The command that shows the problems of all boards; `systemd/health.md` explains it.
pub const ALL_BOARDS: &str = "kubectl get nodes -l kubernetes.io/os=nodelet -o custom-columns=\
    'NAME:.metadata.name,READY:.status.conditions[?(@.type==\"Ready\")].status,\
    TRUE:.status.conditions[?(@.status==\"True\")].type'";

/// The line behind the findings of a board that has a problem.
pub fn hint(findings: &[Finding]) -> Option<String> {
    let is_health = |finding: &Finding| KINDS.iter().any(|kind| kind.check.name == finding.check);
    let mut findings = findings.iter();
    let has_problem =
        findings.any(|f| f.mark == Mark::Note && !f.remedy.is_empty() && is_health(f));
    has_problem.then(|| format!("– the problems of all boards: {ALL_BOARDS}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kube::facts::{HealthCondition, Unread};
    use crate::kube::finding::tests::assert_lines;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn each_thing_of_the_board_has_a_line() {
        let sized = Ok(FsStats::default());
        let once = Ok(FsStats { is_old: true, ..FsStats::default() });
        let unread = || Unread::new("proc/x", "permission denied");
        let machine = |id: &str| machine_id(&Ok(id.to_owned()));
        let uuid = |uuid| system_uuid(&uuid, &Ok("m".into()));
        let folder = |storage, writable| root_dir("/r", storage, writable);
        let read_only = || Err("read-only file system".into());
        let not_set = "– clock: 1970-01-01T00:00:04Z is earlier than the build of nodelet, \
                       1970-01-01T00:00:05Z; set the clock (NTP, RTC); until then the API \
                       server's time is used";
        let no_total = ["proc/meminfo: absent; no capacity memory".into(), "b".into()];
        assert_lines(&[
            (cgroups(Mode::V2), "✓ v2"),
            (cgroups(Mode::None), "– mount cgroup2"),
            (memory_controller(&Ok(true)), "✓ memory-controller: on"),
            (memory_controller(&Ok(false)), "– cgroup_enable=memory"),
            (memory_controller(&Err(unread())), "– proc/x: permission denied"),
            (psi(&Ok(true)), "✓ proc/pressure/memory"),
            (psi(&Ok(false)), "– psi=1"),
            (psi(&Err(unread())), "– permission denied; boot with psi=1"),
            (machine(ID), &format!("✓ {ID}")),
            (machine("uninitialized"), "– \"uninitialized\" is not 32"),
            (machine(&ID[1..]), "– tr -d - </proc"),
            (machine(&"0".repeat(32)), "– is not 32"),
            (machine(&format!("{}g", &ID[1..])), "– is not 32"),
            (machine(""), "– tr -d - </proc"),
            (machine_id(&Err(unread())), "– proc/x"),
            (uuid(Ok("u".into())), "✓ u, from"),
            (uuid(Ok("m".into())), "– machine id is used"),
            (uuid(Ok(String::new())), "– machine id is used"),
            (uuid(Err(unread())), "– machine id is used"),
            (clock(at(5), at(5)), "✓ 1970-01-01T00:00:05Z"),
            (clock(at(4), at(5)), not_set),
            (facts(&[]), "✓ everything"),
            (
                facts(&no_total),
                "✗ proc/meminfo: absent, no capacity memory | b; do these files exist",
            ),
            (facts(&["etc/os-release: absent".into()]), "✗ ; do these files exist"),
            (folder(Some(&sized), Ok(())), "✓ /r"),
            (folder(Some(&once), Ok(())), "– /r: it is on the root file system, which can block"),
            // For instance an initramfs.
            (folder(None, Ok(())), "✓ /r, a file system without a size: "),
            (folder(Some(&sized), read_only()), "– /r: read-only file system, podCIDRs"),
            (
                folder(Some(&sized), Err(Fault::new("on nfs", "choose another"))),
                "– /r: on nfs, podCIDRs cannot be written there; choose another",
            ),
            (folder(Some(&Err(unread())), Ok(())), "✗ --root-dir"),
            (cert_dir("/c", None, None), "– not requested"),
            (cert_dir("/c", None, Some(Ok(()))), "✓ /c"),
            (cert_dir("/c", Some("ext4"), Some(Ok(()))), "✓ /c"),
            (
                cert_dir("/c", Some("tmpfs"), Some(Ok(()))),
                "– has expired; mount a folder of a disk at",
            ),
            (cert_dir("/c", Some("overlay"), Some(Ok(()))), "– /c is on an overlay"),
            (
                cert_dir("/c", None, Some(read_only())),
                "✗ /c: read-only file system; make --cert-dir a folder",
            ),
        ]);
    }

    fn at(seconds: u64) -> Wall {
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    fn leaf(common_name: &str, groups: &[&str]) -> Leaf {
        Leaf {
            subject: Subject {
                common_name: common_name.to_owned(),
                organizations: groups.iter().map(|group| (*group).to_owned()).collect(),
                ..Subject::default()
            },
            not_before: at(100),
            not_after: at(200_000),
            public_key: Vec::new(),
        }
    }

    #[test]
    fn a_node_certificate_has_the_node_name_and_group() {
        let of = |name, groups: &[&str]| certificate(&leaf(name, groups), "pi");
        assert_lines(&[
            (of("system:node:pi", &["system:nodes"]), "✓ CN=system:node:pi, O=system:nodes"),
            (of("system:node:pi", &["a", "system:nodes"]), "✓ O=a, system:nodes"),
            (of("system:node:pi2", &["system:nodes"]), "✗ ; use --hostname-override=pi2, or"),
            (of("system:node:", &["system:nodes"]), "✗ the certificate of pi"),
            (of("pi", &["system:nodes"]), "✗ ; request one with CN=system:node:pi"),
            (of("system:node:pi", &[]), "– permissions below; for a node"),
            (of("admin", &["system:masters"]), "– CN=admin, O=system:masters: not a node"),
            (of("", &[]), "– CN=, O=: not a node"),
        ]);
    }

    #[test]
    fn the_renewal_has_a_time_and_a_signer() {
        let (at_once, then) = (Some(at(0)), Some(at(140_000)));
        let cp = Some(("https://cp:9345", None));
        let fault = Fault::new("k3s-password: no such file", "restore it");
        let faulty = Some(("https://cp:9345", Some(&fault)));
        let of =
            |now, due, supervisor| certificate_renewal(&leaf("", &[]), at(now), due, supervisor);
        let overdue = "– overdue since 1970-01-03T02:00:10Z; if nodelet runs: kubectl get csr";
        let expired = "– the supervisor https://cp:9345 answers an expired certificate with 401; \
                       join again: nodelet join --force";
        assert_lines(&[
            (of(0, None, None), "– not by nodelet; replace it before it expires"),
            (of(0, then, None), "✓ from 1970-01-02T14:53:20Z on, if the cluster approves"),
            (of(180_009, then, None), "✓ from 1970-01-02T14:53:20Z on, if the cluster approves"),
            (of(180_011, then, None), overdue),
            (of(180_011, at_once, None), overdue),
            // The end of one that is replaced by the bootstrap kubeconfig alone.
            (of(180_011, Some(at(200_001)), None), "✓ from 1970-01-03T07:33:21Z on, if"),
            (of(0, then, cp), "✓ from 1970-01-02T14:53:20Z on, at the supervisor https://cp:9345"),
            (of(180_011, at_once, cp), "✓ at once, at the supervisor https://cp:9345"),
            (of(0, at_once, faulty), "– k3s-password: no such file; restore it"),
            (of(200_001, at_once, cp), expired),
            (of(0, at_once, None), "✓ at once, if the cluster approves"),
        ]);
    }

    #[test]
    fn a_certificate_is_valid_from_its_first_to_its_last_second() {
        let by = |is_servers, now, at_supervisor| {
            certificate_expiry(&leaf("", &[]), at(now), is_servers, at_supervisor)
        };
        let at = |now, at_supervisor| by(false, now, at_supervisor);
        let early = "– not valid before 1970-01-01T00:01:40Z, clock says 1970-01-01T00:01:39Z; set \
                     the clock";
        let late = "✗ expired at 1970-01-03T07:33:20Z, clock says 1970-01-03T07:33:21Z; renew it, \
                    or correct the clock";
        assert_lines(&[
            (at(99, false), early),
            (at(100, false), "✓ valid until 1970-01-03T07:33:20Z, for 2 days"),
            (at(100_000, false), "✓ for 27 hours"),
            (at(200_000, false), "✓ for 0 hours"),
            (at(200_001, false), late),
            (at(200_001, true), "– ; correct the clock; if it is"),
            // The server refuses it.
            (
                by(true, 99, false),
                "✗ not valid before 1970-01-01T00:01:40Z, the server says 1970-01-01T00:01:39Z; \
                 if the server's clock is right, the signer's was ahead: ",
            ),
            (by(true, 100, false), "✓ valid until 1970-01-03T07:33:20Z, for 2 days"),
            (by(true, 200_001, false), "✗ , the server says 1970-01-03T07:33:21Z; renew it"),
            (by(true, 200_001, true), "✗ ; nodelet join --force"),
        ]);
    }

    #[test]
    fn a_source_has_a_line_and_a_problem_has_a_remedy() {
        let kind = KINDS.iter().find(|kind| kind.name == "UnderVoltage").unwrap();
        let sources = ["sys/a is 1".to_owned()];
        let found = |detection: &str, is_true: bool| {
            let condition = HealthCondition {
                name: "UnderVoltage".into(),
                is_true,
                reason: "R".into(),
                message: "the message".into(),
                event_reason: "R",
                is_always_listed: false,
            };
            let conditions = HealthConditions { known: vec![condition], absent: Vec::new() };
            health(kind, &HealthConfig::parse(detection, &[]).unwrap(), &conditions, &sources)
        };
        let [fine, bad] = [false, true].map(|is_true| found("problems", is_true));
        assert_eq!(hint(std::slice::from_ref(&fine)), None);
        assert!(hint(std::slice::from_ref(&bad)).unwrap().ends_with(ALL_BOARDS));
        // A missing tool is no problem of the board's health.
        assert_eq!(hint(&[Finding::note("metrics", "off", "enable it")]), None);
        let remedy = kind.check.remedy;
        assert_lines(&[
            (fine, "✓ under-voltage: the message (sys/a is 1)"),
            (bad, &format!("– UnderVoltage would be True: the message (sys/a is 1); {remedy}")),
            (found("-UnderVoltage", true), "– not detected"),
        ]);
        let all = HealthConfig::parse("problems", &[]).unwrap();
        for kind in KINDS {
            let absent = |sources| health(kind, &all, &HealthConditions::default(), sources);
            let CheckTexts { name, absent: why, .. } = kind.check;
            assert_eq!(absent(&[]), Finding::note(name, why, ""));
            // A file that is there and shows no number.
            assert_eq!(absent(&sources).detail, format!("{why} (sys/a is 1)"));
        }
    }
}
