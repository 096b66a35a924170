//! The card, the kernel files, and the hardware.

use std::collections::BTreeMap;

use super::{ASKED, Class, Lasts, MOMENT};
use crate::sim::devices::TOP;
use crate::sim::readings::TARGETS;

fn is_pi(setting: &BTreeMap<String, String>) -> bool {
    setting.get("board").is_none_or(|board| board != "pc")
}

fn is_pc(setting: &BTreeMap<String, String>) -> bool {
    !is_pi(setting)
}

fn has_emmc(setting: &BTreeMap<String, String>) -> bool {
    setting.get("card").is_some_and(|card| card == "emmc")
}

fn has_read_only_boot(setting: &BTreeMap<String, String>) -> bool {
    setting.get("boot").is_some_and(|boot| boot == "ro" || boot == "fstab")
}

fn has_writable_boot(setting: &BTreeMap<String, String>) -> bool {
    !has_read_only_boot(setting)
}

fn has_other_root(setting: &BTreeMap<String, String>) -> bool {
    setting.get("root").is_some_and(|root| root == "ext2" || root == "btrfs")
}

fn counts_lockups(setting: &BTreeMap<String, String>) -> bool {
    setting.get("kernel").is_some_and(|kernel| kernel == "6.18")
}

/// EIO, EAGAIN, EACCES, ENODEV, EINVAL.
pub(crate) const ERRORS: &[u64] = &[5, 11, 13, 19, 22];

fn waits(setting: &BTreeMap<String, String>) -> bool {
    setting.get("waits").is_some_and(|waits| waits == "path")
}

pub(super) const CLASSES: &[Class] = &[
    // The server of a root file system that lies on one.
    Class {
        name: "root-server-dies",
        fits: |setting| setting.get("root").is_some_and(|root| root == "overlay-nfs"),
        begin: |w, s| w.root_gone_until = w.root_gone_until.max(s.end()),
        ..ASKED
    },
    // The card.
    Class { name: "disk-full", ..ASKED },
    Class { name: "links-refused", ..ASKED },
    Class { name: "disk-read-only", ..ASKED },
    Class { name: "disk-broken", sizes: &[2, 4], ..ASKED },
    Class { name: "disk-slow", sizes: &[500, 20_000], ..ASKED },
    // Reads. The target says which ones, and how often (`readings.rs`).
    Class { name: "reads-slow", sizes: &[20, 3000], targets: TARGETS, ..ASKED },
    Class {
        name: "look-ends",
        sizes: &[400, 1100, 1500, 3000],
        targets: TARGETS,
        lasts: Lasts::Story,
        ..ASKED
    },
    // One read of the board's health, shorter than the limit of the watchdog.
    Class {
        name: "reads-hang",
        begin: |w, _| w.has_hung = false,
        sizes: &[60_000, 85_000],
        ..ASKED
    },
    Class { name: "reads-fail", sizes: ERRORS, targets: TARGETS, ..ASKED },
    Class { name: "card-reads-slow", sizes: &[100, 8000], ..ASKED },
    Class { name: "card-reads-fail", sizes: &[1, 2], ..ASKED },
    Class { name: "statvfs-fails", ..ASKED },
    Class { name: "interfaces-fail", ..ASKED },
];

