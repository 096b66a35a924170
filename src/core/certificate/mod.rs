//! The board's own certificate: when it needs a new one, which request is next, and what
//! an answer means.
//!
//! A request for a signature (CSR) is created with a key that was just made, then looked
//! at by name until a signer has answered; each a turn of its own. What fails, for
//! whatever reason, is said and tried again, for ever. Files are `kube::pki`'s.
//! Upstream: client-go `util/certificate/{certificate_manager.go,csr}`.

mod response;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::core::instant::{Mono, Now};
use crate::kube::message::{Accept, Request};
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// client-go: 2 s, doubled, then every 32 s.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
const LAST_BACKOFF: Duration = Duration::from_secs(32);
/// Silence may end with the next radio beacon; registration waits no longer either.
const LAST_SILENCE: Duration = Duration::from_secs(7);
/// How often a request is looked at: 1 s, doubled.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_secs(8);
/// A controller approves at once; so it is a person who is awaited.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a board may do for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `--rotate-certificates`: it is renewed before it expires.
    pub rotate: bool,
    /// `--bootstrap-kubeconfig`: there are credentials to ask with where it has none.
    pub bootstrap: bool,
}

/// The certificate of one board.
#[derive(Clone, Debug)]
pub struct Certificate {
    rules: Rules,
    subject: Subject,
    held: Option<Leaf>,
    /// When the one that is held is to be replaced.
    deadline: Wall,
    state: State,
    due: Mono,
    backoff: Duration,
    /// The next request must have another key than the last one.
    new_key: bool,
    /// It was said that the one that is held has expired.
    expiry_said: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Nothing is under way.
    Idle,
    /// There was none to be found: a request is to be signed.
    NotFound,
    /// To be created.
    Signed(SigningRequest),
    /// To be looked at.
    Waiting(Waiting),
    /// To be stored: a chain, PEM.
    Issued(String),
}

/// A request that the server has.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    request: SigningRequest,
    name: String,
    /// `None`: one of that name was there already, by whomever.
    uid: Option<String>,
    since: Mono,
    /// Time until the next look.
    look: Duration,
    /// It was said that somebody has to approve it.
    said: bool,
}

/// The next step, once the certificate is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send [`Certificate::request`], and hand the outcome to [`Certificate::on_response`].
    Send,
    /// Have `identity` do this, and hand the result to [`Certificate::on_task`].
    Task(Task),
}

/// File work for `identity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Look for a certificate that was stored or brought by others.
    Find,
    /// Sign a request.
    Sign {
        /// The request of the last key is spent.
        new_key: bool,
        /// Send it with the bootstrap kubeconfig's credentials.
        with_bootstrap: bool,
        /// The board has no certificate to use meanwhile.
        is_first: bool,
    },
    /// Store this chain, PEM, and use it.
    Install(String),
}

/// The result of a [`Task`].
#[derive(Clone, Debug, PartialEq)]
pub enum TaskResult {
    /// There is no certificate to find.
    NotFound,
    /// The request is signed.
    Signed(SigningRequest),
    /// This certificate is in use from now on.
    InUse(Leaf),
    /// One line that says why.
    Failed(String),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// One more step of a longer way.
    Continue,
    /// It takes longer than a controller does; one line about whom it waits for.
    Pending(String),
    /// No certificate came of it; one line that says why.
    Failed(String),
    /// The server said nothing.
    Silent(String),
}

impl Certificate {
    /// The certificate for `subject`, with the one that is there, if any. One that was
    /// `given` by others is replaced at once. `random` (0 to 1000) spreads many boards.
    pub fn new(
        rules: Rules,
        subject: Subject,
        held: Option<Leaf>,
        given: bool,
        random: u32,
    ) -> Self {
        let deadline = match &held {
            Some(leaf) if !given => deadline(rules, &subject, leaf, random),
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
            expiry_said: false,
        }
    }

    /// There is none yet: nothing else can be done before.
    pub fn is_missing(&self) -> bool {
        self.held.is_none()
    }

    /// When [`Self::next`] is to be done; the clock may have been set since the last call.
    pub fn due(&self, now: Now) -> Mono {
        match self.state {
            State::Idle => {
                let deadline = now.mono.after(self.deadline.since(now.wall));
                self.due.max(deadline)
            }
            _ => self.due,
        }
    }

    /// Whether it must be asked for with the bootstrap's credentials, because the
    /// certificate that is there is none that the server takes from this board.
    fn needs_bootstrap(&self, now: Wall) -> bool {
        let is_good = |leaf: &Leaf| now <= leaf.not_after && satisfies(leaf, &self.subject);
        self.rules.bootstrap && !self.held.as_ref().is_some_and(is_good)
    }

