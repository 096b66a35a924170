//! Sentence 15: what is said has a ground. Each phrase of the log and of an event that names a cause
//! or a remedy has a test of the trace before it.

use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::trace::{Entry, What};

pub(super) const SENTENCE: Sentence = Sentence { number: 15, name: "grounds", judge };

/// A phrase, and whether it is wrong here: the trace up to it and after it, and its whole text.
type Ground = (&'static str, fn(&[Entry], &[Entry], &str) -> bool);

const GROUNDS: &[Ground] = &[
    // The boot ids of this board begin with zeros. The clock tells a former boot from another board.
    ("is also written by another board", |before, _, text| {
        text.contains("boot id: 00000000-")
            && !lasting(before).iter().any(|fault| fault.contains(" clock-"))
    }),
    // The alert says that there is no common suite, group or key.
    ("P-521 is not supported", |_, _, text| !text.contains("group")),
    // A proxy that fails is no server.
    ("is server the URL of an API server", |before, _, _| fails_at_proxy(before)),
    ("is the server up, is its port right", |before, _, _| fails_at_proxy(before)),
    ("a k3s agent's kubeconfig", |before, _, _| fails_at_proxy(before)),
    ("waits for approval", |before, _, _| last_csr(before) == Some(true)),
    ("it is renewed without a change of", |_, after, _| !is_renewed(after)),
    ("10.6.6.6", |_, _, text| !text.contains("307")),
];

/// The faults that last.
fn lasting(before: &[Entry]) -> Vec<&str> {
    let mut lasting: Vec<&str> = Vec::new();
    for entry in before {
        match &entry.what {
            What::Fault { begins: true, text } if text.contains(" for ") => lasting.push(text),
            What::Fault { begins: false, text } => lasting.retain(|other| other != text),
            _ => {}
        }
    }
    lasting
}

/// Faults last, all of which are the proxy's.
fn fails_at_proxy(before: &[Entry]) -> bool {
    let lasting = lasting(before);
    !lasting.is_empty() && lasting.iter().all(|text| text.contains(" proxy-"))
}

/// Whether the last CSR that a server showed is approved.
fn last_csr(before: &[Entry]) -> Option<bool> {
    before.iter().rev().find_map(|entry| match &entry.what {
        What::Answer(answer) if answer.target.contains("/certificatesigningrequests") => {
            let conditions = answer.answer["status"]["conditions"].as_array();
            Some(conditions.into_iter().flatten().any(|it| it["type"] == "Approved"))
        }
        _ => None,
    })
}

/// Whether a server takes a renewal within half a minute.
fn is_renewed(after: &[Entry]) -> bool {
    let end = after.first().map_or(Duration::ZERO, |entry| entry.at) + Duration::from_secs(30);
    let mut soon = after.iter().take_while(|entry| entry.at < end);
    soon.any(|entry| match &entry.what {
        What::Answer(answer) => answer.is_renewal(),
        // What begins now, or the end of the process, may be why there is none.
        What::Ends { .. } | What::Fault { begins: true, .. } => true,
        _ => false,
    })
}

/// The status line says how old the last renewal is: the store has one that is no older. A server
/// that lies well is believed.
fn judge_status(run: &Run<'_>, judged: &mut Judged) {
    if run.plan.classes().contains(&"server-lies") {
        return;
    }
    let mut renewed = None;
    for entry in run.trace {
        match &entry.what {
            What::Answer(answer) if answer.is_renewal() => renewed = Some(entry.at),
            What::Notify { text } => {
                let Some(seconds) = said_age(text) else { continue };
                judged.count += 1;
                let oldest = Duration::from_secs(seconds) + IN_A_TURN;
                if renewed.is_none_or(|at| entry.at.saturating_sub(at) > oldest) {
                    judged.breaks(entry.at, "renewed", format!("{text}; the store: {renewed:?}"));
                }
            }
            _ => {}
        }
    }
}

/// A status line is as old as the last turn, and a board may sleep for a while.
const IN_A_TURN: Duration = Duration::from_secs(60);

/// The age of the last renewal in a status line.
fn said_age(text: &str) -> Option<u64> {
    let (_, age) = text.split_once("lease renewed ")?;
    age.split(' ').next()?.parse().ok()
}

/// What the agent or a command says.
fn said(what: &What) -> Vec<&str> {
    match what {
        What::Log { text, .. } | What::Connects { address: text, .. } => vec![text],
        What::Answer(answer) if answer.target.contains("/events") => {
            vec![answer.body["message"].as_str().unwrap_or_default()]
        }
        What::Ran(ran) => ran.lines.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A condition of the Node that the agent writes does not say that nobody hears of the agent.
fn judge_writes(run: &Run<'_>, judged: &mut Judged) {
    for entry in run.trace {
        let What::Answer(answer) = &entry.what else { continue };
        let list = answer.body["status"]["conditions"].as_array();
        let Some(list) = list.filter(|_| answer.is_node_write()) else { continue };
        judged.count += 1;
        if let Some(condition) = list.iter().find(|it| it["reason"] == "NodeStatusUnknown") {
            judged.breaks(entry.at, "not heard of", condition.to_string());
        }
    }
}

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    judge_status(run, &mut judged);
    judge_writes(run, &mut judged);
    for (index, entry) in run.trace.iter().enumerate() {
        let (before, after) = (&run.trace[..=index], &run.trace[index + 1..]);
        for text in said(&entry.what) {
            for (phrase, is_wrong) in GROUNDS {
                if text.contains(phrase) {
                    judged.count += 1;
                    if is_wrong(before, after, text) {
                        judged.breaks(entry.at, phrase, text.to_owned());
                    }
                }
            }
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sentences::tests::{at, renewal, run};
    use crate::sim::trace::Exchange;

    #[test]
    fn a_conflict_with_a_former_boot_of_this_board_is_found() {
        let event = |id: &str| {
            let message = format!("Node pi is also written by another board, boot id: {id}; x");
            let body = serde_json::json!({ "message": message });
            let target = "/api/v1/namespaces/default/events".to_owned();
            at(1, What::Answer(Box::new(Exchange { target, body, ..Exchange::default() })))
        };
        assert!(run(&[event("00000000-0000-4000-8000-000000000001")], judge).broken.is_some());
        assert!(run(&[event("ffffffff-ffff-4fff-8fff-ffffffffffff")], judge).broken.is_none());
    }

    #[test]
    fn a_condition_that_says_that_nobody_is_heard_is_found() {
        let write = |reason: &str| {
            let body = serde_json::json!({"status": {"conditions": [{"reason": reason}]}});
            let (method, target) = ("PATCH".to_owned(), "/api/v1/nodes/pi/status".to_owned());
            at(1, What::Answer(Box::new(Exchange { method, target, body, ..Exchange::default() })))
        };
        assert!(run(&[write("NodeStatusUnknown")], judge).broken.is_some());
        assert!(run(&[write("KubeletReadNothing")], judge).broken.is_none());
    }

    #[test]
    fn a_renewal_that_no_store_has_is_found() {
        let status = |seconds| {
            let text = "STATUS=Ready since x, lease renewed 1 s ago".to_owned();
            at(seconds, What::Notify { text })
        };
        assert!(run(&[renewal(10), status(11)], judge).broken.is_none());
        assert!(run(&[renewal(10), status(95)], judge).broken.is_some());
    }

    #[test]
    fn a_connection_to_the_address_of_a_forger_is_found() {
        let address = "10.6.6.6:6443".to_owned();
        let connects = at(1, What::Connects { pid: 1, address, opened: false });
        assert!(run(&[connects], judge).broken.is_some());
    }
}
