//! Chosen moments of a board's life: joins, packages, wrong clocks and new CAs. A person who follows
//! the last line gets a Ready Node. Lives in random order are those of `tests/sim`.
//!
//! Join, agent and files are real. Server, systemd, the package's scripts, time and the person are
//! models.

mod board;

use std::time::Duration;

use serde_json::json;

use self::board::{Line, View, World, wrong_clocks};
use crate::credentials::tests::cluster::{YEAR, wall};
use crate::kube::time::Wall;
use crate::node::kubelet::tests::lines::collect_lines;
use crate::os::recorder;
use crate::os::write::Op;

const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

/// Time from a healthy world to a Ready Node.
const RECOVERY: Duration = Duration::from_secs(100);
/// Most lines that a person follows.
const PATIENCE: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Join(Line),
    Clock(Wall),
    ReplaceCa(usize),
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Repeat,
    NewLine,
    Force,
    SetClock,
    DeleteNode,
    Stop,
    Start,
    ReadJournal,
}

/// What a part of a line tells a person. The first one counts.
const REMEDIES: [(&str, Act); 16] = [
    ("set the clock", Act::SetClock),
    ("clock says", Act::SetClock),
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
];

fn act(line: &str) -> Option<Act> {
    REMEDIES.iter().find(|(part, _)| line.contains(part)).map(|(_, act)| *act)
}

/// A board and its owner.
struct Life {
    seed: u64,
    view: View,
    /// What the owner wants.
    wanted: Option<Line>,
    /// The lines of the last command that have a remedy; the first one may be a failure.
    printed: Vec<String>,
}

impl Life {
    fn new(seed: u64) -> Self {
        collect_lines();
        recorder::start();
        let view = View::new(seed);
        if !seed.is_multiple_of(8) {
            view.0.borrow_mut().install();
        }
        Self { seed, view, wanted: None, printed: Vec::new() }
    }

    fn world(&self) -> std::cell::RefMut<'_, World> {
        self.view.0.borrow_mut()
    }

    #[track_caller]
    fn fails(&self, what: &str) -> ! {
        let shown = self.world().shown();
        panic!("seed {}: {what}\n{shown}\nlast command: {:?}", self.seed, self.printed)
    }

    fn carry_out(&mut self, step: &Step) {
        match step {
            Step::Join(line) => {
                self.wanted = Some(line.clone());
                self.join();
            }
            Step::Clock(shown) => {
                let mut world = self.world();
                world.wrong_clock = Some((world.now, *shown));
            }
            Step::ReplaceCa(cluster) => {
                let what = self.world().clusters[*cluster].replace_ca();
                self.world().tell(what);
            }
        }
        self.world().pass(MINUTE);
    }

    fn join(&mut self) {
        let line = self.wanted.clone().unwrap();
        self.printed = self.view.join(&line);
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
