//! The identity that the machine has already, so that `nodelet join` replaces none by mistake.

use std::time::Duration;

use super::files::Places;
use super::proof;
use super::walk::Failed;
use crate::check::Finding;
use crate::core::join::command::Settings;
use crate::core::join::token::Token;
use crate::files::guard;
use crate::files::read::read;
use crate::identity::kubeconfig;
use crate::identity::pki::stored_certificate;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::wire::api_config::ApiConfig;
use crate::wire::authorization::Authorization;
use crate::wire::endpoint::Endpoint;

const CHECK: &str = "joined";
/// A certificate that ends sooner than this is asked for again.
const ENOUGH: Duration = Duration::from_secs(24 * 3600);

/// What is there.
#[derive(Debug)]
pub(super) enum Existing {
    /// Nothing that matters.
    None(Finding),
    /// An identity that `--force` replaces.
    Replaced(Finding),
    /// An identity of the same cluster and name.
    Same(Finding, Box<ApiConfig>),
}

/// Looks for an identity. `Err` is the finding of one that is in the way.
pub(super) fn find(
    places: &Places,
    settings: &Settings,
    token: &Token,
    name: &str,
    now: Wall,
) -> Result<Existing, Failed> {
    let kubelet = places.of_a_kubelet().into_iter().find(|p| guard::exists(p));
    if let Some(path) = kubelet {
        let line = format!("{}: a kubelet is on this machine", path.display());
        match settings.force {
            true => log::warn!("{line}; stop it, or the two write one Node"),
            false => return Err(Finding::failed(CHECK, &line, "stop and remove it").into()),
        }
    }
    let candidates = [
        places.kubeconfig(),
        places.issued_kubeconfig(),
        places.bootstrap(),
    ];
    let Some(path) = candidates.iter().find(|path| guard::exists(path)) else {
        return Ok(Existing::None(Finding::ok(CHECK, "no identity yet")));
    };
    let config = match kubeconfig::load(path, None) {
        Ok(config) => config,
        Err(why) => return replaced(settings, &why),
    };
    let (endpoint, prefix) = (&config.endpoint, &config.endpoint.prefix);
    let given = config.certificate.as_ref();
    let given = given.and_then(|certificate| Leaf::of_pem(&certificate.chain.bytes));
    let leaf = match (stored_certificate(&places.cert_dir()), given) {
        (Some(stored), Some(given)) if stored.not_after > given.not_after => Some(stored),
        (stored, given) => given.or(stored),
    };
    let Some(leaf) = leaf else {
        let line = format!("this board has a token of {endpoint}{prefix}");
        return replaced(settings, &line);
    };
    let (user, until) = (&leaf.subject.common_name, leaf.not_after.time());
    let detail = format!("an identity of {endpoint}{prefix} as {user} until {until}");
    let is_same = leaf.subject.node_name() == Some(name)
        && now.after(ENOUGH) < leaf.not_after
        && is_same_cluster(settings, token, &config, now);
    match is_same && !settings.force {
        true => {
            let finding = Finding::ok(CHECK, format!("already: {detail}"));
            Ok(Existing::Same(finding, Box::new(config)))
        }
        false => replaced(settings, &format!("this board has {detail}")),
    }
}

fn replaced(settings: &Settings, line: &str) -> Result<Existing, Failed> {
    match settings.force {
        true => Ok(Existing::Replaced(Finding::note(
            CHECK,
            format!("{line}: replaced"),
            "",
        ))),
        false => Err(Finding::failed(CHECK, line, "nodelet join --force replaces it").into()),
    }
}

/// Whether the CA of `config` is the one that the command line trusts.
fn is_same_cluster(settings: &Settings, token: &Token, config: &ApiConfig, now: Wall) -> bool {
    let Some(ca) = &config.ca else {
        // A supervisor that was verified with the system's roots.
        let is_supervisor = matches!(token, Token::Supervisor { .. });
        return is_supervisor
            && !config.insecure
            && settings.authority.is_none()
            && is_same_server(settings, token, config);
    };
    if let Some(path) = &settings.authority {
        return read(path).is_ok_and(|bytes| bytes == ca.bytes);
    }
    let is_bearer = matches!(config.authorization, Some(Authorization::Bearer { .. }));
    match token {
        Token::Bootstrap(_) if !settings.pins.is_empty() => {
            !is_bearer && proof::pinned(&ca.bytes, &settings.pins, now).is_ok()
        }
        Token::Supervisor {
            hash: Some(hash), ..
        } => proof::has_digest(&ca.bytes, hash),
        _ => is_same_server(settings, token, config),
    }
}

