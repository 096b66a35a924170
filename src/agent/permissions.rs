//! The permissions that a run needs, in RBAC's terms. `nodelet check` and `nodelet join` ask for
//! each of them with a SelfSubjectAccessReview.

use serde_json::{Value, json};

use Scope::{All, Named, OfNode};

use crate::kube::finding::{Finding, Mark};
use crate::kube::message::{Accept, NO_API_SERVER, Request, Response};
use crate::kube::text::Fault;
use crate::kube::{json, object};

const REQUESTS: &str = "certificatesigningrequests";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What needs a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Every run.
    Run,
    /// A run without `--register-node=false`.
    Register,
    /// The end of pods that are bound to a Node that offers none.
    Pods,
    /// A request for a certificate.
    Certificate,
    /// The first one, of `nodelet join`.
    Join,
    /// The approval of a renewal without a person.
    Renewal,
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

/// One action of a run, in RBAC's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    /// Name of the finding.
    pub(crate) check: &'static str,
    /// What needs it.
    pub(crate) need: Need,
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
pub(crate) const CREATE_REQUEST: Permission =
    permission("csr-create", Need::Certificate, "create", REQUESTS, All);

/// The same with the token of a join.
pub(crate) const FIRST_REQUEST: Permission = Permission { need: Need::Join, ..CREATE_REQUEST };
/// The command that allows [`FIRST_REQUEST`] to all bootstrap tokens; systemd/join.md has it, too.
const ASK: &str = "kubectl create clusterrolebinding nodelet-ask \
                   --clusterrole=system:node-bootstrapper --group=system:bootstrappers";

/// All permissions, in the order in which they are checked.
pub(crate) const PERMISSIONS: [Permission; 16] = [
    permission("node-create", Need::Register, "create", "nodes", All),
    permission("node-get", Need::Run, "get", "nodes", Named),
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
    RENEWAL,
    permission("tokenreview-create", Need::Port, "create", "tokenreviews", All),
    permission("accessreview-create", Need::Port, "create", "subjectaccessreviews", All),
];

/// With which the controller approves a node's first request by itself, and its renewals
/// (`pkg/controller/certificates/approver/sarapprove.go`).
pub(crate) const APPROVAL: Permission = Permission {
    check: "approval",
    resource: "certificatesigningrequests/nodeclient",
    ..CREATE_REQUEST
};
/// See [`APPROVAL`].
pub(crate) const RENEWAL: Permission = Permission {
    check: "csr-renewal",
    need: Need::Renewal,
    resource: "certificatesigningrequests/selfnodeclient",
    ..CREATE_REQUEST
};
/// Gives [`RENEWAL`] to all nodes; systemd/join.md has this command, too.
pub(crate) const RENEW: &str = "kubectl create clusterrolebinding nodelet-renew --clusterrole=\
     system:certificates.k8s.io:certificatesigningrequests:selfnodeclient --group=system:nodes";

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
    pub(crate) fn review(&self, node_name: &str) -> Request {
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
    pub(crate) fn judge(&self, response: &Response) -> Finding {
        let finding = self.judge_needed(response);
        match (self.need, finding.mark) {
            // A run works without it. A person or another controller may approve renewals.
            (Need::Pods | Need::Renewal, Mark::Failed) => Finding { mark: Mark::Note, ..finding },
            _ => finding,
        }
    }

    /// The finding of a permission without which a run does not work.
    fn judge_needed(&self, response: &Response) -> Finding {
        let remedy = match self.need {
            Need::Certificate => {
                "bind the ClusterRole system:node-bootstrapper to the token's group"
            }
            Need::Join => ASK,
            Need::Renewal => RENEW,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::finding::tests::assert_lines;
    use crate::kube::message::Method;

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
        let first = |status| FIRST_REQUEST.judge(&response(201, json!({"status": status})));
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
            (
                first(json!({"allowed": false})),
                "✗ may not create certificatesigningrequests; kubectl create",
            ),
            (first(json!({})), "✗ not a SelfSubjectAccessReview; check that server"),
            (answered("pod-list", 200, json!([])), "– SelfSubjectAccessReview; check that server"),
            (judged("csr-renewal", json!({"allowed": true})), "✓ may create"),
            (
                judged("csr-renewal", json!({"allowed": false})),
                "– selfnodeclient; kubectl create clusterrolebinding nodelet-renew --clusterrole=system",
            ),
        ]);
    }
}
