//! `pkg/kubelet/server/server_test.go` TestAuthFilters, TestAuthenticationError,
//! TestAuthenticationFailure, TestAuthorizationSuccess; `auth_test.go` TestFineGrainedAuthz. And
//! what is kept, for how long, and what a bad token costs.

use std::cell::Cell;

use super::*;
use crate::config::flags::Flags;
use crate::kube::message::answered;
use crate::kube::text::Fault;
use crate::node::kubelet::tests::lines::{collect_lines, take_lines};
use crate::serve::ServeConfig;

/// An API server: what it says to the n-th review of a kind, and what it was asked.
struct Server {
    now: Cell<Mono>,
    /// Of a token: its user; `None` refuses it.
    user: fn(&str) -> Option<&'static str>,
    /// Of a subresource.
    allows: fn(&str) -> bool,
    /// Answers instead.
    instead: Option<Answer>,
    /// Takes so long.
    takes: Duration,
    tokens: Vec<String>,
    questions: Vec<Value>,
}

impl Server {
    fn new() -> Self {
        Self {
            now: Cell::new(Mono::START),
            user: |token| Some("prometheus").filter(|_| token.starts_with("good")),
            allows: |_| true,
            instead: None,
            takes: Duration::ZERO,
            tokens: Vec::new(),
            questions: Vec::new(),
        }
    }

    fn wait(&self, seconds: u64) {
        self.now.set(self.now.get().after(Duration::from_secs(seconds)));
    }

    fn subresources(&self) -> Vec<&str> {
        let of = |q| object::text(q, &["resourceAttributes", "subresource"]);
        self.questions.iter().map(of).collect()
    }
}

impl ReviewContext for Server {
    fn now(&self) -> Mono {
        self.now.get()
    }

    /// Good enough for tests: no two of their texts have the same one.
    fn digest(&self, bytes: &[u8]) -> KeyedHash {
        let mut digest = [0; 32];
        for (at, byte) in bytes.iter().enumerate() {
            digest[at % 32] = u8::rotate_left(digest[at % 32], 3) ^ byte;
        }
        digest
    }

    fn call(&mut self, request: &Request, time: &mut ReviewTime) -> Answer {
        let deadline = time.deadline;
        assert_eq!((request.method, request.accept), (Method::Post, Accept::List));
        let mut review: Value = serde_json::from_slice(&request.body).unwrap();
        let spec = review["spec"].clone();
        review["status"] = match request.path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                assert_eq!(review["kind"], "TokenReview");
                let token = spec["token"].as_str().unwrap();
                self.tokens.push(token.to_owned());
                match (self.user)(token) {
                    Some(name) => json!({"authenticated": true, "user": {
                        "username": name,
                        "uid": "u1",
                        "groups": ["system:serviceaccounts", "system:authenticated"],
                        "extra": {"pod": ["p"]},
                    }}),
                    None => json!({"user": {}, "error": "invalid bearer token"}),
                }
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                assert_eq!(review["kind"], "SubjectAccessReview");
                self.questions.push(spec.clone());
                let subresource = object::text(&spec, &["resourceAttributes", "subresource"]);
                json!({"allowed": (self.allows)(subresource)})
            }
            other => panic!("{other}"),
        };
        let end = self.now.get().after(self.takes);
        self.now.set(end.min(deadline));
        if deadline < end {
            return Err(Fault::from("timed out"));
        }
        self.instead.clone().unwrap_or_else(|| answered(201, review))
    }
}

/// A port with nothing in its caches, and its API server.
struct Port {
    access: Access,
    server: Server,
}

impl Port {
    fn new() -> Self {
        Self::with(&[], Server::new())
    }

    fn with(flags: &[&str], server: Server) -> Self {
        let config = ServeConfig::new(&Flags::of(flags).values).unwrap();
        Self { access: Access::new(config.access, "test"), server }
    }

    fn judge(&mut self, asker: &Asker<'_>, method: &str, path: &str) -> Verdict {
        self.access.judge(asker, method, path, &mut self.server)
    }

    fn get(&mut self, token: &str) -> Verdict {
        self.judge(&with_token(token), "GET", "/metrics")
    }

    /// With the seconds that it takes.
    fn timed(&mut self, asker: &Asker<'_>, path: &str) -> (Verdict, u64) {
        let begin = self.server.now();
        let verdict = self.judge(asker, "GET", path);
        (verdict, self.server.now().since(begin).as_secs())
    }
}

fn peer(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn with_token(token: &str) -> Asker<'_> {
    Asker { user: None, token: Some(token), peer: peer(1) }
}

