//! A board: the `nodelet` binary as a process.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use apidouble::Double;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Folder, eventually, skip};

/// The binary of this build, or the path in `NODELET`.
pub fn binary() -> OsString {
    let other = std::env::var_os("NODELET");
    other.unwrap_or(env!("CARGO_BIN_EXE_nodelet").into())
}

/// A line of `smaps_rollup`, in KiB. `Private_Dirty` includes the pages of a program file that is
/// not written back yet; `Anonymous` does not.
pub fn kibibytes(process: u32, name: &str) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A fifth of the default periods: a renewal every 2 s. Only memory has an eviction threshold, so
/// the free disk space of the test machine does not matter.
pub const FAST: [&str; 3] = [
    "--node-lease-duration-seconds=8",
    "--node-status-update-frequency=1s",
    "--eviction-hard=memory.available<1Ki",
];

/// A running agent; killed on drop.
pub struct Board {
    child: Child,
    pub started: Instant,
    log: Arc<Mutex<Vec<String>>>,
    /// Samples of `/proc/PID/task`, and their maximum.
    watched: Arc<AtomicUsize>,
    most_threads: Arc<AtomicUsize>,
}

impl Board {
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// The agent of the double's node `pi`, whose kubeconfig is written to the folder.
    pub fn pi(double: &Double, folder: &Folder, more: &[&str]) -> Self {
        let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        Self::start(&[&[&kubeconfig, "--hostname-override=pi"], more].concat())
    }

    /// The agent of a node with the flags of [`FAST`], and `more`.
    pub fn fast(kubeconfig: impl AsRef<Path>, name: &str, more: &[&str]) -> Self {
        Self::fast_with(kubeconfig, name, more, &[])
    }

    /// The same, with environment variables.
    pub fn fast_with(
        kubeconfig: impl AsRef<Path>,
        name: &str,
        more: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.as_ref().display());
        let named = [kubeconfig.as_str(), "--hostname-override", name];
        Self::start_with(&[&named, FAST.as_slice(), more].concat(), env)
    }

    /// With environment variables. Without a `--root-dir` in `args` there is none, so that no test
    /// writes to a folder of this machine.
    pub fn start_with(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::spawn(&mut Command::new(binary()), args, env)
    }

    /// With `root` as its root file system; needs root.
    pub fn start_below(root: &Path, args: &[&str]) -> Self {
        Self::spawn(Command::new("chroot").arg(root).arg(binary()), args, &[])
    }

    /// As this user, from a copy of the binary; needs root and setpriv.
    pub fn start_as(user: u32, binary: &Path, args: &[&str]) -> Self {
        let user = [format!("--reuid={user}"), format!("--regid={user}")];
        let mut command = Command::new("setpriv");
        Self::spawn(command.args(user).arg("--clear-groups").arg(binary), args, &[])
    }

    fn spawn(command: &mut Command, args: &[&str], env: &[(&str, &str)]) -> Self {
        let started = Instant::now();
        let mut child = command
            .arg("--root-dir=/nonexistent/nodelet")
            .args(args)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .env_remove("JOURNAL_STREAM")
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let sink = log.clone();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sink.lock().unwrap().push(line);
            }
        });
        Self { log, started, watched: Arc::default(), most_threads: Arc::default(), child }
    }

    /// Samples `/proc/PID/task` every 300 µs: a thread for a name lookup would live for a
    /// millisecond or more.
    pub fn watch_threads(&self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let (most, watched) = (self.most_threads.clone(), self.watched.clone());
        thread::spawn(move || {
            while let Ok(entries) = fs::read_dir(&tasks) {
                most.fetch_max(entries.count(), Ordering::Relaxed);
                watched.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(300));
            }
        });
    }

    /// Fails unless each of more than 100 samples had one thread.
    pub fn assert_one_thread(&self) {
        assert_eq!(self.most_threads.load(Ordering::Relaxed), 1);
        assert!(self.watched.load(Ordering::Relaxed) > 100, "too few samples");
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// The log lines that are warnings.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = self.log();
        lines.retain(|line| line.contains("warning"));
        lines
    }

    /// Waits for a log line that contains `part`.
    pub fn says(&self, part: &str) {
        self.says_within(Duration::from_secs(5), part);
    }

    pub fn says_within(&self, limit: Duration, part: &str) {
        eventually(part, limit, || self.log().iter().any(|line| line.contains(part)).then_some(()));
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends the agent; its exit status, and how long the end took.
    pub fn stop(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        let start = Instant::now();
        kill(self.pid(), signal).unwrap();
        let status = self.child.wait().unwrap();
        (status, start.elapsed())
    }

    /// Whether this process may read the agent's memory figures and descriptors; skips if not.
    /// The agent holds keys, so it is not dumpable, and `/proc/PID` is root's.
    pub fn can_be_looked_into(&self) -> bool {
        let readable = fs::read_dir(format!("/proc/{}/fd", self.pid())).is_ok();
        if !readable {
            skip::optional("memory and descriptors of the agent: only root can read them");
        }
        readable
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// See [`kibibytes`].
    pub fn kibibytes(&self, name: &str) -> u64 {
        kibibytes(self.child.id(), name)
    }

    /// Number of open descriptors.
    pub fn descriptors(&self) -> usize {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid()));
        descriptors.unwrap().count()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            for line in self.log() {
                println!("board: {line}");
            }
        }
    }
}
