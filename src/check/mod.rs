//! `nodelet check`: each thing that a run needs, looked at once, and what to do about it.
//!
//! Here is what a finding is and how it is told. `board`, `certificate` and `server` judge,
//! from plain values; `walk` goes and looks, and changes nothing.

pub mod board;
pub mod certificate;
pub(crate) mod probe;
pub mod server;

use serde_json::{Value, json};

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// As it should be.
    Fine,
    /// The run would not work.
    Wrong,
    /// Not needed, or not looked at; the run works without, as far as is known.
    Open,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A name that stays the same from version to version: `memory-controller`.
    pub check: &'static str,
    /// How it is.
    pub mark: Mark,
    /// What was found.
    pub detail: String,
    /// What to do; empty where nothing is to be done.
    pub remedy: String,
}

impl Finding {
    /// As it should be.
    pub fn fine(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            mark: Mark::Fine,
            detail: detail.into(),
            remedy: String::new(),
        }
    }

    /// `line` may tell the remedy itself, after a semicolon; else it is `remedy`.
    pub fn wrong(check: &'static str, line: &str, remedy: &str) -> Self {
        let (detail, remedy) = line.split_once("; ").unwrap_or((line, remedy));
        Self {
            check,
            mark: Mark::Wrong,
            detail: detail.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// Neither good nor bad. `remedy` is for those who want it all the same.
    pub fn open(check: &'static str, detail: impl Into<String>, remedy: &str) -> Self {
        Self {
            mark: Mark::Open,
            remedy: remedy.to_owned(),
            ..Self::fine(check, detail)
        }
    }

    fn line(&self) -> String {
        let mark = match self.mark {
            Mark::Fine => '✓',
            Mark::Wrong => '✗',
            Mark::Open => '–',
        };
        let line = format!("{mark} {}: {}", self.check, self.detail);
        match self.remedy.as_str() {
            "" => line,
            remedy => format!("{line}; {remedy}"),
        }
    }
}

/// All findings, in the order in which a run needs the things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the Node.
    pub node_name: String,
    /// One for each check, whatever came of it.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The names of what is wrong.
    pub fn wrong(&self) -> Vec<&'static str> {
        let wrong = |finding: &&Finding| finding.mark == Mark::Wrong;
        let findings = self.findings.iter().filter(wrong);
        findings.map(|finding| finding.check).collect()
    }

    /// A line each, for people.
    pub fn text(&self) -> String {
        let lines: Vec<String> = self.findings.iter().map(Finding::line).collect();
        lines.join("\n")
    }

    /// For fleets: `ok` is null where a check is open.
    pub fn json(&self) -> Value {
        let ok = |mark| match mark {
            Mark::Fine => Some(true),
            Mark::Wrong => Some(false),
            Mark::Open => None,
        };
        let checks: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "check": finding.check,
                    "ok": ok(finding.mark),
                    "detail": finding.detail,
                    "remedy": finding.remedy,
                })
            })
            .collect();
        let ok = self.wrong().is_empty();
        json!({"nodeName": self.node_name, "ok": ok, "checks": checks})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_and_one_object() {
        let report = |findings| Report {
            node_name: "pi".into(),
            findings,
        };
        let fine = report(vec![
            Finding::fine("cgroups", "v2"),
            Finding::open("psi", "none", "boot with psi=1"),
            Finding::open("csr-create", "not needed", ""),
        ]);
        assert_eq!(
            fine.text(),
            "✓ cgroups: v2\n– psi: none; boot with psi=1\n– csr-create: not needed"
        );
        assert_eq!(fine.wrong(), [] as [&str; 0]);
        assert_eq!(fine.json()["ok"], true);
        let wrong = report(vec![
            Finding::wrong("tcp", "10.0.0.1:6443: connection refused", "is it up?"),
            Finding::wrong("tls", "expired; renew it; or not", "is it up?"),
        ]);
        assert_eq!(
            wrong.text(),
            "✗ tcp: 10.0.0.1:6443: connection refused; is it up?\n\
             ✗ tls: expired; renew it; or not"
        );
        assert_eq!(wrong.wrong(), ["tcp", "tls"]);
        assert_eq!(
            wrong.json(),
            json!({"nodeName": "pi", "ok": false, "checks": [
                {"check": "tcp", "ok": false, "detail": "10.0.0.1:6443: connection refused",
                 "remedy": "is it up?"},
                {"check": "tls", "ok": false, "detail": "expired", "remedy": "renew it; or not"},
            ]})
        );
        assert_eq!(fine.json()["checks"][1]["ok"], Value::Null);
    }
}
