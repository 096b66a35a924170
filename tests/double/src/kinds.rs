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

pub(crate) static NODE: Kind = Kind {
    group: "",
    resource: "nodes",
    kind: "Node",
    namespaced: false,
    subresources: &["status"],
};
pub(crate) static EVENT: Kind =
    Kind { group: "", resource: "events", kind: "Event", namespaced: true, subresources: &[] };
pub(crate) static POD: Kind =
    Kind { group: "", resource: "pods", kind: "Pod", namespaced: true, subresources: &["status"] };
pub(crate) static LEASE: Kind = Kind {
    group: "coordination.k8s.io",
    resource: "leases",
    kind: "Lease",
    namespaced: true,
    subresources: &[],
};
pub(crate) static CSR: Kind = Kind {
    group: "certificates.k8s.io",
    resource: "certificatesigningrequests",
    kind: "CertificateSigningRequest",
    namespaced: false,
    subresources: &["status", "approval"],
};

impl Kind {
    pub(crate) fn find(group: &str, version: &str, resource: &str) -> Option<&'static Self> {
        [&NODE, &EVENT, &POD, &LEASE, &CSR]
            .into_iter()
            .find(|k| version == "v1" && k.group == group && k.resource == resource)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) }
    }

    pub(crate) fn about<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { group: self.group, resource: self.resource, name }
    }
}
