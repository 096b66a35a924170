//! The card: how operations of file changes end, cuts between and within them, and what a loss of
//! power leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstatat};

use super::board::Board;
use super::draw::draw;
use super::plan::Step;
use super::process::Pid;
use super::trace::{FileSeen, What};
use super::world::{World, relative};
use crate::kube::text::Fault;
use crate::os::read::cause;
use crate::os::write::Op;

/// The agent's certificates with their keys.
const PKI: &str = "var/lib/nodelet/pki";
const CURRENT: &str = "var/lib/nodelet/pki/kubelet-client-current.pem";
/// The kubeconfig of a join.
const CREDSTORE: &str = "etc/credstore";

/// What is known of the card.
#[derive(Debug, Default)]
pub(crate) struct Card {
    /// The operations of file changes whose names are not synced.
    pub(crate) unsynced: Vec<Undo>,
    pending: Option<Undo>,
    /// Each content that was written as a whole.
    written: BTreeSet<Vec<u8>>,
    /// A link to a whole pair is on the card for good.
    pub(crate) has_identity: bool,
    /// A join has put another identity in its place, whose kubeconfig is on the card for good.
    is_replaced: bool,
    /// The last operation that writes `podcidr` failed.
    pub(super) refused_cidr: bool,
    cut: Option<Cut>,
}

/// The kernel writes back within this time what nobody has synced: `vm.dirty_expire_centisecs`, and
/// a commit of the journal.
const WRITTEN_BACK: Duration = Duration::from_secs(60);

/// How to take an operation back that a loss of power may undo.
#[derive(Debug)]
pub(crate) struct Undo {
    at: Duration,
    folder: String,
    /// What was at a path before: a file, a link, or nothing.
    before: Vec<(String, Before)>,
}

#[derive(Clone, Debug)]
enum Before {
    File(Vec<u8>),
    Link(String),
    Nothing,
}

/// The power fails, or the process is killed, at an operation of a file change.
#[derive(Debug)]
struct Cut {
    /// Operations before it.
    left: u64,
    is_kill: bool,
    /// A part of a file is written before.
    is_torn: bool,
    /// It waits for a sync: just before it most may be lost.
    waits_for_sync: bool,
}

impl Cut {
    /// By the bits of a target: of [`World::arm_cut`].
    const KILL: u64 = 1;
    const TORN: u64 = 2;
    const CAUSE: u64 = 4;
    const SYNC: u64 = 8;
}

/// The highest target of a cut.
pub(crate) const CUTS: u64 = Cut::KILL | Cut::TORN | Cut::CAUSE | Cut::SYNC;

impl Card {
    /// A loss of power takes these operations back no more.
    fn put(&mut self, is_put: impl Fn(&Undo) -> bool) {
        let is_kubeconfig = |(path, _): &(String, Before)| path.ends_with("kubeconfig");
        let is_other = |undo: &Undo| {
            undo.folder == CREDSTORE && undo.before.iter().any(is_kubeconfig) && is_put(undo)
        };
        self.is_replaced |= self.unsynced.iter().any(is_other);
        self.unsynced.retain(|undo| !is_put(undo));
    }
}

impl World {
    /// The `size`-th operation from now on is cut off.
    pub(crate) fn arm_cut(&mut self, step: &Step) {
        let has = |bit: u64| step.target & bit != 0;
        self.card.cut = Some(Cut {
            left: step.size,
            is_kill: has(Cut::KILL),
            is_torn: has(Cut::TORN),
            waits_for_sync: has(Cut::SYNC),
        });
        if has(Cut::CAUSE) && self.board.is_on {
            // A start with another kubeconfig stores its pair.
            self.replace_kubeconfig(0);
            self.restart_unit();
        }
    }

    pub(crate) fn disarm_cut(&mut self) {
        self.card.cut = None;
    }

