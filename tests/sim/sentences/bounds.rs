//! Sentence 10: what the agent does in an hour is bounded, and in a quiet hour it is exact.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::trace::{Entry, Exchange, What};

pub(super) const SENTENCE: Sentence = Sentence { number: 10, name: "bounds", judge };

const HOUR: Duration = Duration::from_secs(3600);

/// After the last fault or start, checks are frequent for 135 s, a last status may wait for 5 min,
/// and an event of an hour of limits may still come.
const SETTLES: Duration = Duration::from_secs(900);

/// What is counted.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Turns,
    Requests,
    Renewals,
    Reports,
    /// Reports that met a conflict.
    Conflicts,
    Looks,
    Lists,
    Reads,
    Creates,
    Certificates,
    Events,
    /// Events that a busy server refused: each is sent again.
    Busy,
    Lines,
    Connections,
    Handshakes,
    Changes,
    /// Of the agent and of commands.
    Starts,
    /// Of the agent.
    Agents,
}

type Counts = BTreeMap<Kind, u64>;

/// The most of an hour, whatever happens.
const MOST: &[(Kind, u64)] = &[
    // The sum of what follows, and a wakeup for each change of the network (360) and each report of
    // a driver.
    (Kind::Turns, 4000),
    // An attempt every 5 s, of which one in two reads the Lease.
    (Kind::Renewals, 1100),
    // A changed status is sent once in 10 s, after six at once. As by a kubelet, a report that meets
    // a conflict is sent again after a read, which counts as one.
    (Kind::Reports, 380),
    // One with each renewal, while checks are frequent.
    (Kind::Looks, 400),
    // The pods: with each status, and their backoff.
    (Kind::Lists, 400),
    // The backoff of a Node request is 7 s, and each start begins with 100 ms.
    (Kind::Reads, 700),
    (Kind::Creates, 700),
    // 0.1 s, 0.2 s and so on for each CSR, and then 15 s or a minute.
    (Kind::Certificates, 400),
    // Of the kubelet: of starts, Ready and pressures.
    (Kind::Events, 100),
    // The tenth refusal drops an event, 55 s after the first one.
    (Kind::Busy, 670),
    // The same kind of fault is one line; another reason is one after a pause that doubles.
    (Kind::Lines, 150),
    // Three addresses for each attempt that is not answered in 20 s, or is refused in 5 s.
    (Kind::Connections, 1500),
    (Kind::Handshakes, 1500),
    // Nine operations for a certificate, four for `boots` and for `podcidr`.
    (Kind::Changes, 200),
];

/// The fewest and the most of a quiet hour without a renewal of the certificate: one renewal every
/// 10 to 10.4 s; a report, a look and a list every five minutes, with a renewal.
const QUIET: &[(Kind, u64, u64)] = &[
    (Kind::Turns, 346, 362),
    (Kind::Renewals, 346, 360),
    (Kind::Reports, 11, 12),
    (Kind::Looks, 11, 12),
    (Kind::Lists, 11, 12),
    (Kind::Reads, 0, 0),
    (Kind::Creates, 0, 0),
    (Kind::Events, 0, 0),
    (Kind::Lines, 0, 0),
    (Kind::Connections, 0, 0),
    (Kind::Handshakes, 0, 0),
    (Kind::Changes, 0, 0),
];

/// What each renewal of the certificate adds to a quiet hour: a CSR, a connection, two lines, a pair
/// and its link. A signer that looks once a minute is asked some ten times.
const RENEWAL: &[(Kind, u64)] = &[
    (Kind::Turns, 20),
    (Kind::Creates, 2),
    (Kind::Reads, 2),
    (Kind::Lines, 2),
    (Kind::Connections, 2),
    (Kind::Handshakes, 2),
    (Kind::Changes, 15),
];

/// The most renewals of an hour: one is due when 70 % of the life of the certificate are over.
fn renewals(run: &Run<'_>) -> u64 {
    let life: u64 = run.plan.setting("life").parse().unwrap_or(86_400);
    1 + HOUR.as_secs() * 10 / (life * 7)
}

/// Events about the board's health that one process sends in an hour: six, and six of the hour
/// before that were not sent yet.
const HEALTH_EVENTS: u64 = 12;

/// The reasons of all other events.
const OF_THE_KUBELET: &[&str] = &[
    "Starting",
    "Rebooted",
    "Shutdown",
    "NodeNameConflict",
    "NodeSchedulable",
    "NodeNotSchedulable",
    "NodeReady",
    "NodeNotReady",
    "NodeHasInsufficientMemory",
    "NodeHasSufficientMemory",
    "NodeHasDiskPressure",
    "NodeHasNoDiskPressure",
    "NodeHasInsufficientPID",
    "NodeHasSufficientPID",
];

