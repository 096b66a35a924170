//! Is this an object? Decoding as the real server does it (unknown members dropped, times and
//! quantities in their canonical form), with k8s-openapi's types, then the rules of each kind.

use crate::admission::is_same_taint;
use crate::kinds::Kind;
use crate::pods::default;
use crate::quantity::Quantity;
use crate::status::{self, Cause, Failure};
use crate::time;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::{SelfSubjectAccessReview, SubjectAccessReview};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, NodeSystemInfo, Pod};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Decodes; the error is the text that the real server's decoder gives. Members that the kind does
/// not have are dropped, and added to `unknown`.
pub(crate) fn decode(
    kind: &str,
    input: &Value,
    unknown: &mut Vec<String>,
) -> Result<Value, String> {
    let mut object = input.clone();
    // As recorded; of other types the error is that of serde.
    if kind == "Node" && object["status"]["conditions"].is_string() {
        return Err("json: cannot unmarshal string into Go struct field \
                    NodeStatus.status.conditions of type []v1.NodeCondition"
            .to_owned());
    }
    if let Some(status) = object.get_mut("status") {
        for list in ["capacity", "allocatable"] {
            if let Some(map) = status.get_mut(list).and_then(Value::as_object_mut) {
                quantities(map)?;
            }
        }
    }
    times(&mut object)?;
    let typed = match kind {
        "Node" => round_trip::<Node>(&object),
        "Lease" => round_trip::<Lease>(&object),
        "Event" => round_trip::<Event>(&object),
        "Pod" => round_trip::<Pod>(&object),
        "SelfSubjectAccessReview" => round_trip::<SelfSubjectAccessReview>(&object),
        "SubjectAccessReview" => round_trip::<SubjectAccessReview>(&object),
        "TokenReview" => round_trip::<TokenReview>(&object),
        _ => round_trip::<CertificateSigningRequest>(&object),
    }
    .map_err(|e| format!("json: cannot unmarshal: {e}"))?;
    Ok(prune(&object, &typed, "", unknown))
}

fn round_trip<'a, T: Deserialize<'a> + Serialize>(
    value: &'a Value,
) -> Result<Value, serde_json::Error> {
    serde_json::to_value(T::deserialize(value)?)
}

fn quantities(map: &mut Map<String, Value>) -> Result<(), String> {
    map.retain(|_, value| !value.is_null());
    for value in map.values_mut() {
        let text = match &*value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(crate::quantity::REGEX_MESSAGE.to_owned()),
        };
        *value = json!(Quantity::parse(&text)?.canonical());
    }
    Ok(())
}

const MICRO_TIMES: [&str; 4] = ["renewTime", "acquireTime", "eventTime", "lastObservedTime"];

