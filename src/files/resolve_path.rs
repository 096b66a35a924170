//! Resolves a path one component at a time, links included, inside a root.
//!
//! Does what openat2 cannot do: it runs on old kernels, and it checks each component before the
//! kernel is asked about it. Unlike openat2 it can lose a race against a rename, so it does not
//! protect against a hostile root.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

/// The kernel's limit of links in one path (MAXSYMLINKS in linux/namei.h).
const MAX_LINKS: usize = 40;

/// Where a path leads. The contained path has no link below its root.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The whole path exists.
    Found(PathBuf),
    /// The nearest ancestor that exists.
    MissingBelow(PathBuf),
}

/// Resolves `path` as if `root` were `/`. `may_touch` is called with each path before the file
/// system is, and can refuse it. `root` itself is not checked.
pub fn resolve_path(
    root: &Path,
    path: &Path,
    may_touch: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<Resolved> {
    let mut at = root.to_path_buf();
    let mut ahead = Vec::new();
    push_reversed(&mut ahead, path);
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        if name == ".." {
            if at != root {
                at.pop();
            }
            continue;
        }
        let next = at.join(name);
        may_touch(&next)?;
        match next.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Resolved::MissingBelow(at));
            }
            Err(error) => return Err(error),
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                let target = next.read_link()?;
                if target.is_absolute() {
                    at = root.to_path_buf();
                }
                push_reversed(&mut ahead, &target);
            }
            Ok(_) => at = next,
        }
    }
    Ok(Resolved::Found(at))
}

fn push_reversed(ahead: &mut Vec<OsString>, path: &Path) {
    ahead.extend(
        path.components()
            .rev()
            .filter_map(|component| match component {
                Component::Normal(name) => Some(name.to_owned()),
                Component::ParentDir => Some(OsString::from("..")),
                Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
            }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tree::Tree;
    use std::os::unix::fs::symlink;

    fn resolved(tree: &Tree, path: &str) -> io::Result<Resolved> {
        resolve_path(tree.path(), Path::new(path), &mut |_| Ok(()))
    }

    #[test]
    fn each_component_is_checked_before_it_is_touched() {
        let tree = Tree::empty("resolve-order");
        symlink("/var/lib", tree.path().join("lib")).unwrap();
        tree.write("var/lib/x", b"");
        let mut asked = Vec::new();
        let end = resolve_path(tree.path(), Path::new("lib/missing/deeper"), &mut |path| {
            asked.push(path.strip_prefix(tree.path()).unwrap().to_path_buf());
            Ok(())
        });
        assert_eq!(
            end.unwrap(),
            Resolved::MissingBelow(tree.path().join("var/lib"))
        );
        assert_eq!(
            asked,
            ["lib", "var", "var/lib", "var/lib/missing"].map(PathBuf::from)
        );
    }

    #[test]
    fn nothing_is_touched_after_a_refusal() {
        let tree = Tree::empty("resolve-refusal");
        tree.write("a/b", b"");
        let mut asked = 0;
        let refused = resolve_path(tree.path(), Path::new("a/b"), &mut |_| {
            asked += 1;
            Err(io::Error::other("refused"))
        });
        assert_eq!(refused.unwrap_err().to_string(), "refused");
        assert_eq!(asked, 1);
    }

    #[test]
    fn the_parent_of_the_root_is_the_root() {
        let tree = Tree::empty("resolve-parent");
        tree.write("a/b", b"");
        let found = Resolved::Found(tree.path().join("a/b"));
        assert_eq!(resolved(&tree, "../../a/../../a/b").unwrap(), found);
    }

    #[test]
    fn a_path_of_more_than_40_links_is_an_error() {
        let tree = Tree::empty("resolve-links");
        symlink("loop", tree.path().join("loop")).unwrap();
        symlink(".", tree.path().join("l")).unwrap();
        let links = |count: usize| resolved(&tree, &vec!["l"; count].join("/"));
        let eloop = Some(Errno::ELOOP as i32);
        assert_eq!(resolved(&tree, "loop").unwrap_err().raw_os_error(), eloop);
        assert!(links(40).is_ok());
        assert_eq!(links(41).unwrap_err().raw_os_error(), eloop);
    }
}
