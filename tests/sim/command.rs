//! The command line of `.ci/sim`: runs, hunts, shrinks and replays plans. The words are in the
//! variable `SIM_ARGS`, one a line; the lines of JSON go to descriptor 0, because the harness of
//! tests writes to standard output.
#![allow(clippy::exit)]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, io, panic, process, thread};

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::draw::draw;
use super::known::{self, Known};
use super::plan::Plan;
use super::process::SIMULATED;
use super::sentences::{self, Broken, Sentence};
use super::strength::{self, Compared, Strength};
use super::trace::{Entry, What};
use super::verdict::{self, Verdict};
use super::{Outcome, classes, run, run_turns, shrink};

/// A fault of the simulator, or of its command line.
const USAGE: i32 = 2;

/// The simulator does not find what it must find.
const WEAK: i32 = 6;

/// A run takes some seconds. After this time it will not end.
const LONGEST_RUN: Duration = Duration::from_secs(300);

#[test]
#[ignore = "the command line of .ci/sim"]
fn main() {
    let Ok(args) = env::var("SIM_ARGS") else { return };
    let words: Vec<&str> = match args.contains('\n') {
        true => args.lines().collect(),
        false => args.split_whitespace().collect(),
    };
    let end = panic::catch_unwind(|| Options::parse(&words).and_then(|options| options.act()));
    process::exit(match end {
        Ok(Ok(code)) => code,
        Ok(Err(text)) => {
            eprintln!("sim: {text}");
            USAGE
        }
        Err(_) => USAGE,
    });
}

/// What a command line asks for.
#[derive(Debug, Default)]
struct Options {
    verb: String,
    words: Vec<String>,
    hours: Option<u64>,
    only: Option<Vec<String>>,
    without: Vec<String>,
    stop: Option<u64>,
    plan: Option<PathBuf>,
    trace: Option<PathBuf>,
    out: Option<PathBuf>,
    seeds: Option<(u64, u64)>,
    budget: Option<Duration>,
    jobs: Option<usize>,
    keep_going: bool,
    strict: bool,
    /// Of a planted fault: the simulator without it.
    baseline: Option<PathBuf>,
}

/// One run in so many is looked at in another way, too.
struct Often {
    canary: u64,
    twice: u64,
    left_out: u64,
}

const HUNT: Often = Often { canary: 100, twice: 20, left_out: 10 };
const SELF: Often = Often { canary: 4, twice: 4, left_out: 5 };

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}

/// `120s`, `2m`, `120`.
fn budget(text: &str) -> Result<Duration, String> {
    let minutes = text.strip_suffix('m').map(|minutes| number(minutes).map(|m: u64| m * 60));
    let seconds = || number(text.strip_suffix('s').unwrap_or(text));
    Ok(Duration::from_secs(minutes.unwrap_or_else(seconds)?))
}

/// `A..B`, without B.
fn seeds(text: &str) -> Result<(u64, u64), String> {
    let (first, end) = text.split_once("..").ok_or(format!("{text}: not a range A..B"))?;
    Ok((number(first)?, number(end)?))
}

