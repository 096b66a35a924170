//! The checks of what the cluster does with the Node. Nothing here ends the checks: a run works
//! without it.

use serde_json::Value;

use super::access::Access;
use crate::check::daemon_sets::{self, Target, daemon_sets};
use crate::check::{Finding, guest};
use crate::config::Config;
use crate::core::status::labels;
use crate::core::wall_clock::boot_of;
use crate::core::{pods, server_version};
use crate::kube::message::{Accept, Request, Response};
use crate::kube::object;
use crate::kube::time::Wall;
use crate::process::clock::Clock;

/// The names of the findings of [`findings`].
pub(super) const CHECKS: [&str; 6] = [
    "labels",
    "taint",
    "podcidr",
    "pods",
    "server-version",
    "daemonsets",
];

/// `node` is the Node on the server, if it has one, or why it cannot be read. `is_here` is false if
/// the facts are of another machine, whose boot is not known.
pub(super) fn findings(
    access: &mut Access,
    config: &Config,
    node: &Result<Option<Value>, String>,
    clock: &Clock,
    is_here: bool,
) -> [Finding; 6] {
    if access.is_bootstrap() {
        let why = "needs the requested certificate";
        return CHECKS.map(|check| Finding::note(check, why, ""));
    }
    let node_config = &config.node;
    let [labels, taint, pod_cidr] = match node {
        Ok(node) => [
            guest::labels(node_config, node.as_ref()),
            guest::taint(node_config, node.as_ref()),
            guest::pod_cidr(node_config, node.as_ref()),
        ],
        Err(line) => ["labels", "taint", "podcidr"]
            .map(|check| Finding::note(check, format!("cannot be read: {line}"), "")),
    };
    let mut look = |check, path: &str, accept, judge: &dyn Fn(&Response) -> Finding| match access
        .call(Request::get(path.to_owned(), accept))
    {
        Ok(response) => judge(&response),
        Err(line) => Finding::note(check, line, ""),
    };
    let (pods, daemon_sets) = match node_config.is_guest() {
        true => (
            look(
                "pods",
                &pods::list_path(&node_config.name),
                Accept::List,
                &|list| {
                    let boot = boot(list.date, clock).filter(|_| is_here);
                    guest::pods(node_config, list, boot)
                },
            ),
            look("daemonsets", daemon_sets::PATH, Accept::Object, &|list| {
                let node = node.as_ref().ok().and_then(Option::as_ref);
                daemon_sets(list, &target(config, node))
            }),
        ),
        false => {
            let note = |check| Finding::note(check, "the Node runs pods", "");
            (note("pods"), note("daemonsets"))
        }
    };
    let version = look(
        "server-version",
        server_version::PATH,
        Accept::Object,
        &|version| guest::server_version(config, version),
    );
    [labels, taint, pod_cidr, pods, version, daemon_sets]
}

/// The time of this boot by the server's clock.
fn boot(server_time: Option<Wall>, clock: &Clock) -> Option<Wall> {
    Some(boot_of(
        server_time?,
        clock.now().mono,
        clock.boot_to_start(),
    ))
}

/// The Node after the next start.
fn target(config: &Config, node: Option<&Value>) -> Target {
    let (labels, taints) = match node {
        Some(node) => {
            let mut labels = guest::labels_of(node);
            labels::adopt(&config.node, &mut labels);
            (labels, object::list(node, &["spec", "taints"]).to_vec())
        }
        None => {
            let taints = config
                .node
                .taints
                .iter()
                .map(|taint| serde_json::json!(taint));
            (labels::of_new_node(&config.node), taints.collect())
        }
    };
    Target {
        name: config.node.name.clone(),
        labels,
        taints,
    }
}
