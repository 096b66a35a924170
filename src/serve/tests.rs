//! The connection machine with a real TLS client, over a Unix socket and in virtual time.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, NameConstraints, SigningKey as _,
};
use rustls::crypto::ring::{self, sign};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, ServerConfig, SupportedProtocolVersion};

use super::client_ca::{ClientCa, issuers};
use super::config::ServeConfig;
use super::connection::{ConnectionNext, ConnectionState, MOST, PortConnection, PortConnections};
use super::head::{self, Head};
use super::journal::Journal;
use super::tls::{Certificates, server_config};
use crate::client::api_config::{ClientCertificate, Pem};
use crate::client::tls::{VerifiedAt, Verifier};
use crate::config::Config;
use crate::config::flags::Flags;
use crate::kube::instant::Mono;
use crate::kube::time::Wall;
use crate::kube::x509::{self, BIT_STRING, DerReader, INTEGER, SEQUENCE, element};
use crate::os::mounts::pretend_mount;
use crate::os::tree::Tree;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: pi\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\n\r\n";

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

/// The two ends of a connection. std reads, writes and shuts down a TCP stream by the same calls.
fn ends() -> (TcpStream, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    (OwnedFd::from(server).into(), client)
}

/// A CA, and certificates for clients.
struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    fn new(name: &str) -> Self {
        Self::with_limits(name, None)
    }

    fn with_limits(name: &str, name_constraints: Option<NameConstraints>) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.name_constraints = name_constraints;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    fn pem(&self) -> Pem {
        Pem { file: None, source: "ca".into(), bytes: self.1.clone().into_bytes() }
    }

    /// A certificate for a client, which is valid in 2026.
    fn valid(&self) -> Client {
        self.client(|_| {})
    }

    /// The same, unless `change` says otherwise.
    fn client(&self, change: impl FnOnce(&mut CertificateParams)) -> Client {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "monitors");
        params.distinguished_name.push(DnType::CommonName, "a");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        set_years(&mut params, 2025, 2028);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Some((certificate.der().clone(), key.serialize_der()))
    }
}

/// From the start of a year to that of another one.
fn set_years(params: &mut CertificateParams, from: i32, until: i32) {
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
}

fn verifies(ca: &ClientCa, authority: &Authority) -> bool {
    ca.verify(&[authority.valid().unwrap().0], year(2026)).is_ok()
}

/// The certificate with another body in place of its own: signed by `signer`, or as it was.
fn with_body(
    client: Client,
    signer: Option<&Authority>,
    body: impl FnOnce(Vec<&[u8]>) -> Vec<u8>,
) -> Client {
    let (certificate, key) = client.unwrap();
    let mut parts = DerReader::new(&certificate).inside(SEQUENCE).unwrap();
    let (mut inside, mut members) = (parts.inside(SEQUENCE).unwrap(), Vec::new());
    while let Some((_, _, member)) = inside.any() {
        members.push(member);
    }
    let body = body(members);
    let (_, _, algorithm) = parts.any().unwrap();
    let signature = match signer {
        Some(signer) => element(BIT_STRING, &[&[0], &signer.0.key().sign(&body).unwrap()]),
        None => parts.any().unwrap().2.to_vec(),
    };
    Some((element(SEQUENCE, &[&body, algorithm, &signature]).into(), key))
}

/// Without version and extensions.
fn version_1(members: Vec<&[u8]>) -> Vec<u8> {
    element(SEQUENCE, members.get(1..7).unwrap())
}