fn class_names(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    match names.iter().find(|name| !classes::all().any(|class| class.name == **name)) {
        Some(name) => Err(format!("no class {name}")),
        None => Ok(names),
    }
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut rest = words.iter();
        options.verb = rest.next().ok_or("which verb? .ci/sim has a list")?.to_string();
        while let Some(word) = rest.next() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let mut value = || match value {
                "" => rest.next().copied().ok_or(format!("{name} needs a value")),
                value => Ok(value),
            };
            match name {
                "--hours" => options.hours = Some(number(value()?)?),
                "--only" => options.only = Some(class_names(value()?)?),
                "--without" => options.without = class_names(value()?)?,
                "--stop" => options.stop = Some(number(value()?)?),
                "--plan" => options.plan = Some(value()?.into()),
                "--trace" => options.trace = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                "--seeds" => options.seeds = Some(seeds(value()?)?),
                "--budget" => options.budget = Some(budget(value()?)?),
                "--jobs" => options.jobs = Some(number(value()?)?),
                "--keep-going" => options.keep_going = true,
                "--strict" => options.strict = true,
                "--baseline" => options.baseline = Some(value()?.into()),
                _ if name.starts_with('-') => return Err(format!("no option {name}")),
                _ => options.words.push((*word).to_owned()),
            }
        }
        Ok(options)
    }

    fn act(&self) -> Result<i32, String> {
        match self.verb.as_str() {
            "run" => self.run(),
            "hunt" => self.hunt(&HUNT),
            "self" => self.strong(),
            "find" => self.find(),
            "shrink" => self.shrink(),
            "replay" => self.replay(),
            "list" => self.list(),
            verb => Err(format!("no verb {verb}")),
        }
    }

    /// The plan that a seed draws, with the classes that are asked for.
    fn draw(&self, seed: u64) -> Plan {
        let hours = self.hours.unwrap_or(8);
        let is_wanted = |name: &str| !self.without.iter().any(|without| without == name);
        match &self.only {
            Some(only) => Plan::draw_only(seed, hours, &|class| only.contains(&class.name.into())),
            None => Plan::draw(seed, hours, &|class| is_wanted(class.name)),
        }
    }

    fn seed_or_file(&self) -> Result<Plan, String> {
        match (&self.plan, self.words.as_slice()) {
            (Some(file), []) => read_plan(file),
            (None, [word]) => match word.parse() {
                Ok(seed) => Ok(self.draw(seed)),
                Err(_) => read_plan(Path::new(word)),
            },
            _ => Err(format!("{}: one seed, or one file with a plan", self.verb)),
        }
    }

    fn run(&self) -> Result<i32, String> {
        let plan = self.seed_or_file()?;
        let watch = Watch::new();
        let outcome = watch.over(&plan, || run_turns(plan.clone(), self.stop));
        if let Some(path) = &self.trace {
            let lines: String = outcome.trace.iter().map(|entry| format!("{entry}\n")).collect();
            fs::write(path, lines).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut report = Report::new(self.strict);
        report.add(&outcome, outcome.verdict())?;
        eprint!("{}", story(&outcome));
        report.end()
    }

    fn hunt(&self, often: &Often) -> Result<i32, String> {
        let (report, is_strong) = self.hunted(often, false)?;
        let code = report.end()?;
        Ok(if code == 0 && !is_strong { WEAK } else { code })
    }

    /// A hunt that looks at itself.
    fn strong(&self) -> Result<i32, String> {
        let budget = self.budget.unwrap_or(Duration::from_secs(60));
        let jobs = self.jobs.or(Some(2));
        let options = Self { budget: Some(budget), jobs, keep_going: true, ..Self::default() };
        let (mut report, is_strong) = options.hunted(&SELF, true)?;
        if report.code == 0 && !is_strong {
            report.code = WEAK;
        }
        report.end()
    }

    /// Replays the kept plans, then hunts, until a sentence breaks that holds without the planted
    /// fault; writes one line.
    fn find(&self) -> Result<i32, String> {
        let start = Instant::now();
        let budget = self.budget.unwrap_or(Duration::from_secs(60));
        let baseline = self.baseline.as_ref().ok_or("find needs --baseline FILE")?;
        let drawn = (1..u64::MAX).map(|seed| self.draw(seed));
        let kept = kept_plans()?.into_iter().map(|(_, plan)| plan);
        let next = Mutex::new(kept.chain(drawn));
        let found = Mutex::new((0_u64, None));
        let watch = Watch::new();
        let work = || -> Result<(), String> {
            while start.elapsed() < budget && found.lock().expect("no panic").1.is_none() {
                let plan = next.lock().expect("no panic").next().ok_or("no more seeds")?;
                let outcome = watch.over(&plan, || run(plan.clone()));
                found.lock().expect("no panic").0 += 1;
                let breaks = breaks(&outcome);
                if breaks.is_empty() || !outcome.verdict().is_of_the_agent() {
                    continue;
                }
                let usual = breaks_of(baseline, &plan)?;
                if let Some(new) = breaks.into_iter().find(|new| !usual.contains(new)) {
                    found.lock().expect("no panic").1.get_or_insert((new, plan));
                }
            }
            Ok(())
        };
        each_of(self.jobs.unwrap_or(2), &work)?;
        let (runs, found) = found.into_inner().expect("no panic");
        let line = json!({
            "patch": self.words.first(),
            "found": found.is_some(),
            "seed": found.as_ref().map(|(_, plan)| plan.seed),
            "runs": runs,
            "seconds": rounded(start.elapsed().as_secs_f64(), 1),
            "sentence": found.as_ref().map(|(sentence, _)| sentence),
            "classes": found.as_ref().map(|(_, plan)| plan.classes()),
            "plan": found.as_ref().map(|(_, plan)| plan.to_string()),
        });
        writeln!(stdout()?, "{line}").map_err(|error| error.to_string())?;
        Ok(if found.is_some() { 0 } else { WEAK })
    }

    /// Runs plans until a sentence breaks, or seeds or time are over.
    fn hunted(&self, often: &Often, is_self: bool) -> Result<(Report, bool), String> {
        let start = Instant::now();
        let (first, end) = match (self.seeds, self.budget) {
            (Some(seeds), _) => seeds,
            (None, Some(_)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (now.as_secs() * 1000, u64::MAX)
            }
            (None, None) => return Err("hunt needs --seeds A..B or --budget 120s".into()),
        };
        eprintln!("seeds from {first}");
        let next = Mutex::new(first);
        let report = Mutex::new(Report::new(self.strict));
        let is_over = || {
            self.budget.is_some_and(|budget| start.elapsed() >= budget)
                || !self.keep_going && report.lock().expect("no panic").code != 0
        };
        let watch = Watch::new();
        let work = || -> Result<(), String> {
            while !is_over() {
                let seed = {
                    let mut next = next.lock().expect("no panic");
                    if *next >= end {
                        break;
                    }
                    *next += 1;
                    *next - 1
                };
                let plan = self.draw(seed);
                let outcome = watch.over(&plan, || run(plan.clone()));
                let verdict = self.look(&outcome, often, &report)?;
                let is_bad = report.lock().expect("no panic").add(&outcome, verdict)?;
                if is_bad {
                    self.keep(&outcome)?;
                }
            }
            Ok(())
        };
        each_of(self.jobs.unwrap_or(1), &work)?;
        let mut report = report.into_inner().expect("no panic");
        if is_self {
            report.strength.check_exact();
            for class in self.dead_classes()? {
                (0..strength::ENOUGH).for_each(|_| report.strength.count_left_out(class, false));
            }
        }
        let (more, is_strong) = report.strength.report(&report.counts, is_self);
        report.more = more;
        Ok((report, is_strong))
    }

    /// Classes that change nothing in any of some plans.
    fn dead_classes(&self) -> Result<Vec<&'static str>, String> {
        let (compared, next) = (Compared::default(), Mutex::new(classes::all()));
        let dead = Mutex::new(Vec::new());
        let work = || {
            loop {
                let class = next.lock().expect("no panic").next();
                let Some(class) = class else { return Ok(()) };
                if !compared.is_alive(class) {
                    dead.lock().expect("no panic").push(class.name);
                }
            }
        };
        each_of(self.jobs.unwrap_or(1), &work)?;
        Ok(dead.into_inner().expect("no panic"))
    }

    /// Looks at some runs in other ways: repeated, without a class, with a breach that is planted.
    fn look(
        &self,
        outcome: &Outcome,
        often: &Often,
        report: &Mutex<Report>,
    ) -> Result<Verdict, String> {
        let plan = &outcome.plan;
        let is_due = |word: &str, one_in: u64| draw(plan.seed, word, 0).is_multiple_of(one_in);
        let mut verdict = outcome.verdict();
        if is_due("twice", often.twice) {
            let again = run(plan.clone());
            let is_same = again.hash() == outcome.hash();
            report.lock().expect("no panic").strength.count_twice(is_same);
            if !is_same {
                let difference = verdict::difference(&outcome.trace, &again.trace);
                eprintln!("seed {}: a repeated run differs: {difference}", plan.seed);
                verdict = Verdict::Replay;
            }
        }
        let classes = plan.classes();
        if is_due("left-out", often.left_out) && !classes.is_empty() {
            let class = classes[usize::try_from(plan.seed).unwrap_or(0) % classes.len()];
            let has_changed = strength::matters(outcome, class);
            report.lock().expect("no panic").strength.count_left_out(class, has_changed);
        }
        let strength = &mut report.lock().expect("no panic").strength;
        strength.look(outcome);
        if is_due("canary", often.canary) {
            strength.plant(outcome);
        }
        Ok(verdict)
    }

    /// Keeps plan and story of a failed run.
    fn keep(&self, outcome: &Outcome) -> Result<(), String> {
        let story = story(outcome);
        let Some(folder) = &self.out else {
            eprint!("{story}");
            return Ok(());
        };
        let write = |name: String, text: &str| fs::write(folder.join(name), text);
        let seed = outcome.plan.seed;
        fs::create_dir_all(folder)
            .and_then(|()| write(format!("{seed}.plan"), &outcome.plan.to_string()))
            .and_then(|()| write(format!("{seed}.story"), &story))
            .map_err(|error| format!("{}: {error}", folder.display()))
    }

    fn shrink(&self) -> Result<i32, String> {
        let plan = self.seed_or_file()?;
        let out = self.out.as_ref().ok_or("shrink needs --out FILE")?;
        let outcome = run(plan);
        let Some((sentence, broken)) = &outcome.broken else {
            return Err(format!("seed {}: each sentence holds", outcome.plan.seed));
        };
        let limit = Instant::now() + self.budget.unwrap_or(Duration::from_secs(300));
        let small = shrink::shrink(&outcome.plan, sentence, broken, limit);
        let text = format!("# {}: {}\n{}", sentence.name, broken.kind, small);
        fs::write(out, text).map_err(|error| format!("{}: {error}", out.display()))?;
        let outcome = run(small);
        let mut report = Report::new(true);
        report.add(&outcome, outcome.verdict())?;
        eprint!("{}", story(&outcome));
        report.end()?;
        Ok(0)
    }

    fn replay(&self) -> Result<i32, String> {
        let mut report = Report::new(self.strict);
        let watch = Watch::new();
        for word in &self.words {
            let plan = read_plan(Path::new(word))?;
            let outcome = watch.over(&plan, || run(plan.clone()));
            let again = watch.over(&plan, || run(plan.clone()));
            let verdict = match outcome.hash() == again.hash() {
                true => outcome.verdict(),
                false => Verdict::Replay,
            };
            eprintln!("{word}: {}", verdict.name());
            report.add(&outcome, verdict)?;
            if verdict == Verdict::Replay {
                eprintln!("{}", verdict::difference(&outcome.trace, &again.trace));
            }
        }
        report.end()
    }

    fn list(&self) -> Result<i32, String> {
        let mut out = stdout()?;
        let lines: Vec<Value> = match self.words.first().map(String::as_str) {
            Some("classes") => classes::all().map(|class| json!({"class": class.name})).collect(),
            Some("sentences") => sentences::ALL
                .iter()
                .map(|sentence| json!({"number": sentence.number, "sentence": sentence.name}))
                .collect(),
            _ => return Err("list classes, or list sentences".into()),
        };
        lines.iter().try_for_each(|line| writeln!(out, "{line}")).map_err(|e| e.to_string())?;
        Ok(0)
    }
}

