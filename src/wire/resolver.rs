//! Which addresses to connect to, and in which order.
//!
//! ureq asks its resolver before every request, even over a kept connection, and its
//! own resolver starts a thread each time. So ureq gets one that answers nothing, and
//! the connector asks here: an address needs no DNS, the last good one is tried first,
//! and a lookup, in our thread, happens only when that one failed.

use std::net::SocketAddr;
use std::time::Duration;

use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::wire::dns;
use crate::wire::endpoint::Endpoint;

/// The resolver for ureq: it is asked too early and too often to answer.
#[derive(Debug)]
pub(super) struct NoLookup;

impl Resolver for NoLookup {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

/// How the address used last turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastUsed {
    /// TCP and TLS worked: tried first, without a lookup.
    Good(SocketAddr),
    /// It accepted TCP but nothing more: tried last, after a lookup.
    Bad(SocketAddr),
}

/// Addresses of `endpoint` after a lookup, the one in `last` at the end. `left` is what
/// is left of the call's budget.
pub(super) fn lookup(
    resolver: &dns::Resolver,
    endpoint: &Endpoint,
    last: Option<LastUsed>,
    left: impl Fn() -> Duration,
) -> Result<Vec<SocketAddr>, String> {
    let found = resolver
        .lookup(&endpoint.host, left)
        .map_err(|why| format!("name lookup failed: {why}"))?;
    let mut addresses: Vec<SocketAddr> = found
        .into_iter()
        .map(|address| SocketAddr::new(address, endpoint.port))
        .collect();
    addresses.dedup();
    if let Some(LastUsed::Good(last) | LastUsed::Bad(last)) = last {
        addresses.sort_by_key(|address| *address == last);
    }
    Ok(addresses)
}
