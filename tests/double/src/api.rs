//! From a request to an answer: routing, content types, and what each verb does.

use crate::admission;
use crate::auth::{self, Attributes, User};
use crate::discovery;
use crate::fields::{self, Writer};
use crate::http::{Request, Response};
use crate::join::Join;
use crate::kinds::{self, Kind};
use crate::lock;
use crate::patch;
use crate::pods;
use crate::protobuf;
use crate::random;
use crate::rbac::Rbac;
use crate::selector::Selector;
use crate::status::{self, Cause, Failure, Subject};
use crate::store::{Key, Store};
use crate::supervisor::Supervisor;
use crate::table;
use crate::time;
use crate::validate;
use base64::Engine as _;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// The API, without a network around it.
#[derive(Debug, Default)]
pub(crate) struct Api {
    store: Mutex<Store>,
    /// Members of bodies that their kind does not have.
    pub(crate) unknown: Mutex<Vec<String>>,
    pub(crate) rbac: Mutex<Rbac>,
    pub(crate) join: Mutex<Join>,
    pub(crate) supervisor: Mutex<Option<Supervisor>>,
    /// Bearer tokens that are no bootstrap tokens.
    pub(crate) tokens: Mutex<HashMap<String, User>>,
}

/// How the client wants it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Partial,
    Table,
    Discovery,
}

/// The parts of a path that names resources.
struct Target<'a> {
    group: &'a str,
    version: &'a str,
    namespace: &'a str,
    resource: &'a str,
    name: &'a str,
    subresource: &'a str,
}

/// Says that a list goes on: `apiserver/pkg/storage/continue.go`. The double has no second page.
fn continue_token(version: u64, namespace: &str, last: &Value) -> String {
    // Below the namespace of the list, if it has one.
    let path = ["namespace", "name"].iter().skip(usize::from(!namespace.is_empty()));
    let path = path.filter_map(|member| last["metadata"][member].as_str());
    let path: String = path.map(|part| format!("/{part}")).collect();
    let start = json!(format!("{path}\0"));
    let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":{version},"start":{start}}}"#);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token)
}

/// A write in progress.
struct Write<'a> {
    user: &'a User,
    kind: &'static Kind,
    key: Key,
    writer: Writer<'a>,
}

impl Api {
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// The user of a bearer token.
    pub(crate) fn user_of(&self, token: &str) -> Option<User> {
        let tokens = lock(&self.tokens);
        let known = tokens.get(token).cloned();
        known.or_else(|| lock(&self.join).user(token))
    }

