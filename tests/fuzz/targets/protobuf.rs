//! Messages of whoever listens at the container runtime's socket.
#![no_main]

use nodelet::kube::protobuf::fields;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut length = 0;
    let _ = fields(bytes, &mut |_, value| {
        let _ = fields(value.bytes(), &mut |_, value| Some(drop(value.text())));
        length += value.bytes().len();
        Some(())
    });
    assert!(length <= bytes.len());
});
