//! Single cases of the core with the real reconcilers, in virtual time, with one server in memory.
//! Each turn keeps the lease law. Servers, clocks and faults by chance are those of `tests/sim`.

use serde_json::{Value, json};

use self::cluster::{Behavior, Cluster, User, wall};
use super::*;
use crate::agent::other_work;
use crate::credentials::certificate::tests as certificates;
use crate::credentials::certificate::{Certificate, CertificateKind, FileTask, TaskResult};
use crate::credentials::rotation::{CertificateFiles, Rotation, RotationStep};
use crate::kube::delay::Jitter;
use crate::kube::message::{Answer, Method, Response, answered, status_not_found};
use crate::kube::object;
use crate::kube::text::{self, Fault, FaultKind};
use crate::kube::time::Wall;
use crate::os::write::Op;

mod attempts;
mod cluster;
mod guest;
mod lease_report;
pub(crate) mod lines;
mod shutdown;

/// A build time before the true time.
fn built() -> Wall {
    Wall::from_epoch(Duration::from_secs(1_790_000_000))
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The correct time.
fn true_time(now: Mono) -> Wall {
    wall(now.since(Mono::START))
}

/// One turn: the server's behavior, how much of its budget the request takes (per mille), and the
/// wall clock in seconds.
#[derive(Clone, Debug)]
struct Step {
    behavior: Behavior,
    takes: u32,
    wall: u64,
}

/// Whether a patch has its precondition alone.
pub(crate) fn is_check(request: &Request) -> bool {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let version = &body["metadata"]["resourceVersion"];
    request.method == Method::Patch && body == json!({"metadata": {"resourceVersion": version}})
}

fn renew_time(request: &Request) -> Option<Wall> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    Wall::parse(object::text(&body, &["spec", "renewTime"]))
}

const LAW: LeaseTimings = LeaseTimings { lease_duration: Duration::from_secs(40) };

/// A board and its server, in virtual time.
struct World {
    kubelet: Kubelet,
    cluster: Cluster,
    now: Mono,
    /// Start of the last Lease attempt, and the longest time until the next one.
    last: Option<(Mono, Duration)>,
    rotation: Rotation,
    /// A request for a certificate has a client of its own.
    signs_apart: bool,
    files: Files,
    /// The loop has ended.
    ended: bool,
    /// What each request was for, and its method and path.
    sent: Vec<(RequestKind, String)>,
    /// Turns that waited, and how often the supervisor was told of the registration.
    waits: usize,
    registered: usize,
    /// Time from a read of facts until they change without an announcement.
    facts_change: Option<Duration>,
    /// Each request of a kind meets this behavior, whatever the step's.
    unserved: Option<(RequestKind, Behavior)>,
}

/// The files of its certificate. Each task but a search has five operations, and two that nothing
/// waits for.
#[derive(Default)]
struct Files {
    now: Mono,
    /// Number of installed certificates.
    renewed: u8,
    /// Number of the key in use.
    key: u8,
    /// The certificate that another program put into the files.
    in_files: Option<Leaf>,
    /// It is in use.
    is_found: bool,
    /// When the files were searched.
    searched: Vec<Mono>,
    later: usize,
}

/// By the client of the Lease.
const CERTIFICATE: RequestKind = RequestKind::Certificate { is_apart: false };

impl Files {
    fn ops(number: usize) -> Vec<Op> {
        vec![Op::Remove("/no-such-file".into()); number]
    }
}

impl CertificateFiles for Files {
    fn operations(&mut self, task: &FileTask, _: Wall) -> Result<Vec<Op>, text::Fault> {
        Ok(if matches!(task, FileTask::Find(_)) { Vec::new() } else { Self::ops(5) })
    }

    fn result(&mut self, task: &FileTask, written: Result<(), text::Fault>, _: Wall) -> TaskResult {
        written.unwrap();
        self.later = 2;
        match task {
            FileTask::Find(_) => {
                self.searched.push(self.now);
                self.is_found = self.in_files.is_some();
                self.later = 0;
                self.in_files.clone().map_or(TaskResult::NotFound, TaskResult::InUse)
            }
            FileTask::Sign { new_key, .. } => {
                self.key = self.key.wrapping_add(u8::from(*new_key));
                TaskResult::Signed(certificates::signed(self.key))
            }
            FileTask::Install(chain) => {
                self.renewed = self.renewed.wrapping_add(1);
                TaskResult::InUse(Leaf::of_pem(chain.as_bytes()).unwrap())
            }
        }
    }

    fn take_later(&mut self) -> Vec<(&'static str, Vec<Op>)> {
        let ops = Self::ops(std::mem::take(&mut self.later));
        if ops.is_empty() { Vec::new() } else { vec![("tested", ops)] }
    }
}

/// The board's certificate at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// It expires after a minute, as do those that replace it.
    OneMinute,
    /// The same, from a supervisor that signs for the Node if that exists.
    AtSupervisor,
    None,
}

/// A pod that is bound to the Node and was never started.
fn stray(serial: u32) -> Value {
    json!({
        "metadata": {"name": format!("p{serial}"), "namespace": "default", "uid": format!("p{serial}")},
        "spec": {"nodeName": "pi"},
        "status": {"phase": "Pending"},
    })
}

fn one_minute(now: Mono) -> Leaf {
    certificates::leaf(true_time(now).before(MINUTE), true_time(now).after(MINUTE))
}

impl World {
    fn new() -> Self {
        Self::with_certificate(None)
    }

    fn with_certificate(certificate: Option<Certificate>) -> Self {
        Self::with(Config::of(&[]), certificate)
    }

    /// Three pods are bound to the Node.
    fn with(config: Config, certificate: Option<Certificate>) -> Self {
        let clock = WallClock::new(built(), Duration::ZERO);
        let mut cluster = Cluster::new(MINUTE, MINUTE);
        cluster.pi.pods = (0..3).map(stray).collect();
        cluster.git_version = "v1.38.1";
        Self {
            kubelet: Kubelet::new(config, clock, 1, Mono::START),
            cluster,
            now: Mono::START,
            last: None,
            rotation: Rotation::new(certificate),
            signs_apart: false,
            files: Files::default(),
            ended: false,
            sent: Vec::new(),
            waits: 0,
            registered: 0,
            facts_change: None,
            unserved: None,
        }
    }

