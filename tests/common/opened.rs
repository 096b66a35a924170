//! Which files are opened, by inotify.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use support::Folder;

use super::tree;

pub const BOARDS: [&str; 3] = ["vm-x86_64-hybrid", "qemu-arm64-debian", "qemu-armv7-debian"];

pub fn board(name: &str) -> PathBuf {
    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards");
    boards.join(name)
}

/// How often each file and each folder below `root` is opened during `act`.
fn opened(root: &Path, act: impl FnOnce()) -> BTreeMap<PathBuf, usize> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    let watch =
        |folder: PathBuf| (inotify.add_watch(&folder, AddWatchFlags::IN_OPEN).unwrap(), folder);
    let folders = tree::walk(root).into_iter().filter(|path| tree::is_folder(path));
    let watches: HashMap<_, _> = folders.map(watch).collect();
    act();
    let mut opened = BTreeMap::new();
    loop {
        let events = match inotify.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN) => return opened,
            Err(errno) => panic!("{errno}"),
        };
        for event in events {
            assert!(!event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
            let folder = event.mask.contains(AddWatchFlags::IN_ISDIR);
            // A folder has an event of its own and one of its parent.
            let path = match event.name {
                Some(_) if folder => continue,
                Some(name) => watches[&event.wd].join(name),
                None => watches[&event.wd].clone(),
            };
            let path = path.strip_prefix(root).unwrap().to_path_buf();
            *opened.entry(path).or_default() += 1;
        }
    }
}

/// How often each file and each folder of a board is opened during `act`, which has its root.
pub fn of_board(name: &str, act: impl FnOnce(&Path)) -> BTreeMap<PathBuf, usize> {
    let folder = Folder::new("reads");
    let root = folder.path().join(name);
    // A copy: no other test opens a file of it.
    tree::copy(&board(name), &root);
    opened(&root, || act(&root))
}
