//! The command line: reads arguments and configuration, runs a command, returns the exit code.
//!
//! Invalid input is one line on stderr and ends the start, before a request to the API server. A
//! running agent ends by a signal, with exit code 0.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sys::prctl;
use serde_json::Value;

use crate::agent::{Agent, Connection};
use crate::check::{Report, probe};
use crate::config::command_line::{self, Command};
use crate::config::file::Notes;
use crate::config::flags::Flags;
use crate::config::{self, Config, KUBELET_VERSION};
use crate::core::eviction::Eviction;
use crate::core::facts::Facts;
use crate::core::status::{self, Desired};
use crate::files::read::read;
use crate::files::yaml;
use crate::host::fact_cache::ask_name_servers;
use crate::host::{Host, HostRoot};
use crate::identity::{ApiAccess, Source};
use crate::kube::describe;
use crate::kube::text::OneLine;
use crate::process::clock::Clock;
use crate::process::logging;
use crate::process::notify::Notify;
use crate::process::wakeup::Wakeup;
use crate::wire::dns::NodeName;

/// Exit code of an invalid command line, or of an invalid value in the `--config` file.
const EXIT_USAGE: u8 = 2;
/// Exit code of every other failure: a file that cannot be read or parsed, a reservation of more
/// than the board has, a failed check, a closed stdout.
const EXIT_FAILURE: u8 = 1;

/// Runs `nodelet`. `args` lack the program name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let result = match command_line::parse(args.clone()) {
        Ok(Command::Help) => print(command_line::USAGE),
        Ok(Command::Version) => print(&version()),
        Ok(Command::Inspect(flags)) => inspect(*flags, args),
        Ok(Command::Check(flags)) => check(*flags, args),
        Ok(Command::Runtime(flags)) => runtime(*flags, args),
        Ok(Command::Run(flags)) => run(*flags, args),
        Err(line) => Err((EXIT_USAGE, line)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, line)) => {
            print_error(&line);
            ExitCode::from(code)
        }
    }
}

/// Unlike `println!`, does not panic if stdout is closed.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end_matches('\n'))
        .map_err(|e| (EXIT_FAILURE, format!("stdout: {e}")))
}

fn print_error(line: &str) {
    let _ = writeln!(std::io::stderr(), "nodelet: {}", OneLine(line));
}

type Failure = (u8, String);

#[expect(
    clippy::disallowed_methods,
    reason = "the only reader of the environment"
)]
fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// `nodelet 0.1.0 (commit, target)`, and the kubelet version that the Node reports.
fn version() -> String {
    format!(
        "nodelet {} ({}, {}) as {KUBELET_VERSION}",
        env!("CARGO_PKG_VERSION"),
        env!("NODELET_COMMIT"),
        env!("NODELET_TARGET"),
    )
}

fn run(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
    // Keys and tokens in memory must not be in a core file. PR_SET_DUMPABLE with 0 cannot fail.
    let _ = prctl::set_dumpable(false);
    logging::start(flags.verbosity, env("JOURNAL_STREAM").is_some());
    let (config, host, _) = configure(flags, args)?;
    let path = config.kubeconfig.as_ref().ok_or_else(|| {
        let line = "--kubeconfig is missing: without an API server there is nothing to do; \
                    to see the Node that would be registered, run nodelet inspect";
        (EXIT_USAGE, line.to_owned())
    })?;
    let seed = RandomState::new().build_hasher().finish();
    let random = u32::try_from(seed % 1001).unwrap_or_default();
    let now = Clock::start().now().wall;
    let opened = source(&config, path).open(now, random);
    let (identity, access, certificate) = opened.map_err(|line| (EXIT_FAILURE, line))?;
    warn_if_insecure(path, &access);
    let proxy = ["HTTPS_PROXY", "https_proxy"]
        .into_iter()
        .find(|name| env(name).is_some());
    if let (Some(name), None) = (proxy, &access.config.proxy) {
        log::info!("{name} is not used; set proxy-url in the kubeconfig");
    }
    let wakeup = Wakeup::new().map_err(|e| (EXIT_FAILURE, format!("signalfd: {e}")))?;
    let notify = Notify::new(
        env("NOTIFY_SOCKET").as_deref(),
        env("WATCHDOG_USEC").as_deref(),
    );
    let connection = Connection {
        api: access.api,
        identity,
        certificate,
    };
    Agent::new(config, host, connection, wakeup, notify, seed).run();
    Ok(())
}

fn warn_if_insecure(path: &Path, access: &ApiAccess) {
    if access.config.insecure {
        log::warn!(
            "{}: insecure-skip-tls-verify: any server at {} is trusted and gets our credentials; \
             give the cluster's CA in certificate-authority",
            path.display(),
            access.config.endpoint
        );
    }
}

