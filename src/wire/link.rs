//! What outlives a connection: where it goes, how it is secured, which address worked.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::api_config::ApiConfig;
use super::dns::Resolver;
use super::endpoint::Endpoint;
use super::failure::{Failure, Stage};
use super::proxy::Proxy;
use super::resolver::{LastUsed, lookup};
use super::socket::{Clock, Glance, glance};
use super::tls;

/// Shared between `Api` and ureq's connector, which ureq only lends as `&self` and
/// wants `Sync`: that, and no second thread, is why there is a lock.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) endpoint: Endpoint,
    pub(super) proxy: Option<Proxy>,
    /// None for `http`.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<LastUsed>,
    /// Dead as soon as ureq drops the connection.
    stream: Weak<TcpStream>,
}

impl Link {
    pub(super) fn new(config: &ApiConfig) -> Result<Self, String> {
        let endpoint = config.endpoint.clone();
        let tls = if endpoint.tls {
            Some((tls::client_config(config)?, tls::server_name(config)?))
        } else {
            None
        };
        Ok(Self {
            endpoint,
            proxy: config.proxy.clone(),
            tls,
            state: Mutex::default(),
        })
    }

    /// Takes over the address that worked for `old`, where both lead to the same server.
    pub(super) fn keep_address_of(&self, old: &Self) {
        if self.endpoint == old.endpoint && self.proxy == old.proxy {
            let last = old.with(|state| state.last);
            self.with(|state| state.last = last);
        }
    }

    /// A TCP connection to the first address that takes one, of the server or of its proxy.
    pub(super) fn open(
        &self,
        clock: &Clock,
        deadline: Option<Instant>,
    ) -> Result<TcpStream, Failure> {
        match &self.proxy {
            None => self.connect(&self.endpoint, clock, deadline),
            Some(proxy) => self
                .connect(&proxy.endpoint, clock, deadline)
                .map_err(|failure| failure.via(proxy)),
        }
    }

    fn connect(
        &self,
        endpoint: &Endpoint,
        clock: &Clock,
        deadline: Option<Instant>,
    ) -> Result<TcpStream, Failure> {
        if let Some(address) = endpoint.address() {
            return dial(SocketAddr::new(address, endpoint.port), 1, clock, deadline);
        }
        let last = self.with(|state| state.last);
        let mut failure = None;
        if let Some(LastUsed::Good(address)) = last {
            // Half of the time, for what a lookup may bring needs the rest.
            match dial(address, 2, clock, deadline) {
                Ok(stream) => return Ok(stream),
                Err(e) => failure = Some(e.at(address)),
            }
        }
        // Read anew each time: DHCP writes resolv.conf when it pleases. A lookup has to
        // end, so that without a deadline there is no time for one.
        let left = || deadline.map_or(Duration::ZERO, |_| clock.left(deadline).unwrap_or_default());
        let addresses = match lookup(&Resolver::system(), endpoint, last, left) {
            Ok(addresses) => addresses,
            // No network often means no DNS either: the first failure tells more.
            Err(why) => return Err(failure.unwrap_or(Failure::Line(why))),
        };
        for (index, address) in addresses.iter().enumerate() {
            match dial(*address, addresses.len() - index, clock, deadline) {
                Ok(stream) => return Ok(stream),
                Err(e) => failure = Some(e.at(*address)),
            }
        }
        Err(failure.unwrap_or(Failure::TimedOut(Stage::Connecting)))
    }

    pub(super) fn good(&self, stream: &Arc<TcpStream>) {
        let last = stream.peer_addr().ok().map(LastUsed::Good);
        self.with(|state| {
            *state = State {
                last,
                stream: Arc::downgrade(stream),
            }
        });
    }

    pub(super) fn bad(&self, stream: &Arc<TcpStream>) {
        let last = stream.peer_addr().ok().map(LastUsed::Bad);
        self.with(|state| {
            *state = State {
                last,
                stream: Weak::new(),
            }
        });
    }

    pub(super) fn is_connected(&self) -> bool {
        let stream = self.with(|state| state.stream.upgrade());
        // Bytes that nobody asked for are the server's goodbye as often as not.
        stream.is_some_and(|stream| matches!(glance(&stream), Glance::Silent))
    }

    pub(super) fn was_connected(&self) -> bool {
        matches!(self.with(|state| state.last), Some(LastUsed::Good(_)))
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One attempt, with an equal share of what is left among `candidates`.
fn dial(
    address: SocketAddr,
    candidates: usize,
    clock: &Clock,
    deadline: Option<Instant>,
) -> Result<TcpStream, Failure> {
    let share = u32::try_from(candidates).unwrap_or(u32::MAX).max(1);
    clock
        .left(deadline)
        .and_then(|left| {
            TcpStream::connect_timeout(&address, (left / share).max(Duration::from_millis(1)))
        })
        .map_err(|e| Failure::io(&e, Stage::Connecting))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ureq::unversioned::transport::NextTimeout;
    use ureq::unversioned::transport::time;

    use super::*;

    fn link(host: &str, port: u16, last: Option<LastUsed>) -> Link {
        let config = ApiConfig::of(&format!("http://{host}:{port}")).unwrap();
        let link = Link::new(&config).unwrap();
        link.with(|state| state.last = last);
        link
    }

    fn open(link: &Link) -> Result<SocketAddr, String> {
        let clock = Clock::system();
        let soon = NextTimeout {
            after: time::Duration::from_secs(2),
            ..NextTimeout::default()
        };
        let stream = link
            .open(&clock, clock.deadline(soon))
            .map_err(|e| e.to_string())?;
        Ok(stream.peer_addr().unwrap())
    }

    #[test]
    fn the_last_good_address_needs_no_lookup_until_it_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let gone = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        for (host, last, want) in [
            ("localhost", None, Ok(here)),
            (
                "does-not-exist.invalid",
                Some(LastUsed::Good(here)),
                Ok(here),
            ),
            ("localhost", Some(LastUsed::Good(gone)), Ok(here)),
            ("localhost", Some(LastUsed::Bad(here)), Ok(here)),
            (
                "does-not-exist.invalid",
                Some(LastUsed::Good(gone)),
                Err(format!("connection refused (at {gone})")),
            ),
        ] {
            assert_eq!(
                open(&link(host, here.port(), last)),
                want,
                "{host} {last:?}"
            );
        }
        let refused = open(&link(
            "does-not-exist.invalid",
            1,
            Some(LastUsed::Bad(here)),
        ));
        assert!(refused.unwrap_err().starts_with("name lookup failed: "));
    }

    #[test]
    fn an_address_that_failed_after_tcp_is_tried_last() {
        let endpoint = link("localhost", 1, None).endpoint;
        let lookup = |last| {
            let left = || Duration::from_secs(2);
            lookup(&Resolver::system(), &endpoint, last, left).unwrap()
        };
        let addresses = lookup(None);
        let first = *addresses.first().unwrap();
        let again = lookup(Some(LastUsed::Bad(first)));
        assert_eq!((again.last(), again.len()), (Some(&first), addresses.len()));
    }
}
