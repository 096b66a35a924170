//! Validates names, labels and taints with the rules of the API server.
//!
//! An invalid name is an error at the start; otherwise each registration would fail with a 422.
//! Sources: apimachinery `pkg/util/validation`, `pkg/util/taints`, and the label rules of the
//! admission plugin NodeRestriction.

use std::collections::BTreeMap;

use serde::Serialize;

/// `spec.taints[]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taint {
    /// Qualified name.
    pub key: String,
    /// Label value; omitted if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The label namespaces of Kubernetes. A node may set only the labels below on its own Node.
const RESERVED_NAMESPACES: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// Namespaces within the reserved ones, and their subdomains, that a node may use.
const NODE_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Reserved keys that a node may set on its own Node.
const NODE_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Whether `text` is a DNS-1123 subdomain of at most 253 bytes: a Node's name.
///
/// As in apimachinery IsDNS1123Subdomain, only the whole name has a maximum length, not its parts.
pub fn is_dns_subdomain(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|part| {
            part.bytes().all(|b| alphanumeric(b) || b == b'-') && ends_satisfy(part, alphanumeric)
        })
}

/// Whether `text` is `[prefix/]name`: the key of a label, an annotation or a taint.
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Whether `text` may be the value of a label: empty, or at most 63 of
/// `[A-Za-z0-9_.-]` with an alphanumeric at both ends.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || text.len() <= 63
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            && ends_satisfy(text, |b| b.is_ascii_alphanumeric())
}

fn ends_satisfy(text: &str, test: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| test(*b)) && bytes.last().is_some_and(|b| test(*b))
}

/// The name of the Node: the host name, trimmed and in lower case. It must be valid as a name and
/// as the value of the label `kubernetes.io/hostname`.
pub fn node_name(hostname: &str) -> Result<String, String> {
    let name = hostname.trim().to_ascii_lowercase();
    if name.is_empty() {
        return Err("empty hostname is invalid".to_owned());
    }
    // Every machine without a name has this one: many boards would be one Node.
    if ["localhost", "localhost.localdomain"].contains(&name.as_str()) {
        return Err(format!(
            "{name:?} names every machine; set --hostname-override or a host name"
        ));
    }
    if !is_dns_subdomain(&name) {
        return Err(format!(
            "{name:?} cannot be a Node's name (lower case letters, digits, '-' and '.'); \
             set --hostname-override"
        ));
    }
    if name.len() > 63 {
        return Err(format!(
            "{name:?} has {} characters, but the label kubernetes.io/hostname holds 63; \
             set --hostname-override",
            name.len()
        ));
    }
    Ok(name)
}

/// Adds the labels of one `--node-labels k=v,…` to `labels`.
pub fn parse_labels(text: &str, labels: &mut BTreeMap<String, String>) {
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        labels.insert(key.trim().to_owned(), value.trim().to_owned());
    }
}

/// Checks the syntax of labels, and whether NodeRestriction allows a node to set them. The error
/// texts are the kubelet's; the second one names the flag itself.
pub fn check_node_labels(labels: &BTreeMap<String, String>) -> Result<(), String> {
    for (key, value) in labels {
        if !is_qualified_name(key) || !is_label_value(value) {
            return Err(format!("invalid node labels: {key:?}={value:?} is not a label"));
        }
    }
    let forbidden: Vec<&str> =
        labels.keys().map(String::as_str).filter(|key| !is_allowed_node_label(key)).collect();
    if forbidden.is_empty() {
        return Ok(());
    }
    Err(format!(
        "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]; \
         --node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix ({}) \
         or be in the specifically allowed set ({})",
        forbidden.join(", "),
        NODE_NAMESPACES.join(", "),
        NODE_LABELS.join(", "),
    ))
}

fn is_allowed_node_label(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else {
        return true;
    };
    let within = |domain: &&str| -> bool {
        namespace.strip_suffix(*domain).is_some_and(|head| head.is_empty() || head.ends_with('.'))
    };
    !RESERVED_NAMESPACES.iter().any(within)
        || NODE_LABELS.contains(&key)
        || NODE_NAMESPACES.iter().any(within)
}

/// Parses one `--register-with-taints` list. An item that ends in `-` removes a taint; as in the
/// kubelet, it is parsed and dropped.
pub fn parse_taints(text: &str) -> Result<Vec<Taint>, String> {
    let mut taints: Vec<Taint> = Vec::new();
    if text.is_empty() {
        return Ok(taints);
    }
    for item in text.split(',') {
        let removal = item.strip_suffix('-');
        let taint = parse_taint(removal.unwrap_or(item), removal.is_some())
            .map_err(|cause| format!("{cause}: {item}"))?;
        if removal.is_some() {
            continue;
        }
        if taints.iter().any(|t| t.key == taint.key && t.effect == taint.effect) {
            return Err(format!("duplicated taints with the same key and effect: {item}"));
        }
        taints.push(taint);
    }
    Ok(taints)
}

fn parse_taint(item: &str, removal: bool) -> Result<Taint, &'static str> {
    const SPEC: &str = "invalid taint spec (write key=value:Effect or key:Effect)";
    let (pair, effect) = match item.split_once(':') {
        Some((_, effect)) if effect.contains(':') => return Err(SPEC),
        Some((pair, effect)) if EFFECTS.contains(&effect) => (pair, effect),
        Some(_) => {
            return Err(
                "invalid taint effect (NoSchedule, PreferNoSchedule or NoExecute), unsupported taint effect",
            );
        }
        None if removal && !item.contains('=') => (item, ""),
        None => return Err(SPEC),
    };
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let taint = Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() };
    if taint.has_valid_syntax() { Ok(taint) } else { Err(SPEC) }
}

