//! `proc/self/mountinfo` and `proc/mounts`, and what is asked of the table.
#![no_main]

use std::path::Path;

use nodelet::os::mounts;
use nodelet::host::cgroup;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = text.lines().filter_map(|line| mounts::parse_superblock(line, |_| true)).count();
    let _ = mounts::points_in_fstab(text);
    for parse in [mounts::parse_mountinfo, mounts::parse_mounts] {
        let table: Vec<mounts::Mount> = text.lines().filter_map(parse).collect();
        let _ = cgroup::mode(&table);
        let path = Path::new("/var/lib/kubelet");
        if let Some(mount) = mounts::over(&table, path) {
            assert!(path.starts_with(&mount.point));
        }
    }
});
