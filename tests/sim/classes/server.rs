//! Servers, and the network before them.

use super::{ASKED, Class, Lasts, MOMENT};

pub(super) const CLASSES: &[Class] = &[
    // The network.
    Class { name: "no-network", ..ASKED },
    Class { name: "partition", ..ASKED },
    Class { name: "slow-link", sizes: &[100, 4000], ..ASKED },
    Class { name: "narrow-link", sizes: &[500, 1000, 4000], ..ASKED },
    Class { name: "dead-address", ..ASKED },
    Class { name: "dns-silent", ..ASKED },
    Class { name: "dns-aaaa-silent", ..ASKED },
    Class { name: "dns-servfail", ..ASKED },
    Class { name: "dns-nxdomain", ..ASKED },
    // A server is target 1 to 3, 0 is each.
    Class { name: "server-unreachable", targets: 3, ..ASKED },
    Class {
        name: "server-gone",
        targets: 3,
        begin: |w, s| w.each_server(s.target, |w, server| w.end_connections_of(server, true)),
        ..ASKED
    },
    Class { name: "server-silent", targets: 3, end: |w, _| w.deliver_held(), ..ASKED },
    Class {
        name: "server-restarts",
        targets: 3,
        begin: |w, s| {
            w.each_server(s.target, |w, server| w.end_connections_of(server, s.size == 1))
        },
        sizes: &[0, 1],
        ..MOMENT
    },
    Class { name: "server-refuses", sizes: &[429, 500, 503, 504], targets: 3, ..ASKED },
    Class { name: "server-forbids", sizes: &[401, 403], targets: 3, ..ASKED },
    Class { name: "retry-after", sizes: &[1, 5, 30, 3600], lasts: Lasts::Story, ..ASKED },
    Class { name: "server-slow", sizes: &[200, 12_000], targets: 3, ..ASKED },
    Class { name: "lease-slow", sizes: &[3000, 9000], targets: 3, ..ASKED },
    Class { name: "lease-refused", sizes: &[403, 409, 422, 500], ..ASKED },
    Class { name: "status-slow", sizes: &[1000, 20_000], ..ASKED },
    Class { name: "node-create-refused", sizes: &[403, 422, 500], ..ASKED },
    Class { name: "node-create-silent", ..ASKED },
    Class { name: "node-patch-refused", sizes: &[403, 422, 500], ..ASKED },
    Class { name: "node-patch-silent", ..ASKED },
    Class { name: "answers-lost", sizes: &[2, 3, 8], targets: 3, ..ASKED },
    Class { name: "answers-cut", sizes: &[2, 4], targets: 3, ..ASKED },
    Class { name: "answers-garbage", sizes: &[2, 4], targets: 3, ..ASKED },
    Class { name: "gateway-page", sizes: &[200, 403, 404, 502], targets: 3, ..ASKED },
    Class {
        name: "tls-refuses",
        targets: 3,
        begin: |w, s| w.each_server(s.target, |w, server| w.end_connections_of(server, false)),
        ..ASKED
    },
    Class {
        name: "wrong-certificate",
        targets: 3,
        begin: |w, s| w.each_server(s.target, |w, server| w.end_connections_of(server, false)),
        ..ASKED
    },
    Class { name: "signer-stops", ..ASKED },
    Class { name: "signer-denies", ..ASKED },
];
