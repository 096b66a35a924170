//! The loop of the port: one poll over the listener and the connections, no thread.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use rustls::ServerConfig;

use super::access::{Access, Asker, User, Verdict};
use super::answers::{Asked, PortAnswer, answer};
use super::client_ca::ClientCa;
use super::config::ServeConfig;
use super::connection::{ConnectionNext, PortConnection, PortConnections};
use super::head::Head;
use super::listener;
use super::logs;
use super::readings::{Readings, wall};
use super::reviews::Reviews;
use super::tls::Certificates;
use crate::config::Config;
use crate::credentials::IdentitySource;
use crate::host::Host;
use crate::kube::instant::Mono;
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::os::clock::{Clock, pause};
use crate::os::read::cause;

/// Pause after an accept or a poll that failed, for example because there is no free memory.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// The port and what it needs to answer.
pub(super) struct Port {
    listener: TcpListener,
    /// After a failed accept, the listener is not polled before this time.
    rests: Mono,
    accept_log: OutageLog,
    connections: PortConnections,
    tls: Arc<ServerConfig>,
    ca: ClientCa,
    certificates: Certificates,
    /// Logs client certificates that are not accepted.
    client_log: OutageLog,
    responder: Responder,
    clock: Clock,
    /// Exit after this time without a connection; `None` is never.
    idle_exit: Option<Duration>,
}

/// What an answer is made of.
#[derive(Debug)]
struct Responder {
    access: Access,
    reviews: Reviews,
    readings: Readings,
    log_socket: Option<PathBuf>,
}

impl Port {
    /// Opens the port; it listens from now on. `cert_dir` is the folder of the certificate that the
    /// cluster issues. With `--listen` there is no idle exit, because nothing would start the
    /// process again.
    pub(super) fn open(
        config: &Config,
        serve: &ServeConfig,
        source: &IdentitySource,
        host: Host,
        cert_dir: &Path,
    ) -> Result<Self, Fault> {
        let clock = Clock::start();
        let (listener, address) = listener(serve)?;
        let reviews = Reviews::open(source, serve.access, clock)?;
        let certificates = Certificates::open(config, serve, reviews.client_ca(), cert_dir)?;
        let (tls, ca) = certificates.tls()?;
        let mut readings = Readings::new(config, serve, host);
        readings.served.server_not_after = certificates.not_after();
        let has_end = serve.listen.is_none() && !serve.idle_exit.is_zero();
        let responder = Responder {
            access: Access::new(serve.access, &config.node.name),
            reviews,
            readings,
            log_socket: serve.log_socket.clone(),
        };
        log::info!("node {}: answering on {address}", config.node.name);
        Ok(Self {
            listener,
            rests: Mono::START,
            accept_log: OutageLog::new("accept"),
            connections: PortConnections::new(),
            tls,
            ca,
            certificates,
            client_log: OutageLog::new("client certificate"),
            responder,
            clock,
            idle_exit: has_end.then_some(serve.idle_exit),
        })
    }

    /// Answers until nobody has asked for `--idle-exit`.
    pub(super) fn run(mut self: Box<Self>) {
        // The last time at which there was a connection. It begins after the start, because a start
        // may take longer than `--idle-exit`.
        let mut busy = self.clock.now().mono;
        loop {
            let now = self.clock.now().mono;
            let deadline = self.connections.expire(now);
            let idle = self.idle_exit.filter(|_| deadline.is_none());
            let end = idle.map(|idle| busy.after(idle));
            if end.is_some_and(|end| end <= now) {
                return;
            }
            let room = self.connections.room().map(|room| room.max(self.rests));
            let accepts = room.is_some_and(|room| room <= now);
            let later = room.filter(|_| !accepts);
            let rotation = self.certificates.due(self.responder.reviews.seen());
            let wake = [deadline, end, later, rotation].into_iter().flatten().min();
            let ready = self.wait(accepts, wake.map(|wake| wake.since(now)));
            let now = self.clock.now().mono;
            if deadline.is_some() {
                // Set before the turns, because a turn may close the last connection.
                busy = now;
            }
            let reviews = &mut self.responder.reviews;
            let cluster_ca = || {
                reviews.refresh();
                reviews.client_ca()
            };
            let new = self.certificates.refresh(cluster_ca, now);
            self.use_certificates(new);
            // Backwards: `swap_remove` moves the last connection to the place of a closed one, and
            // the last connection has had its turn.
            for index in (0..self.connections.0.len()).rev() {
                if ready.get(index) == Some(&true) && self.turn(index) == ConnectionNext::Close {
                    self.connections.0.swap_remove(index);
                }
            }
            if accepts && ready.last() == Some(&true) {
                self.accept();
            }
            let start = self.clock.now().mono;
            let new = self.certificates.step(&mut self.responder.reviews);
            self.connections.skip_time(start, self.clock.now().mono);
            self.use_certificates(new);
        }
    }

