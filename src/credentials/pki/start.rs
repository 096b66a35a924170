//! What a run begins with: the kubeconfig, the stored certificate or the bootstrap kubeconfig.

use std::io;

use log::Level;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::key::Key;
use super::marks::{PairMarks, UNREAD, digest_of};
use super::{Pki, is_of_cluster, read};
use crate::client::api_config::{ApiConfig, ClientCertificate};
use crate::client::tls::{self, check_certificate};
use crate::credentials::certificate::CertificateKind;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::os::guard;
use crate::os::read::cause;

/// Whether the kubeconfig's certificate is to be used instead of the `stored` one: the kubeconfig
/// was replaced since the stored certificate was renewed, perhaps by one of another cluster. The
/// marks of the stored certificate say which kubeconfig it was renewed for. Without marks the later
/// `notBefore` decides. A certificate that has expired is new only in the kubeconfig of another
/// cluster, which does not accept the stored one.
fn is_new(kubeconfig: &ApiConfig, stored: &ClientCertificate, now: Wall) -> bool {
    let Some(given) = &kubeconfig.certificate else { return false };
    let (Ok(leaf), Ok(stored_leaf)) = (check_certificate(given), check_certificate(stored)) else {
        return false;
    };
    let is_valid = now <= leaf.not_after;
    // The file of a stored pair also has its key; `nodelet join` writes its certificates alone.
    let first = |pair: &ClientCertificate| {
        CertificateDer::pem_slice_iter(&pair.chain.bytes).flatten().next()
    };
    let marks = PairMarks::of_stored(stored);
    let is_of_other = || marks.has_authorities() && !is_of_cluster(stored, kubeconfig);
    first(given) != first(stored)
        && match marks.has_mark_of(given) {
            Some(is_known) => !is_known && (is_valid || is_of_other()),
            None => is_valid && leaf.not_before > stored_leaf.not_before,
        }
}

/// Whether a bootstrap wrote this kubeconfig, and the bootstrap kubeconfig was replaced since by
/// one of another cluster.
fn is_of_former_bootstrap(kubeconfig: &ApiConfig, bootstrap: &ApiConfig) -> bool {
    let new = PairMarks::authorities(bootstrap);
    let stored = kubeconfig.certificate.as_ref().map(PairMarks::of_stored);
    stored.is_some_and(|stored| stored.differs(&new))
        && PairMarks::authorities(kubeconfig).differs(&new)
}

/// Whether no bootstrap wrote this kubeconfig, and it is of another cluster than the bootstrap
/// kubeconfig: so are the certificates that its server signs.
fn is_of_a_person(kubeconfig: &ApiConfig, bootstrap: &ApiConfig) -> bool {
    let given = kubeconfig.certificate.as_ref().map(PairMarks::of_stored);
    given.is_none_or(|marks| marks == PairMarks::default())
        && PairMarks::authorities(kubeconfig).differs(&PairMarks::authorities(bootstrap))
}

/// What `--kubeconfig` is to a board with a bootstrap kubeconfig.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(in crate::credentials) enum KubeconfigState {
    /// With its client certificate.
    Usable(ApiConfig, Leaf),
    /// A bootstrap is needed, and why.
    Unusable(Fault),
}

/// The stored certificate and its key, to a start.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum StoredPair {
    /// TLS can use it.
    Usable(ClientCertificate, Leaf),
    Missing,
    /// It cannot be read or used, or the link to it is missing. The start does not replace it,
    /// because it may be the only one that has not expired.
    Unusable,
}

/// What a run begins with.
#[derive(Debug)]
pub struct Start {
    /// Where the API server is, and the credentials.
    pub config: ApiConfig,
    /// Why the run begins with the bootstrap kubeconfig; `None` if it does not.
    pub bootstrap: Option<Fault>,
    /// The certificate to renew; `None` if there is none.
    pub leaf: Option<Leaf>,
    /// The certificate is renewed at once, in two cases. It is inside the kubeconfig, so it may
    /// permit too much; or a supervisor signed it, and its arrival is unknown.
    pub replace_now: bool,
}

impl Start {
    fn with(config: ApiConfig, leaf: Option<Leaf>) -> Self {
        Self { config, bootstrap: None, leaf, replace_now: false }
    }
}

