//! Sentence 7: no time that the agent writes lies before its build. `renewTime` increases with each
//! write of a process and over what it has read; it goes back only from a time that was more than a
//! minute ahead of the clock. Without a change of the clock no other time goes back. With a clock
//! that is right no `renewTime` lies in the future.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{Judged, Run, Sentence};
use crate::kube::time::Wall;
use crate::sim::process::Pid;
use crate::sim::trace::{Exchange, What};
use crate::sim::world::{built, true_wall_at};

pub(super) const SENTENCE: Sentence = Sentence { number: 7, name: "written-times", judge };

/// `FUTURE` of node/lease.rs.
const FUTURE: Duration = Duration::from_secs(60);

/// How old a request may be when it arrives.
const ON_ITS_WAY: Duration = Duration::from_secs(30);

/// Times of Kubernetes have whole seconds.
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Written {
    /// The last `renewTime` of each process.
    renewals: BTreeMap<Pid, Wall>,
    /// The last times of each condition, by its type and member.
    conditions: BTreeMap<(String, &'static str), Wall>,
    /// When a clock was changed last: the times from before say nothing.
    changed: Duration,
}

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let mut written = Written::default();
    for entry in run.trace {
        match &entry.what {
            // A restored etcd has older times, and each start may have another clock.
            What::Fault { text, .. } if text.contains("clock-") || text.contains("etcd-") => {
                written.changed = entry.at;
                written.conditions.clear();
            }
            What::Starts { .. } => {
                written.changed = entry.at;
                written.conditions.clear();
            }
            // A renewal that left a future behind may have been lost on its way.
            What::Log { pid, text, .. } if text.starts_with("lease: renewTime ") => {
                written.renewals.remove(pid);
            }
            What::Request(request) => written.follow(entry.at, request, &mut judged),
            // What was refused is not written: the agent computes it again from what it reads then.
            What::Answer(answer) if answer.is_carried_out && answer.code < 300 => {
                written.status(entry.at, answer, &mut judged);
            }
            _ => {}
        }
    }
    judged
}

impl Written {
    fn follow(&mut self, at: Duration, request: &Exchange, judged: &mut Judged) {
        if request.method == "GET" {
            return;
        }
        each_time(&request.body, &mut |name, time| {
            // A foreign condition has times of others.
            judged.count += 1;
            if time < built() {
                let text = format!("{name} of {} is before the build", time.time());
                judged.breaks(at, &format!("{name} before the build"), text);
            }
        });
        if let Some(time) = time(&request.body["spec"]["renewTime"]) {
            self.renewal(at, request, time, judged);
        }
    }

    fn renewal(&mut self, at: Duration, request: &Exchange, time: Wall, judged: &mut Judged) {
        judged.count += 1;
        if let Some(last) = self.renewals.insert(request.pid, time)
            && time <= last
            && last.since(time) <= FUTURE
        {
            let text = format!("renewTime {} after {}", time.micro_time(), last.micro_time());
            judged.breaks(at, "renewTime goes back", text);
        }
        // One that was on its way while the clock was set says nothing.
        let is_right = request.clock == true_wall_at(request.arrived);
        let ahead = time.since(request.clock);
        if is_right && at > self.changed + ON_ITS_WAY && ahead > FUTURE {
            let text = format!("renewTime {} is {ahead:?} in the future", time.micro_time());
            judged.breaks(at, "renewTime in the future", text);
        }
    }

    fn status(&mut self, at: Duration, request: &Exchange, judged: &mut Judged) {
        // A create that finds the Node has times of a new one.
        if request.method != "PATCH" || at <= self.changed + ON_ITS_WAY {
            return;
        }
        let status = &request.body["status"];
        for condition in status["conditions"].as_array().into_iter().flatten() {
            let kind = condition["type"].as_str().unwrap_or_default();
            if kind.starts_with("Test") {
                continue;
            }
            let before = request.before["status"]["conditions"].as_array();
            let before = before.and_then(|before| before.iter().rfind(|old| old["type"] == kind));
            // It moves with the status alone; an unset one is set.
            let is_same = |old: &&Value| old["status"] == condition["status"];
            if let Some(old) =
                before.filter(is_same).and_then(|old| time(&old["lastTransitionTime"]))
                && time(&condition["lastTransitionTime"]) != Some(old)
            {
                let text = format!("that of {kind} was {}: {condition}", old.time());
                judged.breaks(at, "lastTransitionTime moves without the status", text);
            }
            for member in ["lastHeartbeatTime", "lastTransitionTime"] {
                let Some(time) = time(&condition[member]) else { continue };
                judged.count += 1;
                let key = (kind.to_owned(), member);
                let last = self.conditions.remove(&key);
                // One that was written with a clock of the future stays until it changes.
                if time <= request.clock.after(SECOND) {
                    self.conditions.insert(key, time);
                }
                if let Some(last) = last
                    && last.since(time) > SECOND
                {
                    let text = format!("{member} of {kind}: {} after {}", time.time(), last.time());
                    judged.breaks(at, &format!("{member} goes back"), text);
                }
            }
        }
    }
}

