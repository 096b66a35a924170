//! `--state-file`: the agent writes the state of its Lease for `nodelet serve`.

use std::path::PathBuf;
use std::time::Duration;

use crate::kube::instant::Mono;
use crate::kube::lease_report::LeaseReport;
use crate::kube::outage_log::OutageLog;
use crate::os::clock::boot_number;
use crate::os::write::VolatileFile;

/// How often the agent looks whether the file is still at its path.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// The file, and when its path is checked next.
#[derive(Debug)]
pub(super) struct StateFile {
    file: VolatileFile,
    boot: u64,
    check_at: Mono,
    log: OutageLog,
}

impl StateFile {
    /// Writes nothing yet.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        let (file, check_at) = (VolatileFile::new(path), Mono::START);
        Self { file, boot: boot_number(), check_at, log: OutageLog::new("--state-file") }
    }

    /// Writes the state: one system call, and two more once a minute. A failure is logged, and
    /// costs nothing else.
    pub(super) fn write(&mut self, report: &LeaseReport, now: Mono) {
        if self.check_at <= now {
            self.check_at = now.after(CHECK_EVERY);
            self.file.check();
        }
        let written = self.file.overwrite(LeaseReport { boot: self.boot, ..*report }.line());
        let error = written.err().map(|why| why.to_string());
        self.log.ended(error.as_deref(), now);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::os::guard::read;
    use crate::os::mounts::pretend_mount;
    use crate::os::tree::Tree;

    /// The report at `path`, as `nodelet serve` reads it, without its boot number, which must be
    /// set. `None` if the file is unreadable or no report.
    fn last(path: &Path) -> Option<LeaseReport> {
        let report = LeaseReport::parse(&read(path).ok()?)?;
        assert_ne!(report.boot, 0);
        Some(LeaseReport { boot: 0, ..report })
    }

    fn minute(number: u64) -> Mono {
        Mono::START.after(Duration::from_secs(number * 60))
    }

    #[test]
    fn the_last_state_is_read_whatever_others_did_to_its_file() {
        let tree = Tree::empty("state-file");
        let path = tree.path().join("run/state");
        let at = |name: &str| tree.path().join(name);
        let mut file = StateFile::new(&path);
        assert_eq!(last(&path), None);
        let mut renewals = 0;
        let changes: [(&str, &dyn Fn()); 8] = [
            ("nothing", &|| {}),
            ("nothing again", &|| {}),
            ("removed", &|| fs::remove_file(&path).unwrap()),
            ("moved away", &|| fs::rename(&path, at("run/old")).unwrap()),
            ("cut off", &|| fs::write(&path, "torn").unwrap()),
            ("replaced", &|| fs::rename(at("run/old"), &path).unwrap()),
            ("linked", &|| {
                fs::rename(&path, at("elsewhere")).unwrap();
                symlink(at("elsewhere"), &path).unwrap();
            }),
            ("without its folder", &|| fs::rename(at("run"), at("gone")).unwrap()),
        ];
        for (what, change) in changes {
            change();
            renewals += 1;
            let renewed = Some(Duration::from_secs(renewals));
            let report = LeaseReport { renewals, renewed, ..LeaseReport::default() };
            file.write(&report, minute(renewals));
            assert_eq!(last(&path), Some(report), "{what}");
        }
    }

    /// A file is in the place of the folder, then a folder and a FIFO in that of the file.
    #[test]
    fn what_is_in_the_way_is_said_and_does_not_block() {
        let tree = Tree::empty("state-file-way");
        tree.write("run", b"in the way");
        let path = tree.path().join("run/state");
        let mut file = StateFile::new(&path);
        file.write(&LeaseReport::default(), Mono::START);
        assert!(file.log.last_error().unwrap().contains("run"), "{file:?}");
        fs::remove_file(tree.path().join("run")).unwrap();
        file.write(&LeaseReport::default(), Mono::START);
        assert_eq!((file.log.last_error(), last(&path)), (None, Some(LeaseReport::default())));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        file.write(&LeaseReport::default(), minute(1));
        assert!(file.log.last_error().unwrap().ends_with("is a directory"), "{file:?}");
        fs::remove_dir(&path).unwrap();
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        file.write(&LeaseReport::default(), minute(1));
        assert_eq!((file.log.last_error(), last(&path)), (None, Some(LeaseReport::default())));
    }

    /// A look at a file on a mount whose server is gone would block for ever.
    #[test]
    fn a_network_mount_over_the_folder_is_not_touched() {
        let tree = Tree::empty("state-file-mount");
        let path = tree.path().join("run/state");
        let mut file = StateFile::new(&path);
        file.write(&LeaseReport::default(), Mono::START);
        pretend_mount(&tree.path().join("run"), "nfs4");
        file.write(&LeaseReport { renewals: 1, ..LeaseReport::default() }, minute(1));
        assert!(file.log.last_error().unwrap().contains("is on nfs4"), "{file:?}");
        pretend_mount(&tree.path().join("run"), "tmpfs");
        assert_eq!(last(&path), Some(LeaseReport::default()));
    }
}
