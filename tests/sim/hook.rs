//! What production code asks first, in a test: each function returns `None` outside of a simulated
//! process, and then the real operating system is asked.
//!
//! A process of the simulation is a thread (`process`); all that it does to the world goes through
//! here, and each call is a moment at which the process may be killed.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use super::process::{Me, me};
use crate::kube::facts::{FsStats, Interface, Read};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::os::wakeup::Woken;
use crate::os::write::Op;

/// Whether this thread is a process of the simulation.
pub(crate) fn is_on() -> bool {
    me(|_| ()).is_some()
}

/// The same, without the world: not a moment at which anything happens.
pub(super) fn is_process() -> bool {
    super::process::is_process()
}

/// `os::clock::wall`.
pub(crate) fn wall() -> Option<Wall> {
    me(|me| me.world().board_wall())
}

/// `os::clock::since_boot`.
pub(crate) fn since_boot() -> Option<Duration> {
    me(|me| {
        let world = me.world();
        world.now.saturating_sub(world.board.booted)
    })
}

/// `os::clock::built`.
pub(crate) fn built() -> Option<Wall> {
    me(|_| super::world::built())
}

/// `os::clock::pause`.
pub(crate) fn pause(time: Duration) -> Option<()> {
    me(|me| me.pass(time))
}

/// `os::command::end_after`.
pub(crate) fn end_after(seconds: u32) -> Option<()> {
    me(|me| me.world().ends_in(me.pid, Duration::from_secs(u64::from(seconds))))
}

/// `os::random`.
pub(crate) fn random() -> Option<u64> {
    me(|me| me.world().random())
}

/// `os::host_name`.
pub(crate) fn host_name() -> Option<OsString> {
    me(|me| me.world().board.host_name.clone().into())
}

/// `os::command::env`.
pub(crate) fn env(name: &str) -> Option<Option<OsString>> {
    me(|me| me.world().process(me.pid).environment.get(name).map(OsString::from))
}

/// `os::command::print`, and `os::logging::print_error`.
pub(crate) fn print(text: &str) -> Option<()> {
    me(|me| me.world().printed(me.pid, text))
}

/// A log line of a process.
pub(crate) fn log(record: &log::Record<'_>) -> Option<()> {
    me(|me| me.world().logged(me.pid, record))
}

/// `Wakeup::wait`.
pub(crate) fn wait(
    timeout: Duration,
    for_network: bool,
    voltage: &mut Option<OwnedFd>,
) -> Option<Woken> {
    me(|me| me.wait(timeout, for_network, voltage))
}

/// `memory_trigger` of `os::wakeup`: its file need not exist, the world reports pressure itself.
pub(crate) fn memory_trigger() -> Option<io::Result<File>> {
    me(|_| Err(io::ErrorKind::NotFound.into()))
}

/// Before a file is read: it may be slow, or fail.
pub(crate) fn read(file: &File) -> io::Result<()> {
    me(|me| me.read(file)).unwrap_or(Ok(()))
}

/// Before a folder is listed: it may be slow, or fail.
pub(crate) fn list(folder: &Path) -> io::Result<()> {
    me(|me| me.list(folder)).unwrap_or(Ok(()))
}

/// `os::read::has_changed`.
pub(crate) fn has_changed(file: &File) -> Option<bool> {
    me(|me| me.has_changed(file))
}

/// `Access::measure` of `host::disk`.
pub(crate) fn statvfs(folder: &Path) -> Option<Read<Read<Option<FsStats>>>> {
    me(|me| me.world().statvfs(folder))
}

/// `host::network::interfaces`.
pub(crate) fn interfaces() -> Option<Read<Vec<Interface>>> {
    me(|me| me.world().interfaces())
}

/// Before an operation of a file change: the disk may be full, slow or broken.
pub(crate) fn file_change(op: &Op) -> Result<(), Fault> {
    me(|me| me.file_change(op)).unwrap_or(Ok(()))
}

/// An operation of a file change was carried out.
pub(crate) fn file_changed(op: &Op) {
    me(|me| me.world().file_changed(op));
}

/// `open` of `client::dns::exchange`: no socket is needed.
pub(crate) fn udp_socket() -> Option<io::Error> {
    me(|_| io::Error::other("simulated"))
}

/// A packet to the name server of this index.
type Send = Box<dyn FnMut(usize, &[u8]) -> Result<(), String>>;

/// `Exchange::send`: a function that takes the packets.
pub(crate) fn dns_send(servers: &[SocketAddr]) -> Option<Send> {
    me(|me| {
        let (me, servers): (Me, Vec<SocketAddr>) = (me.clone(), servers.to_vec());
        let send =
            move |index: usize, packet: &[u8]| me.world().dns_sent(me.pid, &servers, index, packet);
        Box::new(send) as Send
    })
}

/// From the name server of this index: a packet, or why there is none.
pub(crate) type Received = (usize, Result<Vec<u8>, String>);

/// `Exchange::receive`: the packets that have arrived, or why a server cannot be reached.
pub(crate) fn dns_receive(servers: &[SocketAddr]) -> Option<Vec<Received>> {
    me(|me| me.world().dns_received(me.pid, servers))
}

/// `Exchange::wait`.
pub(crate) fn dns_wait(at_most: Duration) -> Option<()> {
    me(|me| me.dns_wait(at_most))
}