/// What each start of a process adds to the most of an hour.
const OF_A_START: &[(Kind, u64)] = &[
    // For two minutes a path of `--ready-when-exists` is looked at every 100 ms.
    (Kind::Turns, 1300),
    // Of the agent `boots` and `podcidr`, of a join credentials, flags and its mark: four each.
    (Kind::Changes, 12),
    // The registration, the clock, what cannot be stored.
    (Kind::Lines, 8),
    // Starting, and Ready there and back.
    (Kind::Events, 3),
];

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let mut hours: BTreeMap<u64, Counts> = BTreeMap::new();
    for entry in run.trace {
        let hour = entry.at.as_secs() / HOUR.as_secs();
        for kind in kinds(&entry.what) {
            *hours.entry(hour).or_default().entry(kind).or_default() += 1;
        }
    }
    for (hour, counts) in &hours {
        let end = HOUR * u32::try_from(*hour + 1).unwrap_or(u32::MAX);
        for (kind, most) in MOST {
            judged.count += 1;
            let count = counts.get(kind).copied().unwrap_or(0);
            let started = if *kind == Kind::Events { Kind::Agents } else { Kind::Starts };
            let starts = counts.get(&started).copied().unwrap_or(0);
            let of_a_start = OF_A_START.iter().find(|(of, _)| of == kind).map_or(0, |(_, n)| *n);
            let repeated = match kind {
                Kind::Reports => counts.get(&Kind::Conflicts),
                Kind::Events => counts.get(&Kind::Busy),
                _ => None,
            };
            // A folder that cannot be read cannot be synced either: its pair is stored again each
            // minute, in seven operations.
            let is_stored_again = *kind == Kind::Changes && has_class(run, "card-reads-fail");
            let stored = if is_stored_again { 60 * 7 } else { 0 };
            let most = most + starts * of_a_start + repeated.copied().unwrap_or(0) + stored;
            if count > most {
                let text = format!("{count} {kind:?} in hour {hour}; {most} are allowed");
                judged.breaks(end, &format!("{kind:?}"), text);
            }
        }
    }
    for (begin, counts) in quiet_hours(run.trace) {
        let is_renewed =
            counts.contains_key(&Kind::Certificates) || run.plan.setting("auth").ends_with("k3s");
        for (kind, fewest, most) in QUIET {
            judged.count += 1;
            // Who offers pods ends none, and lists none.
            let lists_none = *kind == Kind::Lists && run.plan.setting("pods") == "40";
            let (fewest, mut most) = if lists_none { (0, 0) } else { (*fewest, *most) };
            // What a root of a network did not give at the start leaves the Node after an hour.
            let is_of_a_report = [Kind::Reports, Kind::Lists].contains(kind) && !lists_none;
            most += u64::from(is_of_a_report && run.plan.root_can_block());
            // A card that is read-only for good: what could not be written is tried again.
            if *kind == Kind::Changes && has_class(run, "card-turns-read-only") {
                continue;
            }
            let count = counts.get(kind).copied().unwrap_or(0);
            let added = RENEWAL.iter().find(|(added, _)| added == kind).filter(|_| is_renewed);
            let most = most + added.map_or(0, |(_, added)| *added * renewals(run));
            if !(fewest..=most).contains(&count) {
                let text =
                    format!("{count} {kind:?} in a quiet hour; {fewest} to {most} are right");
                judged.breaks(begin + HOUR, &format!("quiet {kind:?}"), text);
            }
        }
    }
    judge_health(run.trace, &mut judged);
    judged
}

fn has_class(run: &Run<'_>, class: &str) -> bool {
    run.plan.steps.iter().any(|step| step.class.name == class)
}

/// The counts of each quiet hour, and when it began.
fn quiet_hours(trace: &[Entry]) -> Vec<(Duration, Counts)> {
    let mut hours = Vec::new();
    let (mut begin, mut counts) = (SETTLES, Counts::new());
    for entry in trace {
        let disturbs = matches!(
            &entry.what,
            What::Fault { .. }
                | What::Starts { .. }
                | What::Ends { .. }
                | What::Signal { .. }
                | What::Blocks { .. }
        ) || matches!(&entry.what, What::Log { text, .. } if is_over(text));
        while !disturbs && entry.at >= begin + HOUR {
            hours.push((begin, std::mem::take(&mut counts)));
            begin += HOUR;
        }
        if disturbs {
            let asleep = match entry.what {
                What::Blocks { lasts, .. } => lasts,
                _ => Duration::ZERO,
            };
            begin = begin.max(entry.at + asleep + SETTLES);
            counts.clear();
        } else if entry.at >= begin {
            for kind in kinds(&entry.what) {
                *counts.entry(kind).or_default() += 1;
            }
        }
    }
    hours
}

