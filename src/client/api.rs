//! One request to the API server, bounded in time and size, over one kept connection.
//!
//! One call is one request: no retry and no redirect. A response of any status code is an answer.
//! ureq does HTTP/1.1, over a connection that `transport` opens.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ureq::Agent;
use ureq::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use ureq::http::{self, Uri, request};

use crate::kube::message::{Accept, Answer, Method, Request, Response};
use crate::kube::text::{Fault, FaultKind};
use crate::kube::time::parse_http_date;

use super::api_config::{ApiConfig, Authorization};
pub use super::failure::Distrust;
use super::failure::{AT_PROXY, Failure, Stage};
use super::route::Route;
use super::transport::{Connection, Dialer, HEAD_LIMIT, NoLookup};

/// Longer than any interval between two requests. The server may close the connection earlier.
const IDLE_AGE: Duration = Duration::from_secs(3600);
/// The User-Agent. A kubelet adds the system and the architecture to its own. They would make each
/// request longer here, and the Node reports them already.
const NAME: &str = concat!("nodelet/", env!("CARGO_PKG_VERSION"));

/// Asks for the object's metadata alone. Every API server since 1.15 has this form.
const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Every kind that the agent writes has a protobuf form.
const RECEIPT: &str = "application/vnd.kubernetes.protobuf";

/// The API server of a kubeconfig.
#[derive(Debug)]
pub struct Api {
    agent: Agent,
    route: Arc<Route>,
    /// The path of the last request, and its URI: most requests renew the same Lease.
    last: Option<(String, Uri)>,
    authorization: Option<HeaderValue>,
    /// The headers of [`Api::set_headers`], which are not part of the Kubernetes API; marked
    /// sensitive.
    more: Vec<(HeaderName, HeaderValue)>,
    /// Where the server is, and the credentials in use.
    pub config: ApiConfig,
}

impl Api {
    /// Checks certificates and keys; does not connect.
    pub fn new(config: &ApiConfig) -> Result<Self, Fault> {
        let route = Arc::new(Route::new(config)?);
        let authorization = config.authorization.as_ref().map(Authorization::header_value);
        Ok(Self {
            agent: agent(&route),
            route,
            last: None,
            authorization: authorization.transpose()?,
            more: Vec::new(),
            config: config.clone(),
        })
    }

    /// Opens the connection of the next call, within `budget`, which includes the name lookup. If
    /// the server closes this connection before that call, the call opens another one.
    pub fn connect(&mut self, budget: Duration) -> Result<(), Fault> {
        Connection::open_early(&self.route, budget).map_err(|failure| {
            self.route.failed();
            self.fault(failure.into(), Stage::Connecting).at(&self.config.endpoint)
        })
    }

    /// Sends `request` and reads the whole answer within `budget`, which includes the name lookup
    /// and the connection.
    pub fn call(&mut self, request: &Request, budget: Duration) -> Answer {
        let answer = self.exchange(request, budget);
        match &answer {
            // A 5xx or a 429 is about the server and not about the request. It neither proves that
            // this address works, nor that it has failed.
            Ok(response) if response.code >= 500 || response.code == 429 => {}
            Ok(_) => self.route.answered(),
            Err(_) => self.route.failed(),
        }
        answer.map_err(|fault| fault.at(&self.config.endpoint))
    }

    /// Copies from `old` the addresses of the server's name, which of them answered last and which
    /// failed, if `old` has the same server and the same proxy.
    pub fn keep_addresses_of(&mut self, old: &Self) {
        self.route.keep_addresses_of(&old.route);
    }

    /// Uses the credentials and the CA of `config` from the next request on, over a new connection.
    /// If server and proxy are the same, the address that answered last is tried first.
    pub fn set_identity(&mut self, config: &ApiConfig) -> Result<(), Fault> {
        let mut new = Self::new(config)?;
        new.keep_addresses_of(self);
        new.more = std::mem::take(&mut self.more);
        *self = new;
        Ok(())
    }

