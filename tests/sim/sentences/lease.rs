//! Sentence 1, the lease law in the words of src/README.md, for each attempt, also for those that
//! never arrive, and during faults. An attempt begins with the line that the loop logs before each
//! call; it was answered if its client has read an answer.
//!
//! - The next attempt follows within 15.4 s of the start of a renewal, within 10 s of that of a
//!   refused one (15 s with `Retry-After`), and within 20.1 s of that of an unanswered one; with a
//!   request for a certificate or a slow file operation in between, within 25.1 s. Slow reads of the
//!   files of credentials, after any request without an answer or one for a certificate, add their
//!   time, up to 10 s.
//! - One read or one operation of a file change that takes longer than a call adds the rest, and a
//!   suspend adds its time.
//! - A Lease that was refused with `Retry-After` is not sent before that time is over, up to 10 s
//!   from the start of the attempt, unless another request has no answer.
//! - Rule 1: each request and each slow file operation begins with a turn, which polls unless it
//!   polled just before.
//! - Rule 2: nothing else is sent while the Lease is due.
//! - Rule 3: after an unanswered request only the Lease is sent until it has an answer, and requests
//!   for a certificate. Which client sends these is not in the trace.
//!
//! And at the server's store, in a time without a fault: two renewals are 15.4 s apart at most.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Judged, Run, Sentence, asks_signer};
use crate::kube::message::LIST_LIMIT;
use crate::sim::process::Pid;
use crate::sim::trace::{Entry, Got, What};

pub(super) const SENTENCE: Sentence = Sentence { number: 1, name: "lease-law", judge };

/// 10.4 s, and one call of another request that began before.
const AFTER_SUCCESS: Duration = Duration::from_millis(15_400);
const AFTER_REFUSAL: Duration = Duration::from_secs(10);
/// Connect and call.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(20);

/// The latest time at which the Lease is due, from the start of the last attempt.
const DUE_AFTER_SUCCESS: Duration = Duration::from_millis(10_400);
const DUE_AFTER_REFUSAL: Duration = Duration::from_secs(5);
const DUE_AFTER_DELAY: Duration = Duration::from_secs(10);

/// From the end of an unanswered attempt to the next one.
const PAUSE: Duration = Duration::from_millis(100);

/// The law allows as much for a read or an operation of a file change.
const CALL: Duration = Duration::from_secs(5);
/// A read of facts ends after this time as a whole, and the one file that is under way still ends.
const LOOK: Duration = Duration::from_secs(1);

/// A turn does not poll if the last poll, or the end of a wait, was so short ago.
const POLL_AGAIN: Duration = Duration::from_millis(100);

/// Times are rounded to milliseconds here and there.
const ROUNDING: Duration = Duration::from_millis(10);

/// What the network takes of the time between two renewals in the store.
const TRIPS: Duration = Duration::from_millis(500);

/// After the last fault the first renewal may still be that of an attempt which began before.
const SETTLES: Duration = Duration::from_secs(45);

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let mut agents: BTreeMap<Pid, Agent> = BTreeMap::new();
    let mut has_clock = true;
    for entry in run.trace {
        match &entry.what {
            What::Fault { begins, text } if text.contains(" clock-1970") => {
                has_clock = !begins;
                agents.values_mut().for_each(|agent| agent.has_clock = has_clock);
            }
            What::Starts { pid, name: "nodelet", .. } => {
                agents.insert(*pid, Agent { has_clock, ..Agent::default() });
            }
            What::Ends { pid, .. } => {
                agents.remove(pid);
            }
            What::Blocks { pid: 0, lasts, .. } => {
                for agent in agents.values_mut() {
                    agent.falls_asleep(entry.at, *lasts);
                }
            }
            what => {
                if let Some(agent) = pid_of(what).and_then(|pid| agents.get_mut(&pid)) {
                    agent.follow(entry.at, what, &mut judged);
                }
            }
        }
    }
    judge_quiet(run.trace, &mut judged);
    judged
}

