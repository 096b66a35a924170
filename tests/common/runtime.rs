//! A double of a container runtime that speaks CRI: prepared answers over a Unix socket. The unit
//! tests of `src/runtime` have the cases of the wire; this one lives, dies and is silent.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::board::Board;
use support::grpc::{field, frame, prefixed, varint};

/// A running runtime; [`Runtime::stop`] ends it, and removes its socket.
pub struct Runtime {
    path: PathBuf,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    is_silent: AtomicBool,
    looks: AtomicUsize,
    bytes: AtomicUsize,
}

impl Runtime {
    /// containerd 2.1.9 with `images` images of 1 MB and more. The folder of the images is `/`.
    pub fn start(path: &Path, images: usize) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::<State>::default();
        let list: Vec<u8> = (0..images).flat_map(image).collect();
        let shared = state.clone();
        let thread = thread::spawn(move || {
            thread::scope(|scope| {
                while !shared.is_over.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((socket, _)) => drop(scope.spawn(|| respond(socket, &list, &shared))),
                        Err(_) => thread::sleep(Duration::from_millis(1)),
                    }
                }
            });
        });
        Self { path: path.to_owned(), state, thread: Some(thread) }
    }

    pub fn endpoint(&self) -> String {
        format!("--container-runtime-endpoint=unix://{}", self.path.display())
    }

    /// `nodelet runtime` for it, and the flag for the agent that reads its file.
    pub fn service(&self) -> (Board, String) {
        let facts = format!("--container-runtime-facts={}.facts", self.path.display());
        (Board::start(&["runtime", &self.endpoint(), &facts]), facts)
    }

    /// Whether it answers none of the questions that come from now on, as a stopped process.
    pub fn silence(&self, is_silent: bool) {
        self.state.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Number of questions that were answered.
    pub fn looks(&self) -> usize {
        self.state.looks.load(Ordering::Relaxed)
    }

    /// Bytes of all answered calls, both ways.
    pub fn bytes(&self) -> usize {
        self.state.bytes.load(Ordering::Relaxed)
    }

    pub fn stop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        fs::remove_file(&self.path).unwrap();
    }
}

/// Answers the calls of one connection.
fn respond(mut socket: UnixStream, images: &[u8], state: &State) {
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let conditions = [condition("RuntimeReady", 1), condition("NetworkReady", 0)].concat();
    let calls = [
        ("/Status", [field(1, &conditions), field(3, &[])].concat()),
        ("/Version", [field(2, b"containerd"), field(3, b"2.1.9")].concat()),
        ("/ListImages", images.to_vec()),
        ("/ImageFsInfo", field(1, &field(2, &field(1, b"/")))),
    ];
    let mut bytes = frame(4, 0, 0, &[]);
    // A client whose connection ends opens another one.
    for stream in (1..250).step_by(2) {
        let answered = loop {
            if state.is_over.load(Ordering::Relaxed) {
                return;
            }
            let mut request = vec![0; 4096];
            match socket.read(&mut request) {
                Ok(0) => return,
                Err(_) => continue,
                Ok(length) => {
                    state.bytes.fetch_add(length, Ordering::Relaxed);
                    let request = String::from_utf8_lossy(&request[..length]);
                    if let Some(call) = calls.iter().find(|(name, _)| request.contains(name)) {
                        break call;
                    }
                }
            }
        };
        bytes.extend(answer(stream, &answered.1));
        if state.is_silent.load(Ordering::Relaxed) {
            loop {
                // The client gives up first.
                let is_closed = matches!(socket.read(&mut [0]), Ok(0));
                if is_closed || state.is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
        state.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        if answered.0 == "/Status" {
            state.looks.fetch_add(1, Ordering::Relaxed);
        }
        if socket.write_all(&bytes).is_err() {
            return;
        }
        bytes.clear();
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
