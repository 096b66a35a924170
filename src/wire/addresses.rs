//! Which address of a server's name to connect to next.
//!
//! The address that answered last is used without a lookup. After a failure the name is looked up
//! again, and addresses that failed come after the others, the oldest failure first. So a server
//! that fails is left for the next one, and is tried again when that one fails.

use std::net::SocketAddr;

/// Most failed addresses that are remembered; a lookup gives eight at most.
const MAX_FAILED: usize = 16;

/// What is known of the addresses of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    good: Option<SocketAddr>,
    /// From the last lookup that found any, in the order of the name server.
    known: Vec<SocketAddr>,
    /// Failed since they last answered; the oldest failure first.
    failed: Vec<SocketAddr>,
}

impl Addresses {
    /// The address that answered last and has not failed since.
    pub(super) fn good(&self) -> Option<SocketAddr> {
        self.good
    }

    /// A server in good health answered at `address`.
    pub(super) fn answered(&mut self, address: SocketAddr) {
        self.failed.retain(|failed| *failed != address);
        self.good = Some(address);
    }

    /// The server at `address` could not be used.
    pub(super) fn failed(&mut self, address: SocketAddr) {
        self.failed.retain(|failed| *failed != address);
        self.failed.push(address);
        if self.failed.len() > MAX_FAILED {
            self.failed.remove(0);
        }
        if self.good == Some(address) {
            self.good = None;
        }
    }

    /// Takes the result of a lookup.
    pub(super) fn found(&mut self, addresses: Vec<SocketAddr>) {
        self.known.clear();
        for address in addresses {
            if !self.known.contains(&address) {
                self.known.push(address);
            }
        }
    }

    /// Every known address, in the order in which to try them.
    pub(super) fn candidates(&self) -> Vec<SocketAddr> {
        let failure = |address: &SocketAddr| {
            let index = self.failed.iter().position(|failed| failed == address);
            index.map_or(0, |index| index + 1)
        };
        let mut candidates = self.known.clone();
        candidates.sort_by_key(failure);
        candidates
    }

    /// Whether there is an address besides `address`.
    pub(super) fn has_other_than(&self, address: SocketAddr) -> bool {
        self.known.iter().any(|known| *known != address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    fn failed_addresses_come_last_and_the_oldest_failure_first() {
        let mut addresses = known(&[1, 2, 3]);
        let order = |addresses: &Addresses| addresses.candidates();
        assert_eq!(order(&addresses), [1, 2, 3].map(address));
        addresses.failed(address(1));
        assert_eq!(order(&addresses), [2, 3, 1].map(address));
        addresses.failed(address(2));
        addresses.answered(address(3));
        assert_eq!(addresses.good(), Some(address(3)));
        addresses.failed(address(3));
        assert_eq!(addresses.good(), None);
        assert_eq!(order(&addresses), [1, 2, 3].map(address));
        addresses.failed(address(1));
        assert_eq!(order(&addresses), [2, 3, 1].map(address));
    }

    #[test]
    fn another_lookup_replaces_the_addresses_and_keeps_the_failures() {
        let mut addresses = known(&[1, 2]);
        addresses.failed(address(1));
        addresses.found([1, 4].map(address).to_vec());
        assert_eq!(addresses.candidates(), [4, 1].map(address));
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
                let next = match addresses.good() {
                    Some(good) => good,
                    None => {
                        addresses.found(names.clone());
                        addresses.candidates()[0]
                    }
                };
                match next == healthy {
                    true => addresses.answered(next),
                    false => addresses.failed(next),
                }
            }
            prop_assert_eq!(addresses.good(), Some(healthy));
        }
    }
}
