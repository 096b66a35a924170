//! An HTTP proxy before the servers: CONNECT, and what goes wrong with it.

use std::io::{ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::clusters;
use super::net::NEVER;
use super::world::World;

/// Where the proxy listens.
pub(crate) const ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8)), 3128);

impl World {
    /// Its member of a kubeconfig's cluster, where this setting has a proxy.
    pub(super) fn proxy_url(&self) -> &'static str {
        match self.plan.setting("proxy") {
            "yes" => "proxy-url: 'http://10.0.0.8:3128', ",
            _ => "",
        }
    }

    /// How a connect(2) to the proxy ends, which takes `trip` without a fault.
    pub(super) fn connects_to_proxy(&self, trip: Duration) -> (Duration, Result<()>) {
        match () {
            () if self.faults.has("no-network") => {
                (Duration::ZERO, Err(ErrorKind::NetworkUnreachable.into()))
            }
            () if self.faults.has("partition") => (NEVER, Ok(())),
            () if self.faults.has("proxy-down") => (trip, Err(ErrorKind::ConnectionRefused.into())),
            () => (trip, Ok(())),
        }
    }

    pub(super) fn is_proxy_unheard(&self) -> bool {
        ["proxy-silent", "partition", "no-network"].iter().any(|class| self.faults.has(class))
    }

    /// Bytes of a client have arrived before its tunnel is open.
    pub(super) fn asked_proxy(&mut self, id: u64, bytes: &[u8]) {
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let Some(head) = &mut connection.tunnel else { return };
        head.extend_from_slice(bytes);
        if !head.ends_with(b"\r\n\r\n") {
            return;
        }
        let text = String::from_utf8_lossy(head).into_owned();
        let place = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let wait = Duration::from_millis(self.faults.size("proxy-slow").unwrap_or(0));
        let at = self.now + self.half_trip() + wait;
        let code = match self.faults.size("proxy-refuses") {
            Some(code) => Err(code),
            None => self.server_behind(&place).ok_or(502),
        };
        let answer = match code {
            Ok(_) => "HTTP/1.1 200 Connection established\r\nVia: 1.1 sim\r\n\r\n".to_owned(),
            Err(code) => {
                format!("HTTP/1.1 {code} No\r\nContent-Length: 5\r\n\r\nsorry")
            }
        };
        if self.faults.has("proxy-cuts") {
            self.put_input(id, at, answer.as_bytes()[..17].to_vec());
            return self.end_connection(id, false);
        }
        self.put_input(id, at, answer.into_bytes());
        match code {
            Ok(server) => self.tunnel_opens(id, server),
            Err(_) => self.end_connection(id, false),
        }
    }

    /// The server at a place, if the proxy can reach it.
    fn server_behind(&self, place: &str) -> Option<usize> {
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        let ips = match host.parse() {
            Ok(ip) => vec![ip],
            // The proxy has name servers of its own.
            Err(_) if host == clusters::name(1) => vec![clusters::address(1)],
            Err(_) => self.addresses(),
        };
        let reachable = |server: &usize| {
            self.faults.at("server-gone", *server).is_none()
                && self.faults.at("server-unreachable", *server).is_none()
        };
        let server = |ip: &IpAddr| {
            self.servers.iter().position(|server| server.has(SocketAddr::new(*ip, 6443)))
        };
        ips.iter().filter_map(server).find(reachable)
    }
}