    /// Whether there is a Node of this name.
    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.store().get(&key(&kinds::NODE, "", name)).is_some()
    }

    /// Answers a request; `user` is `None` where credentials were given that are not valid.
    pub(crate) fn handle(&self, request: &Request, user: Option<&User>) -> Response {
        let answer = self.try_handle(request, user);
        if let Some(supervisor) = &mut *lock(&self.supervisor) {
            supervisor.collect(&|name| self.has_node(name));
        }
        match answer {
            Ok(response) => response,
            Err(failure) => {
                let response = Response::json(failure.code, &failure.body);
                // apiserver/pkg/endpoints/handlers/responsewriters/errors.go, Forbidden
                if failure.by_authorizer {
                    response.with("X-Content-Type-Options", "nosniff")
                } else {
                    response
                }
            }
        }
    }

    fn try_handle(&self, request: &Request, user: Option<&User>) -> Result<Response, Failure> {
        let Some(user) = user else {
            return Err(status::unauthorized());
        };
        let path = request.path();
        let Some(target) = target(&path) else {
            return self.path(request, user, &path);
        };
        let watch = request.query("watch").is_some_and(|w| w == "true" || w == "1");
        let verb = match (request.method.as_str(), target.name.is_empty()) {
            ("GET", true) if watch => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => return Err(status::method_not_allowed()),
        };
        let fields = request.query("fieldSelector").unwrap_or_default();
        let labels = request.query("labelSelector").unwrap_or_default();
        let selector = Selector::parse(&fields, &labels);
        let name = match target.name {
            "" => selector.value_of("metadata.name").unwrap_or_default(),
            name => name,
        };
        let wanted = Attributes {
            verb,
            group: target.group,
            resource: target.resource,
            subresource: target.subresource,
            namespace: target.namespace,
            name,
            fields: &fields,
            bound_to: &self.node_of_pod(target.namespace, name),
        };
        auth::authorize(user, &wanted, &lock(&self.rbac)).map_err(|why| {
            let about = Subject { group: target.group, resource: target.resource, name };
            status::not_authorized(&about, &why)
        })?;
        if (target.resource, verb) == ("configmaps", "get") {
            let info = lock(&self.join).cluster_info().filter(|_| name == "cluster-info");
            let about = Subject { group: "", resource: "configmaps", name };
            return Ok(Response::json(200, &info.ok_or_else(|| status::not_found(&about))?));
        }
        let kind = Kind::find(target.group, target.version, target.resource)
            .ok_or_else(status::no_such_resource)?;
        if kinds::REVIEWS.contains(kind) {
            return match verb {
                "create" => self.review(kind, user, request),
                _ => Err(status::method_not_allowed()),
            };
        }
        let is_of_many = verb == "list" || verb == "watch";
        if kind.namespaced && target.namespace.is_empty() && !is_of_many
            || !kind.namespaced && !target.namespace.is_empty()
            || !target.subresource.is_empty() && !kind.subresources.contains(&target.subresource)
        {
            return Err(status::no_such_resource());
        }
        let form = form(request).ok_or_else(status::not_acceptable)?;
        if kind.kind == "Pod"
            && let Some(unknown) = selector.unsupported(&POD_FIELDS)
        {
            let why = format!("field label not supported: {unknown}");
            return Err(status::bad_request(&why));
        }
        let key = key(kind, target.namespace, target.name);
        match verb {
            "watch" => Err(status::bad_request("the double watches nothing")),
            "list" => self.list(request, kind, &target, &selector, form),
            "get" => {
                let object = self.store().find(kind, &key)?;
                Ok(shape(kind, 200, &object, form))
            }
            "delete" => {
                let answer = self.delete(request, user, kind, &key)?;
                let form = if answer["kind"] == "Status" { Form::Plain } else { form };
                Ok(shape(kind, 200, &answer, form))
            }
            "deletecollection" => Err(status::method_not_allowed()),
            _ => {
                if verb == "create" && !target.name.is_empty() {
                    return Err(status::method_not_allowed());
                }
                let media = request.header("content-type").unwrap_or("");
                let media = media.split(';').next().unwrap_or("").trim();
                let manager = fields::manager(request);
                let writer = Writer { manager, kind, subresource: target.subresource };
                let write = Write { user, kind, key, writer };
                let (code, object) = match (verb, media) {
                    ("create", "" | "*/*" | "application/json") => {
                        (201, self.create(&write, &request.body)?)
                    }
                    ("patch", "application/merge-patch+json") => {
                        (200, self.patch(&write, &request.body, false)?)
                    }
                    ("patch", "application/strategic-merge-patch+json") => {
                        (200, self.patch(&write, &request.body, true)?)
                    }
                    _ => return Err(status::unsupported_media_type()),
                };
                Ok(shape(kind, code, &object, form))
            }
        }
    }

    /// The node that a pod is bound to: what a node may read (`node_authorizer.go`, its graph).
    pub(crate) fn node_of_pod(&self, namespace: &str, name: &str) -> String {
        let store = self.store();
        let pod = store.get(&key(&kinds::POD, namespace, name));
        let node = pod.and_then(|pod| pod["spec"]["nodeName"].as_str());
        node.unwrap_or_default().to_owned()
    }

    /// Paths that are no resources.
    fn path(&self, request: &Request, user: &User, path: &str) -> Result<Response, Failure> {
        let verb = request.method.to_lowercase();
        if !auth::may_read_path(user, path) {
            return Err(status::forbidden_path(&user.name, &verb, path));
        }
        if verb != "get" {
            return Err(status::method_not_allowed());
        }
        Ok(match path {
            "/version" | "/version/" => Response::json(200, &discovery::version()),
            "/healthz" | "/livez" | "/readyz" => {
                Response::text(200, "text/plain; charset=utf-8", "ok")
            }
            "/api" | "/apis" if form(request) == Some(Form::Discovery) => {
                Response::json(200, &discovery::aggregated(path))
                    .with("Content-Type", discovery::AGGREGATED)
            }
            _ => return Err(status::no_such_resource()),
        })
    }

    fn list(
        &self,
        request: &Request,
        kind: &Kind,
        target: &Target,
        selector: &Selector,
        form: Form,
    ) -> Result<Response, Failure> {
        let (mut items, metadata) = self.page(request, kind, target.namespace, selector)?;
        if form == Form::Table {
            return Ok(Response::json(200, &table::table(kind, &items, metadata)));
        }
        let (list_kind, api_version) = if form == Form::Partial {
            items = items.iter().map(table::partial).collect();
            ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
        } else {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("kind");
                item.remove("apiVersion");
            }
            (format!("{}List", kind.kind), kind.api_version())
        };
        let list = json!({"kind": list_kind, "apiVersion": api_version,
            "metadata": metadata, "items": items});
        Ok(Response::json(200, &list))
    }

    /// The objects of a list up to its limit, and the metadata of the list. The cache
    /// (`resourceVersion=0`) ignores the limit. The real server says that there are more if objects
    /// follow among those that it read: the pods of the node, by an index of its cache, or all
    /// objects. Upstream: `apiserver/pkg/storage/cacher/delegator.go` and `etcd3/store.go`.
    fn page(
        &self,
        request: &Request,
        kind: &Kind,
        namespace: &str,
        selector: &Selector,
    ) -> Result<(Vec<Value>, Value), Failure> {
        let store = self.store();
        let version = store.version();
        if request.query("continue").is_some() {
            return Err(status::bad_request("the double has no second page"));
        }
        let limit = request.query("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = match request.query("resourceVersion").as_deref() {
            Some("0") => 0,
            _ => limit.unwrap_or(0),
        };
        let mut found = store.all(kind, Some(namespace).filter(|n| !n.is_empty()));
        if let Some(node) = selector.value_of("spec.nodeName") {
            found.retain(|pod| pod["spec"]["nodeName"] == node);
        }
        let mut metadata = json!({"resourceVersion": version.to_string()});
        let mut items = Vec::new();
        let count = found.len();
        for (index, object) in found.into_iter().enumerate() {
            if selector.matches(object) {
                items.push(object.clone());
            }
            if items.len() == limit && limit > 0 && index + 1 < count {
                let token = continue_token(version, namespace, &items[limit - 1]);
                metadata["continue"] = json!(token);
                break;
            }
        }
        Ok((items, metadata))
    }

    fn delete(
        &self,
        request: &Request,
        user: &User,
        kind: &'static Kind,
        key: &Key,
    ) -> Result<Value, Failure> {
        let (_, namespace, name) = key;
        let mut store = self.store();
        let old = store.find(kind, key)?;
        let options = check_preconditions(request, kind, &old)?;
        admission::node_restriction(user, kind, name, namespace, Some(&old), None)?;
        if kind.kind == "Pod" {
            return Ok(end_pod(&mut store, key, old, &options["gracePeriodSeconds"]));
        }
        store.remove(key);
        let mut details =
            json!({"name": name, "kind": kind.resource, "uid": old["metadata"]["uid"]});
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details}))
    }

    fn create(&self, write: &Write<'_>, body: &[u8]) -> Result<Value, Failure> {
        let kind = write.kind;
        let input = parse_body(kind, body)?;
        let decoded = validate::decode(kind.kind, &input, &mut lock(&self.unknown));
        let mut object = decoded.map_err(|why| {
            let kind = kind.kind;
            let message = format!("{kind} in version \"v1\" cannot be handled as a {kind}: {why}");
            status::bad_request(&message)
        })?;
        pods::default(&mut object, "metadata", json!({}));
        namespace_matches(write, &mut object)?;
        let metadata = &object["metadata"];
        if validate::is_empty(&metadata["name"])
            && let Some(prefix) = metadata["generateName"].as_str().filter(|p| !p.is_empty())
        {
            object["metadata"]["name"] = json!(format!("{prefix}{}", suffix()));
        }
        let mut store = self.store();
        let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let about = kind.about(&name);
        if kind.kind == "CertificateSigningRequest" {
            object["spec"]["username"] = json!(write.user.name);
            object["spec"]["groups"] = json!(write.user.groups);
            if let Some(extra) = &write.user.extra {
                object["spec"]["extra"] = extra.clone();
            }
        }
        if ["CertificateSigningRequest", "Pod"].contains(&kind.kind) {
            object["status"] = json!({});
        }
        admission::node_restriction(write.user, kind, &name, &write.key.1, None, Some(&object))?;
        // As the real server does, before admission changes the object.
        object["kind"] = json!(kind.kind);
        pods::defaults(kind, &mut object);
        fields::track(None, &mut object, &write.writer);
        pods::admit(kind, &mut object);
        if kind.kind == "Node" {
            admission::taint_new_node(&mut object);
        }
        validate::defaults(kind, &mut object);
        validate::check(kind, None, &object)?;
        let given = object["metadata"]["resourceVersion"].as_str().unwrap_or("");
        if !["", "0"].contains(&given) {
            return Err(status::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let key = key(kind, &write.key.1, &name);
        if store.get(&key).is_some() {
            return Err(status::already_exists(&about));
        }
        object["apiVersion"] = json!(kind.api_version());
        object["metadata"]["uid"] = json!(random::uuid());
        object["metadata"]["creationTimestamp"] = json!(time::now());
        Ok(store.put(&key, object))
    }

    fn patch(&self, write: &Write<'_>, body: &[u8], is_strategic: bool) -> Result<Value, Failure> {
        let name = &write.key.2;
        let mut store = self.store();
        let old = store.find(write.kind, &write.key)?;
        let changes: Value = serde_json::from_slice(body).map_err(|e| {
            status::bad_request(&format!("error decoding patch: {}", json_error(&e)))
        })?;
        if !changes.is_object() {
            return Err(status::bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
            ));
        }
        let merged = patch::merge(&old, &changes, is_strategic);
        // What is stored was decoded before.
        let object = match merged == old {
            true => merged,
            false => validate::decode(write.kind.kind, &merged, &mut lock(&self.unknown)).map_err(
                |why| {
                    let cause = Cause::invalid("patch", &json!(merged.to_string()), &why);
                    status::invalid("", "", "", &[cause])
                },
            )?,
        };
        if object["metadata"]["name"] != **name {
            let message = format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object["metadata"]["name"].as_str().unwrap_or("")
            );
            return Err(status::bad_request(&message));
        }
        self.replace(write, &mut store, &old, object)
    }

    /// The second half of a PATCH: admission, the resourceVersion rule, what the endpoint
    /// may change, the rules, and whether anything changed at all.
    fn replace(
        &self,
        write: &Write<'_>,
        store: &mut Store,
        old: &Value,
        mut new: Value,
    ) -> Result<Value, Failure> {
        let kind = write.kind;
        let name = write.key.2.as_str();
        let about = kind.about(name);
        admission::node_restriction(write.user, kind, name, &write.key.1, Some(old), Some(&new))?;
        match new["metadata"]["resourceVersion"].as_str().unwrap_or("") {
            "" | "0" if kind.kind != "Lease" => {}
            "" | "0" => {
                // the real server names the resource here where a kind belongs
                let why = "must be specified for an update";
                let cause = Cause::invalid_shown("metadata.resourceVersion", "0x0", why);
                return Err(status::invalid(kind.group, kind.resource, name, &[cause]));
            }
            given if given.parse::<u64>().is_err() => {
                let why = "must be an unsigned integer";
                let cause = Cause::invalid("metadata.resourceVersion", &json!(given), why);
                return Err(status::invalid(kind.group, kind.kind, name, &[cause]));
            }
            given if old["metadata"]["resourceVersion"] != given => {
                return Err(status::conflict(&about, status::MODIFIED));
            }
            _ => {}
        }
        if new == *old {
            return Ok(new);
        }
        for part in [
            "creationTimestamp",
            "resourceVersion",
            "generation",
            "selfLink",
            "namespace",
            "generateName",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            restore(&mut new["metadata"], &old["metadata"], part);
        }
        let kept: &[&str] = match (kind.kind, write.writer.subresource) {
            ("Node" | "Pod", "") => &["status"],
            ("Node" | "Pod", _) => &["spec"],
            ("CertificateSigningRequest", "") => &["spec", "status"],
            ("CertificateSigningRequest", _) => &["spec"],
            _ => &[],
        };
        for part in kept {
            restore(&mut new, old, part);
        }
        if (kind.kind, write.writer.subresource) == ("Pod", "status") {
            restore(&mut new["metadata"], &old["metadata"], "ownerReferences");
        }
        pods::defaults(kind, &mut new);
        new["kind"] = json!(kind.kind);
        new["apiVersion"] = json!(kind.api_version());
        validate::defaults(kind, &mut new);
        validate::check(kind, Some(old), &new)?;
        fields::track(Some(old), &mut new, &write.writer);
        pods::preserve(kind, write.writer.subresource, old, &mut new);
        if fields::is_unchanged(old, &new) {
            return Ok(old.clone());
        }
        let metadata = &new["metadata"];
        if metadata["deletionGracePeriodSeconds"] == 0
            && validate::is_empty(&metadata["finalizers"])
        {
            store.remove(&write.key);
            return Ok(new);
        }
        Ok(store.put(&write.key, new))
    }
}

