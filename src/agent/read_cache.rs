//! The cache of facts between two statuses: what is read when.
//!
//! - For each status, usage: memory, disk, threads.
//! - When the kernel announces a change: the mount table (`mounts`), and the network
//!   (`os::wakeup`).
//! - Once a minute, what nothing announces.
//! - Once an hour, also what only a boot changes. The network is not read without an announcement,
//!   because the kernel's answer may take long (`host::interfaces`).
//! - Once a minute everything, below another root than `/`: the kernel announces nothing there.
//! - The file of `nodelet runtime` for each status, if there is a container runtime.
//!
//! With a root file system on a network, the files on it are read only at the start.

use std::time::Duration;

use super::setup::ask_name_servers;
use crate::client::dns::NodeName;
use crate::config::NodeConfig;
use crate::host::Host;
use crate::kube::facts::{Facts, HealthConditions, Network};
use crate::kube::instant::Mono;
use crate::os::clock::awake;
use crate::runtime::file::RuntimeFile;

/// Period of the facts that change rarely and that nothing announces.
const UNANNOUNCED_EVERY: Duration = Duration::from_secs(60);
/// How long facts are new enough for a registration. A registration that is delayed for longer, by
/// the network or by the clock, reads them again, and so does the registration of a Node that was
/// deleted.
const FIRST_IS_NEW: Duration = Duration::from_secs(1);
/// Period of all facts.
const ALL_EVERY: Duration = Duration::from_secs(3600);

/// The machine and its cached facts.
#[derive(Debug)]
pub(super) struct ReadCache {
    /// The source of the facts.
    pub(super) host: Host,
    /// The file of `nodelet runtime`; `None` without an endpoint.
    pub(super) runtime: Option<RuntimeFile>,
    name: NodeName,
    facts: Facts,
    /// When the network is read next: an announced change may be half made until then. `None`
    /// until another change.
    network_due: Option<Mono>,
    unannounced_read: Mono,
    all_read: Mono,
}

impl ReadCache {
    /// A cache of facts that were read when the process started, without a container runtime.
    pub(super) fn new(host: Host, node_name: &str, facts: Facts) -> Self {
        Self {
            host,
            runtime: None,
            name: NodeName::new(node_name, None),
            facts,
            network_due: None,
            unannounced_read: Mono::START,
            all_read: Mono::START,
        }
    }

    /// Interfaces, addresses or routes changed. They are read again at `settles`.
    pub(super) fn on_network_change(&mut self, settles: Mono) {
        self.network_due = Some(settles);
    }

    /// Sets the conditions about the board's health.
    pub(super) fn set_health(&mut self, health: HealthConditions) {
        self.facts.health = health;
    }

    /// The facts of the last refresh.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Reads what is due for the next status. With `may_wait` there is no Lease, so a name lookup
    /// may block for a moment. Facts that are a second old are then read again: a new Node has no
    /// former value for a fact that was not read. If changes of the network are not announced
    /// (`network_is_watched` is false, or another root), or it could not be read, it is read once a
    /// minute.
    /// Returns when the state of the container runtime may change, or a changed network is read.
    pub(super) fn refresh(
        &mut self,
        node: &NodeConfig,
        may_wait: bool,
        network_is_watched: bool,
        clock: impl Fn() -> Mono,
    ) -> Option<Mono> {
        let now = clock();
        let period = if self.host.root.is_real() { ALL_EVERY } else { UNANNOUNCED_EVERY };
        let is_first = may_wait || self.unannounced_read == Mono::START;
        let pause = if is_first { FIRST_IS_NEW } else { UNANNOUNCED_EVERY };
        let is_due = now >= self.unannounced_read.after(pause);
        if is_due {
            self.unannounced_read = now;
            let is_announced = network_is_watched && self.host.root.is_real();
            if !is_announced || is_unread(&self.facts.network) {
                self.network_due.get_or_insert(now);
            }
        }
        let is_half_made = self.network_due.is_some_and(|due| now < due);
        if now >= self.all_read.after(period) && !self.host.root_can_block() {
            self.host.refresh_all(&mut self.facts, &node.name);
            self.all_read = now;
        } else {
            self.host.refresh_mounts();
            if is_due {
                self.host.refresh_unannounced(&mut self.facts, &node.name);
            }
        }
        if self.network_due.is_some() && (is_first || !is_half_made) {
            let is_whole = self.host.refresh_network(&mut self.facts, &node.name);
            self.network_was_read(is_whole, now);
        }
        self.host.refresh_usage(&mut self.facts);
        let change = self.runtime.as_mut().and_then(|file| {
            let (runtime, change) = file.facts(now, awake());
            let folder = runtime.image_folder();
            self.facts.image_fs = Some(folder.and_then(|folder| self.host.image_fs(folder)));
            self.facts.runtime = Some(runtime);
            change
        });
        // The file with the name servers is on the root file system. If that can block, the file is
        // read until the first result: without one the Node would keep its address for ever.
        if may_wait || self.facts.network.dns.is_err() || !self.host.root_can_block() {
            let root = &self.host.root;
            ask_name_servers(root, &mut self.facts, &mut self.name, node, may_wait, clock);
        }
        let network = self.network_due.filter(|_| is_half_made);
        change.into_iter().chain(network).min()
    }

