//! Times and durations in the text forms of the API and of Go flags.
//!
//! `metav1.Time` is RFC 3339 in UTC with whole seconds. `metav1.MicroTime` has exactly six fraction
//! digits; the server refuses another number.

use std::time::Duration;

/// Wall-clock time: microseconds since 1970-01-01T00:00:00Z.
///
/// Only for timestamps of API objects and certificates; intervals are measured on the monotonic
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(u64);

/// 9999-12-31T23:59:59.999999Z: later years have no RFC 3339 form.
const LAST_MICROSECOND: u64 = 253_402_300_799_999_999;

const SECONDS_PER_DAY: u64 = 86_400;

impl Wall {
    /// `since_epoch` after 1970-01-01T00:00:00Z, at most the end of the year 9999.
    pub fn from_epoch(since_epoch: Duration) -> Self {
        Self(0).after(since_epoch)
    }

    /// The next time that differs in a `metav1.MicroTime`.
    #[must_use]
    pub fn next_microsecond(self) -> Self {
        self.after(Duration::from_micros(1))
    }

    /// `delay` later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros).min(LAST_MICROSECOND))
    }

    /// `delay` earlier, but not before 1970.
    #[must_use]
    pub fn before(self, delay: Duration) -> Self {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub fn nanos(self) -> u64 {
        self.0.saturating_mul(1000)
    }

    /// Whole seconds since 1970-01-01T00:00:00Z.
    pub fn seconds(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The text of a `metav1.Time`: `2026-11-21T06:18:51Z`.
    pub fn time(self) -> String {
        let mut text = self.micro_time();
        text.truncate("2026-11-21T06:18:51".len());
        text.push('Z');
        text
    }

    /// The text of a `metav1.MicroTime`: `2026-11-21T06:18:51.209581Z`. Not by `format!`, which
    /// takes several times as many instructions: each renewal has one.
    pub fn micro_time(self) -> String {
        let date = self.civil();
        let [hour, minute, second] = date.clock;
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let digits = text.split_mut(|byte| *byte != b'0');
        let fraction = self.0 % 1_000_000;
        let numbers = [date.year, date.month, date.day, hour, minute, second, fraction];
        for (digits, mut number) in digits.zip(numbers) {
            for digit in digits.iter_mut().rev() {
                *digit += u8::try_from(number % 10).unwrap_or_default();
                number /= 10;
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Go's RFC1123Z: `Sat, 21 Nov 2026 06:18:51 +0000`.
    pub fn rfc1123(self) -> String {
        let Civil { year, month, day, clock: [hour, minute, second] } = self.civil();
        let days = self.seconds() / SECONDS_PER_DAY;
        let name = |names: &[&'static str], index: u64| {
            let index = usize::try_from(index).unwrap_or_default();
            names.get(index).copied().unwrap_or_default()
        };
        let (weekday, month) = (name(&DAYS, days % 7), name(&MONTHS, month - 1));
        format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
    }

    fn civil(self) -> Civil {
        let seconds = self.seconds();
        // The inverse of `days_before`: 400 years have 146 097 days.
        let days = seconds / SECONDS_PER_DAY + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let (year, month) = match month_from_march {
            0..=9 => (era * 400 + year_of_era, month_from_march + 3),
            _ => (era * 400 + year_of_era + 1, month_from_march - 9),
        };
        let second = seconds % SECONDS_PER_DAY;
        Civil {
            year,
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            clock: [second / 3600, second / 60 % 60, second % 60],
        }
    }

    /// Parses a `metav1.Time` or `metav1.MicroTime`.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let whole = Self::of(numbers(date, '-')?, numbers(time, ':')?)?;
        let fits =
            (1..=9).contains(&fraction.len()) && fraction.bytes().all(|b| b.is_ascii_digit());
        if !fits {
            return None;
        }
        let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        Some(Self(whole.0 + micros))
    }

    fn of([year, month, day]: [u64; 3], [hour, minute, second]: [u64; 3]) -> Option<Self> {
        let fits = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        let days = || days_before(year, month, day);
        let seconds = || days() * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        let wall = fits.then(|| Self(seconds() * 1_000_000));
        // A day after the end of the month would be a day of the next month.
        wall.filter(|wall| wall.civil().day == day)
    }
}

/// Starts with the weekday of 1970-01-01.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses the header `Date` in the IMF-fixdate form of RFC 9110:
/// `Sat, 21 Nov 2026 06:18:51 GMT`.
pub fn parse_http_date(text: &str) -> Option<Wall> {
    let text: [u8; 29] = text.as_bytes().try_into().ok()?;
    #[rustfmt::skip]
    let [_, _, _, b',', b' ', d1, d2, b' ', b1, b2, b3, b' ', y1, y2, y3, y4, b' ',
        h1, h2, b':', m1, m2, b':', s1, s2, b' ', b'G', b'M', b'T'] = text
    else {
        return None;
    };
    let is_name = |name: &str| name.as_bytes() == [b1, b2, b3];
    let (month, _) = (1..).zip(MONTHS).find(|(_, name)| is_name(name))?;
    let date = [digits(&[y1, y2, y3, y4])?, month, digits(&[d1, d2])?];
    let clock = [digits(&[h1, h2])?, digits(&[m1, m2])?, digits(&[s1, s2])?];
    Wall::of(date, clock)
}

fn number(text: &str) -> Option<u64> {
    match text.len() {
        1..=4 => digits(text.as_bytes()),
        _ => None,
    }
}

fn digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let value = digit.is_ascii_digit().then(|| digit - b'0')?;
        Some(number * 10 + u64::from(value))
    })
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(number);
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, for years from 1970.
///
/// Counts years from March, so that the leap day is the last day. 719 468 is the number of days
/// from 0000-03-01 to 1970-01-01.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// A date of the Gregorian calendar, with months and days from 1, and hour, minute and second.
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    clock: [u64; 3],
}

