//! The Lease: its next request, and what the response means.
//!
//! `kube-node-lease/<node>` is read once, created if it is missing, and then renewed by a merge
//! patch of only `spec.renewTime`. `schedule` decides when the next attempt follows. A deleted
//! Lease is reported as [`Progress::Gone`], because the Node may be deleted, too.
//! Upstream: component-helpers `apimachinery/lease/controller.go`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::kube::json as bounded_json;
use crate::kube::message::{
    Accept, Answer, Method, Receipt, Refused, Request, RequestError, accepted,
};
use crate::kube::object::{self, LEASES};
use crate::kube::refusals::refuses_owner;
use crate::kube::time::Wall;
use crate::node::Progress;
use crate::node::patch;
use crate::node::wall_clock::ClusterNow;

/// The Lease of one Node.
#[derive(Clone, Debug)]
pub struct Lease {
    node_name: String,
    duration_seconds: u32,
    state: LeaseState,
    /// The latest `renewTime`, ours or the server's. It increases with each renewal, because the
    /// control plane ignores an older time (kubernetes#113081), up to [`FUTURE`].
    renew_time: Wall,
    /// A renewal wrote an older time, and [`Self::went_back`] was not called since.
    went_back: bool,
    /// [`Progress::Gone`] was reported, and no write has succeeded since.
    is_gone: bool,
    /// False after an admission plugin refused the owner reference, until the uid of the Node
    /// changes.
    may_own: bool,
    /// After a refused repair: renewals until the Lease is read, and repaired, again.
    renewals_until_read: Option<u32>,
    repairs: Repairs,
    /// The log line about a refused repair. It is logged when the next write without that repair
    /// succeeds: if that write is refused too, the repair was not the cause.
    note: Option<String>,
}

/// A `renewTime` that is more than this ahead of the clock was written with a wrong clock, and the
/// next renewal replaces it by the clock's time. The control plane accepts an older `renewTime`
/// after a new heartbeat of the Ready condition (`nodelifecycle/node_lifecycle_controller.go`,
/// tryUpdateNodeHealth). To delete the Lease and create it again does not help: the control plane
/// remembers the time of the deleted Lease.
const FUTURE: Duration = Duration::from_secs(60);

/// After a refused repair the Lease is renewed at once without the repair. This many further
/// renewals follow before the next repair: 3 at first, doubled after each refusal, at most 12.
const REPAIR_PAUSES: (u32, u32) = (3, 12);

/// Metadata that makes the server drop managedFields. They are unused and half of every response.
/// Only an update clears them, and no later update brings them back (apimachinery
/// `managedfields/internal/skipnonapplied.go`).
fn clear_managed_fields() -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("managedFields".to_owned(), json!([{}]));
    metadata
}

/// The names of the members that a repair changes, for a log line.
fn members_of(repair: &Value) -> String {
    let all = [
        ("metadata", "ownerReferences"),
        ("spec", "leaseDurationSeconds"),
        ("metadata", "managedFields"),
    ];
    let is_changed = |(parent, name): &(&str, &str)| {
        repair.get(parent).is_some_and(|parent| parent.get(name).is_some())
    };
    let changed: Vec<&str> = all.into_iter().filter(is_changed).map(|(_, name)| name).collect();
    changed.join(", ")
}

#[derive(Clone, Debug, PartialEq)]
enum LeaseState {
    /// Not read since the start, or since a response contradicted the cached state.
    Unknown,
    /// The server has no Lease.
    Absent,
    /// The server has it. `repair` is a patch of the owner reference, the duration and
    /// managedFields, `None` if all are as wanted.
    Held { repair: Option<Value> },
}

/// What became of the last repair, or of the last create that had the owner reference.
#[derive(Clone, Debug, PartialEq)]
enum Repairs {
    /// The server accepted it, or there was none.
    Accepted,
    /// The server answered 409: another client wrote the Lease, or an earlier attempt of the same
    /// repair did, whose answer was lost.
    Conflicted,
    /// The server refused it. The next repair follows after `pause` further renewals.
    Refused { pause: u32 },
}

/// What a refused request was.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LeaseRequest {
    Read,
    Create { is_owned: bool },
    Renewal,
    Repair,
}

/// What a refusal means for the Lease.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refusal {
    /// The server has no Lease.
    Missing,
    /// Another client created or changed the Lease.
    Conflict,
    /// The API server or a proxy refused. The members of the request are not the cause.
    Server,
    /// Perhaps by an admission plugin, which may refuse the members of a repair with any code.
    Plugin,
}

