//! The lease law: what the loop does next, and when.
//!
//! One thread serves the Lease, which must be renewed in time, and the Node, whose
//! requests may hang. Four rules keep the second from starving the first:
//!
//! 1. One turn, at most one request: GET then POST is two turns.
//! 2. The Lease is asked first, every turn. A due Node waits.
//! 3. Silence makes the Lease the probe: after an unanswered request nothing else
//!    is tried until one Lease request was answered.
//! 4. Every request is bounded as a whole, and a retry is counted from the start of
//!    the failed attempt.
//!
//! Hence, from start to start, the next Lease attempt follows within
//! [`Law::after_success`], [`Law::after_refusal`] or [`Law::after_silence`], whatever
//! the Node's requests do; and at once after an attempt that took longer itself, which
//! only one that had to open a connection can. A simulation holds the real
//! [`Schedule`] to it.

use std::time::Duration;

use crate::core::instant::Mono;

/// The periods that everything else is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// `nodeLeaseDurationSeconds`.
    pub lease_duration: Duration,
}

impl Law {
    /// Time between renewals: a quarter of the duration, upstream's
    /// nodeLeaseRenewIntervalFraction.
    pub fn renew_interval(self) -> Duration {
        self.lease_duration / 4
    }

    /// Bound of one Lease request over an open connection, and of how late a Node's may
    /// make the Lease: an eighth of the duration, and never more than of the usual 40 s,
    /// so that a turn stays well below a watchdog's patience.
    pub fn call_budget(self) -> Duration {
        (self.lease_duration / 8).min(Duration::from_secs(5))
    }

    /// Bound of name, TCP and TLS: three round trips of an NB-IoT link are 9 s.
    pub fn connect_budget(self) -> Duration {
        self.call_budget() * 3
    }

    /// Longest time from the start of a renewal that succeeded to the next attempt:
    /// a Node request may have begun just before it was due.
    pub fn after_success(self) -> Duration {
        self.renew_interval() + self.call_budget()
    }

    /// Longest time from the start of a refused attempt to the next one, where the
    /// server does not ask for more patience; it gets [`Self::after_success`] at most.
    pub fn after_refusal(self) -> Duration {
        self.call_budget() * 2
    }

    /// Longest time from the start of an unanswered attempt to the next one.
    pub fn after_silence(self) -> Duration {
        self.connect_budget() + self.call_budget()
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send the Lease's next request, bounded as a whole by this.
    Lease(Duration),
    /// Compute the status and send the Node's next request, if there is one.
    Node(Duration),
    /// Do the next step for the certificate; a request of it is bounded by this.
    Certificate(Duration),
    /// Nothing before this.
    Wait(Mono),
}

/// When the next step of the others is due; each reconciler keeps its own time.
#[derive(Clone, Copy, Debug)]
pub struct Dues {
    /// The Node.
    pub node: Mono,
    /// `None` where no certificate is renewed.
    pub certificate: Option<Mono>,
}

impl Dues {
    fn has_certificate(self, now: Mono) -> bool {
        self.certificate.is_some_and(|due| due <= now)
    }
}

/// When the Lease is due, and what may be done meanwhile.
#[derive(Clone, Debug)]
pub struct Schedule {
    law: Law,
    /// `None` until there is a Node to own the Lease.
    lease_due: Option<Mono>,
    /// Rule 3.
    silent: bool,
    /// State of a xorshift generator; only spreads boards that were powered on together.
    random: u64,
}

impl Schedule {
    /// A schedule with no Lease yet. `seed` is any number that differs between boards.
    pub fn new(law: Law, seed: u64) -> Self {
        Self {
            law,
            lease_due: None,
            silent: true,
            random: seed | 1,
        }
    }

