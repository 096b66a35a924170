//! The command line: the grammar of flags, which is the kubelet's, and the help, from one table.
//!
//! [`read_words`] reads each command line: of a run, of `nodelet join` and of `nodelet reset`. As
//! in the kubelet, `_` in a name equals `-`, and `--flag=value` equals `--flag value`. For a run,
//! only the form of a value is checked here; `Config::new` validates the value.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::flags::{Flags, SETTINGS, ignored_flag};
use super::setting::{SHORT, Setting, find, help, value};

/// The command to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Register the Node and keep its status and Lease current.
    Run,
    /// Print the Node that `Run` would register, and exit.
    Inspect,
    /// Check the prerequisites of `Run`, and exit.
    Check,
    /// Ask the container runtime, and write what it says to a file, until the process is ended.
    Runtime,
    /// Answer on the kubelet's port, until nobody asks.
    Serve,
    /// Answer one query of the journal on stdin and stdout. No flag has a meaning.
    Logs,
    /// `--version`.
    Version,
    /// `--help`, or `--help --all` for every flag.
    Help {
        /// Every flag.
        all: bool,
    },
}

/// The text of `--help`, with every flag or with those that boards need most often.
pub fn usage(all: bool) -> String {
    let last = if all { REST } else { MORE };
    format!("{USAGE}{}  --version, --help\n\n{last}", help(SETTINGS, all))
}

const USAGE: &str = "\
nodelet registers this machine as a Node of a Kubernetes cluster. It runs no pods.

Usage:
  nodelet --kubeconfig FILE [flags]   register the Node, and keep its status and Lease current
  nodelet inspect [flags]             print the Node that would be registered
  nodelet check [flags]               check what a run needs; change nothing
  nodelet join ENDPOINT --token T     get a certificate, start, wait for Ready; see join --help
  nodelet reset                       remove what nodelet join wrote
  nodelet runtime [flags]             ask the container runtime, for the agent
  nodelet serve [flags]               answer on the kubelet's port, with metrics and health
  nodelet logs                        answer one query of the journal, for nodelet serve

Flags (those of the kubelet, except those marked *):
";

/// The last line of the help with the basic flags.
const MORE: &str = "nodelet --help --all and the manual page nodelet(8) have every flag.";

/// The last line of the help with every flag.
const REST: &str =
    "The other flags of the kubelet are ignored, whatever their value; the log names them.";

/// Reads a command line. `word` takes a word that is no flag; `flag` takes the name of a flag, and
/// its value from the parser. Returns `--help` or `--version`, which end the line.
pub fn read_words(
    args: Vec<OsString>,
    mut word: impl FnMut(OsString) -> Result<(), String>,
    mut flag: impl FnMut(&str, &mut Parser) -> Result<(), String>,
) -> Result<Option<Command>, String> {
    let mut parser = Parser::from_args(args);
    // lexopt's own error would quote a value without a flag, and that value may be a token.
    while let Some(arg) = parser.next().map_err(|_| "a value without a flag; see --help")? {
        let name = match arg {
            Arg::Long(name) => name.replace('_', "-"),
            Arg::Short(letter) => match SHORT.iter().find(|(short, _)| *short == letter) {
                Some((_, flag)) => (*flag).to_owned(),
                None => return Err(format!("unknown shorthand flag: -{letter}; see --help")),
            },
            Arg::Value(text) => {
                word(text)?;
                continue;
            }
        };
        match name.as_str() {
            "help" => {
                let all = parser.try_raw_args().is_some_and(|mut args| args.any(|w| w == "--all"));
                return Ok(Some(Command::Help { all }));
            }
            "version" => return Ok(Some(Command::Version)),
            _ => flag(&name, &mut parser)?,
        }
    }
    Ok(None)
}

/// Parses the command line of a run, without its program name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<(Command, Box<Flags>), String> {
    let mut flags = Box::<Flags>::default();
    let command = apply(args.into_iter().collect(), &mut flags)?;
    let prints_nothing = matches!(command, Command::Run | Command::Runtime | Command::Serve);
    if prints_nothing && flags.values.output.is_some() {
        return Err("--output is for nodelet inspect and nodelet check".to_owned());
    }
    Ok((command, flags))
}

/// Applies the command line of a run to `flags`: the defaults, or the values of a configuration
/// file. Returns its command.
pub fn apply(args: Vec<OsString>, flags: &mut Flags) -> Result<Command, String> {
    let (mut command, mut given) = (None, Vec::new());
    let word = |word: OsString| {
        command = match (word.to_str(), command) {
            (Some("inspect"), None) => Some(Command::Inspect),
            (Some("check"), None) => Some(Command::Check),
            (Some("runtime"), None) => Some(Command::Runtime),
            (Some("serve"), None) => Some(Command::Serve),
            (Some("logs"), None) => Some(Command::Logs),
            (word, _) => {
                let word = shown(word.unwrap_or_default());
                return Err(format!("unknown command {word:?}; see --help"));
            }
        };
        Ok(())
    };
    let flag = |name: &str, parser: &mut Parser| {
        if let Some((name, takes_value)) = ignored_flag(name) {
            flags.ignored.push(format!("--{name}"));
            return value(name, takes_value, parser).map(drop);
        }
        let setting = find(SETTINGS, name).ok_or_else(|| unknown_flag(name, ""))?;
        let is_first = !given.contains(&setting.flag);
        given.push(setting.flag);
        let fault = setting.read(&mut flags.values, is_first, parser)?;
        flags.note(setting.flag, fault);
        Ok(())
    };
    let end = read_words(args, word, flag)?;
    Ok(end.or(command).unwrap_or(Command::Run))
}

/// The error of the unknown flag `name`. [`shown`] hides a name that may be a token. `command`
/// stands before `--help`, so it is empty or ends with a blank: with `join `, the error is
/// `unknown flag: --foo; see join --help`.
pub fn unknown_flag(name: &str, command: &str) -> String {
    format!("unknown flag: --{}; see {command}--help", shown(name))
}

/// An unknown word, for an error. A word with a dot or a colon is not shown, because it may be a
/// token at the wrong place.
pub fn shown(word: &str) -> &str {
    if word.contains(['.', ':']) { "…" } else { word }
}

/// Whether the flag `name` of a run needs a value; `None` if there is no such flag.
pub fn takes_value(name: &str) -> Option<bool> {
    let ignored = ignored_flag(name).map(|(_, takes_value)| takes_value);
    ignored.or_else(|| find(SETTINGS, name).map(Setting::takes_value))
}

#[cfg(test)]
impl Flags {
    /// The flags of a command line of a run.
    pub(crate) fn of(words: &[&str]) -> Self {
        match parse(words.iter().map(Into::into)) {
            Ok((Command::Run, flags)) => *flags,
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
