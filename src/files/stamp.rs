//! The metadata of a file that tell whether it was written.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Metadata that change when a file is written, or the file or a link to it is replaced. A write soon
/// after another one may leave them equal: within the same tick of the kernel's clock (10 ms or less),
/// or of the file system's times (FAT: 2 s).
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::useless_conversion)]
mod tests {
    use std::fs;

    use nix::sys::stat::stat;

    use super::*;
    use crate::files::tree::Tree;

    #[test]
    fn a_stamp_has_the_seven_values_of_stat() {
        let tree = Tree::empty("stamp");
        tree.write("file", b"four");
        let path = tree.path().join("file");
        let of = || Stamp::of(&fs::metadata(&path).unwrap());
        let stat = stat(&path).unwrap();
        assert_eq!(of().file, [stat.st_dev, stat.st_ino, 4].map(u64::from));
        let times = [
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        ];
        let times = times.map(|(seconds, nanos)| [i64::from(seconds), i64::from(nanos)]);
        assert_eq!(of().times[..2], times[0]);
        assert_eq!(of().times[2..], times[1]);
        // Only the time of the inode can be told from these two.
        let (before, link) = (of(), tree.path().join("link"));
        std::thread::sleep(std::time::Duration::from_millis(30));
        fs::hard_link(&path, link).unwrap();
        assert_eq!(of().file, before.file);
        assert_eq!(of().times[..2], before.times[..2]);
        assert_ne!(of(), before);
    }
}
