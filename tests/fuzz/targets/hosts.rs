//! `etc/hosts` and `etc/resolv.conf`.
#![no_main]

use nodelet::wire::dns::{hosts, resolv_conf};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = hosts::addresses(text, "board");
    let conf = resolv_conf::Conf::parse(text);
    let _ = resolv_conf::candidates("board.lab", &conf.search, conf.ndots);
});