type Client = Option<(CertificateDer<'static>, Vec<u8>)>;

fn year(year: u32) -> Wall {
    Wall::parse(&format!("{year}-06-01T00:00:00Z")).unwrap()
}

fn serving() -> ClientCertificate {
    super::tls::self_signed("pi").unwrap()
}

fn config(ca: &ClientCa) -> Arc<ServerConfig> {
    server_config(&serving(), ca, false).unwrap()
}

/// A connection and its client.
struct Pair {
    server: PortConnection,
    client: ClientConnection,
    end: UnixStream,
}

impl Pair {
    fn new(
        tls: Arc<ServerConfig>,
        client: Client,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        Self::with_chain(tls, client, Vec::new(), versions)
    }

    /// The client also sends `intermediates`.
    fn with_chain(
        tls: Arc<ServerConfig>,
        client: Client,
        intermediates: Vec<CertificateDer<'static>>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let provider = ring::default_provider();
        let signatures = provider.signature_verification_algorithms;
        let any_server = Verifier { authorities: None, signatures };
        let mut config =
            ClientConfig::builder_with_details(Arc::new(provider), Arc::new(VerifiedAt))
                .with_protocol_versions(versions)
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(any_server))
                .with_no_client_auth();
        if let Some((certificate, key)) = client {
            // Also a key of another certificate.
            let key = sign::any_supported_type(&PrivateKeyDer::Pkcs8(key.into())).unwrap();
            let certified = CertifiedKey::new([vec![certificate], intermediates].concat(), key);
            config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        }
        let name = ServerName::try_from("pi").unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let (server, end) = ends();
        Self { server: PortConnection::new(server, PEER, tls, at(0)).unwrap(), client, end }
    }

    fn of(tls: &Arc<ServerConfig>) -> Self {
        Self::new(tls.clone(), None, rustls::DEFAULT_VERSIONS)
    }

    /// Lets both sides act until nothing moves.
    fn run(&mut self, now: Mono) -> ConnectionNext {
        for _ in 0..50 {
            while self.client.wants_write() {
                self.client.write_tls(&mut self.end).unwrap();
            }
            let next = self.server.turn(now);
            if next != ConnectionNext::Wait {
                return next;
            }
            while self.client.read_tls(&mut self.end).is_ok_and(|length| length > 0) {
                self.client.process_new_packets().unwrap();
            }
        }
        ConnectionNext::Wait
    }

    fn send(&mut self, bytes: &[u8], now: Mono) -> ConnectionNext {
        self.client.writer().write_all(bytes).unwrap();
        self.run(now)
    }

    /// What the server does, and until when.
    fn state(&self) -> (ConnectionState, Mono) {
        (self.server.state, self.server.deadline())
    }

    fn received(&mut self) -> String {
        let mut text = String::new();
        let _ = self.client.reader().read_to_string(&mut text);
        text
    }
}

fn no_ca() -> ClientCa {
    ClientCa::new(None).unwrap()
}

#[test]
fn a_connection_is_kept_from_answer_to_answer() {
    let tls = config(&no_ca());
    for version in rustls::DEFAULT_VERSIONS {
        let mut pair = Pair::new(tls.clone(), None, &[version]);
        assert_eq!(pair.state(), (ConnectionState::Handshake, at(10)));
        assert_eq!(pair.run(at(1)), ConnectionNext::Wait);
        assert_eq!(pair.state(), (ConnectionState::Idle, at(91)));
        for (second, bytes) in [(2, &REQUEST[..7]), (3, &REQUEST[7..20])] {
            assert_eq!(pair.send(bytes, at(second)), ConnectionNext::Wait);
            assert_eq!(pair.state(), (ConnectionState::Head, at(7)));
        }
        for (second, rest) in [(4, &REQUEST[20..]), (50, REQUEST)] {
            assert_eq!(pair.send(rest, at(second)), ConnectionNext::Answer);
            let Head::Whole { asked, is_last: false } = pair.server.head() else { panic!() };
            assert_eq!(asked.path, "/healthz");
            assert_eq!(
                pair.server.answer(ANSWER.as_bytes(), false, None, at(second)),
                ConnectionNext::Wait
            );
            assert_eq!(pair.state(), (ConnectionState::Idle, at(second + 90)));
            assert_eq!(pair.run(at(second)), ConnectionNext::Wait);
            assert_eq!(pair.received(), ANSWER);
        }
    }
}

