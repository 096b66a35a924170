//! Parses the part of Kubernetes' protobuf that a receipt needs: the smallest response of an API
//! server to a write.
//!
//! The format is `k8s\0`, then `runtime.Unknown` with the kind and the bytes of the object
//! (apimachinery `pkg/runtime/generated.proto`). Only length-delimited fields are read, without
//! recursion and without copies.

/// The prefix of every protobuf response.
const MAGIC: &[u8] = b"k8s\0";

/// Wire type of length-delimited fields.
const BYTES: u64 = 2;

/// The object of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt<'a> {
    /// `Lease`, `Event`, `Status`.
    pub kind: &'a str,
    object: &'a [u8],
}

impl<'a> Receipt<'a> {
    /// Parses a response; `None` if it is not in this form.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let unknown = body.strip_prefix(MAGIC)?;
        let type_meta = field(unknown, 1)?;
        Some(Self {
            kind: text(type_meta, 2)?,
            object: field(unknown, 2)?,
        })
    }

    /// `metadata.name`, for every kind except `Status`.
    pub fn name(&self) -> &'a str {
        let metadata = field(self.object, 1).unwrap_or_default();
        text(metadata, 1).unwrap_or_default()
    }

    /// `Status.message`.
    pub fn message(&self) -> &'a str {
        text(self.object, 3).unwrap_or_default()
    }

    /// `Status.reason`.
    pub fn reason(&self) -> &'a str {
        text(self.object, 4).unwrap_or_default()
    }

    /// `Status.details.kind`, a resource such as `leases`, and `Status.details.name`.
    pub fn details(&self) -> (&'a str, &'a str) {
        let details = field(self.object, 5).unwrap_or_default();
        let text = |number| text(details, number).unwrap_or_default();
        (text(3), text(1))
    }
}

fn text(message: &[u8], number: u64) -> Option<&str> {
    str::from_utf8(field(message, number)?).ok()
}

/// The first length-delimited field with this number.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let (tag, rest) = varint(message)?;
        let length = match tag & 7 {
            0 => {
                message = varint(rest)?.1;
                continue;
            }
            1 => 8,
            5 => 4,
            BYTES => {
                let (length, rest) = varint(rest)?;
                let length = usize::try_from(length).ok()?;
                let (content, rest) = rest.split_at_checked(length)?;
                if tag >> 3 == number {
                    return Some(content);
                }
                message = rest;
                continue;
            }
            _ => return None,
        };
        message = rest.split_at_checked(length)?.1;
    }
    None
}

/// A varint and the rest: seven bits in a byte, lowest first, at most ten bytes.
pub(crate) fn varint(message: &[u8]) -> Option<(u64, &[u8])> {
    let end = message.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (bytes, rest) = message.split_at_checked(end + 1)?;
    let value = bytes.iter().rev().fold(0, |value: u64, byte| {
        value.wrapping_shl(7) | u64::from(byte & 0x7f)
    });
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Response of kube-apiserver 1.20 to a renewal, shortened: typeMeta, then metadata with a
    /// generation (a number) between its strings, then spec.
    const LEASE: &[u8] = b"k8s\0\x0a\x1f\x0a\x16coordination.k8s.io/v1\x12\x05Lease\x12\x1f\
        \x0a\x17\x0a\x02pi\x1a\x0fkube-node-lease\x38\x00\x12\x04\x0a\x02pi\x1a\x00\x22\x00";

    const CONFLICT: &[u8] = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x22\x0a\x00\x12\x07Failure\
        \x1a\x08too late\x22\x08Conflict\x30\x99\x03";

    #[test]
    fn a_receipt_has_a_kind_and_a_name() {
        let receipt = Receipt::parse(LEASE).unwrap();
        assert_eq!((receipt.kind, receipt.name()), ("Lease", "pi"));
    }

    #[test]
    fn a_status_has_a_reason_and_a_message() {
        let receipt = Receipt::parse(CONFLICT).unwrap();
        let got = (receipt.kind, receipt.reason(), receipt.message());
        assert_eq!(got, ("Status", "Conflict", "too late"));
    }

    #[test]
    fn invalid_bytes_are_not_a_receipt() {
        for body in [
            &b""[..],
            b"k8s",
            b"k8s\0",
            b"{\"kind\":\"Lease\"}",
            // A length beyond the end, a varint without an end, a group, a kind that is not UTF-8.
            b"k8s\0\x0a\x7f\x12\x05Lease",
            b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"k8s\0\x0b\x12\x05Lease\x0c",
            b"k8s\0\x0a\x03\x12\x01\xff\x12\x00",
        ] {
            assert_eq!(Receipt::parse(body), None, "{body:?}");
        }
        // A body that ends before the end of the object.
        let end = LEASE.len() - 4;
        for length in 0..end {
            assert_eq!(
                Receipt::parse(LEASE.get(..length).unwrap()),
                None,
                "{length}"
            );
        }
        assert!(Receipt::parse(LEASE.get(..end).unwrap()).is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), at in 0..60_usize) {
            for body in [[MAGIC, &bytes].concat(), [LEASE.get(..at).unwrap_or(LEASE), &bytes].concat()] {
                if let Some(receipt) = Receipt::parse(&body) {
                    let _ = (receipt.name(), receipt.reason(), receipt.message());
                }
            }
        }
    }
}