    fn holding(held: Held) -> Self {
        let leaf = (held != Held::None).then(|| one_minute(Mono::START));
        let kind = match held {
            Held::None => CertificateKind::RotatedOrBootstrapped,
            Held::AtSupervisor => CertificateKind::Supervisor,
            _ => CertificateKind::Rotated,
        };
        let certificate =
            Certificate::new(kind, certificates::subject(), leaf, false, Jitter::new(500));
        Self::with_certificate(Some(certificate))
    }

    /// The response of the server at this time.
    fn answer(&mut self, request: &Request) -> Answer {
        let user = match self.rotation.is_missing() {
            true => User::Bootstrap,
            false => User::Node,
        };
        let now = self.now.since(Mono::START);
        self.cluster.control(now);
        self.cluster.answer(request, user, now)
    }

    fn next(&mut self, now: Now, connected: bool) -> Action {
        let other_work =
            other_work(&mut self.rotation, self.signs_apart, self.kubelet.cluster_seen(now));
        self.kubelet.next(now, other_work, || connected)
    }

    /// One step of the credentials. Returns the request that must be sent.
    fn step_credentials(&mut self, wall: Wall) -> Option<Request> {
        self.files.now = self.now;
        let at = self.kubelet.cluster_seen(Now { mono: self.now, wall });
        let step = self.rotation.step(&mut self.files, at);
        // An error is that of a request that is given up.
        match step.unwrap_or(RotationStep::Files) {
            RotationStep::Files => None,
            RotationStep::InUse(_) => {
                self.kubelet.on_new_credentials();
                None
            }
            RotationStep::Send(request) => Some(request),
        }
    }

    /// The longest time that one read of facts, or one operation, may take without a violation of
    /// the law.
    fn slow(step: &Step) -> Duration {
        LAW.call_budget() / 1000 * step.takes
    }

    /// One operation of the changes.
    fn change(&mut self, step: &Step, wall: Wall) {
        self.now = self.now.after(Self::slow(step));
        assert_eq!(self.step_credentials(wall), None);
    }

    /// One turn of the loop: waits, carries out an operation or sends one request, perhaps after a
    /// turn that reads facts.
    fn turn(&mut self, step: &Step) {
        let wall = Wall::from_epoch(Duration::from_secs(step.wall));
        let mut start = Now { mono: self.now, wall };
        let mut action = self.next(start, true);
        if action == Action::ReadFacts {
            self.now = self.now.after(Self::slow(step));
            let change = self.facts_change.map(|time| self.now.after(time));
            self.kubelet.on_facts(change, self.now);
            start.mono = self.now;
            action = self.next(start, true);
        }
        let (work, budget) = match action {
            Action::ReadFacts => unreachable!("two reads"),
            Action::Change | Action::Credentials(_) if self.rotation.has_change() => {
                self.change(step, wall);
                return;
            }
            Action::Wait(until) => {
                self.waits += 1;
                assert!(until > self.now, "waits until a time in the past");
                self.now = until;
                return;
            }
            Action::Change => unreachable!("there is none"),
            Action::Credentials(budget) => {
                (RequestKind::Certificate { is_apart: self.signs_apart }, budget)
            }
            Action::Connect(budget) => {
                self.now = self.now.after(budget / 1000 * step.takes);
                if !matches!(step.behavior, Behavior::Correct) {
                    self.kubelet.on_connect_failed("tested", self.now);
                }
                return;
            }
            Action::Send(work, budget) => (work, budget),
            Action::End => {
                self.ended = true;
                return;
            }
        };
        let has_facts = self.kubelet.facts_at.is_some();
        let request = match work {
            RequestKind::Certificate { .. } => self.step_credentials(wall),
            _ => self.kubelet.request(work, start, &Facts::example()),
        };
        let Some(request) = request else {
            return;
        };
        let is_certificate = matches!(work, RequestKind::Certificate { .. });
        let needs_none = is_certificate || work == RequestKind::Time;
        assert!(needs_none || !self.rotation.is_missing(), "{work:?} without a certificate");
        let needs_facts = work == RequestKind::WriteNode;
        assert!(has_facts || !needs_facts, "no facts for {:?}", request.method);
        assert!(!needs_facts || request.method != Method::Get);
        assert!(
            request.method == Method::Get || renew_time(&request).is_none_or(|t| t >= built()),
            "a time before the build is written"
        );
        let line = format!("{:?} {}", request.method, request.path);
        let line = if is_check(&request) { format!("Check {}", request.path) } else { line };
        self.sent.push((work, line));
        let unserved = self.unserved.filter(|(kind, _)| *kind == work);
        let is_silent = unserved.is_some_and(|(_, behavior)| behavior == Behavior::Silent);
        let took = if is_silent { budget } else { budget / 1000 * step.takes };
        self.cluster.behavior = unserved.map_or(step.behavior, |(_, behavior)| behavior);
        let mut outcome = self.answer(&request);
        self.now = self.now.after(took);
        if let Ok(response) = &mut outcome {
            response.date = Some(true_time(self.now));
        }
        if work == RequestKind::Lease {
            if let Some((before, limit)) = self.last {
                let gap = start.mono.since(before);
                assert!(
                    gap <= limit,
                    "an attempt {gap:?} after the previous one, {limit:?} allowed"
                );
            }
            self.last = Some((start.mono, LAW.longest_gap(&outcome, took, true)));
        }
        let end = Now { mono: self.now, wall };
        if is_certificate {
            self.kubelet.on_answer(work, &outcome, end.mono);
            let _ = self.rotation.on_response("", outcome, self.kubelet.cluster_seen(end));
        } else {
            let effects = self.kubelet.on_response(work, outcome, start.mono, end);
            self.registered += usize::from(effects.contains(&Effect::Registered));
        }
        if self.kubelet.node.uid().is_none() {
            // Without a Node there is no Lease.
            self.last = None;
        } else if self.last.is_none() {
            self.last = Some((self.now, LAW.after_success()));
        }
    }
}

