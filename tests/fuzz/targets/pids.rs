//! `proc/loadavg`.
#![no_main]

use nodelet::host::pids;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let _ = pids::parse_running(text);
});
