//! The loop: ask the kubelet for the next step, wait or do one thing, ping the watchdog.
//!
//! Everything that can block is called from here: the wait, the files of `host` and `identity`, the
//! lookup of the node's name, and at most one request a turn, with a time limit. `core::kubelet`
//! decides what to do and what a response means. No failure of a server, a network, a clock or a
//! kernel file ends the loop.

use std::time::Duration;

use crate::config::Config;
use crate::core::certificate::{Certificate, Task};
use crate::core::instant::{Mono, Now};
use crate::core::kubelet::{Effect, FAST_TICK, Kubelet, Turn, Work};
use crate::core::runtime::IN_TURN;
use crate::core::wall_clock::WallClock;
use crate::files::write;
use crate::host::fact_cache::FactCache;
use crate::host::problems::Watch;
use crate::identity::{Identity, Replaced};
use crate::kube::text::VERBOSE;
use crate::kube::time::Wall;
use crate::process::clock::Clock;
use crate::process::notify::Notify;
use crate::process::wakeup::{Wakeup, Woken};
use crate::wire::api::Api;
use crate::wire::runtime;

/// Delay after a network change, because addresses, routes and interfaces change together.
const NETWORK_SETTLES: Duration = Duration::from_secs(1);

/// A request is not preceded by a poll if one, or a wait, was so short ago: the second request of a
/// round mostly follows the first one within milliseconds.
const POLL_AGAIN: Duration = Duration::from_millis(100);

/// The connection to the API server, and its credentials.
#[derive(Debug)]
pub struct Connection {
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
    facts: FactCache,
    problems: Watch,
    api: Api,
    identity: Identity,
    clock: Clock,
    wakeup: Wakeup,
    notify: Notify,
    /// The last turn was a wait.
    has_waited: bool,
    /// The last poll or end of a wait.
    polled: Option<Mono>,
}

impl Agent {
    /// `seed` is any number that differs between boards.
    pub fn new(
        config: Config,
        facts: FactCache,
        connection: Connection,
        wakeup: Wakeup,
        notify: Notify,
        seed: u64,
    ) -> Self {
        let clock = Clock::start();
        let wall_clock =
            WallClock::new(WallClock::built()).started_after_boot(clock.boot_to_start());
        Self {
            problems: Watch::new(&facts.host, &config.problems),
            facts,
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
            has_waited: false,
            polled: None,
        }
    }

    /// Runs until a signal asks to stop. Node and Lease stay on the server, because a package
    /// upgrade is not an outage. During a planned shutdown Ready becomes False first.
    pub fn run(mut self) {
        loop {
            let start = self.clock.now();
            match self.identity.refresh(&mut self.api, start.mono) {
                Some(Replaced::Certificate(leaf)) => {
                    self.kubelet.on_certificate_replaced(leaf, start);
                }
                Some(Replaced::Token) => self.kubelet.on_token_replaced(),
                None => {}
            }
            let runtime = self.facts.runtime.as_mut();
            if let Some(by) = runtime.and_then(runtime::Watch::take_status_due) {
                self.kubelet.compute_status_by(by);
            }
            let turn = self.kubelet.next(start, || self.api.is_connected());
            match self.wait(&turn, start) {
                Woken::Stop if self.kubelet.on_stop() => return self.stop(),
                Woken::Shutdown => self.kubelet.on_shutdown(self.clock.now().mono),
                Woken::MemoryPressure => self.kubelet.on_memory_pressure(self.clock.now().mono),
                Woken::Network => {
                    self.facts.on_network_change();
                    let settled = self.clock.now().mono.after(NETWORK_SETTLES);
                    self.kubelet.compute_status_by(settled);
                }
                Woken::Voltage => self.problems.on_voltage(&|| self.clock.now().mono),
                Woken::Runtime => self.read_runtime(&turn),
                Woken::Stop | Woken::Timeout => {}
            }
            match turn {
                Turn::Connect(budget) => self.connect(budget),
                Turn::Send(work, budget) => self.send(work, budget, start),
                Turn::Identity(task, wall) => self.carry_out(&task, wall),
                Turn::Wait(_) => self.check_health(),
                Turn::End => return self.stop(),
            }
        }
    }

