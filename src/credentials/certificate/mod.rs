//! A certificate that the cluster signs: when it must be replaced, what comes next, and what a
//! response means. Pure: time, files and responses are arguments.
//!
//! A CertificateSigningRequest (CSR) is created for a key, and then read by name until it is signed
//! or fails. The supervisor of k3s answers a request with the certificate itself. Each failed
//! attempt is followed by a backoff and another attempt. `credentials::rotation` takes the steps.
//! Upstream: client-go `util/certificate/{certificate_manager.go,csr}`.

mod csr;
mod kind;
pub mod supervisor;
mod work;

pub use kind::CertificateKind;
pub use work::{FileTask, TaskResult, Work};

use std::time::Duration;

use self::csr::{APPROVE, CsrState, SIGNER, Waiting};
use self::kind::CLOCK_STEP;
use crate::kube::delay::{Backoff, Jitter};
use crate::kube::instant::{ClusterSeen, Mono};
use crate::kube::json;
use crate::kube::message::{Answer, Refused, RequestError, Response};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};

/// client-go: 2 s, doubled.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// How often the files are searched for a certificate that a person put there, while no certificate
/// is held or an expired one.
const SEARCH_PERIOD: Duration = Duration::from_secs(60);
/// Shortest time from a new certificate to the next request.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Longest time from a new certificate that is not valid yet to the next request.
const EARLY_PAUSE: Duration = Duration::from_secs(300);
/// A controller approves within this time; after it the log asks for a manual approval.
const APPROVAL_TIME: Duration = Duration::from_secs(10);
/// What follows a request that is given up.
const AGAIN: &str = "requesting again";
/// Time from the creation of a Node to the request that stores the node password again. If a former
/// Node of this name was deleted, the garbage collection of k3s deletes its node password first.
const COLLECTED: Duration = Duration::from_secs(10);

/// One certificate, and the request for the next one.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(super) kind: CertificateKind,
    subject: Subject,
    held: Option<Leaf>,
    /// When the held certificate must be replaced; 1970 for at once.
    pub(super) deadline: Wall,
    /// Spreads the renewals of many boards.
    jitter: Jitter,
    state: CertificateState,
    due: Mono,
    /// When the files are searched again, if the held certificate has expired.
    search_due: Mono,
    backoff: Backoff,
    /// The next CSR needs a new key.
    new_key: bool,
    /// When the request under way was made.
    signed_at: Option<ClusterSeen>,
    /// It was logged that the held certificate is not valid.
    expiry_logged: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum CertificateState {
    /// No CSR is in progress.
    Idle,
    /// The CSR must be created.
    Signed(SigningRequest),
    /// The CSR exists and is read until it is signed.
    Waiting(Waiting),
    /// This chain, PEM, must be installed.
    Issued(String),
}

impl Certificate {
    /// `held` is the stored certificate, if any; the `not_before` of a supervisor's one is its
    /// arrival. `replace_now`: whether it must be replaced at once.
    pub fn new(
        kind: CertificateKind,
        subject: Subject,
        held: Option<Leaf>,
        replace_now: bool,
        jitter: Jitter,
    ) -> Self {
        let deadline = match &held {
            Some(leaf) if !replace_now => kind.deadline(&subject, leaf, jitter),
            _ => Wall::default(),
        };
        Self {
            kind,
            subject,
            held,
            deadline,
            jitter,
            state: CertificateState::Idle,
            due: Mono::START,
            search_due: Mono::START,
            backoff: Backoff::new(FIRST_BACKOFF, kind.last_backoff()),
            new_key: false,
            signed_at: None,
            expiry_logged: false,
        }
    }

    /// Whether the board has no certificate, and so can send no other request.
    pub fn is_missing(&self) -> bool {
        self.held.is_none()
    }

    /// When the next file task or request is due, by the clocks as they are now.
    pub fn due(&self, at: ClusterSeen) -> Mono {
        let due = match self.state {
            CertificateState::Idle => self.due.max(at.now.mono.after(self.until_renewal(at))),
            _ => self.due,
        };
        self.search_due(at).map_or(due, |search| due.min(search))
    }

