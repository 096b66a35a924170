//! The identity of the machine: machine-id, system UUID, boot id, kernel, os-release, host name.
//!
//! The order of the sources is cAdvisor's. If no source exists, an identity is `""`, as in a
//! kubelet. If one exists but none is readable, it is unread.

use crate::kube::facts::{Facts, Read, Unread, is_machine_id, renew};
use crate::os::host_name;
use crate::os::read::SMALL;
use crate::os::root::{HostRoot, text, unread};

/// Sets the facts that a boot or an administrator changes: `all`, or those that may have changed.
pub(super) fn refresh(root: &HostRoot, facts: &mut Facts, all: bool) {
    refresh_kernel(root, facts, all);
    // The first boot of an image writes machine-id, perhaps after the last read.
    let has_id = facts.machine_id.as_deref().is_ok_and(is_machine_id);
    if all || !has_id || is_missing(&facts.system_uuid) {
        let (machine_id, system_uuid) = identities(root);
        renew(&mut facts.machine_id, machine_id);
        renew(&mut facts.system_uuid, system_uuid);
    }
    renew(&mut facts.os_image, os_image(root));
}

fn is_missing(text: &Read<String>) -> bool {
    text.as_deref().unwrap_or_default().is_empty()
}

/// Sets the facts that are only in kernel files, which never block: `all`, or those that are
/// missing.
pub(super) fn refresh_kernel(root: &HostRoot, facts: &mut Facts, all: bool) {
    if all || is_missing(&facts.boot_id) {
        renew(&mut facts.boot_id, line(root, "proc/sys/kernel/random/boot_id"));
    }
    if all || is_missing(&facts.kernel_version) {
        renew(&mut facts.kernel_version, kernel_version(root));
    }
}

/// machineID and systemUUID.
fn identities(root: &HostRoot) -> (Read<String>, Read<String>) {
    let etc = trimmed(root, "etc/machine-id");
    let machine = first(&[&|| etc.clone(), &|| trimmed(root, "var/lib/dbus/machine-id")]);
    let system = first(&[
        &|| trimmed(root, "sys/class/dmi/id/product_uuid"),
        &|| device_tree(root, "proc/device-tree/system-id"),
        &|| device_tree(root, "proc/device-tree/vm,uuid"),
        &|| etc.clone(),
    ]);
    (machine, system)
}

/// The first readable source, even if it is empty; empty if none exists. No later source stands for
/// one that the look had no time for.
fn first(sources: &[&dyn Fn() -> Read<String>]) -> Read<String> {
    let mut result = Ok(String::new());
    for source in sources {
        match source() {
            Ok(text) => return Ok(text),
            Err(unread) if unread.is_absent() => {}
            Err(unread) if unread.is_not_reached() => return Err(unread),
            broken => result = broken,
        }
    }
    result
}

fn trimmed(root: &HostRoot, path: &str) -> Read<String> {
    Ok(root.text(path, SMALL)?.trim().to_owned())
}

/// A device-tree string, which ends with a NUL byte.
fn device_tree(root: &HostRoot, path: &str) -> Read<String> {
    let mut bytes = root.bytes(path, SMALL).map_err(|error| unread(path, &error))?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(text(path, bytes)?.trim().to_owned())
}

/// `uname -r`; for a kernel without sysctl files, from `proc/version`.
fn kernel_version(root: &HostRoot) -> Read<String> {
    line(root, "proc/sys/kernel/osrelease").or_else(|unread| {
        let version = root.text("proc/version", SMALL).ok();
        version.as_deref().and_then(parse_version).ok_or(unread)
    })
}

/// `Linux version 5.10.0 (builder@host) ...` is `5.10.0`.
pub fn parse_version(version: &str) -> Option<String> {
    let release = version.strip_prefix("Linux version ")?.split_whitespace().next()?;
    Some(release.to_owned())
}

