//! From a request to an answer: routing, content types, and what each verb does.

use crate::admission;
use crate::auth::{self, Attributes, User};
use crate::discovery;
use crate::fields::{self, Writer};
use crate::http::{Request, Response};
use crate::join::Join;
use crate::kinds::{self, Kind};
use crate::openapi::Schemas;
use crate::patch;
use crate::pki;
use crate::pods;
use crate::protobuf;
use crate::rbac::Rbac;
use crate::selector::Selector;
use crate::status::{self, Cause, Failure};
use crate::store::{Key, Store};
use crate::supervisor::Supervisor;
use crate::table;
use crate::time;
use crate::validate::{self, Decoded};
use base64::Engine as _;
use base64::engine::GeneralPurpose;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const REVIEWS: &str = "selfsubjectaccessreviews";

/// The API, without a network around it.
#[derive(Debug, Default)]
pub(crate) struct Api {
    store: Mutex<Store>,
    pub(crate) schemas: Option<Schemas>,
    checked: Mutex<Checked>,
    pub(crate) rbac: Mutex<Rbac>,
    join: Mutex<Join>,
    pub(crate) supervisor: Mutex<Option<Supervisor>>,
    pub(crate) ignores_preconditions: AtomicBool,
}

/// The bodies that were compared with the published schemas.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) bodies: usize,
    pub(crate) violations: Vec<String>,
}

/// What to send back.
pub(crate) enum Answer {
    Whole(Response),
    Watch(Watch),
}

/// A watch: what to send, from where, for how long.
pub(crate) struct Watch {
    pub(crate) kind: &'static Kind,
    namespace: Option<String>,
    selector: Selector,
    form: Form,
    pub(crate) from: u64,
    pub(crate) first: Vec<Value>,
    pub(crate) timeout: Duration,
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
struct Target {
    group: String,
    version: String,
    namespace: String,
    resource: String,
    name: String,
    subresource: String,
}

/// A part of a list, and the metadata of the list.
struct Page {
    items: Vec<Value>,
    metadata: Value,
}

/// Where a list goes on: `apiserver/pkg/storage/continue.go`.
struct Continue {
    version: u64,
    /// The first path that may follow.
    start: String,
}

impl Continue {
    const ENCODING: GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn write(version: u64, last: &str) -> String {
        let token = format!(
            r#"{{"v":"meta.k8s.io/v1","rv":{version},"start":{}}}"#,
            json!(format!("{last}\0"))
        );
        Self::ENCODING.encode(token)
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let decoded = Self::ENCODING.decode(text).ok();
        let token = decoded.and_then(|json| serde_json::from_slice::<Value>(&json).ok());
        let parts = token.and_then(|token| {
            let start = token["start"].as_str()?.to_owned();
            let version = token["rv"].as_u64()?;
            Some(Self { version, start })
        });
        parts.ok_or_else(|| {
            status::bad_request(
                "invalid continue token: continue key is not valid: illegal base64 data at input \
                 byte 0",
            )
        })
    }
}

/// A write in progress.
struct Write<'a> {
    user: &'a User,
    kind: &'static Kind,
    key: Key,
    subresource: &'a str,
    manager: String,
    strict: bool,
    warnings: Vec<String>,
}

