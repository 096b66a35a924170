//! Reads a token, a client certificate or a CA again after another program replaced its file.
//!
//! A kubelet, an operator or systemd writes these files while the agent runs. They are checked once
//! a minute, and at once after a 401 or a request without a response. A check costs one stat(2) for
//! each file. If a new file is not usable, the old credential stays in use. If the root file system
//! can block (`guard::root_can_block`), they are checked only after a 401 or a request without a
//! response.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::kubeconfig::{read_certificate, read_pem, read_token};
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, Authorization, ClientCertificate, Pem};
use crate::client::tls::{SYSTEM_ROOTS, system_bundle};
use crate::kube::instant::Mono;
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::kube::x509::{Leaf, Subject};
use crate::os::guard;
use crate::os::read::Stamp;

/// client-go's `cachingTokenSource` reads a tokenFile again after this time.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// A credential that another program replaced on disk, and that is in use now.
#[derive(Debug, PartialEq)]
pub(super) enum Replaced {
    /// The client certificate, and perhaps the token.
    Certificate(Leaf),
    /// The token.
    Token,
}

/// The files behind an [`ApiConfig`]'s credentials.
#[derive(Debug)]
pub(super) struct CredentialFiles {
    /// `tokenFile`.
    token: Option<StampedFiles<1>>,
    /// `client-certificate` and `client-key`, if both are files.
    certificate: Option<StampedFiles<2>>,
    /// `certificate-authority`, which client-go reads again since 1.36, or the system's roots: the
    /// server may move to one that came after the start.
    ca: Option<StampedFiles<1>>,
    due: Mono,
    log: OutageLog,
}

impl CredentialFiles {
    /// The files of `config`, which was just read.
    pub(super) fn new(config: &ApiConfig) -> Self {
        let token = match &config.authorization {
            Some(Authorization::Bearer { token, file: Some(file) }) => {
                let unchanged = || read_token(file).is_ok_and(|read| read == *token);
                Some(StampedFiles::new([file.clone()], unchanged))
            }
            _ => None,
        };
        Self {
            token,
            certificate: config.certificate.as_ref().and_then(StampedFiles::of_certificate),
            ca: ca_file(config),
            due: Mono::START.after(CHECK_EVERY),
            log: OutageLog::new("credentials"),
        }
    }

    /// Replaces the files by those of `config`, which was just read. The log stays: a failure that
    /// it has told ends with the first check of the new files that succeeds.
    pub(super) fn replace(&mut self, config: &ApiConfig) {
        let log = std::mem::replace(&mut self.log, OutageLog::new("credentials"));
        *self = Self { log, ..Self::new(config) };
    }

    /// Replaces the files by those of `config`. A file that both have keeps its stamp.
    pub(super) fn follow(&mut self, config: &ApiConfig) {
        let new = Self::new(config);
        follow(&mut self.token, new.token);
        follow(&mut self.certificate, new.certificate);
        follow(&mut self.ca, new.ca);
    }

    /// Makes the next check due.
    pub(super) fn check_next(&mut self) {
        self.due = Mono::START;
    }

    /// Returns whether the files must be checked now. The next check is then due in a minute.
    pub(super) fn begins(&mut self, now: Mono) -> bool {
        let (is_due, is_asked) = (self.due <= now, self.due == Mono::START);
        if is_due {
            self.due = now.after(CHECK_EVERY);
        }
        is_due && (is_asked || !guard::root_can_block())
    }

