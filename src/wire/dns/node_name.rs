//! The addresses of the node's own name, asked for from one turn of the loop to the
//! next: the status is computed every ten seconds, and must not wait for anybody.

use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use super::Resolver;
use super::exchange::Outcome;
use super::lookup::Lookup;
use crate::core::instant::Mono;

/// How long an answer holds, whatever its TTL. Within it a packet each way is small
/// against the renewals of a Lease; beyond it a new address would come too late.
const HOLDS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

/// All waiting together, in the life of a process.
const PATIENCE: Duration = Duration::from_secs(1);

/// A name that is looked up in the background.
#[derive(Debug)]
pub struct NodeName {
    name: String,
    /// None: read anew for each question, for DHCP rewrites it.
    resolver: Option<Resolver>,
    known: Vec<IpAddr>,
    pending: Option<Lookup>,
    /// When to ask next.
    due: Mono,
    patience: Duration,
}

impl NodeName {
    /// Asks whom this machine asks; nothing is sent yet.
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

    /// Asks whom `resolver` says.
    pub fn with(name: &str, resolver: Resolver) -> Self {
        Self {
            resolver: Some(resolver),
            ..Self::new(name)
        }
    }

    /// What is known by now, sending a question where it is time to.
    ///
    /// Does not wait, unless `may_wait` and nothing is known yet: then for a second at
    /// most, in all calls together, so that the Node is not registered with an address
    /// that the first answer changes.
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

    /// Silence changes nothing; that the name has no address does.
    fn learn(&mut self, outcome: Outcome, now: Mono) {
        let holds = match outcome {
            Outcome::Addresses(addresses, ttl) => {
                self.known = addresses;
                ttl.clamp(HOLDS.0, HOLDS.1)
            }
            Outcome::NoName(why) | Outcome::NoAddress(why) => {
                log::debug!("address of {}: {why}", self.name);
                self.known.clear();
                HOLDS.1
            }
            Outcome::Failed(why) => {
                log::debug!("address of {}: {why}", self.name);
                HOLDS.0
            }
        };
        self.due = now.after(holds);
    }
}
