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
use std::time::Duration;

use nix::sys::prctl;

use crate::agent::read_cache::{ReadCache, ask_name_servers};
use crate::agent::{Agent, ApiConnection};
use crate::check::board::{ASKED_ONCE, ASKED_ONCE_REMEDY};
use crate::check::{CommandFailure, Setup, configured, probe};
use crate::config::command_line::{self, Command, shown};
use crate::config::file;
use crate::config::flags::Flags;
use crate::config::{Config, KUBELET_VERSION};
use crate::credentials::{ApiAccess, IdentitySource};
use crate::files::read::read;
use crate::health::monitor::Health;
use crate::host::{Host, HostRoot};
use crate::join;
use crate::kube::delay::Jitter;
use crate::kube::text::Fault;
use crate::kube::{describe, object, yaml};
use crate::node::eviction::Eviction;
use crate::node::facts::Facts;
use crate::node::status::{self, Desired};

use crate::client::dns::NodeName;
use crate::process::clock::{self, Clock};
use crate::process::logging;
use crate::process::notify::Notify;
use crate::process::wakeup::Wakeup;
use crate::runtime;
use crate::runtime::config::RuntimeConfig;
use crate::runtime::file::RuntimeFile;
use crate::runtime::report::RuntimeReport;
use crate::serve::{self, Port, ServeConfig};

/// Time limit of a question to the container runtime.
const ASK: Duration = Duration::from_secs(5);
/// Exit code of [`CommandFailure::Usage`].
const EXIT_USAGE: u8 = 2;
/// Exit code of [`CommandFailure::Other`].
const EXIT_FAILURE: u8 = 1;

/// Runs `nodelet`. `args` lack the program name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(end) = join::main(&args, &user_agent(), &version(), proxy_variable(), &mut print) {
        return exit(end);
    }
    let is_serve = args.iter().any(|word| word == "serve");
    let result = run_command(args);
    let has_failed = result.is_err();
    let code = exit(result);
    if is_serve && has_failed {
        serve::delay_next_start();
    }
    code
}

fn run_command(args: Vec<OsString>) -> Result<(), CommandFailure> {
    let (command, flags) = command_line::parse(args.clone()).map_err(CommandFailure::Usage)?;
    if matches!(command, Command::Run | Command::Runtime | Command::Serve) {
        logging::never_wait();
    }
    match command {
        Command::Help { all } => print(&command_line::usage(all)),
        Command::Version => print(&version()),
        Command::Inspect => inspect(*flags, args),
        Command::Check => check(*flags, args),
        Command::Runtime => ask_runtime(*flags, args),
        Command::Serve => serve(*flags, args),
        Command::Logs => Err(CommandFailure::Other(serve::logs::answer_one())),
        Command::Run => run(*flags, args),
    }
}

fn exit(result: Result<(), CommandFailure>) -> ExitCode {
    let (code, line) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CommandFailure::Usage(line)) => (EXIT_USAGE, line),
        Err(CommandFailure::Other(line)) => (EXIT_FAILURE, line),
    };
    logging::print_error(line);
    ExitCode::from(code)
}

/// Unlike `println!`, does not panic if stdout is closed.
fn print(text: &str) -> Result<(), CommandFailure> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{}", text.trim_end_matches('\n'));
    written.map_err(|e| CommandFailure::Other(format!("stdout: {e}")))
}

#[expect(clippy::disallowed_methods, reason = "the only reader of the environment")]
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

fn run(flags: Flags, args: Vec<OsString>) -> Result<(), CommandFailure> {
    open_agent(flags, args)?.run();
    Ok(())
}

/// An agent that has sent no request yet. Not inlined, and boxed: what a start takes of the stack
/// would lie below the loop for the life of the process (28 KiB, measured).
#[inline(never)]
fn open_agent(flags: Flags, args: Vec<OsString>) -> Result<Box<Agent>, CommandFailure> {
    // Keys and tokens in memory must not be in a core file. PR_SET_DUMPABLE with 0 cannot fail.
    let _ = prctl::set_dumpable(false);
    logging::start(flags.values.verbosity, env("JOURNAL_STREAM").is_some());
    // Before the facts are read, so that no later change of the network is missed.
    let wakeup = Wakeup::new().map_err(|e| CommandFailure::Other(format!("signalfd: {e}")))?;
    let Setup { mut config, health, host, facts: first } = configure(flags, args)?;
    if config.state_file.is_none() {
        config.state_file = systemd_folder("RUNTIME_DIRECTORY").map(|folder| folder.join("state"));
    }
    let path = config.kubeconfig.as_ref().ok_or_else(|| {
        let line = "--kubeconfig is missing: nodelet join gets one and starts the unit; nodelet \
                    inspect prints the Node that would be registered";
        CommandFailure::Usage(line.to_owned())
    })?;
    let seed = RandomState::new().build_hasher().finish();
    let now = clock::wall();
    let opened = source(&config, path).open(now, Jitter::new(seed));
    let (identity, access) = opened.map_err(|why| CommandFailure::Other(why.to_string()))?;
    warn_if_insecure(path, &access);
    if first.node_fs.as_ref().is_ok_and(|fs| fs.asked_once) {
        log::warn!("--root-dir: {ASKED_ONCE}; {ASKED_ONCE_REMEDY}");
    }
    if let (Some(name), None) = (proxy_variable(), &access.config.proxy) {
        log::info!("{name} is not used; set proxy-url in the kubeconfig");
    }
    let notify = Notify::new(env("NOTIFY_SOCKET").as_deref(), env("WATCHDOG_USEC").as_deref());
    let connection = ApiConnection { api: access.api, identity, certificate: access.certificate };
    let mut facts = ReadCache::new(host, &config.node.name, first);
    facts.runtime = config.runtime.as_ref().map(|runtime| RuntimeFile::new(&runtime.facts_file));
    Ok(Box::new(Agent::new(config, &health, facts, connection, wakeup, notify, seed)))
}

