//! The lease law over the real reconcilers: random servers, random clocks, random
//! answers, with shrinking.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::flags::Flags;
use crate::core::certificate::tests as certificates;
use crate::core::certificate::{Rules, Task, TaskResult};
use crate::kube::message::{Method, Response};
use crate::kube::object;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;

mod storm;

/// Before the true time, after 45 of 100 times that a board's clock may show here.
fn built() -> Wall {
    Wall::from_epoch(Duration::from_secs(1_790_000_000))
}

/// What time it really is.
fn true_time(now: Mono) -> Wall {
    calm_wall().after(now.since(Mono::START))
}

fn calm_wall() -> Wall {
    Wall::from_epoch(Duration::from_secs(calm().wall))
}

fn config() -> Config {
    Config::new(Flags::default(), || Ok("pi".to_owned())).unwrap()
}

/// What a server does with one request.
#[derive(Clone, Copy, Debug)]
enum Mood {
    /// What it should.
    Well,
    /// Refuses, with this code and perhaps `Retry-After`.
    Refuses(u16, Option<u64>),
    /// Says something that makes no sense.
    Babbles(u16),
    /// Says nothing; with `true` it did what was asked all the same.
    Silent(bool),
    /// Somebody deletes the Node, and its Lease with it, before the request.
    Deletes,
    /// Somebody deletes the Lease before the request.
    DeletesLease,
    /// Somebody makes the Node anew before the request.
    Replaces,
    /// Somebody else writes to the Node before the request.
    Writes,
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        6 => Just(Mood::Well),
        2 => (prop::sample::select(vec![400, 401, 403, 404, 409, 422, 429, 500, 503]),
              prop::option::of(0..100_u64)).prop_map(|(code, after)| Mood::Refuses(code, after)),
        1 => prop::sample::select(vec![200, 201, 204, 302, 404]).prop_map(Mood::Babbles),
        2 => any::<bool>().prop_map(Mood::Silent),
        1 => Just(Mood::Deletes),
        1 => Just(Mood::DeletesLease),
        1 => Just(Mood::Replaces),
        1 => Just(Mood::Writes),
    ]
}

/// One request's fate, how much of its budget it takes (per mille), whether the kept
/// connection is open, whether memory pressure wakes the loop, and where the wall
/// clock stands.
#[derive(Clone, Debug)]
struct Step {
    mood: Mood,
    takes: u32,
    connected: bool,
    woken: bool,
    wall: u64,
}

fn step() -> impl Strategy<Value = Step> {
    (
        mood(),
        prop_oneof![Just(1000), 0..1000_u32],
        any::<bool>(),
        any::<bool>(),
        0..4_000_000_000_u64,
    )
        .prop_map(|(mood, takes, connected, woken, wall)| Step {
            mood,
            takes,
            connected,
            woken,
            wall,
        })
}

/// Just enough of an API server: one Node, one Lease, one request for a certificate.
#[derive(Default)]
struct Server {
    csr: Option<Value>,
    /// The life of a certificate that is signed, and whose key it is for.
    chain: String,
    node: Option<Value>,
    lease: Option<Value>,
    version: u64,
    uids: u64,
}

impl Server {
    fn answer(&mut self, request: &Request, mood: Mood) -> Outcome {
        match mood {
            Mood::Deletes => (self.node, self.lease) = (None, None),
            Mood::DeletesLease => self.lease = None,
            Mood::Replaces => {
                if let Some(node) = self.node.take() {
                    self.node = Some(self.store(node, true));
                }
            }
            Mood::Writes => {
                if let Some(node) = self.node.take() {
                    self.node = Some(self.store(node, false));
                }
            }
            Mood::Well | Mood::Refuses(..) | Mood::Babbles(_) | Mood::Silent(_) => {}
        }
        match mood {
            Mood::Refuses(code, after) => reply(code, after, json!({"reason": "Tested"})),
            Mood::Babbles(code) => reply(code, None, json!([1, {"kind": "Node"}])),
            Mood::Silent(applied) => {
                if applied {
                    self.carry_out(request);
                }
                Outcome::Silent("tested".to_owned())
            }
            _ => self.carry_out(request),
        }
    }