fn pid_of(what: &What) -> Option<Pid> {
    match what {
        What::Waits { pid, .. }
        | What::Woke { pid, .. }
        | What::Signal { pid, .. }
        | What::Log { pid, .. }
        | What::Blocks { pid, .. } => Some(*pid),
        What::Got(Got { pid, .. }) => Some(*pid),
        What::Answer(answer) => Some(answer.pid),
        _ => None,
    }
}

/// A request that the loop sends.
#[derive(Clone, Debug)]
struct Attempt {
    is_lease: bool,
    /// It reads or writes the Node.
    is_node: bool,
    is_certificate: bool,
    is_read: bool,
    start: Duration,
    /// When the loop went on, if it has.
    end: Option<Duration>,
    got: Option<Got>,
    /// The answer is a list that is too large: its rest is not read, and a smaller list follows.
    is_large: bool,
}

/// One process of the agent.
#[derive(Debug, Default)]
struct Agent {
    /// The last poll, or the end of the last wait.
    polled: Option<Duration>,
    last: Option<Attempt>,
    /// The last attempt of the Lease, while there is a Lease to renew.
    lease: Option<Attempt>,
    /// Rule 3.
    is_silent: bool,
    /// Another turn was taken since the last attempt of the Lease.
    shares: bool,
    /// A request since the last attempt of the Lease had no answer: the Lease is due at once.
    is_unanswered: bool,
    /// A signal came: a shutdown has other limits.
    is_stopping: bool,
    /// The clock is not that of 1970.
    has_clock: bool,
    /// The longest read or operation since the last attempt of the Lease.
    slowest: Duration,
    /// What all reads took since then.
    reads: Duration,
    /// The times asleep.
    asleep: Vec<(Duration, Duration)>,
}

impl Agent {
    fn follow(&mut self, at: Duration, what: &What, judged: &mut Judged) {
        match what {
            What::Signal { .. } => self.is_stopping = true,
            What::Waits { timeout, .. } => {
                self.ends(at);
                self.is_late(at, "wait", judged);
                // A wait that something ends sooner is followed by `Woke`.
                self.polled = Some(at + *timeout);
            }
            What::Woke { .. } => self.polled = Some(at),
            What::Got(got) => {
                if let Some(last) = &mut self.last {
                    last.got = Some(*got);
                }
                self.ends(at);
            }
            What::Answer(answer) if answer.target.starts_with("/api/v1/pods?") => {
                if let Some(last) = &mut self.last {
                    last.is_large = answer.answer.to_string().len() > LIST_LIMIT;
                }
            }
            What::Log { is_verbose: true, text, .. } => {
                if let Some(attempt) = Attempt::of_line(at, text) {
                    self.sends(attempt, judged);
                }
            }
            What::Blocks { lasts, with, .. } => {
                let is_read = *with == "a read";
                if !is_read {
                    self.begins_turn(at, "file operation", judged);
                }
                let adds = if is_read { *lasts + LOOK } else { *lasts };
                self.slowest = self.slowest.max(adds);
                self.reads += if is_read { *lasts } else { Duration::ZERO };
                self.shares |= !is_read;
            }
            _ => {}
        }
    }

    /// The loop goes on after its last request.
    fn ends(&mut self, at: Duration) {
        let Some(last) = &mut self.last else { return };
        last.end.get_or_insert(at);
        let is_missing = last.got.is_some_and(|got| got.code == 404 && got.is_of_server);
        if last.is_lease {
            self.lease = self.last.clone();
        } else if last.is_node && is_missing {
            self.lease = None;
        }
    }

    fn sends(&mut self, attempt: Attempt, judged: &mut Judged) {
        let at = attempt.start;
        self.ends(at);
        self.begins_turn(at, "request", judged);
        if let Some(last) = self.last.as_ref().filter(|last| !last.is_certificate) {
            self.is_silent = last.got.is_none() && !last.is_large;
        }
        self.is_late(at, "attempt", judged);
        let had_none = |last: &Attempt| !last.is_lease && last.got.is_none();
        self.is_unanswered |= self.last.as_ref().is_some_and(had_none);
        if attempt.is_lease {
            self.is_early(at, judged);
            self.is_unanswered = false;
            (self.slowest, self.reads, self.shares) = (Duration::ZERO, Duration::ZERO, false);
        } else {
            self.shares = true;
            self.goes_before_lease(at, attempt.is_certificate, judged);
        }
        if attempt.is_lease {
            self.lease = Some(attempt.clone());
        }
        self.last = Some(attempt);
    }

