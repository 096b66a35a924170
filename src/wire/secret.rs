//! Secret text that is never printed.

use std::fmt;

use zeroize::Zeroize;

/// A bearer token or a password: `{:?}` hides it, and its memory is zeroed when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
