#![allow(unused_must_use, reason = "most results have a test of their own")]

mod supervisor;
mod upstream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::csr::CSRS;
use super::*;

use crate::kube::instant::Now;
use crate::kube::message::{Method, Request, Response, answered, not_found};
use crate::kube::x509::{self, CertificatePurpose, RequestInfo, element, pem};
use crate::node::patch::tests::apply;

/// The time now in these tests.
pub(crate) fn noon() -> Wall {
    Wall::parse("2026-05-02T12:00:00Z").unwrap()
}

pub(crate) fn hours(n: u64) -> Duration {
    Duration::from_secs(n * 3600)
}

pub(crate) fn at(seconds: u64, wall: Wall) -> ClusterSeen {
    Now { mono: Mono::START.after(Duration::from_secs(seconds)), wall }.into()
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

/// The board's clock shows `board`, and that of the server `wall`.
pub(crate) fn seen(seconds: u64, wall: Wall, board: Wall) -> ClusterSeen {
    ClusterSeen { knows_time: true, has_date: true, board, ..at(seconds, wall) }
}

/// The certificate of a signer, PEM, without a signature.
pub(crate) fn certificate(leaf: &Leaf) -> String {
    let time = |wall: Wall| {
        let text = wall.time().replace(['-', ':', 'T'], "");
        element(x509::GENERALIZED_TIME, &[text.as_bytes()])
    };
    let body = element(
        x509::SEQUENCE,
        &[
            &element(x509::INTEGER, &[&[1]]),
            &element(x509::SEQUENCE, &[]),
            &element(x509::SEQUENCE, &[]),
            &element(x509::SEQUENCE, &[&time(leaf.not_before), &time(leaf.not_after)]),
            &leaf.subject.name(),
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
    certificate.on_task(TaskResult::NotFound, at(0, noon())).unwrap();
    certificate.on_task(TaskResult::Signed(signed(1)), at(0, noon())).unwrap();
    certificate
}

impl Certificate {
    /// The file task that is next, if one is.
    fn file_task(&self, now: Wall) -> Option<FileTask> {
        match self.next(Now { mono: self.due, wall: now }.into()) {
            Work::Files(task) => Some(task),
            Work::Send(_) => None,
        }
    }

    /// The request that is next, if one is.
    fn request(&self) -> Option<Request> {
        match self.next(Now { mono: self.due, wall: noon() }.into()) {
            Work::Files(_) => None,
            Work::Send(request) => Some(request),
        }
    }
}

pub(crate) fn signed(number: u8) -> SigningRequest {
    let info = RequestInfo { subject: subject(), public_key: key(number) };
    SigningRequest {
        purpose: CertificatePurpose::CLIENT,
        der: element(x509::SEQUENCE, &[&info.encode()]),
        info,
        usages: vec!["digital signature", "client auth"],
        name: format!("node-csr-{number}"),
    }
}

const RESOURCE: &str = "certificatesigningrequests";

pub(crate) const BOOTSTRAP: CertificateKind = CertificateKind::Bootstrapped;
pub(crate) const ROTATE: CertificateKind = CertificateKind::Rotated;
const ROTATE_OR_BOOTSTRAP: CertificateKind = CertificateKind::RotatedOrBootstrapped;
pub(crate) const SUPERVISOR: CertificateKind = CertificateKind::Supervisor;
const SERVING: CertificateKind = CertificateKind::Serving;

/// The CSR on the server.
pub(crate) fn csr(name: &str, request: &SigningRequest) -> Value {
    json!({
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "uid": "u"},
        "spec": {"request": STANDARD.encode(request.pem()), "signerName": CertificatePurpose::CLIENT.signer},
    })
}

pub(crate) fn approved(csr: Value, chain: &str) -> Value {
    let status = json!({
        "conditions": [{"type": "Approved", "reason": "AutoApproved", "message": "m"}],
        "certificate": STANDARD.encode(chain),
    });
    apply(csr, &json!({"status": status}))
}

fn condition(csr: Value, kind: &str) -> Value {
    let condition = json!({"type": kind, "reason": "Why", "message": "no; run this"});
    apply(csr, &json!({"status": {"conditions": [condition]}}))
}

/// A certificate whose CSR was just created with this name.
fn waiting(kind: CertificateKind, name: &str) -> Certificate {
    let mut certificate = signing(kind, None);
    let created = answered(201, csr(name, &signed(1)));
    assert_eq!(certificate.on_response(created, at(0, noon())), Ok(None));
    certificate
}

/// Nobody approves the renewal of a certificate of a year: its CSR was read each 8 s for months.
#[test]
fn a_renewal_that_nobody_approves_is_read_each_two_minutes() {
    let reads = |kind, held: Option<Leaf>| {
        let mut certificate = signing(kind, held);
        let csr = csr("csr-x7", &signed(1));
        certificate.on_response(answered(201, csr.clone()), at(0, noon())).unwrap();
        let (mut reads, mut seconds) = (0, 0);
        while seconds < 900 {
            let now = at(seconds, noon().after(Duration::from_secs(seconds)));
            seconds += 1;
            if now.now.mono < certificate.due(now) {
                continue;
            }
            if let Work::Send(_) = certificate.next(now) {
                certificate.on_response(answered(200, csr.clone()), now).unwrap();
                reads += 1;
            } else {
                certificate.on_task(TaskResult::NotFound, now).unwrap();
            }
        }
        reads
    };
    let held = || Some(leaf(noon().before(hours(900)), noon().after(hours(100))));
    assert_eq!(reads(ROTATE, held()), 18);
    assert_eq!(reads(SERVING, held()), 17);
    // Minutes before the expiry, and after it, one that is signed must be read in time.
    let ends =
        |seconds| Some(leaf(noon().before(hours(9)), noon().after(Duration::from_secs(seconds))));
    assert_eq!((reads(ROTATE, ends(900)), reads(ROTATE, ends(60))), (43, 119));
    // Somebody waits for the first one.
    assert_eq!(reads(ROTATE_OR_BOOTSTRAP, None), 119);
    assert_eq!(reads(SERVING, None), 38);
}

/// It was signed in the last two minutes before it was given up, and not read any more.
#[test]
fn a_renewal_is_read_just_before_it_is_given_up() {
    let held = Some(leaf(noon().before(hours(900)), noon().after(hours(100))));
    let mut certificate = signing(ROTATE, held);
    let csr = csr("csr-x7", &signed(1));
    certificate.on_response(answered(201, csr.clone()), at(0, noon())).unwrap();
    let mut last = Duration::ZERO;
    while last < Duration::from_secs(890) {
        let due = certificate.due.since(Mono::START);
        assert!(due > last, "{due:?}");
        last = due;
        let now = Now { mono: certificate.due, wall: noon().after(due) }.into();
        assert_eq!(certificate.give_up(now), Ok(()));
        certificate.on_response(answered(200, csr.clone()), now).unwrap();
    }
    assert_eq!(last, Duration::from_secs(899));
    let end = Now { mono: certificate.due, wall: noon().after(last) }.into();
    assert!(certificate.give_up(end).is_err());
}

/// Whether the next CSR needs a new key. Without a certificate the search before it finds none.
fn new_key(certificate: &Certificate) -> Option<bool> {
    let mut certificate = certificate.clone();
    if certificate.file_task(noon()) == Some(FileTask::Find(None)) {
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

#[test]
fn a_csr_is_named_by_its_digest_or_by_the_server() {
    let (by_digest, by_server) = (json!({"name": "node-csr-1"}), json!({"generateName": "csr-"}));
    for (kind, purpose, metadata) in [
        (BOOTSTRAP, CertificatePurpose::CLIENT, &by_digest),
        (ROTATE, CertificatePurpose::CLIENT, &by_server),
        (SERVING, CertificatePurpose::SERVING, &by_digest),
    ] {
        let mut certificate = holding(kind, None);
        assert_eq!(new_key(&certificate), Some(false));
        assert_eq!(certificate.request(), None);
        let request = SigningRequest { purpose, ..signed(1) };
        certificate.on_task(TaskResult::Signed(request), at(0, noon()));
        assert_eq!(certificate.file_task(noon()), None);
        let request = certificate.request().unwrap();
        assert_eq!((request.method, request.path.as_str()), (Method::Post, CSRS));
        let signer = match purpose {
            CertificatePurpose::SERVING => "kubernetes.io/kubelet-serving",
            _ => "kubernetes.io/kube-apiserver-client-kubelet",
        };
        assert_eq!(
            serde_json::from_slice::<Value>(&request.body).unwrap(),
            json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": metadata,
                "spec": {
                    "request": STANDARD.encode(signed(1).pem()),
                    "signerName": signer,
                    "usages": ["digital signature", "client auth"],
                },
            })
        );
    }
}

/// Every 8 s at most; if a person approves it, every 30 s.
#[test]
fn a_csr_is_read_with_growing_pauses_until_its_chain_is_installed() {
    let name = "csr-x7";
    for (kind, doubled, last) in [(ROTATE, 8, 20_800), (SERVING, 10, 81_200)] {
        let mut certificate = waiting(kind, name);
        for millis in (0..doubled).map(|n| 100 << n).chain([last]) {
            let mono = Mono::START.after(Duration::from_millis(millis));
            let now = ClusterSeen::from(Now { mono, wall: noon() });
            certificate.on_task(TaskResult::NotFound, now).unwrap();
            assert_eq!(certificate.due(now), now.now.mono);
            assert_eq!(certificate.due(at(0, noon())), now.now.mono);
            let request = certificate.request().unwrap();
            assert_eq!(request.method, Method::Get);
            assert_eq!(request.path, format!("{CSRS}/{name}"));
            let pending = csr(name, &signed(1));
            let pending = match millis {
                // Approved, but not signed yet.
                200 => condition(pending, "Approved"),
                12_800 if kind == SERVING => condition(pending, "Approved"),
                // Signed, but not approved.
                400 => apply(pending, &json!({"status": {"certificate": STANDARD.encode("x")}})),
                _ => pending,
            };
            let result = certificate.on_response(answered(200, pending), now);
            let line = match kind {
                SERVING => format!("csr-x7 is approved, and not signed yet: {SIGNER}"),
                _ => "csr-x7 waits for approval: kubectl certificate approve csr-x7".to_owned(),
            };
            assert_eq!(result, Ok((millis == 12_800).then_some(line)), "{millis}");
        }
        let issued = Leaf { public_key: key(1), ..leaf(noon(), noon().after(hours(100))) };
        let chain = format!("{}rest of the chain", self::certificate(&issued));
        let now = at(90, noon());
        let response = answered(200, approved(csr(name, &signed(1)), &chain));
        assert_eq!(certificate.on_response(response, now), Ok(None));
        assert_eq!(certificate.due(now), now.now.mono);
        assert_eq!(install(&certificate), Some(chain.clone()));
        // TLS can never use it: it is not installed again and again.
        let mut unusable = certificate.clone();
        unusable.on_task(TaskResult::Unusable("not usable".into()), now).unwrap_err();
        assert_eq!((install(&unusable), new_key(&unusable)), (None, Some(true)));
        // The disk is full: the installation of the same chain is retried.
        let full = TaskResult::Failed("no space left on device".into());
        let result = certificate.on_task(full, now);
        assert_eq!(result, Err("no space left on device".into()));
        assert_eq!(certificate.due(now), at(92, noon()).now.mono);
        assert_eq!(install(&certificate), Some(chain.clone()));
        // Nor can it be stored, but the board need not wait for that.
        let unstored =
            || TaskResult::NotStored(issued.clone(), "no space left on device".to_owned());
        let result = certificate.on_task(unstored(), at(92, noon()));
        assert_eq!(result, Err("no space left on device".into()));
        assert!(!certificate.is_missing() && certificate.is_usable(at(0, noon().after(hours(99)))));
        assert_eq!(certificate.due(now), at(96, noon()).now.mono);
        assert_eq!(install(&certificate), Some(chain));
        // It is due for renewal before it could be stored.
        let mut never_stored = certificate.clone();
        let later = at(96, noon().after(hours(70)));
        never_stored.on_task(unstored(), later);
        assert!(matches!(never_stored.file_task(later.now.wall), Some(FileTask::Sign { .. })));
        certificate.on_task(TaskResult::InUse(issued.clone()), at(96, noon()));
        assert_eq!(certificate.due(now), now.now.mono.after(hours(70)));
    }
}

/// server_bootstrap_test.go: a certificate that is expired when it is issued is not stored.
#[test]
fn a_failed_csr_has_a_log_line_and_a_retry() {
    let pending = || csr("c", &signed(1));
    let ok = |body| answered(200, body);
    let ended = |kind| ok(condition(pending(), kind));
    let mine = || Leaf { public_key: key(1), ..leaf(noon(), noon().after(hours(1))) };
    let issued = |leaf: Leaf| ok(approved(pending(), &certificate(&leaf)));
    let of_other = || Leaf { subject: Subject::of_node("other"), ..mine() };
    let expired = leaf(noon().before(hours(2)), noon().before(hours(1)));
    let no_base64 = apply(approved(pending(), ""), &json!({"status": {"certificate": "("}}));
    let (again, another_key) = ("requesting again", "requesting with another key");
    for (answer, what, remedy, is_lost) in [
        // The semicolon does not begin the remedy.
        (
            ended("Denied"),
            "was denied: Why: no; run this",
            "ask the CSR approver, then: kubectl delete csr c",
            false,
        ),
        (
            ended("Failed"),
            "could not be signed: Why: no; run this",
            "see the signer's log (kube-controller-manager), then: kubectl delete csr c",
            false,
        ),
        (not_found(RESOURCE, "c"), "was deleted before it was signed", again, false),
        (
            ok(apply(pending(), &json!({"metadata": {"uid": "other"}}))),
            "was replaced by another CSR of that name",
            again,
            false,
        ),
        (
            ok(csr("c", &signed(2))),
            "exists already and is not ours: its key differs",
            another_key,
            true,
        ),
        (
            issued(Leaf { public_key: key(0), ..mine() }),
            "has an unusable certificate: it is for another key",
            another_key,
            true,
        ),
        (
            issued(of_other()),
            "has an unusable certificate: it is for \"system:node:other\"",
            another_key,
            true,
        ),
        (
            issued(Leaf { public_key: key(1), ..expired }),
            "has an unusable certificate: it expired at 2026-05-02T11:00:00Z, clock says \
             2026-05-02T12:00:00Z",
            "set the clock of this board, or that of the signer",
            true,
        ),
        (
            ok(approved(pending(), "certificate")),
            "has an unusable certificate: it is not X.509",
            another_key,
            true,
        ),
        (ok(no_base64), "has an unusable certificate: invalid base64", another_key, true),
    ] {
        let mut certificate = waiting(BOOTSTRAP, "c");
        let why = certificate.on_response(answer, at(5, noon())).unwrap_err().why;
        assert_eq!(why, Fault::new(format!("c {what}"), remedy));
        assert_eq!(new_key(&certificate), Some(is_lost), "{why}");
        assert_eq!(certificate.due(at(5, noon())), at(7, noon()).now.mono, "{why}");
    }
}

#[test]
fn an_unsigned_csr_is_given_up_after_the_limit() {
    for (kind, seconds) in [(BOOTSTRAP, 3600), (ROTATE, 900)] {
        let certificate = waiting(kind, "c");
        for outcome in [
            answered(200, csr("c", &signed(1))),
            answered(403, json!({"reason": "Forbidden", "message": "no"})),
            answered(200, json!({"kind": "Status"})),
            // Also if the server was silent since: its limit counts by itself.
            Err("slow".into()),
        ] {
            let mut certificate = certificate.clone();
            let _ = certificate.on_response(outcome, at(seconds - 1, noon()));
            certificate.on_task(TaskResult::NotFound, at(seconds - 1, noon())).unwrap();
            assert_eq!(certificate.give_up(at(seconds - 1, noon())), Ok(()));
            assert!(certificate.sends(at(seconds - 1, noon())));
            assert!(!certificate.sends(at(seconds, noon())));
            let line = certificate.give_up(at(seconds, noon())).unwrap_err().to_string();
            assert!(line.starts_with(&format!("c was not signed within {seconds} s; ")), "{line}");
            assert!(line.contains("kubectl certificate approve"), "{line}");
            assert_eq!(certificate.request(), None);
        }
    }
    let mut certificate = waiting(CertificateKind::Joining, "c");
    assert_eq!(certificate.give_up(at(99_999, noon())), Ok(()));
}

/// A suspend counts in the limit: the CSR may be signed meanwhile, and its key is in memory alone.
#[test]
fn a_csr_is_read_once_more_after_a_suspend_beyond_the_limit() {
    for (kind, seconds) in [(BOOTSTRAP, 7200), (ROTATE, 1800)] {
        let awake = at(seconds, noon());
        let mut certificate = waiting(kind, "c");
        let pending = answered(200, csr("c", &signed(1)));
        assert_eq!(certificate.on_response(pending, at(1, noon())), Ok(None));
        certificate.on_task(TaskResult::NotFound, awake).unwrap();
        for answer in [answered(200, csr("c", &signed(1))), Err("slow".into())] {
            let mut certificate = certificate.clone();
            assert_eq!(certificate.give_up(awake), Ok(()));
            assert!(certificate.sends(awake));
            // Not signed, or not answered: there is no further read.
            let _ = certificate.on_response(answer, awake);
            let line = certificate.give_up(awake).unwrap_err().to_string();
            assert!(line.starts_with("c was not signed within "), "{line}");
        }
        let issued = Leaf { public_key: key(1), ..leaf(noon(), noon().after(hours(100))) };
        let chain = self::certificate(&issued);
        let read = answered(200, approved(csr("c", &signed(1)), &chain));
        assert_eq!(certificate.on_response(read, awake), Ok(None));
        assert_eq!(certificate.give_up(awake), Ok(()));
        assert_eq!(install(&certificate), Some(chain));
    }
}

/// After a restart. csr_test.go TestEnsureCompatible; our CSR always has a signerName.
#[test]
fn an_existing_csr_of_that_name_is_used_if_it_is_ours() {
    let name = "node-csr-1";
    let exists = || answered(409, json!({"reason": "AlreadyExists", "message": "m"}));
    let now = at(3, noon());
    let (client, serving) = (CertificatePurpose::CLIENT, CertificatePurpose::SERVING);
    for (kind, purpose, signer, number, want) in [
        (BOOTSTRAP, client, json!(client.signer), 1, ""),
        (BOOTSTRAP, client, json!(null), 1, ""),
        (BOOTSTRAP, client, json!("example.com/s"), 1, "csr signerNames differ: "),
        (BOOTSTRAP, client, json!(client.signer), 2, "its key differs"),
        (SERVING, serving, json!(serving.signer), 1, ""),
        (SERVING, serving, json!(client.signer), 1, "differ: kubernetes.io/kubelet-serving, "),
    ] {
        let mut certificate = holding(kind, None);
        certificate.on_task(TaskResult::Signed(SigningRequest { purpose, ..signed(1) }), now);
        assert_eq!(certificate.on_response(exists(), now), Ok(None));
        assert_eq!(certificate.due(now), now.now.mono);
        let read = certificate.request().unwrap();
        assert_eq!((read.method, read.path), (Method::Get, format!("{CSRS}/{name}")));
        // The next CSR is the same one.
        let mut deleted = certificate.clone();
        deleted.on_response(not_found(RESOURCE, name), now).unwrap_err();
        assert_eq!(new_key(&deleted), Some(false));
        let found = apply(csr(name, &signed(number)), &json!({"spec": {"signerName": signer}}));
        match certificate.on_response(answered(200, found.clone()), now) {
            Ok(line) => assert_eq!((line, want), (None, "")),
            Err(error) => {
                let why = error.why.to_string();
                assert!(!want.is_empty() && why.contains(want), "{why}");
                continue;
            }
        }
        // From now on, another uid is another CSR.
        let other = apply(found, &json!({"metadata": {"uid": "v"}}));
        assert!(certificate.on_response(answered(200, other), now).is_err());
    }
    // A generated name never exists before.
    assert!(signing(ROTATE, None).on_response(exists(), now).is_err());
}

/// At a supervisor a quarter of a year is left, and each attempt costs the server a scrypt.
#[test]
fn refusals_and_silence_are_retried_with_backoff_without_a_limit() {
    let refused = || answered(401, json!({"reason": "Unauthorized", "message": "no"}));
    let silent = || Err("no route".into());
    let held = || leaf(noon(), noon().after(hours(100)));
    let due = |kind, jitter| Certificate::new(kind, subject(), Some(held()), true, jitter);
    let refusal = "cannot create a CSR: 401 Unauthorized: no; check the bootstrap token and ";
    for (kind, answer, last, is_sent_again, want) in [
        (BOOTSTRAP, refused(), 32, false, refusal),
        (BOOTSTRAP, silent(), 7, true, "no route"),
        (SERVING, silent(), 32, true, "no route"),
        // It signs again, which reads a node password that was corrected.
        (SUPERVISOR, refused(), 3600, false, "the supervisor answers 401"),
        (SUPERVISOR, silent(), 3600, false, "no route"),
    ] {
        let mut certificate = due(kind, Jitter::NONE);
        let mut now = at(0, noon());
        for n in 1..15 {
            if certificate.request().is_none() {
                assert_eq!(new_key(&certificate), Some(false));
                certificate.on_task(TaskResult::Signed(signed(1)), now);
            }
            let why = why(certificate.on_response(answer.clone(), now));
            assert!(why.starts_with(want), "{why}");
            let method = certificate.request().map(|request| request.method);
            assert_eq!(method, is_sent_again.then_some(Method::Post), "{kind:?} {why}");
            let pause = certificate.due(now).since(now.now.mono);
            assert_eq!(pause, Duration::from_secs(last.min(1 << n)), "{kind:?} {why}");
            now.now.mono = now.now.mono.after(pause);
        }
        certificate.on_task(TaskResult::InUse(held()), now);
        assert_eq!(certificate.backoff, Backoff::new(FIRST_BACKOFF, kind.last_backoff()));
    }
    // With jitter, and with Retry-After.
    for (kind, random, asked, millis) in [
        (BOOTSTRAP, 1000, 0, 2200),
        (BOOTSTRAP, 1000, 20, 20_000),
        (BOOTSTRAP, 0, 90, 32_000),
        (SUPERVISOR, 1000, 1, 2200),
        (SUPERVISOR, 0, 100, 100_000),
        (SUPERVISOR, 0, 100_000, 3_600_000),
    ] {
        let mut certificate = due(kind, Jitter::new(random));
        let now = at(9, noon());
        // A key that cannot be created or stored is retried, too.
        let mut unsigned = certificate.clone();
        let failed = unsigned.on_task(TaskResult::Failed("the disk is full".into()), now);
        assert_eq!(failed, Err("the disk is full".into()));
        assert_eq!(new_key(&unsigned), Some(false));
        assert!(unsigned.due(now) > now.now.mono);
        certificate.on_task(TaskResult::Signed(signed(1)), now);
        let retry_after = Some(Duration::from_secs(asked));
        certificate.on_response(Ok(Response { retry_after, ..Response::test(429, "") }), now);
        let pause = certificate.due(now).since(now.now.mono);
        assert_eq!(pause, Duration::from_millis(millis), "{kind:?} {asked}");
    }
}

/// As in client-go: a server that is too busy would be read ten times in the first minute.
#[test]
fn a_read_waits_for_as_long_as_the_server_asks() {
    for (asked, seconds) in [(0, 0), (20, 20), (90, 32)] {
        let mut certificate = waiting(ROTATE, "c");
        let retry_after = Some(Duration::from_secs(asked));
        certificate
            .on_response(Ok(Response { retry_after, ..Response::test(429, "") }), at(0, noon()));
        let pause = certificate.due(at(0, noon())).since(Mono::START);
        assert_eq!(pause, Duration::from_secs(seconds).max(csr::FIRST_POLL), "{asked}");
        assert_eq!(certificate.request().unwrap().method, Method::Get);
    }
}

#[test]
fn invalid_bodies_are_failures() {
    for invalid in [
        json!(null),
        json!([]),
        json!({"kind": "Status", "metadata": {"name": "c", "uid": "u"}}),
        apply(csr("c", &signed(1)), &json!({"metadata": {"uid": ""}})),
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
        if wrong.now.wall < noon() {
            assert!(certificate.due(wrong) > wrong.now.mono.after(hours(24 * 365 * 50)));
            assert!(!certificate.needs_bootstrap(wrong));
        }
        let set = at(60, noon());
        assert_eq!(certificate.due(set), set.now.mono.after(hours(7)), "{wrong:?}");
    }
}

#[test]
fn a_certificate_due_at_installation_is_replaced_after_half_its_rest() {
    let minute = Duration::from_secs(60);
    // After an expired one there is a pause, too.
    for (until, pause) in [(noon().after(minute), 30), (noon().before(minute), 1)] {
        let mut certificate = holding(ROTATE, None);
        // kube-controller-manager backdates certificates by five minutes.
        let issued = leaf(noon().before(minute * 5), until);
        certificate.on_task(TaskResult::InUse(issued), at(0, noon()));
        assert_eq!(certificate.due(at(0, noon())), at(pause, noon()).now.mono);
    }
}

#[test]
fn an_expired_certificate_is_logged_once_and_requested_with_the_given_credentials() {
    for (kind, needs_bootstrap, what_now) in [
        (BOOTSTRAP, true, Some("requesting a new one with the bootstrap kubeconfig")),
        (ROTATE, false, Some("still using it; install a new one, or set --bootstrap-kubeconfig")),
        // It expired while the board was off: only a person with a token can help.
        (SUPERVISOR, false, Some("still using it; nodelet join --force")),
        (SERVING, false, None),
    ] {
        let held = leaf(noon().before(hours(9)), noon());
        let mut certificate = holding(kind, Some(held));
        let before = at(0, noon().before(hours(1)));
        // Without rotation it is replaced after its expiry.
        let is_late = certificate.due(before) > before.now.mono.after(hours(1));
        assert_eq!(is_late, kind == BOOTSTRAP);
        assert_eq!(certificate.expiry_to_log(at(0, noon())), None);
        assert!(!certificate.needs_bootstrap(at(0, noon())));
        let late = at(60, noon().after(hours(1)));
        let line = what_now.map(|what_now| {
            format!("expired at 2026-05-02T12:00:00Z, clock says 2026-05-02T13:00:00Z; {what_now}")
        });
        assert_eq!(certificate.expiry_to_log(late), line);
        assert_eq!(certificate.expiry_to_log(late), None);
        assert_eq!(certificate.needs_bootstrap(late), needs_bootstrap);
        assert!(certificate.due(late) <= late.now.mono);
        assert!(matches!(certificate.next(late), Work::Files(FileTask::Find(None))));
        assert_eq!(new_key(&certificate), Some(false));
        // An operator renews the files: the old expiry means nothing any more.
        certificate.on_replaced(leaf(noon(), noon().after(hours(9))), late);
        assert!(certificate.due(late) > late.now.mono.after(hours(5)));
        assert_eq!(certificate.expiry_to_log(late), None);
        assert!(!certificate.needs_bootstrap(late));
    }
}

/// The server's clock was ahead for 20 s: another certificate was found in the files, and taken. It
/// was not valid any more when that clock was right again, and the search for the former one waited
/// for the rest of a minute.
#[test]
fn the_files_are_searched_at_once_when_the_certificate_is_not_valid_any_more() {
    let mut certificate = holding(ROTATE, Some(leaf(noon().before(hours(9)), noon())));
    let ahead = seen(10, noon().after(hours(3)), noon().before(hours(1)));
    assert!(certificate.expiry_to_log(ahead).is_some());
    assert!(matches!(certificate.next(ahead), Work::Files(FileTask::Find(_))));
    let later = leaf(noon().after(hours(2)), noon().after(hours(9)));
    certificate.on_task(TaskResult::InUse(later), ahead).unwrap();
    assert_eq!(certificate.expiry_to_log(ahead), None);
    let right = seen(30, noon().before(hours(1)), noon().before(hours(1)));
    assert!(certificate.expiry_to_log(right).is_some());
    assert!(certificate.due(right) <= right.now.mono);
    assert!(matches!(certificate.next(right), Work::Files(FileTask::Find(_))));
}

/// A clock that stood an hour ahead for 25 s made the board ask with a bootstrap token that was
/// long gone, and every later request went out with it.
#[test]
fn a_request_is_given_up_when_the_clock_is_set() {
    let ahead = noon().after(hours(1));
    let held = || leaf(noon().before(hours(1)), noon().after(hours(1) / 2));
    let sign =
        |with_bootstrap| Some(FileTask::Sign { new_key: false, with_bootstrap, is_first: false });
    for is_waiting in [false, true] {
        let mut certificate = holding(ROTATE_OR_BOOTSTRAP, Some(held()));
        assert_eq!(certificate.give_up(at(0, ahead)), Ok(()));
        // The held certificate seems to be expired: the files may have another one.
        assert_eq!(certificate.file_task(ahead), Some(FileTask::Find(None)));
        certificate.on_task(TaskResult::NotFound, at(0, ahead));
        assert_eq!(certificate.file_task(ahead), sign(true));
        certificate.on_task(TaskResult::Signed(signed(1)), at(0, ahead));
        if is_waiting {
            certificate.on_response(answered(201, csr("c", &signed(1))), at(1, ahead));
        }
        assert_eq!(certificate.give_up(at(24, ahead.after(Duration::from_secs(24)))), Ok(()));
        assert_eq!(certificate.file_task(ahead), None);
        let set = at(25, noon().after(Duration::from_secs(25)));
        assert!(!certificate.sends(set));
        certificate.give_up(set).unwrap_err();
        // The held certificate is good after all, and due at 70 % of its life.
        let deadline = held().not_before.after(hours(3) / 2 / 10 * 7);
        assert_eq!(certificate.due(set), set.now.mono.after(deadline.since(set.now.wall)));
        assert_eq!(certificate.file_task(set.now.wall), sign(false));
    }
}

/// Behind the address of an API server there may be several, with clocks of their own: a person may
/// approve this request, and no other one.
#[test]
fn a_request_that_is_due_by_the_clocks_of_all_servers_is_not_given_up() {
    let minutes = |count: u64| Duration::from_secs(count * 60);
    let held = leaf(noon().before(hours(9)), noon().after(hours(1)));
    let mut certificate = holding(ROTATE_OR_BOOTSTRAP, Some(held));
    certificate.on_task(TaskResult::Signed(signed(1)), at(0, noon()));
    let read = certificate.request();
    for (second, other) in [(10, noon().after(minutes(5))), (20, noon().before(minutes(5)))] {
        assert_eq!(certificate.give_up(at(second, other)), Ok(()));
        assert_eq!(certificate.request(), read);
    }
    // It is due 70 % after the begin: by this clock it is not.
    certificate.give_up(at(30, noon().before(hours(3)))).unwrap_err();
}

/// A board without an RTC that joins, or starts with a bootstrap token, while NTP sets its clock: a
/// person may approve this request, and no other one.
#[test]
fn the_first_request_is_not_given_up_when_the_clock_is_set() {
    let mut certificate = signing(ROTATE_OR_BOOTSTRAP, None);
    let sent = certificate.request();
    assert!(sent.is_some());
    assert_eq!(certificate.give_up(at(1, noon().after(hours(9)))), Ok(()));
    assert_eq!(certificate.request(), sent);
}

/// A token that died left the CSR waiting for 15 minutes or an hour, with the old credentials. A
/// good certificate is refused for a reason that is not ours: the CSR is not lost. A gateway that
/// verifies client certificates ends TLS: there is no 401. The files may have another one by then.
#[test]
fn a_csr_whose_credentials_are_not_good_any_more_is_given_up() {
    let refused = || answered(401, json!({"reason": "Unauthorized"}));
    let silent = || Err("the server ended TLS".into());
    let held = || Some(leaf(noon().before(hours(9)), noon().after(hours(1))));
    for (kind, held, is_waiting, answer, late, method) in [
        (BOOTSTRAP, None, true, refused(), 0, None),
        (ROTATE, held(), true, refused(), 0, Some(Method::Get)),
        (ROTATE, held(), true, refused(), 2, None),
        (ROTATE_OR_BOOTSTRAP, held(), false, silent(), 0, Some(Method::Post)),
        (ROTATE_OR_BOOTSTRAP, held(), false, silent(), 2, None),
    ] {
        let mut certificate = signing(kind, held);
        if is_waiting {
            certificate.on_response(answered(201, csr("c", &signed(1))), at(0, noon()));
        }
        let now = at(late * 3600, noon().after(hours(late)));
        assert!(certificate.on_response(answer, now).is_err());
        let _ = certificate.give_up(now);
        let sent = certificate.request().map(|request| request.method);
        assert_eq!(sent, method, "{kind:?} {is_waiting} {late}");
        let task = certificate.file_task(now.now.wall);
        assert_eq!(task, method.is_none().then_some(FileTask::Find(None)), "{kind:?} {late}");
    }
}

/// A control plane whose clock is ahead would sign what is not valid when that clock is right again.
/// A board whose clock is never set renews in the last tenth.
#[test]
fn the_servers_time_alone_renews_only_in_the_last_tenth() {
    let held = || Some(leaf(noon(), noon().after(hours(100))));
    let never_set = Wall::from_epoch(Duration::from_secs(5));
    for kind in [ROTATE, ROTATE_OR_BOOTSTRAP, SUPERVISOR, SERVING] {
        for (server, board, due) in [
            (69, 69, 1),
            (70, 70, 0),
            // The server's clock is ahead.
            (80, 10, 10),
            (89, 10, 1),
            (90, 10, 0),
            // That of the board is.
            (60, 80, 10),
        ] {
            let certificate = holding(kind, held());
            let [server, board] = [server, board].map(|hour| noon().after(hours(hour)));
            let now = seen(0, server, board);
            assert_eq!(certificate.due(now), now.now.mono.after(hours(due)), "{kind:?} {now:?}");
            let mut rotation = crate::credentials::rotation::Rotation::new(Some(certificate));
            rotation.due(now);
            assert_eq!(rotation.is_settled(now), due > 0, "{kind:?} {now:?}");
        }
        let unset = seen(0, noon().after(hours(75)), never_set);
        assert_eq!(holding(kind, held()).due(unset), unset.now.mono.after(hours(15)));
    }
    // Boards that joined together are spread there, too.
    for (random, minutes) in [(0, 0), (500, 30), (1000, 59)] {
        let spread = Certificate::new(ROTATE, subject(), held(), false, Jitter::new(random));
        let then =
            noon().after(hours(90) + Duration::from_secs(minutes * 60) - Duration::from_secs(60));
        let due = spread.due(seen(0, then, never_set)).since(Mono::START);
        assert!((60..120).contains(&due.as_secs()), "{random}: {due:?}");
    }
    // One that must be replaced at once, and one that only its end replaces.
    let at_once = Certificate::new(ROTATE, subject(), held(), true, Jitter::NONE);
    assert_eq!(at_once.due(seen(0, noon(), never_set)), Mono::START);
    let late = seen(0, noon().after(hours(101)), noon());
    assert_eq!(holding(BOOTSTRAP, held()).due(late), Mono::START);
    assert_eq!(
        holding(BOOTSTRAP, held()).due(seen(0, noon(), noon())),
        Mono::START.after(hours(100) + Duration::from_micros(1))
    );
}

/// The request is due by a clock that is weeks ahead. It is given up when that is right again.
#[test]
fn a_request_of_a_server_whose_clock_was_ahead_is_given_up() {
    let held = leaf(noon(), noon().after(hours(100)));
    let [ahead, right] = [95, 10].map(|hour| noon().after(hours(hour)));
    let mut certificate = holding(ROTATE, Some(held));
    let wrong = seen(0, ahead, right);
    certificate.on_task(TaskResult::Signed(signed(1)), wrong).unwrap();
    assert!(certificate.sends(wrong));
    assert!(certificate.give_up(seen(5, right, right)).is_err());
}

/// It is used, because the server may be the one that is right. The files are searched as soon as
/// both clocks deny it, and other credentials request another one.
#[test]
fn a_certificate_that_is_not_valid_yet_is_not_the_last_word() {
    for kind in [ROTATE, ROTATE_OR_BOOTSTRAP, BOOTSTRAP, SERVING] {
        let right = noon().after(hours(10));
        let begins = noon().after(hours(700));
        let early = || leaf(begins, begins.after(hours(100)));
        let mut certificate = holding(kind, Some(early()));
        // The clock of the board alone, or of the server alone: one of them may be behind.
        for now in [at(0, right), seen(0, right, begins), seen(0, begins, right)] {
            assert!(certificate.is_usable(now), "{now:?}");
            assert_eq!(certificate.expiry_to_log(now), None);
        }
        // The end of a refused certificate is no time of the server: a person may have installed
        // this one.
        let refused = ClusterSeen { has_date: false, ..seen(0, right, Wall::default()) };
        assert!(certificate.is_usable(refused));
        let now = seen(0, right, Wall::default());
        assert!(!certificate.is_usable(now));
        assert_eq!(certificate.next(now), Work::Files(FileTask::Find(Some(right))));
        let line = certificate.expiry_to_log(now);
        let what = "not valid before 2026-05-31T16:00:00Z, the server says 2026-05-02T22:00:00Z; \
                    using the last one, if that is valid";
        assert_eq!(line.as_deref(), (kind != SERVING).then_some(what));
        assert_eq!(certificate.expiry_to_log(now), None);
        certificate.on_task(TaskResult::NotFound, now).unwrap();
        let asks = matches!(certificate.next(now), Work::Files(FileTask::Sign { .. }))
            && certificate.due(now) == now.now.mono;
        assert_eq!(asks, kind != ROTATE, "{kind:?}");
        // A signer that is still ahead gets no request after request.
        certificate.on_replaced(early(), now);
        assert_eq!(certificate.due(now), now.now.mono, "a search");
        certificate.on_task(TaskResult::NotFound, now).unwrap();
        assert_eq!(certificate.due(now), now.now.mono.after(SEARCH_PERIOD));
        let again = seen(300, right, Wall::default());
        certificate.on_task(TaskResult::NotFound, again).unwrap();
        let next = certificate.next(again);
        let asks = matches!(next, Work::Files(FileTask::Sign { new_key: true, .. }))
            && certificate.due(again) == again.now.mono;
        assert_eq!(asks, kind != ROTATE, "the signer's clock may be right again");
        // Clocks that differ by seconds are no reason.
        let seconds = begins.before(CLOCK_STEP);
        assert!(certificate.is_usable(seen(0, seconds, seconds)));
    }
    let begins = noon().after(hours(700));
    let certificate = holding(SUPERVISOR, Some(leaf(begins, begins.after(hours(100)))));
    assert!(certificate.is_usable(seen(0, noon(), noon())), "its begin is no signer's time");
}

/// A supervisor whose clock was ahead for minutes refused a certificate that is valid for hours.
#[test]
fn a_failure_by_a_clock_that_was_ahead_outlasts_no_certificate() {
    let held = leaf(noon(), noon().after(hours(2)));
    let right = noon().after(Duration::from_secs(6600));
    let mut certificate = holding(SUPERVISOR, Some(held));
    for second in (0..3600).step_by(60) {
        let now = seen(second, noon().after(hours(1000)), right);
        certificate.on_task(TaskResult::Failed("no password".into()), now).unwrap_err();
    }
    let now = seen(3600, right, right);
    assert!(certificate.due(now) <= now.now.mono.after(Duration::from_secs(60)));
}
