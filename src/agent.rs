//! The loop: ask what is next, wait or do one thing, tell the watchdog.
//!
//! Everything that blocks, blocks here: the wait, the kernel's files, and one request
//! a turn, bounded as a whole. What to do and what an answer means is `kubelet`'s.
//! Nothing that a server, a network, a clock or a kernel file does ends it.

use std::time::Duration;

use crate::config::Config;
use crate::core::certificate::Certificate;
use crate::core::instant::Mono;
use crate::core::kubelet::{Effect, FAST_TICK, Kubelet, Turn, Work};
use crate::core::wall_clock::WallClock;
use crate::files::write;
use crate::host::Host;
use crate::host::fact_cache::FactCache;
use crate::identity::Identity;
use crate::process::clock::Clock;
use crate::process::notify::Notify;
use crate::process::wakeup::{Wakeup, Woken};
use crate::wire::api::Api;

/// Addresses, routes and interfaces change together.
const NETWORK_SETTLES: Duration = Duration::from_secs(1);

/// The way to the API server, and what renews it.
#[derive(Debug)]
pub struct Connection {
    /// Not connected yet.
    pub api: Api,
    /// The files of our credentials.
    pub identity: Identity,
    /// Ours, where it is renewed.
    pub certificate: Option<Certificate>,
}

/// One board's agent.
#[derive(Debug)]
pub struct Agent {
    kubelet: Kubelet,
    facts: FactCache,
    api: Api,
    identity: Identity,
    clock: Clock,
    wakeup: Wakeup,
    notify: Notify,
}

impl Agent {
    /// Puts the pieces together. `seed` is any number that differs between boards.
    pub fn new(
        config: Config,
        host: Host,
        connection: Connection,
        wakeup: Wakeup,
        notify: Notify,
        seed: u64,
    ) -> Self {
        let clock = Clock::start();
        let wall_clock = WallClock::new(WallClock::built());
        Self {
            facts: FactCache::new(host, &config.node.name),
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
        }
    }

    /// Runs until a signal asks to stop. Node and Lease stay as they are: a package
    /// upgrade is not an outage.
    pub fn run(mut self) {
        let mut has_looked = false;
        loop {
            let start = self.clock.now();
            self.identity.refresh(&mut self.api, start.mono);
            let turn = self.kubelet.next(start, || self.api.is_connected());
            let (pause, busy) = match &turn {
                Turn::Wait(until) => {
                    let pause = until.since(start.mono).min(self.longest_wait(start.mono));
                    (pause, pause)
                }
                Turn::Send(_, budget) => (Duration::ZERO, *budget),
                Turn::Identity(..) => (Duration::ZERO, Duration::ZERO),
            };
            self.notify
                .alive(start.mono, busy, || self.kubelet.summary(start.mono));
            // After a wait there is nothing new to be seen.
            let woken = match has_looked && pause.is_zero() {
                true => Woken::Timeout,
                false => self.wakeup.wait(pause),
            };
            has_looked = !pause.is_zero();
            match woken {
                Woken::Stop => return self.notify.stopping(),
                Woken::MemoryPressure => self.kubelet.on_memory_pressure(self.clock.now().mono),
                Woken::Network => {
                    self.facts.forget();
                    let settled = self.clock.now().mono.after(NETWORK_SETTLES);
                    self.kubelet.compute_status_by(settled);
                }
                Woken::Timeout => {}
            }
            let (work, budget) = match turn {
                Turn::Send(work, budget) => (work, budget),
                Turn::Identity(task, wall) => {
                    let result = self.identity.carry_out(&task, &mut self.api, wall);
                    self.kubelet.on_task(result, self.clock.now());
                    continue;
                }
                Turn::Wait(_) => {
                    self.look_at_health();
                    continue;
                }
            };
            let Some(request) = self.kubelet.request(work, start, |node, may_wait| {
                let clock = || self.clock.now().mono;
                self.facts.facts(node, may_wait, clock)
            }) else {
                continue;
            };
            log::debug!("{:?} {}", request.method, request.path);
            let api = match work {
                Work::Certificate => self.identity.certificate_api(&mut self.api),
                _ => &mut self.api,
            };
            let outcome = api.call(&request, budget);
            self.identity.on_response(&outcome);
            let now = self.clock.now();
            match self.kubelet.on_response(work, outcome, start.mono, now) {
                Effect::None => {}
                Effect::Registered => self.registered(),
                Effect::Disconnect => self.api.disconnect(),
                Effect::PodCidrs(cidrs) => self.keep_pod_cidrs(&cidrs),
            }
        }
    }

    fn longest_wait(&self, now: Mono) -> Duration {
        match self.kubelet.unhealthy_while_starting(now) {
            Some(_) => FAST_TICK,
            None => self.notify.every(),
        }
    }

    /// What the Node waits for may be there now; nothing else is read for that.
    fn look_at_health(&mut self) {
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

    fn registered(&mut self) {
        let (name, endpoint) = (self.kubelet.node_name(), self.api.endpoint());
        log::info!("node {name}: registered at {endpoint}");
        self.notify.ready();
    }

    /// For those on this board who set up its network.
    fn keep_pod_cidrs(&self, cidrs: &str) {
        let path = self.facts.host.node_root_dir.join("podcidr");
        log::info!("node {}: podCIDR {cidrs}", self.kubelet.node_name());
        if let Err(line) = write::publish(&path, format!("{cidrs}\n")) {
            log::warn!("podCIDR cannot be written: {line}; make --root-dir writable");
        }
    }
}
