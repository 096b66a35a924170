//! Judges what the board itself has: the kernel's sources, the clock, the disk.

use crate::core::facts::{FileSystem, Read};
use crate::kube::time::Wall;

use super::Finding;

/// `mode` is how the kernel offers cgroups; none where no cgroup is mounted.
pub fn cgroups(mode: Option<&str>) -> Finding {
    match mode {
        Some(mode) => Finding::fine("cgroups", mode),
        None => Finding::open(
            "cgroups",
            "no cgroup is mounted, /proc/meminfo tells the memory in use",
            "mount cgroup2 at /sys/fs/cgroup",
        ),
    }
}

/// Without it the memory in use is computed from /proc/meminfo.
pub fn memory_controller(usable: &Read<bool>) -> Finding {
    let check = "memory-controller";
    let remedy = "boot with cgroup_enable=memory (cmdline.txt of a Raspberry Pi)";
    match usable {
        Ok(true) => Finding::fine(check, "on"),
        Ok(false) => Finding::open(check, "off, /proc/meminfo tells the memory in use", remedy),
        Err(unread) => Finding::open(check, unread.to_string(), remedy),
    }
}

/// Without it memory pressure is noticed by the next look.
pub fn psi(there: &Read<bool>) -> Finding {
    let remedy = "boot with psi=1 (Linux 4.20, CONFIG_PSI)";
    match there {
        Ok(true) => Finding::fine("psi", "proc/pressure/memory"),
        Ok(false) => Finding::open(
            "psi",
            "the kernel has none, memory pressure is noticed with the next status",
            remedy,
        ),
        Err(unread) => Finding::open("psi", unread.to_string(), remedy),
    }
}

/// Copies of a card without a machine id of their own cannot be told apart.
pub fn machine_id(machine_id: &Read<String>) -> Finding {
    let remedy = "write one with systemd-machine-id-setup";
    match machine_id.as_deref() {
        Ok("") => Finding::wrong("machine-id", "etc/machine-id: absent or empty", remedy),
        Ok(id) => Finding::fine("machine-id", id),
        Err(unread) => Finding::wrong("machine-id", &unread.to_string(), remedy),
    }
}

/// What DMI or the device tree say; without them, the machine id stands in.
pub fn system_uuid(system_uuid: &Read<String>, machine_id: &Read<String>) -> Finding {
    let check = "system-uuid";
    match system_uuid.as_deref() {
        Ok(uuid) if !uuid.is_empty() && system_uuid != machine_id => {
            Finding::fine(check, format!("{uuid}, of DMI or the device tree"))
        }
        _ => Finding::open(
            check,
            "neither DMI nor the device tree can be read, the machine id stands in",
            "",
        ),
    }
}

/// A clock before the build makes every certificate one of the future.
pub fn clock(now: Wall, built: Wall) -> Finding {
    let says = now.time();
    match now >= built {
        true => Finding::fine("clock", says),
        false => Finding::wrong(
            "clock",
            &format!("says {says}, but nodelet was built at {}", built.time()),
            "set it (NTP, RTC), or certificates are refused as not valid yet",
        ),
    }
}

/// What a Node would lack, one line each.
pub fn facts(missing: &[String]) -> Finding {
    let remedy = "is /proc mounted, and may nodelet read it?";
    match missing {
        [] => Finding::fine("facts", "all that a Node reports can be read"),
        // Each line tells what is missing for it after a semicolon.
        lines => Finding::wrong("facts", &lines.join(" | ").replace("; ", ", "), remedy),
    }
}

/// `storage` is none where it has no size; `writable` is why it cannot be written, which
/// is not asked of what must not be touched.
pub fn root_dir(
    path: &str,
    storage: Option<&Read<FileSystem>>,
    writable: Result<(), String>,
) -> Finding {
    match (storage, writable) {
        (Some(Err(unread)), _) => Finding::wrong(
            "root-dir",
            &unread.to_string(),
            "give --root-dir a local file system",
        ),
        (Some(Ok(_)), Ok(())) => Finding::fine("root-dir", path),
        (None, Ok(())) => Finding::fine(
            "root-dir",
            format!("{path}, which has no size: no ephemeral-storage is reported"),
        ),
        (_, Err(cause)) => Finding::open(
            "root-dir",
            format!("{path}: {cause}, podCIDRs are not kept there"),
            "make it writable for those who read them",
        ),
    }
}

