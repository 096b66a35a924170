//! The table of blocking calls in src/README.md is complete: each system call of a run is in it, or
//! is one that cannot wait.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixDatagram;

use nix::libc::{self, c_long};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::board::{Board, FAST};
use crate::common::cluster::rotating;
use crate::common::ptrace;
use support::{Folder, skip};

/// The last call of a process.
const EXIT: &str = "exit_group";

/// System calls by number and name.
type Calls = &'static [(c_long, &'static str)];

macro_rules! calls {
    ($($call:ident)*) => {
        &[$((libc::$call, stringify!($call))),*]
    };
}

/// Calls on a descriptor, which is the first argument.
const ON_DESCRIPTOR: Calls = calls![
    SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_fsync SYS_fdatasync SYS_ftruncate SYS_readv
    SYS_writev SYS_sendto SYS_sendmsg SYS_recvfrom SYS_recvmsg SYS_connect SYS_getdents64 SYS_flock
    SYS_fstatfs
];
/// Calls on a path, which is the first argument.
const ON_PATH: Calls = calls![
    SYS_open SYS_rename SYS_unlink SYS_mkdir SYS_symlink SYS_readlink SYS_stat SYS_lstat SYS_statfs
    SYS_access SYS_chmod
];
/// Calls on a path, which is the second argument, or if it is empty on the descriptor before it.
const ON_PATH_AT: Calls = calls![
    SYS_openat SYS_openat2 SYS_newfstatat SYS_statx SYS_readlinkat SYS_faccessat SYS_faccessat2
    SYS_renameat2 SYS_unlinkat SYS_mkdirat
];
/// Other calls that can wait.
const OTHERS: Calls = calls![
    SYS_ppoll SYS_poll SYS_nanosleep SYS_clock_nanosleep SYS_wait4 SYS_exit_group SYS_select
    SYS_pselect6 SYS_epoll_wait
];
/// Calls that do not wait for a device, another program or a time. The agent has one thread, so a
/// futex is free.
const NEVER_WAIT: Calls = calls![
    SYS_brk SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_close SYS_clock_gettime
    SYS_getrandom SYS_getpid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_fcntl
    SYS_dup SYS_lseek SYS_fstat SYS_fchmod SYS_socket SYS_bind SYS_setsockopt SYS_getsockopt
    SYS_getsockname SYS_getpeername SYS_shutdown SYS_rt_sigaction SYS_rt_sigprocmask
    SYS_rt_sigreturn SYS_sigaltstack SYS_timerfd_create SYS_timerfd_settime SYS_signalfd4
    SYS_sysinfo SYS_uname SYS_futex SYS_prctl SYS_prlimit64 SYS_arch_prctl SYS_set_tid_address
    SYS_set_robust_list SYS_rseq SYS_sched_getaffinity SYS_sched_yield SYS_getcwd SYS_execve
    SYS_umask SYS_restart_syscall SYS_mlockall SYS_ioctl SYS_getppid
];

/// What a descriptor or a path is, in the words of the table.
fn kind(target: &str) -> &'static str {
    let is_below = |folder: &str| target.starts_with(folder);
    match target {
        _ if is_below("socket:") => "socket",
        _ if is_below("pipe:") => "stderr",
        _ if is_below("anon_inode:") => "event",
        _ if ["/proc", "/sys"].into_iter().any(is_below) => "kernel file",
        _ => "file",
    }
}

fn descriptor(pid: Pid, number: u64) -> String {
    let link = fs::read_link(format!("/proc/{pid}/fd/{number}"));
    link.map(|target| target.display().to_string()).unwrap_or_default()
}