    /// The next step. `connected` tells whether a kept connection is still open.
    pub fn next(&self, now: Mono, dues: Dues, connected: impl FnOnce() -> bool) -> Next {
        let call = self.law.call_budget();
        let connect_and_call = self.law.connect_budget() + call;
        let budget = match self.lease_due {
            Some(due) if due <= now => {
                return Next::Lease(match self.silent || !connected() {
                    true => connect_and_call,
                    false => call,
                });
            }
            Some(due) if self.silent => return Next::Wait(due),
            // With a Lease to lose, nothing else may take the time to open a connection; but
            // all that is left until the Lease, and the one call that it may be late for:
            // a Node is 3 KB, and a narrow link brings 1 KB/s.
            Some(due) => (due.since(now) + call).min(connect_and_call),
            None => connect_and_call,
        };
        // A certificate is rarely due, and nothing comes after the last one.
        if dues.has_certificate(now) {
            return Next::Certificate(budget);
        }
        if dues.node <= now {
            return Next::Node(budget);
        }
        let others = [self.lease_due, dues.certificate].into_iter().flatten();
        Next::Wait(others.fold(dues.node, Mono::min))
    }

    /// Whether something that may as well be dropped can be sent now, and the bound of
    /// its request: nothing is due before that would end.
    pub fn leisure(&self, now: Mono, dues: Dues) -> Option<Duration> {
        let budget = self.law.call_budget();
        let idle = !self.silent && dues.node > now && !dues.has_certificate(now);
        let early = self.lease_due.is_some_and(|due| due >= now.after(budget));
        (idle && early).then_some(budget)
    }

    /// There is a Node to own the Lease: its first request is due.
    pub fn start_lease(&mut self, now: Mono) {
        self.lease_due.get_or_insert(now);
    }

    /// There is none any more.
    pub fn stop_lease(&mut self) {
        self.lease_due = None;
    }

    /// The Lease was renewed by a request that was begun at `start`.
    ///
    /// The interval is shortened by up to 4 %, so that a thousand boards powered on
    /// together spread out and none is ever late.
    pub fn lease_renewed(&mut self, start: Mono) {
        self.silent = false;
        let interval = self.law.renew_interval();
        let early = interval / 25 * self.permille() / 1000;
        self.lease_due = Some(start.after(interval.saturating_sub(early)));
    }

    /// The Lease needs another request at once (it was read, or is to be created).
    pub fn lease_continues(&mut self, start: Mono) {
        self.silent = false;
        self.lease_due = Some(start);
    }

    /// The server refused the request that was begun at `start`.
    pub fn lease_refused(&mut self, start: Mono, retry_after: Option<Duration>) {
        self.silent = false;
        self.lease_due = Some(start.after(self.retry_delay(retry_after)));
    }

    /// The server did not answer the request that was begun at `start`.
    pub fn lease_silent(&mut self, start: Mono) {
        self.silent = true;
        self.lease_due = Some(start.after(self.law.call_budget()));
    }

    /// The server answered a request that was not the Lease's.
    pub fn request_answered(&mut self) {
        self.silent = false;
    }

    /// The server did not answer such a request: the Lease probes at once.
    pub fn request_silent(&mut self, now: Mono) {
        self.silent = true;
        if let Some(due) = &mut self.lease_due {
            *due = now.min(*due);
        }
    }

    /// A retry comes no earlier than the server asks for, but never so late that
    /// the Lease would lapse for it.
    fn retry_delay(&self, retry_after: Option<Duration>) -> Duration {
        retry_after
            .unwrap_or_default()
            .clamp(self.law.call_budget(), self.law.renew_interval())
    }

    /// A number from 0 to 1000, another one at each call and on each board.
    pub fn permille(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from(self.random % 1001).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law {
        lease_duration: Duration::from_secs(40),
    };

    /// What a simulated loop does wrong on purpose.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        None,
        TwoRequestsInATurn,
        NodeBeforeLease,
        NoProbe,
        RetryFromTheEnd,
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }

        /// Up to `limit`, often all of it.
        fn up_to(&mut self, limit: Duration) -> Duration {
            match self.below(3) {
                0 => limit,
                1 => limit * 9 / 10,
                _ => limit / 1000 * u32::try_from(self.below(1000)).unwrap_or(0),
            }
        }
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Answer {
        Ok,
        Refused(Option<Duration>),
        Silent,
    }

    /// What the law allows after one Lease attempt.
    fn allowed(answer: Answer, took: Duration) -> Duration {
        let limit = match answer {
            Answer::Ok => LAW.after_success(),
            Answer::Refused(None) => LAW.after_refusal(),
            Answer::Refused(Some(_)) => LAW.after_success(),
            Answer::Silent => LAW.call_budget(),
        };
        // An attempt that had to open a connection may take longer than that
        // itself; then the next one follows at once.
        assert!(took <= LAW.after_silence());
        took.max(limit)
    }

