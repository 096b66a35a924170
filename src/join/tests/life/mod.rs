//! A model of a board's life: joins, resets, packages, reboots, power cuts at any file operation,
//! full disks, wrong clocks, expired tokens, new CAs and outages, in random order. After each step
//! nothing that worked is gone, and a person who follows the last line gets a Ready Node.
//!
//! Join, reset, agent and files are real. Server, systemd, the package's scripts, time and the
//! person are models.

mod board;

use std::time::Duration;

use nix::errno::Errno;
use serde_json::json;

use self::board::{Line, View, World, wrong_clocks};
use crate::credentials::tests::cluster::{Behavior, YEAR, wall};
use crate::credentials::tests::process::live_all;
use crate::kube::time::Wall;
use crate::node::kubelet::tests::storm::collect_lines;
use crate::os::write::Op;
use crate::os::{power_cut, recorder, tree::Tree};

const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

/// Time from a healthy world to a Ready Node.
const RECOVERY: Duration = Duration::from_secs(100);
/// Most lines that a person follows.
const PATIENCE: usize = 8;
const STEPS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Join(Line),
    Reset,
    Remove,
    Purge,
    Install,
    /// Or a downgrade: the agent is started again.
    Upgrade,
    Reboot,
    Fails(Errno),
    Clock(Wall),
    TokenExpires,
    ReplaceCa(usize),
    Busy(usize, u16, Duration),
    Gone(usize, Duration),
    Off(Duration),
    Passes(Duration),
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Repeat,
    NewLine,
    Force,
    SetClock,
    MendDisk,
    WaitForServer,
    DeleteNode,
    Stop,
    Start,
    ReadJournal,
}

/// What a part of a line tells a person. The first one counts.
const REMEDIES: [(&str, Act); 22] = [
    ("no space left on device", Act::MendDisk),
    ("read-only file system", Act::MendDisk),
    ("set the clock", Act::SetClock),
    ("clock says", Act::SetClock),
    ("connection refused", Act::WaitForServer),
    ("is this the API server, and is it up?", Act::WaitForServer),
    ("nodelet join --force", Act::Force),
    ("kubeadm token create", Act::NewLine),
    ("copy the line again", Act::NewLine),
    ("kubectl delete node", Act::DeleteNode),
    ("systemctl stop nodelet", Act::Stop),
    ("systemctl restart nodelet", Act::Start),
    ("journalctl -u nodelet", Act::ReadJournal),
    ("systemctl enable --now --no-block nodelet", Act::Start),
    ("systemctl start --no-block nodelet", Act::Start),
    ("join again", Act::Repeat),
    ("nodelet join", Act::NewLine),
    ("was the CA replaced?", Act::NewLine),
    ("if it is of another cluster, replace or remove it", Act::NewLine),
    ("try again", Act::Repeat),
    ("429", Act::WaitForServer),
    ("503", Act::WaitForServer),
];

fn act(line: &str) -> Option<Act> {
    REMEDIES.iter().find(|(part, _)| line.contains(part)).map(|(_, act)| *act)
}

/// A board and its owner.
struct Life {
    seed: u64,
    view: View,
    /// What the owner wants; `None` after a reset.
    wanted: Option<Line>,
    /// The lines of the last command that have a remedy; the first one may be a failure.
    printed: Vec<String>,
    /// The Node that the files can renew the Lease of.
    works: Option<(usize, String)>,
    disk: Option<Errno>,
}

impl Life {
    fn new(seed: u64) -> Self {
        collect_lines();
        recorder::start();
        let view = View::new(seed);
        if !seed.is_multiple_of(8) {
            view.0.borrow_mut().install();
        }
        Self { seed, view, wanted: None, printed: Vec::new(), works: None, disk: None }
    }

