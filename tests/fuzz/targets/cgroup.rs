//! `memory.stat` of both versions, cut at a line to have the two files of v1.
#![no_main]

use nodelet::host::cgroup;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = cgroup::parse_v2(text);
    let (usage, stat) = text.split_once('\n').unwrap_or((text, text));
    if let Some(used) = cgroup::parse_v1(usage, stat) {
        assert!(usage.trim().parse().is_ok_and(|usage: u64| used <= usage));
    }
});
