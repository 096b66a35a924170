//! The serving certificate that the cluster signs: with a CertificateSigningRequest, which a person
//! or a controller approves, or at the supervisor of k3s.
//!
//! It is renewed as the client certificate is, by `credentials::rotation`. The certificate has the
//! names and addresses of the Node in the API server, because clients connect to these. Upstream:
//! `pkg/kubelet/certificate/kubelet.go`.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::access::{BUDGET, ReviewContext as _, ReviewTime};
use super::reviews::Reviews;
use crate::client::api_config::{ApiConfig, ClientCertificate};
use crate::config::Config;
use crate::credentials::certificate::{Certificate, CertificateKind};
use crate::credentials::pki::is_of_cluster;
use crate::credentials::pki::serving::ServingPki;
use crate::credentials::rotation::{Rotation, RotationStep};
use crate::kube::delay::Jitter;
use crate::kube::instant::{ClusterSeen, Mono};
use crate::kube::json;
use crate::kube::message::{Accept, Request, accepted};
use crate::kube::object;
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{AltName, Subject};

/// How often the Node's addresses are read.
const READ_EVERY: Duration = Duration::from_secs(600);
/// The read of the addresses comes this long after the start, or after a client has connected to
/// another address, so that this client is answered first.
const FIRST_READ: Duration = Duration::from_secs(1);
/// The time to the next read after a failure, or while the Node has no address.
const RETRY: Duration = Duration::from_secs(60);

/// The certificate and its renewal.
#[derive(Debug)]
pub(super) struct ClusterCertificate {
    node_name: String,
    kind: CertificateKind,
    pki: ServingPki,
    jitter: Jitter,
    /// When the Node is read next.
    read_at: Mono,
    /// Logs failed reads of the Node.
    read_log: OutageLog,
    /// Without a certificate until the addresses are known.
    rotation: Rotation,
    log: OutageLog,
}

impl ClusterCertificate {
    /// Reads the files in `folder`. `jitter` spreads the renewals of many boards.
    pub(super) fn open(config: &Config, folder: &Path, jitter: Jitter) -> Result<Self, Fault> {
        let kind = match config.k3s_supervisor {
            Some(_) => CertificateKind::ServingAtSupervisor,
            None => CertificateKind::Serving,
        };
        Ok(Self {
            node_name: config.node.name.clone(),
            kind,
            pki: ServingPki::open(folder, kind)?,
            jitter,
            read_at: Mono::START.after(FIRST_READ),
            read_log: OutageLog::new("serving certificate: the Node's addresses"),
            rotation: Rotation::new(None),
            log: OutageLog::new("serving certificate"),
        })
    }

    /// The certificate to use.
    pub(super) fn current(&self) -> Option<ClientCertificate> {
        self.pki.current().map(|(certificate, _)| certificate)
    }

    /// When the next step is due.
    pub(super) fn due(&mut self, at: ClusterSeen) -> Mono {
        let now = at.now.mono;
        if self.rotation.has_change() {
            return now;
        }
        if self.rotation.is_settled(at) {
            self.log.succeeded(now);
        }
        self.rotation.due(at).map_or(self.read_at, |due| due.min(self.read_at))
    }

    /// Takes a step that is due: one request, or one operation on a file. Returns the certificate
    /// to use, if it may be another one.
    pub(super) fn step(&mut self, reviews: &mut Reviews, now: Mono) -> Option<ClientCertificate> {
        if self.read_at <= now {
            self.read_names(reviews);
            return None;
        }
        let result = match self.rotation.step(&mut self.pki, reviews.seen()) {
            Ok(RotationStep::Files) => return None,
            Ok(RotationStep::InUse(_)) => {
                self.log.succeeded(now);
                log::info!("serving certificate: issued by the cluster");
                return self.current();
            }
            Ok(RotationStep::Send(request)) => {
                let answer = if self.kind.is_at_supervisor() {
                    let client = reviews.serving_client(&ips(self.pki.subject()));
                    client.and_then(|mut api| {
                        api.connect(BUDGET)?;
                        api.call(&request, BUDGET)
                    })
                } else {
                    reviews.call(&request, &mut ReviewTime::new(reviews.now()))
                };
                let at = reviews.seen();
                let taken = self.rotation.on_response("serving certificate", answer, at);
                taken.map_err(|error| error.why)
            }
            Err(why) => Err(why),
        };
        let why = result.err()?;
        self.log.failed(&why.to_string(), now);
        // It may be one that could not be stored.
        self.current()
    }

