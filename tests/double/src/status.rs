//! `metav1.Status`: how the API server says no.

use serde_json::{Value, json};

/// An error answer.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) body: Value,
    /// An authorizer refused, not admission.
    pub(crate) by_authorizer: bool,
}

/// What an error is about: the plural resource name and its group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }

    fn details(&self) -> Value {
        let members = [("name", self.name), ("group", self.group), ("kind", self.resource)];
        members.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

pub(crate) fn failure(code: u16, reason: &str, message: &str, details: Option<Value>) -> Failure {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if let Some(details) = details {
        body["details"] = details;
    }
    Failure { code, body, by_authorizer: false }
}

/// The reason that goes with a status code.
pub(crate) fn reason(code: u16) -> &'static str {
    match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

pub(crate) fn bad_request(message: &str) -> Failure {
    failure(400, "BadRequest", message, None)
}

pub(crate) fn unauthorized() -> Failure {
    failure(401, "Unauthorized", "Unauthorized", None)
}

/// The refusal of an authorizer.
pub(crate) fn not_authorized(about: &Subject<'_>, why: &str) -> Failure {
    Failure { by_authorizer: true, ..forbidden(about, why) }
}

pub(crate) fn forbidden(about: &Subject<'_>, why: &str) -> Failure {
    let mut subject = about.qualified();
    if !about.name.is_empty() {
        subject = format!("{subject} \"{}\"", about.name);
    }
    failure(403, "Forbidden", &format!("{subject} is forbidden: {why}"), Some(about.details()))
}

pub(crate) fn forbidden_path(user: &str, verb: &str, path: &str) -> Failure {
    let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
    Failure { by_authorizer: true, ..failure(403, "Forbidden", &message, Some(json!({}))) }
}

pub(crate) fn not_found(about: &Subject<'_>) -> Failure {
    let message = format!("{} \"{}\" not found", about.qualified(), about.name);
    failure(404, "NotFound", &message, Some(about.details()))
}

pub(crate) fn no_such_resource() -> Failure {
    let message = "the server could not find the requested resource";
    failure(404, "NotFound", message, Some(json!({})))
}

pub(crate) fn method_not_allowed() -> Failure {
    let message = "the server does not allow this method on the requested resource";
    failure(405, "MethodNotAllowed", message, Some(json!({})))
}

pub(crate) fn not_acceptable() -> Failure {
    let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
    failure(406, "NotAcceptable", message, None)
}

pub(crate) fn already_exists(about: &Subject<'_>) -> Failure {
    let message = format!("{} \"{}\" already exists", about.qualified(), about.name);
    failure(409, "AlreadyExists", &message, Some(about.details()))
}

pub(crate) fn conflict(about: &Subject<'_>, why: &str) -> Failure {
    let message =
        format!("Operation cannot be fulfilled on {} \"{}\": {why}", about.qualified(), about.name);
    failure(409, "Conflict", &message, Some(about.details()))
}

pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(crate) fn unsupported_media_type() -> Failure {
    failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", Some(json!({})))
}

pub(crate) fn internal(message: &str) -> Failure {
    failure(500, "InternalError", &format!("Internal error occurred: {message}"), None)
}

/// One thing that is wrong with an object.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self { reason, field: field.to_owned(), message }
    }

    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self::invalid_shown(field, &value.to_string(), why)
    }

    /// As `invalid`, with the value as the server prints it.
    pub(crate) fn invalid_shown(field: &str, shown: &str, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {shown}: {why}"))
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
    }

    pub(crate) fn required(field: &str, why: Option<&str>) -> Self {
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        Self::new("FieldValueRequired", field, format!("Required value{why}"))
    }
}

/// 422; `kind` is a kind, or, where the real server says so, a resource.
pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Failure {
    let about = Subject { group, resource: kind, name };
    // The message names each cause once, as `utilerrors.NewAggregate` prints it.
    let mut listed: Vec<String> = Vec::new();
    for cause in causes {
        let line = format!("{}: {}", cause.field, cause.message);
        if !listed.contains(&line) {
            listed.push(line);
        }
    }
    let what = match listed.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let mut details = about.details();
    details["causes"] = causes
        .iter()
        .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
        .collect();
    let message = format!("{} \"{name}\" is invalid: {what}", about.qualified());
    failure(422, "Invalid", &message, Some(details))
}
