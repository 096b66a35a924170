#![allow(unused_must_use, reason = "most results have a test of their own")]

mod serving;
mod supervisor;
mod upstream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::csr::CSRS;
use super::*;

use crate::kube::message::{Method, Request, Response, answered, not_found};
use crate::kube::x509::{self, DerReader, Purpose, Wanted, element, pem};

/// The time now in these tests.
pub(crate) fn noon() -> Wall {
    Wall::parse("2026-05-02T12:00:00Z").unwrap()
}

pub(crate) fn hours(n: u64) -> Duration {
    Duration::from_secs(n * 3600)
}

pub(crate) fn at(seconds: u64, wall: Wall) -> Now {
    Now { mono: Mono::START.after(Duration::from_secs(seconds)), wall }
}

pub(crate) fn subject() -> Subject {
    Subject::of_node("pi")
}

/// DER in the place of a public key; each number gives another one.
pub(crate) fn key(number: u8) -> Vec<u8> {
    element(x509::SEQUENCE, &[&[number]])
}

pub(crate) fn leaf(not_before: Wall, not_after: Wall) -> Leaf {
    Leaf { subject: subject(), not_before, not_after, public_key: key(0) }
}

/// The certificate of a signer, PEM, without a signature.
pub(crate) fn certificate(leaf: &Leaf) -> String {
    let time = |wall: Wall| {
        let text = wall.time().replace(['-', ':', 'T'], "");
        element(x509::GENERALIZED_TIME, &[text.as_bytes()])
    };
    let wanted = Wanted { subject: leaf.subject.clone(), public_key: Vec::new() };
    let info = wanted.encode();
    let mut info = DerReader::new(&info).inside(x509::SEQUENCE).unwrap();
    info.next(x509::INTEGER).unwrap();
    let (_, _, name) = info.any().unwrap();
    let body = element(
        x509::SEQUENCE,
        &[
            &element(x509::INTEGER, &[&[1]]),
            &element(x509::SEQUENCE, &[]),
            &element(x509::SEQUENCE, &[]),
            &element(x509::SEQUENCE, &[&time(leaf.not_before), &time(leaf.not_after)]),
            name,
            &leaf.public_key,
        ],
    );
    let whole = element(x509::SEQUENCE, &[&body]);
    pem("CERTIFICATE", &whole)
}

/// A certificate of this kind.
pub(crate) fn holding(kind: CertificateKind, held: Option<Leaf>) -> Certificate {
    Certificate::new(kind, subject(), held, false, Jitter::NONE)
}

/// The same, whose CSR must be created.
fn signing(kind: CertificateKind, held: Option<Leaf>) -> Certificate {
    let mut certificate = holding(kind, held);
    certificate.on_task(TaskResult::Signed(signed(1)), at(0, noon())).unwrap();
    certificate
}

impl Certificate {
    /// The file task that is next, if one is.
    fn file_task(&self, now: Wall) -> Option<FileTask> {
        match self.next(now) {
            Next::Files(task) => Some(task),
            Next::Send(_) => None,
        }
    }

    /// The request that is next, if one is.
    fn request(&self) -> Option<Request> {
        match self.next(noon()) {
            Next::Files(_) => None,
            Next::Send(request) => Some(request),
        }
    }
}

pub(crate) fn signed(number: u8) -> SigningRequest {
    let wanted = Wanted { subject: subject(), public_key: key(number) };
    SigningRequest {
        purpose: Purpose::CLIENT,
        der: element(x509::SEQUENCE, &[&wanted.encode()]),
        wanted,
        usages: vec!["digital signature", "client auth"],
        name: format!("node-csr-{number}"),
    }
}

const RESOURCE: &str = "certificatesigningrequests";

pub(crate) const BOOTSTRAP: CertificateKind = CertificateKind::Bootstrapped;
pub(crate) const ROTATE: CertificateKind = CertificateKind::Rotated;
const ROTATE_OR_BOOTSTRAP: CertificateKind = CertificateKind::RotatedOrBootstrapped;
pub(crate) const SUPERVISOR: CertificateKind = CertificateKind::Supervisor;

