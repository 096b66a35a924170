//! resolv.conf as musl reads it (`src/network/resolvconf.c`), man 5 resolv.conf.
//!
//! A keyword counts at the beginning of a line only; unknown text is skipped.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Most name servers (musl's MAXNS).
const MAX_SERVERS: usize = 3;
/// Most domains (glibc's MAXDNSRCH; musl keeps 255 bytes of them).
const MAX_SEARCH: usize = 6;

/// The settings of the file, or the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conf {
    /// Name servers, with the zone of a link-local address: `fe80::1%eth0`.
    pub servers: Vec<(IpAddr, Option<String>)>,
    /// Domains to append, without a last dot.
    pub search: Vec<String>,
    /// A name with this many dots is looked up without a domain alone.
    pub ndots: usize,
    /// Longest time for one name.
    pub timeout: Duration,
    /// How often a question is sent in that time.
    pub attempts: u32,
}

impl Conf {
    /// An empty text, as for a missing file, means a name server on this machine.
    pub fn parse(text: &str) -> Self {
        let mut conf = Self {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines() {
            let Some((keyword, rest)) = line.split_once([' ', '\t']) else {
                continue;
            };
            match keyword {
                "nameserver" if conf.servers.len() < MAX_SERVERS => {
                    conf.servers
                        .extend(rest.split_whitespace().next().and_then(server));
                }
                // The last line of either kind wins.
                "search" | "domain" => {
                    let domains = rest.split_whitespace();
                    conf.search = domains
                        .map(|domain| domain.trim_end_matches('.'))
                        .filter(|domain| !domain.is_empty())
                        .map(str::to_owned)
                        .take(MAX_SEARCH)
                        .collect();
                }
                "options" => rest
                    .split_whitespace()
                    .for_each(|option| conf.option(option)),
                _ => {}
            }
        }
        if conf.servers.is_empty() {
            conf.servers.push((Ipv4Addr::LOCALHOST.into(), None));
        }
        conf
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
}

fn server(text: &str) -> Option<(IpAddr, Option<String>)> {
    match text.split_once('%') {
        None => Some((text.parse().ok()?, None)),
        Some((address, zone)) => {
            let address: IpAddr = address.parse().ok()?;
            address.is_ipv6().then(|| (address, Some(zone.to_owned())))
        }
    }
}

/// The names to look up for `name`, in order: below each domain, then as it is. As in musl, a name
/// with `ndots` dots or a last dot is looked up as it is alone.
pub fn candidates(name: &str, search: &[String], ndots: usize) -> Vec<String> {
    let mut names = Vec::new();
    if !name.ends_with('.') && name.matches('.').count() < ndots {
        names.extend(search.iter().map(|domain| format!("{name}.{domain}")));
    }
    names.push(name.to_owned());
    names
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
            (
                "nameserver\nnameserver \nnameserver ten\n",
                local(),
                vec![],
                (1, 5, 2),
            ),
            (
                "nameserver 10.0.0.1\r\nnameserver\tfd00::1 # first\nnameserver  fe80::1%eth0\nnameserver 10.0.0.4\n",
                vec!["10.0.0.1", "fd00::1", "fe80::1%eth0"],
                vec![],
                (1, 5, 2),
            ),
            ("nameserver 10.0.0.1%eth0", local(), vec![], (1, 5, 2)),
            (
                "search a.example b.example.\t.",
                local(),
                vec!["a.example", "b.example"],
                (1, 5, 2),
            ),
            ("search a b\ndomain c", local(), vec!["c"], (1, 5, 2)),
            ("domain c\nsearch a b", local(), vec!["a", "b"], (1, 5, 2)),
            ("search a\nsearch \n", local(), vec![], (1, 5, 2)),
            (
                "search 1 2 3 4 5 6 7",
                local(),
                vec!["1", "2", "3", "4", "5", "6"],
                (1, 5, 2),
            ),
            (
                "options ndots:3 timeout:2 attempts:4 rotate edns0\noptions use-vc",
                local(),
                vec![],
                (3, 2, 4),
            ),
            (
                "options ndots:99 timeout:99 attempts:99",
                local(),
                vec![],
                (15, 60, 10),
            ),
            (
                "options ndots:0 timeout:0 attempts:0",
                local(),
                vec![],
                (0, 1, 1),
            ),
            (
                "options ndots: timeout:x attempts:-1 ndots",
                local(),
                vec![],
                (1, 5, 2),
            ),
            ("options timeout:99999999999", local(), vec![], (1, 5, 2)),
            ("optionsndots:3", local(), vec![], (1, 5, 2)),
        ] {
            let conf = Conf::parse(text);
            let said: Vec<String> = conf
                .servers
                .iter()
                .map(|(address, zone)| match zone {
                    Some(zone) => format!("{address}%{zone}"),
                    None => address.to_string(),
                })
                .collect();
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
            assert_eq!(candidates(name, &search, ndots), want, "{name} {ndots}");
        }
        assert_eq!(candidates("pi", &[], 1), ["pi"]);
    }
}