    /// One line, once, when the one that is there has expired.
    pub fn expiry(&mut self, now: Wall) -> Option<String> {
        let until = self.held.as_ref()?.not_after;
        let is_expired = until < now;
        let was_said = std::mem::replace(&mut self.expiry_said, is_expired);
        if !is_expired || was_said {
            return None;
        }
        let what_now = match self.rules.bootstrap {
            true => "asking for another one with the bootstrap kubeconfig",
            false => "trying on with it; give this board another one, or a --bootstrap-kubeconfig",
        };
        let (until, now) = (until.time(), now.time());
        Some(format!("expired at {until}, clock says {now}; {what_now}"))
    }

    /// The next step at `now`.
    pub fn next(&self, now: Wall) -> Next {
        match &self.state {
            State::Idle if self.held.is_none() => Next::Task(Task::Find),
            State::Idle | State::NotFound => Next::Task(Task::Sign {
                new_key: self.new_key,
                with_bootstrap: self.needs_bootstrap(now),
                is_first: self.held.is_none(),
            }),
            State::Signed(_) | State::Waiting(_) => Next::Send,
            State::Issued(chain) => Next::Task(Task::Install(chain.clone())),
        }
    }

    /// The next request; `None` where [`Self::next`] is a [`Task`].
    pub fn request(&self) -> Option<Request> {
        match &self.state {
            State::Signed(request) => {
                let metadata = match self.rules.rotate {
                    true => json!({"generateName": "csr-"}),
                    false => json!({"name": request.name}),
                };
                let body = json!({
                    "apiVersion": "certificates.k8s.io/v1",
                    "kind": "CertificateSigningRequest",
                    "metadata": metadata,
                    "spec": {
                        "request": STANDARD.encode(&request.pem),
                        "signerName": SIGNER,
                        "usages": request.usages,
                    },
                });
                Some(Request::post(REQUESTS, Accept::Object, &body))
            }
            State::Waiting(Waiting { name, .. }) => {
                Some(Request::get(format!("{REQUESTS}/{name}"), Accept::Object))
            }
            State::Idle | State::NotFound | State::Issued(_) => None,
        }
    }

    /// Takes the result of a [`Task`]. `random` (0 to 1000) spreads many boards.
    pub fn on_task(&mut self, result: TaskResult, now: Now, random: u32) -> Step {
        match result {
            TaskResult::NotFound => self.continue_with(State::NotFound, now.mono),
            TaskResult::Signed(request) => {
                self.new_key = false;
                self.continue_with(State::Signed(request), now.mono)
            }
            TaskResult::InUse(leaf) => {
                self.hold(leaf, now, random);
                Step::Continue
            }
            // The chain is kept: a disk that is full now may have room later.
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

    fn hold(&mut self, leaf: Leaf, now: Now, random: u32) {
        self.deadline = deadline(self.rules, &self.subject, &leaf, random);
        if self.deadline <= now.wall {
            // A short certificate that a signer dated back is due when it arrives. It is replaced
            // after half of the rest of its life.
            let left = leaf.not_after.since(now.wall);
            self.deadline = now.wall.after(left / 2);
        }
        self.held = Some(leaf);
        self.state = State::Idle;
        self.backoff = FIRST_BACKOFF;
        self.due = now.mono.after(FIRST_LOOK);
    }

    fn failed(&mut self, why: String, now: Mono, random: u32) -> Step {
        self.state = State::Idle;
        self.back_off(now, random);
        Step::Failed(why)
    }

    fn back_off(&mut self, now: Mono, random: u32) {
        let jitter = self.backoff / 10_000 * random;
        self.due = now.after(self.backoff + jitter);
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
    }
}

/// When a certificate is to be replaced: at 70 to 90 % of its life, so that a fleet does
/// not come all at once; once it has expired where that is all that may be done; and at
/// once where it is not for this board.
fn deadline(rules: Rules, subject: &Subject, leaf: &Leaf, random: u32) -> Wall {
    if !rules.rotate {
        return leaf.not_after.next_microsecond();
    }
    if !satisfies(leaf, subject) {
        return Wall::default();
    }
    let life = leaf.not_after.since(leaf.not_before);
    leaf.not_before
        .after(life / 1000 * (700 + random.min(999) / 5))
}

/// client-go's certSatisfiesTemplate: more than was asked for is fine.
fn satisfies(leaf: &Leaf, subject: &Subject) -> bool {
    let is = &leaf.subject;
    let has = |organization| is.organizations.contains(organization);
    is.common_name == subject.common_name && subject.organizations.iter().all(has)
}

#[cfg(test)]
pub(crate) mod tests;
