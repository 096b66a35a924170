//! A TCP front of an API server at one loopback address, which can be slow, and sick in every way.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt::ReuseAddr,
};

/// What the address does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Leads to the server at this port.
    LeadsTo(u16),
    /// No listener: the kernel refuses.
    Refuses,
    /// No answer to a SYN, and none on open connections.
    BlackHole,
    /// Accepts TCP and then keeps silent.
    HangsAfterTcp,
    /// Resets each connection when its first bytes arrive.
    Resets,
}

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
    pub const NONE: Self = Self { delay: Duration::ZERO, bytes_per_second: u32::MAX };
}

/// A front; it ends with the test.
pub struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    mode: Mutex<Mode>,
    pace: Mutex<Pace>,
    connections: AtomicU64,
    /// Up and down.
    bytes: [AtomicU64; 2],
    /// Bytes from the server since the last call of [`Front::was_used`].
    used: AtomicBool,
    /// Open connections, both ends of each.
    open: Mutex<Vec<Pair>>,
    over: AtomicBool,
}

struct Pair {
    ends: Vec<TcpStream>,
    frozen: Arc<AtomicBool>,
}

impl Pair {
    fn close(&self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Front {
    pub fn start(ip: IpAddr, port: u16, mode: Mode) -> io::Result<Self> {
        let address = SocketAddr::new(ip, port);
        drop(TcpListener::bind(address)?);
        let shared = Arc::new(Shared {
            mode: Mutex::new(mode),
            pace: Mutex::new(Pace::NONE),
            connections: AtomicU64::default(),
            bytes: Default::default(),
            used: AtomicBool::default(),
            open: Mutex::default(),
            over: AtomicBool::default(),
        });
        let front = shared.clone();
        thread::spawn(move || serve(&front, address));
        Ok(Self { address, shared })
    }

    /// A link to the server at `port` on this machine.
    pub fn to(port: u16, pace: Pace) -> Self {
        let (_, mut fronts) = fronts(&[Ipv4Addr::LOCALHOST.into()], Mode::LeadsTo(port));
        let front = fronts.remove(0);
        *front.shared.pace.lock().unwrap() = pace;
        front
    }

    /// The kubeconfig of a server, with the port of this front.
    pub fn kubeconfig(&self, text: &str, server_port: u16) -> String {
        let (direct, ours) = (format!(":{server_port}"), format!(":{}", self.address.port()));
        assert!(text.contains(&direct), "{text}");
        text.replace(&direct, &ours)
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Bytes so far, up and down, without headers of TCP.
    pub fn bytes(&self) -> [u64; 2] {
        [0, 1].map(|down: usize| self.shared.bytes[down].load(Ordering::SeqCst))
    }

    /// Closes every connection, as a modem does when it changes its cell.
    pub fn drop_connections(&self) {
        for pair in self.shared.open.lock().unwrap().drain(..) {
            pair.close();
        }
    }

    /// Whether a server answered through this front since the last call.
    pub fn was_used(&self) -> bool {
        self.shared.used.swap(false, Ordering::SeqCst)
    }

    /// Open connections are frozen where the new mode keeps silent, and reset elsewhere.
    pub fn set_mode(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
        let silent = matches!(mode, Mode::BlackHole | Mode::HangsAfterTcp);
        for pair in self.shared.open.lock().unwrap().drain(..) {
            pair.frozen.store(true, Ordering::SeqCst);
            match silent {
                // Neither end hears more of it.
                true => std::mem::forget(pair.ends),
                false => pair.close(),
            }
        }
        // The listener takes a moment to follow.
        thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.set_mode(Mode::Refuses);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
    }
}

/// Binds as the mode says, and accepts until the mode changes.
fn serve(shared: &Arc<Shared>, address: SocketAddr) {
    while !shared.over.load(Ordering::SeqCst) {
        let mode = *shared.mode.lock().unwrap();
        let changed = || *shared.mode.lock().unwrap() != mode || shared.over.load(Ordering::SeqCst);
        match mode {
            Mode::Refuses => wait_until(changed),
            Mode::BlackHole => {
                let Ok(_full) = full_listener(address) else {
                    thread::sleep(Duration::from_millis(10));
                    continue;
                };
                wait_until(changed);
            }
            _ => accept(shared, address, mode, changed),
        }
    }
}

fn wait_until(changed: impl Fn() -> bool) {
    while !changed() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// A listener whose queue is full: the kernel drops further SYNs.
fn full_listener(address: SocketAddr) -> io::Result<(std::os::fd::OwnedFd, Vec<TcpStream>)> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&socket, Backlog::new(0)?)?;
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        queued.push(stream);
    }
    Ok((socket, queued))
}

fn accept(shared: &Arc<Shared>, address: SocketAddr, mode: Mode, changed: impl Fn() -> bool) {
    let Ok(listener) = TcpListener::bind(address) else {
        thread::sleep(Duration::from_millis(10));
        return;
    };
    listener.set_nonblocking(true).unwrap();
    let mut held = Vec::new();
    while !changed() {
        let Ok((client, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        client.set_nonblocking(false).unwrap();
        match mode {
            Mode::LeadsTo(port) => carry(shared, client, port),
            // Closed with a byte unread, which resets it.
            Mode::Resets => {
                let _ = client.set_read_timeout(Some(Duration::from_millis(500)));
                let _ = client.peek(&mut [0]);
            }
            _ => held.push(client),
        }
    }
}

fn carry(shared: &Arc<Shared>, client: TcpStream, port: u16) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
        return;
    };
    shared.connections.fetch_add(1, Ordering::SeqCst);
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let frozen = Arc::new(AtomicBool::default());
    // The kernel has completed the TCP handshake without delay: its round trip is added to the
    // first bytes.
    let handshake = shared.pace.lock().unwrap().delay * 2;
    for (from, to, down, late) in
        [(&client, &server, false, handshake), (&server, &client, true, Duration::ZERO)]
    {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        // Bytes in flight; a full channel blocks the sender.
        let (sender, receiver) = sync_channel(64);
        let (shared, frozen) = (shared.clone(), frozen.clone());
        thread::spawn(move || receive(&shared, from, &sender, down, Instant::now() + late));
        thread::spawn(move || deliver(to, &receiver, &frozen));
    }
    let ends = vec![client, server];
    shared.open.lock().unwrap().push(Pair { ends, frozen });
}

/// Reads bytes, and computes when they arrive at the other end.
fn receive(
    shared: &Shared,
    mut from: TcpStream,
    sender: &SyncSender<(Instant, Vec<u8>)>,
    down: bool,
    mut free: Instant,
) {
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        shared.bytes[usize::from(down)].fetch_add(length as u64, Ordering::SeqCst);
        shared.used.fetch_or(down, Ordering::SeqCst);
        let pace = *shared.pace.lock().unwrap();
        let rate = if down { f64::from(pace.bytes_per_second) } else { f64::INFINITY };
        free = free.max(Instant::now()) + Duration::from_secs_f64(length as f64 / rate);
        if sender.send((free + pace.delay, buffer[..length].to_vec())).is_err() {
            break;
        }
    }
}

fn deliver(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>, frozen: &AtomicBool) {
    for (at, piece) in receiver {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if frozen.load(Ordering::SeqCst) || to.write_all(&piece).is_err() {
            break;
        }
    }
    if !frozen.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// Fronts at one port that is free at every address.
pub fn fronts(addresses: &[IpAddr], mode: Mode) -> (u16, Vec<Front>) {
    for _ in 0..100 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let port = free.unwrap().port();
        let fronts = addresses.iter().map(|ip| Front::start(*ip, port, mode));
        if let Ok(fronts) = fronts.collect() {
            return (port, fronts);
        }
    }
    panic!("no port is free at all of {addresses:?}");
}
