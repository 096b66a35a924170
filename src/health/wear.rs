//! StorageWornOut: the wear of eMMC (`sys/block/mmcblkN/device`) and raw NAND (`sys/class/ubi`).
//! The kernel reads the eMMC's values once, when it finds the device.

use std::cmp::Reverse;

use super::condition_state::RuleResult;
use super::reader::{HealthReader, hex, is_numbered, join};
use super::{CheckTexts, ConditionKind, RuleInput, Source, value_or_result};
use crate::kube::facts::Presence;

pub(super) const KIND: ConditionKind = ConditionKind {
    name: "StorageWornOut",
    fine: ("StorageLifeLeft", "flash wear is below 90 %"),
    // Kept by the device.
    problems: &[
        ("StorageLifeNearlyUsed", 0),
        ("StorageLifeExceeded", 0),
        ("StorageSpareBlocksUsed", 0),
    ],
    source: Some(|| Box::new(StorageWornOut::default())),
    check: CheckTexts {
        name: "storage-wear",
        absent: "no eMMC with wear estimates and no UBI on NAND; SD cards have none",
        remedy: "replace the board or its flash",
    },
};

/// The wear of one flash device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wear {
    /// `sys/block/mmcblkN/device` of an eMMC that has at least one of the two estimates.
    Emmc {
        /// `mmcblk0`
        device: String,
        /// The larger of the two estimates in `life_time`, in tenths of the rated life: 10 is 90 to
        /// 100 %, 11 is beyond the rated life. 0 if both are undefined or above 11.
        life: u64,
        /// `pre_eol_info`: 1 normal, 2 warning (80 % of the spare blocks), 3 urgent. 0 if it is
        /// undefined or above 3.
        pre_eol: u64,
    },
    /// `sys/class/ubi/ubiN` on NAND.
    Ubi {
        /// `ubi0`
        device: String,
        /// `reserved_for_bad` is 0. `ro_mode` says nothing of spare blocks: it is also set on a
        /// write-protected MTD device, and by an I/O error.
        is_spent: bool,
    },
}

/// The eMMC's own estimates, and the spare blocks of raw NAND, from the last discovery.
#[derive(Debug, Default)]
pub(super) struct StorageWornOut {
    pub(super) found: Presence<Vec<Wear>>,
}

impl Source for StorageWornOut {
    fn discover(&mut self, reader: &mut HealthReader) {
        // The names are only those of whole devices: mmcblk0boot0 is a part of mmcblk0.
        let found = reader.whole(|reader| {
            let emmcs = reader.names("sys/block", &|name| is_numbered(name, "mmcblk"));
            let mut found: Vec<Wear> = emmcs.iter().filter_map(|name| emmc(name, reader)).collect();
            let ubis = reader.names("sys/class/ubi", &|name| is_numbered(name, "ubi"));
            found.extend(ubis.iter().filter_map(|name| ubi(name, reader)));
            found
        });
        self.found = match found {
            Ok(found) if found.is_empty() => Presence::Absent,
            found => Presence::of_known(found),
        };
    }

    fn judge(&mut self, _: &mut RuleInput<'_>) -> RuleResult {
        let devices = match value_or_result(&self.found) {
            Ok(devices) => devices,
            Err(result) => return result,
        };
        let found = devices.iter().filter_map(problem_of);
        // The first one of the highest rank.
        match found.clone().min_by_key(|(rank, ..)| Reverse(*rank)) {
            Some((rank, device, reason, text)) => {
                let message = format!("{device} {text}");
                RuleResult::problem(rank, reason, &message, found.count() - 1)
            }
            None => RuleResult::NoProblem,
        }
    }

    fn paths(&self) -> Vec<String> {
        let folder = |wear: &Wear| match wear {
            Wear::Emmc { device, .. } => emmc_folder(device),
            Wear::Ubi { device, .. } => ubi_folder(device),
        };
        self.found.found().into_iter().flatten().map(folder).collect()
    }
}

fn emmc_folder(device: &str) -> String {
    format!("sys/block/{device}/device")
}

fn ubi_folder(device: &str) -> String {
    join("sys/class/ubi", device)
}

