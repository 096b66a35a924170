//! Answers of the API server that are cached, and the addresses that sent invalid tokens; each
//! bounded.

use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use crate::kube::delay::TokenBucket;
use crate::kube::instant::Mono;
use crate::serve::access::User;

/// A keyed hash.
pub(super) type KeyedHash = [u8; 32];

/// Most valid tokens that are cached, and most invalid ones.
const MAX_TOKENS: usize = 16;
/// Most permissions that are cached.
const MAX_VERDICTS: usize = 32;
/// Most addresses with a bucket of their own.
const MAX_PEERS: usize = 8;
/// Reviews of unknown tokens from one address: four at once, and one a second.
const EVERY: Duration = Duration::from_secs(1);
const BURST: u32 = 4;

/// The tokens that were reviewed. Valid and invalid ones have a table each: no invalid token evicts
/// a valid one, and the valid ones, which are replaced each hour, take no place of an invalid one.
#[derive(Debug, Default)]
pub(super) struct TokenCache {
    valid: Vec<CachedToken>,
    invalid: Vec<CachedToken>,
}

#[derive(Debug)]
struct CachedToken {
    digest: KeyedHash,
    /// The review counts until then. A valid token stays in the table after it expires: its next
    /// review is not rate-limited.
    until: Mono,
    user: Option<Rc<User>>,
}

impl TokenCache {
    /// Until when the review of a token counts, and its user.
    pub(super) fn get(&self, digest: &KeyedHash) -> Option<(Mono, Option<&Rc<User>>)> {
        let mut known = self.valid.iter().chain(&self.invalid);
        let known = known.find(|known| known.digest == *digest)?;
        Some((known.until, known.user.as_ref()))
    }

    /// Stores the review of a token in place of its earlier one. If its table is full, evicts the
    /// token that was reviewed longest ago.
    pub(super) fn insert(&mut self, digest: KeyedHash, until: Mono, user: Option<Rc<User>>) {
        for table in [&mut self.valid, &mut self.invalid] {
            table.retain(|known| known.digest != digest);
        }
        let table = if user.is_some() { &mut self.valid } else { &mut self.invalid };
        table.push(CachedToken { digest, until, user });
        drop_first(table, MAX_TOKENS, |known| known.until);
    }
}

/// Drops the element with the smallest key of `order`, if there are more than `most` elements.
fn drop_first<T, K: Ord>(all: &mut Vec<T>, most: usize, order: impl Fn(&T) -> K) {
    let first = all.iter().enumerate().min_by_key(|(_, one)| order(one)).map(|(at, _)| at);
    if let Some(first) = first.filter(|_| all.len() > most) {
        all.swap_remove(first);
    }
}

/// Whether a user may do something, as the API server said. The whole user is compared, so no two
/// users share an answer.
#[derive(Debug, Default)]
pub(super) struct Verdicts(Vec<CachedVerdict>);

#[derive(Debug)]
struct CachedVerdict {
    user: User,
    verb: &'static str,
    subresource: &'static str,
    until: Mono,
    allowed: bool,
}

impl Verdicts {
    /// The answer, while it counts.
    pub(super) fn get(
        &self,
        user: &User,
        verb: &str,
        subresource: &str,
        now: Mono,
    ) -> Option<bool> {
        let known = self.0.iter().find(|known| {
            now < known.until
                && (known.verb, known.subresource) == (verb, subresource)
                && known.user == *user
        });
        known.map(|known| known.allowed)
    }

    /// Adds an answer. If the table is full, it evicts the answer that expires first.
    pub(super) fn insert(
        &mut self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
        until: Mono,
        allowed: bool,
    ) {
        // Makes room before the push: a new refusal may be the answer that expires first, and must
        // not be evicted at once.
        drop_first(&mut self.0, MAX_VERDICTS - 1, |known| known.until);
        self.0.push(CachedVerdict { user: user.clone(), verb, subresource, until, allowed });
    }
}

/// A bucket of reviews for each address that sent an invalid token a moment ago.
#[derive(Debug)]
pub(super) struct Buckets {
    peers: Vec<(IpAddr, TokenBucket)>,
    /// The shared bucket of all addresses beyond [`MAX_PEERS`].
    others: TokenBucket,
}

impl Default for Buckets {
    fn default() -> Self {
        Self { peers: Vec::new(), others: TokenBucket::new(EVERY, BURST) }
    }
}

