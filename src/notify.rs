//! sd_notify, by hand: datagrams to the socket that systemd names.
//!
//! The watchdog is told that the loop turns, not that the server answers: an API
//! outage must not become a restart storm. Without a socket every call does nothing,
//! and a message that cannot be sent is not worth a line.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The supervisor's socket, if there is one.
#[derive(Debug)]
pub struct Notify {
    socket: Option<UnixDatagram>,
}

impl Notify {
    /// `address` is `$NOTIFY_SOCKET`: a path, or `@name` in the abstract namespace.
    pub fn new(address: Option<&OsStr>) -> Self {
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
        }
    }

    /// The Node is registered.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// The process is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The loop turns; and one line for `systemctl status`, asked for only where there
    /// is somebody to hear it.
    pub fn alive(&self, status: impl FnOnce() -> String) {
        if self.socket.is_some() {
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
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[test]
    fn messages_reach_the_socket_and_nothing_breaks_without_one() {
        let name = format!("nodelet-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let server = UnixDatagram::bind_addr(&address).unwrap();
        let notify = Notify::new(Some(OsStr::new(&format!("@{name}"))));
        notify.ready();
        notify.alive(|| "a\nb".to_owned());
        let mut buffer = [0; 64];
        for want in ["READY=1", "WATCHDOG=1\nSTATUS=a b"] {
            let length = server.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], want.as_bytes());
        }
        drop(server);
        notify.ready();
        Notify::new(None).alive(|| panic!("nobody hears it"));
        Notify::new(Some(OsStr::new("/nonexistent/socket"))).ready();
    }
}
