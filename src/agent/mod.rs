//! The agent: its start, and its loop, which asks the kubelet for the next step, waits or does one
//! thing, and pings the watchdog.
//!
//! Everything that can block is called from here, one thing a turn: the wait, a read of facts, an
//! operation of a file change, or a request with a time limit. `node::kubelet` decides what to do
//! and what a response means. No failure of a server, a network, a clock or a kernel file ends the
//! loop.

pub(crate) mod environment_file;
pub(crate) mod permissions;
mod read_cache;
pub(crate) mod setup;
mod state_file;
pub(crate) mod unit;

use std::time::Duration;

use self::read_cache::ReadCache;
use self::setup::Setup;
use self::state_file::StateFile;
use crate::client::api::Api;
use crate::config::flags::Flags;
use crate::credentials::rotation::{Rotation, RotationStep};
use crate::credentials::{Credentials, IdentitySource};
use crate::health::monitor::Health;
use crate::kube::delay::Jitter;
use crate::kube::facts::FsStats;
use crate::kube::instant::{ClusterSeen, Mono, Now};
use crate::kube::message::{Answer, Request};
use crate::kube::outage_log::OutageLog;
use crate::kube::text::{FaultKind, VERBOSE};
use crate::node::Effect;
use crate::node::kubelet::{FAST_TICK, Kubelet, OtherWork};
use crate::node::schedule::{Action, RequestKind};
use crate::node::wall_clock::WallClock;
use crate::os::clock::{self, Clock};
use crate::os::command::{self, CommandFailure, End, env};
use crate::os::guard;
use crate::os::notify::Notify;
use crate::os::random;
use crate::os::wakeup::{Wakeup, Woken};
use crate::os::write::{self, Changes, Disk};
use crate::runtime::file::RuntimeFile;

/// Delay after a network change, because addresses, routes and interfaces change together.
const NETWORK_SETTLES: Duration = Duration::from_secs(1);

/// For this time after a network change no further change ends a wait: a route or an address that
/// flaps must not keep the loop busy. A change in this time is noticed at the first wakeup after
/// it.
const NETWORK_RESTS: Duration = Duration::from_secs(10);

/// There is no poll before an action if the last poll or wait ended less than this ago: the second
/// request of a round mostly follows the first one within milliseconds.
const POLL_AGAIN: Duration = Duration::from_millis(100);

/// What a file change is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FilePurpose {
    PodCidrs,
    Boots,
}

/// Runs the agent until a signal asks to stop.
pub fn run(flags: Box<Flags>) -> End {
    Agent::open(flags)?.run();
    Ok(())
}

/// The loop and all of its parts.
#[derive(Debug)]
struct Agent {
    kubelet: Kubelet,
    facts: ReadCache,
    health: Health,
    credentials: Credentials,
    changes: Changes<FilePurpose>,
    /// `spec.podCIDRs` that the file `podcidr` does not have yet; empty if it is to be removed.
    unwritten_cidrs: Option<String>,
    /// The next turn for a file change queues the file `podcidr`.
    cidrs_due: bool,
    /// The same for the file `boots`.
    boots_due: bool,
    cidrs_log: OutageLog,
    clock: Clock,
    wakeup: Wakeup,
    notify: Notify,
    /// `--state-file`.
    state_file: Option<StateFile>,
    /// Until then, network changes end no wait.
    network_rests: Mono,
    /// When the last poll or wait ended.
    polled: Option<Mono>,
}

