//! A path followed one component at a time, links included, inside a root.
//!
//! For what openat2 cannot do: run on old kernels, list folders without an own
//! descriptor, and look at the mount table before a path is touched. Unlike openat2
//! it can lose a race against a rename, so it is no guard against a hostile root.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

/// The kernel's own bound on links in one path (MAXSYMLINKS).
const MAX_LINKS: usize = 40;

/// Where a walk ended. Neither path has a link in it below its root.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The whole path exists.
    Found(PathBuf),
    /// The nearest ancestor that exists.
    MissingBelow(PathBuf),
}

/// Follows `path` component by component as if `root` were `/`. `may_touch` hears
/// each path before the file system does, and can refuse it.
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

    #[test]
    fn a_walk_asks_before_it_touches() {
        let tree = Tree::new("asks");
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
        let refused = resolve_path(tree.path(), Path::new("etc"), &mut |_| {
            Err(io::Error::other("no"))
        });
        assert!(refused.is_err());
    }
}