/// The host name file, or uname(2) if the root is the running machine's.
pub fn hostname(root: &HostRoot) -> Read<String> {
    line(root, "proc/sys/kernel/hostname").or_else(|unread| {
        let name = root.is_real().then(host_name).and_then(|name| name.into_string().ok());
        name.filter(|name| !name.is_empty()).ok_or(unread)
    })
}

fn line(root: &HostRoot, path: &str) -> Read<String> {
    match trimmed(root, path)? {
        text if text.is_empty() => Err(Unread::new(path, "empty")),
        text => Ok(text),
    }
}

/// PRETTY_NAME of `etc/os-release`, or of `usr/lib/os-release` if the first is missing.
fn os_image(root: &HostRoot) -> Read<String> {
    let text = match root.text("etc/os-release", SMALL) {
        Err(unread) if unread.is_absent() => root.text("usr/lib/os-release", SMALL),
        text => text,
    };
    Ok(parse_os_image(&text?))
}

/// The first match of cAdvisor's `PRETTY_NAME=(.*)`, anywhere in a line. Double quotes are trimmed,
/// single quotes are kept. `Linux` without a match.
pub fn parse_os_image(os_release: &str) -> String {
    match os_release.split_once("PRETTY_NAME=") {
        Some((_, rest)) => rest.split('\n').next().unwrap_or_default().trim_matches('"').to_owned(),
        None => "Linux".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn the_pretty_name_is_cadvisors_first_match() {
        for (text, name) in [
            (
                "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n",
                "Debian GNU/Linux 12 (bookworm)",
            ),
            ("PRETTY_NAME='Single quotes stay'\n", "'Single quotes stay'"),
            ("PRETTY_NAME=Wind River Linux 7.0.0.2", "Wind River Linux 7.0.0.2"),
            ("PRETTY_NAME=\"first\"\nPRETTY_NAME=\"second\"\n", "first"),
            ("# PRETTY_NAME=\"comment\"\n", "comment"),
            ("PRETTY_NAME=\"\"\n", ""),
            ("PRETTY_NAME=", ""),
            ("NAME=Nexus\n", "Linux"),
            ("", "Linux"),
        ] {
            assert_eq!(parse_os_image(text), name, "{text:?}");
        }
    }

    #[test]
    fn the_release_is_the_third_word_of_version() {
        let version = "Linux version 5.10.0 (a@b) (gcc 9) #1 SMP\n";
        assert_eq!(parse_version(version).as_deref(), Some("5.10.0"));
        for text in ["", "Linux version ", "Linux", "FreeBSD 14", "Linux version"] {
            assert_eq!(parse_version(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_first_readable_identity_wins_even_if_empty() {
        let tree = Tree::new("identities");
        let root = HostRoot::new(tree.path());
        let ok = |text: &str| Ok(text.to_owned());
        let identities = || super::identities(&root);
        assert_eq!(identities(), (ok(""), ok("")));
        tree.write("etc/machine-id", b"etc\n");
        assert_eq!(identities(), (ok("etc"), ok("etc")));
        tree.write("proc/device-tree/vm,uuid", b"vm\0");
        assert_eq!(identities(), (ok("etc"), ok("vm")));
        tree.write("sys/class/dmi/id/product_uuid", b"\n");
        assert_eq!(identities(), (ok("etc"), ok("")));
        tree.write("sys/class/dmi/id/product_uuid", b"a\0b\n");
        assert_eq!(identities(), (ok("etc"), ok("vm")));
        tree.write("proc/device-tree/vm,uuid", b"a\0b\0");
        assert_eq!(identities(), (ok("etc"), ok("etc")));
        std::fs::remove_file(tree.path().join("etc/machine-id")).unwrap();
        assert!(identities().1.is_err());
        tree.write("sys/class/dmi/id/product_uuid", b"dmi\n");
        assert_eq!(identities(), (ok(""), ok("dmi")));
        // The look ends while the machine-id is read.
        tree.write("etc/machine-id", b"etc\n");
        let _look = root.look_of(1);
        let unread = Unread::not_reached("sys/class/dmi/id/product_uuid");
        assert_eq!(identities(), (ok("etc"), Err(unread)));
    }
}
