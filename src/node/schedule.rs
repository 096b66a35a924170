//! The lease law: the rules for the order and the time limits of requests.
//!
//! One thread renews the Lease, which must happen in time, and sends the Node's requests, which
//! may hang. It also reads files and writes them, and a sensor or a card may be slow. Four rules
//! limit the delay of the Lease:
//!
//! 1. A turn does one thing, an [`Action`]: it sends a request, reads files, or carries out one
//!    operation of a file change. GET then POST is two turns, and so are a read of facts and the
//!    request that it is for.
//! 2. In every turn a due Lease goes first. A due Node or file change waits.
//! 3. After an unanswered request only Lease requests are sent, until one of them is answered. If
//!    the Lease would be due again within half an interval, it is renewed before the retry. What
//!    does not need the silent server has its turns between the attempts: an operation on a file,
//!    a look at the board's health, and a request for a certificate over a client of its own. The
//!    answer to such a request, or its silence, says nothing about the Lease's server.
//! 4. Every request has a limit for its whole duration. The delay of a retry counts from the start
//!    of the failed attempt. The first attempt that ends within a call, and without an answer, is
//!    repeated after a pause.
//!
//! Therefore the time from the start of a Lease attempt to the start of the next one is limited:
//! - after a success to `LeaseTimings::after_success`,
//! - after a refusal to `LeaseTimings::after_refusal`,
//! - after an attempt without an answer to its own time limit and a pause, and one call more if
//!   another turn was taken in the pause.
//!
//! An attempt that opened a connection may be answered later than the first two limits. The next
//! attempt then follows after a pause, too. The tests check [`Schedule`] against these limits in
//! simulations.
//!
//! A read of a file, or an operation of a file change (one fsync), has no time limit. The limits
//! above hold if it takes no longer than one call. Otherwise they are longer by the difference:
//! with a call of 5 s and an fsync of 8 s, the next Lease attempt may start 3 s later.

use std::time::Duration;

use crate::kube::delay::Jitter;
use crate::kube::instant::Mono;
#[cfg(test)]
use crate::kube::message::Answer;

/// The duration of the Lease, from which all other periods are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimings {
    /// `nodeLeaseDurationSeconds`.
    pub lease_duration: Duration,
}

impl LeaseTimings {
    /// Shortest time between renewals: a quarter of the duration, upstream's
    /// nodeLeaseRenewIntervalFraction.
    pub fn renew_interval(self) -> Duration {
        self.lease_duration / 4
    }

    /// Longest time between renewals: 4 % more, upstream's leaseRenewJitter
    /// (component-helpers `apimachinery/lease/controller.go`).
    pub fn longest_renew_interval(self) -> Duration {
        self.renew_interval() + self.renew_interval() / 25
    }

    /// How long a Node request may delay the Lease. An eighth of the duration, at most 5 s, so that
    /// a turn is much shorter than the watchdog's timeout.
    pub fn call_budget(self) -> Duration {
        (self.lease_duration / 8).min(Duration::from_secs(5))
    }

    /// Time limit of the answer to a Lease request once the connection is open: 10 s, as of a
    /// kubelet (heartbeatClientConfig.Timeout). A server that needs 9 s for a write, and drops the
    /// work of a client that leaves, is asked once for each renewal.
    pub fn answer_budget(self) -> Duration {
        self.call_budget() * 2
    }

    /// Time limit of DNS, TCP and TLS: three round trips over NB-IoT take 9 s.
    pub fn connect_budget(self) -> Duration {
        self.call_budget() * 3
    }

    /// Time limit of a request that may have to open a connection.
    pub fn connect_and_call_budget(self) -> Duration {
        self.connect_budget() + self.call_budget()
    }

    /// Shortest time from the end of an attempt to the start of the next one. In this time another
    /// turn may be taken, after silence one that does not need the server, such as a file change,
    /// also if each attempt takes longer than its interval.
    fn pause(self) -> Duration {
        self.call_budget() / 50
    }

    /// Longest time from the start of a successful renewal to the next attempt: a Node request
    /// may have started just before the attempt was due.
    #[cfg(test)]
    pub(crate) fn after_success(self) -> Duration {
        self.longest_renew_interval() + self.call_budget()
    }

    /// Longest time from the start of a refused attempt to the start of the next one, if the server
    /// sent no `Retry-After`. With `Retry-After` the limit is `after_success`. The limit also holds
    /// after an attempt that failed at once without an answer: another turn, such as a file change,
    /// may begin just before the next attempt is due.
    #[cfg(test)]
    pub(crate) fn after_refusal(self) -> Duration {
        self.call_budget() * 2
    }

