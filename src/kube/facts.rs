//! The facts about the machine that a status is computed from, as plain values.
//!
//! Each fact is its own `Result`: an unreadable file makes one fact missing and does not end the
//! turn. `agent::read_cache` reads the files; some facts are up to 60 s old.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// All facts about the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Logical CPUs by cAdvisor's rule (online CPUs under `sys/devices/system/node`,
    /// else every `sys/devices/system/cpu/cpuN` directory, offline ones too).
    pub cpus: Read<u64>,
    /// `proc/meminfo`.
    pub memory: Read<Memory>,
    /// Bytes of memory in use without inactive file cache, at the root of the cgroup tree:
    /// max(0, usage - inactive_file), as cAdvisor's working set.
    pub working_set_bytes: Read<u64>,
    /// `sys/kernel/mm/hugepages`, ascending by size; empty where the kernel has none.
    pub huge_pages: Read<Vec<HugePages>>,
    /// The file system that holds `--root-dir`; `None` if it has no size, like a ramfs.
    pub node_fs: Read<Option<FsStats>>,
    /// `proc/sys/kernel/{pid_max,threads-max}` and `proc/loadavg`.
    pub pids: Read<Pids>,
    /// `etc/machine-id` and its fall-backs, trimmed; not checked, see [`is_machine_id`].
    pub machine_id: Read<String>,
    /// DMI product UUID and its fall-backs, trimmed.
    pub system_uuid: Read<String>,
    /// `proc/sys/kernel/random/boot_id`, trimmed.
    pub boot_id: Read<String>,
    /// `uname -r`, from `proc/sys/kernel/osrelease`.
    pub kernel_version: Read<String>,
    /// `PRETTY_NAME` of os-release; `Linux` if the file lacks it.
    pub os_image: Read<String>,
    /// Default routes and interfaces.
    pub network: Network,
    /// One line for each failed health check; any of them makes the Node not ready.
    pub unhealthy: Vec<String>,
    /// The container runtime; `None` without `--container-runtime-endpoint`.
    pub runtime: Option<RuntimeFacts>,
    /// The file system that holds the runtime's images; `None` without a runtime. Only eviction
    /// uses it.
    pub image_fs: Option<Read<Option<FsStats>>>,
    /// The conditions about the board's health.
    pub health: HealthConditions,
}

impl Facts {
    /// The facts before the first read.
    pub fn unread() -> Self {
        fn not_read<T>() -> Read<T> {
            Err(Unread::new("host", "not read yet"))
        }
        Self {
            cpus: not_read(),
            memory: not_read(),
            working_set_bytes: not_read(),
            huge_pages: not_read(),
            node_fs: not_read(),
            pids: not_read(),
            machine_id: not_read(),
            system_uuid: not_read(),
            boot_id: not_read(),
            kernel_version: not_read(),
            os_image: not_read(),
            network: Network {
                default_routes: not_read(),
                interfaces: not_read(),
                hosts: not_read(),
                dns: not_read(),
            },
            unhealthy: Vec::new(),
            runtime: None,
            image_fs: None,
            health: HealthConditions::default(),
        }
    }

    /// The file system that holds `--root-dir`; `None` if it has no size, like a ramfs.
    pub fn storage(&self) -> Option<Read<FsStats>> {
        self.node_fs.clone().transpose()
    }

    /// Whether a status computed from `new` is the same as one computed from these facts. Amounts
    /// that only eviction uses are first copied from `new`, so that they make no difference; then
    /// all facts are compared.
    pub fn same_status_as(&mut self, new: &Self) -> bool {
        if let (Ok(working_set), Ok(new)) = (&mut self.working_set_bytes, &new.working_set_bytes) {
            *working_set = *new;
        }
        if let (Ok(pids), Ok(new)) = (&mut self.pids, &new.pids) {
            *pids = *new;
        }
        if let (Ok(Some(fs)), Ok(Some(new))) = (&mut self.node_fs, &new.node_fs) {
            *fs = FsStats { capacity_bytes: fs.capacity_bytes, ..*new };
        }
        if let (None | Some(Ok(_)), None | Some(Ok(_))) = (&self.image_fs, &new.image_fs) {
            self.image_fs.clone_from(&new.image_fs);
        }
        *self == *new
    }
}

/// Why one fact is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// File or system call, relative to the host root: `proc/meminfo`.
    pub source: String,
    /// What happened: `no MemTotal line`, `permission denied`.
    pub cause: String,
    /// What follows from it.
    pub kind: UnreadKind,
}

/// What is known of a thing whose file was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadKind {
    /// The machine does not have the thing, which is no fault.
    Absent,
    /// The read failed.
    Failed,
    /// Nothing: the look had no time for the file.
    NotReached,
}

