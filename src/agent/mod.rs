//! The loop: ask the kubelet for the next step, wait or do one thing, ping the watchdog.
//!
//! Everything that can block is called from here: the wait, the files of `host` and `identity`, the
//! lookup of the node's name, and at most one request a turn, with a time limit. `core::kubelet`
//! decides what to do and what a response means. No failure of a server, a network, a clock or a
//! kernel file ends the loop.

pub mod read_cache;

use std::time::Duration;

use self::read_cache::ReadCache;
use crate::config::Config;
use crate::core::certificate::{Certificate, FileTask};
use crate::core::instant::{Mono, Now};
use crate::core::kubelet::{Action, AfterResponse, FAST_TICK, Kubelet};
use crate::core::schedule::RequestKind;
use crate::core::wall_clock::WallClock;
use crate::files::write;
use crate::health::Health;
use crate::host::health::HealthSources;
use crate::host::heartbeat::HeartbeatFile;
use crate::identity::{Identity, Replaced};
use crate::kube::message::Outcome;
use crate::kube::text::VERBOSE;
use crate::kube::time::Wall;
use crate::process::clock::Clock;
use crate::process::notify::Notify;
use crate::process::wakeup::{Wakeup, Woken};
use crate::wire::api::Api;

/// Delay after a network change, because addresses, routes and interfaces change together.
const NETWORK_SETTLES: Duration = Duration::from_secs(1);

/// After a network change no other one ends a wait for so long: a route or an address that flaps
/// must not keep the loop busy. A later change is seen at the next wakeup.
const NETWORK_RESTS: Duration = Duration::from_secs(10);

/// A request is not preceded by a poll if one, or a wait, was so short ago: the second request of a
/// round mostly follows the first one within milliseconds.
const POLL_AGAIN: Duration = Duration::from_millis(100);

/// The connection to the API server, and its credentials.
#[derive(Debug)]
pub struct ApiConnection {
    /// Not connected yet.
    pub api: Api,
    /// The files of the credentials.
    pub identity: Identity,
    /// The certificate to renew; `None` if the kubeconfig is used unchanged.
    pub certificate: Option<Certificate>,
}

/// The loop and all of its parts.
#[derive(Debug)]
pub struct Agent {
    kubelet: Kubelet,
    facts: ReadCache,
    health: Health,
    health_sources: HealthSources,
    api: Api,
    identity: Identity,
    clock: Clock,
    wakeup: Wakeup,
    notify: Notify,
    /// `--state-file`.
    heartbeat: Option<HeartbeatFile>,
    /// Until then, network changes end no wait.
    network_rests: Mono,
    /// The last turn was a wait.
    has_waited: bool,
    /// The last poll or end of a wait.
    polled: Option<Mono>,
}

impl Agent {
    /// `seed` is any number that differs between boards.
    pub fn new(
        config: Config,
        facts: ReadCache,
        connection: ApiConnection,
        wakeup: Wakeup,
        notify: Notify,
        seed: u64,
    ) -> Self {
        let clock = Clock::start();
        let wall_clock = WallClock::new(WallClock::built(), clock.boot_to_start());
        Self {
            health: Health::new(&facts.host.health, WallClock::built()),
            health_sources: HealthSources::new(&facts.host, move || clock.now()),
            facts,
            heartbeat: config.state_file.as_ref().map(HeartbeatFile::new),
            kubelet: Kubelet::new(
                config,
                wall_clock,
                connection.certificate,
                seed,
                clock.now().mono,
            ),
            api: connection.api,
            identity: connection.identity,
            clock,
            wakeup,
            notify,
            network_rests: Mono::START,
            has_waited: false,
            polled: None,
        }
    }

    /// Runs until a signal asks to stop. Node and Lease stay on the server, because a package
    /// upgrade is not an outage. During a planned shutdown Ready becomes False first.
    pub fn run(mut self: Box<Self>) {
        loop {
            let start = self.clock.now();
            match self.identity.refresh(&mut self.api, start.mono) {
                Some(Replaced::Certificate(leaf)) => {
                    self.kubelet.on_certificate_replaced(leaf, start);
                }
                Some(Replaced::Token) => self.kubelet.on_token_replaced(),
                None => {}
            }
            if let Some(by) = self.facts.runtime_due.take() {
                self.kubelet.compute_status_by(by);
            }
            let turn = self.kubelet.next(start, || self.api.is_connected());
            match self.wait(&turn, start) {
                Woken::Stop if self.kubelet.on_stop() => return self.stop(),
                Woken::Shutdown => self.kubelet.on_shutdown(self.clock.now().mono),
                Woken::MemoryPressure => self.kubelet.on_memory_pressure(self.clock.now().mono),
                Woken::Network => {
                    self.facts.on_network_change();
                    let now = self.clock.now().mono;
                    self.network_rests = now.after(NETWORK_RESTS);
                    self.kubelet.compute_status_by(now.after(NETWORK_SETTLES));
                }
                Woken::Voltage => self.health_sources.on_voltage(),
                Woken::Stop | Woken::Timeout => {}
            }
            match turn {
                Action::Connect(budget) => self.connect(budget),
                Action::Send(kind, budget) => self.send(kind, budget, start),
                Action::FileTask(task, wall) => self.carry_out(&task, wall),
                Action::Wait(_) => self.check_health(),
                Action::End => return self.stop(),
            }
        }
    }

