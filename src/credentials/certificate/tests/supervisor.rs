//! The renewal at the supervisor of k3s and rke2.

use super::*;
use crate::credentials::certificate::kind::LAST_BACKOFF;
use crate::credentials::rotation::Rotation;

/// `notBefore` of every certificate of the cluster.
fn birth_of_the_ca() -> Wall {
    noon().before(hours(30_000))
}

fn of_year(arrival: Wall) -> Leaf {
    leaf(arrival, arrival.after(hours(1000)))
}

/// A certificate whose request was just signed.
fn asking() -> Certificate {
    let mut certificate = holding(SUPERVISOR, Some(of_year(noon().before(hours(900)))));
    certificate.on_task(TaskResult::Signed(signed(1)), at(0, noon()));
    certificate
}

fn text(code: u16, body: &str) -> Answer {
    Ok(Response::test(code, body))
}

fn issued(number: u8) -> Leaf {
    Leaf { public_key: key(number), ..leaf(birth_of_the_ca(), noon().after(hours(1000))) }
}

/// In the process the arrival is known; after a restart `credentials` finds it in a file name. The
/// clock may be years ahead then: a certificate that arrives after its expiry is due at once.
#[test]
fn the_birth_of_the_ca_is_not_the_start_of_a_lifetime() {
    let second = Duration::from_secs(1);
    for (arrival, due) in [
        (0, hours(700)),
        (500, hours(500 + 350)),
        (1000, second),
        (1001, second),
        (500_000, second),
    ] {
        let mut certificate = asking();
        certificate.on_response(text(200, &self::certificate(&issued(1))), at(8, noon()));
        certificate.on_task(TaskResult::InUse(issued(2)), at(9, noon().after(hours(arrival))));
        let now = at(9, noon());
        assert_eq!(certificate.due(now), now.now.mono.after(due), "{arrival}");
    }
}

/// The stored pair was removed, so the one in the kubeconfig was taken again, and counted as one
/// that had just arrived. Then the Node was deleted, and k3s deleted the node password with it.
#[test]
fn a_certificate_that_no_request_brought_has_not_stored_the_node_password() {
    let now = at(9, noon());
    let found = |certificate: &mut Certificate| {
        certificate.on_task(TaskResult::InUse(issued(2)), now).unwrap();
    };
    let put_there = |certificate: &mut Certificate| certificate.on_replaced(issued(2), now);
    let ways: [&dyn Fn(&mut Certificate); 2] = [&found, &put_there];
    for take in ways {
        let mut certificate = holding(SUPERVISOR, Some(of_year(noon().before(hours(9)))));
        take(&mut certificate);
        assert_eq!(certificate.due(now), now.now.mono.after(hours(500)));
        certificate.follow_node(noon().before(hours(1)), false, now.now.mono);
        assert_eq!(certificate.due(now), now.now.mono.after(COLLECTED));
    }
}

/// The servers' clock was ahead when the certificate arrived. It is right again when the Node is
/// deleted, and created anew.
#[test]
fn a_node_after_another_one_is_newer_than_each_certificate() {
    let at_node = |number: u64, created| ClusterSeen {
        node_created: Some(created),
        has_lease: true,
        knows_time: true,
        ..at(number, noon())
    };
    let held = holding(SUPERVISOR, Some(of_year(noon().after(hours(1)))));
    let mut rotation = Rotation::new(Some(held));
    let far = rotation.due(at_node(9, noon())).unwrap();
    assert!(far > Mono::START.after(hours(500)), "it counts as newer than the first Node");
    let soon = rotation.due(at_node(10, noon().after(COLLECTED))).unwrap();
    assert_eq!(soon, at(10, noon()).now.mono.after(COLLECTED));
}

/// A board that was without a network for weeks gets it back minutes before the expiry. Its clock
/// may never be set.
#[test]
fn no_pause_is_longer_than_a_tenth_of_the_rest_of_a_lifetime() {
    no_pause_is_longer(|seen| seen);
    no_pause_is_longer(|seen| ClusterSeen { board: Wall::default(), ..seen });
}

fn no_pause_is_longer(clock: fn(ClusterSeen) -> ClusterSeen) {
    let mut certificate = asking();
    let end = noon().after(hours(100));
    let (mut now, mut last_hour) = (clock(at(0, noon())), 0);
    while now.now.wall < end {
        if certificate.request().is_none() {
            certificate.on_task(TaskResult::Signed(signed(1)), now);
        }
        // A front that is being maintained, or the network.
        let mut busy = text(503, "maintenance");
        busy.as_mut().unwrap().retry_after = Some(hours(1));
        let answer = if last_hour % 2 == 0 { busy } else { Err("no route".into()) };
        certificate.on_response(answer, now).unwrap_err();
        let (pause, left) = (certificate.due(now).since(now.now.mono), end.since(now.now.wall));
        assert!(pause <= (left / 10).clamp(LAST_BACKOFF, hours(1)), "{pause:?} of {left:?}");
        last_hour += u32::from(left < hours(1));
        let then = Now { mono: now.now.mono.after(pause), wall: now.now.wall.after(pause) };
        now = clock(then.into());
    }
    assert!(last_hour > 20, "{last_hour}");
    // The expired one cannot renew itself, and each attempt costs the server a hash.
    certificate.on_task(TaskResult::Signed(signed(1)), now);
    certificate.on_response(text(401, "expired"), now).unwrap_err();
    assert_eq!(certificate.due, now.now.mono.after(hours(1)));
}

