//! What the tests of other rooms use.

pub(crate) mod power_cut;
pub(crate) mod tree;
