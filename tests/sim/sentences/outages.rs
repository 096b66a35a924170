//! Sentence 11: each "failed" of the log has its "recovered", the status line names a fault only
//! while there is one, and no line is repeated more often than `kube/outage_log.rs` promises.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::trace::What;

pub(super) const SENTENCE: Sentence = Sentence { number: 11, name: "outages", judge };

/// Shortest time between two failure lines of one operation: a minute from begin to begin, and a
/// read of a card may take 8 s.
const SHORTEST: Duration = Duration::from_secs(52);

/// A certificate is requested, and stored, again after so long.
const CERTIFICATE: Duration = Duration::from_secs(1000);

/// The pods are listed, and the podCIDR is written again, with the next report of the status: 7.5 min
/// after the last one at most.
const REPORTED: Duration = Duration::from_secs(480);

/// The time is compared with each answer of the server, and what comes of it is told then.
const TOLD: Duration = Duration::from_secs(21);

/// What is missing is read again, and written, within a minute, and the status is computed then.
const READ: Duration = Duration::from_secs(105);

/// The lines of one operation of one process.
#[derive(Default)]
struct Outage {
    /// The failure lines since the last "recovered".
    failures: Vec<String>,
    last: Option<Duration>,
}

impl Outage {
    /// The object was deleted: the reason why it cannot be made again follows at once.
    fn follows_a_deletion(&self) -> bool {
        self.failures.last().is_some_and(|text| text.contains("deleted on the server"))
    }
}

/// Each file that cannot be read is on the root. One that can block is read only at the start. The
/// status line tells what is unread now, and the log another reason up to an hour later.
fn is_of_the_root(status: &str) -> bool {
    let facts = status.split_once("; facts: ").map(|(_, facts)| facts);
    // Its size is asked for once, too.
    let is_size = |fault: &str| fault.starts_with("statvfs: ");
    let is_of_it =
        |fault: &str| fault.starts_with("etc/") || fault.contains(", etc/") || is_size(fault);
    facts.is_some_and(|facts| facts.split(" | ").all(is_of_it))
}

