//! What a server may answer: to the Lease, whatever it was asked, and as a `Status`.
#![no_main]

use nodelet::kube::message::{Outcome, Response};
use nodelet::kube::time::Wall;
use nodelet::core::lease::Lease;

libfuzzer_sys::fuzz_target!(|input: (u16, &[u8])| {
    let (code, body) = input;
    let mut lease = Lease::new("board", 40);
    for _ in 0..4 {
        let _ = lease.request("uid", Wall::default());
        let response = Response {
            code,
            retry_after: None,
            date: None,
            body: body.to_vec(),
        };
        let _ = response.accepted().map_err(|refused| refused.to_string());
        let _ = lease.on_response("uid", Outcome::Answered(response));
    }
});