    fn world(&self) -> std::cell::RefMut<'_, World> {
        self.view.0.borrow_mut()
    }

    fn below(&self, n: u64) -> u64 {
        self.world().below(n)
    }

    #[track_caller]
    fn fails(&self, what: &str) -> ! {
        let shown = self.world().shown();
        panic!("seed {}: {what}\n{shown}\nlast command: {:?}", self.seed, self.printed)
    }

    fn step(&self) -> Step {
        let cluster = usize::from(self.below(3) == 0);
        let minutes = |n: u64| MINUTE * u32::try_from(self.below(n)).unwrap();
        match self.below(26) {
            0..4 => {
                let name = if self.below(3) == 0 { "pie" } else { "pi" };
                let (label, force) = (self.below(2), self.below(4) == 0);
                let line = self.world().new_line(cluster, name, label);
                Step::Join(Line { force, ..line })
            }
            4..7 => match &self.wanted {
                Some(line) => Step::Join(line.clone()),
                None => Step::Join(self.world().new_line(0, "pi", 0)),
            },
            7 => Step::Reset,
            8 => Step::Remove,
            9 => Step::Purge,
            10 | 11 => Step::Install,
            12 => Step::Upgrade,
            13 | 14 => Step::Reboot,
            15 => Step::Fails(Errno::ENOSPC),
            16 => Step::Fails(Errno::EROFS),
            17 => Step::Clock(wrong_clocks()[usize::from(self.below(2) == 0)]),
            18 => Step::TokenExpires,
            19 | 20 => Step::ReplaceCa(cluster),
            21 => Step::Busy(cluster, if self.below(2) == 0 { 429 } else { 503 }, minutes(6)),
            22 => Step::Gone(cluster, if self.below(3) == 0 { YEAR } else { minutes(60) }),
            23 => Step::Off(if self.below(3) == 0 { YEAR + DAY } else { minutes(600) }),
            24 => Step::Passes(DAY * u32::try_from(self.below(200)).unwrap()),
            _ => Step::Passes(minutes(10)),
        }
    }

    fn set_disk(&mut self, fault: Option<Errno>) {
        self.disk = fault;
        recorder::refuse(fault);
    }

    fn carry_out(&mut self, step: &Step) {
        match step {
            Step::Join(line) => {
                self.wanted = Some(line.clone());
                self.join();
            }
            Step::Reset => {
                self.printed = self.view.reset().into_iter().collect();
                if self.printed.is_empty() {
                    self.wanted = None;
                }
            }
            Step::Remove => self.world().remove(),
            Step::Purge => self.world().purge(),
            Step::Install | Step::Upgrade => self.world().install(),
            Step::Reboot => self.world().boot(),
            Step::Fails(errno) => self.set_disk(Some(*errno)),
            Step::Clock(shown) => {
                let mut world = self.world();
                world.wrong_clock = Some((world.now, *shown));
            }
            Step::TokenExpires => {
                self.world().clusters.iter_mut().for_each(|cluster| cluster.tokens.clear());
            }
            Step::ReplaceCa(cluster) => {
                let what = self.world().clusters[*cluster].replace_ca();
                self.world().tell(what);
            }
            Step::Busy(cluster, code, time) => {
                self.outage(*cluster, Behavior::Refuses(*code, None), *time)
            }
            Step::Gone(cluster, time) => {
                self.outage(*cluster, Behavior::Gone, *time);
                self.world().pass(*time);
            }
            Step::Off(time) => {
                self.world().power_off();
                self.world().pass(*time);
                self.world().boot();
            }
            Step::Passes(time) => self.world().pass(*time),
        }
        self.world().pass(MINUTE);
    }

    fn outage(&self, cluster: usize, behavior: Behavior, time: Duration) {
        let mut world = self.world();
        let end = world.now + time;
        let cluster = &mut world.clusters[cluster];
        (cluster.behavior, cluster.fault_ends) = (behavior, Some(end));
    }

    fn join(&mut self) {
        let line = self.wanted.clone().unwrap();
        self.printed = self.view.join(&line);
    }

    /// A step of a cluster, of time or of the owner may end what worked.
    fn may_end(&self, step: &Step, is_cut: bool) -> bool {
        match step {
            Step::Reset | Step::Purge | Step::ReplaceCa(_) => true,
            // Between flags and kubeconfig of another name; the same line again is the cure.
            Step::Join(line) => line.force && is_cut,
            Step::Gone(_, time) | Step::Off(time) | Step::Passes(time) => *time > DAY * 30,
            _ => false,
        }
    }

    /// One random step, perhaps with a power cut in it.
    fn live(&mut self) {
        let step = self.step();
        let worked = self.works.take();
        self.world().tell(&format!("{step:?}, disk {:?}", self.disk));
        recorder::take();
        let before = Tree::in_memory("life-before");
        let is_cut = self.below(3) == 0;
        if is_cut {
            power_cut::copy(&self.world().tree, &before);
        }
        self.carry_out(&step);
        let ops = recorder::take();
        if is_cut && !ops.is_empty() && !matches!(step, Step::Remove | Step::Purge | Step::Install)
        {
            self.cut(&before, &ops);
            // Nobody has seen the last line.
            let is_join = matches!(step, Step::Join(_));
            self.printed = if is_join { vec!["✗ join again".to_owned()] } else { Vec::new() };
        }
        self.check(&step, is_cut, worked);
        if self.below(3) == 0 {
            self.recover();
            let works = self.world().node();
            self.works = works;
        }
    }

    /// The power fails at one of the operations, and returns.
    fn cut(&mut self, before: &Tree, ops: &[Op]) {
        let disk = self.disk.take();
        recorder::refuse(None);
        let tree = self.world().tree.path().to_owned();
        let mut below = |n: usize| usize::try_from(self.below(u64::try_from(n).unwrap())).unwrap();
        let done = power_cut::cut_once(&tree, before, ops, &mut below);
        self.world().tell(&format!("power cut after {done} of {} operations", ops.len()));
        self.set_disk(disk);
        self.world().boot();
        self.world().pass(MINUTE);
        recorder::take();
    }

    /// The files are complete, and nothing that worked is gone.
    fn check(&mut self, step: &Step, is_cut: bool, worked: Option<(usize, String)>) {
        let paths = self.world().paths();
        if paths.kubeconfig().exists() && paths.stored_flags().is_none() {
            self.fails("a kubeconfig without the flags of its join");
        }
        let works = self.world().node();
        self.works = works;
        if let Some(node) = &worked
            && self.works.is_none()
            && !self.may_end(step, is_cut)
        {
            self.fails(&format!("{node:?} worked before {step:?}"));
        }
    }

    /// The owner follows the last line, until the Node is Ready.
    fn recover(&mut self) {
        if self.wanted.is_none() {
            return;
        }
        for _ in 0..PATIENCE {
            if self.is_ready() {
                self.printed.clear();
                return;
            }
            self.follow();
        }
        self.fails("a person who followed each line has no Ready Node");
    }

    fn is_ready(&self) -> bool {
        let line = self.wanted.clone().unwrap();
        let start = self.world().now;
        let done = |world: &World| world.is_ready(&line, start);
        self.world().run_until(start + RECOVERY, done);
        // A running agent may still have its copy of former files.
        let world = self.world();
        world.is_ready(&line, start) && world.node() == Some((line.cluster, line.name.to_owned()))
    }

    fn follow(&mut self) {
        if !self.world().is_installed() {
            self.world().tell("a person installs the package");
            return self.world().install();
        }
        let said = self.world().said.clone();
        let journal = said.iter().rev().find_map(|line| act(line));
        let printed = std::mem::take(&mut self.printed);
        let what = match printed.first().map(|line| (line.starts_with('✗'), act(line))) {
            Some((true, None)) => self.fails(&format!("{}: what now?", printed[0])),
            Some((true, Some(Act::ReadJournal))) => journal.unwrap_or(Act::Start),
            Some((true, Some(act))) => act,
            _ => match printed.iter().rev().find_map(|line| act(line)).or(journal) {
                Some(act) => act,
                // The owner of a board that is not Ready repeats the line of the join first.
                None if !self.world().is_started => Act::Repeat,
                None => self.fails("no line says what to do"),
            },
        };
        self.world().tell(&format!("a person does {what:?}"));
        self.world().said.clear();
        let mut wanted = self.wanted.clone().unwrap();
        match what {
            Act::Repeat | Act::ReadJournal => {}
            Act::NewLine => {
                let line = self.world().new_line(wanted.cluster, wanted.name, wanted.label);
                wanted = Line { force: wanted.force, ..line };
            }
            Act::Force => wanted.force = true,
            Act::SetClock => self.world().wrong_clock = None,
            Act::MendDisk => self.set_disk(None),
            Act::WaitForServer => {
                let mut world = self.world();
                let end = world.clusters[wanted.cluster].fault_ends;
                let time = end.map(|end| end.saturating_sub(world.now));
                world.pass(time.unwrap_or_default());
            }
            Act::DeleteNode => self.world().clusters[wanted.cluster][wanted.name].delete(),
            Act::Stop => self.world().stop(),
            Act::Start => return self.world().enable(),
        }
        self.wanted = Some(wanted);
        self.join();
    }
}

