//! Makes a plan that fails smaller, as long as the same sentence fails in the same way.

use std::time::{Duration, Instant};

use super::plan::{Plan, Step, When};
use super::run;
use super::sentences::{Broken, Sentence};

/// A failure that a smaller plan must have, too.
struct Failure<'a> {
    sentence: &'a str,
    kind: &'a str,
    limit: Instant,
    /// When it fails in the smallest plan so far.
    at: Duration,
}

/// The smallest plan that is found before `limit`.
pub(crate) fn shrink(plan: &Plan, sentence: &Sentence, broken: &Broken, limit: Instant) -> Plan {
    let mut plan = plan.clone();
    let mut failure = Failure { sentence: sentence.name, kind: &broken.kind, limit, at: broken.at };
    loop {
        let before = plan.clone();
        failure.end_early(&mut plan);
        failure.drop_steps(&mut plan);
        failure.drop_stories(&mut plan);
        failure.use_usual_settings(&mut plan);
        failure.close_gaps(&mut plan);
        failure.lessen_steps(&mut plan);
        eprintln!(
            "{} steps, {} stories, {} h, fails at {:.0} s",
            plan.steps.len(),
            plan.stories.len(),
            plan.hours,
            failure.at.as_secs_f64()
        );
        if plan == before || Instant::now() >= limit {
            return plan;
        }
    }
}

impl Failure<'_> {
    /// Takes a candidate if it fails in the same way.
    fn take(&mut self, plan: &mut Plan, candidate: Plan) -> bool {
        let is_as_drawn = candidate.is_drawable() || !plan.is_drawable();
        if candidate == *plan || !is_as_drawn || Instant::now() >= self.limit {
            return false;
        }
        let outcome = run(candidate);
        let is_same = |(sentence, broken): &&(&Sentence, Broken)| {
            sentence.name == self.sentence && broken.kind == self.kind
        };
        let Some((_, broken)) = outcome.breaks.iter().find(is_same) else { return false };
        self.at = broken.at;
        *plan = outcome.plan;
        true
    }

    /// What comes after the failure has no part in it.
    fn end_early(&mut self, plan: &mut Plan) {
        let mut shorter = plan.clone();
        let end = self.at;
        shorter.hours = (end.as_secs() / 3600 + 1).min(plan.hours);
        shorter.steps.retain(|step| step.when.at() <= end);
        let is_before = |until: Duration| until <= end;
        let later = shorter.stories.iter().position(|story| !is_before(story.until));
        // The story that is under way at the failure ends its faults.
        shorter.stories.truncate(later.map_or(usize::MAX, |later| later + 1));
        self.take(plan, shorter);
    }

    /// Halves, quarters, and so on down to single steps.
    fn drop_steps(&mut self, plan: &mut Plan) {
        let mut size = plan.steps.len();
        while size > 0 {
            let mut start = 0;
            while start < plan.steps.len() {
                let mut fewer = plan.clone();
                fewer.steps.drain(start..(start + size).min(plan.steps.len()));
                if !self.take(plan, fewer) {
                    start += size;
                }
            }
            size /= 2;
        }
    }

    fn drop_stories(&mut self, plan: &mut Plan) {
        let mut size = plan.stories.len();
        while size > 0 {
            let mut start = 0;
            while start < plan.stories.len() {
                let mut fewer = plan.clone();
                fewer.stories.drain(start..(start + size).min(plan.stories.len()));
                if !self.take(plan, fewer) {
                    start += size;
                }
            }
            size /= 2;
        }
    }

    fn use_usual_settings(&mut self, plan: &mut Plan) {
        for (name, value) in super::plan::usual_settings() {
            let mut usual = plan.clone();
            usual.setting.insert(name.to_owned(), value.to_owned());
            self.take(plan, usual);
        }
    }

    /// Less time between two things that the plan does.
    fn close_gaps(&mut self, plan: &mut Plan) {
        let mut index = 0;
        while let Some((begin, end)) = gaps(plan).get(index).copied() {
            index += 1;
            for part in [1, 2, 4] {
                let earlier = (end - begin) / part;
                if earlier < Duration::from_secs(20) {
                    break;
                }
                if self.take(plan, moved(plan, end, earlier)) {
                    break;
                }
            }
        }
        let mut shorter = plan.clone();
        shorter.hours = (self.at.as_secs() / 3600 + 1).min(plan.hours);
        self.take(plan, shorter);
    }

    /// At a time instead of a hook; shorter; smaller.
    fn lessen_steps(&mut self, plan: &mut Plan) {
        for index in 0..plan.steps.len() {
            let changes: [fn(&mut Step); 5] = [
                |step| step.when = When::At(step.when.at()),
                |step| step.lasts /= 4,
                |step| step.lasts = step.lasts * 3 / 4,
                |step| step.target = 0,
                |step| {
                    let smaller = step.class.sizes.iter().filter(|size| **size < step.size);
                    step.size = smaller.max().copied().unwrap_or(step.size);
                },
            ];
            for change in changes {
                let mut less = plan.clone();
                change(&mut less.steps[index]);
                let lasts = &mut less.steps[index].lasts;
                // Whole seconds are read more easily.
                *lasts = match lasts.as_secs() {
                    0 => *lasts,
                    seconds => Duration::from_secs(seconds),
                };
                // What lasted must not become a moment.
                if lasts.is_zero() == plan.steps[index].lasts.is_zero() {
                    self.take(plan, less);
                }
            }
        }
    }
}

/// The times between two moments of a plan.
fn gaps(plan: &Plan) -> Vec<(Duration, Duration)> {
    let steps = plan.steps.iter().flat_map(|step| [step.when.at(), step.when.at() + step.lasts]);
    let stories = plan.stories.iter().flat_map(|story| [story.healed, story.until]);
    let mut times: Vec<Duration> = steps.chain(stories).chain([Duration::ZERO]).collect();
    times.sort_unstable();
    times.dedup();
    times.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The plan with each moment from `from` on so much earlier.
fn moved(plan: &Plan, from: Duration, earlier: Duration) -> Plan {
    let mut plan = plan.clone();
    let change = |time: &mut Duration| {
        if *time >= from {
            *time -= earlier;
        }
    };
    for step in &mut plan.steps {
        let mut end = step.when.at() + step.lasts;
        let (When::At(at) | When::Hook(at, _)) = &mut step.when;
        change(at);
        change(&mut end);
        step.lasts = end - *at;
    }
    for story in &mut plan.stories {
        change(&mut story.healed);
        change(&mut story.until);
    }
    plan
}