/// The CSR on the server.
pub(crate) fn csr(name: &str, request: &SigningRequest) -> Value {
    json!({
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "uid": "u"},
        "spec": {"request": STANDARD.encode(request.pem()), "signerName": Purpose::CLIENT.signer},
    })
}

fn with(mut csr: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    let mut place = &mut csr;
    for name in parent.split('/').filter(|name| !name.is_empty()) {
        place = &mut place[name];
    }
    place[key] = value;
    csr
}

pub(crate) fn approved(csr: Value, chain: &str) -> Value {
    let status = json!({
        "conditions": [{"type": "Approved", "reason": "AutoApproved", "message": "m"}],
        "certificate": STANDARD.encode(chain),
    });
    with(csr, "/status", status)
}

fn condition(csr: Value, kind: &str) -> Value {
    let condition = json!({"type": kind, "reason": "Why", "message": "because"});
    with(csr, "/status", json!({"conditions": [condition]}))
}

/// A certificate whose CSR was just created with this name.
fn waiting(kind: CertificateKind, name: &str) -> Certificate {
    let mut certificate = signing(kind, None);
    let created = answered(201, csr(name, &signed(1)));
    assert_eq!(certificate.on_response(created, at(0, noon())), Ok(None));
    certificate
}

/// Whether the next CSR needs a new key. Without a certificate the search before it finds none.
fn new_key(certificate: &Certificate) -> Option<bool> {
    let mut certificate = certificate.clone();
    if certificate.file_task(noon()) == Some(FileTask::Find) {
        certificate.on_task(TaskResult::NotFound, at(99_999, noon()));
    }
    match certificate.file_task(noon()) {
        Some(FileTask::Sign { new_key, .. }) => Some(new_key),
        _ => None,
    }
}

/// The chain that must be installed.
fn install(certificate: &Certificate) -> Option<String> {
    match certificate.file_task(noon()) {
        Some(FileTask::Install(chain)) => Some(chain),
        _ => None,
    }
}

fn why(result: Result<Option<String>, RequestError>) -> String {
    result.unwrap_err().why.to_string()
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

#[test]
fn a_csr_is_named_by_its_digest_or_by_the_server() {
    for (kind, metadata) in
        [(BOOTSTRAP, json!({"name": "node-csr-1"})), (ROTATE, json!({"generateName": "csr-"}))]
    {
        let mut certificate = holding(kind, None);
        assert_eq!(new_key(&certificate), Some(false));
        assert_eq!(certificate.request(), None);
        certificate.on_task(TaskResult::Signed(signed(1)), at(0, noon()));
        assert_eq!(certificate.file_task(noon()), None);
        let request = certificate.request().unwrap();
        assert_eq!((request.method, request.path.as_str()), (Method::Post, CSRS));
        assert_eq!(
            body(&request),
            json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": metadata,
                "spec": {
                    "request": STANDARD.encode(signed(1).pem()),
                    "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                    "usages": ["digital signature", "client auth"],
                },
            })
        );
    }
}