fn phibby() -> User {
    User { name: "phibby".to_owned(), ..User::default() }
}

fn with_certificate(user: &User) -> Asker<'_> {
    Asker { user: Some(user), token: Some("bad"), peer: peer(1) }
}

fn silent() -> Option<Answer> {
    Some(Err(Fault::new("no answer", "")))
}

/// TestAuthFilters, and `auth_test.go` TestFineGrainedAuthz. The rows of the paths are in
/// `test_get_request_attributes`.
#[test]
fn test_auth_filters() {
    let user = phibby();
    let none: fn(&str) -> bool = |_| false;
    for (method, path, allows, needed, asked) in [
        ("GET", "/metrics/resource", none, "\"get\" on nodes/metrics", &["metrics"][..]),
        (
            "POST",
            "/healthz/log",
            none,
            "\"create\" on nodes/healthz or nodes/proxy",
            &["healthz", "proxy"],
        ),
        ("HEAD", "/exec/a/b/c", none, "\"\" on nodes/proxy", &["proxy"]),
        ("GET", "/configz", |subresource| subresource == "proxy", "", &["configz", "proxy"]),
        ("GET", "/configz", |subresource| subresource == "configz", "", &["configz"]),
    ] {
        let mut port = Port::with(&[], Server { allows, ..Server::new() });
        let want = match needed {
            "" => Verdict::Allowed,
            needed => Verdict::Forbidden(format!("user \"phibby\" needs the verb {needed}")),
        };
        assert_eq!(port.judge(&with_certificate(&user), method, path), want);
        assert_eq!(port.server.subresources(), asked);
        assert_eq!(port.server.tokens, [] as [&str; 0], "the certificate counts, not the token");
        let question = &port.server.questions[0];
        assert_eq!(question["user"], "phibby");
        assert_eq!(question["groups"], json!(["system:authenticated"]));
    }
}

#[test]
fn a_user_is_in_system_authenticated_unless_the_name_or_a_group_says_otherwise() {
    for (name, groups, want) in [
        ("phibby", json!([]), json!(["system:authenticated"])),
        ("phibby", json!(["a"]), json!(["a", "system:authenticated"])),
        ("phibby", json!(["system:authenticated", "a"]), json!(["system:authenticated", "a"])),
        ("phibby", json!(["system:unauthenticated"]), json!(["system:unauthenticated"])),
        ("system:anonymous", json!(["a"]), json!(["a"])),
    ] {
        let groups = serde_json::from_value(groups).unwrap();
        let user = User { name: name.to_owned(), groups, ..User::default() };
        let mut port = Port::new();
        port.judge(&with_certificate(&user), "GET", "/metrics");
        assert_eq!(port.server.questions[0]["groups"], want);
    }
}

/// TestAuthenticationError: the authorizer fails.
#[test]
fn test_authentication_error() {
    let user = phibby();
    for instead in [
        silent(),
        Some(answered(500, json!({}))),
        Some(answered(403, json!({"reason": "Forbidden"}))),
        Some(answered(201, json!({"kind": "Node"}))),
        Some(answered(201, json!({"status": {}}))),
        Some(answered(201, json!([]))),
    ] {
        let mut port = Port::with(&[], Server { instead, ..Server::new() });
        let verdict = port.judge(&with_certificate(&user), "GET", "/healthz");
        assert_eq!(verdict, Verdict::Failed);
        assert_eq!(port.server.subresources(), ["healthz"]);
    }
}

/// TestAuthenticationFailure: nothing is asked about what an unknown user may.
#[test]
fn test_authentication_failure() {
    let mut port = Port::new();
    let nobody = Asker { user: None, token: None, peer: peer(1) };
    assert_eq!(port.judge(&nobody, "GET", "/healthz"), Verdict::Unauthorized);
    assert_eq!(port.get("bad"), Verdict::Unauthorized);
    assert_eq!(port.server.questions, [] as [Value; 0]);
    for status in [
        json!({}),
        json!({"authenticated": false, "user": {"username": "x"}}),
        json!({"authenticated": "true", "user": {"username": "x"}}),
        json!({"authenticated": true}),
        json!({"authenticated": true, "user": {"username": ""}}),
        json!({"authenticated": true, "user": {"username": "x"}, "error": "expired"}),
        json!({"authenticated": true, "user": {"username": "x", "uid": "x".repeat(MAX_USER)}}),
    ] {
        let instead = Some(answered(201, json!({"status": status})));
        let mut port = Port::with(&[], Server { instead, ..Server::new() });
        assert_eq!(port.get("good"), Verdict::Unauthorized, "{status}");
        assert_eq!((port.server.tokens.len(), port.server.questions.len()), (1, 0));
    }
    let mut port = Port::with(&["--authentication-token-webhook=false"], Server::new());
    assert_eq!(port.get("good"), Verdict::Unauthorized);
    assert_eq!(port.server.tokens, [] as [&str; 0]);
}

