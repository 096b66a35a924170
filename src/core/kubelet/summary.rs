//! The board's state in one line, which `systemctl status` shows.

use super::Kubelet;
use crate::core::instant::Mono;

impl Kubelet {
    /// `Ready since 2026-11-21T06:18:51Z, lease renewed 3 s ago; facts: proc/meminfo: …`
    pub fn summary(&self, now: Mono) -> String {
        let mut line = match self.node.ready() {
            Some(ready) if self.registered => ready,
            _ => "registering".to_owned(),
        };
        if let Some(renewed) = self.renewed {
            let seconds = now.since(renewed).as_secs();
            line.push_str(&format!(", lease renewed {seconds} s ago"));
        }
        let errors = [
            ("clock", self.wall_clock.last_error()),
            ("lease", self.lease_log.last_error()),
            ("node", self.node_log.last_error()),
            ("pods", self.pods_log.last_error()),
            ("certificate", self.certificate_log.last_error()),
            ("facts", self.facts_log.last_error()),
        ];
        for (what, why) in errors {
            if let Some(why) = why {
                line.push_str(&format!("; {what}: {why}"));
            }
        }
        line
    }
}