/// The text at an address of the process.
fn text(pid: Pid, address: u64) -> String {
    let mut bytes = [0; 256];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let read = memory.read_at(&mut bytes, address).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(read);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The system call that a stopped process enters: its name, the kind of what it is on, and an
/// example of that; `None` if it never waits.
#[cfg(target_arch = "x86_64")]
fn entered(pid: Pid) -> Option<(String, &'static str, String)> {
    let registers = nix::sys::ptrace::getregs(pid).unwrap();
    let number = registers.orig_rax.cast_signed();
    let name_in = |calls: Calls| {
        let (_, name) = calls.iter().find(|(known, _)| *known == number)?;
        name.strip_prefix("SYS_").map(str::to_owned)
    };
    if name_in(NEVER_WAIT).is_some() {
        return None;
    }
    let (name, target) = if let Some(name) = name_in(ON_DESCRIPTOR) {
        (name, descriptor(pid, registers.rdi))
    } else if let Some(name) = name_in(ON_PATH) {
        (name, text(pid, registers.rdi))
    } else if let Some(name) = name_in(ON_PATH_AT) {
        let path = text(pid, registers.rsi);
        (name, if path.is_empty() { descriptor(pid, registers.rdi) } else { path })
    } else {
        let name = name_in(OTHERS).unwrap_or_else(|| format!("system call {number}"));
        return Some((name, "", String::new()));
    };
    // A kept descriptor of a folder of /proc is one of /proc.
    Some((name, kind(&target), target))
}

#[cfg(not(target_arch = "x86_64"))]
fn entered(_: Pid) -> Option<(String, &'static str, String)> {
    None
}

/// The rows of the table: the names of the calls, and the kinds of what they are on; none for a
/// call on nothing.
fn table() -> Vec<(Vec<String>, Vec<String>)> {
    let text = include_str!("../../src/README.md");
    let (_, table) = text.split_once("| call | on | bounded by |\n|---|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let words = |cell: &str, separator: &str| -> Vec<String> {
        let words = cell.split(separator).map(|word| word.trim().trim_matches('`').to_owned());
        words.filter(|word| !word.is_empty()).collect()
    };
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (words(cells[1], ","), words(cells[2], ","))
    })
    .collect()
}

fn is_listed(table: &[(Vec<String>, Vec<String>)], name: &str, kind: &str) -> bool {
    table.iter().any(|(calls, kinds)| {
        calls.iter().any(|call| call == name)
            && (kind.is_empty() || kinds.iter().any(|known| known == kind))
    })
}

/// From the start to the stop, with a bootstrap, renewals, a podCIDR and a rotation.
#[test]
fn each_system_call_of_a_run_is_in_the_table_of_blocking_calls() {
    let table = table();
    assert!(table.len() > 4 && is_listed(&table, "fsync", "file"), "{table:?}");
    assert!(!is_listed(&table, "fsync", "socket") && !is_listed(&table, "nanosleep", ""));
    if cfg!(not(target_arch = "x86_64")) {
        return skip::optional("system calls: the registers of x86-64 alone are known here");
    }
    let folder = Folder::new("blocking");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (double, mut args) = rotating(&folder);
    args.push(format!("--state-file={}", path("state")));
    let args: Vec<&str> = args.iter().map(String::as_str).chain(FAST).collect();
    let notified = UnixDatagram::bind(path("notify")).unwrap();
    let board = Board::start_with(&args, &[("NOTIFY_SOCKET", &path("notify"))]);
    let mut calls = BTreeMap::new();
    let (mut has_cidr, mut is_stopped) = (false, false);
    let pid = board.pid();
    let traced = ptrace::system_calls(pid, || {
        let Some((name, kind, example)) = entered(pid) else {
            return false;
        };
        calls.entry((name.clone(), kind)).or_insert(example);
        if !has_cidr && double.get("nodes/pi").is_some() {
            let spec = json!({"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}});
            let patch = "application/merge-patch+json";
            has_cidr = double.as_admin("PATCH", "/api/v1/nodes/pi", patch, &spec).0 == 200;
        }
        let is_new = |line: &&String| line.contains("a new certificate is in use");
        let is_renewed = || board.log().iter().filter(is_new).count() > 1;
        if !is_stopped && fs::exists(path("root/podcidr")).unwrap() && is_renewed() {
            is_stopped = true;
            kill(pid, Signal::SIGTERM).unwrap();
        }
        name == EXIT
    });
    let Some(traced) = traced else {
        return skip::optional("system calls: this machine forbids ptrace");
    };
    println!("{traced} calls");
    assert!(fs::read(path("root/podcidr")).is_ok());
    drop(notified);
    for ((name, kind), example) in &calls {
        println!("{name} {kind} {example}");
    }
    for needed in [("fsync", "file"), ("ppoll", ""), ("read", "kernel file"), ("write", "stderr")] {
        assert!(calls.keys().any(|(name, kind)| (name.as_str(), *kind) == needed), "{needed:?}");
    }
    // The dynamic linker, before the program.
    calls.retain(|_, example| !example.starts_with("/etc/ld.so."));
    calls.retain(|(name, kind), _| name != EXIT && !is_listed(&table, name, kind));
    assert!(calls.is_empty(), "not in the table of src/README.md: {calls:#?}");
}
