//! Stray pods: pods that are bound to a Node that offers none.
//!
//! A pod may be bound to the Node by its own `nodeName`, by `kubectl debug node`, or because a
//! kubelet had this name before. Without a kubelet it would wait for ever, and after a delete it
//! would terminate for ever. As a kubelet with maxPods 0 does, a guest rejects such a pod, and it
//! completes the deletion of a pod that terminates. After a request of the Node one bounded list is
//! sent, so a healthy board sends one list with each report. While another machine writes to the
//! Node, its pods are left alone. With `--max-pods` above 0, or `--reject-pods=false`, nothing is
//! sent.
//! Upstream: `pkg/kubelet/kubelet.go` HandlePodAdditions, `pkg/kubelet/lifecycle/predicate.go`.

mod judge;

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use crate::config::NodeConfig;
use crate::kube::delay::TokenBucket;
use crate::kube::instant::Mono;
use crate::kube::json::{self, MAX_VALUES, Unparsed};
use crate::kube::message::{self, Accept, Answer, Refused, Request, RequestError, accepted};
use crate::kube::object;
use crate::kube::text::{Fault, FaultKind};
use crate::kube::time::Wall;
use crate::node::Progress;

use self::judge::{ChangeKind, PodChange, StrayPods};

/// All pods.
const PODS: &str = "/api/v1/pods";

/// Most changes that follow a list, and the `limit` of a page.
const PODS_A_LIST: usize = 8;
/// Members of a pod that nothing here reads, and that may have any number of values.
const UNREAD: [&str; 5] =
    ["containers", "initContainers", "ephemeralContainers", "volumes", "labels"];
/// Shortest time between two lists. A status that changes all the time causes no more of them.
const LIST_SPACING: Duration = Duration::from_secs(15);
/// Shortest time between two lists in three cases. In the first, eight pods are too large for a
/// list, and each list has one pod. In the second, the server forbids the list: it is tried again
/// because a role may be added later, and because an API server that starts forbids everything
/// until it has read the roles. In the third, another machine writes to the Node.
const RARE_LIST_SPACING: Duration = Duration::from_secs(3600);
/// Period of the lists that follow a change.
const LIST_PERIOD: Duration = Duration::from_secs(30);
/// How long lists follow a change: a controller may make a new pod.
const LISTS_AFTER_A_CHANGE: Duration = Duration::from_secs(300);

/// The rejections: at most 10, and one more each 10 min. A Deployment with `nodeName` in its
/// template makes a new pod for each rejected one, 15 a second.
const REJECTIONS: u32 = 10;
const REJECTION_PERIOD: Duration = Duration::from_secs(600);

/// A finalizer or an admission plugin may keep a pod as it is. The next attempt for the same pod
/// follows after this time. If the pods are listed by pages, eight such pods hide all others.
const RETRY_PERIOD: Duration = Duration::from_secs(3600);
/// The same, if the server failed or was silent: the webhook of the pod's namespace may be dead.
/// The others come first.
const FAILED_RETRY_PERIOD: Duration = Duration::from_secs(600);
/// The same, if the pod has changed since the list: the next lists may be as old.
const CHANGED_RETRY_PERIOD: Duration = Duration::from_secs(300);
/// Most pods whose last attempt is known.
const MAX_TRIED: usize = 64;

/// Which pods a list has: all from the server's cache, or as many as `limit` says.
///
/// Without `resourceVersion=0` an API server before 1.33 reads all pods of the cluster from etcd
/// for each list: `shouldDelegateList` of `apiserver/pkg/storage/cacher/cacher.go`. With it the
/// server ignores the limit. The cache may be behind by seconds; each change carries the uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSize {
    /// All pods of the Node.
    All,
    /// At most eight, where all are too large for one answer.
    Page,
    /// One, where eight are too large. It may have any size.
    One,
}

impl ListSize {
    /// The smaller size, after an answer that is too large.
    fn smaller(self) -> Option<Self> {
        match self {
            Self::All => Some(Self::Page),
            Self::Page => Some(Self::One),
            Self::One => None,
        }
    }
}

