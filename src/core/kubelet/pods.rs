//! The stray pods' log lines.

use super::{Effect, Kubelet};
use crate::core::instant::Mono;
use crate::core::pods::Step;
use crate::kube::message::Outcome;

impl Kubelet {
    pub(super) fn on_pods_response(&mut self, outcome: Outcome, now: Mono) -> Effect {
        match self.pods.on_response(outcome, self.wall_clock.boot(), now) {
            Step::Continue => {}
            Step::Clear => {
                self.pods_log.succeeded(now);
            }
            Step::Changed(line) => log::info!("pods: {line}"),
            Step::Left(line) | Step::Silent(line) => {
                self.pods_log.failed(&line, now);
            }
            Step::Refused(refused) => {
                self.pods_log.failed(&refused.to_string(), now);
            }
            // A ServiceAccount has no such rights, which is no fault.
            Step::Forbidden(refused) => log::info!(
                "pods: pods that are bound to this Node would stay: the server forbids listing \
                 them: {}; a node's certificate is allowed to",
                refused.message
            ),
        }
        Effect::None
    }
}
