//! `proc/self/mountinfo` and `proc/mounts`, and what is asked of the table.
#![no_main]

use std::path::Path;

use nodelet::files::mounts;
use nodelet::host::cgroup;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = mounts::parse_superblocks(text, |_| true);
    let _ = mounts::read_only_in_fstab(text);
    for table in [mounts::parse_mountinfo(text), mounts::parse_mounts(text)] {
        let _ = cgroup::mode(&table);
        let path = Path::new("/var/lib/kubelet");
        if let Some(mount) = mounts::over(&table, path) {
            assert!(path.starts_with(&mount.point));
        }
    }
});