#[test]
fn a_csr_is_read_with_growing_pauses_until_its_chain_is_installed() {
    let name = "csr-x7";
    let mut certificate = waiting(ROTATE, name);
    let reads = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 20_800];
    for (number, millis) in reads.into_iter().enumerate() {
        let now = Now { mono: Mono::START.after(Duration::from_millis(millis)), wall: noon() };
        assert_eq!(certificate.due(now), now.mono);
        assert_eq!(certificate.due(at(0, noon())), now.mono);
        let request = certificate.request().unwrap();
        assert_eq!(request.method, Method::Get);
        assert_eq!(request.path, format!("{CSRS}/{name}"));
        let pending = csr(name, &signed(1));
        let pending = match number {
            // Approved, but not signed yet.
            1 => condition(pending, "Approved"),
            _ => pending,
        };
        let result = certificate.on_response(answered(200, pending), now);
        let pending = "csr-x7 waits for approval: kubectl certificate approve csr-x7";
        let want = match millis {
            12_800 => Ok(Some(pending.into())),
            _ => Ok(None),
        };
        assert_eq!(result, want, "{millis}");
    }
    let issued = Leaf { public_key: key(1), ..leaf(noon(), noon().after(hours(100))) };
    let chain = format!("{}rest of the chain", self::certificate(&issued));
    let now = at(32, noon());
    let response = answered(200, approved(csr(name, &signed(1)), &chain));
    assert_eq!(certificate.on_response(response, now), Ok(None));
    assert_eq!(certificate.due(now), now.mono);
    assert_eq!(install(&certificate), Some(chain.clone()));
    // The disk is full: the installation of the same chain is retried.
    let full = TaskResult::Failed("no space left on device".into());
    let result = certificate.on_task(full, now);
    assert_eq!(result, Err("no space left on device".into()));
    assert_eq!(certificate.due(now), at(34, noon()).mono);
    assert_eq!(install(&certificate), Some(chain.clone()));
    // Nor can it be stored, but the board need not wait for that.
    let unstored = || TaskResult::NotStored(issued.clone(), "no space left on device".to_owned());
    let result = certificate.on_task(unstored(), at(34, noon()));
    assert_eq!(result, Err("no space left on device".into()));
    assert!(!certificate.is_missing() && certificate.is_usable(noon().after(hours(99))));
    assert_eq!(certificate.due(now), at(38, noon()).mono);
    assert_eq!(install(&certificate), Some(chain.clone()));
    // It is due for renewal before it could be stored.
    let mut never_stored = certificate.clone();
    let later = at(38, noon().after(hours(70)));
    never_stored.on_task(unstored(), later);
    assert!(matches!(never_stored.file_task(later.wall), Some(FileTask::Sign { .. })));
    certificate.on_task(TaskResult::InUse(issued), at(38, noon()));
    assert_eq!(certificate.due(now), now.mono.after(hours(70)));
}

/// server_bootstrap_test.go: a certificate that is expired when it is issued is not stored.
#[test]
fn a_failed_csr_has_a_log_line_and_a_retry() {
    let name = "node-csr-1";
    let pending = || csr(name, &signed(1));
    let mine = Leaf { public_key: key(1), ..leaf(noon(), noon().after(hours(1))) };
    let chain = |leaf: Leaf| certificate(&leaf);
    for (what, body, another_key) in [
        (
            "was denied: Why: because; ask the CSR approver, then: kubectl delete csr node-csr-1",
            condition(pending(), "Denied"),
            false,
        ),
        (
            "could not be signed: Why: because; see the signer's log (kube-controller-manager), then: kubectl delete csr node-csr-1",
            condition(pending(), "Failed"),
            false,
        ),
        (
            "was replaced by another CSR of that name; requesting again",
            with(pending(), "/metadata/uid", json!("other")),
            false,
        ),
        (
            "exists already and is not ours: its key differs; requesting with another key",
            csr(name, &signed(2)),
            true,
        ),
        (
            "has an unusable certificate: it is for another key; requesting with another key",
            approved(pending(), &chain(leaf(noon(), noon().after(hours(1))))),
            true,
        ),
        (
            "has an unusable certificate: it is for \"system:node:other\"; requesting with another key",
            approved(
                pending(),
                &chain(Leaf {
                    subject: Subject { common_name: "system:node:other".into(), ..subject() },
                    ..mine.clone()
                }),
            ),
            true,
        ),
        (
            "has an unusable certificate: it expired at 2026-05-02T11:00:00Z, clock says 2026-05-02T12:00:00Z; set the clock of this board, or that of the signer",
            approved(
                pending(),
                &chain(Leaf {
                    not_after: noon().before(hours(1)),
                    not_before: noon().before(hours(2)),
                    ..mine
                }),
            ),
            true,
        ),
        (
            "has an unusable certificate: it is not X.509; requesting with another key",
            approved(pending(), "certificate"),
            true,
        ),
        (
            "has an unusable certificate: invalid base64; requesting with another key",
            with(approved(pending(), ""), "/status/certificate", json!("(")),
            true,
        ),
    ] {
        let mut certificate = waiting(BOOTSTRAP, name);
        let result = certificate.on_response(answered(200, body), at(5, noon()));
        assert_eq!(why(result), format!("{name} {what}"));
        assert_eq!(new_key(&certificate), Some(another_key), "{what}");
        assert_eq!(certificate.due(at(5, noon())), at(7, noon()).mono, "{what}");
    }
    // A semicolon in a message of the server does not begin the remedy.
    let mut certificate = waiting(BOOTSTRAP, name);
    let mut denied = condition(pending(), "Denied");
    denied["status"]["conditions"][0]["message"] = "no; run this".into();
    let result = certificate.on_response(answered(200, denied), at(5, noon()));
    let remedy = "ask the CSR approver, then: kubectl delete csr node-csr-1";
    let want = Fault::new("node-csr-1 was denied: Why: no; run this", remedy);
    assert_eq!(result.unwrap_err().why, want);
    let mut certificate = waiting(BOOTSTRAP, name);
    let result = certificate.on_response(not_found(RESOURCE, name), at(5, noon()));
    let want = "node-csr-1 was deleted before it was signed; requesting again";
    assert_eq!(why(result), want);
    assert_eq!(new_key(&certificate), Some(false));
}

