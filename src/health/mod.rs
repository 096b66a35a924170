//! The board's health: rules that make readings of kernel files into conditions and events, in the
//! manner of node-problem-detector.
//!
//! A condition type is True while there is a problem. A source that the board does not have gives
//! no condition. The conditions never touch `Ready`, taints or the pressures. `host::health` reads
//! the sources, `core::health` puts the conditions on the Node.

mod condition_state;
mod config;
mod hardware;
mod kernel;
mod monitor;
mod storage;
mod time;

use std::time::Duration;

use serde_json::Value;

pub use config::{FileCondition, HealthConfig};
pub use hardware::{Cooler, Heat, Policy, Voltage, Zone, is_dip};
pub use kernel::{Counters, Kernel};
pub use monitor::{Health, Pace, if_it_lasted};
pub use storage::{Damage, Ext4Errors, Filesystem, Wear};
pub use time::{Boots, Timesync};

use self::condition_state::{Problem, RuleResult};
use self::hardware::{Throttling, UnderVoltage};
use self::kernel::Deadlock;
use self::storage::{Readonly, WornOut};
use self::time::{History, Ntp};
use crate::core::facts::Read;
use crate::core::instant::Now;
use crate::kube::object;
use crate::kube::time::Wall;

/// A condition type.
#[derive(Debug)]
pub struct ConditionKind {
    /// The condition type.
    pub name: &'static str,
    /// Reason and message while it is False.
    fine: (&'static str, &'static str),
    /// The reasons while it is True, and how many seconds it then lasts after its last sign. They
    /// differ from the reasons of `fine`: both say that an earlier process wrote the condition.
    problems: &'static [(&'static str, u64)],
    rule: Rule,
    /// The lines of `nodelet check`.
    pub check: CheckTexts,
}

/// What `nodelet check` says of a condition type.
#[derive(Clone, Copy, Debug)]
pub struct CheckTexts {
    /// The name of the check.
    pub name: &'static str,
    /// Why a board has no source.
    pub absent: &'static str,
    /// What to do about a problem.
    pub remedy: &'static str,
}