impl Buckets {
    /// The bucket of an address: full, unless it sent invalid tokens.
    pub(super) fn of(&mut self, peer: IpAddr, now: Mono) -> &mut TokenBucket {
        let peer = network(peer);
        self.peers.retain(|(known, bucket)| *known == peer || bucket.tokens(now) < BURST);
        let is_new = self.peers.iter().all(|(known, _)| *known != peer);
        if is_new && self.peers.len() < MAX_PEERS {
            self.peers.push((peer, TokenBucket::new(EVERY, BURST)));
        }
        let found = self.peers.iter_mut().find(|(known, _)| *known == peer);
        found.map_or(&mut self.others, |(_, bucket)| bucket)
    }
}

/// An IPv6 address without its last 64 bits, because one machine can use all addresses of a /64.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Mono {
        Mono::START.after(Duration::from_secs(second))
    }

    fn digest(number: u8) -> KeyedHash {
        [number; 32]
    }

    /// The tokens of two scrapers are replaced each 48 minutes: after 7 hours there are 16 that
    /// were good, of which 14 are never used again.
    #[test]
    fn good_and_bad_tokens_take_no_place_of_each_other() {
        let mut tokens = TokenCache::default();
        let user = || Some(Rc::new(User::default()));
        for number in 0..16 {
            tokens.insert(digest(number), at(number.into()), user());
        }
        for number in 100..200 {
            tokens.insert(digest(number), at(number.into()), None);
        }
        assert!((0..16).all(|number| tokens.get(&digest(number)).is_some()));
        assert!((184..200).all(|number| tokens.get(&digest(number)).is_some()));
        assert_eq!(tokens.get(&digest(183)), None, "the oldest one");
        tokens.insert(digest(16), at(20), user());
        assert_eq!(tokens.get(&digest(0)), None, "the oldest one");
        assert!(tokens.get(&digest(1)).is_some());
        // One that was good and is bad now.
        tokens.insert(digest(16), at(300), None);
        assert_eq!(tokens.get(&digest(16)), Some((at(300), None)));
    }

    #[test]
    fn thirty_two_answers_are_kept() {
        let mut verdicts = Verdicts::default();
        let user = |number: u64| User { uid: number.to_string(), ..User::default() };
        for number in 0..=32 {
            verdicts.insert(&user(number), "get", "log", at(number), true);
        }
        let get = |verdicts: &Verdicts, number, second| {
            verdicts.get(&user(number), "get", "log", at(second))
        };
        assert_eq!((verdicts.0.len(), get(&verdicts, 0, 0)), (32, None));
        assert_eq!(get(&verdicts, 32, 31), Some(true));
        assert_eq!(verdicts.get(&user(32), "get", "stats", at(31)), None);
        assert_eq!(verdicts.get(&user(32), "create", "log", at(31)), None);
        assert_eq!(get(&verdicts, 32, 32), None, "it is over");
        // The new answer takes the place of an old one.
        verdicts.insert(&user(32), "get", "log", at(99), false);
        assert_eq!((verdicts.0.len(), get(&verdicts, 32, 32)), (32, Some(false)));
    }

    #[test]
    fn each_address_has_a_bucket_and_a_flood_of_them_shares_one() {
        let mut buckets = Buckets::default();
        let peer = |number: u8| IpAddr::from([10, 0, 0, number]);
        let drain = |buckets: &mut Buckets, peer: IpAddr| {
            for left in (0..BURST).rev() {
                buckets.of(peer, at(0)).take(at(0));
                assert_eq!(buckets.of(peer, at(0)).tokens(at(0)), left);
            }
        };
        drain(&mut buckets, peer(0));
        assert_eq!(buckets.of(peer(1), at(0)).tokens(at(0)), BURST);
        assert_eq!(buckets.peers.len(), 2);
        // A full one need not be kept.
        (1..8).for_each(|number| drain(&mut buckets, peer(number)));
        assert_eq!(buckets.peers.len(), MAX_PEERS);
        drain(&mut buckets, peer(8));
        assert_eq!(buckets.of(peer(9), at(0)).tokens(at(0)), 0);
        assert_eq!(buckets.of(peer(9), at(3)).tokens(at(3)), 3);
        assert_eq!(buckets.of(peer(0), at(9)).tokens(at(9)), BURST);
        assert_eq!(buckets.peers.len(), 1);
    }

    #[test]
    fn an_address_is_a_v4_address_or_a_64_of_v6() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network("10.0.0.1"), "10.0.0.1");
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(network("2001:db8:0:1:2:3:4:5"), "2001:db8:0:1::");
    }
}
