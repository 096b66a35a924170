//! Wear of eMMC (`sys/block/mmcblkN/device`) and raw NAND (`sys/class/ubi`). The kernel reads the
//! eMMC's values once, when it finds the device.

use super::filesystems::hex;
use super::reader::{Reader, is_numbered, join};
use crate::core::instant::Mono;
use crate::core::problems::look::Wear;

/// The devices with wear data; with the folder of each.
pub(super) fn discover(reader: &mut Reader, clock: &dyn Fn() -> Mono) -> Vec<(String, Wear)> {
    let mut found = Vec::new();
    // mmcblk0boot0 is the same device.
    for device in reader.names("sys/block", &|name| is_numbered(name, "mmcblk")) {
        let folder = format!("sys/block/{device}/device");
        if let Some(wear) = emmc(&folder, device, reader, clock) {
            found.push((folder, wear));
        }
    }
    for device in reader.names("sys/class/ubi", &|name| is_numbered(name, "ubi")) {
        let folder = join("sys/class/ubi", &device);
        if let Some(wear) = ubi(&folder, device, reader, clock) {
            found.push((folder, wear));
        }
    }
    found
}

/// An SD card has no such data; both estimates can be undefined.
fn emmc(
    folder: &str,
    device: String,
    reader: &mut Reader,
    clock: &dyn Fn() -> Mono,
) -> Option<Wear> {
    if reader.word(folder, "type", clock) != "MMC" {
        return None;
    }
    let estimates = reader.word(folder, "life_time", clock);
    let known = estimates.split_whitespace().filter_map(hex);
    let life = known.filter(|life| (1..=11).contains(life)).max();
    let level = hex(&reader.word(folder, "pre_eol_info", clock));
    let pre_eol = level.filter(|level| (1..=3).contains(level));
    (life.is_some() || pre_eol.is_some()).then(|| Wear::Emmc {
        device,
        life: life.unwrap_or_default(),
        pre_eol: pre_eol.unwrap_or_default(),
    })
}

/// NOR flash has no bad blocks and reserves none.
fn ubi(
    folder: &str,
    device: String,
    reader: &mut Reader,
    clock: &dyn Fn() -> Mono,
) -> Option<Wear> {
    let mtd = reader.value(folder, "mtd_num", clock)?;
    let kind = reader.word(&format!("sys/class/mtd/mtd{mtd}"), "type", clock);
    let spare = reader.value(folder, "reserved_for_bad", clock)?;
    let is_read_only = reader.value(folder, "ro_mode", clock) == Some(1);
    matches!(kind.as_str(), "nand" | "mlc-nand").then_some(Wear::Ubi {
        device,
        is_spent: spare == 0 || is_read_only,
    })
}