    /// A client has connected to the address `dialed`. If the names that were read lack it, the
    /// Node has another address since, and is read now, once a minute at most. Clients that verify
    /// refuse the certificate until it has the new address.
    pub(super) fn on_accepted(&mut self, dialed: IpAddr, now: Mono) {
        let is_known = self.pki.subject().alt_names.contains(&AltName::Ip(dialed));
        let may_read = (RETRY..=READ_EVERY - RETRY).contains(&self.read_at.since(now));
        if may_read && !is_known && !dialed.is_loopback() {
            self.read_at = now.after(FIRST_READ);
        }
    }

    fn read_names(&mut self, reviews: &mut Reviews) {
        let path = format!("/api/v1/nodes/{}", self.node_name);
        let mut time = ReviewTime::new(reviews.now());
        let response = accepted(reviews.call(&Request::get(path, Accept::Object), &mut time));
        let names = response
            .map_err(|error| error.why.to_string())
            .and_then(|response| names(&json::parse(&response.body).unwrap_or_default()));
        self.take_names(names, reviews.kubeconfig(), reviews.now());
    }

    /// Takes the names of the Node, which the server of this kubeconfig has told. If the names have
    /// changed, a new rotation begins, for a certificate with the new names. So it does if the
    /// certificate is of another cluster than the kubeconfig: clients of this one refuse it.
    fn take_names(
        &mut self,
        names: Result<Vec<AltName>, String>,
        kubeconfig: &ApiConfig,
        now: Mono,
    ) {
        self.read_log.ended(names.as_ref().err().map(String::as_str), now);
        self.read_at = now.after(if names.is_ok() { READ_EVERY } else { RETRY });
        let Ok(names) = names else { return };
        let node_name = &self.node_name;
        let subject = if self.kind.is_at_supervisor() {
            // It signs the name of the Node and the addresses of the header, whatever names the
            // request has (getServingKubeletCert of k3s). The Node of a former k3s agent may have
            // others.
            let is_signed = |name: &AltName| match name {
                AltName::Ip(_) => true,
                AltName::Dns(name) => name == node_name,
            };
            let alt_names = names.into_iter().filter(is_signed).collect();
            Subject { common_name: node_name.clone(), alt_names, ..Subject::default() }
        } else {
            Subject { alt_names: names, ..Subject::of_node(node_name) }
        };
        let held = self.pki.current();
        let replace_now = held.as_ref().is_some_and(|(pair, _)| !is_of_cluster(pair, kubeconfig));
        let is_replaced = self.rotation.deadline() == Some(Wall::default());
        if self.rotation.deadline().is_none()
            || *self.pki.subject() != subject
            || replace_now && !is_replaced
        {
            let held = held.map(|(_, leaf)| leaf);
            let certificate =
                Certificate::new(self.kind, subject.clone(), held, replace_now, self.jitter);
            self.rotation = Rotation::new(Some(certificate));
        }
        // Also where no rotation begins: the CAs of the kubeconfig may have changed.
        self.pki.request_for(subject, kubeconfig);
    }
}

/// The addresses of a serving certificate for the header of k3s.
fn ips(subject: &Subject) -> String {
    let ips = subject.alt_names.iter().filter_map(|name| match name {
        AltName::Ip(ip) => Some(ip.to_string()),
        AltName::Dns(_) => None,
    });
    ips.collect::<Vec<_>>().join(",")
}

