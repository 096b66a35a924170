//! `pkg/kubelet/server/server_test.go` TestAuthFilters, TestAuthenticationError,
//! TestAuthenticationFailure, TestAuthorizationSuccess; `auth_test.go` TestFineGrainedAuthz. And
//! what is kept, for how long, and what a bad token costs.

use std::cell::Cell;

use super::*;
use crate::config::flags::Flags;
use crate::kube::message::answered;
use crate::kube::text::Fault;
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

    fn call(&mut self, request: &Request, deadline: Mono) -> Answer {
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

/// With these flags.
fn access_with(words: &[&str]) -> Access {
    Access::new(ServeConfig::new(&Flags::of(words).values).unwrap().access, "test")
}

fn access() -> Access {
    access_with(&[])
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

fn get(access: &mut Access, token: &str, server: &mut Server) -> Verdict {
    access.judge(&with_token(token), "GET", "/metrics", server)
}

fn silent() -> Option<Answer> {
    Some(Err(Fault::new("no answer", "")))
}

/// TestAuthFilters: nobody is allowed anything. The rows of the paths are in `attributes`.
#[test]
fn test_auth_filters() {
    let user = phibby();
    let mut server = Server { allows: |_| false, ..Server::new() };
    let mut judge =
        |method, path| access().judge(&with_certificate(&user), method, path, &mut server);
    for (method, path, want) in [
        ("GET", "/metrics/resource", "user \"phibby\" needs the verb \"get\" on nodes/metrics"),
        (
            "POST",
            "/healthz/log",
            "user \"phibby\" needs the verb \"create\" on nodes/healthz or nodes/proxy",
        ),
        ("HEAD", "/exec/a/b/c", "user \"phibby\" needs the verb \"\" on nodes/proxy"),
    ] {
        assert_eq!(judge(method, path), Verdict::Forbidden(want.to_owned()));
    }
    assert_eq!(server.tokens, [] as [&str; 0], "the certificate counts, and not the token");
    assert_eq!(
        server.questions[0],
        json!({
            "user": "phibby",
            "groups": ["system:authenticated"],
            "resourceAttributes": {
                "verb": "get",
                "version": "v1",
                "resource": "nodes",
                "subresource": "metrics",
                "name": "test",
            },
        })
    );
}

/// `auth_test.go` TestFineGrainedAuthz, for /configz.
#[test]
fn test_fine_grained_authz() {
    let user = phibby();
    for (allows, want, asked) in [
        ((|_| false) as fn(&str) -> bool, false, &["configz", "proxy"][..]),
        (|subresource| subresource == "proxy", true, &["configz", "proxy"]),
        (|subresource| subresource == "configz", true, &["configz"]),
    ] {
        let mut server = Server { allows, ..Server::new() };
        let verdict = access().judge(&with_certificate(&user), "GET", "/configz", &mut server);
        assert_eq!(verdict == Verdict::Allowed, want, "{verdict:?}");
        assert_eq!(server.subresources(), asked);
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
        let mut server = Server { instead, ..Server::new() };
        let verdict = access().judge(&with_certificate(&user), "GET", "/healthz", &mut server);
        assert_eq!(verdict, Verdict::Failed);
        assert_eq!(server.subresources(), ["healthz"]);
    }
}

/// TestAuthenticationFailure: nothing is asked about what an unknown user may.
#[test]
fn test_authentication_failure() {
    let mut server = Server::new();
    let nobody = Asker { user: None, token: None, peer: peer(1) };
    assert_eq!(access().judge(&nobody, "GET", "/healthz", &mut server), Verdict::Unauthorized);
    assert_eq!(get(&mut access(), "bad", &mut server), Verdict::Unauthorized);
    for status in [
        json!({}),
        json!({"authenticated": false, "user": {"username": "x"}}),
        json!({"authenticated": "true", "user": {"username": "x"}}),
        json!({"authenticated": true}),
        json!({"authenticated": true, "user": {"username": ""}}),
        json!({"authenticated": true, "user": {"username": "x"}, "error": "expired"}),
        json!({"authenticated": true, "user": {"username": "x", "uid": "x".repeat(MAX_USER)}}),
    ] {
        server.instead = Some(answered(201, json!({"status": status})));
        assert_eq!(get(&mut access(), "good", &mut server), Verdict::Unauthorized, "{status}");
    }
    assert_eq!(server.questions, [] as [Value; 0]);
    // --authentication-token-webhook=false.
    let mut access = access_with(&["--authentication-token-webhook=false"]);
    let asked = server.tokens.len();
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Unauthorized);
    assert_eq!(server.tokens.len(), asked);
}

/// TestAuthorizationSuccess, and what the API server is asked.
#[test]
fn test_authorization_success() {
    let mut server = Server::new();
    let mut access = access();
    assert_eq!(get(&mut access, "good \"\\", &mut server), Verdict::Allowed);
    assert_eq!(server.tokens, ["good \"\\"]);
    assert_eq!(
        server.questions,
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
    assert_eq!(access.counts(), ReviewCounts { tokens: 1, access: 1 });
    let debug = format!("{access:?}");
    assert!(!debug.contains("good"), "{debug}");
}

#[test]
fn answers_are_kept_for_the_times_of_the_flags() {
    let mut server = Server::new();
    let mut access = access();
    let mut asked_after = |seconds: u64, server: &mut Server| {
        server.wait(seconds);
        let before = (server.tokens.len(), server.questions.len());
        get(&mut access, "good", server);
        (server.tokens.len() - before.0, server.questions.len() - before.1)
    };
    assert_eq!(asked_after(0, &mut server), (1, 1));
    assert_eq!(asked_after(119, &mut server), (0, 0));
    assert_eq!(asked_after(1, &mut server), (1, 0));
    assert_eq!(asked_after(119, &mut server), (0, 0));
    assert_eq!(asked_after(61, &mut server), (1, 1), "300 s after the first");
    server.allows = |_| false;
    assert_eq!(asked_after(300, &mut server), (1, 1));
    assert_eq!(asked_after(29, &mut server), (0, 0));
    assert_eq!(asked_after(1, &mut server), (0, 1));
}

/// Another user, verb or subresource is another question.
#[test]
fn no_two_users_share_an_answer() {
    let mut server = Server::new();
    let mut access = access();
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
                access.judge(&with_certificate(user), method, path, &mut server);
            }
        }
    }
    assert_eq!(server.questions.len(), users.len() * 3);
}

