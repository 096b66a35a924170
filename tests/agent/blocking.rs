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

/// Calls on a descriptor, which is the first argument.
const ON_DESCRIPTOR: &[(c_long, &str)] = &[
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_getdents64, "getdents64"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fstatfs, "fstatfs"),
];
/// Calls on a path, which is the first argument.
const ON_PATH: &[(c_long, &str)] = &[
    (libc::SYS_open, "open"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_symlink, "symlink"),
    (libc::SYS_readlink, "readlink"),
    (libc::SYS_stat, "stat"),
    (libc::SYS_lstat, "lstat"),
    (libc::SYS_statfs, "statfs"),
    (libc::SYS_access, "access"),
    (libc::SYS_chmod, "chmod"),
];
/// Calls on a path, which is the second argument, or if it is empty on the descriptor before it.
const ON_PATH_AT: &[(c_long, &str)] = &[
    (libc::SYS_openat, "openat"),
    (libc::SYS_openat2, "openat2"),
    (libc::SYS_newfstatat, "newfstatat"),
    (libc::SYS_statx, "statx"),
    (libc::SYS_readlinkat, "readlinkat"),
    (libc::SYS_faccessat, "faccessat"),
    (libc::SYS_faccessat2, "faccessat2"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_mkdirat, "mkdirat"),
];
/// Other calls that can wait.
const OTHERS: &[(c_long, &str)] = &[
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_poll, "poll"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_exit_group, EXIT),
    (libc::SYS_select, "select"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_wait, "epoll_wait"),
];
/// Calls that do not wait for a device, another program or a time. The agent has one thread, so a
/// futex is free.
const NEVER_WAIT: &[(c_long, &str)] = &[
    (libc::SYS_brk, "brk"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_mremap, "mremap"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_close, "close"),
    (libc::SYS_clock_gettime, "clock_gettime"),
    (libc::SYS_getrandom, "getrandom"),
    (libc::SYS_getpid, "getpid"),
    (libc::SYS_gettid, "gettid"),
    (libc::SYS_getuid, "getuid"),
    (libc::SYS_geteuid, "geteuid"),
    (libc::SYS_getgid, "getgid"),
    (libc::SYS_getegid, "getegid"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_dup, "dup"),
    (libc::SYS_lseek, "lseek"),
    (libc::SYS_fstat, "fstat"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_socket, "socket"),
    (libc::SYS_bind, "bind"),
    (libc::SYS_setsockopt, "setsockopt"),
    (libc::SYS_getsockopt, "getsockopt"),
    (libc::SYS_getsockname, "getsockname"),
    (libc::SYS_getpeername, "getpeername"),
    (libc::SYS_shutdown, "shutdown"),
    (libc::SYS_rt_sigaction, "rt_sigaction"),
    (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
    (libc::SYS_rt_sigreturn, "rt_sigreturn"),
    (libc::SYS_sigaltstack, "sigaltstack"),
    (libc::SYS_timerfd_create, "timerfd_create"),
    (libc::SYS_timerfd_settime, "timerfd_settime"),
    (libc::SYS_signalfd4, "signalfd4"),
    (libc::SYS_sysinfo, "sysinfo"),
    (libc::SYS_uname, "uname"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_prctl, "prctl"),
    (libc::SYS_prlimit64, "prlimit64"),
    (libc::SYS_arch_prctl, "arch_prctl"),
    (libc::SYS_set_tid_address, "set_tid_address"),
    (libc::SYS_set_robust_list, "set_robust_list"),
    (libc::SYS_rseq, "rseq"),
    (libc::SYS_sched_getaffinity, "sched_getaffinity"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_getcwd, "getcwd"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_umask, "umask"),
    (libc::SYS_restart_syscall, "restart_syscall"),
    (libc::SYS_mlockall, "mlockall"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_getppid, "getppid"),
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
    let name_in = |calls: &[(c_long, &'static str)]| {
        calls.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned())
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
        if !is_stopped && has_cidr && board.log().iter().filter(is_new).count() > 1 {
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
