//! The command lines of `nodelet join` and `nodelet reset`.
//!
//! The line that `kubeadm token create --print-join-command` prints is accepted with its options in
//! any order (`cmd/kubeadm/app/cmd/util/join.go`). Flags of a run are kept as text, for the unit.

mod parse;

pub use parse::{FLAGS, is_set_by_join, parse};

use std::path::PathBuf;
use std::time::Duration;

use super::token::{Digest, Token};
use crate::client::api_config::Secret;
use crate::config::setting::help;

/// The text of `nodelet join --help`.
pub fn usage() -> String {
    format!(
        "{USAGE}{}  --version, --help\n\n\
         Flags of a run, such as --node-labels, are stored in /etc/default/nodelet-join.",
        help(FLAGS, true)
    )
}

const USAGE: &str = "\
nodelet join makes this machine a Node of a cluster: it asks for a certificate with a token, stores
it as /etc/credstore/nodelet.kubeconfig, and waits until the Node is Ready.

Usage:
  nodelet join HOST:PORT --token ID.SECRET --discovery-token-ca-cert-hash sha256:HEX
                                       kubeadm: the line of kubeadm token create --print-join-command
  nodelet join HOST:PORT --token ID.SECRET --certificate-authority FILE
                                       a cluster that kubeadm did not make
  nodelet join https://HOST:PORT --token K10...
                                       k3s (port 6443) and rke2 (port 9345)
  nodelet reset [--force] [--root DIR] [-o json|text]
                                       remove what nodelet join wrote; --force: the k3s password, too

Flags of nodelet join:
";

/// The remedy of `--bootstrap-only` at a supervisor.
pub const NOT_BOOTSTRAP_ONLY: &str =
    "k3s gives a certificate to each board: join the board, or use --node-name";

/// What a command line asks for.
#[derive(Debug, PartialEq)]
pub enum JoinCommand {
    /// `nodelet join`.
    Join(Box<Settings>),
    /// `nodelet reset`.
    Reset(Reset),
    /// `--help`.
    Help,
    /// `--version`.
    Version,
}

/// The command line of `nodelet join`.
#[derive(Debug, Default, PartialEq)]
pub struct Settings {
    /// `https://HOST:PORT[/prefix]`; the host is not checked.
    pub server: String,
    /// Proves the server, and us unless `bearer` is set.
    pub token: TokenSource,
    /// `--tls-bootstrap-token`, where it differs: proves us.
    pub bearer: Option<TokenSource>,
    /// `--discovery-token-ca-cert-hash`.
    pub pins: Vec<Digest>,
    /// `--discovery-token-unsafe-skip-ca-verification`.
    pub unsafe_skip: bool,
    /// `--certificate-authority`.
    pub authority: Option<PathBuf>,
    /// `--node-name`.
    pub node_name: Option<String>,
    /// `--timeout`.
    pub timeout: Duration,
    /// Wait until the Node is Ready.
    pub wait: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--force`.
    pub force: bool,
    /// `--root`.
    pub root: Option<PathBuf>,
    /// `--bootstrap-only`.
    pub bootstrap_only: bool,
    /// `--output=json`.
    pub json: bool,
    /// Flags of a run: `--name` or `--name=value`, without blanks and quotes.
    pub flags: Vec<String>,
    /// Accepted flags without effect.
    pub ignored: Vec<&'static str>,
}

/// The command line of `nodelet reset`.
#[derive(Debug, Default, PartialEq)]
pub struct Reset {
    /// `--force`.
    pub force: bool,
    /// `--root`.
    pub root: Option<PathBuf>,
    /// `--output=json`.
    pub json: bool,
}

/// Where a token is.
#[derive(Debug, PartialEq)]
pub enum TokenSource {
    /// On the command line.
    Text(Secret),
    /// In a file; `-` is stdin.
    File(PathBuf),
}

impl Default for TokenSource {
    fn default() -> Self {
        Self::Text(Secret::new(String::new()))
    }
}

impl Settings {
    /// Whether the token and the way to trust the server fit together.
    pub fn check(&self, token: &Token) -> Result<(), String> {
        let trusted = self.unsafe_skip || self.authority.is_some();
        match token {
            Token::Bootstrap(_) if !self.pins.is_empty() || trusted => Ok(()),
            Token::Bootstrap(_) => {
                Err("a token id.secret needs --discovery-token-ca-cert-hash sha256:… or \
                 --certificate-authority FILE; for k3s, use the whole token, K10…::id.secret"
                    .into())
            }
            Token::Supervisor { .. } if !self.pins.is_empty() => Err(
                "--discovery-token-ca-cert-hash needs a token id.secret; copy kubeadm's line again"
                    .into(),
            ),
            Token::Supervisor { .. } if self.bootstrap_only => {
                Err(format!("--bootstrap-only needs a token of kubeadm; {NOT_BOOTSTRAP_ONLY}"))
            }
            Token::Supervisor { hash: None, .. } if !trusted => {
                Err("this token has no hash of the CA; use the whole token, K10…, of \
                 /var/lib/rancher/k3s/server/node-token, or --certificate-authority FILE"
                    .into())
            }
            Token::Supervisor { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
