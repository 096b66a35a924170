//! The command line of `.ci/sim`: runs, hunts, shrinks and replays plans.

use super::plan::Plan;
use super::{Outcome, run};

#[test]
#[ignore = "the command line of .ci/sim"]
fn main() {
    let args = std::env::var("SIM_ARGS").unwrap_or_default();
    let words: Vec<&str> = args.split_whitespace().collect();
    let seed: u64 = words.first().and_then(|w| w.parse().ok()).unwrap_or(1);
    let count: u64 = words.get(1).and_then(|w| w.parse().ok()).unwrap_or(1);
    let hours: u64 = words.get(2).and_then(|w| w.parse().ok()).unwrap_or(8);
    let mut failed = 0;
    let start = std::time::Instant::now();
    for seed in seed..seed + count {
        let Outcome { plan, trace, broken, counts, excuse, took } =
            run(Plan::draw(seed, hours, &|_| true));
        let classes = plan.classes();
        let verdict = broken.as_ref().map_or("ok", |_| "broken");
        eprintln!(
            "seed {seed} {verdict} {took:?} trace={} counts={counts:?} excuse={excuse:?} {classes:?} auth={}",
            trace.len(),
            plan.setting("auth")
        );
        if let Some((sentence, broken)) = broken {
            failed += 1;
            eprintln!("   {} {:?} {} {}", sentence.number, broken.at, broken.kind, broken.text);
            if count == 1 {
                for entry in trace
                    .iter()
                    .filter(|e| e.what.is_told() && e.at <= broken.at)
                    .rev()
                    .take(150)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                {
                    eprintln!("{entry}");
                }
            }
        } else if count == 1 {
            for entry in trace.iter().filter(|e| e.what.is_told()).take(200) {
                eprintln!("{entry}");
            }
        }
    }
    eprintln!(
        "{failed} of {count} failed, {:?}, {} h/s",
        start.elapsed(),
        (count * hours) as f64 / start.elapsed().as_secs_f64()
    );
}
