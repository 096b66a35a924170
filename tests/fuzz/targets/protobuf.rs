//! Messages of whoever listens at the container runtime's socket.
#![no_main]

use nodelet::wire::runtime::protobuf::{Message, Value, fields};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let read = |piece: usize| {
        let mut message = Message::default();
        let mut found = Vec::new();
        for bytes in bytes.chunks(piece) {
            message.take(bytes, &mut |number, value| {
                fields(value.bytes(), &mut |_, value| drop(value.text()));
                found.push((number, match value {
                    Value::Number(number) => number.to_string(),
                    Value::Bytes(_) => value.text(),
                }));
            })?;
        }
        Some((found, message.is_complete()))
    };
    // An error may come with the first or with the last piece.
    if let (Some(whole), Some(pieces)) = (read(bytes.len().max(1)), read(usize::from(piece) + 1)) {
        assert_eq!(whole, pieces);
    }
});
