//! The configuration of a run, checked against the machine.

use crate::config::Config;
use crate::config::flags::Flags;
use crate::health::config::HealthConfig;
use crate::host::{Host, HostRoot};
use crate::node::facts::Facts;
use crate::node::status;

/// Why a command failed, in one line for stderr.
#[derive(Debug)]
pub enum CommandFailure {
    /// The command line is invalid, or a value in the `--config` file.
    Usage(String),
    /// Every other failure: a file that cannot be read or parsed, a reservation of more than the
    /// board has, a failed check, a closed stdout.
    Other(String),
}

/// The checked configuration, and the facts that its checks need.
pub(crate) struct Setup {
    pub config: Config,
    /// `--node-problem-detection` and `--node-condition`.
    pub health: HealthConfig,
    pub host: Host,
    pub facts: Facts,
}

/// `is_here`: on this machine, and not on one that an image is made for.
pub(crate) fn configured(flags: Flags, is_here: bool) -> Result<Setup, CommandFailure> {
    if is_here && !flags.values.host_root.is_dir() {
        let root = flags.values.host_root.display();
        return Err(CommandFailure::Usage(format!("--host-root: {root} is not a folder")));
    }
    let mut host = Host::new(HostRoot::new(&flags.values.host_root), &flags.values.root_dir);
    host.ready_when_exists.clone_from(&flags.values.ready_when_exists);
    let health =
        HealthConfig::parse(&flags.values.node_problem_detection, &flags.values.node_conditions)
            .map_err(CommandFailure::Usage)?;
    let hostname = || host.hostname().map_err(|unread| unread.to_string());
    let config = Config::new(flags, hostname).map_err(CommandFailure::Usage)?;
    let facts = host.read(&config.node.name);
    if is_here {
        status::check_reservations(&config, &facts).map_err(CommandFailure::Other)?;
    }
    Ok(Setup { config, health, host, facts })
}
