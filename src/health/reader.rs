//! Reads of kernel files for the look at the board's health. A look ends after one second as a
//! whole (`os/root.rs`), and files behind a slow file are then not read. A driver that waits for a
//! bus or a firmware must neither delay the Lease nor hide the other sources. So the slowest file
//! of the third long look in a row, and of each long look after it, is left out for 50 minutes,
//! until the other files fit into the second. A single long look is no sign of a slow driver: the
//! process may have been paused, or the machine suspended.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;

use super::condition_state::UNREAD_KEEPS;
use super::mounted::Filesystem;
use crate::kube::facts::{Presence, Read, Unread, UnreadKind};
use crate::kube::instant::{Mono, Now};
use crate::os::guard;
use crate::os::read::{Enough, LARGE, SMALL, is_end};
use crate::os::reread_file::RereadFile;
use crate::os::root::{HostRoot, Look, READ_BUDGET, text, unread};
use crate::os::scan;

/// Least time between two looks: one a minute. It is a little less than 60 s, because a status can
/// be computed early.
pub(super) const SLOW: Duration = Duration::from_secs(55);
/// After this many looks in a row that took longer than [`READ_BUDGET`], a file is left out.
const MOST_LONG: u8 = 3;
/// The slowest file is left out only if its read took at least a thousandth of the long look: 10 ms
/// if the look took 10 s. After shorter reads the files are not the reason: the process may have
/// been paused.
const LEAST_PART: u32 = 1000;
/// How long a file is left out: its condition is kept until it is read again.
const LEFT_OUT: Duration = UNREAD_KEEPS.saturating_sub(Duration::from_secs(600));
/// Limit of the devices of a kind that are looked at. A phone has some 60 thermal zones.
pub(super) const MAX_DEVICES: usize = 128;
/// The folder of the cpufreq policies.
pub(super) const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";

/// Reads below a root.
pub(super) struct HealthReader {
    pub(super) root: HostRoot,
    clock: Rc<dyn Fn() -> Now>,
    /// The file or folder of this look whose read took the longest time.
    slowest: Option<(Duration, String)>,
    /// Looks in a row that took longer than [`READ_BUDGET`].
    long_looks: u8,
    /// Files and folders that are left out, and until when.
    left_out: Vec<(String, Mono)>,
    /// This look ended before it reached a file.
    is_cut_off: bool,
    /// Why a file of this look could not be read although it exists; of several, the last one.
    pub(super) unread: Option<Unread>,
    /// [`guard::root_can_block`].
    pub(super) root_can_block: bool,
    /// The root is an initramfs: a file that is missing now may exist in the real root later.
    pub(super) is_initramfs: bool,
    /// The board is a Raspberry Pi; `None` before that was read.
    pub(super) is_pi: Option<bool>,
    /// What `filesystems.rs` found in this look.
    pub(super) filesystems: Presence<Rc<[Filesystem]>>,
}

impl fmt::Debug for HealthReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthReader").field("left_out", &self.left_out).finish_non_exhaustive()
    }
}

/// A look that is under way, and when it began.
pub(super) struct HealthLook {
    _look: Look,
    since: Mono,
}

impl HealthReader {
    pub(super) fn new(root: HostRoot, clock: impl Fn() -> Now + 'static) -> Self {
        Self {
            root,
            root_can_block: guard::root_can_block(),
            is_initramfs: false,
            clock: Rc::new(clock),
            slowest: None,
            long_looks: 0,
            left_out: Vec::new(),
            is_cut_off: false,
            unread: None,
            is_pi: None,
            filesystems: Presence::Absent,
        }
    }

    /// Begins a look.
    pub(super) fn begin(&mut self) -> HealthLook {
        let since = self.now().mono;
        self.slowest = None;
        self.is_cut_off = false;
        self.unread = None;
        self.left_out.retain(|(_, until)| since < *until);
        let clock = Rc::clone(&self.clock);
        HealthLook { _look: self.root.begin_look(move || clock().mono), since }
    }

