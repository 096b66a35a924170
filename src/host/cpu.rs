//! The number of logical CPUs by cAdvisor's rule (utils/sysinfo GetNodesInfo), from
//! `sys/devices/system/{node,cpu}`.
//!
//! With NUMA folders, the online CPUs in them count. Without, every cpuN folder counts, also of an
//! offline CPU. A count of zero is unread. `proc/cpuinfo` is not used: on old ARM kernels its lines
//! are wrong.

use crate::kube::facts::{Facts, Presence, Read, Unread, renew};
use crate::os::read::SMALL;
use crate::os::reread_file::RereadFile;
use crate::os::root::HostRoot;

const NODES: &str = "sys/devices/system/node";
const CPUS: &str = "sys/devices/system/cpu";

/// The file with the list of online CPUs, `0-3,5`.
#[derive(Debug)]
pub(super) struct Online {
    file: RereadFile,
    /// Its text when the CPUs were counted, or `Some(None)` if it was missing; `None` if the last
    /// count failed.
    counted: Option<Option<String>>,
}

impl Online {
    /// Opens nothing.
    pub(super) fn new() -> Self {
        Self { file: RereadFile::new("sys/devices/system/cpu/online"), counted: None }
    }

    /// Counts the CPUs anew if another set is online, or if the last count failed.
    pub(super) fn refresh(&mut self, root: &HostRoot, facts: &mut Facts) {
        let list = self.file.text(root);
        let is_counted =
            self.counted.as_ref().is_some_and(|text| text.as_ref() == list.as_ref().ok());
        if facts.cpus.is_err() || !is_counted {
            let cpus = count(root, &list);
            self.counted = cpus.is_ok().then(|| list.ok());
            renew(&mut facts.cpus, cpus);
        }
    }
}

/// The number of logical CPUs. `list` is the text of the file [`Online`].
fn count(root: &HostRoot, list: &Read<String>) -> Read<u64> {
    let mut nodes = Presence::from(root.list(NODES)).present()?.unwrap_or_default();
    nodes.retain(|name| number_after("node", name).is_some());
    if nodes.is_empty() {
        let names = root.list(CPUS)?;
        return not_zero(
            names.iter().filter_map(|name| number_after("cpu", name)).map(|_| 1).sum(),
            CPUS,
        );
    }
    // A kernel without CPU hotplug has no list, and all its CPUs are online.
    let online = Presence::from(list.as_ref().map_err(Clone::clone)).present()?;
    let mut count = 0;
    for node in nodes {
        for name in root.list(&format!("{NODES}/{node}"))? {
            let Some(cpu) = number_after("cpu", &name) else {
                continue;
            };
            if online.is_none_or(|list| is_listed(list, cpu)) && has_topology(root, cpu)? {
                count += 1;
            }
        }
    }
    not_zero(count, NODES)
}

fn not_zero(count: u64, source: &str) -> Read<u64> {
    if count == 0 { Err(Unread::new(source, "no CPU is online")) } else { Ok(count) }
}

/// `cpu12` is 12; `cpufreq` and `cpu` are `None`.
fn number_after(prefix: &str, name: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Whether a list such as `0-3,5` contains `cpu`. As in cAdvisor, the parts before a malformed part
/// count, and the parts after it do not.
pub fn is_listed(list: &str, cpu: u64) -> bool {
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => {
                if (first..=last).contains(&cpu) {
                    return true;
                }
            }
            _ => return false,
        }
    }
    false
}

