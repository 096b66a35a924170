//! Header blocks of whoever listens at the container runtime's socket.
#![no_main]

use nodelet::runtime::hpack::decode;

libfuzzer_sys::fuzz_target!(|block: &[u8]| {
    let mut length = 0;
    let whole = decode(block, &mut |name, value| length += name.len() + value.len());
    // A byte has at most one character of five bits; a static entry has ten characters.
    assert!(length <= block.len() * 16);
    let _ = whole;
});
