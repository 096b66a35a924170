//! Parses the arguments. An error quotes no word that may be a token at the wrong place.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt as _};
use zeroize::Zeroizing;

use super::{Command, Reset, Settings, TokenSource, endpoint};
use crate::config::command_line::{self, shown, takes_value};
use crate::core::join::token::{Digest, Token, digest};
use crate::kube::time::parse_duration;

/// How long `nodelet join` may take, as `timeouts.discovery` of kubeadm.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Most digests.
const MOST_PINS: usize = 64;

/// Flags of `kubeadm join` that have no effect here; all have a value.
const WITHOUT_EFFECT: [&str; 4] = [
    "cri-socket",
    "ignore-preflight-errors",
    "skip-phases",
    "patches",
];
const CONTROL_PLANE: [&str; 4] = [
    "control-plane",
    "certificate-key",
    "apiserver-advertise-address",
    "apiserver-bind-port",
];
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

/// Parses the command line after `nodelet`. `None` if it is neither `join` nor `reset`.
pub fn parse(args: &[OsString]) -> Option<Result<Command, String>> {
    match args.first()?.to_str()? {
        "join" => Some(words(args).and_then(join)),
        "reset" => Some(reset(args.iter().skip(1).cloned().collect())),
        _ => None,
    }
}

/// The words after `join` of a pasted line: without the blank at its end, and without `\` before a
/// line break. An argument with ` --` in it is a whole line in quotes.
fn words(args: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    for arg in args {
        let arg = arg.to_str().ok_or("an argument is not UTF-8")?.trim();
        match arg.contains(" --") {
            true => words.extend(arg.split_whitespace()),
            false => words.push(arg),
        }
    }
    words.retain(|word| !word.is_empty() && *word != "\\");
    let words = match words.as_slice() {
        // `nodelet join kubeadm join ENDPOINT …`.
        [_, "kubeadm", "join", words @ ..] | [_, words @ ..] => words,
        [] => &[],
    };
    Ok(words.iter().map(OsString::from).collect())
}

/// What was given so far.
#[derive(Default)]
struct Given {
    endpoint: Option<String>,
    token: Option<TokenSource>,
    discovery_token: Option<TokenSource>,
    bootstrap_token: Option<TokenSource>,
}

fn join(args: Vec<OsString>) -> Result<Command, String> {
    let mut given = Given::default();
    let mut settings = Settings {
        server: String::new(),
        token: TokenSource::Text(Zeroizing::default()),
        bearer: None,
        pins: Vec::new(),
        unsafe_skip: false,
        authority: None,
        node_name: None,
        timeout: TIMEOUT,
        wait: true,
        dry_run: false,
        force: false,
        root: None,
        bootstrap_only: false,
        json: false,
        flags: Vec::new(),
        ignored: Vec::new(),
    };
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(fault)? {
        let name = match arg {
            Arg::Long(name) => name.replace('_', "-"),
            Arg::Short('o') => "output".to_owned(),
            Arg::Short('h') => "help".to_owned(),
            Arg::Short('v') => "v".to_owned(),
            Arg::Short(other) => return Err(format!("unknown shorthand flag: -{other}")),
            Arg::Value(word) => {
                let word = word.to_string_lossy().into_owned();
                if given.endpoint.replace(word).is_some() {
                    return Err(
                        "two endpoints; a token needs --token, and a value with blanks needs quotes"
                            .into(),
                    );
                }
                continue;
            }
        };
        let mut text = || text(&name, &mut parser);
        let source = |text| TokenSource::Text(Zeroizing::new(text));
        match name.as_str() {
            "help" => return Ok(Command::Help),
            "version" => return Ok(Command::Version),
            "token" => given.token = Some(source(text()?)),
            "token-file" => given.token = Some(TokenSource::File(text()?.into())),
            "discovery-token" => given.discovery_token = Some(source(text()?)),
            "tls-bootstrap-token" => given.bootstrap_token = Some(source(text()?)),
            "discovery-token-ca-cert-hash" => add_pins(&mut settings.pins, &text()?)?,
            "discovery-token-unsafe-skip-ca-verification" => settings.unsafe_skip = true,
            "certificate-authority" => settings.authority = Some(text()?.into()),
            "node-name" | "hostname-override" => {
                settings.node_name = Some(no_token(&name, text()?)?);
            }
            "timeout" => {
                let timeout = parse_duration(&text()?);
                settings.timeout =
                    timeout.map_err(|_| "--timeout: not a duration; write it like 5m or 1h30m")?;
            }
            "no-wait" => settings.wait = false,
            "dry-run" => settings.dry_run = true,
            "force" => settings.force = true,
            "root" => settings.root = Some(text()?.into()),
            "bootstrap-only" => settings.bootstrap_only = true,
            "output" => settings.json = is_json(&text()?)?,
            name => match WITHOUT_EFFECT.iter().find(|flag| **flag == name) {
                Some(flag) => {
                    text()?;
                    settings.ignored.push(flag);
                }
                None => settings.flags.push(flag_of_a_run(name, &mut parser)?),
            },
        }
    }
    finish(settings, given).map(|settings| Command::Join(Box::new(settings)))
}

