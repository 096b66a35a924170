//! Pressure stall information, from `proc/pressure/{cpu,memory,io,irq}` (Linux 4.20).
//!
//! A missing file, or a read that fails with ENOTSUP (CONFIG_PSI_DEFAULT_DISABLED, as on Raspberry
//! Pi OS without psi=1), means no PSI and is not an error. A missing line is `None`: before Linux
//! 5.13 cpu has no "full", and irq has only "full". procfs's types are not used: they require both
//! lines, and panic on a bare "some".

use std::io;

use nix::errno::Errno;

use crate::core::facts::{Read, Unread};
use crate::files::read::SMALL;
use crate::kube::float;

use super::root::{HostRoot, unread};

/// One file of `proc/pressure`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Option<Stall>,
    /// All tasks that were not idle waited.
    pub full: Option<Stall>,
}

/// One line of such a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// Percent of the last 10 seconds.
    pub avg10: f64,
    /// Percent of the last 60 seconds.
    pub avg60: f64,
    /// Percent of the last 300 seconds.
    pub avg300: f64,
    /// Stall time since boot in microseconds.
    pub total_micros: u64,
}

/// Pressure on `cpu`, `memory`, `io` or `irq`; `None` without PSI.
pub fn read(root: &HostRoot, resource: &str) -> Read<Option<Pressure>> {
    let path = format!("proc/pressure/{resource}");
    match root.bytes(&path, SMALL) {
        Ok(bytes) => parse(&path, &String::from_utf8_lossy(&bytes)).map(Some),
        Err(error) => no_psi(&path, &error),
    }
}

/// ENOTSUP and EOPNOTSUPP are the same number on Linux.
fn no_psi(path: &str, error: &io::Error) -> Read<Option<Pressure>> {
    match unread(path, error) {
        unread if unread.absent => Ok(None),
        _ if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(None),
        unread => Err(unread),
    }
}

/// Parses one file. Lines other than `some` and `full` are ignored, for future kernels.
pub fn parse(source: &str, text: &str) -> Read<Pressure> {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let (kind, values) = line.split_once(' ').unwrap_or((line, ""));
        let line = match kind {
            "some" => &mut pressure.some,
            "full" => &mut pressure.full,
            _ => continue,
        };
        *line = Some(
            stall(values)
                .ok_or_else(|| Unread::new(source, format!("{kind} line is incomplete")))?,
        );
    }
    if pressure == Pressure::default() {
        return Err(Unread::new(source, "neither a some nor a full line"));
    }
    Ok(pressure)
}

fn stall(values: &str) -> Option<Stall> {
    let value = |name: &str| {
        values
            .split_whitespace()
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    let percent = |name: &str| float::parse(value(name)?).filter(|percent| percent.is_finite());
    Some(Stall {
        avg10: percent("avg10")?,
        avg60: percent("avg60")?,
        avg300: percent("avg300")?,
        total_micros: value("total")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "some avg10=0.13 avg60=0.68 avg300=0.28 total=1195993\n";
    const STALL: Stall = Stall {
        avg10: 0.13,
        avg60: 0.68,
        avg300: 0.28,
        total_micros: 1_195_993,
    };

    #[test]
    fn a_missing_line_is_none() {
        assert_eq!(
            parse("p", SOME),
            Ok(Pressure {
                some: Some(STALL),
                full: None
            })
        );
        assert_eq!(
            parse("p", &SOME.replace("some", "full")),
            Ok(Pressure {
                some: None,
                full: Some(STALL)
            })
        );
        assert_eq!(
            parse("p", &format!("{SOME}none x\n")),
            Ok(Pressure {
                some: Some(STALL),
                full: None
            })
        );
    }

    #[test]
    fn a_kernel_without_psi_is_no_error() {
        let no_psi = |errno: Errno| no_psi("p", &errno.into());
        assert_eq!(no_psi(Errno::ENOENT), Ok(None));
        assert_eq!(no_psi(Errno::EOPNOTSUPP), Ok(None));
        assert!(no_psi(Errno::EACCES).is_err());
    }

    #[test]
    fn a_broken_line_is_an_error() {
        for text in [
            "",
            "some",
            "some ",
            "some avg10=1 avg60=1 avg300=1",
            "some avg10=nan avg60=1 avg300=1 total=1",
            "some avg10=1 avg60=1 avg300=1 total=-1",
        ] {
            assert!(parse("p", text).is_err(), "{text:?}");
        }
    }
}
