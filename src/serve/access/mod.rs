//! Who may ask `nodelet serve`, and what: the API server decides, and its answers are cached.
//!
//! As in the kubelet, a client certificate names the user, or else a bearer token does, by a
//! TokenReview. Then a SubjectAccessReview is sent for each subresource of the Node that the path
//! belongs to, until one is allowed. `cmd/kubelet/app/auth.go`, `pkg/kubelet/server/server.go`
//! InstallAuthFilter and `auth.go` GetRequestAttributes, with KubeletFineGrainedAuthz.
//!
//! Unlike in the kubelet, an invalid token is cached, too, and an address can cause one review of
//! unknown tokens a second: neither a scraper with an old token nor an attacker makes the API
//! server busy. A token that was valid once is reviewed without a rate limit. An invalid token
//! never evicts a valid one.

mod cache;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use zeroize::Zeroize as _;

use crate::kube::instant::Mono;
use crate::kube::json as bounded_json;
use crate::kube::message::{Accept, Answer, Method, Refused, Request, accepted};
use crate::kube::object;
use crate::kube::outage_log::OutageLog;

use self::cache::{Buckets, KeyedHash, TokenCache, Verdicts};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// Time limit of one judgement, all its reviews together: each other connection waits meanwhile. A
/// new connection to the API server has a limit of its own of this length: it takes as many round
/// trips as the reviews.
pub(super) const BUDGET: Duration = Duration::from_secs(4);
/// How long an invalid token is cached.
const BAD_TOKEN_TTL: Duration = Duration::from_secs(30);
/// After a review that failed, no review is sent for this time: each one could take the whole
/// [`BUDGET`], while all connections wait. If it was of a token that was never valid, only such
/// tokens from the same address wait: an authentication webhook that hangs is not asked about
/// ServiceAccounts.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest user in bytes: the JSON of a TokenReview's user, or a client certificate. Up to 16 users
/// are cached with tokens, and up to 32 with verdicts.
pub(super) const MAX_USER: usize = 16 << 10;

/// `--authentication-token-webhook`, and how long answers of the API server are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccessConfig {
    /// `--authentication-token-webhook`: bearer tokens are accepted.
    pub(super) accepts_tokens: bool,
    /// `--authentication-token-webhook-cache-ttl`: how long a valid token is cached.
    pub(super) token_ttl: Duration,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub(super) authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub(super) unauthorized_ttl: Duration,
}

/// A user, as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct User {
    /// The user name; the common name of a certificate.
    pub(super) name: String,
    /// The uid; empty for a certificate.
    pub(super) uid: String,
    /// The groups; the organizations of a certificate.
    pub(super) groups: Vec<String>,
    /// Lists of further attributes, by name.
    pub(super) extra: Map<String, Value>,
}

/// Who asks. Without Debug: the token is a secret.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    /// The user of a client certificate that the CA has signed.
    pub(super) user: Option<&'a User>,
    /// The bearer token; used without a `user`.
    pub(super) token: Option<&'a str>,
    /// Where the connection is from.
    pub(super) peer: IpAddr,
}

/// Whether an asker gets an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The asker gets an answer.
    Allowed,
    /// 401: not known to the API server.
    Unauthorized,
    /// 403; the text says which user lacks which permission.
    Forbidden(String),
    /// 500: the API server did not say; the log has the reason.
    Failed,
}

/// The time that all reviews of a request to the port may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReviewTime {
    pub(super) deadline: Mono,
    /// The first new connection has [`BUDGET`] of its own, by which the deadline becomes later.
    pub(super) may_connect: bool,
}

impl ReviewTime {
    /// The time from now on.
    pub(super) fn new(now: Mono) -> Self {
        Self { deadline: now.after(BUDGET), may_connect: true }
    }
}

/// What the reviews need.
pub(super) trait ReviewContext {
    /// The time.
    fn now(&self) -> Mono;
    /// A keyed hash, with a key of this process alone. Tokens are not kept in clear.
    fn digest(&self, bytes: &[u8]) -> KeyedHash;
    /// One request to the API server, which ends at the deadline.
    fn call(&mut self, request: &Request, time: &mut ReviewTime) -> Answer;
}

/// Reviews that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReviewCounts {
    /// TokenReviews.
    pub(super) tokens: u64,
    /// SubjectAccessReviews.
    pub(super) access: u64,
}

/// What the API server said, while it counts.
#[derive(Debug)]
pub(super) struct Access {
    node_name: String,
    config: AccessConfig,
    tokens: TokenCache,
    verdicts: Verdicts,
    buckets: Buckets,
    /// No review is sent before this time.
    pause_until: Mono,
    pub(super) counts: ReviewCounts,
    token_log: OutageLog,
    access_log: OutageLog,
    /// Logs users that are longer than [`MAX_USER`]. It is never told of a success, so the repeated
    /// reviews of one such token do not make one line each.
    user_log: OutageLog,
}

