//! What shows that the simulator can find a fault: each class changes something, each line of the
//! log, each action and each cause of a wakeup is seen once, a planted breach of the lease law is
//! reported, a run that is repeated is the same run, and a world without faults is exact.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::classes::Class;
use super::draw::{Draws, draw};
use super::plan::Plan;
use super::process::Signal;
use super::sentences;
use super::trace::{Entry, Exchange, What};
use super::{Outcome, classes, judge, run};

/// What a hunt has seen.
#[derive(Debug, Default)]
pub(crate) struct Strength {
    pairs: BTreeSet<(&'static str, &'static str)>,
    /// How often a class was left out of a plan, and how often that changed a request or a line.
    left_out: BTreeMap<&'static str, (u64, u64)>,
    places: BTreeSet<String>,
    actions: BTreeSet<&'static str>,
    /// Breaches that were planted, and those that were reported.
    canaries: (u64, u64),
    /// Runs that were repeated, and those that were the same again.
    twice: (u64, u64),
    /// Numbers of a world without faults that are not as they must be.
    inexact: Vec<String>,
}

/// Log lines that no run needs to show: the begin of a place or of the text there, and why.
const UNSEEN: &[(&str, &str)] = &[
    ("src/agent/mod.rs: --root-dir:", "the root folder of the world's board is never asked once"),
    ("src/agent/mod.rs: {name} is not used", "no environment of the world has a proxy"),
    ("src/client/tls.rs", "no CA file of the world has a broken certificate"),
    (
        "src/credentials/pki/serving.rs",
        "a certificate of `nodelet serve`, which is not in the world",
    ),
];

/// Classes that change nothing, and why they are there.
const DEAD: &[(&str, &str)] = &[];

/// Each [`Action`](crate::node::schedule::Action) and each [`Effect`](crate::node::Effect) that a
/// trace shows.
const ACTIONS: [&str; 11] = [
    "Connect",
    "Send",
    "Disconnect",
    "TryOtherAddress",
    "Registered",
    "PodCidrs",
    "ReadFacts",
    "Credentials",
    "Change",
    "Wait",
    "End",
];

/// Each flag of [`Woken`](crate::os::wakeup::Woken).
const WOKEN: [&str; 5] = ["stop", "shutdown", "memory_pressure", "network", "voltage"];

impl Strength {
    /// Looks at a run of a hunt.
    pub(crate) fn look(&mut self, outcome: &Outcome) {
        let names = outcome.plan.classes();
        for (index, one) in names.iter().enumerate() {
            self.pairs.extend(names[index + 1..].iter().map(|other| (*one, *other)));
        }
        let mut seen = Seen::default();
        for entry in &outcome.trace {
            if let What::Log { place, .. } = &entry.what {
                self.places.insert(place.clone());
            }
            seen.see(entry);
        }
        self.actions.extend(seen.actions);
    }

    pub(crate) fn count_twice(&mut self, is_same: bool) {
        self.twice.0 += 1;
        self.twice.1 += u64::from(is_same);
    }

    /// A plan was repeated without one of its classes.
    pub(crate) fn count_left_out(&mut self, class: &'static str, has_changed: bool) {
        let counts = self.left_out.entry(class).or_default();
        counts.0 += 1;
        counts.1 += u64::from(has_changed);
    }

    /// Breaks the lease law in the trace of a run that holds it, and asks the sentences.
    pub(crate) fn plant(&mut self, outcome: &Outcome) {
        let Some(trace) = late_renewal(outcome) else { return };
        self.canaries.0 += 1;
        let found = judge(outcome.plan.clone(), trace);
        let is_reported = found.breaks.iter().any(|(sentence, _)| sentence.name == "lease-law");
        self.canaries.1 += u64::from(is_reported);
    }

    pub(crate) fn check_exact(&mut self) {
        for auth in ["inline", "token", "rotate", "bootstrap", "k3s"] {
            let plan = quiet_plan(auth);
            let faults = inexact(&run(plan).trace);
            self.inexact.extend(faults.into_iter().map(|fault| format!("{auth}: {fault}")));
        }
    }