/// The client gets all of the answer, although it sent more than was read.
#[test]
fn the_last_answer_is_followed_by_the_end_of_tls_and_a_second_of_patience() {
    let mut pair = Pair::of(&config(&no_ca()));
    assert_eq!(pair.send(&[REQUEST, REQUEST].concat(), at(1)), ConnectionNext::Answer);
    assert!(matches!(pair.server.head(), Head::Whole { is_last: true, .. }));
    assert_eq!(pair.server.answer(ANSWER.as_bytes(), true, None, at(2)), ConnectionNext::Wait);
    assert_eq!(pair.state(), (ConnectionState::Closing, at(3)));
    assert_eq!(pair.send(REQUEST, at(2)), ConnectionNext::Wait);
    assert_eq!(pair.received(), ANSWER);
    assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    assert_eq!(pair.end.read(&mut [0]).unwrap(), 0);
    assert_eq!(pair.state(), (ConnectionState::Closing, at(3)));
    pair.end.shutdown(Shutdown::Write).unwrap();
    assert_eq!(pair.server.turn(at(2)), ConnectionNext::Close);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut pair = Pair::of(&config(&no_ca()));
    assert_eq!(pair.send(REQUEST, at(1)), ConnectionNext::Answer);
    assert_eq!(pair.server.answer(&vec![b'x'; 1 << 20], false, None, at(1)), ConnectionNext::Wait);
    for second in 2..9 {
        pair.end.write_all(&[0; 100]).unwrap();
        assert_eq!(pair.server.turn(at(second)), ConnectionNext::Wait);
        assert!(pair.server.wants_write() && !pair.server.wants_read());
    }
    assert_eq!(pair.state(), (ConnectionState::Answer, at(11)));
    assert_eq!(pair.server.stream.read(&mut [0; 1000]).unwrap(), 700);
}

/// A connection that has begun to answer with the journal, our end of that, and journalctl's.
fn with_journal() -> (Pair, UnixStream, UnixStream) {
    let mut pair = Pair::of(&config(&no_ca()));
    assert_eq!(pair.send(REQUEST, at(1)), ConnectionNext::Answer);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let journal = Journal::new(ours.try_clone().unwrap());
    assert_eq!(
        pair.server.answer(ANSWER.as_bytes(), true, Some(journal), at(1)),
        ConnectionNext::Wait
    );
    (pair, ours, theirs)
}

/// The same, and 100 kB of the journal after the client has read the head. The socket of the client
/// takes a few KiB, and no more.
fn with_long_journal() -> (Pair, UnixStream, UnixStream) {
    let (mut pair, ours, mut journal) = with_journal();
    pair.run(at(1));
    setsockopt(&pair.server.stream, sockopt::SndBuf, &1).unwrap();
    journal.write_all(&[b'x'; 100_000]).unwrap();
    for _ in 0..20 {
        assert_eq!(pair.server.turn(at(2)), ConnectionNext::Wait);
    }
    (pair, ours, journal)
}

#[test]
fn the_journal_follows_its_head_until_its_end() {
    let (mut pair, _, mut journal) = with_journal();
    assert_eq!(pair.state(), (ConnectionState::Journal, at(41)));
    assert_eq!(pair.run(at(2)), ConnectionNext::Wait);
    assert_eq!(pair.received(), ANSWER);
    assert!(pair.server.awaited().is_some() && !pair.server.wants_read());
    for second in [3, 39, 70] {
        journal.write_all(b"a line\n").unwrap();
        assert_eq!(pair.run(at(second)), ConnectionNext::Wait);
        assert_eq!(pair.received(), "a line\n");
        assert_eq!(pair.server.deadline(), at(second + 40));
    }
    journal.shutdown(Shutdown::Both).unwrap();
    assert_eq!(pair.run(at(100)), ConnectionNext::Wait);
    assert_eq!(pair.state(), (ConnectionState::Closing, at(101)));
    assert!(!pair.server.has_journal() && pair.server.awaited().is_none());
    assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
}

/// A link of some 100 bytes a second.
#[test]
fn a_slow_client_gets_the_whole_journal() {
    let (mut pair, _, mut journal) = with_long_journal();
    journal.write_all(b"the last line\n").unwrap();
    journal.shutdown(Shutdown::Both).unwrap();
    let (mut second, mut received) = (1, String::new());
    while pair.server.state == ConnectionState::Journal {
        assert!(at(second) < pair.server.deadline(), "cut after {} bytes", received.len());
        // Two KiB fit into the socket.
        for _ in 0..3 {
            assert_eq!(pair.server.turn(at(second)), ConnectionNext::Wait);
            while pair.client.read_tls(&mut pair.end).is_ok_and(|length| length > 0) {
                pair.client.process_new_packets().unwrap();
            }
            received += &pair.received();
        }
        second += 39;
    }
    assert!(second > 300, "{second}");
    assert!(received.ends_with("x\nthe last line\n") || received.ends_with("xthe last line\n"));
    assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
}

