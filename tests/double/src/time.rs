//! Times as Kubernetes writes them.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

thread_local! {
    static SET: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Sets the time, since 1970, that this crate reads on this thread; `None` is the machine's clock.
pub fn set_time(since_1970: Option<Duration>) {
    SET.set(since_1970);
}

/// The time since 1970.
pub(crate) fn since_1970() -> Duration {
    let machine = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    SET.get().unwrap_or_else(machine)
}

/// Now, as `metav1.Time` is written: whole seconds, UTC, `Z`.
pub(crate) fn now() -> String {
    seconds(current())
}

/// `seconds` from now, written as [`now`].
pub(crate) fn after(seconds: u64) -> String {
    self::seconds(current() + Duration::from_secs(seconds))
}

fn current() -> Timestamp {
    let whole = i64::try_from(since_1970().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(whole).unwrap_or(Timestamp::MAX)
}

pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Now, as certificates have it (GeneralizedTime).
pub(crate) fn generalized() -> String {
    current().strftime("%Y%m%d%H%M%SZ").to_string()
}

/// Now, as HTTP's `Date` header has it.
pub(crate) fn http_date() -> String {
    current().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// `metav1.Time`: any RFC 3339 time is read, a fraction is cut off.
pub(crate) fn parse_time(text: &str) -> Result<String, String> {
    text.parse::<Timestamp>().map(seconds).map_err(|error| error.to_string())
}

/// `metav1.MicroTime`: exactly six fraction digits, on input too.
pub(crate) fn parse_micro_time(text: &str) -> Result<String, String> {
    let error = |rest: &str, expected: &str| {
        let layout = "2006-01-02T15:04:05.000000Z07:00";
        format!(
            "parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{expected}\""
        )
    };
    let at: Timestamp = text.parse().map_err(|_| error(text, "2006"))?;
    let rest = text.get(19..).unwrap_or_default();
    let fraction = rest.strip_prefix('.').unwrap_or_default();
    if fraction.bytes().take_while(u8::is_ascii_digit).count() != 6 {
        return Err(error(rest, ".000000"));
    }
    Ok(at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
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