/// `writable` is none where no certificate is asked for, and nothing is written there.
pub fn cert_dir(path: &str, writable: Option<Result<(), String>>) -> Finding {
    let check = "cert-dir";
    match writable {
        None => Finding::open(check, "certificates are not asked for here", ""),
        Some(Ok(())) => Finding::fine(check, path),
        Some(Err(cause)) => Finding::wrong(
            check,
            &format!("{path}: {cause}"),
            "make --cert-dir a folder that nodelet may write, on a disk that stays",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::Mark;
    use crate::core::facts::Unread;

    #[test]
    fn what_a_board_can_live_without_is_open_and_has_a_remedy() {
        let sized = Ok(FileSystem::default());
        let unread = || Unread::new("proc/x", "permission denied");
        for (finding, mark, part) in [
            (cgroups(Some("v2")), Mark::Fine, "v2"),
            (cgroups(None), Mark::Open, "mount cgroup2"),
            (memory_controller(&Ok(true)), Mark::Fine, "on"),
            (
                memory_controller(&Ok(false)),
                Mark::Open,
                "cgroup_enable=memory",
            ),
            (
                memory_controller(&Err(unread())),
                Mark::Open,
                "proc/x: permission denied",
            ),
            (psi(&Ok(true)), Mark::Fine, "proc/pressure/memory"),
            (psi(&Ok(false)), Mark::Open, "psi=1"),
            (
                psi(&Err(unread())),
                Mark::Open,
                "permission denied; boot with psi=1",
            ),
            (machine_id(&Ok("abc".into())), Mark::Fine, "abc"),
            (
                machine_id(&Ok(String::new())),
                Mark::Wrong,
                "systemd-machine-id-setup",
            ),
            (machine_id(&Err(unread())), Mark::Wrong, "proc/x"),
            (
                system_uuid(&Ok("u".into()), &Ok("m".into())),
                Mark::Fine,
                "u, of",
            ),
            (
                system_uuid(&Ok("m".into()), &Ok("m".into())),
                Mark::Open,
                "stands in",
            ),
            (
                system_uuid(&Ok(String::new()), &Ok("m".into())),
                Mark::Open,
                "stands in",
            ),
            (
                system_uuid(&Err(unread()), &Ok("m".into())),
                Mark::Open,
                "stands in",
            ),
            (facts(&[]), Mark::Fine, "all"),
            (
                facts(&[
                    "proc/meminfo: absent; no capacity memory".into(),
                    "b".into(),
                ]),
                Mark::Wrong,
                "proc/meminfo: absent, no capacity memory | b; is /proc",
            ),
            (root_dir("/r", Some(&sized), Ok(())), Mark::Fine, "/r"),
            (
                root_dir("/r", Some(&sized), Err("read-only file system".into())),
                Mark::Open,
                "/r: read-only file system, podCIDRs",
            ),
            (cert_dir("/c", None), Mark::Open, "not asked for"),
            (cert_dir("/c", Some(Ok(()))), Mark::Fine, "/c"),
            (
                cert_dir("/c", Some(Err("read-only file system".into()))),
                Mark::Wrong,
                "/c: read-only file system; make --cert-dir a folder",
            ),
            (
                root_dir("/r", Some(&Err(unread())), Ok(())),
                Mark::Wrong,
                "--root-dir",
            ),
        ] {
            assert_eq!(finding.mark, mark, "{finding:?}");
            assert!(finding.line().contains(part), "{finding:?}");
        }
    }

    #[test]
    fn a_clock_before_the_build_is_wrong() {
        let at = |seconds| Wall::from_epoch(Duration::from_secs(seconds));
        assert_eq!(clock(at(5), at(5)).mark, Mark::Fine);
        assert_eq!(
            clock(at(4), at(5)).line(),
            "✗ clock: says 1970-01-01T00:00:04Z, but nodelet was built at 1970-01-01T00:00:05Z; \
             set it (NTP, RTC), or certificates are refused as not valid yet"
        );
    }
}
