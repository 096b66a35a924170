//! One request to the API server at a time, limited in duration and size, over one connection.
//!
//! `api` sends a request; `route` chooses the address and keeps the connection; `transport` is TCP
//! and TLS for ureq; `api_config` says where the server is and how both sides prove themselves.
//! `reach` only checks whether there is a way to a server.

pub mod api;
pub mod api_config;
pub(crate) mod authorities;
pub mod dns;
mod failure;
pub(crate) mod reach;
mod route;
pub(crate) mod socket;
pub mod tls;
mod transport;
mod tunnel;
