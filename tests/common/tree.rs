//! Kernel trees of boards, with symlinks or with files in place of symlinks.

use std::fs;
use std::os::unix::fs::symlink;
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
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&from, &to),
            kind if kind.is_symlink() => symlink(fs::read_link(from).unwrap(), to).unwrap(),
            _ => match link_target(&from) {
                Some(target) => symlink(target, to).unwrap(),
                None => fs::write(to, fs::read(from).unwrap()).unwrap(),
            },
        }
    }
}

/// Every file below `folder`, without links.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.is_file() && !path.is_symlink()).collect()
}

/// Every file and link below `folder`.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_folder = path.is_dir() && !path.is_symlink();
            if is_folder { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}