    /// Time until the next certificate is requested.
    pub(super) fn until_renewal(&self, at: ClusterSeen) -> Duration {
        if self.kind.has_other_credentials() && self.is_early(at) {
            return Duration::ZERO;
        }
        kind::until_renewal(self.deadline, self.held.as_ref(), at)
    }

    /// When the files are searched, while no valid certificate is held: a person may have put
    /// another one there, or an old one is valid.
    pub fn search_due(&self, at: ClusterSeen) -> Option<Mono> {
        let searches = !self.is_usable(at) && !matches!(self.state, CertificateState::Issued(_));
        searches.then_some(self.search_due)
    }

    /// Whether the next step is a request, and not file work.
    pub fn sends(&self, at: ClusterSeen) -> bool {
        self.end_of_request(at).is_none() && matches!(self.next(at), Work::Send(_))
    }

    /// Whether a valid certificate is held. If not, the files are searched.
    pub fn is_usable(&self, at: ClusterSeen) -> bool {
        self.held.as_ref().is_some_and(|leaf| at.now.wall <= leaf.not_after) && !self.is_early(at)
    }

    fn is_early(&self, at: ClusterSeen) -> bool {
        self.held.as_ref().is_some_and(|leaf| self.kind.is_early(leaf, at))
    }

    /// Whether the CSR is sent with the bootstrap credentials, because the held certificate is
    /// missing, not valid or for another subject.
    fn needs_bootstrap(&self, at: ClusterSeen) -> bool {
        let is_ours = |leaf: &Leaf| leaf.subject.satisfies(&self.subject);
        self.kind.has_bootstrap()
            && !(self.is_usable(at) && self.held.as_ref().is_some_and(is_ours))
    }

    /// Why the request under way is given up, whether the server responds or not.
    fn end_of_request(&self, at: ClusterSeen) -> Option<Fault> {
        let now = at.now;
        let (name, since, is_approved) = match &self.state {
            CertificateState::Signed(request) => (&request.name, now.mono, false),
            CertificateState::Waiting(it) => (&it.name, it.since, it.is_approved),
            CertificateState::Idle | CertificateState::Issued(_) => return None,
        };
        let then = self.signed_at?;
        let expected = then.now.wall.after(now.mono.since(then.now.mono));
        let step = expected.since(now.wall).max(now.wall.since(expected));
        // A request that is still due goes on: the clocks of several servers make many steps.
        let needs_less = self.needs_bootstrap(then) && !self.needs_bootstrap(at);
        if step > CLOCK_STEP && (!self.until_renewal(at).is_zero() || needs_less) {
            return Some(Fault::new(format!("the time was corrected while {name} waited"), AGAIN));
        }
        // A gateway may refuse the expired certificate within TLS, and then there is no 401.
        if self.needs_bootstrap(at) && !self.needs_bootstrap(then) {
            return Some(Fault::new(format!("the certificate expired while {name} waited"), AGAIN));
        }
        let limit = self.kind.last_read();
        // A board that was suspended reads it once more: it may be signed since.
        let is_overdue = now.mono.since(self.due) >= self.kind.last_poll(None, now.wall);
        (now.mono.since(since) >= limit && !is_overdue).then(|| {
            let what = format!("{name} was not signed within {} s", limit.as_secs());
            Fault::new(what, if is_approved { SIGNER } else { APPROVE })
        })
    }

    /// Gives up the request under way if it is time, and decides again.
    pub fn give_up(&mut self, at: ClusterSeen) -> Result<(), Fault> {
        self.end_of_request(at).map_or(Ok(()), |why| self.failed(why, at))
    }

    /// Another program put this certificate into the files; it is in use now. When it was requested
    /// is not known, but not before its `notBefore`.
    pub fn on_replaced(&mut self, leaf: Leaf, at: ClusterSeen) {
        let begin = leaf.not_before;
        self.take(leaf, begin, at);
    }