    /// The broken loops' choice; `Fault::None` is the real one.
    fn choose(schedule: &Schedule, now: Mono, dues: Dues, connected: bool, fault: Fault) -> Next {
        let node_is_due = dues.node <= now;
        match fault {
            Fault::NodeBeforeLease if node_is_due && !schedule.silent => {
                Next::Node(LAW.call_budget())
            }
            // Then the Node has to open connections.
            Fault::NoProbe if node_is_due && schedule.lease_due.is_none_or(|due| due > now) => {
                Next::Node(LAW.after_silence())
            }
            _ => schedule.next(now, dues, || connected),
        }
    }

    /// Runs one random schedule for 300 virtual seconds. Returns the first breach.
    fn simulate(seed: u64, fault: Fault) -> Result<(), String> {
        let random = &mut Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let weather = [random.below(10), random.below(10)];
        let mut schedule = Schedule::new(LAW, seed);
        let mut now = Mono::START;
        let mut last: Option<(Mono, Duration)> = None;
        let mut registered = false;
        let mut turns = 0;
        let mut dues = Dues {
            node: Mono::START,
            certificate: Some(Mono::START),
        };
        while now < Mono::START.after(Duration::from_secs(300)) {
            turns += 1;
            if dues.has_certificate(now) {
                let delay = Duration::from_millis(500 + random.below(20_000));
                dues.certificate = Some(now.after(delay));
            }
            if turns > 100_000 {
                return Err(format!("the loop spins at {now:?}"));
            }
            // An event now and then, where the schedule lets it.
            let next = match schedule.leisure(now, dues) {
                Some(budget) if random.below(4) == 0 => {
                    now = now.after(random.up_to(budget));
                    match random.below(3) {
                        0 => schedule.request_silent(now),
                        _ => schedule.request_answered(),
                    }
                    schedule.next(now, dues, || false)
                }
                _ => choose(&schedule, now, dues, random.below(2) == 0, fault),
            };
            let budget = match next {
                Next::Wait(until) if until <= now => return Err("waits for the past".to_owned()),
                Next::Wait(until) => {
                    now = until;
                    continue;
                }
                Next::Lease(budget) | Next::Node(budget) | Next::Certificate(budget) => budget,
            };
            let start = now;
            let took = random.up_to(budget).max(Duration::from_millis(1));
            let answer = match random.below(10) {
                n if n < weather[0] => Answer::Silent,
                n if n < weather[1] => Answer::Refused(
                    (random.below(2) == 0).then(|| Duration::from_secs(random.below(120))),
                ),
                _ => Answer::Ok,
            };
            now = now.after(took);
            if let Next::Lease(_) = next {
                if let Some((before, limit)) = last
                    && start.since(before) > limit
                {
                    return Err(format!(
                        "attempt {:?} after the one before, {limit:?} allowed",
                        start.since(before)
                    ));
                }
                last = Some((start, allowed(answer, took)));
                let counted_from = match fault {
                    Fault::RetryFromTheEnd => now,
                    _ => start,
                };
                match answer {
                    Answer::Ok => schedule.lease_renewed(start),
                    Answer::Refused(after) => schedule.lease_refused(counted_from, after),
                    Answer::Silent => schedule.lease_silent(counted_from),
                }
                continue;
            }
            if fault == Fault::TwoRequestsInATurn {
                now = now.after(random.up_to(budget));
            }
            match answer {
                Answer::Silent => schedule.request_silent(now),
                Answer::Ok | Answer::Refused(_) => {
                    schedule.request_answered();
                    if !registered {
                        registered = true;
                        schedule.start_lease(now);
                        last = Some((now, Duration::ZERO));
                    }
                }
            }
            let delay = match random.below(3) {
                0 => Duration::ZERO,
                1 => Duration::from_secs(10),
                _ => Duration::from_millis(random.below(10_000)),
            };
            // Never quite at once, so that virtual time passes.
            dues.node = now.after(delay);
        }
        Ok(())
    }

    const SCHEDULES: u64 = 20_000;

