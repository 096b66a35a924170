//! `--node-condition`: a condition that is True while its file exists.

use std::io;

use nix::errno::Errno;

use super::condition_state::{MAX_MESSAGE, cut};
use super::config::FileCondition;
use crate::kube::facts::HealthCondition;

const FILE_EXISTS: &str = "FileExists";
const FILE_MISSING: &str = "FileMissing";
/// Limit of a reason in a file (metav1.Condition allows 1024).
const MAX_REASON: usize = 63;

/// The first line of a file that was found, from its read. It is empty if the file is larger than
/// 1 MiB, or no regular file. If the file may not be read, it exists nevertheless: the line is that
/// of `before`, or empty.
pub(super) fn line(read: io::Result<Vec<u8>>, before: Option<&String>) -> io::Result<String> {
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            // The error is not the kernel's, or the file is a socket.
            None | Some(Errno::ENXIO) => Vec::new(),
            Some(Errno::EACCES) => return Ok(before.cloned().unwrap_or_default()),
            Some(_) => return Err(error),
        },
    };
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// A `--node-condition`, from the file's first line: `text`, or `Reason: text`. Without a text the
/// message names flag and file.
pub(super) fn condition(file: &FileCondition, line: Option<&str>) -> HealthCondition {
    let is_reason = |word: &&str| {
        word.len() <= MAX_REASON
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let says = |what: &str| {
        cut(&format!("--node-condition: {what}: {}", file.path.display()), MAX_MESSAGE)
    };
    let (reason, message) = match line.map(|line| (line, line.split_once(": "))) {
        None => (FILE_MISSING, says("no such file")),
        Some((line, parts)) => {
            let (reason, text) =
                parts.filter(|(word, _)| is_reason(word)).unwrap_or((FILE_EXISTS, line));
            match text.trim() {
                "" => (reason, says("the file exists")),
                text => (reason, cut(text, MAX_MESSAGE)),
            }
        }
    };
    HealthCondition {
        name: file.name.clone().into(),
        is_true: line.is_some(),
        reason: reason.to_owned().into(),
        message: message.into(),
        event_reason: if line.is_some() { FILE_EXISTS } else { FILE_MISSING },
        is_always_listed: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of another user may be one for ever, and be readable for a moment.
    #[test]
    fn of_a_file_that_exists_an_error_is_no_text() {
        let old = "OnBattery: 20 %".to_owned();
        for before in [None, Some(&old)] {
            let error = |errno: Errno| line(Err(errno.into()), before).ok();
            assert_eq!(error(Errno::EIO), None);
            assert_eq!(error(Errno::EACCES), Some(before.cloned().unwrap_or_default()));
            assert_eq!(error(Errno::ENXIO).as_deref(), Some(""), "a socket");
            let refused = io::Error::other("larger than 1048576 bytes");
            assert_eq!(line(Err(refused), before).ok().as_deref(), Some(""));
        }
    }
}
