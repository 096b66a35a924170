//! A value that could not be read, and why.

use std::fmt;

/// Why one fact is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// File or system call, relative to the host root: `proc/meminfo`.
    pub source: String,
    /// What happened: `no MemTotal line`, `permission denied`.
    pub cause: String,
    /// The machine does not have the thing that the file describes, which is no fault.
    pub absent: bool,
}

impl Unread {
    /// A file that exists and lacks the fact.
    pub fn new(source: impl Into<String>, cause: impl Into<String>) -> Unread {
        Unread { source: source.into(), cause: cause.into(), absent: false }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.cause)
    }
}

/// One fact, or the reason why it is missing.
pub type Read<T> = Result<T, Unread>;

/// [`Read`] of what not every machine has; `None` if this one does not.
pub type IfPresent<T> = Option<Read<T>>;

/// What was read, or why not; `None` if it is absent.
pub fn if_present<T>(read: Read<T>) -> IfPresent<T> {
    match read {
        Err(unread) if unread.absent => None,
        read => Some(read),
    }
}
