//! Looks up the addresses of a name, within a given time and on this thread.
//!
//! `getaddrinfo` has no bound in time. This is the part of it that is needed: the hosts file, then
//! A and AAAA by UDP from the name servers of resolv.conf, with the result of Go and glibc. No TCP,
//! DNSSEC, mDNS, nsswitch.conf or IDNA.

mod exchange;
mod lookup;
pub mod message;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::net::if_::if_nametoindex;

use crate::kube::facts::{Read, Unread};
use crate::kube::instant::Mono;
use crate::kube::text::{Fault, VERBOSE};
use crate::os::guard::read;
use crate::os::read::open;
use crate::os::{guard, host_name, hosts};
use exchange::Exchange;
use lookup::{Lookup, LookupResult};
use message::MAX_ADDRESSES;

/// UDP port of a name server.
const PORT: u16 = 53;

/// Most name servers (MAXNS of glibc; Go has the same limit).
const MAX_SERVERS: usize = 3;
/// Most domains (Kubernetes' limit for a pod; Go and glibc have none).
const MAX_SEARCH: usize = 32;

/// Remedy for a name without an address.
const REMEDY: &str = "is the name right, and are the name servers in /etc/resolv.conf reachable?";

/// Name servers and how to ask them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers. All are asked at once; the first one in the list that answers counts.
    pub servers: Vec<SocketAddr>,
    /// Domains below which a name is looked up, without a last dot.
    pub search: Vec<String>,
    /// A name with this many dots is looked up as it is before [`Self::search`], else after.
    pub ndots: usize,
    /// How long a server may be silent.
    pub timeout: Duration,
    /// How often a question is sent while all servers fail; at least once.
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
        let host = host_name();
        Self::of_host(&host.to_string_lossy(), &text(resolv_conf), hosts)
    }

    /// If resolv.conf has no search list, the domain of the machine's name is searched, as in Go
    /// and glibc.
    fn of_host(host: &str, resolv_conf: &str, hosts: impl Into<PathBuf>) -> Self {
        let domain = host.split_once('.').map_or("", |(_, domain)| domain);
        Self::parse(&format!("domain {domain}\n{resolv_conf}"), hosts)
    }

    /// The text of resolv.conf as glibc reads it (`resolv/res_init.c`), man 5 resolv.conf. A
    /// keyword counts only at the beginning of a line; unknown text is skipped. An empty text means
    /// a name server on this machine. `rotate` has no effect: each server is asked anyway, and the
    /// result would depend on chance.
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
            let mut words = rest.split_whitespace().peekable();
            match keyword {
                "nameserver" if servers.len() < MAX_SERVERS => {
                    servers.extend(words.next().and_then(NameServer::parse));
                }
                // The last line with `search` or `domain` wins; a line without a domain is ignored.
                // Below the domain "." a name is looked up as it is, so `search .` is an empty
                // list.
                "search" | "domain" if words.peek().is_some() => {
                    let most = if keyword == "domain" { 1 } else { MAX_SEARCH };
                    resolver.search = words
                        .take(most)
                        .map(|domain| domain.trim_end_matches('.'))
                        .filter(|domain| !domain.is_empty())
                        .map(str::to_owned)
                        .collect();
                }
                "options" => words.for_each(|option| resolver.option(option)),
                _ => {}
            }
        }
        if servers.is_empty() {
            servers.push(NameServer::At((Ipv4Addr::LOCALHOST, PORT).into()));
        }
        let reachable = servers.into_iter().filter_map(|server| match server {
            NameServer::At(address) => Some(address),
            NameServer::Unreachable => None,
        });
        resolver.servers = reachable.collect();
        resolver
    }

    /// The limits are glibc's. 0 is not allowed: questions would be sent without a pause.
    fn option(&mut self, option: &str) {
        let Some((key, value)) = option.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match key {
            "ndots" => self.ndots = usize::try_from(value.min(15)).unwrap_or(15),
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, 30).into()),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// The names to look up for `name`, in order. A name with a last dot is complete.
    fn candidates(&self, name: &str) -> Vec<String> {
        let mut names = Vec::new();
        if !name.ends_with('.') {
            names.extend(self.search.iter().map(|domain| format!("{name}.{domain}")));
        }
        let has_dots = name.matches('.').count() >= self.ndots;
        names.insert(if has_dots { 0 } else { names.len() }, name.to_owned());
        names
    }

    /// At least one address of `name`. `left` is the rest of the caller's time.
    pub fn lookup(&self, name: &str, left: impl Fn() -> Duration) -> Result<Vec<IpAddr>, Fault> {
        // A file that cannot be read counts as empty.
        let file = guard::found(&self.hosts).and_then(|path| open(&path));
        let known = file.and_then(|file| hosts::in_file(&file, name));
        let mut known = known.unwrap_or_default();
        known.truncate(MAX_ADDRESSES);
        if known.is_empty() && is_localhost(name) {
            known = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        if !known.is_empty() {
            return Ok(known);
        }
        let all = left();
        let clock = || Mono::START.after(all.saturating_sub(left()));
        let end = Mono::START.after(all);
        let mut exchange = Lookup::new(self.clone(), name, clock(), end)
            .map(Exchange::new)
            .ok_or_else(|| Fault::from(format!("{name:?} cannot be a host name")))?;
        match exchange.run(end, clock).unwrap_or_else(|| exchange.lookup.result(clock())) {
            LookupResult::Addresses(addresses, _) => Ok(addresses),
            LookupResult::Absent(why) | LookupResult::Failed(why) => Err(Fault::new(why, REMEDY)),
        }
    }
}

