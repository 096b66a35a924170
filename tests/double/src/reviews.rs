//! Reviews: questions about a token, or whether somebody may do something. Nothing is stored.
//! `pkg/registry/authentication/tokenreview`, `pkg/registry/authorization`.

use crate::api::{Api, json_error, restore};
use crate::auth::{self, Attributes, User};
use crate::fields::{self, Writer};
use crate::http::{Request, Response};
use crate::kinds::Kind;
use crate::lock;
use crate::status::{self, Cause, Failure};
use crate::validate;
use serde_json::{Value, json};

impl Api {
    pub(crate) fn review(
        &self,
        kind: &Kind,
        user: &User,
        request: &Request,
    ) -> Result<Response, Failure> {
        let mut review: Value = serde_json::from_slice(&request.body)
            .map_err(|e| status::bad_request(&format!("json parse error: {}", json_error(&e))))?;
        for (member, want) in [("kind", kind.kind), ("apiVersion", &kind.api_version())] {
            let given = review[member].as_str().unwrap_or(want);
            if given != want {
                let why = format!("the {member} is {given:?}, and not {want:?}");
                return Err(status::bad_request(&why));
            }
            review[member] = json!(want);
        }
        let decoded = validate::decode(kind.kind, &review, &mut lock(&self.unknown));
        let mut review = decoded.map_err(|why| status::bad_request(&why))?;
        let spec = &review["spec"];
        let status = match kind.kind {
            "TokenReview" => self.token_status(spec)?,
            "SubjectAccessReview" => self.access_status(kind, &subject(kind, spec)?, spec)?,
            _ => self.access_status(kind, user, spec)?,
        };
        let writer = Writer { manager: fields::manager(request), kind, subresource: "" };
        fields::track(None, &mut review, &writer);
        review["status"] = status;
        Ok(Response::json(201, &review))
    }

    /// A bad token is an error in the status, as a kube-apiserver's union of authenticators says
    /// it.
    fn token_status(&self, spec: &Value) -> Result<Value, Failure> {
        let token = spec["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            let why = "token is required for TokenReview in authentication";
            return Err(status::bad_request(why));
        }
        Ok(match self.user_of(token) {
            None => json!({"user": {}, "error": "invalid bearer token"}),
            Some(user) => {
                let mut about = json!({"username": user.name, "groups": user.groups});
                if let Some(extra) = user.extra {
                    about["extra"] = extra;
                }
                let audiences = ["https://kubernetes.default.svc.cluster.local"];
                json!({"authenticated": true, "user": about, "audiences": audiences})
            }
        })
    }

    fn access_status(&self, kind: &Kind, user: &User, spec: &Value) -> Result<Value, Failure> {
        let about = &spec["resourceAttributes"];
        if !about.is_object() {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let cause = Cause::invalid("spec.resourceAttributes", &Value::Null, why);
            return Err(status::invalid(kind.group, kind.kind, "", &[cause]));
        }
        let text = |field: &str| about[field].as_str().unwrap_or_default();
        let requirements = about["fieldSelector"]["requirements"].as_array();
        let equal = requirements.into_iter().flatten().filter_map(|term| {
            let value = term["values"][0].as_str().filter(|_| term["operator"] == "In")?;
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
        let mut status = match auth::decide(user, &wanted, &lock(&self.rbac)) {
            Ok(reason) => json!({"allowed": true, "reason": reason}),
            Err(reason) => json!({"allowed": false, "reason": reason}),
        };
        if status["reason"] == "" {
            restore(&mut status, &Value::Null, "reason");
        }
        Ok(status)
    }
}

/// The user of a SubjectAccessReview: no group is added.
fn subject(kind: &Kind, wanted: &Value) -> Result<User, Failure> {
    let groups = wanted["groups"].as_array().into_iter().flatten();
    let groups: Vec<String> = groups.filter_map(|g| g.as_str().map(str::to_owned)).collect();
    let name = wanted["user"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() && groups.is_empty() {
        let why = "at least one of user or group must be specified";
        let cause = Cause::invalid("spec.user", &json!(""), why);
        return Err(status::invalid(kind.group, kind.kind, "", &[cause]));
    }
    Ok(User { name, groups, extra: None })
}