impl Agent {
    /// An agent that has sent no request yet. The function is not inlined and its result is boxed:
    /// otherwise the stack that a start needs (28 KiB, measured) would lie below the loop for the
    /// life of the process.
    #[inline(never)]
    fn open(flags: Box<Flags>) -> Result<Box<Self>, CommandFailure> {
        // Before the facts are read, so that no later change of the network is missed.
        let wakeup = Wakeup::new().map_err(|e| CommandFailure::Other(format!("signalfd: {e}")))?;
        let mut setup = Setup::for_a_run(*flags)?;
        if setup.config.state_file.is_none() {
            let folder = command::systemd_folders("RUNTIME_DIRECTORY").into_iter().next();
            setup.config.state_file = folder.map(|folder| folder.join("state"));
        }
        let path = setup.config.kubeconfig.as_ref().ok_or_else(|| {
            let line = "--kubeconfig is missing: nodelet join gets one and starts the unit; \
                        nodelet inspect prints the Node that would be registered";
            CommandFailure::Usage(line.to_owned())
        })?;
        let seed = random();
        let source = IdentitySource::new(&setup.config, path, command::credentials_folder());
        let opened = source.open(clock::wall(), Jitter::new(seed));
        let credentials = opened.map_err(|why| CommandFailure::Other(why.to_string()))?;
        let access = &credentials.current.api.config;
        if access.insecure {
            log::warn!(
                "{}: insecure-skip-tls-verify: any server at {} is trusted and gets our \
                 credentials; give the cluster's CA in certificate-authority",
                path.display(),
                access.endpoint
            );
        }
        if setup.facts.storage().is_some_and(|fs| fs.is_ok_and(|fs| fs.is_old)) {
            let (effect, remedy) = FsStats::ASKED_ONCE;
            log::warn!("--root-dir: {effect}; {remedy}");
        }
        if let (Some(name), None) = (command::proxy_variable(), &access.proxy) {
            log::info!("{name} is not used; set proxy-url in the kubeconfig");
        }
        let notify = Notify::new(env("NOTIFY_SOCKET").as_deref(), env("WATCHDOG_USEC").as_deref());
        let clock = Clock::start();
        let health = setup.board_health(clock);
        let Setup { config, runtime, host, facts: first, .. } = setup;
        let mut facts = ReadCache::new(host, &config.node.name, first);
        facts.runtime = runtime.map(|runtime| RuntimeFile::new(runtime.facts_file));
        let wall_clock = WallClock::new(clock::built(), clock.boot_to_start());
        Ok(Box::new(Self {
            health,
            facts,
            state_file: config.state_file.as_ref().map(StateFile::new),
            kubelet: Kubelet::new(config, wall_clock, seed, clock.now().mono),
            credentials,
            changes: Changes::none(),
            unwritten_cidrs: None,
            cidrs_due: false,
            boots_due: false,
            cidrs_log: OutageLog::new("podCIDR"),
            clock,
            wakeup,
            notify,
            network_rests: Mono::START,
            polled: None,
        }))
    }

    /// Runs until a signal asks to stop. Node and Lease stay on the server, because a package
    /// upgrade is not an outage. During a planned shutdown Ready becomes False first.
    fn run(mut self: Box<Self>) {
        loop {
            let turn_begins = self.clock.now();
            if self.credentials.refresh(self.kubelet.cluster_seen(turn_begins)) {
                self.kubelet.on_new_credentials();
            }
            // The time limits count from here, after the read of the credentials.
            let start = self.clock.now();
            let is_apart = self.credentials.current.signs_apart();
            let seen = self.kubelet.cluster_seen(start);
            let mut other_work = other_work(&mut self.credentials.rotation, is_apart, seen);
            other_work.has_change |= self.cidrs_due || self.boots_due || !self.changes.is_empty();
            other_work.has_look = self.health.is_look_due(start.mono);
            let api = &self.credentials.current.api;
            let turn = self.kubelet.next(start, other_work, || api.is_connected());
            let woken = self.wait(&turn, start);
            self.follow(woken);
            if woken.stop && self.kubelet.on_stop() {
                return self.stop();
            }
            // The turn was decided before the signal. The next turn decides again, with the limits
            // of a shutdown.
            let sends =
                matches!(turn, Action::Connect(_) | Action::Send(..) | Action::Credentials(_));
            if sends && (woken.shutdown || woken.stop) {
                continue;
            }
            match turn {
                Action::Connect(budget) => self.connect(budget),
                Action::Send(kind, budget) => self.send(kind, budget, start),
                Action::ReadFacts => self.read_facts(),
                Action::Credentials(budget) => self.step_credentials(budget, start),
                Action::Change if self.credentials.rotation.has_change() => {
                    self.step_credentials(Duration::ZERO, start);
                }
                Action::Change => self.change(),
                // The report stays until the file is read. Before a request a slow driver would
                // delay that request.
                Action::Wait(_) if woken.voltage => self.health.on_voltage(),
                Action::Wait(_) => self.check_health(),
                Action::End => return self.stop(),
            }
        }
    }

