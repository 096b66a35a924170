//! How servers answer: right, late, wrong, or not at all.

use std::time::Duration;

use apidouble::{Model, Response};
use serde_json::Value;

use super::answers::redirect;
use super::trace::{Exchange, Got, What};
use super::world::{Event, World};

/// A request that a server has begun to carry out.
#[derive(Debug)]
pub(crate) struct Request {
    connection: u64,
    request: apidouble::Request,
    exchange: Exchange,
    end: End,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq)]
enum End {
    /// It is carried out, and answered.
    Answer,
    /// It is carried out, unless the client is gone by then.
    AnswerIfAwaited,
    /// It is carried out; the answer is lost.
    Lost,
    /// It is carried out; a part of the answer arrives, then the connection ends.
    Cut,
    /// No answer; it is not carried out.
    Silence,
    /// This status and message.
    Refuse(u16, &'static str),
    /// A page of a gateway.
    Page(u16),
    /// A status of success with a body that is no JSON.
    Garbage,
    /// A status of success with the body of this lie.
    Lie(u64),
    /// It leads to another server.
    Redirect,
}

impl World {
    /// A whole request has arrived.
    pub(crate) fn take_request(&mut self, connection: u64, request: apidouble::Request) {
        self.requests += 1;
        let Some(found) = self.net.connections.get(&connection) else { return };
        let server = found.server;
        let exchange = Exchange {
            number: self.requests,
            pid: found.pid,
            cluster: self.servers[server].cluster,
            server,
            method: request.method.clone(),
            target: request.target.clone(),
            body: serde_json::from_slice(&request.body).unwrap_or_default(),
            arrived: self.now,
            clock: self.board_wall(),
            ..Exchange::default()
        };
        self.tell(What::Request(Box::new(exchange.clone())));
        self.check_renewal(connection, &exchange);
        self.race(&exchange);
        let (delay, end) = self.end_of(&exchange);
        let at = self.now + Duration::from_millis(3) + delay;
        self.plan_at(at, Event::Serves(Box::new(Request { connection, request, exchange, end })));
    }

    /// How long a request takes at its server, and what becomes of it.
    fn end_of(&self, request: &Exchange) -> (Duration, End) {
        let (faults, server, number) = (&self.faults, request.server, request.number);
        let millis = Duration::from_millis;
        let is_write = request.method != "GET";
        let is_object = request.is_lease() || request.target.starts_with("/api/v1/nodes/");
        let is_create_of_node = request.method == "POST" && request.target == "/api/v1/nodes";
        let is_patch_of_node =
            request.method == "PATCH" && request.target.starts_with("/api/v1/nodes/");
        let met = |class: &'static str| {
            let one_in = faults.at(class, server)?;
            self.is_met(class, number, one_in).then_some(())
        };
        let mut delay = millis(faults.at("server-slow", server).unwrap_or(0));
        if request.is_lease() && is_write {
            delay += millis(faults.at("lease-slow", server).unwrap_or(0));
        }
        if request.target.ends_with("/status") {
            delay += millis(faults.size("status-slow").unwrap_or(0));
        }
        let code = |size: u64| u16::try_from(size).unwrap_or(500);
        let is_hooked = match faults.target("node-webhook") {
            Some(1) => is_create_of_node,
            Some(2) => is_patch_of_node,
            Some(_) => is_create_of_node || is_patch_of_node,
            None => false,
        };
        if is_hooked {
            delay += Duration::from_secs(10);
        }
        let end = match () {
            () if faults.at("redirects", server).is_some() => End::Redirect,
            () if self.is_forbidden(&request.target) => End::Refuse(403, FORBIDDEN),
            () if request.is_lease()
                && request.method == "POST"
                && faults.has("lease-create-forbidden") =>
            {
                End::Refuse(403, FORBIDDEN)
            }
            () if met("server-busy").is_some() => End::Refuse(429, BUSY),
            () if is_hooked => End::Refuse(500, HOOK),
            () if request.target.starts_with("/api/v1/pods")
                && let Some(size) = faults.size("pods-refused") =>
            {
                End::Refuse(code(size), "refused by the simulation")
            }
            () if request.target.starts_with("/v1-k3s/")
                && let Some(size) = faults.size("supervisor-refuses") =>
            {
                End::Refuse(code(size), "refused by the simulation")
            }
            () if is_object && request.method == "GET" && faults.has("gateway-page-of-objects") => {
                End::Page(404)
            }
            () if let Some(size) = faults.at("gateway-page", server) => End::Page(code(size)),
            () if let Some(size) = faults.at("server-forbids", server) => {
                End::Refuse(code(size), "refused by the simulation")
            }
            () if let Some(size) = faults.at("server-refuses", server) => {
                End::Refuse(code(size), "the server is currently unable to handle the request")
            }
            () if is_create_of_node && faults.has("node-create-silent") => End::Silence,
            () if is_patch_of_node && faults.has("node-patch-silent") => End::Silence,
            () if is_create_of_node && let Some(size) = faults.size("node-create-refused") => {
                End::Refuse(code(size), "failed calling webhook \"nodes.test\"")
            }
            () if is_patch_of_node && let Some(size) = faults.size("node-patch-refused") => {
                End::Refuse(code(size), "failed calling webhook \"nodes.test\"")
            }
            () if request.is_lease()
                && is_write
                && let Some(size) = faults.size("lease-refused") =>
            {
                End::Refuse(code(size), "refused by the simulation")
            }
            () if met("answers-lost").is_some() => End::Lost,
            () if met("answers-cut").is_some() => End::Cut,
            () if met("answers-garbage").is_some() => End::Garbage,
            () if let Some(how) = self.lies(request) => End::Lie(how),
            () if !delay.is_zero() => End::AnswerIfAwaited,
            () => End::Answer,
        };
        (delay, end)
    }