    /// The longest time from the start of a Lease attempt to the start of the next one. `took` is
    /// the duration of the attempt; if it exceeds the limit, the next attempt follows after a
    /// pause. `shares`: another turn was taken in that pause.
    #[cfg(test)]
    pub(crate) fn longest_gap(self, answer: &Answer, took: Duration, shares: bool) -> Duration {
        let budget = self.connect_and_call_budget();
        assert!(took <= budget, "an attempt took {took:?}");
        let limit = match answer {
            Ok(response) => match (response.accepted(), response.retry_after) {
                (Err(_), None) => self.after_refusal(),
                _ => self.after_success(),
            },
            Err(_) => self.after_refusal(),
        };
        let shared = if shares { self.call_budget() } else { Duration::ZERO };
        limit.max(took + self.pause() + shared)
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads, creates or renews the Lease.
    Lease,
    /// Creates or reads the CertificateSigningRequest.
    Certificate {
        /// The next step is a request over a client of its own, or file work: it does not need the
        /// Lease's server.
        is_apart: bool,
    },
    /// Reads the Node.
    ReadNode,
    /// Creates or patches the Node, or asks whether it changed: it needs facts.
    WriteNode,
    /// Reads the version of the API server.
    Version,
    /// Lists stray pods, or ends one.
    Pods,
    /// Sends the oldest event.
    Event,
    /// Asks for the server's time, while the board's clock is wrong.
    Time,
}

/// What the loop does in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the connection of the first request, which is not due yet; within the duration.
    Connect(Duration),
    /// Send the next request of this kind; the whole request must end within the duration.
    Send(RequestKind, Duration),
    /// Read the facts for the next status, within [`READ_BUDGET`](crate::os::root::READ_BUDGET)
    /// and one read of a file.
    ReadFacts,
    /// Take a step of `credentials`: one request that must end within the duration, or one
    /// operation on a file.
    Credentials(Duration),
    /// Carry out one operation of the file changes under way.
    Change,
    /// Nothing is due before this time.
    Wait(Mono),
    /// The process ends: the server knows of the shutdown, or there was no time to tell it.
    End,
}

/// The table of times: when each request but the Lease's is due, the most important first. It is
/// made anew in each turn, because a rate limit and the wall clock decide, too.
pub type DueTimes = [(RequestKind, Option<Mono>); 4];

/// When the Lease is due, and whether other requests may be sent before that.
#[derive(Clone, Debug)]
pub struct Schedule {
    timings: LeaseTimings,
    /// `None` until a Node exists that owns the Lease.
    lease_due: Option<Mono>,
    /// Rule 3: the last request was not answered. Also true before the first request.
    silent: bool,
    /// The last request other than the Lease's was not answered, and the Lease may be renewed early
    /// for its retry.
    awaits_retry: bool,
    /// State of a xorshift generator, which spreads boards that were powered on together.
    random: u64,
}

impl Schedule {
    /// A schedule with no Lease yet. `seed` is any number that differs between boards.
    pub fn new(timings: LeaseTimings, seed: u64) -> Self {
        let (lease_due, random) = (None, seed | 1);
        Self { timings, lease_due, silent: true, awaits_retry: false, random }
    }

    /// The request that is due, or a wait. `connected` returns whether the connection is still
    /// open.
    pub fn next(&self, now: Mono, times: &DueTimes, connected: impl FnOnce() -> bool) -> Action {
        let call = self.timings.call_budget();
        let connect_and_call = self.timings.connect_and_call_budget();
        // Rule 3.
        let waits_for_lease = self.silent && self.lease_due.is_some();
        let is_apart = |kind| kind == RequestKind::Certificate { is_apart: true };
        let may_be_sent = |(kind, _): &&(_, _)| !waits_for_lease || is_apart(*kind);
        let is_due = |(_, due): &&(_, Option<Mono>)| due.is_some_and(|due| due <= now);
        let times = times.iter().filter(may_be_sent);
        let first = times.clone().find(is_due).map(|(kind, _)| *kind);
        let budget = match self.lease_due {
            Some(due) if due <= now || self.renews_early(due, now, first) => {
                let budget = match !self.silent && connected() {
                    true => self.timings.answer_budget(),
                    false => connect_and_call,
                };
                return Action::Send(RequestKind::Lease, budget);
            }
            // The time until the Lease is due, plus the delay that the law allows. A Node is 3 KB,
            // and a narrow link transfers 1 KB/s.
            Some(due) => (due.since(now) + call).min(connect_and_call),
            None => connect_and_call,
        };
        debug_assert!(budget >= call.min(connect_and_call), "{budget:?}");
        match first {
            // An event is optional: it must end before the Lease is due.
            Some(RequestKind::Event) if self.lease_due.is_none_or(|due| due < now.after(call)) => {}
            Some(RequestKind::Event) => return Action::Send(RequestKind::Event, call),
            Some(kind) => {
                debug_assert!(!waits_for_lease || is_apart(kind), "{kind:?} after silence");
                return Action::Send(kind, budget);
            }
            None => {}
        }
        let times = times.filter_map(|(_, due)| *due).filter(|due| *due > now);
        let earliest = times.chain(self.lease_due).min();
        let until = earliest.unwrap_or(now.after(self.timings.renew_interval()));
        debug_assert!(now < until, "a wait that is over: {until:?} at {now:?}");
        Action::Wait(until)
    }

