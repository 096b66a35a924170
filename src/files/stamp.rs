//! The metadata of a file that tell whether it was written.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Metadata that change when a file is written, or the file or a link to it is replaced. A write
/// within one tick of the kernel's clock (10 ms or less) after another one may leave them equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stamp {
    /// Device, inode, size.
    pub(crate) file: [u64; 3],
    /// Seconds and nanoseconds of the last changes of the content and of the inode.
    pub(crate) times: [i64; 4],
}

impl Stamp {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self {
            file: [file.dev(), file.ino(), file.size()],
            times: [
                file.mtime(),
                file.mtime_nsec(),
                file.ctime(),
                file.ctime_nsec(),
            ],
        }
    }
}
