//! Names of the folders in `sys/kernel/mm/hugepages`.
#![no_main]

use nodelet::host::memory;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some(bytes) = memory::page_bytes(text) {
        assert!(bytes.is_multiple_of(1024));
    }
});
