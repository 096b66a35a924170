//! Looks up the addresses of a name, within a given time and on this thread.
//!
//! `getaddrinfo` has no bound in time. This is the part of musl's that is needed: the hosts file,
//! then A and AAAA by UDP from all name servers of resolv.conf at once. No TCP, EDNS, DNSSEC, mDNS,
//! nsswitch.conf or IDNA.

mod lookup;
pub mod message;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::net::if_::if_nametoindex;

use crate::core::instant::Mono;
use crate::files::hosts;
use crate::files::read::read;
use crate::kube::text::VERBOSE;
use lookup::{Lookup, LookupResult, PORT};
use message::MAX_ADDRESSES;

/// Most name servers (musl's MAXNS).
const MAX_SERVERS: usize = 3;
/// Most domains (glibc's MAXDNSRCH; musl keeps 255 bytes of them).
const MAX_SEARCH: usize = 6;

/// Name servers and how to ask them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers; all are asked at once.
    pub servers: Vec<SocketAddr>,
    /// Domains for names of fewer than `ndots` dots, without a last dot.
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
        Self::parse(&text(resolv_conf), hosts)
    }

    /// The text of resolv.conf as musl reads it (`src/network/resolvconf.c`), man 5 resolv.conf. A
    /// keyword counts only at the beginning of a line; unknown text is skipped. An empty text means
    /// a name server on this machine.
    pub fn parse(resolv_conf: &str, hosts: impl Into<PathBuf>) -> Self {
        let mut servers = Vec::new();
        let mut resolver = Self {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            hosts: hosts.into(),
        };
        for line in resolv_conf.lines() {
            let Some((keyword, rest)) = line.split_once([' ', '\t']) else {
                continue;
            };
            match keyword {
                "nameserver" if servers.len() < MAX_SERVERS => {
                    servers.extend(rest.split_whitespace().next().and_then(server));
                }
                // The last line of either kind wins.
                "search" | "domain" => {
                    let domains = rest.split_whitespace();
                    resolver.search = domains
                        .map(|domain| domain.trim_end_matches('.'))
                        .filter(|domain| !domain.is_empty())
                        .map(str::to_owned)
                        .take(MAX_SEARCH)
                        .collect();
                }
                "options" => rest.split_whitespace().for_each(|option| resolver.option(option)),
                _ => {}
            }
        }
        if servers.is_empty() {
            servers.push(Some((Ipv4Addr::LOCALHOST, PORT).into()));
        }
        resolver.servers = servers.into_iter().flatten().collect();
        resolver
    }

    /// The limits are musl's. 0 is not allowed: questions would be sent without a pause.
    fn option(&mut self, option: &str) {
        let Some((key, value)) = option.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match key {
            "ndots" => self.ndots = usize::try_from(value.min(15)).unwrap_or(15),
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, 60).into()),
            "attempts" => self.attempts = value.clamp(1, 10),
            _ => {}
        }
    }

    /// The names to look up for `name`, in order: below each domain, then as it is. As in musl, a
    /// name with `ndots` dots or a last dot is looked up only as it is.
    fn candidates(&self, name: &str) -> Vec<String> {
        let mut names = Vec::new();
        if !name.ends_with('.') && name.matches('.').count() < self.ndots {
            names.extend(self.search.iter().map(|domain| format!("{name}.{domain}")));
        }
        names.push(name.to_owned());
        names
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
        let end = Mono::START.after(all);
        match lookup.run(end, clock).unwrap_or_else(|| lookup.outcome(clock())) {
            LookupResult::Addresses(addresses, _) => Ok(addresses),
            LookupResult::NoName(why)
            | LookupResult::NoAddress(why)
            | LookupResult::Failed(why) => Err(why),
        }
    }
}

/// RFC 6761 §6.3: no name server is asked. A board may lack a hosts file.
fn is_localhost(name: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case("localhost")
}