/// The folder that systemd makes for this unit and names in `variable`; the first one of several.
fn systemd_folder(variable: &str) -> Option<PathBuf> {
    let folders = env(variable)?.into_string().ok()?;
    folders.split(':').next().filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The variable that other clients take a proxy from.
fn proxy_variable() -> Option<&'static str> {
    ["HTTPS_PROXY", "https_proxy"].into_iter().find(|name| env(name).is_some())
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

fn source(config: &Config, kubeconfig: &Path) -> IdentitySource {
    let credentials = env("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    IdentitySource::new(config, kubeconfig, credentials, user_agent())
}

/// Without system and architecture, as a kubelet adds them: the Node has both, and each request would
/// carry them.
fn user_agent() -> String {
    concat!("nodelet/", env!("CARGO_PKG_VERSION")).to_owned()
}

/// The checked configuration and the facts that its checks need. Flags and fields without effect
/// are logged last, because an invalid configuration must be one line.
fn configure(flags: Flags, args: Vec<OsString>) -> Result<Setup, CommandFailure> {
    let mut flags = over_file(flags, args)?;
    let (ignored, unknown) = (std::mem::take(&mut flags.ignored), flags.unknown.join(", "));
    let setup = configured(flags, true)?;
    log_ignored(ignored);
    if !unknown.is_empty() {
        log::warn!("--config: unknown fields ignored: {unknown}");
    }
    Ok(setup)
}

/// The flags, with the values of the `--config` file for flags that are not given.
fn over_file(flags: Flags, args: Vec<OsString>) -> Result<Flags, CommandFailure> {
    let Some(path) = &flags.values.config_file else {
        return Ok(flags);
    };
    let mut over = Flags::default();
    read_config(path, &mut over)
        .map_err(|e| CommandFailure::Other(format!("--config {}: {e}", path.display())))?;
    command_line::apply(args, &mut over).map_err(CommandFailure::Usage)?;
    Ok(over)
}

fn read_config(path: &Path, flags: &mut Flags) -> Result<(), Fault> {
    let bytes = read(path)?;
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8 text")?;
    Ok(file::apply(&yaml::parse(&text)?, flags)?)
}

/// Logs each name once: flags first, because of their dashes.
fn log_ignored(mut names: Vec<String>) {
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        log::info!("ignored: {}", names.join(", "));
    }
}

/// Prints the Node that `run` would register. Each fact that cannot be read is one line on stderr,
/// and not a failure. Not inlined: its locals would be a part of the stack of every command.
#[inline(never)]
fn inspect(flags: Flags, args: Vec<OsString>) -> Result<(), CommandFailure> {
    logging::start(flags.values.verbosity, false);
    let is_json = is_json(&flags, "json")?;
    let Setup { config, health, mut host, mut facts } = configure(flags, args)?;
    let clock = Clock::start();
    let (mut desired, _) = desired(&config, &mut host, &mut facts, &clock);
    let mut health = Health::new(&host, &health, clock::built(), move || clock.now());
    health
        .if_it_lasted()
        .apply(object::elements(&mut desired.node, &["status", "conditions"]), clock.now().wall);
    for line in &desired.missing {
        logging::print_error(line);
    }
    print(&if is_json { format!("{:#}", desired.node) } else { describe::node(&desired.node) })
}

/// Asks the container runtime for the agent, until the process is ended. Without a runtime there is
/// nothing to do, which is no failure: the unit is started with the agent's.
fn ask_runtime(flags: Flags, args: Vec<OsString>) -> Result<(), CommandFailure> {
    logging::start(flags.values.verbosity, env("JOURNAL_STREAM").is_some());
    let flags = over_file(flags, args)?;
    match RuntimeConfig::new(&flags.values.runtime).map_err(CommandFailure::Usage)? {
        Some(config) => runtime::serve(&config),
        None => {
            log::info!("no --container-runtime-endpoint, so there is nothing to do");
            Ok(())
        }
    }
}

/// Answers on the kubelet's port. Reads the agent's flags, and no fact before somebody asks.
fn serve(flags: Flags, args: Vec<OsString>) -> Result<(), CommandFailure> {
    open_port(flags, args)?.run();
    Ok(())
}

/// The port, which listens already. Not inlined, and boxed, as [`open_agent`].
#[inline(never)]
fn open_port(flags: Flags, args: Vec<OsString>) -> Result<Box<Port>, CommandFailure> {
    let _ = prctl::set_dumpable(false);
    logging::start(flags.values.verbosity, env("JOURNAL_STREAM").is_some());
    let mut flags = over_file(flags, args)?;
    let ignored = std::mem::take(&mut flags.ignored);
    let serving = ServeConfig::new(&flags.values).map_err(CommandFailure::Usage)?;
    let host = Host::new(HostRoot::new(&flags.values.host_root), &flags.values.root_dir);
    let config = Config::new(flags, || host.hostname().map_err(|unread| unread.to_string()))
        .map_err(CommandFailure::Usage)?;
    let path = config.kubeconfig.as_ref().ok_or_else(|| {
        CommandFailure::Usage(
            "--kubeconfig is missing: the API server says who may ask; give the flags of the agent"
                .to_owned(),
        )
    })?;
    let source = source(&config, path);
    log_ignored(ignored);
    // Not the agent's folder, where this process may not write.
    let own = systemd_folder("STATE_DIRECTORY");
    let cert_dir = own.as_ref().unwrap_or(&config.cert_dir);
    let port = Port::open(&config, &serving, &source, host, cert_dir);
    port.map(Box::new).map_err(|why| CommandFailure::Other(why.to_string()))
}

/// Checks everything that `run` needs and changes nothing. Fails if `run` would not work.
fn check(flags: Flags, args: Vec<OsString>) -> Result<(), CommandFailure> {
    let _ = prctl::set_dumpable(false);
    logging::start(flags.values.verbosity, false);
    let is_json = is_json(&flags, "text")?;
    let (flags, args) = or_of_the_unit(flags, args)?;
    let mut setup = configure(flags, args)?;
    let clock = Clock::start();
    let (Desired { missing, .. }, found) =
        desired(&setup.config, &mut setup.host, &mut setup.facts, &clock);
    let connect = || {
        let path = setup.config.kubeconfig.as_ref().ok_or("--kubeconfig is missing")?;
        source(&setup.config, path).open_read_only(clock.now().wall).map(|(_, access)| access)
    };
    let found = found.as_ref();
    let report = probe::report(&setup, &missing, found, &clock, connect);
    print(&if is_json { format!("{:#}", report.json()) } else { report.text() })?;
    report.end("check")
}

/// Without a kubeconfig on the command line: the flags of nodelet.service, if it has an identity, and
/// then those on the command line, which win.
fn or_of_the_unit(
    flags: Flags,
    args: Vec<OsString>,
) -> Result<(Flags, Vec<OsString>), CommandFailure> {
    let values = &flags.values;
    let is_given =
        values.config.kubeconfig.is_some() || values.config.bootstrap_kubeconfig.is_some();
    let is_elsewhere = values.host_root != Path::new("/");
    let Some(unit) = (!is_given && !is_elsewhere).then(join::unit_flags).flatten() else {
        return Ok((flags, args));
    };
    log::info!("checks nodelet.service and its flags; with --kubeconfig it would check others");
    let args: Vec<OsString> = unit.into_iter().map(OsString::from).chain(args).collect();
    let (_, flags) = command_line::parse(args.clone()).map_err(CommandFailure::Usage)?;
    Ok((*flags, args))
}

/// Whether `--output`, or else `default`, is json and not text.
fn is_json(flags: &Flags, default: &str) -> Result<bool, CommandFailure> {
    match flags.values.output.as_deref().unwrap_or(default) {
        "json" => Ok(true),
        "text" => Ok(false),
        other => {
            Err(CommandFailure::Usage(format!("--output {:?}: write json or text", shown(other))))
        }
    }
}

/// The Node that `run` would register, and what the look at the container runtime found. Adds to
/// the facts the addresses from DNS, and those of the runtime.
fn desired(
    config: &Config,
    host: &mut Host,
    facts: &mut Facts,
    clock: &Clock,
) -> (Desired, Option<RuntimeReport>) {
    let now = clock.now();
    let mut name = NodeName::new(&config.node.name, None);
    let elapsed = || clock.now().mono;
    ask_name_servers(&host.root, facts, &mut name, &config.node, true, elapsed);
    let found = config.runtime.as_ref().map(|config| {
        let found = runtime::ask(config, ASK);
        let runtime = runtime::facts_of(config, found.clone());
        let folder = runtime.image_folder.as_deref();
        facts.image_fs = folder.map(|folder| host.image_fs(folder));
        facts.runtime = Some(runtime);
        found
    });
    let pressures = Eviction::new(&config.thresholds, config.pressure_transition_period)
        .synchronize(facts, now.mono);
    (status::initial(config, facts, pressures, now.wall), found)
}