/// A condition of hours is over: it is told, with an event, and moves the next report.
fn is_over(line: &str) -> bool {
    ["UnderVoltage", "FrequentReboot"]
        .iter()
        .any(|kind| line.starts_with(&format!("Node condition {kind} is now: False")))
}

/// The events about the board's health.
fn judge_health(trace: &[Entry], judged: &mut Judged) {
    let (mut sent, mut names) = (BTreeMap::<(u32, u64), u64>::new(), BTreeSet::new());
    for entry in trace {
        let (request, is_repeated) = match &entry.what {
            What::Request(request) => (request, false),
            What::Answer(answer) if is_busy(answer) => (answer, true),
            _ => continue,
        };
        if kind_of(request) != Kind::Events {
            continue;
        }
        let name = match request.method.as_str() {
            "POST" => request.body["metadata"]["name"].as_str().unwrap_or_default(),
            _ => request.target.rsplit('/').next().unwrap_or_default(),
        };
        if let Some(reason) = request.body["reason"].as_str()
            && !OF_THE_KUBELET.contains(&reason)
        {
            names.insert(name.to_owned());
        }
        if names.contains(name) {
            let hour = entry.at.as_secs() / HOUR.as_secs();
            let count = sent.entry((request.pid, hour)).or_default();
            if is_repeated {
                *count = count.saturating_sub(1);
                continue;
            }
            *count += 1;
            judged.count += 1;
            if *count > HEALTH_EVENTS {
                let text = format!("{count} events about the board's health in an hour");
                judged.breaks(entry.at, "health events", text);
            }
        }
    }
}

/// What an entry counts as.
fn kinds(what: &What) -> Vec<Kind> {
    match what {
        What::Waits { .. } => vec![Kind::Turns],
        What::Request(request) => vec![Kind::Requests, kind_of(request)],
        What::Answer(answer) if answer.code == 409 && kind_of(answer) == Kind::Reports => {
            vec![Kind::Conflicts]
        }
        What::Answer(answer) if is_busy(answer) && kind_of(answer) == Kind::Events => {
            vec![Kind::Busy]
        }
        What::Log { is_verbose: false, .. } => vec![Kind::Lines],
        What::Connects { opened: true, .. } => vec![Kind::Connections],
        What::Handshake { .. } => vec![Kind::Handshakes],
        What::File { .. } => vec![Kind::Changes],
        What::Starts { name: "nodelet", .. } => vec![Kind::Starts, Kind::Agents],
        What::Starts { .. } => vec![Kind::Starts],
        _ => Vec::new(),
    }
}

/// The server asks for another attempt.
fn is_busy(answer: &Exchange) -> bool {
    answer.retry_after.is_some() && (answer.code == 429 || answer.code >= 500)
}

fn kind_of(request: &Exchange) -> Kind {
    let target = request.target.as_str();
    match request.method.as_str() {
        _ if target.contains("/leases") => Kind::Renewals,
        _ if target.contains("/certificatesigningrequests") => Kind::Certificates,
        _ if target.contains("/events") => Kind::Events,
        "GET" if target.contains("/pods") => Kind::Lists,
        "PATCH" if request.body["status"].is_null() => Kind::Looks,
        "PATCH" => Kind::Reports,
        "POST" => Kind::Creates,
        _ => Kind::Reads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sentences::planted::{judged_trace, quiet_run};

    #[test]
    fn planted_requests_are_found() {
        let trace = quiet_run();
        let judged = judged_trace(&SENTENCE, &trace);
        assert!(judged.count > 40 && judged.broken.is_none(), "{judged:?}");
        let of_kind = |kind| {
            let mut found = trace.iter().filter(move |entry| kinds(&entry.what).contains(&kind));
            found.next_back().expect("there is one").clone()
        };
        let broken_by = |kind, times, at| {
            let mut trace = trace.clone();
            let place = trace.iter().position(|entry| entry.at >= at).expect("a later entry");
            let planted = Entry { at: trace[place].at, ..of_kind(kind) };
            trace.splice(place..place, std::iter::repeat_n(planted, times));
            judged_trace(&SENTENCE, &trace).broken.map(|broken| broken.kind)
        };
        assert_eq!(broken_by(Kind::Lines, 1, HOUR).as_deref(), Some("quiet Lines"));
        assert_eq!(broken_by(Kind::Reports, 2, HOUR).as_deref(), Some("quiet Reports"));
        let begin = Duration::from_secs(100);
        assert_eq!(broken_by(Kind::Lines, 10, begin), None);
        assert_eq!(broken_by(Kind::Connections, 2000, begin).as_deref(), Some("Connections"));
    }
}
