//! The wire: Kubernetes' words, their exact text forms, and one bounded request.
//!
//! The core speaks in `der`, `message`, `names`, `object`, `protobuf`, `quantity`, `time` and
//! `x509`, which only hold values. The others read and write files and open connections;
//! only `cli`, `identity` and `agent` use them.

pub mod api;
mod credentials;
pub mod der;
pub mod disk;
pub mod endpoint;
pub mod file;
pub mod kubeconfig;
pub mod message;
pub mod names;
pub mod object;
pub mod pki;
pub mod protobuf;
pub mod proxy;
pub mod quantity;
pub mod time;
pub mod tls;
pub mod x509;
pub mod yaml;
