//! `nodelet join`: from a token to a Ready Node, and `nodelet reset`, the way back.
//!
//! `core::join` parses the command line, the token and the ConfigMap of kubeadm. `proof` computes the
//! digests that prove the server.

pub mod proof;
