//! Encodes a question and decodes its answer (RFC 1035 §4).
//!
//! A packet is not trusted: every length is checked against the packet, a pointer must point
//! backwards, and the length of a chain of aliases is bounded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Most addresses of a name that are kept: more than an answer of 512 bytes has.
pub const MAX_ADDRESSES: usize = 64;

/// The size in bytes of the larger answer that [`query`] allows. A packet of this size is not
/// fragmented (as in Go).
const LARGE: u16 = 1232;

/// Longest chain of aliases.
const MAX_CHAIN: usize = 16;

/// §3.2.4.
const CLASS_IN: u16 = 1;
/// §3.2.2.
const CNAME: u16 = 5;
/// RFC 6891 §6.1.1.
const OPT: u16 = 41;

/// Type of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// IPv4.
    A,
    /// IPv6 (RFC 3596).
    Aaaa,
}

impl RecordType {
    fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }

    fn address(self, data: &[u8]) -> Option<IpAddr> {
        match self {
            Self::A => Some(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
            Self::Aaaa => Some(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
        }
    }
}

/// A name in wire form: length and label in turn, up to the empty label. In lower case, so that
/// `==` is DNS equality (§2.3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Vec<u8>);

impl Name {
    /// `None` for an invalid name: an empty label, one of more than 63 bytes, more than 255 bytes
    /// in all (§2.3.4). A last dot is ignored.
    pub fn new(text: &str) -> Option<Self> {
        let mut wire = Vec::with_capacity(text.len() + 2);
        for label in text.strip_suffix('.').unwrap_or(text).split('.') {
            let length = u8::try_from(label.len()).ok();
            wire.push(length.filter(|length| (1..=63).contains(length))?);
            wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        wire.push(0);
        (wire.len() <= 255).then_some(Self(wire))
    }

    /// The name that begins at `start`, and the offset behind it (§4.1.4).
    fn read(packet: &[u8], start: usize) -> Option<(Self, usize)> {
        let mut wire = Vec::with_capacity(64);
        let mut at = start;
        let mut end = None;
        // Each pointer must point before the target of the last one, so the loop ends.
        let mut before = start;
        loop {
            let length = *packet.get(at)?;
            match length {
                0 => {
                    wire.push(0);
                    return Some((Self(wire), end.unwrap_or(at + 1)));
                }
                1..=63 => {
                    let next = at + 1 + usize::from(length);
                    let label = packet.get(at + 1..next)?;
                    if wire.len() + label.len() + 2 > 255 {
                        return None;
                    }
                    wire.push(length);
                    wire.extend(label.iter().map(u8::to_ascii_lowercase));
                    at = next;
                }
                0xc0.. => {
                    let low = *packet.get(at + 1)?;
                    end.get_or_insert(at + 2);
                    at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    if at >= before {
                        return None;
                    }
                    before = at;
                }
                _ => return None,
            }
        }
    }
}

/// A question; its answer must repeat these fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// A random number.
    pub id: u16,
    /// The name.
    pub name: Name,
    /// The address family.
    pub kind: RecordType,
}

/// A name server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// At least one address, and the shortest TTL.
    Addresses(Vec<IpAddr>, Duration),
    /// The name exists, or is an alias, and has no address of this family.
    NoAddress,
    /// NXDOMAIN.
    NoName,
    /// No address did fit into the answer.
    Truncated,
    /// A failure of the server; another server may answer.
    Failed(&'static str),
}

/// The question's packet, with recursion desired (§4.1.1). Without EDNS an answer has 512 bytes at
/// most (§4.2.1); `is_large` allows more, which some servers do not understand.
pub fn query(question: &Question, is_large: bool) -> Vec<u8> {
    let mut packet = Vec::with_capacity(question.name.0.len() + 27);
    for word in [question.id, 0x0100, 1, 0, 0, is_large.into()] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(&question.name.0);
    packet.extend(question.kind.code().to_be_bytes());
    packet.extend(CLASS_IN.to_be_bytes());
    if is_large {
        // The root's name; no extended code, no flags, no data.
        packet.push(0);
        for word in [OPT, LARGE, 0, 0, 0] {
            packet.extend(word.to_be_bytes());
        }
    }
    packet
}

/// Decodes the answer to `question`. `None` where the packet is not an answer to it: it may be
/// forged by a host that cannot see the question.
pub fn parse(packet: &[u8], question: &Question) -> Option<Reply> {
    let flags = word(packet, 2)?;
    // A response to a standard query, with one question.
    if word(packet, 0)? != question.id || flags & 0xf800 != 0x8000 || word(packet, 4)? != 1 {
        return None;
    }
    let (name, end) = Name::read(packet, 12)?;
    let (kind, class) = (word(packet, end)?, word(packet, end + 2)?);
    if name != question.name || kind != question.kind.code() || class != CLASS_IN {
        return None;
    }
    let truncated = flags & 0x0200 != 0;
    Some(match flags & 0x000f {
        0 => match answers(packet, end + 4, question, truncated) {
            // Without an address, a truncated answer is asked for again. With one, it is used as it
            // is; Go and glibc would ask again by TCP.
            Some(Reply::NoAddress) if truncated => Reply::Truncated,
            // A referral, as Go and glibc recognize it: the server is not authoritative, does not
            // recurse, and its answer has neither answer records nor additional records.
            Some(Reply::NoAddress)
                if flags & 0x0480 == 0 && word(packet, 6)? == 0 && word(packet, 10)? == 0 =>
            {
                Reply::Failed("a referral to other servers")
            }
            Some(reply) => reply,
            None => Reply::Failed("a malformed answer"),
        },
        1 => Reply::Failed("FORMERR"),
        2 => Reply::Failed("SERVFAIL"),
        3 => Reply::NoName,
        4 => Reply::Failed("NOTIMP"),
        5 => Reply::Failed("REFUSED"),
        _ => Reply::Failed("an unknown error"),
    })
}

/// Follows the aliases from `start` on; the records may be in any order.
fn answers(packet: &[u8], start: usize, question: &Question, truncated: bool) -> Option<Reply> {
    let count = word(packet, 6)?;
    let mut name = question.name.clone();
    let mut ttl = u32::MAX;
    for _ in 0..MAX_CHAIN {
        let mut addresses = Vec::new();
        let mut alias = None;
        let mut at = start;
        // The packet's size bounds the loop, not the count that it claims.
        for _ in 0..count {
            let record = match Record::read(packet, at) {
                Some(record) => record,
                None if truncated => break,
                None => return None,
            };
            at = record.end;
            if record.class != CLASS_IN || record.owner != name {
                continue;
            }
            if record.kind == question.kind.code() {
                let address = question.kind.address(record.data)?;
                if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
                    addresses.push(address);
                }
                ttl = ttl.min(record.ttl);
            } else if record.kind == CNAME {
                let (target, end) = Name::read(packet, record.end - record.data.len())?;
                if end != record.end {
                    return None;
                }
                alias = Some(target);
                ttl = ttl.min(record.ttl);
            }
        }
        if !addresses.is_empty() {
            let ttl = Duration::from_secs(ttl.into());
            return Some(Reply::Addresses(addresses, ttl));
        }
        match alias {
            Some(target) => name = target,
            None => return Some(Reply::NoAddress),
        }
    }
    Some(Reply::Failed("an endless chain of aliases"))
}

/// §4.1.3.
struct Record<'a> {
    owner: Name,
    kind: u16,
    class: u16,
    ttl: u32,
    data: &'a [u8],
    end: usize,
}

impl<'a> Record<'a> {
    fn read(packet: &'a [u8], start: usize) -> Option<Self> {
        let (owner, at) = Name::read(packet, start)?;
        let data = at + 10;
        let end = data + usize::from(word(packet, at + 8)?);
        Some(Self {
            owner,
            kind: word(packet, at)?,
            class: word(packet, at + 2)?,
            ttl: u32::from_be_bytes(*packet.get(at + 4..)?.first_chunk()?),
            data: packet.get(data..end)?,
            end,
        })
    }
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
