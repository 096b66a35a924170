//! A mounted file system: what `filesystems.rs` finds, and `corruption.rs` judges in the same look.

use crate::kube::facts::Presence;

/// One mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filesystem {
    /// The device number, `179:2`.
    pub(super) number: String,
    /// The kernel's name of the device, `mmcblk0p2`.
    pub(super) device: String,
    /// `ext4`, `vfat`.
    pub(super) fs_type: String,
    /// Its first mount point.
    pub(super) point: String,
    /// The superblock has the option `emergency_ro` or `shutdown`, or its device is gone since the
    /// last look.
    pub(super) is_stopped: bool,
    /// The kernel has no device of this number, though it is the number of a device.
    pub(super) lacks_device: bool,
    /// The superblock is read-only.
    pub(super) is_read_only: bool,
    /// `etc/fstab` mounts one of its points read-only, and none of them writable.
    pub(super) is_read_only_in_fstab: bool,
    /// ext4's record of errors; `Absent` for other types, for the driver of ext2, and for a kernel
    /// without it.
    pub(super) ext4: Presence<Ext4Errors>,
    /// An f2fs has stopped all writes; `Absent` for other types, and before Linux 6.1.
    pub(super) f2fs: Presence<bool>,
}

/// `sys/fs/ext4/DEV`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ext4Errors {
    /// `errors_count`. It is kept on disk until e2fsck clears it.
    pub(super) count: u64,
    /// `last_error_time`, seconds since 1970; 0 is never. Only read if there are errors.
    pub(super) last: u64,
    /// The last error stopped all writes: `errors=remount-ro`, or its journal was aborted. Only
    /// read if there are errors.
    pub(super) stops_on_error: bool,
    /// Seconds since 1970 at which the kernel booted. Only read if there are errors.
    pub(super) booted: Option<u64>,
}
