//! `proc/net/ipv6_route`.
#![no_main]

use nodelet::host::network;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for (_, gateway, is_default) in text.lines().filter_map(network::parse_v6) {
        assert!(gateway.is_ipv6() && !(is_default && gateway.is_unspecified()));
    }
});