/// No more of the journal is read than it takes, and it holds its place for 40 s.
#[test]
fn a_client_that_stops_within_a_journal_is_closed() {
    let (mut pair, mut ours, _journal) = with_long_journal();
    assert_eq!(pair.server.turn(at(30)), ConnectionNext::Wait);
    assert!(pair.server.wants_write() && pair.server.awaited().is_none());
    assert!(ours.read(&mut vec![0; 100_000]).unwrap() >= 80_000);
    let mut all = PortConnections(vec![pair.server]);
    assert_eq!((all.expire(at(41)), all.expire(at(42))), (Some(at(42)), None));
}

/// journalctl waits for a card that is stuck, and no signal ends it.
#[test]
fn a_journal_that_says_nothing_for_40_s_ends_with_a_line() {
    let (mut pair, _, _journal) = with_journal();
    pair.run(at(1));
    let mut all = PortConnections(vec![pair.server]);
    assert_eq!(all.expire(at(40)), Some(at(41)));
    assert_eq!(all.expire(at(41)), Some(at(81)));
    pair.server = all.0.remove(0);
    assert_eq!(pair.run(at(41)), ConnectionNext::Wait);
    let received = pair.received();
    assert!(received.contains("\nerror: cut after 30 s; "), "{received}");
    assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    assert_eq!(pair.server.state, ConnectionState::Closing);
}

#[test]
fn a_client_without_tls_gets_gos_hint() {
    let tls = config(&no_ca());
    for text in ["GET / HTTP/1.1\r\n\r\n", "\0", "\u{15}\u{3}\u{3}"] {
        let (stream, mut end) = ends();
        let mut server = PortConnection::new(stream, PEER, tls.clone(), at(0)).unwrap();
        end.write_all(text.as_bytes()).unwrap();
        assert_eq!(server.turn(at(1)), ConnectionNext::Wait);
        assert_eq!((server.state, server.deadline()), (ConnectionState::Closing, at(2)));
        let mut answer = String::new();
        end.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request"));
    }
}

#[test]
fn a_handshake_has_32_kib_and_a_head_8() {
    // A record of the handshake with the start of a ClientHello of 64 KiB, and two others.
    let tls = config(&no_ca());
    let (stream, mut end) = ends();
    let mut server = PortConnection::new(stream, PEER, tls.clone(), at(0)).unwrap();
    let record =
        |start: &[u8]| [&[0x16, 3, 1, 0x40, 0][..], start, &vec![0; 0x4000 - start.len()]].concat();
    end.write_all(&record(&[1, 0, 0xff, 0xff])).unwrap();
    end.write_all(&record(&[])).unwrap();
    end.write_all(&record(&[])).unwrap();
    let turns = (0..20).position(|_| server.turn(at(1)) == ConnectionNext::Close);
    assert_eq!(turns, Some(8));

    let mut pair = Pair::of(&tls);
    assert_eq!(pair.send(&[b'x'; head::LONGEST], at(1)), ConnectionNext::Wait);
    assert_eq!(pair.send(b"x", at(1)), ConnectionNext::Answer);
    assert_eq!(pair.server.head(), Head::Refused(431));
}

#[test]
fn an_end_without_a_request_or_garbage_closes_a_connection() {
    let tls = config(&no_ca());
    let mut pair = Pair::of(&tls);
    pair.end.shutdown(Shutdown::Write).unwrap();
    assert_eq!(pair.server.turn(at(1)), ConnectionNext::Close);
    for (request, next) in [(&b""[..], ConnectionNext::Close), (REQUEST, ConnectionNext::Answer)] {
        let mut pair = Pair::of(&tls);
        assert_eq!(pair.run(at(1)), ConnectionNext::Wait);
        pair.client.writer().write_all(request).unwrap();
        pair.client.send_close_notify();
        assert_eq!(pair.run(at(1)), next);
    }
    let mut pair = Pair::of(&tls);
    assert_eq!(pair.run(at(1)), ConnectionNext::Wait);
    pair.end.write_all(&[0x17, 3, 3, 0, 20]).unwrap();
    pair.end.write_all(&[0; 20]).unwrap();
    assert_eq!(pair.server.turn(at(1)), ConnectionNext::Close);
    // The alert is sent.
    assert!(pair.client.read_tls(&mut pair.end).unwrap() > 0);
    assert!(pair.client.process_new_packets().is_err());
}

