//! The file of an endpoint file://, which another unit writes.
#![no_main]

use std::time::Duration;

use nodelet::core::runtime::Images;
use nodelet::wire::runtime::facts_file::parse;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = parse(bytes, Images::new(10), Duration::from_secs(100)) {
        assert!(found.age < Duration::from_secs(30));
    }
});
