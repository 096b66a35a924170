//! The lookup of one name along the search list. Decides only: the caller sends its packets, and
//! passes in the answers and the time.
//!
//! The A and AAAA questions for a name are sent to all name servers at once. The answers are judged
//! in the order of resolv.conf: an answer counts when each server before it has failed, or was
//! silent for the time limit. Go and glibc ask one server after the other, and get the same result
//! later. For example, the first server is silent and the time limit is 5 s: Go asks the second
//! server after 5 s. Here the answer of the second server has arrived by then, and it counts even
//! if the time of the whole lookup ends after 3 s.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use std::vec;

use super::message::{self, MAX_ADDRESSES, Name, Question, RecordType, Reply};
use super::{PORT, Resolver};
use crate::kube::instant::Mono;
use crate::os;

/// When the answer to A has addresses, the answer to AAAA may take this much longer: some servers
/// never answer to AAAA. (Go and glibc wait for the whole time limit.)
const GRACE: Duration = Duration::from_millis(500);

/// The same of the answer to A, when that to AAAA has addresses. Then A is asked again: else one
/// lost packet would make an IPv6 address the Node's.
const GRACE_OF_A: Duration = Duration::from_secs(1);

/// What the servers know of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// At least one address, and the shortest TTL.
    Addresses(Vec<IpAddr>, Duration),
    /// There is no such name, or it has no address.
    Absent(String),
    /// For at least one candidate no server gave an answer: this candidate may exist.
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) resolver: Resolver,
    /// Candidates after the current one.
    names: vec::IntoIter<Name>,
    /// Why the candidates before the current one gave no address.
    earlier: Option<LookupResult>,
    /// The A and the AAAA question for the current candidate.
    questions: [SentQuestion; 2],
    /// The cause of the last failure of a server.
    trouble: Option<String>,
    started: Mono,
    ends: Mono,
    /// When the current attempt began, and its time limit.
    attempted: (Mono, Duration),
    attempts_left: u32,
    /// When the first answer with addresses counted in this attempt: the grace begins.
    addressed: Option<Mono>,
}

impl Lookup {
    /// A lookup that takes the time until `ends` at most. `None` where no candidate is a valid
    /// name.
    pub(super) fn new(resolver: Resolver, name: &str, now: Mono, ends: Mono) -> Option<Self> {
        let names = resolver.candidates(name);
        let names: Vec<Name> = names.iter().filter_map(|name| Name::new(name)).collect();
        let mut names = names.into_iter();
        let first = names.next()?;
        let mut lookup = Self {
            questions: questions(&first, resolver.servers.len()),
            resolver,
            names,
            earlier: None,
            trouble: None,
            started: now,
            ends,
            attempted: (now, Duration::ZERO),
            attempts_left: 0,
            addressed: None,
        };
        lookup.begin(now);
        Some(lookup)
    }

    /// Passes each packet that is due to `send`, with the index of its server. If `send` returns an
    /// error, this server has failed.
    pub(super) fn send(&mut self, mut send: impl FnMut(usize, &[u8]) -> Result<(), String>) {
        for server in 0..self.resolver.servers.len() {
            let due = self.questions.iter_mut().filter_map(|question| question.take_due(server));
            // The kernel may report the ICMP error of the first packet when the second one is sent.
            let failure = due.map(|packet| send(server, &packet)).find_map(Result::err);
            if let Some(why) = failure {
                self.fail(server, why);
            }
        }
    }

    /// Takes a packet of a server. It is ignored if it answers no question that still waits.
    pub(super) fn receive(&mut self, server: usize, packet: &[u8]) {
        let failures = self.questions.iter_mut().filter_map(|q| q.receive(server, packet));
        if let Some(why) = failures.last() {
            self.trouble = Some(format!("{why} from {}", self.shown(server)));
        }
    }

    /// A server cannot be reached.
    pub(super) fn fail(&mut self, server: usize, why: String) {
        let states = self.questions.iter_mut().filter_map(|q| q.states.get_mut(server));
        states.for_each(ServerState::fail);
        self.trouble = Some(why);
    }

