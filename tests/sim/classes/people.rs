//! What a person does to the files of a board.

use std::collections::BTreeMap;

use super::{Class, MOMENT};

fn has_token(setting: &BTreeMap<String, String>) -> bool {
    setting.get("auth").is_some_and(|auth| auth == "token")
}

fn has_bootstrap(setting: &BTreeMap<String, String>) -> bool {
    setting.get("auth").is_some_and(|auth| auth == "bootstrap")
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
    Class { name: "pair-removed", begin: |w, _| w.remove_stored_pair(), ..MOMENT },
];