/// A name server, with the zone of a link-local address: `fe80::1%eth0`. `None` if it is not an
/// address, `Some(None)` if the zone is not an interface.
fn server(text: &str) -> Option<Option<SocketAddr>> {
    let Some((address, zone)) = text.split_once('%') else {
        let address: IpAddr = text.parse().ok()?;
        return Some(Some((address, PORT).into()));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let index = zone.parse().or_else(|_| if_nametoindex(zone)).ok();
    Some(index.map(|index| SocketAddrV6::new(address, PORT, 0, index).into()))
}

/// A file that cannot be read counts as empty.
fn text(path: &Path) -> String {
    String::from_utf8_lossy(&read(path).unwrap_or_default()).into_owned()
}

/// Bounds of an answer's life, whatever its TTL. A shorter life costs packets; with a longer one a
/// new address is noticed too late.
const HOLDS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

/// Sum of all waits in the life of a process.
const PATIENCE: Duration = Duration::from_secs(1);

/// The Node's own name and its last known addresses, looked up in the background: the status is
/// computed every ten seconds and must not wait for a name server.
#[derive(Debug)]
pub struct NodeName {
    name: String,
    /// None: this machine's configuration, read for each lookup, because DHCP rewrites it.
    resolver: Option<Resolver>,
    known: Vec<IpAddr>,
    pending: Option<Lookup>,
    /// When the next lookup begins.
    due: Mono,
    patience: Duration,
}

impl NodeName {
    /// Sends nothing yet. `resolver` is `None` for this machine's name servers.
    pub fn new(name: &str, resolver: Option<Resolver>) -> Self {
        Self {
            name: name.to_owned(),
            resolver,
            known: Vec::new(),
            pending: None,
            due: Mono::START,
            patience: PATIENCE,
        }
    }

    /// The addresses known so far; begins a lookup that is due.
    ///
    /// Waits only with `may_wait` and while no address is known: a second at most in all calls
    /// together, so that the Node is not registered with an address that the first answer changes.
    pub fn addresses(&mut self, may_wait: bool, now: impl Fn() -> Mono) -> Vec<IpAddr> {
        let start = now();
        if self.pending.is_none() && start >= self.due {
            let resolver = self.resolver.clone().unwrap_or_else(Resolver::system);
            self.pending = Lookup::start(&resolver, &self.name, start);
            self.due = start.after(HOLDS.1);
        }
        let waits = may_wait && self.known.is_empty();
        if let Some(lookup) = &mut self.pending {
            let end = if waits { start.after(self.patience) } else { start };
            let outcome = lookup.run(end, &now);
            let time = now();
            if waits {
                self.patience = self.patience.saturating_sub(time.since(start));
            }
            if let Some(outcome) = outcome {
                self.pending = None;
                self.learn(outcome, time);
            }
        }
        self.known.clone()
    }

    /// A failed lookup keeps the addresses; an answer without addresses clears them.
    fn learn(&mut self, outcome: LookupResult, now: Mono) {
        let holds = match outcome {
            LookupResult::Addresses(addresses, ttl) => {
                self.known = addresses;
                ttl.clamp(HOLDS.0, HOLDS.1)
            }
            LookupResult::NoName(why) | LookupResult::NoAddress(why) => {
                log::info!(target: VERBOSE, "address of {}: {why}", self.name);
                self.known.clear();
                HOLDS.1
            }
            LookupResult::Failed(why) => {
                log::info!(target: VERBOSE, "address of {}: {why}", self.name);
                HOLDS.0
            }
        };
        self.due = now.after(holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_as_musl_takes_it() {
        let local = || vec!["127.0.0.1"];
        for (text, servers, search, (ndots, timeout, attempts)) in [
            ("", local(), vec![], (1, 5, 2)),
            ("# nameserver 10.0.0.1\n;x\n\n", local(), vec![], (1, 5, 2)),
            (" nameserver 10.0.0.1", local(), vec![], (1, 5, 2)),
            ("nameserver\nnameserver \nnameserver ten\n", local(), vec![], (1, 5, 2)),
            (
                "nameserver 10.0.0.1\r\nnameserver\tfd00::1 # first\nnameserver  fe80::1%7\nnameserver 10.0.0.4\n",
                vec!["10.0.0.1", "fd00::1", "fe80::1%7"],
                vec![],
                (1, 5, 2),
            ),
            ("nameserver fe80::1%lo", vec!["fe80::1%1"], vec![], (1, 5, 2)),
            ("nameserver 10.0.0.1%eth0", local(), vec![], (1, 5, 2)),
            ("nameserver fe80::1%no-such-interface", vec![], vec![], (1, 5, 2)),
            ("search a.example b.example.\t.", local(), vec!["a.example", "b.example"], (1, 5, 2)),
            ("search a b\ndomain c", local(), vec!["c"], (1, 5, 2)),
            ("domain c\nsearch a b", local(), vec!["a", "b"], (1, 5, 2)),
            ("search a\nsearch \n", local(), vec![], (1, 5, 2)),
            ("search 1 2 3 4 5 6 7", local(), vec!["1", "2", "3", "4", "5", "6"], (1, 5, 2)),
            (
                "options ndots:3 timeout:2 attempts:4 rotate edns0\noptions use-vc",
                local(),
                vec![],
                (3, 2, 4),
            ),
            ("options ndots:99 timeout:99 attempts:99", local(), vec![], (15, 60, 10)),
            ("options ndots:0 timeout:0 attempts:0", local(), vec![], (0, 1, 1)),
            ("options ndots: timeout:x attempts:-1 ndots", local(), vec![], (1, 5, 2)),
            ("options timeout:99999999999", local(), vec![], (1, 5, 2)),
            ("optionsndots:3", local(), vec![], (1, 5, 2)),
        ] {
            let conf = Resolver::parse(text, "");
            assert!(conf.servers.iter().all(|server| server.port() == PORT));
            let said = |server: &SocketAddr| match server {
                SocketAddr::V6(server) if server.scope_id() > 0 => {
                    format!("{}%{}", server.ip(), server.scope_id())
                }
                server => server.ip().to_string(),
            };
            let said: Vec<String> = conf.servers.iter().map(said).collect();
            assert_eq!(said, servers, "{text:?}");
            assert_eq!(conf.search, search, "{text:?}");
            assert_eq!(
                (conf.ndots, conf.timeout.as_secs(), conf.attempts),
                (ndots, timeout, attempts),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_name_is_looked_for_in_the_domains_unless_it_has_dots_enough() {
        let search = ["a.example".to_owned(), "b".to_owned()];
        for (name, ndots, want) in [
            ("pi", 1, vec!["pi.a.example", "pi.b", "pi"]),
            ("pi.", 1, vec!["pi."]),
            ("pi.lan", 1, vec!["pi.lan"]),
            ("pi.lan", 2, vec!["pi.lan.a.example", "pi.lan.b", "pi.lan"]),
            ("pi", 0, vec!["pi"]),
        ] {
            let resolver = Resolver { search: search.to_vec(), ndots, ..Resolver::parse("", "") };
            assert_eq!(resolver.candidates(name), want, "{name} {ndots}");
        }
        assert_eq!(Resolver::parse("", "").candidates("pi"), ["pi"]);
    }
}
