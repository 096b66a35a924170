//! Findings about the API server, from its responses: authentication, permissions, another board
//! with the same node name, and a CA that the cluster adds.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::api_config::Pem;
use crate::kube::cluster_info::{ClusterInfo, cluster};
use crate::kube::finding::{Finding, Mark};
use crate::kube::json;
use crate::kube::message::{Accept, NO_API_SERVER, Refused, Request, Response};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::kube::yaml;

const REQUESTS: &str = "certificatesigningrequests";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What needs a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Every run.
    Run,
    /// A run without `--register-node=false`.
    Register,
    /// The end of pods that are bound to a Node that offers none.
    Pods,
    /// A request for a certificate.
    Certificate,
    /// `nodelet serve`: who asks, and whether that user may.
    Port,
}

/// The objects of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// All of the resource.
    All,
    /// The one with the Node's name.
    Named,
    /// Those whose `spec.nodeName` is the Node's name.
    OfNode,
}

use Scope::{All, Named, OfNode};

/// One action of a run, in RBAC's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Name of the finding.
    pub check: &'static str,
    /// What needs it.
    pub need: Need,
    verb: &'static str,
    /// With its subresource: `nodes/status`.
    resource: &'static str,
    scope: Scope,
}

const fn permission(
    check: &'static str,
    need: Need,
    verb: &'static str,
    resource: &'static str,
    scope: Scope,
) -> Permission {
    Permission { check, need, verb, resource, scope }
}

/// The creation of a request for a certificate.
pub const CREATE_REQUEST: Permission =
    permission("csr-create", Need::Certificate, "create", REQUESTS, All);

/// All permissions, in the order in which they are checked.
pub const PERMISSIONS: [Permission; 16] = [
    permission("node-create", Need::Register, "create", "nodes", All),
    permission("node-get", Need::Run, "get", "nodes", Named),
    permission("node-patch", Need::Run, "patch", "nodes", Named),
    permission("node-status-patch", Need::Run, "patch", "nodes/status", Named),
    permission("lease-get", Need::Run, "get", "leases", Named),
    permission("lease-create", Need::Run, "create", "leases", All),
    permission("lease-patch", Need::Run, "patch", "leases", Named),
    permission("event-create", Need::Run, "create", "events", All),
    permission("event-patch", Need::Run, "patch", "events", All),
    permission("pod-list", Need::Pods, "list", "pods", OfNode),
    permission("pod-status-patch", Need::Pods, "patch", "pods/status", All),
    permission("pod-delete", Need::Pods, "delete", "pods", All),
    CREATE_REQUEST,
    permission("csr-get", Need::Certificate, "get", REQUESTS, All),
    permission("tokenreview-create", Need::Port, "create", "tokenreviews", All),
    permission("accessreview-create", Need::Port, "create", "subjectaccessreviews", All),
];

/// With which the controller approves a node's first request by itself, and its renewals
/// (`pkg/controller/certificates/approver/sarapprove.go`).
pub const APPROVAL: Permission = Permission {
    check: "approval",
    resource: "certificatesigningrequests/nodeclient",
    ..CREATE_REQUEST
};
/// See [`APPROVAL`].
pub const RENEWAL: Permission = Permission {
    check: "renewal",
    resource: "certificatesigningrequests/selfnodeclient",
    ..CREATE_REQUEST
};

impl Permission {
    /// The API group of the resource, and the namespace of its objects.
    fn place(&self) -> (&'static str, &'static str) {
        match self.resource {
            "leases" => ("coordination.k8s.io", "kube-node-lease"),
            "events" => ("", "default"),
            "tokenreviews" => ("authentication.k8s.io", ""),
            "subjectaccessreviews" => ("authorization.k8s.io", ""),
            resource if resource.starts_with(REQUESTS) => ("certificates.k8s.io", ""),
            _ => ("", ""),
        }
    }

