//! A kernel file that is read for each status: its descriptor is kept, because open and close cost
//! more than many reads.

use std::fs::File;

use crate::core::facts::Read;
use crate::files::read::{SMALL, whole_from_start};

use super::root::{HostRoot, unread};

/// A file of /proc or of a cgroup. No other file system: a descriptor pins its mount, which then
/// cannot be unmounted. Below another root than `/` nothing is kept, for the same reason.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: &'static str,
    file: Option<File>,
}

impl KeptFile {
    /// The file at `path` below the root; opens nothing.
    pub(super) fn new(path: &'static str) -> Self {
        Self { path, file: None }
    }

    /// The whole file, read anew from its start. After an error it is opened again once: its
    /// cgroup may have been removed and made again.
    pub(super) fn read(&mut self, root: &HostRoot) -> Read<Vec<u8>> {
        if let Some(file) = self.file.take()
            && let Ok(bytes) = whole_from_start(&file, SMALL)
        {
            self.file = Some(file);
            return Ok(bytes);
        }
        let opened = root.open(self.path).and_then(|file| {
            let bytes = whole_from_start(&file, SMALL)?;
            Ok((file, bytes))
        });
        let (file, bytes) = opened.map_err(|error| unread(self.path, &error))?;
        self.file = root.is_real().then_some(file);
        Ok(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::files::tree::Tree;

    #[test]
    fn each_read_is_anew_and_the_descriptor_is_kept() {
        let root = HostRoot::default();
        let mut file = KeptFile::new("proc/uptime");
        let first = file.read(&root).unwrap();
        assert!(file.file.is_some());
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_ne!(file.read(&root).unwrap(), first);
        assert!(file.file.is_some());
    }

    #[test]
    fn a_descriptor_that_fails_is_replaced() {
        let root = HostRoot::default();
        let mut file = KeptFile::new("proc/loadavg");
        // A read of a folder fails, as that of a file whose cgroup was removed.
        file.file = Some(File::open("/proc").unwrap());
        assert!(file.read(&root).is_ok());
        assert!(file.read(&root).is_ok());
        file.path = "proc/no-such";
        assert!(file.read(&root).is_ok(), "the descriptor is still good");
        file.file = Some(File::open("/proc").unwrap());
        assert!(file.read(&root).unwrap_err().absent);
        assert!(file.file.is_none());
    }

    #[test]
    fn a_file_of_more_than_one_page_is_whole_each_time() {
        let tree = Tree::empty("kept-large");
        let content: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        tree.write("large", &content);
        let file = File::open(tree.path().join("large")).unwrap();
        for _ in 0..2 {
            assert_eq!(whole_from_start(&file, SMALL).unwrap(), content);
        }
        assert!(whole_from_start(&file, 39_999).is_err());
    }

    #[test]
    fn below_another_root_no_descriptor_is_kept() {
        let tree = Tree::empty("kept");
        let root = HostRoot::new(tree.path());
        let mut file = KeptFile::new("file");
        assert!(file.read(&root).unwrap_err().absent);
        for content in [&b"one"[..], b"three", b""] {
            std::fs::remove_file(tree.path().join("file")).ok();
            tree.write("file", content);
            assert_eq!(file.read(&root).as_deref(), Ok(content));
            assert!(file.file.is_none());
        }
    }
}
