//! The bytes of a gRPC server: frames of HTTP/2, and protobuf.

/// A frame of HTTP/2 (RFC 9113, section 4.1).
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags, 0, 0, 0, stream]].concat();
    [head.as_slice(), payload].concat()
}

/// A message with the prefix of gRPC: not compressed, and its length.
#[must_use]
pub fn prefixed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

/// A varint of protobuf.
#[must_use]
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

/// A field of protobuf with a length: a text, bytes or a message.
#[must_use]
pub fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = varint(u64::try_from(content.len()).unwrap());
    [varint(u64::from(number) << 3 | 2), length, content.to_vec()].concat()
}
