//! The card, the kernel files, and the hardware.

use std::collections::BTreeMap;

use super::{ASKED, Class, MOMENT};

fn waits(setting: &BTreeMap<String, String>) -> bool {
    setting.get("waits").is_some_and(|waits| waits == "path")
}

pub(super) const CLASSES: &[Class] = &[
    // The card.
    Class { name: "disk-full", ..ASKED },
    Class { name: "disk-read-only", ..ASKED },
    Class { name: "disk-broken", sizes: &[2, 4], ..ASKED },
    Class { name: "disk-slow", sizes: &[500, 20_000], ..ASKED },
    // Kernel files.
    Class { name: "reads-slow", sizes: &[20, 3000], targets: 4, ..ASKED },
    Class { name: "reads-fail", sizes: &[2, 3, 6], ..ASKED },
    Class { name: "card-reads-slow", sizes: &[100, 8000], ..ASKED },
    Class { name: "card-reads-fail", sizes: &[1, 2], ..ASKED },
    // The hardware.
    Class {
        name: "memory-low",
        begin: |w, _| w.hardware(|h| h.memory_free_kib = 50_000),
        end: |w, _| w.hardware(|h| h.memory_free_kib = 800_000),
        ..ASKED
    },
    Class { name: "memory-stalls", begin: |w, _| w.memory_stalls(), ..MOMENT },
    Class {
        name: "disk-low",
        begin: |w, _| w.hardware(|h| h.disk_free_bytes = 1 << 30),
        end: |w, _| w.hardware(|h| h.disk_free_bytes = 8 << 30),
        ..ASKED
    },
    Class {
        name: "heat",
        begin: |w, _| w.hardware(|h| h.heat = 109_000),
        end: |w, _| w.hardware(|h| h.heat = 48_000),
        ..ASKED
    },
    Class {
        name: "undervoltage",
        begin: |w, _| w.hardware(|h| h.is_undervolted = true),
        end: |w, _| w.hardware(|h| h.is_undervolted = false),
        ..ASKED
    },
    Class {
        name: "voltage-driver-unbound",
        begin: |w, _| w.hardware(|h| h.has_voltage_driver = false),
        end: |w, _| w.hardware(|h| h.has_voltage_driver = true),
        ..ASKED
    },
    Class { name: "oops", begin: |w, _| w.hardware(|h| h.oopses += 1), ..MOMENT },
    Class { name: "oom-kill", begin: |w, _| w.hardware(|h| h.oom_kills += 1), ..MOMENT },
    Class {
        name: "root-read-only",
        begin: |w, _| w.hardware(|h| h.is_root_read_only = true),
        end: |w, _| w.hardware(|h| h.is_root_read_only = false),
        ..ASKED
    },
    Class { name: "signs-often", ..ASKED },
    Class { name: "network-flaps", begin: |w, _| w.begin_flapping(), ..ASKED },
    Class { name: "ready-flaps", fits: waits, begin: |w, _| w.begin_flapping(), ..ASKED },
    Class { name: "link-flaps", begin: |w, s| w.flap(s.size), sizes: &[1, 20], ..MOMENT },
    Class {
        name: "address-changes",
        begin: |w, s| w.readdress(s.size),
        sizes: &[10, 200],
        ..MOMENT
    },
    Class {
        name: "load",
        begin: |w, s| w.hardware(|h| h.threads = s.size),
        end: |w, _| w.hardware(|h| h.threads = 100),
        sizes: &[200, 14_990],
        ..ASKED
    },
];
