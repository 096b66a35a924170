//! The name servers: packets as values, right, wrong, or none.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::process::Pid;
use super::world::World;

/// The first name server of each resolv.conf, and the second one of some.
pub(crate) const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 53));
pub(crate) const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 54));

/// The address in each forged answer: nobody may connect to it.
pub(crate) const POISON: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 6, 6, 6));

impl World {
    /// A packet to a name server.
    pub(crate) fn dns_sent(
        &mut self,
        pid: Pid,
        servers: &[SocketAddr],
        index: usize,
        packet: &[u8],
    ) -> Result<(), String> {
        let server = servers[index];
        self.net.flights += 1;
        if self.faults.has("no-network") {
            return Err(format!("name server {}: network is unreachable", server.ip()));
        }
        let Some((name, kind)) = question(packet) else { return Ok(()) };
        if self.is_unanswered(server.ip(), kind) {
            return Ok(());
        }
        let known = self.names.get(&name);
        let code = match () {
            () if self.faults.has("dns-servfail") => 2,
            () if self.faults.has("dns-nxdomain") => 3,
            () if kind == AAAA && self.faults.has("dns-aaaa-nxdomain") => 3,
            () => u8::from(known.is_none()) * 3,
        };
        let addresses = known.filter(|_| code == 0).cloned().unwrap_or_default();
        // An alias without an address: the answer of a server without authority or recursion.
        let has_alias = self.plan.setting("dns") == "alias" && addresses.is_empty() && code == 0;
        let mut answer = reply(packet, code, kind, &addresses, has_alias);
        if has_alias {
            answer[3] &= 0x7f;
        }
        if self.faults.has("dns-truncated") {
            answer[2] |= 2;
        }
        let at = self.through_gap(self.now + self.half_trip() * 2);
        let mut answers = vec![answer];
        if self.faults.has("dns-forged") {
            answers.splice(0..0, forged(packet, kind));
        }
        let process = self.processes.get_mut(pid).expect("it lives");
        process.packets.extend(answers.into_iter().map(|answer| (at, server, Ok(answer))));
        Ok(())
    }

    /// Whether a name server says nothing.
    fn is_unanswered(&self, server: IpAddr, kind: u16) -> bool {
        let key = self.net.flights;
        let is_lost = |class| self.faults.size(class).is_some_and(|n| self.is_met(class, key, n));
        let is_first = server == FIRST;
        // The second server of this setting is out of order.
        let is_dead = self.plan.setting("dns") == "alias" && !is_first;
        is_dead
            || server != FIRST && server != SECOND
            || self.faults.has("dns-silent")
            || self.faults.has("partition")
            || is_first && self.faults.has("dns-first-silent")
            || kind == AAAA && self.faults.has("dns-aaaa-silent")
            || kind == A && is_lost("dns-a-lost")
    }

    /// The packets that have arrived.
    pub(crate) fn dns_received(
        &mut self,
        pid: Pid,
        servers: &[SocketAddr],
    ) -> Vec<(usize, Result<Vec<u8>, String>)> {
        let now = self.now;
        let process = self.processes.get_mut(pid).expect("it lives");
        let mut arrived = Vec::new();
        process.packets.retain(|(at, server, packet)| {
            let index = servers.iter().position(|known| known == server);
            if let Some(index) = index
                && *at <= now
            {
                arrived.push((index, packet.clone()));
            }
            *at > now
        });
        arrived
    }
}

/// An alias.
const CNAME: u16 = 5;
const A: u16 = 1;
const AAAA: u16 = 28;

/// Name and type of a question.
fn question(packet: &[u8]) -> Option<(String, u16)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), kind))
}

/// The answer to a question, with this code.
fn reply(packet: &[u8], code: u8, kind: u16, addresses: &[IpAddr], has_alias: bool) -> Vec<u8> {
    let mut name_end = 12;
    while packet[name_end] != 0 {
        name_end += usize::from(packet[name_end]) + 1;
    }
    let question = &packet[12..name_end + 5];
    let mut records: Vec<(u16, Vec<u8>)> = addresses
        .iter()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(v4), A) => Some((kind, v4.octets().to_vec())),
            (IpAddr::V6(v6), AAAA) => Some((kind, v6.octets().to_vec())),
            _ => None,
        })
        .collect();
    if has_alias {
        records.push((CNAME, b"\x05alias\x04test\0".to_vec()));
    }
    let count = u16::try_from(records.len()).expect("few addresses").to_be_bytes();
    let mut answer =
        vec![packet[0], packet[1], 0x81, 0x80 | code, 0, 1, count[0], count[1], 0, 0, 0, 0];
    answer.extend_from_slice(question);
    for (kind, record) in records {
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&kind.to_be_bytes());
        answer.extend_from_slice(&[0, 1, 0, 0, 0, 30]);
        answer.extend_from_slice(&u16::try_from(record.len()).expect("16").to_be_bytes());
        answer.extend_from_slice(&record);
    }
    answer
}

/// Answers of somebody else that come first: one with another number, one to another question.
fn forged(packet: &[u8], kind: u16) -> Vec<Vec<u8>> {
    let mut number = reply(packet, 0, kind, &[POISON], false);
    number[0] ^= 0x55;
    let mut question = reply(packet, 0, kind, &[POISON], false);
    question[13] ^= 1;
    vec![number, question]
}
