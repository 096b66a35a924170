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
use crate::kube::message::Outcome;
use crate::kube::time::Wall;

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
