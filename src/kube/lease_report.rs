//! The line of `--state-file`, from which `nodelet serve` learns the state of the Lease. Its length
//! is fixed.
//!
//! The agent writes the line over the last one without a lock, so a reader may see the start of the
//! new line and the end of the old one. The time of the attempt is at the start and at the end: if
//! these differ, the line is torn, and the reader reads it again. Times are since boot, suspend
//! included, which all processes measure by the same clock. A file on a disk outlives its boot, so
//! the line has a number of the boot.

use std::fmt::Write as _;
use std::time::Duration;

/// The state of the Lease after an attempt to renew it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseReport {
    /// Start of the last request of the Lease, since boot.
    pub attempted: Duration,
    /// Start of the last renewal, since boot; `None` if there was none.
    pub renewed: Option<Duration>,
    /// How long a renewal lasts: `leaseDurationSeconds`.
    pub lease_duration: Duration,
    /// Renewals since the start of the agent. The create of the Lease is one.
    pub renewals: u64,
    /// Requests of the Lease since the start of the agent that the server refused, or did not
    /// answer.
    pub failures: u64,
    /// The number of the boot; 0 if it is not known.
    pub boot: u64,
}

/// Seven numbers of 20 digits in milliseconds or pieces, each with a separator.
const LENGTH: usize = 7 * 21;
/// The length of the line of a former version, which has no number of the boot.
const FORMER_LENGTH: usize = 6 * 21;

impl LeaseReport {
    /// The line, with its newline.
    pub fn line(&self) -> String {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let attempted = milliseconds(self.attempted);
        let renewed = self.renewed.map_or(0, milliseconds);
        let duration = milliseconds(self.lease_duration);
        let Self { renewals, failures, boot, .. } = self;
        let mut line = String::with_capacity(LENGTH);
        // A String takes every text.
        let _ = writeln!(
            line,
            "{attempted:020} {renewed:020} {duration:020} {renewals:020} {failures:020} \
             {boot:020} {attempted:020}"
        );
        line
    }

    /// The line as [`Self::line`] writes it; `None` for anything else, and for a torn one.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if ![LENGTH, FORMER_LENGTH].contains(&line.len()) {
            return None;
        }
        let mut numbers = str::from_utf8(line).ok()?.strip_suffix('\n')?.split(' ').map(number);
        let mut next = || numbers.next().flatten();
        let (attempted, renewed, duration) = (next()?, next()?, next()?);
        let (renewals, failures) = (next()?, next()?);
        let boot = if line.len() == LENGTH { next()? } else { 0 };
        let end = next()?;
        (attempted == end).then(|| Self {
            attempted: Duration::from_millis(attempted),
            renewed: (renewed > 0).then(|| Duration::from_millis(renewed)),
            lease_duration: Duration::from_millis(duration),
            renewals,
            failures,
            boot,
        })
    }
}

/// Digits alone: `parse` of std takes a sign.
fn number(digits: &str) -> Option<u64> {
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> LeaseReport {
        LeaseReport {
            attempted: Duration::from_millis(99_999),
            renewed: Some(Duration::from_millis(89_999)),
            lease_duration: Duration::from_secs(40),
            renewals: 9,
            failures: 1,
            boot: 7,
        }
    }

    #[test]
    fn a_line_has_one_length_and_is_read_as_it_was_written() {
        let largest = LeaseReport {
            attempted: Duration::MAX,
            renewed: Some(Duration::MAX),
            lease_duration: Duration::MAX,
            renewals: u64::MAX,
            failures: u64::MAX,
            boot: u64::MAX,
        };
        for report in [LeaseReport::default(), example(), largest] {
            assert_eq!(report.line().len(), LENGTH, "{report:?}");
        }
        for report in [LeaseReport::default(), example()] {
            assert_eq!(LeaseReport::parse(report.line().as_bytes()), Some(report));
        }
        assert_eq!(
            example().line(),
            "00000000000000099999 00000000000000089999 00000000000000040000 \
             00000000000000000009 00000000000000000001 00000000000000000007 \
             00000000000000099999\n"
        );
        let former = example().line().replace(" 00000000000000000007", "");
        let report = LeaseReport { boot: 0, ..example() };
        assert_eq!(LeaseReport::parse(former.as_bytes()), Some(report));
    }

    /// A reader sees the new line up to any byte, and the old one behind it.
    #[test]
    fn a_torn_line_is_none() {
        let old = example();
        let new = LeaseReport {
            attempted: Duration::from_millis(100_000),
            renewed: Some(Duration::from_millis(100_000)),
            renewals: 10,
            ..old
        };
        let (first, second) = (new.line(), old.line());
        for cut in 0..=LENGTH {
            let torn = [&first.as_bytes()[..cut], &second.as_bytes()[cut..]].concat();
            let parsed = LeaseReport::parse(&torn);
            assert!([None, Some(old), Some(new)].contains(&parsed), "{cut}: {parsed:?}");
        }
    }

    #[test]
    fn another_text_is_none() {
        let line = example().line();
        for text in [
            String::new(),
            line.trim_end().to_owned(),
            line.replacen('0', "+", 1),
            line.replacen('0', "x", 1),
            line.replacen(' ', "0", 1),
            format!("{line}\n"),
            "9".repeat(LENGTH),
        ] {
            assert_eq!(LeaseReport::parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
