//! Sentence 2: after the last fault each promise holds within its own bound, without a restart.
//!
//! - The Lease is renewed within the longest attempt, which may have begun before, and a trip. A
//!   process that has just started registers first, and a board without a usable certificate gets
//!   one first.
//! - Ready is True 15 s after the first renewal of an outage, else within 160 s
//!   (systemd/differences.md).
//! - A controller whose informers are behind may call a Node Unknown that is renewed again: for two
//!   minutes after an outage that the agent has noticed, Ready is True again within 15 s.
//! - A process that was told of a shutdown ends, perhaps after the faults: then its successor counts.
//! - At the end of the quiet time the Lease is renewed in time, and Ready is True.

use std::time::Duration;

use serde_json::Value;

use super::{Judged, Run, Sentence};
use crate::sim::process::{Pid, Signal};
use crate::sim::trace::{Entry, Exchange, State, What};
use crate::sim::world::ready_of;

pub(super) const SENTENCE: Sentence = Sentence { number: 2, name: "recovery", judge };

/// A renewal is no older than an interval, one call, and a trip.
const RENEWED: Duration = Duration::from_secs(21);

/// The longest attempt, and a trip.
const ATTEMPT: Duration = Duration::from_secs(21);

/// A process that registers has a limit of 20 s for a request and a backoff of 7 s.
const REGISTERED: Duration = Duration::from_secs(30);

/// A server of k3s that starts refuses a few requests more, without a fault of the plan. The next
/// attempt follows after a backoff of 7 s, and needs a trip.
const ASKED_AGAIN: Duration = Duration::from_secs(8);

/// A file of credentials that was replaced, or could not be read, is read after this time, unless a
/// server says 401: one that knows the certificate, as that of another Node, says 403
/// (src/README.md).
const READ_AGAIN: Duration = Duration::from_secs(60);

/// A signer that looks once a minute, and the backoff of a CSR that was refused or denied.
const CERTIFICATE: Duration = Duration::from_secs(960);

/// systemd/differences.md: after an outage that the agent has noticed, and else.
const READY_AFTER_OUTAGE: Duration = Duration::from_secs(16);
const READY: Duration = Duration::from_secs(161);

/// Two renewals that are further apart are an outage: two intervals.
const OUTAGE: Duration = Duration::from_secs(20);

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    for (place, entry) in run.trace.iter().enumerate() {
        let What::Judged(state) = &entry.what else { continue };
        if let Some(excuse) = state.excuse {
            judged.excuse = Some(excuse);
            continue;
        }
        if state.is_up {
            judge_end(entry.at, state, &mut judged);
            let quiet = Quiet::new(&run.trace[..place], state, run.plan.setting("rtc") != "yes");
            judge_bounds(&quiet, entry.at, state, &mut judged);
        }
    }
    judged
}

/// The end of a quiet time.
fn judge_end(at: Duration, state: &State, judged: &mut Judged) {
    judged.count += 1;
    let last = state.lines.last().map_or("", String::as_str);
    let healed = state.healed;
    if state.renewed.is_none_or(|renewed| at.saturating_sub(renewed) > RENEWED) {
        let renewed = state.renewed;
        let text =
            format!("no renewal since {renewed:?}, faults ended at {healed:?}; last line: {last}");
        return judged.breaks(at, "not renewed", text);
    }
    let ready = ready_of(&state.node);
    if ready != "True" {
        let text = format!("Ready is {ready:?}, faults ended at {healed:?}; last line: {last}");
        judged.breaks(at, &format!("Ready {ready}"), text);
    }
}

/// What happened between the end of the faults and that of the quiet time.
#[derive(Debug, Default)]
struct Quiet {
    /// The last process of the agent.
    agent: Pid,
    /// From when the bound of the renewal counts.
    from: Duration,
    limit: Duration,
    /// Until when the process may lack the pair of this Node: it has that of another one, or could
    /// not read it at its start.
    lacks_pair_until: Duration,
    /// The last renewal before `from`, the first one after it, and the last one of all.
    renewed_before: Duration,
    renewed: Option<Duration>,
    renewed_last: Duration,
    /// The changes of Ready, the last one before the first renewal too.
    ready: Vec<(Duration, String)>,
    /// When the lifecycle controller, which is late, wrote Unknown.
    late: Option<Duration>,
    /// The process was told of a shutdown.
    shuts_down: bool,
    /// A request for a certificate may wait for the time.
    may_lack_time: bool,
}

impl Quiet {
    /// Without an RTC a board may lack the time.
    fn new(trace: &[Entry], state: &State, may_lack_time: bool) -> Self {
        let mut quiet =
            Self { from: state.healed, limit: ATTEMPT, may_lack_time, ..Self::default() };
        for entry in trace {
            quiet.follow(entry, state);
        }
        quiet
    }