/// The list of the pods that are bound to the Node and have not ended.
pub fn list(node_name: &str, size: ListSize) -> Request {
    let (size, accept) = match size {
        ListSize::All => ("8&resourceVersion=0", Accept::List),
        ListSize::Page => ("8", Accept::List),
        ListSize::One => ("1", Accept::Object),
    };
    let path = format!(
        "{PODS}?fieldSelector=spec.nodeName%3D{node_name}%2Cstatus.phase%21%3DFailed%2C\
         status.phase%21%3DSucceeded&limit={size}"
    );
    Request::get(path, accept)
}

/// How many of the pods in a list would be ended, and how many kept; `None` if `body`
/// is no PodList.
pub fn count(body: &[u8], node_name: &str, boot: Option<Wall>) -> Option<(usize, usize)> {
    let list = json::parse_without(body, &UNREAD).ok()?;
    let strays = StrayPods::of_list(&list, node_name, boot)?;
    Some((strays.changes.len(), strays.kept.len()))
}

/// The pods of one Node, and when to list them.
#[derive(Debug)]
pub struct Pods {
    node_name: String,
    /// The Node offers pods, or `--reject-pods=false`: nothing is sent.
    is_off: bool,
    /// When the next list is due; `None` until the server answers a request of the Node.
    due: Option<Mono>,
    listed_at: Option<Mono>,
    /// Lists follow each other until then.
    lists_until: Mono,
    rejections: TokenBucket,
    /// The changes of the last list that are left, oldest pod first. The next request is the first
    /// change, which stays here until its answer; without changes the next request is a list.
    changes: VecDeque<PodChange>,
    /// The pods of the last attempts, oldest first.
    tried: VecDeque<Tried>,
    /// The server forbids the list.
    is_forbidden: bool,
    /// The log has said that the server forbids the list, and no list was allowed since.
    is_told: bool,
    /// Of the next list.
    size: ListSize,
}

/// A pod that a change was sent for.
#[derive(Debug)]
struct Tried {
    uid: String,
    /// When the next change may be sent for it.
    again: Mono,
}

impl Pods {
    /// The first list is due at once. Nothing is ever sent for a Node that offers pods.
    pub fn new(config: &NodeConfig) -> Self {
        Self {
            node_name: config.name.clone(),
            is_off: !config.is_guest() || !config.reject_pods,
            due: Some(Mono::START),
            listed_at: None,
            lists_until: Mono::START,
            rejections: TokenBucket::new(REJECTION_PERIOD, REJECTIONS),
            changes: VecDeque::new(),
            tried: VecDeque::new(),
            is_forbidden: false,
            is_told: false,
            size: ListSize::All,
        }
    }

    /// When the next request is due, if one is.
    pub fn due(&self) -> Option<Mono> {
        match (self.is_off, self.changes.is_empty()) {
            (true, _) => None,
            (_, false) => Some(Mono::START),
            (_, true) => self.due,
        }
    }

    /// The server answered a request of the Node: a list now costs no further wakeup of the radio.
    /// `shared` is when another machine was last seen to write to the Node: the pods may run there,
    /// so nothing is sent until it was not seen for an hour. Returns whether that is so.
    pub fn node_answered(&mut self, shared: Option<Mono>, now: Mono) -> bool {
        let is_rare = self.size == ListSize::One || self.is_forbidden;
        let spacing = if is_rare { RARE_LIST_SPACING } else { LIST_SPACING };
        let is_recent =
            |then: Option<Mono>, spacing| then.is_some_and(|at| now.since(at) < spacing);
        let is_shared = is_recent(shared, RARE_LIST_SPACING);
        if is_shared {
            self.due = None;
            self.changes.clear();
        } else if !is_recent(self.listed_at, spacing) {
            self.due = Some(now);
            if self.size == ListSize::One {
                self.size = ListSize::All;
            }
        }
        is_shared
    }

    /// The new credentials may allow what the old ones did not.
    pub fn credentials_changed(&mut self) {
        if std::mem::take(&mut self.is_forbidden) {
            self.listed_at = None;
        }
    }

    /// The server forbids the list.
    pub fn is_forbidden(&self) -> bool {
        self.is_forbidden
    }

    /// The next request: a list, or a change of a pod of the last one.
    pub fn request(&mut self, now: Mono) -> Request {
        match self.changes.front() {
            Some(change) => change.request(),
            None => {
                self.due = None;
                self.listed_at = Some(now);
                list(&self.node_name, self.size)
            }
        }
    }

