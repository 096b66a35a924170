//! What is answered on which path, as by a kubelet without pods. A refusal has the kubelet's status
//! code and a text of its own.
//!
//! `pkg/kubelet/server/server.go`, apiserver `pkg/server/healthz/healthz.go`. The caller has
//! checked that the client may ask. A path is compared as it was sent, without percent-decoding:
//! `/%70ods` gets 404.

use std::fmt;

use super::access::Verdict;
use super::journal::Journal;
use super::readings::{Readings, started};
use super::{metrics, summary};
use crate::kube::instant::Now;
use crate::kube::text::query;
use crate::kube::time::Wall;

/// The head of a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Asked<'a> {
    /// `GET`.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// What follows the question mark; empty without one.
    pub query: &'a str,
    /// The bearer token.
    pub token: Option<&'a str>,
}

/// Without the token.
impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Asked({} {}?{})", self.method, self.path, self.query)
    }
}

/// An answer to a request.
#[derive(Debug)]
pub struct PortAnswer {
    /// Status code of HTTP.
    pub code: u16,
    /// The header `Content-Type`.
    pub content_type: &'static str,
    /// Headers beyond those that every answer has.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// What follows the body. Its length is not known, so the connection ends with it.
    pub(super) journal: Option<Journal>,
}

/// The type that Go's server gives to a text without a `Content-Type`.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";
/// The type of Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
/// No pods: the bytes of a kubelet.
const NO_PODS: &str =
    "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":null}\n";
const START_TIME: &str = "Process-Start-Time-Unix";

impl PortAnswer {
    /// A text as Go writes it without a header.
    pub(super) fn text(code: u16, body: impl Into<Vec<u8>>) -> Self {
        let (headers, body) = (Vec::new(), body.into());
        Self { code, content_type: TEXT, headers, body, journal: None }
    }

    /// A text of a health check or of a refusal: a browser must not guess its type.
    pub(super) fn plain(code: u16, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("X-Content-Type-Options", "nosniff".to_owned())];
        Self { headers, ..Self::text(code, body) }
    }

    /// A refusal with the words of its code.
    pub(super) fn refusal(code: u16) -> Self {
        Self::plain(code, format!("{code} {}\n", reason(code)))
    }

    /// The answer to somebody who is not [`Verdict::Allowed`].
    pub(super) fn refused(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Forbidden(why) => Self::plain(403, why + "\n"),
            Verdict::Failed => Self::refusal(500),
            Verdict::Unauthorized | Verdict::Allowed => Self::refusal(401),
        }
    }

    /// The result of `answer` if the request has one of `methods`, else 405.
    pub(super) fn to(methods: &[&str], asked: &Asked<'_>, answer: impl FnOnce() -> Self) -> Self {
        if methods.contains(&asked.method) {
            return answer();
        }
        let mut refusal = Self::refusal(405);
        refusal.headers.push(("Allow", methods.join(", ")));
        refusal
    }

    /// The answer as bytes, without its journal. The answer to HEAD has no body. `date` is `None`
    /// if the time is not known; then there is no header `Date`.
    pub(super) fn render(&self, is_head: bool, is_last: bool, date: Option<Wall>) -> Vec<u8> {
        let (code, reason, kind) = (self.code, reason(self.code), self.content_type);
        let mut text = format!("HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\n");
        if self.journal.is_none() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if let Some(date) = date {
            text += &format!("Date: {}\r\n", date.rfc1123().replace("+0000", "GMT"));
        }
        if is_last {
            text += "Connection: close\r\n";
        }
        text += "\r\n";
        let mut bytes = text.into_bytes();
        if !is_head {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// The words behind a status code.
fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        _ => "Internal Server Error",
    }
}

/// The answer to an allowed request.
pub(super) fn answer(asked: &Asked<'_>, readings: &mut Readings, now: Now) -> PortAnswer {
    match asked.path {
        "/healthz" => health(asked.query, readings),
        "/healthz/ping" | "/healthz/log" => PortAnswer::text(200, "ok"),
        "/healthz/syncloop" => check(readings.sync_loop()),
        "/healthz/lease" => check(readings.lease()),
        "/metrics" => of_metrics(metrics::own(readings, now), now),
        "/metrics/resource" => of_metrics(metrics::resource(readings, now), now),
        "/metrics/cadvisor" | "/metrics/probes" | "/metrics/slis" => {
            of_metrics(metrics::start_time(now), now)
        }
        "/pods" | "/pods/" | "/runningpods/" => PortAnswer::to(&["GET"], asked, || PortAnswer {
            content_type: JSON,
            ..PortAnswer::text(200, NO_PODS)
        }),
        "/stats/summary" | "/stats/summary/" => PortAnswer::to(&["GET", "POST"], asked, || {
            let is_short = query(asked.query, "only_cpu_and_memory").eq(["true"]);
            PortAnswer {
                content_type: JSON,
                ..PortAnswer::text(200, summary::summary(readings, is_short, now))
            }
        }),
        _ => PortAnswer::refusal(404),
    }
}

/// A text of metrics. Like a kubelet's registry, with the time when this process started.
fn of_metrics(text: String, now: Now) -> PortAnswer {
    let started = started(now).map(|at| (START_TIME, at.seconds().to_string()));
    let headers = started.into_iter().collect();
    PortAnswer { content_type: METRICS, headers, ..PortAnswer::text(200, text) }
}

/// The answer of one check.
fn check(result: Result<(), String>) -> PortAnswer {
    match result {
        Ok(()) => PortAnswer::text(200, "ok"),
        Err(why) => PortAnswer::plain(500, format!("internal server error: {why}\n")),
    }
}

/// All checks of a kubelet but `device-plugin`, as handleRootHealth.
fn health(text: &str, readings: &Readings) -> PortAnswer {
    let mut excluded: Vec<String> = query(text, "exclude").collect();
    excluded.sort_unstable();
    excluded.dedup();
    let mut lines = String::new();
    let mut has_failed = false;
    for name in ["ping", "log", "syncloop"] {
        if let Some(at) = excluded.iter().position(|other| other == name) {
            excluded.remove(at);
            lines += &format!("[+]{name} excluded: ok\n");
        } else if name == "syncloop" && readings.sync_loop().is_err() {
            has_failed = true;
            lines += &format!("[-]{name} failed: reason withheld\n");
        } else {
            lines += &format!("[+]{name} ok\n");
        }
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        lines += &format!("warn: some health checks cannot be excluded: no matches for {names}\n");
    }
    if has_failed {
        PortAnswer::plain(500, lines + "healthz check failed\n")
    } else if query(text, "verbose").next().is_some() {
        PortAnswer::plain(200, lines + "healthz check passed\n")
    } else {
        PortAnswer::plain(200, "ok")
    }
}

#[cfg(test)]
mod tests;