    /// Takes what ended a wait.
    fn follow(&mut self, woken: Woken) {
        if woken == Woken::default() {
            return;
        }
        let now = self.clock.now().mono;
        if woken.shutdown {
            self.kubelet.on_shutdown(now);
        }
        if woken.memory_pressure {
            self.kubelet.on_memory_pressure(now);
        }
        if woken.network {
            let settles = now.after(NETWORK_SETTLES);
            self.facts.on_network_change(settles);
            self.network_rests = now.after(NETWORK_RESTS);
            self.kubelet.compute_status_by(settles);
        }
    }

    /// Pings the watchdog, then waits if `turn` is a wait. Other turns poll without a timeout.
    fn wait(&mut self, turn: &Action, start: Now) -> Woken {
        // Nothing limits one fsync of a bad card, or one read of a driver: a ping of the last
        // second precedes it, so that it gets the whole time of the watchdog. A read of the facts,
        // which is more frequent, has at least two thirds of that time.
        let endless = self.notify.every().saturating_sub(Duration::from_secs(1));
        let (pause, busy) = match turn {
            Action::Wait(until) => {
                let longest = match self.kubelet.unhealthy_while_starting(start.mono) {
                    Some(_) => FAST_TICK,
                    None => self.notify.every(),
                };
                let pause = until.since(start.mono).min(longest);
                (pause, pause)
            }
            Action::Credentials(_) if self.credentials.rotation.has_change() => {
                (Duration::ZERO, endless)
            }
            Action::Connect(budget) | Action::Send(_, budget) | Action::Credentials(budget) => {
                (Duration::ZERO, *budget)
            }
            Action::Change => (Duration::ZERO, endless),
            Action::ReadFacts if self.health.is_look_due(start.mono) => (Duration::ZERO, endless),
            Action::ReadFacts | Action::End => (Duration::ZERO, Duration::ZERO),
        };
        let summary = || self.kubelet.summary(start.mono, self.credentials.last_error());
        self.notify.alive(start.mono, busy, summary);
        let is_recent = |polled| start.mono.since(polled) < POLL_AGAIN;
        if pause.is_zero() && self.polled.is_some_and(is_recent) {
            return Woken::default();
        }
        let wants_voltage = self.health.waits_for_voltage();
        if wants_voltage != self.wakeup.waits_for_voltage() {
            let file = wants_voltage.then(|| self.health.voltage_descriptor());
            self.wakeup.wait_for_voltage(file.flatten());
        }
        let woken = self.wakeup.wait(pause, start.mono >= self.network_rests);
        self.polled = Some(self.clock.now().mono);
        woken
    }

    fn stop(mut self) {
        /// Seconds that the write may take on a root that can block: a third of `TimeoutStopSec=`.
        const LAST_WRITE: u32 = 10;
        if let Some(ops) = self.health.record_stop() {
            if guard::root_can_block() {
                command::end_after(LAST_WRITE);
            }
            self.health.on_boot_recorded(Disk::default().carry_out(ops));
        }
        self.notify.stopping();
    }

