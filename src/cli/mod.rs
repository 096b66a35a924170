//! The command line: reads arguments and configuration, and calls the room of the command.
//!
//! Invalid input is one line on stderr and ends the start, before a request to the API server. A
//! running agent ends by a signal, with exit code 0.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::agent;
use crate::agent::setup::{runtime_config, with_config_files};
use crate::agent::unit::{UnitAgent, agent_of_unit};
use crate::check;
use crate::config;
use crate::config::command_line::{self, Command, shown};
use crate::config::flags::Flags;
use crate::join;
use crate::os::command::{self, CommandFailure, End, print};
use crate::os::logging;
use crate::os::root::HostRoot;
use crate::runtime;
use crate::serve;

/// Runs `nodelet`. `args` lack the program name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(end) = join::main(&args) {
        return command::exit(end);
    }
    command::exit(run_command(args))
}

fn run_command(args: Vec<OsString>) -> End {
    let (command, flags) = command_line::parse(args.clone()).map_err(CommandFailure::Usage)?;
    match command {
        Command::Help { all } => print(&command_line::usage(all)),
        Command::Version => print(&config::version()),
        Command::Inspect => {
            logging::start(flags.values.verbosity, false);
            let is_json = is_json(&flags, "json")?;
            check::inspect(with_config_files(flags, args)?, is_json)
        }
        Command::Check => {
            command::no_core_file();
            logging::start(flags.values.verbosity, false);
            let is_json = is_json(&flags, "text")?;
            let unit = unit_to_check(&flags)?;
            let of_unit = unit.iter().flat_map(|unit| &unit.flags).map(OsString::from);
            let args: Vec<OsString> = of_unit.chain(args).collect();
            let (_, flags) = command_line::parse(args.clone()).map_err(CommandFailure::Usage)?;
            check::check(with_config_files(flags, args)?, is_json, unit)
        }
        Command::Run => {
            command::no_core_file();
            agent::run(of_a_service(flags, args)?)
        }
        Command::Serve => {
            command::no_core_file();
            serve::run(of_a_service(flags, args)?)
        }
        Command::Runtime => {
            let flags = of_a_service(flags, args)?;
            runtime::run(runtime_config(&flags.values)?)
        }
        Command::Logs => Err(CommandFailure::Other(serve::logs::answer_one())),
    }
}

/// The flags of a command that ends by a signal. Starts its log, which never waits.
fn of_a_service(flags: Box<Flags>, args: Vec<OsString>) -> Result<Box<Flags>, CommandFailure> {
    logging::never_wait();
    logging::start(flags.values.verbosity, command::logs_to_journal());
    with_config_files(flags, args)
}

/// What is checked without a kubeconfig on the command line: the agent of nodelet.service, if it
/// runs or has an identity. The flags of the command line come after the flags of the unit, and
/// override them.
fn unit_to_check(flags: &Flags) -> Result<Option<UnitAgent>, CommandFailure> {
    let values = &flags.values;
    let is_given =
        values.config.kubeconfig.is_some() || values.config.bootstrap_kubeconfig.is_some();
    let is_elsewhere = values.host_root != Path::new("/");
    if is_given || is_elsewhere {
        return Ok(None);
    }
    let agent = agent_of_unit(&HostRoot::default());
    let agent = agent.map_err(|why| CommandFailure::Other(why.to_string()))?;
    if agent.is_some() {
        log::info!("checks nodelet.service and its flags; with --kubeconfig it would check others");
    }
    Ok(agent)
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
