//! Cases of client-go's `certificate_manager_test.go`, by their names.

use super::*;
use crate::kube::x509::AltName;

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
        let (held, lifetime) = (leaf(noon().before(before), noon().after(after)), before + after);
        // Spread from 70 % to 90 %, without the upper bound.
        for (random, permille) in [(0, 700), (500, 800), (1000, 899)] {
            for kind in [ROTATE, SUPERVISOR] {
                let (held, jitter) = (held.clone(), Jitter::new(random));
                let want = held.not_before.after(lifetime / 1000 * permille);
                let certificate = Certificate::new(kind, subject(), Some(held), false, jitter);
                assert_eq!(certificate.deadline, want, "{what} {random}");
                let due = certificate.due(at(5, noon()));
                assert_eq!(
                    due,
                    at(5, noon()).now.mono.after(want.since(noon())),
                    "{what} {random}"
                );
            }
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
    let of_names = |names: &[&str]| {
        let alt_names = names.iter().map(|name| match name.parse() {
            Ok(ip) => AltName::Ip(ip),
            Err(_) => AltName::Dns((*name).to_owned()),
        });
        Subject { alt_names: alt_names.collect(), ..subject() }
    };
    let names = |names: &[&str]| Some(of_names(names));
    for (what, kind, held, is_satisfied) in [
        ("No certificate", ROTATE, None, false),
        ("Organization exact match", ROTATE, held("system:node:pi", &["system:nodes"]), true),
        ("Common Name mismatch", ROTATE, held("system:node:other", &["system:nodes"]), false),
        ("Organization missing", ROTATE, held("system:node:pi", &["other"]), false),
        (
            "organization, with extra",
            ROTATE,
            held("system:node:pi", &["other", "system:nodes"]),
            true,
        ),
        ("names, exact match", SERVING, names(&["pi", "192.0.2.7"]), true),
        ("names, with extra", SERVING, names(&["pi", "other", "192.0.2.7", "fd00::7"]), true),
        ("DNS name missing", SERVING, names(&["192.0.2.7"]), false),
        ("IP addresses mismatch", SERVING, names(&["pi", "192.0.2.8"]), false),
    ] {
        let held = held.map(|subject| Leaf { subject, ..leaf(noon(), noon().after(hours(10))) });
        let is_serving = kind == SERVING;
        let wanted = if is_serving { of_names(&["pi", "192.0.2.7"]) } else { subject() };
        let certificate = Certificate::new(kind, wanted, held, false, Jitter::NONE);
        let now = at(0, noon());
        assert_eq!(certificate.due(now) > now.now.mono, is_satisfied, "{what}");
    }
}

/// certificate_manager_test.go TestInitializeCertificateSigningRequestClient: which credentials
/// send the CSR, before and after it. An expired certificate is replaced with the bootstrap
/// kubeconfig, if any.
#[test]
fn initialize_certificate_signing_request_client() {
    let good = leaf(noon().before(hours(1)), noon().after(hours(10)));
    let expired = leaf(noon().before(hours(10)), noon().before(hours(1)));
    let both = ROTATE_OR_BOOTSTRAP;
    for (what, kind, held, given, bootstrap, rotates) in [
        ("No current, no bootstrap certificate", both, None, false, true, true),
        ("No current, bootstrap certificate", both, Some(&good), true, false, true),
        ("Current, no bootstrap certificate", ROTATE, Some(&good), false, false, false),
        ("Current, bootstrap certificate", both, Some(&good), false, false, false),
        ("Current expired, no bootstrap certificate", ROTATE, Some(&expired), false, false, true),
        ("Current expired, bootstrap certificate", both, Some(&expired), false, true, true),
    ] {
        let now = at(0, noon());
        let mut certificate = Certificate::new(kind, subject(), held.cloned(), given, Jitter::NONE);
        assert_eq!(certificate.needs_bootstrap(now), bootstrap, "{what}");
        assert_eq!(certificate.due(now) <= now.now.mono, rotates, "{what}");
        certificate.on_task(TaskResult::InUse(good.clone()), now);
        assert!(!certificate.needs_bootstrap(now), "{what}");
        assert!(certificate.due(now) > now.now.mono, "{what}");
    }
}
