//! Cases of client-go's `certificate_manager_test.go` and `csr_test.go`, and of the kubelet's
//! `bootstrap_test.go`, by their names.

use super::serving::SERVING;
use super::*;

/// certificate_manager_test.go TestSetRotationDeadline.
#[test]
fn set_rotation_deadline() {
    let day = |n: u64| hours(24 * n);
    for (what, before, after) in [
        ("just issued, still good", hours(1), hours(99)),
        ("half way expired, still good", hours(24), hours(24)),
        ("mostly expired, still good", hours(69), hours(31)),
        ("just about expired, should rotate", hours(91), hours(9)),
        ("nearly expired, should rotate", hours(99), hours(1)),
        ("long duration", day(183), day(183)),
        ("short duration", Duration::from_secs(30), Duration::from_secs(30)),
    ] {
        let held = leaf(noon().before(before), noon().after(after));
        let lifetime = before + after;
        let want = held.not_before.after(lifetime * 7 / 10);
        let certificate = holding(ROTATE, Some(held.clone()));
        assert_eq!(certificate.deadline, want, "{what}");
        let is_due = certificate.due(at(0, noon())) == Mono::START;
        assert_eq!(is_due, want <= noon(), "{what}");
        // Spread from 70 % to 90 %, without the upper bound.
        for random in [1, 500, 1000] {
            let other =
                Certificate::new(ROTATE, subject(), Some(held.clone()), false, Jitter::new(random));
            assert!(other.deadline >= want, "{what}");
            assert!(other.deadline < held.not_before.after(lifetime * 9 / 10), "{what}");
        }
    }
}

/// certificate_manager_test.go TestCertSatisfiesTemplate: the template is the Node's subject, or
/// its names. A client certificate has no DNS names and no addresses.
#[test]
fn cert_satisfies_template() {
    let held = |common_name: &str, organizations: &[&str]| {
        let organizations = organizations.iter().map(|o| (*o).into()).collect();
        Some(Subject { common_name: common_name.into(), organizations, ..Subject::default() })
    };
    let names = |names: &[&str]| Some(serving::names(names));
    for (what, kind, held, is_satisfied) in [
        ("No certificate", ROTATE, None, false),
        ("Organization exact match", ROTATE, held("system:node:pi", &["system:nodes"]), true),
        ("Common Name mismatch", ROTATE, held("system:node:other", &["system:nodes"]), false),
        ("Organization missing", ROTATE, held("system:node:pi", &["other"]), false),
        ("with extra", ROTATE, held("system:node:pi", &["other", "system:nodes"]), true),
        ("names, exact match", SERVING, names(&["pi", "192.0.2.7"]), true),
        ("with extra", SERVING, names(&["pi", "other", "192.0.2.7", "fd00::7"]), true),
        ("DNS name missing", SERVING, names(&["192.0.2.7"]), false),
        ("IP addresses mismatch", SERVING, names(&["pi", "192.0.2.8"]), false),
    ] {
        let held = held.map(|subject| Leaf { subject, ..leaf(noon(), noon().after(hours(10))) });
        let is_serving = kind == SERVING;
        let wanted = if is_serving { serving::names(&["pi", "192.0.2.7"]) } else { subject() };
        let certificate = Certificate::new(kind, wanted, held, false, Jitter::NONE);
        let now = at(0, noon());
        assert_eq!(certificate.due(now) > now.mono, is_satisfied, "{what}");
    }
}

/// certificate_manager_test.go TestInitializeCertificateSigningRequestClient: which credentials
/// send the CSR, before and after it. An expired certificate is replaced with the bootstrap
/// kubeconfig, if any.
#[test]
fn initialize_certificate_signing_request_client() {
    let good = || leaf(noon().before(hours(1)), noon().after(hours(10)));
    let expired = || leaf(noon().before(hours(10)), noon().before(hours(1)));
    for (what, kind, held, given, bootstrap, rotates) in [
        (
            "No current certificate, no bootstrap certificate",
            ROTATE_OR_BOOTSTRAP,
            None,
            false,
            true,
            true,
        ),
        (
            "No current certificate, bootstrap certificate",
            ROTATE_OR_BOOTSTRAP,
            Some(good()),
            true,
            false,
            true,
        ),
        (
            "Current certificate, no bootstrap certificate",
            ROTATE,
            Some(good()),
            false,
            false,
            false,
        ),
        (
            "Current certificate, bootstrap certificate",
            ROTATE_OR_BOOTSTRAP,
            Some(good()),
            false,
            false,
            false,
        ),
        (
            "Current certificate expired, no bootstrap certificate",
            ROTATE,
            Some(expired()),
            false,
            false,
            true,
        ),
        (
            "Current certificate expired, bootstrap",
            ROTATE_OR_BOOTSTRAP,
            Some(expired()),
            false,
            true,
            true,
        ),
    ] {
        let now = at(0, noon());
        let mut certificate = Certificate::new(kind, subject(), held, given, Jitter::NONE);
        assert_eq!(certificate.needs_bootstrap(now.wall), bootstrap, "{what}");
        assert_eq!(certificate.due(now) <= now.mono, rotates, "{what}");
        certificate.on_task(TaskResult::InUse(good()), now);
        assert!(!certificate.needs_bootstrap(now.wall), "{what}");
        assert!(certificate.due(now) > now.mono, "{what}");
    }
}

/// csr_test.go TestEnsureCompatible. Our CSR always has a signerName.
#[test]
fn ensure_compatible() {
    for (what, signer, want) in [
        ("signerName missing on orig", json!(null), Ok(())),
        ("signerName equal", json!(Purpose::CLIENT.signer), Ok(())),
        (
            "signerName different",
            json!("example.com/signer"),
            Err(
                "csr signerNames differ: kubernetes.io/kube-apiserver-client-kubelet, example.com/signer",
            ),
        ),
    ] {
        let mut certificate = waiting(BOOTSTRAP, "node-csr-1");
        let found = with(csr("node-csr-1", &signed(1)), "/spec/signerName", signer);
        let result = certificate.on_response(answered(200, found), at(1, noon()));
        match want {
            Ok(()) => assert_eq!(result, Ok(None), "{what}"),
            Err(why) => {
                assert!(self::why(result).contains(why), "{what}")
            }
        }
    }
}
