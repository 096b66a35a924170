//! The files below a folder in a fixed order, for a folder of drop-ins.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::guard;
use super::read::cause;
use super::root::names_in;
use crate::kube::text::Fault;

/// Most files and folders below a folder of drop-ins.
const MOST: usize = 1024;

/// The files below `folder` whose name ends with `suffix`, in the order of Go's `filepath.WalkDir`:
/// by name, with the files of a folder where the folder's name stands, such as `a`, `b/x`, `c`. A
/// link to a folder counts as a file. A name that is not UTF-8 is skipped.
pub fn files_below(folder: &Path, suffix: &str) -> Result<Vec<PathBuf>, Fault> {
    let (mut files, mut seen) = (Vec::new(), 0);
    // The path that comes next is the last one.
    let mut ahead = vec![guard::found(folder).map_err(|e| cause(&e))?];
    while let Some(path) = ahead.pop() {
        let at = |error| cause(&error).at(path.display());
        guard::parent_resolved(&path).map_err(at)?;
        if path.symlink_metadata().map_err(at)?.is_dir() {
            let mut names = names_in(&path, MOST).map_err(at)?;
            seen += names.len();
            if seen > MOST {
                return Err(format!("more than {MOST} files and folders").into());
            }
            names.sort_unstable();
            ahead.extend(names.iter().rev().map(|name| path.join(name)));
        } else if path
            .file_name()
            .map(OsStr::as_bytes)
            .is_some_and(|name| name.ends_with(suffix.as_bytes()))
        {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_come_in_the_order_of_their_names_and_a_folder_in_the_place_of_its_name() {
        let tree = Tree::empty("walk");
        for name in ["d/10.conf", "d/9.conf", "d/.conf", "d/b/z.conf", "d/b/c/a.conf", "d/a.conf"] {
            tree.write(name, b"");
        }
        for name in ["d/b.conf", "d/README", "d/x.conf.swp", "d/xconf", "other/o.conf"] {
            tree.write(name, b"");
        }
        // Not followed: the read of the file says what it is.
        symlink("../other", tree.path().join("d/c.conf")).unwrap();
        symlink("../other", tree.path().join("d/e")).unwrap();
        symlink("d", tree.path().join("link")).unwrap();
        let want = ".conf 10.conf 9.conf a.conf b/c/a.conf b/z.conf b.conf c.conf";
        for folder in ["d", "link"] {
            let files = files_below(&tree.path().join(folder), ".conf").unwrap();
            let names = files.iter().map(|f| f.strip_prefix(tree.path().join("d")).unwrap());
            assert_eq!(
                names.collect::<Vec<_>>(),
                want.split(' ').map(Path::new).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn a_folder_that_is_missing_too_large_or_on_a_network_is_an_error() {
        let tree = Tree::beside_a_network_mount("walk-refused");
        let error = |name: &str| files_below(&tree.path().join(name), "").unwrap_err().to_string();
        assert_eq!(error("missing"), "no such file or directory");
        assert!(error("net").contains("can block for ever"));
        assert!(error(".").contains("can block for ever"), "a mount below the folder");
        for number in 0..=MOST {
            tree.write(&format!("many/{number}"), b"");
        }
        assert!(error("many").contains("more than 1024"), "{}", error("many"));
    }
}
