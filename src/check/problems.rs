//! Judges the sources of the board's health. A problem is no reason why a run would not work.

use super::Finding;
use crate::config::problems::{Kind, Problems as Config};
use crate::core::problems::{Listed, Statement};

/// The name of the check, why a board has no source, and what to do about a problem.
fn texts(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::ReadonlyFilesystem => (
            "readonly-filesystem",
            "no writable file system on a device is mounted",
            "save what can be read, run fsck, replace the card",
        ),
        Kind::FilesystemCorruptionProblem => (
            "filesystem-corruption",
            "no ext4, btrfs or f2fs with a record of errors is mounted",
            "run fsck at the next boot, replace the card if it returns",
        ),
        Kind::StorageWornOut => (
            "storage-wear",
            "no eMMC with wear estimates and no UBI on NAND; SD cards have none",
            "replace the board or its flash",
        ),
        Kind::UnderVoltage => (
            "under-voltage",
            "no hwmon rpi_volt, which a Raspberry Pi has",
            "use a stronger supply and a shorter cable",
        ),
        Kind::ThermalThrottling => (
            "thermal-throttling",
            "no thermal zone with a limit, and no cooling device of the CPU",
            "add a heat sink or a fan",
        ),
        Kind::KernelDeadlock => (
            "kernel-deadlock",
            "neither proc/sys/kernel/tainted nor sys/kernel/oops_count",
            "save the kernel log, then reboot",
        ),
        Kind::NTPProblem => (
            "clock-sync",
            "no systemd-timesyncd; a run compares the clock with the API server's",
            "give the time daemon a server that the board reaches",
        ),
        Kind::FrequentReboot => (
            "boots",
            "no history yet; a run writes the file boots in --root-dir, if that folder exists",
            "check the supply, the watchdog and the kernel log",
        ),
    }
}

/// The finding for `kind`. `listed` has the conditions of all sources, `sources` their files.
pub fn problem(kind: Kind, config: &Config, listed: &Listed, sources: &[String]) -> Finding {
    let (check, absent, remedy) = texts(kind);
    if !config.kinds.contains(&kind) {
        return Finding::note(check, "not detected, by --node-problem-detection", "");
    }
    let is_it = |statement: &&Statement| statement.name == kind.name();
    let Some(found) = listed.statements.iter().find(is_it) else {
        return Finding::note(check, absent, "");
    };
    let detail = match sources {
        [] => found.message.clone(),
        sources => format!("{} ({})", found.message, sources.join(", ")),
    };
    match found.is_true {
        true => Finding::note(
            check,
            format!("{} would be True: {detail}", found.name),
            remedy,
        ),
        false => Finding::ok(check, detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Mark;

    #[test]
    fn a_source_has_a_line_and_a_problem_has_a_remedy() {
        let listed = |is_true: bool| Listed {
            statements: vec![Statement {
                name: "UnderVoltage".to_owned(),
                is_true,
                reason: "R".to_owned(),
                message: "the message".to_owned(),
            }],
            removed: Vec::new(),
        };
        let all = Config::parse("problems", &[]).unwrap();
        let sources = ["sys/a is 1".to_owned()];
        let finding = |config: &Config, is_true| {
            problem(Kind::UnderVoltage, config, &listed(is_true), &sources)
        };
        let fine = finding(&all, false);
        assert_eq!(
            (fine.mark, fine.detail.as_str()),
            (Mark::Ok, "the message (sys/a is 1)")
        );
        let bad = finding(&all, true);
        assert_eq!(bad.mark, Mark::Note);
        assert_eq!(
            bad.detail,
            "UnderVoltage would be True: the message (sys/a is 1)"
        );
        assert!(bad.remedy.contains("supply"));
        let off = finding(&Config::parse("-UnderVoltage", &[]).unwrap(), true);
        assert!(off.detail.contains("not detected"), "{off:?}");
        for kind in Kind::ALL {
            let none = problem(kind, &all, &Listed::default(), &[]);
            assert_eq!(none.mark, Mark::Note);
            assert!(none.remedy.is_empty() && !none.detail.is_empty());
        }
    }
}
