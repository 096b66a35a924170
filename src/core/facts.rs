//! Everything that was read in one turn, as plain values.
//!
//! Each part is a `Result` of its own: one file that cannot be read costs the
//! Node one fact, never the turn. Nothing here opens a file; `host::Host::facts`
//! fills it in.

use std::fmt;
use std::net::IpAddr;

/// Why one fact is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// File or system call, relative to the host root: `proc/meminfo`.
    pub source: String,
    /// What happened: `no MemTotal line`, `permission denied`.
    pub cause: String,
    /// What it would say does not exist, which on many boards is not a fault.
    pub absent: bool,
}

impl Unread {
    /// A file that is there and does not say what is needed.
    pub fn new(source: impl Into<String>, cause: impl Into<String>) -> Unread {
        Unread {
            source: source.into(),
            cause: cause.into(),
            absent: false,
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.cause)
    }
}

/// One fact, or the reason why it is missing.
pub type Read<T> = Result<T, Unread>;

/// What the kernel said this turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Logical CPUs by cAdvisor's rule (online CPUs under `sys/devices/system/node`,
    /// else every `sys/devices/system/cpu/cpuN` directory, offline ones too).
    pub cpus: Read<u64>,
    /// `proc/meminfo`.
    pub memory: Read<Memory>,
    /// Bytes of memory in use that cannot be reclaimed at once, at the root of the
    /// cgroup tree: usage - inactive_file, not below 0 (spec: eviction).
    pub working_set_bytes: Read<u64>,
    /// `sys/kernel/mm/hugepages`, ascending by size; empty where the kernel has none.
    pub huge_pages: Read<Vec<HugePages>>,
    /// The file system that holds `--root-dir`; absent where that one has no size, as a
    /// ramfs.
    pub node_fs: Read<FileSystem>,
    /// `proc/sys/kernel/{pid_max,threads-max}` and `proc/loadavg`.
    pub pids: Read<Pids>,
    /// `etc/machine-id` and its fall-backs, trimmed.
    pub machine_id: Read<String>,
    /// DMI product UUID and its fall-backs, trimmed.
    pub system_uuid: Read<String>,
    /// `proc/sys/kernel/random/boot_id`, trimmed.
    pub boot_id: Read<String>,
    /// `uname -r`, from `proc/sys/kernel/osrelease`.
    pub kernel_version: Read<String>,
    /// `PRETTY_NAME` of os-release; `Linux` where the file has none.
    pub os_image: Read<String>,
    /// Default routes and interfaces.
    pub network: Network,
    /// What must be before the Node is ready, and is not: one line each.
    pub unhealthy: Vec<String>,
}

impl Facts {
    /// The file system that holds `--root-dir`; `None` where it has no size that could be
    /// told, or run short, as a ramfs.
    pub fn storage(&self) -> Option<&Read<FileSystem>> {
        Some(&self.node_fs).filter(|fs| !fs.as_ref().is_err_and(|unread| unread.absent))
    }

    /// Whether a Node says the same of `other`: what only eviction looks at, and what
    /// moves all the time, is not compared.
    pub fn same_status_as(&self, other: &Self) -> bool {
        // Each by its name, so that none is forgotten.
        let Self {
            cpus,
            memory,
            working_set_bytes,
            huge_pages,
            node_fs,
            pids,
            machine_id,
            system_uuid,
            boot_id,
            kernel_version,
            os_image,
            network,
            unhealthy,
        } = self;
        let capacity = |fs: &FileSystem| fs.capacity_bytes;
        *cpus == other.cpus
            && *memory == other.memory
            && working_set_bytes.as_ref().err() == other.working_set_bytes.as_ref().err()
            && *huge_pages == other.huge_pages
            && node_fs.as_ref().map(capacity) == other.node_fs.as_ref().map(capacity)
            && pids.as_ref().err() == other.pids.as_ref().err()
            && *machine_id == other.machine_id
            && *system_uuid == other.system_uuid
            && *boot_id == other.boot_id
            && *kernel_version == other.kernel_version
            && *os_image == other.os_image
            && *network == other.network
            && *unhealthy == other.unhealthy
    }
}

