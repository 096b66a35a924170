//! The form of the file in which `nodelet runtime` passes on what it knows of the container
//! runtime.
//!
//! `nodelet runtime` asks the runtime and writes these facts to a file; the agent reads the file
//! with each status. The first line is the time of the last success in milliseconds of
//! CLOCK_MONOTONIC, which both processes share, which no step of the wall clock moves, and which
//! stands still during a suspend; `-` before the first success. The second line is the facts as
//! JSON. The third line is the number of the boot, because a file on a disk outlives its boot; 0 if
//! the number is not known. The two programs may be of different versions: an unknown line or
//! member is ignored, and a missing member is not known.
//!
//! New facts are a new file. If only the time changes, the new time is written over the old time in
//! the same file; each time has 13 digits. A reader may then see some bytes of the old time and
//! some of the new time. So the line has the time twice, and a line with two different times is not
//! used: the reader keeps the time of its last read, which is one pace old.

use std::time::Duration;

use crate::kube::facts::RuntimeFacts;

/// Ready's line before the first success.
pub const NOT_YET: &str = "container runtime status check may not have completed yet";

/// The facts before the first answer.
pub fn unknown() -> RuntimeFacts {
    let network = Some("network state unknown".to_owned());
    RuntimeFacts { network, ..RuntimeFacts::default() }
}

/// The content of the file. `success` is the time of the last success since this boot.
pub fn file(facts: &RuntimeFacts, success: Option<Duration>, boot: u64) -> String {
    // 13 digits are 300 years.
    let twice = |at: u128| format!("{at:013} {at:013}");
    let time = success.map_or_else(|| "-".to_owned(), |at| twice(at.as_millis()));
    format!("{time}\n{}\n{boot}\n", serde_json::to_string(facts).unwrap_or_default())
}

/// The time of the last success, the JSON of the facts, and the number of the boot, which is 0 if a
/// former version wrote the file; `None` if `text` is no such file.
pub fn split(text: &str) -> Option<(Option<Duration>, &str, u64)> {
    let mut lines = text.lines();
    let at = match lines.next()? {
        "-" => None,
        time => {
            let (at, again) = time.split_once(' ')?;
            Some(Duration::from_millis(at.parse().ok().filter(|_| at == again)?))
        }
    };
    let json = lines.next()?;
    let boot = lines.next().and_then(|boot| boot.parse().ok()).unwrap_or_default();
    Some((at, json, boot))
}
