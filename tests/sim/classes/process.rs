//! The process, its clock, and the power of the board.

use super::{ASKED, Class, MOMENT};
use crate::sim::card::CUTS;
use crate::sim::service::UNREAD;

pub(super) const CLASSES: &[Class] = &[
    Class { name: "kill", begin: |w, _| w.kill_agent(), ..MOMENT },
    Class { name: "restart", begin: |w, _| w.restart_unit(), ..MOMENT },
    Class { name: "reboot", begin: |w, s| w.reboot(s.size), sizes: &[10, 60], ..MOMENT },
    Class { name: "power-loss", begin: |w, s| w.lose_power(s.size), sizes: &[5, 600], ..MOMENT },
    // At an operation of a file change.
    Class {
        name: "cut",
        begin: |w, s| w.arm_cut(s),
        end: |w, _| w.disarm_cut(),
        sizes: &[1, 20],
        targets: CUTS,
        ..ASKED
    },
    Class { name: "shutdown-signal", begin: |w, s| w.shut_down(s.size), sizes: &[1, 30], ..MOMENT },
    Class { name: "suspend", begin: |w, s| w.suspend(s.size), sizes: &[5, 1200], ..MOMENT },
    Class {
        name: "clock-forward",
        begin: |w, s| w.step_clock(i64::try_from(s.size).expect("small")),
        end: |w, _| w.set_clock(),
        sizes: &[30, 600, 86_400, 40_000_000],
        ..ASKED
    },
    Class {
        name: "clock-back",
        begin: |w, s| w.step_clock(-i64::try_from(s.size).expect("small")),
        end: |w, _| w.set_clock(),
        sizes: &[30, 600, 86_400, 40_000_000],
        ..ASKED
    },
    Class {
        name: "clock-1970",
        begin: |w, _| w.clock_at(Some(5)),
        end: |w, _| w.set_clock(),
        ..ASKED
    },
    Class {
        name: "clock-2038",
        begin: |w, _| w.clock_at(Some(2_147_483_700)),
        end: |w, _| w.set_clock(),
        ..ASKED
    },
    Class {
        name: "notify-full",
        begin: |w, _| w.fill_notify(),
        end: |w, _| w.drain_notify(),
        ..ASKED
    },
    // A restart in quiet time: `Plan::draw` says when.
    Class {
        name: "twin",
        fits: |_| false,
        begin: |w, s| w.begin_twin(s.size),
        end: |w, _| w.end_twin(),
        sizes: &[1, 1, 2, 2, 3],
        // A file that cannot be read meanwhile, also by the other twin.
        targets: UNREAD.len() as u64,
        ..ASKED
    },
];