/// A read that takes longer than any request may: its facts are sent after the Lease.
#[test]
fn a_node_is_written_although_each_read_takes_longer_than_its_request_may() {
    let mut world = settled();
    let before = world.sent.len();
    world.kubelet.node.report_at(world.now);
    let mut reads = 0;
    while !world.sent[before..].iter().any(|(_, line)| line.starts_with("Patch /api/v1/nodes/")) {
        let action = world.next(now(&world), true);
        if action == Action::ReadFacts {
            reads += 1;
            assert!(reads < 3, "{:?}", &world.sent[before..]);
            world.now = world.now.after(Duration::from_secs(16));
            world.kubelet.on_facts(None, world.now);
            // No other thing may be between a slow read and the Lease.
            world.last = None;
            let action = world.next(now(&world), true);
            assert!(matches!(action, Action::Send(RequestKind::Lease, _)), "{action:?}");
        }
        let step = in_time(&world);
        world.turn(&step);
    }
}

/// Ten minutes with certificates of one or two minutes: no Lease renewal is late.
#[test]
fn certificates_are_renewed_between_lease_renewals() {
    for held in [Held::OneMinute, Held::AtSupervisor, Held::None] {
        let mut world = World::holding(held);
        let mut longest = Duration::ZERO;
        while world.now < Mono::START.after(MINUTE * 10) {
            let before = world.last;
            world.turn(&Step { takes: 15, ..in_time(&world) });
            if let (Some((before, _)), Some((last, _))) = (before, world.last) {
                longest = longest.max(last.since(before));
            }
        }
        // At 80 % of two minutes, of which one has passed, then at half of the remaining time.
        assert!(world.files.renewed > 8, "{held:?}: {}", world.files.renewed);
        let limit = LAW.longest_renew_interval() + Duration::from_millis(300);
        assert!((LAW.renew_interval()..=limit).contains(&longest), "{held:?}: {longest:?}");
        assert_eq!(world.count(RequestKind::Time, ""), 0, "the clock is right");
    }
}

