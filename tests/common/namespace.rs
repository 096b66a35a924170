//! Mount namespaces, which need root.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

/// A mount namespace for this thread and the processes that it starts.
pub fn mounts() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| format!("no mount namespace: {e}"))?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(|e| format!("mount: {e}"))
}

/// A mount of this namespace, until it is dropped.
pub struct Mounted(pub PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Makes a folder read-only.
pub fn read_only(folder: &Path) -> Mounted {
    let bind = |flags| mount(Some(folder), folder, None::<&str>, flags, None::<&str>).unwrap();
    bind(MsFlags::MS_BIND);
    bind(MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY);
    Mounted(folder.to_owned())
}
