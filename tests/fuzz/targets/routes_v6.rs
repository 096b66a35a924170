//! `proc/net/ipv6_route`.
#![no_main]

use nodelet::host::routes;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for route in routes::parse_v6(text).unwrap_or_default() {
        assert!(route.gateway.is_ipv6() && !route.gateway.is_unspecified());
    }
});
