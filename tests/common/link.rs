//! A slow link between a board and its server: a TCP proxy.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Delay and rate of a link.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// In each direction: half a round trip.
    pub delay: Duration,
    /// Towards the board; the other direction is not limited.
    pub bytes_per_second: u32,
}

impl Pace {
    /// No delay, no limit.
    pub const NONE: Self = Self {
        delay: Duration::ZERO,
        bytes_per_second: u32::MAX,
    };
}

/// A running link; closed on drop.
pub struct Link {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    pace: Mutex<Pace>,
    /// Both sockets of each open connection.
    open: Mutex<Vec<TcpStream>>,
    connections: AtomicU64,
    /// Up and down.
    bytes: [AtomicU64; 2],
    over: AtomicBool,
}

impl Link {
    /// Starts a link to `port` on this machine.
    pub fn to(port: u16, pace: Pace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Shared {
            pace: Mutex::new(pace),
            open: Mutex::default(),
            connections: AtomicU64::default(),
            bytes: Default::default(),
            over: AtomicBool::default(),
        });
        let link = Self {
            port: listener.local_addr().unwrap().port(),
            shared: shared.clone(),
        };
        thread::spawn(move || {
            for board in listener.incoming() {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                // If the server refuses, the connection of the board is closed.
                if let (Ok(board), Ok(server)) = (board, TcpStream::connect(("127.0.0.1", port))) {
                    carry(&shared, board, server);
                }
            }
        });
        link
    }

    /// The kubeconfig of a server, with the port of this link.
    pub fn kubeconfig(&self, text: &str, server_port: u16) -> String {
        let (direct, ours) = (format!(":{server_port}"), format!(":{}", self.port));
        assert!(text.contains(&direct), "{text}");
        text.replace(&direct, &ours)
    }

    pub fn set_pace(&self, pace: Pace) {
        *self.shared.pace.lock().unwrap() = pace;
    }

    /// Closes every connection, as a modem does when it changes its cell.
    pub fn drop_connections(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Link {
    /// Bytes so far, up and down, without headers of TCP.
    pub fn bytes(&self) -> [u64; 2] {
        [0, 1].map(|down: usize| self.shared.bytes[down].load(Ordering::SeqCst))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.drop_connections();
        // Wakes the listener, which then reads `over`.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn carry(shared: &Arc<Shared>, board: TcpStream, server: TcpStream) {
    shared.connections.fetch_add(1, Ordering::SeqCst);
    let _ = (board.set_nodelay(true), server.set_nodelay(true));
    {
        let mut open = shared.open.lock().unwrap();
        open.push(board.try_clone().unwrap());
        open.push(server.try_clone().unwrap());
    }
    // The kernel has completed the TCP handshake without delay: its round trip is added to the
    // first bytes.
    let handshake = shared.pace.lock().unwrap().delay * 2;
    for (from, to, narrow, late) in [
        (board.try_clone(), server.try_clone(), false, handshake),
        (server.try_clone(), board.try_clone(), true, Duration::ZERO),
    ] {
        let (from, to) = (from.unwrap(), to.unwrap());
        // Bytes in flight; a full channel blocks the sender.
        let (sender, receiver) = sync_channel(64);
        let shared = shared.clone();
        thread::spawn(move || receive(&shared, from, &sender, narrow, Instant::now() + late));
        thread::spawn(move || deliver(to, &receiver));
    }
}

/// Reads bytes, and computes when they arrive at the other end.
fn receive(
    shared: &Shared,
    mut from: TcpStream,
    sender: &SyncSender<(Instant, Vec<u8>)>,
    narrow: bool,
    mut free: Instant,
) {
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        shared.bytes[usize::from(narrow)].fetch_add(length as u64, Ordering::SeqCst);
        let pace = *shared.pace.lock().unwrap();
        let takes = match narrow {
            true => Duration::from_secs_f64(length as f64 / f64::from(pace.bytes_per_second)),
            false => Duration::ZERO,
        };
        free = free.max(Instant::now()) + takes;
        let piece = buffer[..length].to_vec();
        if sender.send((free + pace.delay, piece)).is_err() {
            break;
        }
    }
}

fn deliver(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    for (at, piece) in receiver {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
