//! The flags of `nodelet serve`. Of these flags, the agent reads only `--state-file` and `--port`.
//! So a value that only `nodelet serve` refuses never stops the agent.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::access::AccessConfig;
use crate::config::flags::Values;

/// Where `nodelet serve` finds the agent's state without `--state-file`: `RuntimeDirectory=nodelet`
/// of the agent's unit.
const STATE_FILE: &str = "/run/nodelet/state";
/// Where, below `--host-root`, `nodelet serve` finds the socket of `nodelet logs`.
const LOG_SOCKET: &str = "run/nodelet-logs.sock";
/// Shortest `--idle-exit` other than 0.
const SHORTEST_IDLE: Duration = Duration::from_secs(1);

/// The configuration of `nodelet serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeConfig {
    /// `--client-ca-file`; `None` is the CA that signed the board's certificate.
    pub(super) client_ca_file: Option<PathBuf>,
    /// `--authentication-token-webhook`, and how long answers of the API server are kept.
    pub(super) access: AccessConfig,
    /// `--tls-cert-file` and `--tls-private-key-file`; without them, the serving certificate is the
    /// cluster's, or self-signed.
    pub(super) tls_files: Option<(PathBuf, PathBuf)>,
    /// `--rotate-server-certificates`: the cluster signs the serving certificate.
    pub(super) rotate_server_certificates: bool,
    /// `--tls-min-version=VersionTLS13`: TLS 1.2 is refused.
    pub only_tls13: bool,
    /// `--idle-exit`: exit after so long without a connection; zero is never.
    pub(super) idle_exit: Duration,
    /// `--listen`; `None` is the socket that systemd passes.
    pub(super) listen: Option<SocketAddr>,
    /// `--state-file`: what the agent writes about its Lease.
    pub(super) state_file: PathBuf,
    /// `--enable-system-log-query`: the socket of `nodelet logs`; `None` answers no query.
    pub(super) log_socket: Option<PathBuf>,
}

impl ServeConfig {
    /// Validates the values of a command line and a file. An error names the flag.
    pub fn new(values: &Values) -> Result<Self, String> {
        if values.anonymous_auth {
            let why =
                "--anonymous-auth=true: nodelet serve has no anonymous access; set it to false";
            return Err(why.to_owned());
        }
        match values.authorization_mode.as_str() {
            "" | "Webhook" => {}
            other => {
                return Err(format!(
                    "--authorization-mode {other:?}: nodelet serve asks the API server what a user \
                     may; write Webhook"
                ));
            }
        }
        let only_tls13 = match values.tls_min_version.as_str() {
            // With the first two versions a kubelet also accepts TLS 1.0 or 1.1; here 1.2 is the
            // oldest.
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => {
                return Err(format!(
                    "--tls-min-version {other:?}: write VersionTLS12 or VersionTLS13"
                ));
            }
        };
        let tls_files = match (&values.tls_cert_file, &values.tls_private_key_file) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some((chain.clone(), key.clone())),
            _ => {
                return Err(
                    "--tls-cert-file and --tls-private-key-file: each needs the other".to_owned()
                );
            }
        };
        let idle_exit = values.idle_exit;
        if !idle_exit.is_zero() && idle_exit < SHORTEST_IDLE {
            return Err(format!("--idle-exit {idle_exit:?}: write at least 1s, or 0 for never"));
        }
        let listen = match values.listen.as_str() {
            "" => None,
            address => Some(address.parse().map_err(|_| {
                format!("--listen {address:?}: write ADDRESS:PORT, as 0.0.0.0:10250 or [::]:10250")
            })?),
        };
        let state_file = values.config.state_file.as_deref().unwrap_or(Path::new(STATE_FILE));
        Ok(Self {
            client_ca_file: values.client_ca_file.clone(),
            access: AccessConfig {
                accepts_tokens: values.accepts_tokens,
                token_ttl: values.token_ttl,
                authorized_ttl: values.authorized_ttl,
                unauthorized_ttl: values.unauthorized_ttl,
            },
            tls_files,
            rotate_server_certificates: values.rotate_server_certificates,
            only_tls13,
            idle_exit,
            listen,
            state_file: state_file.to_owned(),
            log_socket: values.system_log_query.then(|| values.host_root.join(LOG_SOCKET)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::flags::Flags;

    fn config(words: &[&str]) -> Result<ServeConfig, String> {
        ServeConfig::new(&Flags::of(words).values)
    }

    /// The defaults are those of a kubelet's file, and a template may leave values empty.
    #[test]
    fn flags_reach_the_configuration() {
        let defaults = || ServeConfig {
            client_ca_file: None,
            access: AccessConfig {
                accepts_tokens: true,
                token_ttl: Duration::from_secs(120),
                authorized_ttl: Duration::from_secs(300),
                unauthorized_ttl: Duration::from_secs(30),
            },
            tls_files: None,
            rotate_server_certificates: false,
            only_tls13: false,
            idle_exit: Duration::from_secs(300),
            listen: None,
            state_file: "/run/nodelet/state".into(),
            log_socket: None,
        };
        let empty = "--client-ca-file= --authorization-mode= --tls-cert-file= \
                     --tls-private-key-file= --tls-min-version= --listen= --state-file=";
        let given = "--tls-cert-file=/a --tls-private-key-file=/b --tls-min-version=VersionTLS13 \
                     --idle-exit=0 --listen=[::]:10250 --state-file=/x --enable-system-log-query \
                     --host-root=/host";
        let want = ServeConfig {
            tls_files: Some(("/a".into(), "/b".into())),
            only_tls13: true,
            idle_exit: Duration::ZERO,
            listen: "[::]:10250".parse().ok(),
            state_file: "/x".into(),
            log_socket: Some("/host/run/nodelet-logs.sock".into()),
            ..defaults()
        };
        for (words, want) in [
            ("", defaults()),
            (empty, defaults()),
            (given, want),
            ("--tls-min-version=VersionTLS10", defaults()),
            ("--tls-min-version=VersionTLS12", defaults()),
        ] {
            let words: Vec<&str> = words.split_whitespace().collect();
            assert_eq!(config(&words), Ok(want), "{words:?}");
        }
    }

    #[test]
    fn what_nobody_can_serve_is_one_line_with_its_flag() {
        for (words, want) in [
            (&["--anonymous-auth"][..], "--anonymous-auth=true: "),
            (&["--authorization-mode=AlwaysAllow"], "--authorization-mode \"AlwaysAllow\": "),
            (&["--tls-min-version=VersionTLS14"], "--tls-min-version \"VersionTLS14\": write "),
            (&["--tls-cert-file=/a"], "--tls-cert-file and --tls-private-key-file: each needs"),
            (&["--tls-private-key-file=/a"], "--tls-cert-file and --tls-private-key-file: each"),
            (&["--idle-exit=999ms"], "--idle-exit 999ms: write at least 1s"),
            (&["--listen=10250"], "--listen \"10250\": write ADDRESS:PORT"),
            (&["--listen=:10250"], "--listen \":10250\": write ADDRESS:PORT"),
        ] {
            let line = config(words).unwrap_err();
            assert!(line.starts_with(want) && !line.contains('\n'), "{words:?}: {line}");
            // The agent takes no notice of them.
            let agent = Config::new(Flags::of(words), || Ok("pi".to_owned()));
            assert!(agent.is_ok(), "{words:?}: {agent:?}");
        }
    }
}
