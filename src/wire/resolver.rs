//! The resolver for ureq, which finds nothing.
//!
//! ureq asks its resolver before every request, even over a kept connection, and its own resolver
//! starts a thread each time. `link` looks names up instead, when it connects.

use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Finds no address; the connector needs none.
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
