//! Bounded reads of the files that the command line or a kubeconfig names, and what must
//! not be printed.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use zeroize::Zeroize;

/// Largest file; a bundle of every public root is 220 KiB.
const LIMIT: u64 = 1 << 20;

/// Reads a whole regular file; the error lacks the path.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    // Asked before opening, because opening a FIFO waits for its writer.
    let metadata = fs::metadata(path).map_err(|e| cause(&e))?;
    if !metadata.is_file() {
        return Err("not a regular file".into());
    }
    let file = File::open(path).map_err(|e| cause(&e))?;
    let mut bytes = Vec::new();
    file.take(LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| cause(&e))?;
    if bytes.len() as u64 > LIMIT {
        return Err(format!("larger than {LIMIT} bytes"));
    }
    Ok(bytes)
}

/// Where a relative path leads: into the first of `folders` that has it, else into the
/// first. Below the others only bare names are looked for, as systemd's credentials have;
/// and last beside the first as `nodelet.NAME`, which is what nodelet.service makes its
/// credential NAME of.
pub fn find(path: &Path, folders: &[&Path]) -> PathBuf {
    let Some((first, others)) = folders.split_first() else {
        return path.to_owned();
    };
    let beside = first.join(path);
    if path.file_name() != Some(path.as_os_str()) || beside.exists() {
        return beside;
    }
    let elsewhere = others.iter().map(|folder| folder.join(path));
    let elsewhere = elsewhere.chain([first.join(format!("nodelet.{}", path.display()))]);
    let found = elsewhere.into_iter().find(|path| path.exists());
    found.unwrap_or(beside)
}

/// The system's words for an error, without `(os error 2)` and in lower case.
pub(crate) fn cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => format!("{:?}", error.kind()),
    }
}

/// Text that never shows in a log, and is zeroed when it goes: a bearer token, a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text` from `{:?}`; there is no `{}`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
