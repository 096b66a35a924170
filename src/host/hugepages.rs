//! Huge pages by size, from the folders `sys/kernel/mm/hugepages/hugepages-<n>kB`.
//!
//! A kernel without hugetlbfs has no such folder: an empty list, not an error. An unreadable count
//! makes the whole fact unread, so that no size is dropped silently.

use crate::core::facts::{HugePages, Read, Unread};
use crate::files::read::SMALL;

use super::root::HostRoot;

const FOLDER: &str = "sys/kernel/mm/hugepages";

/// Every page size of the kernel, ascending.
pub fn read(root: &HostRoot) -> Read<Vec<HugePages>> {
    let names = match root.list(FOLDER) {
        Ok(names) => names,
        Err(unread) if unread.absent => return Ok(Vec::new()),
        Err(unread) => return Err(unread),
    };
    let mut sizes = Vec::new();
    for name in names {
        let Some(page_bytes) = page_bytes(&name) else {
            continue;
        };
        let path = format!("{FOLDER}/{name}/nr_hugepages");
        let text = root.text(&path, SMALL)?;
        let count = text
            .trim()
            .parse()
            .map_err(|_| Unread::new(path, "not a number"))?;
        sizes.push(HugePages { page_bytes, count });
    }
    sizes.sort_unstable();
    Ok(sizes)
}

/// `hugepages-2048kB` is 2 MiB.
pub fn page_bytes(name: &str) -> Option<u64> {
    let kilobytes = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_contain_the_size() {
        assert_eq!(page_bytes("hugepages-64kB"), Some(64 << 10));
        assert_eq!(page_bytes("hugepages-16777216kB"), Some(16 << 30));
        for name in [
            "hugepages-",
            "hugepages-kB",
            "hugepages-2M",
            "2048kB",
            "hugepages-18446744073709551615kB",
        ] {
            assert_eq!(page_bytes(name), None, "{name}");
        }
    }
}
