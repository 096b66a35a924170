//! Clock, wait, sd_notify and logging of the process. `instant` and `outage_log` are pure.

pub mod clock;
pub mod instant;
pub mod logging;
pub mod notify;
pub mod outage_log;
pub mod unix_socket;
pub mod wakeup;
