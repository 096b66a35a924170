//! A kernel file that is read again and again: its descriptor is kept, because open and close cost
//! more than many reads.

use std::fs::File;
use std::io;

use super::read::{Enough, SMALL, from_start, has_changed, is_end};
use super::root::{HostRoot, text, unread};
use crate::kube::facts::Read;

/// A file of /proc, /sys or a cgroup. No other file system: a descriptor pins its mount, which then
/// cannot be unmounted. In a container it can be a file of lxcfs, which is opened again after an
/// error.
#[derive(Debug)]
pub(crate) struct RereadFile {
    pub(crate) path: String,
    file: Option<File>,
}

impl RereadFile {
    /// The file at `path` below the root; opens nothing.
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), file: None }
    }

    /// The whole file, read anew from its start. Below another root than `/` the descriptor is not
    /// kept: what is mounted there can be unmounted.
    pub(crate) fn read(&mut self, root: &HostRoot) -> Read<Vec<u8>> {
        let was_open = self.file.is_some();
        let mut read = self.read_once(root);
        if was_open && read.is_err() {
            // The descriptor failed, for example because its cgroup was removed and made again.
            read = self.read_once(root);
        }
        if !root.is_real() {
            self.file = None;
        }
        read.map_err(|error| unread(&self.path, &error))
    }

    /// [`RereadFile::read`] as text.
    pub(crate) fn text(&mut self, root: &HostRoot) -> Read<String> {
        let bytes = self.read(root)?;
        text(&self.path, bytes)
    }

    fn read_once(&mut self, root: &HostRoot) -> io::Result<Vec<u8>> {
        self.read_until(root, SMALL, &mut is_end(SMALL))
    }

    /// Reads until `is_enough` returns true for all bytes that are read so far; more than `limit`
    /// bytes are an error. The descriptor is kept, also below another root than `/`. After an error
    /// the next read opens the file again: its device may have been removed and come back.
    pub(crate) fn read_until(
        &mut self,
        root: &HostRoot,
        limit: u64,
        is_enough: Enough<'_>,
    ) -> io::Result<Vec<u8>> {
        let file = match self.file.take() {
            Some(file) => {
                root.may_read().inspect_err(|_| self.file = None)?;
                file
            }
            None => root.open(&self.path)?,
        };
        let bytes = from_start(&file, limit, is_enough)?;
        self.file = Some(file);
        Ok(bytes)
    }

    /// Whether the kernel reported a change since the last call (mountinfo) or the last read
    /// (sysfs); false if the last read failed.
    pub(crate) fn has_changed(&self) -> bool {
        self.file.as_ref().is_some_and(has_changed)
    }

    /// The open file; `None` if the last read failed.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn each_read_is_anew_and_the_descriptor_is_kept() {
        let root = HostRoot::default();
        let mut file = RereadFile::new("proc/uptime");
        let first = file.read(&root).unwrap();
        assert!(file.file.is_some());
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_ne!(file.read(&root).unwrap(), first);
        assert!(file.file.is_some());
    }

    #[test]
    fn a_descriptor_that_fails_is_replaced() {
        let root = HostRoot::default();
        let mut file = RereadFile::new("proc/loadavg");
        // A read of a folder fails, as that of a file whose cgroup was removed.
        file.file = Some(File::open("/proc").unwrap());
        assert!(file.read_once(&root).is_err());
        assert!(file.read_once(&root).is_ok());
        file.file = Some(File::open("/proc").unwrap());
        assert!(file.read(&root).is_ok());
        file.path = "proc/no-such".to_owned();
        assert!(file.read(&root).is_ok(), "the descriptor is still good");
        file.file = Some(File::open("/proc").unwrap());
        assert!(file.read(&root).unwrap_err().is_absent());
        assert!(file.file.is_none());
    }

    #[test]
    fn below_another_root_a_descriptor_is_kept_on_request_alone() {
        let tree = Tree::empty("reread");
        let root = HostRoot::new(tree.path());
        let mut file = RereadFile::new("file");
        assert!(file.read(&root).unwrap_err().is_absent());
        for content in [&b"one"[..], b"three", b""] {
            std::fs::remove_file(tree.path().join("file")).ok();
            tree.write("file", content);
            assert_eq!(file.read(&root).as_deref(), Ok(content));
            assert!(file.file.is_none());
        }
        assert_eq!(file.read_once(&root).unwrap(), b"");
        assert!(file.file().is_some() && !file.has_changed());
    }
}
