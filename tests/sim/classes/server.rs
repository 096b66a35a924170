//! Servers, and the network before them.

use std::collections::BTreeMap;

use super::{ASKED, Class, Lasts, MOMENT};

fn has_name(setting: &BTreeMap<String, String>) -> bool {
    setting.get("address").is_some_and(|address| address == "name")
}

fn asks_dns(setting: &BTreeMap<String, String>) -> bool {
    has_name(setting) && setting.get("dns").is_none_or(|dns| dns != "hosts")
}

fn has_proxy(setting: &BTreeMap<String, String>) -> bool {
    setting.get("proxy").is_some_and(|proxy| proxy == "yes")
}

fn has_supervisor(setting: &BTreeMap<String, String>) -> bool {
    setting.get("auth").is_some_and(|auth| auth == "k3s")
}

pub(super) const CLASSES: &[Class] = &[
    // The network.
    Class { name: "no-network", ..ASKED },
    Class { name: "partition", ..ASKED },
    Class { name: "slow-link", sizes: &[100, 4000], ..ASKED },
    Class { name: "narrow-link", sizes: &[500, 1000, 4000], ..ASKED },
    Class { name: "dead-address", ..ASKED },
    Class { name: "dns-silent", fits: asks_dns, ..ASKED },
    Class { name: "dns-aaaa-silent", fits: asks_dns, ..ASKED },
    Class { name: "dns-servfail", fits: asks_dns, ..ASKED },
    Class { name: "dns-nxdomain", fits: asks_dns, ..ASKED },
    Class { name: "dns-first-silent", fits: asks_dns, ..ASKED },
    Class { name: "dns-aaaa-nxdomain", fits: asks_dns, ..ASKED },
    Class { name: "dns-a-lost", sizes: &[2, 4], fits: asks_dns, ..ASKED },
    Class { name: "dns-truncated", fits: asks_dns, ..ASKED },
    Class { name: "dns-forged", fits: asks_dns, lasts: Lasts::Story, ..ASKED },
    // One in so many SYNs, packets to the servers, packets from them is lost, and sent again.
    Class { name: "syn-lost", sizes: &[1, 2, 4], ..ASKED },
    Class { name: "loss-out", sizes: &[2, 4, 10], ..ASKED },
    Class { name: "loss-in", sizes: &[2, 4, 10], ..ASKED },
    Class { name: "link-flutters", sizes: &[2, 9], ..ASKED },
    // Seconds, and how an idle connection ends: close_notify, FIN, reset, or no packet any more.
    Class {
        name: "idle-ends",
        sizes: &[30, 31, 32, 33, 80, 81, 82, 83, 300, 302, 303],
        lasts: Lasts::Story,
        ..ASKED
    },
    Class {
        name: "server-moves",
        begin: |w, s| {
            w.move_servers();
            if s.size == 0 {
                w.correct_addresses();
            }
        },
        end: |w, _| w.correct_addresses(),
        sizes: &[0, 1],
        ..ASKED
    },
    // The proxy.
    Class {
        name: "proxy-down",
        fits: has_proxy,
        begin: |w, _| w.each_server(0, |w, server| w.end_connections_of(server, true)),
        ..ASKED
    },
    Class { name: "proxy-silent", fits: has_proxy, end: |w, _| w.deliver_held(), ..ASKED },
    Class { name: "proxy-slow", fits: has_proxy, sizes: &[500, 8000], ..ASKED },
    Class { name: "proxy-refuses", fits: has_proxy, sizes: &[403, 407, 502, 503], ..ASKED },
    Class { name: "proxy-cuts", fits: has_proxy, ..ASKED },
    Class {
        name: "proxy-restarts",
        fits: has_proxy,
        begin: |w, _| w.each_server(0, |w, server| w.end_connections_of(server, false)),
        ..MOMENT
    },
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
    Class { name: "gateway-page-of-objects", ..ASKED },
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
    Class {
        name: "handshake-fails",
        begin: |w, _| w.each_server(0, |w, server| w.end_connections_of(server, true)),
        ..ASKED
    },
    Class { name: "lease-create-forbidden", ..ASKED },
    // How answers are written.
    Class { name: "trickle", sizes: &[100, 2000], targets: 3, ..ASKED },
    Class { name: "chunked", targets: 3, lasts: Lasts::Story, ..ASKED },
    Class { name: "chunks-broken", targets: 3, ..ASKED },
    Class { name: "http-1.0", targets: 3, ..ASKED },
    Class { name: "closes-each", targets: 3, lasts: Lasts::Story, ..ASKED },
    Class { name: "redirects", targets: 3, ..ASKED },
    // What they say.
    Class { name: "server-busy", sizes: &[1, 2, 4], targets: 3, ..ASKED },
    Class { name: "server-lies", sizes: &[0, 5], targets: 3, ..ASKED },
    // The whole control plane, by so many seconds: a part of a certificate's life, or weeks.
    Class { name: "servers-clock-ahead", sizes: &[300, 1000, 3000, 12_000, 2_600_000], ..ASKED },
    Class { name: "server-lags", begin: |w, _| w.lags(), targets: 3, ..ASKED },
    // Target 1: of a create, 2: of an update, else of both. It fails after ten seconds.
    Class { name: "node-webhook", targets: 2, ..ASKED },
    // Which resource: nodes, leases, events, pods, CSRs.
    Class { name: "rbac-lost", sizes: &[0, 4], ..ASKED },
    Class { name: "pods-refused", sizes: &[500, 503], ..ASKED },
    Class { name: "lifecycle-stops", ..ASKED },
    // It hears of a renewal so many seconds late, and calls a Node Unknown that is heard again.
    Class {
        name: "lifecycle-late",
        begin: |w, s| w.late = Some(s.size),
        sizes: &[20, 100],
        lasts: Lasts::Story,
        ..ASKED
    },
    // k3s.
    Class {
        name: "supervisor-starts",
        fits: has_supervisor,
        begin: |w, _| w.supervisor_starts(),
        ..MOMENT
    },
    Class { name: "supervisor-refuses", fits: has_supervisor, sizes: &[401, 403, 503], ..ASKED },
    Class { name: "name-taken", fits: has_supervisor, begin: |w, _| w.name_is_taken(), ..MOMENT },
    Class { name: "signer-stops", ..ASKED },
    // What is approved stays unsigned.
    Class { name: "signer-approves", ..ASKED },
    Class { name: "signer-denies", ..ASKED },
];