impl Api {
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn checked(&self) -> MutexGuard<'_, Checked> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self) -> MutexGuard<'_, Join> {
        self.join.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request; `user` is `None` where credentials were given that are not valid.
    pub(crate) fn handle(&self, request: &Request, user: Option<&User>) -> Answer {
        match self.try_handle(request, user) {
            Ok(answer) => answer,
            Err(failure) => {
                let response = Response::json(failure.code, &failure.body);
                // apiserver/pkg/endpoints/handlers/responsewriters/errors.go, Forbidden
                Answer::Whole(match failure.by_authorizer {
                    true => response.with("X-Content-Type-Options", "nosniff"),
                    false => response,
                })
            }
        }
    }

    fn try_handle(&self, request: &Request, user: Option<&User>) -> Result<Answer, Failure> {
        let Some(user) = user else {
            return Err(status::unauthorized());
        };
        let path = request.path();
        let Some(target) = target(&path) else {
            return self.path(request, user, &path);
        };
        let watch = request
            .query("watch")
            .is_some_and(|w| w == "true" || w == "1");
        let verb = match (request.method.as_str(), target.name.is_empty()) {
            ("GET", true) if watch => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => return Err(status::method_not_allowed()),
        };
        let fields = request.query("fieldSelector").unwrap_or_default();
        let mut selector =
            Selector::parse(&fields, &request.query("labelSelector").unwrap_or_default());
        let name = match target.name.as_str() {
            "" => selector.name().unwrap_or_default(),
            name => name.to_owned(),
        };
        auth::authorize(
            user,
            &Attributes {
                verb,
                group: &target.group,
                resource: &target.resource,
                subresource: &target.subresource,
                namespace: &target.namespace,
                name: &name,
                fields: &fields,
                bound_to: &self.node_of_pod(&target.namespace, &name),
            },
            &self.rbac(),
        )
        .map_err(|why| {
            let about = status::Subject {
                group: &target.group,
                resource: &target.resource,
                name: &name,
            };
            status::not_authorized(&about, &why)
        })?;
        if target.resource == REVIEWS && target.group == "authorization.k8s.io" {
            return self.review(user, verb, request).map(Answer::Whole);
        }
        if (target.resource.as_str(), verb) == ("configmaps", "get") {
            let info = self.join().cluster_info();
            let info = info.filter(|_| target.name == "cluster-info");
            let about = status::Subject {
                group: "",
                resource: "configmaps",
                name: &target.name,
            };
            let info = info.ok_or_else(|| status::not_found(&about))?;
            return Ok(Answer::Whole(Response::json(200, &info)));
        }
        let Some(kind) = Kind::find(&target.group, &target.version, &target.resource) else {
            return Err(status::no_such_resource());
        };
        if kind.namespaced && target.namespace.is_empty() && !["list", "watch"].contains(&verb)
            || !kind.namespaced && !target.namespace.is_empty()
            || !target.subresource.is_empty()
                && !kind.subresources.contains(&target.subresource.as_str())
        {
            return Err(status::no_such_resource());
        }
        let form = form(request).ok_or_else(status::not_acceptable)?;
        if kind.kind == "Pod" {
            selector.rename("spec.host", "spec.nodeName");
            if let Some(unknown) = selector.unsupported(&POD_FIELDS) {
                let why = format!("field label not supported: {unknown}");
                return Err(status::bad_request(&why));
            }
        }
        match verb {
            "watch" => Ok(Answer::Watch(
                self.watch(request, kind, &target, selector, form),
            )),
            "list" => self
                .list(request, kind, &target, &selector, form)
                .map(Answer::Whole),
            "get" => {
                let key = key(kind, &target.namespace, &target.name);
                let found = self.store().get(&key).cloned();
                let object = found.ok_or_else(|| status::not_found(&kind.about(&target.name)))?;
                Ok(Answer::Whole(self.shape(request, kind, 200, &object, form)))
            }
            "delete" if kind.kind == "Pod" => {
                let pod = self.delete_pod(request, user, &target)?;
                Ok(Answer::Whole(self.shape(request, kind, 200, &pod, form)))
            }
            "delete" => self.delete(request, user, kind, &target).map(Answer::Whole),
            "deletecollection" => Err(status::method_not_allowed()),
            _ => {
                if verb == "create" && !target.name.is_empty() {
                    return Err(status::method_not_allowed());
                }
                let media = request.header("content-type").unwrap_or("");
                let media = media.split(';').next().unwrap_or("").trim();
                if verb != "patch" && !["", "*/*", "application/json"].contains(&media) {
                    return Err(status::unsupported_media_type());
                }
                let user_agent = request.header("user-agent").unwrap_or("");
                let mut write = Write {
                    user,
                    kind,
                    key: key(kind, &target.namespace, &target.name),
                    subresource: &target.subresource,
                    manager: fields::manager(request.query("fieldManager").as_deref(), user_agent),
                    strict: request.query("fieldValidation").as_deref() == Some("Strict"),
                    warnings: Vec::new(),
                };
                let (code, object) = match verb {
                    "create" => (201, self.create(&mut write, &request.body)?),
                    "update" => self.update(&mut write, &request.body)?,
                    _ => (200, self.patch(&mut write, request)?),
                };
                let mut response = self.shape(request, kind, code, &object, form);
                for warning in &write.warnings {
                    response
                        .headers
                        .push(("Warning".to_owned(), format!("299 - {warning:?}")));
                }
                Ok(Answer::Whole(response))
            }
        }
    }

    pub(crate) fn rbac(&self) -> MutexGuard<'_, Rbac> {
        self.rbac.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that a pod is bound to: what a node may read (`node_authorizer.go`, its graph).
    fn node_of_pod(&self, namespace: &str, name: &str) -> String {
        let store = self.store();
        let pod = store.get(&key(&kinds::POD, namespace, name));
        let node = pod.and_then(|pod| pod["spec"]["nodeName"].as_str());
        node.unwrap_or_default().to_owned()
    }

    /// Whether somebody may do something; nothing is stored.
    fn review(&self, user: &User, verb: &str, request: &Request) -> Result<Response, Failure> {
        if verb != "create" {
            return Err(status::method_not_allowed());
        }
        let mut review: Value = serde_json::from_slice(&request.body)
            .map_err(|e| status::bad_request(&format!("json parse error: {}", json_error(&e))))?;
        let about = &review["spec"]["resourceAttributes"];
        if !about.is_object() {
            let cause = Cause::invalid(
                "spec.resourceAttributes",
                &Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            );
            let group = "authorization.k8s.io";
            return Err(status::invalid(
                group,
                "SelfSubjectAccessReview",
                "",
                &[cause],
            ));
        }
        let text = |field: &str| about[field].as_str().unwrap_or_default();
        let requirements = about["fieldSelector"]["requirements"].as_array();
        let equal = requirements.into_iter().flatten().filter_map(|term| {
            let value = term["values"][0]
                .as_str()
                .filter(|_| term["operator"] == "In")?;
            Some(format!("{}={value}", term["key"].as_str()?))
        });
        let fields = equal.collect::<Vec<String>>().join(",");
        let wanted = Attributes {
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            fields: &fields,
            bound_to: &self.node_of_pod(text("namespace"), text("name")),
        };
        let mut status = match auth::decide(user, &wanted, &self.rbac()) {
            Ok(reason) => json!({"allowed": true, "reason": reason}),
            Err(reason) => json!({"allowed": false, "reason": reason}),
        };
        if status["reason"] == "" {
            restore(&mut status, &Value::Null, "reason");
        }
        let user_agent = request.header("user-agent").unwrap_or("");
        let writer = Writer {
            manager: &fields::manager(request.query("fieldManager").as_deref(), user_agent),
            api_version: "authorization.k8s.io/v1",
            subresource: "",
        };
        fields::track(None, &mut review, &writer);
        review["status"] = status;
        Ok(Response::json(201, &review))
    }

    /// Paths that are no resources.
    fn path(&self, request: &Request, user: &User, path: &str) -> Result<Answer, Failure> {
        let verb = request.method.to_lowercase();
        if !auth::may_read_path(user, path) {
            return Err(status::forbidden_path(&user.name, &verb, path));
        }
        if verb != "get" {
            return Err(status::method_not_allowed());
        }
        let answer = match path {
            "/version" | "/version/" => Response::json(200, &discovery::version()),
            "/healthz" | "/livez" | "/readyz" => {
                Response::text(200, "ok").with("Content-Type", "text/plain; charset=utf-8")
            }
            "/api" | "/apis" if form(request) == Some(Form::Discovery) => {
                Response::json(200, &discovery::aggregated(path == "/api"))
                    .with("Content-Type", discovery::AGGREGATED)
            }
            _ => match discovery::plain(path, request.header("host").unwrap_or("")) {
                Some(value) => Response::json(200, &value),
                None => return Err(status::no_such_resource()),
            },
        };
        Ok(Answer::Whole(answer))
    }

    fn shape(
        &self,
        request: &Request,
        kind: &Kind,
        code: u16,
        object: &Value,
        form: Form,
    ) -> Response {
        match form {
            Form::Partial => Response::json(code, &table::partial(object)),
            Form::Table => {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap_or("");
                let include = request.query("includeObject");
                Response::json(
                    code,
                    &table::table(
                        kind,
                        std::slice::from_ref(object),
                        version,
                        include.as_deref(),
                    ),
                )
            }
            Form::Plain | Form::Discovery => Response::json(code, object),
        }
    }

    fn selected(&self, kind: &Kind, namespace: &str, selector: &Selector) -> (Vec<Value>, u64) {
        let store = self.store();
        let namespace = Some(namespace).filter(|n| !n.is_empty());
        let found = store
            .list(kind, namespace)
            .into_iter()
            .filter(|o| selector.matches(o))
            .collect();
        (found, store.version())
    }

    fn list(
        &self,
        request: &Request,
        kind: &Kind,
        target: &Target,
        selector: &Selector,
        form: Form,
    ) -> Result<Response, Failure> {
        let page = self.page(request, kind, &target.namespace, selector)?;
        let (mut items, metadata) = (page.items, page.metadata);
        if form == Form::Table {
            let include = request.query("includeObject");
            let mut table = table::table(kind, &items, "", include.as_deref());
            table["metadata"] = metadata;
            return Ok(Response::json(200, &table));
        }
        let (list_kind, api_version) = if form == Form::Partial {
            items = items.iter().map(table::partial).collect();
            (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            )
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

    /// The objects of a list, up to its limit. The cache (`resourceVersion=0`) ignores the limit.
    /// The real server says that there are more if objects follow among those that it read: the pods
    /// of the node, by an index of its cache, or all objects. Upstream:
    /// `apiserver/pkg/storage/cacher/delegator.go` and `etcd3/store.go`.
    fn page(
        &self,
        request: &Request,
        kind: &Kind,
        namespace: &str,
        selector: &Selector,
    ) -> Result<Page, Failure> {
        let store = self.store();
        let mut version = store.version();
        let given = request.query("continue").filter(|token| !token.is_empty());
        let after = given.map(|token| Continue::parse(&token)).transpose()?;
        let limit = request.query("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = match request.query("resourceVersion").as_deref() {
            Some("0") => 0,
            _ => limit.unwrap_or(0),
        };
        let path = |object: &Value| {
            let part = |member: &str| match object["metadata"][member].as_str() {
                Some(text) => format!("/{text}"),
                None => String::new(),
            };
            match namespace {
                "" => format!("{}{}", part("namespace"), part("name")),
                _ => part("name"),
            }
        };
        let mut found: Vec<(String, Value)> = store
            .list(kind, Some(namespace).filter(|n| !n.is_empty()))
            .into_iter()
            .map(|object| (path(&object), object))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        match (&after, selector.value_of("spec.nodeName")) {
            (Some(token), _) => {
                found.retain(|(path, _)| *path >= token.start);
                version = token.version;
            }
            (None, Some(node)) => found.retain(|(_, pod)| pod["spec"]["nodeName"] == node),
            (None, None) => {}
        }
        let mut metadata = json!({"resourceVersion": version.to_string()});
        let mut items = Vec::new();
        let count = found.len();
        for (index, (path, object)) in found.into_iter().enumerate() {
            if !selector.matches(&object) {
                continue;
            }
            items.push(object);
            let rest = count - index - 1;
            if items.len() == limit && rest > 0 {
                metadata["continue"] = json!(Continue::write(version, &path));
                if selector.is_empty() {
                    metadata["remainingItemCount"] = json!(rest);
                }
                break;
            }
        }
        Ok(Page { items, metadata })
    }

    fn watch(
        &self,
        request: &Request,
        kind: &'static Kind,
        target: &Target,
        selector: Selector,
        form: Form,
    ) -> Watch {
        let asked = request
            .query("resourceVersion")
            .filter(|v| !v.is_empty() && v != "0");
        let (current, version) = self.selected(kind, &target.namespace, &selector);
        let from = asked.as_deref().and_then(|v| v.parse().ok());
        let first = if from.is_some() { Vec::new() } else { current };
        let seconds = request
            .query("timeoutSeconds")
            .and_then(|s| s.parse().ok())
            .unwrap_or(1800);
        Watch {
            kind,
            namespace: Some(target.namespace.clone()).filter(|n| !n.is_empty()),
            selector,
            form,
            from: from.unwrap_or(version),
            first: first
                .into_iter()
                .map(|o| json!({"type": "ADDED", "object": shaped(kind, &o, form)}))
                .collect(),
            timeout: Duration::from_secs(seconds),
        }
    }

    /// What a watch has to say since it last looked.
    pub(crate) fn watched(&self, watch: &mut Watch) -> Vec<Value> {
        let changes = self.store().since(watch.from, watch.kind.resource);
        watch.from = changes.last().map_or(watch.from, |c| c.version);
        let here = |o: &Value| {
            watch
                .namespace
                .as_deref()
                .is_none_or(|n| o["metadata"]["namespace"] == n)
        };
        changes
            .into_iter()
            .filter(|c| here(&c.object) && watch.selector.matches(&c.object))
            .map(|c| json!({"type": c.what, "object": shaped(watch.kind, &c.object, watch.form)}))
            .collect()
    }

    fn delete(
        &self,
        request: &Request,
        user: &User,
        kind: &'static Kind,
        target: &Target,
    ) -> Result<Response, Failure> {
        let key = key(kind, &target.namespace, &target.name);
        let about = kind.about(&target.name);
        let mut store = self.store();
        let old = store
            .get(&key)
            .cloned()
            .ok_or_else(|| status::not_found(&about))?;
        check_preconditions(request, kind, &old)?;
        admission::node_restriction(
            user,
            kind,
            &target.name,
            &target.namespace,
            Some(&old),
            None,
        )?;
        store.remove(&key);
        let mut details =
            json!({"name": target.name, "kind": kind.resource, "uid": old["metadata"]["uid"]});
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        Ok(Response::json(
            200,
            &json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Success", "details": details}),
        ))
    }

    /// A pod that is bound and has not ended waits for its kubelet, unless the grace period is 0.
    /// While it waits, only a shorter period changes anything. Upstream:
    /// `apiserver/pkg/registry/rest/delete.go`, `pkg/registry/core/pod/strategy.go`
    /// CheckGracefulDelete.
    fn delete_pod(
        &self,
        request: &Request,
        user: &User,
        target: &Target,
    ) -> Result<Value, Failure> {
        let key = key(&kinds::POD, &target.namespace, &target.name);
        let about = kinds::POD.about(&target.name);
        let mut store = self.store();
        let found = store.get(&key).cloned();
        let mut pod = found.ok_or_else(|| status::not_found(&about))?;
        let options = check_preconditions(request, &kinds::POD, &pod)?;
        admission::node_restriction(
            user,
            &kinds::POD,
            &target.name,
            &target.namespace,
            Some(&pod),
            None,
        )?;
        let asked = options["gracePeriodSeconds"].as_u64();
        let seconds = match pod["metadata"]["deletionGracePeriodSeconds"].as_u64() {
            Some(pending) => match asked.filter(|asked| *asked < pending) {
                Some(shorter) => shorter,
                None => return Ok(pod),
            },
            None => {
                let generation = pod["metadata"]["generation"].as_u64();
                pod["metadata"]["generation"] = json!(generation.unwrap_or(0) + 1);
                let usual = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
                let phase = pod["status"]["phase"].as_str().unwrap_or("");
                let is_bound = pod["spec"]["nodeName"]
                    .as_str()
                    .is_some_and(|n| !n.is_empty());
                match is_bound && !["Failed", "Succeeded"].contains(&phase) {
                    true => asked.or(usual).unwrap_or(0),
                    false => 0,
                }
            }
        };
        pod["metadata"]["deletionTimestamp"] = json!(time::after(seconds));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        let pod = store.put(key.clone(), pod);
        if seconds == 0 && validate::is_empty(&pod["metadata"]["finalizers"]) {
            return Ok(store.remove(&key).unwrap_or(pod));
        }
        Ok(pod)
    }

    fn create(&self, write: &mut Write<'_>, body: &[u8]) -> Result<Value, Failure> {
        let input = parse_body(write.kind, body)?;
        let mut object = self.decode_body(write, &input)?;
        namespace_matches(write, &mut object)?;
        if object["metadata"]["name"].as_str().unwrap_or("").is_empty()
            && let Some(prefix) = object["metadata"]["generateName"]
                .as_str()
                .filter(|p| !p.is_empty())
        {
            object["metadata"]["name"] = json!(format!("{prefix}{}", suffix()));
        }
        let mut store = self.store();
        self.insert(write, &mut store, object)
    }

    /// Creation, by POST or by PUT.
    fn insert(
        &self,
        write: &Write<'_>,
        store: &mut Store,
        mut object: Value,
    ) -> Result<Value, Failure> {
        let kind = write.kind;
        let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let about = kind.about(&name);
        if kind.kind == "CertificateSigningRequest" {
            object["spec"]["username"] = json!(write.user.name);
            object["spec"]["groups"] = json!(write.user.groups);
            if let Some(extra) = &write.user.extra {
                object["spec"]["extra"] = extra.clone();
            }
        }
        if kind.kind == "CertificateSigningRequest" || kind.group == "apps" || kind.kind == "Pod" {
            object["status"] = json!({});
        }
        admission::node_restriction(write.user, kind, &name, &write.key.1, None, Some(&object))?;
        // As the real server does, before admission changes the object.
        object["kind"] = json!(kind.kind);
        pods::defaults(kind, &mut object);
        fields::track(None, &mut object, &self.writer(write));
        pods::admit(kind, &mut object);
        if kind.kind == "Node" {
            admission::taint_new_node(&mut object);
        }
        validate::defaults(kind, &mut object);
        refuse_invalid(kind, &name, &validate::check(kind, None, &object))?;
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
        object["metadata"]["uid"] = json!(pki::uuid());
        object["metadata"]["creationTimestamp"] = json!(time::now());
        Ok(store.put(key, object))
    }

    fn writer<'a>(&self, write: &'a Write<'_>) -> Writer<'a> {
        let api_version = match write.kind.group {
            "" => "v1",
            "coordination.k8s.io" => "coordination.k8s.io/v1",
            "apps" => "apps/v1",
            _ => "certificates.k8s.io/v1",
        };
        Writer {
            manager: &write.manager,
            api_version,
            subresource: write.subresource,
        }
    }

    fn update(&self, write: &mut Write<'_>, body: &[u8]) -> Result<(u16, Value), Failure> {
        let input = parse_body(write.kind, body)?;
        let mut object = self.decode_body(write, &input)?;
        namespace_matches(write, &mut object)?;
        let named = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        if named != write.key.2 {
            let message = format!(
                "the name of the object ({named}) does not match the name on the URL ({})",
                write.key.2
            );
            return Err(status::bad_request(&message));
        }
        let about = write.kind.about(&named);
        let mut store = self.store();
        let uid = object["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        let Some(old) = store.get(&write.key).cloned() else {
            if !uid.is_empty() {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: "
                );
                return Err(status::conflict(&about, &why));
            }
            if write.kind.create_on_update && write.subresource.is_empty() {
                return self.insert(write, &mut store, object).map(|o| (201, o));
            }
            return Err(status::not_found(&about));
        };
        if !uid.is_empty() && old["metadata"]["uid"] != uid.as_str() {
            let have = old["metadata"]["uid"].as_str().unwrap_or("");
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {have}"
            );
            return Err(status::conflict(&about, &why));
        }
        object["metadata"]["uid"] = old["metadata"]["uid"].clone();
        self.replace(write, &mut store, &old, object)
            .map(|o| (200, o))
    }

    fn patch(&self, write: &mut Write<'_>, request: &Request) -> Result<Value, Failure> {
        let content_type = request.header("content-type").unwrap_or("");
        let content_type = content_type.split(';').next().unwrap_or("").trim();
        let strategic = match content_type {
            "application/merge-patch+json" => false,
            "application/strategic-merge-patch+json" => true,
            _ => return Err(status::unsupported_media_type()),
        };
        let name = write.key.2.clone();
        let mut store = self.store();
        let old = store
            .get(&write.key)
            .cloned()
            .ok_or_else(|| status::not_found(&write.kind.about(&name)))?;
        let changes: Value = serde_json::from_slice(&request.body).map_err(|e| {
            status::bad_request(&format!("error decoding patch: {}", json_error(&e)))
        })?;
        if !changes.is_object() {
            return Err(status::bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
            ));
        }
        let merged = if strategic {
            patch::strategic(&old, &changes).map_err(|e| status::bad_request(&e))?
        } else {
            patch::merge(&old, &changes)
        };
        let refuse = |why: &str| {
            let cause = Cause::invalid("patch", &json!(merged.to_string()), why);
            status::invalid("", "", "", &[cause])
        };
        let decoded = validate::decode(write.kind, &merged).map_err(|e| refuse(&e))?;
        if write.strict && !decoded.unknown.is_empty() {
            return Err(refuse(&format!(
                "strict decoding error: {}",
                unknown_fields(&decoded.unknown).join(", ")
            )));
        }
        write.warnings = unknown_fields(&decoded.unknown);
        self.check_schema(write, &decoded.object);
        if decoded.object["metadata"]["name"] != name.as_str() {
            let message = format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                decoded.object["metadata"]["name"].as_str().unwrap_or("")
            );
            return Err(status::bad_request(&message));
        }
        self.replace(write, &mut store, &old, decoded.object)
    }

    /// The second half of PUT and PATCH: admission, the resourceVersion rule, what the endpoint
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
            _ if self.ignores_preconditions.load(Ordering::SeqCst) => {}
            "" | "0" if kind.unconditional => {}
            "" | "0" => {
                // the real server names the resource here where a kind belongs
                let cause = Cause::invalid_shown(
                    "metadata.resourceVersion",
                    "0x0",
                    "must be specified for an update",
                );
                return Err(status::invalid(kind.group, kind.resource, name, &[cause]));
            }
            given if given.parse::<u64>().is_err() => {
                let cause = Cause::invalid(
                    "metadata.resourceVersion",
                    &json!(given),
                    "must be an unsigned integer",
                );
                return Err(status::invalid(kind.group, kind.kind, name, &[cause]));
            }
            given if old["metadata"]["resourceVersion"] != given => {
                return Err(status::conflict(&about, status::MODIFIED));
            }
            _ => {}
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
        let kept: &[&str] = match (kind.kind, write.subresource) {
            ("Node" | "Pod" | "DaemonSet" | "Deployment", "") => &["status"],
            ("Node" | "Pod" | "DaemonSet" | "Deployment", _) => &["spec"],
            ("CertificateSigningRequest", "") => &["spec", "status"],
            ("CertificateSigningRequest", _) => &["spec"],
            _ => &[],
        };
        for part in kept {
            restore(&mut new, old, part);
        }
        match (kind.kind, write.subresource) {
            ("Pod", "status") => restore(&mut new["metadata"], &old["metadata"], "ownerReferences"),
            ("Deployment", "status") => restore(&mut new["metadata"], &old["metadata"], "labels"),
            _ => {}
        }
        pods::defaults(kind, &mut new);
        new["kind"] = json!(kind.kind);
        new["apiVersion"] = json!(kind.api_version());
        validate::defaults(kind, &mut new);
        refuse_invalid(kind, name, &validate::check(kind, Some(old), &new))?;
        if kind.group == "apps" && new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
            new["metadata"]["generation"] = json!(generation + 1);
        }
        fields::track(Some(old), &mut new, &self.writer(write));
        pods::preserve(kind, write.subresource, old, &mut new);
        if fields::timeless(&new) == fields::timeless(old) {
            return Ok(old.clone());
        }
        let metadata = &new["metadata"];
        if metadata["deletionGracePeriodSeconds"] == 0
            && validate::is_empty(&metadata["finalizers"])
        {
            store.remove(&write.key);
            return Ok(new);
        }
        Ok(store.put(write.key.clone(), new))
    }

    fn decode_body(&self, write: &mut Write<'_>, input: &Value) -> Result<Value, Failure> {
        let kind = write.kind.kind;
        let refuse = |why: &str| {
            status::bad_request(&format!(
                "{kind} in version \"v1\" cannot be handled as a {kind}: {why}"
            ))
        };
        let Decoded { object, unknown } =
            validate::decode(write.kind, input).map_err(|e| refuse(&e))?;
        if write.strict && !unknown.is_empty() {
            return Err(refuse(&format!(
                "strict decoding error: {}",
                unknown_fields(&unknown).join(", ")
            )));
        }
        write.warnings = unknown_fields(&unknown);
        self.check_schema(write, input);
        let mut object = object;
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        Ok(object)
    }

    /// Notes what the published schema does not allow.
    fn check_schema(&self, write: &Write<'_>, object: &Value) {
        if let Some(schemas) = &self.schemas {
            let found = schemas.check(write.kind, object);
            let mut checked = self.checked();
            checked.bodies += 1;
            checked.violations.extend(
                found
                    .into_iter()
                    .map(|v| format!("{} {}: {v}", write.kind.kind, write.key.2)),
            );
        }
    }
}

