//! `nodelet serve`: the kubelet's port, in a process of its own.
//!
//! systemd listens on the port and starts this process at the first connection. The process exits
//! after `--idle-exit` without a connection. It answers what a kubelet answers about its Node, to
//! clients that the API server knows and allows. It never renews a Lease and never writes the Node,
//! so a fault here costs no heartbeat.

mod access;
pub mod answers;
mod client_ca;
mod cluster_certificate;
mod config;
mod connection;
pub mod head;
mod journal;
pub mod log_query;
pub mod logs;
mod metrics;
mod port;
mod readings;
mod reviews;
mod summary;
mod tls;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::socket::{Backlog, getsockopt, listen, sockopt};

pub use self::config::ServeConfig;
use self::port::Port;
use crate::config::Config;
use crate::config::flags::{Flags, log_ignored};
use crate::credentials::IdentitySource;
use crate::credentials::kubeconfig::find;
use crate::host::Host;
use crate::os::command::{
    CommandFailure, End, credentials_folder, own_credential, systemd_folders,
};
use crate::os::read::cause;
use crate::os::root::HostRoot;

/// Connections that wait to be accepted, as in `nodelet-serve.socket`.
const BACKLOG: i32 = 16;

/// Answers on the kubelet's port. Takes the agent's flags, and reads no fact before somebody asks.
pub fn run(flags: Box<Flags>) -> End {
    open(flags)?.run();
    Ok(())
}

/// Opens the port. Not inlined, and the port is boxed: otherwise the stack that the start has used
/// would stay below the frame of the loop for the life of the process.
#[inline(never)]
fn open(mut flags: Box<Flags>) -> Result<Box<Port>, CommandFailure> {
    let ignored = std::mem::take(&mut flags.ignored);
    let mut serve = ServeConfig::new(&flags.values).map_err(CommandFailure::Usage)?;
    let credentials = credentials_folder();
    find_files(&mut serve, credentials.as_deref());
    let host = Host::new(HostRoot::new(&flags.values.host_root), &flags.values.root_dir);
    let mut config = Config::new(*flags, || host.hostname().map_err(|unread| unread.to_string()))
        .map_err(CommandFailure::Usage)?;
    // The flags are those of the agent's unit, which has credentials of its own.
    for path in [&mut config.kubeconfig, &mut config.bootstrap_kubeconfig] {
        *path = path.take().map(|path| own_credential(path, credentials.as_deref()));
    }
    let path = config.kubeconfig.as_ref().ok_or_else(|| {
        CommandFailure::Usage(
            "--kubeconfig is missing: the API server says who may ask; give the flags of the agent"
                .to_owned(),
        )
    })?;
    let source = IdentitySource::new(&config, path, credentials);
    log_ignored(ignored);
    // The unit has a folder of its own, because this process may not write to the agent's folder.
    // It is named after the agent's.
    let own = systemd_folders("STATE_DIRECTORY").pop();
    let cert_dir = own.as_ref().unwrap_or(&config.cert_dir);
    let port = Port::open(&config, &serve, &source, host, cert_dir);
    port.map(Box::new).map_err(|why| CommandFailure::Other(why.to_string()))
}

/// Looks for the files of the port in the working directory, then in `credentials`, the folder of
/// systemd's credentials.
fn find_files(serve: &mut ServeConfig, credentials: Option<&Path>) {
    let folders: Vec<&Path> = [Path::new("")].into_iter().chain(credentials).collect();
    let pair = serve.tls_files.iter_mut().flat_map(|(chain, key)| [chain, key]);
    for path in pair.chain(&mut serve.client_ca_file) {
        *path = find(path, &folders);
    }
}

fn is_listening() -> bool {
    getsockopt(&io::stdin().as_fd(), sockopt::AcceptConn).unwrap_or_default()
}

/// A new socket at `--listen`, or the socket that systemd passed as stdin.
fn listener(serve: &ServeConfig) -> Result<(TcpListener, SocketAddr), String> {
    let (opened, what) = match (serve.listen, is_listening()) {
        (Some(address), false) => (bound(address), format!("--listen {address}")),
        (None, true) => {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            (stdin.map(TcpListener::from), "stdin, which must be a TCP socket".to_owned())
        }
        (Some(_), true) => {
            let why = "--listen is set, and stdin is a listening socket, too: remove --listen, or \
                       disable nodelet-serve.socket";
            return Err(why.to_owned());
        }
        (None, false) => {
            let why = "stdin is no listening socket: enable nodelet-serve.socket, which starts \
                       this, or set --listen";
            return Err(why.to_owned());
        }
    };
    opened
        .and_then(|listener| {
            let address = listener.local_addr()?;
            listener.set_nonblocking(true)?;
            Ok((listener, address))
        })
        .map_err(|e| format!("{what}: {}", cause(&e)))
}

fn bound(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // `bind` has listened with std's backlog of 128; this call replaces it.
    listen(&listener, Backlog::new(BACKLOG)?)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