    /// Rule 1.
    fn begins_turn(&self, at: Duration, what: &str, judged: &mut Judged) {
        if let Some(polled) = self.polled
            && !self.is_stopping
            && self.slept(polled, at).is_none()
        {
            judged.count += 1;
            let ago = at.saturating_sub(polled);
            if ago > POLL_AGAIN + ROUNDING {
                let text = format!("a {what} begins {ago:?} after the last poll, in its turn");
                judged.breaks(at, "two things in a turn", text);
            }
        }
    }

    /// The board falls asleep; a sleep that lasts yet ends with this one.
    fn falls_asleep(&mut self, at: Duration, takes: Duration) {
        if let Some((_, end)) = self.asleep.last_mut() {
            *end = at.min(*end);
        }
        self.asleep.push((at, at + takes));
    }

    /// How long the board was asleep, if it was between these times. The end of the sleep may have
    /// come earlier than the plan said.
    fn slept(&self, from: Duration, to: Duration) -> Option<Duration> {
        let within = self.asleep.iter().filter(|(begin, end)| from <= *end && to >= *begin);
        within.map(|(begin, end)| *end.min(&to) - *begin.max(&from)).reduce(|sum, next| sum + next)
    }

    /// The last attempt of the Lease, if another one must follow in time. Without a clock none follows
    /// a read.
    fn judged_lease(&self) -> Option<&Attempt> {
        let lease = self.lease.as_ref()?;
        (!self.is_stopping && (self.has_clock || !lease.is_read)).then_some(lease)
    }

    /// The distance of two attempts.
    fn is_late(&self, at: Duration, what: &str, judged: &mut Judged) {
        let Some(lease) = self.judged_lease() else { return };
        let took = lease.end.unwrap_or(at).saturating_sub(lease.start);
        // After a request without an answer, and before another certificate takes its place, the
        // files of credentials are read.
        let are_read = |last: &Attempt| last.got.is_none() || last.is_certificate;
        let read = if self.last.as_ref().is_some_and(are_read) {
            // `adds` has the rest of a long one.
            let reads = self.reads.saturating_sub(self.slowest.saturating_sub(CALL));
            self.slowest.min(CALL).max(reads.min(2 * CALL))
        } else {
            Duration::ZERO
        };
        // In the pause after a late answer another turn may be taken: a call, or a look.
        let shared = if self.shares { CALL } else { self.slowest.min(CALL) };
        let limit = match lease.got {
            None => {
                let due = (took.min(LONGEST_ATTEMPT) + PAUSE).max(CALL);
                if self.shares { due + CALL.max(read) } else { (due + read).max(AFTER_REFUSAL) }
            }
            Some(got) if is_accepted(&got) || got.retry_after.is_some() || got.is_odd => {
                AFTER_SUCCESS.max(took + PAUSE + shared) + read
            }
            Some(_) => AFTER_REFUSAL.max(took + PAUSE + shared) + read,
        };
        let slept = self.slept(lease.start, at).unwrap_or_default();
        let adds = self.slowest.saturating_sub(CALL) + slept;
        let gap = at - lease.start;
        judged.count += 1;
        if gap > limit + adds + ROUNDING {
            let answer = lease.got.map_or("no answer".to_owned(), |got| got.code.to_string());
            let text = format!(
                "{what} {gap:?} after the start of a Lease's attempt ({answer}); {limit:?} and \
                 {adds:?} are allowed"
            );
            judged.breaks(at, "an attempt is late", text);
        }
    }

    /// A busy server said when it wants the next attempt.
    fn is_early(&self, at: Duration, judged: &mut Judged) {
        let Some(lease) = self.lease.as_ref().filter(|_| !self.is_unanswered) else { return };
        let got = lease.got.filter(|got| !(got.is_odd || got.is_broken));
        let Some(delay) = got.and_then(|got| got.retry_after) else { return };
        judged.count += 1;
        let (delay, gap) = (delay.min(DUE_AFTER_DELAY), at - lease.start);
        if gap + ROUNDING < delay {
            let text =
                format!("an attempt of the Lease {gap:?} after one with Retry-After {delay:?}");
            judged.breaks(at, "a busy server is asked too early", text);
        }
    }

