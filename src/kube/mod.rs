//! Kubernetes' types and their exact text and binary forms. No I/O.

pub mod chain;
pub mod cluster_info;
pub mod delay;
pub mod describe;
pub mod facts;
pub mod instant;
pub mod json;
pub mod keys;
pub mod lease_report;
pub mod message;
pub mod names;
pub mod object;
pub mod outage_log;
pub mod protobuf;
pub mod quantity;
pub mod text;
pub mod time;
pub mod version;
pub mod x509;
pub mod yaml;
