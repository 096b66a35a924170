//! sd_notify, by hand: datagrams to the socket that systemd names.
//!
//! The watchdog is told that the loop turns, not that the server answers: an API
//! outage must not become a restart storm. Without a socket every call does nothing,
//! and a message that cannot be sent is not worth a line.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::core::instant::Mono;

/// That we live is worth a word only so often: each one wakes the supervisor.
const EVERY: Duration = Duration::from_secs(30);
const AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// The part of the supervisor's patience that is waited for at most.
const PART: u32 = 3;

/// The supervisor's socket, if there is one.
#[derive(Debug)]
pub struct Notify {
    socket: Option<UnixDatagram>,
    every: Duration,
    /// When the supervisor is to hear that we live.
    due: Mono,
}

impl Notify {
    /// `address` is `$NOTIFY_SOCKET`: a path, or `@name` in the abstract namespace;
    /// `patience` is `$WATCHDOG_USEC`.
    pub fn new(address: Option<&OsStr>, patience: Option<&OsStr>) -> Self {
        let patience = patience.and_then(OsStr::to_str);
        let patience = patience.and_then(|microseconds| microseconds.parse().ok());
        let patience = patience.map(Duration::from_micros);
        let connect = |address: &OsStr| {
            let socket = UnixDatagram::unbound().ok()?;
            let address = match address.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(address),
            };
            socket.connect_addr(&address.ok()?).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        };
        Self {
            socket: address.and_then(connect),
            every: patience.map_or(EVERY, |patience| {
                (patience / PART).clamp(AT_MOST_EVERY, EVERY)
            }),
            due: Mono::START,
        }
    }

    /// How long a wait may last.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// The Node is registered.
    pub fn ready(&mut self) {
        self.send("READY=1");
        // With how it is from now on.
        self.due = Mono::START;
    }

    /// The process is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The loop turns, and may be `busy` until it turns again; and one line for `systemctl
    /// status`, asked for only where there is somebody to hear it, and when it is time.
    pub fn alive(&mut self, now: Mono, busy: Duration, status: impl FnOnce() -> String) {
        if self.socket.is_some() && now.after(busy) >= self.due {
            self.due = now.after(self.every);
            let status = status().replace('\n', " ");
            self.send(&format!("WATCHDOG=1\nSTATUS={status}"));
        }
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // A full or closed socket is the supervisor's affair.
            let _ = socket.send(message.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_the_socket_and_nothing_breaks_without_one() {
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
        notify.alive(at(28), second, || "b\nc".to_owned());
        // Not heard of before that is over, it would be late.
        notify.alive(at(38), second * 20, || "d".to_owned());
        let mut buffer = [0; 64];
        let words = ["a", "READY=1", "b c", "d"];
        for want in words {
            let want = match want {
                "READY=1" => want.to_owned(),
                status => format!("WATCHDOG=1\nSTATUS={status}"),
            };
            let length = server.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], want.as_bytes());
        }
        drop(server);
        notify.ready();
        Notify::new(None, None).alive(at(0), second, || panic!("nobody hears it"));
        Notify::new(Some(OsStr::new("/nonexistent/socket")), None).ready();
    }

    #[test]
    fn the_supervisors_patience_is_not_tried() {
        let every = |patience: &str| Notify::new(None, Some(OsStr::new(patience))).every();
        assert_eq!(every("90000000"), Duration::from_secs(30));
        assert_eq!(every("9000000"), Duration::from_secs(3));
        assert_eq!(every("0"), Duration::from_millis(100));
        assert_eq!(every("soon"), Duration::from_secs(30));
    }
}
