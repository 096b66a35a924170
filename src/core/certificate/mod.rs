//! The board's client certificate: when it must be replaced, the next request, and what the
//! response means.
//!
//! A CertificateSigningRequest (CSR) is created for a new key, then read by name until it is signed
//! or fails; the supervisor of k3s signs in its response. Each request is one turn. A failure is
//! logged, and the next attempt follows after a backoff, without a limit. `identity` reads and
//! writes the files.
//! Upstream: client-go `util/certificate/{certificate_manager.go,csr}`.

mod issued;
mod request;
mod response;
mod rules;
pub mod supervisor;
mod task;

pub use rules::Rules;
pub use task::{Next, Step, Task, TaskResult};

use std::time::Duration;

use self::issued::satisfies;
use crate::core::instant::{Mono, Now};
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// client-go: 2 s, doubled.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// Delays between two GETs of a CSR: doubled from 100 ms, because a signer answers at once, to 8 s.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LAST_POLL: Duration = Duration::from_secs(8);
/// Shortest time from a new certificate to the next request.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// A step of the wall clock after which a request under way is given up: it may have been made
/// because the held certificate seemed to be expired.
const CLOCK_STEP: Duration = Duration::from_secs(60);
/// A controller approves within this time; after it the log asks for a manual approval.
const APPROVAL_TIME: Duration = Duration::from_secs(10);

/// The certificate of one board.
#[derive(Clone, Debug)]
pub struct Certificate {
    rules: Rules,
    subject: Subject,
    held: Option<Leaf>,
    /// When the held certificate must be replaced.
    deadline: Wall,
    state: State,
    due: Mono,
    backoff: Duration,
    /// The next CSR needs a new key.
    new_key: bool,
    /// When the request under way was made, by both clocks.
    signed_at: Option<Now>,
    /// It is sent with the held certificate.
    sent_with_own: bool,
    /// The expiry of the held certificate was logged.
    expiry_logged: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// No CSR is in progress.
    Idle,
    /// No usable certificate was found in the files: a CSR must be signed.
    NotFound,
    /// The CSR must be created.
    Signed(SigningRequest),
    /// The CSR exists and is read until it is signed.
    Waiting(Waiting),
    /// This chain, PEM, must be installed.
    Issued(String),
}

/// A CSR on the server.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    request: SigningRequest,
    name: String,
    /// `None`: a CSR of that name existed before, perhaps another client's.
    uid: Option<String>,
    since: Mono,
    /// Time until the next read.
    period: Duration,
    /// The missing approval was logged.
    logged: bool,
}

impl Certificate {
    /// `held` is the stored certificate, if any; at a supervisor `not_before` is its arrival. A
    /// certificate from elsewhere (`given`) is replaced at once. `random`, 0 to 1000, spreads the
    /// renewals of many boards.
    pub fn new(
        rules: Rules,
        subject: Subject,
        held: Option<Leaf>,
        given: bool,
        random: u32,
    ) -> Self {
        let deadline = match &held {
            Some(leaf) if !given => rules.deadline(&subject, leaf, random),
            _ => Wall::default(),
        };
        Self {
            rules,
            subject,
            held,
            deadline,
            state: State::Idle,
            due: Mono::START,
            backoff: FIRST_BACKOFF,
            new_key: false,
            signed_at: None,
            sent_with_own: false,
            expiry_logged: false,
        }
    }

    /// When the held certificate must be replaced; 1970 for at once.
    pub fn deadline(&self) -> Wall {
        self.deadline
    }

    /// Whether the supervisor signs, for a Node that exists, and its clock decides.
    pub fn is_at_supervisor(&self) -> bool {
        self.rules.supervisor
    }

    /// Whether the board has no certificate, and so can send no other request.
    pub fn is_missing(&self) -> bool {
        self.held.is_none()
    }

    /// When [`Self::next`] is due. The clock may have been set since the last call.
    pub fn due(&self, now: Now) -> Mono {
        match self.state {
            State::Idle => {
                let deadline = now.mono.after(self.deadline.since(now.wall));
                self.due.max(deadline)
            }
            _ => self.due,
        }
    }

    /// Whether a certificate is held that has not expired. Otherwise a file may have another one.
    fn is_usable(&self, now: Wall) -> bool {
        self.held.as_ref().is_some_and(|leaf| now <= leaf.not_after)
    }

    /// Whether the CSR is sent with the bootstrap credentials, because the held certificate is
    /// missing, expired or for another subject.
    fn needs_bootstrap(&self, now: Wall) -> bool {
        let is_ours = |leaf: &Leaf| satisfies(leaf, &self.subject);
        self.rules.bootstrap && !(self.is_usable(now) && self.held.as_ref().is_some_and(is_ours))
    }

