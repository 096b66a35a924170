//! When to read a token or a client certificate again, because somebody replaced it.
//!
//! Others write these files while we run: a kubelet, an operator, systemd. They are
//! looked at once a minute, and at once when the server did not take what we have; a
//! look costs one stat each. What is half written stays unused until it is whole.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::edge::Edge;
use crate::kube::kubeconfig::{Authorization, Identity, Kubeconfig, read_token};
use crate::now::Mono;

/// client-go reads a tokenFile again after this time.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The files behind a kubeconfig's credentials.
#[derive(Debug)]
pub(super) struct Credentials {
    /// `tokenFile`.
    pub(super) token: Option<Watched<1>>,
    /// `client-certificate` and `client-key`, where both are files.
    pub(super) identity: Option<Watched<2>>,
    due: Mono,
    edge: Edge,
}

impl Credentials {
    /// Those of a kubeconfig that was just read.
    pub(super) fn new(kubeconfig: &Kubeconfig) -> Self {
        let token = match &kubeconfig.authorization {
            Some(Authorization::Bearer {
                token,
                file: Some(file),
            }) => {
                let unchanged = || read_token(file).is_ok_and(|now| now == *token);
                Some(Watched::new([file.clone()], unchanged))
            }
            _ => None,
        };
        let identity = kubeconfig.identity.as_ref().and_then(|identity| {
            let files = [identity.chain.file.clone()?, identity.key.file.clone()?];
            let [chain, key] = files.each_ref();
            let unchanged = || Identity::read(chain, key).is_ok_and(|now| now == *identity);
            Some(Watched::new(files.clone(), unchanged))
        });
        Self {
            token,
            identity,
            due: Mono::START.after(LOOK_EVERY),
            edge: Edge::new("credentials"),
        }
    }

    /// The server did not take them: they are due.
    pub(super) fn doubt(&mut self) {
        self.due = Mono::START;
    }

    pub(super) fn is_due(&self, now: Mono) -> bool {
        self.due <= now && (self.token.is_some() || self.identity.is_some())
    }

    /// What came of a look at both.
    pub(super) fn looked(
        &mut self,
        token: Result<(), String>,
        identity: Result<(), String>,
        now: Mono,
    ) {
        self.due = now.after(LOOK_EVERY);
        match token.and(identity) {
            Ok(()) => {
                self.edge.succeeded(now);
            }
            Err(why) => {
                self.edge
                    .failed(&format!("{why}; the old one stays in use"), now);
            }
        }
    }
}

/// Files, and which state of them is in use.
#[derive(Debug)]
pub(super) struct Watched<const N: usize> {
    files: [PathBuf; N],
    /// None where it is not known.
    used: Option<[Stamp; N]>,
}

impl<const N: usize> Watched<N> {
    /// `unchanged` tells whether they still hold what was read before.
    fn new(files: [PathBuf; N], unchanged: impl FnOnce() -> bool) -> Self {
        let stamps = stamps(&files);
        let used = unchanged().then_some(stamps).flatten();
        Self { files, used }
    }

    /// Has `take` read the files and use what is in them, where that may be another thing
    /// than before. What it refuses is looked at again the next time.
    pub(super) fn look(
        &mut self,
        take: impl FnOnce([&Path; N]) -> Result<(), String>,
    ) -> Result<(), String> {
        // Before they are read: what is written meanwhile is found the next time.
        let stamps = stamps(&self.files);
        if stamps.is_some() && stamps == self.used {
            return Ok(());
        }
        take(self.files.each_ref().map(PathBuf::as_path))?;
        self.used = stamps;
        Ok(())
    }
}

/// What the kernel changes when a file, or the link to it, is replaced or written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stamp {
    place: [u64; 3],
    written: [i64; 2],
    changed: [i64; 2],
}

fn stamps<const N: usize>(files: &[PathBuf; N]) -> Option<[Stamp; N]> {
    let mut stamps = [Stamp::default(); N];
    for (stamp, file) in stamps.iter_mut().zip(files) {
        let file = fs::metadata(file).ok()?;
        *stamp = Stamp {
            place: [file.dev(), file.ino(), file.size()],
            written: [file.mtime(), file.mtime_nsec()],
            changed: [file.ctime(), file.ctime_nsec()],
        };
    }
    Some(stamps)
}
