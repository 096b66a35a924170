//! The TLS configuration of the port.

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};

use super::client_ca::ClientCa;
use crate::kube::text::Fault;
use crate::wire::api_config::ClientCertificate;
use crate::wire::provider::provider;
use crate::wire::tls::certified;

/// The configuration with a serving certificate.
pub(super) fn server_config(
    certificate: &ClientCertificate,
    ca: &ClientCa,
    only_tls13: bool,
) -> Result<Arc<ServerConfig>, Fault> {
    let provider = Arc::new(provider());
    let certified = certified(certificate, &provider)?;
    let versions: &[&SupportedProtocolVersion] =
        if only_tls13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|e| format!("tls: {e}"))?
        .with_client_cert_verifier(Arc::new(ca.any_client()))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Nothing is kept for a client that is gone.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
