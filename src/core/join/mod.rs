//! `nodelet join` without side effects: its command line, the forms of a token, and the ConfigMap
//! `cluster-info` of kubeadm.
//!
//! `crate::join` reads files, sends requests and computes digests.

pub mod command;
pub mod discovery;
pub mod token;
