//! The commands that look and print: `inspect`, `check` and `runtime`.

use std::ffi::OsString;

use nix::sys::prctl;
use serde_json::Value;

use super::configure::{configure, over_file};
use super::{EXIT_FAILURE, EXIT_USAGE, Failure, print, print_error, source};
use crate::check::{Report, probe};
use crate::config::flags::Flags;
use crate::config::{self, Config};
use crate::core::eviction::Eviction;
use crate::core::facts::Facts;
use crate::core::status::{self, Desired};
use crate::host::Host;
use crate::host::fact_cache::ask_name_servers;
use crate::host::problems::Watch;
use crate::kube::{describe, object};
use crate::process::clock::Clock;
use crate::process::logging;
use crate::wire::dns::NodeName;
use crate::wire::runtime as container_runtime;

/// Prints the Node that `run` would register. Each fact that cannot be read is one line on stderr,
/// and not a failure.
pub(super) fn inspect(flags: Flags, args: Vec<OsString>) -> Result<(), Failure> {
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
    let (config, host, (_, mut facts)) = configure(flags, args)?;
    let clock = Clock::start();
    let mut desired = desired(&config, &host, &mut facts, &clock);
    let mut watch = Watch::new(&host, &config.problems);
    let status = object::members(&mut desired.node, &["status"]);
    watch.listed(&config.problems, &|| clock.now()).apply(
        object::elements(status, "conditions"),
        &clock.now().wall.time(),
    );
    for line in &desired.missing {
        print_error(line);
    }
    print(&layout(&desired.node))
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
    let (config, host, (_, mut facts)) = configure(flags, args)?;
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
    facts.runtime = config.runtime.as_ref().map(container_runtime::facts_once);
    let pressures = Eviction::new(&config.thresholds, config.pressure_transition_period)
        .synchronize(facts, now.mono);
    status::initial(config, facts, pressures, now.wall)
}
