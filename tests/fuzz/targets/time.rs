//! Times of the API: what was read is written as the same time.
#![no_main]

use nodelet::kube::time::Wall;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some(time) = Wall::parse(text) {
        assert_eq!(Wall::parse(&time.micro_time()), Some(time));
        assert!(Wall::parse(&time.time()).is_some_and(|whole| whole <= time));
    }
});
