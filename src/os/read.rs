//! Opens and reads a file without waiting, up to a size, tells whether it was written, and has the
//! text of an error. The path was checked before: `guard::read` does both.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use super::folders;
use crate::kube::text::{Fault, FaultKind};
#[cfg(test)]
use crate::sim::hook as sim;

/// Bytes, for files of /proc and /sys with a fixed set of lines.
pub const SMALL: u64 = 64 << 10;
/// Bytes, for files that grow, such as a bundle of all public root certificates (220 KiB), and for
/// a line of a table of any size (`each_line`).
pub const LARGE: u64 = 1 << 20;

/// Opens a file for [`whole`]. O_NONBLOCK: a FIFO without a writer must not block.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::empty())
}

/// [`open`] with additional flags of open(2). By openat(2): musl's open(2), which std calls, is
/// followed by a call of fcntl(2) that sets O_CLOEXEC again.
pub(crate) fn open_with(path: &Path, flags: OFlag) -> io::Result<File> {
    let open = |folder: BorrowedFd<'_>, path: &Path| {
        openat(folder, path, FLAGS | flags, Mode::empty()).map(File::from)
    };
    folders::at(path, open)
}

/// Flags of open(2) for every file that is opened.
pub(crate) const FLAGS: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// The content of a file that [`open`] opened. More than `limit` bytes are an error, and so is a
/// folder, or a FIFO or device without data.
pub(crate) fn whole(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut read = |buffer: &mut [u8]| (&file).read(buffer);
    bounded(&mut read, &file, limit, &mut is_end(limit))
}

/// Reads a file from its start as [`whole`] does, but by pread(2), so that it can stay open. Ends
/// when `is_enough` returns true.
pub(crate) fn from_start(file: &File, limit: u64, is_enough: Enough<'_>) -> io::Result<Vec<u8>> {
    let mut offset = 0;
    let mut read = |buffer: &mut [u8]| {
        let length = file.read_at(buffer, offset)?;
        offset += length as u64;
        Ok(length)
    };
    bounded(&mut read, file, limit, is_enough)
}

/// Reads the first `limit` bytes of a file, or of a pipe, whose writer is waited for. The path `-`
/// is stdin. The path is not checked: a person gave it and waits for the end.
pub fn read_stream(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let stdin = path.as_os_str() == "-";
    let stream: Box<dyn Read> =
        if stdin { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
    // With room for all, so that no copy of a secret stays behind.
    let mut bytes = Vec::with_capacity(limit);
    stream.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A whole file of at most [`LARGE`] bytes. `guard::found` returned the path.
pub(crate) fn read_found(path: &Path) -> io::Result<Vec<u8>> {
    whole(open(path)?, LARGE)
}

/// Bytes that are read at once.
const CHUNK: usize = 4096;

/// Ends after a short first read, if the limit is at most [`SMALL`]. A short read is the end of a
/// disk file, and of a kernel file of one record. It may not be the end of a kernel file that is a
/// list (seq_file), whose read ends early when the next record does not fit the buffer: such a file
/// needs a larger limit.
pub(crate) fn is_end(limit: u64) -> impl FnMut(&mut Vec<u8>) -> bool {
    move |bytes| bytes.len() < CHUNK && limit <= SMALL
}

/// Takes each line of a table without its newline, and removes the line from the buffer. So the
/// limit of the read bounds one line. The length of the table has another bound: the kernel's for
/// mounts and routes, and that of `os::hosts` for the hosts file. The read returns what follows the
/// last newline.
pub(crate) fn each_line(take: &mut dyn FnMut(&str)) -> impl FnMut(&mut Vec<u8>) -> bool {
    move |bytes| {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = bytes.get(..end).unwrap_or_default();
        String::from_utf8_lossy(lines).split_terminator('\n').for_each(&mut *take);
        bytes.drain(..end);
        false
    }
}

/// Whether the kernel reported a change of this file: POLLPRI of poll(2). Mountinfo
/// (proc_pid_mountinfo(5)) reports each change once, since the file was opened. Some attributes of
/// sysfs report a change until the file is read again. Any other file is never reported as changed.
/// True if poll(2) fails.
pub(crate) fn has_changed(file: &File) -> bool {
    #[cfg(test)]
    if let Some(has_changed) = sim::has_changed(file) {
        return has_changed;
    }
    let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
    poll(&mut polled, PollTimeout::ZERO) != Ok(0)
}

/// Called after each read with all bytes in the buffer. It may remove bytes that it has dealt with.
/// It returns true if no further read is needed.
pub(crate) type Enough<'a> = &'a mut dyn FnMut(&mut Vec<u8>) -> bool;

/// Reads until the end, or until `is_enough` returns true. More than `limit` bytes in the buffer
/// are an error.
fn bounded(
    read: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>,
    file: &File,
    limit: u64,
    is_enough: Enough<'_>,
) -> io::Result<Vec<u8>> {
    #[cfg(test)]
    sim::read(file)?;
    let (mut buffer, mut bytes, mut is_empty) = ([0; CHUNK], Vec::new(), true);
    loop {
        // fstat only if no bytes were read: it saves a system call for most kernel files.
        let length = match read(&mut buffer) {
            Ok(length) if length > 0 => length,
            _ if is_empty && !file.metadata()?.is_file() => {
                return Err(io::Error::other("not a regular file"));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            end => return end.map(|_| bytes),
        };
        is_empty = false;
        bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
        if !u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
            return Err(io::Error::other(format!("larger than {limit} bytes")));
        }
        if is_enough(&mut bytes) {
            return Ok(bytes);
        }
    }
}

/// Metadata that change when a file is written, or the file or a link to it is replaced. A write
/// soon after another one may leave them equal: within the same tick of the kernel's clock (10 ms
/// or less), or of the file system's times (FAT: 2 s).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stamp {
    /// Device, inode, size.
    pub(crate) file: [u64; 3],
    /// Seconds and nanoseconds of the last changes of the content and of the inode.
    pub(crate) times: [i64; 4],
}

impl Stamp {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self {
            file: [file.dev(), file.ino(), file.size()],
            times: [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()],
        }
    }
}

