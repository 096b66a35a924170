//! A TCP front of an API server at one loopback address, which can be made sick in every way.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

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

/// A front; it ends with the test.
pub struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    mode: Mutex<Mode>,
    /// Bytes from the server since the last call of [`Front::was_used`].
    used: Arc<AtomicBool>,
    /// Open connections, both ends of each.
    open: Mutex<Vec<Pair>>,
    over: AtomicBool,
}

struct Pair {
    ends: Vec<TcpStream>,
    frozen: Arc<AtomicBool>,
}

impl Front {
    pub fn start(ip: IpAddr, port: u16, mode: Mode) -> io::Result<Self> {
        let address = SocketAddr::new(ip, port);
        drop(TcpListener::bind(address)?);
        let shared = Arc::new(Shared {
            mode: Mutex::new(mode),
            used: Arc::default(),
            open: Mutex::default(),
            over: AtomicBool::default(),
        });
        let front = shared.clone();
        thread::spawn(move || serve(&front, address));
        Ok(Self { address, shared })
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
                false => {
                    for end in &pair.ends {
                        let _ = end.shutdown(Shutdown::Both);
                    }
                }
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
    let family = match address.is_ipv4() {
        true => AddressFamily::Inet,
        false => AddressFamily::Inet6,
    };
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

fn carry(shared: &Shared, client: TcpStream, port: u16) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
        return;
    };
    let frozen = Arc::new(AtomicBool::default());
    let unused = Arc::default();
    for (from, to, used) in [
        (&client, &server, &unused),
        (&server, &client, &shared.used),
    ] {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let (frozen, used) = (frozen.clone(), used.clone());
        thread::spawn(move || copy(from, to, &frozen, &used));
    }
    let ends = vec![client, server];
    shared.open.lock().unwrap().push(Pair { ends, frozen });
}

fn copy(mut from: TcpStream, mut to: TcpStream, frozen: &AtomicBool, used: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        if frozen.load(Ordering::SeqCst) {
            return;
        }
        used.store(true, Ordering::SeqCst);
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Fronts at one port that is free at every address.
pub fn fronts(addresses: &[IpAddr], mode: Mode) -> (u16, Vec<Front>) {
    for _ in 0..100 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let fronts = addresses.iter().map(|ip| Front::start(*ip, port, mode));
        if let Ok(fronts) = fronts.collect() {
            return (port, fronts);
        }
    }
    panic!("no port is free at all of {addresses:?}");
}