    /// Classes that were left out often enough, and changed nothing.
    fn dead(&self) -> Vec<&'static str> {
        let is_dead = |(_, (tried, changed)): &(&&'static str, &(u64, u64))| {
            *tried >= ENOUGH && *changed == 0
        };
        let dead = self.left_out.iter().filter(is_dead).map(|(class, _)| *class);
        dead.filter(|class| !DEAD.iter().any(|(known, _)| known == class)).collect()
    }

    /// Log lines, actions and causes of a wakeup that no run has shown.
    fn unseen(&self) -> Vec<String> {
        let places = all_places().into_iter().filter(|(place, text)| {
            let file = place.rsplit_once(':').map_or("", |(file, _)| file);
            let is_excused = |excuse: &str| format!("{file}: {text}").starts_with(excuse);
            !self.places.contains(place) && !UNSEEN.iter().any(|(excuse, _)| is_excused(excuse))
        });
        let actions = ACTIONS.iter().chain(&WOKEN).filter(|name| !self.actions.contains(**name));
        let places = places.map(|(place, text)| format!("{place} {text}"));
        places.chain(actions.map(|name| (*name).to_owned())).collect()
    }

    /// For the last line of JSON, and whether the simulator is strong. What a short hunt cannot
    /// know counts only if `all` must be known.
    pub(crate) fn report(&self, counts: &[u64], all: bool) -> (Value, bool) {
        let unjudged: Vec<&str> = sentences::ALL
            .iter()
            .zip(counts)
            .filter(|(_, count)| **count == 0)
            .map(|(sentence, _)| sentence.name)
            .collect();
        let (dead, unseen) = (self.dead(), self.unseen());
        let classes = classes::all().count();
        let must_hold = self.canaries.0 == self.canaries.1 && self.inexact.is_empty();
        let is_whole = dead.is_empty() && unseen.is_empty() && unjudged.is_empty();
        let value = json!({
            "pairs": self.pairs.len(),
            "pairs_of": classes * (classes - 1) / 2,
            "canaries": self.canaries,
            "twice": self.twice,
            "left_out": self.left_out.len(),
            "dead": dead,
            "unseen": unseen,
            "unjudged": unjudged,
            "inexact": self.inexact,
        });
        (value, must_hold && (is_whole || !all))
    }
}

/// A class that changed nothing in so many plans is dead.
pub(crate) const ENOUGH: u64 = 6;

/// The requests and the log of a run.
fn requests_and_log(outcome: &Outcome) -> Vec<String> {
    let line = |entry: &Entry| match &entry.what {
        What::Request(_) | What::Log { .. } => Some(super::verdict::comparable(entry)),
        _ => None,
    };
    outcome.trace.iter().filter_map(line).collect()
}

/// Whether a class matters in a plan.
pub(crate) fn matters(outcome: &Outcome, class: &str) -> bool {
    let mut plan = outcome.plan.clone();
    plan.steps.retain(|step| step.class.name != class);
    requests_and_log(outcome) != requests_and_log(&run(plan))
}

/// What each world was, by the seed and whether it was whole.
type Worlds = BTreeMap<(u64, bool), Arc<Vec<String>>>;

/// What runs ask and log that several classes are compared with, by seed: the world without a
/// class, and the world with all of them.
#[derive(Debug, Default)]
pub(crate) struct Compared(Mutex<Worlds>);

impl Compared {
    /// Whether a class matters in any of some plans: in one of its own, and then among all.
    pub(crate) fn is_alive(&self, class: &Class) -> bool {
        let alone = |seed| Plan::draw_only(seed, 1, &|other| other.name == class.name);
        let among = |seed| Plan::draw_only(seed, 1, &|_| true);
        let has_class = |plan: &Plan| plan.classes().contains(&class.name);
        let mut first = (1..200).map(alone).filter(has_class).take(3);
        let mut then = (1..50).map(among).filter(has_class).take(2);
        first.any(|plan| {
            let mut without = plan.clone();
            without.steps.clear();
            requests_and_log(&run(plan)) != *self.lines(without, false)
        }) || then.any(|plan| {
            let mut without = plan.clone();
            without.steps.retain(|step| step.class.name != class.name);
            requests_and_log(&run(without)) != *self.lines(plan, true)
        })
    }

