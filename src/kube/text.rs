//! Text of others, made safe for one line of a log, an event, a condition or a status.

/// Most characters of one line.
const MAX_CHARS: usize = 1024;

/// `text` as one line: control characters, line separators and invisible direction marks are
/// replaced by a space, and what exceeds 1,024 characters is cut.
///
/// A server's message with newlines would forge lines of the journal, and with escape sequences it
/// would reach the terminal of the person who reads them.
pub fn one_line(text: &str) -> String {
    let mut line: String = text.chars().take(MAX_CHARS).map(safe).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        line.push('…');
    }
    line
}

/// Whether [`one_line`] would change `text`.
pub fn is_one_line(text: &str) -> bool {
    text.len() <= MAX_CHARS && text.chars().all(|c| safe(c) == c)
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
            assert_eq!(is_one_line(text), text == line);
            assert!(is_one_line(line));
        }
        let long = "ä".repeat(MAX_CHARS + 1);
        assert_eq!(one_line(&long), format!("{}…", "ä".repeat(MAX_CHARS)));
        assert!(!is_one_line(&long));
    }
}