    /// Takes a certificate that is in use now, and that arrived at `arrival`, as the held one.
    fn take(&mut self, leaf: Leaf, arrival: Wall, at: ClusterSeen) {
        let pause = self.hold(leaf, arrival, at);
        self.backoff.reset();
        self.continue_with(CertificateState::Idle, at.now.mono.after(pause));
    }

    /// One line, once, while the held certificate is not valid. The files are searched at once.
    pub fn expiry_to_log(&mut self, at: ClusterSeen) -> Option<String> {
        let is_valid = self.is_usable(at);
        let (leaf, now) = (self.held.as_ref()?, at.now.wall);
        if std::mem::replace(&mut self.expiry_logged, !is_valid) || is_valid {
            return None;
        }
        self.search_due = at.now.mono;
        let what_now = self.kind.after_expiry()?;
        let who = if at.knows_time { "the server" } else { "clock" };
        let (what, what_now) = match leaf.not_after < now {
            true => (format!("expired at {}", leaf.not_after.time()), what_now),
            false => (format!("not valid before {}", leaf.not_before.time()), kind::AFTER_EARLY),
        };
        Some(format!("{what}, {who} says {}; {what_now}", now.time()))
    }

    /// What comes next, if it is due.
    pub fn next(&self, at: ClusterSeen) -> Work {
        match &self.state {
            _ if self.search_due(at).is_some_and(|due| due <= at.now.mono) => {
                Work::Files(FileTask::Find(self.kind.latest_begin(at)))
            }
            CertificateState::Idle => Work::Files(FileTask::Sign {
                new_key: self.new_key,
                with_bootstrap: self.needs_bootstrap(at),
                is_first: self.held.is_none(),
            }),
            CertificateState::Signed(request) => Work::Send(match self.kind.is_at_supervisor() {
                true => supervisor::request(request),
                false => csr::create(request, self.kind.names_by_key()),
            }),
            CertificateState::Waiting(Waiting { name, .. }) => Work::Send(csr::get(name)),
            CertificateState::Issued(chain) => Work::Files(FileTask::Install(chain.clone())),
        }
    }

    /// Takes the result of a [`FileTask`].
    pub fn on_task(&mut self, result: TaskResult, at: ClusterSeen) -> Result<(), Fault> {
        let now = at.now;
        if self.search_due <= now.mono {
            self.search_due = now.mono.after(SEARCH_PERIOD);
        }
        match result {
            TaskResult::NotFound => {}
            TaskResult::Signed(request) => {
                self.new_key = false;
                self.signed_at = Some(at);
                self.continue_with(CertificateState::Signed(request), now.mono);
            }
            TaskResult::InUse(leaf) => match self.state {
                CertificateState::Issued(_) => self.take(leaf, now.wall, at),
                _ => self.on_replaced(leaf, at),
            },
            // Another attempt stores it later, unless the next certificate is due before that.
            TaskResult::NotStored(leaf, why) => {
                let pause = self.hold(leaf, now.wall, at);
                let left = self.until_renewal(at);
                if left.is_zero() {
                    self.continue_with(CertificateState::Idle, now.mono.after(pause));
                } else {
                    self.back_off(at);
                    self.due = self.due.min(now.mono.after(left));
                }
                return Err(why.into());
            }
            TaskResult::Unusable(why) => {
                self.new_key = true;
                return self.failed(why, at);
            }
            TaskResult::Failed(why) => match self.state {
                CertificateState::Idle => return self.failed(why, at),
                // The chain is kept and installed later: the disk may be full now.
                CertificateState::Issued(_) => {
                    self.back_off(at);
                    return Err(why);
                }
                // The files could not be searched: a CSR does not need them.
                CertificateState::Signed(_) | CertificateState::Waiting(_) => return Err(why),
            },
        }
        Ok(())
    }

    fn continue_with(&mut self, state: CertificateState, due: Mono) {
        self.state = state;
        self.due = due;
    }

