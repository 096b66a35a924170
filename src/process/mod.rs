//! Clock, wait, sd_notify and logging of the process.

pub mod clock;
pub mod logging;
pub mod notify;
pub mod unix_socket;
pub mod wakeup;
