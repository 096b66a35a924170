//! Answers that are wrong, old, or written in another form.

use std::time::Duration;

use apidouble::{Model, Request, Response};
use serde_json::{Value, json};

use super::draw::draw;
use super::trace::Exchange;
use super::world::{NODE, World};

/// The bytes of an answer, in parts with a pause before each, and whether the connection ends.
pub(super) struct Wire {
    pub(super) parts: Vec<(Vec<u8>, Duration)>,
    pub(super) closes: bool,
    /// Else the end of the connection is the end of the answer.
    pub(super) has_frame: bool,
    /// A chunk has no length: whoever reads that far has no answer.
    pub(super) is_broken: bool,
}

impl World {
    /// The object that a path names, as the cluster has it.
    fn object_at(&self, target: &str) -> Option<Value> {
        let path = target.split('?').next().unwrap_or_default().trim_end_matches("/status");
        let (code, value) =
            self.clusters[0].model.as_admin("GET", path, "application/json", &Value::Null);
        (code == 200).then_some(value)
    }

    /// The objects that servers show from now on which lag.
    pub(crate) fn lags(&mut self) {
        let model = &self.clusters[0].model;
        for what in [format!("nodes/{NODE}"), format!("leases/{NODE}")] {
            self.lagged.insert(what.clone(), model.get(&what).unwrap_or(Value::Null));
        }
    }

    /// The answer of a server that lags to a read.
    pub(super) fn lagging(&self, request: &Request, exchange: &Exchange) -> Option<Response> {
        self.faults.at("server-lags", exchange.server)?;
        let path = exchange.target.split('?').next().unwrap_or_default();
        let what = match () {
            () if exchange.method != "GET" => return None,
            () if path.ends_with(&format!("/nodes/{NODE}")) => format!("nodes/{NODE}"),
            () if path.ends_with(&format!("/leases/{NODE}")) => format!("leases/{NODE}"),
            () => return None,
        };
        match self.lagged.get(&what)? {
            Value::Null => Some(Model::refusal(request, 404, "not found by the simulation", None)),
            object => Some(Response::json(200, object)),
        }
    }

    /// How a server lies about this request: the size of its class, or one of them.
    pub(super) fn lies(&self, request: &Exchange) -> Option<u64> {
        let how = self.faults.at("server-lies", request.server)?;
        self.is_met("server-lies", request.number, 2).then_some(how)
    }

    /// A lie of status 200.
    pub(super) fn lie(&self, request: &Exchange, how: u64) -> Response {
        let model = &self.clusters[0].model;
        let node = model.get(&format!("nodes/{NODE}")).unwrap_or_default();
        let mut object = self.object_at(&request.target).unwrap_or_default();
        let body = match how {
            0 if request.is_lease() => node,
            0 => model.get(&format!("leases/{NODE}")).unwrap_or_default(),
            1 => {
                object["metadata"]["name"] = json!("somebody-else");
                object
            }
            2 => json!({}),
            3 => {
                object["kind"] = json!("Pod");
                object
            }
            4 => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "said by a server that lies"}),
            _ => json!({"kind": "List", "apiVersion": "v1", "items": null}),
        };
        Response::json(200, &body)
    }

    /// Whether a server that lies has carried the request out.
    pub(super) fn does_what_it_denies(&self, request: &Exchange) -> bool {
        draw(self.plan.seed, "lie", request.number).is_multiple_of(2)
    }

    /// An answer in the form that the faults of the time want.
    pub(super) fn wire(&self, response: &Response, server: usize) -> Wire {
        let none = Duration::ZERO;
        let (mut closes, mut has_frame, mut is_broken) = (response.closes(), true, false);
        let whole = match () {
            () if self.faults.at("http-1.0", server).is_some() => {
                (closes, has_frame) = (true, false);
                let (head, _) = Response::empty(response.code).wire();
                let status = String::from_utf8_lossy(&head).lines().next().unwrap_or("").to_owned();
                let head = status.replace("HTTP/1.1", "HTTP/1.0");
                [headers(&head, response).into_bytes(), response.body.clone()].concat()
            }
            () if self.faults.at("chunked", server).is_some() => chunked(response, false),
            () if self.faults.at("chunks-broken", server).is_some() => {
                is_broken = true;
                chunked(response, true)
            }
            () if self.faults.at("closes-each", server).is_some() => {
                closes = true;
                let (head, body) = response.clone().with("Connection", "close").wire();
                [head, body].concat()
            }
            () => {
                let (head, body) = response.wire();
                [head, body].concat()
            }
        };
        let parts = match self.faults.at("trickle", server) {
            Some(millis) => {
                let pause = Duration::from_millis(millis);
                whole.chunks(whole.len().div_ceil(6)).map(|part| (part.to_vec(), pause)).collect()
            }
            None => vec![(whole, none)],
        };
        Wire { parts, closes, has_frame, is_broken }
    }
}

/// The head of an answer whose body has no frame of its own.
fn headers(status: &str, response: &Response) -> String {
    let lines = response.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!("{status}\r\n{}\r\n", lines.collect::<String>())
}

/// Chunks of all kinds; in a broken answer the second one has no length.
fn chunked(response: &Response, is_broken: bool) -> Vec<u8> {
    let (head, _) = Response::empty(response.code).wire();
    let status = String::from_utf8_lossy(&head).lines().next().unwrap_or("").to_owned();
    let framed = response.clone().with("Transfer-Encoding", "chunked");
    let mut bytes = headers(&status, &framed).into_bytes();
    let size = response.body.len().div_ceil(3).max(1);
    for (index, part) in response.body.chunks(size).enumerate() {
        match is_broken && index == 1 {
            true => bytes.extend_from_slice(b"zz\r\n"),
            false => bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes()),
        }
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A redirect to another server.
pub(super) fn redirect(target: &str) -> Response {
    let place = format!("https://10.6.6.6:6443{target}");
    Response::text(307, "text/html", "<a href=\"x\">Temporary Redirect</a>")
        .with("Location", &place)
}
