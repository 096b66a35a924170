//! Where a process panicked: in the program, or in the simulator, which is another verdict.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic;
use std::sync::Once;

use super::hook;

thread_local! {
    /// The place of the last panic of this thread.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic of a simulated process is not printed: it is a part of the trace.
pub(super) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let location = info.location();
            let place = location.map(|place| format!("{} {}", place.file(), place.line()));
            let place = place.unwrap_or_default();
            let is_here = ["src/", "tests/"].iter().any(|folder| place.starts_with(folder));
            let place = if is_here { place } else { format!("{}{place}", caller()) };
            PLACE.set(Some(place));
            if !hook::is_process() {
                usual(info);
            }
        }));
    });
}

/// Whose function called a library that panicked, as the beginning of a place.
fn caller() -> &'static str {
    let frames = Backtrace::force_capture().to_string();
    let ours = |line: &&str| {
        !line.contains("sim::panics") && (line.contains("nodelet::") || line.contains("apidouble"))
    };
    match frames.lines().find(ours) {
        Some(line) if line.contains("::sim::") || line.contains("apidouble") => "tests/sim/ by ",
        _ => "src/ by ",
    }
}

/// The place of the panic that has just ended a process, and its text.
pub(super) fn taken(text: &str) -> String {
    let place = PLACE.take().unwrap_or_default();
    format!("{place}: {text}")
}

/// Whether the text of [`taken`] names a place of the program.
pub(super) fn is_of_the_agent(text: &str) -> bool {
    let place = text.split(':').next().unwrap_or_default();
    place.starts_with("src/") && !place.contains("tests/sim/")
}
