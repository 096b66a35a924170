//! The file of `--config`, up to the checked configuration.
#![no_main]

use nodelet::config::flags::Flags;
use nodelet::config::{Config, file};
use nodelet::kube::yaml;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(document) = yaml::parse(text) else {
        return;
    };
    let mut flags = Flags::default();
    if file::apply(&document, &mut flags).is_ok() {
        let _ = Config::new(flags, || Ok("board".to_owned()));
    }
});
