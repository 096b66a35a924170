//! Where the API server is, and how both sides prove themselves: client-go's `rest.Config`.

use std::fmt;
use std::path::PathBuf;

use zeroize::Zeroize;

use super::authorization::Authorization;
use super::dns::Resolver;
use super::endpoint::Endpoint;
use super::proxy::Proxy;

/// The API server's URL and CA, and our credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// `server`.
    pub endpoint: Endpoint,
    /// `proxy-url`.
    pub proxy: Option<Proxy>,
    /// `certificate-authority`; none means the system's roots.
    pub ca: Option<Pem>,
    /// `insecure-skip-tls-verify`: the server's certificate is not verified.
    pub insecure: bool,
    /// `tls-server-name`: expected in the server's certificate instead of the host.
    pub tls_server_name: Option<String>,
    /// `client-certificate` and `client-key`.
    pub certificate: Option<ClientCertificate>,
    /// The header `Authorization`.
    pub authorization: Option<Authorization>,
    /// Who looks the server's name up; `None` is this machine's own configuration.
    pub resolver: Option<Resolver>,
}

impl ApiConfig {
    /// [`ApiConfig::at`] a URL.
    #[cfg(test)]
    pub(crate) fn of(server: &str) -> Result<Self, String> {
        Endpoint::parse(server).map(Self::at)
    }

    /// The server at `endpoint` without credentials, verified with the system's roots.
    pub(crate) fn at(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            proxy: None,
            ca: None,
            insecure: false,
            tls_server_name: None,
            certificate: None,
            authorization: None,
            resolver: None,
        }
    }
}

/// A client certificate with its intermediates, and its key. Both may be one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate first, then intermediates.
    pub chain: Pem,
    /// The private key.
    pub key: Pem,
}

/// PEM text, not parsed yet. It may hold a private key: `{:?}` hides it, and its memory is zeroed
/// when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The file that it was read from; none for `...-data`.
    pub file: Option<PathBuf>,
    /// The file, or the name of the field, for messages.
    pub source: String,
    /// The text.
    pub bytes: Vec<u8>,
}

impl Drop for Pem {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.source)
    }
}