    /// Whether an operation is cut off, which then happens.
    fn is_op_cut(&mut self, op: &Op) -> bool {
        let Some(cut) = &mut self.card.cut else { return false };
        cut.left = cut.left.saturating_sub(1);
        if cut.left > 0 || cut.waits_for_sync && !matches!(op, Op::Sync(_)) {
            return false;
        }
        let (is_kill, is_torn) = (cut.is_kill, cut.is_torn);
        self.card.cut = None;
        if let Op::Write(path, _, content) = op
            && is_torn
        {
            self.write_part(path, content);
        }
        match is_kill {
            true => self.kill_agent(),
            false => self.lose_power(20),
        }
        true
    }

    fn write_part(&mut self, path: &Path, content: &[u8]) {
        let part = &content[..content.len() / 2];
        self.board.put(relative(&path.display().to_string()), part);
    }

    /// How slow an operation of a file change is, and how it ends.
    pub(crate) fn changes(&mut self, pid: Pid, op: &Op) -> (Duration, Result<(), Fault>) {
        if self.is_cut(pid, true) {
            self.cut(pid);
        }
        self.search_file(op);
        let path = match op {
            Op::Folder(path, _)
            | Op::Write(path, ..)
            | Op::Link(_, path)
            | Op::Rename(_, path)
            | Op::Remove(path)
            | Op::Sync(path) => path,
        };
        let shown = path.display().to_string();
        let is_command = self.people.commands.contains_key(&pid);
        if shown.starts_with("/run/") || self.is_op_cut(op) {
            return (Duration::from_millis(u64::from(is_command)), Ok(()));
        }
        self.acts += 1;
        let slow = self.faults.size("disk-slow").unwrap_or(5 * u64::from(is_command));
        let slow = Duration::from_millis(slow);
        let slow = slow.max(self.root_gone_until.saturating_sub(self.now));
        if shown.contains("/pki/") {
            self.waits_until = self.waits_until.max(self.now + slow);
        }
        // rename(2) and unlink(2) of a missing file say so first.
        let is_missing = matches!(op, Op::Remove(_)) && !self.board.has(relative(&shown));
        let refused = self.refuses(op, &shown).filter(|_| !is_missing);
        if shown.contains("/podcidr") {
            let is_former = matches!(op, Op::Remove(_)) && self.card.refused_cidr;
            self.card.refused_cidr = refused.is_some() || is_former;
        }
        if let Some(errno) = refused {
            if let (Op::Write(path, _, content), Errno::ENOSPC) = (op, errno) {
                self.write_part(path, content);
            }
            let is_of_pair = shown.starts_with("/var/lib/nodelet/pki/");
            match op {
                Op::Remove(_) => {
                    self.tell(What::File { op: format!("{op:?} fails") });
                    let path = relative(&shown).to_owned();
                    let commands = self.people.commands.values_mut();
                    commands.for_each(|command| command.leftovers.push(path.clone()));
                }
                _ => self.people.has_lost_pair |= is_of_pair,
            }
            return (slow, Err(cause(&errno.into()).at(shown)));
        }
        self.card.pending = self.undo_of(op);
        (slow, Ok(()))
    }

    /// Why an operation fails, if it does.
    fn refuses(&self, op: &Op, path: &str) -> Option<Errno> {
        let faults = &self.faults;
        let needs_space = matches!(op, Op::Folder(..) | Op::Write(..) | Op::Link(..));
        let is_sync = matches!(op, Op::Sync(_));
        match () {
            () if faults.has("disk-full") && needs_space => Some(Errno::ENOSPC),
            // Room for a file, and none for its name.
            () if faults.has("links-refused") && matches!(op, Op::Link(..)) => Some(Errno::ENOSPC),
            () if faults.has("boots-unwritable") && path.contains("nodelet/boots") => {
                Some(Errno::EROFS)
            }
            () if faults.has("disk-read-only") && !is_sync => Some(Errno::EROFS),
            () if self.is_read_only() && !is_sync => Some(Errno::EROFS),
            () if matches!(op, Op::Rename(..)) && self.is_in_the_way(path) => Some(Errno::EBUSY),
            () => {
                let one_in = faults.size("disk-broken")?;
                self.is_met("disk-broken", self.acts, one_in).then_some(Errno::EIO)
            }
        }
    }