/// `None` for an SD card, which has no such data, and if no estimate of an eMMC is defined.
fn emmc(device: &str, reader: &mut HealthReader) -> Option<Wear> {
    let folder = emmc_folder(device);
    if reader.word(&folder, "type") != "MMC" {
        return None;
    }
    let estimates = reader.word(&folder, "life_time");
    let known = estimates.split_whitespace().filter_map(hex);
    let life = known.filter(|life| (1..=11).contains(life)).max();
    let level = hex(&reader.word(&folder, "pre_eol_info"));
    let pre_eol = level.filter(|level| (1..=3).contains(level));
    (life.is_some() || pre_eol.is_some()).then(|| Wear::Emmc {
        device: device.to_owned(),
        life: life.unwrap_or_default(),
        pre_eol: pre_eol.unwrap_or_default(),
    })
}

/// NOR flash has no bad blocks and reserves none.
fn ubi(device: &str, reader: &mut HealthReader) -> Option<Wear> {
    let folder = ubi_folder(device);
    let mtd = reader.value(&folder, "mtd_num")?;
    let kind = reader.word(&format!("sys/class/mtd/mtd{mtd}"), "type");
    let spare = reader.value(&folder, "reserved_for_bad")?;
    matches!(kind.as_str(), "nand" | "mlc-nand")
        .then(|| Wear::Ubi { device: device.to_owned(), is_spent: spare == 0 })
}

/// Rank, device, reason and text of a worn device; `None` if the device is not worn. The worse of
/// an eMMC's two values decides.
fn problem_of(wear: &Wear) -> Option<(u32, &str, &'static str, &'static str)> {
    match wear {
        Wear::Emmc { device, life, pre_eol } => match (life, pre_eol) {
            (11, _) | (_, 3) => Some((3, device, "StorageLifeExceeded", "is past its rated life")),
            (10, _) | (_, 2) => Some((
                2,
                device,
                "StorageLifeNearlyUsed",
                "used 90 % of its rated life or 80 % of its spare blocks",
            )),
            _ => None,
        },
        Wear::Ubi { device, is_spent } => {
            is_spent.then_some((1, device, "StorageSpareBlocksUsed", "has no spare blocks left"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::Board;
    use crate::kube::instant::Now;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;

    fn new_board() -> Board<StorageWornOut, Vec<Wear>> {
        Board::new(&KIND, |source, wear| source.found = Presence::Found(wear.clone()))
    }

    fn emmc(life: u64, pre_eol: u64) -> Wear {
        Wear::Emmc { device: "mmcblk2".to_owned(), life, pre_eol }
    }

    #[test]
    fn wear_has_two_levels() {
        for (life, pre_eol, want) in [
            (1, 0, "False"),
            (9, 1, "False"),
            (10, 1, "StorageLifeNearlyUsed"),
            (11, 1, "StorageLifeExceeded"),
            (0, 1, "False"),
            (0, 2, "StorageLifeNearlyUsed"),
            (1, 3, "StorageLifeExceeded"),
        ] {
            let state = new_board().look(60, &vec![emmc(life, pre_eol)]);
            assert_eq!(state, want, "{life} {pre_eol}");
        }
        let mut board = new_board();
        board.look(60, &vec![emmc(10, 0), emmc(11, 0)]);
        let message = "mmcblk2 is past its rated life, and 1 more";
        assert_eq!(board.message(), message);
    }

    #[test]
    fn a_ubi_that_is_read_only_may_have_spare_blocks() {
        let tree = Tree::new("health-ubi");
        tree.write("sys/class/ubi/ubi0/mtd_num", b"3");
        tree.write("sys/class/mtd/mtd3/type", b"nand");
        for (spare, ro_mode, want) in [("20", "1", false), ("0", "0", true), ("20", "0", false)] {
            tree.write("sys/class/ubi/ubi0/reserved_for_bad", spare.as_bytes());
            tree.write("sys/class/ubi/ubi0/ro_mode", ro_mode.as_bytes());
            let mut source = StorageWornOut::default();
            source.discover(&mut HealthReader::new(HostRoot::new(tree.path()), Now::default));
            let want = Wear::Ubi { device: "ubi0".to_owned(), is_spent: want };
            assert_eq!(source.found, Presence::Found(vec![want]));
        }
    }

    #[test]
    fn ubi_without_spares_is_worn_out() {
        let ubi = |is_spent| Wear::Ubi { device: "ubi0".to_owned(), is_spent };
        let mut board = new_board();
        for (is_spent, want) in
            [(false, "False"), (true, "StorageSpareBlocksUsed"), (false, "False")]
        {
            assert_eq!(board.look(60, &vec![ubi(is_spent)]), want);
        }
    }
}
