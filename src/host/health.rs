//! `--ready-when-exists`: the Node is not ready while one of these paths is missing.
//!
//! A mounted data partition or a service's pid file can be such a path. A path that cannot be
//! resolved counts as missing; a path on a file system that can block is not touched.

use std::path::PathBuf;

use crate::files::guard;
use crate::files::mounts::Mount;
use crate::files::read::cause;
use crate::files::resolve_path::Resolved;

/// One line for each missing path. `mounts` is that of [`guard::own_mounts`].
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
    fn a_missing_path_and_a_path_that_can_block_have_a_line() {
        let nfs = Mount {
            point: "/proc/self".into(),
            fs_type: "nfs4".to_owned(),
        };
        assert_eq!(
            read(&["/proc".into(), "/proc/self".into()], &[]),
            [] as [&str; 0]
        );
        let lines = read(
            &["/proc".into(), "/no/such".into(), "/proc/self/stat".into()],
            &[nfs],
        );
        assert_eq!(lines.len(), 2);
        assert!(
            lines
                .iter()
                .any(|line| line == "/no/such is not healthy: /no/such: does not exist")
        );
        assert!(
            lines
                .iter()
                .any(|line| line.contains("nfs4, which can block for ever"))
        );
    }
}
