//! The credentials of a running board: one fault, and a state machine of many.

mod machine;

use std::time::Duration;

use crate::config::Config;
use crate::config::flags::Flags;
use crate::core::certificate::{Task, TaskResult};
use crate::core::instant::Mono;
use crate::files::tree::Tree;
use crate::identity::Source;
use crate::identity::pki::tests::Signer;
use crate::identity::signing::Supervisor;
use crate::kube::message::Outcome;
use crate::kube::time::Wall;
use crate::wire::tls::SYSTEM_ROOTS;

/// A request under way was sent to the old server until the process was restarted.
#[test]
fn a_bootstrap_kubeconfig_that_is_corrected_on_disk_is_used_for_the_request_under_way() {
    let (tree, signer) = (Tree::new("identity"), Signer::new());
    let right = signer.kubeconfig("token: abcdef.0123456789abcdef");
    let wrong = right.replace("10.0.0.1", "10.0.0.9");
    let mut config = Config::new(Flags::default(), || Ok("pi".to_owned())).unwrap();
    config.bootstrap_kubeconfig = Some(tree.join("etc/bootstrap.conf"));
    config.cert_dir = tree.join("pki");
    for is_first in [true, false] {
        tree.write("etc/bootstrap.conf", wrong.as_bytes());
        let kubeconfig = tree.join("etc/kubelet.conf");
        let source = Source::new(&config, &kubeconfig, None, "test".to_owned());
        let (mut identity, access) = source.open(Wall::default(), 0).unwrap();
        let mut api = access.api;
        let task = Task::Sign {
            new_key: false,
            with_bootstrap: true,
            is_first,
        };
        let result = identity.carry_out(&task, &mut api, Wall::default());
        assert!(matches!(result, TaskResult::Signed(_)));
        tree.write("etc/bootstrap.conf", right.as_bytes());
        identity.on_response(&Outcome::Silent("no route".to_owned()));
        let later = Mono::START.after(Duration::from_secs(5));
        assert_eq!(identity.refresh(&mut api, later), None);
        let endpoint = identity.certificate_api(&mut api).endpoint();
        assert_eq!(endpoint.host, "10.0.0.1", "first: {is_first}");
    }
}

/// A board whose kubeconfig is `etc/kubelet.conf`, without a node password.
fn board_of_k3s(name: &str) -> (Tree, Config) {
    let tree = Tree::new(name);
    let mut config = Config::new(Flags::default(), || Ok("pi".to_owned())).unwrap();
    config.rotate_certificates = true;
    config.k3s_supervisor = Some("https://10.0.0.1:6443".to_owned());
    config.cert_dir = tree.join("pki");
    let kubeconfig = Signer::new().kubeconfig("token: abcdef.0123456789abcdef");
    tree.write("etc/kubelet.conf", kubeconfig.as_bytes());
    (tree, config)
}

#[test]
fn a_supervisor_that_the_roots_of_the_system_verify_needs_them() {
    let (tree, mut config) = board_of_k3s("system-roots");
    tree.write("etc/k3s-password", b"0123456789abcdef\n");
    for (system_roots, bundle, is_missing) in [
        (true, "/no/such/bundle.crt", true),
        (true, "/proc/version", false),
        (false, "/no/such/bundle.crt", false),
    ] {
        config.k3s_supervisor_system_roots = system_roots;
        let path = tree.join("etc/kubelet.conf");
        let supervisor = Supervisor::new(&config, &path, None).unwrap();
        assert_eq!(supervisor.problem(&[bundle]).is_some(), is_missing);
        let source = Source::new(&config, &path, None, "test".to_owned());
        let (_, access) = source.open(Wall::default(), 0).unwrap();
        assert_eq!(access.renewal_error, supervisor.problem(&SYSTEM_ROOTS));
    }
}

/// A password that is corrected is used from the next attempt on. A new join does not help while
/// the server has the former one.
#[test]
fn a_node_password_that_cannot_be_read_has_its_remedy_and_may_be_corrected() {
    let (tree, config) = board_of_k3s("password");
    for (password, part) in [
        (
            None,
            "k3s-password: no such file or directory; restore /etc/credstore/",
        ),
        (Some(""), "k3s-password: empty; restore /etc/credstore/"),
        (Some("a b"), "the password has a blank"),
        (Some("\u{e9}"), "the password has a blank"),
    ] {
        if let Some(text) = password {
            tree.write("etc/k3s-password", text.as_bytes());
        }
        let path = tree.join("etc/kubelet.conf");
        let source = Source::new(&config, &path, None, "test".to_owned());
        let (mut identity, access) = source.open(Wall::default(), 0).unwrap();
        let why = access.renewal_error.unwrap();
        assert!(why.contains(part), "{why}");
        assert!(why.contains("delete secret pi.node-password.k3s"), "{why}");
        let mut api = access.api;
        let task = Task::Sign {
            new_key: false,
            with_bootstrap: false,
            is_first: false,
        };
        let result = identity.carry_out(&task, &mut api, Wall::default());
        assert!(matches!(result, TaskResult::Failed(_)), "{result:?}");
        tree.write("etc/k3s-password", b"0123456789abcdef\n");
        let source = Source::new(&config, &path, None, "test".to_owned());
        let (_, access) = source.open(Wall::default(), 0).unwrap();
        assert_eq!(access.renewal_error, None);
        for _ in 0..2 {
            let result = identity.carry_out(&task, &mut api, Wall::default());
            assert!(matches!(result, TaskResult::Signed(_)), "{result:?}");
        }
    }
}
