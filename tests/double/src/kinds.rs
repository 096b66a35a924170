//! The kinds that the double knows.

use crate::status::Subject;

/// A kind, and how it is served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) subresources: &'static [&'static str],
}

pub(crate) static NODE: Kind = Kind::new("", "nodes", "Node", false, &["status"]);
pub(crate) static EVENT: Kind = Kind::new("", "events", "Event", true, &[]);
pub(crate) static POD: Kind = Kind::new("", "pods", "Pod", true, &["status"]);
pub(crate) static LEASE: Kind = Kind::new("coordination.k8s.io", "leases", "Lease", true, &[]);
pub(crate) static CSR: Kind = Kind::new(
    "certificates.k8s.io",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    false,
    &["status", "approval"],
);
/// Questions. They are only created, and not stored.
pub(crate) static REVIEWS: [Kind; 3] = [
    Kind::new("authentication.k8s.io", "tokenreviews", "TokenReview", false, &[]),
    Kind::new(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview", false, &[]),
    Kind::new(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview", false, &[]),
];
const AUTHORIZATION: &str = "authorization.k8s.io";

impl Kind {
    const fn new(
        group: &'static str,
        resource: &'static str,
        kind: &'static str,
        namespaced: bool,
        subresources: &'static [&'static str],
    ) -> Self {
        Self { group, resource, kind, namespaced, subresources }
    }

    pub(crate) fn find(group: &str, version: &str, resource: &str) -> Option<&'static Self> {
        [&NODE, &EVENT, &POD, &LEASE, &CSR]
            .into_iter()
            .chain(&REVIEWS)
            .find(|k| version == "v1" && k.group == group && k.resource == resource)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) }
    }

    pub(crate) fn about<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { group: self.group, resource: self.resource, name }
    }
}
