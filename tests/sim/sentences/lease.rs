//! Sentence 1, the lease law in the words of src/README.md, at the server's store: in a world
//! without a fault, two renewals of the Lease are 15.4 s apart at most.

use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::trace::What;

pub(super) const SENTENCE: Sentence = Sentence { number: 1, name: "lease-law", judge };

/// 10.4 s, and one call of another request that began before; and what the network takes.
const LONGEST: Duration = Duration::from_millis(15_900);

/// After the last fault the first renewal may still be that of an attempt which began before.
const SETTLES: Duration = Duration::from_secs(45);

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let (mut faults, mut quiet_since, mut last) = (0_u64, Duration::ZERO, None);
    for entry in run.trace {
        match &entry.what {
            What::Fault { begins, text } => {
                match (begins, text.contains(" for ")) {
                    (true, true) => faults += 1,
                    (false, _) => faults = faults.saturating_sub(1),
                    // What lasts no time still takes a while to end.
                    (true, false) => {}
                }
                (quiet_since, last) = (entry.at, None);
            }
            What::Starts { name: "nodelet", .. } | What::Ends { name: "nodelet", .. } => {
                (quiet_since, last) = (entry.at, None)
            }
            What::Answer(answer) if answer.is_renewal() && faults == 0 => {
                if let Some(last) = last.replace(answer.arrived)
                    && last >= quiet_since + SETTLES
                {
                    judged.count += 1;
                    let gap = answer.arrived - last;
                    if gap > LONGEST {
                        judged.breaks(entry.at, "gap", format!("{gap:?} between two renewals"));
                    }
                }
            }
            _ => {}
        }
    }
    judged
}