/// The line with both CAs adds the new one. Then the certificate is of a CA that is gone, and a
/// line is of the time before the new CA.
#[test]
fn a_board_and_a_line_of_a_former_ca_lead_to_a_ready_node() {
    let mut life = Life::new(1);
    let line = life.world().new_line(0, "pi", 0);
    life.carry_out(&Step::Join(line));
    life.carry_out(&Step::ReplaceCa(0));
    let line = life.world().new_line(0, "pi", 0);
    life.carry_out(&Step::Join(line));
    assert!(life.printed[0].ends_with("; systemctl restart nodelet"), "{:?}", life.printed);
    life.world().restart();
    life.carry_out(&Step::ReplaceCa(0));
    assert!(life.is_ready());
    life.carry_out(&Step::ReplaceCa(0));
    assert!(!life.is_ready());
    life.recover();
    let mut life = Life::new(1);
    let line = life.world().new_line(0, "pi", 0);
    life.carry_out(&Step::ReplaceCa(0));
    life.carry_out(&Step::ReplaceCa(0));
    life.carry_out(&Step::Join(line));
    assert!(!life.is_ready());
    life.recover();
}

/// A kubelet on this machine has this machine's boot id, and files at any path.
#[test]
fn a_live_node_of_another_agent_is_not_taken_over() {
    for (version, boot_id, is_live) in [
        ("v1.36.2", "boot-1", true),
        ("v1.34.1+k3s1", "boot-1", true),
        ("v1.36.2-nodelet.0.1.0", "boot-1", false),
        ("v1.36.2-nodelet.0.1.0", "of another board", true),
    ] {
        let life = Life::new(1);
        let mut line = life.world().new_line(0, "pi", 0);
        life.world().clusters[0]["pi"].node = Some(json!({"status": {
            "nodeInfo": {"bootID": boot_id, "kubeletVersion": version},
            "conditions": [{"type": "Ready", "status": "True"}]}}));
        let remedy = "use --node-name, or kubectl delete node pi; --force goes on";
        for (force, mark) in [(false, "✗"), (true, "–")] {
            line.force = force;
            let live = format!("{mark} namesake: Node pi is Ready, ");
            let lines = life.view.run(&line);
            let is_named =
                |line: &String| line.starts_with(&live) && line.ends_with(remedy) != force;
            assert_eq!(lines.iter().any(is_named), is_live, "{lines:?}");
            let is_joined = force || !is_live;
            assert_eq!(life.world().paths().flags().exists(), is_joined, "{lines:?}");
            assert_eq!(life.world().clusters[0].csrs.is_empty(), !is_joined, "{lines:?}");
        }
    }
}