fn time(value: &Value) -> Option<Wall> {
    Wall::parse(value.as_str()?)
}

/// Calls `act` for each member of a body that is a time.
fn each_time(body: &Value, act: &mut dyn FnMut(&str, Wall)) {
    match body {
        Value::Object(members) => {
            for (name, value) in members {
                match time(value) {
                    Some(time) if name.ends_with("Time") || name.ends_with("Timestamp") => {
                        act(name, time);
                    }
                    _ => each_time(value, act),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_time(item, act)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::sentences::planted::{judged_trace, quiet_run};
    use crate::sim::sentences::tests::{at, breaks, log_line};

    /// The kind of what is broken if the `number`-th renewal is of another time.
    fn broken_by(number: usize, change: impl Fn(Wall) -> Wall) -> Option<String> {
        let mut trace = quiet_run();
        let judged = judged_trace(&SENTENCE, &trace);
        assert!(judged.count > 1000 && judged.broken.is_none(), "{judged:?}");
        let mut renewals = trace.iter_mut().filter_map(|entry| match &mut entry.what {
            What::Request(request) => Some(&mut request.body["spec"]["renewTime"]),
            _ => None,
        });
        let found = renewals.by_ref().filter(|time| time.is_string()).nth(number);
        let found = found.expect("so many renewals");
        *found = change(time(found).expect("a time")).micro_time().into();
        judged_trace(&SENTENCE, &trace).broken.map(|broken| broken.kind)
    }

    /// What is broken if a renewal is 11 s older than the one before it, after a line of the log.
    fn broken_after(line: &str) -> Option<String> {
        let renewal = |seconds, wall| {
            let mut request = Exchange { method: "PATCH".into(), pid: 1, ..Exchange::default() };
            request.body = json!({"spec": {"renewTime": built().after(wall).micro_time()}});
            at(seconds, What::Request(Box::new(request)))
        };
        let day = Duration::from_secs(86_400);
        let trace = [
            renewal(10, day),
            log_line(20, log::Level::Warn, "src/node/lease.rs:1", line),
            renewal(30, day - Duration::from_secs(11)),
        ];
        breaks(judge, &trace).filter(|kind| kind.contains("back"))
    }

    #[test]
    fn a_renewal_that_was_lost_is_the_last_one() {
        let lost = "lease: renewTime 2038-01-19T03:15:11Z is from a wrong clock; writing 2027";
        assert_eq!(broken_after(lost), None);
        assert_eq!(broken_after("lease: recovered").as_deref(), Some("renewTime goes back"));
    }

    #[test]
    fn a_transition_without_a_status_is_found() {
        let node = |status: &str, time: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": time}]}})
        };
        let [old, new] = ["2027-01-15T08:00:00Z", "2027-01-15T08:01:00Z"];
        for (status, time, is_fine) in
            [("True", old, true), ("True", new, false), ("False", new, true)]
        {
            let mut answer = Exchange { method: "PATCH".into(), ..Exchange::default() };
            (answer.code, answer.is_carried_out) = (200, true);
            (answer.before, answer.body) = (node("True", old), node(status, time));
            answer.clock = Wall::parse(new).expect("a time");
            let trace = [at(500, What::Answer(Box::new(answer)))];
            assert_eq!(breaks(judge, &trace).is_none(), is_fine, "{status} {time}");
        }
    }

    #[test]
    fn planted_times_are_found() {
        let second = Duration::from_secs(1);
        assert_eq!(
            broken_by(5, |time| time.before(second * 11)).as_deref(),
            Some("renewTime goes back")
        );
        let future = broken_by(50, |time| time.after(second * 90));
        assert_eq!(future.as_deref(), Some("renewTime in the future"));
        let of_1970 = broken_by(5, |_| Wall::from_epoch(second));
        assert_eq!(of_1970.as_deref(), Some("renewTime before the build"));
    }
}
