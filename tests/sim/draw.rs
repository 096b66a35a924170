//! Draws without state: a number depends on the seed, a word and a key alone. So what one class
//! draws does not depend on the others, and a plan without a class moves nothing else.

/// SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The number that `seed` gives `word` for `key`.
pub(crate) fn draw(seed: u64, word: &str, key: u64) -> u64 {
    let word = word.bytes().fold(mix(seed), |state, byte| mix(state ^ u64::from(byte)));
    mix(word ^ key)
}

/// A sequence of draws for one word.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    seed: u64,
    word: &'static str,
    key: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64, word: &'static str) -> Self {
        Self { seed, word, key: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.key += 1;
        draw(self.seed, self.word, self.key)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// From `low` to `high`, both included.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        let index = self.below(all.len() as u64);
        all[usize::try_from(index).expect("an index")].clone()
    }
}
