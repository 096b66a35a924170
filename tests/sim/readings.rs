//! How the board's files are read: right, late, or not at all; and what the world tells of the
//! board, so that a sentence can compare it with the Node.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use super::devices::Hardware;
use super::draw::draw;
use super::process::{Pid, Signal};
use super::trace::What;
use super::world::{Event, World};
use crate::kube::facts::{FsStats, Interface, Read, Unread};
use crate::os::write::Op;

/// What a fault of reading may mean, by its target modulo [`WAYS`]; 0 is a quarter of all paths.
const PLACES: [&str; 24] = [
    "proc/meminfo",
    "proc/loadavg",
    "proc/net/route",
    "proc/net/ipv6_route",
    "proc/self/mountinfo",
    "proc/sys/kernel/random/boot_id",
    "proc/sys/kernel/",
    "proc/stat",
    "proc/vmstat",
    "proc/fs/ext4/",
    "sys/fs/ext4/",
    "sys/dev/block/",
    "sys/kernel/",
    "sys/class/thermal/",
    "sys/class/hwmon/",
    "sys/class/net/",
    "sys/devices/system/cpu/",
    "sys/devices/system/edac/",
    "sys/block/",
    "sys/fs/cgroup/",
    "etc/hosts",
    "etc/os-release",
    "etc/fstab",
    "var/lib/nodelet/boots",
];

/// How often a fault of reading strikes: always, or one time in so many, by its target divided by
/// [`WAYS`].
const ONE_IN: [u64; 3] = [1, 3, 12];
const WAYS: u64 = 32;

/// The highest target of a fault of reading.
pub(crate) const TARGETS: u64 = WAYS * 3 - 1;

impl World {
    /// Whether a fault of reading with this target strikes a path this time.
    fn strikes(&self, class: &str, path: &str, target: u64) -> bool {
        let is_meant = match usize::try_from(target % WAYS).expect("small") {
            0 => draw(self.plan.seed, path, target).is_multiple_of(4),
            place => match PLACES.get(place - 1) {
                Some(place) => path.starts_with(place),
                None => draw(self.plan.seed, path, target).is_multiple_of(16),
            },
        };
        let one_in = ONE_IN[usize::try_from(target / WAYS).expect("small").min(2)];
        is_meant && self.is_met(class, self.reads, one_in)
    }

    /// Once in each step of its class, a driver that tells the board's health hangs.
    fn hangs(&self, path: &str) -> Option<u64> {
        let is_health = ["sys/class/thermal/", "sys/class/hwmon/", "sys/block/"];
        let is_meant = !self.has_hung && is_health.iter().any(|folder| path.starts_with(folder));
        self.faults.size("reads-hang").filter(|_| is_meant)
    }

