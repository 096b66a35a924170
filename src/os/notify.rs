//! sd_notify(3): datagrams to the socket in `$NOTIFY_SOCKET`.
//!
//! A watchdog ping means that the loop runs, not that the API server responds: an outage of the
//! server must not restart every node. Without a socket, calls do nothing. Send errors are not
//! logged: the queue of systemd's socket may be full, or systemd restarts with another socket. What
//! was not taken is sent again with the next ping.

use std::ffi::OsStr;
use std::io::ErrorKind::WouldBlock;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::kube::instant::Mono;
use crate::kube::text::one_line;

/// Maximum interval between watchdog pings; each one wakes systemd.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval, for a very short watchdog timeout.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Most bytes of the status. systemd ignores a datagram of more than 4,096 bytes as a whole, with
/// the ping in it (`NOTIFY_BUFFER_MAX` in src/core/manager.c), and the sender gets no error.
const MAX_STATUS: usize = 1000;
/// Pings per watchdog timeout.
const PINGS_PER_TIMEOUT: u32 = 3;

/// The notify socket, if there is one, and the time of the next ping.
#[derive(Debug)]
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    every: Duration,
    /// The Node is registered, and systemd has not taken READY=1 yet.
    tells_ready: bool,
    /// Time of the next watchdog ping.
    due: Mono,
}

impl Notify {
    /// `address` is `$NOTIFY_SOCKET`: a path, or `@name` in the abstract namespace.
    /// `watchdog` is `$WATCHDOG_USEC`, in microseconds.
    pub fn new(address: Option<&OsStr>, watchdog: Option<&OsStr>) -> Self {
        let microseconds = watchdog.and_then(OsStr::to_str);
        let microseconds = microseconds.and_then(|text| text.parse().ok());
        let timeout = microseconds.map(Duration::from_micros);
        let connect = |address: &OsStr| {
            let socket = UnixDatagram::unbound().ok()?;
            let address = match address.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(address),
            };
            socket.set_nonblocking(true).ok()?;
            let address = address.ok()?;
            // If this fails, the first message connects.
            let _ = socket.connect_addr(&address);
            Some((socket, address))
        };
        Self {
            socket: address.and_then(connect),
            every: timeout.map_or(MAX_INTERVAL, |timeout| {
                (timeout / PINGS_PER_TIMEOUT).clamp(MIN_INTERVAL, MAX_INTERVAL)
            }),
            tells_ready: false,
            due: Mono::START,
        }
    }

    /// Interval between watchdog pings; no wait may be longer.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// The Node is registered: the next call of [`Self::alive`] sends READY=1.
    pub fn ready(&mut self) {
        self.tells_ready = true;
        self.due = Mono::START;
    }

    /// The process is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends a watchdog ping if it becomes due before the next call, which comes after `busy`.
    /// `status` is one line for `systemctl status`, computed only for a ping.
    pub fn alive(&mut self, now: Mono, busy: Duration, status: impl FnOnce() -> String) {
        if self.socket.is_some() && now.after(busy) >= self.due {
            self.due = now.after(self.every);
            let mut status = one_line(&status());
            status.truncate(status.floor_char_boundary(MAX_STATUS));
            let ready = if self.tells_ready { "READY=1\n" } else { "" };
            let is_taken = self.send(&format!("{ready}WATCHDOG=1\nSTATUS={status}"));
            self.tells_ready &= !is_taken;
        }
    }

    /// Whether systemd has taken the message. The path of its socket is looked up only after the
    /// socket was replaced: on a root of a network whose server is dead, a lookup waits.
    fn send(&self, message: &str) -> bool {
        let Some((socket, address)) = &self.socket else { return false };
        let send = || socket.send(message.as_bytes());
        match send() {
            Ok(_) => true,
            Err(error) if error.kind() == WouldBlock => false,
            Err(_) => socket.connect_addr(address).is_ok() && send().is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_the_socket_and_without_a_socket_calls_do_nothing() {
        let name = format!("nodelet-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let server = UnixDatagram::bind_addr(&address).unwrap();
        server.set_nonblocking(true).unwrap();
        let mut notify = Notify::new(Some(OsStr::new(&format!("@{name}"))), None);
        let at = |seconds| Mono::START.after(Duration::from_secs(seconds));
        let second = Duration::from_secs(1);
        notify.alive(at(0), second, || "a".to_owned());
        notify.alive(at(28), second, || panic!("too soon"));
        notify.ready();
        notify.alive(at(28), second, || "b\nc\u{1b}".to_owned());
        // Due at 58 s, which is within the 20 s after 38 s.
        notify.alive(at(38), second * 20, || "d".to_owned());
        let mut buffer = [0; 64];
        for want in
            ["WATCHDOG=1\nSTATUS=a", "READY=1\nWATCHDOG=1\nSTATUS=b c ", "WATCHDOG=1\nSTATUS=d"]
        {
            let length = server.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], want.as_bytes());
        }
        // Nobody takes it; then another socket has the name.
        drop(server);
        notify.ready();
        notify.alive(at(100), second, || "e".to_owned());
        let server = UnixDatagram::bind_addr(&address).unwrap();
        notify.alive(at(130), second, || "f".to_owned());
        let length = server.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\nWATCHDOG=1\nSTATUS=f");
        // Four bytes each.
        notify.ready();
        notify.alive(at(160), second, || "🦀".repeat(2000));
        let mut buffer = [0; 4097];
        let length = server.recv(&mut buffer).unwrap();
        let want = format!("READY=1\nWATCHDOG=1\nSTATUS={}", "🦀".repeat(250));
        assert_eq!(&buffer[..length], want.as_bytes());
        Notify::new(None, None).alive(at(0), second, || panic!("status without a socket"));
        Notify::new(Some(OsStr::new("/nonexistent/socket")), None).ready();
    }

    #[test]
    fn the_interval_is_a_third_of_the_watchdog_timeout_within_limits() {
        let every = |timeout: &str| Notify::new(None, Some(OsStr::new(timeout))).every();
        assert_eq!(every("90000000"), Duration::from_secs(30));
        assert_eq!(every("9000000"), Duration::from_secs(3));
        assert_eq!(every("0"), Duration::from_millis(100));
        assert_eq!(every("soon"), Duration::from_secs(30));
    }
}