    /// Rules 2 and 3, for a request other than the Lease's.
    fn goes_before_lease(&self, at: Duration, is_certificate: bool, judged: &mut Judged) {
        let Some(lease) = self.judged_lease() else { return };
        judged.count += 1;
        // Without a clock the Node is read for the server's time.
        if self.is_silent && !is_certificate && self.has_clock {
            let text = "a request other than the Lease's follows one without an answer";
            judged.breaks(at, "not the Lease after silence", text.to_owned());
        }
        let due = match lease.got {
            None => return,
            Some(got) if got.is_odd => return,
            // The Lease was read: its write follows.
            Some(got) if is_accepted(&got) && lease.is_read => Duration::ZERO,
            Some(got) if is_accepted(&got) => DUE_AFTER_SUCCESS,
            Some(got) if got.retry_after.is_some() => DUE_AFTER_DELAY,
            Some(_) => DUE_AFTER_REFUSAL,
        };
        // A late answer leaves a pause.
        let took = lease.end.unwrap_or(at).saturating_sub(lease.start);
        let due = if due.is_zero() { due } else { due.max(took + PAUSE) };
        let since = at - lease.start;
        if since > due + self.slept(lease.start, at).unwrap_or_default() + ROUNDING {
            let text = format!("another request {since:?} after a Lease's, which is due");
            judged.breaks(at, "not the Lease first", text);
        }
    }
}

impl Attempt {
    /// The request that this line of the loop tells.
    fn of_line(at: Duration, text: &str) -> Option<Self> {
        let (method, path) = text.split_once(' ')?;
        let is_request = ["Get", "Post", "Patch", "Delete"].contains(&method);
        is_request.then(|| Self {
            is_lease: path.contains("/leases"),
            is_node: path.starts_with("/api/v1/nodes"),
            is_certificate: asks_signer(path),
            is_read: method == "Get",
            start: at,
            end: None,
            got: None,
            is_large: false,
        })
    }
}

fn is_accepted(got: &Got) -> bool {
    got.code < 300 && got.is_of_server
}