/// What decides about a condition type.
#[derive(Debug)]
enum Rule {
    /// Asked at each reading.
    OfReading(fn(&mut RuleStates, &RuleInput<'_>) -> RuleResult),
    /// Asked at each reading, and at each response of the API server.
    OfTime(fn(&RuleStates, Now) -> RuleResult),
}

/// Messages hold no number that moves, because each change of a message is a patch.
pub static KINDS: [ConditionKind; 8] = [
    ConditionKind {
        name: "ReadonlyFilesystem",
        fine: ("FilesystemTakesWrites", "mounted filesystems take writes"),
        problems: &[("FilesystemIsReadOnly", 60)],
        rule: Rule::OfReading(|rules, input| rules.readonly.judge(input)),
        check: CheckTexts {
            name: "readonly-filesystem",
            absent: "no writable file system on a device is mounted",
            remedy: "save what can be read, run fsck, replace the card",
        },
    },
    ConditionKind {
        name: "FilesystemCorruptionProblem",
        fine: ("FilesystemErrorsNotSeen", "no filesystem has errors on record"),
        // The errors are kept on disk.
        problems: &[("FilesystemCorruptionDetected", 0)],
        rule: Rule::OfReading(|rules, input| {
            let grown = rules.readonly.grown.drain(..);
            let sign = |device| ("Ext4Error", format!("{device} has a new ext4 error on record"));
            rules.signs.extend(grown.map(sign));
            storage::corruption(input)
        }),
        check: CheckTexts {
            name: "filesystem-corruption",
            absent: "no ext4, btrfs or f2fs with a record of errors is mounted",
            remedy: "run fsck at the next boot, replace the card if it returns",
        },
    },
    ConditionKind {
        name: "StorageWornOut",
        fine: ("StorageLifeLeft", "flash wear is below 90 %"),
        // Kept by the device.
        problems: &[
            ("StorageLifeNearlyUsed", 0),
            ("StorageLifeExceeded", 0),
            ("StorageSpareBlocksUsed", 0),
        ],
        rule: Rule::OfReading(|rules, input| rules.worn_out.judge(input)),
        check: CheckTexts {
            name: "storage-wear",
            absent: "no eMMC with wear estimates and no UBI on NAND; SD cards have none",
            remedy: "replace the board or its flash",
        },
    },
    ConditionKind {
        name: "UnderVoltage",
        fine: ("SupplyVoltageOK", "the supply voltage is sufficient"),
        // Bursts of the same supply are 20 min apart (raspberrypi/linux#5584).
        problems: &[("UnderVoltageDetected", 3600)],
        rule: Rule::OfReading(|rules, input| rules.under_voltage.judge(input, &mut rules.signs)),
        check: CheckTexts {
            name: "under-voltage",
            absent: "no hwmon rpi_volt, which a Raspberry Pi has",
            remedy: "use a stronger supply and a shorter cable",
        },
    },
    ConditionKind {
        name: "ThermalThrottling",
        fine: ("TemperatureOK", "no throttling by heat"),
        problems: &[("CPUThrottledByHeat", 300), ("TemperatureNearCritical", 300)],
        rule: Rule::OfReading(|rules, input| rules.throttling.judge(input)),
        check: CheckTexts {
            name: "thermal-throttling",
            absent: "no thermal zone with a limit, and no cooling device of the CPU",
            remedy: "add a heat sink or a fan",
        },
    },
    ConditionKind {
        name: "KernelDeadlock",
        fine: ("KernelKeepsRunning", "no oops, lockup or hung task"),
        // The counter of oopses is 0 after a boot alone.
        problems: &[("KernelOops", 0), ("SoftLockup", 600), ("RCUStall", 600), ("TaskHung", 600)],
        rule: Rule::OfReading(|rules, input| rules.deadlock.judge(input, &mut rules.signs)),
        check: CheckTexts {
            name: "kernel-deadlock",
            absent: "neither proc/sys/kernel/tainted nor sys/kernel/oops_count",
            remedy: "save the kernel log, then reboot",
        },
    },
    ConditionKind {
        name: "NTPProblem",
        fine: ("ClockAgrees", "the clock agrees with the API server"),
        // Judged by several responses.
        problems: &[("ClockNotSet", 0), ("ClockSkew", 0), ("NTPIsDown", 0)],
        rule: Rule::OfTime(|rules, _| rules.ntp.judge()),
        check: CheckTexts {
            name: "clock-sync",
            absent: "no systemd-timesyncd; a run compares the clock with the API server's",
            remedy: "give the time daemon a server that the board reaches",
        },
    },
    ConditionKind {
        name: "FrequentReboot",
        fine: ("BootsAreRare", "boots are rare"),
        // Judged by several boots.
        problems: &[("FrequentReboot", 0)],
        rule: Rule::OfTime(|rules, now| {
            let is_right = !rules.ntp.is_refuted(now.wall);
            rules.history.judge(is_right.then(|| now.wall.seconds()))
        }),
        check: CheckTexts {
            name: "boots",
            absent: "no history yet; a run writes the file boots in --root-dir, if that folder exists",
            remedy: "check the supply, the watchdog and the kernel log",
        },
    },
];

/// The states of the rules.
#[derive(Debug)]
struct RuleStates {
    readonly: Readonly,
    worn_out: WornOut,
    under_voltage: UnderVoltage,
    throttling: Throttling,
    deadlock: Deadlock,
    ntp: Ntp,
    history: History,
    /// The signs of the rule that was asked last.
    signs: Vec<Sign>,
}

impl RuleStates {
    fn new(built: Wall) -> Self {
        Self {
            readonly: Readonly::default(),
            worn_out: WornOut::default(),
            under_voltage: UnderVoltage::default(),
            throttling: Throttling::default(),
            deadlock: Deadlock::default(),
            ntp: Ntp::new(built),
            history: History::default(),
            signs: Vec::new(),
        }
    }
}

/// Reason and message of a warning that is no condition.
type Sign = (&'static str, String);

/// A source: `None` if the board does not have it, `Some(Err)` if it cannot be read.
pub type Source<T> = Option<Read<T>>;

/// One reading of all sources, as plain values in the kernel's units: m°C, kHz, seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthReading {
    /// The watched file systems: writable types, not on a loop device.
    pub filesystems: Source<Vec<Filesystem>>,
    /// Errors on record of btrfs and f2fs; those of ext4 are in `filesystems`.
    pub damages: Vec<Damage>,
    /// Number of the last discovery, which is once an hour.
    pub discovery: u64,
    /// Wear of eMMC and raw NAND, from the last discovery; at least one device.
    pub wear: Source<Vec<Wear>>,
    /// The under-voltage alarm of a Raspberry Pi.
    pub voltage: Source<Voltage>,
    /// Temperatures, and what limits the CPU.
    pub heat: Source<Heat>,
    /// Counters of kernel faults.
    pub kernel: Source<Kernel>,
    /// The state of systemd-timesyncd.
    pub timesync: Option<Timesync>,
    /// Time since the boot of the kernel, in seconds, from `proc/uptime`.
    pub uptime_seconds: Option<u64>,
    /// The history of boots; only in the first reading.
    pub boots: Option<Boots>,
    /// Sources of events alone.
    pub counters: Counters,
}

/// What a rule is asked about.
#[derive(Debug)]
struct RuleInput<'a> {
    reading: &'a HealthReading,
    /// `wall` is the board's clock.
    now: Now,
    /// Why the condition is True so far: also that of an earlier process.
    problem: Option<&'a Problem>,
}

/// The value of a source, or what a rule says without one.
fn found<T>(source: &Source<T>) -> Result<&T, RuleResult> {
    match source {
        None => Err(RuleResult::NoSource),
        Some(Err(_)) => Err(RuleResult::Unread),
        Some(Ok(value)) => Ok(value),
    }
}

impl ConditionKind {
    /// How long the condition stays True for `reason` after its last sign.
    fn clear(&self, reason: &str) -> Duration {
        let found = self.problems.iter().find(|(ours, _)| *ours == reason);
        Duration::from_secs(found.map_or(0, |(_, seconds)| *seconds))
    }

    /// The problem of a condition that an earlier process of this program wrote: `Some(None)` if it
    /// is False, `None` if its reason is none of ours. The message is not compared: another release
    /// may have another one.
    fn recognize(&self, condition: &Value) -> Option<Option<Problem>> {
        let text = |key: &str| object::text(condition, &[key]);
        match text("status") {
            "False" => (text("reason") == self.fine.0).then_some(None),
            "True" => {
                let (reason, _) = self.problems.iter().find(|(ours, _)| *ours == text("reason"))?;
                // The lowest rank: what this process finds replaces it.
                Some(Some(Problem { rank: 0, reason, message: text("message").to_owned() }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
