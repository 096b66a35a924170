//! What outlives a connection: where it leads, how it is secured, which address answers.
//!
//! The address that answered last is used without a lookup. If it fails, the name is looked up
//! again. Addresses that have not failed are tried first, then those that failed, the oldest
//! failure first. For example, of the addresses A and B, A fails: B is used until B fails, and then
//! A again.
//!
//! A server that restarts refuses at once. So if the address that answered last refuses, it has a
//! second turn after the others, of which one that leads nowhere must not use up the time. Where an
//! address refused at once, the round ends early, and the next one asks that address again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::api_config::{ApiConfig, Endpoint, Proxy};
use super::dns::Resolver;
use super::dns::message::MAX_ADDRESSES;
use super::failure::{Distrust, Failure};
use super::socket::{Deadline, Peek, Socket, Stream};
use super::tls;
use crate::kube::text::Fault;

/// A lookup may take a half of the time that is left, or a quarter if a known address has not
/// failed yet. The rest is for the connection.
const LOOKUP_PART: u32 = 2;
const LOOKUP_PART_WHERE_KNOWN: u32 = 4;

/// Limit of TCP if another address follows that has not failed, or that has refused at once. The
/// kernel sends the second SYN after one second, so one lost packet is no failure.
pub(super) const NOT_THE_LAST: Duration = Duration::from_millis(2500);

/// Limit of TCP if another address has refused at once in this round, or follows and was left with
/// an open connection. Its server may be well again soon, so this address must not have all of the
/// time. A round trip of 3 s, as over NB-IoT, is within the limit.
const BESIDE_A_SERVER: Duration = Duration::from_secs(5);

/// Shared between `Api` and ureq's connector. ureq lends the connector as `&self` and wants it
/// `Sync`: that is the only reason for the lock, because there is one thread.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) endpoint: Endpoint,
    pub(super) proxy: Option<Proxy>,
    /// None for `http`.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// None: this machine's configuration, read for each lookup, because DHCP rewrites it.
    resolver: Option<Resolver>,
    /// The deadline of the current call.
    pub(super) deadline: Deadline,
    /// Bytes of the credentials in the head of a request.
    pub(super) credentials: Arc<AtomicUsize>,
    state: Mutex<RouteState>,
}

/// A connection over which nothing was sent yet: TCP, and TLS where the URL says so.
pub(super) type NewConnection = (Socket, Option<Box<ClientConnection>>);

#[derive(Debug, Default)]
struct RouteState {
    addresses: Addresses,
    /// The address to which the last attempt to connect opened a connection; none if it failed.
    peer: Option<SocketAddr>,
    /// Why the last attempt to connect could not verify the certificate of a server.
    distrust: Option<Distrust>,
    /// The first address in the last attempt to connect that took time, so that it did not refuse
    /// at once; none after an answer.
    first: Option<SocketAddr>,
    /// The stream of the last connection; gone as soon as ureq drops the connection.
    stream: Weak<Stream>,
    /// A connection that was opened before its request; ureq does not have it yet.
    early: Option<NewConnection>,
    /// Bound of an answer over a connection that the request had to open.
    answer_budget: Option<Duration>,
}

impl RouteState {
    /// Ends a round in which no server answered. The first address that took time becomes the last
    /// one of the next round. It got the largest share of the time, so each address gets that share
    /// once.
    fn end_round(&mut self) {
        if let Some(first) = self.first.take() {
            self.addresses.failed(first);
        }
    }
}

impl Route {
    pub(super) fn new(config: &ApiConfig) -> Result<Self, Fault> {
        let endpoint = config.endpoint.clone();
        let tls = if endpoint.tls {
            Some((tls::client_config(config)?, tls::server_name(config)?))
        } else {
            None
        };
        Ok(Self {
            endpoint,
            proxy: config.proxy.clone(),
            tls,
            resolver: config.resolver.clone(),
            deadline: Deadline::default(),
            credentials: Arc::default(),
            state: Mutex::default(),
        })
    }

    /// Copies from `old` what it knows of addresses, if server and proxy are the same.
    pub(super) fn keep_addresses_of(&self, old: &Self) {
        if self.endpoint == old.endpoint && self.proxy == old.proxy {
            let addresses = old.with(|state| state.addresses.clone());
            self.with(|state| state.addresses = addresses);
        }
    }