/// Does the same work on so many threads.
fn each_of(jobs: usize, work: &(dyn Fn() -> Result<(), String> + Sync)) -> Result<(), String> {
    thread::scope(|scope| {
        let others: Vec<_> = (1..jobs).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().fold(mine, |end, other| {
            end.and(other.join().unwrap_or(Err("a panic of the simulator".into())))
        })
    })
}

/// What breaks in a run.
fn breaks(outcome: &Outcome) -> Vec<String> {
    outcome.breaks.iter().map(|(sentence, broken)| name_of(sentence, broken)).collect()
}

/// What breaks when another simulator runs the same plan.
fn breaks_of(binary: &Path, plan: &Plan) -> Result<Vec<String>, String> {
    let fault = |error: io::Error| format!("{}: {error}", binary.display());
    let base = env::temp_dir().join(format!("sim-{}-{}", process::id(), plan.seed));
    let (text, lines) = (base.with_extension("plan"), base.with_extension("json"));
    fs::write(&text, plan.to_string()).map_err(fault)?;
    let output = File::options().create(true).truncate(true).read(true).write(true).open(&lines);
    let status = process::Command::new(binary)
        .args(["sim::command::main", "--exact", "--ignored", "--nocapture"])
        .env("SIM_ARGS", format!("run\n--plan\n{}", text.display()))
        .stdin(output.map_err(fault)?)
        .stdout(process::Stdio::null())
        .stderr(process::Stdio::null())
        .status();
    let answer = fs::read_to_string(&lines).unwrap_or_default();
    let _ = (fs::remove_file(&text), fs::remove_file(&lines));
    status.map_err(fault)?;
    let first = answer.lines().next().unwrap_or_default();
    let line: Value = serde_json::from_str(first).map_err(|error| format!("baseline: {error}"))?;
    let breaks = line["breaks"].as_array().into_iter().flatten();
    Ok(breaks.filter_map(|one| one.as_str().map(str::to_owned)).collect())
}

