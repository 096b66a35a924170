//! How the board is, in one line: what `systemctl status` shows.

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
        let troubles = [
            ("clock", self.wall_clock.trouble()),
            ("lease", self.lease_log.trouble()),
            ("node", self.node_log.trouble()),
            ("certificate", self.certificate_log.trouble()),
            ("facts", self.facts_log.trouble()),
        ];
        for (what, why) in troubles {
            if let Some(why) = why {
                line.push_str(&format!("; {what}: {why}"));
            }
        }
        line
    }
}
