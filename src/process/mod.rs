//! The process: clock, wait, sd_notify, log, and the end of a command.

pub mod clock;
pub mod command;
pub mod logging;
pub mod notify;
pub mod unix_socket;
pub mod wakeup;
