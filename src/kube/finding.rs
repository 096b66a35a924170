//! The findings of `nodelet check` and `nodelet join`: one line for a person, one object for a
//! program.

use serde_json::{Value, json};

use super::text::{Fault, one_line};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A run works with this.
    Ok,
    /// A run would not work, or the cluster would suffer.
    Failed,
    /// Not needed, or missing but optional.
    Note,
    /// Not checked, because an earlier check failed.
    Skipped,
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A name that stays the same from version to version: `memory-controller`.
    pub check: &'static str,
    /// The result.
    pub mark: Mark,
    /// What was found.
    pub detail: String,
    /// What to do; empty if there is nothing to do.
    pub remedy: String,
}

impl Finding {
    /// A run works with this.
    pub fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, mark: Mark::Ok, detail: one_line(&detail.into()), remedy: String::new() }
    }

    /// See [`Mark::Failed`]. The remedy of `fault` wins over `remedy`.
    pub fn failed(check: &'static str, fault: impl Into<Fault>, remedy: &str) -> Self {
        let Fault { what, remedy, .. } = fault.into().or_remedy(remedy);
        Self { mark: Mark::Failed, remedy: one_line(&remedy), ..Self::ok(check, what) }
    }

    /// Not needed, or missing but optional; `remedy` says how to get it, unless `fault` has one.
    pub fn note(check: &'static str, fault: impl Into<Fault>, remedy: &str) -> Self {
        Self { mark: Mark::Note, ..Self::failed(check, fault, remedy) }
    }

    /// Not checked, because the check `cause` failed.
    pub fn skipped(check: &'static str, cause: &str) -> Self {
        Self { mark: Mark::Skipped, ..Self::ok(check, format!("skipped because of {cause}")) }
    }

    /// `✓ check: detail; remedy`.
    pub fn line(&self) -> String {
        let mark = match self.mark {
            Mark::Ok => '✓',
            Mark::Failed => '✗',
            Mark::Note | Mark::Skipped => '–',
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
    /// One for each check. The skipped ones have one cause and come last.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The names of the failed checks.
    pub fn failed(&self) -> Vec<&'static str> {
        self.names(Mark::Failed)
    }

    fn names(&self, mark: Mark) -> Vec<&'static str> {
        let findings = self.findings.iter().filter(|f| f.mark == mark);
        findings.map(|finding| finding.check).collect()
    }

    /// The line with which the command fails, if a check failed.
    pub fn end(&self, command: &str) -> Result<(), String> {
        match self.failed().as_slice() {
            [] => Ok(()),
            failed => Err(format!("{command} failed: {}", failed.join(", "))),
        }
    }

    /// One line for each check, then one line for all skipped checks.
    pub fn text(&self) -> String {
        let is_skipped = |finding: &&Finding| finding.mark == Mark::Skipped;
        let checked = self.findings.iter().filter(|f| !is_skipped(f));
        let mut lines: Vec<String> = checked.map(Finding::line).collect();
        lines.extend(self.skipped());
        lines.join("\n")
    }

    /// The line for all skipped checks, if there are any.
    pub fn skipped(&self) -> Option<String> {
        let mut findings = self.findings.iter();
        let first = findings.find(|finding| finding.mark == Mark::Skipped)?;
        let (detail, names) = (&first.detail, self.names(Mark::Skipped));
        let count = names.len();
        Some(format!("– {detail}: {} ({count})", names.join(", ")))
    }

    /// One object for each check, for programs: `ok` is null for a note and a skipped check.
    pub fn json(&self) -> Value {
        let ok = |mark| match mark {
            Mark::Ok => Some(true),
            Mark::Failed => Some(false),
            Mark::Note | Mark::Skipped => None,
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
        let ok = self.failed().is_empty();
        json!({"nodeName": self.node_name, "ok": ok, "checks": checks})
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Each line begins with its mark and has the part behind the first space. `–` is a note: a
    /// skipped check has the same mark.
    pub(crate) fn assert_lines(rows: &[(Finding, &str)]) {
        for (finding, want) in rows {
            let ((mark, part), line) = (want.split_once(' ').unwrap(), finding.line());
            assert_ne!(finding.mark, Mark::Skipped, "{line:?}");
            assert!(line.starts_with(mark) && line.contains(part), "{line:?} instead of {want:?}");
        }
    }

    #[test]
    fn a_finding_is_one_line_and_one_object() {
        let ok = vec![
            Finding::ok("cgroups", "v2\nx"),
            Finding::note("psi", "none", "boot with psi=1\r"),
            Finding::note("csr-create", "not needed", ""),
        ];
        let mut report = Report { node_name: "pi".into(), findings: ok };
        let lines = "✓ cgroups: v2 x\n– psi: none; boot with psi=1 \n– csr-create: not needed";
        assert_eq!(report.text(), lines);
        assert_eq!((report.failed(), &report.json()["ok"]), (vec![], &json!(true)));
        report.findings = vec![
            // Foreign text.
            Finding::failed("tcp", "\u{1b}[2Jd\u{9b}", "e\n<0>f"),
            Finding::failed("tls", Fault::new("expired", "renew it; or not"), "is it up?"),
            Finding::note("psi", "none", ""),
            Finding::skipped("authentication", "tls"),
            Finding::skipped("node-get", "tls"),
        ];
        assert_eq!(
            report.text(),
            "✗ tcp:  [2Jd ; e <0>f\n\
             ✗ tls: expired; renew it; or not\n\
             – psi: none\n\
             – skipped because of tls: authentication, node-get (2)"
        );
        assert_eq!(report.failed(), ["tcp", "tls"]);
        let skipped = "skipped because of tls";
        assert_eq!(
            report.json(),
            json!({"nodeName": "pi", "ok": false, "checks": [
                {"check": "tcp", "ok": false, "detail": " [2Jd ", "remedy": "e <0>f"},
                {"check": "tls", "ok": false, "detail": "expired", "remedy": "renew it; or not"},
                {"check": "psi", "ok": null, "detail": "none", "remedy": ""},
                {"check": "authentication", "ok": null, "detail": skipped, "remedy": ""},
                {"check": "node-get", "ok": null, "detail": skipped, "remedy": ""},
            ]})
        );
    }
}
