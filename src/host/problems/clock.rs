//! `run/systemd/timesync/synchronized`, whose modification time is that of the last answer of a
//! time server (systemd-timesyncd(8)), and `proc/uptime`.

use std::time::UNIX_EPOCH;

use super::reader::Reader;
use crate::core::instant::Mono;
use crate::core::problems::look::Timesync;
use crate::host::kept_file::KeptFile;
use crate::host::root::HostRoot;
use crate::kube::time::Wall;

const FOLDER: &str = "run/systemd/timesync";
pub(super) const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";

/// `None` if systemd-timesyncd does not run.
pub(super) fn timesync(root: &HostRoot) -> Option<Timesync> {
    let Ok(file) = root.open(SYNCHRONIZED) else {
        return root.open(FOLDER).ok().map(|_| Timesync::Never);
    };
    let modified = file.metadata().and_then(|found| found.modified());
    let since_epoch = modified
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Some(Timesync::At(since_epoch.map(Wall::from_epoch)))
}

/// Seconds since boot.
pub(super) fn uptime(
    file: &mut KeptFile,
    reader: &mut Reader,
    clock: &dyn Fn() -> Mono,
) -> Option<u64> {
    let text = reader.kept(file, clock).ok()?;
    let seconds: u64 = text.split(['.', ' ']).next()?.parse().ok()?;
    Some(seconds)
}
