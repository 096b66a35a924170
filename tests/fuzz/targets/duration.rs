//! Durations of flags.
#![no_main]

use nodelet::kube::time::parse_duration;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = parse_duration(text);
});
