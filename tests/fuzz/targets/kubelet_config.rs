//! The file of `--config`, and the same text as its drop-in, up to the checked configuration.
#![no_main]

use nodelet::config::Config;
use nodelet::config::file::{self, Document};
use nodelet::config::flags::Flags;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let parse = || Document::parse(String::new(), text.as_bytes());
    let (Ok(base), Ok(drop_in)) = (parse(), parse()) else {
        return;
    };
    let mut flags = Flags::default();
    if file::apply(Some(&base), &[drop_in], &mut flags).is_ok() {
        let _ = Config::new(flags, || Ok("board".to_owned()));
    }
});
