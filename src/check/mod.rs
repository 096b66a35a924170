//! `nodelet check`: checks each thing that a run needs, once, and names the remedy; and `nodelet
//! inspect`: the Node that a run would register.
//!
//! This file has the commands. `board`, `guest` and `server` judge plain values, and
//! `runtime::check` the container runtime. `probe`, `port` and `sandbox` read files or send
//! requests, and change nothing.

pub mod board;
pub mod guest;
mod port;
mod probe;
mod sandbox;
mod server;

use crate::agent::setup::{Setup, ask_name_servers};
use crate::agent::unit::UnitAgent;
use crate::client::dns::NodeName;
use crate::config::flags::Flags;
use crate::kube::{describe, object};
use crate::node::eviction::Eviction;
use crate::node::status::{self, Desired};
use crate::os::clock::Clock;
use crate::os::command::{CommandFailure, End, print};
use crate::os::logging;
use crate::runtime;
use crate::runtime::report::RuntimeReport;

/// Prints the Node that a run would register, as JSON or as text. Each fact that cannot be read is
/// one line on stderr, and not a failure. Not inlined, as `check`: its locals would be a part of
/// the stack of every command.
#[inline(never)]
pub fn inspect(flags: Box<Flags>, is_json: bool) -> End {
    let mut setup = Setup::for_a_run(*flags)?;
    let clock = Clock::start();
    let (Desired { mut node, missing, .. }, _) = desired(&mut setup, &clock);
    let mut health = setup.board_health(clock);
    health
        .if_it_lasted()
        .apply(object::elements(&mut node, &["status", "conditions"]), clock.now().wall);
    for line in &missing {
        logging::print_error(line);
    }
    print(&if is_json { format!("{node:#}") } else { describe::node(&node) })
}

/// Checks everything that a run needs and changes nothing. Fails if a run would not work. `unit` is
/// what was found of the process of nodelet.service, if its flags are checked.
#[inline(never)]
pub(crate) fn check(flags: Box<Flags>, is_json: bool, unit: Option<UnitAgent>) -> End {
    let mut setup = Setup::for_a_run(*flags)?;
    let report = probe::report(&mut setup, unit, &Clock::start());
    let text = || {
        let lines = [Some(report.text()), board::hint(&report.findings)];
        lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
    };
    print(&if is_json { format!("{:#}", report.json()) } else { text() })?;
    report.end("check").map_err(CommandFailure::Other)
}

/// The Node that a run would register, and what the container runtime answered. Adds to the facts
/// the addresses from DNS, and those of the runtime.
fn desired(setup: &mut Setup, clock: &Clock) -> (Desired, Option<RuntimeReport>) {
    let Setup { config, runtime, host, facts, .. } = setup;
    let now = clock.now();
    let mut name = NodeName::new(&config.node.name, None);
    let elapsed = || clock.now().mono;
    ask_name_servers(&host.root, facts, &mut name, &config.node, true, elapsed);
    let report = runtime.as_ref().map(|config| {
        let report = runtime::ask(config, runtime::OVERDUE);
        let runtime = runtime::facts_of(config, report.clone());
        let image_fs = runtime.image_folder().and_then(|folder| {
            sandbox::not_hidden(&host.root, folder).and_then(|()| host.image_fs(folder))
        });
        facts.image_fs = Some(image_fs);
        facts.runtime = Some(runtime);
        report
    });
    let pressures = Eviction::new(&config.thresholds, config.pressure_transition_period)
        .synchronize(facts, now.mono);
    (status::initial(config, facts, pressures, now.wall), report)
}
