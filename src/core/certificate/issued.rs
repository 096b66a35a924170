//! Whether an issued certificate can be used.

use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};

/// Whether the first certificate of the chain has our key and subject and is valid, or why not.
pub(super) fn usable(request: &SigningRequest, chain: &str, now: Wall) -> Result<(), String> {
    let leaf = Leaf::of_pem(chain.as_bytes()).ok_or("it is not X.509")?;
    if leaf.public_key != request.wanted.public_key {
        return Err("it is for another key".to_owned());
    }
    if !satisfies(&leaf, &request.wanted.subject) {
        let name = leaf.subject.common_name;
        return Err(format!("it is for {name:?}"));
    }
    if leaf.not_after < now {
        let until = leaf.not_after.time();
        return Err(format!("it expired at {until}, clock says {}", now.time()));
    }
    Ok(())
}

/// client-go's certSatisfiesTemplate: additional organizations are accepted.
pub(super) fn satisfies(leaf: &Leaf, subject: &Subject) -> bool {
    let is = &leaf.subject;
    let has = |organization| is.organizations.contains(organization);
    is.common_name == subject.common_name && subject.organizations.iter().all(has)
}
