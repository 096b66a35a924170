//! The inputs of the node address: default routes, interfaces (always of this process's network
//! namespace) and `etc/hosts`.
//!
//! Routes are parsed exactly as in the kubelet (apimachinery util/net interface.go), because they
//! decide the node address: one malformed IPv4 line makes the fact unread, every IPv6 error is
//! ignored. procfs is not used: it has no IPv6 routes, and accepts lines that the kubelet rejects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::interfaces;
use crate::kube::facts::{DefaultRoute, Interface, Network, Presence, Read, Unread, renew};
use crate::os::hosts;
use crate::os::root::{HostRoot, unread};
#[cfg(test)]
use crate::sim::hook as sim;

const HOSTS: &str = "etc/hosts";
const ROUTE: &str = "proc/net/route";
const IPV6_ROUTE: &str = "proc/net/ipv6_route";
/// Names the interfaces in a fault.
const SOURCE: &str = "rtnetlink";

/// Sets routes and interfaces, which belong together: new interfaces do not stand beside old
/// routes. Returns whether the look had time for them.
pub(super) fn refresh(root: &HostRoot, network: &mut Network) -> bool {
    let is_reached = renew(&mut network.default_routes, routes(root));
    if is_reached {
        network.interfaces = interfaces();
    }
    is_reached
}

/// The addresses of `hostname` in `etc/hosts`; none without the file.
pub(super) fn hosts(root: &HostRoot, hostname: &str) -> Read<Vec<IpAddr>> {
    let found = root.open(HOSTS).and_then(|file| hosts::in_file(&file, hostname));
    let found = Presence::from(found.map_err(|error| unread(HOSTS, &error)));
    Ok(found.present()?.unwrap_or_default())
}

/// The interfaces of this process's network namespace, in the kernel's order, which is that of the
/// index.
pub fn interfaces() -> Read<Vec<Interface>> {
    #[cfg(test)]
    if let Some(interfaces) = sim::interfaces() {
        return interfaces;
    }
    interfaces::read().map_err(|error| unread(SOURCE, &error))
}

/// IPv4 in file order, then IPv6; `None` without `proc/net/route`.
pub fn routes(root: &HostRoot) -> Read<Option<Vec<DefaultRoute>>> {
    let Some(mut routes) = Presence::from(default_routes(root, ROUTE, parse_v4)).present()? else {
        return Ok(None);
    };
    // The kubelet ignores every error here, such as the missing file of a kernel without IPv6. But
    // if the look ended before the file was read, the file is not missing.
    match default_routes(root, IPV6_ROUTE, parse_v6) {
        Err(unread) if unread.is_not_reached() => return Err(unread),
        v6 => routes.extend(v6.unwrap_or_default()),
    }
    Ok(Some(routes))
}

/// Interface, gateway and whether it is a default route.
type RouteEntry<'a> = (&'a str, IpAddr, bool);

/// Line by line, because the table of a router has any size. As with Go's ReadString('\n'), a last
/// line without `\n` is dropped.
fn default_routes(
    root: &HostRoot,
    path: &str,
    parse: fn(&str) -> Option<RouteEntry<'_>>,
) -> Read<Vec<DefaultRoute>> {
    let (mut routes, mut is_valid) = (Vec::new(), true);
    let mut take = |line: &str| match parse(line) {
        _ if line.starts_with("Iface") => {}
        None => is_valid = false,
        Some((_, _, false)) => {}
        Some((interface, gateway, true)) => {
            routes.push(DefaultRoute { interface: interface.to_owned(), gateway });
        }
    };
    root.each_line(path, &mut take)?;
    if is_valid { Ok(routes) } else { Err(Unread::new(path, "invalid IP address in route")) }
}

/// A default route has the destination 0.0.0.0. As in the kubelet, mask, flags and metric are
/// ignored.
pub fn parse_v4(line: &str) -> Option<RouteEntry<'_>> {
    let mut fields = line.split_whitespace();
    let interface = fields.next()?;
    let destination = address_v4(fields.next()?)?;
    let gateway = address_v4(fields.next()?)?;
    Some((interface, gateway.into(), destination.is_unspecified()))
}

/// A default route has the destination `::` and a next hop. As in the kubelet, the prefix length is
/// ignored. Addresses are in network order.
pub fn parse_v6(line: &str) -> Option<RouteEntry<'_>> {
    let mut fields = line.split_whitespace();
    let destination = Ipv6Addr::from_bits(hex(fields.next()?, 32)?);
    let gateway = Ipv6Addr::from_bits(hex(fields.nth(3)?, 32)?);
    let is_default = destination.is_unspecified() && !gateway.is_unspecified();
    Some((fields.nth(4)?, gateway.into(), is_default))
}

