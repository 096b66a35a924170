//! Counts another process's system calls, as strace does.

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Counts until `is_over` says so, which is asked at each call's begin. `None` where this
/// machine does not let us trace.
pub(crate) fn system_calls(pid: Pid, mut is_over: impl FnMut() -> bool) -> Option<usize> {
    match ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD) {
        Err(Errno::EPERM | Errno::ENOSYS) => return None,
        result => result.unwrap(),
    }
    // It may be asleep in a call, which is begun anew and so is seen.
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