/// The lines of `proc/meminfo` that are used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`: usable RAM, without what the firmware and the kernel text took.
    pub total_bytes: u64,
    /// `SwapTotal`; 0 where the line is absent (kernel without swap).
    pub swap_total_bytes: u64,
}

/// One size of huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HugePages {
    /// Size of one page, from the directory name `hugepages-<n>kB`.
    pub page_bytes: u64,
    /// `nr_hugepages`.
    pub count: u64,
}

/// What statvfs says of one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystem {
    /// f_blocks * f_frsize.
    pub capacity_bytes: u64,
    /// f_bavail * f_frsize: without root's reserve.
    pub available_bytes: u64,
    /// f_files; 0 on file systems without inode accounting.
    pub inodes: u64,
    /// f_ffree.
    pub inodes_free: u64,
}

/// Threads, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pids {
    /// min(pid_max, threads-max) of those that can be read.
    pub max: u64,
    /// Denominator of the fourth field of `proc/loadavg`: threads, not processes.
    pub running: u64,
}

/// What the choice of the node's own address needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Default routes in the kubelet's order: IPv4 in file order, then IPv6.
    /// `Ok(None)` where `proc/net/route` does not exist at all.
    pub default_routes: Read<Option<Vec<DefaultRoute>>>,
    /// Interfaces in index order.
    pub interfaces: Read<Vec<Interface>>,
    /// `etc/hosts`: addresses of the node's own name, in file order.
    pub hosts: Vec<IpAddr>,
    /// Name servers' answers for it, where `status::needs_lookup`; a `dns::NodeName`
    /// has them, no `Host`.
    pub dns: Vec<IpAddr>,
}

/// One default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Name of the interface.
    pub interface: String,
    /// Gateway; `0.0.0.0` on point-to-point links.
    pub gateway: IpAddr,
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, as in the route files.
    pub name: String,
    /// IFF_UP.
    pub up: bool,
    /// IFF_LOOPBACK.
    pub loopback: bool,
    /// IFF_POINTOPOINT.
    pub point_to_point: bool,
    /// Addresses in kernel order.
    pub addresses: Vec<IpAddr>,
}

#[cfg(test)]
impl Facts {
    /// A Raspberry Pi with four cores, 1 GiB and one network interface.
    pub(crate) fn example() -> Self {
        let interface = |name: &str, addresses: &[&str]| Interface {
            name: name.to_owned(),
            up: true,
            loopback: name == "lo",
            point_to_point: false,
            addresses: addresses.iter().filter_map(|ip| ip.parse().ok()).collect(),
        };
        let text = |text: &str| Ok(text.to_owned());
        Self {
            cpus: Ok(4),
            memory: Ok(Memory {
                total_bytes: 1 << 30,
                swap_total_bytes: 0,
            }),
            working_set_bytes: Ok(256 << 20),
            huge_pages: Ok(vec![HugePages {
                page_bytes: 2 << 20,
                count: 0,
            }]),
            node_fs: Ok(FileSystem {
                capacity_bytes: 32 << 30,
                available_bytes: 24 << 30,
                inodes: 2_000_000,
                inodes_free: 1_500_000,
            }),
            pids: Ok(Pids {
                max: 32_768,
                running: 120,
            }),
            machine_id: text("0123456789abcdef0123456789abcdef"),
            system_uuid: text("0123456789abcdef0123456789abcdef"),
            boot_id: text("b1946ac9-2477-4a6f-9d3a-5d2f0c1a7e11"),
            kernel_version: text("6.12.25+rpt-rpi-v8"),
            os_image: text("Debian GNU/Linux 12 (bookworm)"),
            network: Network {
                default_routes: Ok(Some(vec![DefaultRoute {
                    interface: "eth0".to_owned(),
                    gateway: std::net::Ipv4Addr::new(192, 0, 2, 1).into(),
                }])),
                interfaces: Ok(vec![
                    interface("lo", &["127.0.0.1", "::1"]),
                    interface("eth0", &["192.0.2.10", "fe80::2"]),
                ]),
                hosts: Vec::new(),
                dns: Vec::new(),
            },
            unhealthy: Vec::new(),
        }
    }
}
