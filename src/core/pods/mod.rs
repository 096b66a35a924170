//! Stray pods: pods that are bound to a Node that offers none.
//!
//! A pod with `nodeName`, of `kubectl debug node` or of a kubelet that had the name before, would
//! wait for ever, and terminate for ever after a delete. As a kubelet with maxPods 0, a guest
//! rejects it; the deletion of a terminating one is completed. A look is one bounded list. It comes
//! with a request of the Node, so that a healthy board sends one list with each report.
//! With `--max-pods` above 0 nothing of this happens. Measured in issue 16.
//! Upstream: `pkg/kubelet/kubelet.go` HandlePodAdditions, `pkg/kubelet/lifecycle/predicate.go`.

mod stray;

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use self::stray::{Act, Kind, Verdict, judge};
use crate::config::NodeConfig;
use crate::core::instant::Mono;
use crate::core::token_bucket::TokenBucket;
use crate::kube::json;
use crate::kube::message::{Accept, Outcome, Refused, Request};
use crate::kube::object;
use crate::kube::time::Wall;

/// All pods.
const PODS: &str = "/api/v1/pods";

/// Most pods of one look, which is the list's `limit`. The list has no `resourceVersion=0`, with
/// which the server would ignore the limit.
const PODS_A_LOOK: usize = 8;
/// Shortest time between two looks. A status that changes all the time causes no more of them.
const LOOK_SPACING: Duration = Duration::from_secs(15);
/// Period of the looks that follow a change.
const LOOK_PERIOD: Duration = Duration::from_secs(30);
/// How long looks follow a change: a controller may make a new pod.
const LOOKS_AFTER_A_CHANGE: Duration = Duration::from_secs(300);

/// The rejections: at most 10, and one more each 10 min. A Deployment with `nodeName` in its
/// template makes a new pod for each rejected one, 15 a second.
const REJECTIONS: u32 = 10;
const REJECTION_PERIOD: Duration = Duration::from_secs(600);

/// Finalizers, or an admission plugin, may keep a pod as it is: the next attempt follows after this
/// time.
const RETRY_PERIOD: Duration = Duration::from_secs(3600);
/// Most pods whose last attempt is known.
const MAX_TRIED: usize = 32;

/// The path of the list of the pods that are bound to the Node and have not ended.
pub fn list_path(node_name: &str) -> String {
    format!(
        "{PODS}?fieldSelector=spec.nodeName%3D{node_name}%2Cstatus.phase%21%3DFailed%2C\
         status.phase%21%3DSucceeded&limit={PODS_A_LOOK}"
    )
}

/// How many of the pods in a list a look would end, and how many it would leave; `None` if `list`
/// is no PodList.
pub fn count(list: &Value, node_name: &str, boot: Option<Wall>) -> Option<(usize, usize)> {
    let verdicts = verdicts(list, node_name, boot)?;
    let is_act = |verdict: &&Verdict| matches!(verdict, Verdict::Act(_));
    let is_left = |verdict: &&Verdict| matches!(verdict, Verdict::Leave(_));
    let acts = verdicts.iter().filter(is_act).count();
    Some((acts, verdicts.iter().filter(is_left).count()))
}

fn verdicts(list: &Value, node_name: &str, boot: Option<Wall>) -> Option<Vec<Verdict>> {
    let is_list = object::text(list, &["kind"]) == "PodList";
    let items = object::list(list, &["items"]).iter().take(PODS_A_LOOK);
    is_list.then(|| items.map(|pod| judge(pod, node_name, boot)).collect())
}

/// The pods of one Node, and when to look for them.
#[derive(Debug)]
pub struct Pods {
    node_name: String,
    state: State,
    /// The next look; `None` until a request of the Node.
    due: Option<Mono>,
    looked_at: Option<Mono>,
    /// Looks follow each other until then.
    busy_until: Mono,
    rejections: TokenBucket,
    /// Pods of the last look, oldest first.
    acts: VecDeque<Act>,
    /// The uids of pods that a change was accepted for, and when; oldest first.
    tried: VecDeque<(String, Mono)>,
    was_forbidden: bool,
}

/// What may be sent.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// The Node offers pods, or `--reject-pods=false`: nothing.
    Off,
    /// The server forbids the list: nothing until the credentials change.
    Forbidden,
    /// A list, or the next change.
    Ready,
    /// A list was sent.
    Listing,
    /// A change was sent.
    Acting(Act),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A list without a pod that stays.
    Clear,
    /// Nothing to report: a pod is not the one of the list any more.
    Continue,
    /// A pod was changed: the line says which and how.
    Changed(String),
    /// Pods stay: the line says why.
    Left(String),
    /// The server forbids the list for the first time.
    Forbidden(Refused),
    /// The server refused the request.
    Refused(Refused),
    /// The server did not respond.
    Silent(String),
}

impl Pods {
    /// The first look is due at once. Nothing is ever sent for a Node that offers pods.
    pub fn new(config: &NodeConfig) -> Self {
        Self {
            node_name: config.name.clone(),
            state: match config.is_guest() && config.reject_pods {
                true => State::Ready,
                false => State::Off,
            },
            due: Some(Mono::START),
            looked_at: None,
            busy_until: Mono::START,
            rejections: TokenBucket::new(REJECTION_PERIOD, REJECTIONS),
            acts: VecDeque::new(),
            tried: VecDeque::new(),
            was_forbidden: false,
        }
    }