    /// Begins the next attempt or the next candidate if it is time. Returns the result when the
    /// lookup has ended. An answer that was passed in before this call counts, even after its time
    /// limit.
    pub(super) fn step(&mut self, now: Mono) -> Option<LookupResult> {
        // The time limit of a packet does not begin before it is sent.
        if self.questions.iter().any(SentQuestion::is_due) {
            self.attempted.0 = now;
            return None;
        }
        let (began, limit) = self.attempted;
        if now >= began.after(limit) {
            self.end_attempt();
        }
        if self.questions.iter().any(SentQuestion::has_addresses) {
            self.addressed.get_or_insert(now);
        }
        if self.is_pending() && now < self.due() {
            return None;
        }
        let has_failed = self.questions.iter().any(|question| question.reply().is_none());
        if has_failed && !self.has_ipv4() && self.attempts_left > 0 {
            self.end_attempt();
            self.attempts_left -= 1;
            self.attempted.0 = now;
            self.addressed = self.addressed.map(|_| now);
            self.questions.iter_mut().for_each(SentQuestion::repeat);
            return None;
        }
        let result = self.result(now);
        if !matches!(result, LookupResult::Addresses(..))
            && let Some(name) = self.names.next()
        {
            self.earlier = Some(result);
            self.trouble = None;
            self.questions = questions(&name, self.resolver.servers.len());
            self.begin(now);
            return None;
        }
        Some(result)
    }

    /// When [`Self::step`] has something to do if no packet comes.
    pub(super) fn due(&self) -> Mono {
        let (began, limit) = self.attempted;
        match self.addressed {
            _ if !self.is_pending() => began,
            Some(then) => {
                let grace = if self.has_ipv4() { GRACE } else { GRACE_OF_A };
                began.after(limit).min(then.after(grace))
            }
            None => began.after(limit),
        }
    }

    /// Ends the lookup now: a server that has not replied has failed.
    pub(super) fn result(&mut self, now: Mono) -> LookupResult {
        self.end_attempt();
        match (self.answer(now), self.earlier.take()) {
            (found @ LookupResult::Addresses(..), _) => found,
            // An earlier candidate may have an address, because its servers failed. So the name is
            // not absent.
            (_, Some(failed @ LookupResult::Failed(_))) => failed,
            (result, _) => result,
        }
    }

    /// The attempts for a candidate share half of the time that is left, or all of it for the last
    /// candidate: of 12 s, each of two attempts gets 3 s for the first one of three candidates, or
    /// the resolver's time limit if that is shorter. Equal shares, such as a seventh for each of
    /// seven candidates, would be shorter than the round trip of a slow network.
    fn begin(&mut self, now: Mono) {
        let parts = if self.names.len() == 0 { 1 } else { 2 };
        let attempts = self.resolver.attempts.max(1);
        let share = self.ends.since(now) / attempts.saturating_mul(parts);
        self.attempted = (now, self.resolver.timeout.min(share));
        self.attempts_left = attempts - 1;
    }

    /// Each server that has not replied has failed.
    fn end_attempt(&mut self) {
        for question in &mut self.questions {
            question.states.iter_mut().for_each(ServerState::fail);
        }
    }

    fn is_pending(&self) -> bool {
        self.questions.iter().any(SentQuestion::is_pending)
    }

    fn has_ipv4(&self) -> bool {
        let [a, _] = &self.questions;
        a.has_addresses()
    }

    /// The answer for the current candidate. Addresses of one family win over NXDOMAIN for the
    /// other family: some servers deny that a name exists when they are asked for AAAA.
    fn answer(&self, now: Mono) -> LookupResult {
        let mut families = Vec::new();
        let mut holds = Duration::MAX;
        let (mut denied, mut empty) = (None, None);
        for (server, reply) in self.questions.iter().filter_map(SentQuestion::reply) {
            match reply {
                Reply::Addresses(addresses, ttl) => {
                    families.push(addresses.as_slice());
                    holds = holds.min(*ttl);
                }
                Reply::NoName => denied = Some(server),
                _ => empty = Some(server),
            }
        }
        if !families.is_empty() {
            return LookupResult::Addresses(in_turn(&families), holds);
        }
        let absent = |what, server| {
            let later = if server == 0 { "" } else { ", the first name server that answered" };
            LookupResult::Absent(format!("{what} {}{later}", self.shown(server)))
        };
        let all_replied = self.questions.iter().all(|question| question.reply().is_some());
        match (denied, empty, &self.trouble) {
            (Some(server), ..) => absent("no such name (NXDOMAIN) from", server),
            (_, Some(server), _) if all_replied => absent("the name has no address, says", server),
            (.., Some(trouble)) => LookupResult::Failed(trouble.clone()),
            _ if self.resolver.servers.is_empty() => {
                LookupResult::Failed("no usable name server in resolv.conf".to_owned())
            }
            _ => LookupResult::Failed(silence(now.since(self.started))),
        }
    }

