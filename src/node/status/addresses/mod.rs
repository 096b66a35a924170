//! The Node's addresses: from `--node-ip`, from its name, or from the default route.
//!
//! After a failure the addresses are unchanged and the Node stays ready. If etc/hosts cannot be
//! read, the address is unchanged while an interface has it.
//! Upstream: setters.go NodeAddress, `validateNodeIP` in kubelet_node_status.go, and
//! apimachinery `pkg/util/net/interface.go` for the route.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::config::{self, NodeConfig};
use crate::kube::facts::{Interface, Network};
use crate::kube::object::{self, K3S_HOSTNAME, K3S_INTERNAL_IP, PROVIDED_NODE_IP};

/// The setter NodeAddress.
pub(super) fn set(node: &mut Value, config: &NodeConfig, network: &Network) -> Result<(), String> {
    let specified: Vec<IpAddr> =
        config.node_ips.iter().copied().filter(|ip| !ip.is_unspecified()).collect();
    for (index, ip) in specified.iter().enumerate() {
        let which = if index == 0 { "nodeIP" } else { "secondaryNodeIP" };
        validate(*ip, network).map_err(|e| format!("failed to validate {which}: {e}"))?;
    }
    let has_addresses = !object::list(node, &["status", "addresses"]).is_empty();
    let is_left_to_cloud = config.external_cloud && (has_addresses || config.node_ips.is_empty());
    let needs_choice = specified.is_empty() && (config.is_of_k3s || !is_left_to_cloud);
    let chosen = needs_choice.then(|| choose(node, config, network)).transpose();
    // What can fail is done before the first write.
    let chosen =
        chosen.map_err(|e| format!("can't get ip address of node {}. error: {e}", config.name))?;
    annotate(node, config, &specified);
    let ips = chosen.map_or(specified, |ip| vec![ip]);
    if config.is_of_k3s {
        annotate_for_k3s(node, &ips, &config.name);
    }
    if !is_left_to_cloud {
        write(node, &ips, config);
    } else if !has_addresses {
        write(node, &[], config);
    }
    Ok(())
}

/// Sets the annotations that an agent of k3s sets. For a Node without them the cloud controller of
/// k3s logs an error each minute, and it replaces the addresses of a Node by those in the
/// annotations.
fn annotate_for_k3s(node: &mut Value, ips: &[IpAddr], hostname: &str) {
    let ips = joined(ips);
    let annotations = object::members(node, &["metadata", "annotations"]);
    for (keys, text) in [(K3S_INTERNAL_IP, ips.as_str()), (K3S_HOSTNAME, hostname)] {
        for key in keys {
            annotations.insert(key.into(), text.into());
        }
    }
}

fn joined(ips: &[IpAddr]) -> String {
    let text: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
    text.join(",")
}

/// Beside the controller of k3s, addresses of other types are its own: it takes them from
/// annotations such as `k3s.io/external-ip`, and would write them again within a minute.
fn write(node: &mut Value, ips: &[IpAddr], config: &NodeConfig) {
    let mut addresses: Vec<Value> =
        ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip.to_string()})).collect();
    if config.is_of_k3s {
        let old = object::list(node, &["status", "addresses"]).iter();
        let is_ours =
            |it: &&Value| ["InternalIP", "Hostname"].contains(&object::text(it, &["type"]));
        addresses.extend(old.filter(|it| !is_ours(it)).cloned());
    }
    addresses.push(json!({"type": "Hostname", "address": config.name}));
    object::set(node, &["status", "addresses"], addresses.into());
}

fn annotate(node: &mut Value, config: &NodeConfig, specified: &[IpAddr]) {
    let path = ["metadata", "annotations", PROVIDED_NODE_IP];
    if config.external_cloud && !specified.is_empty() {
        object::set(node, &path, joined(specified).into());
    } else if object::at(node, &path).is_some() {
        object::members(node, &["metadata", "annotations"]).remove(PROVIDED_NODE_IP);
    }
}

/// Whether the choice needs a DNS lookup of the Node's name. As in Go's resolver, an entry in
/// etc/hosts prevents it, even if the address is unusable, as Debian's `127.0.1.1`.
pub fn needs_lookup(config: &NodeConfig, network: &Network) -> bool {
    is_by_name(config) && network.hosts.as_ref().is_ok_and(Vec::is_empty)
}

/// Whether the address is found by the Node's name: `--node-ip` gives none, the cloud controller
/// sets none, and the name itself is no IP.
pub(super) fn is_by_name(config: &NodeConfig) -> bool {
    let is_specified = config.node_ips.iter().any(|ip| !ip.is_unspecified());
    let is_left_to_cloud = config.external_cloud && config.node_ips.is_empty() && !config.is_of_k3s;
    !is_specified && !is_left_to_cloud && config::parse_ip(&config.name).is_none()
}

