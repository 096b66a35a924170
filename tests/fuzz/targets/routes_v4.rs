//! `proc/net/route`.
#![no_main]

use nodelet::host::routes;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for route in routes::parse_v4(text).unwrap_or_default() {
        assert!(route.gateway.is_ipv4() && !route.interface.is_empty());
    }
});