    /// The SelfSubjectAccessReview for this permission; it changes nothing on the server.
    pub fn review(&self, node_name: &str) -> Request {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let (group, namespace) = self.place();
        let mut attributes = json!({"verb": self.verb, "resource": resource});
        let members = [
            ("group", group),
            ("subresource", subresource),
            ("namespace", namespace),
            ("name", if self.scope == Named { node_name } else { "" }),
        ];
        for (member, value) in members.into_iter().filter(|(_, value)| !value.is_empty()) {
            object::set(&mut attributes, &[member], value.into());
        }
        if self.scope == OfNode {
            // The authorizer of nodes allows only a list with this selector.
            let own = json!({"key": "spec.nodeName", "operator": "In", "values": [node_name]});
            object::set(&mut attributes, &["fieldSelector", "requirements"], json!([own]));
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        Request::post(REVIEWS, Accept::Object, &review)
    }

    /// The finding from the response to [`Self::review`].
    pub fn judge(&self, response: &Response) -> Finding {
        let finding = self.judge_needed(response);
        match (self.need, finding.mark) {
            // A run works without it.
            (Need::Pods, Mark::Failed) => Finding { mark: Mark::Note, ..finding },
            _ => finding,
        }
    }

    /// The finding of a permission without which a run does not work.
    fn judge_needed(&self, response: &Response) -> Finding {
        let remedy = match self.need {
            Need::Certificate => {
                "bind the ClusterRole system:node-bootstrapper to the token's group"
            }
            Need::Port => "use a node certificate, or apply systemd/rbac-serve.yaml",
            // It would be valid for the pods of every Node.
            Need::Pods => {
                "pods that are bound to the Node stay; a node certificate may end them, and a \
                 ServiceAccount must not"
            }
            Need::Run | Need::Register => {
                "use a node certificate (O=system:nodes, CN=system:node:<name>), \
                 or apply systemd/rbac.yaml"
            }
        };
        if let Err(refused) = response.accepted() {
            let fault = Fault::from(refused).at("the server refused the review");
            return Finding::failed(self.check, fault, remedy);
        }
        let review = json::parse(&response.body).unwrap_or_default();
        match object::at(&review, &["status", "allowed"]) {
            Some(Value::Bool(true)) => Finding::ok(self.check, format!("may {self}")),
            Some(Value::Bool(false)) => {
                let reason = match object::text(&review, &["status", "reason"]) {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                Finding::failed(self.check, format!("may not {self}{reason}"), remedy)
            }
            _ => Finding::failed(
                self.check,
                "the response is not a SelfSubjectAccessReview",
                NO_API_SERVER,
            ),
        }
    }
}

/// `patch nodes/status`, `get leases in kube-node-lease`.
impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        let (_, namespace) = self.place();
        if !namespace.is_empty() {
            write!(f, " in {namespace}")?;
        }
        Ok(())
    }
}

/// From the response to the first review; `credential` is what the request carried.
pub fn authentication(response: &Response, credential: Option<&str>) -> Finding {
    let check = "authentication";
    match (response.code, credential, response.accepted()) {
        // 403: authenticated, but the server does not allow the review.
        (403, Some(credential), _) | (_, Some(credential), Ok(())) => {
            Finding::ok(check, format!("with {credential}"))
        }
        (401 | 403, None, _) | (_, None, Ok(())) => Finding::failed(
            check,
            "the kubeconfig has neither a client certificate nor a token",
            "add one to its user",
        ),
        (401, Some(credential), _) => Finding::failed(
            check,
            format!("the server does not accept {credential}: 401"),
            "check that it belongs to this cluster and is neither expired nor revoked",
        ),
        (_, _, Err(refused)) => Finding::failed(check, refused, NO_API_SERVER),
    }
}

/// The object that was asked for; `None` if the API server says that there is none. The page of a
/// gateway says nothing about the object, whatever its code.
pub fn found(response: &Response, resource: &str, name: &str) -> Result<Option<Value>, Fault> {
    let refused = match response.accepted() {
        Ok(()) => match json::parse(&response.body).filter(Value::is_object) {
            None => Refused::nonsense("an object"),
            object => return Ok(object),
        },
        Err(refused) if refused.is_missing(resource, name) => return Ok(None),
        Err(refused) => refused,
    };
    Err(Fault::from(refused).what.into())
}

