//! Judges DaemonSets: which of them would place a pod on a Node that runs none.
//!
//! Upstream: `pkg/controller/daemon/daemon_controller.go` NodeShouldRunDaemonPod, component-helpers
//! `scheduling/corev1/nodeaffinity`.

use serde_json::{Map, Value};

use super::Finding;
use super::guest::forbidden;
use crate::kube::json;
use crate::kube::message::Response;
use crate::kube::object;

/// The first DaemonSets of the cluster.
pub const PATH: &str = "/apis/apps/v1/daemonsets?limit=50";

/// Taints that every DaemonSet tolerates, or that the control plane sets for a while.
const CONTROL_PLANE: &str = "node.kubernetes.io/";

/// The Node that a DaemonSet chooses or does not.
#[derive(Clone, Debug)]
pub struct Target {
    /// `metadata.name`.
    pub name: String,
    /// Its labels after a start.
    pub labels: Map<String, Value>,
    /// `spec.taints`.
    pub taints: Vec<Value>,
}

/// From the response to [`PATH`].
pub fn daemon_sets(list: &Response, target: &Target) -> Finding {
    let check = "daemonsets";
    if let Err(refused) = list.accepted() {
        return forbidden(check, &refused);
    }
    let body = json::parse(&list.body).unwrap_or_default();
    if object::text(&body, &["kind"]) != "DaemonSetList" {
        return Finding::note(check, "the response is not a DaemonSetList", "");
    }
    let sets = object::list(&body, &["items"]);
    // The server has more than the limit in PATH.
    let first = match object::text(&body, &["metadata", "continue"]) {
        "" => "",
        _ => "the first ",
    };
    let stranded: Vec<String> = sets
        .iter()
        .filter(|set| target.is_chosen(object::at(set, &["spec", "template", "spec"])))
        .map(|set| {
            let text = |key| object::text(set, &["metadata", key]);
            format!("{}/{}", text("namespace"), text("name"))
        })
        .collect();
    match stranded.as_slice() {
        [] => Finding::ok(
            check,
            format!("none of {first}{} wants a pod here", sets.len()),
        ),
        names => Finding::note(
            check,
            format!("{} want a pod here, which waits for ever", names.join(", ")),
            "add a nodeAffinity kubernetes.io/os NotIn [nodelet] to their templates",
        ),
    }
}

impl Target {
    fn is_chosen(&self, pod: Option<&Value>) -> bool {
        let Some(pod) = pod else { return false };
        let selector = object::at(pod, &["nodeSelector"]).and_then(Value::as_object);
        let is_selected = selector
            .into_iter()
            .flatten()
            .all(|(key, value)| self.labels.get(key) == Some(value));
        let terms = [
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ];
        let terms = object::at(pod, &terms).and_then(Value::as_array);
        let has_affinity = terms.is_none_or(|terms| terms.iter().any(|term| self.matches(term)));
        let is_tolerated = |taint: &Value| {
            let effect = object::text(taint, &["effect"]);
            let is_harmless = effect == "PreferNoSchedule"
                || object::text(taint, &["key"]).starts_with(CONTROL_PLANE);
            let mut tolerations = object::list(pod, &["tolerations"]).iter();
            is_harmless || tolerations.any(|toleration| tolerates(toleration, taint))
        };
        is_selected && has_affinity && self.taints.iter().all(is_tolerated)
    }

    /// One term of a node affinity. A term without requirements matches nothing.
    fn matches(&self, term: &Value) -> bool {
        let labels = object::list(term, &["matchExpressions"]);
        let fields = object::list(term, &["matchFields"]);
        let label = |requirement: &Value| {
            let key = object::text(requirement, &["key"]);
            holds(requirement, self.labels.get(key).and_then(Value::as_str))
        };
        let is_some = !labels.is_empty() || !fields.is_empty();
        // metadata.name is the only field.
        let field = |requirement: &Value| holds(requirement, Some(&self.name));
        is_some && labels.iter().all(label) && fields.iter().all(field)
    }
}

fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let values = object::list(requirement, &["values"]);
    let is_listed = value.is_some_and(|value| values.iter().any(|v| v == value));
    let compare = |is: fn(&i64, &i64) -> bool| {
        let bound = values.first().and_then(Value::as_str);
        let numbers = value
            .and_then(|v| v.parse().ok())
            .zip(bound.and_then(|v| v.parse().ok()));
        numbers.is_some_and(|(value, bound)| is(&value, &bound))
    };
    match object::text(requirement, &["operator"]) {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (wanted, given) = (
        |key: &str| object::text(toleration, &[key]),
        |key: &str| object::text(taint, &[key]),
    );
    let has_effect = ["", given("effect")].contains(&wanted("effect"));
    match (wanted("key"), wanted("operator")) {
        ("", "Exists") => has_effect,
        (key, _) if key != given("key") => false,
        (_, "Exists") => has_effect,
        _ => has_effect && wanted("value") == given("value"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::Mark;

    fn target() -> Target {
        let labels =
            json!({"kubernetes.io/os": "nodelet", "kubernetes.io/arch": "arm64", "n": "5"});
        Target {
            name: "pi".into(),
            labels: labels.as_object().cloned().unwrap(),
            taints: vec![
                json!({"key": "nodelet/no-pods", "effect": "NoSchedule"}),
                json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}),
            ],
        }
    }

    fn affinity(terms: Value) -> Value {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}}})
    }

    #[test]
    fn a_daemon_set_is_chosen_as_its_controller_chooses() {
        let all = json!([{"operator": "Exists"}]);
        let requirement = |key: &str, operator: &str, values: Value| {
            affinity(json!([{"matchExpressions":
                [{"key": key, "operator": operator, "values": values}]}]))
        };
        let by_name = affinity(json!([{"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": ["pi"]}]}]));
        for (name, spec, chosen) in [
            ("no toleration", json!({}), false),
            ("tolerates all", json!({"tolerations": all}), true),
            (
                "kube-proxy",
                json!({"tolerations": all, "nodeSelector": {"kubernetes.io/os": "linux"}}),
                false,
            ),
            (
                "selects us",
                json!({"tolerations": all, "nodeSelector": {"kubernetes.io/os": "nodelet"}}),
                true,
            ),
            (
                "tolerates ours",
                json!({"tolerations": [{"key": "nodelet/no-pods", "operator": "Exists"}]}),
                true,
            ),
            (
                "tolerates ours, by value",
                json!({"tolerations": [{"key": "nodelet/no-pods", "effect": "NoSchedule"}]}),
                true,
            ),
            (
                "another value",
                json!({"tolerations": [{"key": "nodelet/no-pods", "value": "x"}]}),
                false,
            ),
            (
                "another effect",
                json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}),
                false,
            ),
        ] {
            assert_eq!(target().is_chosen(Some(&spec)), chosen, "{name}");
        }
        for (affinity, chosen) in [
            (
                requirement("kubernetes.io/os", "NotIn", json!(["nodelet"])),
                false,
            ),
            (
                requirement("kubernetes.io/os", "In", json!(["linux", "nodelet"])),
                true,
            ),
            (requirement("kubernetes.io/os", "Exists", json!([])), true),
            (
                requirement("kubernetes.io/hostname", "Exists", json!([])),
                false,
            ),
            (
                requirement("kubernetes.io/hostname", "DoesNotExist", json!([])),
                true,
            ),
            (
                requirement("kubernetes.io/hostname", "NotIn", json!(["a"])),
                true,
            ),
            (requirement("n", "Gt", json!(["4"])), true),
            (requirement("n", "Gt", json!(["5"])), false),
            (requirement("n", "Lt", json!(["6"])), true),
            (requirement("n", "Lt", json!(["x"])), false),
            (requirement("n", "Odd", json!([])), false),
            (by_name, true),
            (affinity(json!([{}])), false),
            (affinity(json!([])), false),
        ] {
            let spec = json!({"tolerations": all, "affinity": affinity});
            assert_eq!(target().is_chosen(Some(&spec)), chosen, "{affinity}");
        }
    }

    #[test]
    fn stranded_daemon_sets_are_named_and_a_403_is_a_note() {
        let set = |name: &str, spec: Value| {
            json!({"metadata": {"namespace": "kube-system", "name": name},
                "spec": {"template": {"spec": spec}}})
        };
        let all = json!({"tolerations": [{"operator": "Exists"}]});
        let list = |items: Value| {
            let list = json!({"kind": "DaemonSetList", "items": items});
            Response::test(200, list.to_string())
        };
        let found = daemon_sets(
            &list(json!([set("a", json!({})), set("b", all)])),
            &target(),
        );
        assert_eq!(found.mark, Mark::Note);
        assert!(found.detail.starts_with("kube-system/b want"), "{found:?}");
        assert!(found.remedy.contains("NotIn [nodelet]"));
        let none = daemon_sets(&list(json!([set("a", json!({}))])), &target());
        assert_eq!(
            (none.mark, &*none.detail),
            (Mark::Ok, "none of 1 wants a pod here")
        );
        let forbidden = daemon_sets(&Response::test(403, "{}"), &target());
        assert_eq!(
            (forbidden.mark, &*forbidden.detail),
            (Mark::Note, "not allowed to look")
        );
    }

    #[test]
    fn an_unreadable_list_is_a_note_and_a_part_of_a_list_says_so() {
        for (body, mark, detail) in [
            ("", Mark::Note, "the response is not a DaemonSetList"),
            ("{}", Mark::Note, "the response is not a DaemonSetList"),
            (
                r#"{"kind": "PodList", "items": []}"#,
                Mark::Note,
                "the response is not a DaemonSetList",
            ),
            (
                r#"{"kind": "DaemonSetList", "items": null}"#,
                Mark::Ok,
                "none of 0 wants a pod here",
            ),
            (
                r#"{"kind": "DaemonSetList", "metadata": {"continue": "x"}, "items": [{}, {}]}"#,
                Mark::Ok,
                "none of the first 2 wants a pod here",
            ),
        ] {
            let found = daemon_sets(&Response::test(200, body), &target());
            assert_eq!((found.mark, &*found.detail), (mark, detail), "{body}");
        }
    }
}