/// The first token of a cold start is reviewed, and a bad one is known for 30 s.
#[test]
fn bad_tokens_cost_four_reviews_and_then_one_a_second() {
    let mut server = Server::new();
    let mut access = access();
    for _ in 0..50 {
        assert_eq!(get(&mut access, "bad", &mut server), Verdict::Unauthorized);
    }
    assert_eq!(server.tokens.len(), 1);
    // 48 a second, each another one, for 10 s.
    for number in 0..480 {
        server.now.set(Mono::START.after(Duration::from_millis(1000 * number / 48)));
        assert_eq!(get(&mut access, &format!("bad-{number}"), &mut server), Verdict::Unauthorized);
    }
    let reviews = server.tokens.len();
    assert!((12..=14).contains(&reviews), "{reviews}");
    server.wait(30);
    get(&mut access, "bad", &mut server);
    assert_eq!(server.tokens.len(), reviews + 1);
}

/// Everybody waits for a review: one that takes 3 s is as dear as four.
#[test]
fn slow_reviews_of_bad_tokens_are_few() {
    for (takes, want) in [(0, 4), (1, 2), (3, 1), (4, 1)] {
        let (mut access, mut server) = (access(), Server::new());
        server.takes = Duration::from_secs(takes);
        let ask = |access: &mut Access, server: &mut Server, name: &str| {
            assert_eq!(get(access, name, server), Verdict::Unauthorized);
        };
        for number in 0..7 {
            ask(&mut access, &mut server, &format!("bad-{number}"));
        }
        assert_eq!(server.tokens.len(), want, "{takes} s");
        server.wait(1);
        ask(&mut access, &mut server, "bad-again");
        assert_eq!(server.tokens.len(), want + 1, "{takes} s");
    }
}