/// Whether another board uses this node name now. `node` and `lease` are `None` if the server has
/// none; `now` is the server's time.
pub fn namesake(
    node: Option<&Value>,
    lease: Option<&Value>,
    boot_id: &str,
    default_duration: Duration,
    now: Wall,
) -> Finding {
    let check = "namesake";
    let Some(node) = node else {
        return Finding::ok(check, "there is no Node of this name yet");
    };
    let node_boot_id = object::text(node, &["status", "nodeInfo", "bootID"]);
    if node_boot_id == boot_id && !boot_id.is_empty() {
        return Finding::ok(check, "this board registered the Node");
    }
    let lease = lease.unwrap_or(&Value::Null);
    let duration = object::at(lease, &["spec", "leaseDurationSeconds"]).and_then(Value::as_u64);
    let duration = duration.map_or(default_duration, Duration::from_secs);
    let renewed = Wall::parse(object::text(lease, &["spec", "renewTime"]));
    match renewed.map(|renewed| now.since(renewed)) {
        Some(age) if age <= duration => Finding::failed(
            check,
            format!(
                "a board with boot id {node_boot_id:?} renewed the Lease {} s ago",
                age.as_secs()
            ),
            &format!(
                "give one of the two boards another --hostname-override; if this board has just \
                 booted, check again after {} s",
                duration.as_secs()
            ),
        ),
        Some(age) => Finding::ok(
            check,
            format!(
                "the Node is from an earlier boot, its Lease was renewed {} s ago",
                age.as_secs()
            ),
        ),
        None => Finding::ok(check, "the Node has no Lease: no board uses it"),
    }
}

