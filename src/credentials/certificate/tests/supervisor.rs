//! The renewal at the supervisor of k3s and rke2.

use super::*;

/// `notBefore` of every certificate of the cluster.
fn birth_of_the_ca() -> Wall {
    noon().before(hours(30_000))
}

fn of_year(arrival: Wall) -> Leaf {
    leaf(arrival, arrival.after(hours(1000)))
}

fn arrived(arrival: Wall, random: u64) -> Certificate {
    Certificate::new(SUPERVISOR, subject(), Some(of_year(arrival)), false, Jitter::new(random))
}

/// A certificate whose request was just signed.
fn asking() -> Certificate {
    asking_with(0)
}

fn asking_with(random: u64) -> Certificate {
    let mut certificate = arrived(noon().before(hours(900)), random);
    certificate.on_task(TaskResult::Signed(signed(1)), at(0, noon()));
    certificate
}

fn text(code: u16, body: &str) -> Answer {
    Ok(Response::test(code, body))
}

fn issued(number: u8) -> Leaf {
    Leaf { public_key: key(number), ..leaf(birth_of_the_ca(), noon().after(hours(1000))) }
}

#[test]
fn the_renewal_is_due_from_70_to_90_percent_of_the_time_since_the_arrival() {
    for (random, percent) in [(0, 700), (500, 800), (1000, 899)] {
        let due = |tenths: u64| {
            let now = at(5, noon().after(hours(tenths)));
            arrived(noon(), random).due(now).since(now.mono)
        };
        assert_eq!(due(percent - 1), hours(1), "{percent}");
        assert_eq!(due(percent), Duration::ZERO, "{percent}");
        assert_eq!(due(percent + 90), Duration::ZERO, "{percent}");
    }
}

/// In the process the arrival is known; after a restart `credentials` finds it in a file name.
#[test]
fn the_birth_of_the_ca_is_not_the_start_of_a_lifetime() {
    let mut certificate = asking();
    certificate.on_task(TaskResult::InUse(issued(1)), at(9, noon()));
    assert_eq!(certificate.deadline(), noon().after(hours(700)));
    let again = arrived(noon(), 0);
    assert_eq!(again.deadline(), certificate.deadline());
    // Another program put a new certificate into the files.
    certificate.replaced(issued(2), at(9, noon().after(hours(500))));
    assert_eq!(certificate.deadline(), noon().after(hours(500 + 350)));
}

/// The board's clock was years ahead when another program put a certificate into the files.
#[test]
fn a_certificate_that_arrives_after_its_expiry_is_due_at_once() {
    for ahead in [1000, 1001, 500_000] {
        let mut certificate = asking();
        certificate.replaced(issued(2), at(9, noon().after(hours(ahead))));
        let due = certificate.due(at(9, noon()));
        assert_eq!(due, at(10, noon()).mono, "{ahead}");
    }
}

#[test]
fn the_request_is_the_der_form_and_its_response_is_installed() {
    let mut certificate = asking();
    let request = certificate.request().unwrap();
    assert_eq!(request.method, Method::Post);
    assert_eq!(request.path, "/v1-k3s/client-kubelet.crt");
    assert_eq!(request.body, signed(1).der);
    let chain = format!("{}the client CA", self::certificate(&issued(1)));
    let result = certificate.on_response(text(200, &chain), at(1, noon()));
    assert_eq!(result, Ok(None));
    assert_eq!(certificate.due(at(1, noon())), at(1, noon()).mono);
    assert_eq!(install(&certificate), Some(chain));
}

