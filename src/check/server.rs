//! Judges what the API server says: who we are to it, what we may, who else has our name.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kube::message::{Accept, Request, Response};
use crate::kube::object;
use crate::kube::time::Wall;

use super::Finding;

const REQUESTS: &str = "certificatesigningrequests";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Something that a run does, as RBAC names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Name of the finding.
    pub check: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: &'static str,
    /// Of the object that has the Node's name alone.
    named: bool,
}

const fn permission(check: &'static str, verb: &'static str, resource: &'static str) -> Permission {
    Permission {
        check,
        verb,
        group: "",
        resource,
        subresource: "",
        namespace: "",
        named: true,
    }
}

const fn lease(check: &'static str, verb: &'static str, named: bool) -> Permission {
    Permission {
        group: "coordination.k8s.io",
        namespace: "kube-node-lease",
        named,
        ..permission(check, verb, "leases")
    }
}

const fn event(check: &'static str, verb: &'static str) -> Permission {
    Permission {
        namespace: "default",
        named: false,
        ..permission(check, verb, "events")
    }
}

const fn request(check: &'static str, verb: &'static str) -> Permission {
    Permission {
        group: "certificates.k8s.io",
        named: false,
        ..permission(check, verb, REQUESTS)
    }
}

/// Only where `--register-node` is not off.
pub const CREATE_NODE: Permission = Permission {
    named: false,
    ..permission("node-create", "create", "nodes")
};

/// What every run does.
pub const ALWAYS: [Permission; 8] = [
    permission("node-get", "get", "nodes"),
    permission("node-patch", "patch", "nodes"),
    Permission {
        subresource: "status",
        ..permission("node-status-patch", "patch", "nodes")
    },
    lease("lease-get", "get", true),
    lease("lease-create", "create", false),
    lease("lease-patch", "patch", true),
    event("event-create", "create"),
    event("event-patch", "patch"),
];

/// Only where certificates are asked for.
pub const CERTIFICATES: [Permission; 2] =
    [request("csr-create", "create"), request("csr-get", "get")];

impl Permission {
    /// Asks the server; changes nothing there.
    pub fn review(&self, node_name: &str) -> Request {
        let mut about = json!({"verb": self.verb, "resource": self.resource});
        let members = [
            ("group", self.group),
            ("subresource", self.subresource),
            ("namespace", self.namespace),
            ("name", if self.named { node_name } else { "" }),
        ];
        for (member, value) in members.into_iter().filter(|(_, value)| !value.is_empty()) {
            object::members(&mut about, &[]).insert(member.to_owned(), value.into());
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": about},
        });
        Request::post(REVIEWS, Accept::Object, &review)
    }

    /// From the answer to that.
    pub fn judge(&self, answer: &Response) -> Finding {
        let remedy = match self.resource {
            REQUESTS => "bind the ClusterRole system:node-bootstrapper to the token's group",
            _ => {
                "use a node's certificate (O=system:nodes, CN=system:node:<name>), \
                 or apply systemd/rbac.yaml"
            }
        };
        if let Err(refused) = answer.accepted() {
            let line = format!("the server does not tell: {refused}");
            return Finding::wrong(self.check, &line, remedy);
        }
        let review: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match object::at(&review, &["status", "allowed"]) {
            Some(Value::Bool(true)) => Finding::fine(self.check, format!("may {self}")),
            Some(Value::Bool(false)) => {
                let why = match object::text(&review, &["status", "reason"]) {
                    "" => String::new(),
                    // Its words are the server's, so nothing in them is our remedy.
                    reason => format!(": {}", reason.replace("; ", ", ")),
                };
                Finding::wrong(self.check, &format!("may not {self}{why}"), remedy)
            }
            _ => Finding::wrong(
                self.check,
                "the answer is no SelfSubjectAccessReview",
                "is server the URL of an API server, with its path?",
            ),
        }
    }
}

