//! RBAC, from manifests: roles, their bindings, and whom they let do what.

use crate::auth::{Attributes, User};
use crate::join;
use serde_json::Value;

/// `ClusterRole`, `Role` and their bindings; other objects have no effect.
#[derive(Debug, Clone)]
pub(crate) struct Rbac {
    pub(crate) objects: Vec<Value>,
}

impl Default for Rbac {
    /// Bootstrap tokens may ask for certificates, and nodes for others.
    fn default() -> Self {
        Self { objects: join::bindings(["ask", "approve", "renew"], "system:bootstrappers") }
    }
}

impl Rbac {
    /// Why `want` is allowed, in the real authorizer's words.
    pub(crate) fn allows(&self, user: &User, want: &Attributes<'_>) -> Option<String> {
        self.objects.iter().find_map(|binding| {
            let kind = binding["kind"].as_str()?;
            let namespace = &binding["metadata"]["namespace"];
            let reaches = match kind {
                "ClusterRoleBinding" => true,
                "RoleBinding" => *namespace == want.namespace,
                _ => false,
            };
            let subject = list(&binding["subjects"]).find(|subject| is_meant(subject, user))?;
            let role = self.role(kind, &binding["roleRef"], namespace)?;
            let grants = list(&role["rules"]).any(|rule| grants(rule, want));
            (reaches && grants).then(|| {
                format!(
                    "RBAC: allowed by {kind} {} of {} {} to {} {}",
                    binding["metadata"]["name"],
                    role["kind"].as_str().unwrap_or_default(),
                    role["metadata"]["name"],
                    subject["kind"].as_str().unwrap_or_default(),
                    subject["name"],
                )
            })
        })
    }

    fn role(&self, binding: &str, wanted: &Value, namespace: &Value) -> Option<&Value> {
        // A ClusterRoleBinding to a Role is refused by a real server.
        let kind = &wanted["kind"];
        if binding == "ClusterRoleBinding" && kind != "ClusterRole" {
            return None;
        }
        self.objects.iter().find(|role| {
            let here = kind == "ClusterRole" || role["metadata"]["namespace"] == *namespace;
            role["kind"] == *kind && role["metadata"]["name"] == wanted["name"] && here
        })
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_meant(subject: &Value, user: &User) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => user.name == name,
        Some("Group") => user.is_in(name),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or_default();
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

/// `k8s.io/component-helpers/auth/rbac/validation`, `RuleAllows`.
fn grants(rule: &Value, want: &Attributes<'_>) -> bool {
    let has = |field: &str, wanted: &[&str]| {
        list(&rule[field]).any(|item| item.as_str().is_some_and(|item| wanted.contains(&item)))
    };
    let whole = format!("{}/{}", want.resource, want.subresource);
    let any = format!("*/{}", want.subresource);
    let resource: &[&str] = match want.subresource {
        "" => &["*", want.resource],
        _ => &["*", &whole, &any],
    };
    has("verbs", &["*", want.verb])
        && has("apiGroups", &["*", want.group])
        && has("resources", resource)
        && (list(&rule["resourceNames"]).next().is_none() || has("resourceNames", &[want.name]))
}
