//! `--ready-when-exists`: paths without which the Node is not ready.
//!
//! Whatever a board needs before it is of use (a mounted data partition, a service's
//! pid file) can make itself known by a path. One that cannot be looked at counts as
//! one that is not there, and one on a file system that could block is not looked at.

use std::path::PathBuf;

use crate::files::guard;
use crate::files::mounts::Mount;
use crate::files::read::cause;
use crate::files::resolve_path::Resolved;

/// One line for each of `paths` that does not exist. `mounts` is this process's own
/// table.
pub fn read(paths: &[PathBuf], mounts: &[Mount]) -> Vec<String> {
    let unhealthy = |path: &PathBuf| {
        let cause = match guard::resolve_in(path, mounts) {
            Ok(Resolved::Found(_)) => return None,
            Ok(Resolved::MissingBelow(_)) => "does not exist".to_owned(),
            Err(error) => cause(&error),
        };
        Some(format!("{0} is not healthy: {0}: {cause}", path.display()))
    };
    paths.iter().filter_map(unhealthy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_or_could_block_is_told() {
        let nfs = Mount {
            point: "/proc/self".into(),
            fs_type: "nfs4".to_owned(),
        };
        assert_eq!(
            read(&["/proc".into(), "/proc/self".into()], &[]),
            [] as [&str; 0]
        );
        let told = read(
            &["/proc".into(), "/no/such".into(), "/proc/self/stat".into()],
            &[nfs],
        );
        assert_eq!(told.len(), 2);
        assert!(
            told.iter()
                .any(|line| line == "/no/such is not healthy: /no/such: does not exist")
        );
        assert!(
            told.iter()
                .any(|line| line.contains("nfs4, which can block for ever"))
        );
    }
}
