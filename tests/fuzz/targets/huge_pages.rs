//! Names of the folders in `sys/kernel/mm/hugepages`.
#![no_main]

use nodelet::host::hugepages;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some(bytes) = hugepages::page_bytes(text) {
        assert!(bytes.is_multiple_of(1024));
    }
});
