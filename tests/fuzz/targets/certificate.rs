//! A certificate, a request or a key: as DER, and as the PEM that a server or a file gave.
#![no_main]

use nodelet::credentials::pki::key::Key;
use nodelet::kube::chain::{Plain, permits};
use nodelet::kube::x509::{Leaf, RequestInfo, pem};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Leaf::parse(bytes);
    for is_first in [true, false] {
        if let Some(plain) = Plain::parse(bytes, is_first) {
            permits(&plain.limits, &plain.alt_names);
        }
    }
    for text in [
        bytes,
        pem("CERTIFICATE", bytes).as_bytes(),
        pem("CERTIFICATE REQUEST", bytes).as_bytes(),
        pem("EC PRIVATE KEY", bytes).as_bytes(),
        pem("PRIVATE KEY", bytes).as_bytes(),
    ] {
        let _ = Leaf::of_pem(text);
        let _ = RequestInfo::of_pem(text);
        let _ = Key::of_pem(text);
    }
});