fn times(value: &mut Value) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(times),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let micro = MICRO_TIMES.contains(&key.as_str());
                if !micro && !key.ends_with("Time") && !key.ends_with("Timestamp") {
                    if key != "metadata" {
                        times(value)?;
                    }
                    continue;
                }
                match &*value {
                    Value::String(text) if micro => *value = json!(time::parse_micro_time(text)?),
                    Value::String(text) => *value = json!(time::parse_time(text)?),
                    _ => {}
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Texts that Go writes although they are empty: without `omitempty`, or a pointer.
const WRITTEN: [&str; 7] = ["address", "effect", "holderIdentity", "key", "name", "status", "type"];

/// Whether Go leaves out a member because it is empty. Numbers are pointers, but for one.
fn is_omitted(key: &str, value: &Value) -> bool {
    let is_written = match value {
        Value::Bool(_) | Value::Number(_) => !["unschedulable", "count"].contains(&key),
        Value::String(_) => WRITTEN.contains(&key),
        _ => false,
    };
    !is_written && is_empty(value)
}

pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

fn prune(input: &Value, typed: &Value, path: &str, unknown: &mut Vec<String>) -> Value {
    match (input, typed) {
        (Value::Object(have), Value::Object(known)) => {
            let mut kept = Map::new();
            for (key, value) in have {
                let here = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let free = path.ends_with("labels") || path.ends_with("annotations");
                if value.is_null() {
                    continue;
                }
                match known.get(key) {
                    _ if !free && is_omitted(key, value) => {}
                    Some(inner) => {
                        drop(kept.insert(key.clone(), prune(value, inner, &here, unknown)))
                    }
                    None => unknown.push(here),
                }
            }
            Value::Object(kept)
        }
        (Value::Array(have), Value::Array(known)) => have
            .iter()
            .zip(known)
            .enumerate()
            .map(|(i, (value, inner))| prune(value, inner, &format!("{path}[{i}]"), unknown))
            .collect(),
        _ => input.clone(),
    }
}

/// What is absent on input and present on output.
pub(crate) fn defaults(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "Node" => {
            default(object, "spec", json!({}));
            default(object, "status", json!({}));
            let status = &mut object["status"];
            default(status, "daemonEndpoints", json!({}));
            default(&mut status["daemonEndpoints"], "kubeletEndpoint", json!({}));
            default(&mut status["daemonEndpoints"]["kubeletEndpoint"], "Port", json!(0));
            default(status, "nodeInfo", json!({}));
            let info = serde_json::to_value(NodeSystemInfo::default()).expect("JSON");
            for (key, empty) in info.as_object().into_iter().flatten() {
                default(&mut status["nodeInfo"], key, empty.clone());
            }
            for condition in
                status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten()
            {
                default(condition, "lastHeartbeatTime", Value::Null);
                default(condition, "lastTransitionTime", Value::Null);
            }
        }
        "Event" => {
            default(object, "involvedObject", json!({}));
            default(object, "source", json!({}));
            for key in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                default(object, key, Value::Null);
            }
            default(object, "reportingComponent", json!(""));
            default(object, "reportingInstance", json!(""));
        }
        "Lease" => default(object, "spec", json!({})),
        "Pod" => {
            default(&mut object["metadata"], "generation", json!(1));
        }
        _ => default(object, "status", json!({})),
    }
}

/// The rules of each kind; `old` is the stored object, if there is one. The real server compares
/// metadata with the old one twice: `apiserver/pkg/registry/rest/update.go` and each strategy.
pub(crate) fn check(kind: &Kind, old: Option<&Value>, new: &Value) -> Result<(), Failure> {
    let mut causes = metadata(kind, old, new);
    if kind.kind == "Node" {
        node(old, new, &mut causes);
    }
    let rules = rules(kind, new).into_iter();
    causes.extend(rules.filter(|(is_broken, _)| *is_broken).map(|(_, cause)| cause));
    match causes.as_slice() {
        [] => Ok(()),
        _ => Err(status::invalid(kind.group, kind.kind, text(new, &["metadata", "name"]), &causes)),
    }
}

/// The rules of the small kinds, and whether they are broken.
fn rules(kind: &Kind, new: &Value) -> Vec<(bool, Cause)> {
    let spec = &new["spec"];
    let is_less = |member: &str, least: i64| spec[member].as_i64().is_some_and(|n| n < least);
    let invalid = |field: &str, why: &str| {
        let value = new.pointer(&format!("/{}", field.replace('.', "/")));
        Cause::invalid(field, value.unwrap_or(&json!("")), why)
    };
    match kind.kind {
        "Lease" => vec![
            (
                is_less("leaseDurationSeconds", 1),
                invalid("spec.leaseDurationSeconds", "must be greater than 0"),
            ),
            (spec["holderIdentity"] == "", invalid("spec.holderIdentity", "must not be empty")),
        ],
        "Event" => {
            let own = text(new, &["metadata", "namespace"]);
            let is_same = match text(new, &["involvedObject", "namespace"]) {
                "" => own == "default",
                involved => own == involved,
            };
            let why = "does not match event.namespace";
            vec![(!is_same, invalid("involvedObject.namespace", why))]
        }
        "CertificateSigningRequest" => {
            let pem = STANDARD.decode(text(spec, &["request"])).unwrap_or_default();
            let is_request = str::from_utf8(&pem)
                .is_ok_and(|pem| pem.contains("-----BEGIN CERTIFICATE REQUEST-----"));
            let too_short = "may not specify a duration less than 600 seconds (10 minutes)";
            vec![
                (
                    !is_request,
                    invalid("spec.request", "PEM block type must be CERTIFICATE REQUEST"),
                ),
                (is_empty(&spec["signerName"]), Cause::required("spec.signerName", None)),
                (is_empty(&spec["usages"]), Cause::required("spec.usages", None)),
                (is_less("expirationSeconds", 600), invalid("spec.expirationSeconds", too_short)),
            ]
        }
        _ => Vec::new(),
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const IMMUTABLE: &str = "field is immutable";

pub(crate) fn subdomain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

fn name_part(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => subdomain(prefix) && name_part(name),
        None => name_part(key),
    }
}

fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    path.iter().try_fold(object, |at, step| at.get(*step)).and_then(Value::as_str).unwrap_or("")
}

