//! `nodelet check` and `nodelet inspect`.

use super::probe;
use super::setup::Setup;
use crate::config::flags::Flags;
use crate::credentials::IdentitySource;
use crate::kube::{describe, object};
use crate::os::clock::Clock;
use crate::os::command::{End, credentials_folder, print};
use crate::os::logging;

/// Prints the Node that a run would register, as JSON or as text. Each fact that cannot be read is
/// one line on stderr, and not a failure. Not inlined, as [`check`]: its locals would be a part of
/// the stack of every command.
#[inline(never)]
pub fn inspect(flags: Box<Flags>, is_json: bool) -> End {
    let mut setup = Setup::for_a_run(*flags)?;
    let clock = Clock::start();
    let (mut desired, _) = setup.desired(&clock);
    let mut health = setup.board_health(clock);
    health
        .if_it_lasted()
        .apply(object::elements(&mut desired.node, &["status", "conditions"]), clock.now().wall);
    for line in &desired.missing {
        logging::print_error(line);
    }
    print(&if is_json { format!("{:#}", desired.node) } else { describe::node(&desired.node) })
}

/// Checks everything that a run needs and changes nothing. Fails if a run would not work.
#[inline(never)]
pub fn check(flags: Box<Flags>, is_json: bool) -> End {
    let mut setup = Setup::for_a_run(*flags)?;
    let clock = Clock::start();
    let (desired, runtime) = setup.desired(&clock);
    let open = || {
        let path = setup.config.kubeconfig.as_ref().ok_or("--kubeconfig is missing")?;
        let source = IdentitySource::new(&setup.config, path, credentials_folder());
        source.open_read_only(clock.now().wall)
    };
    let report = probe::report(&setup, &desired.missing, runtime.as_ref(), &clock, open);
    print(&if is_json { format!("{:#}", report.json()) } else { report.text() })?;
    report.end("check")
}
