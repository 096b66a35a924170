//! Mount namespaces, which need root.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// A mount namespace for this thread and the processes that it starts.
pub fn mounts() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| format!("no mount namespace: {e}"))?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(|e| format!("mount: {e}"))
}
