//! Log lines on stderr, with the priority prefix that journald reads.

use std::io::Write;

use log::{Level, LevelFilter};

use crate::kube::text::{OneLine, VERBOSE};

/// Starts logging to stderr. `verbosity` is `--v`. `for_journal` writes the priority (`<6>`) before
/// each line (sd-daemon(3)). Text of others in a line cannot forge another one.
pub fn start(verbosity: u8, for_journal: bool) {
    let mut builder = env_logger::Builder::new();
    // Libraries log only warnings and errors.
    builder.filter(None, LevelFilter::Warn);
    builder.filter(Some("nodelet"), LevelFilter::Info);
    if verbosity >= 2 {
        builder.filter(Some(VERBOSE), LevelFilter::Info);
    }
    builder.format(move |out, record| {
        let (priority, word) = match record.level() {
            Level::Error => ("<3>", "error: "),
            Level::Warn => ("<4>", "warning: "),
            _ if record.target() == VERBOSE => ("<7>", "debug: "),
            _ => ("<6>", ""),
        };
        let line = OneLine(record.args());
        if for_journal {
            writeln!(out, "{priority}{line}")
        } else {
            writeln!(out, "nodelet: {word}{line}")
        }
    });
    // In tests, a second start fails and the first logger stays.
    let _ = builder.try_init();
}
