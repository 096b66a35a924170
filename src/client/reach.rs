//! The checks `name-resolution` and `tcp`, of `nodelet check` and `nodelet join`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use super::api_config::Endpoint;
use super::dns::Resolver;
pub(crate) use super::failure::AT_PROXY;
use super::failure::ON_LOOPBACK;
use super::route::NOT_THE_LAST;
use super::socket::Tcp;
use crate::kube::finding::Finding;
use crate::os::clock::Clock;
use crate::os::read::cause;

/// Time limits of a name lookup and of the last connection attempt: those of a registration.
const LOOKUP: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(10);

/// The addresses of `peer`, as a run finds them.
pub(crate) fn resolve(peer: &Endpoint, clock: &Clock) -> (Finding, Vec<SocketAddr>) {
    let check = "name-resolution";
    let Endpoint { host, port, .. } = peer;
    if let Some(address) = peer.address() {
        let finding = Finding::note(check, format!("{host} is an address"), "");
        return (finding, vec![SocketAddr::new(address, *port)]);
    }
    let start = clock.now().mono;
    let left = || LOOKUP.saturating_sub(clock.now().mono.since(start));
    match Resolver::system().lookup(host, left) {
        Ok(found) => {
            let names: Vec<String> = found.iter().map(ToString::to_string).collect();
            let finding = Finding::ok(check, format!("{host} is {}", names.join(", ")));
            (finding, found.into_iter().map(|ip| SocketAddr::new(ip, *port)).collect())
        }
        Err(fault) => (Finding::failed(check, fault.at(host), ""), Vec::new()),
    }
}

/// Succeeds with the first address of the server, or of its proxy, that accepts a connection. As in
/// the rounds of a run, an address that was cut off for the sake of the next one is tried again.
pub(crate) fn dial(addresses: &[SocketAddr], is_proxy: bool) -> Finding {
    let (mut cut_off, mut failures) = (Vec::new(), Vec::new());
    let is_last = |address| addresses.last() == Some(address);
    for address in addresses {
        let limit = if is_last(address) { CONNECT } else { NOT_THE_LAST };
        match Tcp::connect_timeout(address, limit) {
            Ok(_) => return Finding::ok("tcp", address.to_string()),
            Err(e) if e.kind() == ErrorKind::TimedOut && !is_last(address) => cut_off.push(address),
            Err(e) => failures.push(format!("{address}: {}", cause(&e))),
        }
    }
    let shares = u32::try_from(cut_off.len()).unwrap_or(u32::MAX).max(1);
    for address in cut_off {
        match Tcp::connect_timeout(address, CONNECT / shares) {
            Ok(_) => return Finding::ok("tcp", address.to_string()),
            Err(e) => failures.push(format!("{address}: {}", cause(&e))),
        }
    }
    let remedy = match addresses.iter().any(|address| address.ip().is_loopback()) {
        _ if is_proxy => AT_PROXY,
        true => ON_LOOPBACK,
        false => "is the server up, is its port right, and does a firewall allow it?",
    };
    Finding::failed("tcp", failures.join(" | "), remedy)
}
