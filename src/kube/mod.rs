//! Kubernetes' types and their exact text and binary forms, and what all rooms share. No I/O.
//!
//! Four subjects stand here in one room. Nearly each of the other rooms imports two or three of
//! them: a room for each subject would have more imports between rooms than this one has.

// Kubernetes' words: objects, messages, names, quantities, and what they look like.
pub mod cluster_info;
pub mod describe;
pub mod json;
pub mod message;
pub mod names;
pub mod object;
pub mod protobuf;
pub mod quantity;
pub mod refusals;
pub mod version;
pub mod yaml;

// What rooms hand to each other.
pub mod facts;
pub mod finding;
pub mod lease_report;

// Keys and certificates.
pub mod chain;
pub mod keys;
pub mod x509;

// Ground: moments and delays, and lines for people.
pub mod delay;
pub mod instant;
pub mod outage_log;
pub mod text;
pub mod time;
