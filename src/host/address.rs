//! The inputs of the node address: default routes, interfaces (getifaddrs, always of this process's
//! network namespace) and `etc/hosts`.
//!
//! getifaddrs uses netlink: a sandbox must permit AF_NETLINK. An unreadable hosts file counts as
//! empty.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::core::facts::{Interface, Network, Read};
use crate::wire::dns::hosts;

use super::root::{HostRoot, unread};
use super::routes;

/// Names with their addresses.
pub(super) const HOSTS: &str = "etc/hosts";

/// Reads all inputs but [`HOSTS`], whose addresses are `hosts`.
pub(super) fn read(root: &HostRoot, hosts: Vec<IpAddr>) -> Network {
    Network {
        default_routes: routes::read(root),
        interfaces: interfaces(),
        hosts,
        dns: Vec::new(),
    }
}

/// The addresses of `hostname` in the text of [`HOSTS`].
pub(super) fn hosts(hosts: Read<String>, hostname: &str) -> Vec<IpAddr> {
    hosts
        .map(|hosts| hosts::addresses(&hosts, hostname))
        .unwrap_or_default()
}

/// The interfaces of this process's network namespace, in the kernel's order.
pub fn interfaces() -> Read<Vec<Interface>> {
    let addresses = getifaddrs().map_err(|errno| unread("getifaddrs", &errno.into()))?;
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in addresses {
        // An IPv4 address may have a label, `eth0:1`; an interface name has no colon.
        let name = entry.interface_name.split(':').next().unwrap_or_default();
        let index = interfaces
            .iter()
            .position(|interface| interface.name == name)
            .unwrap_or(interfaces.len());
        if index == interfaces.len() {
            interfaces.push(Interface {
                name: name.to_owned(),
                up: entry.flags.contains(InterfaceFlags::IFF_UP),
                loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                point_to_point: entry.flags.contains(InterfaceFlags::IFF_POINTOPOINT),
                addresses: Vec::new(),
            });
        }
        if let Some(interface) = interfaces.get_mut(index) {
            interface
                .addresses
                .extend(entry.address.as_ref().and_then(ip));
        }
    }
    Ok(interfaces)
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|address| IpAddr::V6(address.ip()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_interfaces_of_this_process() {
        let interfaces = interfaces().unwrap();
        let lo = interfaces
            .iter()
            .find(|interface| interface.name == "lo")
            .unwrap();
        assert!(lo.loopback && !lo.point_to_point);
        assert!(
            !lo.up
                || lo
                    .addresses
                    .contains(&IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))
        );
    }
}