/// `patch nodes/status`, `get leases in kube-node-lease`.
impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

/// From the answer to the first review; `with` is what we proved ourselves with.
pub fn authentication(answer: &Response, with: Option<&str>) -> Finding {
    let check = "authentication";
    let refused = answer.accepted().err();
    match (answer.code, with) {
        (_, Some(with)) if refused.is_none() => Finding::fine(check, format!("with {with}")),
        // Whom the server knows, and forbids even to ask, is another matter.
        (403, Some(with)) => Finding::fine(check, format!("with {with}")),
        (200..=299 | 401 | 403, None) => Finding::wrong(
            check,
            "the kubeconfig has neither a client certificate nor a token",
            "give its user one",
        ),
        (401, Some(with)) => Finding::wrong(
            check,
            &format!("the server does not accept {with}: 401"),
            "is it of this cluster, and neither expired nor revoked?",
        ),
        (code, _) => Finding::wrong(
            check,
            &refused.map_or_else(|| code.to_string(), |refused| refused.to_string()),
            "is server the URL of an API server, with its path?",
        ),
    }
}

/// Whether another board lives by this name now. `node` and `lease` are none where the
/// server has none; `now` is the server's time.
pub fn namesake(
    node: Option<&Value>,
    lease: Option<&Value>,
    boot_id: &str,
    default_duration: Duration,
    now: Wall,
) -> Finding {
    let check = "namesake";
    let Some(node) = node else {
        return Finding::fine(check, "there is no Node of this name yet");
    };
    let theirs = object::text(node, &["status", "nodeInfo", "bootID"]);
    if theirs == boot_id && !boot_id.is_empty() {
        return Finding::fine(check, "the Node is this board's");
    }
    let lease = lease.unwrap_or(&Value::Null);
    let duration = object::at(lease, &["spec", "leaseDurationSeconds"]).and_then(Value::as_u64);
    let duration = duration.map_or(default_duration, Duration::from_secs);
    let renewed = Wall::parse(object::text(lease, &["spec", "renewTime"]));
    match renewed.map(|renewed| now.since(renewed)) {
        Some(age) if age <= duration => Finding::wrong(
            check,
            &format!(
                "a board with boot id {theirs:?} renewed the Lease {} s ago",
                age.as_secs()
            ),
            &format!(
                "give one of the two another --hostname-override; if this board has just \
                 booted, check again after {} s",
                duration.as_secs()
            ),
        ),
        Some(age) => Finding::fine(
            check,
            format!(
                "the Node is of an earlier boot, silent for {} s",
                age.as_secs()
            ),
        ),
        None => Finding::fine(check, "the Node has no Lease: nobody serves it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Mark;
    use crate::kube::message::Method;

    fn answer(code: u16, body: Value) -> Response {
        Response {
            code,
            retry_after: None,
            date: None,
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn a_review_asks_for_what_a_run_does() {
        let about = |permission: &Permission| {
            let request = permission.review("pi");
            assert_eq!(
                (request.method, request.path.as_str()),
                (Method::Post, REVIEWS)
            );
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            body["spec"]["resourceAttributes"].clone()
        };
        assert_eq!(
            about(&CREATE_NODE),
            json!({"verb": "create", "resource": "nodes"})
        );
        let [_, _, status, _, create, patch, event, _] = &ALWAYS;
        assert_eq!(
            about(status),
            json!({"verb": "patch", "resource": "nodes", "subresource": "status", "name": "pi"})
        );
        let leases = json!({"verb": "create", "group": "coordination.k8s.io", "resource": "leases",
            "namespace": "kube-node-lease"});
        assert_eq!(about(create), leases);
        assert_eq!(about(patch)["name"], "pi");
        assert_eq!(
            about(event),
            json!({"verb": "create", "resource": "events", "namespace": "default"})
        );
        assert_eq!(about(&CERTIFICATES[0])["group"], "certificates.k8s.io");
    }

    #[test]
    fn what_is_not_allowed_is_told_with_the_servers_reason() {
        let [get, ..] = &ALWAYS;
        let status = |status: Value| get.judge(&answer(201, json!({"status": status})));
        assert_eq!(
            status(json!({"allowed": true})),
            Finding::fine("node-get", "may get nodes")
        );
        let denied = status(json!({"allowed": false, "reason": "no; never"}));
        assert_eq!(denied.mark, Mark::Wrong);
        assert_eq!(denied.detail, "may not get nodes: no, never");
        assert!(denied.remedy.contains("systemd/rbac.yaml"));
        for nonsense in [
            answer(200, json!("<html>")),
            answer(201, json!({"status": {"allowed": "yes"}})),
        ] {
            assert!(
                get.judge(&nonsense)
                    .detail
                    .contains("no SelfSubjectAccessReview")
            );
        }
        let forbidden = get.judge(&answer(403, json!({"reason": "Forbidden", "message": "x"})));
        assert!(
            forbidden
                .detail
                .starts_with("the server does not tell: 403 Forbidden: x")
        );
    }

    #[test]
    fn who_we_are_to_the_server() {
        let with = Some("the token");
        for (code, with, mark, part) in [
            (201, with, Mark::Fine, "with the token"),
            (403, with, Mark::Fine, "with the token"),
            (401, with, Mark::Wrong, "does not accept the token: 401"),
            (
                401,
                None,
                Mark::Wrong,
                "neither a client certificate nor a token",
            ),
            (
                403,
                None,
                Mark::Wrong,
                "neither a client certificate nor a token",
            ),
            (
                201,
                None,
                Mark::Wrong,
                "neither a client certificate nor a token",
            ),
            (404, with, Mark::Wrong, "URL of an API server"),
            (502, None, Mark::Wrong, "URL of an API server"),
        ] {
            let finding = authentication(&answer(code, json!({})), with);
            assert_eq!(finding.mark, mark, "{finding:?}");
            assert!(finding.line().contains(part), "{finding:?}");
        }
    }

    #[test]
    fn another_board_is_one_that_renewed_lately_after_another_boot() {
        let at = |seconds: u64| Wall::from_epoch(Duration::from_secs(1_790_000_000 + seconds));
        let node = json!({"status": {"nodeInfo": {"bootID": "theirs"}}});
        let lease = |seconds: Option<u64>| json!({"spec": {"renewTime": at(100).micro_time(), "leaseDurationSeconds": seconds}});
        let finding = |node: Option<&Value>, lease: Option<&Value>, boot_id, now| {
            namesake(node, lease, boot_id, Duration::from_secs(40), at(now))
        };
        let fresh = lease(None);
        let wrong = finding(Some(&node), Some(&fresh), "ours", 140);
        assert_eq!(
            wrong.line(),
            "✗ namesake: a board with boot id \"theirs\" renewed the Lease 40 s ago; give one of \
             the two another --hostname-override; if this board has just booted, check again \
             after 40 s"
        );
        for (node, lease, boot_id, now, part) in [
            (None, None, "ours", 0, "no Node of this name"),
            (Some(&node), Some(&fresh), "theirs", 101, "this board's"),
            (Some(&node), Some(&fresh), "ours", 141, "silent for 41 s"),
            (
                Some(&node),
                Some(&lease(Some(8))),
                "ours",
                109,
                "silent for 9 s",
            ),
            (Some(&node), None, "ours", 0, "nobody serves it"),
        ] {
            let finding = finding(node, lease, boot_id, now);
            assert_eq!(finding.mark, Mark::Fine, "{finding:?}");
            assert!(finding.detail.contains(part), "{finding:?}");
        }
        // A board that cannot read its own boot id is not every board.
        let unread = json!({"status": {"nodeInfo": {"bootID": ""}}});
        assert_eq!(
            finding(Some(&unread), Some(&fresh), "", 101).mark,
            Mark::Wrong
        );
    }
}