/// Each attempt to store it on a card that is read-only moved its renewal, until it had expired.
#[test]
fn a_certificate_that_is_never_stored_is_renewed_before_its_end() {
    let mut certificate = asking();
    let chain = self::certificate(&issued(1));
    certificate.on_response(text(200, &chain), at(0, noon()));
    for hour in 0..=700 {
        assert_eq!(install(&certificate).as_ref(), Some(&chain), "{hour}");
        let now = at(hour * 3600, noon().after(hours(hour)));
        let read_only = TaskResult::NotStored(issued(1), "read-only file system".to_owned());
        certificate.on_task(read_only, now).unwrap_err();
    }
    assert_eq!(new_key(&certificate), Some(false));
}

#[test]
fn the_request_is_the_der_form_and_its_response_is_installed() {
    for (purpose, path) in [
        (CertificatePurpose::CLIENT, "/v1-k3s/client-kubelet.crt"),
        // The supervisor ignores the subject of the request.
        (CertificatePurpose::SERVING, "/v1-k3s/serving-kubelet.crt"),
    ] {
        let mut certificate = holding(SUPERVISOR, None);
        let request = SigningRequest { purpose, ..signed(1) };
        certificate.on_task(TaskResult::Signed(request), at(0, noon()));
        let request = certificate.request().unwrap();
        assert_eq!((request.method, request.path.as_str()), (Method::Post, path));
        assert_eq!(request.body, signed(1).der);
        let chain = format!("{}the client CA", self::certificate(&issued(1)));
        let result = certificate.on_response(text(200, &chain), at(1, noon()));
        assert_eq!(result, Ok(None));
        assert_eq!(certificate.due(at(1, noon())), at(1, noon()).now.mono);
        assert_eq!(install(&certificate), Some(chain));
    }
}

#[test]
fn each_useless_answer_is_one_line_and_the_next_request_follows_later() {
    let other_name = Leaf { subject: Subject::of_node("other"), ..issued(1) };
    let expired = Leaf { not_after: noon().before(hours(1)), ..issued(1) };
    let status = |message: &str| json!({"kind": "Status", "message": message}).to_string();
    let old = format!("{}-----BEGIN RSA PRIVATE KEY-----", self::certificate(&issued(1)));
    let hash = "hash does not match";
    for (outcome, part) in [
        (text(200, ""), "an unusable certificate: it is not X.509"),
        (text(200, "<html>"), "not X.509"),
        (text(200, "\u{0}\u{fffd}"), "not X.509"),
        (text(200, &self::certificate(&issued(2))), "another key"),
        (text(200, &self::certificate(&other_name)), "system:node:other"),
        (text(200, &self::certificate(&expired)), "expired at"),
        (text(200, &old), "all boards share it; upgrade k3s to v1.31.7, v1.32.2"),
        (text(401, &status("unable")), "401: unable; nodelet join --force"),
        (text(403, &status(hash)), "the server has another password for this name: use nodelet "),
        (text(403, &status(hash)), "join --node-name, or restore /etc/credstore/nodelet.k3s-pass"),
        (text(403, &status(hash)), "kubectl delete node pi, kubectl -n kube-system delete secret"),
        (text(403, &status(hash)), " pi.node-password.k3s pi.node-password.rke2, and"),
        // Not a Status.
        (text(403, "the password\n"), "403: the password; the server has another password"),
        // Recorded from a proxy that ends TLS, and the page of a proxy.
        (text(403, &status("forbidden")), "403: forbidden; the server saw no client certificate"),
        (text(403, "<html>password</html>"), "answers 403; the server saw no client"),
        (text(401, "two\nlines"), "answers 401; nodelet join --force"),
        (text(401, &status("denied; a; b")), "401: denied; a; b; nodelet join --force"),
        (text(503, &status("not ready; wait")), "the supervisor answers 503: not ready; wait"),
        (text(429, ""), "the supervisor answers 429; the server is busy"),
        (text(302, ""), "the supervisor answers 302"),
    ] {
        let mut certificate = asking();
        let line = why(certificate.on_response(outcome, at(0, noon())));
        assert!(line.contains(part), "{line}");
        assert_eq!(line.lines().count(), 1);
        assert_eq!(certificate.due(at(0, noon())), at(2, noon()).now.mono, "{line}");
        // With another key, which costs nothing.
        assert_eq!(new_key(&certificate), Some(false), "{line}");
        assert!(!certificate.is_missing());
    }
}