fn metadata(kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(new, &["metadata", "name"]);
    if name.is_empty() {
        let why = Some("name or generateName is required");
        causes.push(Cause::required("metadata.name", why));
    // "We don't care what you call your certificate requests", says kube-apiserver, and
    // kubelets call theirs node-csr- and base64.
    } else if kind.kind != "CertificateSigningRequest" && !subdomain(name) {
        causes.push(Cause::invalid("metadata.name", &json!(name), SUBDOMAIN));
    }
    for (list, is_label) in [("labels", true), ("annotations", false)] {
        for (key, value) in new["metadata"][list].as_object().into_iter().flatten() {
            let field = format!("metadata.{list}");
            if !qualified(&if is_label { key.clone() } else { key.to_lowercase() }) {
                causes.push(Cause::invalid(&field, &json!(key), NAME_PART));
            }
            let value = value.as_str().unwrap_or("");
            if is_label && !value.is_empty() && !name_part(value) {
                causes.push(Cause::invalid(&field, &json!(value), LABEL_VALUE));
            }
        }
    }
    for (i, owner) in
        new["metadata"]["ownerReferences"].as_array().into_iter().flatten().enumerate()
    {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[key]).is_empty() {
                let field = format!("metadata.ownerReferences[{i}].{key}");
                causes.push(Cause::invalid(&field, &json!(""), "must not be empty"));
            }
        }
    }
    if let Some(old) = old {
        let (before, after) = (text(old, &["metadata", "uid"]), text(new, &["metadata", "uid"]));
        if before != after {
            let cause = Cause::invalid("metadata.uid", &json!(after), IMMUTABLE);
            causes.extend([cause.clone(), cause]);
        }
    }
    causes
}

fn node(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let items = |path: &str, key: &str| new[path][key].as_array().cloned().unwrap_or_default();
    let addresses = items("status", "addresses");
    for (i, address) in addresses.iter().enumerate() {
        if addresses[..i].contains(address) {
            causes.push(Cause::duplicate(&format!("status.addresses[{i}]"), address));
        }
    }
    for list in ["capacity", "allocatable"] {
        for (name, value) in new["status"][list].as_object().into_iter().flatten() {
            let field = format!("status.{list}.{name}");
            let Some(quantity) = value.as_str().and_then(|v| Quantity::parse(v).ok()) else {
                continue;
            };
            if quantity.negative() {
                causes.push(Cause::invalid(&field, value, "must be greater than or equal to 0"));
            }
            let integer = name == "pods" || name.starts_with("hugepages-") || name.contains('/');
            if integer && !quantity.whole() {
                causes.push(Cause::invalid(&field, value, "must be an integer"));
            }
            if !qualified(name) {
                causes.push(Cause::invalid(&format!("status.{list}"), &json!(name), NAME_PART));
            }
        }
    }
    let taints = items("spec", "taints");
    for (i, taint) in taints.iter().enumerate() {
        let field = format!("spec.taints[{i}]");
        if !qualified(text(taint, &["key"])) {
            causes.push(Cause::invalid(&format!("{field}.key"), &taint["key"], NAME_PART));
        }
        let effect = text(taint, &["effect"]);
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            causes.push(Cause::invalid(
                &format!("{field}.effect"),
                &json!(effect),
                "supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ));
        }
        if taints[..i].iter().any(|other| is_same_taint(other, taint)) {
            causes.push(Cause::duplicate(&field, taint));
        }
    }
    if let Some(old) = old {
        for (key, what) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
            let (before, after) = (&old["spec"][key], &new["spec"][key]);
            if !is_empty(before) && before != after {
                let why = format!("node updates may not change {what} except from \"\" to valid");
                causes.push(Cause::forbidden(&format!("spec.{key}"), &why));
            }
        }
    }
}
