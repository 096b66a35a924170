//! The cache of facts between two statuses.
//!
//! Usage (memory, disk, threads) is read for each status. Facts that change rarely (a CPU is
//! unplugged, a package replaces os-release) are read once a minute. The mount table is read when
//! the kernel reports a change. `process::wakeup` reports a network change, and all facts are read
//! again. The container runtime has its own times, see `core::runtime`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::NodeConfig;
use crate::config::runtime::RuntimeConfig;
use crate::core::facts::{Facts, Read};
use crate::core::instant::Mono;
use crate::core::status;
use crate::host::{Host, Mounts, disk};
use crate::runtime::Watch;
use crate::wire::dns::NodeName;

/// All facts are read again after this time.
const ALL_EVERY: Duration = Duration::from_secs(60);

/// The machine and its cached facts.
#[derive(Debug)]
pub struct FactCache {
    /// The source of the facts.
    pub host: Host,
    name: NodeName,
    /// The container runtime; `None` without an endpoint.
    pub runtime: Option<Watch>,
    /// The folder of its images, and the mount point over it.
    image_mount: Option<(String, Read<PathBuf>)>,
    read: Option<(Mounts, Facts)>,
    /// When all facts are read again.
    due: Mono,
}

impl FactCache {
    /// An empty cache.
    pub fn new(host: Host, node_name: &str, runtime: Option<RuntimeConfig>) -> Self {
        Self {
            host,
            name: NodeName::new(node_name),
            runtime: runtime.map(Watch::new),
            image_mount: None,
            read: None,
            due: Mono::START,
        }
    }

    /// Drops all facts about the machine.
    pub fn forget(&mut self) {
        self.read = None;
    }

    /// The facts for the next status. With `may_wait` a name lookup may block for a moment.
    pub fn facts(&mut self, node: &NodeConfig, may_wait: bool, clock: impl Fn() -> Mono) -> &Facts {
        let now = clock();
        if now >= self.due {
            self.read = None;
        }
        let (mounts, facts) = match &mut self.read {
            Some(read) => {
                self.host.refresh(&mut read.0, &mut read.1);
                read
            }
            empty => {
                self.due = now.after(ALL_EVERY);
                self.image_mount = None;
                empty.insert(self.host.read(&node.name))
            }
        };
        if let Some(watch) = &mut self.runtime {
            let (root, own) = (&self.host.root, mounts.own().as_deref());
            let own = own.unwrap_or_default();
            facts.runtime = Some(watch.facts(may_wait, own, &clock));
            let known = &mut self.image_mount;
            facts.image_fs = watch.image_folder().map(|folder| {
                if known.as_ref().is_none_or(|(of, _)| of != folder) {
                    let mount = disk::mount_point(root, Path::new(folder), own);
                    *known = Some((folder.to_owned(), mount));
                }
                let mount = known.as_ref().map(|(_, mount)| mount.clone());
                disk::sizes(&mount.unwrap_or_else(|| Ok(folder.into()))?)
            });
        }
        ask_name_servers(facts, &mut self.name, node, may_wait, clock);
        facts
    }

    /// Reads what has arrived from the container runtime.
    pub fn drain_runtime(&mut self, now: Mono) {
        if let (Some(watch), Some((mounts, _))) = (&mut self.runtime, &self.read) {
            watch.drain(mounts.own().as_deref().unwrap_or_default(), now);
        }
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