    fn lines(&self, plan: Plan, has_all: bool) -> Arc<Vec<String>> {
        let key = (plan.seed, has_all);
        let known = self.0.lock().expect("no panic").get(&key).cloned();
        known.unwrap_or_else(|| {
            let lines = Arc::new(requests_and_log(&run(plan)));
            self.0.lock().expect("no panic").insert(key, Arc::clone(&lines));
            lines
        })
    }
}

/// The trace with one renewal in quiet time so late that the lease law is broken by a second.
fn late_renewal(outcome: &Outcome) -> Option<Vec<Entry>> {
    /// The law is 15.9 s with the trips of the simulated network.
    const LATE: Duration = Duration::from_millis(16_900);
    let plan = &outcome.plan;
    if plan.stories.is_empty() {
        return None;
    }
    let story = Draws::new(draw(plan.seed, "canary", 0), "story").one_of(&plan.stories);
    let disturbs = |entry: &&Entry| {
        matches!(entry.what, What::Fault { .. } | What::Starts { .. } | What::Ends { .. })
    };
    let before = |entry: &&Entry| entry.at < story.until;
    let last = outcome.trace.iter().take_while(before).filter(disturbs).last();
    let quiet = last.map_or(Duration::ZERO, |entry| entry.at) + Duration::from_secs(90);
    let mut trace = outcome.trace.clone();
    let is_quiet = |entry: &Entry| entry.at > quiet && entry.at < story.until;
    let mut renewals =
        (0..trace.len()).filter(|index| is_quiet(&trace[*index]) && is_renewal(&trace[*index]));
    let (first, late) = (renewals.next()?, renewals.next()?);
    drop(renewals);
    let at = trace[first].at + LATE;
    let mut entry = trace.remove(late);
    if let What::Answer(answer) = &mut entry.what {
        answer.arrived += at.checked_sub(entry.at)?;
    }
    entry.at = at;
    let place = trace.iter().position(|other| other.at > at)?;
    trace.insert(place, entry);
    Some(trace)
}

fn is_renewal(entry: &Entry) -> bool {
    matches!(&entry.what, What::Answer(answer) if answer.is_renewal())
}

/// Four hours without a fault.
fn quiet_plan(auth: &str) -> Plan {
    let text = format!(
        "seed 5\nhours 4\nsetting address=name\nsetting auth={auth}\nsetting gateway=no\n\
         setting life=86400\nsetting servers=1\nsetting signs=yes\njudge 20 1200\n"
    );
    text.parse().expect("a plan")
}

/// What a quiet hour after the first one costs: requests, by method and resource, from and to. The
/// Lease is renewed each 10.2 s, the Node is asked for a change of its status each 150 s and its
/// pods each 300 s, with a random part.
const QUIET_HOUR: &[(&str, u64, u64)] =
    &[("PATCH leases", 351, 353), ("PATCH nodes", 23, 24), ("GET pods", 12, 12)];

/// Turns of a quiet hour: one for each renewal.
const QUIET_TURNS: u64 = 353;

fn inexact(trace: &[Entry]) -> Vec<String> {
    let mut faults = Vec::new();
    for hour in 1..4 {
        let in_hour = trace.iter().filter(|entry| entry.at.as_secs() / 3600 == hour);
        let mut requests: BTreeMap<String, u64> = BTreeMap::new();
        let mut turns = 0;
        for entry in in_hour {
            match &entry.what {
                What::Request(request) => *requests.entry(kind(request)).or_default() += 1,
                What::Waits { .. } => turns += 1,
                What::Log { is_verbose: false, text, .. } => {
                    faults.push(format!("hour {hour}: a line: {text}"));
                }
                _ => {}
            }
        }
        for (name, from, to) in QUIET_HOUR {
            let count = requests.remove(*name).unwrap_or(0);
            if count < *from || count > *to {
                faults.push(format!("hour {hour}: {count} {name}, not {from} to {to}"));
            }
        }
        faults.extend(requests.keys().map(|other| format!("hour {hour}: {other}")));
        if turns > QUIET_TURNS {
            faults.push(format!("hour {hour}: {turns} turns"));
        }
    }
    faults
}

/// Method and resource of a request.
fn kind(request: &Exchange) -> String {
    let path = request.target.split('?').next().unwrap_or_default();
    let known = ["leases", "nodes", "pods", "events", "certificatesigningrequests"];
    let part = |part: &&str| path.contains(&format!("/{part}"));
    format!("{} {}", request.method, known.iter().find(|name| part(name)).unwrap_or(&path))
}

