//! The cache of facts between two statuses: what is read when.
//!
//! - For each status, usage: memory, disk, threads.
//! - When the kernel announces a change: the mount table (`mounts`), and the network
//!   (`process::wakeup`).
//! - Once a minute, what nothing announces.
//! - Once an hour, everything, for a change that was not announced. Below another root than `/`,
//!   where the kernel announces nothing, once a minute.
//! - The container runtime at its own times, see `core::runtime`.

use std::time::Duration;

use crate::config::NodeConfig;
use crate::core::facts::{Facts, Network};
use crate::core::instant::Mono;
use crate::core::status;
use crate::host::{Host, HostRoot, Kept};
use crate::wire::dns::NodeName;
use crate::wire::runtime::Watch;

/// Period of the facts that change rarely and that nothing announces.
const UNANNOUNCED_EVERY: Duration = Duration::from_secs(60);
/// How long the facts of the start are new enough for a registration. One that the network or the
/// clock delays reads them again.
const FIRST_IS_NEW: Duration = Duration::from_secs(1);
/// Period of all facts.
const ALL_EVERY: Duration = Duration::from_secs(3600);

/// The machine and its cached facts.
#[derive(Debug)]
pub struct FactCache {
    /// The source of the facts.
    pub host: Host,
    /// The container runtime; `None` without an endpoint.
    pub runtime: Option<Watch>,
    name: NodeName,
    kept: Kept,
    facts: Facts,
    /// The network was announced to have changed, and was not read since.
    network_changed: bool,
    unannounced_due: Mono,
    all_read: Mono,
}

impl FactCache {
    /// A cache of facts that were read when the process started, without a container runtime.
    pub fn new(host: Host, node_name: &str, (kept, facts): (Kept, Facts)) -> Self {
        Self {
            host,
            runtime: None,
            name: NodeName::new(node_name),
            kept,
            facts,
            network_changed: false,
            unannounced_due: Mono::START.after(FIRST_IS_NEW),
            all_read: Mono::START,
        }
    }

    /// Interfaces, addresses or routes changed.
    pub fn on_network_change(&mut self) {
        self.network_changed = true;
    }

    /// The facts for the next status. With `may_wait` a name lookup may block for a moment. If
    /// changes of the network are not reported (`network_is_watched`), or it could not be read, it
    /// is read once a minute.
    pub fn facts(
        &mut self,
        node: &NodeConfig,
        may_wait: bool,
        network_is_watched: bool,
        clock: impl Fn() -> Mono,
    ) -> &Facts {
        let now = clock();
        let period = match self.host.root.is_real() {
            true => ALL_EVERY,
            false => UNANNOUNCED_EVERY,
        };
        let minute_passed = now >= self.unannounced_due;
        if minute_passed {
            self.unannounced_due = now.after(UNANNOUNCED_EVERY);
            self.network_changed |= !network_is_watched || is_unread(&self.facts.network);
        }
        if now >= self.all_read.after(period) {
            (self.kept, self.facts) = self.host.read(&node.name);
            self.all_read = now;
        } else {
            let (kept, facts) = (&mut self.kept, &mut self.facts);
            self.host.refresh_mounts(kept);
            if minute_passed {
                self.host.refresh_unannounced(kept, facts, &node.name);
            }
            if self.network_changed {
                facts.network = self.host.network(kept, &node.name);
            }
            self.host.refresh_usage(kept, facts);
        }
        self.network_changed = false;
        if let Some(watch) = &mut self.runtime {
            let (kept, facts) = (&mut self.kept, &mut self.facts);
            facts.runtime = Some(watch.facts(may_wait, &clock));
            let folder = watch.image_folder();
            facts.image_fs = folder.map(|folder| self.host.image_fs(kept, folder));
        }
        let root = &self.host.root;
        ask_name_servers(root, &mut self.facts, &mut self.name, node, may_wait, clock);
        &self.facts
    }

    /// Reads what has arrived from the container runtime.
    pub fn drain_runtime(&mut self, now: Mono) {
        if let Some(watch) = &mut self.runtime {
            watch.drain(now);
        }
    }
}

fn is_unread(network: &Network) -> bool {
    network.interfaces.is_err() || network.default_routes.is_err()
}

