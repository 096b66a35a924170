//! The addresses in `--node-ip`.

use std::net::IpAddr;

/// `--node-ip`, as component-helpers `node/util/ips.go` ParseNodeIPArgument parses it. An item that
/// is not an IP address is dropped with a warning, because a template may leave it empty.
pub(super) fn parse(text: &str) -> Result<Vec<IpAddr>, String> {
    let (mut ips, mut dropped) = (Vec::new(), Vec::new());
    for item in text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        match parse_ip(item) {
            Some(ip) => ips.push(ip),
            None => dropped.push(item),
        }
    }
    if ips.is_empty() && !text.trim().is_empty() {
        return Err("not an IP address".to_owned());
    }
    for item in dropped {
        log::warn!("--node-ip: {item:?} is not an IP address; ignored");
    }
    let pair = match ips.as_slice() {
        [] | [_] => return Ok(ips),
        [a, b] => a.is_ipv4() != b.is_ipv4(),
        _ => false,
    };
    if !pair {
        return Err("must contain either a single IP or a dual-stack pair of IPs".to_owned());
    }
    if ips.iter().any(IpAddr::is_unspecified) {
        return Err("dual-stack node IP cannot include '0.0.0.0' or '::'".to_owned());
    }
    Ok(ips)
}

/// Parses an IP address as `k8s.io/utils/net` ParseIPSloppy does: an IPv4 number with leading zeros
/// is decimal, and an IPv4-mapped IPv6 address is IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok().map(|ip: IpAddr| ip.to_canonical());
    }
    let plain: Vec<&str> = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            digits => digits,
        })
        .collect();
    plain.join(".").parse().ok()
}
