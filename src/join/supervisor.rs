//! Joins a cluster of k3s or rke2 at its supervisor, with the server's token or one of
//! `k3s token create`.
//!
//! Written from the source of k3s (`pkg/clientaccess`, `pkg/server/handlers`, `pkg/nodepassword`,
//! `pkg/agent/config`); rke2 answers the same paths and headers. With a digest in the token, join
//! sends no credential before the digest has proved the CA and TLS has verified the server, with
//! that CA or, if another CA signed the server's certificate, with the system's roots.

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use super::certificate::{self, identity};
use super::proof;
use super::server::{self, pem};
use super::walk::{Failed, Joined, Renewal, Walk, bearer, failed, is_transient, notes};
use crate::check::Finding;
use crate::core::certificate::supervisor::{self, NODE_NAME, NODE_PASSWORD};
use crate::core::join::token::{Credentials, Digest, hexadecimal};
use crate::files::guard;
use crate::identity::kubeconfig::read_password;
use crate::identity::pki::key::Key;
use crate::kube::json;
use crate::kube::message::{Accept, Outcome, Request, Response};
use crate::kube::text::without_remedy;
use crate::kube::x509::{Leaf, Subject};
use crate::wire::api::Api;
use crate::wire::api_config::{ApiConfig, ClientCertificate, Pem};
use crate::wire::authorization::Authorization;
use crate::wire::secret::Secret;

const CERTIFICATE: &str = "certificate";
const CACERTS: &str = "/cacerts";
const CONFIG: &str = "/v1-k3s/config";
/// The user of every token that is a password.
const USER: &str = "node";

const SOMEBODY: &str = "another cluster, or somebody is in between: copy the token again";
/// The remedy where a certificate of yet another CA may be in front of the supervisor.
const FRONT: &str = "if a certificate of another CA is in front of the server, install that CA \
                     (ca-certificates), or give it and the cluster's CA in one file by \
                     --certificate-authority; if not, it is another cluster, or somebody is in \
                     between: copy the token again";

/// The steps from `name-resolution` to `renewal`.
pub(super) fn get(
    walk: &mut Walk<'_>,
    hash: Option<&Digest>,
    credentials: &Credentials,
) -> Result<Joined, Failed> {
    let (mut config, proved) = find(walk, hash)?;
    let mut api = walk.api(&config, "tls", SOMEBODY)?;
    let authorization = authorization(credentials);
    let set = api.set_authorization(&authorization);
    set.map_err(|why| failed("token", &why, ""))?;
    let port = api_port(walk, &mut api)?;
    walk.add(Finding::ok("token", "the supervisor accepts it"));
    notes(
        walk,
        &["csr-create", "approval"],
        "not needed: the supervisor signs",
    );
    notes(walk, &["namesake"], "the node password decides");
    let server = format!("{}{}", config.endpoint, config.endpoint.prefix);
    let mut flags = vec![format!("--k3s-supervisor={server}")];
    if let Some(proved) = proved {
        flags.push("--k3s-supervisor-system-roots".to_owned());
        // The API server on a port of its own is not behind the supervisor's certificate. k3s
        // verifies it with the cluster's CA in any case.
        if port != config.endpoint.port {
            config.ca = Some(proved);
        }
    }
    config.endpoint.port = port;
    walk.server = format!("{}{}", config.endpoint, config.endpoint.prefix);
    if walk.settings.dry_run {
        notes(walk, &[CERTIFICATE, "renewal"], "not asked for: --dry-run");
        return Ok(Joined {
            config,
            renewal: Renewal::Supervisor(flags),
        });
    }
    let issued = request(walk, &mut api)?;
    certificate::issued(walk, &mut config, issued);
    let detail = format!("by itself, at the supervisor {server}");
    walk.add(Finding::ok("renewal", detail));
    Ok(Joined {
        config,
        renewal: Renewal::Supervisor(flags),
    })
}

fn authorization(credentials: &Credentials) -> Authorization {
    match credentials {
        Credentials::Bearer(token) => bearer(token),
        Credentials::Password(password) => Authorization::Basic {
            username: USER.to_owned(),
            password: Secret::new(password.to_string()),
        },
    }
}

