//! The credentials of a running board in a random world.

mod machine;