    /// Ends a look. A short look at a few sources (not `is_whole`) does not reset the count of long
    /// looks: the slow file may be among the sources that it did not read.
    pub(super) fn end(&mut self, look: HealthLook, is_whole: bool) {
        let now = self.now().mono;
        let took = now.since(look.since);
        if took < READ_BUDGET {
            self.long_looks = if is_whole { 0 } else { self.long_looks };
            return;
        }
        self.long_looks = MOST_LONG.min(self.long_looks + 1);
        if self.long_looks == MOST_LONG
            && let Some((slow, path)) = self.slowest.take_if(|(slow, _)| *slow * LEAST_PART >= took)
        {
            log::warn!(
                "{path}: its read took {} ms of the {} ms of a look, which may take 1 s, the third \
                 time in a row; it is left out for 50 minutes; exclude its condition with \
                 --node-problem-detection",
                slow.as_millis(),
                took.as_millis()
            );
            self.left_out.push((path, now.after(LEFT_OUT)));
        }
    }

    /// Why `source` is unread, if this look ended before it reached a file of `source`.
    pub(super) fn cut_off(&self, source: &str) -> Option<Unread> {
        self.is_cut_off.then(|| Unread::not_reached(source))
    }

    /// The current time.
    pub(super) fn now(&self) -> Now {
        (self.clock)()
    }