    /// Where TCP leads: the server, or its proxy.
    pub(super) fn first_hop(&self) -> &Endpoint {
        match &self.proxy {
            Some(proxy) => &proxy.endpoint,
            None => &self.endpoint,
        }
    }

    /// Adds the name of the proxy, if there is one, to a failure at the first hop.
    pub(super) fn at_first_hop(&self, failure: Failure) -> Failure {
        match &self.proxy {
            Some(proxy) => failure.via(proxy),
            None => failure,
        }
    }

    /// Calls `attempt` until a call opens a connection: first with the address that answered last,
    /// then with the other addresses. The second argument divides the time that is left: with 2,
    /// the attempt may take half of it. The third one limits TCP, for the sake of another address:
    /// [`NOT_THE_LAST`] or [`BESIDE_A_SERVER`]. After an outage of the network all addresses have
    /// failed and none has refused, so that a slow link has the whole share.
    pub(super) fn connect<T>(
        &self,
        mut attempt: impl FnMut(SocketAddr, usize, Duration) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let peer = self.with(|state| {
            (state.first, state.distrust) = (None, None);
            state.peer.take()
        });
        let hop = self.first_hop();
        let took_time = || self.with(|state| state.first.is_some());
        let is_before_fresh =
            |address| self.with(|state| state.addresses.has_fresh_beside(Some(address)));
        // Whether an address has refused at once in this round.
        let refused = Cell::new(false);
        let mut attempt = |address, shares, tcp| {
            let begun = self.deadline.passed();
            let opened = attempt(address, shares, tcp);
            let is_quick = self.deadline.passed().saturating_sub(begun) < NOT_THE_LAST;
            let has_refused = is_quick && opened.as_ref().is_err_and(|e| !e.has_timed_out());
            self.with(|state| {
                if has_refused {
                    refused.set(true);
                } else {
                    state.first.get_or_insert(address);
                }
                match &opened {
                    Ok(_) => {
                        state.peer = Some(address);
                        state.distrust = None;
                    }
                    Err(failure) => {
                        state.distrust = state.distrust.max(failure.distrust());
                        state.addresses.failed(address);
                    }
                }
            });
            opened
        };
        if let Some(ip) = hop.address() {
            return attempt(SocketAddr::new(ip, hop.port), 1, Duration::MAX);
        }
        let (mut failure, mut is_cut_off) = (None, false);
        let good = self.with(|state| state.addresses.good);
        // A server that could be reached and was left.
        let left = peer.filter(|peer| Some(*peer) != good);
        if let Some(good) = good {
            // Half of the time: a lookup and the addresses that it finds need the rest.
            let tcp = if is_before_fresh(good) { NOT_THE_LAST } else { Duration::MAX };
            match attempt(good, 2, tcp) {
                Ok(opened) => return Ok(opened),
                Err(e) => {
                    is_cut_off = e.has_no_connection_in_time();
                    failure = Some(e.at(good, self.proxy.is_some()));
                }
            }
        }
        let looked_up = self.look_up();
        let mut candidates = self.with(|state| state.addresses.candidates());
        let is_only = candidates.len() == 1 && candidates.first().copied() == good;
        if !is_only {
            candidates.retain(|address| Some(*address) != good);
        }
        let has_refused = refused.get() && !is_only;
        let count = candidates.len() + usize::from(has_refused);
        let mut round = VecDeque::from(candidates);
        // An address that had less time for the sake of those behind it has what they leave: they
        // may fail at once, as without a route.
        round.extend(good.filter(|_| has_refused || (is_cut_off && !is_only)));
        let mut tried = 0;
        while let Some(address) = round.pop_front() {
            if tried > 0 && self.deadline.left().is_err() {
                break;
            }
            // The first address gets half, or the first one that takes time. Equal shares, such as
            // an eighth for each of eight addresses, would be too short for each of them on a slow
            // network.
            let ahead = count.saturating_sub(tried).max(1);
            let shares = if tried == 0 || !took_time() { ahead.min(2) } else { ahead };
            tried += 1;
            let is_before = |it: Option<SocketAddr>| it.is_some_and(|it| round.contains(&it));
            let tcp = if is_before_fresh(address) || (has_refused && is_before(good)) {
                NOT_THE_LAST
            } else if refused.get() || is_before(left) {
                BESIDE_A_SERVER
            } else {
                Duration::MAX
            };
            match attempt(address, shares, tcp) {
                Ok(opened) => return Ok(opened),
                Err(e) => {
                    let has_more = tried < count && tcp != BESIDE_A_SERVER;
                    if has_more && e.has_no_connection_in_time() {
                        round.push_back(address);
                    }
                    failure = Some(e.at(address, self.proxy.is_some()));
                }
            }
        }
        self.with(RouteState::end_round);
        // If an address failed and the lookup, too, the failure of the address is reported. Without
        // a network there is often no DNS, and the failure of the lookup tells less.
        let lookup = || Failure::other(looked_up.err().unwrap_or_default());
        Err(failure.unwrap_or_else(|| self.at_first_hop(lookup())))
    }

