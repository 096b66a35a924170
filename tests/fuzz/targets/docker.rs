//! What Docker or Podman, or whoever listens at their socket, may send.
#![no_main]

use nodelet::runtime::rest::list;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = list(bytes, 10);
});
