//! Tokens and client certificates that are replaced at run time.

use std::fs;

use nodelet::config::Config;
use nodelet::config::flags::Flags;
use nodelet::credentials::{Credentials, IdentitySource};
use nodelet::kube::delay::Jitter;
use nodelet::kube::instant::{Mono, Now};
use nodelet::kube::time::Wall;
use rustls::version::{TLS12, TLS13};

use super::server::*;
use super::*;
use support::Folder;

/// The credentials of a kubeconfig in `folder`, with this user.
fn with_files(port: u16, ca: &Authority, user: &str, folder: &Folder) -> Credentials {
    let text = kubeconfig_text(&format!("https://127.0.0.1:{port}"), &ca.pem, user);
    let kubeconfig = folder.write("kubeconfig", text);
    let config = Config::new(Flags::default(), || Ok("pi".to_owned())).unwrap();
    IdentitySource::new(&config, &kubeconfig, None).open(Wall::default(), Jitter::NONE).unwrap()
}

/// Checks the files, as the agent does before it, and sends a request.
fn call(credentials: &mut Credentials, second: u64) {
    let mono = Mono::START.after(Duration::from_secs(second));
    credentials.refresh(Now { mono, ..Now::default() }.into());
    let outcome = credentials.current.api.call(&get(), BUDGET);
    credentials.current.on_answer(&outcome);
    answered(outcome);
}

/// The token of the last request.
fn token(server: &Server) -> String {
    let head = server.heard().last().unwrap().head.clone();
    let line = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
    line.unwrap().to_owned()
}

/// The client certificate of the last request, in PEM.
fn seen(server: &Server) -> String {
    let certificate = server.heard().last().unwrap().client_certificate.clone();
    nodelet::kube::x509::pem("CERTIFICATE", &certificate.unwrap())
}

#[test]
fn a_token_file_is_read_again_each_minute_and_at_once_after_a_401() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), |heard, stream| {
        if heard.head.contains("Bearer stale\r\n") {
            say(stream, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        } else {
            ok(heard, stream)
        }
    });
    let folder = Folder::new("token-file");
    folder.write("token", "first\n");
    let user = "tokenFile: token, token: old";
    let mut credentials = with_files(server.port, &ca, user, &folder);
    // The new content of the file, the time of the call, the token of the call.
    for (new, second, want) in [
        (None, 0, "first"),
        (Some("stale"), 59, "first"),
        (None, 60, "stale"),
        // The answer was 401, but the file has no other token: the old one is kept.
        (None, 61, "stale"),
        (Some("the-third"), 62, "the-third"),
        (Some(""), 122, "the-third"),
        (Some("a b"), 182, "the-third"),
        (Some("fourth"), 241, "the-third"),
        (None, 242, "fourth"),
    ] {
        if let Some(new) = new {
            folder.write("token", new);
        }
        call(&mut credentials, second);
        assert_eq!(token(&server), want, "at {second}");
    }
    fs::remove_file(folder.path().join("token")).unwrap();
    call(&mut credentials, 302);
    assert_eq!(token(&server), "fourth");
    // As of an identity provider with many groups; then one that is too long.
    let long = "x".repeat(64 << 10);
    for (new, second) in [(long.clone(), 362), (long.clone() + "x", 422)] {
        folder.write("token", new);
        call(&mut credentials, second);
        assert_eq!(token(&server), long, "at {second}");
    }
    assert_eq!(server.connections(), 1, "a token needs no connection of its own");
}