/// What became of a review.
enum Review {
    /// The member `status` of the review.
    Status(Value),
    /// The API server refuses the content of a TokenReview, for example for the form of its token.
    Malformed,
    /// None was sent: the last one failed a moment ago, or no time is left.
    Unsent,
    /// There is no answer, or the answer is no review.
    Failed,
}

impl Access {
    /// Nothing is known yet.
    pub(super) fn new(config: AccessConfig, node_name: &str) -> Self {
        Self {
            node_name: node_name.to_owned(),
            config,
            tokens: TokenCache::default(),
            verdicts: Verdicts::default(),
            buckets: Buckets::default(),
            pause_until: Mono::START,
            counts: ReviewCounts::default(),
            token_log: OutageLog::new("tokenreviews"),
            access_log: OutageLog::new("subjectaccessreviews"),
            user_log: OutageLog::new("tokenreviews"),
        }
    }

    /// Whether `asker` may send `method` to `path`, which has no query. Takes [`BUDGET`] at most,
    /// or twice as long if a new connection is opened.
    pub(super) fn judge(
        &mut self,
        asker: &Asker<'_>,
        method: &str,
        path: &str,
        context: &mut dyn ReviewContext,
    ) -> Verdict {
        let (verb, subresources) = (verb(method), subresources(path));
        let mut time = ReviewTime::new(context.now());
        let of_token = match (asker.user, asker.token) {
            (None, Some(token)) if self.config.accepts_tokens => {
                self.user_of(token, asker.peer, &mut time, context)
            }
            _ => None,
        };
        match asker.user.or(of_token.as_deref()) {
            Some(user) => self.authorize(user, verb, subresources, &mut time, context),
            None => Verdict::Unauthorized,
        }
    }

    /// The user of a token.
    fn user_of(
        &mut self,
        token: &str,
        peer: IpAddr,
        time: &mut ReviewTime,
        context: &mut dyn ReviewContext,
    ) -> Option<Rc<User>> {
        let now = context.now();
        let digest = context.digest(token.as_bytes());
        let cached = self.tokens.get(&digest);
        if let Some((until, user)) = cached
            && now < until
        {
            return user.cloned();
        }
        // Only these tokens are limited: an attacker can invent any number of tokens that were
        // never valid.
        let was_valid = cached.is_some_and(|(_, user)| user.is_some());
        if !was_valid && self.buckets.of(peer, now).tokens(now) == 0 {
            return None;
        }
        let review = self.review(token_review(token), time, context);
        let user = match review {
            Review::Unsent => return None,
            Review::Failed => {
                let end = context.now().after(PAUSE);
                match was_valid {
                    true => self.pause_until = end,
                    false => self.buckets.of(peer, now).take_for(now, end),
                }
                return None;
            }
            Review::Malformed => None,
            Review::Status(status) => {
                let user = user_of_status(&status).unwrap_or_else(|why| {
                    self.user_log.failed(&why, now);
                    None
                });
                user.map(Rc::new)
            }
        };
        let ttl = match user {
            Some(_) => self.config.token_ttl,
            None => {
                // All connections wait during a review, so a slow review takes more from the
                // address's bucket.
                self.buckets.of(peer, now).take_for(now, context.now());
                BAD_TOKEN_TTL
            }
        };
        self.tokens.insert(digest, now.after(ttl), user.clone());
        user
    }