const OTHER_KEY: &str = "its key cannot be verified";
const NO_CERTIFICATE: &str = "a certificate that cannot be parsed";

/// webpki refuses version 1 and a certificate of a CA, which count for Go. Each condition holds for
/// them as well. Users are kept, so their size is limited. A handshake proves nothing about a key
/// that ring cannot use, whoever has the certificate.
#[test]
fn a_certificate_of_the_ca_names_its_user_and_another_nobody() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let limits = NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.org".into())],
        excluded_subtrees: Vec::new(),
    };
    let [ours, forged] = ["ours", "ours"].map(Authority::new);
    let foreign = Authority::new("foreign");
    let limited = Authority::with_limits("limited", Some(limits));
    let mut ca = ours.pem();
    ca.bytes.extend(limited.1.bytes());
    let ca = ClientCa::new(Some(&ca)).unwrap();
    let tls = config(&ca);
    let dated = |signer: &Authority, from: i32, until: i32| {
        signer.client(|params| set_years(params, from, until))
    };
    let named =
        |name: &str| ours.client(|params| params.distinguished_name.push(DnType::CommonName, name));
    let without_name = ours.client(|params| {
        params.distinguished_name.remove(DnType::CommonName);
    });
    let of = |signer: &Authority, from: i32, until: i32| {
        with_body(dated(signer, from, until), Some(signer), version_1)
    };
    let as_ca = |signer: &Authority, usage: ExtendedKeyUsagePurpose, until: i32| {
        signer.client(|params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.extended_key_usages = vec![usage];
            set_years(params, 2025, until);
        })
    };
    let with_usage = |usage| ours.client(|params| params.extended_key_usages = vec![usage]);
    let another = |members: Vec<&[u8]>| {
        let body = element(SEQUENCE, &members);
        let at = body.windows(8).position(|text| text == b"monitors").unwrap();
        [&body[..at], b"system:m", &body[at + 8..]].concat()
    };
    let with_extensions = |members: Vec<&[u8]>| element(SEQUENCE, &members[1..]);
    let with_key = |algorithm: &[u8], key: &[u8]| {
        let key = element(SEQUENCE, &[algorithm, &element(BIT_STRING, &[&[0], key])]);
        with_body(ours.valid(), Some(&ours), |members| {
            element(SEQUENCE, &[&members[..6], &[&key], &members[7..]].concat())
        })
    };
    let rsa = |bytes: usize| {
        let modulus = element(INTEGER, &[&[0], &vec![0xff; bytes]]);
        let algorithm = [0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0];
        with_key(&algorithm, &element(SEQUENCE, &[&modulus, &[2, 3, 1, 0, 1]]))
    };
    let p521 = [0x30, 16, 6, 7, 42, 0x86, 72, 0xce, 61, 2, 1, 6, 5, 43, 129, 4, 0, 35];
    let long = "x".repeat(20 << 10);
    let too_long = format!("\"{}\": it is longer than 16384 bytes", &long[..64]);
    for (what, certificate, why) in [
        ("ours", ours.valid(), ""),
        ("of another CA", foreign.valid(), "no CA of clients"),
        ("of a forged CA", forged.valid(), "its signature is not of"),
        ("expired", dated(&ours, 2020, 2022), "it has expired"),
        ("not yet", dated(&ours, 2028, 2030), "it is not valid yet"),
        ("a server's", with_usage(ServerAuth), "its extended key usage, or"),
        ("without a name", without_name, "it has no common name"),
        ("with an empty name", named(""), "it has no common name"),
        ("20 KiB", named(&long), &too_long),
        ("any usage", with_usage(Any), ""),
        ("version 1", of(&ours, 2025, 2028), ""),
        ("version 1 of another CA", of(&foreign, 2025, 2028), "no CA of clients has signed it"),
        ("version 1 of a forged CA", of(&forged, 2025, 2028), "its signature is not of"),
        ("version 1 below limits", of(&limited, 2025, 2028), ""),
        ("version 1, expired", of(&ours, 2020, 2022), "it has expired"),
        ("version 1, not yet", of(&ours, 2028, 2030), "it is not valid yet"),
        ("version 1, changed", with_body(of(&ours, 2025, 2028), None, another), "its signature"),
        (
            "version 1 with extensions",
            with_body(ours.valid(), Some(&ours), with_extensions),
            "it is not as RFC 5280 says",
        ),
        ("of a CA", as_ca(&ours, ClientAuth, 2028), ""),
        ("of a CA, any usage", as_ca(&ours, Any, 2028), ""),
        ("of a CA that is a server", as_ca(&ours, ServerAuth, 2028), "its extended key usage, or"),
        ("of a CA, of another CA", as_ca(&foreign, ClientAuth, 2028), "no CA of clients"),
        ("of a CA, of a forged CA", as_ca(&forged, ClientAuth, 2028), "its signature is not of"),
        ("of a CA, expired", as_ca(&ours, ClientAuth, 2026), "it has expired"),
        ("RSA with 2040 bits", rsa(255), OTHER_KEY),
        ("RSA with 8200 bits", rsa(1025), OTHER_KEY),
        ("P-521", with_key(&p521, &[&[4], &[7; 132][..]].concat()), OTHER_KEY),
        ("of no known key", with_key(&[], &[]), OTHER_KEY),
        (
            "no certificate",
            ours.valid().map(|(_, key)| (vec![0x30, 0].into(), key)),
            NO_CERTIFICATE,
        ),
    ] {
        for version in rustls::DEFAULT_VERSIONS {
            let mut pair = Pair::new(tls.clone(), certificate.clone(), &[version]);
            assert_eq!(pair.send(REQUEST, at(1)), ConnectionNext::Answer, "{what}: no alert");
            let user = pair.server.user(&ca, year(2026));
            match (&user, why) {
                (Ok(Some(user)), "") => {
                    assert_eq!((&*user.name, &*user.groups), ("a", &["monitors".to_owned()][..]));
                }
                (Err(said), why) if !why.is_empty() => {
                    assert!(said.contains(why), "{what}: {said}")
                }
                _ => panic!("{what}: {user:?}"),
            }
            // Somebody who has the certificate, but not its key.
            let (stolen, _) = certificate.clone().unwrap();
            let thief = Some((stolen, ours.valid().unwrap().1));
            let mut pair = Pair::new(tls.clone(), thief, &[version]);
            let is_provable = ![OTHER_KEY, NO_CERTIFICATE].contains(&why);
            assert_eq!(pair.send(REQUEST, at(1)) == ConnectionNext::Close, is_provable, "{what}");
        }
    }
    // Of RSA with 2048 bits it is proven, and this client has another key.
    for version in rustls::DEFAULT_VERSIONS {
        let mut pair = Pair::new(tls.clone(), rsa(256), &[version]);
        assert_eq!(pair.send(REQUEST, at(1)), ConnectionNext::Close);
    }
    let mut pair = Pair::of(&tls);
    assert_eq!(pair.send(REQUEST, at(1)), ConnectionNext::Answer);
    assert_eq!(pair.server.user(&ca, year(2026)), Ok(None));
}

