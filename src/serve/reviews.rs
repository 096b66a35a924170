//! The API server, which says who a client is and what it may: one request at a time.
//!
//! All connections wait during a request. The agent, another process, renews the credentials.

use std::time::Duration;

use ring::hmac;
use ring::rand::SystemRandom;

use super::access::{AccessConfig, BUDGET, ReviewContext, ReviewTime};
use super::client_ca::issuers;
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, Pem};
use crate::credentials::{Credentials, IdentitySource};
use crate::kube::instant::{ClusterSeen, Mono, Now};
use crate::kube::message::{Answer, Request};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::os::clock::{self, Clock};

/// A connection without an answer for this time is not used again: it may have died silently
/// meanwhile, by a change of the address, a NAT, or a suspend, and a review has only a few seconds.
/// A kube-apiserver closes such a connection after 90 s.
const KEPT: Duration = Duration::from_secs(60);

/// Shortest time for which the server's time counts.
const TIME_HOLDS: Duration = Duration::from_secs(3600);

/// Most that the board's clock differs from the server's if both are right: the server tells whole
/// seconds, and its answer takes some.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// How long the server's time counts. Each review tells it again, and a user who is in the cache
/// causes no review: so it counts for longer than the cache.
fn time_holds(cache: AccessConfig) -> Duration {
    cache.token_ttl.max(cache.authorized_ttl).saturating_mul(2).max(TIME_HOLDS)
}

/// The API server, with the node's credentials.
#[derive(Debug)]
pub(super) struct Reviews {
    credentials: Credentials,
    clock: Clock,
    /// The key of the digests of tokens.
    key: hmac::Key,
    /// Until when the open connection is used.
    kept_until: Mono,
    /// The server's time in its last answer, and when that came.
    server_time: Option<(Mono, Wall)>,
    /// How long that time counts.
    time_holds: Duration,
    /// The end of the node's certificate.
    pub(super) client_not_after: Option<Wall>,
}

impl Reviews {
    /// Reads the credentials. If the certificate has expired by the board's clock, which may be
    /// wrong, it is used all the same: the API server judges it.
    pub(super) fn open(
        source: &IdentitySource,
        cache: AccessConfig,
        clock: Clock,
    ) -> Result<Self, Fault> {
        let mut credentials = source.open_read_only(clock.now().wall)?;
        if credentials.bootstrap.is_some() {
            // At this time no certificate has expired.
            credentials = source.open_read_only(Wall::default())?;
        }
        if let Some(why) = credentials.bootstrap {
            let remedy = "there is no certificate yet: start nodelet, which gets it";
            return Err(Fault::new(why.to_string(), remedy));
        }
        let config = &credentials.current.api.config;
        if config.certificate.is_none() && config.authorization.is_none() {
            let remedy = "the API server tells nobody else who a client is: add a client \
                          certificate or a token";
            return Err(Fault::new("the kubeconfig has no credentials", remedy));
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| "no random numbers for a key")?;
        let client_not_after = credentials.current.not_after();
        Ok(Self {
            credentials,
            clock,
            key,
            kept_until: Mono::START,
            server_time: None,
            time_holds: time_holds(cache),
            client_not_after,
        })
    }

    /// Now, by the server's clock once it has told its time.
    pub(super) fn seen(&self) -> ClusterSeen {
        let now = self.clock.now();
        // A time that was wrong may keep all clients out, so that no review brings another one.
        let known = self.server_time.filter(|(at, _)| now.mono.since(*at) < self.time_holds);
        let wall = known.map(|(at, date)| date.after(now.mono.since(at)));
        let knows_time = wall.is_some();
        let seen = Now { wall: wall.unwrap_or(now.wall), ..now };
        ClusterSeen { knows_time, has_date: knows_time, board: now.wall, ..seen.into() }
    }

    /// Now, for the times of values. It is the board's time: the server's has whole seconds, so a
    /// review would move it. If the two differ, the wall time is 1970 and counts as not known.
    pub(super) fn time_of_values(&self) -> Now {
        let (now, server) = (self.clock.now(), self.seen().now.wall);
        let skew = now.wall.since(server).max(server.since(now.wall));
        if skew > MAX_SKEW { Now { wall: Wall::default(), ..now } } else { now }
    }

    /// When a client certificate must be valid: at the server's time if it is known, else at the
    /// board's; never earlier than the build.
    pub(super) fn certificate_time(&self) -> Wall {
        clock::of_certificates(self.seen().now.wall)
    }

    /// Where the API server is, and its CA.
    pub(super) fn kubeconfig(&self) -> &ApiConfig {
        &self.credentials.current.api.config
    }

