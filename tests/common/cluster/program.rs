//! A program of a cluster as a child process, with its log in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Killed on drop. If the test fails, the end of its log is printed.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    pub fn start(mut command: Command, log: PathBuf) -> Self {
        let sink = File::create(&log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(sink.try_clone().unwrap())
            .stderr(sink)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()));
        Self { child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status and the end of its log, once it has ended by itself.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().unwrap()?;
        Some(format!("{status}: {}", self.end_of_log()))
    }

    /// The path of its log, and the last lines.
    pub fn end_of_log(&self) -> String {
        format!("{}:\n{}", self.log.display(), last_lines(&self.log))
    }
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            println!("{}", self.end_of_log());
        }
    }
}
