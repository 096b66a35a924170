//! The file of `nodelet runtime`, as the agent reads it.
#![no_main]

use nodelet::runtime::facts::RuntimeFacts;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some((_, json)) = RuntimeFacts::split(text) {
        let _ = serde_json::from_str::<RuntimeFacts>(json);
    }
});