    fn authorize(
        &mut self,
        user: &User,
        verb: &'static str,
        subresources: &[&'static str],
        time: &mut ReviewTime,
        context: &mut dyn ReviewContext,
    ) -> Verdict {
        for subresource in subresources {
            match self.is_allowed(user, verb, subresource, time, context) {
                Some(true) => return Verdict::Allowed,
                Some(false) => {}
                None => return Verdict::Failed,
            }
        }
        let needed = subresources.join(" or nodes/");
        Verdict::Forbidden(format!(
            "user {:?} needs the verb {verb:?} on nodes/{needed}",
            user.name
        ))
    }

    /// Whether a user may do something with the Node; `None` if the API server does not say.
    fn is_allowed(
        &mut self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
        time: &mut ReviewTime,
        context: &mut dyn ReviewContext,
    ) -> Option<bool> {
        let now = context.now();
        if let Some(allowed) = self.verdicts.get(user, verb, subresource, now) {
            return Some(allowed);
        }
        let review = access_review(user, verb, &self.node_name, subresource);
        let status = match self.review(review, time, context) {
            Review::Status(status) => status,
            Review::Failed => {
                self.pause_until = context.now().after(PAUSE);
                return None;
            }
            Review::Malformed | Review::Unsent => return None,
        };
        let is = |key: &str| object::at(&status, &[key]).and_then(Value::as_bool);
        let allowed = is("allowed")? && is("denied") != Some(true);
        let ttl = if allowed { self.config.authorized_ttl } else { self.config.unauthorized_ttl };
        self.verdicts.insert(user, verb, subresource, now.after(ttl), allowed);
        Some(allowed)
    }

    /// Sends a review, unless the last one failed a moment ago, or no time is left. After a failure
    /// the caller decides who waits.
    fn review(
        &mut self,
        mut request: Request,
        time: &mut ReviewTime,
        context: &mut dyn ReviewContext,
    ) -> Review {
        let now = context.now();
        if now < self.pause_until || time.deadline <= now {
            return Review::Unsent;
        }
        let is_token = request.path == TOKEN_REVIEWS;
        let (count, log) = if is_token {
            (&mut self.counts.tokens, &mut self.token_log)
        } else {
            (&mut self.counts.access, &mut self.access_log)
        };
        *count += 1;
        let answer = context.call(&request, time);
        if is_token {
            request.body.zeroize();
        }
        let now = context.now();
        let why = match accepted(answer) {
            Ok(response) => match bounded_json::parse(&response.body).as_mut() {
                Some(Value::Object(review))
                    if review.get("status").is_some_and(Value::is_object) =>
                {
                    log.succeeded(now);
                    return Review::Status(review.remove("status").unwrap_or_default());
                }
                _ => Refused::nonsense("a review").into(),
            },
            Err(error) => match error.refused {
                // The page of a gateway has no reason, and says nothing about the token.
                Some(refused)
                    if is_token
                        && !refused.reason.is_empty()
                        && matches!(refused.code, 400 | 413 | 422) =>
                {
                    return Review::Malformed;
                }
                _ => error.why,
            },
        };
        log.failed(&why.to_string(), now);
        Review::Failed
    }
}

/// The body is written by hand, so that only one copy of the token is made; `review` erases it.
fn token_review(token: &str) -> Request {
    const HEAD: &[u8] =
        br#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"#;
    let mut body = Vec::with_capacity(HEAD.len() + token.len() + 16);
    body.extend_from_slice(HEAD);
    // This cannot fail: each text has a JSON form, and a Vec takes every byte.
    let _ = serde_json::to_writer(&mut body, token);
    body.extend_from_slice(b"}}");
    Request { method: Method::Post, path: TOKEN_REVIEWS.to_owned(), accept: Accept::List, body }
}

fn access_review(user: &User, verb: &str, node_name: &str, subresource: &str) -> Request {
    let mut groups = user.groups.clone();
    // Upstream: apiserver `authentication/group/authenticated_group_adder.go`.
    let is_said = groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if !is_said && user.name != ANONYMOUS {
        groups.push(AUTHENTICATED.to_owned());
    }
    let mut review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.name,
            "groups": groups,
            "resourceAttributes": {
                "verb": verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": node_name,
            },
        },
    });
    if !user.uid.is_empty() {
        object::set(&mut review, &["spec", "uid"], json!(user.uid));
    }
    if !user.extra.is_empty() {
        object::set(&mut review, &["spec", "extra"], json!(user.extra));
    }
    Request::post(ACCESS_REVIEWS, Accept::List, &review)
}

/// The user of a valid token; `None` for an invalid one. The error says why a user is refused.
fn user_of_status(status: &Value) -> Result<Option<User>, String> {
    let is_valid = object::at(status, &["authenticated"]) == Some(&Value::Bool(true));
    let Some(user) = object::at(status, &["user"]).filter(|_| is_valid) else {
        return Ok(None);
    };
    let name = object::text(user, &["username"]);
    // A token is also invalid if the status has an error, or a user without a name.
    if name.is_empty() || !object::text(status, &["error"]).is_empty() {
        return Ok(None);
    }
    if user.to_string().len() > MAX_USER {
        return Err(format!("the user {name:?} is longer than {MAX_USER} bytes; refused"));
    }
    let groups = object::list(user, &["groups"]).iter();
    let extra = object::at(user, &["extra"]).and_then(Value::as_object);
    Ok(Some(User {
        name: name.to_owned(),
        uid: object::text(user, &["uid"]).to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        extra: extra.cloned().unwrap_or_default(),
    }))
}

/// The verb of the API for a method; empty for every other method.
fn verb(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The subresources of a path, in the order in which they are asked for; the first that is allowed
/// is enough.
fn subresources(path: &str) -> &'static [&'static str] {
    const TABLE: &[(&str, &[&str])] = &[
        ("/pods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
    ];
    let is_below = |above| {
        let rest = path.strip_prefix(above);
        rest.is_some_and(|rest: &str| rest.is_empty() || rest.starts_with('/'))
    };
    let found = TABLE.iter().find(|(above, _)| is_below(*above));
    found.map_or(&["proxy"], |(_, subresources)| subresources)
}

#[cfg(test)]
mod tests;