/// Whether the address is the typed one, where nothing else tells clusters apart.
fn is_same_server(settings: &Settings, token: &Token, config: &ApiConfig) -> bool {
    Endpoint::parse(&settings.server).is_ok_and(|typed| match token {
        Token::Bootstrap(_) => typed == config.endpoint,
        // The port is the supervisor's.
        Token::Supervisor { .. } => typed.host == config.endpoint.host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::join::command::{Command, parse};
    use crate::files::tree::Tree;
    use crate::join::server::pem;

    #[test]
    fn without_a_ca_on_the_command_line_the_address_tells_clusters_apart() {
        let bootstrap = "lwxivu.2uczm8x4xi2v7hqd";
        for (stored, typed, token, want) in [
            ("https://cp:6443", "cp", bootstrap, true),
            ("https://cp:6443", "https://cp:6443/", bootstrap, true),
            ("https://cp:6443/a", "cp/a/", bootstrap, true),
            ("https://cp:6443/a", "cp/b", bootstrap, false),
            ("https://cp", "https://cp", bootstrap, true),
            ("https://cp:6443", "cp:443", bootstrap, false),
            ("https://cp:6443", "other", bootstrap, false),
            // rke2: the supervisor on 9345, the API server on 6443.
            ("https://cp:6443", "https://cp:9345/", "password", true),
            ("https://cp:6443", "https://cp:6443", "password", true),
            ("https://cp:6443", "https://other:6443", "password", false),
        ] {
            let skip = "--discovery-token-unsafe-skip-ca-verification";
            let args = ["join", typed, "--token", token, skip].map(Into::into);
            let Some(Ok(Command::Join(settings))) = parse(&args) else {
                panic!("{typed}");
            };
            let token = Token::parse(token).unwrap();
            let mut config = ApiConfig::at(Endpoint::parse(stored).unwrap());
            config.ca = Some(pem("ca", b"a CA".to_vec()));
            let is_same = is_same_cluster(&settings, &token, &config, Wall::default());
            assert_eq!(is_same, want, "{stored} {typed}");
            // Without a CA of its own an identity is one of a supervisor behind another CA.
            config.ca = None;
            let is_same = is_same_cluster(&settings, &token, &config, Wall::default());
            let is_supervisor = matches!(token, Token::Supervisor { .. });
            assert_eq!(is_same, want && is_supervisor, "{stored} {typed}");
            // An identity that verifies no server is of no cluster.
            config.insecure = true;
            let is_same = is_same_cluster(&settings, &token, &config, Wall::default());
            assert!(!is_same, "{stored} {typed}");
        }
    }

    /// Without a former identity no running agent has a copy of one.
    #[test]
    fn an_identity_is_replaced_by_force_alone() {
        let token = "lwxivu.2uczm8x4xi2v7hqd";
        let skip = "--discovery-token-unsafe-skip-ca-verification";
        for (stored, force, want) in [
            (None, false, "none"),
            (None, true, "none"),
            (Some("not a kubeconfig"), false, "in the way"),
            (Some("not a kubeconfig"), true, "replaced"),
        ] {
            let tree = Tree::empty("join-existing");
            if let Some(text) = stored {
                tree.write("etc/credstore/nodelet.kubeconfig", text.as_bytes());
            }
            let args = ["join", "cp", "--token", token, skip].map(Into::into);
            let Some(Ok(Command::Join(mut settings))) = parse(&args) else {
                panic!("{force}");
            };
            settings.force = force;
            let places = Places::new(Some(tree.path()));
            let token = Token::parse(token).unwrap();
            let found = find(&places, &settings, &token, "pi", Wall::default());
            let is = match found {
                Ok(Existing::None(_)) => "none",
                Ok(Existing::Replaced(_)) => "replaced",
                Ok(Existing::Same(..)) => "same",
                Err(_) => "in the way",
            };
            assert_eq!(is, want, "{stored:?} {force}");
        }
    }
}
