//! A double of a container runtime that speaks CRI: prepared answers over a Unix socket. The unit
//! tests of `src/wire/runtime` have the cases of the wire; this one lives, dies and falls silent.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use support::grpc::{field, frame, prefixed, varint};

/// A running runtime; [`Runtime::stop`] ends it, and removes its socket.
pub struct Runtime {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// containerd 2.1.9 with `images` images of 1 MB and more. The folder of the images is `/`.
    pub fn start(path: &Path, images: usize) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (is_silent, looks) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let list: Vec<u8> = (0..images).flat_map(image).collect();
        let (over, silent, count): (_, _, Arc<AtomicUsize>) =
            (is_over.clone(), is_silent.clone(), Arc::clone(&looks));
        let thread = thread::spawn(move || {
            let mut unanswered = Vec::new();
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    // As a stopped process: the kernel accepts, and nobody reads.
                    Ok((socket, _)) if silent.load(Ordering::Relaxed) => unanswered.push(socket),
                    Ok((socket, _)) => {
                        count.fetch_add(1, Ordering::Relaxed);
                        respond(socket, &list);
                    }
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Self {
            path: path.to_owned(),
            is_over,
            is_silent,
            looks,
            thread: Some(thread),
        }
    }

    pub fn endpoint(&self) -> String {
        format!(
            "--container-runtime-endpoint=unix://{}",
            self.path.display()
        )
    }

    /// From now on looks have no answer.
    pub fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Number of looks that were answered.
    pub fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }

    pub fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        fs::remove_file(&self.path).unwrap();
    }
}

fn respond(mut socket: UnixStream, images: &[u8]) {
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
    let _ = socket.write_all(&bytes);
    let _ = socket.read_to_end(&mut Vec::new());
}

fn image(n: usize) -> Vec<u8> {
    let name = format!("registry.lab/app-{n}:1");
    let size = varint(1_000_000 + u64::try_from(n).unwrap());
    let content = [
        field(1, format!("sha256:{n}").as_bytes()),
        field(2, name.as_bytes()),
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
