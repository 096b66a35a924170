//! Commands of the binary that end by themselves, and their reports.

use std::ffi::OsStr;
use std::ops::Index;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::board::binary;

/// How a command ended, and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// `nodelet` with these arguments, without a terminal, a supervisor and a journal.
pub fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).env_remove("JOURNAL_STREAM");
    command
}

/// Runs `nodelet` with these arguments.
pub fn nodelet(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
    end(&mut command(args))
}

/// Runs a command to its end.
pub fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ended {
    /// The report in JSON; empty if there is none.
    pub fn report(&self) -> Report {
        Report(serde_json::from_str(&self.stdout).unwrap_or_default())
    }
}

/// What `nodelet check`, `join` and `reset` print with `--output=json`.
#[derive(Debug)]
pub struct Report(pub Value);

impl Index<&str> for Report {
    type Output = Value;

    fn index(&self, member: &str) -> &Value {
        &self.0[member]
    }
}

impl Report {
    pub fn checks(&self) -> &[Value] {
        self.0["checks"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The names of the checks that `is_meant`.
    pub fn names(&self, is_meant: impl Fn(&Value) -> bool) -> Vec<&str> {
        let found = self.checks().iter().filter(|check| is_meant(check));
        found.map(|check| check["check"].as_str().unwrap()).collect()
    }

    pub fn failed(&self) -> Vec<&str> {
        self.names(|check| check["ok"] == false)
    }

    pub fn finding(&self, name: &str) -> &Value {
        let found = self.checks().iter().find(|check| check["check"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    /// The detail and the remedy.
    pub fn line(&self, name: &str) -> String {
        let finding = self.finding(name);
        let text = |member: &str| finding[member].as_str().unwrap().to_owned();
        format!("{}; {}", text("detail"), text("remedy"))
    }
}