    #[test]
    fn the_lease_law_holds_for_every_random_schedule() {
        for seed in 0..SCHEDULES {
            assert_eq!(simulate(seed, Fault::None), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn each_planted_fault_breaks_the_law() {
        for fault in [
            Fault::TwoRequestsInATurn,
            Fault::NodeBeforeLease,
            Fault::NoProbe,
            Fault::RetryFromTheEnd,
        ] {
            let caught = (0..SCHEDULES)
                .filter(|seed| simulate(*seed, fault).is_err())
                .count();
            println!("{fault:?}: caught in {caught} of {SCHEDULES} schedules");
            assert!(caught > 5_000, "{fault:?} was caught {caught} times");
        }
    }

    fn at(seconds: u64) -> Mono {
        Mono::START.after(Duration::from_secs(seconds))
    }

    #[test]
    fn the_bounds_of_a_forty_second_lease() {
        assert_eq!(LAW.renew_interval(), Duration::from_secs(10));
        assert_eq!(LAW.call_budget(), Duration::from_secs(5));
        assert_eq!(LAW.after_success(), Duration::from_secs(15));
        assert_eq!(LAW.after_refusal(), Duration::from_secs(10));
        assert_eq!(LAW.after_silence(), Duration::from_secs(20));
    }

    #[test]
    fn renewals_are_never_late_and_spread_out() {
        let mut schedule = Schedule::new(LAW, 7);
        let mut seen = Vec::new();
        for _ in 0..100 {
            schedule.lease_renewed(at(100));
            seen.extend(schedule.lease_due.map(|due| due.since(at(100)).as_millis()));
        }
        assert!(
            seen.iter().all(|millis| (9_600..=10_000).contains(millis)),
            "{seen:?}"
        );
        seen.dedup();
        assert!(seen.len() > 50, "{seen:?}");
    }

    #[test]
    fn after_silence_only_the_lease_is_tried() {
        let mut schedule = Schedule::new(LAW, 1);
        schedule.start_lease(at(0));
        schedule.lease_renewed(at(0));
        let due = |seconds| Dues {
            node: at(seconds),
            certificate: None,
        };
        let Next::Node(budget) = schedule.next(at(1), due(1), || true) else {
            panic!("the Node is due");
        };
        assert!(at(1).after(budget) <= at(0).after(LAW.after_success()));
        assert!(budget > LAW.call_budget() * 5 / 2, "{budget:?}");
        schedule.request_silent(at(6));
        assert_eq!(
            schedule.next(at(6), due(6), || true),
            Next::Lease(LAW.after_silence())
        );
        schedule.lease_silent(at(6));
        assert_eq!(schedule.next(at(7), due(6), || true), Next::Wait(at(11)));
        assert_eq!(
            schedule.next(at(26), due(6), || true),
            Next::Lease(LAW.after_silence())
        );
        schedule.lease_refused(at(26), None);
        assert_eq!(
            schedule.next(at(26), due(6), || true),
            Next::Node(LAW.after_refusal())
        );
    }

    #[test]
    fn a_server_may_ask_for_patience_but_not_for_the_lease() {
        let mut schedule = Schedule::new(LAW, 1);
        let dues = Dues {
            node: at(1000),
            certificate: None,
        };
        for (asked, due) in [(0, 5), (7, 7), (3600, 10)] {
            schedule.lease_refused(at(0), Some(Duration::from_secs(asked)));
            assert_eq!(schedule.next(at(0), dues, || true), Next::Wait(at(due)));
        }
    }

    /// A thousand boards behind one power switch: within the hour their renewals come at
    /// all times of the interval, and the server sees no surges.
    #[test]
    fn boards_powered_on_together_spread_out() {
        const TENTHS: usize = 100;
        let mut busy = [0_u32; TENTHS];
        for seed in 0..1000_u64 {
            let mut schedule = Schedule::new(LAW, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut renewed = Mono::START;
            while renewed < Mono::START.after(Duration::from_secs(3600)) {
                schedule.lease_renewed(renewed);
                renewed = schedule.lease_due.unwrap_or_default();
            }
            let tenth = renewed.since(Mono::START).as_millis() / 100;
            let tenth = usize::try_from(tenth).unwrap_or_default() % TENTHS;
            busy[tenth] += 1;
        }
        // 10 is the mean of each tenth of a second, and 1000 what there was at first.
        let most = busy.iter().max().copied().unwrap_or_default();
        assert!(most < 50, "{busy:?}");
    }
}
