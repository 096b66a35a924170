//! Log lines for the journal, with the priority that systemd understands.

use std::io::Write;

use log::{Level, LevelFilter};

/// Starts logging to stderr. `verbosity` is `--v`; `for_journal` puts the priority
/// (`<6>`) before each line, as journald reads it.
pub fn start(verbosity: u8, for_journal: bool) {
    let level = match verbosity {
        0..=1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    let mut builder = env_logger::Builder::new();
    // The libraries' own lines are nobody's business at 3 a.m.
    builder.filter(None, LevelFilter::Warn);
    builder.filter(Some("nodelet"), level);
    builder.format(move |out, record| {
        let (priority, word) = match record.level() {
            Level::Error => ("<3>", "error: "),
            Level::Warn => ("<4>", "warning: "),
            Level::Info => ("<6>", ""),
            Level::Debug | Level::Trace => ("<7>", "debug: "),
        };
        match for_journal {
            true => writeln!(out, "{priority}{}", record.args()),
            false => writeln!(out, "nodelet: {word}{}", record.args()),
        }
    });
    // A second start, in a test, keeps the first one's logger.
    let _ = builder.try_init();
}
