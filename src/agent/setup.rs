//! The configuration of a run, checked against the machine.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;

use crate::client::dns::NodeName;
use crate::config::command_line;
use crate::config::file::{self, Document};
use crate::config::flags::{Flags, Values, log_ignored};
use crate::config::{Config, NodeConfig};
use crate::health::config::HealthConfig;
use crate::health::monitor::Health;
use crate::host::Host;
use crate::kube::facts::Facts;
use crate::kube::instant::Mono;
use crate::kube::object;
use crate::node::eviction::Pressures;
use crate::node::status::{self, Desired};
use crate::os::clock::{self, Clock};
use crate::os::command::CommandFailure;
use crate::os::guard::read;
use crate::os::read::LARGE;
use crate::os::root::HostRoot;
use crate::os::walk::files_below;
use crate::runtime::config::RuntimeConfig;

/// The flags, with the values of the `--config` file and its drop-ins for flags that are not given.
pub(crate) fn with_config_files(
    flags: Box<Flags>,
    args: Vec<OsString>,
) -> Result<Box<Flags>, CommandFailure> {
    let Values { config_file, config_dir, .. } = &flags.values;
    let mut left = LARGE;
    let base = config_file.as_deref().map(|path| {
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(document("--config", path, &mut left)?.with_paths_below(folder))
    });
    let base = base.transpose()?;
    let mut drop_ins = Vec::new();
    if let Some(folder) = config_dir {
        let in_folder =
            |why| CommandFailure::Other(format!("--config-dir {}: {why}", folder.display()));
        for path in files_below(folder, ".conf").map_err(in_folder)? {
            drop_ins.push(document("--config-dir", &path, &mut left)?);
        }
    }
    if base.is_none() && drop_ins.is_empty() {
        return Ok(flags);
    }
    let mut over = Box::<Flags>::default();
    file::apply(base.as_ref(), &drop_ins, &mut over).map_err(CommandFailure::Usage)?;
    command_line::apply(args, &mut over).map_err(CommandFailure::Usage)?;
    Ok(over)
}

/// The document of a file. All files together have at most `left` bytes.
fn document(flag: &str, path: &Path, left: &mut u64) -> Result<Document, CommandFailure> {
    let name = format!("{flag} {}", path.display());
    let fault = |why: &dyn Display| CommandFailure::Other(format!("{name}: {why}"));
    let bytes = read(path).map_err(|why| fault(&why))?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let too_large = || fault(&format_args!("with the files before it larger than {LARGE} bytes"));
    *left = left.checked_sub(length).ok_or_else(too_large)?;
    Document::parse(name, &bytes).map_err(CommandFailure::Other)
}

/// The container runtime that the flags name; `None` without an endpoint.
pub(crate) fn runtime_config(values: &Values) -> Result<Option<RuntimeConfig>, CommandFailure> {
    let Values { runtime_endpoint, image_endpoint, max_images, runtime_facts, .. } = values;
    RuntimeConfig::parse(runtime_endpoint, image_endpoint, *max_images, runtime_facts)
        .map_err(CommandFailure::Usage)
}

/// The checked configuration, and the facts that its checks need.
pub(crate) struct Setup {
    pub config: Config,
    /// `--node-problem-detection` and `--node-condition`.
    pub health: HealthConfig,
    /// `None` without `--container-runtime-endpoint`.
    pub runtime: Option<RuntimeConfig>,
    pub host: Host,
    pub facts: Facts,
}

impl Setup {
    /// `is_here`: the agent will run on this machine, which the configuration is checked against.
    /// False if an image is made for another machine.
    pub(crate) fn new(flags: Flags, is_here: bool) -> Result<Self, CommandFailure> {
        let values = &flags.values;
        if is_here && !values.host_root.is_dir() {
            let root = values.host_root.display();
            return Err(CommandFailure::Usage(format!("--host-root: {root} is not a folder")));
        }
        let mut host = Host::new(HostRoot::new(&values.host_root), &values.root_dir);
        host.ready_when_exists.clone_from(&values.ready_when_exists);
        let health = HealthConfig::parse(&values.node_problem_detection, &values.node_conditions)
            .map_err(CommandFailure::Usage)?;
        let runtime = runtime_config(values)?;
        let hostname = || host.hostname().map_err(|unread| unread.to_string());
        let config = Config::new(flags, hostname).map_err(CommandFailure::Usage)?;
        let facts = host.read(&config.node.name);
        if is_here {
            status::check_reservations(&config, &facts).map_err(CommandFailure::Other)?;
        }
        Ok(Self { config, health, runtime, host, facts })
    }

    /// [`Self::new`] for a run. Flags and fields without effect are logged last, because an invalid
    /// configuration must be one line.
    pub(crate) fn for_a_run(mut flags: Flags) -> Result<Self, CommandFailure> {
        let (ignored, unknown) = (std::mem::take(&mut flags.ignored), flags.unknown.join(", "));
        let setup = Self::new(flags, true)?;
        log_ignored(ignored);
        if !unknown.is_empty() {
            log::warn!("configuration: unknown fields ignored: {unknown}");
        }
        Ok(setup)
    }

    /// The address that the Node would have; `None` if that is not known yet.
    pub(crate) fn address(&self) -> Option<String> {
        let Desired { node, .. } =
            status::initial(&self.config, &self.facts, Pressures::default(), clock::wall());
        object::address(&node, "InternalIP").map(str::to_owned)
    }

    /// The health of the board; reads nothing yet.
    pub(crate) fn board_health(&self, clock: Clock) -> Health {
        let Host { root, node_root_dir, .. } = &self.host;
        Health::new(root, node_root_dir, &self.health, clock::built(), move || clock.now())
    }
}

/// Asks DNS for the addresses of the node name, if the Node's address depends on them. Below
/// another root than `/` nothing is asked, because the name servers would be those of this machine.
pub(crate) fn ask_name_servers(
    root: &HostRoot,
    facts: &mut Facts,
    name: &mut NodeName,
    node: &NodeConfig,
    may_wait: bool,
    clock: impl Fn() -> Mono,
) {
    if !root.is_real() {
        facts.network.dns = Ok(Vec::new());
    } else if status::needs_lookup(node, &facts.network) {
        facts.network.dns = name.addresses(may_wait, clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    /// A supervisor of k3s is told it before the Node exists.
    #[test]
    fn the_address_is_the_first_internal_one_of_the_node() {
        let flags = Flags::of(&["--hostname-override=pi"]);
        let setup = Setup { facts: Facts::example(), ..Setup::new(flags, false).unwrap() };
        assert_eq!(setup.address().as_deref(), Some("192.0.2.10"));
    }

    /// The clock is read where name servers are asked.
    #[test]
    fn below_another_root_no_name_server_is_asked() {
        let tree = Tree::empty("name-servers");
        let node = Setup::new(Flags::of(&["--hostname-override=nodelet.invalid"]), false);
        let node = node.unwrap().config.node;
        for (root, asks) in [(HostRoot::default(), true), (HostRoot::new(tree.path()), false)] {
            let mut facts = Host::new(root.clone(), "/").read("nodelet.invalid");
            facts.network.hosts = Ok(Vec::new());
            let mut name = NodeName::new("nodelet.invalid", None);
            let asked = std::cell::Cell::new(false);
            let clock = || {
                asked.set(true);
                Mono::START
            };
            ask_name_servers(&root, &mut facts, &mut name, &node, false, clock);
            assert_eq!(asked.get(), asks);
        }
    }
}