    /// The CA that has signed the board's own client certificate, if the current credentials have
    /// it: in the kubeconfig, or in the chain behind the certificate, as k3s sends it. Any other CA
    /// of the kubeconfig only verifies servers, and may sign for everybody.
    pub(super) fn client_ca(&self) -> Option<Pem> {
        let config = self.kubeconfig();
        let chain = &config.certificate.as_ref()?.chain;
        let ca = config.ca.iter();
        issuers(&chain.bytes, ca.chain([chain]).map(|pem| pem.bytes.as_slice()))
    }

    /// Reads credentials that were replaced, once a minute.
    pub(super) fn refresh(&mut self) {
        if self.credentials.refresh(self.seen()) {
            self.client_not_after = self.credentials.current.not_after();
        }
    }

    /// A client of the supervisor, which signs a serving certificate.
    pub(super) fn serving_client(&self, node_ips: &str) -> Result<Api, Fault> {
        self.credentials.current.serving_client(node_ips)
    }

    fn send(&mut self, request: &Request, time: &mut ReviewTime) -> Answer {
        let (start, api) = (self.now(), &mut self.credentials.current.api);
        if self.kept_until <= start {
            api.hang_up();
        }
        let mut connected = Ok(());
        if !api.is_connected() && std::mem::take(&mut time.may_connect) {
            connected = api.connect(BUDGET);
            time.deadline = time.deadline.after(self.clock.now().mono.since(start));
        }
        let left = time.deadline.since(self.clock.now().mono);
        let answer = connected.and_then(|()| api.call(request, left));
        if let Ok(response) = &answer {
            let now = self.now();
            self.kept_until = now.after(KEPT);
            self.server_time = response.date.map(|date| (now, date)).or(self.server_time);
        }
        self.credentials.current.on_answer(&answer);
        answer
    }
}

impl ReviewContext for Reviews {
    fn now(&self) -> Mono {
        self.clock.now().mono
    }

