//! Sentence 9: a turn blocks on one thing, the watchdog is fed (which the world itself sees),
//! SIGTERM and SIGUSR1 are followed in time, and READY=1 arrives once systemd reads it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::clusters::SILENT;
use crate::sim::process::{Pid, Signal};
use crate::sim::trace::{Entry, What};

pub(super) const SENTENCE: Sentence = Sentence { number: 9, name: "turns", judge };

/// What takes longer than this blocks. The agent polls for signals again after 100 ms.
const BLOCKS: Duration = Duration::from_millis(150);

/// For so long after SIGUSR1 no request may take longer.
const KEPT_FREE: Duration = Duration::from_secs(5);

/// The end after SIGTERM, and the report of a shutdown, if the server answers.
const SOON: Duration = Duration::from_millis(5300);

/// Who has connected so often without an answer has credentials that are refused.
const SHUT_OUT: u32 = 3;

/// The line of each request, when it begins, is logged there.
const CALLS: &str = "src/agent/mod.rs";

/// systemd/README.md: "else at the end of the current request, 20 s at most".
const REQUEST: Duration = Duration::from_millis(20_300);

/// After the last fault no request hangs any more.
const SETTLES: Duration = Duration::from_secs(30);

/// What a process did since it last asked for signals.
#[derive(Default)]
struct Turn {
    /// It has begun its loop.
    has_begun: bool,
    /// What has begun in it, and when.
    done: Option<(Duration, &'static str)>,
}

impl Turn {
    fn does(&mut self, judged: &mut Judged, now: Duration, what: &'static str) {
        if let Some((since, first)) = self.done
            && self.has_begun
            && now >= since + BLOCKS
        {
            let text = format!("{first} at {since:?}, then {what}");
            judged.breaks(now, &format!("{first} and {what} in a turn"), text);
        }
        self.done = Some((now, what));
    }
}

/// What a signal demands.
#[derive(Default)]
struct Asked {
    term: Option<Duration>,
    /// When SIGUSR1 came, and when the agent took it.
    announced: Option<Duration>,
    taken: Option<Duration>,
    /// Files that were slow meanwhile.
    files: Duration,
    /// Whether the server answers, as far as the world knows.
    is_quiet: bool,
    is_frozen: bool,
}

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let mut turns: BTreeMap<Pid, Turn> = BTreeMap::new();
    let mut asked: BTreeMap<Pid, Asked> = BTreeMap::new();
    // Connections of a process, and attempts at one, since the last answer other than 401. Its
    // certificate has expired: some servers say so within TLS. Or the server has moved.
    let mut unanswered: BTreeMap<Pid, u32> = BTreeMap::new();
    // Until when a process is within one read, or one operation of a file change.
    let mut blocked: BTreeMap<Pid, Duration> = BTreeMap::new();
    let mut quiet = Quiet::default();
    let mut is_excused = false;
    for entry in run.trace {
        let now = entry.at;
        quiet.take(entry);
        match &entry.what {
            What::Answer(answer) => {
                // A Node of another name is refused, too: there is nothing to write.
                let is_other = answer.code == 403 && answer.target.contains("/nodes/");
                let is_shut_out = answer.code == 401 || is_other;
                unanswered.insert(answer.pid, if is_shut_out { SHUT_OUT } else { 0 });
            }
            What::Connects { pid, .. } => *unanswered.entry(*pid).or_default() += 1,
            _ => {}
        }
        for asked in asked.values_mut() {
            asked.is_quiet &= quiet.is_quiet(now);
            asked.is_frozen |= now < quiet.frozen_until;
            if asked.is_quiet && !asked.is_frozen {
                // A board that needs a person may be shut out.
                if !is_excused {
                    told_in_time(&mut judged, asked, now);
                }
            }
        }
        match &entry.what {
            What::Starts { pid, .. } => drop(turns.insert(*pid, Turn::default())),
            What::Waits { pid, .. } => {
                turns.insert(*pid, Turn { has_begun: true, ..Turn::default() });
                judged.count += 1;
            }
            What::Blocks { pid, with, lasts } => {
                blocked.insert(*pid, now + *lasts);
                let ends = asked.get_mut(pid).is_some_and(|asked| {
                    asked.files += *lasts;
                    asked.term.is_some()
                });
                let turn = turns.entry(*pid).or_default();
                if *with == "a file change" && turn.has_begun && !ends {
                    turn.does(&mut judged, now, "a file change");
                }
            }
            What::Log { pid, place, is_verbose: true, .. } if place.starts_with(CALLS) => {
                turns.entry(*pid).or_default().does(&mut judged, now, "a request");
            }
            What::Signal { pid, signal } => {
                let asked = asked.entry(*pid).or_insert_with(|| Asked {
                    is_quiet: quiet.is_quiet(now)
                        && unanswered.get(pid).is_none_or(|it| *it < SHUT_OUT),
                    is_frozen: now < quiet.frozen_until,
                    files: blocked.get(pid).map_or(Duration::ZERO, |it| it.saturating_sub(now)),
                    ..Asked::default()
                });
                match signal {
                    Signal::Term => drop(asked.term.get_or_insert(now)),
                    // A repeated one changes nothing.
                    Signal::Usr1 if asked.taken.is_some() => {}
                    Signal::Usr1 => drop(asked.announced.get_or_insert(now)),
                }
            }
            // A person has written the address of no server.
            What::Connects { pid, address, .. } if address.starts_with(SILENT) => {
                if let Some(asked) = asked.get_mut(pid) {
                    asked.is_quiet = false;
                }
            }
            What::Woke { pid, woken } if woken.shutdown => {
                if let Some(asked) = asked.get_mut(pid) {
                    asked.taken.get_or_insert(now);
                }
            }
            What::Answer(answer) if says_shutdown(&answer.body) => {
                if let Some(asked) = asked.get_mut(&answer.pid) {
                    asked.announced = None;
                    judged.count += 1;
                }
            }
            What::Ends { pid, .. } => {
                turns.remove(pid);
                // A name lookup reads /etc/resolv.conf (systemd/differences.md).
                let asked = asked.remove(pid).filter(|asked| !is_on_a_dead_root(run, asked, now));
                if let Some(asked) = asked {
                    ends_in_time(&mut judged, &asked, now);
                }
            }
            What::Judged(state) => {
                is_excused |= state.excuse.is_some();
                if is_excused || !state.is_up {
                    continue;
                }
                judged.count += 1;
                if !state.is_ready && crate::sim::world::ready_of(&state.node) == "True" {
                    judged.breaks(now, "no READY=1", "the unit is still activating".to_owned());
                }
            }
            _ => {}
        }
    }
    judged
}

