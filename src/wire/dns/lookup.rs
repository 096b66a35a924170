//! The lookup of one name along the search list, in steps. Only [`Lookup::wait`] waits; the caller
//! gives the time.

use std::net::SocketAddr;
use std::time::Duration;
use std::vec;

use super::Resolver;
use super::exchange::{Exchange, Outcome};
use super::message::Name;
use super::resolv_conf;
use crate::core::instant::Mono;

/// Time for the other family once one family has addresses: some servers never answer to AAAA.
/// (musl waits for the whole timeout.)
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Lookup {
    servers: Vec<SocketAddr>,
    /// Candidates after the current one.
    names: vec::IntoIter<Name>,
    exchange: Exchange,
    started: Mono,
    sent: Mono,
    /// When the first addresses came.
    addressed: Option<Mono>,
    timeout: Duration,
    interval: Duration,
}

impl Lookup {
    /// Sends the first questions. `None` where no candidate is a valid name.
    pub(super) fn start(resolver: &Resolver, name: &str, now: Mono) -> Option<Self> {
        let names = resolv_conf::candidates(name, &resolver.search, resolver.ndots);
        let names: Vec<Name> = names.iter().filter_map(|name| Name::new(name)).collect();
        let mut names = names.into_iter();
        Some(Self {
            exchange: Exchange::start(&names.next()?, &resolver.servers),
            servers: resolver.servers.clone(),
            names,
            started: now,
            sent: now,
            addressed: None,
            timeout: resolver.timeout,
            interval: resolver.timeout / resolver.attempts.max(1),
        })
    }

    /// Reads answers and repeats questions that are due; returns the outcome at the end. An answer
    /// counts however late it is read.
    pub(super) fn turn(&mut self, now: Mono) -> Option<Outcome> {
        self.exchange.receive();
        if self.exchange.has_addresses() {
            self.addressed.get_or_insert(now);
        }
        let done = self.exchange.is_settled() || now >= self.ends();
        if !done {
            if now >= self.sent.after(self.interval) {
                self.exchange.send();
                self.sent = now;
            }
            return None;
        }
        let outcome = self.outcome(now);
        if let Outcome::NoName(_) = outcome
            && let Some(name) = self.names.next()
        {
            self.exchange = Exchange::start(&name, &self.servers);
            (self.started, self.sent) = (now, now);
            return None;
        }
        Some(outcome)
    }

    /// The outcome so far.
    pub(super) fn outcome(&self, now: Mono) -> Outcome {
        self.exchange
            .outcome()
            .unwrap_or_else(|| Outcome::Failed(silence(now.since(self.started))))
    }

    /// Waits for an answer, or for the time of the next [`Self::turn`], or `at_most`.
    pub(super) fn wait(&self, at_most: Duration, now: Mono) {
        let next = self.ends().min(self.sent.after(self.interval)).since(now);
        self.exchange.wait(next.min(at_most));
    }

    fn ends(&self) -> Mono {
        let timeout = self.started.after(self.timeout);
        match self.addressed {
            Some(then) => timeout.min(then.after(GRACE)),
            None => timeout,
        }
    }
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
