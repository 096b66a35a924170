//! Reasons and messages of the conditions.
//!
//! They are the mark of ownership: node-problem-detector uses some of the same types, and its texts
//! differ. A message does not hold a number that moves, because each change of it is a patch.

use super::listed::Statement;
use super::state::Problem;
use crate::config::problems::Kind;

/// Reason and message while the condition is False.
pub(super) fn fine(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::ReadonlyFilesystem => ("FilesystemTakesWrites", "mounted filesystems take writes"),
        Kind::FilesystemCorruptionProblem => (
            "FilesystemErrorsNotSeen",
            "no filesystem has errors on record",
        ),
        Kind::StorageWornOut => ("StorageLifeLeft", "flash wear is below 90 %"),
        Kind::UnderVoltage => ("SupplyVoltageOK", "the supply voltage is sufficient"),
        Kind::ThermalThrottling => ("TemperatureOK", "no throttling by heat"),
        Kind::KernelDeadlock => ("KernelKeepsRunning", "no oops, lockup or hung task"),
        Kind::NTPProblem => ("ClockAgrees", "the clock agrees with the API server"),
        Kind::FrequentReboot => ("BootsAreRare", "boots are rare"),
    }
}

/// Reason and message, with `*` for the part that differs, while it is True.
type Pattern = (&'static str, &'static str);

fn patterns(kind: Kind) -> &'static [Pattern] {
    match kind {
        Kind::ReadonlyFilesystem => {
            &[("FilesystemIsReadOnly", "* (* at *) stopped taking writes*")]
        }
        Kind::FilesystemCorruptionProblem => {
            &[("FilesystemCorruptionDetected", "* (*) has * on record*")]
        }
        Kind::StorageWornOut => &[
            (
                "StorageLifeNearlyUsed",
                "* used 90 % of its rated life or 80 % of its spare blocks*",
            ),
            ("StorageLifeExceeded", "* is past its rated life*"),
            ("StorageSpareBlocksUsed", "* has no spare blocks left*"),
        ],
        Kind::UnderVoltage => &[(
            "UnderVoltageDetected",
            "the supply voltage keeps dropping below the board's limit",
        )],
        Kind::ThermalThrottling => &[
            (
                "CPUThrottledByHeat",
                "heat holds the CPU below * % of its speed",
            ),
            (
                "CPUThrottledByHeat",
                "the firmware throttles the CPU above 80 °C",
            ),
            (
                "TemperatureNearCritical",
                "* is close to its shutdown at * °C*",
            ),
        ],
        Kind::KernelDeadlock => &[
            ("KernelOops", "the kernel has oopsed since boot"),
            ("SoftLockup", "a CPU was locked up in the last 10 minutes"),
            ("RCUStall", "a CPU stalled RCU in the last 10 minutes"),
            ("TaskHung", "a task hung in the last 10 minutes"),
        ],
        Kind::NTPProblem => &[
            (
                "ClockNotSet",
                "the clock is * the API server by more than *",
            ),
            ("ClockSkew", "the clock is * the API server by more than *"),
            ("NTPIsDown", "the clock is * the API server by more than *"),
            (
                "NTPIsDown",
                "systemd-timesyncd has no answer of a time server",
            ),
        ],
        Kind::FrequentReboot => &[("FrequentReboot", "* boots in * without an orderly stop")],
    }
}

/// The reason of a True condition as a text of this table; empty if it has none.
pub(super) fn reason(kind: Kind, reason: &str) -> &'static str {
    let found = patterns(kind).iter().find(|(ours, _)| *ours == reason);
    found.map_or("", |(ours, _)| ours)
}

/// The problem of a condition that an earlier process of this program wrote: `Some(None)` if it is
/// False, `None` if another program wrote it.
pub(super) fn recognize(kind: Kind, statement: &Statement) -> Option<Option<Problem>> {
    if !statement.is_true {
        let is_ours = fine(kind) == (statement.reason.as_str(), statement.message.as_str());
        return is_ours.then_some(None);
    }
    let is_ours = |(reason, pattern): &&Pattern| {
        *reason == statement.reason && matches(pattern, &statement.message)
    };
    let (reason, _) = patterns(kind).iter().find(is_ours)?;
    // The lowest rank: what this process finds replaces it.
    Some(Some(Problem {
        rank: 0,
        reason,
        message: statement.message.clone(),
    }))
}

/// Whether `text` has the parts of `pattern` in their order, with anything for each `*`.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
        last = Some(part);
    }
    // Behind the last part nothing follows, unless the pattern ends with `*`.
    last == Some("") || rest.is_empty() || last.is_some_and(|part| rest.ends_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(is_true: bool, reason: &str, message: &str) -> Statement {
        Statement {
            name: String::new(),
            is_true,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn a_pattern_matches_its_fixed_parts() {
        for (pattern, text, want) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("abc", "ab", false),
            ("* c", "a b c", true),
            ("* c", "c", false),
            ("* c*", "a c, and 1 more", true),
            ("a * b", "a x b", true),
            ("a * b", "a x b c", false),
            ("a * b", "a x b y b", true),
            ("* (*) has *", "x (y) has 1", true),
            ("* (*) has *", "x y has 1", false),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern:?} {text:?}");
        }
    }

    /// Conditions of node-problem-detector, its custom plugins and AKS.
    #[test]
    fn conditions_of_other_programs_are_not_ours() {
        for (kind, is_true, reason, message) in [
            (
                Kind::ReadonlyFilesystem,
                false,
                "FilesystemIsNotReadOnly",
                "Filesystem is not read-only",
            ),
            (
                Kind::ReadonlyFilesystem,
                true,
                "FilesystemIsReadOnly",
                "EXT4-fs (sda1): Remounting filesystem read-only",
            ),
            (
                Kind::KernelDeadlock,
                false,
                "KernelHasNoDeadlock",
                "kernel has no deadlock",
            ),
            (
                Kind::KernelDeadlock,
                true,
                "DockerHung",
                "task docker:1 blocked for more than 120 seconds.",
            ),
            (Kind::NTPProblem, false, "NTPIsUp", "ntp service is up"),
            (
                Kind::NTPProblem,
                true,
                "NTPIsDown",
                "NTP service is not running",
            ),
            (
                Kind::FilesystemCorruptionProblem,
                false,
                "FilesystemIsOK",
                "Filesystem is healthy",
            ),
            (
                Kind::FilesystemCorruptionProblem,
                true,
                "FilesystemCorruptionDetected",
                "Structure needs cleaning",
            ),
        ] {
            let theirs = statement(is_true, reason, message);
            assert_eq!(recognize(kind, &theirs), None, "{theirs:?}");
        }
    }

    #[test]
    fn our_false_texts_are_ours_and_not_with_another_status() {
        for kind in Kind::ALL {
            let (reason, message) = fine(kind);
            assert_eq!(
                recognize(kind, &statement(false, reason, message)),
                Some(None)
            );
            assert_eq!(recognize(kind, &statement(true, reason, message)), None);
            assert_eq!(recognize(kind, &statement(false, reason, "other")), None);
        }
    }
}
