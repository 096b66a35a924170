//! Looks up the addresses of a name, within a given time and on this thread.
//!
//! `getaddrinfo` has no bound in time. This is the part of musl's that is needed: the hosts file,
//! then A and AAAA by UDP from all name servers of resolv.conf at once. No TCP, EDNS, DNSSEC, mDNS,
//! nsswitch.conf or IDNA.

mod exchange;
pub mod hosts;
mod lookup;
pub mod message;
mod node_name;
pub mod resolv_conf;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::net::if_::if_nametoindex;

use crate::core::instant::Mono;
use crate::files::read::read;
use exchange::{Outcome, PORT};
use lookup::Lookup;
use message::MAX_ADDRESSES;
pub use node_name::NodeName;
use resolv_conf::Conf;

/// Name servers and how to ask them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers; all are asked at once.
    pub servers: Vec<SocketAddr>,
    /// Domains for names of fewer than `ndots` dots.
    pub search: Vec<String>,
    /// See [`Self::search`].
    pub ndots: usize,
    /// Longest time for one name.
    pub timeout: Duration,
    /// How often a question is sent in that time.
    pub attempts: u32,
    /// The hosts file, read by each lookup.
    pub hosts: PathBuf,
}

impl Resolver {
    /// This machine's configuration, read now.
    pub fn system() -> Self {
        Self::read(Path::new("/etc/resolv.conf"), "/etc/hosts")
    }

    /// A resolv.conf that cannot be read counts as empty.
    pub fn read(resolv_conf: &Path, hosts: impl Into<PathBuf>) -> Self {
        let conf = Conf::parse(&text(resolv_conf));
        Self {
            servers: conf.servers.iter().filter_map(socket_address).collect(),
            search: conf.search,
            ndots: conf.ndots,
            timeout: conf.timeout,
            attempts: conf.attempts,
            hosts: hosts.into(),
        }
    }

    /// One to eight addresses of `name`. `left` is the rest of the caller's time. The error is one
    /// line.
    pub fn lookup(&self, name: &str, left: impl Fn() -> Duration) -> Result<Vec<IpAddr>, String> {
        let mut known = hosts::addresses(&text(&self.hosts), name);
        known.truncate(MAX_ADDRESSES);
        if known.is_empty() && is_localhost(name) {
            known = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        if !known.is_empty() {
            return Ok(known);
        }
        let all = left();
        let clock = || Mono::START.after(all.saturating_sub(left()));
        let mut lookup = Lookup::start(self, name, clock())
            .ok_or_else(|| format!("{name:?} cannot be a host name"))?;
        loop {
            let now = clock();
            let outcome = match lookup.turn(now) {
                Some(outcome) => outcome,
                None if now >= Mono::START.after(all) => lookup.outcome(now),
                None => {
                    lookup.wait(left(), now);
                    continue;
                }
            };
            return match outcome {
                Outcome::Addresses(addresses, _) => Ok(addresses),
                Outcome::NoName(why) | Outcome::NoAddress(why) | Outcome::Failed(why) => Err(why),
            };
        }
    }
}

/// RFC 6761 §6.3: no name server is asked. A board may lack a hosts file.
fn is_localhost(name: &str) -> bool {
    name.strip_suffix('.')
        .unwrap_or(name)
        .eq_ignore_ascii_case("localhost")
}

/// `None` where the zone is not an interface.
fn socket_address((address, zone): &(IpAddr, Option<String>)) -> Option<SocketAddr> {
    match (address, zone) {
        (IpAddr::V6(address), Some(zone)) => {
            let index = zone
                .parse()
                .or_else(|_| if_nametoindex(zone.as_str()))
                .ok()?;
            Some(SocketAddrV6::new(*address, PORT, 0, index).into())
        }
        _ => Some(SocketAddr::new(*address, PORT)),
    }
}

/// A file that cannot be read counts as empty.
fn text(path: &Path) -> String {
    String::from_utf8_lossy(&read(path).unwrap_or_default()).into_owned()
}
