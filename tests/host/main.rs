//! Comparisons with other tools on this machine: the shell, OpenSSL, systemd, cpio.
#![cfg(test)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

#[path = "../common/mod.rs"]
mod common;

mod cross;
mod facts;
mod health;
mod openssl;
mod systemd;