    fn follow(&mut self, entry: &Entry, state: &State) {
        let (at, is_after) = (entry.at, entry.at >= state.healed);
        if let What::Starts { name: "nodelet", pid, .. } = &entry.what {
            self.agent = *pid;
            if std::mem::take(&mut self.shuts_down) {
                self.renewed = None;
            }
        }
        match &entry.what {
            What::Fault { text, .. } if text.ends_with("controller is late") && is_after => {
                self.late = Some(at);
            }
            What::Ready { status } => self.ready.push((at, status.clone())),
            // The board may be another Node from now on.
            What::Ran(ran) if ran.command == "join" && is_after => {
                (self.from, self.limit, self.renewed) = (at, REGISTERED, None);
                self.renewed_before = self.renewed_last;
            }
            What::Signal { signal: Signal::Usr1, .. } => self.shuts_down = true,
            // Until a restart it may renew the Lease in the cluster, and of the Node, that it is to
            // leave.
            What::Answer(answer) if answer.cluster != state.cluster => {}
            What::Answer(answer) if is_of_another_node(answer, &state.node) => {}
            What::Answer(answer) if answer.is_renewal() && !is_after => {
                (self.renewed_before, self.renewed_last) = (at, at);
                self.limit = self.limit.min(REGISTERED);
            }
            What::Answer(answer) if answer.is_renewal() => {
                self.renewed.get_or_insert(at);
                self.renewed_last = at;
            }
            _ if self.renewed.is_some() => {}
            What::Fault { begins: false, text } if text.contains("pair-of-another-node") => {
                self.lacks_pair_until = at + READ_AGAIN;
            }
            What::Log { text, .. }
                if !is_after && text.ends_with("continuing without this certificate") =>
            {
                self.lacks_pair_until = state.healed + READ_AGAIN;
            }
            What::Answer(answer)
                if is_after && answer.pid == self.agent && is_of_starting_server(answer) =>
            {
                self.from += ASKED_AGAIN;
            }
            // What takes time without a limit ends first.
            What::Blocks { pid, lasts, .. } if *pid != 0 => {
                self.from = self.from.max(at + *lasts);
            }
            What::Starts { name: "nodelet", .. } => {
                self.lacks_pair_until = Duration::ZERO;
                self.from = self.from.max(at);
                // It may have begun to register before the faults ended.
                self.limit = self.limit.max(REGISTERED);
            }
            // Also one that no server hears, or that waits for the time. A process without any other
            // certificate may have asked before the faults ended.
            What::Log { text, .. }
                if is_after && self.asks_for_certificate(text)
                    || text.ends_with("requesting a certificate with the bootstrap kubeconfig") =>
            {
                self.limit = CERTIFICATE;
            }
            _ => {}
        }
    }

    /// Whether a line says that a certificate is requested, or will be when the time is known.
    fn asks_for_certificate(&self, line: &str) -> bool {
        line.contains("/certificates")
            || self.may_lack_time && line.ends_with("with the bootstrap kubeconfig")
    }

    /// The status of Ready at a time.
    fn ready_at(&self, at: Duration) -> &str {
        let last = self.ready.iter().take_while(|(changed, _)| *changed <= at).last();
        last.map_or("", |(_, status)| status)
    }
}

/// Whether it renews the Lease of another Node.
fn is_of_another_node(answer: &Exchange, node: &Value) -> bool {
    let lease = answer.target.rsplit('/').next();
    let name = node["metadata"]["name"].as_str();
    answer.is_renewal() && answer.method == "PATCH" && name.is_some() && lease != name
}

/// Whether a server of k3s refuses a request because it starts.
fn is_of_starting_server(answer: &Exchange) -> bool {
    let message = answer.answer["message"].as_str().unwrap_or_default();
    answer.code == 503 && ["starting", "apiserver not ready"].contains(&message)
}

