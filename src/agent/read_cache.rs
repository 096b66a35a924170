//! The cache of facts between two statuses: what is read when.
//!
//! - For each status, usage: memory, disk, threads.
//! - When the kernel announces a change: the mount table (`mounts`), and the network
//!   (`os::wakeup`).
//! - Once a minute, what nothing announces.
//! - Once an hour, everything, for a change that was not announced. Below another root than `/`,
//!   where the kernel announces nothing, once a minute.
//! - The file of `nodelet runtime` for each status, if there is a container runtime.
//!
//! With a root file system on a network, the files on it are read only at the start.

use std::time::Duration;

use crate::check::setup::ask_name_servers;
use crate::client::dns::NodeName;
use crate::config::NodeConfig;
use crate::host::Host;
use crate::kube::facts::HealthConditions;
use crate::kube::facts::{Facts, Network};
use crate::kube::instant::Mono;
use crate::os::clock::since_boot;
use crate::runtime::file::RuntimeFile;

/// Period of the facts that change rarely and that nothing announces.
const UNANNOUNCED_EVERY: Duration = Duration::from_secs(60);
/// How long the facts of the start are new enough for a registration. One that the network or the
/// clock delays reads them again.
const FIRST_IS_NEW: Duration = Duration::from_secs(1);
/// Period of all facts.
const ALL_EVERY: Duration = Duration::from_secs(3600);

/// The machine and its cached facts.
#[derive(Debug)]
pub struct ReadCache {
    /// The source of the facts.
    pub host: Host,
    /// The file of `nodelet runtime`; `None` without an endpoint.
    pub runtime: Option<RuntimeFile>,
    /// When a status must be computed because of the container runtime.
    pub runtime_due: Option<Mono>,
    name: NodeName,
    facts: Facts,
    /// The network was announced to have changed, and was not read since.
    network_changed: bool,
    unannounced_due: Mono,
    all_read: Mono,
}