    /// Takes the answer to the last request. `boot` is the time of this boot by the server's clock,
    /// if known. [`Progress::Done`]: the list has no pod that stays. A list with pods that stay, or
    /// that wait for the limit of rejections, is an error.
    pub fn on_response(
        &mut self,
        answer: Answer,
        boot: Option<Wall>,
        now: Mono,
    ) -> Result<Progress, RequestError> {
        let sent = self.changes.pop_front();
        let answer = accepted(answer).and_then(|response| match &sent {
            Some(_) => message::parse_without(&response.body, &UNREAD)
                .filter(Value::is_object)
                .ok_or_else(|| Refused::nonsense("a Pod").into()),
            None => match json::parse_without(&response.body, &UNREAD) {
                Err(Unparsed::TooLarge) => Err(Refused::useless(format!(
                    "the pods in the answer have more than {MAX_VALUES} values"
                ))
                .into()),
                list => Ok(list.unwrap_or_default()),
            },
        });
        let is_refused = |error: &RequestError| {
            error.refused.as_ref().is_some_and(|refused| refused.code >= 400)
        };
        if let (Some(PodChange { kind: ChangeKind::Reject { .. }, .. }), false) =
            (&sent, answer.as_ref().is_err_and(is_refused))
        {
            // Also after silence: the server may have carried it out.
            self.rejections.take(now);
        }
        let error = match (sent, answer) {
            (None, Ok(list)) => {
                let strays = StrayPods::of_list(&list, &self.node_name, boot);
                let strays = strays.ok_or_else(|| Refused::nonsense("a PodList"))?;
                return self.on_list(strays, now);
            }
            (Some(change), Ok(pod)) => return Ok(self.on_changed(change, &pod, now)),
            (sent, Err(error)) => match (sent, error.refused.as_deref()) {
                (None, Some(refused)) if refused.code == 403 && refused.is_final() => {
                    self.is_forbidden = true;
                    return Ok(self.on_forbidden(refused));
                }
                (None, Some(Refused { code: 200..300, .. }))
                    if let Some(smaller) = self.size.smaller() =>
                {
                    self.size = smaller;
                    self.due = Some(now);
                    return Ok(Progress::Continue);
                }
                // The pod is gone, another pod has its name, or its status has changed since the
                // list.
                (Some(change), Some(Refused { code: 404 | 409, .. })) => {
                    self.remember(change.uid, now.after(CHANGED_RETRY_PERIOD));
                    return Ok(Progress::Continue);
                }
                // An admission plugin or policy denies it, or another pod has its name.
                (Some(change), Some(refused @ Refused { code: 403 | 422, .. }))
                    if refused.is_final() =>
                {
                    let Fault { what, .. } = Fault::from(refused);
                    let line = format!("{} cannot be ended: {what}", change.name);
                    self.remember(change.uid, now.after(RETRY_PERIOD));
                    return Ok(Progress::Note(line));
                }
                // The list is too large for the link.
                (None, None)
                    if error.why.kind == FaultKind::CutOff
                        && let Some(smaller) = self.size.smaller() =>
                {
                    self.size = smaller;
                    self.due = Some(now);
                    error
                }
                (Some(change), refused) => {
                    let is_of_pod = refused.is_none_or(|refused| refused.code == 500);
                    if is_of_pod {
                        self.remember(change.uid, now.after(FAILED_RETRY_PERIOD));
                    }
                    // A webhook fails for this pod, and not for pods of other namespaces. The
                    // refusal of the last pod is told.
                    if is_of_pod && refused.is_some() && !self.changes.is_empty() {
                        return Ok(Progress::Continue);
                    }
                    error
                }
                _ => error,
            },
        };
        self.changes.clear();
        let is_large = |refused: &Refused| (200..300).contains(&refused.code);
        let is_one = self.size == ListSize::One;
        if is_one && error.refused.as_deref().is_some_and(|refused| !is_large(refused)) {
            self.listed_at = None;
        }
        Err(error)
    }

    /// The server forbids the list, mostly to a ServiceAccount. That is no fault, so one note says
    /// it.
    fn on_forbidden(&mut self, refused: &Refused) -> Progress {
        if std::mem::replace(&mut self.is_told, true) {
            return Progress::Continue;
        }
        Progress::Note(format!(
            "pods that are bound to this Node would stay: the server forbids listing them: {}; a \
             node's certificate is allowed to",
            refused.message
        ))
    }