/// The server of the root file system was dead while a signal waited.
fn is_on_a_dead_root(run: &Run<'_>, asked: &Asked, now: Duration) -> bool {
    let from = asked.term.or(asked.announced).unwrap_or(now);
    let mut dead = run.plan.steps.iter().filter(|step| step.class.name == "root-server-dies");
    let is_then = |begin: Duration, lasts| begin <= now && from <= begin + lasts;
    run.plan.root_can_block() && dead.any(|step| is_then(step.when.at(), step.lasts))
}

/// The Node says that the machine shuts down.
fn says_shutdown(body: &serde_json::Value) -> bool {
    let conditions = body["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .filter_map(|condition| condition["message"].as_str())
        .any(|message| message.contains("node is shutting down"))
}

/// SIGUSR1 is said within 5 s if the server answers.
fn told_in_time(judged: &mut Judged, asked: &mut Asked, now: Duration) {
    let Some(announced) = asked.announced else { return };
    if asked.term.is_none() && now > announced + SOON + asked.files {
        let text = format!("SIGUSR1 at {announced:?} was not said");
        judged.breaks(now, "SIGUSR1 is not said", text);
        asked.announced = None;
    }
}

/// SIGTERM ends the process: within 5 s if the server answers, else with the current request.
fn ends_in_time(judged: &mut Judged, asked: &Asked, now: Duration) {
    let Some(term) = asked.term.filter(|_| !asked.is_frozen) else { return };
    judged.count += 1;
    // No request began before the agent had taken SIGUSR1, and none after it may take longer.
    let bound = match asked.taken {
        Some(taken) if term <= taken + KEPT_FREE => taken.max(term) + SOON,
        _ if asked.is_quiet => term + SOON,
        _ => term + REQUEST,
    };
    if now > bound + asked.files {
        let kind = if asked.taken.is_some() { "shutdown" } else { "SIGTERM" };
        let text =
            format!("SIGTERM at {term:?}, SIGUSR1 taken at {:?}, ended at {now:?}", asked.taken);
        judged.breaks(now, &format!("{kind}: late end"), text);
    }
}

/// Whether the world has been without a fault for a while.
#[derive(Default)]
struct Quiet {
    faults: u64,
    changed: Duration,
    frozen_until: Duration,
}

impl Quiet {
    fn take(&mut self, entry: &Entry) {
        let What::Fault { begins, text } = &entry.what else { return };
        // These are what is judged.
        if ["twin", "restart", "reboot", "shutdown-signal"].iter().any(|name| text.contains(name))
            && !text.contains("server-restarts")
        {
            return;
        }
        match (begins, text.contains(" for ")) {
            (true, true) => self.faults += 1,
            (false, _) => self.faults = self.faults.saturating_sub(1),
            (true, false) => {}
        }
        self.changed = entry.at;
        if let Some((_, size)) = text.split_once("suspend size=") {
            let lasts: u64 = size.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            self.frozen_until = entry.at + Duration::from_secs(lasts);
        }
    }

    fn is_quiet(&self, now: Duration) -> bool {
        self.faults == 0 && now >= self.changed + SETTLES
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{at, breaks, judged};
    use super::*;
    use crate::os::wakeup::Woken;
    use crate::sim::process::Exit;
    use crate::sim::trace::{Exchange, State};

    fn waits(seconds: u64) -> Entry {
        at(seconds, What::Waits { pid: 1, timeout: Duration::ZERO })
    }

    fn changes(seconds: u64) -> Entry {
        let lasts = Duration::from_secs(1);
        at(seconds, What::Blocks { pid: 1, with: "a file change", lasts })
    }

    fn request(seconds: u64) -> Entry {
        let (text, place) = ("Get /".to_owned(), format!("{CALLS}:310"));
        let level = log::Level::Info;
        at(seconds, What::Log { pid: 1, level, is_verbose: true, text, place })
    }

    #[test]
    fn a_turn_blocks_on_one_thing() {
        let apart = [waits(1), changes(2), waits(2), changes(3), waits(3), request(4)];
        assert_eq!(breaks(judge, &apart), None);
        let two = [waits(1), changes(2), changes(3)];
        let found = breaks(judge, &two);
        assert_eq!(found.as_deref(), Some("a file change and a file change in a turn"));
        let two = [waits(1), request(2), request(7)];
        assert_eq!(breaks(judge, &two).as_deref(), Some("a request and a request in a turn"));
    }

    #[test]
    fn signals_are_followed_in_time() {
        let signal = |seconds, signal| at(seconds, What::Signal { pid: 1, signal });
        let ends =
            |seconds| at(seconds, What::Ends { pid: 1, name: "nodelet", exit: Exit::Code(true) });
        let term = |after: u64| [signal(100, Signal::Term), ends(100 + after)];
        assert_eq!(breaks(judge, &term(5)), None);
        assert_eq!(breaks(judge, &term(6)).as_deref(), Some("SIGTERM: late end"));
        // One read, in which the signal comes.
        let lasts = Duration::from_secs(30);
        let reads = at(95, What::Blocks { pid: 1, with: "a read", lasts });
        let within = |after: u64| [vec![reads.clone()], term(after).to_vec()].concat();
        assert_eq!(breaks(judge, &within(30)), None);
        assert_eq!(breaks(judge, &within(31)).as_deref(), Some("SIGTERM: late end"));
        let fault =
            at(99, What::Fault { begins: true, text: "at 1 for 9 server-silent".to_owned() });
        let within = |after: u64| [vec![fault.clone()], term(after).to_vec()].concat();
        assert_eq!(breaks(judge, &within(20)), None);
        assert_eq!(breaks(judge, &within(21)).as_deref(), Some("SIGTERM: late end"));
        let woken = Woken { shutdown: true, ..Woken::default() };
        let taken = at(101, What::Woke { pid: 1, woken });
        let shutdown =
            [fault.clone(), signal(100, Signal::Usr1), taken, signal(102, Signal::Term), ends(115)];
        assert_eq!(breaks(judge, &shutdown).as_deref(), Some("shutdown: late end"));
        let unsaid = [signal(100, Signal::Usr1), waits(110)];
        assert_eq!(breaks(judge, &unsaid).as_deref(), Some("SIGUSR1 is not said"));
        let address = format!("{SILENT}:6443");
        let misled = at(100, What::Connects { pid: 1, address, opened: false });
        let unsaid = [signal(100, Signal::Usr1), misled, waits(110)];
        assert_eq!(breaks(judge, &unsaid), None);
        let body = json!({"status": {"conditions": [{"message": "node is shutting down"}]}});
        let told = Exchange { pid: 1, body, ..Exchange::default() };
        // Who is shut out before can tell nobody.
        let answers = |second, code| {
            at(second, What::Answer(Box::new(Exchange { pid: 1, code, ..Exchange::default() })))
        };
        let shut_out = [answers(98, 200), answers(99, 401), unsaid[0].clone(), waits(110)];
        assert_eq!(breaks(judge, &shut_out), None);
        let connects = || at(99, What::Connects { pid: 1, address: String::new(), opened: true });
        let refused = [connects(), connects(), connects(), unsaid[0].clone(), waits(110)];
        assert_eq!(breaks(judge, &refused), None);
        assert_eq!(breaks(judge, &refused[1..]).as_deref(), Some("SIGUSR1 is not said"));
        let admitted = [answers(98, 401), answers(99, 200), unsaid[0].clone(), waits(110)];
        assert_eq!(breaks(judge, &admitted).as_deref(), Some("SIGUSR1 is not said"));
        let said = [signal(100, Signal::Usr1), at(101, What::Answer(Box::new(told))), waits(110)];
        assert_eq!(breaks(judge, &said), None);
    }

    #[test]
    fn a_node_that_is_ready_has_a_unit_that_is_active() {
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let state = State { node, is_up: true, is_ready: false, ..State::default() };
        assert_eq!(breaks(judge, &[judged(900, state)]).as_deref(), Some("no READY=1"));
    }
}
