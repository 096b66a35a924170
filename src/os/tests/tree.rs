//! The temporary folder of the library's unit tests.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::Path;

use support::Folder;

use crate::os::mounts::pretend_mount;

/// A folder of its own for each call, removed at the end of the test.
pub(crate) struct Tree(Folder);

impl Tree {
    /// A folder with an empty `etc`. `name` identifies the test.
    pub(crate) fn new(name: &str) -> Tree {
        let tree = Self::empty(name);
        fs::create_dir(tree.path().join("etc")).unwrap();
        tree
    }

    /// An empty folder.
    pub(crate) fn empty(name: &str) -> Tree {
        Tree(Folder::new(name))
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
        if memory.is_dir() { Tree(Folder::below(memory, name)) } else { Self::empty(name) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        self.0.write(path, bytes);
    }
}

impl Deref for Tree {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.path()
    }
}

impl AsRef<Path> for Tree {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}
