//! The one bounded read of a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use super::guard;

/// Bytes; enough for every file of /proc and /sys with a fixed set of lines.
pub const SMALL: u64 = 64 << 10;
/// Bytes, for files that grow: routes, mounts, names, a bundle of every public root (220 KiB).
pub const LARGE: u64 = 1 << 20;

/// Reads a whole regular file of at most [`LARGE`] bytes; the error lacks the path.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    guard::found(path)
        .and_then(|path| open(&path))
        .and_then(|file| whole(file, LARGE))
        .map_err(|e| cause(&e))
}

/// Opens a file for [`whole`]. O_NONBLOCK: a FIFO without a writer must not block.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::empty())
}

/// The same, with further flags of open(2).
pub(crate) fn open_with(path: &Path, flags: OFlag) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags((FLAGS | flags).bits())
        .open(path)
}

/// The flags of every open.
pub(crate) const FLAGS: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOCTTY);

/// The content of an open regular file, at most `limit` bytes.
pub(crate) fn whole(mut file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut first = [0; 4096];
    // Only a file that gives no bytes is worth an fstat: it may be a folder or a FIFO.
    let length = match file.read(&mut first) {
        Ok(length) if length > 0 => length,
        _ if !file.metadata()?.is_file() => {
            return Err(io::Error::other("not a regular file"));
        }
        other => other?,
    };
    let mut bytes = first.get(..length).unwrap_or_default().to_vec();
    // A kernel file of one record, or a file on a disk, ends with a short read. A list may go
    // on: its next record did not fit into the kernel's own buffer.
    if length == first.len() || limit > SMALL {
        let rest = limit.saturating_add(1).saturating_sub(bytes.len() as u64);
        file.take(rest).read_to_end(&mut bytes)?;
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
        Ok(bytes)
    } else {
        Err(io::Error::other(format!("larger than {limit} bytes")))
    }
}

/// The system's words for an error, without `(os error 2)` and in lower case.
pub fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => format!("{:?}", error.kind()),
    }
}
