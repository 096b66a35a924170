//! Reads of kernel files for the look at the board's health. A file whose read takes over a second
//! is not read again until the restart: a driver that waits for a bus or a firmware would delay the
//! Lease.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::core::facts::{Read, Unread};
use crate::core::instant::Mono;
use crate::files::read::{LARGE, SMALL, whole_from_start};
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

/// A file that stays open, so that one look at it is one system call, or three for a list.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) path: String,
    limit: u64,
    file: Option<File>,
}

impl Kept {
    pub(super) fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            limit: SMALL,
            file: None,
        }
    }

    /// A file that is a list and grows.
    pub(super) fn list(path: &str) -> Self {
        Self {
            limit: LARGE,
            ..Self::new(path)
        }
    }

    /// Whether the kernel reported a change since the last read: poll(2) for POLLPRI.
    pub(super) fn is_notified(&self) -> bool {
        let Some(file) = &self.file else {
            return false;
        };
        let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        let is_changed = poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        let [polled] = polled;
        is_changed
            && polled
                .revents()
                .is_some_and(|found| found.contains(PollFlags::POLLPRI))
    }

    /// The open file; `None` if the last read failed.
    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
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
        self.timed(path, clock, &mut |root| root.text(path, SMALL))
            .map(|text| text.trim().to_owned())
    }

    /// A file that is a list and grows; what is not UTF-8 is replaced.
    pub(super) fn list(&mut self, path: &str, clock: &dyn Fn() -> Mono) -> Read<String> {
        self.timed(path, clock, &mut |root| match root.bytes(path, LARGE) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => Err(unread(path, &error)),
        })
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
    pub(super) fn kept_value(&mut self, kept: &mut Kept, clock: &dyn Fn() -> Mono) -> Option<i64> {
        self.kept_number(kept, clock).ok()
    }

    /// A decimal number.
    pub(super) fn number(&mut self, path: &str, clock: &dyn Fn() -> Mono) -> Read<i64> {
        let text = self.text(path, clock)?;
        number(path, &text)
    }

    /// A file that is looked at again and again, trimmed; what is not UTF-8 is replaced.
    pub(super) fn kept(&mut self, kept: &mut Kept, clock: &dyn Fn() -> Mono) -> Read<String> {
        let Kept { path, limit, file } = kept;
        let read = self.timed(path, clock, &mut |root| {
            let open = match file.take() {
                Some(open) => open,
                None => root.open(path).map_err(|error| unread(path, &error))?,
            };
            let bytes = whole_from_start(&open, *limit).map_err(|error| unread(path, &error))?;
            *file = Some(open);
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        });
        if read.is_err() {
            // The file of a device that came back is another one.
            kept.file = None;
        }
        read
    }

    /// [`Self::kept`] as a decimal number.
    pub(super) fn kept_number(&mut self, kept: &mut Kept, clock: &dyn Fn() -> Mono) -> Read<i64> {
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

    fn timed(
        &mut self,
        path: &str,
        clock: &dyn Fn() -> Mono,
        read: &mut dyn FnMut(&HostRoot) -> Read<String>,
    ) -> Read<String> {
        if self.slow.iter().any(|slow| slow == path) {
            return Err(Unread::new(path, "not read again: a read took over 1 s"));
        }
        let read = read(&self.root);
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
        read
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
