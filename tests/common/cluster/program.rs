//! A program of a cluster as a child process, with its log in a file.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Killed on drop. If the test fails, the end of its log is printed.
pub struct Program {
    command: Command,
    child: Child,
    log: PathBuf,
}

impl Program {
    pub fn start(mut command: Command, log: PathBuf) -> Self {
        let sink = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(sink.try_clone().unwrap()).stderr(sink);
        let child = spawn(&mut command);
        Self { command, child, log }
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again after [`Self::kill`].
    pub fn start_again(&mut self) {
        self.child = spawn(&mut self.command);
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.pid().try_into().unwrap());
        nix::sys::signal::kill(id, signal).unwrap();
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

/// Ports of loopback for programs.
pub fn free_ports<const N: usize>() -> [u16; N] {
    // All are bound at the same time, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn spawn(command: &mut Command) -> Child {
    let started = command.spawn();
    started.unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()))
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            println!("{}", self.end_of_log());
        }
    }
}
