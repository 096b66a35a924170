//! Sentence 12: `check` and the agent agree; `join` shows ✓ only if the process that runs uses what
//! the line says.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Broken, Judged, Run, Sentence};
use crate::os::read::cause;
use crate::sim::classes::board::ERRORS;
use crate::sim::process::Exit;
use crate::sim::trace::{Ran, What};

pub(super) const SENTENCE: Sentence = Sentence { number: 12, name: "agree", judge };

/// Without a fault for so long, what a check says is what the agent does.
const QUIET: Duration = Duration::from_secs(170);
/// A renewal of an agent that works is no older.
const RENEWED: Duration = Duration::from_secs(21);
/// An agent without a renewal for so long does not work.
const SILENT: Duration = Duration::from_secs(60);

/// How old an answer may be when a command prints what it says.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The `--timeout` of a join, with its last steps.
const JOIN: Duration = Duration::from_secs(70);

/// The line of a join that has put its files in place, whatever it meets later.
const WROTE: &str = "✓ files: wrote";

/// The checks of what each renewal of the Lease needs.
const OF_A_RENEWAL: [&str; 11] = [
    "kubeconfig",
    "certificate",
    "certificate-expiry",
    "name-resolution",
    "tcp",
    "tls",
    "authentication",
    "node-get",
    "node-status-patch",
    "lease-get",
    "lease-patch",
];

/// The clock of the board is wrong, or a person asks.
const HARMLESS: [&str; 3] = [" clock-forward ", " clock-back ", " check"];

/// After this the identity or the name of the board is not that of the last line, or a line of the
/// same address is of another cluster.
const INSTALLS: [&str; 5] =
    ["kubeconfig-", "cluster-changes", "name-overridden", "ca-replaced", "ca-dropped"];

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    // When the last fault ended, or somebody changed something; and the faults that last.
    let (mut faults, mut quiet_since) = (0_u64, Duration::ZERO);
    let mut created = None;
    // The lines of joins that run, of the last one whose files are the board's, and who last wrote
    // files, and when.
    let (mut lines, mut last, mut wrote) = (BTreeMap::new(), None, None);
    // The last join that began.
    let mut began = None;
    // Until when a join or a person may change the files.
    let mut changes_until = Duration::ZERO;
    // When Ready ended last: what a command says of it may be older.
    let mut unready = None;
    // When a person last corrected the address in the files, or the rules of RBAC changed.
    let mut corrected = Duration::ZERO;
    // The flags that a line has left.
    let mut left: BTreeMap<Vec<&str>, &str> = BTreeMap::new();
    for entry in run.trace {
        match &entry.what {
            // Neither a clock that is wrong nor a check changes what works.
            What::Fault { text, .. } if HARMLESS.iter().any(|class| text.contains(class)) => {}
            What::Fault { begins, text } => {
                match (begins, text.contains(" for ")) {
                    (true, true) => faults += 1,
                    (false, _) => faults = faults.saturating_sub(1),
                    (true, false) => {}
                }
                quiet_since = entry.at;
                // A person writes the new address into the files.
                if text.contains("server-moves") {
                    (corrected, last) = (entry.at, None);
                }
                // What the cluster allows says whether the certificate is renewed.
                if text.contains(" rbac-") {
                    corrected = entry.at;
                    left.clear();
                }
                if INSTALLS.iter().any(|class| text.contains(class)) {
                    (last, changes_until) = (None, entry.at);
                }
                // A deleted Node may come back with a backup.
                if text.contains("node-deleted") || text.contains("etcd-") {
                    created = None;
                }
                // It takes the files away from the joins that run, and leaves those of the process.
                if text.contains("package size=2") {
                    lines.clear();
                }
            }
            What::Answer(answer)
                if answer.method == "POST"
                    && answer.target == "/api/v1/nodes"
                    && answer.is_carried_out =>
            {
                created = Some(entry.at);
            }
            What::Starts { pid, name: "nodelet join", line } => {
                lines.insert(*pid, line);
                began = Some((*pid, entry.at));
                changes_until = entry.at + JOIN;
            }
            What::Ready { status } if status != "True" => unready = Some(entry.at),
            What::Print { pid, text } if text.starts_with(WROTE) => {
                wrote = Some((*pid, entry.at));
                last = lines.get(pid).map(|line| wish(line));
            }
            What::Ran(ran) => {
                // The files are no longer those of a line if another join wrote its own meanwhile.
                let is_other = |(pid, at)| pid != ran.pid && at >= ran.began;
                let line = lines.remove(&ran.pid).filter(|_| !wrote.is_some_and(is_other));
                if ran.command == "join" {
                    changes_until = entry.at;
                }
                // Who changes the files beside a check does it behind it.
                if ran.command == "check" && ran.began <= changes_until {
                    continue;
                }
                let is_again = line.is_some_and(|line| last == Some(wish(line)));
                let refusal = ran.line("✗ joined: ").filter(|why| !is_of_the_board(why));
                if is_again && let Some(why) = refusal {
                    judged.breaks(entry.at, "join: refuses the same line", why.to_owned());
                }
                if let Some(line) = line {
                    let is_well = ran.exit == Exit::Code(true);
                    if is_well && ran.began > corrected && !began.is_some_and(is_other) {
                        let flags = left.entry(wish(line)).or_insert(&ran.flags);
                        if *flags != ran.flags {
                            let text = format!("{flags:?}, and now {:?}", ran.flags);
                            judged.breaks(entry.at, "join: the same line, other flags", text);
                        }
                    }
                    let has_files = is_well || wrote.is_some_and(|(pid, _)| pid == ran.pid);
                    last = has_files.then(|| wish(line));
                }
                if denies_a_node(ran, created) {
                    let text = format!("the Node is there: {}", ran.lines.join(" | "));
                    judged.breaks(entry.at, "check: namesake", text);
                }
                if unready.is_some_and(|at| entry.at.saturating_sub(at) < ON_ITS_WAY) {
                    continue;
                }
                let is_quiet = faults == 0 && ran.began >= quiet_since + QUIET;
                if let Some((kind, text)) = agrees(ran, entry.at, is_quiet, &mut judged.count) {
                    judged.breaks(entry.at, kind, text);
                }
            }
            _ => {}
        }
    }
    judged
}

