//! Where a relative path leads that a flag or a kubeconfig names.

use std::path::{Path, PathBuf};

use crate::files::guard::exists;

/// The first of `folders` that has `path`, else the first one, joined with `path`.
///
/// In the other folders only a bare name is looked for, as systemd's credentials have. Last comes
/// `nodelet.NAME` beside the first: nodelet.service makes its credential NAME of that file.
pub fn find(path: &Path, folders: &[&Path]) -> PathBuf {
    let Some((first, others)) = folders.split_first() else {
        return path.to_owned();
    };
    let beside = first.join(path);
    if path.file_name() != Some(path.as_os_str()) || exists(&beside) {
        return beside;
    }
    let elsewhere = others.iter().map(|folder| folder.join(path));
    let elsewhere = elsewhere.chain([first.join(format!("nodelet.{}", path.display()))]);
    let found = elsewhere.into_iter().find(|path| exists(path));
    found.unwrap_or(beside)
}
