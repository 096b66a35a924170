//! The temporary folder of the library's unit tests.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::os::mounts::pretend_mount;

/// A folder of its own for each call, removed at the end of the test.
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// A folder with an empty `etc`. `name` identifies the test.
    pub(crate) fn new(name: &str) -> Tree {
        let tree = Self::empty(name);
        fs::create_dir(tree.path().join("etc")).unwrap();
        tree
    }

    /// An empty folder.
    pub(crate) fn empty(name: &str) -> Tree {
        Self::below(&std::env::temp_dir(), name)
    }

    /// With `local/file`, the network's mount point `net` with `file`, and links from `local` to
    /// `net`.
    pub(crate) fn beside_a_network_mount(name: &str) -> Tree {
        let tree = Self::empty(name);
        tree.write("local/file", b"");
        tree.write("net/file", b"");
        symlink("../net", tree.path().join("local/relative")).unwrap();
        symlink(tree.path().join("net"), tree.path().join("local/absolute")).unwrap();
        symlink("relative/file", tree.path().join("local/twice")).unwrap();
        pretend_mount(&tree.path().join("net"), "nfs4");
        tree
    }

    /// An empty folder in memory, where a sync costs nothing.
    pub(crate) fn in_memory(name: &str) -> Tree {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory, name) } else { Self::empty(name) }
    }

    fn below(folder: &Path, name: &str) -> Tree {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nodelet-{}-{unique}-{name}", std::process::id());
        // Resolved: the tests compare it with paths that are free of links.
        let path = fs::canonicalize(folder).unwrap().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Tree(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Deref for Tree {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Tree {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
