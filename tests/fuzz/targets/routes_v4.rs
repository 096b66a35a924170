//! `proc/net/route`.
#![no_main]

use nodelet::host::network;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for (interface, gateway, _) in text.lines().filter_map(network::parse_v4) {
        assert!(gateway.is_ipv4() && !interface.is_empty());
    }
});
