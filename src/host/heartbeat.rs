//! The file in which the agent passes on the state of its Lease to `nodelet serve`.

use std::path::{Path, PathBuf};

use crate::core::heartbeat::Heartbeat;
use crate::core::instant::Mono;
use crate::core::outage_log::OutageLog;
use crate::files::read::read;
use crate::files::write::VolatileFile;

/// The agent's side.
#[derive(Debug)]
pub struct HeartbeatFile {
    file: VolatileFile,
    log: OutageLog,
}

impl HeartbeatFile {
    /// Writes nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { file: VolatileFile::new(path), log: OutageLog::new("--state-file") }
    }

    /// Writes the state: one system call, but for the first time. A failure is logged, and costs
    /// nothing else.
    pub fn write(&mut self, heartbeat: &Heartbeat, now: Mono) {
        let written = self.file.overwrite(heartbeat.line());
        self.log.ended(written.err().as_deref(), now);
    }
}

/// The last state that the agent wrote; `None` if it does not run, has not tried to renew its
/// Lease yet, or has another `--state-file`.
pub fn last(path: &Path) -> Option<Heartbeat> {
    let parsed = || read(path).ok().and_then(|line| Heartbeat::parse(&line));
    // A torn line is whole when it is read again.
    parsed().or_else(parsed)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::files::tree::Tree;

    #[test]
    fn the_last_state_is_read_and_a_removed_file_is_not_made_again() {
        let tree = Tree::empty("heartbeat");
        let path = tree.path().join("run/state");
        let mut file = HeartbeatFile::new(&path);
        assert_eq!(last(&path), None);
        for renewals in 1..4 {
            let renewed = Some(Duration::from_secs(renewals));
            let heartbeat = Heartbeat { renewals, renewed, ..Heartbeat::default() };
            file.write(&heartbeat, Mono::START);
            assert_eq!(last(&path), Some(heartbeat));
        }
        tree.write("run/state", b"torn");
        assert_eq!(last(&path), None);
        std::fs::remove_file(&path).unwrap();
        file.write(&Heartbeat::default(), Mono::START);
        assert_eq!(last(&path), None, "no system call looks for it");
    }

    /// The folder may come later.
    #[test]
    fn a_file_that_cannot_be_written_is_tried_again() {
        let tree = Tree::empty("heartbeat-late");
        tree.write("run", b"in the way");
        let path = tree.path().join("run/state");
        let mut file = HeartbeatFile::new(&path);
        file.write(&Heartbeat::default(), Mono::START);
        assert!(file.log.last_error().unwrap().contains("run"), "{file:?}");
        std::fs::remove_file(tree.path().join("run")).unwrap();
        file.write(&Heartbeat::default(), Mono::START);
        assert_eq!((file.log.last_error(), last(&path)), (None, Some(Heartbeat::default())));
    }
}
