//! The form of the file in which `nodelet runtime` passes on what it knows of the container
//! runtime.
//!
//! `nodelet runtime` asks the runtime and writes these facts to a file; the agent reads the file
//! with each status. The first line is the time of the last success in milliseconds of
//! CLOCK_BOOTTIME, which both processes share and which no step of the wall clock moves; `-` before
//! the first success. The second line is the facts as JSON. The third line is the number of the
//! boot, because a file on a disk outlives its boot; 0 if the number is not known. The two programs
//! may be of different versions: an unknown line or member is ignored, and a missing member is not
//! known.
//!
//! New facts are a new file. If nothing but the time changes, it is written over the old one, which
//! has as many digits. A reader may see some bytes of both: so the time stands there twice, and two
//! different ones are no time. The reader then has the time of its last read, which is one pace
//! old.

use std::time::Duration;

use crate::kube::facts::RuntimeFacts;

/// Ready's line before the first success.
pub const NOT_YET: &str = "container runtime status check may not have completed yet";

/// Before the first answer.
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

/// The time of the last success, the JSON of the facts, and the number of the boot, 0 of a former
/// version; `None` if `text` is no such file.
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
