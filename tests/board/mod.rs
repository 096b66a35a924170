//! A board: the `nodelet` binary as a process of its own, watched while it runs.
#![allow(dead_code)] // each test binary uses its own part

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("nodelet-{name}-{}-{unique}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file below the folder, with the folders above it.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What is tried: this build, or another one (`NODELET`).
pub fn binary() -> OsString {
    let other = std::env::var_os("NODELET");
    other.unwrap_or(env!("CARGO_BIN_EXE_nodelet").into())
}

/// A running agent: the one that was just built, or the binary in `NODELET`.
pub struct Board {
    child: Child,
    pub started: Instant,
    log: Arc<Mutex<Vec<String>>>,
    /// Most entries that `/proc/PID/task` ever had, as far as was seen.
    most_threads: Arc<AtomicUsize>,
    watched: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Board {
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// With variables in its environment.
    pub fn start_with(args: &[&str], env: &[(&str, &str)]) -> Self {
        let started = Instant::now();
        let mut child = Command::new(binary())
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
        Self {
            log,
            started,
            most_threads: Arc::default(),
            watched: Arc::default(),
            over: Arc::default(),
            child,
        }
    }

    /// Looks at `/proc/PID/task` every few hundred microseconds until the end: a
    /// thread that a name lookup starts lives for a millisecond or more.
    pub fn watch_threads(&self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let (most, watched) = (self.most_threads.clone(), self.watched.clone());
        let over = self.over.clone();
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let Ok(entries) = fs::read_dir(&tasks) else {
                    return;
                };
                most.fetch_max(entries.count(), Ordering::Relaxed);
                watched.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(300));
            }
        });
    }

    /// Fails unless the process had one thread whenever somebody looked.
    pub fn assert_one_thread(&self) {
        assert_eq!(self.most_threads.load(Ordering::Relaxed), 1);
        assert!(
            self.watched.load(Ordering::Relaxed) > 100,
            "hardly looked at"
        );
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line that contains `part`: a line is a moment behind its cause.
    pub fn says(&self, part: &str) {
        self.says_within(Duration::from_secs(5), part);
    }

    pub fn says_within(&self, limit: Duration, part: &str) {
        eventually(part, limit, || {
            self.log()
                .iter()
                .any(|line| line.contains(part))
                .then_some(())
        });
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends the agent; how it ended and how long that took.
    pub fn stop(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        self.over.store(true, Ordering::Relaxed);
        let start = Instant::now();
        kill(self.pid(), signal).unwrap();
        let status = self.child.wait().unwrap();
        (status, start.elapsed())
    }

    /// Whether the kernel tells us of its memory and descriptors: the process keeps keys,
    /// hence is not dumpable, and then only a privileged user is told. Says so if not.
    pub fn can_be_looked_into(&self) -> bool {
        let told = fs::read_dir(format!("/proc/{}/fd", self.pid())).is_ok();
        if !told {
            // Not eprintln: the harness would keep it for itself.
            let _ = writeln!(
                std::io::stderr(),
                "board: NOT MEASURED: memory and descriptors, which only root is told"
            );
        }
        told
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            for line in self.log() {
                println!("board: {line}");
            }
        }
    }
}

/// Looks until `look` finds something, for at most `limit`.
pub fn eventually<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(10));
    }
}
