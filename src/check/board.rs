//! Judges the board: the kernel's files, the clock, the folders.

use crate::core::facts::{FileSystem, Read};
use crate::kube::time::Wall;

use super::Finding;

/// `mode` names the cgroup version; `None` if no cgroup is mounted.
pub fn cgroups(mode: Option<&str>) -> Finding {
    match mode {
        Some(mode) => Finding::ok("cgroups", mode),
        None => Finding::note(
            "cgroups",
            "no cgroup is mounted, memory in use is computed from /proc/meminfo",
            "mount cgroup2 at /sys/fs/cgroup",
        ),
    }
}

/// Without the controller, memory in use is computed from /proc/meminfo.
pub fn memory_controller(usable: &Read<bool>) -> Finding {
    let check = "memory-controller";
    let remedy = "boot with cgroup_enable=memory (cmdline.txt of a Raspberry Pi)";
    match usable {
        Ok(true) => Finding::ok(check, "on"),
        Ok(false) => Finding::note(
            check,
            "off, memory in use is computed from /proc/meminfo",
            remedy,
        ),
        Err(unread) => Finding::note(check, unread.to_string(), remedy),
    }
}

/// Without PSI, memory pressure is noticed when the next status is computed.
pub fn psi(is_on: &Read<bool>) -> Finding {
    let remedy = "boot with psi=1 (Linux 4.20, CONFIG_PSI)";
    match is_on {
        Ok(true) => Finding::ok("psi", "proc/pressure/memory"),
        Ok(false) => Finding::note(
            "psi",
            "the kernel has no PSI, memory pressure is noticed with the next status",
            remedy,
        ),
        Err(unread) => Finding::note("psi", unread.to_string(), remedy),
    }
}

/// Without a machine id, copies of one SD card cannot be told apart.
pub fn machine_id(machine_id: &Read<String>) -> Finding {
    let remedy = "write one with systemd-machine-id-setup";
    match machine_id.as_deref() {
        Ok("") => Finding::failed("machine-id", "etc/machine-id: absent or empty", remedy),
        Ok(id) => Finding::ok("machine-id", id),
        Err(unread) => Finding::failed("machine-id", &unread.to_string(), remedy),
    }
}

/// The UUID from DMI or the device tree; the machine id replaces a missing one.
pub fn system_uuid(system_uuid: &Read<String>, machine_id: &Read<String>) -> Finding {
    let check = "system-uuid";
    match system_uuid.as_deref() {
        Ok(uuid) if !uuid.is_empty() && system_uuid != machine_id => {
            Finding::ok(check, format!("{uuid}, from DMI or the device tree"))
        }
        _ => Finding::note(
            check,
            "neither DMI nor the device tree has one, the machine id is used",
            "",
        ),
    }
}

/// If the clock is earlier than the build, every certificate is not valid yet.
pub fn clock(now: Wall, built: Wall) -> Finding {
    let time = now.time();
    match now >= built {
        true => Finding::ok("clock", time),
        false => Finding::failed(
            "clock",
            &format!(
                "{time} is earlier than the build of nodelet, {}",
                built.time()
            ),
            "set the clock (NTP, RTC), or certificates are refused as not valid yet",
        ),
    }
}

/// `missing` has one line for each fact that the Node would lack.
pub fn facts(missing: &[String]) -> Finding {
    let remedy = "is /proc mounted, and may nodelet read it?";
    match missing {
        [] => Finding::ok("facts", "everything that the Node reports can be read"),
        // A semicolon would start the remedy: see [`Finding::failed`].
        lines => Finding::failed("facts", &lines.join(" | ").replace("; ", ", "), remedy),
    }
}

/// `storage` is `None` for a file system without a size. `writable` holds the reason why the folder
/// cannot be written; the caller passes `Ok` for a folder that must not be touched.
pub fn root_dir(
    path: &str,
    storage: Option<&Read<FileSystem>>,
    writable: Result<(), String>,
) -> Finding {
    match (storage, writable) {
        (Some(Err(unread)), _) => Finding::failed(
            "root-dir",
            &unread.to_string(),
            "give --root-dir a local file system",
        ),
        (Some(Ok(_)), Ok(())) => Finding::ok("root-dir", path),
        (None, Ok(())) => Finding::ok(
            "root-dir",
            format!("{path}, a file system without a size: ephemeral-storage is not reported"),
        ),
        (_, Err(cause)) => Finding::note(
            "root-dir",
            format!("{path}: {cause}, podCIDRs cannot be written there"),
            "make it writable if another program needs the file podcidr",
        ),
    }
}

