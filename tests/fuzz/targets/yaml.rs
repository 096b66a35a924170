//! YAML and JSON.
#![no_main]

use nodelet::kube::yaml;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(value) = yaml::parse(text) {
        let _ = value.to_string();
    }
});
