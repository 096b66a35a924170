//! Sentence 2: after the last fault the board recovers by itself: its Lease is renewed, and its
//! Node is Ready.

use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::trace::What;
use crate::sim::world::ready_of;

pub(super) const SENTENCE: Sentence = Sentence { number: 2, name: "recovery", judge };

/// A renewal is no older than an interval and one call.
const RENEWED: Duration = Duration::from_secs(21);

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    for entry in run.trace {
        let What::Judged(state) = &entry.what else { continue };
        if let Some(excuse) = state.excuse {
            judged.excuse = Some(excuse);
            continue;
        }
        if !state.is_up {
            continue;
        }
        judged.count += 1;
        let last = state.lines.last().map_or("", String::as_str);
        match state.renewed {
            Some(renewed) if entry.at.saturating_sub(renewed) <= RENEWED => {}
            renewed => {
                let text = format!(
                    "no renewal since {renewed:?}, faults ended at {:?}; last line: {last}",
                    state.healed
                );
                judged.breaks(entry.at, "not renewed", text);
                continue;
            }
        }
        let ready = ready_of(&state.node);
        if ready != "True" {
            let text = format!(
                "Ready is {ready:?}, faults ended at {:?}; last line: {last}",
                state.healed
            );
            judged.breaks(entry.at, &format!("Ready {ready}"), text);
        }
    }
    judged
}
