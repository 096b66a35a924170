//! The checks `name-resolution` and `tcp`, of `nodelet check` and `nodelet join`.

use std::net::SocketAddr;
use std::time::Duration;

use super::api_config::Endpoint;
use super::dns::Resolver;
pub(crate) use super::failure::AT_PROXY;
use super::failure::ON_LOOPBACK;
use super::socket::Tcp;
use super::transport::NOT_THE_LAST;
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

/// Succeeds with the first address of the server, or of its proxy, that accepts a connection, as a
/// run does.
pub(crate) fn dial(addresses: &[SocketAddr], is_proxy: bool) -> Finding {
    let mut failures = Vec::new();
    for address in addresses {
        let limit = if addresses.last() == Some(address) { CONNECT } else { NOT_THE_LAST };
        match Tcp::connect_timeout(address, limit) {
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
