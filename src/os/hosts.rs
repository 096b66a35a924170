//! The text of /etc/hosts, for the address of the node and before a name server is asked.

use std::fs::File;
use std::io;
use std::net::IpAddr;

use super::read::{LARGE, each_line, from_start};

/// Bytes of a hosts file that are read: one that blocks the names of advertisers has several MiB.
const MOST: usize = 16 << 20;

/// The [`addresses`] of `name` in the first [`MOST`] bytes of a file.
pub(crate) fn in_file(file: &File, name: &str) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    let mut take = |line: &str| found.extend(addresses(line, name));
    let (mut each, mut kept, mut left) = (each_line(&mut take), 0, MOST);
    let rest = from_start(file, LARGE, &mut |bytes| {
        left = left.saturating_sub(bytes.len() - kept);
        each(bytes);
        kept = bytes.len();
        left == 0
    })?;
    drop(each);
    // The last line may have no newline. If the read ended at MOST, the rest is a part of a line.
    if left > 0 {
        found.extend(addresses(&String::from_utf8_lossy(&rest), name));
    }
    Ok(found)
}

/// The addresses of `name`, in file order. A line without a valid address is skipped.
pub fn addresses(hosts: &str, name: &str) -> Vec<IpAddr> {
    // As in Go, case does not matter, and `name` is equal to `name.`.
    let wanted = name.strip_suffix('.').unwrap_or(name);
    let address = |line: &str| {
        let mut fields = line.split('#').next()?.split_ascii_whitespace();
        let address = fields.next()?;
        let is_wanted =
            |name: &str| name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(wanted);
        fields.any(is_wanted).then(|| address.parse().ok())?
    };
    hosts.lines().filter_map(address).collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    /// `/etc/hosts` may be a link to anything.
    #[test]
    fn sixteen_mib_of_a_hosts_file_count() {
        let tree = Tree::new("hosts-most");
        tree.write("hosts", "192.0.2.1 pi\n".repeat(MOST / 13 + 1000).as_bytes());
        let found = in_file(&File::open(tree.join("hosts")).unwrap(), "pi").unwrap();
        assert!((MOST / 13 - 1..=MOST / 13).contains(&found.len()), "{}", found.len());
        // The end of the read is behind `pi`.
        let blocked = "0.0.0.0 blocked\n".repeat(MOST / 16 - 1);
        tree.write("hosts", format!("#ab\n{blocked}192.0.2.9 pihole\n").as_bytes());
        let found = in_file(&File::open(tree.join("hosts")).unwrap(), "pi").unwrap();
        assert!(found.is_empty(), "a line that was cut: {found:?}");
    }

    #[test]
    fn hosts_name_the_node_in_file_order() {
        let hosts = "127.0.0.1\tlocalhost\n127.0.1.1\tPi-3.local pi-3 # pi-4\n\n# 10.0.0.9 pi-3\nfd00::3 \t other PI-3.\r\nfe80::1%eth0 pi-3\nnot-an-ip pi-3\n10.0.0.1 pi-33\n10.0.0.3 pi-3";
        for (name, want) in [
            ("pi-3", &["127.0.1.1", "fd00::3", "10.0.0.3"] as &[&str]),
            ("PI-3.LOCAL", &["127.0.1.1"]),
            ("pi-3.local.", &["127.0.1.1"]),
            ("pi-4", &[]),
        ] {
            let want: Vec<IpAddr> = want.iter().map(|ip| ip.parse().unwrap()).collect();
            assert_eq!(addresses(hosts, name), want, "{name}");
        }
        assert_eq!(addresses("", "pi-3"), [] as [IpAddr; 0]);
    }
}