/// What the board is to be by a line. The token is another one each time that the control plane
/// prints the line, but for the CA in a token of k3s; and who has replaced an identity does not need
/// `--force` again.
fn wish(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split(' ').filter(|word| *word != "--force").collect();
    let token = words.iter().position(|word| *word == "--token").map(|flag| flag + 1);
    if let Some(token) = token.and_then(|token| words.get_mut(token)) {
        *token = token.split_once("::").map_or("", |(ca, _)| ca);
    }
    words
}

/// Why any line is refused: a file cannot be read, or the administrator has set another name since.
fn is_of_the_board(why: &str) -> bool {
    let is_unread = |errno: &u64| {
        let errno = i32::try_from(*errno).expect("an errno");
        why.contains(&cause(&std::io::Error::from_raw_os_error(errno)).what)
    };
    ERRORS.iter().any(is_unread) || why.contains("would win over what join writes")
}

/// A check says that there is no Node, and it was there all the time.
fn denies_a_node(ran: &Ran, created: Option<Duration>) -> bool {
    ran.line("✓ namesake: there is no Node").is_some()
        && ran.has_node
        && ran.former.is_none()
        && created.is_some_and(|created| created < ran.began)
}

/// What a command says that is not so.
fn agrees(
    ran: &Ran,
    now: Duration,
    is_quiet: bool,
    count: &mut u64,
) -> Option<(&'static str, String)> {
    match ran.command {
        "join" => join(ran, now, count),
        "check" => check(ran, now, is_quiet, count),
        _ => None,
    }
}