/// The text of an error, without `(os error 2)` and with a lower-case first letter. If the guard
/// refused the path, the fault that the error carries.
pub fn cause(error: &io::Error) -> Fault {
    if let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref::<Fault>()) {
        return fault.clone();
    }
    // The most frequent error: each board lacks some files, and std takes 4,000 instructions.
    if error.raw_os_error() == Some(Errno::ENOENT as i32) {
        return "no such file or directory".into();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    let what: Fault = match letters.next() {
        // musl's text for EIO begins with `I/O`, which stays in upper case.
        Some(_) if text.starts_with("I/O") => text.into(),
        // Only ASCII: for other letters, the binary would have a table of Unicode's of 11 KB.
        Some(first) => format!("{}{}", first.to_ascii_lowercase(), letters.as_str()).into(),
        None => format!("{:?}", error.kind()).into(),
    };
    let is_denied = error.raw_os_error() == Some(Errno::EACCES as i32);
    Fault { kind: if is_denied { FaultKind::Denied } else { FaultKind::Other }, ..what }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::useless_conversion)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;
    use nix::sys::stat::stat;
    use nix::unistd::mkfifo;
    use std::fs;

    /// What is read of a kernel file whose reads end after these lengths, and how many reads it
    /// took.
    fn read_lengths(lengths: &[usize], limit: u64) -> (Result<usize, String>, usize) {
        let mut reads = 0;
        let mut read = |buffer: &mut [u8]| {
            let length = lengths.get(reads).copied().unwrap_or(0);
            reads += 1;
            match length {
                usize::MAX => Err(io::ErrorKind::Interrupted.into()),
                length => Ok(buffer[..length].len()),
            }
        };
        let file = File::open("/proc/self/stat").unwrap();
        let bytes = bounded(&mut read, &file, limit, &mut is_end(limit)).map_err(|e| e.to_string());
        (bytes.map(|bytes| bytes.len()), reads)
    }

    #[test]
    fn a_short_first_read_is_the_end_of_a_small_file_and_no_later_one_is() {
        for (lengths, limit, want, reads) in [
            (&[100][..], SMALL, Ok(100), 1),
            (&[100, 50], LARGE, Ok(150), 3),
            (&[4096], SMALL, Ok(4096), 2),
            (&[4096, 4000, 50], SMALL, Ok(8146), 4),
            (&[4096, usize::MAX, 50], SMALL, Ok(4146), 4),
            (&[], SMALL, Ok(0), 1),
            (&[100], 99, Err("larger than 99 bytes"), 1),
            (&[4096, 50], 4100, Err("larger than 4100 bytes"), 2),
        ] {
            let want = want.map_err(str::to_owned);
            assert_eq!(read_lengths(lengths, limit), (want, reads), "{lengths:?}");
        }
    }

    #[test]
    fn the_lines_of_a_table_are_taken_from_reads_that_end_anywhere() {
        let text: String = (0..9000).map(|line| format!("{line} \u{e9}\r\n")).collect();
        let text = text + "no newline";
        for length in [7, 4096] {
            let mut parts = text.as_bytes().chunks(length);
            let mut read = |buffer: &mut [u8]| {
                let part = parts.next().unwrap_or_default();
                buffer[..part.len()].copy_from_slice(part);
                Ok(part.len())
            };
            let (file, mut number) = (File::open("/proc/self/stat").unwrap(), 0);
            let mut take = |line: &str| {
                assert_eq!(line, format!("{number} \u{e9}\r"));
                number += 1;
            };
            let rest = bounded(&mut read, &file, 8192, &mut each_line(&mut take));
            assert_eq!(rest.unwrap(), b"no newline");
            assert_eq!(number, 9000);
        }
    }

    #[test]
    fn a_file_is_not_read_further_than_asked() {
        let file = File::open("/proc/self/smaps").unwrap();
        let mut reads = 0;
        let mut is_enough = |bytes: &mut Vec<u8>| {
            reads += 1;
            bytes.len() > CHUNK
        };
        let bytes = from_start(&file, LARGE, &mut is_enough).unwrap();
        assert!(bytes.len() <= 2 * CHUNK && reads == 2, "{reads}");
    }

    #[test]
    fn the_text_of_an_error_begins_with_a_small_letter_unless_it_is_an_abbreviation() {
        for (text, want) in [
            ("No space left on device (os error 28)", "no space left on device"),
            ("I/O error (os error 5)", "I/O error"),
            ("Is a directory", "is a directory"),
        ] {
            assert_eq!(cause(&io::Error::other(text)), want.into());
        }
    }

    /// Root is allowed what a mode denies, and not what a security module does.
    #[test]
    fn only_eacces_is_denied_to_this_user() {
        for (errno, kind) in [
            (Errno::EACCES, FaultKind::Denied),
            (Errno::EPERM, FaultKind::Other),
            (Errno::EIO, FaultKind::Other),
        ] {
            let cause = cause(&io::Error::from_raw_os_error(errno as i32));
            assert_eq!(cause.kind, kind, "{cause}");
            let at = Fault::at(cause, "/etc/x").or_remedy("a remedy");
            assert_eq!(super::cause(&io::Error::other(at)).kind, kind);
        }
    }

    #[test]
    fn a_stamp_has_the_seven_values_of_stat() {
        let tree = Tree::empty("stamp");
        tree.write("file", b"four");
        let path = tree.path().join("file");
        let of = || Stamp::of(&fs::metadata(&path).unwrap());
        let stat = stat(&path).unwrap();
        assert_eq!(of().file, [stat.st_dev, stat.st_ino, 4].map(u64::from));
        let times = [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)];
        let times = times.map(|(seconds, nanos)| [i64::from(seconds), i64::from(nanos)]);
        assert_eq!(of().times[..2], times[0]);
        assert_eq!(of().times[2..], times[1]);
        // Only the time of the inode can be told from these two.
        let (before, link) = (of(), tree.path().join("link"));
        std::thread::sleep(std::time::Duration::from_millis(30));
        fs::hard_link(&path, link).unwrap();
        assert_eq!(of().file, before.file);
        assert_eq!(of().times[..2], before.times[..2]);
        assert_ne!(of(), before);
    }

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
            let got = read_found(&tree.path().join(name)).map(|bytes| bytes.len());
            assert_eq!(got.map_err(|e| cause(&e)), want.map_err(Fault::from), "{name}");
        }
    }
}
