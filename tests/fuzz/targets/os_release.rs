//! `etc/os-release` and `proc/version`.
#![no_main]

use nodelet::host::system;

libfuzzer_sys::fuzz_target!(|text: &str| {
    assert!(!system::parse_os_image(text).contains('\n'));
    let _ = system::parse_version(text);
});