#[test]
fn an_unsigned_csr_is_given_up_after_the_limit() {
    for (kind, seconds) in [(BOOTSTRAP, 3600), (ROTATE, 900)] {
        let mut certificate = waiting(kind, "c");
        for outcome in [
            answered(200, csr("c", &signed(1))),
            answered(403, json!({"reason": "Forbidden", "message": "no"})),
            answered(200, json!({"kind": "Status"})),
        ] {
            let before = certificate.clone().on_response(outcome.clone(), at(seconds - 1, noon()));
            assert!(before.map_or_else(|e| !e.why.what.contains("was not signed"), |_| true));
            let result = certificate.clone().on_response(outcome, at(seconds, noon()));
            assert_eq!(
                why(result),
                format!(
                    "c was not signed within {seconds} s; approve the next one: kubectl get csr, \
                     then kubectl certificate approve NAME"
                )
            );
        }
        // An unanswered read does not give the CSR up: it may be signed.
        let silent = Err("slow".into());
        let result = certificate.on_response(silent, at(seconds, noon()));
        assert_eq!(why(result), "slow");
        assert_eq!(certificate.request().unwrap().method, Method::Get);
    }
}

#[test]
fn an_existing_csr_of_that_name_is_used_if_its_key_is_ours() {
    let exists = || answered(409, json!({"reason": "AlreadyExists", "message": "m"}));
    let mut certificate = signing(BOOTSTRAP, None);
    let now = at(3, noon());
    assert_eq!(certificate.on_response(exists(), now), Ok(None));
    assert_eq!(certificate.due(now), now.mono);
    assert_eq!(certificate.request().unwrap().method, Method::Get);
    let found = answered(200, csr("node-csr-1", &signed(1)));
    assert_eq!(certificate.clone().on_response(found, now), Ok(None));
    // After that, another uid is another CSR.
    let mut later = certificate.clone();
    later.on_response(answered(200, csr("node-csr-1", &signed(1))), now);
    let other = with(csr("node-csr-1", &signed(1)), "/metadata/uid", json!("v"));
    assert!(later.on_response(answered(200, other), now).is_err());
    // Another client's CSR needs a new key; a deleted one does not.
    let result = certificate.clone().on_response(answered(200, csr("node-csr-1", &signed(2))), now);
    assert!(why(result).contains("its key differs"));
    assert!(certificate.on_response(not_found(RESOURCE, "node-csr-1"), now).is_err());
    assert_eq!(new_key(&certificate), Some(false));

    // A generated name never exists before.
    let mut certificate = signing(ROTATE, None);
    assert!(certificate.on_response(exists(), now).is_err());
}