    fn digest(&self, bytes: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.key, bytes);
        tag.as_ref().try_into().unwrap_or_default()
    }

    /// Before the request, reads credentials that were replaced, at most once a minute. After a
    /// refusal or without an answer, looks for them at once, also in the kubeconfig, which may name
    /// another server since; and sends the request again if there are others and time is left.
    fn call(&mut self, request: &Request, time: &mut ReviewTime) -> Answer {
        self.refresh();
        let answer = self.send(request, time);
        if answer.as_ref().is_ok_and(|response| response.code < 300) {
            return answer;
        }
        let at = self.seen();
        if !self.credentials.refresh(at) && !self.credentials.search(at.now.wall) {
            return answer;
        }
        self.client_not_after = self.credentials.current.not_after();
        if time.deadline <= self.now() {
            return answer;
        }
        self.send(request, time)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::config::Config;
    use crate::kube::message::Accept;
    use crate::os::tree::Tree;

    const CACHE: AccessConfig = AccessConfig {
        accepts_tokens: true,
        token_ttl: Duration::from_secs(120),
        authorized_ttl: Duration::from_secs(300),
        unauthorized_ttl: Duration::from_secs(30),
    };

    /// Else a scraper with a client certificate would be refused by a wrong clock of the board, and
    /// a request that is refused causes no review.
    #[test]
    fn the_servers_time_counts_until_the_next_review() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(time_holds(CACHE), hours(1));
        let authorized_ttl = hours(1);
        assert_eq!(time_holds(AccessConfig { authorized_ttl, ..CACHE }), hours(2));
        let token_ttl = hours(3);
        assert_eq!(time_holds(AccessConfig { token_ttl, authorized_ttl, ..CACHE }), hours(6));
        let endless = AccessConfig { token_ttl: Duration::MAX, ..CACHE };
        assert_eq!(time_holds(endless), Duration::MAX);
    }

    /// A server that says for each request over which connection it came.
    #[test]
    fn a_connection_is_used_again_for_a_minute_and_its_servers_time_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (mut stream, sender) = (stream.unwrap(), sender.clone());
                thread::spawn(move || {
                    while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                        sender.send(number).unwrap();
                        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\
                                      Date: Sun, 01 Jan 2040 00:00:00 GMT\r\n\r\n{}";
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                });
            }
        });
        let tree = Tree::empty("reviews-idle");
        let kubeconfig = format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], \
             users: [{{name: a, user: {{token: x}}}}]}}"
        );
        tree.write("kubeconfig", kubeconfig.as_bytes());
        let source = IdentitySource::new(&Config::of(&[]), &tree.join("kubeconfig"), None);
        let mut reviews = Reviews::open(&source, CACHE, Clock::start()).unwrap();
        assert!(!reviews.seen().knows_time);
        assert!(!reviews.certificate_time().time().starts_with("2040"));
        assert!(reviews.time_of_values().wall > clock::built());
        let mut last = None;
        for (age, connection) in [(0, 0), (0, 0), (30, 0), (60, 1), (0, 1)] {
            // As if the last answer had come so many seconds before now.
            let age = Duration::from_secs(age);
            reviews.kept_until = reviews.now().after(KEPT.saturating_sub(age));
            let request = Request::get("/".to_owned(), Accept::Object);
            let given = reviews.now().after(Duration::from_secs(20));
            let mut time = ReviewTime { deadline: given, may_connect: true };
            assert_eq!(reviews.call(&request, &mut time).unwrap().code, 200);
            assert_eq!(receiver.recv().unwrap(), connection, "{age:?}");
            let is_new = last.replace(connection) != Some(connection);
            assert_eq!(time.deadline > given, is_new, "the time of a new connection");
            assert_eq!(time.may_connect, !is_new, "once in a judgement");
            assert!(reviews.kept_until > reviews.now().after(KEPT / 2));
            let seen = reviews.seen();
            assert!(seen.knows_time && seen.now.wall.time().starts_with("2040-01-01T00:0"));
            assert!(reviews.certificate_time().time().starts_with("2040-01-01T00:0"));
            assert_eq!(reviews.time_of_values().wall, Wall::default());
        }
        for (behind, is_known) in [(50, true), (70, false)] {
            let now = reviews.clock.now();
            let server = now.wall.before(Duration::from_secs(behind));
            reviews.server_time = Some((now.mono, server));
            assert_eq!(reviews.time_of_values().wall >= now.wall, is_known, "{behind}");
        }
        // Its clock is not set: a client that is refused would cause no review, and so no new date.
        reviews.server_time = Some((reviews.now(), Wall::default()));
        assert_eq!(reviews.certificate_time(), clock::built());
        reviews.time_holds = Duration::ZERO;
        assert!(!reviews.seen().knows_time);
        let cache = AccessConfig { token_ttl: TIME_HOLDS, ..CACHE };
        let reviews = Reviews::open(&source, cache, Clock::start()).unwrap();
        assert_eq!(reviews.time_holds, 2 * TIME_HOLDS);
    }

    /// The API server moved, and the agent wrote the kubeconfig of the new one after the port had
    /// read the old one.
    #[test]
    fn the_server_of_another_kubeconfig_is_found_without_an_answer_of_the_old_one() {
        let key = rcgen::KeyPair::generate().unwrap();
        let chain = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        let tree = Tree::empty("reviews-moved");
        tree.write("pair", format!("{chain}{}", key.serialize_pem()).as_bytes());
        let write = |server: &str| {
            let kubeconfig = format!(
                "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
                 clusters: [{{name: a, cluster: {{server: '{server}'}}}}], \
                 users: [{{name: a, user: {{client-certificate: pair, client-key: pair}}}}]}}"
            );
            tree.write("kubeconfig", kubeconfig.as_bytes());
        };
        write("http://127.0.0.1:1");
        let cert_dir = format!("--cert-dir={}", tree.join("pki").display());
        let config = Config::of(&["--rotate-certificates", &cert_dir]);
        let source = IdentitySource::new(&config, &tree.join("kubeconfig"), None);
        let mut reviews = Reviews::open(&source, CACHE, Clock::start()).unwrap();
        let request = Request::get("/".to_owned(), Accept::Object);
        let mut call = || {
            let mut time = ReviewTime::new(reviews.now());
            reviews.call(&request, &mut time).map(|response| response.code)
        };
        assert!(call().is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        write(&format!("http://{}", listener.local_addr().unwrap()));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        assert_eq!(call().unwrap(), 200);
        server.join().unwrap();
        // An outage: the files have nothing else, so the request is not sent again.
        let now = reviews.seen().now.wall;
        assert!(!reviews.credentials.search(now));
    }

    /// The clock is ahead, and the bootstrap kubeconfig is still there.
    #[test]
    fn a_certificate_that_has_expired_by_the_boards_clock_is_used() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let chain = params.self_signed(&key).unwrap().pem();
        let tree = Tree::empty("reviews-expired");
        tree.write("pair", format!("{chain}{}", key.serialize_pem()).as_bytes());
        let kubeconfig = |user| {
            format!(
                "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
                 clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}], \
                 users: [{{name: a, user: {{{user}}}}}]}}"
            )
        };
        tree.write("bootstrap", kubeconfig("token: x").as_bytes());
        let flags = [("bootstrap-kubeconfig", "bootstrap"), ("cert-dir", "pki")];
        let flags = flags.map(|(flag, name)| format!("--{flag}={}", tree.join(name).display()));
        let config = Config::of(&[&flags[0], &flags[1]]);
        let open = || {
            let source = IdentitySource::new(&config, &tree.join("kubeconfig"), None);
            Reviews::open(&source, CACHE, Clock::start())
        };
        let why = open().unwrap_err().to_string();
        assert!(why.contains("there is no certificate yet"), "{why}");
        let user = "client-certificate: pair, client-key: pair";
        tree.write("kubeconfig", kubeconfig(user).as_bytes());
        let end = open().unwrap().client_not_after;
        assert_eq!(end, Wall::parse("2020-01-01T00:00:00Z"));
    }
}