/// The renewals in the store.
fn judge_quiet(trace: &[Entry], judged: &mut Judged) {
    let (mut faults, mut quiet_since, mut last) = (0_u64, Duration::ZERO, None);
    for entry in trace {
        match &entry.what {
            What::Fault { begins, text } => {
                match (begins, text.contains(" for ")) {
                    (true, true) => faults += 1,
                    (false, _) => faults = faults.saturating_sub(1),
                    // What lasts no time still takes a while to end.
                    (true, false) => {}
                }
                (quiet_since, last) = (entry.at, None);
            }
            What::Starts { name: "nodelet", .. } | What::Ends { name: "nodelet", .. } => {
                (quiet_since, last) = (entry.at, None)
            }
            // Nobody signs for a minute, and the certificate has ended meanwhile: `recovery` judges.
            What::Answer(answer) if answer.code == 401 && answer.user.is_empty() => last = None,
            What::Answer(answer) if answer.is_renewal() && faults == 0 => {
                if let Some(last) = last.replace(answer.arrived)
                    && last >= quiet_since + SETTLES
                {
                    judged.count += 1;
                    let gap = answer.arrived - last;
                    if gap > AFTER_SUCCESS + TRIPS {
                        judged.breaks(entry.at, "gap", format!("{gap:?} between two renewals"));
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sentences::planted::{entry, judged_trace, quiet_run};

    fn broken_by(change: impl FnOnce(&mut Vec<Entry>)) -> Option<String> {
        let mut trace = quiet_run();
        assert_eq!(judged_trace(&SENTENCE, &trace).broken, None);
        change(&mut trace);
        judged_trace(&SENTENCE, &trace).broken.map(|broken| broken.kind)
    }

    /// The places of the lines with which the renewals begin, from the tenth on.
    fn renewals(trace: &[Entry]) -> Vec<usize> {
        let is_renewal = |entry: &Entry| matches!(&entry.what, What::Log { text, .. } if text.starts_with("Patch /apis/coord"));
        (0..trace.len()).filter(|at| is_renewal(&trace[*at])).skip(10).collect()
    }

    /// Everything from this place on happens later: the wait before it was longer.
    fn delay(trace: &mut [Entry], from: usize, by: Duration) {
        trace[from..].iter_mut().for_each(|entry| entry.at += by);
        let mut before = trace[..from].iter_mut().rev();
        let timeout = before.find_map(|entry| match &mut entry.what {
            What::Waits { timeout, .. } => Some(timeout),
            _ => None,
        });
        *timeout.expect("a wait") += by;
    }

    #[test]
    fn planted_late_attempt_is_found() {
        let kind = broken_by(|trace| {
            let at = renewals(trace)[0];
            delay(trace, at, Duration::from_secs(6));
        });
        assert_eq!(kind.as_deref(), Some("an attempt is late"));
    }

    /// What is broken if the answer to a renewal has this code.
    fn broken_by_answer(code: u16) -> Option<String> {
        broken_by(|trace| {
            let mut renewals = trace.iter_mut().filter_map(|entry| match &mut entry.what {
                What::Answer(answer) if answer.is_renewal() => Some(answer),
                _ => None,
            });
            let answer = renewals.nth(20).expect("so many renewals");
            (answer.code, answer.user) = (code, String::new());
        })
    }

    #[test]
    fn planted_gap_is_found() {
        assert_eq!(broken_by_answer(503).as_deref(), Some("gap"));
        assert_eq!(broken_by_answer(401), None);
    }

    #[test]
    fn planted_attempt_before_a_busy_server_wants_it_is_found() {
        let refused = |retry_after, again: Option<u64>| {
            broken_by(|trace| {
                let at = renewals(trace)[0];
                let got = trace[at..].iter_mut().find_map(|entry| match &mut entry.what {
                    What::Got(got) => Some(got),
                    _ => None,
                });
                let got = got.expect("an answer");
                (got.code, got.retry_after) = (429, Some(Duration::from_secs(retry_after)));
                if let Some(after) = again {
                    let start = trace[at].at + Duration::from_secs(after);
                    let place = trace.iter().position(|it| it.at > start).expect("a later entry");
                    trace.insert(place, Entry { at: start, ..trace[at].clone() });
                }
            })
        };
        let early = Some("a busy server is asked too early");
        assert_eq!(refused(3600, None), None);
        assert_eq!(refused(3600, Some(6)).as_deref(), early);
        assert_eq!(refused(8, Some(6)).as_deref(), early);
        assert_ne!(refused(5, Some(6)).as_deref(), early);
    }

    #[test]
    fn planted_second_request_in_a_turn_is_found() {
        let kind = broken_by(|trace| {
            let (at, pid) = (renewals(trace)[0], 1);
            let line = |text: &str| What::Log {
                pid,
                level: log::Level::Info,
                is_verbose: true,
                text: text.to_owned(),
                place: String::new(),
            };
            let start = trace[at].at;
            let lines = [
                entry(start, line("Get /api/v1/nodes/pi")),
                entry(
                    start,
                    What::Got(Got { pid, code: 200, is_of_server: true, ..Got::default() }),
                ),
                entry(start + Duration::from_secs(2), line("Patch /api/v1/nodes/pi/status")),
            ];
            trace.splice(at.., lines);
        });
        assert_eq!(kind.as_deref(), Some("two things in a turn"));
    }

    #[test]
    fn planted_request_after_silence_is_found() {
        let kind = broken_by(|trace| {
            let at = renewals(trace)[0];
            let mut line = trace[at].clone();
            if let What::Log { text, .. } = &mut line.what {
                *text = "Patch /api/v1/nodes/pi/status".to_owned();
            }
            // The renewal has no answer, and the Node's request follows at once.
            trace.truncate(at + 1);
            trace.push(line);
        });
        assert_eq!(kind.as_deref(), Some("not the Lease after silence"));
    }
}