#[test]
fn the_dates_of_a_certificate_are_compared_at_each_request() {
    let [ours, other] = ["ours", "other"].map(Authority::new);
    let [ca, other] = [&ours, &other].map(|ca| ClientCa::new(Some(&ca.pem())).unwrap());
    let mut pair = Pair::new(config(&ca), ours.valid(), rustls::DEFAULT_VERSIONS);
    assert_eq!(pair.run(at(1)), ConnectionNext::Wait);
    // A clock that is set, an expiry, and a CA that is replaced.
    for (now, is_known) in [(1970, false), (2026, true), (2028, false), (2027, true), (2024, false)]
    {
        assert_eq!(pair.server.user(&ca, year(now)).is_ok(), is_known, "{now}");
    }
    pair.server.forget_user();
    assert!(pair.server.user(&other, year(2026)).is_err());
}

/// As crypto/x509 does, which verifies the whole chain with each request.
#[test]
fn an_intermediate_ca_that_expires_ends_the_user_of_an_open_connection() {
    let root = Authority::new("root");
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.distinguished_name.push(DnType::CommonName, "intermediate");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    set_years(&mut params, 2026, 2027);
    let certificate = params.signed_by(&key, &root.0).unwrap();
    let intermediate = Authority(Issuer::new(params, key), certificate.pem());
    let ca = ClientCa::new(Some(&root.pem())).unwrap();
    let chain = vec![certificate.der().clone()];
    let client = intermediate.valid();
    let mut pair = Pair::with_chain(config(&ca), client, chain, rustls::DEFAULT_VERSIONS);
    assert_eq!(pair.run(at(1)), ConnectionNext::Wait);
    for (now, is_known) in [(2026, true), (2027, false), (2025, false), (2026, true)] {
        assert_eq!(pair.server.user(&ca, year(now)).is_ok(), is_known, "{now}");
    }
}

