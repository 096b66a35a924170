//! Default routes, from `proc/net/route` and `proc/net/ipv6_route`.
//!
//! Read as the kubelet reads them (apimachinery util/net interface.go), oddities
//! included, since they decide the node's address: one bad IPv4 line costs the fact,
//! every IPv6 error is ignored. Not procfs: it has no IPv6, and forgives lines that
//! the kubelet does not.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::core::facts::{DefaultRoute, Read, Unread};
use crate::files::read::LARGE;

use super::root::HostRoot;

const ROUTE: &str = "proc/net/route";

/// IPv4 in file order, then IPv6; `None` where there is no `proc/net/route`.
pub fn read(root: &HostRoot) -> Read<Option<Vec<DefaultRoute>>> {
    let mut routes = match root.text(ROUTE, LARGE) {
        Ok(text) => parse_v4(&text)?,
        Err(unread) if unread.absent => return Ok(None),
        Err(unread) => return Err(unread),
    };
    // The kubelet ignores every error here: a kernel without IPv6 is no fault.
    if let Ok(text) = root.text("proc/net/ipv6_route", LARGE) {
        routes.extend(parse_v6(&text).unwrap_or_default());
    }
    Ok(Some(routes))
}

/// Lines as Go's ReadString('\n') gives them: a last one without its end is dropped.
fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
}

/// Destination 0.0.0.0 makes a default route: the kubelet looks at neither mask nor
/// flags nor metric.
pub fn parse_v4(text: &str) -> Read<Vec<DefaultRoute>> {
    let invalid = || Unread::new(ROUTE, "invalid IPv4 address in route");
    let mut routes = Vec::new();
    for line in whole_lines(text).filter(|line| !line.starts_with("Iface")) {
        let mut fields = line.split_whitespace();
        let interface = fields.next().ok_or_else(invalid)?;
        let destination = fields.next().and_then(address_v4).ok_or_else(invalid)?;
        let gateway = fields.next().and_then(address_v4).ok_or_else(invalid)?;
        if destination.is_unspecified() {
            routes.push(DefaultRoute {
                interface: interface.to_owned(),
                gateway: gateway.into(),
            });
        }
    }
    Ok(routes)
}

/// Destination `::` with a next hop: the prefix length is not looked at.
pub fn parse_v6(text: &str) -> Option<Vec<DefaultRoute>> {
    let mut routes = Vec::new();
    for line in whole_lines(text).filter(|line| !line.starts_with("Iface")) {
        let mut fields = line.split_whitespace();
        let destination = address_v6(fields.next()?)?;
        let gateway = address_v6(fields.nth(3)?)?;
        let interface = fields.nth(4)?;
        if destination.is_unspecified() && !gateway.is_unspecified() {
            routes.push(DefaultRoute {
                interface: interface.to_owned(),
                gateway: gateway.into(),
            });
        }
    }
    Some(routes)
}

/// Eight hex digits. The kernel prints the address as a number of the machine, and
/// the kubelet takes it for little-endian everywhere.
fn address_v4(hex: &str) -> Option<Ipv4Addr> {
    let digits = hex.len() == 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits
        .then(|| u32::from_str_radix(hex, 16).ok())
        .flatten()
        .map(|number| Ipv4Addr::from(number.to_le_bytes()))
}

