//! Counts system calls of another process, as strace does.

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Counts until `is_over`, which is called at the entry of each system call. `None` if this machine
/// forbids ptrace.
pub(crate) fn system_calls(pid: Pid, mut is_over: impl FnMut() -> bool) -> Option<usize> {
    match ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD) {
        Err(Errno::EPERM | Errno::ENOSYS) => return None,
        result => result.unwrap(),
    }
    // Interrupts a system call that blocks: its restart is traced.
    ptrace::interrupt(pid).unwrap();
    let mut calls = 0;
    let mut is_inside = false;
    loop {
        let mut signal = None;
        match waitpid(pid, None).unwrap() {
            WaitStatus::PtraceSyscall(_) => {
                is_inside = !is_inside;
                if is_inside && is_over() {
                    ptrace::detach(pid, None).unwrap();
                    return Some(calls);
                }
                calls += usize::from(is_inside);
            }
            WaitStatus::Stopped(_, delivered) => signal = Some(delivered),
            WaitStatus::PtraceEvent(..) => {}
            other => panic!("{other:?}"),
        }
        ptrace::syscall(pid, signal).unwrap();
    }
}