/// The plans of `tests/sim/plans`, with their paths.
fn kept_plans() -> Result<Vec<(PathBuf, Plan)>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/plans");
    let fault = |error: io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(&folder).map_err(fault)?;
    let mut paths: Vec<_> = entries.map_while(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().map(|path| Ok((path.clone(), read_plan(&path)?))).collect()
}

fn read_plan(path: &Path) -> Result<Plan, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.parse().map_err(|error| format!("{}: {error}", path.display()))
}

/// Standard output of the script: see the header.
fn stdout() -> Result<File, String> {
    let copy = io::stdin().as_fd().try_clone_to_owned();
    copy.map(File::from).map_err(|error| format!("descriptor 0: {error}"))
}

/// Ends the program if a run does not end.
struct Watch(Mutex<Vec<(Instant, String)>>);

impl Watch {
    fn new() -> &'static Self {
        let watch: &'static Self = Box::leak(Box::new(Self(Mutex::new(Vec::new()))));
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1));
                let runs = watch.0.lock().expect("no panic");
                if let Some((_, plan)) = runs.iter().find(|(at, _)| at.elapsed() > LONGEST_RUN) {
                    eprintln!("sim: a run does not end:\n{plan}");
                    process::exit(USAGE);
                }
            }
        });
        watch
    }

    fn over<T>(&self, plan: &Plan, act: impl FnOnce() -> T) -> T {
        let (start, text) = (Instant::now(), plan.to_string());
        self.0.lock().expect("no panic").push((start, text.clone()));
        let end = act();
        self.0.lock().expect("no panic").retain(|run| *run != (start, text.clone()));
        end
    }
}

