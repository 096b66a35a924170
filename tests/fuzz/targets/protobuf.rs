//! Messages of whoever listens at the container runtime's socket.
#![no_main]

use nodelet::kube::protobuf::fields;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut length = 0;
    fields(bytes, &mut |_, value| {
        fields(value.bytes(), &mut |_, value| drop(value.text()));
        length += value.bytes().len();
    });
    assert!(length <= bytes.len());
});
