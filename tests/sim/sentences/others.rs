//! Sentence 5: what others wrote to the Node and to its Lease is still there after a write of the
//! agent. Others write labels, annotations, taints, conditions and owners whose names begin with
//! `test/` or `Test`, which nodelet never writes, and cordon the Node.

use super::{Judged, Run, Sentence};
use crate::sim::trace::What;

pub(super) const SENTENCE: Sentence = Sentence { number: 5, name: "others-writes", judge };

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    for entry in run.trace {
        let What::Kept { object, before, after } = &entry.what else { continue };
        judged.count += 1;
        if let Some(lost) = before.iter().find(|text| !after.contains(text)) {
            let word = lost.split(' ').next().unwrap_or_default();
            let text = format!("{object}: {lost} is gone after a write of the agent: {after:?}");
            judged.breaks(entry.at, &format!("{object}: {word}"), text);
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sim::sentences::planted::{entry, judged_trace};

    #[test]
    fn planted_dropped_label_is_found() {
        let before = vec!["labels test/foreign=\"1\"".to_owned(), "unschedulable".to_owned()];
        let kept = |after: &[String]| {
            let (object, before, after) = ("nodes/pi", before.clone(), after.to_vec());
            entry(Duration::from_secs(1), What::Kept { object, before, after })
        };
        let whole = judged_trace(&SENTENCE, &[kept(&before)]);
        assert_eq!((whole.count, whole.broken), (1, None));
        let broken = judged_trace(&SENTENCE, &[kept(&before[1..])]).broken.expect("it is found");
        assert_eq!(broken.kind, "nodes/pi: labels");
    }
}