#[test]
fn a_replaced_pair_opens_a_new_connection_and_a_broken_one_does_not() {
    let ca = Authority::new();
    for version in [&TLS12, &TLS13] {
        let tls = ca.config(&ca.leaf(&["127.0.0.1"]), &[version], Some(&ca));
        let server = Server::start(Some(tls), ok);
        let folder = Folder::new("pair");
        let user = "client-certificate: crt, client-key: key";
        let [first, second, third] = [(); 3].map(|()| ca.leaf(&["pi"]));
        folder.write("crt", &first.0);
        folder.write("key", &first.1);
        let mut credentials = with_files(server.port, &ca, user, &folder);
        let garbage = "x".repeat(2 << 20);
        // A change of a file, the time of the call, its certificate, and all connections. An empty
        // text removes the file. After second 420 a rename replaces it.
        for (change, time, want, connections) in [
            (None, 0, &first, 1),
            (None, 60, &first, 1),
            // Half of the pair, half of a file, no file, garbage.
            (Some(("crt", second.0.as_str())), 120, &first, 1),
            (Some(("key", &second.1[..100])), 180, &first, 1),
            (Some(("key", "")), 240, &first, 1),
            (Some(("key", &garbage)), 300, &first, 1),
            (Some(("key", &second.1)), 359, &first, 1),
            (None, 360, &second, 2),
            (None, 420, &second, 2),
            (Some(("crt", &third.0)), 421, &second, 2),
            (Some(("key", &third.1)), 480, &third, 3),
            (None, 540, &third, 3),
        ] {
            match change {
                Some((name, "")) => fs::remove_file(folder.path().join(name)).unwrap(),
                Some((name, text)) if time > 420 => {
                    fs::rename(folder.write("new", text), folder.path().join(name)).unwrap();
                }
                Some((name, text)) => drop(folder.write(name, text)),
                None => {}
            }
            call(&mut credentials, time);
            assert_eq!(seen(&server), want.0, "{time}");
            assert_eq!(server.connections(), connections, "{time}");
        }
    }
}

/// A certificate of this user and group, and its key.
fn leaf_of(ca: &Authority, name: &str, group: &str) -> Leaf {
    ca.leaf_with(&[], |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
    })
}

/// An automation copied the files of another board. The server would refuse every request.
#[test]
fn the_pair_of_another_node_is_one_log_line_and_the_old_one_stays() {
    drop(logged());
    let ca = Authority::new();
    let tls = ca.config(&ca.leaf(&["127.0.0.1"]), &[&TLS13], Some(&ca));
    let server = Server::start(Some(tls), ok);
    let folder = Folder::new("of-another-node");
    let nodes = "system:nodes";
    let own = leaf_of(&ca, "system:node:pi", nodes);
    let both = |leaf: &Leaf| folder.write("pair", format!("{}{}", leaf.0, leaf.1));
    both(&own);
    let user = "client-certificate: pair, client-key: pair";
    let mut credentials = with_files(server.port, &ca, user, &folder);
    let mut minute = 0;
    let mut shown = |want: &Leaf| {
        minute += 1;
        call(&mut credentials, minute * 60);
        assert_eq!(seen(&server), want.0);
    };
    shown(&own);
    both(&leaf_of(&ca, "system:node:other", nodes));
    for _ in 0..9 {
        shown(&own);
    }
    let here = folder.path().display().to_string();
    let refused = format!(
        "credentials: {here}/pair: the certificate is for the node other, but this node is pi; \
         install the certificate of this node; the old one stays in use"
    );
    let said = || logged().iter().filter(|line| line.contains(&here)).cloned().collect::<Vec<_>>();
    assert_eq!(said(), [refused]);
    // A user that is no node may be allowed to write any Node.
    for (name, group) in
        [("system:node:pi", nodes), ("kubernetes-admin", "admins"), ("system:node:other", "admins")]
    {
        let new = leaf_of(&ca, name, group);
        both(&new);
        shown(&new);
    }
    assert_eq!(said()[1], format!("{here}/pair: read again; connecting with it"));
    let recovered = "credentials: recovered after 540 s and 9 failed attempts";
    assert!(logged().iter().any(|line| line == recovered));
    // At a start there is no other one. The agent runs: the name may be corrected on the server.
    both(&leaf_of(&ca, "system:node:other", nodes));
    drop(with_files(server.port, &ca, user, &folder));
    let line = format!(
        "{here}/pair: the certificate is for the node other, but this node is pi; use \
         --hostname-override=other, or the certificate of pi"
    );
    assert_eq!(said().last(), Some(&line));
}
