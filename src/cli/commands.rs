//! The commands that look and print: `inspect`, `check` and `runtime`.

use std::ffi::OsString;
use std::time::Duration;

use nix::sys::prctl;

use super::configure::{First, configure, over_file};
use super::{EXIT_FAILURE, EXIT_USAGE, Failure, print, print_error, source};
use crate::check::probe;
use crate::config::command_line::shown;
use crate::config::flags::Flags;
use crate::config::{self, Config};
use crate::core::eviction::Eviction;
use crate::core::runtime::{Found, Runtime};
use crate::core::status::{self, Desired};
use crate::host::Host;
use crate::host::fact_cache::ask_name_servers;
use crate::host::problems::Watch;
use crate::kube::{describe, object};
use crate::process::clock::Clock;
use crate::process::logging;
use crate::wire::dns::NodeName;
use crate::wire::runtime as container_runtime;

/// Time limit of a look at the container runtime.
const LOOK: Duration = Duration::from_secs(5);

/// Prints the Node that `run` would register. Each fact that cannot be read is one line on stderr,
/// and not a failure.
pub(super) fn inspect(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
    logging::start(flags.verbosity, false);
    let is_json = is_json(&flags, "json")?;
    let (config, host, mut first) = configure(flags, args)?;
    let clock = Clock::start();
    let (mut desired, _) = desired(&config, &host, &mut first, &clock);
    let mut watch = Watch::new(&host, &config.problems);
    let status = object::members(&mut desired.node, &["status"]);
    watch.listed(&config.problems, &|| clock.now()).apply(
        object::elements(status, "conditions"),
        &clock.now().wall.time(),
    );
    for line in &desired.missing {
        print_error(line);
    }
    print(&match is_json {
        true => format!("{:#}", desired.node),
        false => describe::node(&desired.node),
    })
}

/// Prints what an endpoint `file://` reads. Each failed request is one line on stderr.
pub(super) fn runtime(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
    logging::start(flags.verbosity, false);
    let (flags, _) = over_file(flags, args)?;
    let config = config::runtime::parse(&flags).map_err(|line| (EXIT_USAGE, line))?;
    let missing = || {
        (
            EXIT_USAGE,
            "--container-runtime-endpoint is missing".to_owned(),
        )
    };
    let (errors, facts) = container_runtime::once(&config.ok_or_else(missing)?);
    errors.iter().for_each(|line| print_error(line));
    let failed = |failure| (EXIT_FAILURE, format!("container runtime: {failure}"));
    print(&format!("{:#}", facts.map_err(failed)?))
}

/// Checks everything that `run` needs and changes nothing. Fails if `run` would not work.
pub(super) fn check(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
    let _ = prctl::set_dumpable(false);
    logging::start(flags.verbosity, false);
    let is_json = is_json(&flags, "text")?;
    let (config, host, mut first) = configure(flags, args)?;
    let clock = Clock::start();
    let (Desired { missing, .. }, found) = desired(&config, &host, &mut first, &clock);
    let connect = || {
        let path = config
            .kubeconfig
            .as_ref()
            .ok_or("--kubeconfig is missing")?;
        source(&config, path).open_read_only(clock.now().wall)
    };
    let (_, facts) = first;
    let found = found.as_ref();
    let report = probe::report(&config, &host, &facts, &missing, found, &clock, connect);
    print(&match is_json {
        true => format!("{:#}", report.json()),
        false => report.text(),
    })?;
    match report.failed().as_slice() {
        [] => Ok(()),
        failed => Err((EXIT_FAILURE, format!("check failed: {}", failed.join(", ")))),
    }
}

/// Whether `--output`, or else `default`, is json and not text.
fn is_json(flags: &Flags, default: &str) -> Result<bool, Failure> {
    match flags.output.as_deref().unwrap_or(default) {
        "json" => Ok(true),
        "text" => Ok(false),
        other => Err((
            EXIT_USAGE,
            format!("--output {:?}: write json or text", shown(other)),
        )),
    }
}

/// The Node that `run` would register, and what the look at the container runtime found. Adds to
/// the facts the addresses from DNS, and those of the runtime.
fn desired(
    config: &Config,
    host: &Host,
    (kept, facts): &mut First,
    clock: &Clock,
) -> (Desired, Option<Found>) {
    let now = clock.now();
    let mut name = NodeName::new(&config.node.name);
    let elapsed = || clock.now().mono;
    ask_name_servers(&host.root, facts, &mut name, &config.node, true, elapsed);
    let found = config.runtime.as_ref().map(|config| {
        let found = container_runtime::look(config, LOOK, elapsed);
        let mut runtime = Runtime::new(config.protocol);
        let now = clock.now().mono;
        runtime.on_found(found.clone(), now);
        facts.runtime = Some(runtime.facts(now));
        let folder = runtime.image_folder();
        facts.image_fs = folder.map(|folder| host.image_fs(kept, folder));
        found
    });
    let pressures = Eviction::new(&config.thresholds, config.pressure_transition_period)
        .synchronize(facts, now.mono);
    (status::initial(config, facts, pressures, now.wall), found)
}
