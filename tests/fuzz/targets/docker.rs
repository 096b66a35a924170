//! What Docker or Podman, or whoever listens at their socket, may send.
#![no_main]

use nodelet::config::runtime::{Protocol, RuntimeConfig};
use nodelet::core::runtime::{Images, Look};
use nodelet::wire::runtime::Conversation;
use nodelet::wire::runtime::rest::{Rest, list};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let _ = list(bytes, Images::new(10));
    let config = RuntimeConfig {
        protocol: Protocol::Docker,
        path: "/x".into(),
        image_path: None,
        max_images: 10,
    };
    let all = Look {
        details: true,
        folder: true,
    };
    let head = b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\n\r\n".as_slice();
    for bytes in [bytes, [head, bytes].concat().as_slice()] {
        let mut rest = Box::new(Rest::new(&config, all));
        let mut connections = 0;
        while rest.open().is_some() {
            connections += 1;
            for piece in bytes.chunks(usize::from(piece) + 1) {
                if rest.take(piece, &mut Vec::new()) {
                    break;
                }
            }
            rest.close(None);
        }
        assert!(connections <= 3);
        drop(rest.found());
    }
});
