//! Opens and reads a file without waiting, up to a size. The path is not checked: see `guard`.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

/// Bytes, for files of /proc and /sys with a fixed set of lines.
pub const SMALL: u64 = 64 << 10;
/// Bytes, for files that grow: routes, mounts, a bundle of all public root certificates (220 KiB).
pub const LARGE: u64 = 1 << 20;

/// Opens a file for [`whole`]. O_NONBLOCK: a FIFO without a writer must not block.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::empty())
}

/// [`open`] with additional flags of open(2). By openat(2): musl's open(2), which std calls, is
/// followed by a call of fcntl(2) that sets O_CLOEXEC again.
pub(crate) fn open_with(path: &Path, flags: OFlag) -> io::Result<File> {
    let file = openat(AT_FDCWD, path, FLAGS | flags, Mode::empty())?;
    Ok(file.into())
}

/// Flags of open(2) for every file that is opened.
pub(crate) const FLAGS: OFlag = OFlag::O_NONBLOCK
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// The content of a file opened by [`open`], at most `limit` bytes. A folder, or a FIFO or device
/// without data, is an error.
pub(crate) fn whole(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut read = |buffer: &mut [u8]| (&file).read(buffer);
    bounded(&mut read, &file, limit, &mut is_end(limit))
}

/// [`whole`] of a file that stays open: pread(2) from its start.
pub(crate) fn whole_from_start(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    from_start(file, limit, &mut is_end(limit))
}

/// [`whole_from_start`], but not further than `is_enough`, which gets all bytes that are read so far.
pub(crate) fn from_start(file: &File, limit: u64, is_enough: Enough<'_>) -> io::Result<Vec<u8>> {
    let mut offset = 0;
    let mut read = |buffer: &mut [u8]| {
        let length = file.read_at(buffer, offset)?;
        offset += length as u64;
        Ok(length)
    };
    bounded(&mut read, file, limit, is_enough)
}

/// Bytes that are read at once.
const CHUNK: usize = 4096;

/// A short read is the end of a disk file or of a kernel file of one record. A kernel file that is a
/// list (seq_file) can end a read early, when its next record does not fit the buffer.
pub(crate) fn is_end(limit: u64) -> impl FnMut(&[u8]) -> bool {
    move |bytes| bytes.len() < CHUNK && limit <= SMALL
}

/// Whether the kernel reported a change of this file since it was opened or last asked: POLLPRI of
/// poll(2). True if that is unknown. Mountinfo (proc_pid_mountinfo(5)) and some attributes of sysfs
/// report changes; a sysfs attribute must be read after each report.
pub(crate) fn has_changed(file: &File) -> bool {
    let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
    poll(&mut polled, PollTimeout::ZERO) != Ok(0)
}

type Reader<'a> = &'a mut dyn FnMut(&mut [u8]) -> io::Result<usize>;
pub(crate) type Enough<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Not by `read_to_end`, which is 800 bytes of code for each type of reader.
fn bounded(
    read: Reader<'_>,
    file: &File,
    limit: u64,
    is_enough: Enough<'_>,
) -> io::Result<Vec<u8>> {
    let (mut buffer, mut bytes) = ([0; CHUNK], Vec::new());
    loop {
        // fstat only if no bytes were read: it saves a system call for most kernel files.
        let length = match read(&mut buffer) {
            Ok(length) if length > 0 => length,
            _ if bytes.is_empty() && !file.metadata()?.is_file() => {
                return Err(io::Error::other("not a regular file"));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            end => return end.map(|_| bytes),
        };
        bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
        if !u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
            return Err(io::Error::other(format!("larger than {limit} bytes")));
        }
        if is_enough(&bytes) {
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a kernel file whose reads end after these lengths, and how many reads it took.
    fn read(lengths: &[usize], limit: u64) -> (Result<usize, String>, usize) {
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
            assert_eq!(read(lengths, limit), (want, reads), "{lengths:?}");
        }
    }

    #[test]
    fn a_file_is_not_read_further_than_asked() {
        let file = File::open("/proc/self/smaps").unwrap();
        let mut reads = 0;
        let mut is_enough = |bytes: &[u8]| {
            reads += 1;
            bytes.len() > CHUNK
        };
        let bytes = from_start(&file, LARGE, &mut is_enough).unwrap();
        assert!(bytes.len() <= 2 * CHUNK && reads == 2, "{reads}");
    }
}
