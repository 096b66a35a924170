//! `proc/loadavg`.
#![no_main]

use nodelet::host::pids;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = pids::parse_running(text);
});