/// A Node stays Ready for 50 s without its agent, and its boot id is that of this boot.
#[test]
fn a_node_that_only_was_ready_is_not_ready() {
    let mut life = Life::new(1);
    let line = life.world().new_line(0, "pi", 0);
    let timeout = Duration::from_secs(40);
    life.carry_out(&Step::Join(Line { timeout, ..line }));
    assert!(life.is_ready());
    life.world().remove();
    life.join();
    let want = "✗ ready: not Ready after 40 s: its Lease is not renewed: no agent runs";
    assert!(life.printed[0].starts_with(want), "{:?}", life.printed);
    life.world().install();
    life.join();
    assert!(!life.printed[0].starts_with('✗'), "{:?}", life.printed);
}

/// A run makes lower case of a host name.
#[test]
fn the_administrator_may_write_the_name_of_the_board_in_capitals() {
    let life = Life::new(8);
    let line = life.world().new_line(0, "pi", 0);
    for (name, is_refused) in [("Pi", false), ("pi-3", true)] {
        let flags = format!("NODELET_FLAGS=--hostname-override={name}\n");
        life.world().tree.write("etc/default/nodelet", flags.as_bytes());
        let lines = life.view.run(&line);
        let refused = |line: &String| line.starts_with("✗ joined: ");
        assert_eq!(lines.iter().any(refused), is_refused, "{name}: {lines:?}");
    }
}

