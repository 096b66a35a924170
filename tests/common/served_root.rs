//! A root file system that another process serves, as a network serves one, and that stops
//! answering: a FUSE server of folders alone, in the kernel's protocol (include/uapi/linux/fuse.h).

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, poll};

use super::board::binary;
use super::namespace::{self, Mounted};

/// Operations of the protocol.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const STATFS: u32 = 17;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Blocks of 4 KiB, and how many are free: too few for the default thresholds.
const BLOCKS: u64 = 3_000_000;
const FREE: u64 = 1000;

/// The size of the file system.
pub const KIBIBYTES: u64 = BLOCKS * 4;

/// A root in a mount namespace of the test's own. Its folders have those of this machine mounted
/// over them; each path leads through it, and each step is a question to the server.
pub struct ServedRoot {
    pub path: PathBuf,
    is_dead: Arc<AtomicBool>,
    server: Arc<File>,
    _mounted: Mounted,
}

impl ServedRoot {
    /// With what an agent needs, and the tree of `used`.
    pub fn new(used: &Path) -> Result<Self, String> {
        namespace::mounts()?;
        let server = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let server = Arc::new(server.map_err(|e| format!("/dev/fuse: {e}"))?);
        let path = PathBuf::from("/mnt");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        mount(Some("served"), &path, Some("fuse"), MsFlags::empty(), Some(options.as_str()))
            .map_err(|e| format!("mount: {e}"))?;
        let mounted = Mounted(path.clone());
        let first = |path: &Path| path.iter().nth(1).unwrap().to_str().unwrap().to_owned();
        let folders = ["lib", "lib64", "proc", "run", "sys", "usr"].map(str::to_owned);
        let folders = folders.into_iter().chain([first(Path::new(&binary())), first(used)]);
        let at = |folder: &String| Path::new("/").join(folder);
        let folders: BTreeSet<String> = folders.filter(|folder| at(folder).is_dir()).collect();
        let names: Vec<String> = folders.iter().cloned().collect();
        let is_dead = Arc::<AtomicBool>::default();
        let (death, device) = (is_dead.clone(), server.clone());
        thread::spawn(move || {
            let mut request = vec![0; 1 << 17];
            // A process that waits for a question that was read cannot be killed.
            while !death.load(Ordering::SeqCst) {
                if !is_asked(&device, 20) {
                    continue;
                }
                // An error is the end of the mount.
                let Ok(length) = (&*device).read(&mut request) else {
                    return;
                };
                answer(&device, &request[..length], &names);
            }
        });
        for folder in &folders {
            let (from, to) = (at(folder), path.join(folder));
            let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(&from), &to, None::<&str>, flags, None::<&str>)
                .map_err(|e| format!("{}: {e}", to.display()))?;
        }
        Ok(Self { path, is_dead, server, _mounted: mounted })
    }

    /// From now on the server is dead. What asks it waits for ever.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }

    /// Whether somebody has asked the server since its death, and waits.
    pub fn is_waited_for(&self) -> bool {
        is_asked(&self.server, 0)
    }
}

fn is_asked(server: &File, milliseconds: u16) -> bool {
    let mut polled = [PollFd::new(server.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, milliseconds) != Ok(0)
}

fn answer(mut server: &File, request: &[u8], names: &[String]) {
    let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
    let (unique, node) = (&request[8..16], number(16));
    let body = match number(4) {
        FORGET | BATCH_FORGET | INTERRUPT => return,
        // Version 7.31, no read-ahead, no flags, 64 KiB a write.
        INIT => Ok([words(&[7, 31, 0, 0, 0, 1 << 16, 1]), vec![0; 36]].concat()),
        LOOKUP => {
            let name = request[40..].split(|byte| *byte == 0).next().unwrap();
            let found = names.iter().position(|known| known.as_bytes() == name && node == 1);
            // The two zeroes: the kernel must ask again each time.
            let entry = |at: usize| {
                let id = at as u64 + 2;
                [longs(&[id, 0, 0, 0]), words(&[0, 0]), folder(id)].concat()
            };
            found.map(entry).ok_or(Errno::ENOENT)
        }
        GETATTR => Ok([longs(&[0, 0]), folder(node.into())].concat()),
        STATFS => {
            let amounts = longs(&[BLOCKS, FREE, FREE, 1000, 10]);
            Ok([amounts, words(&[4096, 255, 4096, 0]), vec![0; 24]].concat())
        }
        _ => Err(Errno::ENOSYS),
    };
    let (error, body) = match body {
        Ok(body) => (0, body),
        Err(errno) => (-(errno as i32), Vec::new()),
    };
    let length = u32::try_from(16 + body.len()).unwrap();
    let head = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), unique].concat();
    let _ = server.write(&[head, body].concat());
}

/// The attributes of a folder.
fn folder(id: u64) -> Vec<u8> {
    let mode = 0o40755;
    [longs(&[id, 0, 0, 0, 0, 0]), words(&[0, 0, 0, mode, 2, 0, 0, 0, 4096, 0])].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}