/// `writable` is `None` if no certificate is requested: nothing is written there.
pub fn cert_dir(path: &str, writable: Option<Result<(), String>>) -> Finding {
    let check = "cert-dir";
    match writable {
        None => Finding::note(check, "certificates are not requested here", ""),
        Some(Ok(())) => Finding::ok(check, path),
        Some(Err(cause)) => Finding::failed(
            check,
            &format!("{path}: {cause}"),
            "make --cert-dir a folder that nodelet may write, on a persistent disk",
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
    fn a_missing_optional_source_is_a_note_with_a_remedy() {
        let sized = Ok(FileSystem::default());
        let unread = || Unread::new("proc/x", "permission denied");
        for (finding, mark, part) in [
            (cgroups(Some("v2")), Mark::Ok, "v2"),
            (cgroups(None), Mark::Note, "mount cgroup2"),
            (memory_controller(&Ok(true)), Mark::Ok, "on"),
            (
                memory_controller(&Ok(false)),
                Mark::Note,
                "cgroup_enable=memory",
            ),
            (
                memory_controller(&Err(unread())),
                Mark::Note,
                "proc/x: permission denied",
            ),
            (psi(&Ok(true)), Mark::Ok, "proc/pressure/memory"),
            (psi(&Ok(false)), Mark::Note, "psi=1"),
            (
                psi(&Err(unread())),
                Mark::Note,
                "permission denied; boot with psi=1",
            ),
            (machine_id(&Ok("abc".into())), Mark::Ok, "abc"),
            (
                machine_id(&Ok(String::new())),
                Mark::Failed,
                "systemd-machine-id-setup",
            ),
            (machine_id(&Err(unread())), Mark::Failed, "proc/x"),
            (
                system_uuid(&Ok("u".into()), &Ok("m".into())),
                Mark::Ok,
                "u, from",
            ),
            (
                system_uuid(&Ok("m".into()), &Ok("m".into())),
                Mark::Note,
                "machine id is used",
            ),
            (
                system_uuid(&Ok(String::new()), &Ok("m".into())),
                Mark::Note,
                "machine id is used",
            ),
            (
                system_uuid(&Err(unread()), &Ok("m".into())),
                Mark::Note,
                "machine id is used",
            ),
            (facts(&[]), Mark::Ok, "everything"),
            (
                facts(&[
                    "proc/meminfo: absent; no capacity memory".into(),
                    "b".into(),
                ]),
                Mark::Failed,
                "proc/meminfo: absent, no capacity memory | b; is /proc",
            ),
            (root_dir("/r", Some(&sized), Ok(())), Mark::Ok, "/r"),
            (
                root_dir("/r", Some(&sized), Err("read-only file system".into())),
                Mark::Note,
                "/r: read-only file system, podCIDRs",
            ),
            (cert_dir("/c", None), Mark::Note, "not requested"),
            (cert_dir("/c", Some(Ok(()))), Mark::Ok, "/c"),
            (
                cert_dir("/c", Some(Err("read-only file system".into()))),
                Mark::Failed,
                "/c: read-only file system; make --cert-dir a folder",
            ),
            (
                root_dir("/r", Some(&Err(unread())), Ok(())),
                Mark::Failed,
                "--root-dir",
            ),
        ] {
            assert_eq!(finding.mark, mark, "{finding:?}");
            assert!(finding.line().contains(part), "{finding:?}");
        }
    }

    #[test]
    fn a_clock_before_the_build_fails() {
        let at = |seconds| Wall::from_epoch(Duration::from_secs(seconds));
        assert_eq!(clock(at(5), at(5)).mark, Mark::Ok);
        assert_eq!(
            clock(at(4), at(5)).line(),
            "✗ clock: 1970-01-01T00:00:04Z is earlier than the build of nodelet, 1970-01-01T00:00:05Z; \
             set the clock (NTP, RTC), or certificates are refused as not valid yet"
        );
    }
}
