//! Joins a cluster of k3s or rke2 at its supervisor, with the server's token or one of
//! `k3s token create`.
//!
//! Written from the source of k3s (`pkg/clientaccess`, `pkg/server/handlers`, `pkg/nodepassword`,
//! `pkg/agent/config`); rke2 answers the same paths and headers. With a digest in the token, join
//! sends no credential before the digest has proved the CA and TLS has verified the server, with
//! that CA or, if another CA signed the server's certificate, with the system's roots.

use std::io::ErrorKind::NotFound;
use std::path::Path;

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use super::command::NOT_BOOTSTRAP_ONLY;
use super::kubeadm;
use super::proof::{self, CACERTS, OTHER_CA, cacerts};
use super::run::{JoinRun, Joined, ROTATE, UNCHANGED, failed, pem};
use super::token::{Digest, hexadecimal};
use crate::client::api::{Api, Distrust};
use crate::client::api_config::{ApiConfig, Authorization, ClientCertificate, Pem, Secret};
use crate::credentials::certificate::supervisor::{self, NODE_IP, NODE_NAME, NODE_PASSWORD};
use crate::credentials::kubeconfig::read_password;
use crate::credentials::pki::{self, key::Key};
use crate::kube::finding::Finding;
use crate::kube::json;
use crate::kube::message::{Accept, Request};
use crate::kube::text::Fault;
use crate::kube::x509::{CertificatePurpose, Leaf, Subject};
use crate::os::guard;

const CERTIFICATE: &str = "certificate";
const CONFIG: &str = "/v1-k3s/config";

const SOMEBODY: &str = "another cluster, or somebody is in between: copy the token again";
/// The remedy if neither the CA of the cluster nor the system's roots verify the server.
const FRONT: &str = "if a certificate of another CA is in front of the server, install that CA \
                     (ca-certificates), or give it and the cluster's CA in one file by \
                     --certificate-authority; if not, it is another cluster, or somebody is in \
                     between: copy the token again";

/// The steps from `token` to `renewal`, at the supervisor that [`find`] found.
pub(super) fn get(
    run: &mut JoinRun<'_>,
    (mut config, proved): (ApiConfig, Option<Pem>),
    authorization: &Authorization,
) -> Result<Joined, Finding> {
    if run.settings.bootstrap_only {
        return Err(failed("token", "the server is a supervisor of k3s", NOT_BOOTSTRAP_ONLY));
    }
    let mut api = run.api(&config, "tls", SOMEBODY)?;
    let set = api.set_authorization(authorization);
    set.map_err(|why| failed("token", why, ""))?;
    let port = api_port(run, &mut api)?;
    run.add(Finding::ok("token", "the supervisor accepts it"));
    run.notes(&["csr-create", "approval"], "not needed: the supervisor signs");
    let server = format!("{}{}", config.endpoint, config.endpoint.prefix);
    let mut renewal = vec![ROTATE.to_owned(), format!("--k3s-supervisor={server}")];
    if let Some(proved) = proved {
        renewal.push("--k3s-supervisor-system-roots".to_owned());
        // If the API server has a port of its own, it does not use the supervisor's certificate.
        // k3s verifies the API server with the cluster's CA in any case.
        if port != config.endpoint.port {
            config.ca = Some(proved);
        }
    }
    config.endpoint.port = port;
    run.server = format!("{}{}", config.endpoint, config.endpoint.prefix);
    if run.settings.dry_run {
        run.notes(&["namesake", CERTIFICATE, "renewal"], "not requested: --dry-run");
        return Ok(Joined { config, renewal });
    }
    let issued = request(run, &mut api)?;
    kubeadm::issued(run, &mut config, issued);
    // The Node is read with the certificate: a token may not read Nodes.
    let mut api = run.api(&config, "namesake", "")?;
    // The supervisor has stored the password of this board for the name.
    let name = &run.board.name;
    let undo = supervisor::forget_password(name);
    let finding = kubeadm::namesake(run, &mut api, Some(&undo))?;
    run.add(finding);
    let detail = format!("by itself, at the supervisor {server}");
    run.add(Finding::ok("renewal", detail));
    Ok(Joined { config, renewal })
}

