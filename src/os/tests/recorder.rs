//! Records the file operations of this thread, and makes its disk full or read-only.

use std::cell::RefCell;

use nix::errno::Errno;

use crate::kube::text::Fault;
use crate::os::read::cause;
use crate::os::write::Op;

#[derive(Default)]
struct Recorder {
    done: Vec<Op>,
    refuses: Option<Errno>,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Starts to record.
pub(crate) fn start() {
    RECORDER.set(Some(Recorder::default()));
}

/// The operations since the last call.
pub(crate) fn take() -> Vec<Op> {
    RECORDER.with_borrow_mut(|recorder| {
        recorder.as_mut().map(|recorder| std::mem::take(&mut recorder.done)).unwrap_or_default()
    })
}

/// From now on, with ENOSPC no operation gets space, and with EROFS none changes anything.
pub(crate) fn refuse(errno: Option<Errno>) {
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            recorder.refuses = errno;
        }
    });
}

/// The error of an operation that the disk refuses.
pub(crate) fn check(op: &Op) -> Result<(), Fault> {
    let refuses = RECORDER.with_borrow(|recorder| recorder.as_ref()?.refuses);
    let path = match (op, refuses) {
        (_, None) | (Op::Sync(_), _) => return Ok(()),
        (Op::Rename(..) | Op::Remove(_), Some(Errno::ENOSPC)) => return Ok(()),
        // rename(2) and unlink(2) of a missing file say so first.
        (Op::Remove(path), _) if !path.is_symlink() && !path.exists() => return Ok(()),
        (
            Op::Folder(path, _)
            | Op::Write(path, ..)
            | Op::Link(_, path)
            | Op::Rename(_, path)
            | Op::Remove(path),
            _,
        ) => path,
    };
    // It is in memory.
    if path.iter().any(|part| part == "run") {
        return Ok(());
    }
    let why = refuses.map(|errno| cause(&errno.into())).unwrap_or_default();
    Err(why.at(path.display()))
}

pub(crate) fn add(op: &Op) {
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            recorder.done.push(op.clone());
        }
    });
}