    /// Checks the files, and passes changes to `api`. Returns the credential that is
    /// in use from now on, if it changed. `bootstrap` is the result of reading the bootstrap
    /// kubeconfig, for the log. The certificate of another node than `own` is refused.
    pub(super) fn refresh(
        &mut self,
        api: &mut Api,
        bootstrap: Result<(), Fault>,
        own: &Subject,
        now: Mono,
    ) -> Option<Replaced> {
        let mut replaced = None;
        let token = check(&mut self.token, |[path]| {
            let (token, file) = (read_token(path)?, Some(path.to_owned()));
            let bearer = Authorization::Bearer { token, file };
            api.set_authorization(&bearer)?;
            replaced = Some(Replaced::Token);
            Ok(())
        });
        let ca = check(&mut self.ca, |[path]| {
            // `set_identity` reads the system's roots.
            let ca = api.config.ca.as_ref().map(|_| read_pem(path)).transpose()?;
            let changed = ApiConfig { ca, ..api.config.clone() };
            api.set_identity(&changed)?;
            log::info!("{}: read again; connecting with it", path.display());
            Ok(())
        });
        let certificate = check(&mut self.certificate, |[chain, key]| {
            let certificate = read_certificate(chain, key)?;
            let leaf = Leaf::of_pem(&certificate.chain.bytes);
            if let Some(other) = leaf.as_ref().and_then(|leaf| leaf.subject.other_node(own)) {
                let fault = Fault::new(other.what, "install the certificate of this node");
                return Err(fault.at(chain.display()));
            }
            let changed = ApiConfig { certificate: Some(certificate), ..api.config.clone() };
            api.set_identity(&changed)?;
            replaced = leaf.map(Replaced::Certificate);
            log::info!("{}: read again; connecting with it", chain.display());
            Ok(())
        });
        let failed = token.and(ca).and(certificate).and(bootstrap).err();
        let error = failed.map(|why| format!("{why}; the old one stays in use"));
        self.log.ended(error.as_deref(), now);
        replaced
    }
}

/// The file with the CAs that the server is verified with.
fn ca_file(config: &ApiConfig) -> Option<StampedFiles<1>> {
    match &config.ca {
        Some(ca) => StampedFiles::of_pem(ca),
        None if !config.endpoint.tls || config.insecure => None,
        None => system_bundle(&SYSTEM_ROOTS).map(|path| StampedFiles::new([path.into()], || true)),
    }
}

/// Files, and their stamps when they were last read.
#[derive(Debug)]
pub(crate) struct StampedFiles<const N: usize> {
    files: [PathBuf; N],
    /// The stamps of the content that is in use. `None` if they are not known: the next check reads
    /// the files.
    used: Option<[Stamp; N]>,
}

impl StampedFiles<1> {
    /// The file that `pem` was read from, if it was.
    pub(crate) fn of_pem(pem: &Pem) -> Option<Self> {
        let file = pem.file.as_ref()?;
        Some(Self::new([file.clone()], || read_pem(file).is_ok_and(|read| read == *pem)))
    }
}

impl StampedFiles<2> {
    /// The files that the chain and the key of `certificate` were read from; `None` if one of them
    /// came from no file.
    pub(crate) fn of_certificate(certificate: &ClientCertificate) -> Option<Self> {
        let (chain, key) = (certificate.chain.file.as_ref()?, certificate.key.file.as_ref()?);
        let unchanged = || read_certificate(chain, key).is_ok_and(|read| read == *certificate);
        Some(Self::new([chain.clone(), key.clone()], unchanged))
    }
}

impl<const N: usize> StampedFiles<N> {
    /// `unchanged` returns whether the files still have the content that is in use.
    fn new(files: [PathBuf; N], unchanged: impl FnOnce() -> bool) -> Self {
        let stamps = stamps(&files);
        let used = unchanged().then_some(stamps).flatten();
        Self { files, used }
    }

