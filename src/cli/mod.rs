//! The command line: reads arguments and configuration, runs a command, returns the exit code.
//!
//! Invalid input is one line on stderr and ends the start, before a request to the API server. A
//! running agent ends by a signal, with exit code 0.

mod commands;
mod configure;

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sys::prctl;

use self::commands::{check, inspect, runtime as print_runtime};
use self::configure::configure;
use crate::agent::{Agent, Connection};
use crate::config::command_line::{self, Command};
use crate::config::flags::Flags;
use crate::config::{Config, KUBELET_VERSION};
use crate::core::status;
use crate::host::fact_cache::FactCache;
use crate::identity::{ApiAccess, Source};
use crate::join;
use crate::kube::text::OneLine;
use crate::process::clock::Clock;
use crate::process::logging;
use crate::process::notify::Notify;
use crate::process::wakeup::Wakeup;
use crate::wire::runtime;

/// Exit code of an invalid command line, or of an invalid value in the `--config` file.
const EXIT_USAGE: u8 = 2;
/// Exit code of every other failure: a file that cannot be read or parsed, a reservation of more
/// than the board has, a failed check, a closed stdout.
const EXIT_FAILURE: u8 = 1;

/// Runs `nodelet`. `args` lack the program name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(end) = join::main(&args, &user_agent(), &version(), &mut print_line) {
        return exit(end.map_err(|(is_usage, line)| match is_usage {
            true => (EXIT_USAGE, line),
            false => (EXIT_FAILURE, line),
        }));
    }
    exit(match command_line::parse(args.clone()) {
        Ok(Command::Help) => print(command_line::USAGE),
        Ok(Command::Version) => print(&version()),
        Ok(Command::Inspect(flags)) => inspect(*flags, args),
        Ok(Command::Check(flags)) => check(*flags, args),
        Ok(Command::Runtime(flags)) => print_runtime(*flags, args),
        Ok(Command::Run(flags)) => run(*flags, args),
        Err(line) => Err((EXIT_USAGE, line)),
    })
}

fn exit(result: Result<(), Failure>) -> ExitCode {
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
    print_line(text).map_err(|line| (EXIT_FAILURE, line))
}

fn print_line(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end_matches('\n')).map_err(|e| format!("stdout: {e}"))
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
    // Before the facts are read, so that no later change of the network is missed.
    let wakeup = Wakeup::new().map_err(|e| (EXIT_FAILURE, format!("signalfd: {e}")))?;
    let (config, host, first) = configure(flags, args)?;
    let path = config.kubeconfig.as_ref().ok_or_else(|| {
        let line = "--kubeconfig is missing: without an API server there is nothing to do; \
                    to see the Node that would be registered, run nodelet inspect";
        (EXIT_USAGE, line.to_owned())
    })?;
    let seed = RandomState::new().build_hasher().finish();
    let random = u32::try_from(seed % 1001).unwrap_or_default();
    let now = Clock::start().now().wall;
    let opened = source(&config, path).open(now, random);
    let (identity, access) = opened.map_err(|line| (EXIT_FAILURE, line))?;
    warn_if_insecure(path, &access);
    let proxy = ["HTTPS_PROXY", "https_proxy"]
        .into_iter()
        .find(|name| env(name).is_some());
    if let (Some(name), None) = (proxy, &access.config.proxy) {
        log::info!("{name} is not used; set proxy-url in the kubeconfig");
    }
    let notify = Notify::new(
        env("NOTIFY_SOCKET").as_deref(),
        env("WATCHDOG_USEC").as_deref(),
    );
    let connection = Connection {
        api: access.api,
        identity,
        certificate: access.certificate,
    };
    let mut facts = FactCache::new(host, &config.node.name, first);
    facts.runtime = config.runtime.clone().map(runtime::Watch::new);
    Agent::new(config, facts, connection, wakeup, notify, seed).run();
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
    let credentials = env("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    Source::new(config, kubeconfig, credentials, user_agent())
}

fn user_agent() -> String {
    let name = concat!("nodelet/", env!("CARGO_PKG_VERSION"));
    format!("{name} (linux/{})", status::ARCHITECTURE)
}
