//! Kernel trees of boards, with symlinks or with files in place of symlinks.

use std::fs;
use std::path::{Path, PathBuf};

/// In a checkout without symlinks, a file contains the target of the link that it replaces.
pub(crate) fn link_target(file: &Path) -> Option<PathBuf> {
    let bytes = fs::read(file).unwrap();
    let text = String::from_utf8(bytes)
        .ok()
        .filter(|text| text.starts_with("../") || text.starts_with("self/"))
        .filter(|text| !text.contains('\n'))?;
    file.parent().unwrap().join(&text).exists().then(|| text.into())
}

/// A copy with all symlinks restored.
pub(crate) fn copy(from: &Path, to: &Path) {
    support::copy(from, to, link_target);
}

/// Every file below `folder`, without links.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.is_file() && !path.is_symlink()).collect()
}

/// Every file and link below `folder`.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found = walk(folder);
    found.retain(|path| !is_folder(path));
    found.sort();
    found
}

/// `folder`, and everything below it.
pub(crate) fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_path_buf()];
    let mut seen = 0;
    while let Some(path) = found.get(seen) {
        if is_folder(path) {
            let below = fs::read_dir(path).unwrap();
            found.extend(below.map(|entry| entry.unwrap().path()));
        }
        seen += 1;
    }
    found
}

pub(crate) fn is_folder(path: &Path) -> bool {
    path.is_dir() && !path.is_symlink()
}
