//! The log lines of a test.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Collects this thread's log lines.
struct Collector;

impl log::Log for Collector {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }
    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && crate::sim::hook::log(record).is_none() {
            println!("{}", record.args());
            LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
        }
    }
    fn flush(&self) {}
}

/// Starts to collect the log lines of this thread.
pub(crate) fn collect_lines() {
    static LOGGER: Once = Once::new();
    LOGGER.call_once(|| {
        log::set_logger(&Collector).unwrap();
        log::set_max_level(log::LevelFilter::Info);
    });
    LINES.take();
}

/// The lines since the last call, or since [`collect_lines`].
pub(crate) fn take_lines() -> Vec<String> {
    LINES.take()
}