/// An object of a watch in the form that was asked for.
fn shaped(kind: &Kind, object: &Value, form: Form) -> Value {
    match form {
        Form::Table => table::table(kind, std::slice::from_ref(object), "", None),
        Form::Partial => table::partial(object),
        Form::Plain | Form::Discovery => object.clone(),
    }
}

/// Refuses a deletion whose preconditions do not hold, before admission; returns its options.
/// Upstream: apiserver/pkg/registry/rest/delete.go, `BeforeDelete`, which names the kind in the
/// place of the resource.
fn check_preconditions(request: &Request, kind: &Kind, old: &Value) -> Result<Value, Failure> {
    let options: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    for (field, what, end) in [
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ] {
        let wanted = &options["preconditions"][field];
        let have = &old["metadata"][field];
        if !wanted.is_null() && wanted != have {
            let about = status::Subject {
                group: kind.group,
                resource: kind.kind,
                name: &text(&old["metadata"]["name"]),
            };
            let why = format!(
                "the {what} in the precondition ({}) does not match the {what} in record ({}). \
                 The object might have been {end}",
                text(wanted),
                text(have),
            );
            return Err(status::conflict(&about, &why));
        }
    }
    Ok(options)
}

/// What a list of pods may be selected by: `pkg/apis/core/v1/conversion.go`.
const POD_FIELDS: [&str; 11] = [
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

fn unknown_fields(paths: &[String]) -> Vec<String> {
    paths
        .iter()
        .map(|p| format!("unknown field \"{p}\""))
        .collect()
}

fn refuse_invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Result<(), Failure> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(status::invalid(kind.group, kind.kind, name, causes))
    }
}

