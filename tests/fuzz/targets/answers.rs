//! What a server may answer: to the Lease, to a look for stray pods and to a change of one,
//! whatever it was asked, and as a `Status`.
#![no_main]

use std::time::Duration;

use nodelet::config::Config;
use nodelet::config::flags::Flags;
use nodelet::kube::instant::{Mono, Now};
use nodelet::node::lease::Lease;
use nodelet::node::pods::Pods;
use nodelet::node::wall_clock::WallClock;
use nodelet::kube::message::Response;
use nodelet::kube::time::Wall;

libfuzzer_sys::fuzz_target!(|input: (u16, &[u8])| {
    let (code, body) = input;
    let config = Config::new(Flags::default(), || Ok("board".to_owned())).unwrap();
    let clock = WallClock::new(Wall::default(), Duration::ZERO);
    let now = clock.cluster_now(Now::default()).unwrap();
    let mut lease = Lease::new("board", 40);
    let mut pods = Pods::new(&config.node);
    for _ in 0..4 {
        let response = Response {
            code,
            retry_after: None,
            date: None,
            body: body.to_vec(),
            exceeds: None,
        };
        let _ = response.accepted().map_err(|refused| refused.to_string());
        let _ = lease.request("uid", now);
        let _ = lease.on_response("uid", Ok(response.clone()));
        let request = pods.request(Mono::START);
        assert!(request.path.starts_with("/api/v1/") && request.path.is_ascii());
        let _ = pods.on_response(Ok(response), Some(Wall::default()), Mono::START);
    }
});