#[test]
fn refusals_are_retried_with_backoff_without_a_limit() {
    let mut certificate = holding(BOOTSTRAP, None);
    let mut second = 0;
    for wait in [2, 4, 8, 16, 32, 32, 32] {
        let now = at(second, noon());
        assert_eq!(certificate.due(now), now.mono);
        certificate.on_task(TaskResult::Signed(signed(1)), now);
        let refused = answered(401, json!({"reason": "Unauthorized", "message": "Unauthorized"}));
        let result = certificate.on_response(refused, now);
        assert_eq!(
            why(result),
            "cannot create a CSR: 401 Unauthorized: Unauthorized; check the bootstrap token \
                 and this board's clock"
        );
        second += wait;
        assert_eq!(certificate.due(now), at(second, noon()).mono, "{wait}");
    }
    // With jitter, and with Retry-After up to 32 s.
    let now = at(second, noon());
    let busy = |seconds| {
        Ok(Response { retry_after: Some(Duration::from_secs(seconds)), ..Response::test(429, "") })
    };
    for (retry_after, random, due) in [(20, 0, 2.0), (20, 1000, 2.2), (90, 0, 2.0)] {
        let jitter = Jitter::new(random);
        let mut certificate = Certificate::new(BOOTSTRAP, subject(), None, false, jitter);
        certificate.on_task(TaskResult::Signed(signed(1)), now);
        certificate.on_response(busy(retry_after), now);
        let due = Duration::from_secs_f64(due).max(Duration::from_secs(retry_after.min(32)));
        assert_eq!(certificate.due(now), now.mono.after(due));
    }
    // A key that cannot be created or stored is retried, too.
    let failed = certificate.on_task(TaskResult::Failed("the disk is full".into()), now);
    assert_eq!(failed, Err("the disk is full".into()));
    assert_eq!(new_key(&certificate), Some(false));
}

#[test]
fn an_unanswered_create_is_retried_within_7_s() {
    let mut certificate = signing(BOOTSTRAP, None);
    let mut second = 0;
    for wait in [2, 4, 7, 7] {
        let now = at(second, noon());
        let result = certificate.on_response(Err("no route".into()), now);
        assert_eq!(why(result), "no route");
        second += wait;
        assert_eq!(certificate.due(now), at(second, noon()).mono, "{wait}");
        assert_eq!(certificate.request().unwrap().method, Method::Post);
    }
}

#[test]
fn invalid_bodies_are_failures() {
    for invalid in [
        json!(null),
        json!([]),
        json!({"kind": "Status", "metadata": {"name": "c", "uid": "u"}}),
        with(csr("c", &signed(1)), "/metadata/uid", json!("")),
        csr("", &signed(1)),
        csr("../nodes/pi", &signed(1)),
        csr("c?watch=true", &signed(1)),
    ] {
        let mut certificate = signing(ROTATE, None);
        let result = certificate.on_response(answered(201, invalid.clone()), at(0, noon()));
        assert!(result.is_err(), "{invalid}");
        // After a read the same CSR is read again.
        let mut certificate = waiting(ROTATE, "c");
        let result = certificate.on_response(answered(200, invalid.clone()), at(0, noon()));
        assert!(result.is_err(), "{invalid}");
        assert_eq!(certificate.request().unwrap().method, Method::Get);
    }
}

/// The deadline was set to the time of a clock that stood years ahead: the certificate expired
/// before it. In 1970 it is not valid yet: it is kept and not renewed.
#[test]
fn setting_the_clock_moves_the_deadline() {
    let in_1970 = at(0, Wall::default());
    let ahead = |by| at(0, noon().after(by));
    for wrong in [in_1970, ahead(hours(24 * 365)), ahead(hours(10) - Duration::from_secs(60))] {
        let mut certificate = holding(ROTATE_OR_BOOTSTRAP, None);
        let issued = leaf(noon(), noon().after(hours(10)));
        certificate.on_task(TaskResult::InUse(issued), wrong);
        if wrong.wall < noon() {
            assert!(certificate.due(wrong) > wrong.mono.after(hours(24 * 365 * 50)));
            assert!(!certificate.needs_bootstrap(wrong.wall));
        }
        let set = at(60, noon());
        assert_eq!(certificate.due(set), set.mono.after(hours(7)), "{wrong:?}");
    }
}

#[test]
fn a_certificate_due_at_installation_is_replaced_after_half_its_rest() {
    let mut certificate = holding(ROTATE, None);
    // kube-controller-manager backdates certificates by five minutes.
    let minute = Duration::from_secs(60);
    let issued = leaf(noon().before(minute * 5), noon().after(minute));
    certificate.on_task(TaskResult::InUse(issued), at(0, noon()));
    assert_eq!(certificate.due(at(0, noon())), at(30, noon()).mono);
    // After an expired one there is a pause, too.
    let issued = leaf(noon().before(minute * 5), noon().before(minute));
    certificate.on_task(TaskResult::InUse(issued), at(0, noon()));
    assert_eq!(certificate.due(at(0, noon())), at(1, noon()).mono);
}