fn shape(kind: &Kind, code: u16, object: &Value, form: Form) -> Response {
    match form {
        Form::Partial => Response::json(code, &table::partial(object)),
        Form::Table => {
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            Response::json(code, &table::table(kind, std::slice::from_ref(object), metadata))
        }
        Form::Plain | Form::Discovery => Response::json(code, object),
    }
}

/// A pod that is bound and has not ended waits for its kubelet, unless the grace period is 0.
/// While it waits, only a shorter period changes anything. Upstream:
/// `apiserver/pkg/registry/rest/delete.go`, `pkg/registry/core/pod/strategy.go`
/// CheckGracefulDelete.
fn end_pod(store: &mut Store, key: &Key, mut pod: Value, asked: &Value) -> Value {
    let asked = asked.as_u64();
    let seconds = match pod["metadata"]["deletionGracePeriodSeconds"].as_u64() {
        Some(pending) => match asked.filter(|asked| *asked < pending) {
            Some(shorter) => shorter,
            None => return pod,
        },
        None => {
            let generation = pod["metadata"]["generation"].as_u64();
            pod["metadata"]["generation"] = json!(generation.unwrap_or(0) + 1);
            let usual = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
            let has_ended =
                ["Failed", "Succeeded"].iter().any(|end| pod["status"]["phase"] == *end);
            let is_waited_for = !validate::is_empty(&pod["spec"]["nodeName"]) && !has_ended;
            asked.or(usual).filter(|_| is_waited_for).unwrap_or(0)
        }
    };
    pod["metadata"]["deletionTimestamp"] = json!(time::after(seconds));
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
    let pod = store.put(key, pod);
    if seconds == 0 && validate::is_empty(&pod["metadata"]["finalizers"]) {
        return store.remove(key).unwrap_or(pod);
    }
    pod
}

