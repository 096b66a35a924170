//! The values in the answers: use of CPU and memory, the agent's Lease, and what this process has
//! done.

use std::path::PathBuf;
use std::time::Duration;

use super::access::ReviewCounts;
use super::config::ServeConfig;
use crate::config::Config;
use crate::host::Host;
use crate::host::usage::Usage;
use crate::kube::instant::{Mono, Now};
use crate::kube::lease_report::LeaseReport;
use crate::kube::time::Wall;
use crate::os::clock::{self, boot_number, is_other_boot, since_boot};
use crate::os::guard::read;

/// How long a reading is used: three scrapers at the same time cost one reading.
const FRESH: Duration = Duration::from_secs(1);
/// `pkg/kubelet/server/server.go` syncLoopHealthCheck: minDuration.
const SYNC_LOOP: Duration = Duration::from_secs(300);

/// The sources of all answers.
#[derive(Debug)]
pub(super) struct Readings {
    pub(super) node_name: String,
    pub(super) host: Host,
    state_file: PathBuf,
    boot: u64,
    /// The last reading, and when it was made.
    last: Option<(Mono, Usage)>,
    /// The reading before `last`, for the rate of CPU time.
    before: Option<(Mono, Usage)>,
    /// What this process has done.
    pub(super) served: Served,
}

/// What this process has done, and with which certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    /// Requests by status code of the answer, in the order of the codes.
    pub(super) requests: Vec<(u16, u64)>,
    /// Reviews that were sent.
    pub(super) reviews: ReviewCounts,
    /// Now, by the server's clock once it has told its time; `None` if that cannot be right.
    pub(super) cluster_time: Option<Wall>,
    /// End of the certificate for the API server; `None` without one.
    pub(super) client_not_after: Option<Wall>,
    /// End of the serving certificate, unless it is self-signed.
    pub(super) server_not_after: Option<Wall>,
}

impl Served {
    /// Counts a request.
    pub(super) fn count(&mut self, code: u16) {
        let at = self.requests.partition_point(|(known, _)| *known < code);
        match self.requests.get_mut(at) {
            Some((known, count)) if *known == code => *count += 1,
            // The codes of this program are few.
            _ => self.requests.insert(at, (code, 1)),
        }
    }
}

impl Readings {
    /// Reads nothing yet.
    pub(super) fn new(config: &Config, serve: &ServeConfig, host: Host) -> Self {
        Self {
            node_name: config.node.name.clone(),
            host,
            state_file: serve.state_file.clone(),
            boot: boot_number(),
            last: None,
            before: None,
            served: Served::default(),
        }
    }

    /// The use of CPU, memory and swap, and its age: at most a second.
    pub(super) fn usage(&mut self, now: Mono) -> (Usage, Duration) {
        if let Some((at, usage)) = &self.last
            && now.since(*at) < FRESH
        {
            return (usage.clone(), now.since(*at));
        }
        let usage = self.host.usage();
        self.before = self.last.replace((now, usage.clone()));
        (usage, Duration::ZERO)
    }

    /// Average use of CPU between the last two readings, in billionths of a core.
    pub(super) fn nano_cores(&self) -> Option<u64> {
        let ((from, before), (to, last)) = (self.before.as_ref()?, self.last.as_ref()?);
        let used = last.cpu.as_ref().ok()?.checked_sub(*before.cpu.as_ref().ok()?)?;
        let time = to.since(*from).as_nanos();
        u64::try_from((used.as_nanos() * 1_000_000_000).checked_div(time)?).ok()
    }

    /// The state of the agent's Lease; `None` if the agent does not run, has not tried to renew its
    /// Lease since the boot, or has another `--state-file`.
    pub(super) fn lease_report(&self) -> Option<LeaseReport> {
        let parsed = || read(&self.state_file).ok().and_then(|line| LeaseReport::parse(&line));
        // Read twice: a line that was read while the agent wrote it is whole at the second read. A
        // state file on a disk may be from an earlier boot, and does not count.
        parsed().or_else(parsed).filter(|report| {
            report.attempted <= since_boot() && !is_other_boot(report.boot, self.boot)
        })
    }

    /// Whether the agent's loop is alive, as a kubelet says it.
    pub(super) fn sync_loop(&self) -> Result<(), String> {
        sync_loop(self.lease_report(), since_boot())
    }

    /// Whether the Lease is valid.
    pub(super) fn lease(&self) -> Result<(), String> {
        lease(self.lease_report(), since_boot())
    }
}

/// The wall time; `None` if it is before this program's build, as on a board that shows 1970
/// because it has neither NTP nor RTC.
pub(super) fn wall(now: Now) -> Option<Wall> {
    Some(now.wall).filter(|wall| *wall >= clock::built())
}

/// When this process started, if the wall time can be right.
pub(super) fn started(now: Now) -> Option<Wall> {
    Some(wall(now)?.before(now.mono.since(Mono::START)))
}

/// When the machine started, if the wall time can be right.
pub(super) fn booted(now: Now) -> Option<Wall> {
    Some(wall(now)?.before(since_boot()))
}

/// The loop is alive if the last attempt to renew the Lease was within 5 minutes, or within the
/// Lease's duration if that is longer: with a long Lease the attempts are rare.
fn sync_loop(report: Option<LeaseReport>, now: Duration) -> Result<(), String> {
    let is_alive = report.is_some_and(|report| {
        now.saturating_sub(report.attempted) <= report.lease_duration.max(SYNC_LOOP)
    });
    is_alive.then_some(()).ok_or_else(|| "sync Loop took longer than expected".to_owned())
}

fn lease(report: Option<LeaseReport>, now: Duration) -> Result<(), String> {
    let report = report.ok_or("lease: no state; is nodelet running?")?;
    let age = now.saturating_sub(report.renewed.ok_or("lease: not renewed yet")?);
    if age > report.lease_duration {
        return Err(format!("lease: last renewed {} s ago", age.as_secs()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn report(attempted: u64, renewed: u64) -> Option<LeaseReport> {
        Some(LeaseReport {
            attempted: seconds(attempted),
            renewed: Some(seconds(renewed)).filter(|at| !at.is_zero()),
            lease_duration: seconds(40),
            ..LeaseReport::default()
        })
    }

    /// `pkg/kubelet/server/server_test.go` TestSyncLoopCheck, and what is around it.
    #[test]
    fn test_sync_loop_check() {
        let check = |report| sync_loop(report, seconds(1000));
        let late = Err("sync Loop took longer than expected".to_owned());
        assert_eq!(check(report(1000, 0)), Ok(()));
        assert_eq!(check(report(400, 0)), late, "10 min ago");
        assert_eq!(check(report(700, 0)), Ok(()));
        assert_eq!(check(report(699, 0)), late);
        assert_eq!(check(None), late, "the agent does not run");
        let long = report(101, 0).map(|h| LeaseReport { lease_duration: seconds(899), ..h });
        assert_eq!(check(long), Ok(()));
    }

    #[test]
    fn the_lease_is_valid_for_its_duration() {
        for (report, want) in [
            (report(1000, 1000), Ok(())),
            (report(1000, 960), Ok(())),
            (report(1000, 937), Err("lease: last renewed 63 s ago")),
            (report(1000, 0), Err("lease: not renewed yet")),
            (None, Err("lease: no state; is nodelet running?")),
        ] {
            assert_eq!(lease(report, seconds(1000)), want.map_err(str::to_owned));
        }
    }
}