fn join(ran: &Ran, now: Duration, count: &mut u64) -> Option<(&'static str, String)> {
    let lines = ran.lines.join(" | ");
    let is_own = ran.starts_as.as_deref() == Some(ran.name.as_str());
    let is_renewed = ran.renewed.is_some_and(|at| now.saturating_sub(at) <= RENEWED);
    if ran.line("✗ joined: ").is_some_and(|line| line.contains(": another name"))
        && (is_own && is_renewed && ran.ready == "True")
    {
        return Some(("join: refuses a healthy board", lines));
    }
    if !ran.says_all_is_well() {
        return None;
    }
    *count += 1;
    // A process that has started since read the files then.
    let is_former = ran.runs_since.is_some_and(|since| since < ran.began);
    if let Some(what) = ran.former.filter(|_| is_former) {
        return Some(("join: former files", format!("the process has its former {what}: {lines}")));
    }
    let is_own = ran.starts_as.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(&ran.name));
    if !is_own {
        let text = format!("the unit starts as {:?}, not as {}: {lines}", ran.starts_as, ran.name);
        return Some(("join: another name", text));
    }
    if ran.line("✓ ready").is_some() && ran.ready != "True" {
        return Some(("join: ready", format!("Ready is {:?}: {lines}", ran.ready)));
    }
    None
}

fn check(
    ran: &Ran,
    now: Duration,
    is_quiet: bool,
    count: &mut u64,
) -> Option<(&'static str, String)> {
    let lines = ran.lines.join(" | ");
    let Exit::Code(is_well) = ran.exit else { return None };
    // It says so of files that it could not read.
    let is_unknown = ran.line("– unit: ").is_some_and(|line| line.contains(" is unknown: "));
    if let Some(since) = ran.runs_since
        && since < ran.began
        && is_well
        && !is_unknown
        && let Some(what) = ran.former
    {
        let text = format!("all is well, and the process has former {what} since {since:?}");
        return Some(("check: former files", text));
    }
    // What a check says of former files, the next start does not have.
    if !is_quiet
        || ran.former.is_some()
        || ran.has_lost_pair
        || ran.runs_since.is_none_or(|since| since + QUIET > ran.began)
    {
        return None;
    }
    *count += 1;
    let age = ran.renewed.map(|at| now.saturating_sub(at));
    let works = age.is_some_and(|age| age <= RENEWED) && ran.ready == "True";
    if works {
        // What works is at another cluster than the files: a person has not restarted it.
        if !ran.has_node {
            return None;
        }
        let wrong = OF_A_RENEWAL.iter().find_map(|check| ran.line(&format!("✗ {check}: ")));
        // One that ends without a finding could not read the flags.
        let has_found = ran.lines.iter().any(|line| line.starts_with('✗'));
        let line = wrong.or((!is_well && !has_found).then_some(lines.as_str()));
        return line.map(|line| ("check: fails", format!("the agent works: {line}")));
    }
    let is_silent = age.is_none_or(|age| age > SILENT);
    (is_well && is_silent)
        .then(|| ("check: all is well", format!("no renewal since {age:?}: {lines}")))
}

/// The first thing that is not so in a trace, for tests.
#[cfg(test)]
fn found(trace: &[crate::sim::trace::Entry]) -> Option<Broken> {
    let plan = "seed 1\nhours 1\n".parse().expect("a plan");
    judge(&Run { plan: &plan, trace }).broken
}

#[test]
fn a_planted_disagreement_is_found() {
    use crate::sim::trace::Entry;
    let seconds = Duration::from_secs;
    let good = Ran {
        began: seconds(1000),
        lines: vec!["✓ start: nodelet.service runs".to_owned(), "✓ ready: pi".to_owned()],
        starts_as: Some("pi".to_owned()),
        runs_since: Some(seconds(10)),
        renewed: Some(seconds(1001)),
        ..Ran::example("join")
    };
    let kind = |ran: &Ran| {
        let what = What::Ran(Box::new(ran.clone()));
        found(&[Entry { at: seconds(1004), what }]).map(|broken| broken.kind)
    };
    let check = Ran { command: "check", lines: vec!["✓ tls: 1.3".to_owned()], ..good.clone() };
    let former = Some("credentials");
    let restart = vec!["– start: it runs; systemctl restart nodelet".to_owned()];
    for (ran, want) in [
        (good.clone(), None),
        (Ran { former, ..good.clone() }, Some("join: former files")),
        (Ran { former, lines: restart, ..good.clone() }, None),
        (Ran { former, runs_since: Some(seconds(1001)), ..good.clone() }, None),
        (Ran { starts_as: Some("a".to_owned()), ..good.clone() }, Some("join: another name")),
        (
            Ran {
                lines: vec!["✗ joined: this board has …: another name; force".to_owned()],
                exit: Exit::Code(false),
                ..good.clone()
            },
            Some("join: refuses a healthy board"),
        ),
        (Ran { ready: "Unknown".to_owned(), ..good }, Some("join: ready")),
        (check.clone(), None),
        (Ran { former, ..check.clone() }, Some("check: former files")),
        (
            Ran {
                former,
                lines: vec!["✗ authentication: 401".to_owned()],
                exit: Exit::Code(false),
                ..check.clone()
            },
            None,
        ),
        (Ran { renewed: Some(seconds(900)), ..check.clone() }, Some("check: all is well")),
        (
            Ran { lines: vec!["✗ tls: refused".to_owned()], exit: Exit::Code(false), ..check },
            Some("check: fails"),
        ),
    ] {
        assert_eq!(kind(&ran).as_deref(), want, "{ran:?}");
    }
}

