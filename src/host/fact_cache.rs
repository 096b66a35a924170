//! The cache of facts between two statuses.
//!
//! Usage (memory, disk, threads) is read for each status. Facts that change rarely (a CPU is
//! unplugged, a package replaces os-release) are read once a minute. The mount table is read when
//! the kernel reports a change. `process::wakeup` reports a network change, and all facts are read
//! again.

use std::time::Duration;

use crate::config::NodeConfig;
use crate::core::facts::Facts;
use crate::core::instant::Mono;
use crate::core::status;
use crate::host::{Host, Mounts};
use crate::wire::dns::NodeName;

/// All facts are read again after this time.
const ALL_EVERY: Duration = Duration::from_secs(60);

/// The machine and its cached facts.
#[derive(Debug)]
pub struct FactCache {
    /// The source of the facts.
    pub host: Host,
    name: NodeName,
    read: Option<(Mounts, Facts)>,
    /// When all facts are read again.
    due: Mono,
}

impl FactCache {
    /// An empty cache.
    pub fn new(host: Host, node_name: &str) -> Self {
        Self {
            host,
            name: NodeName::new(node_name),
            read: None,
            due: Mono::START,
        }
    }

    /// Drops all facts.
    pub fn forget(&mut self) {
        self.read = None;
    }

    /// The facts for the next status. With `may_wait` a name lookup may block for a moment.
    pub fn facts(&mut self, node: &NodeConfig, may_wait: bool, clock: impl Fn() -> Mono) -> &Facts {
        let now = clock();
        if now >= self.due {
            self.read = None;
        }
        let (_, facts) = match &mut self.read {
            Some(read) => {
                self.host.refresh(&mut read.0, &mut read.1);
                read
            }
            empty => {
                self.due = now.after(ALL_EVERY);
                empty.insert(self.host.read(&node.name))
            }
        };
        ask_name_servers(facts, &mut self.name, node, may_wait, clock);
        facts
    }
}

/// Adds the addresses of the node name from DNS, if the node address depends on them.
pub(crate) fn ask_name_servers(
    facts: &mut Facts,
    name: &mut NodeName,
    node: &NodeConfig,
    may_wait: bool,
    clock: impl Fn() -> Mono,
) {
    if status::needs_lookup(node, &facts.network) {
        facts.network.dns = name.addresses(may_wait, clock);
    }
}
