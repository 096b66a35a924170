//! The mount table of this process, read again only after a change.
//!
//! `guard` needs the table before every file access. To read and parse it takes 200,000 instructions
//! on arm64, to ask the kernel for a change 1,200.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;

use super::mounts::{MOUNTINFO, Mount, parse_mountinfo, without_root};
use super::open::{LARGE, has_changed, open, whole_from_start};

#[derive(Debug)]
struct Table {
    /// Opened before the table was read, so that no change is missed.
    file: File,
    mounts: Rc<[Mount]>,
    below_root: Rc<[Mount]>,
}

thread_local! {
    /// A copy of a kernel file, not a state: no caller can tell it from a new read.
    static LAST_READ: Cell<Option<Table>> = const { Cell::new(None) };
}

/// The current mounts of this process, in the kernel's order. The same allocation as before while no
/// mount changes.
pub fn all_mounts() -> io::Result<Rc<[Mount]>> {
    current(|table| &table.mounts)
}

/// The current mounts of this process but that of `/`. Empty if the table cannot be read: then
/// nothing is refused.
pub fn own_mounts() -> Rc<[Mount]> {
    current(|table| &table.below_root).unwrap_or_default()
}

fn current(list: fn(&Table) -> &Rc<[Mount]>) -> io::Result<Rc<[Mount]>> {
    let last = LAST_READ.take().filter(|table| !has_changed(&table.file));
    let table = last.map_or_else(read, Ok)?;
    let mounts = list(&table).clone();
    LAST_READ.set(Some(table));
    Ok(mounts)
}

fn read() -> io::Result<Table> {
    // The path is not checked: procfs does not block.
    let file = open(&Path::new("/").join(MOUNTINFO))?;
    let bytes = whole_from_start(&file, LARGE)?;
    Ok(table(file, &String::from_utf8_lossy(&bytes)))
}

fn table(file: File, mountinfo: &str) -> Table {
    let mounts = parse_mountinfo(mountinfo);
    Table {
        file,
        below_root: without_root(mounts.clone()).into(),
        mounts: mounts.into(),
    }
}

/// Makes `mountinfo` the table of this thread, until a mount changes.
#[cfg(test)]
pub(crate) fn pretend(mountinfo: &str) {
    let file = open(&Path::new("/").join(MOUNTINFO)).unwrap();
    LAST_READ.set(Some(table(file, mountinfo)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_once_while_no_mount_changes() {
        // Another process may mount something between two calls.
        let is_same = || Rc::ptr_eq(&own_mounts(), &own_mounts());
        assert!((0..100).any(|_| is_same()));
        let is_same = || Rc::ptr_eq(&all_mounts().unwrap(), &all_mounts().unwrap());
        assert!((0..100).any(|_| is_same()));
    }

    #[test]
    fn one_list_has_the_root_and_the_other_has_not() {
        let points = |mounts: &[Mount]| -> Vec<String> {
            let point = |mount: &Mount| mount.point.display().to_string();
            mounts.iter().map(point).collect()
        };
        let all = points(&all_mounts().unwrap());
        assert!(all.contains(&"/".to_owned()) && all.contains(&"/proc".to_owned()));
        let below = points(&own_mounts());
        assert!(!below.contains(&"/".to_owned()) && below.contains(&"/proc".to_owned()));
    }
}