/// The server's clock decides: the board's may be wrong by years, before or after the true time, or
/// be set in between. By a clock that was behind, a certificate expired before its renewal; by one
/// that was ahead, each new one had expired. The supervisor is not asked before there is a Node; a
/// cluster may be asked in vain before the server's time is known.
#[test]
fn a_certificate_is_renewed_in_time_whatever_the_boards_clock_shows() {
    let day = Duration::from_secs(86_400);
    let truth = true_time(Mono::START);
    let clocks = [truth, truth.before(day * 30), truth.after(day * 2000)];
    let late = clocks.into_iter().chain([Wall::default()]);
    let pairs = clocks.into_iter().flat_map(|early| late.clone().map(move |late| (early, late)));
    for (kind, end) in [
        (certificates::SUPERVISOR, 700),
        (certificates::ROTATE, 700),
        // Without rotation it is replaced after its expiry.
        (certificates::BOOTSTRAP, 1000),
    ] {
        for (early, late) in pairs.clone() {
            let leaf = certificates::leaf(truth, truth.after(Duration::from_secs(1000)));
            let certificate = certificates::holding(kind, Some(leaf));
            let mut world = World::with_certificate(Some(certificate));
            let node = json!({"kind": "Node", "metadata": {"name": "pi"}});
            // It was created long before the certificate arrived.
            let mut node = world.cluster.pi.store(node, true);
            node["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
            world.cluster.pi.node = Some(node);
            let middle = Mono::START.after(Duration::from_secs(300));
            while world.files.renewed == 0 {
                let clock = if world.now < middle { early } else { late };
                let wall = clock.after(world.now.since(Mono::START));
                let wall = wall.since(Wall::default()).as_secs();
                world.turn(&Step { wall, ..correct() });
            }
            let after = world.now.since(Mono::START).as_secs();
            let clocks = format!("{kind:?} {} {}", early.time(), late.time());
            // A clock that is behind does not confirm the server's: then the last tenth counts.
            let end = if late < truth { end.max(900) } else { end };
            assert!((end - 1..end + 20).contains(&after), "{after}: {clocks}");
            if kind == certificates::SUPERVISOR {
                assert_eq!(world.count(CERTIFICATE, ""), 1, "{:?}", world.sent);
            }
        }
    }
}

/// A board was off until its certificate had expired, its clock is behind or shows 1970, and a
/// gateway refuses the certificate within TLS, so no answer tells the time.
#[test]
fn a_certificate_that_is_refused_as_expired_is_replaced_whatever_the_clock_shows() {
    let truth = true_time(Mono::START);
    let end = truth.before(MINUTE * 60);
    for clock in [truth.before(MINUTE * 600), Wall::default()] {
        let leaf = certificates::leaf(truth.before(MINUTE * 1000), end);
        let kind = CertificateKind::RotatedOrBootstrapped;
        let certificate = certificates::holding(kind, Some(leaf.clone()));
        let mut world = World::with_certificate(Some(certificate));
        world.signs_apart = true;
        let wall = |world: &World| clock.after(world.now.since(Mono::START));
        let seconds = |wall: Wall| wall.since(Wall::default()).as_secs();
        while world.files.renewed == 0 && world.now < Mono::START.after(MINUTE * 3) {
            let at = Now { mono: world.now, wall: wall(&world) };
            if let Action::Send(kind, _) = world.next(at, true) {
                assert!(!matches!(kind, CERTIFICATE), "a request with the expired certificate");
                let fault = Fault { kind: FaultKind::Expired, ..Fault::of_credentials("expired") };
                world.kubelet.on_response(kind, Err(fault), at.mono, at);
                world.kubelet.on_expired(&leaf, at);
                world.now = world.now.after(Duration::from_secs(1));
            } else {
                world.turn(&Step { wall: seconds(at.wall), ..correct() });
            }
        }
        assert_eq!(world.files.renewed, 1, "{}: {:?}", clock.time(), world.sent);
    }
}

/// The board's clock is ahead of the expiry, and the certificate is good.
#[test]
fn the_servers_clock_says_that_a_certificate_has_expired_and_at_a_supervisor_no_other() {
    let truth = true_time(Mono::START);
    let later = truth.after(Duration::from_secs(10_000));
    let leaf = certificates::leaf(truth, truth.after(Duration::from_secs(1000)));
    for (kind, is_logged) in [
        (certificates::SUPERVISOR, [false, false, true, false]),
        (certificates::ROTATE, [true, false, true, false]),
    ] {
        let certificate = certificates::holding(kind, Some(leaf.clone()));
        let mut world = World::with_certificate(Some(certificate));
        let now = Now { mono: Mono::START, wall: later };
        lines::collect_lines();
        let logged = [None, Some(truth), Some(later), Some(later)].map(|date| {
            if let Some(date) = date {
                world.kubelet.wall_clock.on_server_date(date, now.mono);
            }
            world.rotation.due(world.kubelet.cluster_seen(now));
            lines::take_lines().iter().any(|line| line.contains("certificate: expired at"))
        });
        assert_eq!(logged, is_logged, "{kind:?}");
    }
}

/// A certificate of an image or of a join is renewed at once, but after the first Lease.
#[test]
fn the_first_renewal_at_a_supervisor_follows_the_first_lease() {
    let leaf = one_minute(Mono::START);
    let kind = certificates::SUPERVISOR;
    let certificate =
        Certificate::new(kind, certificates::subject(), Some(leaf), true, Jitter::NONE);
    let mut world = World::with_certificate(Some(certificate));
    world.run_while(|world| world.files.renewed == 0);
    let works: Vec<RequestKind> = world.sent.iter().map(|(work, _)| *work).collect();
    let first = |work| works.iter().position(|sent| *sent == work).unwrap();
    assert!(first(RequestKind::Lease) < first(CERTIFICATE), "{works:?}");
    assert!(world.now < Mono::START.after(Duration::from_secs(5)), "{:?}", world.now);
}

/// k3s deletes the node password with the Node, and one without a Node after ten minutes: until the
/// board sends it again, another one may get the name.
#[test]
fn each_node_that_is_created_is_followed_by_one_renewal_at_the_supervisor_and_a_restart_by_none() {
    let second = Duration::from_secs(1);
    let start = |cluster: Option<Cluster>, arrived: Duration| {
        let truth = true_time(Mono::START.after(arrived));
        let leaf = certificates::leaf(truth, truth.after(1_000_000 * second));
        let certificate = certificates::holding(certificates::SUPERVISOR, Some(leaf));
        let mut world = World::with_certificate(Some(certificate));
        world.cluster = cluster.unwrap_or(world.cluster);
        world.cluster.life = 1_000_000 * second;
        world
    };
    let hour = |world: &mut World| {
        world.sent.clear();
        world.run_until(world.now.after(3600 * second));
        world.count(CERTIFICATE, "")
    };
    let mut world = start(None, Duration::ZERO);
    world.run_while(|world| world.files.renewed == 0);
    // The garbage collector of k3s has deleted the password of a former Node by then.
    let after = world.now.since(Mono::START);
    assert!((10 * second..12 * second).contains(&after), "{after:?}");
    assert_eq!(hour(&mut world), 0, "it is asked once");
    world.cluster.pi.delete();
    assert_eq!(hour(&mut world), 1, "of a Node that was deleted");
    // The Node stays, and the process starts again: it has the certificate of that request, or was
    // killed before it.
    let created = world.now.since(Mono::START) - 3600 * second;
    let mut cluster = world.cluster;
    for (arrived, asked) in [(created + 20 * second, 0), (Duration::ZERO, 1)] {
        let mut again = start(Some(cluster), arrived);
        assert_eq!(hour(&mut again), asked, "of a Node that exists: {arrived:?}");
        cluster = again.cluster;
    }
}

/// The board was off until its certificate had expired: no request succeeds, so there is never a
/// Lease. A person joins it again while the agent runs.
#[test]
fn an_agent_that_starts_with_an_expired_certificate_of_a_supervisor_finds_another_one() {
    let truth = true_time(Mono::START);
    let hour = Duration::from_secs(3600);
    let expired = certificates::leaf(truth.before(hour * 2), truth.before(hour));
    let certificate = certificates::holding(certificates::SUPERVISOR, Some(expired));
    let mut world = World::with_certificate(Some(certificate));
    while world.now < Mono::START.after(hour * 3) {
        let step = Step { behavior: Behavior::Refuses(401, None), ..in_time(&world) };
        world.turn(&step);
    }
    let pauses = world.files.searched.windows(2).map(|pair| pair[1].since(pair[0]));
    let longest = pauses.chain([world.now.since(*world.files.searched.last().unwrap())]).max();
    assert!(longest <= Some(Duration::from_secs(61)), "{longest:?}");
    assert!(world.files.searched.len() < 200, "{}", world.files.searched.len());
    // The server, which refuses it for certain, is asked ever more rarely.
    let asked = world.count(CERTIFICATE, "");
    assert!((10..15).contains(&asked), "{asked}");
    let end = true_time(world.now).after(hour * 1000);
    world.files.in_files = Some(certificates::leaf(true_time(world.now), end));
    let replaced_at = world.now;
    while world.kubelet.renewed.is_none() {
        let behavior =
            if world.files.is_found { Behavior::Correct } else { Behavior::Refuses(401, None) };
        let step = Step { behavior, ..in_time(&world) };
        world.turn(&step);
        assert!(world.now < replaced_at.after(hour), "no Lease");
    }
    // A minute until it is found, and the pause of a refused registration.
    assert!(world.now < replaced_at.after(Duration::from_secs(70)), "{:?}", world.now);
}

/// A board without an RTC whose bootstrap kubeconfig names a server that does not respond: a person
/// installs a kubeconfig with a certificate, and the agent knows no time until then.
#[test]
fn an_agent_without_the_time_and_a_certificate_searches_the_files() {
    let mut world = World::holding(Held::None);
    let in_1970 = |world: &World, behavior| Step {
        wall: world.now.since(Mono::START).as_secs(),
        takes: if behavior == Behavior::Correct { 0 } else { 1000 },
        behavior,
    };
    while world.now < Mono::START.after(MINUTE * 9) {
        let step = in_1970(&world, Behavior::Silent);
        world.turn(&step);
    }
    assert!((8..12).contains(&world.files.searched.len()), "{:?}", world.files.searched);
    assert_eq!(world.count(CERTIFICATE, ""), 0);
    world.files.in_files = Some(one_minute(world.now));
    let replaced_at = world.now;
    while world.kubelet.renewed.is_none() {
        let behavior = if world.files.is_found { Behavior::Correct } else { Behavior::Silent };
        let step = in_1970(&world, behavior);
        world.turn(&step);
        assert!(world.now < replaced_at.after(MINUTE * 2), "no Lease");
    }
}

/// The connection is opened while the first registration waits. A server that hangs delays that
/// by the limit of one request, as a registration that hangs does, and has one line.
#[test]
fn the_first_turn_connects_and_a_failure_delays_the_registration_by_one_request_at_most() {
    let limit = LAW.connect_and_call_budget();
    for takes in [Duration::from_millis(3), limit] {
        let mut world = World::new();
        assert_eq!(world.next(now(&world), false), Action::Connect(limit));
        world.now = world.now.after(takes);
        world.kubelet.on_connect_failed("tested", world.now);
        let due = Mono::START.after(Duration::from_millis(100));
        if world.now < due {
            assert_eq!(world.next(now(&world), false), Action::Wait(due));
            world.now = due;
        }
        let read = Action::Send(RequestKind::ReadNode, limit);
        assert_eq!(world.next(now(&world), false), read);
        assert_eq!(world.kubelet.node_log.last_error(), Some("tested"));
        while world.cluster.pi.node.is_none() {
            world.turn(&correct());
        }
        assert_eq!(world.kubelet.node_log.last_error(), None);
    }
}

/// What is sent at once needs no connection beforehand.
#[test]
fn a_board_without_a_certificate_or_the_time_does_not_connect_early() {
    let mut world = World::holding(Held::None);
    let turn = world.next(now(&world), false);
    assert!(matches!(turn, Action::Credentials(_)), "{turn:?}");
    let mut world = World::new();
    let in_1970 = Now { mono: world.now, wall: Wall::default() };
    let turn = world.next(in_1970, false);
    assert_eq!(turn, Action::Send(RequestKind::Time, LAW.connect_and_call_budget()));
    let turn = world.next(now(&world), false);
    assert!(matches!(turn, Action::Wait(_)), "{turn:?}");
}

/// An idle hour: fewer than six renewals a minute, a report every five minutes in one request, one
/// check for changes by others and one list of stray pods between two reports, and no wakeup
/// without a renewal. Shortly before it the Node is read between two renewals, as after such a
/// change.
#[test]
fn an_idle_hour_costs_one_request_a_renewal_and_three_a_report() {
    let mut world = settled();
    let mut wait_begins = world.now;
    while world.now < Mono::START.after(Duration::from_secs(900)) {
        wait_begins = world.now;
        let step = in_time(&world);
        world.turn(&step);
    }
    world.now = wait_begins.after(Duration::from_secs(4));
    world.kubelet.node.read_again(world.now);
    world.run_until(world.now.after(Duration::from_secs(20)));
    world.sent.clear();
    let end = world.now.after(Duration::from_secs(3600));
    world.waits = 0;
    while world.now < end {
        let step = Step { takes: 1, ..in_time(&world) };
        world.turn(&step);
    }
    let waits = world.waits;
    let renewals = world.count(RequestKind::Lease, "Patch");
    assert!((346..=359).contains(&renewals), "{renewals} renewals");
    let reports = [
        (RequestKind::WriteNode, "Patch"),
        (RequestKind::Pods, "Get"),
        // For changes of the Node by others.
        (RequestKind::WriteNode, "Check"),
    ]
    .map(|(work, method)| world.count(work, method));
    assert!(reports.iter().all(|count| (11..=12).contains(count)), "{reports:?}");
    assert_eq!(world.sent.len(), renewals + reports.iter().sum::<usize>());
    assert!(waits <= renewals + 1, "{waits} wakeups, {renewals} renewals");
}

/// Rule 3 of `schedule` holds for the certificate, too.
#[test]
fn after_an_unanswered_certificate_request_the_lease_is_next() {
    let mut world = World::holding(Held::OneMinute);
    world.run_while(|world| world.kubelet.renewed.is_none());
    let (now, lease) =
        (now(&world), Action::Send(RequestKind::Lease, LAW.connect_and_call_budget()));
    assert_ne!(world.next(now, true), lease);
    let silent = Err("tested".into());
    world.kubelet.on_answer(CERTIFICATE, &silent, now.mono);
    assert_eq!(world.next(now, true), lease);
}

/// In a suspended process no request fails, but the control plane sets the Node to Unknown.
#[test]
fn after_a_long_gap_between_renewals_the_node_is_read() {
    let mut world = settled();
    world.now = world.now.after(Duration::from_secs(60));
    world.last = None;
    world.sent.clear();
    world.turn(&correct());
    world.turn(&correct());
    let paths: Vec<&str> = world.sent.iter().map(|(_, line)| line.as_str()).collect();
    assert!(paths[0].starts_with("Patch ") && paths[0].ends_with("/leases/pi"), "{paths:?}");
    assert_eq!(paths[1], "Get /api/v1/nodes/pi");
}

impl World {
    /// Turns with a correct server while this holds.
    fn run_while(&mut self, holds: impl Fn(&Self) -> bool) {
        while holds(self) {
            self.turn(&correct());
        }
    }

    fn run_until(&mut self, end: Mono) {
        self.run_while(|world| world.now < end);
    }

    /// How many requests of this kind begin with this.
    fn count(&self, work: RequestKind, start: &str) -> usize {
        let is_it = |sent: &&(RequestKind, String)| sent.0 == work && sent.1.starts_with(start);
        self.sent.iter().filter(is_it).count()
    }

    /// Seconds from `mark`, which is made at `at`, until the Node is Ready again.
    fn repair_time(&mut self, at: Mono) -> u64 {
        self.run_until(at);
        self.cluster.pi.mark();
        let marked = self.now;
        self.run_while(|world| !world.cluster.pi.is_ready());
        self.now.since(marked).as_secs()
    }
}

/// Whenever the controllers mark the Node: in the two minutes after a start or an outage, or
/// without any. However rare the status is.
#[test]
fn a_node_that_the_control_plane_has_marked_is_ready_soon() {
    for flags in [&[] as &[&str], &["--node-status-update-frequency=5m"]] {
        // Each second of an interval of renewals comes once.
        let step = if flags.is_empty() { 3 } else { 11 };
        repairs_a_marked_node(&|| World::with(Config::of(flags), None), step);
    }
}

fn repairs_a_marked_node(new: &dyn Fn() -> World, step: usize) {
    let mut longest = (0, 0);
    for second in (0..150).step_by(step) {
        if second < 120 {
            let mut world = new();
            world.run_while(|world| world.cluster.pi.lease.is_none());
            let start = world.now;
            longest.0 = world.repair_time(start.after(Duration::from_secs(second))).max(longest.0);
        }
        let mut world = new();
        world.run_until(Mono::START.after(Duration::from_secs(30)));
        let end_of_outage = world.now.after(Duration::from_secs(75));
        while world.now < end_of_outage {
            let silent = Step { behavior: Behavior::Silent, takes: 1000, ..correct() };
            world.turn(&silent);
        }
        // The first renewal follows within 10 s.
        let time = world.repair_time(end_of_outage.after(Duration::from_secs(second)));
        let longest_of_both = if second < 120 { &mut longest.0 } else { &mut longest.1 };
        *longest_of_both = time.max(*longest_of_both);
        let later = world.now.after(Duration::from_secs(200 + second * 2));
        longest.1 = world.repair_time(later).max(longest.1);
    }
    assert!(longest.0 <= 15 && longest.1 <= 160, "{longest:?}");
}

/// A balancer ends an idle connection while the renewal is on its way.
#[test]
fn a_renewal_whose_connection_ended_is_repeated_once_after_a_pause() {
    let (call, pause) = (LAW.call_budget(), LAW.call_budget() / 50);
    // The attempts, from start to end, each without a response, and the delay after its start.
    for (attempts, is_outage) in [
        (&[(Duration::ZERO, pause)][..], false),
        (&[(SECOND, SECOND + pause)], false),
        (&[(Duration::ZERO, pause), (Duration::ZERO, call), (Duration::ZERO, call)], true),
        (&[(call, call + pause)], true),
    ] {
        let mut world = settled();
        for (takes, delay) in attempts {
            let start = world.now;
            world.now = start.after(*takes);
            let end = now(&world);
            world.kubelet.on_response(RequestKind::Lease, Err("closed".into()), start, end);
            let due = start.after(*delay);
            assert_eq!(world.next(end, false), Action::Wait(due), "{attempts:?}");
            world.now = due;
        }
        assert_eq!(world.kubelet.lease_log.last_error().is_some(), is_outage, "{attempts:?}");
        world.last = None;
        world.sent.clear();
        world.run_until(world.now.after(SECOND));
        // The Node is read after an outage.
        assert_eq!(world.count(RequestKind::ReadNode, "") > 0, is_outage, "{:?}", world.sent);
    }
}

/// A world with a correct server, after 30 s.
fn settled() -> World {
    let mut world = World::new();
    world.run_until(Mono::START.after(Duration::from_secs(30)));
    world
}

/// A turn with a correct server that responds in no time.
fn correct() -> Step {
    let behavior = Behavior::Correct;
    Step { behavior, takes: 0, wall: 1_800_000_000 }
}

/// The same, with a clock that is right.
fn in_time(world: &World) -> Step {
    Step { wall: true_time(world.now).since(Wall::default()).as_secs(), ..correct() }
}

#[test]
fn a_recreated_node_is_adopted_and_takes_over_the_lease_before_it_is_garbage_collected() {
    let guest = "node.kubernetes.io/exclude-from-external-load-balancers";
    let labels =
        |world: &World| world.cluster.pi.node.clone().unwrap()["metadata"]["labels"].clone();
    let mut world = settled();
    assert!(labels(&world).get(guest).is_some());
    world.cluster.pi.node.as_mut().unwrap()["metadata"]["labels"] = json!({});
    world.cluster.pi.touch(true);
    let now = world.now;
    world.kubelet.node.read_again(now);
    for _ in 0..6 {
        world.turn(&correct());
    }
    assert!(world.cluster.pi.owns_lease());
    assert!(labels(&world).get(guest).is_some(), "as of a Node that was missing for a while");
}

#[test]
fn the_second_server_error_in_a_row_opens_a_new_connection() {
    let effects = |work: RequestKind, codes: [u16; 3]| {
        let mut world = settled();
        if work == RequestKind::ReadNode {
            world.kubelet.node.read_again(world.now);
        }
        codes.map(|code| {
            let now = now(&world);
            if work == RequestKind::ReadNode {
                let request = world.kubelet.request(work, now, &Facts::example());
                assert!(request.is_some());
            }
            if work == RequestKind::Event {
                world.kubelet.events.push(Event::starting(), world.now);
            }
            let reason = if code == 404 { "" } else { "Tested" };
            let mut outcome = answered(code, json!({"reason": reason}));
            if let (503, Ok(response)) = (code, &mut outcome) {
                response.retry_after = Some(Duration::from_secs(6));
            }
            let effects = world.kubelet.on_response(work, outcome, world.now, now);
            let leaves = |it: &Effect| matches!(it, Effect::Disconnect | Effect::TryOtherAddress);
            effects.into_iter().find(leaves)
        })
    };
    // Nothing that is optional closes the connection of the Lease.
    assert_eq!(effects(RequestKind::Pods, [500, 500, 500]), [None, None, None]);
    assert_eq!(effects(RequestKind::Event, [500, 500, 500]), [None, None, None]);
    let (mut world, silent) = (settled(), Err("tested".into()));
    world.kubelet.events.push(Event::starting(), world.now);
    world.kubelet.on_response(RequestKind::Event, silent, world.now, now(&world));
    assert_eq!(world.kubelet.node_log.last_error(), None);
    for work in [RequestKind::Lease, RequestKind::ReadNode] {
        let disconnect = Some(Effect::Disconnect);
        let try_other = Some(Effect::TryOtherAddress);
        for (codes, want) in [
            ([500, 500, 403], [&None, &disconnect, &None]),
            ([500, 502, 401], [&None, &disconnect, &disconnect]),
            ([500, 200, 429], [&None, &disconnect, &try_other]),
            ([429, 429, 429], [&None, &try_other, &try_other]),
            // It asks for more patience than a Lease has.
            ([503, 409, 422], [&try_other, &None, &None]),
            // The page of a gateway.
            ([404, 404, 403], [&None, &disconnect, &None]),
        ] {
            assert_eq!(effects(work, codes).each_ref(), want, "{work:?} {codes:?}");
        }
    }
}

/// As after the deletion of the namespace kube-node-lease.
#[test]
fn the_reason_why_a_deleted_lease_is_not_made_again_is_logged_at_once() {
    let mut world = World::new();
    world.run_until(Mono::START.after(Duration::from_secs(30)));
    lines::collect_lines();
    while lines::take_lines().is_empty() {
        world.turn(&Step { behavior: Behavior::DeletesLease, ..correct() });
    }
    let end = world.now.after(Duration::from_secs(20));
    while world.now < end {
        world.turn(&Step { behavior: Behavior::Refuses(403, None), ..correct() });
    }
    let lines = lines::take_lines();
    let count = lines.iter().filter(|line| line.starts_with("lease: 403 Tested;")).count();
    assert_eq!(count, 1, "{lines:?}");
}

/// A gateway's 404 says nothing about the Node and the Lease.
#[test]
fn a_gateways_404_page_deletes_nothing() {
    let mut world = settled();
    let owner = world.kubelet.node.uid().map(str::to_owned);
    for (work, body) in [
        (RequestKind::Lease, "<html>404</html>".to_owned()),
        (RequestKind::Lease, status_not_found("leases", "other").to_string()),
        (RequestKind::ReadNode, "404 page not found".to_owned()),
        (RequestKind::ReadNode, status_not_found("namespaces", "pi").to_string()),
    ] {
        world.kubelet.node.read_again(world.now);
        let now = now(&world);
        assert!(world.kubelet.request(work, now, &Facts::example()).is_some());
        let outcome = Ok(Response::test(404, body));
        world.kubelet.on_response(work, outcome, world.now, now);
        assert_eq!(world.kubelet.node.uid(), owner.as_deref());
        assert!(world.kubelet.node.is_registered());
        assert!(!world.kubelet.lease_gone);
    }
}

/// A dip of the voltage in the night would else be a dip of the morning. A board that restarts in
/// that night has no Lease yet, and a rare status is as an outage.
#[test]
fn a_look_at_the_boards_health_needs_no_server() {
    let other_work = OtherWork { has_look: true, ..OtherWork::default() };
    let rare = || World::with(Config::of(&["--node-status-update-frequency=5m"]), None);
    for (mut world, behavior) in [
        (settled(), Behavior::Silent),
        // A balancer answers each request for a server that is gone.
        (settled(), Behavior::Refuses(503, None)),
        (World::new(), Behavior::Silent),
        (rare(), Behavior::Correct),
    ] {
        let (mut waits, end) = (0, world.now.after(MINUTE));
        while world.now < end {
            let is_known = world.kubelet.renewed.is_some();
            let has_asked = is_known || world.kubelet.node_log.last_error().is_some();
            let mut next = |work| world.kubelet.next(now(&world), work, || true);
            if has_asked && matches!(next(OtherWork::default()), Action::Wait(_)) {
                assert_eq!(next(other_work), Action::ReadFacts, "{behavior:?}");
                waits += 1;
            }
            world.turn(&Step { behavior, ..in_time(&world) });
        }
        assert!(waits > 0, "{behavior:?}");
    }
}

fn now(world: &World) -> Now {
    Now { mono: world.now, wall: true_time(world.now) }
}

/// A board without an RTC, from power-on to time synchronization.
#[test]
fn nothing_is_written_while_the_time_is_unknown() {
    let mut world = World::new();
    while world.now < Mono::START.after(Duration::from_secs(60)) {
        let start = world.now;
        let wall = start.since(Mono::START).as_secs();
        world.turn(&Step { behavior: Behavior::Silent, wall, ..correct() });
        assert!(world.now <= start.after(CLOCK_TICK), "{:?}", world.now);
    }
    let is_probe = |(kind, line): &(RequestKind, String)| {
        *kind == RequestKind::Time && line.starts_with("Get ")
    };
    assert!(world.sent.iter().all(is_probe), "{:?}", world.sent);
    assert_eq!(world.sent.len(), 6);
    let summary = world.kubelet.summary(world.now, None);
    let clock = "registering; clock: 1970-01-01T00:00:50Z is before the build of nodelet at";
    assert!(summary.contains(clock), "{summary}");

    // The clock is set.
    let set = world.now;
    world.run_while(|world| !world.kubelet.registered);
    assert!(world.now <= set.after(CLOCK_TICK));
    let now = now(&world);
    let cluster_now = world.kubelet.wall_clock.cluster_now(now).unwrap();
    let event = world.kubelet.events.request("u1", cluster_now).unwrap();
    let event: Value = serde_json::from_slice(&event.body).unwrap();
    assert_eq!(event["reason"], "Starting");
    assert_eq!(event["firstTimestamp"], true_time(Mono::START).time(), "not 1970");
}

/// The server's time replaces the board's until the board's clock is set.
#[test]
fn with_the_servers_time_the_board_becomes_ready() {
    let mut world = World::new();
    let step = Step { wall: 5, ..correct() };
    while world.now < Mono::START.after(Duration::from_secs(60)) {
        world.turn(&step);
    }
    let renewed = |world: &World| {
        let lease = world.cluster.pi.lease.as_ref().unwrap();
        Wall::parse(object::text(lease, &["spec", "renewTime"])).unwrap()
    };
    let late = true_time(world.now).since(renewed(&world));
    assert!(late < Duration::from_secs(15), "{late:?}");
    let node = world.cluster.pi.node.as_ref().unwrap();
    for condition in object::list(node, &["status", "conditions"]) {
        for key in ["lastHeartbeatTime", "lastTransitionTime"] {
            let time = Wall::parse(object::text(condition, &[key]));
            assert!(time >= Some(true_time(Mono::START)), "{condition}");
        }
    }
    let summary = world.kubelet.summary(world.now, None);
    assert!(summary.starts_with("Ready since 2027-01-15T08:00:0"), "{summary}");
    assert!(summary.contains("; clock: 1970-01-01T00:00:05Z is 20833 days behind"));

    // The clock is stepped by a day and by years, in both directions: renewTime follows. After a
    // step back a report follows at once, without which the control plane would ignore it.
    let patches_of_status = |world: &World| world.count(RequestKind::WriteNode, "Patch");
    for (wall, is_back) in [
        (86_400, false),
        (0, false),
        (3_000_000_000, false),
        (1_800_000_000, true),
        (1_831_536_000, false),
        (7, true),
    ] {
        let before = patches_of_status(&world);
        let (mut last, mut stepped) = (renewed(&world), None);
        let until = world.now.after(Duration::from_secs(30));
        while world.now < until {
            world.turn(&Step { wall, ..correct() });
            if renewed(&world) < std::mem::replace(&mut last, renewed(&world)) {
                stepped = Some(world.now);
            }
            let is_overdue = |at: Mono| world.now.since(at) > Duration::from_secs(2);
            let is_reported = patches_of_status(&world) > before;
            assert!(is_reported || !stepped.is_some_and(is_overdue), "{wall}: no report");
        }
        assert_eq!(stepped.is_some(), is_back, "{wall}");
        let clock = if wall < 1_790_000_000 {
            true_time(world.now)
        } else {
            Wall::from_epoch(Duration::from_secs(wall))
        };
        let off = renewed(&world).since(clock).max(clock.since(renewed(&world)));
        assert!(off < Duration::from_secs(15), "{wall}: {off:?} off");
    }
}

/// A container runtime that has not answered yet: nothing announces that it does.
#[test]
fn a_status_is_computed_when_its_facts_change_without_an_announcement() {
    let second = Duration::from_secs(1);
    let mut world = World { facts_change: Some(second), ..World::new() };
    while world.now < Mono::START.after(second * 30) {
        let start = world.now;
        world.turn(&correct());
        assert!(world.now <= start.after(second), "waits from {start:?} to {:?}", world.now);
    }
}

/// Such as of the network: the facts that were read before it are sent after it.
#[test]
fn a_change_between_a_read_and_its_write_is_computed_as_soon_as_another_one() {
    let mut world = settled();
    while world.next(now(&world), true) != Action::ReadFacts {
        world.turn(&correct());
    }
    let until = world.now.after(Duration::from_secs(1));
    world.kubelet.on_facts(None, world.now);
    world.kubelet.compute_status_by(until);
    while world.next(now(&world), true) != Action::ReadFacts {
        world.turn(&correct());
        assert!(world.now <= until, "{:?}", world.now);
    }
}

/// A sign of the board's health, such as of a process that was killed.
#[test]
fn a_sign_becomes_one_warning_event_on_the_server() {
    let mut world = settled();
    world.kubelet.on_signs(vec![("Tested", "a sign".to_owned())], world.now);
    let at = world.kubelet.wall_clock.cluster_now(now(&world)).unwrap();
    let event = world.kubelet.events.request("u1", at).unwrap();
    let event: Value = serde_json::from_slice(&event.body).unwrap();
    assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!("a sign")));
    world.run_until(world.now.after(MINUTE));
    let events = &world.cluster.pi.events;
    assert_eq!(events.iter().filter(|reason| *reason == "Tested").count(), 1, "{events:?}");
}

