//! Records the file operations of this thread.

use std::cell::RefCell;

use crate::os::write::Op;

thread_local! {
    static DONE: RefCell<Option<Vec<Op>>> = const { RefCell::new(None) };
}

/// Starts to record.
pub(crate) fn start() {
    DONE.set(Some(Vec::new()));
}

/// The operations since the last call.
pub(crate) fn take() -> Vec<Op> {
    DONE.with_borrow_mut(|done| done.as_mut().map(std::mem::take).unwrap_or_default())
}

pub(crate) fn add(op: &Op) {
    DONE.with_borrow_mut(|done| {
        if let Some(done) = done {
            done.push(op.clone());
        }
    });
}