    /// Reads what the next status needs: the sources of the board's health, if that is due, or else
    /// the facts.
    fn read_facts(&mut self) {
        let (conditions, boot_id) = (self.kubelet.node_conditions(), self.kubelet.found_boot_id());
        self.health.on_node(conditions, boot_id, self.kubelet.has_written());
        let has_looked = self.health.look();
        let now = self.clock.now();
        self.kubelet.on_signs(self.health.take_signs(), now.mono);
        if has_looked {
            // This look was a turn of its own: a Lease that is due goes before the read of the
            // facts.
            return;
        }
        let clock = self.clock;
        let _look = self.facts.host.root.begin_look(move || clock.now().mono);
        let (node, may_wait) = (self.kubelet.node_config(), self.kubelet.has_no_lease());
        let watched = self.wakeup.watches_network();
        let change = self.facts.refresh(node, may_wait, watched, || clock.now().mono);
        // Later: a file of --node-condition on a slow card can take the whole time of the look.
        self.health.read_files();
        self.facts.set_health(self.health.conditions());
        self.kubelet.on_facts(change, self.clock.now().mono);
        // After a failure the next report writes the file again. If the root can block, it is not
        // tried again: the root's server may have died.
        self.cidrs_due |= self.unwritten_cidrs.is_some()
            && self.changes.is_empty()
            && self.kubelet.is_report_due(now.mono)
            && !guard::root_can_block();
    }

    /// Opens the connection of the first request.
    fn connect(&mut self, budget: Duration) {
        if let Err(why) = self.credentials.current.api.connect(budget) {
            self.kubelet.on_connect_failed(&why.to_string(), self.clock.now().mono);
        }
    }

    /// Sends the next request of this kind and passes the response to the kubelet.
    fn send(&mut self, kind: RequestKind, budget: Duration, start: Now) {
        let Some(request) = self.kubelet.request(kind, start, self.facts.facts()) else {
            return;
        };
        let (answer, now) = self.call(kind, &request, budget, start.mono);
        let effects = self.kubelet.on_response(kind, answer, start.mono, now);
        self.carry_out(effects, kind, now.mono);
    }

    /// Takes one step of the credentials: one request, or one operation on a file.
    fn step_credentials(&mut self, budget: Duration, start: Now) {
        let request = match self.credentials.step(self.kubelet.cluster_seen(start)) {
            RotationStep::Files => return,
            RotationStep::InUse(_) => return self.kubelet.on_new_credentials(),
            RotationStep::Send(request) => request,
        };
        let is_apart = self.credentials.current.signs_apart();
        let kind = RequestKind::Certificate { is_apart };
        let (answer, now) = self.call(kind, &request, budget, start.mono);
        self.kubelet.on_answer(kind, &answer, now.mono);
        let taken = self.credentials.on_response(answer, self.kubelet.cluster_seen(now));
        if let Err((error, failures)) = taken {
            self.carry_out(self.kubelet.leave_server(&error, failures), kind, now.mono);
        }
    }

    /// Sends one request. Returns its answer, and when it ended.
    fn call(
        &mut self,
        kind: RequestKind,
        request: &Request,
        budget: Duration,
        start: Mono,
    ) -> (Answer, Now) {
        debug_assert!(!budget.is_zero(), "{kind:?} without time");
        log::info!(target: VERBOSE, "{:?} {}", request.method, request.path);
        let answer_budget = self.kubelet.answer_budget(kind);
        let api = self.api_for(kind);
        api.set_answer_budget(answer_budget);
        let answer = api.call(request, budget);
        self.credentials.current.on_answer(&answer);
        let is_own = kind != RequestKind::Certificate { is_apart: true };
        let now = self.clock.now();
        if is_own
            && answer.as_ref().is_err_and(|why| why.kind == FaultKind::Expired)
            && let Some(leaf) = self.credentials.current.leaf()
        {
            self.kubelet.on_expired(&leaf, now);
        }
        if let Ok(response) = &answer
            && let Some(date) = response.date
        {
            self.health.on_date(date, start, now);
        }
        // This boot is recorded once a response has shown that the clock is right.
        self.boots_due |= self.health.is_record_due(now);
        (answer, now)
    }