/// Its token is reviewed again each 30 s, for years.
#[test]
fn a_user_that_is_too_long_is_logged_once() {
    let user = json!({"username": "x", "uid": "x".repeat(MAX_USER)});
    let instead = Some(answered(201, json!({"status": {"authenticated": true, "user": user}})));
    let mut port = Port::with(&[], Server { instead, ..Server::new() });
    collect_lines();
    for _ in 0..100 {
        assert_eq!(port.get("good"), Verdict::Unauthorized);
        port.server.wait(31);
    }
    assert_eq!(port.server.tokens.len(), 100);
    let line = "tokenreviews: the user \"x\" is longer than 16384 bytes; refused";
    assert_eq!(take_lines(), [line]);
}

/// TestAuthorizationSuccess, and what the API server is asked.
#[test]
fn test_authorization_success() {
    let mut port = Port::new();
    assert_eq!(port.get("good \"\\"), Verdict::Allowed);
    assert_eq!(port.server.tokens, ["good \"\\"]);
    assert_eq!(
        port.server.questions,
        [json!({
            "user": "prometheus",
            "uid": "u1",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": {"pod": ["p"]},
            "resourceAttributes": {
                "verb": "get",
                "version": "v1",
                "resource": "nodes",
                "subresource": "metrics",
                "name": "test",
            },
        })]
    );
    assert_eq!(port.access.counts, ReviewCounts { tokens: 1, access: 1 });
    let debug = format!("{:?}", port.access);
    assert!(!debug.contains("good"), "{debug}");
}

#[test]
fn answers_are_kept_for_the_times_of_the_flags() {
    let mut port = Port::new();
    let asked_after = |seconds: u64, port: &mut Port| {
        port.server.wait(seconds);
        let before = port.access.counts;
        port.get("good");
        let after = port.access.counts;
        (after.tokens - before.tokens, after.access - before.access)
    };
    assert_eq!(asked_after(0, &mut port), (1, 1));
    assert_eq!(asked_after(119, &mut port), (0, 0));
    assert_eq!(asked_after(1, &mut port), (1, 0));
    assert_eq!(asked_after(119, &mut port), (0, 0));
    assert_eq!(asked_after(61, &mut port), (1, 1), "300 s after the first");
    port.server.allows = |_| false;
    assert_eq!(asked_after(300, &mut port), (1, 1));
    assert_eq!(asked_after(29, &mut port), (0, 0));
    assert_eq!(asked_after(1, &mut port), (0, 1));
}

/// Another user, verb or subresource is another question.
#[test]
fn no_two_users_share_an_answer() {
    let mut port = Port::new();
    let users = [
        phibby(),
        User { uid: "1".into(), ..phibby() },
        User { groups: vec!["a".into()], ..phibby() },
        User { groups: vec!["a".into(), "b".into()], ..phibby() },
        User { extra: Map::from_iter([("a".to_owned(), json!(["b"]))]), ..phibby() },
    ];
    for user in &users {
        for (method, path) in [("GET", "/stats/"), ("POST", "/stats/"), ("GET", "/metrics")] {
            for _ in 0..2 {
                port.judge(&with_certificate(user), method, path);
            }
        }
    }
    assert_eq!(port.server.questions.len(), users.len() * 3);
}

/// Everybody waits for a review: one that takes 3 s is as dear as four.
#[test]
fn slow_reviews_of_bad_tokens_are_few() {
    for (takes, want) in [(0, 4), (1, 2), (3, 1), (4, 1)] {
        let takes = Duration::from_secs(takes);
        let mut port = Port::with(&[], Server { takes, ..Server::new() });
        for number in 0..7 {
            assert_eq!(port.get(&format!("bad-{number}")), Verdict::Unauthorized);
        }
        assert_eq!(port.server.tokens.len(), want, "{takes:?}");
        port.server.wait(1);
        assert_eq!(port.get("bad-again"), Verdict::Unauthorized);
        assert_eq!(port.server.tokens.len(), want + 1, "{takes:?}");
    }
}