/// The lines of JSON, and what they count to.
struct Report {
    out: Result<File, String>,
    is_strict: bool,
    code: i32,
    runs: u64,
    failed: u64,
    known: u64,
    excused: u64,
    /// How often each sentence was judged.
    counts: Vec<u64>,
    strength: Strength,
    /// Further members of the last line.
    more: Value,
}

impl Report {
    fn new(is_strict: bool) -> Self {
        Self {
            out: stdout(),
            is_strict,
            code: 0,
            runs: 0,
            failed: 0,
            known: 0,
            excused: 0,
            counts: vec![0; sentences::ALL.len()],
            strength: Strength::default(),
            more: json!({}),
        }
    }

    /// Adds a run and writes its line. Tells whether it counts as failed.
    fn add(&mut self, outcome: &Outcome, verdict: Verdict) -> Result<bool, String> {
        let known = known::of(outcome);
        self.runs += 1;
        self.excused += u64::from(outcome.excuse.is_some());
        for (sum, count) in self.counts.iter_mut().zip(&outcome.counts) {
            *sum += count;
        }
        let is_known = known.is_some() && verdict.is_of_the_agent() && !self.is_strict;
        self.known += u64::from(is_known);
        let is_bad = verdict != Verdict::Ok && !is_known;
        if is_bad {
            self.failed += 1;
            if self.code == 0 || verdict == Verdict::Simulator {
                self.code = verdict.code();
            }
        }
        let line = line(outcome, verdict, known);
        let out = self.out.as_mut().map_err(|error| error.clone())?;
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
        Ok(is_bad)
    }

