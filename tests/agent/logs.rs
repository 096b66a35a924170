//! `nodelet logs` as systemd starts it: a query is a line of stdin, and the process becomes
//! journalctl, for which a script stands in.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::{Folder, skip};

/// A folder with a journalctl of these lines of perl.
pub fn journalctl(folder: &Folder, lines: &str) {
    folder.program("bin/journalctl", format!("#!/usr/bin/env perl\n{lines}\n"));
}

/// `nodelet logs`, which finds the programs of that folder first.
pub fn logs(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodelet"));
    let path = std::env::var("PATH").unwrap();
    command.arg("logs").env("PATH", format!("{}:{path}", folder.join("bin").display()));
    command
}

fn run(mut command: Command, input: &[u8]) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A process that has refused may be gone.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// A journalctl that hangs is ended by the alarm.
#[test]
fn a_query_becomes_journalctl_with_its_arguments_and_an_alarm() {
    if !skip::has_tool("perl") {
        return;
    }
    let folder = Folder::new("logs-arguments");
    let script = "$| = 1; print \"$_\\n\" for @ARGV, 'stdin: ' . <STDIN>; print STDERR \"error\\n\"; \
                  print alarm(0), \"\\n\"";
    journalctl(&folder, script);
    let query = b"query=nodelet&tailLines=50&pattern=--all%0A%20x&since=1&boot=0\nquery=b\n";
    let output = run(logs(folder.path()), query);
    let text = String::from_utf8(output.stdout).unwrap();
    let (arguments, alarm) = text.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        arguments,
        "--utc\n--no-pager\n--output=short-precise\n--lines=50\n--unit=nodelet\n\
         --grep=--all\n x\n--boot=0\nstdin: \nerror"
    );
    // Seconds that are left of 30.
    assert!((1..=30).contains(&alarm.parse::<u32>().unwrap()), "{alarm}");
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn what_may_not_be_asked_starts_no_program() {
    if !skip::has_tool("perl") {
        return;
    }
    let folder = Folder::new("logs-refused");
    journalctl(&folder, "print 'started'");
    for (input, why) in [
        (&b""[..], "stdin: no line"),
        (b"query=nodelet", "stdin: no line"),
        (&[b'x'; 10_000], "stdin: no line"),
        (b"\xff\n", "stdin: "),
        (b"\n", "names no unit"),
        (b"tailLines=5\n", "query: name 1 to 4 units"),
        (b"query=nodelet&query=*\n", "query \"*\": write the name of a unit"),
        (b"query=/etc/shadow\n", "query \"/etc/shadow\": write the name of a unit"),
    ] {
        let output = run(logs(folder.path()), input);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(why), "{why}: {stderr}");
    }
    let mut command = logs(folder.path());
    command.env("PATH", folder.path());
    let output = run(command, b"query=nodelet\n");
    // For whoever asked.
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "nodelet: journalctl: no such file or directory\n");
}