    /// Takes a new certificate as the held one, which arrived at `arrival`. Returns the shortest
    /// time until the next request.
    fn hold(&mut self, mut leaf: Leaf, arrival: Wall, at: ClusterSeen) -> Duration {
        let now = at.now;
        if self.kind.is_at_supervisor() {
            leaf.not_before = supervisor::begin(self.held.as_ref(), &leaf, arrival);
        }
        self.deadline = self.kind.deadline(&self.subject, &leaf, self.jitter);
        let end = leaf.not_after.next_microsecond();
        debug_assert!(self.deadline <= end, "{:?} of {leaf:?}", self.deadline);
        // A short-lived, backdated certificate is already due. It is replaced after half of its
        // remaining lifetime. This is a pause and no deadline, because the clock may be ahead.
        let mut half = leaf.not_after.since(now.wall) / 2;
        self.held = Some(leaf);
        if self.is_early(at) {
            self.search_due = now.mono;
            // The signer's clock may be right again soon. A CSR whose name is derived from the same
            // key would only find this certificate again.
            half = half.min(EARLY_PAUSE);
            self.new_key = true;
        }
        if self.until_renewal(at).is_zero() { half.max(MIN_PAUSE) } else { MIN_PAUSE }
    }

    /// Begins again after a delay.
    fn failed<T>(&mut self, why: impl Into<Fault>, at: ClusterSeen) -> Result<T, Fault> {
        self.state = CertificateState::Idle;
        self.back_off(at);
        Err(why.into())
    }

    fn back_off(&mut self, at: ClusterSeen) {
        let (now, delay) = (at.now, self.backoff.next_delay());
        let pause = self.longest_pause(at).min(delay + self.jitter.of(delay / 10));
        self.due = now.mono.after(pause);
        // The files are searched before each attempt.
        self.search_due = self.search_due.min(self.due);
        debug_assert!(now.mono < self.due, "{:?} at {now:?}", self.due);
    }

    /// Longest pause before the next attempt. Each of the two clocks may be wrong: the server's
    /// ahead, or the board's behind.
    fn longest_pause(&self, at: ClusterSeen) -> Duration {
        let most = |wall| kind::longest_pause(self.held.as_ref(), wall);
        most(at.now.wall).min(most(at.board))
    }

    /// Makes a request to the supervisor due soon after the creation of the Node at `created`, so
    /// that the node password is stored again: k3s deletes it with its Node, and without a Node
    /// after ten minutes, and then another board may get the name. A certificate that arrived 5 s
    /// after `created` has stored it, unless the process knew a Node before (`is_anew`).
    pub fn follow_node(&mut self, created: Wall, is_anew: bool, now: Mono) {
        let is_older = |leaf: &Leaf| is_anew || leaf.not_before < created.after(COLLECTED / 2);
        if self.kind.is_at_supervisor()
            && self.deadline > Wall::default()
            && self.held.as_ref().is_some_and(is_older)
        {
            self.deadline = Wall::default();
            self.backoff.reset();
            self.continue_with(CertificateState::Idle, now.after(COLLECTED));
        }
    }

    /// Takes the answer of the request. Returns a line for the log if the CSR waits for long: for
    /// its approval, or for its signature.
    pub fn on_response(
        &mut self,
        answer: Answer,
        at: ClusterSeen,
    ) -> Result<Option<String>, RequestError> {
        let now = at.now;
        let response = answer.inspect_err(|_| self.on_silence(at))?;
        let (result, retry_after) = (response.accepted(), response.retry_after);
        let accepted = result.as_ref().map(|()| response.body.as_slice());
        let progress = match std::mem::replace(&mut self.state, CertificateState::Idle) {
            CertificateState::Signed(request) if self.kind.is_at_supervisor() => {
                self.on_supervisor(&request, response, at)
            }
            CertificateState::Signed(request) => self.on_created(request, accepted, at),
            CertificateState::Waiting(waiting) => self.on_read(waiting, accepted, at),
            state => {
                self.state = state;
                Ok(None)
            }
        };
        progress.map_err(|why| {
            let most = self.kind.last_backoff().min(self.longest_pause(at));
            let pause = retry_after.unwrap_or_default().min(most);
            self.due = self.due.max(now.mono.after(pause));
            RequestError { why, refused: result.err().map(Box::new) }
        })
    }

