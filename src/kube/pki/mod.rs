//! Keys.
pub mod key;
