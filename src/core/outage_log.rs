//! A log of outages: one line when a failure starts, one when its reason changes, and one when it
//! ends; at most one failure line a minute.

use std::time::Duration;

use crate::core::instant::Mono;

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
}

/// Shortest time between two failure lines of one operation.
const INTERVAL: Duration = Duration::from_secs(60);

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
        }
    }

    /// The operation failed. Returns the number of failures in a row.
    pub fn failed(&mut self, why: &str, now: Mono) -> u32 {
        if self.failures == 0 {
            self.since = now;
        }
        self.failures = self.failures.saturating_add(1);
        why.clone_into(&mut self.why);
        let is_new = self.logged.as_deref().is_none_or(|l| !is_same(l, why));
        let may_log = self.logged_at.is_none_or(|then| now.since(then) >= INTERVAL);
        if is_new && may_log {
            log::warn!("{}: {why}", self.what);
            self.logged = Some(why.to_owned());
            self.logged_at = Some(now);
        }
        self.failures
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
            let seconds = now.since(self.since).as_secs();
            let what = self.what;
            log::info!("{what}: recovered after {seconds} s and {failures} failed attempts");
        }
        failures > 0
    }
}

/// Whether two errors are equal apart from numbers, such as times and counts.
fn is_same(one: &str, other: &str) -> bool {
    let words = |text: &'_ str| -> String { text.split(|c: char| c.is_ascii_digit()).collect() };
    words(one) == words(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::START.after(Duration::from_secs(seconds))
    }

    #[test]
    fn an_outage_is_one_line_and_changing_errors_one_a_minute() {
        let mut outage = OutageLog::new("lease");
        let mut lines = 0;
        for second in 0..3600 {
            let before = outage.logged_at;
            outage.failed(["a", "b", "c"][usize::try_from(second % 3).unwrap_or(0)], at(second));
            lines += u32::from(outage.logged_at != before);
            if second % 10 == 9 {
                assert!(outage.succeeded(at(second)));
                assert!(!outage.succeeded(at(second)));
            }
        }
        assert_eq!(lines, 60);

        let mut outage = OutageLog::new("lease");
        for second in 0..3600 {
            outage.failed(&format!("the clock says {second}"), at(second));
            assert_eq!(outage.logged_at, Some(at(0)));
        }
    }
}