fn source(config: &Config, kubeconfig: &Path) -> Source {
    let name = concat!("nodelet/", env!("CARGO_PKG_VERSION"));
    let user_agent = format!("{name} (linux/{})", status::ARCHITECTURE);
    let credentials = env("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    Source::new(config, kubeconfig, credentials, user_agent)
}

/// Prints the Node that `run` would register. Each fact that cannot be read is one line on stderr,
/// and not a failure.
fn inspect(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
    logging::start(flags.verbosity, false);
    let layout: fn(&Value) -> String = match flags.output.as_deref() {
        None | Some("json") => |node| format!("{node:#}"),
        Some("text") => describe::node,
        Some(other) => {
            return Err((
                EXIT_USAGE,
                format!("--output {other:?}: write json or text"),
            ));
        }
    };
    let (config, host, mut facts) = configure(flags, args)?;
    let desired = desired(&config, &host, &mut facts, &Clock::start());
    for line in &desired.missing {
        print_error(line);
    }
    print(&layout(&desired.node))
}

/// Prints what an endpoint `file://` reads. Each failed request is one line on stderr.
fn runtime(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
    logging::start(flags.verbosity, false);
    let (flags, _) = over_file(flags, args)?;
    let config = config::runtime::parse(&flags).map_err(|line| (EXIT_USAGE, line))?;
    let missing = || {
        (
            EXIT_USAGE,
            "--container-runtime-endpoint is missing".to_owned(),
        )
    };
    let (errors, facts) = crate::runtime::once(&config.ok_or_else(missing)?);
    errors.iter().for_each(|line| print_error(line));
    let failed = |failure| (EXIT_FAILURE, format!("container runtime: {failure}"));
    print(&format!("{:#}", facts.map_err(failed)?))
}

/// Checks everything that `run` needs and changes nothing. Fails if `run` would not work.
fn check(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
    let _ = prctl::set_dumpable(false);
    logging::start(flags.verbosity, false);
    let layout: fn(&Report) -> String = match flags.output.as_deref() {
        None | Some("text") => Report::text,
        Some("json") => |report| format!("{:#}", report.json()),
        Some(other) => {
            return Err((
                EXIT_USAGE,
                format!("--output {other:?}: write json or text"),
            ));
        }
    };
    let (config, host, mut facts) = configure(flags, args)?;
    let clock = Clock::start();
    let missing = desired(&config, &host, &mut facts, &clock).missing;
    let connect = || {
        let path = config
            .kubeconfig
            .as_ref()
            .ok_or("--kubeconfig is missing")?;
        source(&config, path).open_read_only(clock.now().wall)
    };
    let report = probe::report(&config, &host, &facts, &missing, &clock, connect);
    print(&layout(&report))?;
    match report.failed().as_slice() {
        [] => Ok(()),
        failed => Err((EXIT_FAILURE, format!("check failed: {}", failed.join(", ")))),
    }
}

/// The Node that `run` would register. Adds to `facts` the addresses from DNS and the runtime.
fn desired(config: &Config, host: &Host, facts: &mut Facts, clock: &Clock) -> Desired {
    let now = clock.now();
    if host.root.is_real() {
        // The name of another machine is not looked up in this machine's DNS.
        let mut name = NodeName::new(&config.node.name);
        ask_name_servers(facts, &mut name, &config.node, true, || clock.now().mono);
    }
    facts.runtime = config.runtime.as_ref().map(crate::runtime::facts_once);
    let pressures = Eviction::new(&config.thresholds, config.pressure_transition_period)
        .synchronize(facts, now.mono);
    status::initial(config, facts, pressures, now.wall)
}

/// The checked configuration and the facts that its checks need. Flags and fields without effect are
/// logged last, because an invalid configuration must be one line.
fn configure(flags: Flags, args: Vec<OsString>) -> Result<(Config, Host, Facts), Failure> {
    let (flags, notes) = over_file(flags, args)?;
    if !flags.host_root.is_dir() {
        let root = flags.host_root.display();
        return Err((EXIT_USAGE, format!("--host-root: {root} is not a folder")));
    }
    let mut host = Host::new(HostRoot::new(&flags.host_root), &flags.root_dir);
    host.ready_when_exists.clone_from(&flags.ready_when_exists);
    let ignored = flags_and_fields(&flags.ignored, notes.ignored);
    let not_yet = flags_and_fields(&flags.not_yet, notes.not_yet);
    let hostname = || host.hostname().map_err(|unread| unread.to_string());
    let config = Config::new(flags, hostname).map_err(|line| (EXIT_USAGE, line))?;
    let facts = host.facts(&config.node.name);
    status::check_reservations(&config, &facts).map_err(|line| (EXIT_FAILURE, line))?;
    if !ignored.is_empty() {
        log::info!("accepted without effect: {ignored}");
    }
    if !not_yet.is_empty() {
        log::info!("accepted, not implemented yet: {not_yet}");
    }
    if !notes.unknown.is_empty() {
        let names = notes.unknown.join(", ");
        log::warn!("--config: unknown fields ignored: {names}");
    }
    Ok((config, host, facts))
}

/// The flags, with the values of the `--config` file for flags that are not given.
fn over_file(flags: Flags, args: Vec<OsString>) -> Result<(Flags, Notes), Failure> {
    let given = flags.config.as_ref();
    let Some(path) = given.filter(|path| !path.as_os_str().is_empty()) else {
        return Ok((flags, Notes::default()));
    };
    let mut from_file = Flags::default();
    let notes = read_config(path, &mut from_file)
        .map_err(|e| (EXIT_FAILURE, format!("--config {}: {e}", path.display())))?;
    match command_line::parse_over(from_file, args) {
        Ok(
            Command::Run(flags)
            | Command::Inspect(flags)
            | Command::Check(flags)
            | Command::Runtime(flags),
        ) => Ok((*flags, notes)),
        Ok(_) => Ok((flags, notes)),
        Err(line) => Err((EXIT_USAGE, line)),
    }
}

fn read_config(path: &Path, flags: &mut Flags) -> Result<Notes, String> {
    let bytes = read(path)?;
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8 text")?;
    config::file::apply(&yaml::parse(&text)?, flags)
}

/// A list of flags, each once and with `--`, then of fields.
fn flags_and_fields(flags: &[&str], fields: Vec<String>) -> String {
    let mut names: Vec<String> = flags.iter().map(|flag| format!("--{flag}")).collect();
    names.sort();
    names.dedup();
    names.extend(fields);
    names.join(", ")
}
