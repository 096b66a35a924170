//! What the test binaries of nodelet and of its API double share.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub mod dns;
pub mod grpc;
pub mod skip;

/// A temporary folder, removed on drop.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// `name` is a part of the path, for a person who finds the folder after a crash.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// A folder below `parent`, whose path is free of links.
    #[must_use]
    pub fn below(parent: &Path, name: &str) -> Self {
        let parent = fs::canonicalize(parent).unwrap();
        let end = format!("-{name}");
        let mut folder = tempfile::Builder::new();
        Self(folder.prefix("nodelet-").suffix(&end).tempdir_in(parent).unwrap())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file below the folder and creates its parents; returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// The same, as a file that can be run.
    pub fn program(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.write(name, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The variable `PATH`, with the programs in `bin` of this folder first.
    #[must_use]
    pub fn search_path(&self) -> String {
        format!("{}:{}", self.path().join("bin").display(), std::env::var("PATH").unwrap())
    }
}

/// Copies a folder and what is below it. Where `link` has a target for a file, a link replaces it.
pub fn copy(from: &Path, to: &Path, link: fn(&Path) -> Option<PathBuf>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&from, &to, link),
            kind if kind.is_symlink() => symlink(fs::read_link(from).unwrap(), to).unwrap(),
            _ => match link(&from) {
                Some(target) => symlink(target, to).unwrap(),
                None => drop(fs::copy(from, to).unwrap()),
            },
        }
    }
}

/// Calls `look` every 10 ms until it returns a value; panics after `limit`.
pub fn eventually<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Compares a text with the file `tests/golden/NAME`. With `RECORD_GOLDEN` in the environment it
/// writes the file: `git diff` shows what changed.
pub fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden").join(name);
    if std::env::var_os("RECORD_GOLDEN").is_some() {
        assert!(std::env::var_os("CI").is_none(), "CI compares the golden files");
        return fs::write(path, text).unwrap();
    }
    let want = fs::read_to_string(path).unwrap_or_default();
    let differs = || text.lines().zip(want.lines()).find(|(new, old)| new != old);
    assert!(
        text == want,
        "tests/golden/{name} differs, first in (new, recorded): {:?}; \
         RECORD_GOLDEN=1 cargo test records it",
        differs()
    );
}

/// The members of a struct, each with its value, as `{:#?}` prints them.
#[must_use]
pub fn members(debug: &str) -> BTreeMap<String, String> {
    let mut members = BTreeMap::new();
    let mut name = String::new();
    for line in debug.lines().filter_map(|line| line.strip_prefix("    ")) {
        let value = match line.split_once(": ") {
            Some((member, value)) if !member.starts_with(' ') => {
                member.clone_into(&mut name);
                value
            }
            _ => line,
        };
        members.entry(name.clone()).or_insert_with(String::new).push_str(value);
    }
    members
}
