//! The loop: ask what is next, wait or do one thing, tell the watchdog.
//!
//! Everything that blocks, blocks here: the wait, the kernel's files, and one request
//! a turn, bounded as a whole. What to do and what an answer means is `kubelet`'s.
//! Nothing that a server, a network, a clock or a kernel file does ends it.

use std::time::Duration;

use crate::certificate::Certificate;
use crate::clock::Clock;
use crate::config::Config;
use crate::host::Host;
use crate::identity::Identity;
use crate::kube::api::Api;
use crate::kube::disk;
use crate::kubelet::{Effect, FAST_TICK, Kubelet, Turn, Work};
use crate::machine::Machine;
use crate::notify::Notify;
use crate::now::Mono;
use crate::timekeeper::Timekeeper;
use crate::wakeup::{Wakeup, Woken};

/// Addresses, routes and interfaces change together.
const NETWORK_SETTLES: Duration = Duration::from_secs(1);

/// One board's agent.
#[derive(Debug)]
pub struct Agent {
    kubelet: Kubelet,
    machine: Machine,
    api: Api,
    /// Where our certificate is renewed.
    identity: Option<Identity>,
    clock: Clock,
    wakeup: Wakeup,
    notify: Notify,
}

impl Agent {
    /// Puts the pieces together. `seed` is any number that differs between boards.
    pub fn new(
        config: Config,
        host: Host,
        api: Api,
        wakeup: Wakeup,
        notify: Notify,
        seed: u64,
    ) -> Self {
        let clock = Clock::start();
        let timekeeper = Timekeeper::new(Timekeeper::built());
        Self {
            machine: Machine::new(host, &config.node.name),
            kubelet: Kubelet::new(config, timekeeper, seed, clock.now().mono),
            api,
            identity: None,
            clock,
            wakeup,
            notify,
        }
    }

    /// The same, with a certificate that is renewed.
    #[must_use]
    pub fn with_identity(mut self, renewal: Option<(Identity, Certificate)>) -> Self {
        let (identity, certificate) = renewal.unzip();
        self.identity = identity;
        self.kubelet = self.kubelet.with_certificate(certificate);
        self
    }

    /// Runs until a signal asks to stop. Node and Lease stay as they are: a package
    /// upgrade is not an outage.
    pub fn run(mut self) {
        let mut has_looked = false;
        loop {
            let start = self.clock.now();
            self.api.refresh(start.mono);
            let turn = self.kubelet.next(start, || self.api.is_connected());
            let (pause, busy) = match turn {
                Turn::Wait(until) => {
                    let pause = until.since(start.mono).min(self.longest_wait(start.mono));
                    (pause, pause)
                }
                Turn::Send(_, budget) => (Duration::ZERO, budget),
                Turn::Certificate => (Duration::ZERO, Duration::ZERO),
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
                Woken::MemoryPressure => self.kubelet.memory_stalls(self.clock.now().mono),
                Woken::Network => {
                    self.machine.forget();
                    let settled = self.clock.now().mono.after(NETWORK_SETTLES);
                    self.kubelet.hurry(settled);
                }
                Woken::Timeout => {}
            }
            let (work, budget) = match turn {
                Turn::Send(work, budget) => (work, budget),
                Turn::Certificate => {
                    self.tend_identity();
                    continue;
                }
                Turn::Wait(_) => {
                    self.look_at_health();
                    continue;
                }
            };
            let Some(request) = self.kubelet.request(work, start, |node, may_wait| {
                self.machine.facts(node, &self.clock, may_wait)
            }) else {
                continue;
            };
            log::debug!("{:?} {}", request.method, request.path);
            let bootstrap = self.identity.as_mut().and_then(Identity::bootstrap);
            let api = match (work, bootstrap) {
                (Work::Certificate, Some(bootstrap)) => bootstrap,
                _ => &mut self.api,
            };
            let outcome = api.call(&request, budget);
            match self
                .kubelet
                .fold(work, outcome, start.mono, self.clock.now())
            {
                Effect::None => {}
                Effect::Registered => self.registered(),
                Effect::Disconnect => self.api.disconnect(),
                Effect::PodCidrs(cidrs) => self.keep_pod_cidrs(&cidrs),
            }
        }
    }

    fn longest_wait(&self, now: Mono) -> Duration {
        match self.kubelet.awaits(now) {
            Some(_) => FAST_TICK,
            None => self.notify.every(),
        }
    }

    fn tend_identity(&mut self) {
        let now = self.clock.now();
        if let Some(identity) = &mut self.identity {
            identity.tend(&mut self.api, &mut self.kubelet, now);
        }
    }

    /// What the Node waits for may be there now; nothing else is read for that.
    fn look_at_health(&mut self) {
        let now = self.clock.now().mono;
        let changed = |lines: &[String]| self.machine.host.unhealthy() != lines;
        if self.kubelet.awaits(now).is_some_and(changed) {
            self.kubelet.hurry(now);
        }
    }

    fn registered(&mut self) {
        let (name, endpoint) = (self.kubelet.node_name(), self.api.endpoint());
        log::info!("node {name}: registered at {endpoint}");
        self.notify.ready();
    }

    /// For those on this board who set up its network.
    fn keep_pod_cidrs(&self, cidrs: &str) {
        let path = self.machine.host.node_root_dir.join("podcidr");
        log::info!("node {}: podCIDR {cidrs}", self.kubelet.node_name());
        if let Err(line) = disk::publish(&path, format!("{cidrs}\n")) {
            log::warn!("podCIDR cannot be written: {line}; make --root-dir writable");
        }
    }
}
