//! What `nodelet serve` reads: the agent's line, kernel files of its own, the query of a request.
#![no_main]

use nodelet::kube::lease_report::LeaseReport;
use nodelet::host::usage;
use nodelet::kube::text::query;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(report) = LeaseReport::parse(bytes) {
        assert_eq!(LeaseReport::parse(report.line().as_bytes()), Some(report));
    }
    let _ = usage::parse_cpu_stat(bytes);
    let _ = usage::parse_stat(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = usage::parse_traffic(text);
    for value in query(text, "exclude") {
        assert!(value.len() <= 3 * text.len());
    }
});