    /// A small file, trimmed.
    pub(super) fn text(&mut self, path: &str) -> Read<String> {
        self.reread(&mut RereadFile::new(path))
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
    pub(super) fn reread(&mut self, file: &mut RereadFile) -> Read<String> {
        let bytes = self.reread_bytes(file, SMALL, &mut is_end(SMALL))?;
        Ok(text(&file.path, bytes)?.trim().to_owned())
    }

    /// Reads a file that is looked at again and again, until `is_enough` is true for all bytes that
    /// are read so far.
    pub(super) fn reread_bytes(
        &mut self,
        file: &mut RereadFile,
        limit: u64,
        is_enough: Enough<'_>,
    ) -> Read<Vec<u8>> {
        let start = self.now().mono;
        if let Some(left_out) = self.left_out(&file.path) {
            // Closes the file: while it is open and not read, a report of the kernel stays pending
            // and would end each wait at once.
            *file = RereadFile::new(std::mem::take(&mut file.path));
            return self.note(Err(left_out));
        }
        let bytes = file.read_until(&self.root, limit, is_enough);
        self.took(&file.path, start);
        self.is_cut_off |= bytes.is_err() && self.root.may_read().is_err();
        self.note(bytes.map_err(|error| unread_or_off(&file.path, &error)))
    }

    /// Why a file or folder is not read, if it is left out.
    fn left_out(&self, path: &str) -> Option<Unread> {
        let cause = "left out for 50 minutes: it was the slowest file of three long looks";
        let is_left_out = self.left_out.iter().any(|(left_out, _)| left_out == path);
        is_left_out.then(|| Unread::new(path, cause))
    }

    /// The read of a file or folder, which began at `start`, has ended.
    fn took(&mut self, path: &str, start: Mono) {
        let took = self.now().mono.since(start);
        if self.slowest.as_ref().is_none_or(|(slowest, _)| took > *slowest) {
            self.slowest = Some((took, path.to_owned()));
        }
    }

    /// Keeps why a file that exists could not be read.
    pub(super) fn note<T>(&mut self, read: Read<T>) -> Read<T> {
        if let Err(unread) = &read
            && !unread.is_absent()
        {
            self.unread = Some(unread.clone());
        }
        read
    }

    /// What `look` finds, if it could read all files that exist.
    pub(super) fn whole<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> Read<T> {
        let before = self.unread.take();
        let found = look(self);
        match self.unread.clone() {
            Some(unread) => Err(unread),
            None => {
                self.unread = before;
                Ok(found)
            }
        }
    }

    /// [`Self::reread`] as a decimal number.
    pub(super) fn reread_number(&mut self, file: &mut RereadFile) -> Read<i64> {
        let text = self.reread(file)?;
        text.parse().map_err(|_| Unread::new(file.path.as_str(), "not a number"))
    }

    /// The numbers behind `prefixes`, each at the start of a line. Reading stops when all numbers
    /// are found: the kernel may compute all lines for each read, so one read less saves work.
    pub(super) fn reread_values<const N: usize>(
        &mut self,
        file: &mut RereadFile,
        prefixes: [&str; N],
    ) -> Read<[Option<u64>; N]> {
        let mut values = [None; N];
        let mut are_found = |text: &mut Vec<u8>| {
            // A read can end within a line.
            let end = text.iter().rposition(|byte| *byte == b'\n');
            let lines = text.get(..end.unwrap_or_default()).unwrap_or_default();
            values = scan::values(lines, prefixes, scan::lone_number);
            !values.contains(&None)
        };
        self.reread_bytes(file, LARGE, &mut are_found)?;
        Ok(values)
    }

    /// The names in a folder that `is_wanted`, in the order of their numbers; empty if there is no
    /// folder, or it cannot be read.
    pub(super) fn names(&mut self, folder: &str, is_wanted: &dyn Fn(&str) -> bool) -> Vec<String> {
        self.list(folder, is_wanted).unwrap_or_default()
    }

    /// [`Self::names`], or why the folder cannot be read.
    pub(super) fn list(
        &mut self,
        folder: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Read<Vec<String>> {
        if let Some(left_out) = self.left_out(folder) {
            return self.note(Err(left_out));
        }
        let start = self.now().mono;
        let list = self.root.list(folder);
        self.took(folder, start);
        let mut names = Presence::from(self.note(list)).present()?.unwrap_or_default();
        names.retain(|name| is_wanted(name));
        names.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        Ok(names)
    }
}

/// The cause of a failed read. While all CPUs of a cpufreq policy are offline, the kernel refuses
/// its files with EBUSY (`show` in drivers/cpufreq/cpufreq.c), and the policy counts as absent.
fn unread_or_off(path: &str, error: &io::Error) -> Unread {
    let is_busy = error.raw_os_error() == Some(Errno::EBUSY as i32);
    match unread(path, error) {
        unread if is_busy && path.starts_with(CPUFREQ) => {
            Unread { kind: UnreadKind::Absent, ..unread }
        }
        unread => unread,
    }
}

/// A hexadecimal number, with or without `0x`.
pub(super) fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
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
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;
    use crate::kube::time::Wall;
    use crate::os::tree::Tree;

    /// The time, and what passes after each of the next questions for it.
    type Clock = Rc<RefCell<(Duration, VecDeque<Duration>)>>;

    /// A reader of files `0` to `7`, and its clock.
    fn reader(tree: &Tree) -> (HealthReader, Clock) {
        for file in 0..8 {
            tree.write(&file.to_string(), b"1");
        }
        let clock = Clock::default();
        let shown = Rc::clone(&clock);
        let show = move || {
            let (now, steps) = &mut *shown.borrow_mut();
            let asked = *now;
            *now += steps.pop_front().unwrap_or_default();
            Now { mono: Mono::START.after(asked), wall: Wall::default() }
        };
        (HealthReader::new(HostRoot::new(tree.path()), show), clock)
    }

    /// One look at each file, of which each takes so many milliseconds. Returns which were read.
    fn look(reader: &mut HealthReader, clock: &Clock, millis: [u64; 8]) -> Vec<usize> {
        let before = clock.borrow().0;
        let look = reader.begin();
        let mut was_read = Vec::new();
        for (file, millis) in millis.into_iter().enumerate() {
            let path = file.to_string();
            let is_left_out = reader.left_out.iter().any(|(left_out, _)| *left_out == path);
            if !is_left_out && reader.root.may_read().is_ok() {
                // The time is asked for before and after the question whether the look is over.
                clock.borrow_mut().1 = [0, millis].map(Duration::from_millis).into();
            }
            if reader.text(&path).is_ok() {
                was_read.push(file);
            }
        }
        assert_eq!(reader.cut_off("").is_some(), was_read.len() + reader.left_out.len() < 8);
        reader.end(look, true);
        let took = clock.borrow().0 - before;
        let longest = Duration::from_millis(millis.into_iter().max().unwrap());
        assert!(took <= READ_BUDGET + longest, "{took:?}");
        // The time between two looks is nobody's.
        clock.borrow_mut().0 += Duration::from_secs(60);
        was_read
    }

    #[test]
    fn the_values_of_a_file_are_those_of_its_whole_lines() {
        let tree = Tree::empty("reader-values");
        tree.write("vmstat", b"a 1\nb 2\nc 3");
        let (mut reader, _) = reader(&tree);
        let mut file = RereadFile::new("vmstat");
        assert_eq!(reader.reread_values(&mut file, ["b ", "a "]), Ok([Some(2), Some(1)]));
        assert_eq!(reader.reread_values(&mut file, ["a ", "c "]), Ok([Some(1), None]));
    }

    /// A cluster whose CPUs are all offline made each look a discovery.
    #[test]
    fn a_policy_whose_cpus_are_offline_is_absent_and_no_other_busy_file_is() {
        let tree = Tree::empty("reader-busy");
        let (mut reader, _) = reader(&tree);
        for (folder, errno, want) in [
            (CPUFREQ, Errno::EBUSY, true),
            (CPUFREQ, Errno::EIO, false),
            ("sys/class/thermal", Errno::EBUSY, false),
        ] {
            let path = format!("{folder}/policy4/cpuinfo_max_freq");
            let unread = unread_or_off(&path, &errno.into());
            let found = reader.whole(|reader| reader.note::<()>(Err(unread)).ok());
            assert_eq!(found.is_ok(), want, "{path}: {errno}");
        }
    }

    #[test]
    fn slow_files_are_left_out_for_an_hour_until_the_rest_fits_into_a_look() {
        let tree = Tree::empty("reader-slow");
        let (mut reader, clock) = reader(&tree);
        let mut seen = Vec::new();
        while reader.left_out.len() < 7 {
            seen.push(look(&mut reader, &clock, [900; 8]));
            assert!(seen.len() < 10, "{seen:?}");
        }
        assert_eq!(seen[..3], [[0, 1], [0, 1], [0, 1]], "the third one leaves a file out");
        assert_eq!(look(&mut reader, &clock, [900; 8]).len(), 1, "{:?}", reader.left_out);
        assert_eq!(look(&mut reader, &clock, [0; 8]).len(), 1);
        clock.borrow_mut().0 += LEFT_OUT;
        assert_eq!(look(&mut reader, &clock, [0; 8]).len(), 8);
    }

    #[test]
    fn one_slow_file_is_left_out_after_three_looks_in_a_row_and_hides_no_other() {
        let tree = Tree::empty("reader-one");
        let (mut reader, clock) = reader(&tree);
        let slow = [0, 0, 30, 1001, 20, 0, 0, 0];
        for looks in [2, 3] {
            for _ in 0..looks {
                assert_eq!(look(&mut reader, &clock, slow), [0, 1, 2, 3]);
            }
            let quick = look(&mut reader, &clock, [0; 8]);
            assert_eq!(quick.len(), 8 - usize::from(looks == 3), "{quick:?}");
        }
        assert_eq!(look(&mut reader, &clock, slow), [0, 1, 2, 4, 5, 6, 7]);
    }

    /// One file after the other was left out, each read in 0 ms, and the folder was listed again
    /// with each look.
    #[test]
    fn a_slow_folder_is_left_out_and_no_file_for_a_pause_of_the_process() {
        let tree = Tree::empty("reader-folder");
        tree.write("folder/1", b"");
        let (mut reader, clock) = reader(&tree);
        let mut look = |millis: u64| {
            let look = reader.begin();
            reader.text("0").ok();
            clock.borrow_mut().1 = [0, millis].map(Duration::from_millis).into();
            let names = reader.names("folder", &|_| true);
            clock.borrow_mut().0 += Duration::from_millis(1001);
            reader.end(look, true);
            (names.len(), reader.left_out.len())
        };
        assert_eq!([0; 5].map(&mut look), [(1, 0); 5], "the process was paused");
        assert_eq!([1001; 2].map(&mut look), [(1, 1), (0, 1)]);
    }

    /// One read alone, as after a report of the voltage driver, counts if it is slow.
    #[test]
    fn a_short_part_of_a_look_does_not_prove_that_the_looks_are_short() {
        let tree = Tree::empty("reader-part");
        let (mut reader, clock) = reader(&tree);
        let slow = [1001, 0, 0, 0, 0, 0, 0, 0];
        for _ in 0..3 {
            look(&mut reader, &clock, slow);
            let part = reader.begin();
            reader.end(part, false);
        }
        assert_eq!(reader.left_out.len(), 1);
    }
}