#[test]
fn a_good_token_is_not_refused_because_others_were_bad() {
    let mut port = Port::new();
    assert_eq!(port.get("good"), Verdict::Allowed);
    let flood = |port: &mut Port| {
        for number in 0..100 {
            let token = format!("bad-{number}-{:?}", port.server.now());
            assert_eq!(port.get(&token), Verdict::Unauthorized);
        }
    };
    // Known, beyond its time, from the address of the others.
    for _ in 0..10 {
        flood(&mut port);
        assert_eq!(port.get("good"), Verdict::Allowed);
        port.server.wait(130);
    }
    // New, from another address.
    flood(&mut port);
    let asker = Asker { peer: peer(2), ..with_token("good-2") };
    assert_eq!(port.judge(&asker, "GET", "/metrics"), Verdict::Allowed);
    // New ones that are good spend nothing.
    for number in 0..20 {
        let token = format!("good-{number}");
        let asker = Asker { peer: peer(3), ..with_token(&token) };
        assert_eq!(port.judge(&asker, "GET", "/metrics"), Verdict::Allowed);
    }
}

/// A deleted account is refused after the time of the cache; the one that is restored, after 30 s.
#[test]
fn a_good_token_that_became_bad_is_refused() {
    let mut port = Port::new();
    assert_eq!(port.get("good"), Verdict::Allowed);
    port.server.user = |_| None;
    port.server.wait(119);
    assert_eq!(port.get("good"), Verdict::Allowed);
    port.server.wait(1);
    assert_eq!(port.get("good"), Verdict::Unauthorized);
    port.server.user = |_| Some("back");
    port.server.wait(29);
    assert_eq!(port.get("good"), Verdict::Unauthorized);
    port.server.wait(1);
    assert_eq!(port.get("good"), Verdict::Allowed);
}

/// The API server judges tokens of ServiceAccounts before it asks a webhook, which hangs.
#[test]
fn an_unknown_token_without_an_answer_stops_only_unknown_ones_of_its_address() {
    let mut port = Port::new();
    assert_eq!(port.get("good"), Verdict::Allowed);
    port.server.wait(120);
    (port.server.instead, port.server.takes) = (silent(), Duration::from_secs(4));
    assert_eq!(port.timed(&with_token("bad"), "/metrics"), (Verdict::Unauthorized, 4));
    (port.server.instead, port.server.takes) = (None, Duration::ZERO);
    assert_eq!(port.get("good"), Verdict::Allowed, "its token is reviewed again");
    assert_eq!(port.server.tokens.len(), 3);
    assert_eq!(port.judge(&with_certificate(&phibby()), "GET", "/metrics"), Verdict::Allowed);
    assert_eq!(port.get("good-new"), Verdict::Unauthorized);
    // A scraper whose token was replaced.
    let other = Asker { peer: peer(2), ..with_token("good-2") };
    assert_eq!(port.judge(&other, "GET", "/metrics"), Verdict::Allowed);
    port.server.wait(5);
    assert_eq!(port.get("good-new"), Verdict::Unauthorized);
    port.server.wait(1);
    assert_eq!(port.get("good-new"), Verdict::Allowed);
}

/// One silence blocks for 4 s, or twice if the first review is of an unknown token; what is known
/// is answered meanwhile.
#[test]
fn after_a_review_without_an_answer_none_is_sent_for_five_seconds() {
    let mut port = Port::new();
    assert_eq!(port.get("good"), Verdict::Allowed);
    port.server.instead = silent();
    port.server.takes = Duration::from_secs(4);
    let user = phibby();
    assert_eq!(port.timed(&with_token("new"), "/metrics"), (Verdict::Unauthorized, 4));
    assert_eq!(port.timed(&with_token("new"), "/metrics"), (Verdict::Unauthorized, 0));
    assert_eq!(port.timed(&with_certificate(&user), "/metrics"), (Verdict::Failed, 4));
    assert_eq!(port.timed(&with_certificate(&user), "/metrics"), (Verdict::Failed, 0));
    assert_eq!(port.timed(&with_token("new"), "/metrics"), (Verdict::Unauthorized, 0));
    assert_eq!(port.timed(&with_token("good"), "/metrics"), (Verdict::Allowed, 0));
    port.server.wait(5);
    assert_eq!(port.timed(&with_certificate(&user), "/metrics"), (Verdict::Failed, 4));
    assert_eq!(port.timed(&with_token("new"), "/metrics"), (Verdict::Unauthorized, 0));
    port.server.wait(5);
    (port.server.instead, port.server.takes) = (None, Duration::ZERO);
    assert_eq!(port.timed(&with_certificate(&user), "/metrics"), (Verdict::Allowed, 0));
    // Silence is not kept, and a review that was not sent spends nothing.
    assert_eq!(port.timed(&with_token("good-new"), "/metrics"), (Verdict::Allowed, 0));
}

