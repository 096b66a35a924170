//! The bounded read of a file whose path is checked first.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::guard;
use crate::kube::text::Fault;

pub(crate) use super::open::{
    Enough, FLAGS, Stamp, each_line, from_start, has_changed, is_end, open, open_below, open_with,
    whole,
};
pub use super::open::{LARGE, SMALL, cause};

/// Reads a whole file of at most [`LARGE`] bytes. The error does not name the path.
pub fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    guard::found(path).and_then(|path| read_found(&path)).map_err(|e| cause(&e))
}

/// Reads the first `limit` bytes of a file or a pipe, whose writer is waited for; of stdin if the
/// path is `-`. The path is not checked: a person gave it and waits for the end.
pub fn read_stream(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let stdin = path.as_os_str() == "-";
    let stream: Box<dyn Read> =
        if stdin { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
    // With room for all, so that no copy of a secret stays behind.
    let mut bytes = Vec::with_capacity(limit);
    stream.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// [`read`] of a path that [`guard::found`] returned.
pub(crate) fn read_found(path: &Path) -> io::Result<Vec<u8>> {
    whole(open(path)?, LARGE)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn a_read_is_bounded_and_does_not_wait_for_a_fifo() {
        let tree = Tree::empty("read");
        let large = usize::try_from(LARGE).unwrap();
        tree.write("folder/empty", b"");
        tree.write("fits", &vec![b'x'; large]);
        tree.write("large", &vec![b'x'; large + 1]);
        mkfifo(&tree.path().join("fifo"), Mode::S_IRWXU).unwrap();
        for (name, want) in [
            ("folder/empty", Ok(0)),
            ("fits", Ok(large)),
            ("large", Err("larger than 1048576 bytes")),
            ("folder", Err("not a regular file")),
            ("fifo", Err("not a regular file")),
            ("missing", Err("no such file or directory")),
        ] {
            let got = read(&tree.path().join(name)).map(|bytes| bytes.len());
            assert_eq!(got, want.map_err(Fault::from), "{name}");
        }
    }
}
