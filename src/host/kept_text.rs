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
/// asks its server, and read if fstat(2) tells of a change.
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
    /// The read before this one, a second or more earlier, found the same stamp. A write within the
    /// same tick of the kernel's clock as a read changes the content and not the times: the second
    /// read has seen it.
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

    /// The whole file, as [`HostRoot::text`]. Two calls are a second or more apart.
    pub(super) fn read(&mut self, root: &HostRoot) -> Read<String> {
        let last = self.last.take();
        let failed = |error: io::Error| unread(self.path, &error);
        let file = root.open(self.path).map_err(failed)?;
        let stamp = Stamp::of(&file.metadata().map_err(failed)?);
        let is_same = last.as_ref().is_some_and(|last| last.stamp == stamp);
        let text = match last {
            Some(last) if is_same && last.is_settled => last.text,
            _ => text(self.path, whole(file, self.limit).map_err(failed)?)?,
        };
        self.last = (text.len() <= KEPT).then(|| Last {
            stamp,
            text: text.clone(),
            is_settled: is_same,
        });
        Ok(text)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::files::read::SMALL;
    use crate::files::tree::Tree;

    /// Reads a file, writes `new` to it with the same times, and reads it again.
    fn after_write(file: &mut KeptText, tree: &Tree, new: &[u8]) -> Read<String> {
        let root = HostRoot::new(tree.path());
        file.read(&root).unwrap();
        tree.write("file", new);
        set_time(tree, 1);
        // The time of the inode cannot be set.
        if let Some(last) = &mut file.last {
            let path = tree.path().join("file");
            last.stamp.times = Stamp::of(&fs::metadata(path).unwrap()).times;
        }
        file.read(&root)
    }

    fn set_time(tree: &Tree, second: u64) {
        let file = File::options().write(true).open(tree.path().join("file"));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let times = FileTimes::new().set_modified(time);
        file.unwrap().set_times(times).unwrap();
    }

    #[test]
    fn a_settled_file_is_not_read_until_its_stamp_differs() {
        let tree = Tree::empty("kept-text");
        tree.write("file", b"one");
        set_time(&tree, 1);
        let mut file = KeptText::new("file", SMALL);
        let mut write = |new: &str| after_write(&mut file, &tree, new.as_bytes()).unwrap();
        assert_eq!(write("two"), "two", "not settled");
        assert_eq!(write("six"), "two", "settled: not read");
        assert_eq!(write("seven"), "seven", "another size");
    }

    #[test]
    fn each_part_of_the_stamp_counts() {
        let tree = Tree::empty("kept-text-stamp");
        let root = HostRoot::new(tree.path());
        tree.write("file", b"new");
        let mut file = KeptText::new("file", SMALL);
        let mut differs = |change: &dyn Fn(&mut Stamp)| {
            for _ in 0..2 {
                file.read(&root).unwrap();
            }
            let last = file.last.as_mut().unwrap();
            assert!(last.is_settled);
            "old".clone_into(&mut last.text);
            change(&mut last.stamp);
            file.read(&root).unwrap() == "new"
        };
        assert!(!differs(&|_| {}));
        for part in 0..3 {
            assert!(differs(&|stamp| stamp.file[part] ^= 1), "{part}");
        }
        for part in 0..4 {
            assert!(differs(&|stamp| stamp.times[part] ^= 1), "{part}");
        }
    }

    #[test]
    fn a_missing_a_long_and_a_malformed_file_are_read_each_time() {
        let tree = Tree::empty("kept-text-bad");
        let root = HostRoot::new(tree.path());
        let mut file = KeptText::new("file", 5000);
        assert!(file.read(&root).unwrap_err().absent);
        for (content, want) in [
            (vec![b'a'; KEPT + 1], Ok(KEPT + 1)),
            (vec![b'b'; KEPT + 1], Ok(KEPT + 1)),
            (b"a\0".to_vec(), Err("not text".to_owned())),
            (vec![b'a'; 5001], Err("larger than 5000 bytes".to_owned())),
        ] {
            tree.write("file", &content);
            for _ in 0..3 {
                let read = file.read(&root);
                let read = read.map(|text| text.len()).map_err(|unread| unread.cause);
                assert_eq!(read, want);
                assert!(file.last.is_none());
            }
        }
        tree.write("file", b"short");
        file.read(&root).unwrap();
        assert!(file.last.is_some());
        fs::remove_file(tree.path().join("file")).unwrap();
        assert!(file.read(&root).unwrap_err().absent);
        assert!(file.last.is_none());
    }
}