    /// Uses the new serving certificate for new connections, and the new CA for all connections:
    /// open ones verify their client certificate again at the next request.
    fn use_certificates(&mut self, new: Option<(Arc<ServerConfig>, ClientCa)>) {
        if let Some((tls, ca)) = new {
            (self.tls, self.ca) = (tls, ca);
            self.connections.0.iter_mut().for_each(PortConnection::forget_user);
            self.responder.readings.served.server_not_after = self.certificates.not_after();
        }
    }

    /// Waits for at most `limit`. Returns for each connection whether it is ready, and as the last
    /// element whether the listener is ready; empty if the wait was interrupted or failed.
    fn wait(&self, accepts: bool, limit: Option<Duration>) -> Vec<bool> {
        let flag = |flag, is_set| if is_set { flag } else { PollFlags::empty() };
        let connections = self.connections.0.iter().map(|connection| {
            let read = flag(PollFlags::POLLIN, connection.wants_read());
            let write = flag(PollFlags::POLLOUT, connection.wants_write());
            match connection.awaited() {
                Some(journal) => PollFd::new(journal, PollFlags::POLLIN),
                None => PollFd::new(connection.stream.as_fd(), read | write),
            }
        });
        let listener = PollFd::new(self.listener.as_fd(), flag(PollFlags::POLLIN, accepts));
        let mut descriptors: Vec<PollFd<'_>> = connections.chain([listener]).collect();
        match ppoll(&mut descriptors, limit.map(TimeSpec::from_duration), None) {
            Ok(_) => descriptors.iter().map(|descriptor| descriptor.any() == Some(true)).collect(),
            Err(Errno::EINTR) => Vec::new(),
            Err(_) => {
                // ENOMEM: the loop must not spin.
                pause(ERROR_PAUSE);
                Vec::new()
            }
        }
    }

    fn accept(&mut self) {
        let now = self.clock.now().mono;
        let opened = self.listener.accept().and_then(|(stream, peer)| {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            self.certificates.on_accepted(stream.local_addr()?.ip().to_canonical(), now);
            Ok((stream, peer.ip().to_canonical()))
        });
        let opened = match opened {
            Ok((stream, peer)) => PortConnection::new(stream, peer, self.tls.clone(), now),
            // The client has gone before the accept. The next poll shows whether another client
            // waits.
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::ConnectionAborted].contains(&e.kind()) => {
                return;
            }
            Err(e) => Err(cause(&e).to_string()),
        };
        match opened {
            Ok(connection) => {
                self.accept_log.succeeded(now);
                self.connections.add(connection, now);
            }
            Err(why) => {
                self.accept_log.failed(&why, now);
                self.rests = now.after(ERROR_PAUSE);
            }
        }
    }

    fn turn(&mut self, index: usize) -> ConnectionNext {
        let reads_journal = self.connections.0.iter().any(PortConnection::has_journal);
        let Some(connection) = self.connections.0.get_mut(index) else {
            return ConnectionNext::Wait;
        };
        let start = self.clock.now();
        let next = connection.turn(start.mono);
        if next != ConnectionNext::Answer {
            return next;
        }
        let (answer, is_head, is_last) = match connection.head() {
            Head::Partial => return ConnectionNext::Wait,
            Head::Refused(code) => (PortAnswer::refusal(code), false, true),
            Head::Whole { asked, is_last } => {
                let user = connection.user(&self.ca, self.responder.reviews.certificate_time());
                let from = format!("not used: from {}, ", connection.peer);
                let user = match user {
                    Ok(user) => {
                        user.inspect(|_| self.client_log.succeeded_for(&from));
                        user
                    }
                    Err(why) => {
                        self.client_log.failed(&format!("{from}{why}"), start.mono);
                        None
                    }
                };
                let answer = self.responder.answer(user, connection.peer, &asked, reads_journal);
                let is_last = is_last || answer.journal.is_some();
                (answer, asked.method == "HEAD", is_last)
            }
        };
        self.responder.readings.served.count(answer.code);
        let now = self.clock.now();
        let bytes = answer.render(is_head, is_last, wall(now));
        let next = connection.answer(&bytes, is_last, answer.journal, now.mono);
        // A judgement takes some seconds. This time counts for no connection.
        self.connections.skip_time(start.mono, now.mono);
        next
    }
}