/// Sets a member back to what it was.
fn restore(new: &mut Value, old: &Value, member: &str) {
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
        unrecognized(&format!(
            "couldn't get version/kind; json parse error: {}",
            json_error(&e)
        ))
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

fn json_error(error: &serde_json::Error) -> String {
    if error.is_eof() {
        "unexpected end of JSON input".to_owned()
    } else {
        error.to_string()
    }
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
fn target(path: &str) -> Option<Target> {
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
    let part = |i: usize| rest.get(i).map_or(String::new(), |p| (*p).to_owned());
    (!rest.is_empty() && rest.len() <= 3).then(|| Target {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: part(0),
        name: part(1),
        subresource: part(2),
    })
}

/// The first form in `Accept` that the double can give. What is asked for as protobuf is
/// plain until the end, see `protobuf`.
fn form(request: &Request) -> Option<Form> {
    let accept = request.header("accept").unwrap_or("*/*");
    if protobuf::is_wanted(request) {
        return Some(Form::Plain);
    }
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        if !["application/json", "*/*", "application/*", ""].contains(&media) {
            continue;
        }
        let mut wanted = ("", "", "");
        for parameter in parts {
            match parameter.split_once('=') {
                Some(("as", value)) => wanted.0 = value,
                Some(("g", value)) => wanted.1 = value,
                Some(("v", value)) => wanted.2 = value,
                _ => {}
            }
        }
        match wanted {
            ("", _, _) => return Some(Form::Plain),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                return Some(Form::Partial);
            }
            ("Table", "meta.k8s.io", "v1") if request.method == "GET" => return Some(Form::Table),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => return Some(Form::Discovery),
            _ => {}
        }
    }
    None
}

fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
    pki::random::<5>().iter().map(letter).collect()
}