    fn undo_of(&self, op: &Op) -> Option<Undo> {
        let text = |path: &Path| relative(&path.display().to_string()).to_owned();
        let paths = match op {
            Op::Folder(path, _) | Op::Write(path, ..) | Op::Link(_, path) | Op::Remove(path) => {
                vec![text(path)]
            }
            Op::Rename(from, to) => vec![text(from), text(to)],
            Op::Sync(_) => return None,
        };
        let last = paths.last()?;
        let folder = last.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let before = |path: String| {
            let before = self.content(&path);
            (path, before)
        };
        Some(Undo { at: self.now, folder, before: paths.into_iter().map(before).collect() })
    }

    /// What is at a path.
    fn content(&self, path: &str) -> Before {
        match (self.board.link_target(path), self.board.read(path)) {
            (Some(target), _) => Before::Link(target),
            (None, Some(content)) => Before::File(content),
            (None, None) => Before::Nothing,
        }
    }

    pub(crate) fn file_changed(&mut self, op: &Op) {
        let card = &mut self.card;
        card.unsynced.extend(card.pending.take());
        if let Op::Write(_, _, content) = op {
            card.written.insert(content.to_vec());
        }
        if let Op::Sync(folder) = op {
            let folder = relative(&folder.display().to_string()).to_owned();
            card.put(|undo| undo.folder == folder);
            if folder == PKI {
                self.card.has_identity = self.has_whole_pair();
                self.card.is_replaced &= !self.card.has_identity;
            }
        }
        if let Op::Rename(_, to) = op {
            let to = to.display().to_string();
            self.path_changed(&to);
            self.people.has_lost_pair &= !to.starts_with("/var/lib/nodelet/pki/");
        }
        self.tell(What::File { op: format!("{op:?}") });
        self.note_boots(op);
    }

    /// All that the agent has stored of its identity goes, and not by the agent.
    pub(crate) fn remove_identity(&mut self) {
        self.board.remove_all(PKI);
        self.board.remove_all("var/lib/nodelet/kubeconfig");
        self.loses_identity();
    }

    /// A board without a certificate needs a token that lives.
    fn loses_identity(&mut self) {
        self.card.has_identity = false;
        if self.people.token_is_dead {
            self.replace_bootstrap();
        }
    }

    /// Whether the certificate of the stored pair is in use, and has not expired.
    pub(crate) fn has_valid_pair(&self) -> bool {
        self.card.has_identity && self.people.shown_until.is_some_and(|until| until > self.now)
    }

    /// A person removes what the agent has stored, but not the last certificate that is valid.
    pub(crate) fn remove_stored_pair(&mut self) {
        let life: u64 = self.plan.setting("life").parse().unwrap_or(86_400);
        let is_last = ["rotate", "rotate-file", "k3s"].contains(&self.plan.setting("auth"));
        if is_last && self.now.as_secs() >= life {
            return;
        }
        self.people.has_lost_pair = true;
        self.board.remove_all(CURRENT);
        self.loses_identity();
    }

    /// Whether the link leads to a pair that was written as a whole.
    fn has_whole_pair(&self) -> bool {
        let target = self.board.link_target(CURRENT);
        let pair = target.and_then(|target| self.board.read(relative(&target)));
        pair.is_some_and(|pair| self.card.written.contains(&pair))
    }

