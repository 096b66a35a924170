//! All facts about this machine, as fresh as the next status needs them.
//!
//! What moves by itself is read for each status. What only changes when somebody does
//! something (a CPU is unplugged, a package replaces os-release) is read once a minute;
//! mounts where the kernel says that they changed, and the network at once: `wakeup`.

use std::time::Duration;

use crate::config::NodeConfig;
use crate::core::facts::Facts;
use crate::core::instant::Mono;
use crate::core::status;
use crate::host::{Host, Mounts};
use crate::wire::dns::NodeName;

/// After this time everything is read again.
const ALL_EVERY: Duration = Duration::from_secs(60);

/// The machine, and what was read of it.
#[derive(Debug)]
pub struct FactCache {
    /// Where it is read from.
    pub host: Host,
    name: NodeName,
    read: Option<(Mounts, Facts)>,
    /// When all of them are due to be read again.
    due: Mono,
}

impl FactCache {
    /// Nothing is read yet.
    pub fn new(host: Host, node_name: &str) -> Self {
        Self {
            host,
            name: NodeName::new(node_name),
            read: None,
            due: Mono::START,
        }
    }

    /// Reads everything the next time.
    pub fn forget(&mut self) {
        self.read = None;
    }

    /// What the status is made of. With `may_wait` a name server may take a moment.
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
            none => {
                self.due = now.after(ALL_EVERY);
                none.insert(self.host.read(&node.name))
            }
        };
        ask_name_servers(facts, &mut self.name, node, may_wait, clock);
        facts
    }
}

/// Adds what name servers have said of the node's name by now, where that matters.
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