/// The steps from `name-resolution` to `tls`: the supervisor, proved, without credentials. Where it
/// is verified with the system's roots, the second value is the CA of the cluster.
pub(super) fn find(
    run: &mut JoinRun<'_>,
    hash: Option<&Digest>,
) -> Result<(ApiConfig, Option<Pem>), Finding> {
    let (mut config, mut api) = run.reach()?;
    let mut proved = None;
    run.notes(&["cluster-info", "signature"], "not used by k3s");
    let request = cacerts();
    if config.insecure {
        let response = run.answer(&mut api, &request, "ca", SOMEBODY)?;
        if response.accepted().is_err() {
            let line = format!("no supervisor of k3s or rke2: {CACERTS} is {}", response.code);
            let remedy = "is it the server's URL? rke2 listens on port 9345";
            return Err(failed("ca", &line, remedy));
        }
        let (ca, finding) = match hash {
            Some(hash) => (
                proof::covered(&response.body, hash),
                Finding::ok("ca", "its hash is that of the token"),
            ),
            None => (
                proof::unpinned(&response.body),
                Finding::note(
                    "ca",
                    "not proved: anybody can pose as this server",
                    "use a K10 token",
                ),
            ),
        };
        let ca = ca.map_err(|why| failed("ca", &why, SOMEBODY))?;
        config.ca = Some(pem(CACERTS, ca.into_bytes()));
        config.insecure = false;
        run.add(finding);
        let first = response.body;
        let mut api = run.api(&config, "ca", SOMEBODY)?;
        // An answer of any status over verified TLS proves the server.
        let mut second = run.answer(&mut api, &request, "tls", SOMEBODY);
        let is_unknown = |api: &Api| api.distrust() == Some(Distrust::Issuer);
        if second.is_err() && is_unknown(&api) {
            proved = config.ca.take();
            api = run.api(&config, "tls", FRONT)?;
            second = run.answer(&mut api, &request, "tls", SOMEBODY);
        }
        if second.is_err() && is_unknown(&api) {
            let endpoint = &config.endpoint;
            let line =
                format!("no proved and no installed CA has signed the certificate of {endpoint}");
            return Err(failed("tls", &line, FRONT));
        }
        if second?.body != first {
            let line = format!("the verified server has another {CACERTS}");
            return Err(failed("tls", &line, SOMEBODY));
        }
    } else {
        if let (Some(ca), Some(hash)) = (&config.ca, hash)
            && !proof::has_digest(&ca.bytes, hash)
        {
            let line = format!("{}: none of its CAs has the hash of the token", ca.source);
            return Err(failed("ca", line, OTHER_CA));
        }
        run.add(Finding::ok("ca", "from --certificate-authority"));
        run.answer(&mut api, &request, "tls", SOMEBODY)?;
    }
    let endpoint = &config.endpoint;
    run.add(match proved {
        None => Finding::ok("tls", format!("{endpoint} was verified")),
        Some(_) => {
            let line = format!(
                "{endpoint} was verified with the system's root certificates: the cluster's CA \
                 has not signed its certificate"
            );
            Finding::note("tls", line, "")
        }
    });
    Ok((config, proved))
}

/// The port of the API server. The answer also holds secrets of the cluster, which are not read.
fn api_port(run: &JoinRun<'_>, api: &mut Api) -> Result<u16, Finding> {
    let request = Request::get(CONFIG.to_owned(), Accept::Object);
    let response = run.answer(api, &request, "token", SOMEBODY)?;
    if let Err(refused) = response.accepted() {
        let line = format!("the supervisor does not accept the token: {}", refused.code);
        // 403 is the answer to a request without any credentials.
        let remedy = match refused.code {
            403 => {
                "does a proxy in between drop the header Authorization? give the server's own \
                 address"
            }
            _ => {
                "it expired, or the server has an agent token: use k3s token create, or \
                 /var/lib/rancher/k3s/server/agent-token"
            }
        };
        return Err(failed("token", &line, remedy));
    }
    let body = Zeroizing::new(response.body);
    let port = json::parse(&body).and_then(|config| config.get("HTTPSPort")?.as_u64());
    let port = port.and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port != 0).ok_or_else(|| {
        let line = format!("{CONFIG} has no HTTPSPort");
        failed("token", &line, "is it a server of k3s or rke2?")
    })
}

/// Asks for the certificate, and proves with the node password that the name is this board's.
fn request(run: &mut JoinRun<'_>, api: &mut Api) -> Result<(ClientCertificate, Leaf), Finding> {
    let unusable = |why: Fault| Finding::failed(CERTIFICATE, why, "");
    let password = password(run)?;
    let key = Key::generate().map_err(unusable)?;
    let subject = Subject::of_node(&run.board.name);
    let signed = key.request(subject, CertificatePurpose::CLIENT).map_err(unusable)?;
    let mut headers =
        vec![(NODE_NAME, run.board.name.as_str()), (NODE_PASSWORD, password.reveal())];
    if !run.board.address.is_empty() {
        headers.push((NODE_IP, &run.board.address));
    }
    api.set_headers(&headers).map_err(unusable)?;
    let response = run.answer(api, &supervisor::request(&signed), CERTIFICATE, SOMEBODY)?;
    api.set_headers(&[]).map_err(unusable)?;
    let chain = supervisor::issued(&signed, response, run.now().wall);
    let chain = chain.map_err(|why| Finding::failed(CERTIFICATE, why, ""))?;
    pki::issued(&chain, &key, run.now().wall).map_err(unusable)
}

/// The node password. A new one is stored before it is sent. The server keeps the first password
/// for a name, and refuses every other one until the Node is deleted.
pub(super) fn password(run: &mut JoinRun<'_>) -> Result<Secret, Finding> {
    let failed = |why: Fault| Finding::failed("files", why, UNCHANGED);
    // A password that cannot be read still exists: a new password in its place would be refused.
    let stored = |path: &Path| match guard::found(path) {
        Err(error) if error.kind() == NotFound => Ok(None),
        _ => read_password(path).map_err(failed),
    };
    let own = run.paths.password();
    if let Some(password) = stored(&own)? {
        return Ok(password);
    }
    if let Some(path) = run.paths.drop_in("k3s-password") {
        let what = format!("{}: the unit loads another k3s-password", path.display());
        return Err(failed(Fault::new(what, format!("decrypt it to {}", own.display()))));
    }
    let password = match stored(&run.paths.password_of_k3s())? {
        Some(password) => password,
        None => {
            let mut random = [0; 16];
            let filled = SystemRandom::new().fill(&mut random);
            filled.map_err(|_| failed("no random numbers for a password".into()))?;
            Secret::new(hexadecimal(&random))
        }
    };
    let ops = run.paths.write_password(password.reveal()).map_err(failed)?;
    run.disk.carry_out(ops).map_err(failed)?;
    run.wrote.push(own.display().to_string());
    Ok(password)
}