#[test]
fn a_good_token_is_not_refused_because_others_were_bad() {
    let mut server = Server::new();
    let mut access = access();
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Allowed);
    let flood = |server: &mut Server, access: &mut Access| {
        for number in 0..100 {
            let token = format!("bad-{number}-{:?}", server.now());
            assert_eq!(get(access, &token, server), Verdict::Unauthorized);
        }
    };
    // Known, beyond its time, from the address of the others.
    for _ in 0..10 {
        flood(&mut server, &mut access);
        assert_eq!(get(&mut access, "good", &mut server), Verdict::Allowed);
        server.wait(130);
    }
    // New, from another address.
    flood(&mut server, &mut access);
    let asker = Asker { peer: peer(2), ..with_token("good-2") };
    assert_eq!(access.judge(&asker, "GET", "/metrics", &mut server), Verdict::Allowed);
    // New ones that are good spend nothing.
    for number in 0..20 {
        let token = format!("good-{number}");
        let asker = Asker { peer: peer(3), ..with_token(&token) };
        assert_eq!(access.judge(&asker, "GET", "/metrics", &mut server), Verdict::Allowed);
    }
}

/// A deleted account is refused after the time of the cache; the one that is restored, after 30 s.
#[test]
fn a_good_token_that_became_bad_is_refused() {
    let mut server = Server::new();
    let mut access = access();
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Allowed);
    server.user = |_| None;
    server.wait(119);
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Allowed);
    server.wait(1);
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Unauthorized);
    server.user = |_| Some("back");
    server.wait(29);
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Unauthorized);
    server.wait(1);
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Allowed);
}

/// One silence blocks for 4 s; what is known is answered meanwhile.
#[test]
fn after_a_review_without_an_answer_none_is_sent_for_five_seconds() {
    let mut server = Server::new();
    let mut access = access();
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Allowed);
    server.instead = silent();
    server.takes = Duration::from_secs(4);
    let user = phibby();
    let mut judged = |asker: &Asker<'_>, server: &mut Server| {
        let before = server.now();
        let verdict = access.judge(asker, "GET", "/metrics", server);
        (verdict, server.now().since(before).as_secs())
    };
    assert_eq!(judged(&with_token("new"), &mut server), (Verdict::Unauthorized, 4));
    assert_eq!(judged(&with_token("new"), &mut server), (Verdict::Unauthorized, 0));
    assert_eq!(judged(&with_certificate(&user), &mut server), (Verdict::Failed, 0));
    assert_eq!(judged(&with_token("good"), &mut server), (Verdict::Allowed, 0));
    server.wait(5);
    assert_eq!(judged(&with_certificate(&user), &mut server), (Verdict::Failed, 4));
    server.wait(5);
    (server.instead, server.takes) = (None, Duration::ZERO);
    assert_eq!(judged(&with_certificate(&user), &mut server), (Verdict::Allowed, 0));
    // Silence is not kept, and spends nothing.
    assert_eq!(judged(&with_token("good-new"), &mut server), (Verdict::Allowed, 0));
}

/// A token that no API server reads stops no other review.
#[test]
fn a_token_of_a_strange_form_is_a_bad_one() {
    let mut server = Server::new();
    let mut access = access();
    for code in [400, 413, 422] {
        server.instead = Some(answered(code, json!({"reason": "BadRequest"})));
        let token = format!("strange-{code}");
        assert_eq!(get(&mut access, &token, &mut server), Verdict::Unauthorized);
    }
    server.instead = None;
    assert_eq!(get(&mut access, "strange-400", &mut server), Verdict::Unauthorized);
    assert_eq!(server.tokens.len(), 3, "it is known");
    assert_eq!(get(&mut access, "good", &mut server), Verdict::Allowed);
}

/// Each other connection waits for a judgement.
#[test]
fn a_judgement_has_4_s_for_all_its_reviews() {
    let (mut access, mut server) = (access(), Server::new());
    server.takes = Duration::from_secs(3);
    server.allows = |subresource| subresource == "proxy";
    let mut judge = |server: &mut Server| {
        let begin = server.now();
        let verdict = access.judge(&with_token("good"), "GET", "/healthz", server);
        (verdict, server.now().since(begin).as_secs())
    };
    assert_eq!(judge(&mut server), (Verdict::Failed, 4));
    // Each answer is kept, so the next ones get further.
    server.wait(5);
    assert_eq!(judge(&mut server), (Verdict::Failed, 4));
    server.wait(5);
    assert_eq!(judge(&mut server), (Verdict::Allowed, 3));
    assert_eq!(judge(&mut server), (Verdict::Allowed, 0));
    // No time is left for a second review.
    server.takes = Duration::from_secs(4);
    server.wait(3600);
    let questions = server.questions.len();
    assert_eq!(judge(&mut server), (Verdict::Failed, 4));
    assert_eq!(server.questions.len(), questions);
}
