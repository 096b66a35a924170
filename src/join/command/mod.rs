//! The command lines of `nodelet join` and `nodelet reset`.
//!
//! The line that `kubeadm token create --print-join-command` prints is accepted with its options in
//! any order (`cmd/kubeadm/app/cmd/util/join.go`). Flags of a run are kept as text, for the unit.
//! An error quotes no word that may be a token at the wrong place.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Parser;

use super::token::{Digest, K0S, MICROK8S, Token, is_of_k0s, parse_digest};
use crate::client::api_config::Secret;
use crate::config::command_line::{self, Command, takes_value, unknown_flag};
use crate::config::setting::Kind::{Path, Switch, Text};
use crate::config::setting::{Setting, find, help, row, set_defaults, value};
use crate::kube::time::parse_duration;

/// The port of an endpoint without one, as in kubeadm.
const PORT: u16 = 6443;
/// Most digests.
const MOST_PINS: usize = 64;

/// The flags of `nodelet reset`, which are those of `nodelet join`.
const RESET: [&str; 3] = ["force", "root", "output"];
/// Flags of a run that `nodelet join` and the unit set.
const SET_BY_JOIN: [&str; 8] = [
    "kubeconfig",
    "bootstrap-kubeconfig",
    "cert-dir",
    "root-dir",
    "rotate-certificates",
    "hostname-override",
    "k3s-supervisor",
    "k3s-supervisor-system-roots",
];

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
    Join(Box<JoinSettings>),
    /// `nodelet reset`.
    Reset(Reset),
    /// `--help`.
    Help,
    /// `--version`.
    Version,
}

