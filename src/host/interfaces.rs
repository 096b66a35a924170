//! The interfaces of this process's network namespace, over rtnetlink(7).
//!
//! As in Go, an address belongs to the interface of its index. getifaddrs(3) has no index: it names
//! an IPv4 address by its label, and a label need not contain the interface's name.
//!
//! A sandbox must permit AF_NETLINK.
//!
//! The kernel makes the first part of an answer within send(2), and waits there for rtnl_mutex,
//! which a driver may hold. No flag and no signal ends that. sysfs has names and flags without this
//! mutex, but those of the namespace in which it was mounted; IPv4 addresses have no other source
//! before Linux 6.9. So nothing is asked without a cause (`agent::read_cache`).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::kube::facts::Interface;

/// Bytes: the kernel fills the parts of an answer up to this size with whole messages.
const PART: usize = 8192;
/// Most parts of an answer: those of some 5,000 interfaces.
const MAX_PARTS: usize = 1024;

// linux/netlink.h
/// NLM_F_REQUEST and NLM_F_DUMP.
const REQUEST: u16 = 0x1 | 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`.
const MESSAGE_HEAD: usize = 16;
// linux/rtnetlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// Bytes of `struct rtattr`.
const ATTRIBUTE_HEAD: usize = 4;
// linux/if_link.h and linux/if_addr.h
const IFLA_IFNAME: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// The interfaces in the kernel's order. An interface without an IP address is listed, too.
pub(super) fn read() -> io::Result<Vec<Interface>> {
    let family = AddressFamily::Netlink;
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    let mut found = Vec::new();
    ask(&socket, RTM_GETLINK, &mut found)?;
    ask(&socket, RTM_GETADDR, &mut found)?;
    Ok(found.into_iter().map(|(_, interface)| interface).collect())
}

/// Asks for all objects of a kind, and reads the answer to its end.
fn ask(socket: &OwnedFd, kind: u16, found: &mut Vec<(u32, Interface)>) -> io::Result<()> {
    // `struct nlmsghdr`, then `struct rtgenmsg` with AF_UNSPEC and its padding.
    let length = 20_u32.to_ne_bytes();
    let request = [&length[..], &kind.to_ne_bytes(), &REQUEST.to_ne_bytes(), &[0; 12]].concat();
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut part = [0; PART];
    for _ in 0..MAX_PARTS {
        // The kernel makes the next part while one is read.
        let length = recv(socket.as_raw_fd(), &mut part, MsgFlags::MSG_DONTWAIT)?;
        if take(part.get(..length).unwrap_or_default(), found)? {
            return Ok(());
        }
    }
    Err(io::Error::other("too many interfaces"))
}

/// Takes a part of an answer: interfaces with their index, and addresses of interfaces that are
/// known. True at the end of the answer.
pub fn take(mut part: &[u8], found: &mut Vec<(u32, Interface)>) -> io::Result<bool> {
    let cut = || io::Error::from(ErrorKind::UnexpectedEof);
    while !part.is_empty() {
        let length = u32_at(part, 0).and_then(|length| usize::try_from(length).ok());
        let (kind, flags) = u16_at(part, 4).zip(u16_at(part, 6)).ok_or_else(cut)?;
        let (body, rest) = divide(part, MESSAGE_HEAD, length.ok_or_else(cut)?).ok_or_else(cut)?;
        if flags & NLM_F_DUMP_INTR != 0 {
            return Err(io::Error::other("the interfaces changed while they were read"));
        }
        match kind {
            NLMSG_DONE | NLMSG_ERROR => {
                // A negative error number, or 0. Old kernels end an answer without a number.
                let error = u32_at(body, 0).unwrap_or_default().cast_signed();
                return match error {
                    0 if kind == NLMSG_DONE => Ok(true),
                    error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
                };
            }
            RTM_NEWLINK => found.push(interface(body).ok_or_else(cut)?),
            RTM_NEWADDR => {
                let index = u32_at(body, 4).ok_or_else(cut)?;
                // An interface that came after the first answer is announced.
                if let Some((_, interface)) = found.iter_mut().find(|(it, _)| *it == index) {
                    interface.addresses.extend(address(body));
                }
            }
            _ => {}
        }
        part = rest;
    }
    Ok(false)
}

/// `struct ifinfomsg` and its attributes.
fn interface(body: &[u8]) -> Option<(u32, Interface)> {
    let (index, flags) = (u32_at(body, 4)?, u32_at(body, 8)?.cast_signed());
    let flags = InterfaceFlags::from_bits_truncate(flags);
    let name = attribute(body.get(16..)?, IFLA_IFNAME)?.split(|byte| *byte == 0).next()?;
    let interface = Interface {
        name: String::from_utf8_lossy(name).into_owned(),
        up: flags.contains(InterfaceFlags::IFF_UP),
        loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
        point_to_point: flags.contains(InterfaceFlags::IFF_POINTOPOINT),
        addresses: Vec::new(),
    };
    Some((index, interface))
}

/// `struct ifaddrmsg` and its attributes; `None` for other families. IFA_ADDRESS is the other end
/// if there is an IFA_LOCAL.
fn address(body: &[u8]) -> Option<IpAddr> {
    let attributes = body.get(8..)?;
    let local = attribute(attributes, IFA_LOCAL);
    let address = local.or_else(|| attribute(attributes, IFA_ADDRESS))?;
    match i32::from(*body.first()?) {
        it if it == AddressFamily::Inet as i32 => {
            Some(Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?).into())
        }
        it if it == AddressFamily::Inet6 as i32 => {
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).into())
        }
        _ => None,
    }
}

/// The value of the first attribute of this kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (u16_at(attributes, 0)?, u16_at(attributes, 2)?);
        let (value, rest) = divide(attributes, ATTRIBUTE_HEAD, length.into())?;
        if kind == wanted {
            return Some(value);
        }
        attributes = rest;
    }
}

/// What follows the head of the first message or attribute, whose length counts the head, and what
/// follows that message. Each begins at a multiple of four bytes.
fn divide(bytes: &[u8], head: usize, length: usize) -> Option<(&[u8], &[u8])> {
    let first = bytes.get(head..length)?;
    Some((first, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IFA_LABEL: u16 = 3;

    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(MESSAGE_HEAD + body.len()).unwrap();
        let head = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]];
        padded([head.concat(), body.to_vec()].concat())
    }

    fn with_attributes(kind: u16, head: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = head.to_vec();
        for (kind, value) in attributes {
            let length = u16::try_from(ATTRIBUTE_HEAD + value.len()).unwrap();
            let attribute = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value];
            body.extend(padded(attribute.concat()));
        }
        message(kind, 2, &body)
    }

    fn link(index: u32, flags: u32, name: &[u8]) -> Vec<u8> {
        let head = [&[0; 4][..], &index.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4]].concat();
        with_attributes(RTM_NEWLINK, &head, &[(1, &[2; 6]), (IFLA_IFNAME, name)])
    }

    fn address_of(index: u32, family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let head = [&[family, 24, 0, 0][..], &index.to_ne_bytes()].concat();
        with_attributes(RTM_NEWADDR, &head, attributes)
    }

    fn done(error: i32) -> Vec<u8> {
        message(NLMSG_DONE, 2, &error.to_ne_bytes())
    }

    /// As netplan's `addresses: [10.0.0.15/24: {label: "maas"}]` sets it.
    #[test]
    fn an_address_belongs_to_the_interface_of_its_index_whatever_its_label_is() {
        let (inet, inet6) = (2, 10);
        let mut v6 = [0; 16];
        (v6[0], v6[15]) = (0xfd, 1);
        let links = [link(1, 0x49, b"lo\0"), link(2, 0x43, b"eth0\0"), link(7, 0x90, b"tun0\0")];
        let addresses = [
            address_of(1, inet, &[(IFA_ADDRESS, &[127, 0, 0, 1]), (IFA_LOCAL, &[127, 0, 0, 1])]),
            address_of(2, inet, &[(IFA_LOCAL, &[10, 0, 0, 15]), (IFA_LABEL, b"maas\0")]),
            address_of(2, inet, &[(IFA_LOCAL, &[10, 0, 0, 16]), (IFA_LABEL, b"lo\0")]),
            address_of(2, inet6, &[(IFA_ADDRESS, &v6)]),
            // The address of the other end, and that of this one.
            address_of(7, inet, &[(IFA_ADDRESS, &[10, 8, 0, 1]), (IFA_LOCAL, &[10, 8, 0, 6])]),
            // 0.0.0.0, another family, and an interface that came after the first answer.
            address_of(7, inet, &[(IFA_LABEL, b"tun0\0")]),
            address_of(7, 35, &[(IFA_LOCAL, &[1])]),
            address_of(9, inet, &[(IFA_LOCAL, &[10, 9, 0, 1])]),
        ];
        let mut found = Vec::new();
        assert!(!take(&links.concat(), &mut found).unwrap());
        assert!(take(&done(0), &mut found).unwrap());
        assert!(take(&[addresses.concat(), done(0)].concat(), &mut found).unwrap());
        let of = |index: usize| {
            let it = &found[index].1;
            let addresses = it.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
            (it.name.as_str(), it.up, it.loopback, it.point_to_point, addresses.join(" "))
        };
        assert_eq!(of(0), ("lo", true, true, false, "127.0.0.1".to_owned()));
        assert_eq!(of(1), ("eth0", true, false, false, "10.0.0.15 10.0.0.16 fd00::1".to_owned()));
        assert_eq!(of(2), ("tun0", false, false, true, "10.8.0.6".to_owned()));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn an_answer_that_is_cut_off_or_interrupted_is_no_list() {
        let mut found = Vec::new();
        let mut error = |part: &[u8]| take(part, &mut found).unwrap_err().to_string();
        let eth0 = link(2, 1, b"eth0\0");
        for length in 1..eth0.len() {
            // The padding after the last attribute may be missing.
            let is_whole = eth0.len() - length < 4;
            assert!(is_whole || error(&eth0[..length]).contains("end of file"), "{length}");
        }
        assert!(error(&message(RTM_NEWLINK, 2, &[0; 16])).contains("end of file"));
        assert!(error(&[0; 16]).contains("end of file"));
        let changed = message(NLMSG_DONE, 2 | NLM_F_DUMP_INTR, &[0; 4]);
        assert_eq!(error(&changed), "the interfaces changed while they were read");
        // musl and glibc have different words for some errors.
        let mut number = |part: &[u8]| take(part, &mut found).unwrap_err().raw_os_error();
        assert_eq!(number(&done(-90)), Some(90));
        assert_eq!(number(&message(NLMSG_ERROR, 0, &(-1_i32).to_ne_bytes())), Some(1));
        assert!(take(&message(NLMSG_DONE, 2, &[]), &mut found).unwrap());
        let broken = [eth0[..20].to_vec(), vec![0; eth0.len() - 20]].concat();
        assert!(take(&broken, &mut found).is_err());
    }
}
