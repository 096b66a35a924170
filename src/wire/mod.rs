//! One request to the API server at a time, limited in duration and size, over one connection.
//!
//! `runtime` asks the container runtime of the board, over a local socket.
//!
//! `api` sends a request; `link` chooses the address and keeps the connection; `transport` is TCP
//! and TLS for ureq; `api_config` says where the server is and how both sides prove themselves.

mod addresses;
pub mod api;
pub mod api_config;
pub mod authorization;
mod buffers;
mod deadline;
pub mod dns;
pub mod endpoint;
mod failure;
mod link;
mod provider;
pub mod proxy;
mod resolver;
pub mod runtime;
pub mod secret;
mod socket;
pub mod tls;
mod tls_error;
mod transport;
mod tunnel;