/// The command line of `nodelet join`.
#[derive(Debug, Default, PartialEq)]
pub struct JoinSettings {
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

/// An empty placeholder, so that [`JoinSettings`] can derive Default. `finish` replaces it, or
/// fails.
impl Default for TokenSource {
    fn default() -> Self {
        Self::Text(Secret::new(String::new()))
    }
}

impl JoinSettings {
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

/// Whether a word of the stored flags is one that `nodelet join` sets.
pub fn is_set_by_join(word: &str) -> bool {
    let name = word.strip_prefix("--").and_then(|word| word.split('=').next());
    name.is_some_and(|name| SET_BY_JOIN.contains(&name))
}

/// Parses the command line after `nodelet`. `None` if it is neither `join` nor `reset`.
pub fn parse(args: &[OsString]) -> Option<Result<JoinCommand, String>> {
    let (command, args) = args.split_first()?;
    match command.to_str()? {
        "join" => Some(words(args).and_then(|args| parse_flags(args, false))),
        "reset" => Some(parse_flags(args.to_vec(), true)),
        _ => None,
    }
}

/// The words after `join` of a pasted line: without the blank at its end, and without `\` before a
/// line break. An argument with ` --` in it is a whole line in quotes.
fn words(args: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    for arg in args {
        let arg = arg.to_str().ok_or("an argument is not UTF-8")?.trim();
        if arg.contains(" --") { words.extend(arg.split_whitespace()) } else { words.push(arg) }
    }
    words.retain(|word| !word.is_empty() && *word != "\\");
    // `nodelet join kubeadm join ENDPOINT …`.
    let words = words.strip_prefix(&["kubeadm", "join"]).unwrap_or(&words);
    Ok(words.iter().map(OsString::from).collect())
}

/// What was given so far.
#[derive(Debug, Default)]
pub struct GivenFlags {
    settings: JoinSettings,
    token: Option<TokenSource>,
    discovery_token: Option<TokenSource>,
    bootstrap_token: Option<TokenSource>,
    pins: Vec<String>,
    timeout: String,
    output: String,
}

fn token(text: String) -> Option<TokenSource> {
    Some(TokenSource::Text(Secret::new(text)))
}

/// The flags of `nodelet join`, in the order of its help.
#[rustfmt::skip]
pub const FLAGS: &[Setting<GivenFlags>] = &[
    row("token", "T", "", "the token; other users can see it in the list of processes",
        Text(|g, given| g.token = token(given))),
    row("token-file", "FILE", "", "file or pipe with the token; - is stdin",
        Path(|g, given| g.token = Some(TokenSource::File(given)))),
    row("discovery-token-ca-cert-hash", "H,...", "",
        "sha256: and the digest of a CA's public key; can be repeated",
        Text(|g, given| g.pins.push(given))),
    row("discovery-token-unsafe-skip-ca-verification", "", "",
        "trust any server that knows the token",
        Switch(|g, given| g.settings.unsafe_skip = given)),
    row("certificate-authority", "FILE", "", "CA of the API server, instead of discovery",
        Path(|g, given| g.settings.authority = Some(given))),
    row("node-name", "NAME", "", "name of the Node instead of the host name",
        Text(|g, given| g.settings.node_name = Some(given))),
    // As `timeouts.discovery` of kubeadm.
    row("timeout", "D", "5m", "time limit of the whole command", Text(|g, given| g.timeout = given)),
    row("no-wait", "", "", "do not wait until the Node is Ready",
        Switch(|g, given| g.settings.wait = !given)),
    row("dry-run", "", "", "check everything, change nothing",
        Switch(|g, given| g.settings.dry_run = given)),
    row("force", "", "", "replace the identity of another cluster",
        Switch(|g, given| g.settings.force = given)),
    row("root", "DIR", "", "write below DIR, for an image; start nothing",
        Path(|g, given| g.settings.root = Some(given))),
    row("bootstrap-only", "", "",
        "store the token instead of a certificate, for an image of many boards",
        Switch(|g, given| g.settings.bootstrap_only = given)),
    row("output", "json|text", "text", "form of the output", Text(|g, given| g.output = given)),
];

/// Flags of `kubeadm join` and of a run that have the effect of a flag in [`FLAGS`], or none.
#[rustfmt::skip]
const OTHERS: &[Setting<GivenFlags>] = &[
    row("discovery-token", "T", "", "", Text(|g, given| g.discovery_token = token(given))),
    row("tls-bootstrap-token", "T", "", "", Text(|g, given| g.bootstrap_token = token(given))),
    row("hostname-override", "NAME", "", "", Text(|g, given| g.settings.node_name = Some(given))),
    row("cri-socket", "URL", "", "", Text(|g, _| g.settings.ignored.push("cri-socket"))),
    row("ignore-preflight-errors", "LIST", "", "",
        Text(|g, _| g.settings.ignored.push("ignore-preflight-errors"))),
    row("skip-phases", "LIST", "", "", Text(|g, _| g.settings.ignored.push("skip-phases"))),
    row("patches", "DIR", "", "", Text(|g, _| g.settings.ignored.push("patches"))),
];

fn parse_flags(args: Vec<OsString>, is_reset: bool) -> Result<JoinCommand, String> {
    let mut given = GivenFlags::default();
    given.settings.wait = true;
    set_defaults(FLAGS, &mut given);
    let mut endpoint = None;
    let word = |word: OsString| {
        if is_reset {
            return Err("unexpected argument; see reset --help".into());
        }
        let word = word.to_string_lossy().into_owned();
        not_of_others(&word)?;
        match endpoint.replace(word) {
            None => Ok(()),
            Some(_) => Err("two endpoints; a token needs --token, and a value with blanks needs \
                            quotes"
                .into()),
        }
    };
    let flag = |name: &str, parser: &mut Parser| {
        if is_reset && !RESET.contains(&name) {
            return Err(unknown_flag(name, "reset "));
        }
        let Some(flag) = find(FLAGS, name).or_else(|| find(OTHERS, name)) else {
            given.settings.flags.push(flag_of_a_run(name, parser)?);
            return Ok(());
        };
        if matches!(flag.kind, Switch(_))
            && let Some(value) = parser.optional_value()
        {
            // As in kubeadm. Any other value is not quoted: it may be a token.
            return match value.to_str() {
                Some("true" | "false") => flag.set(&mut given, value, true).map(drop),
                _ => Err(format!("--{name} takes no value but true and false")),
            };
        }
        flag.read(&mut given, true, parser).map(drop)
    };
    match command_line::read_words(args, word, flag)? {
        Some(Command::Version) => return Ok(JoinCommand::Version),
        Some(_) => return Ok(JoinCommand::Help),
        None => {}
    }
    given.settings.json = match given.output.as_str() {
        "json" => true,
        "text" => false,
        _ => return Err("--output: write json or text".into()),
    };
    if given.settings.root.as_ref().is_some_and(|root| root.as_os_str().is_empty()) {
        return Err("--root: an empty path; is its variable set?".into());
    }
    if is_reset {
        let JoinSettings { force, root, json, .. } = given.settings;
        return Ok(JoinCommand::Reset(Reset { force, root, json }));
    }
    finish(given, endpoint).map(|settings| JoinCommand::Join(Box::new(settings)))
}

fn finish(given: GivenFlags, endpoint: Option<String>) -> Result<JoinSettings, String> {
    let mut settings = given.settings;
    settings.pins = pins(&given.pins.join(","))?;
    settings.timeout = parse_duration(&given.timeout)
        .map_err(|_| "--timeout: not a duration; write it like 5m or 1h30m")?;
    if let Some(name) = &settings.node_name {
        no_token("node-name", name)?;
        if name.is_empty() {
            return Err("--node-name: an empty name; is its variable set?".into());
        }
    }
    // If the endpoint is a token by mistake, it is neither shown nor looked up in DNS.
    let endpoint = endpoint
        .filter(|word| !Token::is_whole(word))
        .ok_or("the endpoint is missing: nodelet join HOST:PORT --token …; see join --help")?;
    settings.server = url(&endpoint)?;
    let missing = "--token is missing; on the control plane: \
                   kubeadm token create --print-join-command";
    (settings.token, settings.bearer) =
        match (given.discovery_token, given.token, given.bootstrap_token) {
            (Some(discovery), token, bearer) => (discovery, bearer.or(token)),
            (None, Some(token), bearer) => (token, bearer),
            (None, None, _) => return Err(missing.into()),
        };
    if settings.root.is_some() && settings.node_name.is_none() && !settings.bootstrap_only {
        return Err(
            "--root needs --node-name for an image of one board, or --bootstrap-only for one of \
             many: the host name is this machine's"
                .into(),
        );
    }
    settings.wait &= settings.root.is_none() && !settings.dry_run;
    Ok(settings)
}

/// Refuses the words of other programs' lines: `microk8s join HOST:25000/TOKEN/HASH`, and
/// `k0s worker TOKEN`.
fn not_of_others(word: &str) -> Result<(), String> {
    let authority = word.split('/').next().unwrap_or_default();
    if word == "k0s" || is_of_k0s(word) {
        Err(K0S.into())
    } else if word == "microk8s" || authority.ends_with(":25000") {
        Err(MICROK8S.into())
    } else {
        Ok(())
    }
}

/// `HOST[:6443][/prefix]` or `https://HOST[:443][/prefix]` as a URL.
fn url(endpoint: &str) -> Result<String, String> {
    let path = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest).split('/').nth(1);
    if let Some(path @ ("api" | "apis" | "cacerts" | "version")) = path {
        return Err(format!("the endpoint: /{path} is a path of the API server; give HOST:PORT"));
    }
    if let Some((scheme, rest)) = endpoint.split_once("://") {
        return match scheme.eq_ignore_ascii_case("https") {
            true => Ok(format!("https://{rest}")),
            false => Err("the endpoint: only https is safe for a token".into()),
        };
    }
    let (authority, prefix) = match endpoint.split_once('/') {
        Some((authority, prefix)) => (authority, format!("/{prefix}")),
        None => (endpoint, String::new()),
    };
    let after_host = match authority.rsplit_once(']') {
        Some((_, after)) => after,
        None if authority.matches(':').count() > 1 => {
            return Err("the endpoint: an IPv6 address needs brackets: [fd00::1]:6443".into());
        }
        None => authority,
    };
    let port = if after_host.contains(':') { String::new() } else { format!(":{PORT}") };
    Ok(format!("https://{authority}{port}{prefix}"))
}

fn pins(text: &str) -> Result<Vec<Digest>, String> {
    let mut pins = Vec::new();
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let fault = |what: &str| format!("--discovery-token-ca-cert-hash: {what}");
        let (format, hex) = item.split_once(':').unwrap_or(("", item));
        if !format.eq_ignore_ascii_case("sha256") {
            return Err(fault("unknown hash format; known is sha256:"));
        }
        let pin = parse_digest(hex).ok_or_else(|| fault("64 hexadecimal digits are needed"))?;
        if !pins.contains(&pin) {
            pins.push(pin);
        }
    }
    if pins.len() <= MOST_PINS {
        Ok(pins)
    } else {
        Err(format!("--discovery-token-ca-cert-hash: at most {MOST_PINS}"))
    }
}

