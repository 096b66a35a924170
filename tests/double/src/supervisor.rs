//! The supervisor of k3s and rke2, as far as a node meets it: `tests/recordings/k3s/k3s-1.36.json`,
//! which `tests/k3s.rs` replays, and the source for what is not recorded (`pkg/server/handlers`,
//! `pkg/nodepassword`, `pkg/clientaccess`).

use crate::auth::User;
use crate::http::{Request, Response};
use crate::kubeconfig::base64;
use crate::pki::{self, Authority, Validity};
use crate::status;
use crate::time;
use crate::validate;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A supervisor beside the API.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    /// The text of `/cacerts`.
    pub cacerts: String,
    /// The password of the users `node` and `server`.
    pub password: String,
    /// Tokens of `k3s token create`.
    pub tokens: Vec<String>,
    /// `HTTPSPort`: the port of the API server.
    pub https_port: u16,
    /// The Secrets `NAME.node-password.k3s`. One goes with its Node, at once, or without a Node
    /// after `orphan_after`.
    pub passwords: BTreeMap<String, String>,
    /// How long a node password is kept for a Node that does not exist yet; `None` is ten minutes.
    pub orphan_after: Option<Duration>,
    /// The phases of the start that are not over. Each 503 ends one.
    pub start: Vec<Phase>,
    /// Seconds from the issue of a certificate to its end; `None` is a year.
    pub lifetime: Option<i64>,
    /// The names of `passwords`, and what is known of their Nodes.
    owners: BTreeMap<String, Owner>,
}

/// What a starting server refuses with 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Everything: for 0.3 s.
    Starting,
    /// Certificates of nodes, `readyz` and the API: for another 1.4 s.
    WithoutApi,
    /// Certificates of nodes and `readyz`: for another 3 s.
    WithoutCore,
}

/// The owner of a node password.
#[derive(Debug, Clone, Copy)]
enum Owner {
    Node,
    /// The password is stored since then (since 1970), and there was no Node yet.
    Nobody(Duration),
}

/// Who sends a request.
pub(crate) struct Caller<'a> {
    /// A client certificate was shown, perhaps an invalid one.
    pub(crate) has_certificate: bool,
    /// Whose it is.
    pub(crate) user: Option<&'a User>,
    /// Whether a Node of this name exists.
    pub(crate) is_node: &'a dyn Fn(&str) -> bool,
}

const NODES: &str = "system:nodes";
/// The groups of the user `node`, of the user `server`, and of a token of `k3s token create`.
const AGENTS: &str = "k3s:agent";
const SERVERS: &str = "k3s:server";
const BOOTSTRAPPERS: &str = "system:bootstrappers";

const TEXT: &str = "text/plain; charset=utf-8";
const ORPHAN_AFTER: Duration = Duration::from_secs(600);
const YEAR: i64 = 365 * 86_400;

impl Supervisor {
    pub(crate) fn new(cacerts: String, https_port: u16) -> Self {
        let password = "pa55:word".to_owned();
        Self { cacerts, password, https_port, ..Self::default() }
    }