#[test]
fn each_useless_answer_is_one_line_and_the_next_request_follows_later() {
    let other_name = Leaf { subject: Subject::of_node("other"), ..issued(1) };
    let expired = Leaf { not_after: noon().before(hours(1)), ..issued(1) };
    let status = |message: &str| json!({"kind": "Status", "message": message}).to_string();
    let old = format!("{}-----BEGIN RSA PRIVATE KEY-----", self::certificate(&issued(1)));
    for (outcome, parts) in [
        (text(200, ""), &["unusable", "not X.509"][..]),
        (text(200, "<html>"), &["unusable", "not X.509"]),
        (text(200, "\u{0}\u{fffd}"), &["unusable", "not X.509"]),
        (text(200, &self::certificate(&issued(2))), &["another key"]),
        (text(200, &self::certificate(&other_name)), &["system:node:other"]),
        (text(200, &self::certificate(&expired)), &["expired at"]),
        (text(200, &old), &["all boards share it; upgrade k3s to v1.31.7, v1.32.2"]),
        (
            text(401, &status("unable to verify node identity")),
            &["401: unable to verify node identity; nodelet join --force"],
        ),
        (
            text(403, &status("hash does not match")),
            &[
                "403: hash does not match; the server has another password for this name: use \
                 nodelet join --node-name, or restore /etc/credstore/nodelet.k3s-password",
                "kubectl delete node pi, kubectl -n kube-system delete secret pi.node-password.k3s",
            ],
        ),
        // Not a Status.
        (
            text(403, "hash does not match\n"),
            &["403: hash does not match; the server has another password"],
        ),
        // Recorded from a proxy that ends TLS, and the page of a proxy.
        (
            text(403, &status("forbidden")),
            &["403: forbidden; the server saw no client certificate: is a proxy in between"],
        ),
        (text(403, "<html>password</html>"), &["answers 403; the server saw no client"]),
        (text(401, "two\nlines"), &["answers 401; nodelet join --force"]),
        (text(401, &status("denied; a; b")), &["401: denied; a; b; nodelet join --force"]),
        (text(503, &status("not ready; wait")), &["the supervisor answers 503: not ready; wait"]),
        (text(429, ""), &["the supervisor answers 429; the server is busy"]),
        (text(302, ""), &["the supervisor answers 302"]),
    ] {
        let mut certificate = asking();
        let result = certificate.on_response(outcome, at(0, noon()));
        let line = why(result);
        for part in parts {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(line.lines().count(), 1);
        assert_eq!(certificate.due(at(0, noon())), at(2, noon()).mono, "{line}");
        // With another key, which costs nothing.
        assert_eq!(new_key(&certificate), Some(false), "{line}");
        assert!(!certificate.is_missing());
    }
}

/// A quarter of a year is left, and each attempt costs the server a scrypt.
#[test]
fn the_pauses_grow_to_an_hour_after_failures_and_after_silence() {
    let answers = [text(403, ""), Err("down".into())];
    for answer in answers {
        let mut certificate = asking_with(1000);
        let mut now = at(0, noon());
        // Each attempt signs again, which reads a node password that was corrected.
        certificate.on_response(answer.clone(), now);
        assert_eq!(new_key(&certificate), Some(false), "{answer:?}");
        let pause = certificate.due(now).since(now.mono);
        assert_eq!(pause, Duration::from_millis(2200), "{answer:?}");
        certificate = asking();
        for seconds in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600] {
            if certificate.request().is_none() {
                certificate.on_task(TaskResult::Signed(signed(1)), now);
            }
            certificate.on_response(answer.clone(), now);
            let due = certificate.due(now);
            assert_eq!(due.since(now.mono), Duration::from_secs(seconds), "{answer:?}");
            now.mono = due;
        }
        // Success ends it.
        certificate.on_task(TaskResult::Signed(signed(1)), now);
        let chain = self::certificate(&issued(1));
        certificate.on_response(text(200, &chain), now);
        certificate.on_task(TaskResult::InUse(issued(1)), now);
        assert_eq!(certificate.backoff, Backoff::new(FIRST_BACKOFF, SUPERVISOR.last_backoff()));
    }
}

#[test]
fn the_server_may_ask_for_more_patience_up_to_an_hour() {
    for (asked, waits) in [(1, 2), (100, 100), (100_000, 3600)] {
        let mut certificate = asking();
        let busy = Ok(Response {
            retry_after: Some(Duration::from_secs(asked)),
            ..Response::test(503, "")
        });
        certificate.on_response(busy, at(0, noon()));
        assert_eq!(certificate.due(at(0, noon())), at(waits, noon()).mono, "{asked}");
    }
}

/// The certificate expired while the board was off: only a person with a token can help.
#[test]
fn an_expired_certificate_names_the_way_out() {
    let mut certificate = arrived(noon().before(hours(1001)), 0);
    let line = certificate.expiry_to_log(noon()).unwrap();
    assert!(line.ends_with("still using it; nodelet join --force"), "{line}");
    assert_eq!(certificate.file_task(noon()), Some(FileTask::Find));
}
