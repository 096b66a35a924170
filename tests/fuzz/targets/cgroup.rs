//! `memory.stat` of both versions, cut at a line to have the two files of v1.
#![no_main]

use nodelet::host::cgroup;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let _ = cgroup::parse_v2(text);
    let mut files = text.splitn(2, |byte| *byte == b'\n');
    let usage = files.next().unwrap_or_default();
    if let Some(used) =
        cgroup::parse_usage(usage, files.next().unwrap_or(text), "total_inactive_file ")
    {
        let usage = std::str::from_utf8(usage).expect("a number");
        assert!(usage.trim().parse().is_ok_and(|usage: u64| used <= usage));
    }
});