    /// Pings the watchdog, then waits if `turn` is a wait. Other turns poll without a timeout.
    fn wait(&mut self, turn: &Turn, start: Now) -> Woken {
        let (pause, busy) = match turn {
            Turn::Wait(until) => {
                let longest = match self.kubelet.unhealthy_while_starting(start.mono) {
                    Some(_) => FAST_TICK,
                    None => self.notify.every(),
                };
                let pause = until.since(start.mono).min(longest);
                (pause, pause)
            }
            Turn::Connect(budget) | Turn::Send(_, budget) => (Duration::ZERO, *budget),
            Turn::Identity(..) | Turn::End => (Duration::ZERO, Duration::ZERO),
        };
        self.notify
            .alive(start.mono, busy, || self.kubelet.summary(start.mono));
        if std::mem::take(&mut self.has_waited) {
            self.polled = Some(start.mono);
        }
        let is_recent = |polled| start.mono.since(polled) < POLL_AGAIN;
        if pause.is_zero() && self.polled.is_some_and(is_recent) {
            return Woken::Timeout;
        }
        self.has_waited = !pause.is_zero();
        self.polled = Some(start.mono);
        let wants_voltage = self.kubelet.pace().wait_for_voltage;
        if wants_voltage != self.wakeup.waits_for_voltage() {
            let file = wants_voltage.then(|| self.problems.voltage_descriptor());
            self.wakeup.wait_for_voltage(file.flatten());
        }
        let runtime = self.facts.runtime.as_ref().filter(|_| pause > IN_TURN);
        self.wakeup
            .wait(pause, runtime.and_then(runtime::Watch::descriptor))
    }

    fn stop(mut self) {
        if let Some(boots) = self.kubelet.boots_at_stop() {
            self.problems.write_boots(boots);
        }
        self.notify.stopping();
    }

    /// Looks at the sources of the board's health, if a look is due.
    fn look(&mut self) {
        let clock = || self.clock.now().mono;
        if let Some(look) = self.problems.look(self.kubelet.pace(), &clock) {
            self.kubelet.on_look(&look, self.clock.now());
        }
        self.kubelet.on_files(&self.problems.files());
    }

    /// Opens the connection of the first request.
    fn connect(&mut self, budget: Duration) {
        if let Err(why) = self.api.connect(budget) {
            self.kubelet.on_connect_failed(&why, self.clock.now().mono);
        }
    }

    /// Sends the next request for `work` and passes the response to the kubelet.
    fn send(&mut self, work: Work, budget: Duration, start: Now) {
        if work == Work::Node {
            self.look();
        }
        let Some(request) = self.kubelet.request(work, start, |node, may_wait| {
            let clock = || self.clock.now().mono;
            let watched = self.wakeup.watches_network();
            self.facts.facts(node, may_wait, watched, clock)
        }) else {
            return;
        };
        log::info!(target: VERBOSE, "{:?} {}", request.method, request.path);
        // The look at the runtime and the request share one time limit.
        let runtime = self.facts.runtime.as_mut();
        let waited = runtime.map_or(Duration::ZERO, runtime::Watch::take_waited);
        let answer_budget = self.kubelet.answer_budget(work);
        let api = self.api_for(work);
        api.set_answer_budget(answer_budget);
        let outcome = api.call(&request, budget.saturating_sub(waited));
        self.identity.on_response(&outcome);
        let now = self.clock.now();
        let effect = self.kubelet.on_response(work, outcome, start.mono, now);
        if let Some(boots) = self.kubelet.boots_to_write(now) {
            let is_ok = self.problems.write_boots(boots);
            self.kubelet.on_boots_written(is_ok);
        }
        match effect {
            Effect::None => {}
            Effect::Registered => self.registered(),
            Effect::Disconnect => self.api_for(work).disconnect(),
            Effect::TryOtherAddress => self.api_for(work).try_other_address(),
            Effect::PodCidrs(cidrs) => self.write_pod_cidrs(&cidrs),
        }
    }

    fn api_for(&mut self, work: Work) -> &mut Api {
        match work {
            Work::Certificate => self.identity.certificate_api(&mut self.api),
            _ => &mut self.api,
        }
    }

    fn carry_out(&mut self, task: &Task, wall: Wall) {
        let result = self.identity.carry_out(task, &mut self.api, wall);
        self.kubelet.on_task(result, self.clock.now());
    }

    /// Computes the status at once if a path of `--ready-when-exists` appeared. Reads nothing else.
    fn check_health(&mut self) {
        let now = self.clock.now().mono;
        let changed = |lines: &[String]| self.facts.host.unhealthy() != lines;
        if self
            .kubelet
            .unhealthy_while_starting(now)
            .is_some_and(changed)
        {
            self.kubelet.compute_status_by(now);
        }
    }

    /// Reads an answer of the container runtime, unless something is due before that could end.
    fn read_runtime(&mut self, turn: &Turn) {
        let now = self.clock.now().mono;
        if matches!(turn, Turn::Wait(until) if until.since(now) > IN_TURN) {
            self.facts.drain_runtime(now);
        }
    }

    fn registered(&mut self) {
        let (name, endpoint) = (self.kubelet.node_name(), self.api.endpoint());
        log::info!("node {name}: registered at {endpoint}");
        self.notify.ready();
    }

    /// Writes the file that a CNI plugin or another program on this board reads.
    fn write_pod_cidrs(&self, cidrs: &str) {
        let path = self.facts.host.node_root_dir.join("podcidr");
        log::info!("node {}: podCIDR {cidrs}", self.kubelet.node_name());
        if let Err(line) = write::publish(&path, format!("{cidrs}\n")) {
            log::warn!("podCIDR cannot be written: {line}; make --root-dir writable");
        }
    }
}
