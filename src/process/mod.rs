//! What the process has besides the wire: its clock, its one wait, its supervisor, its log.

pub mod clock;
pub mod logging;
pub mod notify;
pub mod wakeup;
