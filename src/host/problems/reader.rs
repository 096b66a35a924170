//! Reads of kernel files for the look at the board's health. A file whose read takes over a second
//! is not read again until the restart: a driver that waits for a bus or a firmware would delay the
//! Lease.

use std::time::Duration;

use crate::core::facts::{Read, Unread};
use crate::core::instant::Mono;
use crate::files::read::{Enough, LARGE, SMALL, is_end};
use crate::host::kept_file::KeptFile;
use crate::host::root::{HostRoot, unread};

/// A read that takes longer is the last one of its file.
const SLOW: Duration = Duration::from_secs(1);
/// Limit of the folders' entries that are looked at.
pub(super) const MAX_DEVICES: usize = 32;

/// Reads below a root.
#[derive(Debug)]
pub(super) struct Reader {
    root: HostRoot,
    /// Files that are not read again.
    slow: Vec<String>,
    /// End of the last read.
    at: Mono,
}

impl Reader {
    pub(super) fn new(root: HostRoot) -> Self {
        Self {
            root,
            slow: Vec::new(),
            at: Mono::START,
        }
    }

    pub(super) fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Begins a look or a discovery.
    pub(super) fn start(&mut self, now: Mono) {
        self.at = now;
    }

    /// A small file, trimmed.
    pub(super) fn text(&mut self, path: &str, clock: &dyn Fn() -> Mono) -> Read<String> {
        self.may_read(path)?;
        let text = self.root.text(path, SMALL);
        self.note_end(path, clock);
        text.map(|text| text.trim().to_owned())
    }

    /// A file that is a list and grows.
    pub(super) fn list(&mut self, path: &str, clock: &dyn Fn() -> Mono) -> Read<Vec<u8>> {
        self.may_read(path)?;
        let bytes = self.root.bytes(path, LARGE);
        self.note_end(path, clock);
        bytes.map_err(|error| unread(path, &error))
    }

    /// The file `name` in `folder`, trimmed; empty if it cannot be read.
    pub(super) fn word(&mut self, folder: &str, name: &str, clock: &dyn Fn() -> Mono) -> String {
        self.text(&join(folder, name), clock).unwrap_or_default()
    }

    /// The decimal number of the file `name` in `folder`.
    pub(super) fn value(
        &mut self,
        folder: &str,
        name: &str,
        clock: &dyn Fn() -> Mono,
    ) -> Option<i64> {
        self.word(folder, name, clock).parse().ok()
    }

    /// [`Self::kept_number`] without the reason why there is none.
    pub(super) fn kept_value(
        &mut self,
        kept: &mut KeptFile,
        clock: &dyn Fn() -> Mono,
    ) -> Option<i64> {
        self.kept_number(kept, clock).ok()
    }

    /// A decimal number.
    pub(super) fn number(&mut self, path: &str, clock: &dyn Fn() -> Mono) -> Read<i64> {
        let text = self.text(path, clock)?;
        number(path, &text)
    }

    /// A file that is looked at again and again, trimmed.
    pub(super) fn kept(&mut self, kept: &mut KeptFile, clock: &dyn Fn() -> Mono) -> Read<String> {
        let bytes = self.kept_bytes(kept, SMALL, &mut is_end(SMALL), clock)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(_) => Err(Unread::new(kept.path.as_str(), "not text")),
        }
    }

    /// [`Self::list`] of a file that stays open, not further than `is_enough`, which gets all bytes
    /// that are read so far.
    pub(super) fn kept_list(
        &mut self,
        kept: &mut KeptFile,
        is_enough: Enough<'_>,
        clock: &dyn Fn() -> Mono,
    ) -> Read<Vec<u8>> {
        self.kept_bytes(kept, LARGE, is_enough, clock)
    }

    fn kept_bytes(
        &mut self,
        kept: &mut KeptFile,
        limit: u64,
        is_enough: Enough<'_>,
        clock: &dyn Fn() -> Mono,
    ) -> Read<Vec<u8>> {
        self.may_read(&kept.path)?;
        let bytes = kept.read_until(&self.root, limit, is_enough);
        self.note_end(&kept.path, clock);
        bytes.map_err(|error| unread(&kept.path, &error))
    }

    /// [`Self::kept`] as a decimal number.
    pub(super) fn kept_number(
        &mut self,
        kept: &mut KeptFile,
        clock: &dyn Fn() -> Mono,
    ) -> Read<i64> {
        let text = self.kept(kept, clock)?;
        number(&kept.path, &text)
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

    fn may_read(&self, path: &str) -> Read<()> {
        match self.slow.iter().any(|slow| slow == path) {
            true => Err(Unread::new(path, "not read again: a read took over 1 s")),
            false => Ok(()),
        }
    }

    /// Called at the end of each read: a file whose read took too long is not read again.
    fn note_end(&mut self, path: &str, clock: &dyn Fn() -> Mono) {
        let now = clock();
        if now.since(self.at) > SLOW {
            log::warn!(
                "{path}: one read took {} s, which delays the Lease; it is not read again until \
                 nodelet restarts; exclude its condition with --node-problem-detection",
                now.since(self.at).as_secs()
            );
            self.slow.push(path.to_owned());
        }
        self.at = now;
    }
}

fn number(path: &str, text: &str) -> Read<i64> {
    text.parse().map_err(|_| Unread::new(path, "not a number"))
}

/// `folder/name`
pub(super) fn join(folder: &str, name: &str) -> String {
    [folder, "/", name].concat()
}

/// A number as u64.
pub(super) fn count(number: Read<i64>) -> Read<u64> {
    number.map(|number| u64::try_from(number).unwrap_or_default())
}

/// The optional source, without the reason for its absence.
pub(super) fn present<T>(read: Read<T>) -> Option<Read<T>> {
    match read {
        Err(unread) if unread.absent => None,
        read => Some(read),
    }
}

/// `prefix` and a number: `thermal_zone0`.
pub(super) fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