/// The kernel prints the address in host byte order; the kubelet reads it as little-endian on every
/// machine.
fn address_v4(text: &str) -> Option<Ipv4Addr> {
    let number = u32::try_from(hex(text, 8)?).ok()?;
    Some(Ipv4Addr::from(number.to_le_bytes()))
}

/// The number of so many hex digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u128::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn hosts_of_any_size_and_encoding_name_the_node() {
        let tree = Tree::new("network-hosts");
        let blocked = "0.0.0.0 advertisements.example\n".repeat(50_000);
        let text = [b"10.0.0.2 pi # caf\xe9\n", blocked.as_bytes(), b"10.0.0.1 api pi"].concat();
        tree.write(HOSTS, &text);
        let root = HostRoot::new(tree.path());
        let found = hosts(&root, "pi").unwrap();
        assert_eq!(found, [2, 1].map(|last| IpAddr::from([10, 0, 0, last])));
        std::fs::remove_file(tree.join(HOSTS)).unwrap();
        assert_eq!(hosts(&root, "pi"), Ok(Vec::new()));
        std::fs::create_dir(tree.join(HOSTS)).unwrap();
        assert!(hosts(&root, "pi").is_err());
    }

    #[test]
    fn loopback_is_among_the_interfaces_of_this_process() {
        let interfaces = interfaces().unwrap();
        let lo = interfaces.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(lo.loopback && !lo.point_to_point);
        assert!(!lo.up || lo.addresses.contains(&IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)));
    }

    const HEADER: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    const DEFAULT: &str = "eth0\t00000000\t0100FE0A\t0003\t0\t0\t1024\t00000000\t0\t0\t0\n";
    const NETWORK: &str = "eth0\t0000FE0A\t00000000\t0001\t0\t0\t0\t0080FFFF\t0\t0\t0\n";
    const DOCKER: &str = "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";

    fn route(interface: &str, gateway: &str) -> DefaultRoute {
        DefaultRoute { interface: interface.into(), gateway: gateway.parse().unwrap() }
    }

    /// The default routes of a machine with these tables.
    fn of(v4: &str, v6: &str) -> Read<Vec<DefaultRoute>> {
        let tree = Tree::new("network-routes");
        tree.write(ROUTE, v4.as_bytes());
        tree.write(IPV6_ROUTE, v6.as_bytes());
        routes(&HostRoot::new(tree.path())).map(Option::unwrap)
    }

    fn v4(lines: &[&str]) -> Read<Vec<DefaultRoute>> {
        of(&lines.concat(), "")
    }

    /// TestGetIPv4Routes of apimachinery `util/net/interface_test.go`.
    #[test]
    fn ipv4_default_routes_are_the_kubelets() {
        let half = "tun0\t00000000\t0100080A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n";
        let ppp = "ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n";
        let default = ("eth0", "10.254.0.1");
        let all = [("tun0", "10.8.0.1"), ("ppp0", "0.0.0.0"), default];
        for (case, lines, want) in [
            ("first", &[HEADER, DEFAULT, NETWORK, DOCKER][..], &[default][..]),
            ("middle", &[HEADER, NETWORK, DEFAULT, DOCKER], &[default]),
            ("last", &[HEADER, NETWORK, DOCKER, DEFAULT], &[default]),
            ("header only", &[HEADER], &[]),
            ("no default", &[HEADER, NETWORK, DOCKER], &[]),
            ("empty file", &[], &[]),
            ("mask and gateway are ignored", &[HEADER, half, ppp, HEADER, DEFAULT], &all),
            ("a last line without newline", &[HEADER, DEFAULT, NETWORK.trim_end()], &[default]),
            ("a default without newline", &[HEADER, DEFAULT.trim_end()], &[]),
            ("junk without newline", &[HEADER, "eth0 junk"], &[]),
        ] {
            let want = want.iter().map(|(interface, gateway)| route(interface, gateway));
            assert_eq!(v4(lines), Ok(want.collect()), "{case}");
        }
        for (case, line) in [
            ("10-digit destination", "eth0\t0000000000\t0100FE0A\t0003\n"),
            ("10-digit gateway", "eth0\t00000000\t0100FE0AAA\t0003\n"),
            ("odd hex", "eth0\t0000000\t0100FE0A\t0003\n"),
            ("sign", "eth0\t+0000000\t0100FE0A\t0003\n"),
            ("no gateway", "eth0\t00000000\n"),
            ("no destination", "eth0\n"),
            ("empty line", "\n"),
        ] {
            // Upstream has one error text for each case; here they share one.
            let invalid = Unread::new("proc/net/route", "invalid IP address in route");
            assert_eq!(v4(&[HEADER, DEFAULT, line]), Err(invalid), "{case}");
        }
    }

    #[test]
    fn what_a_look_did_not_come_to_is_no_empty_file() {
        let tree = Tree::new("network-cut-off");
        tree.write(ROUTE, HEADER.as_bytes());
        let line = v6_line(ZERO, "00", V6_GATEWAY, "eth0");
        tree.write(IPV6_ROUTE, line.as_bytes());
        tree.write(HOSTS, b"192.0.2.7 pi\n");
        let root = HostRoot::new(tree.path());
        let look = root.look_of(1);
        assert!(routes(&root).is_err());
        drop(look);
        assert_eq!(routes(&root).unwrap().unwrap().len(), 1);

        let mut host = crate::host::Host::new(root.clone(), "/");
        let mut facts = host.read("pi");
        let hosts: Vec<IpAddr> = vec![[192, 0, 2, 7].into()];
        assert_eq!(facts.network.hosts, Ok(hosts));
        facts.network.interfaces = Ok(Vec::new());
        let former = facts.network.clone();
        let look = root.look_of(0);
        host.refresh_unannounced(&mut facts, "pi");
        host.refresh_network(&mut facts, "pi");
        assert_eq!(facts.network, former);
        drop(look);
        tree.write(HOSTS, b"");
        host.refresh_network(&mut facts, "pi");
        assert_eq!(facts.network.hosts, Ok(Vec::new()));
    }

    const ZERO: &str = "00000000000000000000000000000000";
    const V6_GATEWAY: &str = "fe800000000000000000000000000001";

    fn v6_line(destination: &str, prefix: &str, hop: &str, interface: &str) -> String {
        format!(
            "{destination} {prefix} {ZERO} 00 {hop} 00000400 00000001 00000000 00000003     {interface}\n"
        )
    }

    /// TestGetIPv6Routes of apimachinery `util/net/interface_test.go`.
    #[test]
    fn ipv6_default_routes_are_the_kubelets() {
        let default = v6_line(ZERO, "00", V6_GATEWAY, "eth0");
        let odd_prefix = v6_line(ZERO, "60", V6_GATEWAY, "eth1");
        let on_link = v6_line(ZERO, "00", ZERO, "lo");
        let network = v6_line("20010000000000000000000000000000", "40", V6_GATEWAY, "eth0");
        let eth0 = || vec![route("eth0", "fe80::1")];
        for (case, lines, want) in [
            ("first", vec![&default, &on_link, &network], eth0()),
            ("middle", vec![&on_link, &default, &network], eth0()),
            ("last", vec![&on_link, &network, &default], eth0()),
            (
                "prefix 60",
                vec![&default, &odd_prefix],
                vec![route("eth0", "fe80::1"), route("eth1", "fe80::1")],
            ),
            ("gateway :: on lo", vec![&on_link], vec![]),
            ("empty file", vec![], vec![]),
            ("no default", vec![&network], vec![]),
        ] {
            let text: String = lines.into_iter().map(String::as_str).collect();
            assert_eq!(of("", &text), Ok(want), "{case}");
        }
        assert_eq!(of("", default.trim_end()), Ok(vec![]), "no newline");
        for (case, line) in [
            ("short destination", v6_line("00", "00", V6_GATEWAY, "eth0")),
            ("long destination", v6_line(&format!("{ZERO}00"), "00", V6_GATEWAY, "eth0")),
            ("bad gateway", v6_line(ZERO, "00", "fe80::1", "eth0")),
            ("odd hex", v6_line(&ZERO[1..], "00", V6_GATEWAY, "eth0")),
            ("sign", v6_line(&format!("+{}", &ZERO[1..]), "00", V6_GATEWAY, "eth0")),
            ("no interface", v6_line(ZERO, "00", V6_GATEWAY, "")),
            ("empty line", "\n".into()),
        ] {
            // The kubelet ignores the error, and with it the whole table.
            assert_eq!(of("", &format!("{default}{line}")), Ok(vec![]), "{case}");
        }
    }

    #[test]
    fn the_default_routes_of_a_router_with_a_full_table_are_found() {
        let v4 = [HEADER, &NETWORK.repeat(30_000), DEFAULT].concat();
        let network = v6_line("20010000000000000000000000000000", "40", V6_GATEWAY, "eth0");
        let v6 = network.repeat(20_000) + &v6_line(ZERO, "00", V6_GATEWAY, "eth0");
        assert!(v4.len() > 1 << 20 && v6.len() > 1 << 20);
        let all = vec![route("eth0", "10.254.0.1"), route("eth0", "fe80::1")];
        assert_eq!(of(&v4, &v6), Ok(all));
    }
}
