//! Judges the sources of the board's health. A problem is no reason why a run would not work.

use super::{Finding, Mark};
use crate::health::config::HealthConfig;
use crate::health::{CheckTexts, ConditionKind, KINDS};
use crate::kube::facts::HealthConditions;

/// The finding for `kind`. `conditions` has those of all sources, `sources` their files.
pub fn finding(
    kind: &ConditionKind,
    config: &HealthConfig,
    conditions: &HealthConditions,
    sources: &[String],
) -> Finding {
    let CheckTexts { name: check, absent, remedy } = kind.check;
    if !config.detects(kind.name) {
        return Finding::note(check, "not detected, by --node-problem-detection", "");
    }
    let with_sources = |text: &str| match sources {
        [] => text.to_owned(),
        sources => format!("{text} ({})", sources.join(", ")),
    };
    let Some(condition) = conditions.known.iter().find(|c| c.name == kind.name) else {
        return Finding::note(check, with_sources(absent), "");
    };
    let detail = with_sources(&condition.message);
    if condition.is_true {
        Finding::note(check, format!("{} would be True: {detail}", condition.name), remedy)
    } else {
        Finding::ok(check, detail)
    }
}

/// What shows the problems of all boards; `systemd/health.md` explains it.
pub const ALL_BOARDS: &str = "kubectl get nodes -l kubernetes.io/os=nodelet -o custom-columns=\
    'NAME:.metadata.name,READY:.status.conditions[?(@.type==\"Ready\")].status,\
    TRUE:.status.conditions[?(@.status==\"True\")].type'";

/// The line behind the findings of a board that has a problem.
pub fn hint(findings: &[Finding]) -> Option<String> {
    let is_health = |finding: &Finding| KINDS.iter().any(|kind| kind.check.name == finding.check);
    let mut findings = findings.iter();
    let has_problem =
        findings.any(|f| f.mark == Mark::Note && !f.remedy.is_empty() && is_health(f));
    has_problem.then(|| format!("– the problems of all boards: {ALL_BOARDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::assert_lines;
    use crate::kube::facts::HealthCondition;

    #[test]
    fn a_source_has_a_line_and_a_problem_has_a_remedy() {
        let kind = KINDS.iter().find(|kind| kind.name == "UnderVoltage").unwrap();
        let sources = ["sys/a is 1".to_owned()];
        let found = |detection: &str, is_true: bool| {
            let condition = HealthCondition {
                name: "UnderVoltage".into(),
                is_true,
                reason: "R".into(),
                message: "the message".into(),
                event_reason: "R",
                is_always_listed: false,
            };
            let conditions = HealthConditions { known: vec![condition], absent: Vec::new() };
            finding(kind, &HealthConfig::parse(detection, &[]).unwrap(), &conditions, &sources)
        };
        let [fine, bad] = [false, true].map(|is_true| found("problems", is_true));
        assert_eq!(hint(std::slice::from_ref(&fine)), None);
        assert!(hint(std::slice::from_ref(&bad)).unwrap().ends_with(ALL_BOARDS));
        // A missing tool is no problem of the board's health.
        assert_eq!(hint(&[Finding::note("metrics", "off", "enable it")]), None);
        let remedy = kind.check.remedy;
        assert_lines(&[
            (fine, "✓ under-voltage: the message (sys/a is 1)"),
            (bad, &format!("– UnderVoltage would be True: the message (sys/a is 1); {remedy}")),
            (found("-UnderVoltage", true), "– not detected"),
        ]);
        let all = HealthConfig::parse("problems", &[]).unwrap();
        for kind in KINDS {
            let absent = |sources| finding(kind, &all, &HealthConditions::default(), sources);
            let CheckTexts { name, absent: why, .. } = kind.check;
            assert_eq!(absent(&[]), Finding::note(name, why, ""));
            // A file that is there and shows no number.
            assert_eq!(absent(&sources).detail, format!("{why} (sys/a is 1)"));
        }
    }
}