    /// Whether the roles of nodes lack what this path needs.
    fn is_forbidden(&self, target: &str) -> bool {
        let paths = [
            "/api/v1/nodes",
            "/apis/coordination.k8s.io/",
            "/api/v1/namespaces/default/events",
            "/api/v1/pods",
            "/apis/certificates.k8s.io/",
        ];
        let lost = self.faults.size("rbac-lost").and_then(|size| usize::try_from(size).ok());
        lost.and_then(|index| paths.get(index)).is_some_and(|path| target.starts_with(path))
    }

    /// A server carries a request out, or not.
    pub(crate) fn serve(&mut self, request: Request) {
        let Request { connection, request, mut exchange, end } = request;
        let is_gone = self.is_unheard(exchange.server)
            || self.faults.at("server-gone", exchange.server).is_some();
        if end == End::Silence
            || is_gone
            || end == End::AnswerIfAwaited && !self.is_awaited(connection)
        {
            self.answered(exchange);
            return;
        }
        self.set_double();
        let cluster = exchange.cluster;
        let certificates = self.certificates(connection);
        let retry_after = self.faults.size("retry-after").or(self.faults.size("server-busy"));
        if exchange.is_node_write() {
            let model = &self.clusters[cluster].model;
            let created = exchange.body["metadata"]["name"].as_str();
            let name = exchange.target.split(['/', '?']).nth(4).or(created).unwrap_or_default();
            exchange.before = model.get(&format!("nodes/{name}")).unwrap_or_default();
        }
        let response = match &end {
            End::Refuse(code, message) => {
                let retry_after = retry_after.filter(|_| *code == 429 || *code >= 500);
                Model::refusal(&request, *code, message, retry_after)
            }
            End::Page(code) => page(*code),
            End::Garbage => garbage(),
            End::Redirect => redirect(&exchange.target),
            End::Lie(how) => {
                if self.does_what_it_denies(&exchange) {
                    let model = &self.clusters[cluster].model;
                    let (user, done) = model.answer(&request, certificates.as_deref());
                    exchange.user = user;
                    // The code of the lie is 200, also for what was refused.
                    exchange.is_carried_out = done.code < 300;
                }
                self.lie(&exchange, *how)
            }
            _ => {
                let before = self.of_others(&exchange);
                let model = &self.clusters[cluster].model;
                let (user, response) = model.answer(&request, certificates.as_deref());
                self.check_certificate(cluster, &user, certificates.as_deref());
                exchange.user = user;
                exchange.is_carried_out = true;
                if response.code < 300 {
                    self.compare_others(&exchange, before);
                }
                match self.lagging(&request, &exchange) {
                    Some(old) if response.code != 401 => old,
                    _ => response,
                }
            }
        };
        exchange.code = response.code;
        exchange.answer = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
        let mut headers = response.headers.iter();
        let delay = headers.find(|(name, _)| name == "Retry-After");
        exchange.retry_after =
            delay.and_then(|(_, seconds)| seconds.parse().ok()).map(Duration::from_secs);
        let wire = self.wire(&response, exchange.server);
        let answer = Got {
            pid: exchange.pid,
            number: exchange.number,
            code: response.code,
            is_of_server: !matches!(end, End::Page(_) | End::Garbage),
            is_odd: matches!(end, End::Lie(_) | End::Redirect),
            is_broken: wire.is_broken,
            retry_after: exchange.retry_after,
        };
        self.answered(exchange);
        if !matches!(end, End::Lost | End::Cut)
            && let Some(connection) = self.net.connections.get_mut(&connection)
        {
            connection.answer = Some(answer);
        }
        match end {
            End::Lost => {}
            End::Cut => {
                let parts = wire.parts.into_iter().map(|(part, _)| part);
                let whole = parts.collect::<Vec<_>>().concat();
                let part = whole.get(..whole.len() / 2).unwrap_or_default();
                self.flush(connection, &[(part, Duration::ZERO)]);
                self.end_connection(connection, false);
            }
            _ => {
                let parts: Vec<(&[u8], Duration)> =
                    wire.parts.iter().map(|(part, pause)| (part.as_slice(), *pause)).collect();
                self.flush(connection, &parts);
                self.answer_is_sent(connection);
                if wire.closes {
                    self.close_connection(connection);
                }
                if !wire.has_frame {
                    self.answer_is_sent(connection);
                }
            }
        }
    }
}

/// What kube-apiserver says.
const FORBIDDEN: &str = "is forbidden: User \"system:node:pi\" cannot do that (simulated)";
const BUSY: &str = "Too many requests, please try again later.";
const HOOK: &str = "Internal error occurred: failed calling webhook \"nodes.test\": context deadline \
                    exceeded";

fn page(code: u16) -> Response {
    let body = b"<html><body>gateway</body></html>".to_vec();
    // The clock of the gateway is wrong.
    let headers = [("Content-Type", "text/html"), ("Date", "Tue, 19 Jan 2038 00:00:00 GMT")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Response { code, headers, body }
}

fn garbage() -> Response {
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    Response { code: 200, headers, body: b"{\"kind\":\"No".to_vec() }
}
