//! A part of an answer of rtnetlink.
#![no_main]

use nodelet::host::interfaces;

libfuzzer_sys::fuzz_target!(|part: &[u8]| {
    let mut found = Vec::new();
    let _ = interfaces::take(part, &mut found);
    assert!(found.len() <= part.len() / 16);
});