/// What a trace shows of the agent's actions.
#[derive(Default)]
struct Seen {
    actions: BTreeSet<&'static str>,
    /// A call has begun since the last wait.
    is_call: bool,
    /// A server has refused a request since the last connection, which led to this address.
    is_refused: bool,
    address: String,
    is_asked_to_end: bool,
}

impl Seen {
    fn see(&mut self, entry: &Entry) {
        match &entry.what {
            What::Waits { timeout, .. } => {
                self.is_call = false;
                if !timeout.is_zero() {
                    self.actions.insert("Wait");
                }
            }
            What::Woke { woken, .. } => {
                let flags = [
                    woken.stop,
                    woken.shutdown,
                    woken.memory_pressure,
                    woken.network,
                    woken.voltage,
                ];
                let seen = WOKEN.iter().zip(flags).filter(|(_, flag)| *flag);
                self.actions.extend(seen.map(|(name, _)| name));
            }
            // The line of each request, when it begins.
            What::Log { place, is_verbose: true, .. } if place.starts_with("src/agent/mod.rs") => {
                self.is_call = true;
            }
            What::Log { text, .. } if text.contains(": registered at ") => {
                self.actions.insert("Registered");
            }
            What::Log { text, .. } if text.contains(": podCIDR ") => {
                self.actions.insert("PodCidrs");
            }
            What::Connects { address, opened: true, .. } => {
                if !self.is_call {
                    self.actions.insert("Connect");
                }
                if std::mem::take(&mut self.is_refused) {
                    let is_same = *address == self.address;
                    self.actions.insert(if is_same { "Disconnect" } else { "TryOtherAddress" });
                }
                self.address.clone_from(address);
            }
            What::Request(request) => {
                self.actions.insert("Send");
                if request.target.contains("certificatesigningrequests") {
                    self.actions.insert("Credentials");
                }
                if request.target.ends_with("/status") {
                    self.actions.insert("ReadFacts");
                }
            }
            What::Answer(answer) => self.is_refused = answer.code >= 400,
            What::File { op, .. } if op.contains("/boots") || op.contains("/podcidr") => {
                self.actions.insert("Change");
            }
            What::Starts { .. } => (self.is_refused, self.is_asked_to_end) = (false, false),
            What::Signal { signal: Signal::Term, .. } => self.is_asked_to_end = true,
            What::Ends { exit: super::process::Exit::Code(true), .. } if self.is_asked_to_end => {
                self.actions.insert("End");
            }
            _ => {}
        }
    }
}

/// Each place of a log line of the agent, with the begin of its text.
fn all_places() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for room in ["agent", "client", "credentials", "health", "node"] {
        places_below(root, &format!("src/{room}"), &mut found);
    }
    found
}

fn places_below(root: &Path, folder: &str, found: &mut Vec<(String, String)>) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    for name in names {
        let path = format!("{folder}/{name}");
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if root.join(&path).is_dir() {
            places_below(root, &path, found);
        } else if let Ok(text) = fs::read_to_string(root.join(&path)) {
            let production = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines: Vec<&str> = production.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                let is_log = ["info", "warn", "error"]
                    .iter()
                    .any(|level| line.contains(&format!("log::{level}!(")));
                if is_log && !line.trim_start().starts_with("//") {
                    let call = lines[index..].iter().take(4).copied().collect::<String>();
                    let quoted = call.split('"').nth(1).unwrap_or_default().to_owned();
                    found.push((format!("{path}:{}", index + 1), quoted));
                }
            }
        }
    }
}

#[test]
fn each_exception_names_a_line_or_a_class() {
    let places = all_places();
    assert!(places.len() > 30, "{places:?}");
    for (excuse, _) in UNSEEN {
        let is_it = |(place, text): &(String, String)| {
            let file = place.rsplit_once(':').map_or("", |(file, _)| file);
            format!("{file}: {text}").starts_with(excuse)
        };
        assert!(places.iter().any(is_it), "{excuse}");
    }
    for (dead, _) in DEAD {
        assert!(classes::all().any(|class| class.name == *dead), "{dead}");
    }
}
