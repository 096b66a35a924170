//! Text of others, made safe for one line of a log, an event, a condition or a status.

use std::fmt::{self, Display, Write};

/// The target of log lines that `--v=2` adds. They have the level Info: release builds have no
/// `debug!`, because ureq's are 10 KB of code that nothing prints.
pub const VERBOSE: &str = "verbose";

/// Most characters of one line.
const MAX_CHARS: usize = 4096;

/// Displays `T` as one line: control characters, line separators and direction controls are replaced
/// by a space, and what exceeds 4,096 characters is cut. Allocates nothing.
///
/// A server's message with newlines would forge lines of the journal, and with escape sequences it
/// would reach the terminal of the person who reads them.
#[derive(Debug)]
pub struct OneLine<T>(pub T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Line { out, chars: 0 };
        write!(line, "{}", self.0)
    }
}

/// `text` as [`OneLine`] displays it.
pub fn one_line(text: &str) -> String {
    OneLine(text).to_string()
}

/// What happened, without the remedy that `line` may have after a semicolon.
pub fn without_remedy(line: &str) -> &str {
    line.split_once("; ").map_or(line, |(cause, _)| cause)
}

struct Line<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    /// Written characters.
    chars: usize,
}

impl Write for Line<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match self.chars {
                0..MAX_CHARS => self.out.write_char(safe(c))?,
                MAX_CHARS => self.out.write_char('…')?,
                _ => break,
            }
            self.chars += 1;
        }
        Ok(())
    }
}

fn safe(c: char) -> char {
    match c {
        c if c.is_control() => ' ',
        // Line and paragraph separator; bidirectional embedding, override and isolate (UAX #9).
        '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_one_harmless_line() {
        for (text, line) in [
            ("it is fine: 100 % — ü", "it is fine: 100 % — ü"),
            (
                "no\n<0>nodelet: all is lost\r\n",
                "no <0>nodelet: all is lost  ",
            ),
            (
                "\u{1b}[31mred\u{1b}[0m\u{9b}1m\0\u{7f}",
                " [31mred [0m 1m  ",
            ),
            ("a\u{2028}b\u{202e}c", "a b c"),
        ] {
            assert_eq!(one_line(text), line);
            assert_eq!(one_line(line), line);
        }
        let long = "ä".repeat(MAX_CHARS + 1);
        assert_eq!(one_line(&long), format!("{}…", "ä".repeat(MAX_CHARS)));
        // In several pieces.
        assert_eq!(
            OneLine(format_args!("{}{long}", "a\n")).to_string(),
            format!("a {}…", "ä".repeat(MAX_CHARS - 2))
        );
    }
}
