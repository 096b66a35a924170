//! The header `Authorization`: a bearer token, or a user name and password.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ureq::http::HeaderValue;

use super::secret::Secret;

/// Credentials sent with every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// A bearer token.
    Bearer {
        /// Without surrounding white space.
        token: Secret,
        /// `tokenFile`, which `identity` watches for changes.
        file: Option<PathBuf>,
    },
    /// A user name and password.
    Basic {
        /// Without a colon.
        username: String,
        /// May be empty.
        password: Secret,
    },
}

impl Authorization {
    /// The value of the header `Authorization`: a secret.
    pub fn header(&self) -> String {
        match self {
            Self::Bearer { token, .. } => format!("Bearer {}", token.reveal()),
            Self::Basic { username, password } => {
                let pair = format!("{username}:{}", password.reveal());
                format!("Basic {}", STANDARD.encode(pair))
            }
        }
    }

    /// The same for ureq, marked sensitive: `{:?}` does not print it.
    pub(super) fn header_value(&self) -> Result<HeaderValue, String> {
        let mut value = HeaderValue::try_from(self.header())
            .map_err(|_| "the token has a control character in it")?;
        value.set_sensitive(true);
        Ok(value)
    }
}