    /// The power fails; `seconds` later it is back.
    pub(crate) fn lose_power(&mut self, seconds: u64) {
        if !self.board.is_on {
            return;
        }
        self.kill_all();
        self.board.is_on = false;
        self.frozen_until = Duration::ZERO;
        let was_early = self.board.is_early;
        self.lose_unsynced();
        if !was_early {
            let torn = self.torn_files();
            let has_identity = self.card.has_identity && !self.card.is_replaced;
            let has_lost_identity = has_identity && !self.has_whole_pair();
            self.tell(What::PowerLost { torn, has_lost_identity });
        }
        self.boot_in(Duration::from_secs(seconds));
    }

    /// A loss of power takes back some of the operations whose folder was not synced: the last
    /// ones, as a journal does, or for each name all or none.
    fn lose_unsynced(&mut self) {
        self.card.pending = None;
        let now = self.now;
        self.card.put(|undo| now.saturating_sub(undo.at) > WRITTEN_BACK);
        let mut lost = std::mem::take(&mut self.card.unsynced);
        let draws = |word: &str, count: usize| {
            let drawn = draw(self.plan.seed, word, self.sequence) % (count as u64 + 1);
            usize::try_from(drawn).expect("few")
        };
        let mut versions: BTreeMap<String, Vec<Before>> = BTreeMap::new();
        if draws("order", 1) == 0 {
            let kept = draws("unsynced", lost.len());
            for undo in lost.drain(kept..) {
                for (path, before) in undo.before {
                    versions.entry(path).or_insert_with(|| vec![before]);
                }
            }
        } else {
            for (path, before) in lost.into_iter().flat_map(|undo| undo.before) {
                versions.entry(path).or_default().push(before);
            }
            versions.retain(|path, _| draws(path, 1) == 0);
        }
        for (path, before) in versions {
            match before.into_iter().next() {
                Some(Before::File(content)) => self.board.replace(&path, &content),
                Some(Before::Link(target)) => self.board.link(&target, &path),
                Some(Before::Nothing) => self.board.remove_all(&path),
                None => {}
            }
        }
    }

    /// A person replaces a file, perhaps one of those that the agent writes, too.
    pub(crate) fn person_writes(&mut self, path: &str, content: &[u8]) {
        self.card.written.insert(content.to_vec());
        self.board.replace(path, content);
    }

    /// Files of the agent in their place that nobody has written in this way.
    fn torn_files(&self) -> Vec<String> {
        let mut torn = Vec::new();
        for folder in ["var/lib/nodelet", PKI] {
            for name in self.board.list(folder) {
                let path = format!("{folder}/{name}");
                if let Before::File(content) = self.content(&path)
                    && !name.ends_with(".new")
                    && !self.card.written.contains(&content)
                {
                    torn.push(path);
                }
            }
        }
        torn
    }

    /// Tells which files there are.
    pub(crate) fn tell_files(&mut self, while_faulty: bool) {
        if self.board.is_early || !self.board.is_on {
            return;
        }
        let mut seen = Vec::new();
        for folder in ["etc", "var", "tmp", "run/credentials", "run/nodelet"] {
            self.board.walk(folder, &mut |path, mode, content| {
                let text = String::from_utf8_lossy(content);
                let is_secret = text.contains("PRIVATE KEY")
                    || self.secrets.iter().any(|secret| text.contains(secret.as_str()));
                seen.push(FileSeen { path: path.to_owned(), mode, is_secret });
            });
        }
        self.tell(What::Files { while_faulty, seen });
    }
}

impl Board {
    /// Calls `take` with path, mode and content of each file and link below a folder.
    pub(super) fn walk(&self, folder: &str, take: &mut dyn FnMut(&str, u32, &[u8])) {
        let root = self.root();
        for name in self.list(folder) {
            let path = format!("{folder}/{name}");
            let Ok(stat) = fstatat(&root, path.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
                continue;
            };
            match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
                SFlag::S_IFDIR => self.walk(&path, take),
                SFlag::S_IFREG => {
                    take(&path, stat.st_mode & 0o777, &self.read(&path).unwrap_or_default());
                }
                _ => take(&path, 0, &[]),
            }
        }
    }
}