/// A flag of a run, as one word of the file of the unit. systemd would take blanks, quotes and
/// backslashes apart (systemd.exec(5), EnvironmentFile).
fn flag_of_a_run(name: &str, parser: &mut Parser) -> Result<String, String> {
    let refused = |why: &str| Err(format!("--{name}: {why}"));
    match name {
        "control-plane"
        | "certificate-key"
        | "apiserver-advertise-address"
        | "apiserver-bind-port" => {
            return refused(
                "nodelet runs no pods, so it carries no control plane; use the line without \
                 --certificate-key",
            );
        }
        "config" | "discovery-file" => {
            return refused(
                "not for nodelet join; put a kubeconfig with the token to \
                 /etc/credstore/nodelet.bootstrap-kubeconfig, and its flags in \
                 /etc/default/nodelet, as systemd/join.md says under By hand",
            );
        }
        _ if SET_BY_JOIN.contains(&name) => return refused("nodelet join sets it"),
        _ => {}
    }
    let takes_value = takes_value(name).ok_or_else(|| unknown_flag(name, "join "))?;
    let flag = match value(name, takes_value, parser)? {
        Some(value) => format!("--{name}={}", no_token(name, &value.to_string_lossy())?),
        None => format!("--{name}"),
    };
    let is_plain = |c: char| c.is_ascii_graphic() && !"'\"\\".contains(c);
    if !flag.chars().all(is_plain) {
        return refused(
            "a value with blanks, quotes or backslashes; write it into /etc/default/nodelet",
        );
    }
    // The parser of a run checks the value. Its error is not shown: it quotes the value.
    match command_line::parse([OsString::from(&flag)]) {
        Ok(_) => Ok(flag),
        Err(_) => refused("not a valid value; see nodelet --help"),
    }
}

/// The value of a flag, which is kept in a file and quoted in errors, unless a token is in it.
fn no_token<'a>(name: &str, value: &'a str) -> Result<&'a str, String> {
    if Token::is_within(value) {
        Err(format!("--{name}: this is a token; use --token"))
    } else {
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