    /// Whether the Lease, which is due at `due`, is renewed early, before `first` is sent again
    /// after an attempt without an answer. For example, with a duration of 40 s: 4 s before the
    /// Lease is due, the retry of a PATCH would have a time limit of 9 s. After a renewal it has 15
    /// s. A narrow link may need this: without the early renewal, each retry could come shortly
    /// before the Lease is due and be cut off, because reconnecting takes as long as an interval.
    fn renews_early(&self, due: Mono, now: Mono, first: Option<RequestKind>) -> bool {
        use RequestKind::{Certificate, ReadNode, Version, WriteNode};
        let waits = matches!(first, Some(Certificate { .. } | ReadNode | WriteNode | Version));
        let is_close = due.since(now) < self.timings.renew_interval() / 2;
        self.awaits_retry && !self.silent && waits && is_close
    }

    /// A Node exists that owns the Lease: the Lease's first request is due.
    pub fn start_lease(&mut self, now: Mono) {
        self.lease_due.get_or_insert(now);
    }

    /// The Node no longer exists.
    pub fn stop_lease(&mut self) {
        self.lease_due = None;
    }

    /// The Lease was renewed by a request that was sent at `start` and answered at `now`.
    ///
    /// A random part of the 4 % spreads the renewals of boards that were powered on together. It
    /// only adds, as upstream: a shorter interval would cost bytes. Upstream counts from the end of
    /// the renewal.
    pub fn lease_renewed(&mut self, start: Mono, now: Mono) {
        self.silent = false;
        // At most one early renewal for each retry.
        let was_early = self.lease_due.is_some_and(|due| start < due);
        self.awaits_retry &= !was_early;
        let interval = self.timings.renew_interval();
        let spread = self.jitter().of(self.timings.longest_renew_interval() - interval);
        self.lease_is_due(start.after(interval + spread), now);
        debug_assert!(interval + spread <= self.timings.longest_renew_interval(), "{spread:?}");
    }

    /// The Lease needs another request at once: it was read, or must be created.
    pub fn lease_continues(&mut self, start: Mono) {
        self.silent = false;
        self.lease_due = Some(start);
    }

    /// The server refused at `now` the Lease request that was sent at `start`.
    pub fn lease_refused(&mut self, start: Mono, retry_after: Option<Duration>, now: Mono) {
        self.silent = false;
        self.awaits_retry = false;
        let delay = self.retry_delay(retry_after);
        debug_assert!(delay <= self.timings.renew_interval(), "{delay:?}");
        self.lease_is_due(start.after(delay), now);
    }

    /// The server did not answer the Lease request that was sent at `start` and given up at `now`.
    pub fn lease_silent(&mut self, start: Mono, now: Mono) {
        self.silent = true;
        self.lease_is_due(start.after(self.timings.call_budget()), now);
    }

    /// The next attempt is at `due`, and not before a pause after the last one, which ended at
    /// `now`.
    fn lease_is_due(&mut self, due: Mono, now: Mono) {
        self.lease_due = Some(due.max(now.after(self.timings.pause())));
    }

    /// The server answered a request other than the Lease's.
    pub fn request_answered(&mut self) {
        self.silent = false;
        self.awaits_retry = false;
    }