    /// Carries out what follows from the response to a request of this kind.
    fn carry_out(
        &mut self,
        effects: impl IntoIterator<Item = Effect>,
        kind: RequestKind,
        now: Mono,
    ) {
        for effect in effects {
            match effect {
                Effect::Registered => self.registered(),
                Effect::PodCidrs(cidrs) => self.take_pod_cidrs(cidrs),
                Effect::LeaseAttempted(report) => {
                    if let Some(file) = &mut self.state_file {
                        file.write(&report, now);
                    }
                }
                Effect::Disconnect => self.api_for(kind).disconnect(),
                Effect::TryOtherAddress => self.api_for(kind).try_other_address(),
            }
        }
    }

    fn api_for(&mut self, kind: RequestKind) -> &mut Api {
        match kind {
            RequestKind::Certificate { .. } => self.credentials.current.signing_api(),
            _ => &mut self.credentials.current.api,
        }
    }

    /// Carries out one operation of the first change.
    fn change(&mut self) {
        if std::mem::take(&mut self.cidrs_due) {
            return self.queue_pod_cidrs();
        }
        if std::mem::take(&mut self.boots_due) {
            return self.queue_boots();
        }
        let Some((purpose, result)) = self.changes.carry_out_next() else {
            return;
        };
        match (purpose, result) {
            (FilePurpose::Boots, result) => self.health.on_boot_recorded(result),
            (FilePurpose::PodCidrs, result) => {
                let is_removal = self.unwritten_cidrs.as_ref().is_some_and(String::is_empty);
                let verb = if is_removal { "removed" } else { "written" };
                let remedy = |why| format!("cannot be {verb}: {why}; make --root-dir writable");
                let error = result.err().map(remedy);
                if error.is_none() {
                    self.unwritten_cidrs = None;
                }
                self.cidrs_log.ended(error.as_deref(), self.clock.now().mono);
            }
        }
    }

    /// Computes the status at once if a path of `--ready-when-exists` appeared. Reads nothing else.
    fn check_health(&mut self) {
        let now = self.clock.now().mono;
        let changed = |lines: &[String]| self.facts.host.unhealthy() != lines;
        if self.kubelet.unhealthy_while_starting(now).is_some_and(changed) {
            self.kubelet.compute_status_now(now);
        }
    }

    fn registered(&mut self) {
        let (name, endpoint) =
            (&self.kubelet.node_config().name, &self.credentials.current.api.config.endpoint);
        log::info!("node {name}: registered at {endpoint}");
        self.notify.ready();
    }

    fn take_pod_cidrs(&mut self, cidrs: String) {
        if !cidrs.is_empty() {
            log::info!("node {}: podCIDR {cidrs}", &self.kubelet.node_config().name);
        }
        self.unwritten_cidrs = Some(cidrs);
        self.cidrs_due = true;
    }

    /// Queues the file with the boots. This looks for the folder, as for `podcidr`.
    fn queue_boots(&mut self) {
        if let Some(ops) = self.health.record_boot(self.clock.now()) {
            self.changes.add(FilePurpose::Boots, ops);
        }
    }

    /// Queues the file that a CNI plugin or another program on this board reads, or its removal.
    /// This looks for the folder or the file, and so it is a turn of its own.
    fn queue_pod_cidrs(&mut self) {
        if let Some(cidrs) = &self.unwritten_cidrs {
            let path = self.facts.host.node_root_dir.join("podcidr");
            let ops = if cidrs.is_empty() {
                write::removal(&path)
            } else {
                write::publication(&path, format!("{cidrs}\n"))
            };
            self.changes.add(FilePurpose::PodCidrs, ops);
        }
    }
}

/// What the rotation wants of the next turn. `signs_apart`: its requests have a client of their
/// own.
pub(crate) fn other_work(rotation: &mut Rotation, signs_apart: bool, at: ClusterSeen) -> OtherWork {
    OtherWork {
        credentials_due: rotation.due(at),
        is_apart: signs_apart || !rotation.sends(at),
        lacks_credentials: rotation.is_missing(),
        has_change: rotation.has_change(),
        has_look: false,
    }
}
