//! Clock, wait, sd_notify and logging of the process.

pub mod clock;
pub mod logging;
pub mod notify;
pub mod wakeup;