#[test]
fn only_the_first_registration_has_an_effect() {
    let mut world = settled();
    world.cluster.pi.node = None;
    world.kubelet.node.read_again(world.now);
    world.run_until(world.now.after(MINUTE));
    assert!(world.cluster.pi.is_ready());
    assert_eq!(world.registered, 1);
}

/// kubelet_node_status_test.go TestFastStatusUpdateOnce, with `--ready-when-exists` in place of
/// the runtime: the checks are repeated until they succeed, and for two minutes at most.
#[test]
fn test_fast_status_update_once() {
    let mut world = settled();
    let lines = ["--ready-when-exists=/data: does not exist".to_owned()];
    let unhealthy = Facts { unhealthy: lines.to_vec(), ..Facts::example() };
    let at = |second| Mono::START.after(Duration::from_secs(second));
    assert_eq!(world.kubelet.unhealthy_while_starting(at(31)), None);
    for (facts, want) in [(unhealthy, Some(&lines[..])), (Facts::example(), None)] {
        let now = Now { mono: at(31), wall: true_time(Mono::START) };
        let request = world.kubelet.request(RequestKind::WriteNode, now, &facts).unwrap();
        let outcome = world.answer(&request);
        world.kubelet.on_response(RequestKind::WriteNode, outcome, now.mono, now);
        assert_eq!(world.kubelet.unhealthy_while_starting(at(119)), want);
        assert_eq!(world.kubelet.unhealthy_while_starting(at(120)), None);
    }
}
