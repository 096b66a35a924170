//! `proc/meminfo`: the totals, and the working set where no cgroup tells it.
#![no_main]

use nodelet::host::memory;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let _ = memory::parse_meminfo(text);
});