/// RFC 6761 §6.3: no name server is asked. A board may lack a hosts file.
fn is_localhost(name: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case("localhost")
}

/// A name server of resolv.conf.
enum NameServer {
    At(SocketAddr),
    /// The zone of its link-local address, `fe80::1%eth0`, is not an interface.
    Unreachable,
}

impl NameServer {
    /// `None` if it is not an address.
    fn parse(text: &str) -> Option<Self> {
        let Some((address, zone)) = text.split_once('%') else {
            let address: IpAddr = text.parse().ok()?;
            return Some(Self::At((address, PORT).into()));
        };
        let address: Ipv6Addr = address.parse().ok()?;
        Some(match zone.parse().or_else(|_| if_nametoindex(zone)) {
            Ok(index) => Self::At(SocketAddrV6::new(address, PORT, 0, index).into()),
            Err(_) => Self::Unreachable,
        })
    }
}

/// A file that cannot be read counts as empty.
fn text(path: &Path) -> String {
    String::from_utf8_lossy(&read(path).unwrap_or_default()).into_owned()
}

/// How long addresses are used: as long as their TTL says, but at least 60 s, because each lookup
/// costs packets, and at most 300 s, because a new address must be noticed.
const HOLDS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

/// How long all calls of [`NodeName::addresses`] in a process may wait, taken together.
const PATIENCE: Duration = Duration::from_secs(1);