#[test]
fn tls_1_2_can_be_refused() {
    for (only_tls13, next) in [(true, ConnectionNext::Close), (false, ConnectionNext::Wait)] {
        let tls = server_config(&serving(), &no_ca(), only_tls13).unwrap();
        assert_eq!(Pair::new(tls, None, &[&rustls::version::TLS12]).run(at(1)), next);
    }
}

#[test]
fn a_full_house_closes_the_longest_idle_then_whoever_waits_longest() {
    let tls = config(&no_ca());
    let mut all = PortConnections::new();
    let new = |second| PortConnection::new(ends().0, PEER, tls.clone(), at(second)).unwrap();
    for second in 0..8 {
        assert_eq!(all.room(), Some(at(0)));
        all.add(new(second), at(second));
    }
    assert_eq!(all.0.len(), MOST);
    // Each one a handshake: the oldest may go after 2 s.
    assert_eq!(all.room(), Some(at(2)));
    all.add(new(8), at(8));
    let begun = |all: &PortConnections| {
        let mut begun: Vec<Mono> = all.0.iter().map(|connection| connection.since).collect();
        begun.sort_unstable();
        begun
    };
    assert_eq!(begun(&all), (1..9).map(at).collect::<Vec<_>>());
    // An idle one goes at once, if it was answered; all others wait for something.
    let asker = all.0.iter().position(|connection| connection.since == at(5)).unwrap();
    (all.0[asker].state, all.0[asker].was_answered) = (ConnectionState::Idle, true);
    assert_eq!(all.room(), Some(at(3)));
    all.add(new(9), at(9));
    assert_eq!(begun(&all), [1, 2, 3, 4, 6, 7, 8, 9].map(at));
    for (index, state) in
        [ConnectionState::Idle, ConnectionState::Head].into_iter().cycle().take(MOST).enumerate()
    {
        all.0[index].state = state;
    }
    all.add(new(10), at(10));
    assert_eq!(begun(&all), [2, 3, 4, 6, 7, 8, 9, 10].map(at));
    // Those that get an answer never go, and the newcomer does.
    for connection in &mut all.0 {
        connection.state = ConnectionState::Answer;
    }
    assert_eq!(all.room(), None);
    let before = begun(&all);
    all.add(new(11), at(11));
    assert_eq!(begun(&all), before);
    // Until their time is over: 10 s.
    assert_eq!(all.expire(at(11)), Some(at(12)));
    assert!(all.expire(at(14)).is_some() && all.0.len() < MOST);
    assert_eq!(all.expire(at(20)), None);
    // Nobody had a turn from 5 to 9.
    all.add(new(0), at(0));
    all.skip_time(at(5), at(9));
    assert_eq!(all.expire(at(13)), Some(at(14)));
}

/// What is in the kubeconfig, or stands behind the board's certificate.
#[test]
fn of_the_cas_of_the_credentials_only_the_issuer_counts() {
    // Another CA may have the same name.
    let [ours, other, twin] = ["ours", "other", "ours"].map(Authority::new);
    let pem = |der: &[u8]| x509::pem("CERTIFICATE", der);
    // The clock does not matter.
    let own = ours.client(|params| set_years(params, 2020, 2021));
    let own = pem(&own.unwrap().0);
    let all = format!("{}{}{}", other.1, ours.1, twin.1);
    for (candidates, is_found) in [
        (["", ""], false),
        ([&ours.1, ""], true),
        (["", &ours.1], true),
        ([&ours.1, &ours.1], true),
        ([&other.1, &twin.1], false),
        ([&all, ""], true),
        ([&format!("\u{feff}{all}"), ""], true),
        ([&other.1, &all], true),
        ([&own, &own], false),
    ] {
        let found = issuers(own.as_bytes(), candidates.iter().map(|pem| pem.as_bytes()));
        let wanted = CertificateDer::from_pem_slice(ours.1.as_bytes()).unwrap();
        let wanted = is_found.then(|| pem(&wanted).into_bytes());
        assert_eq!(found.map(|ca| ca.bytes.clone()), wanted, "{candidates:?}");
    }
    assert!(issuers(b"", [ours.1.as_bytes()].into_iter()).is_none());
}