/// A CPU without topology files is skipped; a topology that is not a number is an error. Read at
/// the target of the link `nodeN/cpuM`, so that copied trees without links work.
fn has_topology(root: &HostRoot, cpu: u64) -> Read<bool> {
    for file in ["core_id", "physical_package_id"] {
        let path = format!("{CPUS}/cpu{cpu}/topology/{file}");
        let Some(text) = Presence::from(root.text(&path, SMALL)).present()? else {
            return Ok(false);
        };
        // physical_package_id is -1 on many ARM boards.
        text.trim().parse::<i64>().map_err(|_| Unread::new(path, "not a number"))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    fn refreshed(online: &mut Online, tree: &Tree, cpus: Read<u64>) -> Read<u64> {
        let mut facts = Facts { cpus, ..Facts::example() };
        online.refresh(&HostRoot::new(tree.path()), &mut facts);
        facts.cpus
    }

    fn count(tree: &Tree) -> Read<u64> {
        refreshed(&mut Online::new(), tree, Err(Unread::new("sys", "not counted")))
    }

    fn add_cpu(tree: &Tree, cpu: u64, node: Option<u64>, core: &str) {
        for file in ["core_id", "physical_package_id"] {
            tree.write(&format!("{CPUS}/cpu{cpu}/topology/{file}"), core.as_bytes());
        }
        if let Some(node) = node {
            tree.write(&format!("{NODES}/node{node}/cpu{cpu}"), b"");
        }
    }

    #[test]
    fn without_node_folders_offline_cpus_count_and_none_is_unread() {
        let tree = Tree::new("cpu-flat");
        assert!(count(&tree).unwrap_err().is_absent());
        tree.write("sys/devices/system/cpu/online", b"0-1\n");
        // Only numbered folders are CPUs.
        for name in ["", "freq", "1x", "-1", "+1", "99999999999999999999"] {
            tree.write(&format!("{CPUS}/cpu{name}/x"), b"");
        }
        assert_eq!(count(&tree), Err(Unread::new(CPUS, "no CPU is online")));
        (0..4).for_each(|cpu| add_cpu(&tree, cpu, None, "0\n"));
        assert_eq!(count(&tree), Ok(4));
    }

    #[test]
    fn in_node_folders_only_online_cpus_with_topology_count() {
        let tree = Tree::new("cpu-numa");
        (0..4).for_each(|cpu| add_cpu(&tree, cpu, Some(cpu / 2), "-1\n"));
        tree.write("sys/devices/system/node/node1/cpu9", b"");
        tree.write("sys/devices/system/node/possible", b"0-1\n");
        assert_eq!(count(&tree), Ok(4), "no online file: all are online, cpu9 has no topology");
        tree.write("sys/devices/system/cpu/online", b"0,2-3,9\n");
        assert_eq!(count(&tree), Ok(3));
        tree.write("sys/devices/system/cpu/online", b"");
        assert_eq!(count(&tree), Err(Unread::new(NODES, "no CPU is online")));
        tree.write("sys/devices/system/cpu/online", b"0-3\n");
        add_cpu(&tree, 3, Some(1), "one\n");
        assert_eq!(count(&tree).unwrap_err().cause, "not a number");
    }

    #[test]
    fn cpus_are_counted_again_when_another_set_is_online_and_after_an_error() {
        let tree = Tree::new("cpu-refresh");
        (0..4).for_each(|cpu| add_cpu(&tree, cpu, None, "0\n"));
        tree.write("sys/devices/system/cpu/online", b"0-3\n");
        let mut online = Online::new();
        let mut refreshed = |cpus| refreshed(&mut online, &tree, cpus);
        let wrong = || Ok(9999);
        assert_eq!(refreshed(wrong()), Ok(4), "the first count");
        assert_eq!(refreshed(wrong()), wrong());
        assert_eq!(refreshed(Err(Unread::new("sys", "why"))), Ok(4));
        tree.write("sys/devices/system/cpu/online", b"0-1\n");
        assert_eq!(refreshed(wrong()), Ok(4));
        assert_eq!(refreshed(wrong()), wrong());
    }

    fn listed(list: &str) -> Vec<u64> {
        (0..20).filter(|cpu| is_listed(list, *cpu)).collect()
    }

    #[test]
    fn cpu_lists_are_parsed_as_in_cadvisor() {
        assert_eq!(listed("0\n"), [0]);
        assert_eq!(listed("0-3,5\n"), [0, 1, 2, 3, 5]);
        assert_eq!(listed("0-1,4,18-30"), [0, 1, 4, 18, 19]);
        assert_eq!(listed(""), [0; 0]);
        assert_eq!(listed("\n"), [0; 0]);
        assert_eq!(listed("2,x,5"), [2]);
        assert_eq!(listed("3-1,5"), [0; 0]);
        assert_eq!(listed("1-2-3"), [0; 0]);
        assert_eq!(listed("0-99999999999999999999"), [0; 0]);
        assert_eq!(listed("0-18446744073709551615").len(), 20);
    }
}