    /// As the control plane does: a Lease goes with the Node that owned it.
    fn collect_garbage(&mut self) {
        let uid = |object: &Value, path: &[&str]| object::text(object, path).to_owned();
        let node = self
            .node
            .as_ref()
            .map(|node| uid(node, &["metadata", "uid"]));
        let is_orphan = |lease: &Value| {
            let owners = object::list(lease, &["metadata", "ownerReferences"]);
            !owners
                .iter()
                .any(|owner| Some(uid(owner, &["uid"])) == node)
        };
        self.lease = self.lease.take().filter(|lease| !is_orphan(lease));
    }

    /// Approves and signs at once.
    fn sign(&mut self, request: &Request) -> Outcome {
        match (request.method, &self.csr) {
            (Method::Post, _) => {
                let mut csr: Value = serde_json::from_slice(&request.body).unwrap();
                csr["metadata"] = json!({"name": "csr-1", "uid": "u"});
                self.csr = Some(csr.clone());
                reply(201, None, csr)
            }
            (_, Some(csr)) => reply(200, None, certificates::approved(csr.clone(), &self.chain)),
            (_, None) => reply(404, None, json!({})),
        }
    }

    fn store(&mut self, mut object: Value, anew: bool) -> Value {
        self.version += 1;
        self.uids += u64::from(anew);
        let (version, uid) = (self.version.to_string(), format!("u{}", self.uids));
        let metadata = object::members(&mut object, &["metadata"]);
        metadata.insert("resourceVersion".into(), version.into());
        if anew {
            metadata.insert("uid".into(), uid.into());
        }
        object
    }

    fn carry_out(&mut self, request: &Request) -> Outcome {
        if request.path.contains("/events") {
            return reply(201, None, json!({}));
        }
        if request.path.contains("/certificatesigningrequests") {
            return self.sign(request);
        }
        let about_the_lease = request.path.contains("/leases");
        let slot = |server: &mut Self| match about_the_lease {
            true => server.lease.take(),
            false => server.node.take(),
        };
        let found = slot(self);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (code, kept) = match (request.method, found) {
            (Method::Post, Some(object)) => (409, Some(object)),
            (Method::Post, None) => (201, Some(self.store(body, true))),
            (_, None) => (404, None),
            (Method::Get, Some(object)) => (200, Some(object)),
            (Method::Patch, Some(object)) => {
                let version =
                    |o: &Value| object::text(o, &["metadata", "resourceVersion"]).to_owned();
                match version(&body).is_empty() || version(&body) == version(&object) {
                    true => {
                        let patched = crate::core::patch::tests::apply(object, &body);
                        (200, Some(self.store(patched, false)))
                    }
                    false => (409, Some(object)),
                }
            }
        };
        let answer = match (code, &kept) {
            (409, _) if request.method == Method::Post => json!({"reason": "AlreadyExists"}),
            (409, _) => json!({"reason": "Conflict"}),
            (404, _) => json!({"reason": "NotFound"}),
            (_, object) => object.clone().unwrap_or_default(),
        };
        match about_the_lease {
            true => self.lease = kept,
            false => self.node = kept,
        }
        reply(code, None, answer)
    }
}

fn reply(code: u16, retry_after: Option<u64>, body: Value) -> Outcome {
    Outcome::Answered(Response {
        code,
        retry_after: retry_after.map(Duration::from_secs),
        date: None,
        body: body.to_string().into_bytes(),
    })
}

fn renew_time(request: &Request) -> Option<Wall> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    Wall::parse(object::text(&body, &["spec", "renewTime"]))
}

const LAW: Law = Law {
    lease_duration: Duration::from_secs(40),
};