#[test]
fn the_ca_of_the_credentials_is_used_as_long_as_they_have_one() {
    let [old, new] = ["old", "new"].map(Authority::new);
    let (node, config) = (Config::default(), ServeConfig::new(&Flags::of(&[]).values).unwrap());
    let certificates =
        Certificates::open(&node, &config, Some(old.pem()), Path::new("/nonexistent"));
    let mut certificates = certificates.unwrap();
    assert!(certificates.refresh(|| Some(old.pem()), at(60)).is_none());
    // A token, or a certificate of another signer, takes the place of the board's certificate.
    let (_, ca) = certificates.refresh(|| None, at(120)).unwrap();
    assert_eq!([&old, &new].map(|authority| verifies(&ca, authority)), [false, false]);
    assert!(certificates.refresh(|| None, at(180)).is_none());
    assert!(certificates.refresh(|| Some(new.pem()), at(239)).is_none());
    let (_, ca) = certificates.refresh(|| Some(new.pem()), at(240)).unwrap();
    assert_eq!([&old, &new].map(|authority| verifies(&ca, authority)), [false, true]);
}

#[test]
fn files_that_are_replaced_are_used_a_minute_later() {
    let (tree, ca) = (Tree::new("serving-files"), Authority::new("ours"));
    let write = |name: &str, text: &[u8]| {
        // Another inode: a stamp has the resolution of the kernel's clock.
        let _ = std::fs::remove_file(tree.join(name));
        tree.write(name, text);
    };
    let new_pair = || {
        let pair = serving();
        write("tls.crt", &pair.chain.bytes);
        write("tls.key", &pair.key.bytes);
    };
    new_pair();
    write("ca.crt", ca.1.as_bytes());
    let config = ServeConfig {
        tls_files: Some((tree.join("tls.crt"), tree.join("tls.key"))),
        client_ca_file: Some(tree.join("ca.crt")),
        ..ServeConfig::new(&Flags::of(&[]).values).unwrap()
    };
    let none = Path::new("/nonexistent");
    let mut certificates = Certificates::open(&Config::default(), &config, None, none).unwrap();
    assert!(certificates.refresh(|| None, at(60)).is_none());
    new_pair();
    assert!(certificates.refresh(|| None, at(119)).is_none());
    // The server of a root on a network may be dead.
    pretend_mount(Path::new("/"), "nfs4");
    assert!(certificates.refresh(|| None, at(120)).is_none());
    pretend_mount(Path::new("/"), "ext4");
    assert!(certificates.refresh(|| None, at(180)).is_some());
    assert!(certificates.refresh(|| None, at(240)).is_none());
    // A half-written pair is not used, and does not hide another CA.
    write("tls.key", b"");
    write("ca.crt", Authority::new("new").1.as_bytes());
    let (_, new) = certificates.refresh(|| None, at(300)).unwrap();
    assert!(!verifies(&new, &ca));
    assert!(certificates.refresh(|| None, at(360)).is_none());
}

/// As the kubeconfig, of the same unit.
#[test]
fn files_with_a_bare_name_may_be_credentials_of_systemd() {
    let tree = Tree::new("serving-credentials");
    tree.write("tls.crt", b"");
    tree.write("ca.crt", b"");
    let mut config = ServeConfig {
        tls_files: Some(("tls.crt".into(), "./tls.crt".into())),
        client_ca_file: Some("ca.crt".into()),
        ..ServeConfig::new(&Flags::of(&[]).values).unwrap()
    };
    let given = config.clone();
    super::find_files(&mut config, None);
    assert_eq!(config, given);
    super::find_files(&mut config, Some(tree.path()));
    assert_eq!(config.tls_files, Some((tree.join("tls.crt"), "./tls.crt".into())));
    assert_eq!(config.client_ca_file, Some(tree.join("ca.crt")));
}