    /// Sends another header `Authorization` from the next request on; the connection stays.
    pub fn set_authorization(&mut self, new: &Authorization) -> Result<(), Fault> {
        self.authorization = Some(new.header_value()?);
        self.config.authorization = Some(new.clone());
        Ok(())
    }

    /// Sends these headers from the next request on. A value is a secret.
    pub fn set_headers(&mut self, headers: &[(&'static str, &str)]) -> Result<(), Fault> {
        self.more.clear();
        for (name, value) in headers {
            let mut value = HeaderValue::try_from(*value)
                .map_err(|_| format!("{name} has a control character in it"))?;
            value.set_sensitive(true);
            self.more.push((HeaderName::from_static(name), value));
        }
        Ok(())
    }

    /// Limits the time of an answer to a request that has to open its connection; the time counts
    /// from the open connection. Without this limit, such an answer may take what the connection
    /// has left of the call's budget: 19 of 20 s, if the connection took 1 s.
    pub fn set_answer_budget(&mut self, budget: Option<Duration>) {
        self.route.set_answer_budget(budget);
    }

    /// Closes the kept connection. The next call opens one to another address of the server's name,
    /// where there is one.
    pub fn disconnect(&mut self) {
        self.route.failed();
        self.hang_up();
    }

    /// Closes the kept connection. The next call opens one to the same address.
    pub fn hang_up(&mut self) {
        self.route.take_early();
        self.agent = agent(&self.route);
    }

    /// Does what [`Api::disconnect`] does, but only if the server's name is known to have another
    /// address.
    pub fn try_other_address(&mut self) {
        if self.route.has_other_address() {
            self.disconnect();
        }
    }

    /// Whether the next call will find a connection that the server has not closed.
    pub fn is_connected(&self) -> bool {
        self.route.is_connected()
    }

    /// Whether the last connection was set up, TLS included, even if it is closed by now.
    pub fn was_connected(&self) -> bool {
        self.route.was_connected()
    }

    /// Why the last attempt to connect could not verify the server's certificate, if that failed.
    pub fn distrust(&self) -> Option<Distrust> {
        self.route.distrust()
    }

    fn exchange(&mut self, request: &Request, budget: Duration) -> Result<Response, Fault> {
        let head = self.head(request)?;
        let answer = match request.method {
            Method::Get => self.run(http::Request::from_parts(head, ()), budget)?,
            Method::Post | Method::Patch | Method::Delete => {
                self.run(http::Request::from_parts(head, request.body.as_slice()), budget)?
            }
        };
        let (parts, body) = answer.into_parts();
        let length = body.content_length().unwrap_or(0);
        let limit = request.accept.body_limit();
        let mut bytes = Vec::new();
        let mut is_large = length > limit as u64;
        // A body that is not read to its end closes the connection.
        if !is_large {
            bytes.reserve_exact(usize::try_from(length).unwrap_or(0));
            body.into_reader()
                .take(limit as u64 + 1)
                .read_to_end(&mut bytes)
                .map_err(|e| self.fault(e.into(), Stage::Body))?;
            is_large = bytes.len() > limit;
        }
        if is_large {
            bytes = Vec::new();
        }
        debug_assert!(bytes.len() <= limit, "{} bytes of {limit}", bytes.len());
        let text = |name| parts.headers.get(name)?.to_str().ok();
        let retry_after = text(RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
        let response = Response {
            code: parts.status.as_u16(),
            retry_after: retry_after.map(Duration::from_secs),
            date: None,
            body: bytes,
            exceeds: is_large.then_some(limit),
        };
        let date = text(DATE).filter(|_| response.is_of_server()).and_then(parse_http_date);
        Ok(Response { date, ..response })
    }

    fn head(&mut self, request: &Request) -> Result<request::Parts, Fault> {
        let (method, content_type) = match request.method {
            Method::Get => (http::Method::GET, None),
            Method::Post => (http::Method::POST, Some("application/json")),
            Method::Patch => (http::Method::PATCH, Some("application/merge-patch+json")),
            Method::Delete => (http::Method::DELETE, Some("application/json")),
        };
        let accept = match request.accept {
            Accept::Object | Accept::List => "application/json",
            Accept::Metadata => METADATA,
            Accept::Receipt => RECEIPT,
        };
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.method = method;
        head.uri = self.uri(&request.path)?;
        // Not by the builder of `http`, which copies the head and the value of each header.
        let headers = &mut head.headers;
        headers.append(ACCEPT, HeaderValue::from_static(accept));
        if let Some(content_type) = content_type {
            headers.append(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(authorization) = &self.authorization {
            headers.append(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in &self.more {
            headers.append(name.clone(), value.clone());
        }
        let secret = |(name, value): (&HeaderName, &HeaderValue)| {
            if value.is_sensitive() { name.as_str().len() + value.len() } else { 0 }
        };
        self.route.credentials.store(headers.iter().map(secret).sum(), Ordering::Relaxed);
        headers.append(USER_AGENT, HeaderValue::from_static(NAME));
        Ok(head)
    }

    fn uri(&mut self, path: &str) -> Result<Uri, Fault> {
        match &self.last {
            Some((last, uri)) if last == path => return Ok(uri.clone()),
            _ if !path.starts_with('/') => return Err(format!("{path:?} is not a path").into()),
            _ => {}
        }
        let endpoint = &self.config.endpoint;
        let uri = Uri::try_from(format!("{endpoint}{}{path}", endpoint.prefix))
            .map_err(|e| format!("not a request: {e}"))?;
        self.last = Some((path.to_owned(), uri.clone()));
        Ok(uri)
    }

    fn run(
        &self,
        request: http::Request<impl ureq::AsSendBody>,
        budget: Duration,
    ) -> Result<http::Response<ureq::Body>, Fault> {
        self.route.deadline.begin(budget);
        self.agent.run(request).map_err(|e| self.fault(e, Stage::Answer))
    }

    /// The fault of a timeout names the time that has passed since the call began. It may be
    /// shorter than the call's budget, because one address gets only a share of the budget.
    fn fault(&self, error: ureq::Error, stage: Stage) -> Fault {
        let timed_out = |stage| {
            let passed = self.route.deadline.passed() + Duration::from_millis(500);
            let what = format!("timed out after {} s while {stage}", passed.as_secs());
            let fault = Fault::new(what, if stage == Stage::Proxy { AT_PROXY } else { "" });
            match stage {
                Stage::Body => Fault { kind: FaultKind::CutOff, ..fault },
                _ => fault,
            }
        };
        match error {
            ureq::Error::Other(other) => match other.downcast_ref() {
                // `Connection` reports every read as Stage::Answer. Only the caller of this
                // function knows whether it reads the head or the body.
                Some(Failure::TimedOut(Stage::Answer)) => timed_out(stage),
                Some(Failure::TimedOut(stage)) => timed_out(*stage),
                Some(Failure::Tls(_, fault) | Failure::Other(fault)) => fault.clone(),
                None => other.to_string().into(),
            },
            ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                format!("connection closed by the server while {stage}").into()
            }
            ureq::Error::Protocol(e) => format!("the answer is not HTTP: {e}").into(),
            ureq::Error::LargeResponseHeader(..) => {
                format!("the head of the answer is larger than {HEAD_LIMIT} bytes").into()
            }
            e => e.to_string().into(),
        }
    }
}

fn agent(route: &Arc<Route>) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .accept("")
        .accept_encoding("")
        .max_response_header_size(HEAD_LIMIT)
        .max_idle_connections(1)
        .max_idle_age(IDLE_AGE)
        .build();
    Agent::with_parts(config, Dialer(route.clone()), NoLookup)
}
