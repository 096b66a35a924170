//! When to read a token or a client certificate again, because somebody replaced the file.
//!
//! A kubelet, an operator or systemd writes these files while the agent runs. They are looked at
//! once a minute, and at once after a 401 or an unanswered request. A look costs one stat for each
//! file. A file that cannot be used leaves the old credential in use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::kubeconfig::{read_certificate, read_token};
use crate::core::instant::Mono;
use crate::core::outage_log::OutageLog;
use crate::files::guard;
use crate::wire::api::Api;
use crate::wire::api_config::ApiConfig;
use crate::wire::authorization::Authorization;

/// client-go reads a tokenFile again after this time.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The files behind an [`ApiConfig`]'s credentials.
#[derive(Debug)]
pub(super) struct Watch {
    /// `tokenFile`.
    token: Option<Watched<1>>,
    /// `client-certificate` and `client-key`, where both are files.
    certificate: Option<Watched<2>>,
    due: Mono,
    log: OutageLog,
}

impl Watch {
    /// The files of a configuration that was just read.
    pub(super) fn new(config: &ApiConfig) -> Self {
        let token = match &config.authorization {
            Some(Authorization::Bearer {
                token,
                file: Some(file),
            }) => {
                let unchanged = || read_token(file).is_ok_and(|now| now == *token);
                Some(Watched::new([file.clone()], unchanged))
            }
            _ => None,
        };
        let certificate = config.certificate.as_ref().and_then(|certificate| {
            let files = [
                certificate.chain.file.clone()?,
                certificate.key.file.clone()?,
            ];
            let [chain, key] = files.each_ref();
            let unchanged = || read_certificate(chain, key).is_ok_and(|now| now == *certificate);
            Some(Watched::new(files.clone(), unchanged))
        });
        Self {
            token,
            certificate,
            due: Mono::START.after(LOOK_EVERY),
            log: OutageLog::new("credentials"),
        }
    }

    /// The server refused the credentials: the next look is due.
    pub(super) fn doubt(&mut self) {
        self.due = Mono::START;
    }

    /// Looks at the files where that is due, and hands what changed to `config` and `api`.
    pub(super) fn refresh(&mut self, config: &mut ApiConfig, api: &mut Api, now: Mono) {
        if self.due > now || (self.token.is_none() && self.certificate.is_none()) {
            return;
        }
        self.due = now.after(LOOK_EVERY);
        let token = match &mut self.token {
            Some(token) => token.look(|[path]| {
                let (token, file) = (read_token(path)?, Some(path.to_owned()));
                let bearer = Authorization::Bearer { token, file };
                api.set_authorization(&bearer)?;
                config.authorization = Some(bearer);
                Ok(())
            }),
            None => Ok(()),
        };
        let certificate = match &mut self.certificate {
            Some(certificate) => certificate.look(|[chain, key]| {
                let changed = ApiConfig {
                    certificate: Some(read_certificate(chain, key)?),
                    ..config.clone()
                };
                api.set_identity(&changed)?;
                *config = changed;
                log::info!("{}: read again; connecting with it", chain.display());
                Ok(())
            }),
            None => Ok(()),
        };
        match token.and(certificate) {
            Ok(()) => {
                self.log.succeeded(now);
            }
            Err(why) => {
                self.log
                    .failed(&format!("{why}; the old one stays in use"), now);
            }
        }
    }
}

/// Files, and the state of them that is in use.
#[derive(Debug)]
struct Watched<const N: usize> {
    files: [PathBuf; N],
    /// None where it is not known.
    used: Option<[Stamp; N]>,
}

impl<const N: usize> Watched<N> {
    /// `unchanged` tells whether the files still hold what was read before.
    fn new(files: [PathBuf; N], unchanged: impl FnOnce() -> bool) -> Self {
        let stamps = stamps(&files);
        let used = unchanged().then_some(stamps).flatten();
        Self { files, used }
    }

    /// Calls `take` to read the files where they may have changed. A failure is tried again at
    /// the next look.
    fn look(&mut self, take: impl FnOnce([&Path; N]) -> Result<(), String>) -> Result<(), String> {
        // Taken before the files are read: a write in between is found at the next look.
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
        let file = guard::found(file).and_then(fs::metadata).ok()?;
        *stamp = Stamp {
            place: [file.dev(), file.ino(), file.size()],
            written: [file.mtime(), file.mtime_nsec()],
            changed: [file.ctime(), file.ctime_nsec()],
        };
    }
    Some(stamps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tree::Tree;

    /// A file that is replaced after the kubeconfig was read, and before the first look, is found.
    #[test]
    fn a_pair_that_changed_before_the_first_look_is_found() {
        let tree = Tree::new("watch-early");
        let pair = |serial: u8| {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec![format!("pi-{serial}")]).unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            tree.write("pair", format!("{pem}{}", key.serialize_pem()).as_bytes());
            read_certificate(&tree.path().join("pair"), &tree.path().join("pair")).unwrap()
        };
        let first = pair(1);
        let mut config = ApiConfig {
            certificate: Some(first.clone()),
            ..ApiConfig::of("http://127.0.0.1:1").unwrap()
        };
        let second = pair(2);
        let mut watch = Watch::new(&config);
        let mut api = Api::new(&config, "test").unwrap();
        watch.refresh(&mut config, &mut api, Mono::START.after(LOOK_EVERY));
        assert_ne!(first, second);
        assert_eq!(config.certificate, Some(second));
    }
}
