//! What a container runtime, or whoever listens at its socket, may send: frames, headers, messages.
#![no_main]

use nodelet::config::runtime::{Protocol, RuntimeConfig};
use nodelet::core::runtime::Look;
use nodelet::wire::runtime::Conversation;
use nodelet::wire::runtime::cri::Cri;

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let config = RuntimeConfig {
        protocol: Protocol::Cri,
        path: "/x".into(),
        image_path: None,
        max_images: 10,
    };
    let all = Look {
        details: true,
        folder: true,
    };
    // With the first frame, so that what follows it is looked at, too.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for bytes in [bytes, [&settings, bytes].concat().as_slice()] {
        let found = [bytes.len().max(1), usize::from(piece) + 1].map(|piece| {
            let mut cri = Box::new(Cri::new(&config, all));
            let mut out = cri.open().expect("a connection").1;
            let request = out.len();
            for piece in bytes.chunks(piece) {
                if cri.take(piece, &mut out) {
                    break;
                }
            }
            assert!(out.len() - request <= 3 * bytes.len() + 9);
            cri.close(None);
            assert!(cri.open().is_none());
            cri.found()
        });
        assert_eq!(found[0], found[1]);
    }
});
