//! StorageWornOut: the eMMC's own estimates, and the spare blocks of raw NAND.

use super::look::{Source, Wear};
use super::state::{Problem, Verdict};

/// The state of the rule.
#[derive(Debug, Default)]
pub(super) struct WornOut {
    /// The discovery that first found a UBI without spare blocks; a second one must confirm it.
    spent_since: Option<u64>,
}

impl WornOut {
    pub(super) fn judge(&mut self, wear: &Source<Vec<Wear>>, discovery: u64) -> Verdict {
        let devices = match wear {
            None => return Verdict::NoSource,
            Some(Err(_)) => return Verdict::Unread,
            Some(Ok(devices)) if devices.is_empty() => return Verdict::NoSource,
            Some(Ok(devices)) => devices,
        };
        let is_spent = |wear: &Wear| matches!(wear, Wear::Ubi { is_spent: true, .. });
        self.spent_since = devices
            .iter()
            .any(is_spent)
            .then(|| self.spent_since.unwrap_or(discovery));
        let is_confirmed = self.spent_since.is_some_and(|since| discovery > since);
        let found = devices.iter().filter_map(|wear| level(wear, is_confirmed));
        let mut worst: Option<(u32, &str, &str, &str)> = None;
        for (rank, device, reason, text) in found.clone() {
            if worst.is_none_or(|worst| rank > worst.0) {
                worst = Some((rank, device, reason, text));
            }
        }
        match worst {
            Some((rank, device, reason, text)) => {
                let message = format!("{device} {text}");
                Verdict::Problem(Problem::new(rank, reason, &message, found.count() - 1))
            }
            None if self.spent_since.is_some() => Verdict::Close,
            None => Verdict::Quiet,
        }
    }
}

/// Rank, device, reason and text of a worn device.
fn level(wear: &Wear, is_confirmed: bool) -> Option<(u32, &str, &'static str, &'static str)> {
    match wear {
        Wear::Emmc {
            device,
            life,
            pre_eol,
        } => match (life, pre_eol) {
            (11, _) | (_, 3) => Some((3, device, "StorageLifeExceeded", "is past its rated life")),
            (10, _) | (_, 2) => Some((
                2,
                device,
                "StorageLifeNearlyUsed",
                "used 90 % of its rated life or 80 % of its spare blocks",
            )),
            _ => None,
        },
        Wear::Ubi { device, is_spent } => (*is_spent && is_confirmed).then_some((
            1,
            device,
            "StorageSpareBlocksUsed",
            "has no spare blocks left",
        )),
    }
}
