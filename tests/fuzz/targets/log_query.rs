//! The query of a URL that asks for the journal, and what of it reaches the command line of
//! journalctl.
#![no_main]

use nodelet::serve::log_query::arguments;

libfuzzer_sys::fuzz_target!(|query: &str| {
    match arguments(query) {
        Ok(None) => {}
        Ok(Some(arguments)) => {
            assert!(arguments.iter().all(|argument| argument.starts_with("--")));
            let units = arguments.iter().filter_map(|argument| argument.strip_prefix("--unit="));
            let units: Vec<&str> = units.collect();
            assert!((1..=4).contains(&units.len()));
            assert!(units.iter().all(|unit| unit.len() <= 256 && unit.is_ascii()));
        }
        Err(refused) => assert!([400, 406].contains(&refused.code) && !refused.text.is_empty()),
    }
});
