//! Lines for people: faults, and text of others, made safe for one line of a log, an event, a
//! condition or a status.

use std::fmt::{self, Display, Write};

/// The target of log lines that `--v=2` adds. They have the level Info: release builds have no
/// `debug!`, because ureq's are 10 KB of code that nothing prints.
pub const VERBOSE: &str = "verbose";

/// Most characters of one line.
const MAX_CHARS: usize = 4096;

/// Displays `T` as one line: control characters, line separators and direction controls are
/// replaced by a space, and what exceeds 4,096 characters is cut. Allocates nothing.
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

/// Undoes percent-encoding. A `%` that is not followed by two hexadecimal digits stays as it is,
/// and the second value is then false.
pub fn percent_decoded(text: &[u8]) -> (Vec<u8>, bool) {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: [u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
    let mut parts = text.split(|byte| *byte == b'%');
    let mut decoded = parts.next().unwrap_or_default().to_vec();
    let mut is_valid = true;
    for part in parts {
        let encoded = part.split_first_chunk().and_then(|(two, after)| Some((byte(*two)?, after)));
        is_valid &= encoded.is_some();
        let (byte, after) = encoded.unwrap_or((b'%', part));
        decoded.push(byte);
        decoded.extend_from_slice(after);
    }
    (decoded, is_valid)
}

/// The values of a name in a query, decoded as by Go's `url.ParseQuery`: a part with a semicolon,
/// or with a percent sign that begins no byte, is dropped.
pub fn query<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let parts = query.split('&').filter(|part| !part.is_empty() && !part.contains(';'));
    parts.filter_map(move |part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(key)? == name).then(|| decoded(value)).flatten()
    })
}

fn decoded(text: &str) -> Option<String> {
    // A plus sign is a space.
    let (text, is_valid) = percent_decoded(text.replace('+', " ").as_bytes());
    is_valid.then(|| String::from_utf8_lossy(&text).into_owned())
}

/// What went wrong, and what its reader can do about it. Displayed as `what; remedy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong. It may quote a server.
    pub what: String,
    /// Empty if there is none.
    pub remedy: String,
    /// What the next step depends on.
    pub kind: FaultKind,
}

/// The faults after which another step follows than after all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultKind {
    /// All others.
    #[default]
    Other,
    /// EACCES: another user may be allowed to do it.
    Denied,
    /// A file is there, or may be, and could not be read.
    Unread,
    /// A server refuses our token or certificate.
    Credentials,
    /// A server says that our certificate has expired.
    Expired,
    /// An answer has begun, and its end did not come in time.
    CutOff,
}

impl Fault {
    /// A fault with a remedy.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into(), kind: FaultKind::Other }
    }

    /// A server refuses our token or certificate.
    pub fn of_credentials(what: impl Into<String>) -> Self {
        let fault = Self::new(what, "check the credentials in the kubeconfig");
        Self { kind: FaultKind::Credentials, ..fault }
    }

    /// Whether a file may be there that could not be read.
    pub fn is_unread(&self) -> bool {
        matches!(self.kind, FaultKind::Denied | FaultKind::Unread)
    }

    /// Says first where it is, or what it prevents.
    pub fn at(self, place: impl Display) -> Self {
        Self { what: format!("{place}: {}", self.what), ..self }
    }

    /// This remedy, if it has none of its own.
    pub fn or_remedy(mut self, remedy: &str) -> Self {
        if self.remedy.is_empty() {
            remedy.clone_into(&mut self.remedy);
        }
        self
    }
}

/// Without a remedy.
impl<T: Into<String>> From<T> for Fault {
    fn from(what: T) -> Self {
        Self::new(what, "")
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remedy.as_str() {
            "" => f.write_str(&self.what),
            remedy => write!(f, "{}; {remedy}", self.what),
        }
    }
}

/// A fault can be the cause of an [`std::io::Error`].
impl std::error::Error for Fault {}

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
    fn percent_text_is_decoded() {
        for (text, want, is_valid) in [
            ("a%20b", "a b", true),
            ("%41%62%", "Ab%", false),
            ("%4", "%4", false),
            ("%+4", "%+4", false),
            ("%zz%25", "%zz%", false),
            ("%%41", "%A", false),
            ("%C3%A4", "ä", true),
            ("", "", true),
        ] {
            assert_eq!(percent_decoded(text.as_bytes()), (want.into(), is_valid), "{text}");
        }
    }

    #[test]
    fn foreign_text_is_one_harmless_line() {
        for (text, line) in [
            ("it is fine: 100 % — ü", "it is fine: 100 % — ü"),
            ("no\n<0>nodelet: all is lost\r\n", "no <0>nodelet: all is lost  "),
            ("\u{1b}[31mred\u{1b}[0m\u{9b}1m\0\u{7f}", " [31mred [0m 1m  "),
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