impl Pki {
    /// What a run begins with, and the marks of its requests.
    /// `begun` is as in [`Pki::find`].
    pub(super) fn start(
        &mut self,
        now: Wall,
        begun: Option<Wall>,
    ) -> Result<(Start, PairMarks), Fault> {
        let Some(kind) = self.source.kind else {
            let kubeconfig = self.load(&self.source.kubeconfig)?;
            return Ok((Start::with(kubeconfig, None), PairMarks::default()));
        };
        if self.source.bootstrap.is_none() {
            let kubeconfig = self.load(&self.source.kubeconfig)?;
            let given = kubeconfig.certificate.as_ref();
            let marks = PairMarks::for_new_pair(given, Some(&kubeconfig));
            return Ok((self.seed(kubeconfig, &marks, now, begun), marks));
        }
        let bootstrap = self.load_bootstrap();
        let (state, mut marks) = self.kubeconfig_and_marks(bootstrap.as_ref().ok(), now)?;
        let start = match state {
            KubeconfigState::Usable(kubeconfig, leaf) => {
                let kubeconfig = match &bootstrap {
                    Ok(bootstrap) => self.with_credential_ca(kubeconfig, bootstrap),
                    Err(_) => kubeconfig,
                };
                if bootstrap.is_ok_and(|bootstrap| is_of_a_person(&kubeconfig, &bootstrap)) {
                    let given = kubeconfig.certificate.as_ref();
                    marks = PairMarks::for_new_pair(given, Some(&kubeconfig));
                }
                if kind.rotates() {
                    self.seed(kubeconfig, &marks, now, begun)
                } else {
                    Start::with(kubeconfig, Some(leaf))
                }
            }
            KubeconfigState::Unusable(why) => {
                let bootstrap = bootstrap?;
                // The power failed after the certificate was stored and before the kubeconfig was
                // written, or the kubeconfig was deleted.
                if let StoredPair::Usable(identity, leaf) = self.stored()
                    && now <= leaf.not_after
                    && leaf.subject.satisfies(&self.source.subject)
                    && is_of_cluster(&identity, &bootstrap)
                {
                    self.log(Level::Info, format!("{why}; {} is used", identity.chain.source));
                    // One that cannot be read may name another server by now.
                    if !why.is_unread() {
                        self.write_kubeconfig(&bootstrap);
                    }
                    let certificate = Some(identity);
                    let kubeconfig = ApiConfig { certificate, authorization: None, ..bootstrap };
                    Start::with(kubeconfig, Some(leaf))
                } else {
                    Start { bootstrap: Some(why), ..Start::with(bootstrap, None) }
                }
            }
        };
        Ok((start, marks))
    }

    /// The kubeconfig of a bootstrap has a copy of a CA that is a credential of the unit. If the
    /// credential was replaced since, as in a rotation of the cluster's CA, it counts, and the
    /// kubeconfig is written again.
    fn with_credential_ca(&mut self, kubeconfig: ApiConfig, bootstrap: &ApiConfig) -> ApiConfig {
        if !bootstrap.ca.as_ref().is_some_and(|ca| self.is_credential(ca)) {
            return kubeconfig;
        }
        let former = ApiConfig { ca: kubeconfig.ca.clone(), ..bootstrap.clone() };
        let other = |config| self.other_kubeconfig(config);
        let differs_by_ca = matches!((other(&former), other(bootstrap)), (Ok(None), Ok(Some(_))));
        if !differs_by_ca {
            return kubeconfig;
        }
        self.write_kubeconfig(bootstrap);
        ApiConfig { ca: bootstrap.ca.clone(), ..kubeconfig }
    }