/// The agent gets the certificate, and a token may not read the Lease.
#[test]
fn a_join_that_stores_a_token_does_not_wait_for_ready() {
    // Without the package no agent starts.
    let life = Life::new(8);
    let line = life.world().new_line(0, "pi", 0);
    let lines = life.view.run(&Line { bootstrap_only: true, ..line });
    let want = "– ready: join does not wait for it; kubectl get node pi";
    assert!(lines.iter().any(|line| line == want), "{lines:?}");
}

/// A wrong clock is no attack.
#[test]
fn a_wrong_clock_is_named() {
    let [_, in_2045] = wrong_clocks();
    // After the end of the server's certificate, and after that of the CA.
    for clock in [wall(YEAR * 2), in_2045] {
        let mut life = Life::new(1);
        let line = life.world().new_line(0, "pi", 0);
        life.carry_out(&Step::Clock(clock));
        life.carry_out(&Step::Join(line));
        let line = &life.printed[0];
        assert!(line.starts_with('✗') && line.contains("set the clock"), "{line}");
        assert!(!line.contains("somebody"), "{line}");
    }
}

/// Bytes are counted once for each write of a file.
#[test]
fn a_quiet_year_writes_one_pair_of_certificate_and_key() {
    let mut life = Life::new(1);
    let line = life.world().new_line(0, "pi", 0);
    life.wanted = Some(line);
    life.join();
    assert!(life.is_ready(), "{}", life.world().shown());
    recorder::take();
    let mut written: Vec<(u32, String, usize)> = Vec::new();
    for day in 0..365 {
        life.world().pass(DAY);
        assert!(life.is_ready(), "{}", life.world().shown());
        for op in recorder::take() {
            if let Op::Write(path, _, content) = op {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                written.push((day, name, content.len()));
            }
        }
    }
    println!("written in a year: {written:?}");
    let [(day, name, bytes)] = written.as_slice() else { panic!("{written:?}") };
    // The length of an ECDSA signature differs by a few bytes from one to the next.
    assert!((255..=329).contains(day) && (700..1400).contains(bytes), "{written:?}");
    assert!(name.starts_with("kubelet-client-20") && name.ends_with(".pem.new"), "{name}");
}

/// `LIFE_SEED=5 cargo test --lib life` repeats the life of one seed.
fn live(seed: u64) {
    let mut life = Life::new(seed);
    for _ in 0..STEPS {
        life.live();
    }
    life.recover();
}

#[test]
fn the_last_line_leads_a_board_of_any_life_to_a_ready_node() {
    live_all("LIFE_SEED", 0..1000, live);
}

#[test]
fn the_last_line_leads_a_board_of_any_other_life_to_a_ready_node() {
    live_all("LIFE_SEED", 1000..2000, live);
}
