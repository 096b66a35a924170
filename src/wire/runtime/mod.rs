//! The container runtime: one look at a time, over a local socket or a file.
//!
//! `cri` and `rest` are conversations without sockets: they say what to send, and take what
//! arrives. `exchange` has the socket. [`Watch`] begins a look when `core/runtime` says so, and
//! passes it what the look found.

pub mod cri;
mod exchange;
pub mod facts_file;
mod grpc;
pub mod hpack;
mod http2;
pub mod protobuf;
pub mod rest;

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::config::runtime::{Protocol, RuntimeConfig};
use crate::core::instant::Mono;
use crate::core::runtime::{
    AT_START, Failure, Found, IN_TURN, Look, OVERDUE, Runtime, RuntimeFacts, SETTLES,
};
use crate::process::clock::{Clock, since_boot};
use cri::Cri;
use exchange::{Exchange, Progress};
use rest::Rest;

/// One look, as one or several connections, one after the other.
pub trait Conversation: Debug {
    /// The socket of the next connection, and the bytes to send; `None` after the last one.
    fn open(&mut self) -> Option<(PathBuf, Vec<u8>)>;
    /// Takes received bytes and adds to `out` what must be sent. Returns whether nothing more is
    /// needed from this connection.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool;
    /// The connection has ended, or could not be opened.
    fn close(&mut self, failure: Option<Failure>);
    /// What was found.
    fn found(self: Box<Self>) -> Found;
}

/// The looks at one runtime.
#[derive(Debug)]
pub struct Watch {
    config: RuntimeConfig,
    runtime: Runtime,
    pending: Option<Exchange>,
    /// No look has waited for [`AT_START`].
    is_new: bool,
    /// Time of the current turn that a look has taken.
    waited: Duration,
    status_due: Option<Mono>,
}

impl Watch {
    /// Before the first look.
    pub fn new(config: RuntimeConfig) -> Self {
        Self {
            runtime: Runtime::new(config.protocol),
            config,
            pending: None,
            is_new: true,
            waited: Duration::ZERO,
            status_due: None,
        }
    }

    /// What the Node tells now, after a look if one is due. Waits for it at most 50 ms, or once 1 s
    /// with `may_wait`, when there is no Lease to renew.
    pub fn facts(&mut self, may_wait: bool, clock: impl Fn() -> Mono) -> RuntimeFacts {
        let start = clock();
        self.give_up_overdue(start);
        // An older look is not waited for: it is read when its answer ends a wait of the loop.
        let mut limit = Duration::ZERO;
        if self.pending.is_none()
            && let Some(look) = self.runtime.begin(start)
        {
            limit = match may_wait && std::mem::take(&mut self.is_new) {
                true => AT_START,
                false => IN_TURN,
            };
            let progress = begin(&self.config, look, start);
            self.settle(progress, start);
        }
        let mut now = start;
        while let Some(exchange) = self.pending.take() {
            let left = limit.saturating_sub(now.since(start));
            if left.is_zero() {
                self.pending = Some(exchange);
                break;
            }
            exchange.wait(left);
            let progress = exchange.drain();
            now = clock();
            self.settle(progress, now);
        }
        self.waited = now.since(start);
        if let Some(exchange) = &self.pending {
            self.status_due = Some(exchange.began().after(OVERDUE));
        }
        self.runtime.facts(now)
    }

    /// Reads what has arrived for a pending look, after its descriptor ended a wait.
    pub fn drain(&mut self, now: Mono) {
        let before = self.runtime.facts(now);
        self.give_up_overdue(now);
        if let Some(exchange) = self.pending.take() {
            let progress = exchange.drain();
            self.settle(progress, now);
        }
        if self.pending.is_none() && self.runtime.facts(now) != before {
            self.status_due = Some(now.after(SETTLES));
        }
    }

    /// The descriptor of a pending look.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pending.as_ref().map(AsFd::as_fd)
    }

    /// When a status must be computed because of the runtime; told once.
    pub fn take_status_due(&mut self) -> Option<Mono> {
        self.status_due.take()
    }

    /// How long the last [`Self::facts`] waited; told once.
    pub fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// The folder of the images, as the runtime names it.
    pub fn image_folder(&self) -> Option<&str> {
        self.runtime.image_folder()
    }

    fn give_up_overdue(&mut self, now: Mono) {
        if let Some(exchange) = self.pending.take_if(|e| now.since(e.began()) >= OVERDUE) {
            let found = exchange.give_up(OVERDUE.as_secs());
            self.settle(Progress::Done(Box::new(found)), now);
        }
    }

    fn settle(&mut self, progress: Progress, now: Mono) {
        match progress {
            Progress::Pending(exchange) => self.pending = Some(exchange),
            Progress::Done(found) => {
                self.runtime.on_found(*found, now);
                self.status_due = self.runtime.status_due(now);
            }
        }
    }
}

/// One look with all details, for `nodelet runtime`: a line for each request that failed, and the
/// document.
pub fn once(config: &RuntimeConfig) -> (Vec<String>, Result<Value, Failure>) {
    let clock = Clock::start();
    let mut found = look(config, OVERDUE, || clock.now().mono);
    let errors = std::mem::take(&mut found.errors);
    (errors, facts_file::write(found, since_boot()))
}

/// One look with all details, which may take up to `limit`: for commands that run once.
pub fn look(config: &RuntimeConfig, limit: Duration, clock: impl Fn() -> Mono) -> Found {
    let start = clock();
    let all = Look {
        details: true,
        folder: true,
    };
    let mut progress = begin(config, all, start);
    loop {
        let exchange = match progress {
            Progress::Done(found) => return *found,
            Progress::Pending(exchange) => exchange,
        };
        let left = limit.saturating_sub(clock().since(start));
        if left.is_zero() {
            return exchange.give_up(limit.as_secs());
        }
        exchange.wait(left);
        progress = exchange.drain();
    }
}

fn begin(config: &RuntimeConfig, look: Look, now: Mono) -> Progress {
    let conversation: Box<dyn Conversation> = match config.protocol {
        Protocol::Cri => Box::new(Cri::new(config, look)),
        Protocol::Docker | Protocol::Podman => Box::new(Rest::new(config, look)),
        Protocol::File => {
            let found = facts_file::look(config, since_boot());
            return Progress::Done(Box::new(found));
        }
    };
    Exchange::start(conversation, now)
}

#[cfg(test)]
mod tests;
