//! A double of a container runtime that speaks CRI: prepared answers over a Unix socket. The unit
//! tests of `src/wire/runtime` have the cases of the wire; this one lives, dies and is slow.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Prompt,
    /// As a stopped process: the kernel accepts, and nobody reads.
    Silent,
    /// After a time.
    Late(Duration),
    /// A byte each 500 ms: longer than a look may take.
    Trickle,
    /// Frames of an unknown type without end.
    Flood,
}

use support::grpc::{field, frame, prefixed, varint};

/// A running runtime; [`Runtime::stop`] ends it, and removes its socket.
pub struct Runtime {
    path: PathBuf,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    is_over: AtomicBool,
    manner: Mutex<Manner>,
    looks: AtomicUsize,
    bytes: AtomicUsize,
}

impl State {
    fn manner(&self) -> Manner {
        *self.manner.lock().unwrap()
    }

    /// Waits for `time`, or until the manner changes. Returns whether it is the same.
    fn stays(&self, manner: Manner, time: Duration) -> bool {
        let start = Instant::now();
        while self.manner() == manner && start.elapsed() < time {
            thread::sleep(Duration::from_millis(20).min(time));
        }
        self.manner() == manner
    }
}

impl Runtime {
    /// containerd 2.1.9 with `images` images of 1 MB and more. The folder of the images is `/`.
    pub fn start(path: &Path, images: usize) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State {
            is_over: AtomicBool::new(false),
            manner: Mutex::new(Manner::Prompt),
            looks: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        });
        let list: Vec<u8> = (0..images).flat_map(image).collect();
        let shared = state.clone();
        let thread = thread::spawn(move || {
            let mut unanswered = Vec::new();
            while !shared.is_over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((socket, _)) if shared.manner() == Manner::Silent => unanswered.push(socket),
                    Ok((socket, _)) => respond(socket, &list, &shared),
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Self {
            path: path.to_owned(),
            state,
            thread: Some(thread),
        }
    }

    pub fn endpoint(&self) -> String {
        format!(
            "--container-runtime-endpoint=unix://{}",
            self.path.display()
        )
    }

    /// How it answers from now on; a slow answer is broken off.
    pub fn behave(&self, manner: Manner) {
        *self.state.manner.lock().unwrap() = manner;
    }

    /// Number of looks that were answered.
    pub fn looks(&self) -> usize {
        self.state.looks.load(Ordering::Relaxed)
    }

    /// Bytes of all answered looks, both ways.
    pub fn bytes(&self) -> usize {
        self.state.bytes.load(Ordering::Relaxed)
    }

    pub fn stop(&mut self) {
        self.behave(Manner::Prompt);
        self.state.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        fs::remove_file(&self.path).unwrap();
    }
}

fn respond(mut socket: UnixStream, images: &[u8], state: &State) {
    socket.set_nonblocking(false).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut request = vec![0; 4096];
    let length = socket.read(&mut request).unwrap_or(0);
    let has_details = request[..length]
        .windows(10)
        .any(|part| part == b"ListImages");
    let conditions = [condition("RuntimeReady", 1), condition("NetworkReady", 0)].concat();
    let mut bytes = frame(4, 0, 0, &[]);
    bytes.extend(answer(1, &[field(1, &conditions), field(3, &[])].concat()));
    if has_details {
        let version = [field(2, b"containerd"), field(3, b"2.1.9")].concat();
        bytes.extend(answer(3, &version));
        bytes.extend(answer(5, images));
        bytes.extend(answer(7, &field(1, &field(2, &field(1, b"/")))));
    }
    let manner = state.manner();
    match manner {
        Manner::Prompt | Manner::Silent => {}
        Manner::Late(time) if state.stays(manner, time) => {}
        Manner::Late(_) => return,
        Manner::Trickle => {
            for byte in bytes {
                let is_sent = socket.write_all(&[byte]).is_ok();
                if !is_sent || !state.stays(manner, Duration::from_millis(500)) {
                    break;
                }
            }
            return;
        }
        Manner::Flood => {
            let frames = frame(0x42, 0, 0, &[0; 16_384]).repeat(16);
            let _ = socket.write_all(&bytes[..9]);
            while state.manner() == manner && socket.write_all(&frames).is_ok() {}
            return;
        }
    }
    let mut after = Vec::new();
    let is_sent = socket.write_all(&bytes).is_ok();
    let _ = socket.read_to_end(&mut after);
    if is_sent {
        let all = length + bytes.len() + after.len();
        state.bytes.fetch_add(all, Ordering::Relaxed);
        state.looks.fetch_add(1, Ordering::Relaxed);
    }
}

fn image(n: usize) -> Vec<u8> {
    let name = format!("registry.lab/app-{n}:1");
    let digest = format!("registry.lab/app-{n}@sha256:{n:064x}");
    let size = varint(1_000_000 + u64::try_from(n).unwrap());
    let content = [
        field(1, format!("sha256:{n:064x}").as_bytes()),
        field(2, name.as_bytes()),
        field(3, digest.as_bytes()),
        [vec![4 << 3], size].concat(),
    ];
    field(1, &content.concat())
}

fn condition(kind: &str, status: u8) -> Vec<u8> {
    let content = [
        field(1, kind.as_bytes()),
        vec![2 << 3, status],
        field(3, b"Reason"),
        field(4, b"message"),
    ];
    field(1, &content.concat())
}

/// HEADERS with `:status 200`, one message, and trailers with `grpc-status 0`.
fn answer(stream: u8, message: &[u8]) -> Vec<u8> {
    let mut bytes = frame(1, 4, stream, b"\x88");
    for piece in prefixed(message).chunks(16_384) {
        bytes.extend(frame(0, 0, stream, piece));
    }
    bytes.extend(frame(1, 5, stream, b"\x00\x0bgrpc-status\x010"));
    bytes
}
