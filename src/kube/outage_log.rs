//! A log of outages: one line when a failure starts, one when its reason changes, and one when it
//! ends.
//!
//! A reason may change with each attempt, because it counts seconds or names another address each
//! time. Therefore the time between two failure lines of one outage grows from a minute to an hour.

use std::time::Duration;

use super::instant::Mono;

/// The outage log of one operation.
#[derive(Debug)]
pub struct OutageLog {
    what: &'static str,
    failures: u32,
    since: Mono,
    /// The last error.
    why: String,
    /// The error that was logged last in this outage.
    logged: Option<String>,
    logged_at: Option<Mono>,
    /// Shortest time from `logged_at` to the next failure line.
    pause: Duration,
}

/// Shortest time between two failure lines of one operation.
const SHORTEST: Duration = Duration::from_secs(60);
/// Longest time until another reason of the same outage is logged.
const LONGEST: Duration = Duration::from_secs(3600);

impl OutageLog {
    /// `what` begins each line.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            failures: 0,
            since: Mono::START,
            why: String::new(),
            logged: None,
            logged_at: None,
            pause: SHORTEST,
        }
    }

    /// The operation failed. Returns the number of failures in a row.
    pub fn failed(&mut self, why: &str, now: Mono) -> u32 {
        if self.failures == 0 {
            self.since = now;
        }
        self.failures = self.failures.saturating_add(1);
        why.clone_into(&mut self.why);
        let is_new = self.logged.as_deref() != Some(why);
        let may_log = self.logged_at.is_none_or(|then| now.since(then) >= self.pause);
        if is_new && may_log {
            log::warn!("{}: {why}", self.what);
            self.pause = match self.logged.replace(why.to_owned()) {
                None => SHORTEST,
                Some(_) => (self.pause * 2).clamp(SHORTEST, LONGEST),
            };
            self.logged_at = Some(now);
        }
        debug_assert!(self.failures > 0 && self.pause <= LONGEST, "{self:?}");
        self.failures
    }

    /// The operation succeeded for one of several, whose failures begin with `start`. The same
    /// failure is logged again after the pause.
    pub fn succeeded_for(&mut self, start: &str) {
        if let Some(logged) = self.logged.as_mut().filter(|logged| logged.starts_with(start)) {
            logged.clear();
        }
    }

    /// The object of the operation is gone. The next failure says why it cannot be made again, and
    /// is logged at once.
    pub fn gone(&mut self, why: &str, now: Mono) {
        self.failed(why, now);
        if self.logged.as_deref() == Some(why) {
            self.pause = Duration::ZERO;
        }
    }

    /// The operation failed if there is an error, and succeeded otherwise.
    pub fn ended(&mut self, error: Option<&str>, now: Mono) {
        match error {
            Some(why) => drop(self.failed(why, now)),
            None => drop(self.succeeded(now)),
        }
    }

    /// The last error, while the operation fails.
    pub fn last_error(&self) -> Option<&str> {
        (self.failures > 0).then_some(&self.why)
    }

    /// The operation succeeded. Returns whether it had failed before.
    pub fn succeeded(&mut self, now: Mono) -> bool {
        let failures = std::mem::take(&mut self.failures);
        if self.logged.take().is_some() {
            self.pause = SHORTEST;
            let seconds = now.since(self.since).as_secs();
            let what = self.what;
            log::info!("{what}: recovered after {seconds} s and {failures} failed attempts");
        }
        debug_assert!(self.last_error().is_none() && self.logged.is_none(), "{self:?}");
        failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::START.after(Duration::from_secs(seconds))
    }

    #[test]
    fn one_of_several_that_succeeded_may_fail_again() {
        let mut log = OutageLog::new("test");
        let is_logged = |log: &mut OutageLog, second| {
            log.failed("from a: expired", at(second));
            log.logged_at == Some(at(second))
        };
        assert!(is_logged(&mut log, 0));
        log.succeeded_for("from b: ");
        assert!(!is_logged(&mut log, 1000));
        log.succeeded_for("from a: ");
        assert!(is_logged(&mut log, 2000));
        log.succeeded_for("from a: ");
        assert!(!is_logged(&mut log, 2001), "two of one address");
        assert!(is_logged(&mut log, 2120));
    }

    /// The error in each second of an hour, and the seconds at which a line is logged.
    #[test]
    fn an_outage_is_one_line_and_changing_errors_are_few() {
        let words = |second| ["a", "b", "c"][usize::try_from(second % 3).unwrap()].to_owned();
        for (why, want) in [
            (&(|_| "refused".to_owned()) as &dyn Fn(u64) -> String, &[0][..]),
            (&words, &[0, 61, 182, 423, 904, 1865]),
            // A text that counts.
            (&|second| format!("the clock says {second}"), &[0, 60, 180, 420, 900, 1860]),
            // 500 after 503, and another address, are other reasons.
            (&|second| if second < 10 { "503".into() } else { "500".into() }, &[0, 60]),
            (&|second| format!("refused (at 10.0.0.{}:6443)", 1 + second / 1800), &[0, 1800]),
        ] {
            let mut outage = OutageLog::new("lease");
            let logs_at = |second: &u64| {
                outage.failed(&why(*second), at(*second));
                outage.logged_at == Some(at(*second))
            };
            assert_eq!((0..3600).filter(logs_at).collect::<Vec<u64>>(), want, "{}", why(0));
        }
    }

    /// The reason of the failing creates of a Lease that was deleted.
    #[test]
    fn the_first_reason_after_a_deletion_is_logged_at_once() {
        let mut outage = OutageLog::new("lease");
        for (second, is_first) in [(0, true), (10, false)] {
            outage.gone("deleted on the server", at(second));
            outage.failed("namespaces \"kube-node-lease\" not found", at(second));
            let logged = outage.logged.as_deref();
            assert_eq!(logged == Some("namespaces \"kube-node-lease\" not found"), is_first);
            outage.failed("403", at(second));
            assert_ne!(outage.logged.as_deref(), Some("403"));
            outage.succeeded(at(second));
        }
    }

    #[test]
    fn outages_that_follow_one_another_are_one_line_a_minute() {
        let mut outage = OutageLog::new("lease");
        let mut lines = 0;
        for second in 0..3600 {
            let before = outage.logged_at;
            outage.failed(["a", "b", "c"][usize::try_from(second % 3).unwrap()], at(second));
            lines += u32::from(outage.logged_at != before);
            if second % 10 == 9 {
                assert!(outage.succeeded(at(second)));
                assert!(!outage.succeeded(at(second)));
            }
        }
        assert_eq!(lines, 60);
    }
}