    /// Answers a request; `None` if the path is the API's.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        caller: &Caller<'_>,
        authority: &Authority,
    ) -> Option<Response> {
        self.collect(caller.is_node);
        let answer = self.route(request, caller, authority);
        answer.unwrap_or_else(|refusal| Some(refusal.with("Connection", "close")))
    }

    /// Deletes the passwords of Nodes that are gone, and of those that never came.
    pub(crate) fn collect(&mut self, is_node: &dyn Fn(&str) -> bool) {
        let limit = self.orphan_after.unwrap_or(ORPHAN_AFTER);
        let (owners, now) = (&mut self.owners, time::since_1970());
        owners.retain(|name, _| self.passwords.contains_key(name));
        self.passwords.retain(|name, _| {
            let owner = owners.entry(name.clone()).or_insert(Owner::Nobody(now));
            if is_node(name) {
                *owner = Owner::Node;
                return true;
            }
            matches!(owner, Owner::Nobody(since) if now.saturating_sub(*since) < limit)
        });
    }

    /// `Err` is a refusal, behind which the connection ends.
    fn route(
        &mut self,
        request: &Request,
        caller: &Caller<'_>,
        authority: &Authority,
    ) -> Result<Option<Response>, Response> {
        self.is_past(&[Phase::Starting], "starting")?;
        let path = request.path();
        if path == "/cacerts" {
            return Ok(Some(Response::text(200, "text/plain", &self.cacerts)));
        }
        let what = path.strip_prefix("/v1-k3s/").unwrap_or_default();
        if !["config", "client-kubelet.crt", "serving-kubelet.crt"].contains(&what) {
            self.is_past(&[Phase::WithoutApi], "apiserver not ready")?;
            return Ok(None);
        }
        self.authorize(request, caller)?;
        if what == "config" {
            return Ok(Some(self.config()));
        }
        let name = self.node_name(request, caller)?;
        // As `NewSignedCert` of dynamiclistener: it begins with its authority.
        let (from, until) = (authority.begins(), self.lifetime.unwrap_or(YEAR));
        let validity = Validity { from, until };
        let params = if what == "serving-kubelet.crt" {
            pki::k3s_params(&name, &[], &server_names(request, &name)?, validity)
        } else {
            pki::k3s_params(&format!("system:node:{name}"), &[NODES], &[], validity)
        };
        // What is no request gets the key of the server, here a new one each time.
        let is_asked = request.method == "POST";
        let signed = is_asked.then(|| authority.sign_key(&request.body, params.clone()));
        let text = match signed {
            Some(Ok(leaf)) => leaf + authority.pem(),
            Some(Err(_)) | None => {
                let identity = authority.issue(&params);
                identity.cert_pem.clone() + authority.pem() + &identity.ec_key_pem()
            }
        };
        Ok(Some(Response::text(200, TEXT, &text)))
    }

    /// Refuses a request in these phases.
    fn is_past(&mut self, phases: &[Phase], message: &str) -> Result<(), Response> {
        match self.start.first() {
            Some(phase) if phases.contains(phase) => {
                self.start.remove(0);
                Err(refusal(503, "ServiceUnavailable", message))
            }
            _ => Ok(()),
        }
    }

    fn has_core(&mut self) -> Result<(), Response> {
        self.is_past(&[Phase::WithoutApi, Phase::WithoutCore], "runtime core not ready")
    }

    /// `HasRole`: a valid certificate counts before the header, and an invalid one only without a
    /// valid header.
    fn authorize(&self, request: &Request, caller: &Caller<'_>) -> Result<(), Response> {
        let groups = [AGENTS, NODES, BOOTSTRAPPERS];
        let header = request.header("authorization");
        let is_allowed = match (caller.user, header.and_then(|value| self.group(value))) {
            (Some(user), _) => groups.iter().any(|group| user.is_in(group)),
            (None, Some(group)) => groups.contains(&group),
            (None, None) if header.is_some() || caller.has_certificate => {
                return Err(refusal(401, "Unauthorized", "not authorized"));
            }
            (None, None) => false,
        };
        if is_allowed { Ok(()) } else { Err(refusal(403, "Forbidden", "forbidden")) }
    }

    fn group(&self, authorization: &str) -> Option<&'static str> {
        let is = |user: &str| {
            authorization == format!("Basic {}", base64(&format!("{user}:{}", self.password)))
        };
        let bearer = authorization.strip_prefix("Bearer ").unwrap_or_default();
        match () {
            () if is("node") => Some(AGENTS),
            () if is("server") => Some(SERVERS),
            () if self.tokens.iter().any(|token| token == bearer) => Some(BOOTSTRAPPERS),
            () => None,
        }
    }

    /// The name in the request, if it is that of the caller. The order of the checks is that of
    /// `GetNodeAuthValidator`. The address is in no check.
    fn node_name(&mut self, request: &Request, caller: &Caller<'_>) -> Result<String, Response> {
        let header = |name: &str| {
            let value = request.header(name).filter(|value| !value.is_empty());
            value.map(str::to_owned)
        };
        let unset = |what: &str| refusal(400, "BadRequest", &format!("node {what} not set"));
        let name = header("k3s-Node-Name").ok_or_else(|| unset("name"))?.to_lowercase();
        let password = header("k3s-Node-Password").ok_or_else(|| unset("password"))?;
        let own = caller.user.and_then(User::node);
        if own.is_some_and(|own| own != name) {
            let message = "header node name does not match auth node name";
            return Err(refusal(400, "BadRequest", message));
        }
        self.has_core()?;
        let is_node = (caller.is_node)(&name);
        if own.is_some() && !is_node {
            let message = format!("unable to verify node identity: nodes {name:?} not found");
            return Err(refusal(401, "Unauthorized", &message));
        }
        // A name that is none is no name of a Secret, and is not refused for it.
        if validate::subdomain(&name) {
            let known = self.passwords.entry(name.clone());
            if *known.or_insert_with(|| password.clone()) != password {
                let message =
                    format!("unable to verify password for node {name}: hash does not match");
                return Err(refusal(403, "Forbidden", &message));
            }
        }
        Ok(name)
    }

    /// `/v1-k3s/config` as recorded.
    fn config(&self) -> Response {
        let text = include_str!("../../recordings/k3s/k3s-1.36.json");
        let recording: Value = serde_json::from_str(text).expect("JSON");
        let mut answers = recording["answers"].as_array().into_iter().flatten();
        let answer = answers.find(|answer| answer["case"] == "config with the token");
        let body = answer.and_then(|answer| answer["body"].as_str()).expect("a body");
        let mut config: Value = serde_json::from_str(body).expect("JSON");
        config["HTTPSPort"] = json!(self.https_port);
        config["SupervisorPort"] = json!(self.https_port);
        config["IPSECPSK"] = json!("a secret of the cluster");
        Response::json(200, &config)
    }
}

/// The names and addresses of a kubelet's own server.
fn server_names(request: &Request, name: &str) -> Result<Vec<String>, Response> {
    let mut names = [name, "localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let addresses = request.header("k3s-Node-IP").unwrap_or_default();
    for address in addresses.split(',').filter(|address| !address.is_empty()) {
        if address.parse::<IpAddr>().is_err() {
            let why = "invalid node IP address <nil>";
            let causes = json!({"causes": [{"message": why}]});
            let message = format!("Internal error occurred: {why}");
            return Err(status_of(500, "InternalError", &message, Some(causes)));
        }
        names.push(address.to_owned());
    }
    Ok(names)
}

fn refusal(code: u16, reason: &str, message: &str) -> Response {
    status_of(code, reason, message, None)
}

/// Unlike the API server, the supervisor sends no apiVersion.
fn status_of(code: u16, reason: &str, message: &str, details: Option<Value>) -> Response {
    let mut body = status::failure(code, reason, message, details).body;
    if let Some(members) = body.as_object_mut() {
        members.remove("apiVersion");
    }
    let mut response = Response::json(code, &body);
    // Go's encoding/json escapes these for HTML.
    let text = String::from_utf8_lossy(&response.body);
    response.body = text.replace('<', "\\u003c").replace('>', "\\u003e").into_bytes();
    response
}
