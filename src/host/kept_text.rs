//! A small file on a disk that is asked for each minute and hardly ever changes. A board with little
//! memory drops it from the page cache, and then each read wakes the disk.

use std::io;

use crate::core::facts::Read;
use crate::files::read::whole;
use crate::files::stamp::Stamp;

use super::root::{HostRoot, text, unread};

/// Bytes of text that are kept; a longer file is read each time.
const KEPT: usize = 4096;

/// The file, and what was read of it. It is opened each time, because a network file system then
/// asks its server, and read if fstat(2) tells of a change. A write that keeps size and times (FAT has
/// no time of the inode) is seen with the next read of all facts.
#[derive(Debug)]
pub(super) struct KeptText {
    path: &'static str,
    limit: u64,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    stamp: Stamp,
    text: String,
    /// The pass of a minute found this stamp.
    in_minute: bool,
    /// Two of them did. A write soon after another one, on FAT within 2 s, may leave the times equal:
    /// the second pass has read it.
    is_settled: bool,
}

impl KeptText {
    /// The file at `path` below the root, at most `limit` bytes; opens nothing.
    pub(super) fn new(path: &'static str, limit: u64) -> Self {
        Self {
            path,
            limit,
            last: None,
        }
    }

    /// The whole file, as [`HostRoot::text`]. `in_minute`: the call is part of what is done once a
    /// minute.
    pub(super) fn read(&mut self, root: &HostRoot, in_minute: bool) -> Read<String> {
        let last = self.last.take();
        let failed = |error: io::Error| unread(self.path, &error);
        let file = root.open(self.path).map_err(failed)?;
        let stamp = Stamp::of(&file.metadata().map_err(failed)?);
        let last = last.filter(|last| last.stamp == stamp);
        let was_in_minute = last.as_ref().is_some_and(|last| last.in_minute);
        let last = last.filter(|last| last.is_settled);
        let is_settled = last.is_some() || (was_in_minute && in_minute);
        let text = match last {
            Some(last) => last.text,
            None => text(self.path, whole(file, self.limit).map_err(failed)?)?,
        };
        self.last = (text.len() <= KEPT).then(|| Last {
            stamp,
            text: text.clone(),
            in_minute: was_in_minute || in_minute,
            is_settled,
        });
        Ok(text)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::read::SMALL;
    use crate::files::tree::Tree;

    /// Reads after each of `passes`; true is that of a minute. Before each, the content is replaced
    /// without a change of the stamp. Returns which passes have read the file.
    fn which_read(passes: &[bool]) -> Vec<bool> {
        let tree = Tree::empty("kept-text");
        let root = HostRoot::new(tree.path());
        let mut file = KeptText::new("file", SMALL);
        let mut read = Vec::new();
        for (number, in_minute) in passes.iter().enumerate() {
            let content = number.to_string();
            tree.write("file", content.as_bytes());
            if let Some(last) = &mut file.last {
                last.stamp = Stamp::of(&fs::metadata(tree.path().join("file")).unwrap());
            }
            read.push(file.read(&root, *in_minute).unwrap() == content);
        }
        read
    }

    #[test]
    fn a_file_is_read_until_two_passes_of_a_minute_found_the_same_stamp() {
        let (minute, other) = (true, false);
        assert_eq!(
            which_read(&[minute, minute, minute, other]),
            [true, true, false, false]
        );
        assert_eq!(
            which_read(&[other, minute, other, other, minute, other]),
            [true, true, true, true, true, false]
        );
        assert_eq!(which_read(&[other; 4]), [true; 4]);
    }

    #[test]
    fn another_stamp_is_read_and_has_to_settle_again() {
        let tree = Tree::empty("kept-text-stamp");
        let root = HostRoot::new(tree.path());
        tree.write("file", b"new");
        let mut file = KeptText::new("file", SMALL);
        for stamp_differs in [false, true] {
            for _ in 0..2 {
                file.read(&root, true).unwrap();
            }
            let last = file.last.as_mut().unwrap();
            assert!(last.is_settled);
            "old".clone_into(&mut last.text);
            if stamp_differs {
                last.stamp = Stamp::default();
            }
            let text = if stamp_differs { "new" } else { "old" };
            assert_eq!(file.read(&root, true).as_deref(), Ok(text));
        }
        assert!(!file.last.unwrap().is_settled);
    }

    #[test]
    fn a_missing_a_long_and_a_malformed_file_are_read_each_time() {
        let tree = Tree::empty("kept-text-bad");
        let root = HostRoot::new(tree.path());
        let mut file = KeptText::new("file", 5000);
        assert!(file.read(&root, true).unwrap_err().absent);
        for (content, want) in [
            (vec![b'a'; KEPT + 1], Ok(KEPT + 1)),
            (b"a\0".to_vec(), Err("not text".to_owned())),
            (vec![b'a'; 5001], Err("larger than 5000 bytes".to_owned())),
        ] {
            tree.write("file", &content);
            for _ in 0..3 {
                let read = file.read(&root, true);
                let read = read.map(|text| text.len()).map_err(|unread| unread.cause);
                assert_eq!(read, want);
                assert!(file.last.is_none());
            }
        }
        tree.write("file", b"short");
        file.read(&root, true).unwrap();
        assert!(file.last.is_some());
        fs::remove_file(tree.path().join("file")).unwrap();
        assert!(file.read(&root, true).unwrap_err().absent);
        assert!(file.last.is_none());
    }
}
