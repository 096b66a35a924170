//! The start of the agent, from its flags to the loop.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use super::Agent;
use super::read_cache::ReadCache;
use crate::check::board::{ASKED_ONCE, ASKED_ONCE_REMEDY};
use crate::check::setup::Setup;
use crate::client::api_config::ApiConfig;
use crate::config::flags::Flags;
use crate::credentials::IdentitySource;
use crate::kube::delay::Jitter;
use crate::os::clock;
use crate::os::command::{self, CommandFailure, End, env};
use crate::os::notify::Notify;
use crate::os::wakeup::Wakeup;
use crate::runtime::file::RuntimeFile;

/// Runs the agent until a signal asks to stop.
pub fn run(flags: Box<Flags>) -> End {
    open(flags)?.run();
    Ok(())
}

/// An agent that has sent no request yet. Not inlined, and boxed: what a start takes of the stack
/// would lie below the loop for the life of the process (28 KiB, measured).
#[inline(never)]
fn open(flags: Box<Flags>) -> Result<Box<Agent>, CommandFailure> {
    // Before the facts are read, so that no later change of the network is missed.
    let wakeup = Wakeup::new().map_err(|e| CommandFailure::Other(format!("signalfd: {e}")))?;
    let Setup { mut config, health, runtime, host, facts: first } = Setup::for_a_run(*flags)?;
    if config.state_file.is_none() {
        let folder = command::systemd_folder("RUNTIME_DIRECTORY");
        config.state_file = folder.map(|folder| folder.join("state"));
    }
    let path = config.kubeconfig.as_ref().ok_or_else(|| {
        let line = "--kubeconfig is missing: nodelet join gets one and starts the unit; nodelet \
                    inspect prints the Node that would be registered";
        CommandFailure::Usage(line.to_owned())
    })?;
    let seed = RandomState::new().build_hasher().finish();
    let source = IdentitySource::new(&config, path, command::credentials_folder());
    let opened = source.open(clock::wall(), Jitter::new(seed));
    let credentials = opened.map_err(|why| CommandFailure::Other(why.to_string()))?;
    let access = &credentials.current.api.config;
    warn_if_insecure(path, access);
    if first.node_fs.as_ref().is_ok_and(|fs| fs.asked_once) {
        log::warn!("--root-dir: {ASKED_ONCE}; {ASKED_ONCE_REMEDY}");
    }
    if let (Some(name), None) = (command::proxy_variable(), &access.proxy) {
        log::info!("{name} is not used; set proxy-url in the kubeconfig");
    }
    let notify = Notify::new(env("NOTIFY_SOCKET").as_deref(), env("WATCHDOG_USEC").as_deref());
    let mut facts = ReadCache::new(host, &config.node.name, first);
    facts.runtime = runtime.map(|runtime| RuntimeFile::new(runtime.facts_file));
    Ok(Box::new(Agent::new(config, &health, facts, credentials, wakeup, notify, seed)))
}

fn warn_if_insecure(path: &Path, access: &ApiConfig) {
    if access.insecure {
        log::warn!(
            "{}: insecure-skip-tls-verify: any server at {} is trusted and gets our credentials; \
             give the cluster's CA in certificate-authority",
            path.display(),
            access.endpoint
        );
    }
}
