//! The under-voltage alarm: `in0_lcrit_alarm` of the hwmon with the name `rpi_volt`
//! (drivers/hwmon/raspberrypi-hwmon.c, Linux 4.19). Other files of hwmon are never read: some wait
//! for a bus for seconds.

use std::os::fd::OwnedFd;

use super::reader::{Reader, is_numbered, join};
use crate::core::facts::Read;
use crate::core::instant::Mono;
use crate::core::problems::is_dip;
use crate::core::problems::look::Voltage;
use crate::host::kept_file::KeptFile;

/// The alarm, and the drops since the last look.
#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) file: KeptFile,
    last: Option<bool>,
    dips: u32,
}

impl Alarm {
    /// The alarm of this board, if it has one.
    pub(super) fn discover(reader: &mut Reader, clock: &dyn Fn() -> Mono) -> Option<Self> {
        let chips = reader.names("sys/class/hwmon", &|name| is_numbered(name, "hwmon"));
        let chip = chips.into_iter().find(|chip| {
            let name = reader.word(&join("sys/class/hwmon", chip), "name", clock);
            name == "rpi_volt"
        })?;
        let path = format!("sys/class/hwmon/{chip}/in0_lcrit_alarm");
        let is_there = reader.number(&path, clock).is_ok();
        is_there.then(|| Self {
            file: KeptFile::new(path),
            last: None,
            dips: 0,
        })
    }

    /// Reads the alarm and counts a drop. The read also arms the next notification.
    pub(super) fn read(&mut self, reader: &mut Reader, clock: &dyn Fn() -> Mono) -> Read<bool> {
        let is_notified = self.file.has_changed();
        let alarm = reader.kept_number(&mut self.file, clock)? != 0;
        // What was before the first read is not known.
        let last = self.last.replace(alarm);
        if last.is_some_and(|last| is_dip(last, alarm, is_notified)) {
            self.dips = self.dips.saturating_add(1);
        }
        Ok(alarm)
    }

    pub(super) fn look(&mut self, reader: &mut Reader, clock: &dyn Fn() -> Mono) -> Read<Voltage> {
        let alarm = self.read(reader, clock)?;
        Ok(Voltage {
            alarm,
            dips: std::mem::take(&mut self.dips),
        })
    }

    /// Whether the supply dropped since the last look.
    pub(super) fn has_dipped(&self) -> bool {
        self.dips > 0
    }

    /// The descriptor that reports a change; `None` if the last read failed.
    pub(super) fn descriptor(&self) -> Option<OwnedFd> {
        self.file.file()?.try_clone().ok().map(OwnedFd::from)
    }
}