#[test]
fn an_expired_certificate_is_logged_once_and_requested_with_the_given_credentials() {
    for (kind, needs_bootstrap, what_now) in [
        (BOOTSTRAP, true, "requesting a new one with the bootstrap kubeconfig"),
        (ROTATE, false, "still using it; install a new one, or set --bootstrap-kubeconfig"),
    ] {
        let held = leaf(noon().before(hours(9)), noon());
        let mut certificate = holding(kind, Some(held));
        assert_eq!(certificate.expiry_to_log(noon()), None);
        assert!(!certificate.needs_bootstrap(noon()));
        let late = at(0, noon().after(hours(1)));
        assert_eq!(
            certificate.expiry_to_log(late.wall),
            Some(format!(
                "expired at 2026-05-02T12:00:00Z, clock says 2026-05-02T13:00:00Z; {what_now}"
            ))
        );
        assert_eq!(certificate.expiry_to_log(late.wall), None);
        assert_eq!(certificate.needs_bootstrap(late.wall), needs_bootstrap);
        assert_eq!(certificate.due(late), late.mono);
        assert_eq!(new_key(&certificate), Some(false));
    }
    // Without rotation it is replaced after its expiry.
    let held = leaf(noon().before(hours(9)), noon());
    let certificate = holding(BOOTSTRAP, Some(held));
    let before = at(0, noon().before(hours(1)));
    assert!(certificate.due(before) > before.mono.after(hours(1)));
}

/// A clock that stood an hour ahead for 25 s made the board ask with a bootstrap token that was
/// long gone, and every later request went out with it.
#[test]
fn a_request_is_given_up_when_the_clock_is_set() {
    let ahead = noon().after(hours(1));
    let held = || leaf(noon().before(hours(1)), noon().after(hours(1) / 2));
    for is_waiting in [false, true] {
        let mut certificate = holding(ROTATE_OR_BOOTSTRAP, Some(held()));
        let sign = Some(FileTask::Sign { new_key: false, with_bootstrap: true, is_first: false });
        certificate.follow_clock(at(0, ahead));
        // The held certificate seems to be expired: the files may have another one.
        assert_eq!(certificate.file_task(ahead), Some(FileTask::Find));
        certificate.on_task(TaskResult::NotFound, at(0, ahead));
        assert_eq!(certificate.file_task(ahead), sign);
        certificate.on_task(TaskResult::Signed(signed(1)), at(0, ahead));
        if is_waiting {
            certificate.on_response(answered(201, csr("c", &signed(1))), at(1, ahead));
        }
        certificate.follow_clock(at(24, ahead.after(Duration::from_secs(24))));
        assert_eq!(certificate.file_task(ahead), None);
        let set = at(25, noon().after(Duration::from_secs(25)));
        certificate.follow_clock(set);
        // The held certificate is good after all, and due at 70 % of its life.
        let deadline = held().not_before.after(hours(3) / 2 / 10 * 7);
        assert_eq!(certificate.due(set), set.mono.after(deadline.since(set.wall)));
        let with_own =
            Some(FileTask::Sign { new_key: false, with_bootstrap: false, is_first: false });
        assert_eq!(certificate.file_task(set.wall), with_own);
    }
}

/// A board without an RTC that joins, or starts with a bootstrap token, while NTP sets its clock: a
/// person may approve this request, and no other one.
#[test]
fn the_first_request_is_not_given_up_when_the_clock_is_set() {
    let mut certificate = signing(ROTATE_OR_BOOTSTRAP, None);
    let sent = certificate.request();
    assert!(sent.is_some());
    certificate.follow_clock(at(1, noon().after(hours(9))));
    assert_eq!(certificate.request(), sent);
}

