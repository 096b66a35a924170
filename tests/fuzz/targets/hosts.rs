//! `etc/hosts` and `etc/resolv.conf`.
#![no_main]

use nodelet::os::hosts;
use nodelet::client::dns::Resolver;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = hosts::addresses(text, "board");
    let _ = Resolver::parse(text, "");
});