/// A token that no API server reads stops no other review.
#[test]
fn a_token_of_a_strange_form_is_a_bad_one() {
    let mut port = Port::new();
    for code in [400, 413, 422] {
        port.server.instead = Some(answered(code, json!({"reason": "BadRequest"})));
        let token = format!("strange-{code}");
        assert_eq!(port.get(&token), Verdict::Unauthorized);
    }
    port.server.instead = None;
    assert_eq!(port.get("strange-400"), Verdict::Unauthorized);
    assert_eq!(port.server.tokens.len(), 3, "it is known");
    assert_eq!(port.get("good"), Verdict::Allowed);
}

/// A gateway in front of the API server answers instead of it: nothing is known of the token.
#[test]
fn a_page_of_a_gateway_is_a_failed_review_of_a_token() {
    for code in [400, 413, 422, 502] {
        let mut port = Port::new();
        assert_eq!(port.get("good"), Verdict::Allowed);
        port.server.wait(120);
        port.server.instead = Some(answered(code, Value::Null));
        collect_lines();
        assert_eq!(port.get("good"), Verdict::Unauthorized);
        let lines = take_lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&format!("tokenreviews: {code}; ")), "{lines:?}");
        port.server.instead = None;
        port.server.wait(5);
        assert_eq!(port.get("good"), Verdict::Allowed, "{code}");
    }
}

/// Each other connection waits for a judgement.
#[test]
fn a_judgement_has_4_s_for_all_its_reviews() {
    let mut port = Port::new();
    port.server.takes = Duration::from_secs(3);
    port.server.allows = |subresource| subresource == "proxy";
    let judge = |port: &mut Port| port.timed(&with_token("good"), "/healthz");
    assert_eq!(judge(&mut port), (Verdict::Failed, 4));
    // Each answer is kept, so the next ones get further.
    port.server.wait(5);
    assert_eq!(judge(&mut port), (Verdict::Failed, 4));
    port.server.wait(5);
    assert_eq!(judge(&mut port), (Verdict::Allowed, 3));
    assert_eq!(judge(&mut port), (Verdict::Allowed, 0));
    // No time is left for a second review.
    port.server.takes = Duration::from_secs(4);
    port.server.wait(3600);
    let questions = port.server.questions.len();
    assert_eq!(judge(&mut port), (Verdict::Failed, 4));
    assert_eq!(port.server.questions.len(), questions);
}

/// `pkg/kubelet/server/auth_test.go` TestGetRequestAttributes, with the gate that 1.36 has
/// locked, and TestIsSubPath.
#[test]
fn test_get_request_attributes() {
    for (path, want) in [
        ("/attach/{podNamespace}/{podID}/{containerName}", &["proxy"][..]),
        ("/checkpoint/{podNamespace}/{podID}/{containerName}", &["checkpoint"]),
        ("/configz", &["configz", "proxy"]),
        ("/flagz", &["configz"]),
        ("/statusz", &["statusz"]),
        ("/containerLogs/{podNamespace}/{podID}/{containerName}", &["proxy"]),
        ("/debug/flags/v", &["proxy"]),
        ("/debug/pprof/{subpath:*}", &["proxy"]),
        ("/exec/{podNamespace}/{podID}/{containerName}", &["proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/healthz/log", &["healthz", "proxy"]),
        ("/logs/", &["log"]),
        ("/metrics", &["metrics"]),
        ("/metrics/slis", &["metrics"]),
        ("/metrics/cadvisor", &["metrics"]),
        ("/metrics/probes", &["metrics"]),
        ("/metrics/resource", &["metrics"]),
        ("/pods/", &["pods", "proxy"]),
        ("/portForward/{podNamespace}/{podID}", &["proxy"]),
        ("/run/{podNamespace}/{podID}/{containerName}", &["proxy"]),
        ("/runningpods/", &["pods", "proxy"]),
        ("/stats/", &["stats"]),
        ("/stats/summary", &["stats"]),
        // Not in the table of upstream.
        ("/", &["proxy"]),
        ("//metrics", &["proxy"]),
        ("/metricsx", &["proxy"]),
        ("/%6detrics", &["proxy"]),
    ] {
        assert_eq!(subresources(path), want, "{path}");
    }
    for (method, want) in [
        ("POST", "create"),
        ("GET", "get"),
        ("PUT", "update"),
        ("PATCH", "patch"),
        ("DELETE", "delete"),
        ("HEAD", ""),
        ("get", ""),
    ] {
        assert_eq!(verb(method), want, "{method}");
    }
}