/// The names and addresses of a Node, sorted, each once. Upstream: `addressesToHostnamesAndIPs`; no
/// request is made before there is an address.
fn names(node: &Value) -> Result<Vec<AltName>, String> {
    let mut names = Vec::new();
    for address in object::list(node, &["status", "addresses"]) {
        let [kind, text] = ["type", "address"].map(|key| object::text(address, &[key]));
        let ip = text.parse::<IpAddr>().ok().map(AltName::Ip);
        names.extend(match kind {
            "Hostname" | "InternalDNS" | "ExternalDNS" if !text.is_empty() => {
                Some(ip.unwrap_or_else(|| AltName::Dns(text.to_owned())))
            }
            "InternalIP" | "ExternalIP" => ip,
            _ => None,
        });
    }
    names.sort();
    names.dedup();
    if names.iter().any(|name| matches!(name, AltName::Ip(_))) {
        Ok(names)
    } else {
        Err("the Node has none yet".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::api_config::Pem;
    use crate::credentials::certificate::{FileTask, TaskResult};
    use crate::credentials::pki::tests::Signer;
    use crate::credentials::pki::tests::serving::work;
    use crate::credentials::rotation::CertificateFiles as _;
    use crate::kube::instant::Now;
    use crate::os::tree::Tree;

    fn kubeconfig(ca: Option<&str>) -> ApiConfig {
        let pem = |ca: &str| Pem { file: None, source: "ca".into(), bytes: ca.into() };
        ApiConfig { ca: ca.map(pem), ..ApiConfig::of("https://10.0.0.1:6443").unwrap() }
    }

    fn node(addresses: &[(&str, &str)]) -> Value {
        let addresses: Vec<Value> = addresses
            .iter()
            .map(|(kind, address)| json!({"type": kind, "address": address}))
            .collect();
        json!({"status": {"addresses": addresses}})
    }

    /// certificate/kubelet_test.go TestAddressesToHostnamesAndIPs.
    #[test]
    fn addresses_to_hostnames_and_ips() {
        let dns = |name: &str| AltName::Dns(name.to_owned());
        let ip = |ip: &str| AltName::Ip(ip.parse().unwrap());
        for (addresses, want) in [
            (&[][..], None),
            (&[("Hostname", "hostname")], None),
            (&[("", ""), ("Hostname", ""), ("InternalIP", "")], None),
            (
                &[("Hostname", "hostname"), ("ExternalIP", "1.1.1.1")],
                Some(vec![dns("hostname"), ip("1.1.1.1")]),
            ),
            (
                &[("Hostname", "1.1.1.1"), ("InternalIP", "1.1.1.1"), ("ExternalIP", "fd00::1")],
                Some(vec![ip("1.1.1.1"), ip("fd00::1")]),
            ),
            (
                &[
                    ("ExternalDNS", "hostname"),
                    ("InternalDNS", "another"),
                    ("Hostname", "hostname"),
                    ("InternalIP", "3.3.3.3"),
                    ("ExternalIP", "2.2.2.2"),
                    ("ExternalIP", "3.3.3.3"),
                ],
                Some(vec![dns("another"), dns("hostname"), ip("2.2.2.2"), ip("3.3.3.3")]),
            ),
        ] {
            assert_eq!(names(&node(addresses)).ok(), want, "{addresses:?}");
        }
        let subject = Subject {
            alt_names: vec![dns("a"), ip("192.0.2.7"), ip("fd00::7")],
            ..Subject::default()
        };
        assert_eq!(ips(&subject), "192.0.2.7,fd00::7");
    }

    /// Each step of a stored certificate and of one that could not be stored.
    #[test]
    fn a_certificate_of_a_former_cluster_is_replaced_at_once_and_only_once() {
        let day = |day: u64| Duration::from_secs(86_400 * day);
        let at = Wall::from_epoch(day(10));
        let [old, new] = [Signer::new(), Signer::new()];
        let both = [old.ca.as_str(), &new.ca].concat();
        let [old_ca, new_ca, both] = [&old.ca, &new.ca, &both].map(|ca| kubeconfig(Some(ca)));
        for is_stored in [true, false] {
            let folder = Tree::empty("serving-cluster");
            let open = || {
                let config = Config::default();
                ClusterCertificate::open(&config, folder.path(), Jitter::NONE).unwrap()
            };
            let takes = |certificate: &mut ClusterCertificate, kubeconfig: &ApiConfig| {
                // The signer signs no names.
                certificate.take_names(Ok(Vec::new()), kubeconfig, Mono::START);
                certificate.rotation.deadline() == Some(Wall::default())
            };
            let install = |certificate: &mut ClusterCertificate, signer: &Signer| {
                let sign =
                    FileTask::Sign { new_key: false, with_bootstrap: false, is_first: false };
                let TaskResult::Signed(request) = work(&mut certificate.pki, &sign, at) else {
                    panic!("no request");
                };
                let key = &request.info.public_key;
                let chain = signer.chain("system:node:", key, day(1), day(365));
                let install = FileTask::Install(chain.trim_end().to_owned());
                let result = if is_stored {
                    work(&mut certificate.pki, &install, at)
                } else {
                    certificate.pki.result(&install, Err("full".into()), at)
                };
                let (TaskResult::InUse(leaf) | TaskResult::NotStored(leaf, _)) = result else {
                    panic!("{result:?}");
                };
                let now = Now { mono: Mono::START, wall: at };
                certificate.rotation.on_replaced(leaf, now.into());
            };
            let mut certificate = open();
            assert!(takes(&mut certificate, &old_ca), "there is none");
            install(&mut certificate, &old);
            for (kubeconfig, is_replaced) in
                [(&old_ca, false), (&kubeconfig(None), false), (&both, false), (&new_ca, true)]
            {
                assert_eq!(takes(&mut certificate, kubeconfig), is_replaced);
                if is_stored {
                    assert_eq!(takes(&mut open(), kubeconfig), is_replaced, "a restart");
                }
            }
            let state = format!("{:?}", certificate.rotation);
            assert!(takes(&mut certificate, &new_ca));
            assert_eq!(format!("{:?}", certificate.rotation), state, "it is under way");
            // The search for a certificate does not find it.
            let found = work(&mut certificate.pki, &FileTask::Find(None), at);
            assert_eq!(found, TaskResult::NotFound);
            install(&mut certificate, &new);
            assert!(!takes(&mut certificate, &new_ca));
            assert!(takes(&mut certificate, &old_ca), "and back");
        }
    }

    /// The controller of k3s makes them from annotations that only a k3s agent removes.
    #[test]
    fn no_name_is_asked_for_that_a_supervisor_never_signs() {
        let folder = Tree::empty("serving-supervisor");
        let open = ClusterCertificate::open(&Config::default(), folder.path(), Jitter::NONE);
        let mut certificate = open.unwrap();
        certificate.node_name = "pi".to_owned();
        certificate.kind = CertificateKind::ServingAtSupervisor;
        let ip = AltName::Ip([192, 0, 2, 7].into());
        let [own, other] = ["pi", "pi.example"].map(|name| AltName::Dns(name.to_owned()));
        let names = Ok(vec![own.clone(), other, ip.clone()]);
        certificate.take_names(names, &kubeconfig(None), Mono::START);
        assert_eq!(certificate.pki.subject().alt_names, [own, ip]);
    }

    /// As after a new DHCP lease. The client that comes next is the first to know.
    #[test]
    fn a_connection_to_an_unknown_address_makes_the_next_read_due() {
        let folder = Tree::empty("serving-dialed");
        let at = |seconds| Mono::START.after(Duration::from_secs(seconds));
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        let open = ClusterCertificate::open(&Config::default(), folder.path(), Jitter::NONE);
        let mut certificate = open.unwrap();
        certificate.on_accepted(ip(8), at(0));
        assert_eq!(certificate.read_at, at(1), "the first read");
        let read = Ok(vec![AltName::Ip(ip(7))]);
        certificate.take_names(read.clone(), &kubeconfig(None), at(1));
        for (dialed, now, read_at) in [
            (ip(7), 100, 601),
            ([127, 0, 0, 1].into(), 100, 601),
            (ip(8), 60, 601),
            (ip(8), 61, 62),
            (ip(8), 62, 62),
        ] {
            certificate.on_accepted(dialed, at(now));
            assert_eq!(certificate.read_at, at(read_at), "{dialed} {now}");
        }
        for (names, read_at) in [(read, 662), (Err("no answer".to_owned()), 122)] {
            certificate.take_names(names, &kubeconfig(None), at(62));
            certificate.on_accepted(ip(8), at(63));
            assert_eq!(certificate.read_at, at(read_at), "once a minute");
        }
    }

    /// Else the same reason would not be logged again in the life of the process.
    #[test]
    fn a_read_of_the_addresses_ends_the_outage_of_reads() {
        let folder = Tree::empty("serving-names");
        let at = |seconds| Mono::START.after(Duration::from_secs(seconds));
        let open = ClusterCertificate::open(&Config::default(), folder.path(), Jitter::NONE);
        let mut certificate = open.unwrap();
        for (read, read_at) in [
            (Err("no answer".to_owned()), at(161)),
            (Ok(vec![AltName::Dns("pi".into())]), at(701)),
            (Err("no answer".to_owned()), at(161)),
        ] {
            certificate.take_names(read.clone(), &kubeconfig(None), at(101));
            assert_eq!(certificate.read_log.last_error(), read.err().as_deref());
            assert_eq!(certificate.read_at, read_at);
        }
    }
}