    /// Looks the name up. Where that fails, the addresses of the last lookup stay.
    fn look_up(&self) -> Result<(), Fault> {
        let hop = self.first_hop();
        let left = || self.deadline.left().unwrap_or_default();
        let part = if self.with(|state| state.addresses.has_fresh_beside(None)) {
            LOOKUP_PART_WHERE_KNOWN
        } else {
            LOOKUP_PART
        };
        let kept = left() / part * (part - 1);
        let resolver = self.resolver.clone().unwrap_or_else(Resolver::system);
        let found = resolver
            .lookup(&hop.host, || left().saturating_sub(kept))
            .map_err(|fault| fault.at("name lookup failed"))?;
        let found = found.into_iter().map(|ip| SocketAddr::new(ip, hop.port));
        self.with(|state| state.addresses.found(found.collect()));
        Ok(())
    }

    /// The connection is open, TLS included.
    pub(super) fn opened(&self, stream: &Arc<Stream>) {
        self.with(|state| state.stream = Arc::downgrade(stream));
    }

    /// Keeps a connection for the next request.
    pub(super) fn set_early(&self, connection: NewConnection) {
        self.with(|state| state.early = Some(connection));
    }

    pub(super) fn take_early(&self) -> Option<NewConnection> {
        self.with(|state| state.early.take())
    }

    /// The server answered, neither with 429 nor with 5xx.
    pub(super) fn answered(&self) {
        self.with(|state| {
            if let Some(peer) = state.peer {
                state.addresses.answered(peer);
                // The round has ended. If this server fails later, only this address has failed,
                // and not the address that this round tried first.
                state.first = None;
            }
        });
    }

    /// The server of the last connection cannot be used: the next connection leads to another
    /// address, if there is one.
    pub(super) fn failed(&self) {
        self.with(|state| {
            state.stream = Weak::new();
            state.early = None;
            if let Some(peer) = state.peer {
                state.addresses.failed(peer);
                state.end_round();
            }
        });
    }

    /// Whether the name has an address besides the one in use.
    pub(super) fn has_other_address(&self) -> bool {
        self.with(|state| state.peer.is_some_and(|peer| state.addresses.has_other_than(peer)))
    }

    /// Bounds each answer over a connection that its call opens. `None`: no bound.
    pub(super) fn set_answer_budget(&self, budget: Option<Duration>) {
        self.with(|state| state.answer_budget = budget);
    }

