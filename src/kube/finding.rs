//! A line of `nodelet check`.

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
        let Fault { what, remedy } = fault.into().or_remedy(remedy);
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