impl Unread {
    /// The cause for a file that a look had no time for.
    pub const NOT_REACHED: &str = "not read: other files took the second that a look may take";

    /// A file that exists and lacks the fact.
    pub fn new(source: impl Into<String>, cause: impl Into<String>) -> Unread {
        Unread { source: source.into(), cause: cause.into(), kind: UnreadKind::Failed }
    }

    /// A file that a look had no time for.
    pub fn not_reached(source: impl Into<String>) -> Unread {
        Unread { kind: UnreadKind::NotReached, ..Unread::new(source, Self::NOT_REACHED) }
    }

    /// Whether the machine does not have the thing that the file describes.
    pub fn is_absent(&self) -> bool {
        self.kind == UnreadKind::Absent
    }

    /// Whether the look had no time for the file. Then nothing is known of it, also not that a read
    /// fails.
    pub fn is_not_reached(&self) -> bool {
        self.kind == UnreadKind::NotReached
    }
}

/// Replaces a fact by what was read, and returns true. If the look had no time for it, the value of
/// an earlier look stays, and this returns false.
pub fn renew<T>(fact: &mut Read<T>, read: Read<T>) -> bool {
    let is_reached = !read.as_ref().is_err_and(Unread::is_not_reached);
    if is_reached || fact.is_err() {
        *fact = read;
    }
    is_reached
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.cause)
    }
}

/// One fact, or the reason why it is missing.
pub type Read<T> = Result<T, Unread>;

/// What a look found of a thing that not every machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence<T> {
    /// The thing, as it was read.
    Found(T),
    /// This machine has no such thing: a look that came to its end did not find it.
    #[default]
    Absent,
    /// A file that the look needs was not read, so nothing is known of the thing.
    Unread(Unread),
}

impl<T> From<Read<T>> for Presence<T> {
    fn from(read: Read<T>) -> Self {
        match read {
            Err(unread) if unread.is_absent() => Self::Absent,
            read => Self::of_known(read),
        }
    }
}

impl<T> Presence<T> {
    /// For a thing that an earlier look found. If its file is missing now, nothing is known of the
    /// thing: it does not count as absent.
    pub fn of_known(read: Read<T>) -> Self {
        match read {
            Ok(value) => Self::Found(value),
            Err(unread) => Self::Unread(unread),
        }
    }

    /// The thing; `None` if the machine does not have it.
    pub fn present(self) -> Read<Option<T>> {
        match self {
            Self::Found(value) => Ok(Some(value)),
            Self::Absent => Ok(None),
            Self::Unread(unread) => Err(unread),
        }
    }

    /// The thing, if it was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Absent | Self::Unread(_) => None,
        }
    }

    /// Whether nothing is known of the thing.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Unread(_))
    }

    /// Reads more of a thing that was found. If the file of `read` is missing, nothing is known of
    /// the thing: it does not count as absent.
    pub fn and_then<U>(self, read: impl FnOnce(T) -> Read<U>) -> Presence<U> {
        match self {
            Self::Found(value) => Presence::of_known(read(value)),
            Self::Absent => Presence::Absent,
            Self::Unread(unread) => Presence::Unread(unread),
        }
    }
}

/// Whether this is a machine id of machine-id(5). Before the first boot of an image the file has
/// the word `uninitialized`, on each of its boards.
pub fn is_machine_id(text: &str) -> bool {
    text.len() == 32
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        && text.bytes().any(|byte| byte != b'0')
}

/// Why `text` is no machine id.
pub fn no_machine_id(text: &str) -> String {
    let text: String = text.chars().take(40).collect();
    format!("etc/machine-id: {text:?} is not 32 hexadecimal digits, so other boards can have it")
}

/// The lines of `proc/meminfo` that are used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`: usable RAM, without the reservations of firmware and kernel text.
    pub total_bytes: u64,
    /// `SwapTotal`; 0 if the line is absent (kernel without swap).
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

/// The result of statvfs(3) for one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStats {
    /// f_blocks * f_frsize.
    pub capacity_bytes: u64,
    /// f_bfree * f_frsize: with the blocks reserved for root.
    pub free_bytes: u64,
    /// f_bavail * f_frsize: without the blocks reserved for root.
    pub available_bytes: u64,
    /// f_files; 0 on file systems without inode accounting.
    pub inodes: u64,
    /// f_ffree.
    pub inodes_free: u64,
    /// The free amounts are old: the last look had no time for them, or the file system is this
    /// machine's root, and is on a network. A question to a dead server would block, so that file
    /// system is asked once.
    pub is_old: bool,
}