/// A person has removed the link to the pair: it is made anew with the next certificate.
fn is_of_person(why: &str) -> bool {
    why.contains("kubelet-client-current.pem: no such file")
}

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    // Since when the board has each of its ids. One without a machine id or a boot id has this
    // fault as long as it has none.
    let mut has_facts = Some(Duration::ZERO);
    let mut outages: BTreeMap<String, Outage> = BTreeMap::new();
    let (mut is_excused, mut agent) = (false, None);
    let can_block = run.plan.root_can_block();
    for entry in run.trace {
        match &entry.what {
            What::Starts { name: "nodelet", pid, .. } => {
                (agent, outages) = (Some(*pid), BTreeMap::new());
            }
            // A check has its own.
            What::Log { pid, .. } if agent.is_some_and(|agent| agent != *pid) => {}
            What::Log { text, place, level, .. } if place.contains("kube/outage_log.rs") => {
                let Some((what, why)) = text.split_once(": ") else { continue };
                let outage = outages.entry(what.to_owned()).or_default();
                judged.count += 1;
                if *level == log::Level::Info {
                    outage.failures.clear();
                    continue;
                }
                let is_early = outage.last.is_some_and(|last| entry.at < last + SHORTEST);
                if is_early && !outage.follows_a_deletion() {
                    let text = format!("{text}: within a minute of the last line of {what}");
                    judged.breaks(entry.at, &format!("{what} is logged too often"), text);
                }
                if outage.failures.last().is_some_and(|last| last == why) {
                    judged.breaks(entry.at, &format!("{what} is logged twice"), text.clone());
                }
                outage.failures.push(why.to_owned());
                outage.last = Some(entry.at);
            }
            What::Board(truth) => {
                let has_all = ["machineID", "bootID"].iter().all(|id| !truth.fact(id).is_empty());
                has_facts = has_all.then(|| has_facts.unwrap_or(entry.at));
            }
            // A list of pods that is forbidden is asked for no more: nothing recovers.
            What::Answer(answer) if answer.target.contains("/pods") && answer.code == 403 => {
                outages.remove("pods");
            }
            // Nor while another machine writes to the Node.
            What::Fault { begins: true, text } if text.ends_with(" other-board") => {
                outages.remove("pods");
            }
            What::Judged(state) => {
                is_excused |= state.excuse.is_some();
                if is_excused || !state.is_up {
                    continue;
                }
                judged.count += 1;
                let stays_unread = can_block && is_of_the_root(&state.status);
                let written_for =
                    |time| state.card_writes.is_some_and(|since| entry.at >= since + time);
                let is_due = |what: &str| match what {
                    "certificate" => written_for(CERTIFICATE),
                    // What could not be written is written by the next start, and what could not be read
                    // is read after the next 401 or request without an answer.
                    "boots" | "podCIDR" | "credentials" if can_block => false,
                    "boots" => written_for(READ),
                    "podCIDR" => written_for(REPORTED),
                    "pods" => entry.at >= state.healed + REPORTED,
                    "clock" => state.clock_right.is_some_and(|since| entry.at >= since + TOLD),
                    "facts" if stays_unread => false,
                    "facts" => has_facts.is_some_and(|since| entry.at >= since + READ),
                    _ => true,
                };
                for (what, outage) in &outages {
                    let is_of_agent = |why: &&String| is_due(what) && !is_of_person(why);
                    if let Some(why) = outage.failures.last().filter(is_of_agent) {
                        let text = format!(
                            "{what}: {why}: not recovered, faults ended at {:?}",
                            state.healed
                        );
                        judged.breaks(entry.at, &format!("{what} does not recover"), text);
                    }
                }
                let names = ["clock", "lease", "node", "pods", "certificate", "facts"];
                for what in names.iter().filter(|what| is_due(what)) {
                    if state.status.contains(&format!("; {what}: ")) {
                        let text = format!(
                            "the status line is {:?}, faults ended at {:?}",
                            state.status, state.healed
                        );
                        judged.breaks(entry.at, &format!("the status names {what}"), text);
                    }
                }
            }
            _ => {}
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, breaks, judged, log_line};
    use super::*;
    use crate::sim::trace::State;

    const PLACE: &str = "src/kube/outage_log.rs:55";

    #[test]
    fn a_root_that_can_block_stays_unread() {
        let plan = "seed 1\nsetting root=overlay-nfs".parse().expect("a plan");
        let lasting = "facts: etc/os-release: a | proc/meminfo: b";
        let kind = |why: &str| {
            // What else was unread when the log told it has recovered.
            let failed = log_line(1, log::Level::Warn, PLACE, lasting);
            let status = format!("Ready since 2027, lease renewed 3 s ago; facts: {why}");
            let quiet = judged(900, State { is_up: true, status, ..State::default() });
            let judged = judge(&Run { plan: &plan, trace: &[failed, quiet] });
            judged.broken.map(|broken| broken.kind)
        };
        assert_eq!(kind("etc/os-release: a; osImage is kept | etc/hosts: b"), None);
        assert_eq!(kind("sys/class/dmi/id/product_uuid, etc/machine-id: a"), None);
        let both = kind("etc/os-release: a | proc/meminfo: b");
        assert_eq!(both.as_deref(), Some("facts does not recover"));
    }

    #[test]
    fn an_outage_must_end_and_be_told_rarely() {
        let failed = |seconds, why: &str| log_line(seconds, log::Level::Warn, PLACE, why);
        let ended = |seconds| {
            log_line(seconds, log::Level::Info, PLACE, "lease: recovered after 9 s and 2 failed")
        };
        let quiet = |seconds| judged(seconds, State { is_up: true, ..State::default() });
        let judge = super::judge;
        assert_eq!(breaks(judge, &[failed(1, "lease: a"), ended(9), quiet(900)]), None);
        let open = [failed(1, "lease: a"), quiet(900)];
        assert_eq!(breaks(judge, &open).as_deref(), Some("lease does not recover"));
        let often = [failed(1, "lease: a"), failed(20, "lease: b")];
        assert_eq!(breaks(judge, &often).as_deref(), Some("lease is logged too often"));
        let unwritten = |card_writes: Option<u64>| {
            let card_writes = card_writes.map(Duration::from_secs);
            let state = State { is_up: true, card_writes, ..State::default() };
            breaks(judge, &[failed(1, "boots: a"), judged(900, state)])
        };
        assert_eq!((unwritten(None), unwritten(Some(800))), (None, None));
        assert_eq!(unwritten(Some(700)).as_deref(), Some("boots does not recover"));
        let twice = [failed(1, "lease: a"), failed(80, "lease: a")];
        assert_eq!(breaks(judge, &twice).as_deref(), Some("lease is logged twice"));
        let status = "Ready since 2027, lease renewed 3 s ago; node: 500: no".to_owned();
        let named =
            at(900, What::Judged(Box::new(State { is_up: true, status, ..State::default() })));
        assert_eq!(breaks(judge, &[named]).as_deref(), Some("the status names node"));
    }
}