/// Adds the addresses of the node name from DNS, if the node address depends on them. Below another
/// root than `/` none: the name servers are those of this machine's `/etc`.
pub(crate) fn ask_name_servers(
    root: &HostRoot,
    facts: &mut Facts,
    name: &mut NodeName,
    node: &NodeConfig,
    may_wait: bool,
    clock: impl Fn() -> Mono,
) {
    if root.is_real() && status::needs_lookup(node, &facts.network) {
        facts.network.dns = name.addresses(may_wait, clock);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::config::Config;
    use crate::config::flags::Flags;
    use crate::config::runtime::{Protocol, RuntimeConfig};
    use crate::core::facts::Unread;
    use crate::files::mount_table::pretend;
    use crate::files::tree::Tree;
    use crate::process::clock::Clock;

    fn missing() -> Unread {
        Unread::new("file", "why")
    }

    fn config() -> NodeConfig {
        let config = Config::new(Flags::default(), || Ok("localhost".to_owned()));
        config.unwrap().node
    }

    /// A cache whose facts are all wrong.
    fn spoilt(root: &HostRoot) -> FactCache {
        let host = Host::new(root.clone(), "/");
        let first = host.read("localhost");
        let mut cache = FactCache::new(host, "localhost", first);
        spoil(&mut cache.facts);
        cache
    }

    fn spoil(facts: &mut Facts) {
        let wrong = || Ok("wrong".to_owned());
        facts.cpus = Ok(9999);
        facts.working_set_bytes = Ok(1);
        (facts.machine_id, facts.os_image) = (wrong(), wrong());
        (facts.boot_id, facts.kernel_version) = (wrong(), wrong());
        if let Ok(pids) = &mut facts.pids {
            (pids.max, pids.running) = (1, 1);
        }
        facts.node_fs.as_mut().unwrap().capacity_bytes = 1;
        facts.network.interfaces = Ok(Vec::new());
        facts.network.hosts = Vec::new();
    }

    /// Which facts the cache has read since they were spoilt, which they then are again.
    fn read(cache: &mut FactCache, watched: bool, second: u64) -> BTreeSet<&'static str> {
        let at = Mono::START.after(Duration::from_secs(second));
        let facts = cache.facts(&config(), false, watched, || at);
        let is_wrong = |text: &str| text == "wrong";
        let pids = facts.pids.clone().unwrap();
        let read = [
            ("cpus", facts.cpus != Ok(9999)),
            ("usage", facts.working_set_bytes != Ok(1)),
            ("usage", facts.node_fs.clone().unwrap().capacity_bytes != 1),
            ("usage", pids.running != 1),
            ("files", pids.max != 1),
            ("files", !is_wrong(facts.machine_id.as_ref().unwrap())),
            ("files", !is_wrong(facts.os_image.as_ref().unwrap())),
            ("boot", !is_wrong(facts.boot_id.as_ref().unwrap())),
            ("boot", !is_wrong(facts.kernel_version.as_ref().unwrap())),
            ("network", facts.network.interfaces != Ok(Vec::new())),
        ];
        spoil(&mut cache.facts);
        for (name, is_read) in read {
            let group = read.iter().filter(|(other, _)| *other == name);
            assert!(group.clone().all(|(_, also)| *also == is_read), "{read:?}");
        }
        let read = read.into_iter().filter(|(_, is_read)| *is_read);
        read.map(|(name, _)| name).collect()
    }

    #[test]
    fn each_fact_is_read_as_often_as_it_may_change_unannounced() {
        let mut cache = spoilt(&HostRoot::default());
        let usage = BTreeSet::from(["usage"]);
        let minute = BTreeSet::from(["usage", "files"]);
        let all = BTreeSet::from(["usage", "files", "boot", "cpus", "network"]);
        assert_eq!(read(&mut cache, true, 0), usage);
        assert_eq!(read(&mut cache, true, 1), minute, "registered late");
        assert_eq!(read(&mut cache, true, 60), usage);
        assert_eq!(read(&mut cache, true, 61), minute);
        assert_eq!(read(&mut cache, true, 120), usage);
        assert_eq!(read(&mut cache, true, 121), minute);
        assert_eq!(read(&mut cache, true, 3599), minute);
        assert_eq!(read(&mut cache, true, 3600), all);
        assert_eq!(read(&mut cache, true, 3601), usage);
        assert_eq!(read(&mut cache, true, 7200), all);
    }

    #[test]
    fn another_set_of_online_cpus_and_a_missing_fact_are_read_within_a_minute() {
        let mut cache = spoilt(&HostRoot::default());
        cache.kept.online_cpus = Some("0-99".to_owned());
        assert!(!read(&mut cache, true, 0).contains("cpus"));
        assert!(read(&mut cache, true, 60).contains("cpus"));
        assert!(!read(&mut cache, true, 120).contains("cpus"));
        cache.facts.cpus = Err(missing());
        (cache.facts.boot_id, cache.facts.kernel_version) = (Err(missing()), Err(missing()));
        assert!(read(&mut cache, true, 180).is_superset(&BTreeSet::from(["cpus", "boot"])));
    }

    #[test]
    fn after_a_mount_the_next_look_of_a_minute_reads_other_files() {
        let mut cache = spoilt(&HostRoot::default());
        assert!(!read(&mut cache, true, 1).contains("cpus"));
        pretend("1 0 0:1 / / rw - ext4 /dev/root rw\n");
        assert!(read(&mut cache, true, 61).contains("cpus"));
    }

    #[test]
    fn the_network_is_read_when_it_is_announced_and_each_minute_without_announcements() {
        let mut cache = spoilt(&HostRoot::default());
        assert!(!read(&mut cache, true, 1).contains("network"));
        cache.on_network_change();
        assert!(read(&mut cache, true, 2).contains("network"));
        assert!(!read(&mut cache, true, 3).contains("network"));
        assert!(!read(&mut cache, false, 60).contains("network"));
        assert!(read(&mut cache, false, 61).contains("network"));
        assert!(!read(&mut cache, false, 120).contains("network"));
        assert!(read(&mut cache, false, 121).contains("network"));
        cache.facts.network.default_routes = Err(missing());
        assert!(!read(&mut cache, true, 122).contains("network"));
        cache.facts.network.default_routes = Err(missing());
        assert!(
            read(&mut cache, true, 181).contains("network"),
            "it was unread"
        );
    }

    #[test]
    fn below_another_root_all_facts_are_read_each_minute() {
        let tree = Tree::new("cache");
        tree.write("sys/devices/system/cpu/cpu0/online", b"");
        let host = Host::new(HostRoot::new(tree.path()), "/");
        let first = host.read("localhost");
        let mut cache = FactCache::new(host, "localhost", first);
        let mut cpus = |second| {
            let at = Mono::START.after(Duration::from_secs(second));
            cache.facts(&config(), false, true, || at).cpus.clone()
        };
        tree.write("sys/devices/system/cpu/cpu1/online", b"");
        assert_eq!([cpus(59), cpus(60)], [Ok(1), Ok(2)]);
    }

    #[test]
    fn on_a_root_that_can_block_the_runtime_is_asked_and_on_a_mount_that_can_block_it_is_not() {
        let tree = Tree::new("cache-runtime");
        let path = tree.join("runtime.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let point = tree.path().display();
        for (mount, is_asked) in [("/no-such-server", true), (&point.to_string(), false)] {
            pretend(&format!(
                "1 0 0:1 / / rw - nfs4 srv:/ rw\n2 1 0:2 / {mount} rw - nfs4 srv:/ rw\n"
            ));
            let host = Host::new(HostRoot::new(tree.path()), "/");
            let first = host.read("localhost");
            let mut cache = FactCache::new(host, "localhost", first);
            cache.runtime = Some(Watch::new(RuntimeConfig {
                protocol: Protocol::Cri,
                path: path.clone(),
                image_path: None,
                max_images: 10,
            }));
            let clock = Clock::start();
            cache.facts(&config(), false, true, || clock.now().mono);
            assert_eq!(listener.accept().is_ok(), is_asked, "{mount}");
        }
    }

    /// The clock is read where name servers are asked.
    #[test]
    fn below_another_root_no_name_server_is_asked() {
        let tree = Tree::empty("name-servers");
        for (root, asks) in [
            (HostRoot::default(), true),
            (HostRoot::new(tree.path()), false),
        ] {
            let mut facts = Host::new(root.clone(), "/").facts("nodelet.invalid");
            facts.network.hosts = Vec::new();
            let (mut name, node) = (NodeName::new("nodelet.invalid"), config());
            let asked = std::cell::Cell::new(false);
            let clock = || {
                asked.set(true);
                Mono::START
            };
            ask_name_servers(&root, &mut facts, &mut name, &node, false, clock);
            assert_eq!(asked.get(), asks);
        }
    }
}