    /// Gives up a request under way after the wall clock was set, and decides again.
    pub fn follow_clock(&mut self, now: Now) {
        let Some(then) = self.signed_at else {
            return;
        };
        let expected = then.wall.after(now.mono.since(then.mono));
        let step = expected.since(now.wall).max(now.wall.since(expected));
        if step > CLOCK_STEP && matches!(self.state, State::Signed(_) | State::Waiting(_)) {
            self.state = State::Idle;
            self.back_off(now.mono, 0);
        }
    }

    /// Takes a certificate that another program put in the place of the held one.
    pub fn replaced(&mut self, leaf: Leaf, now: Now, random: u32) {
        self.hold(leaf, now, random);
    }

    /// One line, once, after the held certificate has expired.
    pub fn expiry_to_log(&mut self, now: Wall) -> Option<String> {
        let until = self.held.as_ref()?.not_after;
        let is_expired = until < now;
        let was_logged = std::mem::replace(&mut self.expiry_logged, is_expired);
        if !is_expired || was_logged {
            return None;
        }
        let what_now = self.rules.after_expiry();
        let (until, now) = (until.time(), now.time());
        Some(format!("expired at {until}, clock says {now}; {what_now}"))
    }

    /// The next step at `now`.
    pub fn next(&self, now: Wall) -> Next {
        match &self.state {
            State::Idle if !self.is_usable(now) => Next::Task(Task::Find),
            State::Idle | State::NotFound => Next::Task(Task::Sign {
                new_key: self.new_key,
                with_bootstrap: self.needs_bootstrap(now),
                is_first: self.held.is_none(),
            }),
            State::Signed(_) | State::Waiting(_) => Next::Send,
            State::Issued(chain) => Next::Task(Task::Install(chain.clone())),
        }
    }

    /// Takes the result of a [`Task`]. `random`, 0 to 1000, spreads many boards.
    pub fn on_task(&mut self, result: TaskResult, now: Now, random: u32) -> Step {
        match result {
            TaskResult::NotFound => self.continue_with(State::NotFound, now.mono),
            TaskResult::Signed(request) => {
                self.new_key = false;
                self.signed_at = Some(now);
                self.sent_with_own = !self.needs_bootstrap(now.wall);
                self.continue_with(State::Signed(request), now.mono)
            }
            TaskResult::InUse(leaf) => {
                self.hold(leaf, now, random);
                Step::Continue
            }
            TaskResult::Unusable(why) => {
                self.new_key = true;
                self.failed(why, now.mono, random)
            }
            // The chain is kept and installed later: the disk may be full now.
            TaskResult::Failed(why) if matches!(self.state, State::Issued(_)) => {
                self.back_off(now.mono, random);
                Step::Failed(why)
            }
            TaskResult::Failed(why) => self.failed(why, now.mono, random),
        }
    }

    fn continue_with(&mut self, state: State, now: Mono) -> Step {
        self.state = state;
        self.due = now;
        Step::Continue
    }

    fn hold(&mut self, mut leaf: Leaf, now: Now, random: u32) {
        if self.rules.supervisor {
            // k3s dates it back to the birth of its CA. A time after its expiry is of a wrong clock,
            // and the lifetime begins in 1970: the certificate is due at once.
            let arrival = Some(now.wall).filter(|at| *at < leaf.not_after);
            leaf.not_before = arrival.unwrap_or_default();
        }
        self.deadline = self.rules.deadline(&self.subject, &leaf, random);
        // A short-lived, backdated certificate is already due. It is replaced after half of its
        // remaining lifetime. This is a pause and no deadline, because the clock may be ahead.
        let pause = match self.deadline <= now.wall {
            true => leaf.not_after.since(now.wall) / 2,
            false => Duration::ZERO,
        };
        self.held = Some(leaf);
        self.state = State::Idle;
        self.backoff = FIRST_BACKOFF;
        self.due = now.mono.after(pause.max(MIN_PAUSE));
    }

    fn failed(&mut self, why: String, now: Mono, random: u32) -> Step {
        self.state = State::Idle;
        self.back_off(now, random);
        Step::Failed(why)
    }

    /// [`Self::failed`], after a response that may ask for a longer pause.
    fn refused(
        &mut self,
        why: String,
        retry_after: Option<Duration>,
        now: Mono,
        random: u32,
    ) -> Step {
        let step = self.failed(why, now, random);
        let pause = retry_after.unwrap_or_default();
        let pause = pause.min(self.rules.last_backoff());
        self.due = self.due.max(now.after(pause));
        step
    }

    fn back_off(&mut self, now: Mono, random: u32) {
        let jitter = self.backoff / 10_000 * random;
        self.due = now.after(self.backoff + jitter);
        self.backoff = (self.backoff * 2).min(self.rules.last_backoff());
    }
}

#[cfg(test)]
pub(crate) mod tests;