/// Refuses a deletion whose preconditions do not hold, before admission; returns its options.
/// Upstream: apiserver/pkg/registry/rest/delete.go, `BeforeDelete`, which names the kind in the
/// place of the resource.
fn check_preconditions(request: &Request, kind: &Kind, old: &Value) -> Result<Value, Failure> {
    let options: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let name = text(&old["metadata"]["name"]);
    let about = Subject { group: kind.group, resource: kind.kind, name: &name };
    for (field, what, end) in [
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ] {
        let (wanted, have) = (&options["preconditions"][field], &old["metadata"][field]);
        if !wanted.is_null() && wanted != have {
            let (wanted, have) = (text(wanted), text(have));
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record \
                 ({have}). The object might have been {end}"
            );
            return Err(status::conflict(&about, &why));
        }
    }
    Ok(options)
}

/// Some of what a list of pods may be selected by: `pkg/apis/core/v1/conversion.go`.
const POD_FIELDS: [&str; 3] = ["metadata.name", "spec.nodeName", "status.phase"];

/// Sets a member back to what it was.
pub(crate) fn restore(new: &mut Value, old: &Value, member: &str) {
    if let Some(map) = new.as_object_mut() {
        match old.get(member) {
            Some(value) => map.insert(member.to_owned(), value.clone()),
            None => map.remove(member),
        };
    }
}

