//! From flags and the `--config` file to a checked configuration.

use std::ffi::OsString;
use std::path::Path;

use super::{EXIT_FAILURE, EXIT_USAGE, Failure};
use crate::config::command_line::{self, Command};
use crate::config::file::Notes;
use crate::config::flags::Flags;
use crate::config::{self, Config};
use crate::core::facts::Facts;
use crate::core::status;
use crate::files::read::read;
use crate::files::yaml;
use crate::host::{Host, HostRoot, Kept};

/// The first facts of a machine, and what later reads keep of this one.
pub(super) type First = (Kept, Facts);

/// The checked configuration and the facts that its checks need. Flags and fields without effect are
/// logged last, because an invalid configuration must be one line.
pub(super) fn configure(
    flags: Flags,
    args: Vec<OsString>,
) -> Result<(Config, Host, First), Failure> {
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
    host.thresholds = Some(config.thresholds.clone());
    let first = host.read(&config.node.name);
    status::check_reservations(&config, &first.1).map_err(|line| (EXIT_FAILURE, line))?;
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
    Ok((config, host, first))
}

/// The flags, with the values of the `--config` file for flags that are not given.
pub(super) fn over_file(flags: Flags, args: Vec<OsString>) -> Result<(Flags, Notes), Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the thresholds the memory in use is read for each status.
    #[test]
    fn the_host_has_the_thresholds_of_the_configuration() {
        let flags = Flags {
            eviction_hard: Some([("memory.available".to_owned(), "7Mi".to_owned())].into()),
            ..Flags::default()
        };
        let (config, host, _) = configure(flags, Vec::new()).unwrap();
        assert_eq!(config.thresholds.len(), 1);
        assert_eq!(host.thresholds, Some(config.thresholds));
    }
}
