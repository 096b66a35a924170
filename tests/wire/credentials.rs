//! Tokens and client certificates that are replaced at run time.

use std::fs;
use std::path::Path;

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

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

/// An API client and the files of its credentials.
struct Client(Credentials);

impl Client {
    fn refresh(&mut self, now: Mono) {
        self.0.refresh(Now { mono: now, ..Now::default() }.into());
    }

    fn call(&mut self, request: &Request, budget: Duration) -> Answer {
        let outcome = self.0.current.api.call(request, budget);
        self.0.current.on_answer(&outcome);
        outcome
    }
}

/// As above, with `user` and files in `folder`.
fn with_files(port: u16, ca: &Authority, user: &str, folder: &Path) -> Client {
    let text = kubeconfig_text(&format!("https://127.0.0.1:{port}"), &ca.pem, user);
    fs::write(folder.join("kubeconfig"), text).unwrap();
    let config = Config::new(Flags::default(), || Ok("pi".to_owned())).unwrap();
    let source = IdentitySource::new(&config, &folder.join("kubeconfig"), None);
    Client(source.open(Wall::default(), Jitter::NONE).unwrap())
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
    let mut api = with_files(server.port, &ca, "tokenFile: token, token: old", folder.path());
    let mut call = |now| {
        api.refresh(now);
        answered(api.call(&get(), BUDGET));
        token(&server)
    };
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
        assert_eq!(call(at(second)), want, "at {second}");
    }
    fs::remove_file(folder.path().join("token")).unwrap();
    assert_eq!(call(at(302)), "fourth");
    assert_eq!(server.connections(), 1, "a token needs no connection of its own");
}

#[test]
fn a_replaced_pair_opens_a_new_connection_and_a_broken_one_does_not() {
    let ca = Authority::new();
    let leaf = || ca.leaf(&["pi"]);
    for version in [&TLS12, &TLS13] {
        let tls = ca.config(&ca.leaf(&["127.0.0.1"]), &[version], Some(&ca));
        let server = Server::start(Some(tls), ok);
        let folder = Folder::new("pair");
        let user = "client-certificate: crt, client-key: key";
        let (first, second, third) = (leaf(), leaf(), leaf());
        folder.write("crt", &first.0);
        folder.write("key", &first.1);
        let mut api = with_files(server.port, &ca, user, folder.path());
        let mut shown = |now, want: &Leaf, connections| {
            api.refresh(now);
            answered(api.call(&get(), BUDGET));
            assert_eq!(seen(&server), want.0);
            assert_eq!(server.connections(), connections);
        };
        shown(at(0), &first, 1);
        shown(at(60), &first, 1);
        // Half of the pair, half of a file, no file, garbage.
        folder.write("crt", &second.0);
        shown(at(120), &first, 1);
        folder.write("key", &second.1[..100]);
        shown(at(180), &first, 1);
        fs::remove_file(folder.path().join("key")).unwrap();
        shown(at(240), &first, 1);
        folder.write("key", "x".repeat(2 << 20));
        shown(at(300), &first, 1);
        folder.write("key", &second.1);
        shown(at(359), &first, 1);
        shown(at(360), &second, 2);
        shown(at(420), &second, 2);
        // Replaced by rename.
        for (name, text) in [("crt", &third.0), ("key", &third.1)] {
            let new = folder.write("new", text);
            fs::rename(new, folder.path().join(name)).unwrap();
        }
        shown(at(480), &third, 3);
        shown(at(540), &third, 3);
    }
}

#[test]
fn a_refused_certificate_is_read_again_at_once() {
    let (ca, other) = (Authority::new(), Authority::new());
    let tls = ca.config(&ca.leaf(&["127.0.0.1"]), &[&TLS13], Some(&ca));
    let server = Server::start(Some(tls), ok);
    let folder = Folder::new("refused");
    let (bad, good) = (other.leaf(&["pi"]), ca.leaf(&["pi"]));
    let both = |leaf: &Leaf| folder.write("pair", format!("{}{}", leaf.0, leaf.1));
    both(&bad);
    let user = "client-certificate: pair, client-key: pair";
    let mut api = with_files(server.port, &ca, user, folder.path());
    for second in [0, 1] {
        api.refresh(at(second));
        silent(api.call(&get(), BUDGET));
    }
    both(&good);
    api.refresh(at(2));
    answered(api.call(&get(), BUDGET));
}

#[test]
fn inline_data_is_never_read_again() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), ok);
    let folder = Folder::new("data");
    let user = format!("{}, token: abc", client_certificate(&ca.leaf(&["pi"])));
    let mut client = with_files(server.port, &ca, &user, folder.path());
    for minute in 0..3 {
        client.refresh(at(minute * 60));
        answered(client.call(&get(), BUDGET));
    }
    assert_eq!(server.connections(), 1);
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
    let mut api = with_files(server.port, &ca, user, folder.path());
    let mut minute = 0;
    let mut shown = |api: &mut Client, want: &Leaf| {
        minute += 1;
        api.refresh(at(minute * 60));
        answered(api.call(&get(), BUDGET));
        assert_eq!(seen(&server), want.0);
    };
    shown(&mut api, &own);
    both(&leaf_of(&ca, "system:node:other", nodes));
    for _ in 0..9 {
        shown(&mut api, &own);
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
        shown(&mut api, &new);
    }
    assert_eq!(said()[1], format!("{here}/pair: read again; connecting with it"));
    let recovered = "credentials: recovered after 540 s and 9 failed attempts";
    assert!(logged().iter().any(|line| line == recovered));
    // At a start there is no other one. The agent runs: the name may be corrected on the server.
    both(&leaf_of(&ca, "system:node:other", nodes));
    drop(with_files(server.port, &ca, user, folder.path()));
    let line = format!(
        "{here}/pair: the certificate is for the node other, but this node is pi; use \
         --hostname-override=other, or the certificate of pi"
    );
    assert_eq!(said().last(), Some(&line));
}