/// The supervisor, proved, without credentials. Where it is verified with the system's roots, the
/// second value is the CA of the cluster.
fn find(walk: &mut Walk<'_>, hash: Option<&Digest>) -> Result<(ApiConfig, Option<Pem>), Failed> {
    let (mut config, mut api) = server::reach(walk)?;
    let mut proved = None;
    notes(walk, &["cluster-info", "signature"], "not used by k3s");
    let request = Request::get(CACERTS.to_owned(), Accept::Object);
    if config.insecure {
        let response = ask(walk, &mut api, &request, "ca")?;
        if response.accepted().is_err() {
            let line = format!(
                "no supervisor of k3s or rke2: {CACERTS} is {}",
                response.code
            );
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
                    "not proved: anybody can be this server",
                    "use a K10 token",
                ),
            ),
        };
        let ca = ca.map_err(|why| failed("ca", &why, SOMEBODY))?;
        config.ca = Some(pem(CACERTS, ca.into_bytes()));
        config.insecure = false;
        walk.add(finding);
        let first = response.body;
        let mut api = walk.api(&config, "ca", SOMEBODY)?;
        // Any answer over verified TLS.
        let mut second = walk.send(&mut api, &request);
        if matches!(second, Outcome::Silent(_)) && api.issuer_is_unknown() {
            proved = config.ca.take();
            api = walk.api(&config, "tls", FRONT)?;
            second = walk.send(&mut api, &request);
        }
        let second = match second {
            Outcome::Answered(response) => response,
            Outcome::Silent(_) if api.issuer_is_unknown() => {
                let endpoint = &config.endpoint;
                let line = format!(
                    "the certificate of {endpoint} is of no CA that is proved or installed"
                );
                return Err(failed("tls", &line, FRONT));
            }
            Outcome::Silent(line) => return Err(failed("tls", &line, SOMEBODY)),
        };
        if second.body != first {
            let line = format!("the verified server has another {CACERTS}");
            return Err(failed("tls", &line, SOMEBODY));
        }
    } else {
        walk.add(Finding::ok("ca", "from --certificate-authority"));
        walk.answer(&mut api, &request, "tls", SOMEBODY)?;
    }
    let endpoint = &config.endpoint;
    walk.add(match proved {
        None => Finding::ok("tls", format!("{endpoint} was verified")),
        Some(_) => {
            let line = format!(
                "{endpoint} was verified with the system's root certificates: its certificate is \
                 not of the cluster's CA"
            );
            Finding::note("tls", line, "")
        }
    });
    Ok((config, proved))
}

/// The response to a request that is repeated while the server starts or is busy.
fn ask(
    walk: &Walk<'_>,
    api: &mut Api,
    request: &Request,
    check: &'static str,
) -> Result<Response, Failed> {
    let mut was_told = false;
    loop {
        let outcome = walk.send(api, request);
        let may_pass = is_transient(&outcome);
        let line = match outcome {
            Outcome::Silent(line) => line,
            Outcome::Answered(response) => match response.accepted() {
                Err(refused) if may_pass => refused.to_string(),
                _ => return Ok(response),
            },
        };
        if !std::mem::replace(&mut was_told, true) {
            let cause = without_remedy(&line);
            log::info!("{check}: {cause}; trying again until --timeout");
        }
        if !walk.pause(server::RETRY) {
            return Err(failed(check, &line, "is the server up?"));
        }
    }
}

/// The port of the API server. The answer also holds secrets of the cluster, which are not read.
fn api_port(walk: &Walk<'_>, api: &mut Api) -> Result<u16, Failed> {
    let request = Request::get(CONFIG.to_owned(), Accept::Object);
    let response = ask(walk, api, &request, "token")?;
    if let Err(refused) = response.accepted() {
        let line = format!("the supervisor does not accept the token: {}", refused.code);
        let remedy = "it expired, or the server has an agent token: use k3s token create, or \
                      /var/lib/rancher/k3s/server/agent-token";
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
fn request(walk: &mut Walk<'_>, api: &mut Api) -> Result<(ClientCertificate, Leaf), Failed> {
    let unusable = |why: String| failed(CERTIFICATE, &why, "");
    let password = password(walk)?;
    let key = Key::generate().map_err(unusable)?;
    let subject = Subject::of_node(&walk.board.name);
    let signed = key.request(subject).map_err(unusable)?;
    let mut headers = vec![
        (NODE_NAME, walk.board.name.as_str()),
        (NODE_PASSWORD, password.reveal()),
    ];
    if !walk.board.address.is_empty() {
        headers.push(("k3s-node-ip", &walk.board.address));
    }
    api.set_headers(&headers).map_err(unusable)?;
    let response = ask(walk, api, &supervisor::request(&signed), CERTIFICATE)?;
    api.set_headers(&[]).map_err(unusable)?;
    let chain = supervisor::issued(&signed, response, walk.now().wall);
    let chain = chain.map_err(|line| Finding::failed(CERTIFICATE, &line, ""))?;
    identity(&chain, &key).map_err(unusable)
}

/// The node password. A new one is stored before it is sent: the first password for a name is the
/// only one that the server will ever accept.
fn password(walk: &mut Walk<'_>) -> Result<Secret, Failed> {
    let failed =
        |why: String| Failed::from(Finding::failed("files", &why, "nothing else was changed"));
    let (own, of_k3s) = (walk.places.password(), walk.places.password_of_k3s());
    let mut known = None;
    for path in [&own, &of_k3s] {
        if known.is_none() && guard::exists(path) {
            known = read_password(path).map_err(failed)?;
        }
    }
    let password = match known {
        Some(password) if guard::exists(&own) => return Ok(password),
        Some(password) => password,
        None => {
            let mut random = [0; 16];
            let filled = SystemRandom::new().fill(&mut random);
            filled.map_err(|_| failed("no random numbers for a password".into()))?;
            Secret::new(hexadecimal(&random))
        }
    };
    let ops = walk.places.write_password(password.reveal());
    walk.disk.carry_out(ops).map_err(failed)?;
    walk.wrote.push(own.display().to_string());
    Ok(password)
}