/// What the law allows after a Lease attempt that was answered so.
fn allowed(outcome: &Outcome, took: Duration) -> Duration {
    let limit = match outcome {
        Outcome::Silent(_) => LAW.call_budget(),
        Outcome::Answered(response) => match (response.accepted(), response.retry_after) {
            (Err(_), None) => LAW.after_refusal(),
            _ => LAW.after_success(),
        },
    };
    took.max(limit)
}

/// A board and its server, in virtual time.
struct World {
    kubelet: Kubelet,
    server: Server,
    now: Mono,
    /// Start of the last Lease attempt, and how soon the next must follow.
    last: Option<(Mono, Duration)>,
    /// Certificates that were put to use.
    renewed: u8,
}

/// How a board gets its certificate: it has one for ever, one for a minute at a time, or
/// none yet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    ForEver,
    AMinute,
    NotYet,
}

fn held() -> impl Strategy<Value = Held> {
    prop_oneof![Just(Held::ForEver), Just(Held::AMinute), Just(Held::NotYet)]
}

fn a_minute(now: Mono) -> Leaf {
    let minute = Duration::from_secs(60);
    certificates::leaf(true_time(now).before(minute), true_time(now).after(minute))
}

impl World {
    fn new() -> Self {
        Self::with_certificate(None)
    }

    fn with_certificate(certificate: Option<Certificate>) -> Self {
        let clock = WallClock::new(built());
        Self {
            kubelet: Kubelet::new(config(), clock, certificate, 1, Mono::START),
            server: Server::default(),
            now: Mono::START,
            last: None,
            renewed: 0,
        }
    }

    fn that_has(held: Held) -> Self {
        let leaf = (held == Held::AMinute).then(|| a_minute(Mono::START));
        let rules = Rules {
            rotate: true,
            bootstrap: held == Held::NotYet,
        };
        let certificate = Certificate::new(rules, certificates::subject(), leaf, false, 500);
        Self::with_certificate((held != Held::ForEver).then_some(certificate))
    }

    fn has_no_certificate(&self) -> bool {
        let certificate = self.kubelet.certificate.as_ref();
        certificate.is_some_and(Certificate::is_missing)
    }

    /// What `identity` does.
    fn carry_out(&mut self, task: &Task, now: Now) {
        let result = match task {
            Task::Find => TaskResult::NotFound,
            Task::Sign { .. } => {
                let leaf = Leaf {
                    public_key: certificates::key(self.renewed),
                    ..a_minute(now.mono)
                };
                self.server.chain = certificates::certificate(&leaf);
                TaskResult::Signed(certificates::signed(self.renewed))
            }
            Task::Install(chain) => {
                self.renewed = self.renewed.wrapping_add(1);
                TaskResult::InUse(Leaf::of_pem(chain.as_bytes()).unwrap())
            }
        };
        self.kubelet.on_task(result, now);
    }

