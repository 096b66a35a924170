//! Random bytes: those of the system, or a sequence that a seed repeats.

use crate::pki;
use ring::rand::{self, SystemRandom};
use std::cell::Cell;

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Starts the sequence of this seed on this thread; `None` is the system's random bytes. Keys and
/// signatures are the system's always.
pub fn set_seed(seed: Option<u64>) {
    STATE.set(seed);
}

pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let Some(mut state) = STATE.get() else {
        return rand::generate(&SystemRandom::new()).expect("the system has random bytes").expose();
    };
    let mut bytes = [0; N];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&split_mix(&mut state).to_le_bytes()[..part.len()]);
    }
    STATE.set(Some(state));
    bytes
}

/// SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A random UUID, as text.
pub(crate) fn uuid() -> String {
    let mut b = bytes::<16>();
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let hex = pki::hex(&b);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
