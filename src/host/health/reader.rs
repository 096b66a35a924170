//! Reads of kernel files for the look at the board's health. A file that is slow several times in a
//! row is left out until the next discovery: a driver that waits for a bus or a firmware would delay
//! the Lease. Once is no sign of that: the process may have been paused, or the machine suspended.

use std::fmt;
use std::time::Duration;

use crate::core::facts::{Read, Unread};
use crate::core::instant::Now;
use crate::files::read::{Enough, SMALL, is_end};
use crate::host::kept_file::KeptFile;
use crate::host::root::{HostRoot, text, unread};

/// A read that takes longer is slow.
const SLOW: Duration = Duration::from_secs(1);
/// After so many slow reads in a row a file is left out.
const MOST_SLOW: u8 = 3;
/// Limit of the folders' entries that are looked at.
pub(super) const MAX_DEVICES: usize = 32;

/// Reads below a root.
pub(super) struct HealthReader {
    root: HostRoot,
    clock: Box<dyn Fn() -> Now>,
    /// Files whose last reads were slow, and how many in a row.
    slow: Vec<(String, u8)>,
}

impl fmt::Debug for HealthReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthReader").field("slow", &self.slow).finish_non_exhaustive()
    }
}

impl HealthReader {
    pub(super) fn new(root: HostRoot, clock: impl Fn() -> Now + 'static) -> Self {
        Self { root, clock: Box::new(clock), slow: Vec::new() }
    }

    pub(super) fn root(&self) -> &HostRoot {
        &self.root
    }

    /// The current time.
    pub(super) fn now(&self) -> Now {
        (self.clock)()
    }

    /// Lets each file that is left out be read once more. If it is still slow, it is left out again.
    pub(super) fn try_again(&mut self) {
        for (_, reads) in &mut self.slow {
            *reads = (*reads).min(MOST_SLOW - 1);
        }
    }

    /// A small file, trimmed.
    pub(super) fn text(&mut self, path: &str) -> Read<String> {
        self.kept(&mut KeptFile::new(path))
    }

    /// The file `name` in `folder`, trimmed; empty if it cannot be read.
    pub(super) fn word(&mut self, folder: &str, name: &str) -> String {
        self.text(&join(folder, name)).unwrap_or_default()
    }

    /// The decimal number of the file `name` in `folder`.
    pub(super) fn value(&mut self, folder: &str, name: &str) -> Option<i64> {
        self.word(folder, name).parse().ok()
    }

    /// A file that is looked at again and again, trimmed.
    pub(super) fn kept(&mut self, kept: &mut KeptFile) -> Read<String> {
        let bytes = self.kept_bytes(kept, SMALL, &mut is_end(SMALL))?;
        Ok(text(&kept.path, bytes)?.trim().to_owned())
    }

    /// A file that is looked at again and again, not further than `is_enough`, which gets all bytes
    /// that are read so far.
    pub(super) fn kept_bytes(
        &mut self,
        kept: &mut KeptFile,
        limit: u64,
        is_enough: Enough<'_>,
    ) -> Read<Vec<u8>> {
        let path = &kept.path;
        if self.slow.iter().any(|(slow, reads)| slow == path && *reads == MOST_SLOW) {
            let cause = "left out for up to an hour: three reads took over 1 s each";
            return Err(Unread::new(path.as_str(), cause));
        }
        let start = self.now().mono;
        let bytes = kept.read_until(&self.root, limit, is_enough);
        self.on_read(&kept.path, self.now().mono.since(start));
        bytes.map_err(|error| unread(&kept.path, &error))
    }

    /// [`Self::kept`] as a decimal number.
    pub(super) fn kept_number(&mut self, kept: &mut KeptFile) -> Read<i64> {
        let text = self.kept(kept)?;
        text.parse().map_err(|_| Unread::new(kept.path.as_str(), "not a number"))
    }

    /// The names in a folder that `is_wanted`, in the order of their numbers; empty if there is no
    /// folder.
    pub(super) fn names(&self, folder: &str, is_wanted: &dyn Fn(&str) -> bool) -> Vec<String> {
        let mut names = self.root.list(folder).unwrap_or_default();
        names.retain(|name| is_wanted(name));
        names.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        names.truncate(MAX_DEVICES);
        names
    }

    /// Takes the time of a read.
    fn on_read(&mut self, path: &str, took: Duration) {
        let known = self.slow.iter().position(|(slow, _)| slow == path);
        let before = known.map_or(0, |at| self.slow.swap_remove(at).1);
        if took <= SLOW {
            return;
        }
        self.slow.push((path.to_owned(), before + 1));
        if before + 1 == MOST_SLOW {
            log::warn!(
                "{path}: three reads in a row took over 1 s, the last one {} s, which delays the \
                 Lease; it is left out for up to an hour; exclude its condition with \
                 --node-problem-detection",
                took.as_secs()
            );
        }
    }
}

/// `folder/name`
pub(super) fn join(folder: &str, name: &str) -> String {
    [folder, "/", name].concat()
}

/// A number as u64.
pub(super) fn count(number: Read<i64>) -> Read<u64> {
    number.map(|number| u64::try_from(number).unwrap_or_default())
}

/// `prefix` and a number: `thermal_zone0`.
pub(super) fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tree::Tree;
    use crate::host::health::tests::{FakeClock, fake_clock};

    /// A reader, and its clock, whose time passes during the next read.
    fn reader(tree: &Tree) -> (HealthReader, FakeClock) {
        tree.write("file", b"1");
        let (clock, show) = fake_clock();
        (HealthReader::new(HostRoot::new(tree.path()), show), clock)
    }

    #[test]
    fn a_file_is_left_out_after_three_slow_reads_in_a_row_and_then_tried_once() {
        let tree = Tree::empty("reader-slow");
        let (mut reader, clock) = reader(&tree);
        tree.write("other", b"1");
        let mut kept = KeptFile::new("file");
        let reads = [1001, 1001, 1000, 1001, 3_600_000, 1001];
        let sequences = [(&reads[..], true), (&[0], false), (&[1001], true), (&[0], false)];
        for (sequence, is_read) in sequences.into_iter().chain([(&[1000, 1001, 0][..], true)]) {
            for (number, millis) in sequence.iter().enumerate() {
                clock.set((clock.get().0, Duration::from_millis(*millis)));
                let read = match number % 2 {
                    0 => reader.kept(&mut kept),
                    _ => reader.text("file"),
                };
                assert_eq!(read.is_ok(), is_read, "{sequence:?} {number}");
            }
            clock.set((clock.get().0, Duration::ZERO));
            assert_eq!(reader.text("other"), Ok("1".to_owned()));
            if !is_read {
                reader.try_again();
            }
        }
    }

    #[test]
    fn the_time_between_two_reads_is_nobodys() {
        let tree = Tree::empty("reader-between");
        let (mut reader, clock) = reader(&tree);
        for hour in 0..5 {
            clock.set((Duration::from_secs(hour * 3600), Duration::ZERO));
            assert_eq!(reader.text("file"), Ok("1".to_owned()), "{hour}");
        }
    }
}