/// Parses a duration as Go flags do: `10s`, `5m0s`, `1h30m`, `300ms`, `1.5s`, `0`.
///
/// As in Go, a number without a unit is an error. A negative duration is an error, too: no setting
/// can be negative.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let bad = || format!("{text:?} is not a duration; write it like 10s, 5m0s or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(bad());
    }
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let part = scaled(number, *nanos).ok_or_else(bad)?;
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = tail;
    }
    Ok(Duration::from_nanos(total))
}

/// `number` (digits with at most one point) times `unit`, rounded down.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let mut total = match whole {
        "" => 0,
        _ => whole.parse::<u64>().ok()?.checked_mul(unit)?,
    };
    let mut step = unit;
    for digit in fraction.bytes() {
        step /= 10;
        total = total.checked_add(u64::from(digit - b'0') * step)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_form_of_a_date_header_is_none() {
        for text in [
            "",
            "Saturday, 21-Nov-26 06:18:51 GMT",
            "Sat Nov 21 06:18:51 2026",
            "Sat, 21 Nov 2026 06:18:51 CET",
            "Sat, 21 Nov 2026 06:18:51 GMT now",
            "Sat, 21 nov 2026 06:18:51 GMT",
            "Sat, 32 Nov 2026 06:18:51 GMT",
            "Tue, 31 Nov 2026 06:18:51 GMT",
            "Sat, 21 Nov 1969 06:18:51 GMT",
            "Sat, 21 Nov 2026 06:18 GMT",
        ] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }

    #[test]
    fn rfc1123_has_the_weekday_and_a_date_header_is_parsed() {
        for (time, day) in [
            ("1970-01-01T06:18:51Z", "Thu, 01 Jan 1970"),
            ("2000-02-29T06:18:51Z", "Tue, 29 Feb 2000"),
            ("2024-03-01T06:18:51Z", "Fri, 01 Mar 2024"),
            ("2026-11-21T06:18:51Z", "Sat, 21 Nov 2026"),
            ("2027-01-03T06:18:51Z", "Sun, 03 Jan 2027"),
        ] {
            let wall = Wall::parse(time).unwrap();
            assert_eq!(wall.rfc1123(), format!("{day} 06:18:51 +0000"));
            assert_eq!(parse_http_date(&format!("{day} 06:18:51 GMT")), Some(wall));
        }
    }

    #[test]
    fn times_have_the_text_of_the_api() {
        for (micros, time, micro_time) in [
            (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
            (951_782_399_000_000, "2000-02-28T23:59:59Z", "2000-02-28T23:59:59.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00Z", "2000-02-29T00:00:00.000001Z"),
            (1_709_164_800_000_000, "2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000000Z"),
            (1_735_689_599_000_000, "2024-12-31T23:59:59Z", "2024-12-31T23:59:59.000000Z"),
            (1_795_241_938_209_581, "2026-11-21T06:18:58Z", "2026-11-21T06:18:58.209581Z"),
            (4_107_542_399_999_999, "2100-02-28T23:59:59Z", "2100-02-28T23:59:59.999999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00Z", "2100-03-01T00:00:00.000000Z"),
            (LAST_MICROSECOND, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(Wall(micros).time(), time);
            assert_eq!(Wall(micros).micro_time(), micro_time);
            assert_eq!(Wall::parse(micro_time), Some(Wall(micros)));
            assert_eq!(Wall::parse(time), Some(Wall(micros - micros % 1_000_000)));
        }
        let end = Wall::from_epoch(Duration::MAX);
        assert_eq!((end, end.next_microsecond()), (Wall(LAST_MICROSECOND), end));
    }

    #[test]
    fn every_day_survives_a_round_trip() {
        for day in 0..40_000 {
            let wall = Wall(day * SECONDS_PER_DAY * 1_000_000 + 86_399_999_999);
            assert_eq!(Wall::parse(&wall.micro_time()), Some(wall));
        }
    }

    #[test]
    fn an_invalid_time_is_none() {
        let bad = "Z T yesterday 2026-00-01T00:00:00Z 2026-11-21 2026-11-21T06:18:58 \
                   2026-11-21T06:18:58+01:00 2026-13-21T06:18:58Z 2026-02-29T06:18:58Z \
                   2024-02-30T06:18:58Z 2100-02-29T06:18:58Z 2026-04-31T06:18:58Z \
                   1969-12-31T23:59:59Z 2026-11-21T06:18:58.Z 2026-11-21T06:18:58.1234567890Z \
                   2026-11-21T06:18:5é.0Z +026-11-21T06:18:58Z";
        for text in bad.split(' ').chain([""]) {
            assert_eq!(Wall::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, millis) in [
            ("10s", 10_000),
            ("5m0s", 300_000),
            ("1h30m", 5_400_000),
            ("300ms", 300),
            ("1.5s", 1_500),
            (".5s", 500),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "-10s", "ten", "5 s", "1d", ".s", "1..5s", "99999999999h", "s"] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }
}