/// Whether `trusted` has each CA of kubeadm's cluster-info, from the response to a request for it.
/// A cluster that replaces its CA has two there for a while.
pub fn ca(response: &Response, trusted: &Pem, now: Wall) -> Finding {
    let check = "ca";
    if let Err(refused) = response.accepted() {
        let why = Fault::from(refused).what;
        return Finding::note(check, format!("kubeadm's cluster-info cannot be read: {why}"), "");
    }
    let info = ClusterInfo::parse(&response.body);
    let document = info.and_then(|info| yaml::parse(&info.kubeconfig).ok());
    let Some(cluster) = document.and_then(|document| cluster(&document).ok()) else {
        return Finding::note(check, "cluster-info is not that of kubeadm", "");
    };
    let own: Vec<_> = CertificateDer::pem_slice_iter(&trusted.bytes).flatten().collect();
    let (old, new): (Vec<_>, Vec<_>) = CertificateDer::pem_slice_iter(&cluster.ca)
        .partition(|ca| ca.as_ref().is_ok_and(|ca| own.contains(ca)));
    let mut ends = own.iter().filter_map(|ca| Some(Leaf::parse(ca)?.not_after));
    if let Some(end) = ends.find(|end| *end < now)
        && new.is_empty()
    {
        let line =
            format!("a CA that is trusted here expired at {}, kubectl refuses it", end.time());
        return Finding::note(check, line, "remove it, or replace it by the renewed one");
    }
    if new.is_empty() {
        return Finding::ok(check, format!("those of cluster-info ({}) are trusted", old.len()));
    }
    let line = format!("cluster-info has a CA ({}) that this board does not trust", new.len());
    let remedy = match &trusted.file {
        Some(file) => format!("add it to {}", file.display()),
        None => "join again with a new line of kubeadm, which adds it".into(),
    };
    Finding::failed(check, line, &format!("{remedy}, before the server uses it"))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::kube::finding::tests::assert_lines;
    use crate::kube::message::Method;
    use crate::kube::x509;

    fn response(code: u16, body: Value) -> Response {
        Response::test(code, body.to_string())
    }

    fn named(check: &str) -> Permission {
        *PERMISSIONS.iter().find(|permission| permission.check == check).unwrap()
    }

    #[test]
    fn a_review_names_verb_resource_and_node() {
        let of_node = json!({"key": "spec.nodeName", "operator": "In", "values": ["pi"]});
        for (permission, mut want) in [
            (named("node-create"), json!({"resource": "nodes"})),
            (
                named("node-status-patch"),
                json!({"verb": "patch", "resource": "nodes", "subresource": "status", "name": "pi"}),
            ),
            (
                named("lease-create"),
                json!({"group": "coordination.k8s.io", "resource": "leases",
                    "namespace": "kube-node-lease"}),
            ),
            (named("event-create"), json!({"resource": "events", "namespace": "default"})),
            (
                named("pod-list"),
                json!({"verb": "list", "resource": "pods",
                    "fieldSelector": {"requirements": [of_node]}}),
            ),
            (
                named("tokenreview-create"),
                json!({"group": "authentication.k8s.io", "resource": "tokenreviews"}),
            ),
            (
                named("accessreview-create"),
                json!({"group": "authorization.k8s.io", "resource": "subjectaccessreviews"}),
            ),
            (
                APPROVAL,
                json!({"group": "certificates.k8s.io", "resource": "certificatesigningrequests",
                    "subresource": "nodeclient"}),
            ),
        ] {
            let request = permission.review("pi");
            assert_eq!((request.method, request.path.as_str()), (Method::Post, REVIEWS));
            want["verb"] = json!(want["verb"].as_str().unwrap_or("create"));
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(body["spec"]["resourceAttributes"], want, "{permission}");
        }
    }

    #[test]
    fn a_denied_permission_has_the_servers_reason_and_one_on_pods_is_a_note() {
        let answered = |check, code, body| named(check).judge(&response(code, body));
        let judged = |check, status| answered(check, 201, json!({"status": status}));
        let denied = json!({"allowed": false, "reason": "no; never"});
        let may_not = "✗ node-get: may not get nodes: no; never; use a node certificate \
                       (O=system:nodes, CN=system:node:<name>), or apply systemd/rbac.yaml";
        let forbidden =
            json!({"kind": "Status", "reason": "Forbidden", "message": "no; send me money"});
        let refused = "✗ node-get: the server refused the review: 403 Forbidden: no; send me \
                       money; check the node's certificate or its RBAC rules";
        assert_lines(&[
            (judged("node-get", json!({"allowed": true})), "✓ may get nodes"),
            (judged("node-get", denied.clone()), may_not),
            (judged("node-get", json!({"allowed": "yes"})), "✗ not a SelfSubjectAccessReview"),
            (answered("node-get", 200, json!("<html>")), "✗ not a SelfSubjectAccessReview"),
            (answered("node-get", 403, forbidden), refused),
            (judged("pod-list", json!({"allowed": true})), "✓ may list pods"),
            (judged("pod-list", json!({"allowed": false})), "– may not list pods; pods that"),
            (judged("pod-list", denied), "– ServiceAccount must not"),
            (
                answered("pod-list", 500, json!({})),
                "– the server refused the review: 500; check the",
            ),
            (answered("pod-list", 200, json!([])), "– SelfSubjectAccessReview; check that server"),
        ]);
    }

    #[test]
    fn authentication_fails_for_401_and_without_a_credential() {
        let token = Some("the token");
        let of = |code, credential| authentication(&response(code, json!({})), credential);
        let down = response(502, json!({"kind": "Status", "message": "down; send me money"}));
        let gateway = "✗ 502: down; send me money; check the API server, and the load balancer";
        assert_lines(&[
            (of(201, token), "✓ with the token"),
            (of(403, token), "✓ with the token"),
            (of(401, token), "✗ does not accept the token: 401"),
            (of(401, None), "✗ neither a client certificate nor a token"),
            (of(403, None), "✗ neither a client certificate nor a token"),
            (of(201, None), "✗ neither a client certificate nor a token"),
            (of(404, token), "✗ URL of an API server"),
            (of(502, None), "✗ load balancer"),
            (authentication(&down, token), gateway),
        ]);
    }

    #[test]
    fn a_page_of_a_gateway_is_neither_an_object_nor_its_absence() {
        let node = json!({"kind": "Node"});
        let status = |name: &str| {
            json!({"kind": "Status", "reason": "NotFound", "message": "none",
                "details": {"kind": "nodes", "name": name}})
        };
        for (code, body, want) in [
            (200, node.to_string(), Ok(Some(node.clone()))),
            (404, status("pi").to_string(), Ok(None)),
            (404, status("other").to_string(), Err("404 NotFound: none")),
            (404, "<html>".to_owned(), Err("404")),
            (200, "<html>".to_owned(), Err("200: the answer is not an object")),
            (200, node.to_string().replace('}', ""), Err("200: the answer is not an object")),
            (200, "null".to_owned(), Err("200: the answer is not an object")),
        ] {
            let found = found(&Response::test(code, body.clone()), "nodes", "pi");
            match (found, want) {
                (Err(why), Err(want)) => assert!(why.what.starts_with(want), "{body}: {why}"),
                (found, want) => assert_eq!(found, want.map_err(Fault::from), "{body}"),
            }
        }
    }

    #[test]
    fn a_lease_renewed_lately_with_another_boot_id_is_another_board() {
        let at = |seconds: u64| Wall::from_epoch(Duration::from_secs(1_790_000_000 + seconds));
        let node = |boot_id: &str| Some(json!({"status": {"nodeInfo": {"bootID": boot_id}}}));
        let lease = |duration: Option<u64>| {
            let renewed = at(100).micro_time();
            Some(json!({"spec": {"renewTime": renewed, "leaseDurationSeconds": duration}}))
        };
        let of = |node: Option<Value>, lease: Option<Value>, boot_id, now| {
            namesake(node.as_ref(), lease.as_ref(), boot_id, Duration::from_secs(40), at(now))
        };
        let another = "✗ \"other\" renewed the Lease 40 s ago; give one of the two boards another \
                       --hostname-override; if this board has just booted, check again after 40 s";
        assert_lines(&[
            (of(None, None, "own", 0), "✓ no Node of this name"),
            (of(node("other"), lease(None), "own", 140), another),
            (of(node("other"), lease(None), "other", 101), "✓ this board registered"),
            (of(node("other"), lease(None), "own", 141), "✓ renewed 41 s ago"),
            (of(node("other"), lease(Some(8)), "own", 109), "✓ renewed 9 s ago"),
            (of(node("other"), None, "own", 0), "✓ no board uses it"),
            // An unreadable own boot id equals no Node's.
            (of(node(""), lease(None), "", 101), "✗ renewed the Lease 1 s ago"),
        ]);
    }

    #[test]
    fn a_ca_of_cluster_info_that_is_not_trusted_fails() {
        let [old, new] = &[&b"old"[..], b"new"].map(|der| x509::pem("CERTIFICATE", der));
        let both = &format!("{new}{old}");
        let info = |ca: &str| {
            let ca = STANDARD.encode(ca);
            let kubeconfig = format!(
                "clusters: [{{name: '', cluster: {{server: s, certificate-authority-data: {ca}}}}}]"
            );
            response(200, json!({"data": {"kubeconfig": kubeconfig}}))
        };
        let forbidden = json!({"kind": "Status", "reason": "Forbidden", "message": "no"});
        let of = |response: Response, trusted: &str, file: &str| {
            let file = Some(file.into()).filter(|_| !file.is_empty());
            let bytes = trusted.to_owned().into();
            let now = Wall::parse("2050-01-01T00:00:00Z").unwrap();
            ca(&response, &Pem { file, source: String::new(), bytes }, now)
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        let expired = &params.self_signed(&key).unwrap().pem();
        let expired_at = "– expired at 2040-01-01T00:00:00Z, kubectl refuses it; remove it";
        let again = "✗ a CA (1) that this board does not trust; join again with a new line of \
                     kubeadm, which adds it, before the server uses it";
        let add = "✗ trust; add it to /etc/ca.crt, before the server uses it";
        assert_lines(&[
            (of(info(expired), expired, ""), expired_at),
            (of(info(old), old, ""), "✓ those of cluster-info (1) are trusted"),
            // The old one is gone.
            (of(info(new), both, ""), "✓ those of cluster-info (1) are trusted"),
            (of(info(both), old, ""), again),
            (of(info(both), new, "/etc/ca.crt"), add),
            (of(info(&both.replacen("END", "", 1)), both, ""), again),
            (of(info(""), old, ""), "– cluster-info is not that of kubeadm"),
            (of(response(403, forbidden), old, ""), "– cannot be read: 403 Forbidden: no"),
        ]);
    }
}
