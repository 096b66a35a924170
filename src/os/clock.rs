//! The monotonic clock and the wall clock, read together. ureq reads another clock, for its own
//! time limits, which nodelet does not use.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::kube::instant::{Mono, Now};
use crate::kube::time::Wall;
use crate::os::read::SMALL;
use crate::os::root::HostRoot;
#[cfg(test)]
use crate::sim::hook as sim;

/// The monotonic clock and the wall clock of this process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Time since boot when this clock was started.
    start: Duration,
}

impl Clock {
    /// Starts the monotonic clock.
    pub fn start() -> Self {
        Self { start: since_boot() }
    }

    /// Time from the boot to the start of this clock, with the time in which the board was
    /// suspended.
    pub fn boot_to_start(&self) -> Duration {
        self.start
    }

    /// The current time.
    pub fn now(&self) -> Now {
        Now { mono: Mono::START.after(since_boot().saturating_sub(self.start)), wall: wall() }
    }
}

/// The wall clock. A time before 1970 reads as 1970. Not std's `SystemTime`: for a 32-bit board std
/// is built with a libc crate whose time_t has 4 bytes (libc 0.2.178 with musl), and panics from
/// 2038-01-19 on.
pub fn wall() -> Wall {
    #[cfg(test)]
    if let Some(wall) = sim::wall() {
        return wall;
    }
    let since_epoch = clock_gettime(ClockId::CLOCK_REALTIME).map(|time| match time.tv_sec() {
        ..0 => Duration::ZERO,
        _ => Duration::from(time),
    });
    Wall::from_epoch(since_epoch.unwrap_or_default())
}

/// Waits; the time in which the board is suspended counts. Only for commands: the agent waits in
/// `os::wakeup`, where a signal ends it.
#[expect(clippy::disallowed_methods, reason = "a command has no loop")]
pub fn pause(time: Duration) {
    #[cfg(test)]
    if sim::pause(time).is_some() {
        return;
    }
    let end = TimeSpec::from(since_boot() + time);
    loop {
        match clock_nanosleep(ClockId::CLOCK_BOOTTIME, ClockNanosleepFlags::TIMER_ABSTIME, &end) {
            Err(Errno::EINTR) => {}
            Err(_) => return std::thread::sleep(time),
            Ok(_) => return,
        }
    }
}

/// The time since boot. Unlike `Instant`, this includes the time that the board is suspended,
/// because the Lease expires during it. CLOCK_BOOTTIME exists since Linux 2.6.39.
pub fn since_boot() -> Duration {
    #[cfg(test)]
    if let Some(time) = sim::since_boot() {
        return time;
    }
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC))
        .map(Duration::from)
        .unwrap_or_default()
}

/// The time since boot without the time that the board is suspended, as Go's monotonic clock and so
/// a kubelet counts: a program that could not run is not late.
pub fn awake() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// A number of this boot, from its random id; 0 if that cannot be read, as with `ProcSubset=pid`.
pub fn boot_number() -> u64 {
    let id = HostRoot::default().text("proc/sys/kernel/random/boot_id", SMALL).unwrap_or_default();
    u64::from_str_radix(id.get(..8).unwrap_or_default(), 16).unwrap_or_default()
}

/// Whether `one` and `other` are the numbers of two boots; false if one of them is not known.
pub fn is_other_boot(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

/// The time of this program's build, or of the commit that it was built from.
pub fn built() -> Wall {
    #[cfg(test)]
    if let Some(built) = sim::built() {
        return built;
    }
    let seconds = env!("NODELET_BUILT").parse().unwrap_or_default();
    Wall::from_epoch(Duration::from_secs(seconds))
}

/// The time at which the certificate of a server or a client must be valid: `shown` by a clock, or
/// that of this program's build if the clock is earlier, and therefore not set. Without the time of
/// the build, a board that starts in 1970 could not ask a server for the time, and would know no
/// client; nor would it by the clock of a server that starts in 1970. A certificate that begins
/// after both times is refused. A certificate that has expired since the build is noticed once the
/// clock is set.
pub fn of_certificates(shown: Wall) -> Wall {
    shown.max(built())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_time_is_known() {
        assert!(built() > Wall::default());
    }
}
