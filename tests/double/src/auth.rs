//! Who is it, and may they: client certificates and tokens, the Node authorizer, and RBAC.

use crate::der::Subject;
use crate::rbac::Rbac;
use serde_json::Value;

/// A user, as authentication finds one.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: Option<Value>,
}

impl User {
    pub(crate) fn new<T: Into<String>>(name: &str, groups: impl IntoIterator<Item = T>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        let implied =
            if name == ANONYMOUS { "system:unauthenticated" } else { "system:authenticated" };
        if !groups.iter().any(|g| g == implied) {
            groups.push(implied.to_owned());
        }
        Self { name: name.to_owned(), groups, extra: None }
    }

    pub(crate) fn admin() -> Self {
        Self::new("kubernetes-admin", ["system:masters"])
    }

    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS, [""; 0])
    }

    pub(crate) fn from_subject(subject: &Subject) -> Self {
        Self::new(&subject.common_name, &subject.organizations)
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The node's name, if this is a node.
    pub(crate) fn node(&self) -> Option<&str> {
        self.name.strip_prefix("system:node:").filter(|_| self.is_in("system:nodes"))
    }
}

const ANONYMOUS: &str = "system:anonymous";

/// What somebody wants.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The field selector of a list or a watch.
    pub(crate) fields: &'a str,
    /// The node of the pod of this name; empty if there is none.
    pub(crate) bound_to: &'a str,
}

/// `Ok`, or why not in the words after `is forbidden:`.
pub(crate) fn authorize(user: &User, want: &Attributes<'_>, rbac: &Rbac) -> Result<(), String> {
    let Err(reason) = decide(user, want, rbac) else { return Ok(()) };
    let Attributes { verb, group, resource, subresource, namespace, .. } = *want;
    let resource = match subresource {
        "" => resource.to_owned(),
        _ => format!("{resource}/{subresource}"),
    };
    let place = match namespace {
        "" => "at the cluster scope".to_owned(),
        _ => format!("in the namespace \"{namespace}\""),
    };
    let colon = if reason.is_empty() { "" } else { ": " };
    Err(format!(
        "User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" \
         {place}{colon}{reason}",
        user.name
    ))
}

/// What the authorizers say in turn: why it is allowed, or why the last one had no opinion.
pub(crate) fn decide(user: &User, want: &Attributes<'_>, rbac: &Rbac) -> Result<String, String> {
    if user.is_in("system:masters") {
        return Ok(String::new());
    }
    let reason = match user.node().map(|node| node_authorizer(node, want)) {
        Some(Ok(())) => return Ok(String::new()),
        Some(Err(why)) => why,
        None => String::new(),
    };
    if is_basic(user, want) {
        return Ok("RBAC: allowed by a role of the double".to_owned());
    }
    rbac.allows(user, want).ok_or(reason)
}

fn node_authorizer(node: &str, want: &Attributes<'_>) -> Result<(), String> {
    match (want.group, want.resource) {
        ("", "nodes") => own_node(node, want),
        ("", "pods") => own_pods(node, want),
        ("coordination.k8s.io", "leases") => own_lease(node, want),
        ("", "events") if ["create", "update", "patch"].contains(&want.verb) => Ok(()),
        ("certificates.k8s.io", "certificatesigningrequests")
            if want.subresource.is_empty()
                && ["create", "get", "list", "watch"].contains(&want.verb) =>
        {
            Ok(())
        }
        // `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go` NodeRules
        ("authentication.k8s.io", "tokenreviews")
        | ("authorization.k8s.io", "subjectaccessreviews")
            if want.subresource.is_empty() && want.verb == "create" =>
        {
            Ok(())
        }
        _ => Err(String::new()),
    }
}

fn own_node(node: &str, want: &Attributes<'_>) -> Result<(), String> {
    match (want.subresource, want.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") if want.name == node => Ok(()),
        ("", "get" | "list" | "watch") if want.name.is_empty() => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch") => {
            Err(format!("node '{node}' cannot read '{}', only its own Node object", want.name))
        }
        _ => Err(String::new()),
    }
}

/// What a node does to pods, NodeRestriction limits to those that are bound to it.
fn own_pods(node: &str, want: &Attributes<'_>) -> Result<(), String> {
    let is_own = |term: &str| {
        let value = term.strip_prefix("spec.nodeName=");
        value.map(|value| value.strip_prefix('=').unwrap_or(value)) == Some(node)
    };
    match (want.subresource, want.verb) {
        ("", "create" | "delete") | ("status", "update" | "patch") => Ok(()),
        ("", "list" | "watch") if want.fields.split(',').any(is_own) => Ok(()),
        ("", "list" | "watch") if want.name.is_empty() => {
            Err("can only list/watch pods with spec.nodeName field selector".to_owned())
        }
        ("", "get") if want.name.is_empty() => Err("No Object name found".to_owned()),
        ("", "get" | "list" | "watch") if want.bound_to == node => Ok(()),
        ("", "get" | "list" | "watch") => {
            Err(format!("no relationship found between node '{node}' and this object"))
        }
        _ => Err(String::new()),
    }
}

fn own_lease(node: &str, want: &Attributes<'_>) -> Result<(), String> {
    if !["get", "create", "update", "patch", "delete"].contains(&want.verb) {
        return Err("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if want.namespace != "kube-node-lease" {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".to_owned());
    }
    if want.verb != "create" && want.name != node {
        return Err(
            "can only access node lease with the same name as the requesting node".to_owned()
        );
    }
    Ok(())
}

/// ClusterRole system:basic-user.
fn is_basic(user: &User, want: &Attributes<'_>) -> bool {
    let asked = (want.verb, want.group, want.resource, want.subresource);
    user.is_in("system:authenticated")
        && asked == ("create", "authorization.k8s.io", "selfsubjectaccessreviews", "")
}

/// Paths that are no resources.
pub(crate) fn may_read_path(user: &User, path: &str) -> bool {
    let public = ["/healthz", "/livez", "/readyz", "/version"];
    public.iter().any(|p| path.trim_end_matches('/') == *p) || user.name != ANONYMOUS
}
