//! The bounded read of a file whose path is checked first.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use super::guard;

pub(crate) use super::open::{
    Enough, FLAGS, from_start, has_changed, is_end, open, open_with, whole,
};
pub use super::open::{LARGE, SMALL};

/// Reads a whole file of at most [`LARGE`] bytes. The error does not name the path.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    guard::found(path)
        .and_then(|path| read_found(&path))
        .map_err(|e| cause(&e))
}

/// [`read`] of a path that [`guard::found`] returned.
pub(crate) fn read_found(path: &Path) -> io::Result<Vec<u8>> {
    whole(open(path)?, LARGE)
}

/// The text of an error, without `(os error 2)` and with a lower-case first letter.
pub fn cause(error: &io::Error) -> String {
    // The most frequent error: each board lacks some files, and std takes 4,000 instructions.
    if error.raw_os_error() == Some(Errno::ENOENT as i32) {
        return "no such file or directory".to_owned();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        // The table of Unicode's lower-case letters is 11 KB.
        Some(first) => format!("{}{}", first.to_ascii_lowercase(), letters.as_str()),
        None => format!("{:?}", error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::files::tree::Tree;

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
            assert_eq!(got, want.map_err(str::to_owned), "{name}");
        }
    }
}
