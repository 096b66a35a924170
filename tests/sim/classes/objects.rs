//! What others write to the cluster.

use std::collections::BTreeMap;

use super::{ASKED, Class, Lasts, MOMENT};

fn has_auth(setting: &BTreeMap<String, String>, all: &[&str]) -> bool {
    setting.get("auth").is_some_and(|auth| all.contains(&auth.as_str()))
}

/// The owner of the board can add a CA. A kept plan adds one to a bootstrap kubeconfig as well, whose
/// token expires then: a drawn board may lose its certificate in that moment.
fn knows_cas(setting: &BTreeMap<String, String>) -> bool {
    has_auth(setting, &["inline", "token", "files", "rotate", "rotate-file", "joined"])
}

/// Somebody follows the last line of a command, and of the journal.
fn has_owner(setting: &BTreeMap<String, String>) -> bool {
    has_auth(setting, &["joined", "joined-k3s"])
}

pub(super) const CLASSES: &[Class] = &[
    Class { name: "node-deleted", begin: |w, _| w.delete("nodes/pi"), ..MOMENT },
    Class {
        name: "node-deleted-no-range",
        fits: |setting| setting.get("cidr").is_some_and(|cidr| cidr == "yes"),
        begin: |w, _| w.deny_ranges(),
        ..MOMENT
    },
    Class { name: "lease-deleted", begin: |w, _| w.delete("leases/pi"), ..MOMENT },
    Class { name: "node-written", begin: |w, s| w.write_to_node(s.size), sizes: &[0, 6], ..MOMENT },
    Class { name: "writes-often", ..ASKED },
    Class { name: "condition-written", begin: |w, _| w.write_condition(), ..MOMENT },
    Class { name: "writes-race", ..ASKED },
    Class { name: "lease-contested", begin: |w, _| w.contest_lease(), ..ASKED },
    Class { name: "lease-written", begin: |w, _| w.write_to_lease(), ..MOMENT },
    Class { name: "pod-bound", begin: |w, s| w.bind_pod(s.size), sizes: &[0, 0, 40_000], ..MOMENT },
    Class {
        name: "pod-runs",
        begin: |w, _| w.run_pod(),
        end: |w, _| w.end_pod(),
        lasts: Lasts::Story,
        ..ASKED
    },
    Class {
        name: "node-replaced",
        // The node password of k3s goes with the Node, and whoever asks first has the name.
        fits: |setting| !has_auth(setting, &["k3s", "joined-k3s"]),
        begin: |w, _| w.replace_node(),
        ..MOMENT
    },
    Class { name: "other-board", begin: |w, _| w.other_board_writes(), ..MOMENT },
    Class {
        name: "node-large",
        begin: |w, s| w.fill_node(s.size),
        end: |w, _| w.fill_node(0),
        sizes: &[100, 1000],
        ..ASKED
    },
    // At one story a backup, at a later one the restore.
    Class { name: "etcd-old-backup", begin: |w, _| w.restore_or_back_up(), ..MOMENT },
    Class { name: "etcd-backup", begin: |w, _| w.back_up(), end: |w, _| w.restore(), ..ASKED },
    Class { name: "ca-renewed", begin: |w, s| w.renew_ca(s.size), sizes: &[0, 1], ..MOMENT },
    Class { name: "ca-added", fits: knows_cas, begin: |w, _| w.add_ca(), ..MOMENT },
    Class { name: "ca-dropped", fits: has_owner, begin: |w, _| w.drop_former_ca(), ..MOMENT },
    Class { name: "ca-replaced", fits: has_owner, begin: |w, _| w.replace_ca(), ..MOMENT },
    Class {
        name: "servers-move",
        fits: |setting| {
            has_auth(setting, &["inline", "token", "files", "rotate-file", "bootstrap"])
        },
        begin: |w, _| w.move_for_good(),
        ..MOMENT
    },
    Class {
        name: "rbac-removed",
        begin: |w, _| w.set_rbac(false),
        end: |w, _| w.set_rbac(true),
        ..ASKED
    },
];
