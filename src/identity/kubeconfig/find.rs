//! The place of a file that a flag or a kubeconfig names with a relative path.

use std::path::{Path, PathBuf};

use crate::files::guard::exists;

/// Joins `path` with the first of `folders` that contains it, or else with `folders[0]`.
///
/// The other folders are searched for a bare name only: systemd's credentials have bare names. The
/// last candidate is `nodelet.NAME` in `folders[0]`, the file behind the credential NAME of
/// nodelet.service.
pub fn find(path: &Path, folders: &[&Path]) -> PathBuf {
    let Some((first, others)) = folders.split_first() else {
        return path.to_owned();
    };
    let in_first = first.join(path);
    if path.file_name() != Some(path.as_os_str()) || exists(&in_first) {
        return in_first;
    }
    let candidates = others.iter().map(|folder| folder.join(path));
    let mut candidates = candidates.chain([first.join(format!("nodelet.{}", path.display()))]);
    candidates.find(|path| exists(path)).unwrap_or(in_first)
}