    fn shown(&self, server: usize) -> String {
        self.resolver.servers.get(server).copied().map_or_else(String::new, shown)
    }
}

/// A question for one address family.
#[derive(Debug)]
struct SentQuestion {
    question: Question,
    /// The state of this question at each server.
    states: Vec<ServerState>,
}

#[derive(Clone, Debug)]
enum ServerState {
    /// To be sent. `is_large` allows a larger answer, after the usual one was truncated.
    Due {
        is_large: bool,
    },
    Waiting {
        is_large: bool,
    },
    /// The server failed, or was silent for the time limit.
    Failed,
    Replied(Reply),
}

impl ServerState {
    /// Takes no reply any more. A reply that has arrived stays.
    fn fail(&mut self) {
        if matches!(self, Self::Due { .. } | Self::Waiting { .. }) {
            *self = Self::Failed;
        }
    }
}

impl SentQuestion {
    fn is_due(&self) -> bool {
        self.states.iter().any(|state| matches!(state, ServerState::Due { .. }))
    }

    /// The packet that is due for a server.
    fn take_due(&mut self, server: usize) -> Option<Vec<u8>> {
        match self.states.get_mut(server) {
            Some(state @ &mut ServerState::Due { is_large }) => {
                *state = ServerState::Waiting { is_large };
                Some(message::query(&self.question, is_large))
            }
            _ => None,
        }
    }

    /// The first server, in the order of resolv.conf, that has not failed: only its answer counts.
    /// Returns its index and its state.
    fn first(&self) -> Option<(usize, &ServerState)> {
        self.states.iter().enumerate().find(|(_, state)| !matches!(state, ServerState::Failed))
    }

    /// Takes the answer of a server; returns why the server has failed, if it has.
    fn receive(&mut self, server: usize, packet: &[u8]) -> Option<&'static str> {
        let Some(state @ &mut ServerState::Waiting { is_large }) = self.states.get_mut(server)
        else {
            return None;
        };
        let (next, why) = match message::parse(packet, &self.question)? {
            Reply::Truncated if !is_large => (ServerState::Due { is_large: true }, None),
            Reply::Truncated => (ServerState::Failed, Some("a truncated answer")),
            Reply::Failed(why) => (ServerState::Failed, Some(why)),
            reply => (ServerState::Replied(reply), None),
        };
        *state = next;
        why
    }

    fn is_pending(&self) -> bool {
        matches!(self.first(), Some((_, ServerState::Due { .. } | ServerState::Waiting { .. })))
    }

    /// The reply that counts, and the index of its server.
    fn reply(&self) -> Option<(usize, &Reply)> {
        match self.first()? {
            (server, ServerState::Replied(reply)) => Some((server, reply)),
            _ => None,
        }
    }

    fn has_addresses(&self) -> bool {
        matches!(self.reply(), Some((_, Reply::Addresses(..))))
    }

    /// Asks all servers again if all have failed.
    fn repeat(&mut self) {
        if self.first().is_none() {
            self.states.fill(ServerState::Due { is_large: false });
        }
    }
}

fn questions(name: &Name, servers: usize) -> [SentQuestion; 2] {
    [RecordType::A, RecordType::Aaaa].map(|kind| SentQuestion {
        question: Question { id: random(), name: name.clone(), kind },
        states: vec![ServerState::Due { is_large: false }; servers],
    })
}

/// The id of a question, which cannot be guessed.
fn random() -> u16 {
    let [a, b, ..] = os::random().to_ne_bytes();
    u16::from_ne_bytes([a, b])
}

/// IPv4 and IPv6 addresses in turn, so that a family without a route costs one attempt.
fn in_turn(families: &[&[IpAddr]]) -> Vec<IpAddr> {
    (0..MAX_ADDRESSES)
        .flat_map(|index| families.iter().filter_map(move |family| family.get(index)))
        .copied()
        .take(MAX_ADDRESSES)
        .collect()
}

/// In tenths of a second, so that the text does not change during one outage.
fn silence(waited: Duration) -> String {
    let tenths = (waited.as_millis() + 50) / 100;
    let (seconds, tenths) = (tenths / 10, tenths % 10);
    match tenths {
        0 => format!("no name server answered within {seconds} s"),
        _ => format!("no name server answered within {seconds}.{tenths} s"),
    }
}

/// A server's address, without the standard port.
pub(super) fn shown(server: SocketAddr) -> String {
    if server.port() == PORT { server.ip().to_string() } else { server.to_string() }
}