    /// The kubeconfig, or why it is unusable and a bootstrap is needed; and the marks of the
    /// requests that follow. An unusable kubeconfig stays until the kubeconfig of the bootstrap
    /// replaces it. Without a bootstrap kubeconfig an expired certificate is usable, because the
    /// clock may be ahead: the server judges it.
    pub(in crate::credentials) fn kubeconfig_and_marks(
        &self,
        bootstrap: Option<&ApiConfig>,
        now: Wall,
    ) -> Result<(KubeconfigState, PairMarks), Fault> {
        let at = if bootstrap.is_some() { now } else { Wall::default() };
        let state = self.kubeconfig_state(at)?;
        // If the read fails, what an earlier one of this process found; at the start there is none.
        let former = || self.marks.replaced.clone();
        let found = bootstrap.map(|bootstrap| self.other_kubeconfig(bootstrap));
        let replaced = found.and_then(|found| found.unwrap_or_else(|_| former()));
        let (kubeconfig, leaf) = match state {
            KubeconfigState::Usable(kubeconfig, leaf) => (kubeconfig, leaf),
            KubeconfigState::Unusable(why) => {
                let mut marks = PairMarks::for_new_pair(None, bootstrap);
                let unread = || former().or_else(|| Some(UNREAD.to_owned()));
                marks.replaced = if why.is_unread() { unread() } else { replaced };
                return Ok((KubeconfigState::Unusable(why), marks));
            }
        };
        let given = kubeconfig.certificate.as_ref();
        let mut marks = PairMarks::for_new_pair(given, bootstrap);
        let of_stored = given.map(PairMarks::of_stored).unwrap_or_default();
        // A bootstrap stored the pair that this kubeconfig names, and has not replaced the
        // kubeconfig. Since then somebody may have restored the former bootstrap kubeconfig and
        // edited this kubeconfig.
        let is_to_be_replaced = |digest: &String| {
            read(&self.source.kubeconfig).is_ok_and(|text| digest_of(&text) == *digest)
                || of_stored.differs(&PairMarks::authorities(&kubeconfig))
        };
        let why = match (bootstrap, &replaced) {
            (Some(bootstrap), Some(_)) if is_of_former_bootstrap(&kubeconfig, bootstrap) => {
                "is of another cluster than the bootstrap kubeconfig"
            }
            (Some(_), _) if of_stored.replaced.as_ref().is_some_and(is_to_be_replaced) => {
                "is to be replaced by that of the bootstrap"
            }
            _ => return Ok((KubeconfigState::Usable(kubeconfig, leaf), marks)),
        };
        let why = Fault::from(why).at(self.source.kubeconfig.display());
        marks.replaced = replaced;
        Ok((KubeconfigState::Unusable(why), marks))
    }

    /// The certificate that a rotation begins with: the stored certificate, or else the
    /// kubeconfig's. If the latter is inside the kubeconfig, it is also stored. There are four
    /// exceptions:
    ///
    /// - If the kubeconfig is newer ([`is_new`]), its certificate is used.
    /// - If the stored certificate has expired and the kubeconfig's certificate expires later, the
    ///   kubeconfig's is used. Both may seem to be expired, because the clock may be ahead. The
    ///   kubeconfig's is also used if it is valid, and the stored one is not valid yet.
    /// - If exactly one of the two certificates is another node's, it is not used.
    /// - A kubeconfig with a token and without a certificate is used as it is: a server would
    ///   prefer a certificate to the token.
    fn seed(
        &mut self,
        mut kubeconfig: ApiConfig,
        marks: &PairMarks,
        now: Wall,
        begun: Option<Wall>,
    ) -> Start {
        if kubeconfig.certificate.is_none() && kubeconfig.authorization.is_some() {
            return Start::with(kubeconfig, None);
        }
        let mut given = kubeconfig.certificate.clone();
        let mut leaf = given.as_ref().and_then(|i| Leaf::of_pem(&i.chain.bytes));
        let stored = self.stored();
        let keeps_stored = matches!(stored, StoredPair::Unusable);
        let mut stored = match stored {
            StoredPair::Usable(identity, leaf) => Some((identity, leaf)),
            StoredPair::Missing | StoredPair::Unusable => None,
        };
        if let (Some(leaf_given), Some((identity, leaf_stored))) = (&leaf, &stored) {
            let other = |leaf: &Leaf| leaf.subject.other_node(&self.source.subject);
            match (other(leaf_given), other(leaf_stored)) {
                (Some(why), None) => {
                    let path = self.source.kubeconfig.display();
                    let source = &identity.chain.source;
                    let line = format!("{path}: {}; {source} stays in use", why.what);
                    self.warn(line);
                    (given, leaf) = (None, None);
                }
                (None, Some(_)) => stored = None,
                _ => {}
            }
        }
        if let Some((identity, stored)) = stored {
            let is_better =
                |leaf: &Leaf| leaf.not_after > stored.not_after || leaf.is_valid(now, begun);
            if given.is_some() && is_new(&kubeconfig, &identity, now) {
                let path = self.source.kubeconfig.display();
                let line = format!("{path}: new since the stored certificate, which is not used");
                self.log(Level::Info, line);
            } else if stored.is_valid(now, begun) || !leaf.as_ref().is_some_and(is_better) {
                kubeconfig.certificate = Some(identity);
                return self.arrived(Start::with(kubeconfig, Some(stored)));
            }
        }
        let Some(identity) = given else {
            return Start::with(kubeconfig, None);
        };
        let inside = leaf.as_ref().filter(|_| identity.chain.file.is_none());
        let replace_now = inside.is_some();
        if let Some(leaf) = inside
            && !keeps_stored
        {
            // The name is no arrival of a supervisor's certificate, which no request has brought.
            let since = if self.is_at_supervisor() { leaf.not_before } else { now };
            let ops = Key::of_pem(&identity.key.bytes)
                .and_then(|key| self.store.update(&identity.chain.bytes, &key, marks, since));
            self.add_later("the kubeconfig's certificate cannot be stored", ops);
        }
        Start { replace_now, ..Start::with(kubeconfig, leaf) }
    }