/// Without a new certificate in the files, the board would send the expired one until a restart.
#[test]
fn after_the_expiry_the_files_are_searched_before_each_request() {
    let held = leaf(noon().before(hours(9)), noon());
    let mut certificate = holding(ROTATE, Some(held));
    let late = noon().after(hours(1));
    for second in [0, 60] {
        assert_eq!(certificate.file_task(late), Some(FileTask::Find));
        certificate.on_task(TaskResult::NotFound, at(second, late));
        assert!(matches!(certificate.file_task(late), Some(FileTask::Sign { .. })));
        certificate.on_task(TaskResult::Signed(signed(1)), at(second, late));
        let refused = answered(401, json!({"reason": "Unauthorized"}));
        certificate.on_response(refused, at(second, late));
    }
    let renewed = leaf(late, late.after(hours(9)));
    assert_eq!(certificate.file_task(late), Some(FileTask::Find));
    certificate.on_task(TaskResult::InUse(renewed), at(99, late));
    assert!(certificate.due(at(99, late)) > at(99, late).mono.after(hours(5)));
}

/// A token that died left the CSR waiting for 15 minutes or an hour, with the old credentials.
#[test]
fn a_401_ends_the_wait_for_a_csr_unless_the_held_certificate_is_good() {
    let refused = || answered(401, json!({"reason": "Unauthorized"}));
    let mut certificate = waiting(BOOTSTRAP, "c");
    let result = certificate.on_response(refused(), at(5, noon()));
    assert!(result.is_err());
    assert_eq!(certificate.request(), None);
    // A good certificate is refused for a reason that is not ours: the CSR is not lost.
    let held = leaf(noon().before(hours(9)), noon().after(hours(1)));
    let mut certificate = signing(ROTATE, Some(held));
    certificate.on_response(answered(201, csr("c", &signed(1))), at(0, noon()));
    certificate.on_response(refused(), at(5, noon()));
    assert_eq!(certificate.request().unwrap().method, Method::Get);
    // It expires while the CSR waits.
    certificate.on_response(refused(), at(9, noon().after(hours(2))));
    assert_eq!(certificate.request(), None);
}

/// An operator renews the files: the old expiry means nothing any more.
#[test]
fn a_certificate_that_was_replaced_on_disk_is_the_held_one() {
    let held = leaf(noon().before(hours(9)), noon());
    let mut certificate = holding(BOOTSTRAP, Some(held));
    let late = at(60, noon().after(hours(1)));
    assert!(certificate.due(late) <= late.mono);
    let renewed = leaf(noon(), noon().after(hours(9)));
    certificate.replaced(renewed, late);
    assert!(certificate.due(late) > late.mono.after(hours(7)));
    assert_eq!(certificate.expiry_to_log(late.wall), None);
    assert!(!certificate.needs_bootstrap(late.wall));
}

/// A chain that TLS can never use is not installed again and again: another key is asked for.
#[test]
fn an_unusable_chain_is_given_up() {
    let mut certificate = waiting(ROTATE, "c");
    let issued = Leaf { public_key: key(1), ..leaf(noon(), noon().after(hours(1))) };
    let chain = self::certificate(&issued);
    let response = answered(200, approved(csr("c", &signed(1)), &chain));
    certificate.on_response(response, at(1, noon()));
    assert_eq!(install(&certificate), Some(chain));
    let unusable = TaskResult::Unusable("the issued certificate: not usable".into());
    let result = certificate.on_task(unusable, at(4, noon()));
    assert!(result.is_err());
    assert_eq!(install(&certificate), None);
    assert_eq!(new_key(&certificate), Some(true));
}

/// A gateway that verifies client certificates ends TLS: there is no 401.
#[test]
fn a_csr_without_a_response_is_given_up_when_its_certificate_has_expired() {
    let held = || leaf(noon().before(hours(9)), noon().after(hours(1)));
    for (late, method) in [(hours(0), Some(Method::Post)), (hours(2), None)] {
        let mut certificate = signing(ROTATE_OR_BOOTSTRAP, Some(held()));
        let now = Now { mono: Mono::START.after(late), wall: noon().after(late) };
        let silent = Err("the server ended TLS".into());
        assert!(certificate.on_response(silent, now).is_err());
        assert_eq!(certificate.request().map(|request| request.method), method);
    }
}