impl Lease {
    /// The Lease of the Node `node_name`, not yet read.
    pub fn new(node_name: &str, duration_seconds: u32) -> Self {
        Self {
            node_name: node_name.to_owned(),
            duration_seconds,
            state: LeaseState::Unknown,
            renew_time: Wall::default(),
            went_back: false,
            is_gone: false,
            may_own: true,
            renewals_until_read: None,
            repairs: Repairs::Accepted,
            note: None,
        }
    }

    /// The next request. `node_uid` is the uid of the Node that owns the Lease.
    pub fn request(&mut self, node_uid: &str, now: ClusterNow) -> Request {
        let path = [LEASES, "/", &self.node_name].concat();
        match &self.state {
            LeaseState::Unknown => Request::get(path, Accept::Object),
            LeaseState::Absent => {
                let renew_time = self.next_renew_time(now);
                let owners =
                    if self.creates_owned() { json!([self.owner(node_uid)]) } else { json!([]) };
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {
                        "name": self.node_name,
                        "namespace": "kube-node-lease",
                        "ownerReferences": owners,
                    },
                    "spec": {
                        "holderIdentity": self.node_name,
                        "leaseDurationSeconds": self.duration_seconds,
                        "renewTime": renew_time,
                    },
                });
                Request::post(LEASES, Accept::Receipt, &lease)
            }
            LeaseState::Held { repair: None } => {
                // To build a JSON tree of one member takes ten times as many instructions as to
                // write its text.
                let renew_time = self.next_renew_time(now);
                let renewal = ["{\"spec\":{\"renewTime\":\"", &renew_time, "\"}}"].concat();
                Request {
                    method: Method::Patch,
                    path,
                    accept: Accept::Receipt,
                    body: renewal.into_bytes(),
                }
            }
            LeaseState::Held { repair: Some(repair) } => {
                let mut renewal = repair.clone();
                let renew_time = self.next_renew_time(now);
                object::set(&mut renewal, &["spec", "renewTime"], renew_time.into());
                Request::patch(path, Accept::Receipt, &renewal)
            }
        }
    }

    /// Takes the answer to the last request. [`Progress::Continue`]: the next request must be sent
    /// at once. [`Progress::Done`]: the Lease was created or renewed, and is valid for another
    /// `leaseDurationSeconds`. [`Progress::Gone`]: the Lease was deleted.
    pub fn on_response(
        &mut self,
        node_uid: &str,
        answer: Answer,
    ) -> Result<Progress, RequestError> {
        let response = match accepted(answer) {
            Ok(response) => response,
            Err(RequestError { refused: Some(refused), .. }) => return self.on_refusal(*refused),
            Err(silent) => return Err(silent),
        };
        // A 2xx response without the Lease is not from an API server and renewed nothing.
        let invalid = || Refused::nonsense("a Lease");
        if self.state == LeaseState::Unknown {
            let lease = self.parse(&response.body).ok_or_else(invalid);
            return match lease.and_then(|lease| self.read(node_uid, lease)) {
                Ok(()) => Ok(Progress::Continue),
                Err(nonsense) => self.on_refusal(nonsense),
            };
        }
        if !self.is_receipt(&response.body) {
            return Err(invalid().into());
        }
        self.renewed();
        Ok(Progress::Done)
    }

    /// Whether a create has the owner reference. If it has none, a later repair sets the reference.
    fn creates_owned(&self) -> bool {
        self.may_own && self.repairs == Repairs::Accepted
    }

    fn sent(&self) -> LeaseRequest {
        match self.state {
            LeaseState::Unknown => LeaseRequest::Read,
            LeaseState::Absent => LeaseRequest::Create { is_owned: self.creates_owned() },
            LeaseState::Held { repair: None } => LeaseRequest::Renewal,
            LeaseState::Held { repair: Some(_) } => LeaseRequest::Repair,
        }
    }

    fn on_refusal(&mut self, refused: Refused) -> Result<Progress, RequestError> {
        let refusal = match refused.code {
            404 if refused.is_missing("leases", &self.node_name) => Refusal::Missing,
            409 => Refusal::Conflict,
            401 | 404 | 429 | 500.. => Refusal::Server,
            _ => Refusal::Plugin,
        };
        match (self.sent(), refusal) {
            (LeaseRequest::Read, Refusal::Missing) => {
                self.state = LeaseState::Absent;
                self.repairs = Repairs::Accepted;
                Ok(Progress::Continue)
            }
            // The first read must succeed, because a renewal must exceed the `renewTime` that it
            // tells. After a later read that is refused, renewals go on without a read.
            (LeaseRequest::Read, _) if self.renew_time != Wall::default() => {
                self.state = LeaseState::Held { repair: None };
                self.renewals_until_read = Some(REPAIR_PAUSES.0);
                Err(refused.into())
            }
            (LeaseRequest::Renewal | LeaseRequest::Repair, Refusal::Missing) => {
                self.state = LeaseState::Unknown;
                // A server that lags shows the Node and the Lease, and refuses the renewal again.
                match std::mem::replace(&mut self.is_gone, true) {
                    true => Err(refused.into()),
                    false => Ok(Progress::Gone),
                }
            }
            // The Lease is read before the next attempt.
            (LeaseRequest::Create { .. } | LeaseRequest::Renewal, Refusal::Conflict) => {
                self.state = LeaseState::Unknown;
                Err(refused.into())
            }
            (LeaseRequest::Create { is_owned: true }, Refusal::Plugin)
            | (LeaseRequest::Repair, _) => self.on_refused_addition(refused, refusal),
            (LeaseRequest::Read | LeaseRequest::Create { .. } | LeaseRequest::Renewal, _) => {
                Err(refused.into())
            }
        }
    }

    /// The server refused a repair, or a create with the owner reference. The next write has
    /// neither; it is sent at once unless the server asks for a delay. After some renewals the
    /// Lease is read and repaired again.
    fn on_refused_addition(
        &mut self,
        refused: Refused,
        refusal: Refusal,
    ) -> Result<Progress, RequestError> {
        let is_first = !matches!(self.repairs, Repairs::Refused { .. });
        let what = match &self.state {
            LeaseState::Held { repair: Some(repair) } => {
                let what = format!("it is renewed without a change of {}", members_of(repair));
                self.state = LeaseState::Held { repair: None };
                what
            }
            _ => "it was created without its owner".to_owned(),
        };
        self.may_own &= !refuses_owner(&refused);
        (self.repairs, self.renewals_until_read) = match (&self.repairs, refusal) {
            // A second conflict in a row is a refusal.
            (Repairs::Accepted, Refusal::Conflict) => (Repairs::Conflicted, Some(0)),
            (last, _) => {
                let pause = match last {
                    Repairs::Refused { pause } => REPAIR_PAUSES.1.min(pause * 2),
                    Repairs::Accepted | Repairs::Conflicted => REPAIR_PAUSES.0,
                };
                (Repairs::Refused { pause }, Some(pause))
            }
        };
        if is_first && refusal != Refusal::Server && self.repairs != Repairs::Conflicted {
            self.note = Some(format!("{what}, after the server refused: {refused}"));
        }
        if refused.retry_after.is_some() { Err(refused.into()) } else { Ok(Progress::Continue) }
    }

    /// A write of the Lease succeeded. Counts the renewals until a refused repair is tried again.
    fn renewed(&mut self) {
        self.is_gone = false;
        let repair = match self.state {
            // A create cannot clear managedFields: the next renewal does.
            LeaseState::Absent if self.repairs == Repairs::Accepted => {
                Some(json!({"metadata": clear_managed_fields()}))
            }
            _ => None,
        };
        let was_repair = matches!(self.state, LeaseState::Held { repair: Some(_) });
        if let Some(note) = self.note.take().filter(|_| !was_repair) {
            log::warn!("lease: {note}");
        }
        self.state = LeaseState::Held { repair };
        self.renewals_until_read = match self.renewals_until_read {
            None => None,
            Some(_) if was_repair => {
                self.repairs = Repairs::Accepted;
                None
            }
            Some(0) => {
                self.state = LeaseState::Unknown;
                None
            }
            Some(left) => Some(left - 1),
        };
    }

    /// The uid of the Node has changed, or the Node is gone: the Lease may be deleted, or may need
    /// another owner. The next request reads the Lease, and a refused repair or owner reference is
    /// tried again. The latest `renewTime` is kept.
    pub fn on_new_uid(&mut self) {
        self.state = LeaseState::Unknown;
        self.may_own = true;
        self.renewals_until_read = None;
        self.repairs = Repairs::Accepted;
        self.note = None;
    }

    /// Whether the response to a write is our Lease, as protobuf or JSON.
    fn is_receipt(&self, body: &[u8]) -> bool {
        match Receipt::parse(body) {
            Some(receipt) => receipt.kind == "Lease" && receipt.name() == self.node_name,
            None => self.parse(body).is_some(),
        }
    }

    /// The Lease in a response, whole or only its metadata.
    fn parse(&self, body: &[u8]) -> Option<Value> {
        let lease = bounded_json::parse(body)?;
        let is_ours = object::text(&lease, &["metadata", "name"]) == self.node_name;
        (is_ours && object::is_kind(&lease, "Lease")).then_some(lease)
    }

    /// Takes the Lease as the server holds it.
    fn read(&mut self, node_uid: &str, seen: Value) -> Result<(), Refused> {
        if let Some(stored) = Wall::parse(object::text(&seen, &["spec", "renewTime"])) {
            self.renew_time = self.renew_time.max(stored);
        }
        let mut want = seen.clone();
        object::set(&mut want, &["spec", "leaseDurationSeconds"], self.duration_seconds.into());
        let metadata = object::members(&mut want, &["metadata"]);
        if metadata.contains_key("managedFields") {
            metadata.extend(clear_managed_fields());
        }
        let owners = object::list(&seen, &["metadata", "ownerReferences"]);
        let is_owned = owners.iter().any(|o| object::text(o, &["uid"]) == node_uid);
        if self.may_own && !is_owned {
            let owners = object::elements(&mut want, &["metadata", "ownerReferences"]);
            owners.retain(|o| object::text(o, &["kind"]) != "Node");
            owners.push(self.owner(node_uid));
        }
        let repair = match patch::diff(&seen, &want) {
            None => None,
            Some(repair) => {
                let resource_version = object::text(&seen, &["metadata", "resourceVersion"]);
                let repair = patch::with_precondition(repair, resource_version);
                Some(repair.ok_or_else(|| Refused::nonsense("a Lease with a resourceVersion"))?)
            }
        };
        if repair.is_none() {
            self.repairs = Repairs::Accepted;
        }
        self.state = LeaseState::Held { repair };
        Ok(())
    }

    /// The owner reference, without `controller` and `blockOwnerDeletion`: the garbage collector
    /// deletes the Lease with the Node.
    fn owner(&self, node_uid: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "name": self.node_name, "uid": node_uid})
    }

    /// Whether a renewal wrote an older time since the last call. The control plane accepts the
    /// older time after the next report of the Node.
    pub fn went_back(&mut self) -> bool {
        std::mem::take(&mut self.went_back)
    }

    fn next_renew_time(&mut self, now: ClusterNow) -> String {
        let now = now.wall();
        let last = std::mem::replace(&mut self.renew_time, now);
        if last.since(now) > FUTURE {
            let (last, now) = (last.time(), now.time());
            log::warn!(
                "lease: renewTime {last} and the clock of this board differ, and one of them is \
                 wrong; writing {now}"
            );
            self.went_back = true;
        } else {
            self.renew_time = now.max(last.next_microsecond());
        }
        debug_assert!(self.went_back || last < self.renew_time, "{last:?} {:?}", self.renew_time);
        self.renew_time.micro_time()
    }
}

