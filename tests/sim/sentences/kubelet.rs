//! Sentence 13: while the servers take the writes of a Lease, its renewals are never further apart
//! than those of a kubelet with the same servers, whatever happens to other requests.

use std::time::Duration;

use super::{Judged, Run, Sentence, asks_signer};
use crate::sim::process::Exit;
use crate::sim::trace::What;
use crate::sim::world::START;

pub(super) const SENTENCE: Sentence = Sentence { number: 13, name: "kubelet-gap", judge };

/// The longest interval, and the trips to a server in good health.
const INTERVAL: Duration = Duration::from_millis(10_900);

/// Beside a restart or another request without an answer: one call of a request that began before,
/// and ten seconds at an address that leads nowhere.
const OTHERS_DELAY: Duration = Duration::from_secs(15);

/// A signer that is asked for a certificate may take so long.
const SIGNER: Duration = Duration::from_secs(900);

/// The law's time for one call.
const CALL: Duration = Duration::from_secs(5);

/// After any other fault the first renewal may still be late.
const SETTLES: Duration = Duration::from_secs(60);

/// What happens to other requests, and to the write of a Lease while it still works: the name of a
/// class, and its largest size.
const HARMLESS: &[(&str, u64)] = &[
    ("lease-slow", 9000),
    ("status-slow", u64::MAX),
    ("node-create-refused", u64::MAX),
    ("node-create-silent", u64::MAX),
    ("node-patch-refused", u64::MAX),
    ("node-patch-silent", u64::MAX),
    ("node-webhook", u64::MAX),
    ("node-written", u64::MAX),
    ("writes-often", u64::MAX),
    ("pods-refused", u64::MAX),
    ("pod-bound", u64::MAX),
    ("lifecycle-stops", u64::MAX),
    // A clock before the build counts as not set.
    ("clock-1970", u64::MAX),
    ("root-server-dies", u64::MAX),
    // The name has an address of the other family.
    ("dns-aaaa-nxdomain", u64::MAX),
    ("retry-after", u64::MAX),
    ("chunked", u64::MAX),
    ("kill", u64::MAX),
    ("restart", u64::MAX),
];

/// The size of a step, if its class is harmless.
fn harmless(text: &str) -> Option<u64> {
    let words = || text.split(' ');
    let size = words().find_map(|word| word.strip_prefix("size=")?.parse().ok()).unwrap_or(0);
    let is_meant = |(name, most): &&(&str, u64)| words().any(|word| word == *name) && size <= *most;
    HARMLESS.iter().find(is_meant).map(|_| size)
}

/// The line of a certificate that could not be stored.
const UNSTORED: &str = "certificate: in use, but not stored";

/// What is known while the trace is read.
#[derive(Default)]
struct Gaps {
    judged: Judged,
    /// Faults that excuse a gap and last.
    others: u64,
    /// A gap is judged if it begins after this.
    from: Duration,
    /// The last renewal, or the start of a process that finds its Lease.
    last: Option<Duration>,
    /// Node and Lease exist.
    has_lease: bool,
    /// The name with which the agent was started last.
    name: Option<String>,
    /// How slow a write of a Lease is.
    slow: Duration,
    /// What other harmless faults of this run may add.
    delay: Duration,
    /// What a request for a certificate may add that began before the renewal was due: it tries
    /// each address of the server.
    signing: Duration,
    /// When a signer was last asked for a certificate.
    asked: Option<Duration>,
    /// A join has removed the certificate since the last start: the next process asks for one, and
    /// waits for its signer, as a kubelet does.
    is_joined: bool,
    /// The process could not store its certificate: the next one may have only an expired one, as
    /// that of a kubelet (systemd/differences.md).
    is_unstored: bool,
    /// Faults for which a process that starts now waits for its files, as a kubelet does.
    dead_roots: u64,
}

impl Gaps {
    fn excused(&mut self, at: Duration) {
        self.from = at + SETTLES;
        self.last = None;
    }

    fn ends(&mut self, at: Duration, what: &str) {
        let Some(last) = self.last else { return };
        if self.others > 0 || last < self.from {
            return;
        }
        self.judged.count += 1;
        let (gap, longest) = (at - last, INTERVAL + self.slow + self.delay.max(self.signing));
        if gap > longest {
            let text = format!("{gap:?} from {last:?} to {what}; a kubelet needs {longest:?}");
            self.judged.breaks(at, "gap", text);
        }
    }
}