impl Responder {
    fn answer(
        &mut self,
        user: Option<&User>,
        peer: IpAddr,
        asked: &Asked<'_>,
        reads_journal: bool,
    ) -> PortAnswer {
        let asker = Asker { user, token: asked.token, peer };
        let verdict = self.access.judge(&asker, asked.method, asked.path, &mut self.reviews);
        self.readings.served.reviews = self.access.counts;
        self.readings.served.client_not_after = self.reviews.client_not_after;
        self.readings.served.cluster_time = wall(self.reviews.seen().now);
        match verdict {
            Verdict::Allowed if let Some(path) = logs::path(asked.path) => {
                logs::answer(asked, path, self.log_socket.as_deref(), reads_journal)
            }
            Verdict::Allowed => answer(asked, &mut self.readings, self.reviews.time_of_values()),
            refused => PortAnswer::refused(refused),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::thread;

    use super::*;
    use crate::config::flags::Flags;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;

    const KUBECONFIG: &[u8] = b"{current-context: a, \
        contexts: [{name: a, context: {cluster: a, user: a}}], \
        clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], \
        users: [{name: a, user: {token: x}}]}";

    /// A port that ends after two seconds without a connection: a busy machine may add one.
    fn open(name: &str) -> Port {
        let tree = Tree::empty(name);
        tree.write("kubeconfig", KUBECONFIG);
        let serve = ServeConfig::new(&Flags::of(&["--listen=127.0.0.1:0"]).values).unwrap();
        let config = Config::of(&[]);
        let source = IdentitySource::new(&config, &tree.join("kubeconfig"), None);
        let host = Host::new(HostRoot::default(), tree.path());
        let port = Port::open(&config, &serve, &source, host, tree.path()).unwrap();
        Port { idle_exit: Some(Duration::from_secs(2)), ..port }
    }

    /// What a client without TLS is told; empty if nobody accepts its connection.
    fn ask(address: SocketAddr) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    const HINT: &str = "HTTP/1.0 400 Bad Request";

    /// Without it no metric says how long the certificates are valid.
    #[test]
    fn an_answer_takes_the_time_that_the_certificates_are_judged_by() {
        let mut responder = open("port-time").responder;
        let asked = Asked { method: "GET", path: "/metrics", query: "", token: None };
        assert_eq!(responder.answer(None, [127, 0, 0, 1].into(), &asked, false).code, 401);
        let time = responder.readings.served.cluster_time.unwrap();
        assert!(responder.reviews.seen().now.wall.since(time) < Duration::from_secs(60));
    }

    /// systemd would start it again and again, and each would end before it accepts.
    #[test]
    fn a_start_that_takes_longer_than_the_idle_time_answers() {
        let port = open("port-slow-start");
        let address = port.listener.local_addr().unwrap();
        pause(Duration::from_millis(2100));
        let client = thread::spawn(move || ask(address));
        Box::new(port).run();
        assert!(client.join().unwrap().starts_with(HINT));
    }

    #[test]
    fn the_idle_time_begins_at_the_end_of_the_last_connection() {
        let port = open("port-idle");
        let address = port.listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let silent = TcpStream::connect(address).unwrap();
            pause(Duration::from_millis(3600));
            drop(silent);
            pause(Duration::from_millis(600));
            ask(address)
        });
        Box::new(port).run();
        assert!(client.join().unwrap().starts_with(HINT));
    }
}