/// What the board does, and what others do with it: the agent shows it, and is not disturbed.
pub(super) const HARDWARE: &[Class] = &[
    // What the Node says of its size.
    Class {
        name: "memory-low",
        begin: |w, _| w.sets(|h| h.memory_is_low = true),
        end: |w, _| w.sets(|h| h.memory_is_low = false),
        ..ASKED
    },
    Class { name: "memory-stalls", begin: |w, _| w.memory_stalls(), ..MOMENT },
    Class {
        name: "memory-resized",
        begin: |w, s| w.hardware(|h| h.memory_kib = s.size),
        sizes: &[1_048_576, 900_000, 2_097_152],
        ..MOMENT
    },
    Class {
        name: "huge-pages",
        begin: |w, s| w.hardware(|h| h.huge_pages = s.size),
        sizes: &[0, 8, 64],
        ..MOMENT
    },
    Class {
        name: "disk-low",
        begin: |w, _| w.sets(|h| h.disk_free_bytes = 1 << 30),
        end: |w, _| w.sets(|h| h.disk_free_bytes = 8 << 30),
        ..ASKED
    },
    Class {
        name: "inodes-low",
        begin: |w, _| w.sets(|h| h.inodes_free = 1000),
        end: |w, _| w.sets(|h| h.inodes_free = 900_000),
        ..ASKED
    },
    Class {
        name: "disk-resized",
        begin: |w, s| w.hardware(|h| h.disk_bytes = s.size << 30),
        sizes: &[32, 33, 64],
        ..MOMENT
    },
    Class {
        name: "load",
        begin: |w, s| w.hardware(|h| h.threads = s.size),
        end: |w, _| w.sets(|h| h.threads = 100),
        sizes: &[200, 14_990],
        ..ASKED
    },
    Class {
        name: "cpus-off",
        fits: is_pc,
        begin: |w, s| w.hardware(|h| h.cpus_off = s.size),
        end: |w, _| w.sets(|h| h.cpus_off = 0),
        sizes: &[1, 3],
        ..ASKED
    },
    Class { name: "signs-often", ..ASKED },
    Class { name: "network-flaps", begin: |w, _| w.begin_flapping(), ..ASKED },
    Class { name: "ready-flaps", fits: waits, begin: |w, _| w.begin_flapping(), ..ASKED },
    Class { name: "release-upgraded", begin: |w, _| w.sets(|h| h.release += 1), ..MOMENT },
    Class { name: "machine-id", begin: |w, _| w.sets(|h| h.has_machine_id = true), ..MOMENT },
    // The network.
    Class { name: "link-flaps", begin: |w, s| w.flap(s.size), sizes: &[1, 20], ..MOMENT },
    Class {
        name: "address-changes",
        begin: |w, s| w.readdress(s.size),
        sizes: &[10, 200],
        ..MOMENT
    },
    Class {
        name: "route-lost",
        begin: |w, _| {
            w.sets(|h| h.has_route = false);
            w.network_changed();
        },
        end: |w, _| {
            w.sets(|h| h.has_route = true);
            w.network_changed();
        },
        ..ASKED
    },
    Class { name: "node-named", begin: |w, s| w.name_node(s.size), sizes: &[0, 2], ..MOMENT },
    // Heat.
    Class {
        name: "heat",
        begin: |w, s| w.hardware(|h| (h.heat, h.hot_zone) = (s.size, s.target * 45)),
        end: |w, _| w.sets(|h| h.heat = 48_000),
        sizes: &[78_000, 84_000, 102_000, 109_000],
        targets: 1,
        lasts: Lasts::Story,
        ..ASKED
    },
    Class {
        name: "throttled",
        begin: |w, s| w.hardware(|h| h.cooling = s.size),
        end: |w, _| w.sets(|h| h.cooling = 0),
        sizes: &[1, 4],
        ..ASKED
    },
    Class {
        name: "cpu-capped",
        begin: |w, s| w.hardware(|h| h.cap = s.size),
        sizes: &[600_000, 1_000_000, 1_200_000, TOP],
        ..MOMENT
    },
    // The supply.
    Class {
        name: "undervoltage",
        fits: is_pi,
        begin: |w, _| w.sets(|h| (h.is_undervolted, h.drops) = (true, h.drops + 1)),
        end: |w, _| w.sets(|h| h.is_undervolted = false),
        lasts: Lasts::Story,
        ..ASKED
    },
    Class {
        name: "voltage-drops",
        fits: is_pi,
        begin: |w, s| w.drop_voltage(s.size),
        sizes: &[1, 8],
        ..MOMENT
    },
    Class {
        name: "voltage-driver-unbound",
        fits: is_pi,
        begin: |w, _| w.sets(|h| h.has_voltage_driver = false),
        end: |w, _| w.bind_voltage(),
        ..ASKED
    },
    // The kernel.
    Class { name: "oops", begin: |w, _| w.sets(|h| h.oopses += 1), ..MOMENT },
    Class {
        name: "soft-lockup",
        fits: counts_lockups,
        begin: |w, _| w.sets(|h| h.lockups += 1),
        ..MOMENT
    },
    Class {
        name: "rcu-stall",
        fits: counts_lockups,
        begin: |w, _| w.sets(|h| h.stalls += 1),
        ..MOMENT
    },
    Class {
        name: "task-hung",
        fits: counts_lockups,
        begin: |w, _| w.sets(|h| h.hung_tasks += 1),
        ..MOMENT
    },
    Class { name: "oom-kill", begin: |w, _| w.sets(|h| h.oom_kills += 1), ..MOMENT },
    Class {
        name: "memory-error",
        fits: is_pc,
        begin: |w, _| w.sets(|h| h.memory_errors += 1),
        ..MOMENT
    },
    // File systems.
    Class { name: "ext4-error", begin: |w, s| w.fail_disk(s.target), targets: 1, ..MOMENT },
    Class {
        name: "other-disk-fails",
        fits: has_writable_boot,
        begin: |w, _| w.sets(|h| h.firmware.has_failed = true),
        ..MOMENT
    },
    Class {
        name: "other-root-fails",
        fits: has_other_root,
        begin: |w, _| w.sets(|h| h.root.has_failed = true),
        ..MOMENT
    },
    Class {
        name: "boot-edited",
        fits: has_read_only_boot,
        begin: |w, _| w.sets(|h| h.firmware.is_read_only = false),
        end: |w, _| w.sets(|h| h.firmware.is_read_only = true),
        ..ASKED
    },
    Class {
        name: "data-unmounted",
        // The next mount begins anew.
        begin: |w, _| w.sets(|h| (h.data.is_mounted, h.data.has_failed) = (false, false)),
        end: |w, _| w.sets(|h| h.data.is_mounted = true),
        ..ASKED
    },
    Class {
        name: "wear",
        fits: has_emmc,
        begin: |w, s| w.hardware(|h| h.next_wear = (s.size, 1 + s.target)),
        sizes: &[1, 9, 10, 11],
        targets: 2,
        ..MOMENT
    },
];

/// What the board does that ends the agent, too.
pub(super) const BOOTS: &[Class] = &[
    Class { name: "fsck", begin: |w, _| w.check_disks(), ..MOMENT },
    Class {
        name: "brown-out",
        fits: is_pi,
        begin: |w, s| w.brown_out(s.size),
        end: |w, _| w.sets(|h| h.is_undervolted = false),
        sizes: &[1, 3, 20, 400],
        lasts: Lasts::Story,
        ..ASKED
    },
    Class {
        name: "driver-late",
        fits: is_pi,
        begin: |w, s| w.bind_late(s.size),
        sizes: &[1, 3, 60],
        ..MOMENT
    },
    Class { name: "watchdog-reset", fits: is_pc, begin: |w, _| w.reset_by_watchdog(), ..MOMENT },
    Class { name: "boots-unwritable", lasts: Lasts::Story, ..ASKED },
];

/// The names of the classes that do not disturb the agent.
pub(crate) fn is_hardware(name: &str) -> bool {
    HARDWARE.iter().any(|class| class.name == name)
}