#[test]
fn a_check_by_a_wrong_clock_is_found() {
    let seconds = Duration::from_secs;
    let entry = |at, what| crate::sim::trace::Entry { at: seconds(at), what };
    let during = |fault: &str| {
        let fault = What::Fault { begins: true, text: format!("at 900 for 300 {fault} size=9") };
        let ran = Ran {
            began: seconds(1000),
            lines: vec!["✗ certificate-expiry: expired".to_owned()],
            exit: Exit::Code(false),
            runs_since: Some(seconds(10)),
            renewed: Some(seconds(1001)),
            ..Ran::example("check")
        };
        let ran = What::Ran(Box::new(ran));
        found(&[entry(900, fault), entry(1004, ran)]).map(|broken| broken.kind)
    };
    assert_eq!(during("clock-forward").as_deref(), Some("check: fails"));
    assert_eq!(during("server-slow"), None);
}

#[test]
fn the_same_line_makes_the_same_board() {
    let seconds = Duration::from_secs;
    let entry = |at, what| crate::sim::trace::Entry { at: seconds(at), what };
    let joins = |at: u64, line: &str, flags: &str, said: &str, is_well: bool| {
        let ran = Ran {
            began: seconds(at),
            exit: Exit::Code(is_well),
            lines: vec![said.to_owned()],
            flags: flags.to_owned(),
            ..Ran::example("join")
        };
        let line = format!("join a:1 --token {line}");
        let starts = What::Starts { pid: 2, name: "nodelet join", line };
        [entry(at, starts), entry(at + 1, What::Ran(Box::new(ran)))]
    };
    let kind = |second: [crate::sim::trace::Entry; 2]| {
        let first = joins(1, "b --node-name=pi", "A", "✓ files: wrote x", true);
        found(&[first, second].concat()).map(|broken| broken.kind)
    };
    let refused = "✗ joined: this board has a token of a; nodelet join --force replaces it";
    let again = joins(9, "c --node-name=pi", "A", "✓ joined: already", true);
    assert_eq!(kind(again), None);
    let other = joins(9, "c --node-name=pi --force", "B", "✓ joined: already", true);
    assert_eq!(kind(other).as_deref(), Some("join: the same line, other flags"));
    let no = joins(9, "c --node-name=pi", "A", refused, false);
    assert_eq!(kind(no.clone()).as_deref(), Some("join: refuses the same line"));
    let unread = "✗ joined: /etc/default/nodelet: resource temporarily unavailable; see dmesg";
    assert_eq!(kind(joins(9, "c --node-name=pi", "A", unread, false)), None);
    // Another line was carried out while the first one waited for a Ready Node.
    let [starts, ends] = joins(1, "b --node-name=pi", "A", "✓ files: wrote x", true);
    let wrote = |pid| entry(2, What::Print { pid, text: "✓ files: wrote x".to_owned() });
    let overtaken = [&[starts, wrote(2), wrote(3), ends], &no[..]].concat();
    assert_eq!(found(&overtaken), None);
    assert_eq!(kind(joins(9, "c --node-name=pie", "A", refused, false)), None);
}