    /// Writes the last line; the exit status.
    fn end(mut self) -> Result<i32, String> {
        let names = sentences::ALL.iter().map(|sentence| sentence.name);
        let counts: serde_json::Map<String, Value> =
            names.zip(&self.counts).map(|(name, count)| (name.to_owned(), json!(count))).collect();
        let mut line = json!({
            "runs": self.runs,
            "failed": self.failed,
            "known": self.known,
            "excused": self.excused,
            "virtual_h_per_s": rounded(virtual_hours() / cpu_time().as_secs_f64().max(0.01), 2),
            "sentences": counts,
        });
        let more = self.more.as_object().cloned().unwrap_or_default();
        line.as_object_mut().expect("it is an object").extend(more);
        let out = self.out.as_mut().map_err(|error| error.clone())?;
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
        Ok(self.code)
    }
}

/// What all worlds have gone through.
fn virtual_hours() -> f64 {
    Duration::from_millis(SIMULATED.load(Ordering::Relaxed)).as_secs_f64() / 3600.0
}

/// What this process has used of a core.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::MAX, Duration::from)
}

fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}

/// The line of a run.
fn line(outcome: &Outcome, verdict: Verdict, known: Option<&Known>) -> Value {
    let first = outcome.broken.as_ref();
    json!({
        "seed": outcome.plan.seed,
        "verdict": verdict.name(),
        "sentence": first.map(|(sentence, _)| sentence.name),
        "kind": first.map(|(_, broken)| &broken.kind),
        "at_s": first.map(|(_, broken)| rounded(broken.at.as_secs_f64(), 3)),
        "turn": first.map(|(_, broken)| turns(&outcome.trace, broken.at)),
        "breaks": breaks(outcome),
        "known": known.map(|known| known.name),
        "classes": outcome.plan.classes(),
        "excuse": outcome.excuse,
        "virtual_s": rounded(outcome.virtual_time().as_secs_f64(), 0),
        "real_ms": u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX),
        "trace": format!("{:016x}", outcome.hash()),
        "plan": outcome.plan.to_string(),
    })
}

fn name_of(sentence: &Sentence, broken: &Broken) -> String {
    format!("{}: {}", sentence.name, broken.kind)
}

/// How many turns the agent had taken at a time.
fn turns(trace: &[Entry], at: Duration) -> usize {
    let before = trace.iter().take_while(|entry| entry.at <= at);
    before.filter(|entry| matches!(entry.what, What::Waits { .. })).count()
}

/// How much of a story is shown before its end, and of a line.
const SHOWN: usize = 150;
const WIDEST: usize = 200;

/// The run in plain words: what the plan did, and what the board did before a sentence broke.
fn story(outcome: &Outcome) -> String {
    let first = outcome.broken.as_ref();
    let end = first.map_or(Duration::MAX, |(_, broken)| broken.at);
    let told: Vec<&Entry> =
        outcome.trace.iter().filter(|entry| entry.at <= end && entry.what.is_told()).collect();
    let left_out = told.len().saturating_sub(SHOWN);
    let mut text = format!("seed {} ({})\n", outcome.plan.seed, outcome.plan.classes().join(", "));
    if left_out > 0 {
        text += &format!("[{left_out} lines before; --trace FILE has all]\n");
    }
    for entry in &told[left_out..] {
        let line: String = entry.to_string().chars().take(WIDEST).collect();
        text += &format!("{line}\n");
    }
    for (sentence, broken) in &outcome.breaks {
        let at = broken.at.as_secs_f64();
        let name = name_of(sentence, broken);
        text +=
            &format!("** at {at:.3} s, sentence {}, {name}: {}\n", sentence.number, broken.text);
    }
    text
}

/// The kept plans hold, but for what is known.
#[test]
fn kept_plans_hold() {
    if !nix::unistd::Uid::effective().is_root() {
        return eprintln!("SKIPPED: the simulator needs root, for chroot");
    }
    for (path, plan) in kept_plans().unwrap() {
        let outcome = run(plan);
        let is_fine = outcome.verdict() == Verdict::Ok || known::of(&outcome).is_some();
        assert!(is_fine, "{}:\n{}", path.display(), story(&outcome));
    }
}