/// Thirty-two hex digits in network order.
fn address_v6(hex: &str) -> Option<Ipv6Addr> {
    let digits = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits
        .then(|| u128::from_str_radix(hex, 16).ok())
        .flatten()
        .map(Ipv6Addr::from_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    const DEFAULT: &str = "eth0\t00000000\t0100FE0A\t0003\t0\t0\t1024\t00000000\t0\t0\t0\n";
    const NETWORK: &str = "eth0\t0000FE0A\t00000000\t0001\t0\t0\t0\t0080FFFF\t0\t0\t0\n";
    const DOCKER: &str = "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";

    fn route(interface: &str, gateway: &str) -> DefaultRoute {
        DefaultRoute {
            interface: interface.into(),
            gateway: gateway.parse().unwrap(),
        }
    }

    fn v4(lines: &[&str]) -> Read<Vec<DefaultRoute>> {
        parse_v4(&lines.concat())
    }

    /// interface_test.go TestGetIPv4Routes.
    #[test]
    fn ipv4_default_routes_are_the_kubelets() {
        let gateway = Ok(vec![route("eth0", "10.254.0.1")]);
        assert_eq!(v4(&[HEADER, DEFAULT, NETWORK, DOCKER]), gateway);
        assert_eq!(v4(&[HEADER, NETWORK, DEFAULT, DOCKER]), gateway);
        assert_eq!(v4(&[HEADER, NETWORK, DOCKER, DEFAULT]), gateway);
        assert_eq!(v4(&[HEADER]), Ok(vec![]));
        assert_eq!(v4(&[]), Ok(vec![]));
        assert_eq!(v4(&[HEADER, NETWORK, DOCKER]), Ok(vec![]));
        let invalid = Err(Unread::new(
            "proc/net/route",
            "invalid IPv4 address in route",
        ));
        for line in [
            "eth0\t0000000000\t0100FE0A\t0003\n",
            "eth0\t00000000\t0100FE0AAA\t0003\n",
            "eth0\t0000000\t0100FE0A\t0003\n",
            "eth0\t+0000000\t0100FE0A\t0003\n",
            "eth0\t00000000\n",
            "eth0\n",
            "\n",
        ] {
            assert_eq!(v4(&[HEADER, DEFAULT, line]), invalid, "{line:?}");
        }
    }

    #[test]
    fn neither_mask_nor_gateway_matter_and_file_order_does() {
        let half = "tun0\t00000000\t0100080A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n";
        let ppp = "ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n";
        let all = vec![
            route("tun0", "10.8.0.1"),
            route("ppp0", "0.0.0.0"),
            route("eth0", "10.254.0.1"),
        ];
        assert_eq!(v4(&[HEADER, half, ppp, HEADER, DEFAULT]), Ok(all));
    }

    #[test]
    fn a_last_line_without_its_end_is_dropped() {
        assert_eq!(
            v4(&[HEADER, DEFAULT, NETWORK.trim_end()]),
            Ok(vec![route("eth0", "10.254.0.1")])
        );
        assert_eq!(v4(&[HEADER, DEFAULT.trim_end()]), Ok(vec![]));
        assert_eq!(v4(&[HEADER, "eth0 junk"]), Ok(vec![]));
    }

    const ZERO: &str = "00000000000000000000000000000000";
    const V6_GATEWAY: &str = "fe800000000000000000000000000001";

    fn v6_line(destination: &str, prefix: &str, hop: &str, interface: &str) -> String {
        format!(
            "{destination} {prefix} {ZERO} 00 {hop} 00000400 00000001 00000000 00000003     {interface}\n"
        )
    }

    /// interface_test.go TestGetIPv6Routes.
    #[test]
    fn ipv6_default_routes_are_the_kubelets() {
        let default = v6_line(ZERO, "00", V6_GATEWAY, "eth0");
        let odd_prefix = v6_line(ZERO, "60", V6_GATEWAY, "eth1");
        let on_link = v6_line(ZERO, "00", ZERO, "lo");
        let network = v6_line("20010000000000000000000000000000", "40", V6_GATEWAY, "eth0");
        let all = [&default, &on_link, &network, &odd_prefix]
            .map(String::as_str)
            .concat();
        assert_eq!(
            parse_v6(&all),
            Some(vec![route("eth0", "fe80::1"), route("eth1", "fe80::1")])
        );
        for order in [
            [&default, &on_link, &network],
            [&on_link, &default, &network],
            [&on_link, &network, &default],
        ] {
            let text = order.map(String::as_str).concat();
            assert_eq!(parse_v6(&text), Some(vec![route("eth0", "fe80::1")]));
        }
        assert_eq!(parse_v6(&network), Some(vec![]));
        assert_eq!(parse_v6(""), Some(vec![]));
        assert_eq!(parse_v6(default.trim_end()), Some(vec![]));
        for broken in [
            v6_line("00", "00", V6_GATEWAY, "eth0"),
            v6_line(ZERO, "00", "fe80::1", "eth0"),
            v6_line(ZERO, "00", V6_GATEWAY, ""),
            "\n".into(),
        ] {
            assert_eq!(parse_v6(&format!("{default}{broken}")), None, "{broken:?}");
        }
    }

    /// interface_test.go TestParseIP.
    #[test]
    fn hex_becomes_an_address() {
        for hex in ["", "AA", "0011223344", "invalid!", "0x123456"] {
            assert_eq!(address_v4(hex), None, "{hex}");
        }
        assert_eq!(address_v4("00000000"), Some(Ipv4Addr::UNSPECIFIED));
        assert_eq!(address_v4("FFFFFFFF"), Some(Ipv4Addr::BROADCAST));
        assert_eq!(address_v4("12345678"), Some(Ipv4Addr::new(120, 86, 52, 18)));
        assert_eq!(
            address_v6("fe800000000000000000000000000001"),
            Some("fe80::1".parse().unwrap())
        );
        for hex in [
            "",
            "fe80",
            "fe80000000000000000000000000000100",
            "+e800000000000000000000000000001",
        ] {
            assert_eq!(address_v6(hex), None, "{hex}");
        }
    }
}