fn judge(run: &Run<'_>) -> Judged {
    let mut gaps = Gaps::default();
    for entry in run.trace {
        match &entry.what {
            What::Fault { begins, text } => match (harmless(text), text.contains(" for ")) {
                (Some(size), true) if text.contains(" lease-slow ") => {
                    // A renewal that began with the fault may end after it.
                    gaps.slow = gaps.slow.max(Duration::from_millis(size));
                }
                (Some(_), _) => {
                    gaps.delay = OTHERS_DELAY;
                    if text.contains(" root-server-dies") {
                        let dead = gaps.dead_roots;
                        gaps.dead_roots = if *begins { dead + 1 } else { dead.saturating_sub(1) };
                    }
                }
                (None, lasts) => {
                    gaps.ends(entry.at, "a fault");
                    gaps.excused(entry.at);
                    match (begins, lasts) {
                        (true, true) => gaps.others += 1,
                        (false, _) => gaps.others = gaps.others.saturating_sub(1),
                        (true, false) => gaps.has_lease = false,
                    }
                }
            },
            // Nothing renews the Lease of a board that a person has to help.
            What::Judged(state) if state.excuse.is_some() => {
                gaps.judged.broken.take_if(|broken| broken.at >= state.healed);
                return gaps.judged;
            }
            What::Starts { name, line, .. } => {
                // An administrator's name counts with the next start: its Lease is another one.
                if *name == "nodelet" {
                    let words = line.split(' ');
                    let mut own =
                        words.filter_map(|word| word.strip_prefix("--hostname-override="));
                    let own = own.next_back().map(str::to_owned);
                    let is_joined = std::mem::take(&mut gaps.is_joined);
                    let is_unstored = std::mem::take(&mut gaps.is_unstored);
                    gaps.has_lease &= gaps.name == own && !is_joined && !is_unstored;
                    gaps.name = own;
                }
                let is_judged = gaps.has_lease && entry.at >= gaps.from && gaps.dead_roots == 0;
                gaps.last = Some(entry.at).filter(|_| is_judged);
            }
            What::Ran(ran) if ran.command == "join" && ran.exit == Exit::Code(true) => {
                gaps.is_joined = true;
            }
            What::Ends { .. } => {
                gaps.ends(entry.at, "the end of the process");
                gaps.last = None;
            }
            What::Log { text, .. } if text.starts_with(UNSTORED) => gaps.is_unstored = true,
            // Nor does a kubelet renew the Lease with an expired certificate, whose signer is slow.
            What::Handshake { until: Some(until), .. }
                if gaps.asked.is_some_and(|at| entry.at <= at + SIGNER)
                    && until.seconds() <= START + entry.at.as_secs() =>
            {
                gaps.last = None;
            }
            // A renewed certificate is stored on the root (systemd/differences.md).
            What::Answer(answer)
                if gaps.dead_roots > 0 && answer.target.contains("/certificatesigningrequests") =>
            {
                gaps.last = None;
            }
            // The line of the loop before a request.
            What::Log { is_verbose: true, text, .. } if asks_signer(text) => {
                gaps.asked = Some(entry.at);
                if gaps.last.is_some_and(|last| entry.at <= last + INTERVAL) {
                    gaps.signing = CALL;
                }
            }
            What::Answer(answer) if answer.is_renewal() => {
                gaps.ends(entry.at, "a renewal");
                gaps.signing = Duration::ZERO;
                (gaps.last, gaps.has_lease) = (Some(entry.at), true);
            }
            _ => {}
        }
    }
    if let Some(last) = run.trace.last() {
        gaps.ends(last.at, "the end");
    }
    gaps.judged
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::sim::sentences::tests::{at, fault, log_line, renewal, run};
    use crate::sim::trace::Ran;

    #[test]
    fn a_gap_beside_a_dead_webhook_is_found_and_one_without_a_server_is_not() {
        let gap = |class: &str| {
            let mut trace: Vec<_> = (0..20).map(|number| renewal(number * 10)).collect();
            trace.push(fault(195, true, &format!("at 195.000 for 100.000 {class}")));
            trace.push(renewal(270));
            run(&trace, judge)
        };
        assert!(gap("node-webhook").broken.is_some());
        assert!(gap("lease-slow size=9000").broken.is_some());
        assert!(gap("partition").broken.is_none());
        assert!(gap("lease-slow size=12000").broken.is_none());
    }

    #[test]
    fn only_a_process_that_starts_waits_for_a_dead_root() {
        let gap = |starts: bool| {
            let mut trace: Vec<_> = (0..20).map(|number| renewal(number * 10)).collect();
            trace.push(fault(195, true, "at 195.000 for 100.000 root-server-dies"));
            let line = String::new();
            let start = at(196, What::Starts { pid: 2, name: "nodelet", line });
            trace.extend(starts.then_some(start));
            trace.push(renewal(270));
            run(&trace, judge).broken.is_some()
        };
        assert!(gap(false) && !gap(true));
    }

    #[test]
    fn only_the_certificate_of_the_last_process_is_lost_with_it() {
        let gap = |is_unstored: bool, starts: bool| {
            let mut trace: Vec<_> = (0..20).map(|number| renewal(number * 10)).collect();
            let line = log_line(192, log::Level::Warn, "", UNSTORED);
            trace.extend(is_unstored.then_some(line));
            let line = String::new();
            let start = at(196, What::Starts { pid: 2, name: "nodelet", line });
            trace.extend(starts.then_some(start));
            trace.push(renewal(270));
            run(&trace, judge).broken.is_some()
        };
        assert!(gap(false, true) && gap(true, false) && !gap(true, true));
    }

    /// As from a kubelet: the interval, and once the time that the server needs.
    #[test]
    fn a_slow_write_that_is_asked_for_twice_is_found() {
        for (end, is_found) in [(209, false), (214, true)] {
            let mut trace: Vec<_> = (0..20).map(|number| renewal(number * 10)).collect();
            trace.push(fault(195, true, "at 195.000 for 100.000 lease-slow size=9000"));
            trace.push(renewal(end));
            assert_eq!(run(&trace, judge).broken.is_some(), is_found, "{end}");
        }
    }

    #[test]
    fn a_start_that_finds_its_lease_renews_it() {
        let started = |line: &str, command: &'static str| {
            let mut trace: Vec<_> = (0..20).map(|number| renewal(number * 10)).collect();
            let (name, line) = ("nodelet", line.to_owned());
            // The process renews its Lease until it is restarted.
            trace.insert(9, at(85, What::Ran(Box::new(Ran::example(command)))));
            trace.push(at(200, What::Starts { pid: 2, name, line }));
            trace.push(renewal(281));
            let judged = run(&trace, judge);
            assert!(judged.count > 10);
            judged.broken.map(|broken| broken.at)
        };
        assert_eq!(started("", "check"), Some(Duration::from_secs(281)));
        assert_eq!(started("", "join"), None);
        assert_eq!(started("--hostname-override=another", "check"), None);
    }
}