impl ReadCache {
    /// A cache of facts that were read when the process started, without a container runtime.
    pub fn new(host: Host, node_name: &str, facts: Facts) -> Self {
        Self {
            host,
            runtime: None,
            runtime_due: None,
            name: NodeName::new(node_name, None),
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

    /// Sets the conditions about the board's health.
    pub fn set_health(&mut self, health: HealthConditions) {
        self.facts.health = health;
    }

    /// The facts of the last refresh.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Reads what is due for the next status. With `may_wait` a name lookup may block for a moment.
    /// If changes of the network are not reported (`network_is_watched`), or it could not be read,
    /// it is read once a minute.
    pub fn refresh(
        &mut self,
        node: &NodeConfig,
        may_wait: bool,
        network_is_watched: bool,
        clock: impl Fn() -> Mono,
    ) {
        let now = clock();
        let period = if self.host.root.is_real() { ALL_EVERY } else { UNANNOUNCED_EVERY };
        let minute_passed = now >= self.unannounced_due;
        if minute_passed {
            self.unannounced_due = now.after(UNANNOUNCED_EVERY);
            self.network_changed |= !network_is_watched || is_unread(&self.facts.network);
        }
        if now >= self.all_read.after(period) && !self.host.root_can_block() {
            let health = std::mem::take(&mut self.facts.health);
            self.facts = self.host.read(&node.name);
            self.facts.health = health;
            self.all_read = now;
        } else {
            self.host.refresh_mounts();
            if minute_passed {
                self.host.refresh_unannounced(&mut self.facts, &node.name);
            }
            if self.network_changed {
                self.host.refresh_network(&mut self.facts, &node.name);
            }
            self.host.refresh_usage(&mut self.facts);
        }
        self.network_changed = false;
        if let Some(file) = &mut self.runtime {
            let (runtime, due) = file.facts(now, since_boot());
            let folder = runtime.image_folder.as_deref();
            self.facts.image_fs = folder.map(|folder| self.host.image_fs(folder));
            self.facts.runtime = Some(runtime);
            self.runtime_due = due;
        }
        // Their file is on the root.
        if may_wait || !self.host.root_can_block() {
            let root = &self.host.root;
            ask_name_servers(root, &mut self.facts, &mut self.name, node, may_wait, clock);
        }
    }
}

fn is_unread(network: &Network) -> bool {
    network.interfaces.is_err() || network.default_routes.is_err()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;
    use crate::config::Config;
    use crate::config::flags::Flags;
    use crate::host::HostRoot;
    use crate::kube::facts::Unread;
    use crate::os::mounts::pretend;
    use crate::os::tree::Tree;

    fn missing() -> Unread {
        Unread::new("file", "why")
    }

    /// Of a name that each machine resolves without a name server.
    fn config() -> NodeConfig {
        let config = Config::new(Flags::default(), || Ok("pi".to_owned()));
        NodeConfig { name: "localhost".to_owned(), ..config.unwrap().node }
    }

    /// A cache whose facts are all wrong.
    fn spoilt(root: &HostRoot) -> ReadCache {
        let mut host = Host::new(root.clone(), "/");
        let first = host.read("localhost");
        let mut cache = ReadCache::new(host, "localhost", first);
        spoil(&mut cache.facts);
        cache
    }

    /// A valid machine id, because one that is not is read again.
    const WRONG: &str = "ffffffffffffffffffffffffffffffff";

    fn spoil(facts: &mut Facts) {
        let wrong = || Ok(WRONG.to_owned());
        facts.cpus = Ok(9999);
        facts.working_set_bytes = Ok(1);
        facts.os_image = wrong();
        (facts.machine_id, facts.system_uuid) = (wrong(), wrong());
        (facts.boot_id, facts.kernel_version) = (wrong(), wrong());
        if let Ok(pids) = &mut facts.pids {
            (pids.max, pids.running) = (1, 1);
        }
        facts.node_fs.as_mut().unwrap().capacity_bytes = 1;
        facts.network.interfaces = Ok(Vec::new());
        facts.network.hosts = Vec::new();
    }

    /// Which facts the cache has read since they were spoilt, which they then are again.
    fn read(cache: &mut ReadCache, watched: bool, second: u64) -> BTreeSet<&'static str> {
        let at = Mono::START.after(Duration::from_secs(second));
        cache.refresh(&config(), false, watched, || at);
        let facts = cache.facts();
        let is_wrong = |text: &str| text == WRONG;
        let pids = facts.pids.clone().unwrap();
        let read = [
            ("cpus", facts.cpus != Ok(9999)),
            ("usage", facts.working_set_bytes != Ok(1)),
            ("usage", facts.node_fs.clone().unwrap().capacity_bytes != 1),
            ("usage", pids.running != 1),
            ("minute", !is_wrong(facts.os_image.as_ref().unwrap())),
            ("boot", !is_wrong(facts.machine_id.as_ref().unwrap())),
            ("boot", !is_wrong(facts.system_uuid.as_ref().unwrap())),
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
        let minute = BTreeSet::from(["usage", "minute"]);
        let all = BTreeSet::from(["usage", "minute", "boot", "cpus", "network"]);
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
    fn of_a_root_on_a_network_no_file_is_read_after_the_start() {
        pretend("1 0 0:1 / / rw - nfs4 server:/ rw\n");
        let mut cache = spoilt(&HostRoot::default());
        assert!(cache.facts.node_fs.as_ref().unwrap().asked_once);
        cache.facts.network.hosts = vec![Ipv4Addr::LOCALHOST.into()];
        cache.facts.network.dns = vec![Ipv4Addr::BROADCAST.into()];
        for second in [1, 61, 3600, 7200] {
            cache.on_network_change();
            let at = Mono::START.after(Duration::from_secs(second));
            cache.refresh(&config(), false, true, || at);
            let facts = cache.facts();
            assert_ne!(facts.working_set_bytes, Ok(1), "{second}");
            assert_ne!(facts.network.interfaces, Ok(Vec::new()), "{second}");
            assert_eq!(facts.network.hosts, [Ipv4Addr::LOCALHOST], "{second}");
            assert_eq!(facts.network.dns, [Ipv4Addr::BROADCAST], "{second}");
            for text in [&facts.os_image, &facts.machine_id, &facts.boot_id] {
                assert_eq!(text.as_deref(), Ok(WRONG), "{second}");
            }
            spoil(&mut cache.facts);
            cache.facts.network.hosts = vec![Ipv4Addr::LOCALHOST.into()];
        }
    }

    #[test]
    fn a_missing_fact_is_read_within_a_minute() {
        let mut cache = spoilt(&HostRoot::default());
        assert!(read(&mut cache, true, 1).contains("minute"));
        let facts = &mut cache.facts;
        facts.cpus = Err(missing());
        (facts.boot_id, facts.kernel_version) = (Err(missing()), Err(missing()));
        facts.machine_id = Ok("uninitialized".to_owned());
        let want = BTreeSet::from(["usage", "minute", "boot", "cpus"]);
        assert_eq!(read(&mut cache, true, 61), want);
    }

    #[test]
    fn after_a_mount_the_next_look_of_a_minute_reads_other_files() {
        let mut cache = spoilt(&HostRoot::default());
        assert!(read(&mut cache, true, 1).contains("minute"));
        assert!(!read(&mut cache, true, 61).contains("cpus"));
        pretend("1 0 0:1 / / rw - ext4 /dev/root rw\n");
        assert!(read(&mut cache, true, 121).contains("cpus"));
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
        assert!(read(&mut cache, true, 181).contains("network"), "it was unread");
    }

    #[test]
    fn below_another_root_all_facts_are_read_each_minute() {
        let tree = Tree::new("cache");
        tree.write("sys/devices/system/cpu/cpu0/online", b"");
        let mut host = Host::new(HostRoot::new(tree.path()), "/");
        let first = host.read("localhost");
        let mut cache = ReadCache::new(host, "localhost", first);
        let mut cpus = |second| {
            let at = Mono::START.after(Duration::from_secs(second));
            cache.refresh(&config(), false, true, || at);
            cache.facts().cpus.clone()
        };
        tree.write("sys/devices/system/cpu/cpu1/online", b"");
        assert_eq!([cpus(59), cpus(60)], [Ok(1), Ok(2)]);
    }
}
