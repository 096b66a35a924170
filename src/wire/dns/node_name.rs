//! The addresses of the Node's own name, looked up in the background: the status is computed every
//! ten seconds and must not wait for a name server.

use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use super::Resolver;
use super::exchange::Outcome;
use super::lookup::Lookup;
use crate::core::instant::Mono;
use crate::kube::text::VERBOSE;

/// Bounds of an answer's life, whatever its TTL. A shorter life costs packets; with a longer one a
/// new address is noticed too late.
const HOLDS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

/// Sum of all waits in the life of a process.
const PATIENCE: Duration = Duration::from_secs(1);

/// A name and its last known addresses.
#[derive(Debug)]
pub struct NodeName {
    name: String,
    /// None: this machine's configuration, read for each lookup, because DHCP rewrites it.
    resolver: Option<Resolver>,
    known: Vec<IpAddr>,
    pending: Option<Lookup>,
    /// When the next lookup begins.
    due: Mono,
    patience: Duration,
}

impl NodeName {
    /// Uses this machine's name servers; sends nothing yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            resolver: None,
            known: Vec::new(),
            pending: None,
            due: Mono::START,
            patience: PATIENCE,
        }
    }

    /// Uses `resolver`.
    pub fn with(name: &str, resolver: Resolver) -> Self {
        Self {
            resolver: Some(resolver),
            ..Self::new(name)
        }
    }

    /// The addresses known so far; begins a lookup that is due.
    ///
    /// Waits only with `may_wait` and while no address is known: a second at most in all calls
    /// together, so that the Node is not registered with an address that the first answer changes.
    pub fn addresses(&mut self, may_wait: bool, now: impl Fn() -> Mono) -> Vec<IpAddr> {
        let mut time = now();
        if self.pending.is_none() && time >= self.due {
            let system;
            let resolver = match &self.resolver {
                Some(resolver) => resolver,
                None => {
                    system = Resolver::system();
                    &system
                }
            };
            self.pending = Lookup::start(resolver, &self.name, time);
            self.due = time.after(HOLDS.1);
        }
        let until = time.after(self.patience);
        while let Some(lookup) = &mut self.pending {
            if let Some(outcome) = lookup.turn(time) {
                self.pending = None;
                self.learn(outcome, time);
            } else if may_wait && self.known.is_empty() && time < until {
                lookup.wait(until.since(time), time);
                let before = mem::replace(&mut time, now());
                self.patience = self.patience.saturating_sub(time.since(before));
            } else {
                break;
            }
        }
        self.known.clone()
    }

    /// A failed lookup keeps the addresses; an answer without addresses clears them.
    fn learn(&mut self, outcome: Outcome, now: Mono) {
        let holds = match outcome {
            Outcome::Addresses(addresses, ttl) => {
                self.known = addresses;
                ttl.clamp(HOLDS.0, HOLDS.1)
            }
            Outcome::NoName(why) | Outcome::NoAddress(why) => {
                log::info!(target: VERBOSE, "address of {}: {why}", self.name);
                self.known.clear();
                HOLDS.1
            }
            Outcome::Failed(why) => {
                log::info!(target: VERBOSE, "address of {}: {why}", self.name);
                HOLDS.0
            }
        };
        self.due = now.after(holds);
    }
}