impl Taint {
    fn has_valid_syntax(&self) -> bool {
        is_qualified_name(&self.key) && is_label_value(&self.value)
    }
}

/// Checks taints of the configuration file.
pub fn check_taints(taints: &[Taint]) -> Result<(), String> {
    for (index, taint) in taints.iter().enumerate() {
        let Taint { key, value, effect } = taint;
        if !taint.has_valid_syntax() || !EFFECTS.contains(&effect.as_str()) {
            return Err(format!("invalid taint: {{{key} {value} {effect} <nil>}}"));
        }
        let same = |t: &Taint| t.key == *key && t.effect == *effect;
        if taints.iter().take(index).any(same) {
            return Err(format!(
                "duplicated taints with the same key and effect: {key}={value}:{effect}"
            ));
        }
    }
    Ok(())
}

/// Whether `name` is the name of an extended resource: with a domain other than Kubernetes' own
/// (`pkg/apis/core/v1/helper` IsExtendedResourceName).
pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && is_qualified_name(&format!("requests.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// component-helpers `node/util/hostname_test.go` TestGetHostname.
    #[test]
    fn a_node_name_is_valid_as_name_and_label() {
        assert_eq!(node_name(" OVERRIDDEN \n").unwrap(), "overridden");
        assert_eq!(node_name("pi-7.lab").unwrap(), "pi-7.lab");
        assert_eq!(node_name(" ").unwrap_err(), "empty hostname is invalid");
        let longest = "a".repeat(63);
        assert_eq!(node_name(&longest).as_ref(), Ok(&longest));
        let bad = "pi_7 -pi pi- .pi pi. pi..7 pi.-7 π a/b localhost LocalHost.localdomain";
        for bad in bad.split(' ').chain(["pi 7", &"a".repeat(64), &"a".repeat(254)]) {
            assert!(node_name(bad).is_err(), "{bad}");
        }
    }

    /// `pkg/util/taints/taints_test.go` TestParseTaints.
    #[test]
    fn taints_are_parsed_as_in_kubernetes() {
        let bad = "foo=abc foo=abc=xyz:NoSchedule foo=abc:xyz:NoSchedule foo foo=abc:bad_effect \
                   foo=abc:NoSchedule,foo=xyz:NoSchedule foo=abc!:NoSchedule föö=abc:NoSchedule \
                   foo=-abc:NoSchedule foo=abc-:NoSchedule foo=.abc:NoSchedule foo:bad_effect- \
                   foo=abc- baz:NoSchedule, föö:NoSchedule- ,";
        for bad in bad.split(' ').chain([
            "foo=abc\\:NoSchedule",
            "foo=abc:NoSchedule, baz:NoSchedule",
            &format!("{}:NoSchedule", "k".repeat(64)),
        ]) {
            assert!(parse_taints(bad).is_err(), "{bad}");
        }
        let taints = parse_taints("foo=abc:NoSchedule,baz:NoExecute,foobar=:NoSchedule").unwrap();
        assert_eq!(
            serde_json::to_string(&taints).unwrap(),
            r#"[{"key":"foo","value":"abc","effect":"NoSchedule"},{"key":"baz","effect":"NoExecute"},{"key":"foobar","effect":"NoSchedule"}]"#
        );
        assert_eq!(parse_taints("").unwrap(), []);
        assert_eq!(parse_taints("foo:NoSchedule-,qux=:NoSchedule-,dedicated-").unwrap(), []);
    }

    #[test]
    fn a_node_may_set_only_some_labels_of_kubernetes() {
        let check =
            |key: &str| check_node_labels(&BTreeMap::from([(key.to_owned(), "x".to_owned())]));
        let good = "foo example.com/foo notkubernetes.io/foo \
                    cloud.google.com/metadata-proxy-ready kubernetes.io node.kubernetes.io/foo \
                    foo.kubelet.kubernetes.io/foo kubelet.kubernetes.io/foo \
                    foo.node.kubernetes.io/bar topology.kubernetes.io/zone";
        for good in good.split(' ') {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let bad = "node-role.kubernetes.io/worker foo.node-restriction.kubernetes.io/foo \
                   other.kubernetes.io/foo other.k8s.io/foo kubernetes.io/foo \
                   xnode.kubernetes.io/foo kubernetes.io/hostname/x \
                   node-restriction.kubernetes.io/zone beta.kubernetes.io/metadata-proxy-ready \
                   k8s.io/x a/b/c /x";
        for bad in bad.split(' ').chain([""]) {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_extended_resource_has_a_domain_other_than_kubernetes() {
        for name in ["example.com/gpu", "test.com/resource1", "a/b"] {
            assert!(is_extended_resource(name), "{name}");
        }
        let others = "memory hugepages-2Mi example.com/ /x a/b/c Example.com/x cpu \
                      kubernetes.io/x x.kubernetes.io/y requests.example.com/x";
        for name in others.split(' ').chain(["a b/c"]) {
            assert!(!is_extended_resource(name), "{name}");
        }
    }
}