    /// Calls `read` if the files may have changed. A failure is tried again at the next check.
    pub(crate) fn check(
        &mut self,
        read: impl FnOnce([&Path; N]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // Stamped before the read, so that the next check finds a write in between.
        let stamps = stamps(&self.files);
        if stamps.is_some() && stamps == self.used {
            return Ok(());
        }
        read(self.files.each_ref().map(PathBuf::as_path))?;
        self.used = stamps;
        Ok(())
    }
}

/// [`StampedFiles::check`], if there are any.
fn check<const N: usize>(
    files: &mut Option<StampedFiles<N>>,
    read: impl FnOnce([&Path; N]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    files.as_mut().map_or(Ok(()), |files| files.check(read))
}

fn follow<const N: usize>(old: &mut Option<StampedFiles<N>>, new: Option<StampedFiles<N>>) {
    let paths = |files: &Option<StampedFiles<N>>| files.as_ref().map(|it| it.files.clone());
    if paths(old) != paths(&new) {
        *old = new;
    }
}

fn stamps<const N: usize>(files: &[PathBuf; N]) -> Option<[Stamp; N]> {
    let mut stamps = [Stamp::default(); N];
    for (stamp, file) in stamps.iter_mut().zip(files) {
        let stat = guard::found(file).and_then(fs::metadata).ok()?;
        *stamp = Stamp::of(&stat);
    }
    Some(stamps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::pki::tests::Signer;
    use crate::os::mounts::pretend_mount;
    use crate::os::tree::Tree;

    #[test]
    fn a_ca_that_is_replaced_is_used_unless_it_is_none() {
        let tree = Tree::new("files-ca");
        let (path, old, new) = (tree.join("ca.crt"), Signer::new().ca, Signer::new().ca);
        tree.write("ca.crt", old.as_bytes());
        let config = ApiConfig {
            ca: Some(read_pem(&path).unwrap()),
            ..ApiConfig::of("https://127.0.0.1:1").unwrap()
        };
        let mut files = CredentialFiles::new(&config);
        let mut api = Api::new(&config).unwrap();
        let own = Subject::of_node("pi");
        let both = format!("{old}{new}");
        for (text, used) in [
            (Some(both.as_str()), &both),
            (Some("not a CA"), &both),
            (None, &both),
            (Some(new.as_str()), &new),
        ] {
            std::fs::remove_file(&path).unwrap_or_default();
            if let Some(text) = text {
                tree.write("ca.crt", text.as_bytes());
            }
            assert_eq!(files.refresh(&mut api, Ok(()), &own, Mono::START), None);
            assert_eq!(api.config.ca.as_ref().unwrap().bytes, used.as_bytes(), "{text:?}");
        }
    }

    /// An upgrade brings the root that the server moves to months later.
    #[test]
    fn the_systems_roots_are_read_again_where_they_verify_the_server() {
        let config = |url: &str| ApiConfig::of(url).unwrap();
        let (plain, tls) = (config("http://127.0.0.1:1"), config("https://127.0.0.1:1"));
        let unverified = ApiConfig { insecure: true, ..tls.clone() };
        assert!(ca_file(&plain).is_none() && ca_file(&unverified).is_none());
        let watched = ca_file(&tls).map(|watched| watched.files);
        assert_eq!(watched, system_bundle(&SYSTEM_ROOTS).map(|path| [path.into()]));

        let tree = Tree::new("files-roots");
        tree.write("bundle", b"old");
        let ca = Some(StampedFiles::new([tree.join("bundle")], || true));
        let mut files = CredentialFiles { ca, ..CredentialFiles::new(&plain) };
        let mut api = Api::new(&plain).unwrap();
        tree.write("bundle", b"new roots");
        let own = Subject::of_node("pi");
        assert_eq!(files.refresh(&mut api, Ok(()), &own, Mono::START), None);
        assert_eq!(api.config.ca, None, "they do not become the CA of the kubeconfig");
        assert_eq!(files.ca.unwrap().used, stamps(&[tree.join("bundle")]));
    }

    /// The file is replaced after the kubeconfig was read.
    #[test]
    fn a_pair_replaced_before_the_first_check_is_read_again() {
        let tree = Tree::new("files-early");
        let pair = |serial: u8| {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec![format!("pi-{serial}")]).unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            tree.write("pair", format!("{pem}{}", key.serialize_pem()).as_bytes());
            read_certificate(&tree.path().join("pair"), &tree.path().join("pair")).unwrap()
        };
        let first = pair(1);
        let config = ApiConfig {
            certificate: Some(first.clone()),
            ..ApiConfig::of("http://127.0.0.1:1").unwrap()
        };
        let second = pair(2);
        let mut files = CredentialFiles::new(&config);
        let mut api = Api::new(&config).unwrap();
        let now = Mono::START.after(CHECK_EVERY);
        assert!(files.begins(now) && !files.begins(now));
        let later = now.after(CHECK_EVERY);
        pretend_mount(Path::new("/"), "nfs4");
        assert!(!files.begins(later));
        files.check_next();
        assert!(files.begins(later), "a 401 is a reason");
        files.refresh(&mut api, Ok(()), &Subject::of_node("pi"), now);
        assert_ne!(first, second);
        assert_eq!(api.config.certificate, Some(second));
    }
}
