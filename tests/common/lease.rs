//! The renewals of a Lease, seen from the server.

use std::thread;
use std::time::{Duration, Instant};

use apidouble::{Double, Recorded};
use support::eventually;

/// `spec.renewTime` of the Lease `name`; `None` without such a Lease.
pub fn renew_time(double: &Double, name: &str) -> Option<String> {
    let lease = double.get(&format!("leases/{name}"))?;
    lease["spec"]["renewTime"].as_str().map(str::to_owned)
}

/// Waits for `count` renewals, each within `limit`.
pub fn await_renewals(count: usize, limit: Duration, renew_time: impl Fn() -> Option<String>) {
    for _ in 0..count {
        let before = renew_time();
        eventually("another renewal", limit, || {
            renew_time().filter(|now| Some(now) > before.as_ref())
        });
    }
}

/// The longest time between two renewals during `watch`, and since the last one at its end.
pub fn longest_gap(double: &Double, name: &str, watch: Duration) -> Duration {
    let start = Instant::now();
    thread::sleep(watch);
    let own = renewals(double).into_iter().filter(|r| r.path.ends_with(&format!("/{name}")));
    let times = own.map(|r| r.at).filter(|at| *at > start).chain([start, Instant::now()]);
    longest(times.collect())
}

/// The accepted renewals of Leases.
pub fn renewals(double: &Double) -> Vec<Recorded> {
    let mut requests = double.requests();
    requests.retain(|r| r.method == "PATCH" && r.path.contains("/leases/") && r.code == 200);
    requests.retain(|r| r.json()["spec"]["renewTime"].is_string());
    requests
}

/// The longest time from one accepted renewal to the next, of more than ten requests.
pub fn longest_gap_of_requests(double: &Double) -> Duration {
    let times: Vec<Instant> = renewals(double).iter().map(|r| r.at).collect();
    assert!(times.len() > 10, "{} renewals", times.len());
    longest(times)
}

fn longest(mut times: Vec<Instant>) -> Duration {
    times.sort();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
}
