//! A virtual board: qemu, and the shell on its console.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use support::eventually;

use crate::image;

/// Software emulation on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// CPUs and memory of the guest, which the test compares with the Node.
pub const CPUS: u64 = 2;
pub const MEMORY_MIB: u64 = 192;

/// The clock of the guest.
pub enum Pace {
    /// The clock of this machine.
    Free,
    /// One instruction per nanosecond, so that the CPU time of a process in nanoseconds is its
    /// number of instructions, those of the kernel included. With one CPU, because the clock
    /// counts the instructions of all CPUs.
    Counted,
}

/// A running virtual machine; killed on drop.
pub struct Guest {
    qemu: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    console: Vec<String>,
    questions: usize,
    /// A port of this machine's loopback that leads to the guest's port 10250.
    pub port: u16,
}

impl Guest {
    /// Starts the kernel of image.sh with an initramfs and perhaps a disk, `/dev/vda`; waits for
    /// the shell on the console.
    pub fn boot(initramfs: &Path, pace: &Pace, options: &str, disk: Option<&Path>) -> Self {
        let pace = match pace {
            Pace::Free => format!("-smp {CPUS}"),
            Pace::Counted => "-smp 1 -icount shift=0".to_owned(),
        };
        let mut qemu = Command::new(image().join("qemu"));
        // The clock of a board with an empty RTC battery.
        qemu.args(["-M", "virt", "-cpu", "cortex-a53", "-rtc", "base=1970-01-02"])
            .args(pace.split(' '))
            .args(["-m", &MEMORY_MIB.to_string()])
            .args(["-device", "virtio-net-device,netdev=net"])
            .arg("-kernel")
            .arg(image().join("vmlinuz"))
            .arg("-initrd")
            .arg(initramfs)
            .arg("-append")
            .arg(format!(
                "console=ttyAMA0 quiet psi=1 panic=-1 systemd.show_status=false {options}"
            ));
        if let Some(disk) = disk {
            let drive = format!("if=none,id=disk,format=raw,file={}", disk.display());
            qemu.args(["-drive", &drive, "-device", "virtio-blk-device,drive=disk"]);
        }
        let mut guest = Self::start(qemu);
        guest.read_until("CONSOLE");
        guest.run("dmesg -n 1");
        guest
    }

    /// Starts a machine with a network `net` and its console on stdio.
    pub fn start(mut qemu: Command) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut qemu = qemu
            .args(["-nodefaults", "-display", "none", "-serial", "stdio"])
            .args(["-no-reboot", "-netdev"])
            .arg(format!("user,id=net,hostfwd=tcp:127.0.0.1:{port}-:10250"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = qemu.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                if sender.send(line.trim_end_matches('\r').to_owned()).is_err() {
                    return;
                }
            }
        });
        let input = qemu.stdin.take().unwrap();
        Self { input, qemu, lines, console: Vec::new(), questions: 0, port }
    }

    /// Standard output and error of a command that succeeds, trimmed.
    pub fn run(&mut self, command: &str) -> String {
        let (output, code) = self.ask(command);
        assert_eq!(code, "0", "{command}: {output}");
        output
    }

    /// The same of a command that may fail.
    pub fn try_run(&mut self, command: &str) -> String {
        self.ask(command).0
    }

    fn ask(&mut self, command: &str) -> (String, String) {
        self.questions += 1;
        let end = format!("END-{}-", self.questions);
        // A terminal that echoes the line does not echo the mark.
        let line = format!("{{ {command}\n}} 2>&1; echo 'END'-{}-$?", self.questions);
        self.say(&line);
        let before = self.console.len();
        let last = self.read_until(&end);
        // Output without a final newline is on the line of the mark.
        let (rest, code) = last.split_once(&end).unwrap();
        let mut output = self.console[before..self.console.len() - 1].join("\n");
        output.push('\n');
        output.push_str(rest);
        (output.trim().to_owned(), code.to_owned())
    }

    /// Types a line on the console.
    pub fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The first line of the console with `mark`.
    pub fn read_until(&mut self, mark: &str) -> String {
        let start = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(line) => {
                    self.console.push(line.clone());
                    if line.contains(mark) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("{mark}: not within {PATIENCE:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{mark}: the machine is off"),
            }
        }
    }

    /// Repeats a command until its output fulfils a condition.
    pub fn eventually(
        &mut self,
        limit: Duration,
        command: &str,
        mut is_so: impl FnMut(&str) -> bool,
    ) -> String {
        let start = Instant::now();
        loop {
            let output = self.try_run(command);
            if is_so(&output) {
                return output;
            }
            assert!(start.elapsed() < limit, "{command}: after {limit:?}: {output}");
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// The journal of this boot, with seconds of the time of the guest.
    pub fn journal(&mut self) -> String {
        self.run("journalctl -b -o short-monotonic --no-hostname")
    }

    /// Shuts the machine down and waits for its end.
    pub fn power_off(mut self) -> ExitStatus {
        self.say("systemctl poweroff");
        self.end()
    }

    /// Waits for the end of a machine that shuts down or, as qemu runs here, reboots.
    pub fn end(mut self) -> ExitStatus {
        eventually("the end of the machine", PATIENCE, || self.qemu.try_wait().unwrap())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if thread::panicking() {
            while let Ok(line) = self.lines.try_recv() {
                self.console.push(line);
            }
            println!("console:\n{}", self.console.join("\n"));
        }
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Writes the journal of a boot to a file.
pub fn keep(name: &str, journal: &str) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, journal).unwrap();
    println!("{name}: {}", path.display());
}