    /// A change is announced once: what the look had no time for is read with the next status, and
    /// what was half made is read again.
    fn network_was_read(&mut self, is_whole: bool, now: Mono) {
        let is_settled = self.network_due.is_none_or(|due| due <= now);
        if is_settled {
            self.network_due = (!is_whole).then_some(now);
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

    use support::members;

    use super::*;
    use crate::config::Config;
    use crate::kube::facts::{Pids, RuntimeFacts, Unread};
    use crate::node::eviction::Eviction;
    use crate::os::mounts::pretend;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;
    use crate::runtime::form;

    fn missing() -> Unread {
        Unread::new("file", "why")
    }

    /// Of a name that each machine resolves without a name server.
    fn config() -> NodeConfig {
        NodeConfig { name: "localhost".to_owned(), ..Config::of(&[]).node }
    }

    /// A cache whose facts are all of another machine.
    fn spoilt(root: &HostRoot) -> ReadCache {
        let mut host = Host::new(root.clone(), "/");
        let is_old = host.read("localhost").node_fs.unwrap().unwrap().is_old;
        let mut cache = ReadCache::new(host, "localhost", spoilt_facts());
        cache.facts.node_fs.as_mut().unwrap().as_mut().unwrap().is_old = is_old;
        cache
    }

    fn spoilt_facts() -> Facts {
        // The example's values could be those of the test machine; these cannot.
        let (cpus, pids) = (Ok(9999), Ok(Pids { max: 0, running: 0 }));
        Facts { cpus, pids, os_image: Ok("spoilt".to_owned()), ..Facts::example() }
    }

    /// Which facts are not as spoilt.
    fn not_spoilt(facts: &Facts) -> BTreeSet<String> {
        let members = |facts: &Facts| members(&format!("{facts:#?}\n{:#?}", facts.network));
        let (wrong, mut found) = (members(&spoilt_facts()), members(facts));
        found.remove("network");
        // It comes from no file.
        found.remove("dns");
        found.retain(|name, value| wrong.get(name) != Some(value));
        found.into_keys().collect()
    }

    /// Which facts the cache has read since they were spoilt, which they then are again.
    fn read(cache: &mut ReadCache, watched: bool, second: u64) -> BTreeSet<String> {
        let at = Mono::START.after(Duration::from_secs(second));
        cache.refresh(&config(), false, watched, || at);
        let read = not_spoilt(cache.facts());
        cache.facts = spoilt_facts();
        read
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_fact_is_read_as_often_as_it_may_change_unannounced() {
        let mut cache = spoilt(&HostRoot::default());
        let usage = read(&mut cache, true, 0);
        assert!(usage.is_superset(&names(&["memory", "working_set_bytes", "node_fs", "pids"])));
        let minute = read(&mut cache, true, 1);
        assert!(minute.is_superset(&usage) && minute.contains("os_image"), "registered late");
        let rest = names(&["cpus", "machine_id", "boot_id", "kernel_version", "interfaces"]);
        assert!(minute.is_disjoint(&rest), "{minute:?}");
        let all = not_spoilt(&Host::new(HostRoot::default(), "/").read("localhost"));
        assert!(all.is_superset(&rest), "{all:?}");
        let network = names(&["interfaces", "default_routes"]);
        let hour = &all - &network;
        for (second, want) in [
            (60, &usage),
            (61, &minute),
            (120, &usage),
            (121, &minute),
            (3599, &minute),
            (3600, &hour),
            (3601, &usage),
            (7200, &hour),
        ] {
            assert_eq!(read(&mut cache, true, second), *want, "{second}");
        }
        assert!(!usage.contains("os_image"), "{usage:?}");
    }

    #[test]
    fn of_a_root_on_a_network_no_file_is_read_after_the_start() {
        pretend("1 0 0:1 / / rw - nfs4 server:/ rw\n");
        let mut cache = spoilt(&HostRoot::default());
        assert!(cache.facts.storage().unwrap().unwrap().is_old);
        for second in [1, 61, 3600, 7200] {
            cache.facts.network.hosts = Ok(vec![Ipv4Addr::LOCALHOST.into()]);
            cache.facts.network.dns = Ok(vec![Ipv4Addr::BROADCAST.into()]);
            cache.on_network_change(Mono::START);
            let at = Mono::START.after(Duration::from_secs(second));
            cache.refresh(&config(), false, true, || at);
            let network = &cache.facts().network;
            assert_eq!(network.hosts, Ok(vec![Ipv4Addr::LOCALHOST.into()]), "{second}");
            assert_eq!(network.dns, Ok(vec![Ipv4Addr::BROADCAST.into()]), "{second}");
            let read = not_spoilt(cache.facts());
            assert!(read.is_superset(&names(&["working_set_bytes", "interfaces"])), "{read:?}");
            assert!(read.is_disjoint(&names(&["os_image", "machine_id", "boot_id"])), "{read:?}");
            cache.facts = spoilt_facts();
        }
        cache.facts.network.hosts = Ok(Vec::new());
        cache.facts.network.dns = Err(missing());
        cache.refresh(&config(), false, true, || Mono::START);
        assert_ne!(cache.facts.network.dns, Err(missing()), "a restart beside a Lease");
        // A kernel file is on no root.
        cache.facts.kernel_version = Err(missing());
        cache.refresh(&config(), false, true, || Mono::START.after(Duration::from_secs(7261)));
        assert!(cache.facts.kernel_version.is_ok());
    }

    #[test]
    fn a_missing_fact_is_read_within_a_minute() {
        let mut cache = spoilt(&HostRoot::default());
        let mut want = read(&mut cache, true, 1);
        let facts = &mut cache.facts;
        facts.cpus = Err(missing());
        (facts.boot_id, facts.kernel_version) = (Err(missing()), Err(missing()));
        facts.machine_id = Ok("uninitialized".to_owned());
        want.extend(names(&["cpus", "boot_id", "kernel_version", "machine_id", "system_uuid"]));
        assert_eq!(read(&mut cache, true, 61), want);
    }

    #[test]
    fn after_a_mount_the_next_look_of_a_minute_reads_other_files() {
        let mut cache = spoilt(&HostRoot::default());
        assert!(read(&mut cache, true, 1).contains("os_image"));
        assert!(!read(&mut cache, true, 61).contains("cpus"));
        pretend("1 0 0:1 / / rw - ext4 /dev/root rw\n");
        assert!(read(&mut cache, true, 121).contains("cpus"));
    }

    #[test]
    fn the_network_is_read_when_it_is_announced_and_each_minute_without_announcements() {
        let mut cache = spoilt(&HostRoot::default());
        assert!(!read(&mut cache, true, 1).contains("interfaces"));
        cache.on_network_change(Mono::START);
        assert!(read(&mut cache, true, 2).contains("interfaces"));
        assert!(!read(&mut cache, true, 3).contains("interfaces"));
        assert!(!read(&mut cache, false, 60).contains("interfaces"));
        assert!(read(&mut cache, false, 61).contains("interfaces"));
        assert!(!read(&mut cache, false, 120).contains("interfaces"));
        assert!(read(&mut cache, false, 121).contains("interfaces"));
        cache.facts.network.default_routes = Err(missing());
        assert!(!read(&mut cache, true, 122).contains("interfaces"));
        cache.facts.network.default_routes = Err(missing());
        assert!(read(&mut cache, true, 181).contains("interfaces"), "it was unread");
    }

    /// The look of another cause comes while the change is half made: once it has settled, the
    /// network is read, and the status is computed then.
    #[test]
    fn a_network_that_changes_is_not_read_before_it_has_settled() {
        let mut cache = spoilt(&HostRoot::default());
        read(&mut cache, true, 1);
        let at = |second| Mono::START.after(Duration::from_secs(second));
        for second in [2, 3600] {
            let settles = at(second + 1);
            cache.on_network_change(settles);
            let change = cache.refresh(&config(), false, true, || at(second));
            assert_eq!(change, Some(settles));
            cache.facts = spoilt_facts();
            assert!(read(&mut cache, true, second + 1).contains("interfaces"), "{second}");
            assert!(!read(&mut cache, true, second + 2).contains("interfaces"));
        }
    }

    /// A Node that is created without an address gets it with a second write, and one that is
    /// adopted would get that of the start.
    #[test]
    fn the_first_status_reads_a_network_that_changes_and_the_next_one_reads_it_again() {
        for is_adopted in [false, true] {
            let mut cache = spoilt(&HostRoot::default());
            if !is_adopted {
                read(&mut cache, true, 1);
            }
            let at = |second| Mono::START.after(Duration::from_secs(second));
            cache.on_network_change(at(3));
            cache.all_read = at(2);
            let change = cache.refresh(&config(), !is_adopted, true, || at(2));
            assert_eq!(change, Some(at(3)));
            assert!(not_spoilt(cache.facts()).contains("interfaces"), "{is_adopted}");
            cache.facts = spoilt_facts();
            assert!(read(&mut cache, true, 3).contains("interfaces"), "{is_adopted}");
        }
    }

    #[test]
    fn a_read_of_the_hour_that_ends_early_keeps_the_facts_and_the_paths() {
        let mut cache = spoilt(&HostRoot::default());
        cache.host.ready_when_exists = vec!["/no/such".into()];
        read(&mut cache, true, 1);
        let at = Mono::START.after(Duration::from_secs(3600));
        cache.facts.unhealthy = cache.host.unhealthy();
        let look = cache.host.root.look_of(0);
        cache.refresh(&config(), false, true, || at);
        assert!(cache.facts().pids.is_err(), "the look was over");
        assert_eq!(cache.facts().unhealthy, cache.host.unhealthy());
        let dns = cache.facts().network.dns.clone();
        assert_eq!(cache.facts().network, Network { dns, ..spoilt_facts().network });
        drop(look);
        cache.facts = spoilt_facts();
        let look = cache.host.root.look_of(0);
        cache.on_network_change(at);
        cache.refresh(&config(), false, true, || at);
        drop(look);
        assert!(read(&mut cache, true, 3601).contains("interfaces"), "it is announced once");
        assert!(!read(&mut cache, true, 3602).contains("interfaces"));
    }

    /// After a restart of the agent the folder may not be known for a while. Only without a runtime
    /// the images are where all else is.
    #[test]
    fn a_folder_of_images_that_is_not_known_is_unread() {
        let tree = Tree::empty("cache-images");
        let file = |folder: Option<&str>| {
            let image_folder = folder.map(str::to_owned);
            form::file(&RuntimeFacts { image_folder, ..form::unknown() }, None, 0)
        };
        let disk = |runtime: Option<RuntimeFile>| {
            let mut cache = spoilt(&HostRoot::default());
            cache.runtime = runtime;
            cache.refresh(&config(), false, true, || Mono::START);
            let thresholds = Config::of(&["--eviction-hard=imagefs.available<1"]).thresholds;
            Eviction::new(&thresholds, ALL_EVERY).synchronize(cache.facts(), Mono::START).disk
        };
        let path = tree.path().join("facts");
        let read = || disk(Some(RuntimeFile::new(&path)));
        assert_eq!(read(), None, "no file");
        tree.write("facts", file(None).as_bytes());
        assert_eq!(read(), None, "no answer");
        tree.write("facts", file(Some("/no/such")).as_bytes());
        assert_eq!(read(), None, "no such folder");
        tree.write("facts", file(Some("/")).as_bytes());
        assert_eq!([read(), disk(None)], [Some(false); 2]);
    }

    #[test]
    fn below_another_root_all_facts_are_read_each_minute() {
        let tree = Tree::new("cache");
        let boot_id = "proc/sys/kernel/random/boot_id";
        tree.write(boot_id, b"first\n");
        let mut host = Host::new(HostRoot::new(tree.path()), "/");
        let first = host.read("localhost");
        let mut cache = ReadCache::new(host, "localhost", first);
        let mut boot_id_at = |second| {
            let at = Mono::START.after(Duration::from_secs(second));
            cache.refresh(&config(), false, true, || at);
            cache.facts().boot_id.clone().unwrap()
        };
        tree.write(boot_id, b"second\n");
        assert_eq!([boot_id_at(59), boot_id_at(60)], ["first", "second"]);
    }
}
