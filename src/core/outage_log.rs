//! Edges, not levels: a healthy day is a handful of lines.
//!
//! What keeps failing is said once, said again when its reason changes, and closed
//! with one line when it is over; none of it more than once a minute.

use std::time::Duration;

use crate::core::instant::Mono;

/// Something that should always succeed, and its lines in the log when it does not.
#[derive(Debug)]
pub struct OutageLog {
    what: &'static str,
    failures: u32,
    since: Mono,
    /// Why it failed the last time.
    why: String,
    /// The reason that was said of this outage.
    said: Option<String>,
    said_at: Option<Mono>,
}

/// What fails now and then, or with another reason each time, may say so this often.
const AT_MOST_EVERY: Duration = Duration::from_secs(60);

impl OutageLog {
    /// `what` begins each line.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            failures: 0,
            since: Mono::START,
            why: String::new(),
            said: None,
            said_at: None,
        }
    }

    /// It failed. How often in a row by now.
    pub fn failed(&mut self, why: &str, now: Mono) -> u32 {
        if self.failures == 0 {
            self.since = now;
        }
        self.failures = self.failures.saturating_add(1);
        why.clone_into(&mut self.why);
        let news = self.said.as_deref().is_none_or(|said| !is_same(said, why));
        let patience = self
            .said_at
            .is_none_or(|then| now.since(then) >= AT_MOST_EVERY);
        if news && patience {
            log::warn!("{}: {why}", self.what);
            self.said = Some(why.to_owned());
            self.said_at = Some(now);
        }
        self.failures
    }

    /// Why it fails, while it does.
    pub fn trouble(&self) -> Option<&str> {
        (self.failures > 0).then_some(&self.why)
    }

    /// It succeeded. Whether it had failed before.
    pub fn succeeded(&mut self, now: Mono) -> bool {
        let failures = std::mem::take(&mut self.failures);
        if self.said.take().is_some() {
            let seconds = now.since(self.since).as_secs();
            let what = self.what;
            log::info!("{what}: well again after {seconds} s and {failures} failed attempts");
        }
        failures > 0
    }
}

/// Whether two reasons differ in numbers at most: times and counts are no news.
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
    fn an_outage_is_one_line_and_flapping_no_more_than_one_a_minute() {
        let mut edge = OutageLog::new("lease");
        let mut said = 0;
        for second in 0..3600 {
            let before = edge.said_at;
            edge.failed(
                ["a", "b", "c"][usize::try_from(second % 3).unwrap_or(0)],
                at(second),
            );
            said += u32::from(edge.said_at != before);
            if second % 10 == 9 {
                assert!(edge.succeeded(at(second)));
                assert!(!edge.succeeded(at(second)));
            }
        }
        assert_eq!(said, 60);

        let mut edge = OutageLog::new("lease");
        for second in 0..3600 {
            edge.failed(&format!("the clock says {second}"), at(second));
            assert_eq!(edge.said_at, Some(at(0)));
        }
    }
}