    /// Pings the watchdog, then waits if `turn` is a wait. Other turns poll without a timeout.
    fn wait(&mut self, turn: &Action, start: Now) -> Woken {
        let (pause, busy) = match turn {
            Action::Wait(until) => {
                let longest = match self.kubelet.unhealthy_while_starting(start.mono) {
                    Some(_) => FAST_TICK,
                    None => self.notify.every(),
                };
                let pause = until.since(start.mono).min(longest);
                (pause, pause)
            }
            Action::Connect(budget) | Action::Send(_, budget) => (Duration::ZERO, *budget),
            Action::FileTask(..) | Action::End => (Duration::ZERO, Duration::ZERO),
        };
        self.notify.alive(start.mono, busy, || self.kubelet.summary(start.mono));
        if std::mem::take(&mut self.has_waited) {
            self.polled = Some(start.mono);
        }
        let is_recent = |polled| start.mono.since(polled) < POLL_AGAIN;
        if pause.is_zero() && self.polled.is_some_and(is_recent) {
            return Woken::Timeout;
        }
        self.has_waited = !pause.is_zero();
        self.polled = Some(start.mono);
        let wants_voltage = self.health.pace().wait_for_voltage;
        if wants_voltage != self.wakeup.waits_for_voltage() {
            let file = wants_voltage.then(|| self.health_sources.voltage_descriptor());
            self.wakeup.wait_for_voltage(file.flatten());
        }
        self.wakeup.wait(pause, start.mono >= self.network_rests)
    }

    fn stop(mut self) {
        if let Some(boots) = self.health.boots_at_stop() {
            self.health_sources.write_boots(boots);
        }
        self.notify.stopping();
    }

    /// Passes the board's health to the facts; reads its sources, if that is due.
    fn read_health(&mut self) {
        self.health.on_node(self.kubelet.node_conditions());
        let now = self.clock.now();
        if let Some(reading) = self.health_sources.read(self.health.pace()) {
            self.health.on_reading(&reading, now);
        }
        self.health.on_files(self.health_sources.files());
        self.facts.set_health(self.health.conditions());
        self.kubelet.on_health_events(self.health.take_events(), now.mono);
    }

    /// Records this boot, once a response has shown that the clock is right.
    fn write_boots(&mut self, now: Now) {
        if let Some(boots) = self.health.boots_to_write(now) {
            let is_ok = self.health_sources.write_boots(boots);
            self.health.on_boots_written(is_ok);
        }
    }

    /// Opens the connection of the first request.
    fn connect(&mut self, budget: Duration) {
        if let Err(why) = self.api.connect(budget) {
            self.kubelet.on_connect_failed(&why, self.clock.now().mono);
        }
    }

    /// Sends the next request of this kind and passes the response to the kubelet.
    fn send(&mut self, kind: RequestKind, budget: Duration, start: Now) {
        if kind == RequestKind::Node {
            self.read_health();
        }
        if self.kubelet.needs_facts(kind, start) {
            let (node, may_wait) = (self.kubelet.node_config(), self.kubelet.may_wait());
            let watched = self.wakeup.watches_network();
            self.facts.refresh(node, may_wait, watched, || self.clock.now().mono);
        }
        let Some(request) = self.kubelet.request(kind, start, self.facts.facts()) else {
            return;
        };
        log::info!(target: VERBOSE, "{:?} {}", request.method, request.path);
        let answer_budget = self.kubelet.answer_budget(kind);
        let api = self.api_for(kind);
        api.set_answer_budget(answer_budget);
        let outcome = api.call(&request, budget);
        self.identity.on_response(&outcome);
        let now = self.clock.now();
        if let Outcome::Answered(response) = &outcome
            && let Some(date) = response.date
        {
            self.health.on_date(date, start.mono, now);
        }
        let effect = self.kubelet.on_response(kind, outcome, start.mono, now);
        if let (RequestKind::Lease, Some(file)) = (kind, &mut self.heartbeat) {
            let boot_to_start = self.clock.boot_to_start();
            file.write(&self.kubelet.heartbeat(start.mono, boot_to_start), now.mono);
        }
        self.write_boots(now);
        match effect {
            AfterResponse::None => {}
            AfterResponse::Registered => self.registered(),
            AfterResponse::Disconnect => self.api_for(kind).disconnect(),
            AfterResponse::TryOtherAddress => self.api_for(kind).try_other_address(),
            AfterResponse::PodCidrs(cidrs) => self.write_pod_cidrs(&cidrs),
        }
    }

    fn api_for(&mut self, kind: RequestKind) -> &mut Api {
        match kind {
            RequestKind::Certificate => self.identity.certificate_api(&mut self.api),
            _ => &mut self.api,
        }
    }

    fn carry_out(&mut self, task: &FileTask, wall: Wall) {
        let result = self.identity.carry_out(task, &mut self.api, wall);
        self.kubelet.on_task(result, self.clock.now());
    }

    /// Computes the status at once if a path of `--ready-when-exists` appeared. Reads nothing else.
    fn check_health(&mut self) {
        let now = self.clock.now().mono;
        let changed = |lines: &[String]| self.facts.host.unhealthy() != lines;
        if self.kubelet.unhealthy_while_starting(now).is_some_and(changed) {
            self.kubelet.compute_status_by(now);
        }
    }

    fn registered(&mut self) {
        let (name, endpoint) = (&self.kubelet.node_config().name, self.api.endpoint());
        log::info!("node {name}: registered at {endpoint}");
        self.notify.ready();
    }

    /// Writes the file that a CNI plugin or another program on this board reads.
    fn write_pod_cidrs(&self, cidrs: &str) {
        let path = self.facts.host.node_root_dir.join("podcidr");
        log::info!("node {}: podCIDR {cidrs}", &self.kubelet.node_config().name);
        if let Err(line) = write::publish(&path, format!("{cidrs}\n")) {
            log::warn!("podCIDR cannot be written: {line}; make --root-dir writable");
        }
    }
}
