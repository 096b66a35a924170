//! A plan is data: the setting of a world, and what goes wrong in it, as text. It is drawn from a
//! seed, printed, shrunk and kept; a run follows the plan alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::classes::{self, Class};
use super::draw::Draws;

/// The plan of one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) hours: u64,
    /// What the board and the cluster are like: `auth=rotate`, `servers=2`.
    pub(crate) setting: BTreeMap<String, String>,
    pub(crate) steps: Vec<Step>,
    /// When the world has been without a fault for a while, and the promises are judged.
    pub(crate) stories: Vec<Story>,
}

/// One thing that goes wrong, or that somebody does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) when: When,
    /// Zero for what happens at once and is over.
    pub(crate) lasts: Duration,
    pub(crate) class: &'static Class,
    /// What the class makes of it: milliseconds, a status code, the number of a server.
    pub(crate) size: u64,
    pub(crate) target: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// Since the begin of the run.
    At(Duration),
    /// At so many hooks after a time: between two calls of the program.
    Hook(Duration, u64),
}

/// A time of faults, and the end of the quiet time after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Story {
    pub(crate) healed: Duration,
    pub(crate) until: Duration,
}

impl PartialEq for Class {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl When {
    pub(crate) fn at(self) -> Duration {
        match self {
            Self::At(at) | Self::Hook(at, _) => at,
        }
    }
}

impl Step {
    pub(crate) fn end(&self) -> Duration {
        self.when.at() + self.lasts
    }
}

/// The values that a setting may have, the usual one several times.
const SETTINGS: &[(&str, &[&str])] = &[
    (
        "auth",
        &[
            "inline",
            "token",
            "files",
            "rotate",
            "rotate",
            "rotate-file",
            "bootstrap",
            "bootstrap",
            "k3s",
            "joined",
            "joined",
            "joined",
            "joined-k3s",
            "joined-k3s",
        ],
    ),
    // A kept plan has `file` as well, with `auth=files`.
    ("ca", &["data"]),
    ("other", &["kubeadm", "kubeadm", "k3s"]),
    ("address", &["ip", "name", "name"]),
    ("servers", &["1", "1", "2", "3"]),
    // Of a bootstrap: whether the certificate is renewed, where it outlives the run.
    ("renews", &["yes", "yes", "no"]),
    ("gateway", &["no", "no", "no", "strict"]),
    ("life", &["1200", "2400", "3600", "7200", "14400", "86400"]),
    ("signs", &["yes", "yes", "yes", "slow"]),
    ("waits", &["no", "no", "path"]),
    ("rtc", &["yes", "yes", "yes", "no"]),
    // The board, by `devices.rs`.
    ("board", &["pi", "pi", "pc"]),
    ("boot", &["rw", "rw", "ro", "fstab"]),
    ("bootid", &["here", "here", "here", "here", "here", "none"]),
    ("card", &["sd", "emmc", "emmc"]),
    ("cgroup", &["v2", "v2", "v1", "none"]),
    ("data", &["goes-on", "stops"]),
    ("family", &["v4", "v4", "v6", "dual"]),
    ("health", &["problems", "all", "all"]),
    ("hosts", &["no", "no", "no", "names", "names", "names", "dns", "large"]),
    ("initramfs", &["no", "no", "no", "yes"]),
    ("kernel", &["6.6", "6.12", "6.18"]),
    ("links", &["1", "2", "40"]),
    ("machine", &["here", "here", "here", "here", "late"]),
    ("mounts", &["0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "100", "600", "6000"]),
    ("pods", &["0", "0", "0", "40"]),
    ("root", &["ext4", "ext4", "ext4", "ext2", "btrfs", "overlay", "overlay-nfs"]),
    ("zones", &["1", "1", "3", "61"]),
    // The addresses of a name: with working ones of IPv6, or a first one that leads nowhere.
    ("reach", &["4", "4", "4", "4", "both", "both", "dead-6"]),
    // How the name is found: two name servers and a search list; a name server that knows an alias
    // only, before one that is out of order; /etc/hosts.
    ("dns", &["one", "one", "one", "two", "alias", "hosts"]),
    ("proxy", &["no", "no", "no", "no", "yes"]),
    ("tls", &["1.3", "1.3", "1.3", "1.2"]),
    ("key", &["p256", "p256", "p384"]),
    // The length of a bearer token.
    ("token", &["0", "0", "0", "0", "0", "0", "7000", "9000", "60000"]),
    // A controller gives each Node a pod CIDR.
    ("cidr", &["no", "yes"]),
    // What is wrong with the board from its first day on.
    ("hardware", &["fine", "fine", "fine", "disk-low", "memory-low", "undervolted", "hot"]),
];

/// The simplest value of each setting.
pub(crate) fn usual_settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let usual = |(name, values): &(&'static str, &'static [&'static str])| match *name {
        "life" => (*name, "86400"),
        _ => (*name, values[0]),
    };
    SETTINGS.iter().map(usual)
}

impl Plan {
    /// The plan that a seed draws, of the classes that are wanted.
    pub(crate) fn draw(seed: u64, hours: u64, is_wanted: &dyn Fn(&Class) -> bool) -> Self {
        Self::draw_classes(seed, hours, false, is_wanted)
    }

    /// The plan of a seed with these classes in each story, whichever the seed draws. In a story for
    /// which the seed draws a class, that class does the same in both plans.
    pub(crate) fn draw_only(seed: u64, hours: u64, is_wanted: &dyn Fn(&Class) -> bool) -> Self {
        Self::draw_classes(seed, hours, true, is_wanted)
    }

    fn draw_classes(
        seed: u64,
        hours: u64,
        has_all: bool,
        is_wanted: &dyn Fn(&Class) -> bool,
    ) -> Self {
        let mut draws = Draws::new(seed, "plan");
        let setting: BTreeMap<String, String> = SETTINGS
            .iter()
            .map(|(name, values)| {
                let value = Draws::new(seed, name).one_of(values);
                ((*name).to_owned(), value.to_owned())
            })
            .collect();
        let end = Duration::from_secs(hours * 3600);
        let all = classes::all().filter(|class| (class.fits)(&setting));
        let all: Vec<&'static Class> = all.collect();
        // One run in twenty has no fault: its counts are exact. In one run in four each story has
        // some 40 % of all classes: these runs find the most in the same time. The others have up
        // to 24 classes, of which each story has up to eight.
        let half = all.len() as u64 / 2;
        let (count, fewest, most) = match draws.below(20) {
            0 => (0, 0, 0),
            1..6 => (half, half, half),
            _ => (draws.within(4, 24), 2, 8),
        };
        let mut of_run: Vec<&'static Class> = Vec::new();
        for _ in 0..count {
            let class = draws.one_of(&all);
            if !of_run.contains(&class) {
                of_run.push(class);
            }
        }
        if has_all {
            of_run = all;
        }
        let (mut steps, mut stories) = (Vec::new(), Vec::new());
        let twin = classes::twin();
        let mut now = Duration::from_secs(draws.within(20, 120));
        let mut story = 0;
        while now < end {
            story += 1;
            let lasts = Duration::from_secs(match draws.below(8) {
                0 => draws.within(600, 2400),
                1 | 2 => draws.within(180, 600),
                _ => draws.within(20, 180),
            });
            let healed = now + lasts;
            let of_story = |word| Draws::new(seed.wrapping_add(story * 0x1_0001), word);
            // The classes of this story: the first ones, in an order of its own.
            let mut chosen = of_run.clone();
            let mut order = of_story("classes");
            chosen.sort_by_cached_key(|_| order.next());
            if !has_all {
                chosen.truncate(usize::try_from(order.within(fewest, most)).unwrap_or(usize::MAX));
            }
            chosen.retain(|class| is_wanted(class));
            for class in &chosen {
                // The draws of a class are its own: without another class they stay as they are.
                let mut own = of_story(class.name);
                let times = if own.one_in(2) { own.within(1, 3) } else { u64::from(own.one_in(2)) };
                for _ in 0..times {
                    steps.push(class.draw(&mut own, now, healed));
                }
            }
            // Most of a run's time goes into quiet hours, so most quiet times are short.
            let quiet = Duration::from_secs(match draws.below(16) {
                0 => draws.within(1200, 2400),
                1..5 => draws.within(SETTLES + COMPARES + AFTER_TWIN, 1000),
                _ => draws.within(SHORTEST_QUIET, 320),
            });
            now = healed + quiet;
            if !of_run.is_empty() && is_wanted(twin) {
                let mut own = of_story(twin.name);
                steps.extend(twin_step(twin, &mut own, healed, quiet));
            }
            stories.push(Story { healed, until: now });
        }
        stories.retain(|story| story.until < end);
        steps.retain(|step| step.end() < end);
        steps.sort_by_key(|step| step.when.at());
        Self { seed, hours, setting, steps, stories }
    }

    pub(crate) fn setting(&self, name: &str) -> &str {
        self.setting.get(name).map_or("", String::as_str)
    }

    /// A bootstrap whose certificate outlives the run, and is not renewed.
    pub(crate) fn renews_never(&self) -> bool {
        self.setting("renews") == "no" && ["", "86400"].contains(&self.setting("life"))
    }

    /// Whether a seed could draw the plan: each class fits its setting, and the time before a
    /// judgement is as quiet and as long as `draw` makes it.
    pub(crate) fn is_drawable(&self) -> bool {
        let twin = classes::twin();
        let fits = |step: &Step| step.class == twin || (step.class.fits)(&self.setting);
        let is_outside = |step: &Step, story: &Story| {
            step.end() <= story.healed
                || step.when.at() >= story.until
                || step.class == twin
                    && step.when.at() >= story.healed + Duration::from_secs(SETTLES)
                    && step.end() + Duration::from_secs(AFTER_TWIN) <= story.until
        };
        let is_quiet = |story: &Story| {
            story.until >= story.healed + Duration::from_secs(SHORTEST_QUIET)
                && self.steps.iter().all(|step| is_outside(step, story))
        };
        self.steps.iter().all(fits) && self.stories.iter().all(is_quiet)
    }

    /// Whether a file of the board's root waits for a server: it is read at the start alone
    /// (systemd/differences.md).
    pub(crate) fn root_can_block(&self) -> bool {
        self.setting("root") == "overlay-nfs"
    }

    /// The names of the classes, each once.
    pub(crate) fn classes(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.steps.iter().map(|step| step.class.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::At(at) => write!(f, "at {}", seconds(at))?,
            When::Hook(at, count) => write!(f, "at {} hook {count}", seconds(at))?,
        }
        if !self.lasts.is_zero() {
            write!(f, " for {}", seconds(self.lasts))?;
        }
        write!(f, " {}", self.class.name)?;
        if self.size != 0 {
            write!(f, " size={}", self.size)?;
        }
        if self.target != 0 {
            write!(f, " target={}", self.target)?;
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "hours {}", self.hours)?;
        for (name, value) in &self.setting {
            writeln!(f, "setting {name}={value}")?;
        }
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        for story in &self.stories {
            writeln!(f, "judge {} {}", seconds(story.healed), seconds(story.until))?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = Self {
            seed: 0,
            hours: 8,
            setting: BTreeMap::new(),
            steps: Vec::new(),
            stories: Vec::new(),
        };
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let number = || rest.parse().map_err(|_| format!("{line}: no number"));
            match word {
                "" => {}
                "seed" => plan.seed = number()?,
                "hours" => plan.hours = number()?,
                "setting" => {
                    let (name, value) = rest.split_once('=').ok_or(format!("{line}: no value"))?;
                    plan.setting.insert(name.to_owned(), value.to_owned());
                }
                "at" => plan.steps.push(step(rest).ok_or(format!("{line}: not a step"))?),
                "judge" => {
                    let (healed, until) = rest.split_once(' ').ok_or("judge: two times")?;
                    let time = |text| time(text).ok_or(format!("{line}: no time"));
                    plan.stories.push(Story { healed: time(healed)?, until: time(until)? });
                }
                _ => return Err(format!("{line}: not a line of a plan")),
            }
        }
        Ok(plan)
    }
}

fn time(text: &str) -> Option<Duration> {
    let millis: f64 = text.parse::<f64>().ok()? * 1000.0;
    Some(Duration::from_millis(format!("{millis:.0}").parse().ok()?))
}

fn step(text: &str) -> Option<Step> {
    let mut words = text.split(' ').peekable();
    let at = time(words.next()?)?;
    let mut when = When::At(at);
    if words.next_if_eq(&"hook").is_some() {
        when = When::Hook(at, words.next()?.parse().ok()?);
    }
    let mut lasts = Duration::ZERO;
    if words.next_if_eq(&"for").is_some() {
        lasts = time(words.next()?)?;
    }
    let name = words.next()?;
    let class = classes::all().find(|class| class.name == name)?;
    let (mut size, mut target) = (0, 0);
    for word in words {
        match word.split_once('=')? {
            ("size", value) => size = value.parse().ok()?,
            ("target", value) => target = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(Step { when, lasts, class, size, target })
}

/// The faults that last now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    active: Vec<(usize, &'static str, u64, u64)>,
    /// How often each class was asked for and found, to see that it matters.
    pub(crate) hits: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub(crate) fn begin(&mut self, index: usize, step: &Step) {
        self.active.push((index, step.class.name, step.size, step.target));
    }

    pub(crate) fn end(&mut self, index: usize) {
        self.active.retain(|(active, ..)| *active != index);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    pub(crate) fn has(&self, class: &str) -> bool {
        self.size(class).is_some()
    }

    /// Whether nothing lasts but steps of one class.
    pub(crate) fn is_only(&self, class: &str) -> bool {
        self.active.iter().all(|(_, name, ..)| *name == class)
    }

    /// The size of a fault; the largest if there are several.
    pub(crate) fn size(&self, class: &str) -> Option<u64> {
        debug_assert!(self.is_empty() || classes::is_known(class), "no class {class}");
        let of_class = self.active.iter().filter(|(_, name, ..)| *name == class);
        of_class.map(|(.., size, _)| *size).max()
    }

    /// Size and target of each fault of a class.
    pub(crate) fn of(&self, class: &str) -> impl Iterator<Item = (u64, u64)> {
        debug_assert!(self.is_empty() || classes::is_known(class), "no class {class}");
        let of_class = self.active.iter().filter(move |(_, name, ..)| *name == class);
        of_class.map(|(.., size, target)| (*size, *target))
    }

    /// The target of a fault.
    pub(crate) fn target(&self, class: &str) -> Option<u64> {
        debug_assert!(self.is_empty() || classes::is_known(class), "no class {class}");
        let mut of_class = self.active.iter().filter(|(_, name, ..)| *name == class);
        of_class.next().map(|(.., target)| *target)
    }

    /// The size of a fault of one server: target 0 is each server, else its number from 1.
    pub(crate) fn at(&self, class: &str, server: usize) -> Option<u64> {
        debug_assert!(self.is_empty() || classes::is_known(class), "no class {class}");
        let is_meant = |target: u64| target == 0 || target == server as u64 + 1;
        let of_class =
            self.active.iter().filter(|(_, name, _, target)| *name == class && is_meant(*target));
        of_class.map(|(.., size, _)| *size).max()
    }
}

/// All that a fault has left is over after so long: a Node that is not Ready may be so for 160 s.
const SETTLES: u64 = 180;

/// The shortest quiet time after a story.
const SHORTEST_QUIET: u64 = 200;

/// How long after a restart its twin is compared with it.
const COMPARES: u64 = 170;

/// The quiet time after that.
const AFTER_TWIN: u64 = 110;

/// A restart of the agent in a long quiet time after a story: two of three times.
fn twin_step(
    class: &'static Class,
    draws: &mut Draws,
    healed: Duration,
    quiet: Duration,
) -> Option<Step> {
    let room = quiet.as_secs().checked_sub(SETTLES + COMPARES + AFTER_TWIN)?;
    let at = healed + Duration::from_secs(SETTLES + draws.below(room + 1));
    let size = draws.one_of(class.sizes);
    let lasts = Duration::from_secs(COMPARES);
    let target = if draws.one_in(3) { draws.within(1, class.targets) } else { 0 };
    (!draws.one_in(3)).then_some(Step { when: When::At(at), lasts, class, size, target })
}

#[test]
fn what_is_drawn_is_drawable() {
    for seed in 1..200 {
        let mut plan = Plan::draw(seed, 4, &|_| true);
        assert!(plan.is_drawable(), "{plan}");
        if let Some(story) = plan.stories.first_mut() {
            story.until = story.healed;
            assert!(!plan.is_drawable(), "{plan}");
        }
    }
}

/// The classes of the steps of each story.
#[test]
fn the_stories_of_a_run_have_different_classes() {
    let (mut most, mut runs) = (0, 0);
    for seed in 1..200 {
        let plan = Plan::draw(seed, 8, &|class| class.name != "twin");
        let classes = |from: Duration, until: Duration| {
            let steps = plan.steps.iter().filter(|step| (from..until).contains(&step.when.at()));
            steps.map(|step| step.class.name).collect::<BTreeSet<_>>()
        };
        let mut from = Duration::ZERO;
        let stories: Vec<_> = plan
            .stories
            .iter()
            .map(|story| classes(std::mem::replace(&mut from, story.until), story.until))
            .collect();
        let largest = stories.iter().map(BTreeSet::len).max().unwrap_or(0);
        if plan.classes().len() > 30 || largest == 0 {
            continue;
        }
        assert!(largest <= 8, "{plan}");
        most = most.max(plan.classes().len());
        runs += usize::from(stories.iter().any(|story| !story.is_subset(&stories[0])));
    }
    assert!(runs > 100 && most > 15, "{runs} runs, of which one has {most} classes");
}
