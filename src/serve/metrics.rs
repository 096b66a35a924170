//! The metrics, in Prometheus' text format. A metric that a kubelet also has keeps the kubelet's
//! name and unit.
//!
//! `pkg/kubelet/metrics/collectors/resource_metrics.go`, component-base
//! `metrics/processstarttime.go`. Values are plain decimals, where Go writes an exponent from 1e6.

use std::fmt::Display;

use super::readings::{Readings, started, wall};
use crate::host::usage::resident_bytes;
use crate::kube::instant::Now;
use crate::kube::time::Wall;
use crate::os::clock::since_boot;

/// A text with one metric after the other, which are sorted by name.
#[derive(Default)]
struct Text {
    text: String,
    /// Behind each value: a space and the time in milliseconds; empty without one.
    time: String,
}

impl Text {
    /// What precedes the values of a metric. By Prometheus' rule for names a counter ends with
    /// `_total`; all others here are gauges.
    fn head(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A metric with one value; none if it is not known.
    fn one(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.head(name, help);
            self.text += &format!("{name} {value}{}\n", self.time);
        }
    }
}

/// `/metrics/resource`: what metrics-server asks for. Each value has the time of its reading, so
/// that two scrapes of one reading do not count as two readings. If the clock is not right, there
/// is no time, and the scraper uses its own.
pub(super) fn resource(readings: &mut Readings, now: Now) -> String {
    let (usage, age) = readings.usage(now.mono);
    let read = wall(now).map(|wall| wall.before(age));
    let time = read.map(|at| format!(" {}", at.nanos() / 1_000_000));
    let is_unread =
        usage.cpu.is_err() || usage.working_set_bytes.is_err() || usage.swap_bytes.is_err();
    let mut text = Text { time: time.unwrap_or_default(), ..Text::default() };
    text.one(
        "node_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        usage.cpu.ok().map(|cpu| format!("{}.{:06}", cpu.as_secs(), cpu.subsec_micros())),
    );
    text.one(
        "node_memory_working_set_bytes",
        "[STABLE] Current working set of the node in bytes",
        usage.working_set_bytes.ok(),
    );
    text.one(
        "node_swap_usage_bytes",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        usage.swap_bytes.ok().map(|(total, free)| total.saturating_sub(free)),
    );
    text.time.clear();
    text.one(
        "resource_scrape_error",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        Some(u8::from(is_unread)),
    );
    text.text
}

/// `/metrics/cadvisor`, `/metrics/probes` and `/metrics/slis`, which are about containers: they
/// have only the start time, so that a scraper sees a target that is up.
pub(super) fn start_time(now: Now) -> String {
    let mut text = Text::default();
    text.one(
        "process_start_time_seconds",
        "[ALPHA] Start time of the process since unix epoch in seconds.",
        started(now).map(|at| at.seconds()),
    );
    text.text
}

/// `/metrics`: this process and the agent's Lease.
pub(super) fn own(readings: &Readings, now: Now) -> String {
    let served = &readings.served;
    // As the certificates are judged: the board's clock may be wrong.
    let left = |end: Option<Wall>| {
        let (end, time) = (end?.seconds(), served.cluster_time?.seconds());
        Some(i128::from(end) - i128::from(time))
    };
    let mut text = Text::default();
    text.one(
        "kubelet_certificate_manager_client_ttl_seconds",
        "[ALPHA] Seconds until the client certificate expires, negative if it has expired.",
        left(served.client_not_after),
    );
    text.one(
        "kubelet_certificate_manager_server_ttl_seconds",
        "[ALPHA] Seconds until the serving certificate expires, negative if it has expired.",
        left(served.server_not_after),
    );
    let name = "kubelet_node_name";
    text.head(name, "[ALPHA] The node's name. The count is always 1.");
    text.text += &format!("{name}{{node={:?}}} 1\n", readings.node_name);
    let report = readings.lease_report();
    text.one(
        "nodelet_lease_age_seconds",
        "Time since the last renewal of the Lease.",
        report.and_then(|report| Some(since_boot().saturating_sub(report.renewed?).as_secs())),
    );
    text.one(
        "nodelet_lease_failures_total",
        "Attempts to renew the Lease that failed, since the start of the agent.",
        report.map(|report| report.failures),
    );
    text.one(
        "nodelet_lease_renewals_total",
        "Renewals of the Lease since the start of the agent.",
        report.map(|report| report.renewals),
    );
    let name = "nodelet_serve_requests_total";
    text.head(name, "Requests before this one, by the status code of the answer.");
    for (code, count) in &served.requests {
        text.text += &format!("{name}{{code=\"{code}\"}} {count}\n");
    }
    let name = "nodelet_serve_reviews_total";
    text.head(name, "Reviews that the API server was asked for, by kind.");
    let (tokens, access) = (served.reviews.tokens, served.reviews.access);
    for (kind, count) in [("SubjectAccessReview", access), ("TokenReview", tokens)] {
        text.text += &format!("{name}{{kind=\"{kind}\"}} {count}\n");
    }
    text.one("process_resident_memory_bytes", "Resident memory size in bytes.", resident_bytes());
    // In a kubelet, client_golang registers this metric for `/metrics`, so its help has no
    // stability.
    text.one(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        started(now).map(|at| at.seconds()),
    );
    text.text
}