    /// How slow the read or the listing of a path is, and how it ends.
    fn touches(&mut self, path: &str, is_cold: bool) -> (Duration, io::Result<()>) {
        if self.faults.is_empty() {
            return (Duration::ZERO, Ok(()));
        }
        self.reads += 1;
        if self.is_unread(path) {
            return (Duration::ZERO, Err(Errno::EIO.into()));
        }
        let is_kernel = ["proc/", "sys/", "run/"].iter().any(|folder| path.starts_with(folder));
        let strikes = |class: &'static str| {
            let of_class = self.faults.of(class);
            let mut met = of_class.filter(|(_, target)| self.strikes(class, path, *target));
            met.next().map(|(size, _)| size)
        };
        let card = |class: &str| self.faults.size(class).filter(|_| !is_kernel);
        let slow = match self
            .hangs(path)
            .or_else(|| strikes("reads-slow").or_else(|| strikes("look-ends")))
        {
            Some(millis) => millis,
            None => {
                let is_slow = |_: &u64| draw(self.plan.seed, path, 1).is_multiple_of(4);
                card("card-reads-slow").filter(|_| is_cold).filter(is_slow).unwrap_or(0)
            }
        };
        // Without the table of mounts no other file is read at all: it fails only if that is meant.
        let is_table = path == "proc/self/mountinfo";
        let errno = strikes("reads-fail").filter(|_| !is_table).or_else(|| {
            let one_in = card("card-reads-fail")?;
            self.is_met("card-reads-fail", self.reads, one_in).then_some(5)
        });
        let end = errno.map_or(Ok(()), |errno| {
            let errno = i32::try_from(errno).expect("an errno");
            Err(Errno::from_raw(errno).into())
        });
        let slow = Duration::from_millis(slow);
        let gone = self.root_gone_until.saturating_sub(self.now);
        let slow = if is_kernel { slow } else { slow.max(gone) };
        // Only a pair that was just stored has no path here.
        let is_of_pair = path.is_empty() || path.starts_with("var/lib/nodelet/pki/");
        if is_of_pair || ["etc/resolv.conf", "etc/hosts", "etc/nsswitch.conf"].contains(&path) {
            self.waits_until = self.waits_until.max(self.now + slow);
        }
        self.has_hung |= slow >= Duration::from_secs(60) && is_kernel;
        if end.is_err() || slow >= Duration::from_millis(200) {
            self.tell(What::Reads { path: path.to_owned(), slow, failed: end.is_err() });
        }
        (slow, end)
    }

    /// How slow the read of an open file is, and how it ends.
    pub(crate) fn reads(&mut self, pid: Pid, inode: u64) -> (Duration, io::Result<()>) {
        let is_cold = self.board.is_cold(inode);
        if let Some(answer) = self.command_reads(pid, inode) {
            return answer;
        }
        if self.board.is_gone(inode) {
            return (Duration::ZERO, Err(Errno::ENODEV.into()));
        }
        if self.faults.is_empty() {
            return (Duration::ZERO, Ok(()));
        }
        let path = self.board.path_of(inode).map_or_else(
            || if self.board.is_boots(inode) { BOOTS.to_owned() } else { String::new() },
            str::to_owned,
        );
        self.touches(&path, is_cold)
    }

    /// How slow the listing of a folder is, and how it ends.
    pub(crate) fn lists(&mut self, folder: &Path) -> (Duration, io::Result<()>) {
        let path = format!("{}/", folder.display());
        self.touches(path.trim_start_matches('/'), true)
    }

    /// The kernel computes a file for this read.
    pub(crate) fn computes(&mut self, inode: u64) {
        let Some(path) = self.board.path_of(inode) else { return };
        if path == "proc/uptime" || path == "proc/stat" {
            let (path, now, wall) = (path.to_owned(), self.now, self.board_wall().seconds());
            self.board.before_read(&path, now, wall);
        }
    }

    pub(crate) fn statvfs(&mut self, _: &Path) -> Read<Read<Option<FsStats>>> {
        if self.faults.has("statvfs-fails") {
            return Err(Unread::new("statvfs", "simulated"));
        }
        Ok(Ok(Some(self.board.hardware.statvfs())))
    }

    pub(crate) fn interfaces(&mut self) -> Read<Vec<Interface>> {
        if self.faults.has("interfaces-fail") {
            return Err(Unread::new("rtnetlink", "simulated"));
        }
        Ok(self.board.hardware.interfaces())
    }

    // --- what the world tells ---

    /// Tells what is true of the board, if it changed.
    pub(crate) fn tell_truth(&mut self) {
        let wall = self.board_wall().seconds();
        let booted = wall.saturating_sub(self.now.saturating_sub(self.board.booted).as_secs());
        let hardware = &mut self.board.hardware;
        for disk in [&mut hardware.root, &mut hardware.data] {
            disk.is_dated = (booted..=wall).contains(&disk.last_error);
            disk.is_soon_dated = (booted..=wall + 60).contains(&disk.last_error);
        }
        let truth = self.board.truth();
        if self.board.is_on && self.told.as_deref() != Some(&truth) {
            self.told = Some(Box::new(truth.clone()));
            self.tell(What::Board(Box::new(truth)));
        }
    }

    /// A file was changed by an operation.
    pub(crate) fn note_boots(&mut self, op: &Op) {
        if let Op::Rename(_, to) = op
            && to.ends_with(BOOTS)
        {
            self.tell_boots(true);
        }
    }

    pub(super) fn tell_boots(&mut self, is_written: bool) {
        let text = self.board.read(BOOTS).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        self.tell(What::Boots { is_written, text });
    }

    // --- an initramfs before the root ---

    /// The kernel starts. With an initramfs the agent runs before the root is mounted, without the
    /// files of the root.
    pub(crate) fn boots_kernel(&mut self) {
        let now = self.now;
        self.board.uncover_root();
        let has_initramfs = self.plan.setting("initramfs") == "yes"
            && matches!(self.plan.setting("auth"), "inline" | "token");
        self.board.is_early = has_initramfs;
        if has_initramfs {
            self.board.cover_root();
            let waits = match draw(self.plan.seed, "initramfs", self.board.boots) % 3 {
                0 => 170,
                others => 15 * others,
            };
            self.board.early_until = now + Duration::from_secs(waits);
            self.plan_at(self.board.early_until, Event::Calls(Self::leave_initramfs));
        }
        self.board.boot(now);
        self.tell_truth();
        self.tell_boots(false);
    }

    /// The initramfs stops its agent, and switches to the root.
    fn leave_initramfs(&mut self) {
        let until = self.board.early_until;
        if !self.board.is_on || !self.board.is_early || self.now < until {
            return;
        }
        if self.now < until + Duration::from_secs(3) {
            self.unit.is_stopping = true;
            self.signal(Signal::Term);
            self.plan_at(until + Duration::from_secs(3), Event::Calls(Self::leave_initramfs));
            return;
        }
        self.kill_agent();
        self.board.is_early = false;
        self.board.uncover_root();
        self.hardware(|_| {});
        self.tell_boots(false);
        self.unit.is_stopping = false;
        self.start_in(Duration::from_secs(2));
    }

    // --- the hardware, over time ---

    /// The supply drops for a second, so many times, 40 s apart.
    pub(crate) fn drop_voltage(&mut self, times: u64) {
        let drop: fn(&mut Self) = |world| {
            world.hardware(|h| (h.is_undervolted, h.drops) = (true, h.drops + 1));
            let later = world.now + Duration::from_secs(2);
            world
                .plan_at(later, Event::Calls(|world| world.hardware(|h| h.is_undervolted = false)));
        };
        for time in 0..times {
            self.plan_at(self.now + Duration::from_secs(40 * time), Event::Calls(drop));
        }
    }

    /// The driver of the voltage is bound only so many seconds after a start of the kernel, which
    /// is now.
    pub(crate) fn bind_late(&mut self, seconds: u64) {
        self.lose_power(5);
        self.hardware(|h| h.has_voltage_driver = false);
        let later = self.now + Duration::from_secs(5 + seconds);
        let bind: fn(&mut Self) = |world| world.bind_voltage();
        self.plan_at(later, Event::Calls(bind));
    }

    /// The driver of the voltage is bound; its folder has another number.
    pub(crate) fn bind_voltage(&mut self) {
        self.hardware(|h| {
            if h.setting("board") != "pc" && !h.has_voltage_driver {
                (h.has_voltage_driver, h.voltage_chip) = (true, h.voltage_chip + 1);
            }
        });
    }

    /// The power of a supply that is too weak comes back.
    pub(crate) fn brown_out(&mut self, seconds: u64) {
        self.hardware(|h| (h.is_undervolted, h.drops) = (true, h.drops + 1));
        self.bind_late(seconds);
    }

    /// An error of an ext4: 0 is the root's, 1 that of the data disk.
    pub(crate) fn fail_disk(&mut self, which: u64) {
        // Without a kernel nothing is read or written.
        if !self.board.is_on {
            return;
        }
        let wall = self.board_wall().seconds();
        self.hardware(|h| if which == 0 { h.root.fail(wall) } else { h.data.fail(wall) });
    }

    /// fsck at a reboot: no errors are on record.
    pub(crate) fn check_disks(&mut self) {
        self.hardware(|h| (h.root.errors, h.data.errors) = (0, 0));
        self.reboot(20);
    }

    /// The watchdog resets the board.
    pub(crate) fn reset_by_watchdog(&mut self) {
        self.lose_power(5);
        self.board.hardware.is_reset = true;
    }

    /// The names of /etc/hosts: 0 has none for the Node, 1 that of wlan0, 2 that of eth0.
    pub(crate) fn name_node(&mut self, which: u64) {
        self.hardware(|h| {
            h.named = match which {
                0 => None,
                1 => h.second(),
                _ => h.addresses.iter().copied().find(IpAddr::is_ipv4),
            }
        });
        self.set_names();
        self.restart_for_a_file();
    }

    /// A change of the hardware that a class names.
    pub(crate) fn sets(&mut self, change: fn(&mut Hardware)) {
        self.hardware(change);
    }
}

/// The history of boots.
const BOOTS: &str = "var/lib/nodelet/boots";

impl super::board::Board {
    fn is_boots(&self, inode: u64) -> bool {
        inode != 0 && self.inode(BOOTS) == inode
    }

    /// The files of the root are not there yet.
    fn cover_root(&self) {
        self.folder(".root");
        self.rename("var/lib/nodelet", ".root/nodelet");
        self.rename("etc/fstab", ".root/fstab");
        self.folder("var/lib/nodelet");
    }

    fn uncover_root(&self) {
        if self.has(".root/nodelet") {
            self.remove_all("var/lib/nodelet");
            self.rename(".root/nodelet", "var/lib/nodelet");
            self.rename(".root/fstab", "etc/fstab");
        }
    }
}