#[cfg(test)]
#[allow(unused_must_use, reason = "most results have a test of their own")]
mod tests {
    use std::time::Duration;

    use support::grpc::field;

    use super::*;
    use crate::kube::instant::Mono;
    use crate::kube::message::{Method, Response, answered, not_found};
    use crate::kube::text::Fault;
    use crate::node::patch::tests::apply;

    const UID: &str = "7a82201a";

    fn at(seconds: u64) -> ClusterNow {
        ClusterNow::test(Mono::START, now(seconds))
    }

    fn now(seconds: u64) -> Wall {
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    /// The response to a write.
    fn written(code: u16) -> Answer {
        answered(code, json!({"kind": "PartialObjectMetadata", "metadata": {"name": "pi"}}))
    }

    /// Our Lease, as the server holds it.
    fn good() -> Value {
        json!({
            "kind": "Lease",
            "metadata": {
                "name": "pi", "resourceVersion": "528",
                "ownerReferences": [{"kind": "Node", "uid": UID}],
            },
            "spec": {"holderIdentity": "pi", "leaseDurationSeconds": 25, "renewTime": "yesterday"},
        })
    }

    fn stored(renew_time: &str) -> Answer {
        answered(200, apply(good(), &json!({"spec": {"renewTime": renew_time}})))
    }

    /// A Lease after this response to its first read.
    fn read(outcome: Answer) -> Lease {
        let mut lease = Lease::new("pi", 25);
        lease.request(UID, at(0));
        assert_eq!(lease.on_response(UID, outcome), Ok(Progress::Continue));
        lease
    }

    fn is_refused(step: Result<Progress, RequestError>) -> bool {
        step.is_err_and(|error| error.refused.is_some())
    }

    fn body(request: &Request) -> Value {
        serde_json::from_slice(&request.body).unwrap()
    }

    /// The body of the next request.
    fn sent(lease: &mut Lease, second: u64) -> Value {
        body(&lease.request(UID, at(second)))
    }

    /// The body of a renewal that repairs nothing.
    fn renewal(second: u64) -> Value {
        json!({"spec": {"renewTime": now(second).micro_time()}})
    }

    #[test]
    fn a_missing_lease_is_created_with_its_owner_and_then_renewed() {
        let mut lease = Lease::new("pi", 40);
        let get = lease.request(UID, at(1));
        assert_eq!((get.method, get.path.as_str()), (Method::Get, &*format!("{LEASES}/pi")));
        assert_eq!(lease.on_response(UID, not_found("leases", "pi")), Ok(Progress::Continue));

        let post = lease.request(UID, at(1));
        assert_eq!((post.method, post.path.as_str()), (Method::Post, LEASES));
        assert_eq!(
            body(&post),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": "pi", "namespace": "kube-node-lease",
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "pi", "uid": UID}],
                },
                "spec": {
                    "holderIdentity": "pi", "leaseDurationSeconds": 40,
                    "renewTime": "1970-01-01T00:00:01.000000Z",
                },
            })
        );
        assert_eq!(lease.on_response(UID, written(201)), Ok(Progress::Done));

        let first = lease.request(UID, at(11));
        assert_eq!(first.method, Method::Patch);
        let clears = json!({"metadata": {"managedFields": [{}]}});
        assert_eq!(body(&first), apply(renewal(11), &clears));
        // It is sent until the server has it.
        lease.on_response(UID, Err("slow".into()));
        assert_eq!(sent(&mut lease, 12)["metadata"], clears["metadata"]);
        assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
        assert_eq!(sent(&mut lease, 22), renewal(22));
    }

    #[test]
    fn an_existing_lease_keeps_its_owner_and_its_renew_time_increases() {
        let mut lease = read(stored("1970-01-01T00:00:58.999999Z"));
        assert_eq!(sent(&mut lease, 1), renewal(59));
        // An unanswered renewal may have been applied.
        assert_eq!(lease.on_response(UID, Err("slow".into())), Err(Fault::from("slow").into()));
        let later = json!({"spec": {"renewTime": "1970-01-01T00:00:59.000001Z"}});
        assert_eq!(sent(&mut lease, 1), later);
        assert!(!lease.went_back());
    }

    /// The clock was ten years ahead for three minutes. A renewal that is not answered may have
    /// been applied.
    #[test]
    fn a_renew_time_of_the_future_is_replaced_once() {
        for (ahead, is_replaced) in [(60, false), (61, true), (10 * 365 * 86_400, true)] {
            let last = now(1000 + ahead);
            let mut lease = read(stored(&last.micro_time()));
            let mut renew = |second, outcome| {
                let renewal = sent(&mut lease, second);
                let is_done = lease.on_response(UID, outcome) == Ok(Progress::Done);
                let time = Wall::parse(renewal["spec"]["renewTime"].as_str().unwrap()).unwrap();
                (time, is_done && lease.went_back())
            };
            let next = last.next_microsecond();
            let want = |at| if is_replaced { now(at) } else { next };
            assert_eq!(renew(1000, Err("slow".into())), (want(1000), false));
            let second = if is_replaced { now(1010) } else { next.next_microsecond() };
            assert_eq!(renew(1010, written(200)), (second, is_replaced), "{ahead}");
            assert!(!renew(1020, written(200)).1);
        }
    }

    /// The time of a deleted Lease does not come back with the next one.
    #[test]
    fn a_deleted_lease_is_read_and_created_with_the_time_of_the_clock() {
        let mut lease = read(stored("2036-11-21T06:18:58.000000Z"));
        lease.request(UID, at(1));
        assert_eq!(lease.on_response(UID, not_found("leases", "pi")), Ok(Progress::Gone));
        // Another client creates one, which is deleted, too.
        let exists = json!({"reason": "AlreadyExists", "message": "leases \"pi\" already exists"});
        for (second, outcome) in [(2, answered(409, exists)), (3, written(201))] {
            assert_eq!(lease.request(UID, at(1)).method, Method::Get);
            assert_eq!(lease.on_response(UID, not_found("leases", "pi")), Ok(Progress::Continue));
            let create = lease.request(UID, at(second));
            assert_eq!(create.method, Method::Post);
            assert_eq!(body(&create)["spec"]["renewTime"], now(second).micro_time());
            let step = lease.on_response(UID, outcome);
            assert_eq!(step == Ok(Progress::Done), second == 3, "{step:?}");
            assert_eq!(is_refused(step), second == 2);
        }
        assert!(lease.went_back());
    }

    /// A server that lags shows what is deleted: to read and renew in turn would never end.
    #[test]
    fn a_lease_that_is_read_and_cannot_be_renewed_is_gone_once() {
        let mut lease = read(stored("2026-11-21T06:18:58.000000Z"));
        for is_first in [true, false, false] {
            lease.request(UID, at(1));
            let step = lease.on_response(UID, not_found("leases", "pi"));
            assert_eq!((step == Ok(Progress::Gone), is_refused(step)), (is_first, !is_first));
            assert_eq!(lease.request(UID, at(1)).method, Method::Get);
            let stored = stored("2026-11-21T06:18:58.000000Z");
            assert_eq!(lease.on_response(UID, stored), Ok(Progress::Continue));
        }
        lease.request(UID, at(1));
        assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
        lease.request(UID, at(1));
        assert_eq!(lease.on_response(UID, not_found("leases", "pi")), Ok(Progress::Gone));
    }

    #[test]
    fn what_another_client_wrote_is_repaired_once_with_the_precondition() {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "pi", "uid": UID});
        let other = json!({"kind": "Other", "uid": "x"});
        let of_earlier_node = json!([{"kind": "Node", "uid": "old"}, other]);
        for (theirs, repair) in [
            (
                json!({"spec": {"leaseDurationSeconds": 60}}),
                json!({"spec": {"leaseDurationSeconds": 25}}),
            ),
            (
                json!({"metadata": {"managedFields": [{"manager": "kubelet"}]}}),
                json!({"metadata": {"managedFields": [{}]}}),
            ),
            (
                json!({"metadata": {"ownerReferences": null}}),
                json!({"metadata": {"ownerReferences": [owner]}}),
            ),
            (
                json!({"metadata": {"ownerReferences": of_earlier_node}}),
                json!({"metadata": {"ownerReferences": [other, owner]}}),
            ),
        ] {
            let mut lease = read(answered(200, apply(good(), &theirs)));
            let renewal_of_read =
                apply(renewal(1), &json!({"metadata": {"resourceVersion": "528"}}));
            assert_eq!(sent(&mut lease, 1), apply(renewal_of_read, &repair), "{theirs}");
            assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
            assert_eq!(sent(&mut lease, 2), renewal(2), "{theirs}");
        }
    }

    /// After a false success the Node would not be read when renewals work again.
    #[test]
    fn an_answer_without_our_lease_changes_nothing() {
        let mut unread = Lease::new("pi", 40);
        for outcome in [
            answered(403, json!({"reason": "Forbidden"})),
            answered(500, json!("oops")),
            answered(200, json!({"kind": "Lease", "metadata": {"name": "pi"}, "spec": {}})),
            answered(200, json!({"metadata": {"name": "other", "resourceVersion": "5"}})),
            Ok(Response::test(200, "<html>")),
        ] {
            unread.request(UID, at(1));
            assert!(is_refused(unread.on_response(UID, outcome)));
            assert_eq!(unread.state, LeaseState::Unknown);
        }
        let receipt = |kind: &str, name: &str| {
            let metadata = field(2, &field(1, &field(1, name.as_bytes())));
            let body = [b"k8s\0", &*field(1, &field(2, kind.as_bytes())), &metadata].concat();
            Ok(Response::test(200, body))
        };
        let mut held = read(stored(""));
        for (outcome, counts) in [
            (answered(200, json!({})), false),
            (answered(200, json!([1])), false),
            (
                answered(200, json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}})),
                false,
            ),
            (answered(200, json!({"kind": "Lease", "metadata": {"name": "other"}})), false),
            (answered(200, json!({"kind": "Node", "metadata": {"name": "pi"}})), false),
            (receipt("Lease", "other"), false),
            (receipt("Node", "pi"), false),
            (receipt("Status", ""), false),
            (receipt("Lease", "pi"), true),
            (written(200), true),
        ] {
            held.request(UID, at(1));
            let step = held.on_response(UID, outcome.clone());
            assert_eq!(step == Ok(Progress::Done), counts, "{outcome:?}: {step:?}");
            assert_eq!(is_refused(step), !counts);
        }
    }

    fn owner_refused() -> Answer {
        let message = "leases.coordination.k8s.io \"pi\" is forbidden: cannot set an ownerRef on a \
                       resource you can't delete: , <nil>";
        answered(403, json!({"reason": "Forbidden", "message": message}))
    }

    fn orphan() -> Value {
        json!({
            "kind": "Lease",
            "metadata": {
                "name": "pi", "resourceVersion": "7", "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {"leaseDurationSeconds": 30, "renewTime": "2026-11-21T06:18:51.000000Z"},
        })
    }

    /// A server that refuses everything but plain renewals, and a create without owners.
    fn plain_server(request: &Request, exists: &mut bool, refusal: &Answer) -> Answer {
        let adds = |body: Value| match request.method {
            Method::Post => body["metadata"]["ownerReferences"] != json!([]),
            _ => body.get("metadata").is_some(),
        };
        match (request.method, *exists) {
            (Method::Get, true) => answered(200, orphan()),
            (Method::Get, false) => not_found("leases", "pi"),
            _ if adds(body(request)) => refusal.clone(),
            _ => {
                *exists = true;
                written(200)
            }
        }
    }

    /// A webhook refuses with any code, and asks for no delay. Between two renewals are at most two
    /// other requests: a read, and the refused one.
    #[test]
    fn a_refused_addition_delays_no_renewal() {
        for code in [400, 401, 403, 404, 405, 409, 418, 422, 429, 500, 503] {
            let refusal = answered(code, json!({"message": "denied by a webhook"}));
            for has_lease in [true, false] {
                // A create that meets another one reads it; these are not about the create.
                if !has_lease && [401, 404, 409, 429, 500, 503].contains(&code) {
                    continue;
                }
                let (mut lease, mut exists) = (Lease::new("pi", 40), has_lease);
                let (mut refusals, mut notes, mut since_renewal) = (0, 0, 0);
                for second in 0..100 {
                    let request = lease.request(UID, at(second));
                    let outcome = plain_server(&request, &mut exists, &refusal);
                    refusals += u32::from(outcome == refusal);
                    since_renewal += 1;
                    let has_note = lease.note.is_some();
                    match lease.on_response(UID, outcome) {
                        Ok(Progress::Done) => {
                            since_renewal = 0;
                            notes += u32::from(has_note);
                        }
                        step => assert_eq!(step, Ok(Progress::Continue), "{code}"),
                    }
                    assert!(since_renewal < 3, "{code}: no renewal until second {second}");
                }
                assert!((5..12).contains(&refusals), "{code}: {refusals} refusals");
                assert_eq!(notes, u32::from(![401, 404, 429, 500, 503].contains(&code)), "{code}");
            }
        }
    }

    /// The answer to a repair is lost, or another client writes meanwhile: nothing was refused.
    #[test]
    fn a_repair_that_meets_another_write_is_renewed_and_read_again_without_a_word() {
        for is_ours in [true, false] {
            let mut lease = read(answered(200, orphan()));
            let repair = sent(&mut lease, 1);
            assert!(lease.on_response(UID, Err("lost".into())).is_err());
            assert_eq!(sent(&mut lease, 1)["metadata"], repair["metadata"]);
            let conflict = answered(409, json!({"reason": "Conflict", "message": "was modified"}));
            assert_eq!(lease.on_response(UID, conflict), Ok(Progress::Continue));
            assert_eq!(sent(&mut lease, 2), renewal(2));
            assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
            assert_eq!(lease.request(UID, at(12)).method, Method::Get);
            let seen = if is_ours { stored("") } else { answered(200, orphan()) };
            assert_eq!(lease.on_response(UID, seen), Ok(Progress::Continue));
            assert_eq!(sent(&mut lease, 12).get("metadata").is_none(), is_ours);
            assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
            assert_eq!(sent(&mut lease, 22), renewal(22));
        }
    }

    /// A policy lets nodes change `renewTime` alone: the Lease was created whole.
    #[test]
    fn a_refused_repair_is_told_with_its_members() {
        let mut created = Lease::new("pi", 40);
        created.request(UID, at(0));
        created.on_response(UID, not_found("leases", "pi"));
        assert!(body(&created.request(UID, at(0)))["metadata"]["ownerReferences"][0].is_object());
        assert_eq!(created.on_response(UID, written(201)), Ok(Progress::Done));
        let all = "ownerReferences, leaseDurationSeconds, managedFields";
        for (mut lease, members) in
            [(created, "managedFields"), (read(answered(200, orphan())), all)]
        {
            sent(&mut lease, 10);
            lease.on_response(UID, answered(422, json!({"message": "no"})));
            let want = format!("it is renewed without a change of {members}, after the server");
            assert!(lease.note.as_ref().unwrap().starts_with(&want), "{:?}", lease.note);
        }
    }

    /// The server refuses each write for a while.
    #[test]
    fn a_renewal_that_is_refused_too_is_not_said_to_work() {
        let mut lease = read(answered(200, orphan()));
        let refusal = || answered(422, json!({"message": "no"}));
        sent(&mut lease, 1);
        assert_eq!(lease.on_response(UID, refusal()), Ok(Progress::Continue));
        assert_eq!(sent(&mut lease, 2), renewal(2));
        assert!(is_refused(lease.on_response(UID, refusal())));
        assert!(lease.note.is_some(), "not said yet");
        assert_eq!(sent(&mut lease, 7), renewal(7));
        assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
        assert_eq!(lease.note, None);
    }

    #[test]
    fn a_refusal_with_a_delay_is_followed_by_a_renewal_alone() {
        let mut lease = read(answered(200, orphan()));
        let mut busy = Response::test(429, "");
        busy.retry_after = Some(Duration::from_secs(1));
        assert!(is_refused(lease.on_response(UID, Ok(busy))));
        assert_eq!(sent(&mut lease, 1).get("metadata"), None);
    }

    /// The read for another repair fails for good: the renewals go on.
    #[test]
    fn a_refused_read_of_a_known_lease_is_followed_by_a_renewal() {
        for refusal in [answered(403, json!({})), answered(200, json!({"kind": "Other"}))] {
            let mut lease = read(answered(200, orphan()));
            lease.on_response(UID, answered(422, json!({"reason": "Invalid"})));
            for _ in 0..4 {
                lease.request(UID, at(1));
                assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
            }
            assert_eq!(lease.request(UID, at(2)).method, Method::Get);
            lease.on_response(UID, refusal);
            let renewal = lease.request(UID, at(3));
            assert_eq!((renewal.method, body(&renewal).get("metadata")), (Method::Patch, None));
        }
    }

    /// An owner that admission refuses by its name is not tried again, and does not hinder the
    /// other repairs.
    #[test]
    fn a_refused_owner_is_not_tried_again() {
        let mut lease = read(answered(200, orphan()));
        assert_eq!(sent(&mut lease, 1)["metadata"]["ownerReferences"][0]["uid"], UID);
        assert_eq!(lease.on_response(UID, owner_refused()), Ok(Progress::Continue));
        for second in 2..6 {
            assert_eq!(sent(&mut lease, second).get("metadata"), None);
            assert_eq!(lease.on_response(UID, written(200)), Ok(Progress::Done));
        }
        assert_eq!(lease.request(UID, at(6)).method, Method::Get);
        lease.on_response(UID, answered(200, orphan()));
        assert_eq!(
            sent(&mut lease, 7)["metadata"],
            json!({"resourceVersion": "7", "managedFields": [{}]})
        );
    }

    #[test]
    fn each_renewal_changes_the_lease_even_after_the_last_time() {
        for last in ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999998Z"] {
            let mut lease = read(stored(last));
            let mut times = vec![Value::from(last)];
            for second in 2..6 {
                times.push(sent(&mut lease, second)["spec"]["renewTime"].take());
                lease.on_response(UID, written(200));
            }
            times.dedup();
            assert_eq!(times.len(), 5, "{times:?}");
            assert_eq!(times[4], "1970-01-01T00:00:05.000000Z");
        }
    }
}
