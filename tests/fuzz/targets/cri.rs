//! What a container runtime, or whoever listens at its socket, may send: frames, headers, messages.
#![no_main]

use std::io::{self, Read, Write};

use nodelet::runtime::config::{Protocol, RuntimeConfig};
use nodelet::runtime::cri::Cri;
use nodelet::runtime::report::{Part, RuntimeFailure};

/// A connection whose answers are prepared; they arrive in pieces.
#[derive(Debug)]
struct Script(Vec<u8>, usize, usize);

impl Read for Script {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = (self.0.len() - self.1).min(self.2).min(bytes.len());
        bytes[..length].copy_from_slice(&self.0[self.1..self.1 + length]);
        self.1 += length;
        Ok(length)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(bytes.len() < 17 << 10);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let config = RuntimeConfig {
        protocol: Protocol::Cri,
        path: "/x".into(),
        image_path: None,
        max_images: 10,
        facts_file: "/x".into(),
    };
    // With the first frame, so that what follows it is looked at, too.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for bytes in [bytes, [&settings, bytes].concat().as_slice()] {
        let found = [bytes.len().max(1), usize::from(piece) + 1].map(|piece| {
            let mut connections = 0;
            Cri::default().ask(
                &config,
                Part::List,
                &mut |_| {
                    connections += 1;
                    match connections {
                        1 => Ok(Box::new(Script(bytes.to_vec(), 0, piece))),
                        _ => Err(RuntimeFailure::api("closed")),
                    }
                },
                &mut |_, _| {},
            )
        });
        assert_eq!(found[0], found[1]);
    }
});