    /// A connection was opened for the current call: the budget of the answer begins.
    pub(super) fn shorten_answer(&self) {
        if let Some(budget) = self.with(|state| state.answer_budget) {
            self.deadline.shorten(budget);
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        let stream = self.with(|state| state.stream.upgrade());
        // Bytes that no request asked for mostly are the server's close_notify.
        stream.is_some_and(|stream| matches!(stream.peek(), Peek::Nothing))
    }

    /// Whether the last attempt to connect succeeded, TLS included.
    pub(super) fn was_connected(&self) -> bool {
        self.with(|state| state.peer.is_some())
    }

    /// Why the last attempt to connect could not verify the server's certificate, if that failed.
    pub(super) fn distrust(&self) -> Option<Distrust> {
        self.with(|state| state.distrust)
    }

    fn with<T>(&self, look: impl FnOnce(&mut RouteState) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Most failed addresses that are remembered: as many as a name may have. An address whose failure
/// is forgotten is tried before all that are remembered to have failed. So with a shorter list,
/// some addresses would never be the first.
const MAX_FAILED: usize = MAX_ADDRESSES;

/// What is known of the addresses of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Addresses {
    /// The address that answered last and has not failed since.
    good: Option<SocketAddr>,
    /// From the last lookup that found any, in the order of the name server.
    known: Vec<SocketAddr>,
    /// Failed since they last answered; the oldest failure first.
    failed: Vec<SocketAddr>,
}

impl Addresses {
    /// A server in good health answered at `address`.
    fn answered(&mut self, address: SocketAddr) {
        self.failed.retain(|failed| *failed != address);
        self.good = Some(address);
        debug_assert!(!self.failed.contains(&address), "{self:?}");
    }

    /// The server at `address` could not be used.
    fn failed(&mut self, address: SocketAddr) {
        self.failed.retain(|failed| *failed != address);
        self.failed.push(address);
        if self.failed.len() > MAX_FAILED {
            self.failed.remove(0);
        }
        if self.good == Some(address) {
            self.good = None;
        }
        debug_assert!(self.failed.len() <= MAX_FAILED, "{self:?}");
        debug_assert!(self.good.is_none_or(|good| !self.failed.contains(&good)), "{self:?}");
    }

    /// Takes the result of a lookup.
    fn found(&mut self, addresses: Vec<SocketAddr>) {
        self.known.clear();
        for address in addresses {
            if !self.known.contains(&address) {
                self.known.push(address);
            }
        }
    }

    /// Every known address, in the order in which to try them.
    fn candidates(&self) -> Vec<SocketAddr> {
        let failure = |address: &SocketAddr| {
            let index = self.failed.iter().position(|failed| failed == address);
            index.map_or(0, |index| index + 1)
        };
        let mut candidates = self.known.clone();
        candidates.sort_by_key(failure);
        debug_assert!(candidates.len() <= MAX_ADDRESSES, "{candidates:?}");
        candidates
    }

    /// Whether an address besides `address` has not failed since it last answered.
    fn has_fresh_beside(&self, address: Option<SocketAddr>) -> bool {
        let is_fresh = |it: &SocketAddr| Some(*it) != address && !self.failed.contains(it);
        self.known.iter().any(is_fresh)
    }

    /// Whether there is an address besides `address`.
    fn has_other_than(&self, address: SocketAddr) -> bool {
        self.known.iter().any(|known| *known != address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::client::failure::AT_PROXY;
    use crate::client::failure::Stage;
    use crate::os::tree::Tree;

    /// A route to `api.test`, which a hosts file gives `addresses`.
    fn route(tree: &Tree, addresses: &[IpAddr]) -> Route {
        let lines = addresses.iter().map(|ip| format!("{ip} api.test\n"));
        tree.write("hosts", lines.collect::<String>().as_bytes());
        let mut config = ApiConfig::of("http://api.test:6443").unwrap();
        config.resolver = Some(Resolver {
            servers: Vec::new(),
            ..Resolver::parse("", tree.path().join("hosts"))
        });
        Route::new(&config).unwrap()
    }

    fn ip(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// The addresses that are tried while those in `sick` fail, and whether one was opened.
    fn tried(route: &Route, sick: &[IpAddr]) -> (Vec<IpAddr>, Result<(), String>) {
        route.deadline.begin(Duration::from_secs(2));
        let mut tried = Vec::new();
        let opened = route.connect(|address, _, _| {
            tried.push(address.ip());
            if sick.contains(&address.ip()) {
                Err(Failure::TimedOut(Stage::Handshake))
            } else {
                Ok(())
            }
        });
        (tried, opened.map_err(|e| e.to_string()))
    }

    #[test]
    fn a_sick_address_is_left_in_the_same_call_and_tried_last_from_then_on() {
        let tree = Tree::new("route-sick");
        let route = route(&tree, &[ip(1), ip(2), ip(3)]);
        assert_eq!(tried(&route, &[ip(1)]), (vec![ip(1), ip(2)], Ok(())));
        // The second one accepts, but never answers: it is not good yet.
        route.failed();
        assert_eq!(tried(&route, &[]), (vec![ip(3)], Ok(())));
        route.answered();
        assert_eq!(tried(&route, &[]), (vec![ip(3)], Ok(())));
        // It dies: the first one of the round without an answer is the last one now.
        let (order, opened) = tried(&route, &[ip(3), ip(2)]);
        assert_eq!((order, opened), (vec![ip(3), ip(2), ip(1)], Ok(())));
        assert!(route.was_connected() && route.has_other_address());
        let (order, opened) = tried(&route, &[ip(1), ip(2), ip(3)]);
        assert_eq!(order.len(), 3);
        assert_eq!(opened, Err("timed out while setting up TLS".to_owned()));
        assert!(!route.was_connected());
    }

    /// A and AAAA of a name, round trips of 3 s, and no route for IPv6.
    #[test]
    fn an_address_that_was_cut_off_has_the_time_that_the_others_leave() {
        let tree = Tree::new("route-again");
        let slow = route(&tree, &[ip(1), ip(2)]);
        let tried = |refuses: IpAddr| {
            let mut tried = Vec::new();
            slow.deadline.begin(Duration::from_secs(60));
            let opened = slow.connect(|address, _, tcp| {
                tried.push(address.ip());
                match address.ip() {
                    it if it == refuses => Err(Failure::other("unreachable")),
                    _ if tcp < Duration::from_secs(3) => Err(Failure::TimedOut(Stage::Connecting)),
                    _ => Ok(()),
                }
            });
            assert_eq!(opened.ok(), Some(()));
            tried
        };
        assert_eq!(tried(ip(2)), [ip(1), ip(2), ip(1)]);
        slow.answered();
        // It was good, and another address has come up that does not work.
        tree.write("hosts", b"10.0.0.1 api.test\n10.0.0.3 api.test\n");
        slow.with(|state| state.addresses.found(vec![SocketAddr::new(ip(3), 6443)]));
        assert_eq!(tried(ip(3)), [ip(1), ip(3), ip(1)]);
        // An only address has the whole round.
        let alone = route(&tree, &[ip(1)]);
        alone.deadline.begin(Duration::from_secs(60));
        assert_eq!(alone.connect(|_, _, _| Ok(())).ok(), Some(()));
        alone.answered();
        let mut calls = 0;
        let opened: Result<(), _> = alone.connect(|_, _, _| {
            calls += 1;
            let is_first = calls == 1;
            Err(if is_first { Failure::TimedOut(Stage::Connecting) } else { Failure::other("no") })
        });
        assert_eq!((opened.is_err(), calls), (true, 2));
    }

    /// On a link with round trips of 3 s, a limit of TCP for the next address ends each attempt.
    #[test]
    fn only_an_address_that_has_not_failed_limits_the_time_of_the_one_before_it() {
        let limited = |route: &Route| {
            let mut limited = Vec::new();
            route.deadline.begin(Duration::from_secs(60));
            let opened = route.connect(|_, _, tcp| {
                let is_limited = tcp < Duration::from_secs(3);
                limited.push(is_limited);
                if is_limited { Err(Failure::TimedOut(Stage::Connecting)) } else { Ok(()) }
            });
            assert_eq!(opened.ok(), Some(()));
            limited
        };
        let tree = Tree::new("route-followed");
        let alone = route(&tree, &[ip(1)]);
        assert_eq!(tried(&alone, &[]), (vec![ip(1)], Ok(())));
        alone.answered();
        assert_eq!(limited(&alone), [false]);
        let route = route(&tree, &[ip(1), ip(2), ip(3)]);
        assert_eq!(tried(&route, &[]), (vec![ip(1)], Ok(())));
        route.answered();
        assert_eq!(limited(&route), [true, true, false]);
        route.answered();
        // The others have failed: the good one has its half.
        assert_eq!(limited(&route), [false]);
        let all = [ip(1), ip(2), ip(3)];
        assert!(tried(&route, &all).1.is_err());
        assert_eq!(limited(&route), [false]);
    }

    /// A and AAAA of a name, and IPv6 leads nowhere.
    #[test]
    fn a_server_that_restarts_is_not_left_for_an_address_that_leads_nowhere() {
        let tree = Tree::new("route-restarts");
        let route = route(&tree, &[ip(1), ip(2)]);
        let round = |refusals: usize| {
            route.deadline.begin(Duration::from_secs(20));
            let (mut tried, mut refused) = (Vec::new(), 0);
            let opened = route.connect(|address, shares, tcp| {
                tried.push((address.ip(), shares, tcp));
                match address.ip() {
                    it if it != ip(1) => Err(Failure::TimedOut(Stage::Connecting)),
                    _ if refused < refusals => {
                        refused += 1;
                        Err(Failure::other("connection refused"))
                    }
                    _ => Ok(()),
                }
            });
            (tried, opened.is_ok())
        };
        let all = Duration::MAX;
        let (other, second) = ((ip(2), 2, NOT_THE_LAST), (ip(1), 1, BESIDE_A_SERVER));
        assert_eq!(round(0), (vec![(ip(1), 2, NOT_THE_LAST)], true));
        route.answered();
        for limit in [NOT_THE_LAST, all] {
            // Away for a second: the other address has 2.5 s.
            let first = (ip(1), 2, limit);
            assert_eq!(round(1), (vec![first, other, second], true));
            route.answered();
        }
        // Away for longer: the other address has 5 s more, and then the next round asks both.
        let (first, rest) = ((ip(1), 2, all), (ip(2), 1, BESIDE_A_SERVER));
        assert_eq!(round(2), (vec![first, other, second, rest], false));
        assert_eq!(round(1), (vec![first, rest], false));
        assert_eq!(round(1), (vec![first, rest], false));
        assert_eq!(round(0), (vec![first], true));
        // It answers with 5xx and is left: the other address does not have half of the time.
        route.failed();
        let other = (ip(2), 2, BESIDE_A_SERVER);
        assert_eq!(round(0), (vec![other, (ip(1), 1, all)], true));
    }

    /// The IPv6 address of a board is there before the IPv4 one.
    #[test]
    fn an_address_without_a_route_yet_is_tried_again_soon() {
        let tree = Tree::new("route-none-yet");
        let route = route(&tree, &[ip(1), ip(2)]);
        route.deadline.begin(Duration::from_secs(20));
        let mut limits = Vec::new();
        let opened: Result<(), _> = route.connect(|address, _, tcp| {
            limits.push(tcp);
            Err(match address.ip() {
                it if it == ip(1) => Failure::other("unreachable"),
                _ => Failure::TimedOut(Stage::Connecting),
            })
        });
        assert!(opened.is_err());
        assert_eq!(limits, [NOT_THE_LAST, BESIDE_A_SERVER]);
    }

    #[test]
    fn the_first_address_that_takes_time_gets_half_of_it() {
        let tree = Tree::new("route-half");
        let all: Vec<IpAddr> = (1..=4).map(ip).collect();
        let route = route(&tree, &all);
        for slow in [2, 3, 4, 2] {
            route.deadline.begin(Duration::from_secs(20));
            let mut half = None;
            let opened: Result<(), _> = route.connect(|address, shares, _| {
                if address.ip() == ip(1) {
                    return Err(Failure::other("connection refused"));
                }
                half.get_or_insert((address.ip(), shares));
                Err(Failure::TimedOut(Stage::Handshake))
            });
            assert!(opened.is_err());
            assert_eq!(half, Some((ip(slow), 2)));
        }
    }

    /// With a slow network only the first address of a round has enough time: each must come first.
    #[test]
    fn every_address_is_the_first_of_a_round_in_its_turn() {
        let tree = Tree::new("route-rounds");
        for count in [5, 20] {
            let all: Vec<IpAddr> = (1..=count).map(ip).collect();
            for healthy in &all {
                let route = route(&tree, &all);
                route.deadline.begin(Duration::from_secs(60));
                let mut rounds = 0;
                loop {
                    rounds += 1;
                    assert!(rounds <= count, "{healthy} is never the first");
                    let mut is_first = true;
                    let opened = route.connect(|address, _, _| {
                        let is_slow = !std::mem::take(&mut is_first);
                        if address.ip() == *healthy && !is_slow {
                            Ok(())
                        } else {
                            Err(Failure::TimedOut(Stage::Handshake))
                        }
                    });
                    if opened.is_ok() {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_that_answered_is_left_for_one_that_failed_before_it() {
        let tree = Tree::new("route-left");
        let route = route(&tree, &[ip(1), ip(2)]);
        assert_eq!(tried(&route, &[ip(1)]), (vec![ip(1), ip(2)], Ok(())));
        route.answered();
        route.failed();
        assert_eq!(tried(&route, &[]), (vec![ip(1)], Ok(())));
    }

    #[test]
    fn a_name_is_looked_up_after_a_failure_and_not_before() {
        let tree = Tree::new("route-lookup");
        let route = route(&tree, &[ip(1)]);
        assert_eq!(tried(&route, &[]), (vec![ip(1)], Ok(())));
        route.answered();
        tree.write("hosts", b"10.0.0.2 api.test\n");
        assert_eq!(tried(&route, &[]), (vec![ip(1)], Ok(())));
        assert_eq!(tried(&route, &[ip(1)]), (vec![ip(1), ip(2)], Ok(())));
        route.answered();
        // No lookup succeeds any more: the address of the last one is used.
        tree.write("hosts", b"");
        route.failed();
        assert_eq!(tried(&route, &[]), (vec![ip(2)], Ok(())));
    }

    #[test]
    fn a_name_without_an_address_tells_why() {
        let tree = Tree::new("route-none");
        let (order, opened) = tried(&route(&tree, &[]), &[]);
        assert_eq!(order, [] as [IpAddr; 0]);
        let why = opened.unwrap_err();
        assert!(why.contains("no usable name server in resolv.conf; is the name right"), "{why}");
    }

    #[test]
    fn a_proxy_on_this_board_is_named_without_the_remedy_of_a_server_on_it() {
        let tree = Tree::new("route-proxy");
        tree.write("hosts", b"127.0.0.1 localhost\n");
        let mut config = ApiConfig::of("http://api.test:6443").unwrap();
        let proxy = Proxy::parse("http://localhost:3128").unwrap();
        config.resolver = Some(Resolver::parse("", tree.path().join("hosts")));
        config.proxy = Some(proxy.clone());
        let route = Route::new(&config).unwrap();
        route.deadline.begin(Duration::from_secs(2));
        let refused = |_, _, _| Err::<(), _>(Failure::other("it answered 503").via(&proxy));
        let why = route.connect(refused).unwrap_err().to_string();
        let want = "proxy http://localhost:3128: it answered 503 (at 127.0.0.1:3128)";
        assert_eq!(why, format!("{want}; {AT_PROXY}"));
    }

    #[test]
    fn another_identity_keeps_the_addresses_of_the_same_server_alone() {
        let tree = Tree::new("route-keep");
        let old = route(&tree, &[ip(1), ip(2)]);
        assert!(tried(&old, &[ip(1)]).1.is_ok());
        old.answered();
        let new = route(&tree, &[ip(1), ip(2)]);
        new.keep_addresses_of(&old);
        assert_eq!(tried(&new, &[]).0, [ip(2)]);
        let other = ApiConfig::of("http://other.test:6443").unwrap();
        let other = Route::new(&other).unwrap();
        other.keep_addresses_of(&old);
        assert_eq!(other.with(|state| state.addresses.good), None);
    }

    fn address(number: u8) -> SocketAddr {
        match number % 2 {
            0 => SocketAddr::from(([10, 0, 0, number], 6443)),
            _ => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)], 6443)),
        }
    }

    fn known(numbers: &[u8]) -> Addresses {
        let mut addresses = Addresses::default();
        addresses.found(numbers.iter().map(|number| address(*number)).collect());
        addresses
    }

    #[test]
    fn another_lookup_replaces_the_addresses_and_keeps_the_failures() {
        let mut addresses = known(&[1, 2]);
        addresses.failed(address(1));
        addresses.found([1, 4].map(address).to_vec());
        assert_eq!(addresses.candidates(), [4, 1].map(address));
        addresses.answered(address(1));
        assert_eq!(addresses.candidates(), [1, 4].map(address));
        assert!(addresses.has_other_than(address(1)));
        assert!(!known(&[1]).has_other_than(address(1)));
        for number in 0..100 {
            addresses.failed(address(number));
        }
        assert_eq!(addresses.failed.len(), MAX_FAILED);
    }

    proptest! {
        /// From every state, with at least one healthy address among those of the name, as many
        /// tries as there are addresses reach a healthy one.
        #[test]
        fn a_healthy_address_is_reached(
            history in prop::collection::vec((0..3_u8, 0..6_u8), 0..200),
            names in prop::collection::btree_set(0..6_u8, 1..6),
            healthy in 0..6_usize,
        ) {
            let mut addresses = Addresses::default();
            for (what, number) in history {
                match what {
                    0 => addresses.answered(address(number)),
                    1 => addresses.failed(address(number)),
                    _ => addresses.found(vec![address(number), address(number + 1)]),
                }
            }
            let names: Vec<_> = names.into_iter().map(address).collect();
            let healthy = names[healthy % names.len()];
            // The one that was good may be sick by now: one try more.
            for _ in 0..=names.len() {
                let next = match addresses.good {
                    Some(good) => good,
                    None => {
                        addresses.found(names.clone());
                        addresses.candidates()[0]
                    }
                };
                if next == healthy { addresses.answered(next) } else { addresses.failed(next) }
            }
            prop_assert_eq!(addresses.good, Some(healthy));
        }
    }
}
