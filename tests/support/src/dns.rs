//! A DNS question as a name server receives it, and its answer.

use std::net::IpAddr;

/// The type of an IPv4 address; the other one is AAAA.
pub const A: u8 = 1;

/// A question.
#[derive(Debug)]
pub struct Asked {
    /// Its id, its name and type in wire form.
    pub packet: Vec<u8>,
    /// Without the last dot.
    pub name: String,
    /// [`A`] or AAAA.
    pub kind: u8,
    /// It has room for a large answer (EDNS).
    pub is_large: bool,
    /// How many packets this server received before, for any name.
    pub before: usize,
}

impl Asked {
    /// The question in `packet`.
    #[must_use]
    pub fn new(packet: &[u8], before: usize) -> Self {
        let mut labels = Vec::new();
        let mut at = 12;
        while packet[at] != 0 {
            let end = at + 1 + usize::from(packet[at]);
            labels.push(std::str::from_utf8(&packet[at + 1..end]).unwrap());
            at = end;
        }
        Self {
            name: labels.join("."),
            kind: packet[at + 2],
            is_large: packet.len() > at + 5,
            packet: packet[..at + 5].to_vec(),
            before,
        }
    }

    /// An answer with those of `addresses` that have the question's type, TTL 100 s.
    pub fn answer<'a>(&self, flags: u16, addresses: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        let mut packet = self.packet.clone();
        packet[2..4].copy_from_slice(&flags.to_be_bytes());
        packet[11] = 0;
        for address in addresses {
            let data = match address.parse().unwrap() {
                IpAddr::V4(address) if self.kind == A => address.octets().to_vec(),
                IpAddr::V6(address) if self.kind != A => address.octets().to_vec(),
                _ => continue,
            };
            packet[7] += 1;
            let length = u8::try_from(data.len()).unwrap();
            packet.extend([0xc0, 12, 0, self.kind, 0, 1, 0, 0, 0, 100, 0, length]);
            packet.extend(data);
        }
        packet
    }
}
