//! Times as Kubernetes writes them.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, as `metav1.Time` is written: whole seconds, UTC, `Z`.
pub(crate) fn now() -> String {
    seconds(current())
}

/// `seconds` from now, written as [`now`].
pub(crate) fn after(seconds: u64) -> String {
    self::seconds(current() + Duration::from_secs(seconds))
}

fn current() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(whole).unwrap_or(Timestamp::MAX)
}

pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Now, as HTTP's `Date` header has it.
pub(crate) fn http_date() -> String {
    current().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// `metav1.Time`: any RFC 3339 time is read, a fraction is cut off.
pub(crate) fn parse_time(text: &str) -> Result<String, String> {
    let layout = "2006-01-02T15:04:05Z07:00";
    if !starts_like_date(text) {
        return Err(go_error(text, layout, text, "2006"));
    }
    text.parse::<Timestamp>()
        .map(seconds)
        .map_err(|_| go_error(text, layout, text.get(19..).unwrap_or(""), "Z07:00"))
}

/// `metav1.MicroTime`: exactly six fraction digits, on input too.
pub(crate) fn parse_micro_time(text: &str) -> Result<String, String> {
    let layout = "2006-01-02T15:04:05.000000Z07:00";
    if !starts_like_date(text) {
        return Err(go_error(text, layout, text, "2006"));
    }
    let rest = text.get(19..).unwrap_or("");
    let bytes = rest.as_bytes();
    let digits = bytes.iter().skip(1).take_while(|b| b.is_ascii_digit());
    if bytes.first() != Some(&b'.') || digits.count() != 6 {
        return Err(go_error(text, layout, rest, ".000000"));
    }
    text.parse::<Timestamp>()
        .map(|at| at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
        .map_err(|_| go_error(text, layout, rest, "Z07:00"))
}

fn starts_like_date(text: &str) -> bool {
    text.len() >= 19
        && text
            .bytes()
            .take(19)
            .zip("dddd-dd-ddTdd:dd:dd".bytes())
            .all(|(have, want)| if want == b'd' { have.is_ascii_digit() } else { have == want })
}

fn go_error(text: &str, layout: &str, rest: &str, expected: &str) -> String {
    format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{expected}\"")
}

/// How long ago, as kubectl and the Tables write it (`duration.HumanDuration`), of hours at most.
pub(crate) fn age(since: &Value) -> String {
    let at: Timestamp = since.as_str().unwrap_or_default().parse().unwrap_or_default();
    let seconds = current().as_second() - at.as_second();
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 if seconds % 60 > 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..10800 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}