impl FsStats {
    /// What follows from [`Self::is_old`] of a root on a network, and its remedy.
    pub const ASKED_ONCE: (&str, &str) = (
        "it is on the root file system, which can block for ever: its size is read only at the \
         start, and DiskPressure is not checked",
        "for DiskPressure give --root-dir a local file system",
    );
}

/// Number of threads, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pids {
    /// min(pid_max, threads-max); a file that cannot be read is left out.
    pub max: u64,
    /// Denominator of the fourth field of `proc/loadavg`: threads, not processes.
    pub running: u64,
}

/// What a Node reports of the container runtime, and the lines of Ready. A value that is `None` is
/// not known, and the Node keeps the value that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RuntimeFacts {
    /// `containerd://2.1.9`.
    pub version: Option<String>,
    /// Largest first.
    pub images: Option<Vec<Image>>,
    /// The folder of the images, as the runtime names it.
    pub image_folder: Option<String>,
    /// Sorted by name.
    pub handlers: Option<Vec<Handler>>,
    /// `features.supplementalGroupsPolicy`.
    pub supplemental_groups_policy: Option<bool>,
    /// Ready's line about CRI's RuntimeReady.
    pub not_ready: Option<String>,
    /// Ready's line about CRI's NetworkReady. It counts only where the Node offers pods.
    pub network: Option<String>,
    /// Ready's line if no question has succeeded, or the last success is too old.
    #[serde(skip)]
    pub down: Option<&'static str>,
}

impl RuntimeFacts {
    /// The folder of the images. While it is not known, its file system is not either.
    pub fn image_folder(&self) -> Read<&str> {
        let unknown = || Unread::new("container runtime", "the folder of its images is not known");
        self.image_folder.as_deref().ok_or_else(unknown)
    }
}

/// One image of the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    /// The runtime's id; not reported, it orders images of one size.
    pub id: String,
    /// Digests, then tags.
    pub names: Vec<String>,
    /// Bytes on disk: unpacked for Docker, Podman and CRI-O, compressed for containerd.
    pub size_bytes: u64,
}

/// One handler of the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Handler {
    /// Empty is the default handler.
    pub name: String,
    /// `recursiveReadOnlyMounts`.
    pub recursive_read_only_mounts: bool,
    /// `userNamespaces`.
    pub user_namespaces: bool,
}

/// Inputs for the choice of the node's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Default routes in the kubelet's order: IPv4 in file order, then IPv6.
    /// `Ok(None)` if `proc/net/route` does not exist.
    pub default_routes: Read<Option<Vec<DefaultRoute>>>,
    /// Interfaces in index order.
    pub interfaces: Read<Vec<Interface>>,
    /// `etc/hosts`: addresses of the node's own name, in file order; empty without the file.
    pub hosts: Read<Vec<IpAddr>>,
    /// Addresses of the node's own name from DNS, if `status::needs_lookup`. They come from
    /// `client::dns`, not from `Host`. Unread until this process has a result.
    pub dns: Read<Vec<IpAddr>>,
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

/// Reason and message of an event that warns about the board's health and is no change of a
/// condition.
pub type Sign = (&'static str, String);

/// One condition about the board's health, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCondition {
    /// The condition type.
    pub name: Cow<'static, str>,
    /// The status: True is a problem.
    pub is_true: bool,
    /// A CamelCase word.
    pub reason: Cow<'static, str>,
    /// One line.
    pub message: Cow<'static, str>,
    /// The reason of the event, if the status changes.
    pub event_reason: &'static str,
    /// It is on the list also before its first True, and after 24 hours of False.
    pub is_always_listed: bool,
}

/// The state of all conditions about the board's health. A type that is in neither list is not
/// touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthConditions {
    /// The conditions that are True or False.
    pub known: Vec<HealthCondition>,
    /// The types that have no condition: they are deleted from the Node.
    pub absent: Vec<&'static str>,
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
            memory: Ok(Memory { total_bytes: 1 << 30, swap_total_bytes: 0 }),
            working_set_bytes: Ok(256 << 20),
            huge_pages: Ok(vec![HugePages { page_bytes: 2 << 20, count: 0 }]),
            node_fs: Ok(Some(FsStats {
                capacity_bytes: 32 << 30,
                free_bytes: 26 << 30,
                available_bytes: 24 << 30,
                inodes: 2_000_000,
                inodes_free: 1_500_000,
                is_old: false,
            })),
            pids: Ok(Pids { max: 32_768, running: 120 }),
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
                hosts: Ok(Vec::new()),
                dns: Ok(Vec::new()),
            },
            unhealthy: Vec::new(),
            runtime: None,
            image_fs: None,
            health: HealthConditions::default(),
        }
    }
}