/// The Node's own name and its last known addresses, looked up in the background: the status is
/// computed every ten seconds and must not wait for a name server.
#[derive(Debug)]
pub struct NodeName {
    name: String,
    /// None: this machine's configuration, read for each lookup, because DHCP rewrites it.
    resolver: Option<Resolver>,
    /// Unread until a lookup of this process has a result, or two have failed.
    known: Read<Vec<IpAddr>>,
    has_failed: bool,
    pending: Option<Exchange>,
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
            known: Err(Unread::new("DNS", "no result yet")),
            has_failed: false,
            pending: None,
            due: Mono::START,
            patience: PATIENCE,
        }
    }

    /// The addresses of the last lookup with a result; begins a lookup that is due. Unread before
    /// the first result: a Node that another process has written keeps its address until then.
    ///
    /// Waits only with `may_wait` and while no address is known: a second at most in all calls
    /// together. Without this wait, the Node would be registered with an address that the first
    /// answer of a name server changes.
    pub fn addresses(&mut self, may_wait: bool, now: impl Fn() -> Mono) -> Read<Vec<IpAddr>> {
        let start = now();
        if self.pending.is_none() && start >= self.due {
            let resolver = self.resolver.clone().unwrap_or_else(Resolver::system);
            let forever = start.after(Duration::MAX);
            let lookup = Lookup::new(resolver, &self.name, start, forever);
            self.pending = lookup.map(Exchange::new);
            self.due = start.after(HOLDS.1);
            if self.pending.is_none() {
                self.known = Ok(Vec::new());
            }
        }
        let waits = may_wait && self.known.as_ref().map_or(true, Vec::is_empty);
        if let Some(exchange) = &mut self.pending {
            let end = if waits { start.after(self.patience) } else { start };
            let result = exchange.run(end, &now);
            let time = now();
            if waits {
                self.patience = self.patience.saturating_sub(time.since(start));
            }
            if let Some(result) = result {
                self.pending = None;
                self.learn(result, time);
            }
        }
        self.known.clone()
    }

    /// A failed lookup keeps the addresses. An answer without addresses clears them.
    fn learn(&mut self, result: LookupResult, now: Mono) {
        let holds = match result {
            LookupResult::Addresses(addresses, ttl) => {
                self.known = Ok(addresses);
                ttl.clamp(HOLDS.0, HOLDS.1)
            }
            LookupResult::Absent(why) => {
                log::info!(target: VERBOSE, "address of {}: {why}", self.name);
                self.known = Ok(Vec::new());
                HOLDS.1
            }
            LookupResult::Failed(why) => {
                log::info!(target: VERBOSE, "address of {}: {why}", self.name);
                // A name server may still start. Where there is none, the address follows the
                // default route, as that of a kubelet.
                if self.known.is_err() && std::mem::replace(&mut self.has_failed, true) {
                    self.known = Ok(Vec::new());
                }
                HOLDS.0
            }
        };
        self.due = now.after(holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn every_line_as_glibc_takes_it() {
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
            ("search a\nsearch \ndomain\t", local(), vec!["a"], (1, 5, 2)),
            ("domain a\nsearch .", local(), vec![], (1, 5, 2)),
            ("domain a b", local(), vec!["a"], (1, 5, 2)),
            ("search 1 2 3 4 5 6 7", local(), "1 2 3 4 5 6 7".split(' ').collect(), (1, 5, 2)),
            (
                "nameserver ten\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4",
                vec!["10.0.0.1", "10.0.0.2", "10.0.0.3"],
                vec![],
                (1, 5, 2),
            ),
            (
                "options ndots:3 timeout:2 attempts:4 rotate edns0\noptions use-vc",
                local(),
                vec![],
                (3, 2, 4),
            ),
            ("options ndots:99 timeout:99 attempts:99", local(), vec![], (15, 30, 5)),
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
    fn a_hosts_file_of_any_size_is_read_to_its_last_line() {
        let tree = Tree::new("dns-hosts");
        let blocked = "0.0.0.0 advertisements.example\n".repeat(50_000);
        tree.write("hosts", format!("# \u{e9}\n{blocked}10.0.0.1 api pi").as_bytes());
        let resolver =
            Resolver { servers: Vec::new(), ..Resolver::parse("", tree.path().join("hosts")) };
        let found = resolver.lookup("api", || Duration::from_secs(1));
        assert_eq!(found, Ok(vec![Ipv4Addr::new(10, 0, 0, 1).into()]));
    }

    #[test]
    fn the_domain_of_the_machine_is_a_search_list_where_there_is_none() {
        for (host, conf, search) in [
            ("pi.corp.example", "nameserver 10.0.0.1", &["corp.example"][..]),
            ("pi.corp.example", "search a", &["a"]),
            ("pi.corp.example", "search .", &[]),
            ("pi", "", &[]),
            ("pi.", "", &[]),
        ] {
            assert_eq!(Resolver::of_host(host, conf, "").search, search, "{host} {conf}");
        }
    }

    #[test]
    fn a_name_with_dots_enough_is_looked_up_as_it_is_first() {
        let search = ["a.example".to_owned(), "b".to_owned()];
        for (name, ndots, want) in [
            ("pi", 1, &["pi.a.example", "pi.b", "pi"][..]),
            ("pi.", 1, &["pi."]),
            ("kube.prod", 1, &["kube.prod", "kube.prod.a.example", "kube.prod.b"]),
            ("kube.prod", 2, &["kube.prod.a.example", "kube.prod.b", "kube.prod"]),
            ("kube.prod.", 2, &["kube.prod."]),
            ("pi", 0, &["pi", "pi.a.example", "pi.b"]),
        ] {
            let resolver = Resolver { search: search.to_vec(), ndots, ..Resolver::parse("", "") };
            assert_eq!(resolver.candidates(name), want, "{name} {ndots}");
        }
        assert_eq!(Resolver::parse("", "").candidates("pi"), ["pi"]);
        assert_eq!(Resolver::parse("", "").candidates("kube.prod"), ["kube.prod"]);
    }
}