fn parse_body(kind: &Kind, body: &[u8]) -> Result<Value, Failure> {
    let shown = String::from_utf8_lossy(body).into_owned();
    let unrecognized = |why: &str| {
        status::bad_request(&format!(
            "the object provided is unrecognized (must be of type {}): {why} ({shown})",
            kind.kind
        ))
    };
    let input: Value = serde_json::from_slice(body).map_err(|e| {
        unrecognized(&format!("couldn't get version/kind; json parse error: {}", json_error(&e)))
    })?;
    let expect = |member: &str, wanted: &str| match input[member].as_str() {
        None => true,
        Some(given) => given == wanted,
    };
    if !expect("kind", kind.kind) || !expect("apiVersion", &kind.api_version()) {
        return Err(unrecognized("another kind was expected"));
    }
    Ok(input)
}

pub(crate) fn json_error(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

fn namespace_matches(write: &Write<'_>, object: &mut Value) -> Result<(), Failure> {
    if !write.kind.namespaced {
        restore(&mut object["metadata"], &Value::Null, "namespace");
        return Ok(());
    }
    match object["metadata"]["namespace"].as_str().unwrap_or("") {
        "" => object["metadata"]["namespace"] = json!(write.key.1),
        given if given != write.key.1 => {
            return Err(status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn key(kind: &'static Kind, namespace: &str, name: &str) -> Key {
    (kind.resource, namespace.to_owned(), name.to_owned())
}

/// Takes a resource path apart; `None` for paths of other kinds.
fn target(path: &str) -> Option<Target<'_>> {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        _ => ("", rest),
    };
    let (resource, name, subresource) = match *rest {
        [resource] => (resource, "", ""),
        [resource, name] => (resource, name, ""),
        [resource, name, subresource] => (resource, name, subresource),
        _ => return None,
    };
    Some(Target { group, version, namespace, resource, name, subresource })
}

/// The first form in `Accept` that the double has. What is asked for as protobuf is JSON until the
/// end, see `protobuf`.
fn form(request: &Request) -> Option<Form> {
    let accept = request.header("accept").unwrap_or("*/*");
    let mut clauses = accept.split(',').map(|clause| clause.split(';').map(str::trim));
    let mut parameters = clauses.find_map(|mut clause| {
        let media = clause.next()?;
        let is_known = ["application/json", "*/*", "application/*", ""].contains(&media);
        (is_known || protobuf::is_wanted(request)).then_some(clause)
    })?;
    match parameters.find_map(|parameter| parameter.strip_prefix("as=")) {
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Form::Partial),
        Some("APIGroupDiscoveryList") => Some(Form::Discovery),
        Some("Table") if request.method == "GET" => Some(Form::Table),
        _ => Some(Form::Plain),
    }
}

fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
    random::bytes::<5>().iter().map(letter).collect()
}