    /// When the next request is due, if one is.
    pub fn due(&self) -> Option<Mono> {
        match (&self.state, self.acts.is_empty()) {
            (State::Off | State::Forbidden, _) => None,
            (_, false) => Some(Mono::START),
            (_, true) => self.due,
        }
    }

    /// The server answered a request of the Node: a look now costs no further wakeup of the radio.
    pub fn node_answered(&mut self, now: Mono) {
        let is_recent = |then: Mono| now.since(then) < LOOK_SPACING;
        if !self.looked_at.is_some_and(is_recent) {
            self.due = Some(now);
        }
    }

    /// The new credentials may allow what the old ones did not.
    pub fn credentials_changed(&mut self) {
        if self.state == State::Forbidden {
            self.state = State::Ready;
            self.looked_at = None;
        }
    }

    /// The next request: a list, or a change of a pod of the last one.
    pub fn request(&mut self, now: Mono) -> Request {
        match self.acts.pop_front() {
            Some(act) => {
                if let Kind::Reject(_) = act.kind {
                    self.rejections.take(now);
                }
                let request = act.request();
                self.state = State::Acting(act);
                request
            }
            None => {
                self.state = State::Listing;
                self.due = None;
                self.looked_at = Some(now);
                Request::get(list_path(&self.node_name), Accept::List)
            }
        }
    }

    /// Takes the outcome of the last request. `boot` is the time of this boot by the server's clock,
    /// if known.
    pub fn on_response(&mut self, outcome: Outcome, boot: Option<Wall>, now: Mono) -> Step {
        let sent = std::mem::replace(&mut self.state, State::Ready);
        let response = match outcome {
            Outcome::Answered(response) => response,
            Outcome::Silent(why) => {
                self.acts.clear();
                return Step::Silent(why);
            }
        };
        match (sent, response.accepted()) {
            (State::Listing, Ok(())) => {
                let list = json::parse(&response.body).unwrap_or_default();
                match verdicts(&list, &self.node_name, boot) {
                    Some(verdicts) => self.on_list(verdicts, now),
                    None => Step::Refused(Refused::nonsense("a PodList")),
                }
            }
            (State::Listing, Err(refused)) if refused.code == 403 => {
                self.state = State::Forbidden;
                match std::mem::replace(&mut self.was_forbidden, true) {
                    true => Step::Continue,
                    false => Step::Forbidden(refused),
                }
            }
            (State::Acting(act), Ok(())) => self.on_changed(act, now),
            // It is another pod of the same name, or gone.
            (State::Acting(_), Err(refused)) if matches!(refused.code, 404 | 409 | 422) => {
                Step::Continue
            }
            (sent, Err(refused)) => {
                if let (State::Acting(act), 403) = (sent, refused.code) {
                    self.remember(act.uid, now);
                }
                self.acts.clear();
                Step::Refused(refused)
            }
            (_, Ok(())) => Step::Continue,
        }
    }

    fn on_list(&mut self, verdicts: Vec<Verdict>, now: Mono) -> Step {
        let (mut acts, mut left) = (Vec::new(), Vec::new());
        for verdict in verdicts {
            match verdict {
                Verdict::Act(act) => acts.push(act),
                Verdict::Leave(name) => left.push(name),
                Verdict::Ignore => {}
            }
        }
        self.tried
            .retain(|(_, then)| now.since(*then) < RETRY_PERIOD);
        acts.retain(|act| !self.tried.iter().any(|(uid, _)| *uid == act.uid));
        acts.sort_by(|one, other| one.created.cmp(&other.created));
        let mut tokens = self.rejections.tokens(now);
        let found = acts.len();
        acts.retain(|act| match act.kind {
            Kind::Delete => true,
            Kind::Reject(_) => {
                let has_token = tokens > 0;
                tokens = tokens.saturating_sub(1);
                has_token
            }
        });
        let waiting = found - acts.len();
        self.acts = acts.into();
        if !self.acts.is_empty() {
            self.busy_until = now.after(LOOKS_AFTER_A_CHANGE);
        }
        if now < self.busy_until && tokens > 0 {
            self.due = Some(now.after(LOOK_PERIOD));
        }
        match (left.as_slice(), waiting) {
            ([first, ..], _) => Step::Left(format!(
                "{} of a kubelet that ran since this boot may still run, {first} first, and are \
                 left; drain the Node and reboot",
                left.len()
            )),
            ([], 0) => Step::Clear,
            ([], waiting) => Step::Left(format!(
                "{waiting} wait to be rejected, because a controller makes new ones; remove \
                 nodeName {} from its template",
                self.node_name
            )),
        }
    }

    fn on_changed(&mut self, act: Act, now: Mono) -> Step {
        let line = match act.kind {
            Kind::Reject(_) => format!(
                "{} was bound to this Node and is rejected with OutOfpods; nodelet runs no pods",
                act.name
            ),
            Kind::Delete => format!("{} waited for its kubelet and is deleted", act.name),
        };
        self.remember(act.uid, now);
        Step::Changed(line)
    }

    fn remember(&mut self, uid: String, now: Mono) {
        self.tried.push_back((uid, now));
        if self.tried.len() > MAX_TRIED {
            self.tried.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