    /// The server may have created the CSR, so it is sent again: a digest-named CSR is found, and a
    /// generateName CSR is orphaned and garbage-collected within 24 h. A request to the supervisor
    /// is signed again, because that step reads the node password again.
    fn on_silence(&mut self, at: ClusterSeen) {
        let now = at.now;
        if self.kind.is_at_supervisor() {
            self.state = CertificateState::Idle;
        }
        self.back_off(at);
        self.due = self.due.min(now.mono.after(self.kind.last_silence()));
    }

    fn on_created(
        &mut self,
        request: SigningRequest,
        accepted: Result<&[u8], &Refused>,
        at: ClusterSeen,
    ) -> Result<Option<String>, Fault> {
        let now = at.now;
        let (name, uid) = match accepted {
            Ok(body) => {
                let created = json::parse(body);
                let Some((name, uid)) = created.as_ref().and_then(csr::identified) else {
                    let refused = Refused::nonsense("a CertificateSigningRequest");
                    return self.failed(refused, at);
                };
                (name.to_owned(), Some(uid.to_owned()))
            }
            Err(refused) if self.kind.names_by_key() && refused.reason == "AlreadyExists" => {
                (request.name.clone(), None)
            }
            Err(refused) => return self.failed(csr::create_error(refused), at),
        };
        self.due = if uid.is_some() { now.mono.after(csr::FIRST_POLL) } else { now.mono };
        self.state = CertificateState::Waiting(Waiting {
            request,
            name,
            uid,
            since: now.mono,
            polls: Backoff::new(csr::FIRST_POLL, kind::LAST_POLL_OF_RENEWAL),
            is_approved: false,
            logged: false,
        });
        Ok(None)
    }

    fn on_read(
        &mut self,
        mut waiting: Waiting,
        accepted: Result<&[u8], &Refused>,
        at: ClusterSeen,
    ) -> Result<Option<String>, Fault> {
        let now = at.now;
        let valid = self.held.as_ref().filter(|_| self.is_usable(at));
        let most = self.kind.last_poll(valid, now.wall);
        self.due = waiting.next_read(most, self.kind.last_read(), now.mono);
        let waited = now.mono.since(waiting.since);
        let progress = match csr::state(&waiting, accepted, now.wall) {
            CsrState::Pending(uid, is_approved) => {
                waiting.is_approved = is_approved;
                waiting.uid = Some(uid);
                if waited < APPROVAL_TIME || std::mem::replace(&mut waiting.logged, true) {
                    Ok(None)
                } else {
                    let name = &waiting.name;
                    Ok(Some(if is_approved {
                        format!("{name} is approved, and not signed yet: {SIGNER}")
                    } else {
                        format!("{name} waits for approval: kubectl certificate approve {name}")
                    }))
                }
            }
            // The certificate expired while the CSR waited, or the bootstrap token did: the next
            // CSR may have other credentials.
            CsrState::Refused(refused) if refused.code == 401 && !self.is_usable(at) => {
                return self.failed(refused, at);
            }
            CsrState::Refused(refused) => Err(refused.into()),
            CsrState::Issued(chain) => {
                self.continue_with(CertificateState::Issued(chain), now.mono);
                return Ok(None);
            }
            CsrState::Gone(why) => return self.failed(why, at),
            CsrState::Unusable(why) => {
                self.new_key = true;
                return self.failed(why, at);
            }
        };
        self.state = CertificateState::Waiting(waiting);
        progress
    }

    fn on_supervisor(
        &mut self,
        signed: &SigningRequest,
        response: Response,
        at: ClusterSeen,
    ) -> Result<Option<String>, Fault> {
        let now = at.now;
        match supervisor::issued(signed, response, now.wall) {
            Ok(chain) => {
                self.continue_with(CertificateState::Issued(chain), now.mono);
                Ok(None)
            }
            Err(why) => self.failed(why, at),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
