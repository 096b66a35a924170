//! The board's own certificate: when it needs a new one, which request is next, and what
//! an answer means.
//!
//! A request for a signature (CSR) is created with a key that was just made, then looked
//! at by name until a signer has answered; each a turn of its own. What fails, for
//! whatever reason, is said and tried again, for ever. Files are `kube::pki`'s.
//! Upstream: client-go `util/certificate/{certificate_manager.go,csr}`.

mod answer;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::kube::message::{Accept, Request};
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};
use crate::now::{Mono, Now};

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
    unlike: bool,
    /// It was said that the one that is held has expired.
    expiry_said: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Nothing is under way.
    Idle,
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

/// What is to be done when the certificate is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task<'a> {
    /// Make a request; with another key than the last time, if need be.
    Sign {
        /// The last key's request is spent.
        unlike: bool,
    },
    /// Send [`Certificate::request`].
    Send,
    /// Store this chain, PEM, and use it.
    Install(&'a str),
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
            unlike: false,
            expiry_said: false,
        }
    }

    /// There is none yet: nothing else can be done before.
    pub fn is_missing(&self) -> bool {
        self.held.is_none()
    }

    /// When [`Self::task`] is to be done; the clock may have been set since the last call.
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
    pub fn needs_bootstrap(&self, now: Wall) -> bool {
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

    /// The next step.
    pub fn task(&self) -> Task<'_> {
        match &self.state {
            State::Idle => Task::Sign {
                unlike: self.unlike,
            },
            State::Signed(_) | State::Waiting(_) => Task::Send,
            State::Issued(chain) => Task::Install(chain),
        }
    }

    /// Takes the request that [`Task::Sign`] asks for.
    pub fn signed(
        &mut self,
        signed: Result<SigningRequest, String>,
        now: Mono,
        random: u32,
    ) -> Step {
        match signed {
            Ok(request) => {
                self.unlike = false;
                self.due = now;
                self.state = State::Signed(request);
                Step::Continue
            }
            Err(why) => self.failed(why, now, random),
        }
    }

    /// The next request; `None` where [`Self::task`] is another one.
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
            State::Idle | State::Issued(_) => None,
        }
    }

    /// Takes what became of [`Task::Install`].
    pub fn installed(&mut self, installed: Result<Leaf, String>, now: Now, random: u32) -> Step {
        match installed {
            Ok(leaf) => {
                self.deadline = deadline(self.rules, &self.subject, &leaf, random);
                if self.deadline <= now.wall {
                    // So short, and dated back so far, that it is due before it arrives:
                    // then not sooner than after half of what is left of it.
                    let left = leaf.not_after.since(now.wall);
                    self.deadline = now.wall.after(left / 2);
                }
                self.held = Some(leaf);
                self.state = State::Idle;
                self.backoff = FIRST_BACKOFF;
                self.due = now.mono.after(FIRST_LOOK);
                Step::Continue
            }
            // It stays issued: a disk that is full now may have room later.
            Err(why) => {
                self.back_off(now.mono, random);
                Step::Failed(why)
            }
        }
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