    fn on_list(&mut self, strays: StrayPods, now: Mono) -> Result<Progress, RequestError> {
        (self.is_forbidden, self.is_told) = (false, false);
        let StrayPods { mut changes, kept } = strays;
        let limit = if self.size == ListSize::One { 1 } else { PODS_A_LIST };
        if changes.len() + kept.len() < limit {
            self.size = ListSize::All;
        }
        let waits = |tried: &Tried, uid: &str| tried.uid == uid && now < tried.again;
        changes.retain(|change| !self.tried.iter().any(|tried| waits(tried, &change.uid)));
        changes.sort_by(|one, other| one.created.cmp(&other.created));
        let mut tokens = self.rejections.tokens(now);
        let found = changes.len();
        changes.retain(|change| match change.kind {
            ChangeKind::Delete => true,
            ChangeKind::Reject { .. } => {
                let has_token = tokens > 0;
                tokens = tokens.saturating_sub(1);
                has_token
            }
        });
        let waiting = found - changes.len();
        changes.truncate(PODS_A_LIST);
        self.changes = changes.into();
        if !self.changes.is_empty() {
            self.lists_until = now.after(LISTS_AFTER_A_CHANGE);
        }
        if now < self.lists_until && tokens > 0 {
            self.due = Some(now.after(LIST_PERIOD));
        }
        Err(match (kept.as_slice(), waiting) {
            ([first, ..], _) => {
                let number = kept.len();
                let what = format!(
                    "{number} may still be running, such as {first}: a kubelet started them since this \
                     boot"
                );
                Fault::new(what, "drain the Node and reboot").into()
            }
            ([], 0) => return Ok(Progress::Done),
            ([], waiting) => {
                let what = format!(
                    "{waiting} wait to be rejected: 10 are at once, and one more each 10 minutes"
                );
                let remedy = format!(
                    "if a controller creates new ones, remove nodeName {} from its template",
                    self.node_name
                );
                Fault::new(what, remedy).into()
            }
        })
    }

    /// `pod` is the pod after the change, as far as the server shows it.
    fn on_changed(&mut self, change: PodChange, pod: &Value, now: Mono) -> Progress {
        let (name, kind) = (change.name.clone(), change.kind);
        let is_repeated = self.remember(change.uid.clone(), now.after(RETRY_PERIOD));
        let finalizers = object::list(pod, &["metadata", "finalizers"]);
        let is_rejection = |it: &&PodChange| matches!(it.kind, ChangeKind::Reject { .. });
        let reserved = self.changes.iter().filter(is_rejection).count();
        let has_token = usize::try_from(self.rejections.tokens(now)).is_ok_and(|it| it > reserved);
        if kind == ChangeKind::Delete && !finalizers.is_empty() && has_token {
            // A controller may wait for a terminal phase before it removes its finalizer, as that
            // of Jobs does. The object then goes with the finalizer, because it was deleted first.
            self.changes.push_front(change.rejected());
        }
        Progress::Note(match (kind, finalizers) {
            (ChangeKind::Reject { is_deleted: true }, _) => return Progress::Continue,
            (ChangeKind::Reject { .. }, _) => format!(
                "{name} was bound to this Node and is rejected with OutOfpods; nodelet runs no pods"
            ),
            (ChangeKind::Delete, []) => {
                format!("{name} waited for its kubelet and is deleted")
            }
            (ChangeKind::Delete, _) if is_repeated => return Progress::Continue,
            (ChangeKind::Delete, [first, ..]) => format!(
                "{name} waited for its kubelet; its finalizer {first} keeps it until the \
                 finalizer's controller removes it"
            ),
        })
    }

    /// Remembers when the next change may be sent for the pod. Returns whether an earlier attempt
    /// was remembered.
    fn remember(&mut self, uid: String, again: Mono) -> bool {
        let last = self.tried.iter().position(|tried| tried.uid == uid);
        let is_repeated = last.and_then(|index| self.tried.remove(index)).is_some();
        self.tried.push_back(Tried { uid, again });
        if self.tried.len() > MAX_TRIED {
            self.tried.pop_front();
        }
        is_repeated
    }
}

#[cfg(test)]
mod tests;
