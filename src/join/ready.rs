//! The end of a join: the Node is Ready, with the boot id of this machine.

use std::time::Duration;

use super::walk::Walk;
use crate::check::Finding;
use crate::core::conditions;
use crate::kube::message::{Accept, Outcome, Request};
use crate::kube::text::without_remedy;
use crate::kube::{json, object};
use crate::wire::api::Api;

const CHECK: &str = "ready";
/// Delays between two GETs of the Node: short at first, because a board on a LAN needs 0.1 s.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LAST_POLL: Duration = Duration::from_secs(2);
/// A unit that is started registers its Node within this time.
const START: Duration = Duration::from_secs(15);

/// Waits for the Node. `how` says how to start the agent.
pub(super) fn wait(walk: &Walk<'_>, api: &mut Api, how: &str) -> Finding {
    let request = Request::get(format!("/api/v1/nodes/{}", walk.board.name), Accept::Object);
    let (start, mut poll) = (walk.now().mono, FIRST_POLL);
    let mut was_told = false;
    loop {
        let line = match walk.send(api, &request) {
            Outcome::Silent(line) => line,
            Outcome::Answered(response) if response.code == 404 => {
                if walk.now().mono.since(start) >= START && !was_told {
                    log::info!("node {}: not registered yet; {how}", walk.board.name);
                    was_told = true;
                }
                "it is not registered".to_owned()
            }
            Outcome::Answered(response) => match response.accepted() {
                Err(refused) => refused.to_string(),
                Ok(()) => match judge(walk, &response.body) {
                    Ok(finding) => return finding,
                    Err(line) => line,
                },
            },
        };
        if !walk.pause(poll) {
            let limit = walk.settings.timeout.as_secs();
            let line = format!("not Ready after {limit} s: {}", without_remedy(&line));
            return Finding::failed(CHECK, &line, &format!("journalctl -u nodelet; {how}"));
        }
        poll = (poll * 2).min(LAST_POLL);
    }
}

/// The finding of a Ready Node, or what it lacks.
fn judge(walk: &Walk<'_>, body: &[u8]) -> Result<Finding, String> {
    let node = json::parse(body).unwrap_or_default();
    let info = |member| object::text(&node, &["status", "nodeInfo", member]);
    if !walk.board.boot_id.is_empty() && info("bootID") != walk.board.boot_id {
        return Err("another boot of this name is registered".into());
    }
    let ready = conditions::find(&node, "Ready").ok_or("it has no condition Ready")?;
    match object::text(ready, &["status"]) {
        "True" => Ok(Finding::ok(
            CHECK,
            format!("{}   Ready   {}", walk.board.name, info("kubeletVersion")),
        )),
        _ => Err(object::text(ready, &["message"]).to_owned()),
    }
}