fn judge_bounds(quiet: &Quiet, until: Duration, state: &State, judged: &mut Judged) {
    let healed = state.healed;
    let latest = quiet.from.max(quiet.lacks_pair_until) + quiet.limit;
    if latest <= until {
        judged.count += 1;
        if quiet.renewed.is_none_or(|renewed| renewed > latest) {
            let renewed = quiet.renewed;
            let text = format!(
                "faults ended at {healed:?}; the bound counts from {:?}; renewed at {renewed:?}",
                quiet.from
            );
            return judged.breaks(latest, "renewed late", text);
        }
    }
    if let Some(late) = quiet.late.filter(|late| *late + READY_AFTER_OUTAGE <= until) {
        judged.count += 1;
        let ready = quiet.ready_at(late + READY_AFTER_OUTAGE);
        if ready != "True" {
            let text = format!("Ready is {ready:?}; a late controller wrote Unknown at {late:?}");
            judged.breaks(late, "Ready late", text);
        }
    }
    let Some(renewed) = quiet.renewed else { return };
    let is_outage = renewed.saturating_sub(quiet.renewed_before) > OUTAGE;
    let bound = renewed + if is_outage { READY_AFTER_OUTAGE } else { READY };
    if bound <= until {
        judged.count += 1;
        let ready = quiet.ready_at(bound);
        if ready != "True" {
            let text = format!(
                "Ready is {ready:?}; faults ended at {healed:?}, first renewal at {renewed:?} \
                 (outage: {is_outage})"
            );
            judged.breaks(bound, "Ready late", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sentences::planted::{entry, judged_trace, quiet_run};

    const HEALED: Duration = Duration::from_secs(1000);

    fn broken_by(change: impl FnOnce(&mut Vec<Entry>)) -> Option<String> {
        let mut trace = quiet_run();
        let judged = judged_trace(&SENTENCE, &trace);
        assert!(judged.count == 3 && judged.broken.is_none(), "{judged:?}");
        change(&mut trace);
        judged_trace(&SENTENCE, &trace).broken.map(|broken| broken.kind)
    }

    fn without_renewals(trace: &mut Vec<Entry>, from: Duration, until: Duration) {
        trace.retain(|entry| match &entry.what {
            What::Answer(answer) => !answer.is_renewal() || entry.at < from || entry.at > until,
            _ => true,
        });
    }

    #[test]
    fn planted_late_recoveries_are_found() {
        let seconds = Duration::from_secs;
        let late = broken_by(|trace| without_renewals(trace, HEALED, HEALED + seconds(25)));
        assert_eq!(late.as_deref(), Some("renewed late"));
        // The files of another Node were replaced, and the process has read them within a minute.
        let until = |after: u64, what: What| {
            broken_by(|trace| {
                without_renewals(trace, HEALED, HEALED + seconds(after));
                let place = trace.iter().position(|entry| entry.at >= HEALED).expect("an entry");
                trace.insert(place, entry(HEALED - seconds(1), what));
            })
        };
        let replaced = || {
            let text = "at 990.000 for 9.000 pair-of-another-node".to_owned();
            What::Fault { begins: false, text }
        };
        let is_late = Some("renewed late");
        assert_eq!((until(70, replaced()), until(85, replaced()).as_deref()), (None, is_late));
        // The pair could not be read, and is searched for once a minute.
        let unread = || {
            let text = "x.pem: input/output error; continuing without this certificate".to_owned();
            What::Log {
                text,
                pid: 1,
                is_verbose: false,
                level: log::Level::Warn,
                place: String::new(),
            }
        };
        assert_eq!((until(70, unread()), until(85, unread()).as_deref()), (None, is_late));
        // A server of k3s starts, and each of its refusals costs one more attempt.
        let refused = |pid: Pid, times: u64, after: u64, message: &str| {
            broken_by(|trace| {
                without_renewals(trace, HEALED, HEALED + seconds(after));
                let place = trace.iter().position(|entry| entry.at > HEALED).expect("an entry");
                let answer = serde_json::json!({ "message": message });
                let refusal = Exchange { pid, code: 503, answer, ..Exchange::default() };
                let refusal = entry(trace[place].at, What::Answer(Box::new(refusal)));
                (0..times).for_each(|_| trace.insert(place, refusal.clone()));
            })
        };
        assert_eq!(refused(1, 3, 35, "starting"), None);
        assert_eq!(refused(2, 3, 35, "starting").as_deref(), is_late, "of `nodelet serve`");
        assert_eq!(refused(1, 1, 35, "starting").as_deref(), is_late);
        assert_eq!(refused(1, 3, 35, "refused by the simulation").as_deref(), is_late);
        let unknown = broken_by(|trace| {
            let place = trace.iter().position(|entry| entry.at > HEALED).expect("an entry");
            let ready = What::Ready { status: "Unknown".to_owned() };
            trace.insert(place, entry(HEALED, ready));
        });
        assert_eq!(unknown.as_deref(), Some("Ready late"));
        // A controller that hears late, when the agent has been Ready for a while.
        let after_unknown = |back: u64| {
            broken_by(|trace| {
                let ready = |status: &str| What::Ready { status: status.to_owned() };
                let text = "the lifecycle controller is late".to_owned();
                let late = What::Fault { begins: true, text };
                for (after, what) in [(180, late), (180, ready("Unknown")), (back, ready("True"))] {
                    let at = HEALED + seconds(after);
                    let place = trace.iter().position(|it| it.at > at).expect("an entry");
                    trace.insert(place, entry(at, what));
                }
            })
        };
        assert_eq!((after_unknown(195), after_unknown(300).as_deref()), (None, Some("Ready late")));
        // A board that is not Ready for 165 s, because a shutdown was told, or without a reason.
        let restarted = |is_told: bool| {
            broken_by(|trace| {
                let insert = |trace: &mut Vec<Entry>, after: u64, what| {
                    let at = HEALED + seconds(after);
                    let place = trace.iter().position(|it| it.at > at).expect("an entry");
                    trace.insert(place, entry(at, what));
                };
                if is_told {
                    insert(trace, 4, What::Signal { pid: 1, signal: Signal::Usr1 });
                }
                insert(trace, 5, What::Ready { status: "False".to_owned() });
                insert(trace, 170, What::Starts { pid: 2, name: "nodelet", line: String::new() });
                insert(trace, 175, What::Ready { status: "True".to_owned() });
            })
        };
        assert_eq!((restarted(true), restarted(false).as_deref()), (None, Some("Ready late")));
        let end = broken_by(|trace| {
            for entry in trace {
                if let What::Judged(state) = &mut entry.what {
                    state.renewed = Some(entry.at - seconds(30));
                }
            }
        });
        assert_eq!(end.as_deref(), Some("not renewed"));
    }
}