    /// Sets the `not_before` of a supervisor's certificate to its arrival, with which its lifetime
    /// begins.
    fn arrived(&self, mut start: Start) -> Start {
        if let (true, Some(leaf)) = (self.is_at_supervisor(), &mut start.leaf) {
            let arrival = self.store.arrival(leaf);
            leaf.not_before = arrival.unwrap_or_default();
            start.replace_now = arrival.is_none();
        }
        start
    }

    fn is_at_supervisor(&self) -> bool {
        self.source.kind.is_some_and(CertificateKind::is_at_supervisor)
    }

    /// The stored certificate. If it cannot be read or used, that is logged, and a renewal or a
    /// bootstrap replaces it.
    fn stored(&mut self) -> StoredPair {
        match self.store.usable() {
            Ok(Some((identity, leaf))) => StoredPair::Usable(identity, leaf),
            Ok(None) if self.store.has_pair() => StoredPair::Unusable,
            Ok(None) => StoredPair::Missing,
            Err(why) => {
                self.warn(format!("{why}; continuing without this certificate"));
                StoredPair::Unusable
            }
        }
    }

    /// A kubeconfig is unusable if it is missing, if TLS cannot use it, or if its certificate has
    /// expired or is another node's. `Err` if its path cannot be resolved, for another reason than
    /// a missing file. Upstream: `isClientConfigStillValid` in
    /// `pkg/kubelet/certificate/bootstrap/bootstrap.go`.
    pub(super) fn kubeconfig_state(&self, now: Wall) -> Result<KubeconfigState, Fault> {
        let path = &self.source.kubeconfig;
        let at = |why: Fault| why.at(path.display());
        match guard::found(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(KubeconfigState::Unusable(at("not there yet".into())));
            }
            Err(e) => return Err(at(cause(&e))),
            Ok(_) => {}
        }
        let usable = self.load(path).and_then(|kubeconfig| {
            tls::client_config(&kubeconfig).map_err(at)?;
            let identity = kubeconfig.certificate.as_ref();
            let identity = identity.ok_or_else(|| at("no client certificate in it".into()))?;
            let leaf = check_certificate(identity)?;
            if let Some(other) = leaf.subject.other_node(&self.source.subject) {
                return Err(at(other.what.into()));
            }
            for certificate in CertificateDer::pem_slice_iter(&identity.chain.bytes) {
                let certificate = certificate.ok().and_then(|der| Leaf::parse(&der));
                let until = certificate.map(|certificate| certificate.not_after);
                if let Some(until) = until.filter(|until| *until < now) {
                    let until = until.time();
                    return Err(at(format!("its certificate expired at {until}").into()));
                }
            }
            Ok((kubeconfig, leaf))
        });
        Ok(match usable {
            Ok((kubeconfig, leaf)) => KubeconfigState::Usable(kubeconfig, leaf),
            Err(why) => KubeconfigState::Unusable(why),
        })
    }
}
