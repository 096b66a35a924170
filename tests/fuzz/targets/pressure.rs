//! `proc/pressure/*`.
#![no_main]

use nodelet::host::pressure;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(pressure) = pressure::parse("pressure", text) {
        assert!(pressure.some.is_some() || pressure.full.is_some());
    }
});
