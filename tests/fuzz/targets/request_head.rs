//! The head of a request to `nodelet serve`.
#![no_main]

use nodelet::serve::head::{Head, parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Head::Whole { asked, .. } = parse(bytes) else {
        return;
    };
    assert!(asked.path.starts_with('/') && !asked.path.contains('?'));
    // A part of it is the same request, or none.
    for length in [bytes.len() / 2, bytes.len() - 1] {
        if let Head::Whole { asked: part, .. } = parse(&bytes[..length]) {
            assert_eq!(part, asked);
        }
    }
});