fn finish(mut settings: Settings, given: Given) -> Result<Settings, String> {
    // A token as host name would be shown, and asked for in DNS.
    let endpoint = given.endpoint.filter(|word| !Token::is_whole(word));
    let endpoint = endpoint
        .ok_or("the endpoint is missing: nodelet join HOST:PORT --token …; see join --help")?;
    settings.server = endpoint::url(&endpoint)?;
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
    // The flags are those of a run: its parser checks their values, and quotes them.
    for flag in &settings.flags {
        let name = flag.split('=').next().unwrap_or_default();
        command_line::parse([flag.into()])
            .map_err(|_| format!("{name}: not a valid value; see nodelet --help"))?;
    }
    settings.wait &= settings.root.is_none() && !settings.dry_run;
    Ok(settings)
}

fn reset(args: Vec<OsString>) -> Result<Command, String> {
    let mut reset = Reset::default();
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(fault)? {
        match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            Arg::Long("force") => reset.force = true,
            Arg::Long("root") => reset.root = Some(text("root", &mut parser)?.into()),
            Arg::Long("output") | Arg::Short('o') => {
                reset.json = is_json(&text("output", &mut parser)?)?;
            }
            Arg::Long(other) => {
                let other = shown(other);
                return Err(format!("unknown flag: --{other}; see reset --help"));
            }
            Arg::Short(other) => return Err(format!("unknown shorthand flag: -{other}")),
            Arg::Value(_) => return Err("unexpected argument; see reset --help".into()),
        }
    }
    Ok(Command::Reset(reset))
}

fn add_pins(pins: &mut Vec<Digest>, text: &str) -> Result<(), String> {
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let fault = |what: &str| format!("--discovery-token-ca-cert-hash: {what}");
        let (format, hex) = item.split_once(':').unwrap_or(("", item));
        if !format.eq_ignore_ascii_case("sha256") {
            return Err(fault("unknown hash format; known is sha256:"));
        }
        let pin = digest(hex).ok_or_else(|| fault("64 hexadecimal digits are needed"))?;
        if !pins.contains(&pin) {
            pins.push(pin);
        }
    }
    match pins.len() <= MOST_PINS {
        true => Ok(()),
        false => Err(format!(
            "--discovery-token-ca-cert-hash: at most {MOST_PINS}"
        )),
    }
}

/// A flag of a run, as one word of the file of the unit. systemd would take blanks, quotes and
/// backslashes apart (systemd.exec(5), EnvironmentFile).
fn flag_of_a_run(name: &str, parser: &mut Parser) -> Result<String, String> {
    if CONTROL_PLANE.contains(&name) {
        return Err(format!(
            "--{name}: nodelet runs no pods, so it carries no control plane; use the line without \
             --certificate-key"
        ));
    }
    if ["config", "discovery-file"].contains(&name) {
        return Err(format!(
            "--{name}: not for nodelet join; put a kubeconfig with the token to \
             /etc/credstore/nodelet.bootstrap-kubeconfig"
        ));
    }
    if SET_BY_JOIN.contains(&name) {
        return Err(format!("--{name}: nodelet join sets it"));
    }
    let flag = match takes_value(name) {
        Some(true) => format!("--{name}={}", no_token(name, text(name, parser)?)?),
        Some(false) => match parser.optional_value() {
            Some(value) => {
                let value = no_token(name, value.to_string_lossy().into_owned())?;
                format!("--{name}={value}")
            }
            None => format!("--{name}"),
        },
        None => return Err(format!("unknown flag: --{}; see join --help", shown(name))),
    };
    let is_plain = |c: char| c.is_ascii_graphic() && !"'\"\\".contains(c);
    match flag.chars().all(is_plain) {
        true => Ok(flag),
        false => Err(format!(
            "--{name}: a value with blanks, quotes or backslashes; write it into \
             /etc/default/nodelet"
        )),
    }
}

/// The value of a flag, which is kept in a file and quoted in errors, unless a token is in it.
fn no_token(name: &str, value: String) -> Result<String, String> {
    match Token::is_within(&value) {
        true => Err(format!("--{name}: this is a token; use --token")),
        false => Ok(value),
    }
}

fn is_json(text: &str) -> Result<bool, String> {
    match text {
        "json" => Ok(true),
        "text" => Ok(false),
        _ => Err("--output: write json or text".into()),
    }
}

/// lexopt quotes the value of a flag that takes none.
fn fault(error: lexopt::Error) -> String {
    match error {
        lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value"),
        other => other.to_string(),
    }
}

fn text(name: &str, parser: &mut Parser) -> Result<String, String> {
    let value = parser
        .value()
        .map_err(|_| format!("flag needs an argument: --{name}"))?;
    value.string().map_err(|_| format!("--{name}: not UTF-8"))
}