/// An address for a Node without `--node-ip`: its name, if that is an IP; else the name's address
/// from etc/hosts or, without an entry there, from DNS; else the address of the default route.
/// While etc/hosts or DNS is unread, the present address of the Node stands for its entry.
fn choose(node: &Value, config: &NodeConfig, network: &Network) -> Result<IpAddr, String> {
    if let Some(ip) = config::parse_ip(&config.name) {
        return Ok(ip);
    }
    let prefers_v6 = config.node_ips.first().is_some_and(IpAddr::is_ipv6);
    let addresses = object::list(node, &["status", "addresses"]).iter();
    let internal = addresses.filter(|address| object::text(address, &["type"]) == "InternalIP");
    let own = || internal.filter_map(|ip| object::text(ip, &["address"]).parse().ok()).collect();
    let named = match (&network.hosts, &network.dns) {
        (Ok(hosts), Ok(dns)) if hosts.is_empty() => dns,
        (Ok(hosts), _) if !hosts.is_empty() => hosts,
        _ => &own(),
    };
    let mut named = named.iter().map(IpAddr::to_canonical);
    let usable = |ip: &IpAddr| validate(*ip, network).is_ok();
    let preferred = named.clone().find(|ip| ip.is_ipv6() == prefers_v6 && usable(ip));
    match preferred.or_else(|| named.find(usable)) {
        Some(ip) => Ok(ip),
        None => by_default_route(prefers_v6, network),
    }
}

/// Whether `ip` may be an address of the Node.
fn validate(ip: IpAddr, network: &Network) -> Result<(), String> {
    let refused = if ip.is_loopback() {
        "nodeIP can't be loopback address"
    } else if ip.is_multicast() {
        "nodeIP can't be a multicast address"
    } else if is_link_local(ip) {
        "nodeIP can't be a link-local unicast address"
    } else if ip.is_unspecified() {
        "nodeIP can't be an all zeros address"
    } else {
        let interfaces = network.interfaces.as_ref().map_err(ToString::to_string)?;
        let mut addresses = interfaces.iter().flat_map(|interface| &interface.addresses);
        if addresses.any(|address| address.to_canonical() == ip) {
            return Ok(());
        }
        let ip = ip.to_string();
        return Err(format!("node IP: {ip:?} not found in the host's network interfaces"));
    };
    Err(refused.to_owned())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Go's IsGlobalUnicast, which includes private ranges.
fn is_global_unicast(ip: IpAddr) -> bool {
    !ip.is_unspecified()
        && !ip.is_loopback()
        && !ip.is_multicast()
        && !is_link_local(ip)
        && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// ResolveBindAddress: the address of a default route's interface. Routes are tried in file order;
/// masks and metrics are ignored.
fn by_default_route(prefers_v6: bool, network: &Network) -> Result<IpAddr, String> {
    let interfaces = network.interfaces.as_ref().map_err(ToString::to_string)?;
    let address_of = |is_usable: fn(&Interface) -> bool, v6| {
        let mut usable = interfaces.iter().filter(|interface| is_usable(interface));
        usable.find_map(|interface| global_address(interface, v6))
    };
    let families = [prefers_v6, !prefers_v6];
    let routes = network.default_routes.as_ref().map_err(ToString::to_string)?;
    let Some(routes) = routes else {
        // Without proc/net/route the first usable interface is taken.
        let found = families
            .into_iter()
            .find_map(|v6| address_of(|i| !i.loopback && !i.point_to_point, v6));
        return found.ok_or_else(|| {
            "no acceptable interface with global unicast address found on host".to_owned()
        });
    };
    if routes.is_empty() {
        return Err(
            "no default routes found in \"/proc/net/route\" or \"/proc/net/ipv6_route\"".to_owned()
        );
    }
    for v6 in families {
        for route in routes.iter().filter(|route| route.gateway.is_ipv6() == v6) {
            let interface =
                interfaces.iter().find(|interface| interface.name == route.interface).ok_or_else(
                    || format!("route ip+net: no such network interface {}", route.interface),
                )?;
            // A router may have the node's address on its loopback interface.
            let own = global_address(interface, v6);
            if let Some(ip) = own.or_else(|| address_of(|i| i.loopback, v6)) {
                return Ok(ip);
            }
        }
    }
    Err("unable to select an IP from default routes.".to_owned())
}

/// The first address that other machines can use, of an interface that is up.
fn global_address(interface: &Interface, v6: bool) -> Option<IpAddr> {
    let mut addresses = interface.addresses.iter().copied().filter(|_| interface.up);
    addresses.find(|ip| ip.is_ipv6() == v6 && is_global_unicast(*ip))
}

#[cfg(test)]
mod tests;
