//! Simulates power cuts before, within and after each operation, with any subset of the unsynced
//! operations lost. For tests.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::path::{Path, PathBuf};

use super::tree::Tree;
use crate::os::write::{Op, parent};

/// The folder whose entries an operation changes.
fn changed_folder(op: &Op) -> Option<PathBuf> {
    match op {
        Op::Folder(path, _)
        | Op::Write(path, ..)
        | Op::Link(_, path)
        | Op::Rename(_, path)
        | Op::Remove(path) => Some(parent(path)),
        Op::Sync(_) => None,
    }
}

/// Indices of the operations that a power cut after the last one may undo.
fn volatile(ops: &[Op]) -> Vec<usize> {
    let is_volatile = |index: &usize| {
        let Some(folder) = changed_folder(&ops[*index]) else {
            return false;
        };
        !ops[index + 1..].contains(&Op::Sync(folder))
    };
    (0..ops.len()).filter(is_volatile).collect()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    support::copy(from, to, |_| None);
}

/// Puts the folder into the state after a power cut: `before` with the operations `done`, but those
/// that are `lost`, and a file that is `torn`.
fn replay(folder: &Path, before: &Path, done: &[Op], lost: &[usize], torn: Option<(&Path, &[u8])>) {
    fs::remove_dir_all(folder).unwrap();
    copy(before, folder);
    for (index, op) in done.iter().enumerate() {
        if !lost.contains(&index) {
            // An operation that depends on a lost one fails, and is lost too.
            let _ = op.carry_out();
        }
    }
    if let Some((path, content)) = torn {
        let _ = fs::write(path, content);
    }
}

/// Runs `act` once, which returns its operations and what `check` needs. Then runs `check` on the
/// state of each possible power cut. Returns their number.
pub(crate) fn survives<T>(
    folder: &Path,
    act: impl FnOnce() -> (Vec<Op>, T),
    check: impl Fn(&T, &str),
) -> usize {
    let before = Tree::empty("before");
    copy(folder, &before);
    let (ops, made) = act();
    assert_eq!(volatile(&ops), [] as [usize; 0], "unsynced after the end: {ops:#?}");
    let mut states = 0;
    let mut cut = |done: &[Op], lost: &[usize], torn: Option<(&Path, &[u8])>| {
        replay(folder, &before, done, lost, torn);
        states += 1;
        let done: Vec<String> = done.iter().map(|op| format!("{op:?}")).collect();
        check(&made, &format!("lost {lost:?} of {done:#?}, {torn:?}"));
    };
    for n in 0..=ops.len() {
        let (done, volatile) = (&ops[..n], volatile(&ops[..n]));
        assert!(volatile.len() < 8, "{volatile:?} of {done:?}");
        for subset in 0..1_usize << volatile.len() {
            let lost = volatile.iter().enumerate();
            let lost = lost.filter(|(bit, _)| subset >> bit & 1 == 1);
            let lost: Vec<usize> = lost.map(|(_, index)| *index).collect();
            cut(done, &lost, None);
            if let Some(Op::Write(path, _, content)) = ops.get(n) {
                cut(done, &lost, Some((path, b"")));
                cut(done, &lost, Some((path, &content[..content.len() / 2])));
            }
        }
    }
    states
}