    /// The connection of a Lease request ended at `now` without an answer, after requests that were
    /// answered. A balancer ends a connection that was idle for as long as an interval, perhaps
    /// while the request is on its way. So the retry follows after a pause, once.
    pub fn lease_interrupted(&mut self, now: Mono) {
        debug_assert!(!self.silent, "the attempt before it had no answer either");
        self.silent = true;
        self.lease_is_due(now, now);
    }

    /// The server did not answer a request other than the Lease's: the Lease is due at once.
    pub fn request_silent(&mut self, now: Mono) {
        self.silent = true;
        self.awaits_retry = true;
        if let Some(due) = &mut self.lease_due {
            *due = now.min(*due);
        }
    }

    /// Whether the last request was not answered.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Follows `Retry-After`, but at most one renewal interval, so that the Lease does not expire.
    fn retry_delay(&self, retry_after: Option<Duration>) -> Duration {
        retry_after
            .unwrap_or_default()
            .clamp(self.timings.call_budget(), self.timings.renew_interval())
    }

    /// The next pseudorandom part of a time.
    pub fn jitter(&mut self) -> Jitter {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Jitter::new(self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: LeaseTimings = LeaseTimings { lease_duration: Duration::from_secs(40) };

    /// Due times without an event.
    fn times(certificate: Option<Mono>, node: Mono, pods: Option<Mono>) -> DueTimes {
        [
            (RequestKind::Certificate { is_apart: false }, certificate),
            (RequestKind::WriteNode, Some(node)),
            (RequestKind::Pods, pods),
            (RequestKind::Event, None),
        ]
    }

    fn at(seconds: u64) -> Mono {
        Mono::START.after(Duration::from_secs(seconds))
    }

    #[test]
    fn the_bounds_of_a_40_s_lease() {
        assert_eq!(LAW.renew_interval(), Duration::from_secs(10));
        assert_eq!(LAW.call_budget(), Duration::from_secs(5));
        assert_eq!(LAW.after_success(), Duration::from_millis(15_400));
        assert_eq!(LAW.after_refusal(), Duration::from_secs(10));
        assert_eq!(LAW.connect_and_call_budget(), Duration::from_secs(20));
    }

    #[test]
    fn after_an_unanswered_request_only_the_lease_is_sent() {
        let mut schedule = Schedule::new(LAW, 1);
        schedule.start_lease(at(0));
        schedule.lease_renewed(at(0), at(0));
        let due = |seconds| times(None, at(seconds), Some(at(seconds)));
        let Action::Send(RequestKind::WriteNode, budget) = schedule.next(at(1), &due(1), || true)
        else {
            panic!("the Node is due");
        };
        assert!(at(1).after(budget) <= at(0).after(LAW.after_success()));
        assert!(budget > LAW.call_budget() * 5 / 2, "{budget:?}");
        schedule.request_silent(at(6));
        let lease = Action::Send(RequestKind::Lease, LAW.connect_and_call_budget());
        assert_eq!(schedule.next(at(6), &due(6), || true), lease);
        schedule.lease_silent(at(6), at(6));
        assert_eq!(schedule.next(at(7), &due(6), || true), Action::Wait(at(11)));
        assert_eq!(schedule.next(at(26), &due(6), || true), lease);
        schedule.lease_refused(at(26), None, at(26));
        let node = Action::Send(RequestKind::WriteNode, LAW.after_refusal());
        assert_eq!(schedule.next(at(26), &due(6), || true), node);
    }

    /// A request over a client of its own, and an operation on a file, have their turns between the
    /// attempts, also while each of these takes its whole limit.
    #[test]
    fn what_does_not_need_the_silent_server_does_not_wait_for_it() {
        let mut schedule = Schedule::new(LAW, 1);
        schedule.start_lease(at(0));
        let mut due = times(Some(at(0)), at(0), Some(at(0)));
        for (kind, turn) in [
            (RequestKind::Certificate { is_apart: false }, Action::Wait(at(20).after(LAW.pause()))),
            (
                RequestKind::Certificate { is_apart: true },
                Action::Send(
                    RequestKind::Certificate { is_apart: true },
                    LAW.call_budget() + LAW.pause(),
                ),
            ),
        ] {
            due[0].0 = kind;
            schedule.lease_silent(at(0), at(20));
            assert_eq!(schedule.next(at(20), &due, || true), turn);
            // The Lease goes first all the same.
            let lease = Action::Send(RequestKind::Lease, LAW.connect_and_call_budget());
            assert_eq!(schedule.next(at(21), &due, || true), lease);
        }
        due[0].1 = Some(at(2));
        schedule.lease_silent(at(0), at(1));
        assert_eq!(schedule.next(at(1), &due, || true), Action::Wait(at(2)));
        let turn =
            Action::Send(RequestKind::Certificate { is_apart: true }, Duration::from_secs(8));
        assert_eq!(schedule.next(at(2), &due, || true), turn);
    }

    /// A server that answers each attempt late, such as 401 of an expired certificate over a slow
    /// link, would else hide the request for another one.
    #[test]
    fn a_late_answer_leaves_a_turn_to_others() {
        type Answered = fn(&mut Schedule);
        let answered: [Answered; 2] = [
            |schedule| schedule.lease_refused(at(0), None, at(12)),
            |schedule| schedule.lease_renewed(at(0), at(12)),
        ];
        for answered in answered {
            let mut schedule = Schedule::new(LAW, 1);
            schedule.start_lease(at(0));
            answered(&mut schedule);
            let due = times(Some(at(0)), at(0), None);
            let budget = LAW.call_budget() + LAW.pause();
            let kind = RequestKind::Certificate { is_apart: false };
            assert_eq!(schedule.next(at(12), &due, || true), Action::Send(kind, budget));
            let lease = Action::Send(RequestKind::Lease, LAW.answer_budget());
            assert_eq!(schedule.next(at(13), &due, || true), lease);
        }
    }

    /// A reconnect on a narrow link takes as long as an interval.
    #[test]
    fn a_retry_has_at_least_half_an_interval_and_one_call() {
        let mut schedule = Schedule::new(LAW, 1);
        schedule.start_lease(at(0));
        schedule.lease_renewed(at(0), at(0));
        let due = |seconds| times(None, at(seconds), None);
        let budget = |next| match next {
            Action::Send(RequestKind::WriteNode, budget) => budget.as_secs(),
            next => panic!("{next:?}"),
        };
        // The first attempt, just before the Lease is due.
        assert_eq!(budget(schedule.next(at(9), &due(9), || true)), 6);
        schedule.request_silent(at(15));
        // The renewal opens a connection and ends just before the next one is due.
        schedule.lease_renewed(at(15), at(15));
        let early = schedule.next(at(24), &due(24), || true);
        assert_eq!(early, Action::Send(RequestKind::Lease, LAW.answer_budget()));
        schedule.lease_renewed(at(24), at(24));
        assert!(budget(schedule.next(at(28), &due(24), || true)) >= 10);
        // It is renewed early once for a retry, and never while it is refused.
        assert!(budget(schedule.next(at(33), &due(33), || true)) < 10);
        schedule.request_silent(at(33));
        schedule.lease_refused(at(33), None, at(33));
        assert_eq!(budget(schedule.next(at(34), &due(34), || true)), 9);
        // Nor after an answer.
        schedule.request_silent(at(40));
        schedule.lease_renewed(at(40), at(40));
        schedule.request_answered();
        assert!(budget(schedule.next(at(49), &due(49), || true)) < 10);
    }

    #[test]
    fn retry_after_delays_the_lease_by_at_most_one_renewal_interval() {
        let mut schedule = Schedule::new(LAW, 1);
        let times = times(None, at(1000), None);
        for (asked, due) in [(0, 5), (7, 7), (3600, 10)] {
            schedule.lease_refused(at(0), Some(Duration::from_secs(asked)), at(0));
            assert_eq!(schedule.next(at(0), &times, || true), Action::Wait(at(due)));
        }
    }

    /// An hour after the start the renewals of 1000 boards are spread over the whole interval.
    #[test]
    fn renewals_of_boards_powered_on_together_spread() {
        const TENTHS: usize = 100;
        let mut busy = [0_u32; TENTHS];
        for seed in 0..1000_u64 {
            let mut schedule = Schedule::new(LAW, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut renewed = Mono::START;
            while renewed < Mono::START.after(Duration::from_secs(3600)) {
                schedule.lease_renewed(renewed, renewed);
                let interval = schedule.lease_due.unwrap().since(renewed);
                assert!((10_000..=10_400).contains(&interval.as_millis()), "{interval:?}");
                renewed = renewed.after(interval);
            }
            let tenth = renewed.since(Mono::START).as_millis() / 100;
            let tenth = usize::try_from(tenth).unwrap_or_default() % TENTHS;
            busy[tenth] += 1;
        }
        // The mean of each tenth of a second is 10; at the start one of them has all 1000.
        let most = busy.iter().max().copied().unwrap_or_default();
        assert!(most < 50, "{busy:?}");
    }
}
