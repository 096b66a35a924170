//! `nodelet check`: checks each thing that a run needs, once, and names the remedy; and `nodelet
//! inspect`: the Node that a run would register.
//!
//! This file has the commands, and the two output forms of all findings. `board`, `server` and
//! `guest` judge plain values, and `crate::runtime` the container runtime. `setup` checks the flags
//! against the machine. `probe` and `port` read files and send requests, and change nothing.

pub mod board;
pub mod guest;
mod port;
mod probe;
pub mod server;
pub(crate) mod setup;
pub(crate) mod units;

use serde_json::{Value, json};

use self::setup::Setup;
use crate::config::flags::Flags;
pub use crate::kube::text::{Finding, Mark};
use crate::kube::{describe, object};
use crate::os::clock::Clock;
use crate::os::command::{CommandFailure, End, print};
use crate::os::logging;

/// Prints the Node that a run would register, as JSON or as text. Each fact that cannot be read is
/// one line on stderr, and not a failure. Not inlined, as [`check`]: its locals would be a part of
/// the stack of every command.
#[inline(never)]
pub fn inspect(flags: Box<Flags>, is_json: bool) -> End {
    let mut setup = Setup::for_a_run(*flags)?;
    let clock = Clock::start();
    let (mut desired, _) = setup.desired(&clock);
    let mut health = setup.board_health(clock);
    health
        .if_it_lasted()
        .apply(object::elements(&mut desired.node, &["status", "conditions"]), clock.now().wall);
    for line in &desired.missing {
        logging::print_error(line);
    }
    print(&if is_json { format!("{:#}", desired.node) } else { describe::node(&desired.node) })
}

/// Checks everything that a run needs and changes nothing. Fails if a run would not work. `unit` is
/// what was found of the process of nodelet.service, if its flags are checked.
#[inline(never)]
pub fn check(flags: Box<Flags>, is_json: bool, unit: Option<Finding>) -> End {
    let mut setup = Setup::for_a_run(*flags)?;
    let report = probe::report(&mut setup, unit, &Clock::start());
    print(&if is_json { format!("{:#}", report.json()) } else { report.text() })?;
    report.end("check")
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

    /// The end of the command that this is the report of.
    pub fn end(&self, command: &str) -> End {
        match self.failed().as_slice() {
            [] => Ok(()),
            failed => {
                Err(CommandFailure::Other(format!("{command} failed: {}", failed.join(", "))))
            }
        }
    }

    /// One line for each check, then one line for all skipped checks, and one that says where the
    /// problems of all boards are, if this one has any.
    pub fn text(&self) -> String {
        let is_skipped = |finding: &&Finding| finding.mark == Mark::Skipped;
        let checked = self.findings.iter().filter(|f| !is_skipped(f));
        let mut lines: Vec<String> = checked.map(Finding::line).collect();
        lines.extend(self.skipped());
        lines.extend(board::hint(&self.findings));
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
mod tests {
    use super::*;
    use crate::kube::text::Fault;

    /// Each line begins with its mark and has the part behind the first space. `–` is a note: a
    /// skipped check has the same mark.
    pub(super) fn assert_lines(rows: &[(Finding, &str)]) {
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