    /// Waits as told, then sends one request, if any.
    fn turn(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let wall = Wall::from_epoch(Duration::from_secs(step.wall));
        let start = Now {
            mono: self.now,
            wall,
        };
        let (work, budget) = match self.kubelet.next(start, || step.connected) {
            Turn::Wait(until) => {
                prop_assert!(until > self.now, "waits for the past");
                let start_of_wait = self.now;
                self.now = until;
                if step.woken {
                    // As often as a PSI trigger can fire.
                    let window = Duration::from_secs(2);
                    self.now = until.min(start_of_wait.after(window));
                    self.kubelet.memory_stalls(self.now);
                }
                return Ok(());
            }
            Turn::Identity(task, _) => {
                self.carry_out(&task, start);
                return Ok(());
            }
            Turn::Send(work, budget) => (work, budget),
        };
        let Some(request) = self.kubelet.request(work, start, |_, _| Facts::example()) else {
            return Ok(());
        };
        prop_assert!(
            request.method == Method::Get || renew_time(&request).is_none_or(|t| t >= built()),
            "a time that cannot be is written"
        );
        let took = budget / 1000 * step.takes;
        let mut outcome = self.server.answer(&request, step.mood);
        self.now = self.now.after(took);
        if let Outcome::Answered(response) = &mut outcome {
            response.date = Some(true_time(self.now));
        }
        if work == Work::Lease {
            if let Some((before, limit)) = self.last {
                let gap = start.mono.since(before);
                prop_assert!(
                    gap <= limit,
                    "an attempt {gap:?} after the last, {limit:?} allowed"
                );
            }
            self.last = Some((start.mono, allowed(&outcome, took)));
        }
        let end = Now {
            mono: self.now,
            wall,
        };
        self.kubelet.on_response(work, outcome, start.mono, end);
        if self.kubelet.owner.is_none() {
            // Without a Node there is nothing to own a Lease.
            self.last = None;
        } else if self.last.is_none() {
            self.last = Some((self.now, LAW.after_success()));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever the server does, Lease attempts follow each other as the law says, and
    /// once it does well again the Node is there, Ready, with a Lease of its own.
    #[test]
    fn the_lease_law_holds_and_every_storm_ends_well(
        held in held(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut world = World::that_has(held);
        for step in &steps {
            world.turn(step)?;
        }
        let calm = Step { mood: Mood::Well, takes: 1, connected: true, woken: false, wall: 1_800_000_000 };
        let storm_end = world.now;
        while world.now < storm_end.after(Duration::from_secs(60)) {
            world.server.collect_garbage();
            world.turn(&calm)?;
        }
        let node = world.server.node.clone().unwrap_or_default();
        let ready = object::list(&node, &["status", "conditions"]).last().cloned().unwrap_or_default();
        prop_assert_eq!(object::text(&ready, &["status"]), "True");
        let lease = world.server.lease.clone().unwrap_or_default();
        let owners = object::list(&lease, &["metadata", "ownerReferences"]);
        prop_assert_eq!(owners.len(), 1);
        prop_assert_eq!(&owners[0]["uid"], &node["metadata"]["uid"]);
        prop_assert!(world.kubelet.renewed.is_some_and(|at| world.now.since(at) < Duration::from_secs(15)));
        prop_assert!(!world.has_no_certificate());
    }

    /// No answer makes the loop spin: however fast the server is, the requests of ten
    /// minutes are few, also while memory stalls wake the loop all the time.
    #[test]
    fn no_server_makes_it_spin(
        held in held(),
        mood in mood(),
        rest in mood(),
        woken in any::<bool>(),
    ) {
        let mut world = World::that_has(held);
        let mut requests = 0;
        let end = Mono::START.after(Duration::from_secs(600));
        let mut odd = false;
        while world.now < end {
            odd = !odd;
            let mood = if odd { mood } else { rest };
            let step = Step { mood, takes: 0, connected: true, woken, wall: 1_800_000_000 };
            world.turn(&step)?;
            requests += 1;
            prop_assert!(requests < 3000, "{requests} turns by {:?}", world.now);
        }
    }
}

/// Ten minutes of certificates of a minute or two: no renewal of the Lease is late, and
/// nothing but the certificate is asked for before there is one.
#[test]
fn certificates_are_renewed_between_the_leases() {
    for held in [Held::AMinute, Held::NotYet] {
        let mut world = World::that_has(held);
        let mut attempts = Vec::new();
        while world.now < Mono::START.after(Duration::from_secs(600)) {
            let wall = true_time(world.now);
            let now = Now {
                mono: world.now,
                wall,
            };
            let first = world.has_no_certificate();
            match world.kubelet.next(now, || true) {
                Turn::Wait(until) => world.now = until,
                Turn::Identity(task, _) => world.carry_out(&task, now),
                Turn::Send(work, _) => {
                    assert!(!first || work == Work::Certificate, "{work:?}");
                    if work == Work::Lease {
                        attempts.push(world.now);
                    }
                    let request = world.kubelet.request(work, now, |_, _| Facts::example());
                    let Some(request) = request else { continue };
                    let outcome = world.server.answer(&request, Mood::Well);
                    world.now = world.now.after(Duration::from_millis(300));
                    world.kubelet.on_response(work, outcome, now.mono, now);
                }
            }
        }
        // At 80 % of two minutes, one of which is over; then after half of what is left.
        assert!(world.renewed > 8, "{held:?}: {}", world.renewed);
        let gaps = attempts.windows(2).map(|pair| pair[1].since(pair[0]));
        let latest = gaps.max().unwrap();
        assert!(
            latest <= LAW.renew_interval() + Duration::from_millis(300),
            "{latest:?}"
        );
    }
}

/// Rule 3 holds for the certificate, too.
#[test]
fn a_silent_request_for_a_certificate_makes_the_lease_the_probe() {
    let mut world = World::that_has(Held::AMinute);
    while world.kubelet.renewed.is_none() {
        world.turn(&calm()).unwrap();
    }
    let now = Now {
        mono: world.now,
        wall: true_time(world.now),
    };
    assert_ne!(
        world.kubelet.next(now, || true),
        Turn::Send(Work::Lease, LAW.after_silence())
    );
    world
        .kubelet
        .on_task(TaskResult::Signed(certificates::signed(1)), now);
    let silent = Outcome::Silent("tested".to_owned());
    world
        .kubelet
        .on_response(Work::Certificate, silent, now.mono, now);
    assert_eq!(
        world.kubelet.next(now, || true),
        Turn::Send(Work::Lease, LAW.after_silence())
    );
}

/// A frozen process has seen no request fail, yet the control plane has given it up.
#[test]
fn a_long_gap_between_renewals_makes_it_look_at_its_node() {
    let mut world = settled();
    assert!(!world.kubelet.node.must_read(&config(), world.now));
    world.now = world.now.after(Duration::from_secs(60));
    world.last = None;
    world.turn(&calm()).unwrap();
    assert!(world.kubelet.node.must_read(&config(), world.now));
}

/// A calm world that has run for half a minute.
fn settled() -> World {
    let mut world = World::new();
    while world.now < Mono::START.after(Duration::from_secs(30)) {
        world.turn(&calm()).unwrap();
    }
    world
}

fn calm() -> Step {
    Step {
        mood: Mood::Well,
        takes: 0,
        connected: true,
        woken: false,
        wall: 1_800_000_000,
    }
}

#[test]
fn a_node_made_anew_takes_its_lease_over_before_that_is_collected() {
    let mut world = settled();
    let node = world.server.node.take().unwrap();
    world.server.node = Some(world.server.store(node, true));
    let uid = world.server.node.as_ref().unwrap()["metadata"]["uid"].clone();
    let now = world.now;
    world.kubelet.node.doubt(now);
    for _ in 0..6 {
        world.turn(&calm()).unwrap();
    }
    let lease = world.server.lease.unwrap();
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], uid);
}

#[test]
fn the_second_failure_in_a_row_asks_for_a_new_connection_unless_it_is_ours() {
    let effects = |work: Work, codes: [u16; 3]| {
        let mut world = settled();
        if work == Work::Node {
            world.kubelet.node.doubt(world.now);
        }
        codes.map(|code| {
            let now = now(&world);
            if work == Work::Node {
                let request = world.kubelet.request(work, now, |_, _| Facts::example());
                assert!(request.is_some());
            }
            let outcome = reply(code, None, json!({}));
            world.kubelet.on_response(work, outcome, world.now, now)
        })
    };
    for work in [Work::Lease, Work::Node] {
        for (codes, third) in [
            ([500, 503, 403], Effect::None),
            ([500, 502, 401], Effect::Disconnect),
            ([500, 200, 429], Effect::None),
        ] {
            let want = [Effect::None, Effect::Disconnect, third];
            assert_eq!(effects(work, codes), want, "{work:?} {codes:?}");
        }
    }
}

fn now(world: &World) -> Now {
    Now {
        mono: world.now,
        wall: true_time(world.now),
    }
}

/// A board without an RTC, from power-on to time sync.
#[test]
fn nothing_is_written_while_nobody_knows_the_time() {
    let mut world = World::new();
    let in_1970 = |world: &World| Now {
        mono: world.now,
        wall: Wall::default().after(world.now.since(Mono::START)),
    };
    let mut asked = 0;
    while world.now < Mono::START.after(Duration::from_secs(60)) {
        let now = in_1970(&world);
        match world.kubelet.next(now, || true) {
            Turn::Wait(until) => {
                assert!(until <= world.now.after(CLOCK_TICK), "a set clock waits");
                world.now = until;
            }
            Turn::Identity(..) => panic!("asked for a certificate without the time"),
            Turn::Send(work, _) => {
                assert_eq!(work, Work::Time);
                let request = world
                    .kubelet
                    .request(work, now, |_, _| -> Facts { unreachable!() });
                assert_eq!(request.unwrap().method, Method::Get);
                let silent = Outcome::Silent("certificate not valid yet".to_owned());
                world.kubelet.on_response(work, silent, world.now, now);
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 6);
    assert!(world.kubelet.summary(world.now).contains(
        "registering; clock: the board says 1970-01-01T00:00:50Z, but nodelet was built at"
    ));

    // It is set at last.
    let set = world.now;
    while !world.kubelet.registered {
        world.turn(&calm()).unwrap();
    }
    assert!(world.now <= set.after(CLOCK_TICK));
    let event = world.kubelet.events.request("u1", now(&world)).unwrap();
    let event: Value = serde_json::from_slice(&event.body).unwrap();
    assert_eq!(event["reason"], "Starting");
    assert_eq!(event["firstTimestamp"], calm_wall().time(), "not 1970");
}

/// The clock of the server is good enough to live by, until the board's is set.
#[test]
fn a_server_that_tells_the_time_makes_the_board_ready() {
    let mut world = World::new();
    let step = Step { wall: 5, ..calm() };
    while world.now < Mono::START.after(Duration::from_secs(60)) {
        world.turn(&step).unwrap();
    }
    let renewed = |world: &World| {
        let lease = world.server.lease.as_ref().unwrap();
        Wall::parse(object::text(lease, &["spec", "renewTime"])).unwrap()
    };
    let late = true_time(world.now).since(renewed(&world));
    assert!(late < Duration::from_secs(15), "{late:?}");
    let conditions = object::list(
        world.server.node.as_ref().unwrap(),
        &["status", "conditions"],
    );
    assert!(conditions.iter().all(|condition| {
        let times = ["lastHeartbeatTime", "lastTransitionTime"];
        times
            .iter()
            .all(|key| Wall::parse(object::text(condition, &[key])) >= Some(calm_wall()))
    }));
    let summary = world.kubelet.summary(world.now);
    assert!(
        summary.starts_with("Ready since 2027-01-15T08:00:0"),
        "{summary}"
    );
    assert!(summary.contains("; clock: the board says 1970-01-01T00:00:05Z, 20833 days behind"));

    // Steps of a day and of a year, both ways: no renewal is lost, none goes back.
    let mut last = renewed(&world);
    for wall in [86_400, 0, 3_000_000_000, 1_800_000_000, 1_831_536_000, 7] {
        let until = world.now.after(Duration::from_secs(30));
        while world.now < until {
            world.turn(&Step { wall, ..calm() }).unwrap();
        }
        let now = renewed(&world);
        assert!(now > last, "{now:?} after {last:?}");
        last = now;
    }
}

#[test]
fn the_first_registration_is_told_and_no_other() {
    let mut kubelet = World::new().kubelet;
    let mut server = Server::default();
    let mut told = 0;
    for _ in 0..3 {
        let now = Now {
            mono: Mono::START,
            wall: calm_wall(),
        };
        let request = kubelet
            .request(Work::Node, now, |_, _| Facts::example())
            .unwrap();
        let outcome = server.carry_out(&request);
        let effect = kubelet.on_response(Work::Node, outcome, Mono::START, now);
        told += u32::from(effect == Effect::Registered);
        kubelet.node.doubt(Mono::START);
        server.node = None;
    }
    assert_eq!(told, 1);
}

/// A registered Kubelet that waits to become healthy, from the given second on.
fn unhealthy_from(second: u64) -> (Kubelet, Server, Mono) {
    let mut world = World::new();
    while world.kubelet.owner.is_none() {
        world.turn(&calm()).unwrap();
    }
    let now = world.now.after(Duration::from_secs(second));
    (world.kubelet, world.server, now)
}

/// Computes the status once, at `now`, and lets the server answer what is sent. Returns
/// the request's method, and when the Node is due again.
fn build(
    kubelet: &mut Kubelet,
    healthy: bool,
    now: Mono,
    answer: impl FnOnce(&Request) -> Outcome,
) -> (Option<Method>, Duration) {
    let now = Now {
        mono: now,
        wall: calm_wall(),
    };
    let mut facts = Facts::example();
    if !healthy {
        facts.unhealthy = vec!["/data is not healthy: /data does not exist".to_owned()];
    }
    let request = kubelet.request(Work::Node, now, |_, _| facts);
    if let Some(request) = &request {
        kubelet.on_response(Work::Node, answer(request), now.mono, now);
    }
    // The loop looks at what is awaited in between, and computes when that changed.
    if kubelet.awaits(now.mono).is_some() {
        kubelet.hurry(now.mono.after(FAST_TICK));
    }
    let pause = kubelet.node.due().since(now.mono);
    (request.map(|request| request.method), pause)
}

/// TestFastStatusUpdateOnce, with `--ready-when-exists` in the runtime's place: nothing
/// is sent until Ready is True, and that at once. There is no cached readiness here, and
/// a patch that fails is read and built again with a backoff instead of five times in a
/// row.
#[test]
fn test_fast_status_update_once() {
    // It is told once that the Node is not ready; after that, it only looks.
    let (mut kubelet, mut server, mut now) = unhealthy_from(1);
    let (sent, pause) = build(&mut kubelet, false, now, |r| server.carry_out(r));
    assert_eq!((sent, pause), (Some(Method::Patch), FAST_TICK));
    for _ in 0..3 {
        now = now.after(pause);
        assert_eq!(
            build(&mut kubelet, false, now, |_| unreachable!()),
            (None, FAST_TICK),
            "not ready yet"
        );
    }
    let refuse = |_: &Request| reply(500, None, json!({}));
    let methods = |healthy_after: usize, failures: usize| {
        let (mut kubelet, mut server, mut now) = unhealthy_from(1);
        let mut sent = Vec::new();
        let mut pauses = Vec::new();
        let mut failures = failures;
        build(&mut kubelet, false, now, |r| server.carry_out(r));
        for number in 0..healthy_after + 12 {
            now = kubelet.node.due().max(now);
            let (method, pause) = build(&mut kubelet, number >= healthy_after, now, |r| {
                match (r.method, failures) {
                    (Method::Patch, 1..) => {
                        failures -= 1;
                        refuse(r)
                    }
                    _ => server.carry_out(r),
                }
            });
            sent.extend(method);
            if method == Some(Method::Patch) {
                pauses.push(pause.as_millis());
                if pause == Duration::from_secs(10) {
                    break;
                }
            }
        }
        (sent, pauses)
    };
    let (get, patch) = (Method::Get, Method::Patch);
    assert_eq!(
        methods(2, 0),
        (vec![patch], vec![10_000]),
        "ready on the third"
    );
    assert_eq!(
        methods(1, 1),
        (vec![patch, get, patch], vec![100, 10_000]),
        "ready on the second, the first patch fails"
    );
    let (sent, pauses) = methods(0, 6);
    assert_eq!(
        sent[..7],
        [patch, get, patch, get, patch, get, patch],
        "all patches fail"
    );
    assert!(pauses.is_sorted(), "{pauses:?}");

    // The time is over: from tick to tick.
    let (mut kubelet, mut server, now) = unhealthy_from(130);
    let (_, pause) = build(&mut kubelet, false, now, |r| server.carry_out(r));
    assert_eq!(pause, Duration::from_secs(10));
}
