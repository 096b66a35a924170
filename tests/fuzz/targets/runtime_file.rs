//! The file of `nodelet runtime`, as the agent reads it.
#![no_main]

use nodelet::kube::facts::RuntimeFacts;
use nodelet::runtime::form;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some((_, json, _)) = form::split(text) {
        let _ = serde_json::from_str::<RuntimeFacts>(json);
    }
});
