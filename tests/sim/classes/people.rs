//! What a person does to the files of a board, and the commands that a person types.

use std::collections::BTreeMap;

use super::{ASKED, Class, MOMENT};
use crate::sim::people::Command;

fn is_one_of(setting: &BTreeMap<String, String>, all: &[&str]) -> bool {
    setting.get("auth").is_some_and(|auth| all.contains(&auth.as_str()))
}

fn has_token(setting: &BTreeMap<String, String>) -> bool {
    is_one_of(setting, &["token"])
}

fn has_bootstrap(setting: &BTreeMap<String, String>) -> bool {
    is_one_of(setting, &["bootstrap"])
}

fn has_files(setting: &BTreeMap<String, String>) -> bool {
    is_one_of(setting, &["files"])
}

fn is_joined(setting: &BTreeMap<String, String>) -> bool {
    is_one_of(setting, &["joined", "joined-k3s"])
}

/// A person wrote a kubeconfig with all that is in it. Where it names other files, these count at
/// once, and the kubeconfig with the next start: a kubelet is no better.
fn has_whole_kubeconfig(setting: &BTreeMap<String, String>) -> bool {
    is_one_of(setting, &["inline", "rotate", "rotate-file", "bootstrap"])
}

fn rotates(setting: &BTreeMap<String, String>) -> bool {
    is_one_of(setting, &["rotate", "rotate-file"])
}

pub(super) const CLASSES: &[Class] = &[
    Class {
        name: "token-replaced",
        fits: has_token,
        begin: |w, s| w.replace_token(s.size),
        sizes: &[0, 1],
        ..MOMENT
    },
    Class {
        name: "kubeconfig-replaced",
        begin: |w, s| w.replace_kubeconfig(s.size),
        sizes: &[0, 1],
        ..MOMENT
    },
    Class {
        name: "bootstrap-replaced",
        fits: has_bootstrap,
        begin: |w, _| w.replace_bootstrap(),
        ..MOMENT
    },
    Class {
        name: "pair-removed",
        fits: |setting| !is_joined(setting),
        begin: |w, _| w.remove_stored_pair(),
        ..MOMENT
    },
    // The files of another cluster, and back.
    Class {
        name: "cluster-changes",
        fits: has_whole_kubeconfig,
        begin: |w, s| w.change_cluster(1, s.size),
        end: |w, s| w.change_cluster(0, s.size),
        sizes: &[0, 15],
        ..ASKED
    },
    Class {
        name: "server-line-early",
        fits: rotates,
        begin: |w, _| w.write_server_line(false),
        end: |w, s| w.restore_server_line(s.when.at()),
        ..ASKED
    },
    Class {
        name: "kubeconfig-with-token",
        fits: |setting| rotates(setting) || is_joined(setting),
        begin: |w, _| w.install_token(),
        ..MOMENT
    },
    Class {
        name: "bootstrap-misled",
        fits: has_bootstrap,
        begin: |w, _| w.mislead_bootstrap(),
        ..MOMENT
    },
    Class {
        name: "expires-unsigned",
        fits: has_bootstrap,
        begin: |w, _| w.stop_signing_early(),
        end: |w, _| w.sign_again(),
        ..ASKED
    },
    Class {
        name: "pair-of-another-node",
        fits: has_files,
        begin: |w, _| w.write_pair_of_another_node(),
        end: |w, _| w.replace_kubeconfig(0),
        ..ASKED
    },
    Class {
        name: "long-sleep",
        fits: has_bootstrap,
        begin: |w, _| w.sleep_beyond_expiry(),
        ..MOMENT
    },
    Class {
        name: "card-turns-read-only",
        fits: |setting| is_one_of(setting, &["rotate", "rotate-file", "k3s", "joined-k3s"]),
        begin: |w, _| w.turn_read_only(),
        ..MOMENT
    },
    // Commands.
    Class { name: "check", begin: |w, _| w.types(Command::Check), ..MOMENT },
    Class {
        name: "join-again",
        fits: is_joined,
        begin: |w, s| w.join_again(s.size, s.target),
        sizes: &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        targets: 3,
        ..MOMENT
    },
    Class {
        name: "package",
        fits: is_joined,
        begin: |w, s| w.change_package(s.size),
        sizes: &[0, 4],
        ..MOMENT
    },
    Class {
        name: "name-overridden",
        fits: is_joined,
        begin: |w, s| w.override_name(s.size),
        sizes: &[0, 1],
        ..MOMENT
    },
    Class {
        name: "flag-in-quotes",
        fits: |setting| is_joined(setting) || rotates(setting),
        begin: |w, _| w.quote_flag(),
        ..MOMENT
    },
    Class { name: "mounts-unread", fits: is_joined, sizes: &[2, 4, 8], ..ASKED },
    Class { name: "files-in-the-way", fits: is_joined, ..ASKED },
];
