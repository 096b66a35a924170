//! The person who owns the board: commands that are typed, and what is done with their last line.
//!
//! A person wants one thing, the line of a join. After the faults of a story the person looks at
//! the Node, and while it is not Ready, does what the last line of the command or of the agent says
//! (`REMEDIES`). A board that is not Ready after `PATIENCE` such acts breaks sentence 2.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apidouble::{BootstrapToken, Double};

use super::clusters;
use super::draw::draw;
use super::process::{Exit, Pid, Shared};
use super::trace::{Ran, What};
use super::unit::Start;
use super::world::{Event, NODE, OVERRIDDEN, RENAMED, World, ready_of};

/// Time from a healthy world to a Ready Node.
const RECOVERY: Duration = Duration::from_secs(100);
/// Most lines that a person follows.
const PATIENCE: u32 = 8;
/// The administrator's flags.
const FLAGS: &str = "etc/default/nodelet";
/// A renewal is no older than that where an agent runs.
const RENEWED: Duration = Duration::from_secs(21);

/// What the person of a world knows, wants, and does.
#[derive(Debug, Default)]
pub(crate) struct People {
    /// What the board is to be, if a `nodelet join` made it.
    pub(crate) wanted: Option<Line>,
    /// The commands that run.
    pub(crate) commands: BTreeMap<Pid, Running>,
    /// Lines with a remedy of the last command; the first one may be a failure.
    printed: Vec<String>,
    /// Acts since the last story.
    acts: u32,
    /// The person follows lines, and has not given up.
    pub(crate) is_busy: bool,
    /// Until when the person may look.
    until: Duration,
    /// The unit is not started, and does not wait for a start.
    pub(crate) is_stopped: bool,
    /// What the process of the unit was started with.
    pub(crate) started: Start,
    /// The bootstrap token of the board's file has been removed from the cluster.
    pub(crate) token_is_dead: bool,
    /// Its kubeconfig names the user by a token.
    pub(crate) has_token: bool,
    /// The cluster of the files, where no join wrote them; and of the process that runs.
    pub(crate) installed: usize,
    pub(crate) home: usize,
    /// The last renewal by cluster and name.
    pub(crate) renewed: BTreeMap<(usize, String), Duration>,
    /// For draws: the number of the command, and that of a read of one.
    pub(crate) count: u64,
    reads: u64,
    /// The end of the certificate that the agent showed last.
    pub(crate) shown_until: Option<Duration>,
    /// The server's address was changed for good.
    pub(crate) has_moved: bool,
    /// A person removed the stored certificate, or the card did not take a new one, and none was
    /// stored since.
    pub(crate) has_lost_pair: bool,
    /// The card is read-only until then.
    pub(crate) read_only_until: Duration,
    /// Since when the files with certificate and key are those of another board.
    pub(crate) foreign_pair: Option<Duration>,
}

/// The command line of a join.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) cluster: usize,
    pub(crate) name: &'static str,
    /// The value of a label.
    pub(crate) label: u64,
    pub(crate) server: String,
    pub(crate) token: String,
    pub(crate) pins: Vec<String>,
    pub(crate) force: bool,
    pub(crate) bootstrap_only: bool,
}

/// What a person types.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Join(Line),
    Check,
    Reset,
}

/// How a command ends before its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cut {
    /// At so many calls of hooks.
    Hooks(u64),
    /// Before so many file operations.
    Changes(u64),
}

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running {
    command: Command,
    began: Duration,
    lines: Vec<String>,
    cut: Option<Cut>,
    /// The power fails with it.
    is_power: bool,
    /// Files of former commands beside those of the board.
    pub(crate) leftovers: Vec<String>,
    /// What the process of the unit had of former files.
    former: Option<&'static str>,
    /// The administrator's flags when it began.
    administered: Option<Vec<u8>>,
    /// What the unit was to start with when the command said that it runs or is started: who
    /// changes the files later, as another join, tells of that change.
    next: Option<Start>,
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Repeat,
    NewLine,
    Force,
    DeleteNode,
    Stop,
    Start,
    ReadJournal,
    RemoveFlags,
    /// The faults of the world end by themselves.
    Wait,
}

/// What a part of a line tells a person. The first one counts.
const REMEDIES: [(&str, Act); 37] = [
    ("no space left on device", Act::Repeat),
    ("read-only file system", Act::Repeat),
    ("remove it there", Act::RemoveFlags),
    ("set the clock", Act::Repeat),
    ("clock says", Act::Repeat),
    ("connection refused", Act::Wait),
    ("is this the API server, and is it up?", Act::Wait),
    ("is the port right?", Act::Wait),
    ("is the server up", Act::Wait),
    ("is it a server of k3s or rke2?", Act::Wait),
    ("nodelet join --force", Act::Force),
    ("kubeadm token create", Act::NewLine),
    ("copy the line again", Act::NewLine),
    ("copy the token again", Act::NewLine),
    ("correct it and join again", Act::Repeat),
    ("run it with sudo", Act::Repeat),
    ("kubectl delete node", Act::DeleteNode),
    ("systemctl stop nodelet", Act::Stop),
    ("systemctl restart nodelet", Act::Start),
    ("journalctl -u nodelet", Act::ReadJournal),
    ("systemctl enable --now --no-block nodelet", Act::Start),
    ("systemctl start --no-block nodelet", Act::Start),
    ("join again", Act::Repeat),
    ("reset again", Act::Repeat),
    ("nodelet join", Act::NewLine),
    ("was the CA replaced?", Act::NewLine),
    ("if it is of another cluster, replace or remove it", Act::NewLine),
    ("try again", Act::Repeat),
    ("wait for its end", Act::Repeat),
    // The server is ill: it is the right one.
    ("if kubeadm did not make this cluster", Act::Repeat),
    ("is it the server's URL", Act::Repeat),
    ("is the URL of an API server", Act::Repeat),
    ("does a proxy end TLS", Act::Repeat),
    ("ask the CSR approver", Act::Repeat),
    ("or its RBAC rules", Act::Repeat),
    ("429", Act::Wait),
    ("503", Act::Wait),
];

fn act(line: &str) -> Option<Act> {
    REMEDIES.iter().find(|(part, _)| line.contains(part)).map(|(_, act)| *act)
}

impl Line {
    /// The arguments of the program, as a person pastes them.
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> =
            ["join", &self.server, "--token", &self.token].into_iter().map(str::to_owned).collect();
        if !self.pins.is_empty() {
            words.extend(["--discovery-token-ca-cert-hash".to_owned(), self.pins.join(",")]);
        }
        words.push(format!("--node-name={}", self.name));
        words.push(format!("--node-labels=test/own=1,test/label={}", self.label));
        words.push("--timeout=60s".to_owned());
        words.extend(self.force.then(|| "--force".to_owned()));
        words.extend(self.bootstrap_only.then(|| "--bootstrap-only".to_owned()));
        words
    }
}

fn owned((cluster, name): (usize, &str)) -> (usize, String) {
    (cluster, name.to_owned())
}

impl World {
    /// Whether a `nodelet join` made this board.
    pub(crate) fn is_joined(&self) -> bool {
        self.plan.setting("auth").starts_with("joined")
    }

    /// Whether a cluster has a supervisor of k3s.
    pub(crate) fn is_k3s(&self, cluster: usize) -> bool {
        match cluster {
            0 => ["k3s", "joined-k3s"].contains(&self.plan.setting("auth")),
            _ => self.plan.setting("other") == "k3s",
        }
    }

    /// The cluster and the name that the Node is to have.
    pub(crate) fn place(&self) -> (usize, &'static str) {
        match &self.people.wanted {
            Some(line) => (line.cluster, line.name),
            None => (self.home(), NODE),
        }
    }

    /// The cluster and the name where the agent renews a Lease: a line that a join has refused has
    /// changed nothing. The files of a join name those of the next agent while none runs: it may be
    /// another one.
    fn place_of_agent(&self) -> (usize, String) {
        let joined = self.board.read("etc/default/nodelet-join");
        if let (None, Some(joined)) = (self.unit.pid, joined) {
            let other = clusters::address(1).to_string();
            let is_other = String::from_utf8_lossy(&joined).contains(&other);
            let name = self.next_start().flag("hostname-override").map(str::to_owned);
            return (usize::from(is_other), name.unwrap_or_else(|| self.place().1.to_owned()));
        }
        let last = self.people.renewed.iter().max_by_key(|(_, at)| **at);
        let last = last.filter(|(_, at)| self.now.saturating_sub(**at) <= RENEWED);
        last.map_or_else(|| owned(self.place()), |(place, _)| place.clone())
    }

    /// The cluster of the agent; where a person has installed the files of another one, also that
    /// one counts, once the agent is there.
    fn home(&self) -> usize {
        let people = &self.people;
        if self.is_agent_in(people.installed) { people.installed } else { people.home }
    }

    /// The agent renews its Lease in this cluster.
    pub(crate) fn is_agent_in(&self, cluster: usize) -> bool {
        let renewed = self.people.renewed.get(&(cluster, NODE.to_owned()));
        renewed.is_some_and(|at| self.now.saturating_sub(*at) <= RENEWED)
    }

    /// A line as the control plane prints it now.
    pub(crate) fn new_line(&mut self, cluster: usize, name: &'static str, label: u64) -> Line {
        self.set_double();
        self.people.count += 1;
        let host = match cluster {
            0 => self.servers[0].address.ip(),
            _ => clusters::address(cluster),
        };
        let model = &self.clusters[cluster].model;
        if self.is_k3s(cluster) {
            let supervisor = model.supervisor().expect("k3s has one");
            let hash = Double::sha256(supervisor.cacerts.as_bytes());
            let token = format!("K10{hash}::node:{}", supervisor.password);
            let server = format!("https://{host}:6443");
            let (pins, force, bootstrap_only) = (Vec::new(), false, false);
            return Line { cluster, name, label, server, token, pins, force, bootstrap_only };
        }
        let secret = draw(self.plan.seed, "join-token", self.people.count);
        let token = format!("{:06x}.{secret:016x}", 0x10_0000 + self.people.count);
        self.mark_secret(&format!("{secret:016x}"), cluster);
        let day = Duration::from_secs(86_400);
        let groups = [apidouble::KUBEADM_GROUP];
        let model = &self.clusters[cluster].model;
        model.add_bootstrap_token(BootstrapToken::new(&token).groups(&groups).expires_in(day));
        let pins = self.clusters[cluster].pins();
        let (force, bootstrap_only, server) = (false, false, format!("{host}:6443"));
        Line { cluster, name, label, server, token, pins, force, bootstrap_only }
    }

    /// The servers have moved: the person's line names the new address.
    pub(crate) fn correct_line(&mut self, correct: &dyn Fn(&str) -> String) {
        if let Some(line) = &mut self.people.wanted {
            line.server = correct(&line.server);
        }
    }

    /// A person types a command now.
    pub(crate) fn types(&mut self, command: Command) {
        self.plan_at(self.now, Event::Runs(Box::new(command), None));
    }

    /// The same, and it is interrupted, or the power fails in it.
    pub(crate) fn types_and_is_cut(&mut self, command: Command, how: u64) {
        self.people.count += 1;
        let drawn = draw(self.plan.seed, "cut", self.people.count);
        let cut = match how {
            1 => Some((Cut::Changes(1 + drawn % 16), false)),
            2 => Some((Cut::Hooks(1 + drawn % 900), false)),
            3 => Some((Cut::Changes(1 + drawn % 16), true)),
            _ => None,
        };
        self.plan_at(self.now, Event::Runs(Box::new(command), cut));
    }

    /// The board's owner joins it, for the first time or with one thing changed.
    pub(crate) fn joins(&mut self, line: Line, how: u64) {
        self.people.wanted = Some(line.clone());
        self.types_and_is_cut(Command::Join(line), how);
    }

    pub(crate) fn run_command(
        &mut self,
        shared: &Arc<Shared>,
        command: Command,
        cut: Option<(Cut, bool)>,
    ) {
        if !self.board.is_on || !self.is_installed() {
            return;
        }
        if self.now < self.frozen_until {
            return self.plan_at(self.woken(), Event::Runs(Box::new(command), cut));
        }
        let (name, words) = match &command {
            Command::Join(line) => ("nodelet join", line.words()),
            Command::Check => ("nodelet check", vec!["check".to_owned()]),
            Command::Reset => ("nodelet reset", vec!["reset".to_owned()]),
        };
        let line = words.join(" ");
        let shown = words.clone();
        let program = move || {
            let code = crate::cli::main(words.into_iter().map(Into::into));
            format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS)
        };
        let pid = shared.start(self, name, BTreeMap::new(), program);
        let (cut, is_power) = cut.map_or((None, false), |(cut, power)| (Some(cut), power));
        let (leftovers, lines) = (self.leftovers(), Vec::new());
        let former = self.former(&self.next_start());
        let (began, next) = (self.now, None);
        let administered = self.board.read(FLAGS);
        let running =
            Running { command, began, lines, cut, is_power, leftovers, former, administered, next };
        self.people.commands.insert(pid, running);
        self.show_process(pid, &shown, false);
        self.tell(What::Starts { pid, name, line });
    }

    /// Whether a hook of a command is its last one.
    pub(crate) fn is_cut(&mut self, pid: Pid, is_change: bool) -> bool {
        let Some(running) = self.people.commands.get_mut(&pid) else { return false };
        let left = match (&mut running.cut, is_change) {
            (Some(Cut::Hooks(left)), false) | (Some(Cut::Changes(left)), true) => left,
            _ => return false,
        };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// The end of a command at this hook.
    pub(crate) fn cut(&mut self, pid: Pid) {
        let Some(running) = self.people.commands.get_mut(&pid) else { return };
        running.cut = None;
        if running.is_power {
            return self.lose_power(20);
        }
        if let Some(process) = self.processes.get_mut(pid) {
            process.is_killed = true;
        }
    }

    /// Files that no command has put in place, and that may hold a key.
    fn leftovers(&self) -> Vec<String> {
        let names = ["kubeconfig.new", "bootstrap-kubeconfig.new", "k3s-password.new"];
        let paths = names.iter().map(|name| format!("etc/credstore/nodelet.{name}"));
        let is_left = |path: &String| self.board.read(path).is_some_and(|text| !text.is_empty());
        paths.filter(is_left).collect()
    }

    /// After a reset that says that all is well no key, token or password of the join is left.
    fn check_reset(&mut self) {
        let mut left = Vec::new();
        for folder in ["etc/credstore", "etc/kubernetes", "var/lib/nodelet"] {
            self.board.walk(folder, &mut |path, _, content| {
                if self.has_secret(&String::from_utf8_lossy(content)) {
                    left.push(path.to_owned());
                }
            });
        }
        if !left.is_empty() {
            let text = format!("a secret is left by a reset: {}", left.join(" "));
            self.tell(What::Broken { sentence: 6, text });
        }
    }

    /// The name of a process.
    pub(crate) fn name_of(&self, pid: Pid) -> &'static str {
        match self.people.commands.get(&pid).map(|running| &running.command) {
            Some(Command::Join(_)) => "nodelet join",
            Some(Command::Check) => "nodelet check",
            Some(Command::Reset) => "nodelet reset",
            None => "nodelet",
        }
    }

    /// What the process of the unit has of former files, if it runs.
    fn former(&self, next: &Start) -> Option<&'static str> {
        self.unit.pid.and_then(|_| self.running_start().differs(next))
    }

    /// A command has printed text.
    pub(crate) fn command_printed(&mut self, pid: Pid, text: &str) {
        let next = text.starts_with("✓ start: ").then(|| self.next_start());
        if let Some(running) = self.people.commands.get_mut(&pid) {
            running.lines.extend(text.lines().map(str::to_owned));
            running.next = next.or(running.next.take());
        }
    }

    /// A command has ended.
    pub(crate) fn command_ended(&mut self, pid: Pid, exit: &Exit) {
        let Some(running) = self.people.commands.remove(&pid) else { return };
        let Running { command, began, lines, leftovers, former, administered, next, .. } = running;
        if !matches!(exit, Exit::Code(_)) {
            // The next command may end before it writes, and leave the files of this one.
            let left = self.leftovers();
            let others = self.people.commands.values_mut();
            others.for_each(|other| other.leftovers.extend(left.iter().cloned()));
        }
        // What another command writes now is no leftover.
        if let Exit::Code(_) = exit
            && self.people.commands.is_empty()
        {
            // One that was killed before may have left others.
            let left = self.leftovers().into_iter().find(|path| !leftovers.contains(path));
            if let Some(path) = left {
                let text = format!("a key is left in {path} by a command that has ended");
                self.tell(What::Broken { sentence: 6, text });
            }
        }
        if matches!(command, Command::Reset) && *exit == Exit::Code(true) {
            self.check_reset();
        }
        let (cluster, name) = match &command {
            Command::Join(line) => (line.cluster, line.name.to_owned()),
            Command::Check => self.place_of_agent(),
            Command::Reset => owned(self.place()),
        };
        self.set_double();
        let model = &self.clusters[cluster].model;
        let node = model.get(&format!("nodes/{name}")).unwrap_or_default();
        // A check asks the cluster of the next start: a process may still be in another one.
        let is_there = self.people.wanted.is_some() || cluster == self.people.installed;
        let next = next.unwrap_or_else(|| self.next_start());
        let flags = self.board.read("etc/default/nodelet-join").unwrap_or_default();
        let is_check = matches!(command, Command::Check);
        let is_unchanged = self.board.read(FLAGS) == administered;
        let ran = Ran {
            pid,
            command: match command {
                Command::Join(_) => "join",
                Command::Check => "check",
                Command::Reset => "reset",
            },
            began,
            exit: exit.clone(),
            lines: lines.clone(),
            name: name.clone(),
            flags: String::from_utf8_lossy(&flags).into_owned(),
            starts_as: next.flag("hostname-override").filter(|_| is_unchanged).map(str::to_owned),
            // A command need not see what the administrator changes while it runs.
            former: self.former(&next).filter(|_| match is_check {
                true => former.is_some(),
                false => is_unchanged,
            }),
            has_lost_pair: self.people.has_lost_pair,
            runs_since: self.unit.pid.map(|_| self.unit.started),
            has_node: !node.is_null() && is_there,
            ready: ready_of(&node).to_owned(),
            renewed: self.people.renewed.get(&(cluster, name)).copied(),
        };
        self.tell(What::Ran(Box::new(ran)));
        match (command, exit) {
            (Command::Check, _) => {}
            (Command::Join(_), Exit::Killed) => {
                // Nobody has seen the last line.
                self.people.printed = vec!["✗ join again".to_owned()];
            }
            _ => {
                let mut lines = lines;
                lines.retain(|line| !line.starts_with('✓') && line.contains("; "));
                lines.sort_by_key(|line| !line.starts_with('✗'));
                self.people.printed = lines;
            }
        }
    }

    // --- after the faults ---

    /// Why the board needs a person, if it does: its certificate has ended, no bootstrap token
    /// gives it another one, and in the last tenth of its life, when a renewal is due for certain, no
    /// quiet time was long enough for it.
    pub(crate) fn outlives_its_certificate(&mut self) {
        let auth = self.plan.setting("auth");
        let Some(until) = self.people.shown_until.filter(|until| *until < self.now) else { return };
        if !["rotate", "rotate-file", "k3s"].contains(&auth) && !self.people.token_is_dead {
            return;
        }
        let life: u64 = self.plan.setting("life").parse().unwrap_or(86_400);
        let is_met = |begin: Duration| {
            let mut steps = self.plan.steps.iter().map(|step| (step.when.at(), step.lasts));
            steps.any(|(at, lasts)| at < until && at + lasts >= begin)
        };
        // A renewal is due in the last three tenths: it came if nothing has met these.
        if !is_met(until.saturating_sub(Duration::from_secs(life * 3 / 10))) {
            return;
        }
        let mut end = until.saturating_sub(Duration::from_secs(life / 10));
        let mut quiet = Duration::ZERO;
        for step in &self.plan.steps {
            let from = step.when.at();
            if from >= until {
                break;
            }
            quiet = quiet.max(from.saturating_sub(end));
            end = end.max(from + step.lasts);
        }
        if quiet.max(until.saturating_sub(end)) < Duration::from_secs(200) {
            self.excuse = Some("the certificate ended during the faults, and nothing renews it");
        }
    }

    /// The faults of a story end: the person looks at the Node a while later, until `until`.
    pub(crate) fn person_wakes(&mut self, until: Duration) {
        let people = &mut self.people;
        (people.until, people.acts) = (until, 0);
        people.is_busy = people.wanted.is_some();
        if people.is_busy {
            self.later(RECOVERY, |world, until| world.person_looks(until), until.as_secs());
        }
    }

    /// Something that a person does later.
    pub(crate) fn later(&mut self, time: Duration, act: fn(&mut Self, u64), with: u64) {
        self.plan_at(self.now + time, Event::Later(act, with));
    }

    /// The person looks at the Node, and does one thing if it is not Ready.
    fn person_looks(&mut self, until: u64) {
        if self.people.until.as_secs() != until || self.now.as_secs() >= until {
            return;
        }
        let look = |world: &mut Self, seconds| {
            let act = |world: &mut Self, until| world.person_looks(until);
            world.later(Duration::from_secs(seconds), act, until);
        };
        let is_working = !self.people.commands.is_empty() || !self.faults.is_empty();
        if is_working || !self.board.is_on || self.now < self.frozen_until {
            return look(self, 10);
        }
        // Who has read a failure follows it, though the Node is Ready.
        let has_failed = self.people.printed.first().is_some_and(|line| line.starts_with('✗'));
        if self.is_content() && !has_failed || self.people.acts == PATIENCE {
            self.people.is_busy = false;
            return;
        }
        // A card that takes no writes takes no line of a join either.
        if self.now < self.people.read_only_until {
            return look(self, 10);
        }
        self.people.acts += 1;
        self.follow();
        // A running command is waited for, then the Node.
        look(self, RECOVERY.as_secs());
    }

    /// Whether the Node that is wanted is Ready.
    fn is_content(&mut self) -> bool {
        let (cluster, name) = self.place();
        let renewed = self.people.renewed.get(&(cluster, name.to_owned()));
        let is_renewed = renewed.is_some_and(|at| self.now.saturating_sub(*at) <= RENEWED);
        self.set_double();
        let node = self.clusters[cluster].model.get(&format!("nodes/{name}")).unwrap_or_default();
        is_renewed && ready_of(&node) == "True"
    }

    /// One act of a person.
    fn follow(&mut self) {
        if !self.is_installed() {
            return self.install_package();
        }
        let journal = self.lines.iter().rev().find_map(|line| act(line));
        let printed = std::mem::take(&mut self.people.printed);
        let first = printed.first().map(|line| (line.starts_with('✗'), act(line)));
        let what = match first {
            Some((true, Some(Act::ReadJournal))) => journal.unwrap_or(Act::Start),
            Some((true, Some(act))) => act,
            Some((true, None)) => {
                let text = format!("no remedy: {}: what now?", printed[0]);
                self.tell(What::Broken { sentence: 2, text });
                Act::Repeat
            }
            // The owner of a board that is not Ready repeats the line of the join first.
            _ => printed.iter().rev().find_map(|line| act(line)).or(journal).unwrap_or(Act::Repeat),
        };
        self.tell(What::Fault { begins: true, text: format!("a person does {what:?}") });
        self.lines.clear();
        let Some(mut wanted) = self.people.wanted.clone() else { return };
        match what {
            Act::Repeat | Act::ReadJournal | Act::Wait => {}
            Act::NewLine => {
                let line = self.new_line(wanted.cluster, wanted.name, wanted.label);
                let (force, bootstrap_only) = (wanted.force, wanted.bootstrap_only);
                wanted = Line { force, bootstrap_only, ..line };
            }
            Act::Force => wanted.force = true,
            Act::DeleteNode => {
                let path = format!("/api/v1/nodes/{}", wanted.name);
                self.admin_of(wanted.cluster, "DELETE", &path, &serde_json::Value::Null);
            }
            Act::Stop => self.stop_unit(),
            Act::Start => return self.start_again(),
            Act::RemoveFlags => self.write_flags(""),
        }
        self.people.wanted = Some(wanted.clone());
        self.types(Command::Join(wanted));
    }

    // --- classes ---

    /// The owner joins the board again, with one thing changed; perhaps it is interrupted (`how`),
    /// and then the owner may think better of it.
    pub(crate) fn join_again(&mut self, size: u64, how: u64) {
        let Some(old) = self.people.wanted.clone() else { return };
        let (cluster, name, label) = (old.cluster, old.name, old.label);
        let mut line = match size {
            1 => self.new_line(cluster, name, label + 1),
            3 => self.new_line(cluster, if name == NODE { RENAMED } else { NODE }, label),
            7 | 8 => self.new_line(1 - cluster, name, label),
            _ => self.new_line(cluster, name, label),
        };
        line.force = [2, 3, 5, 7].contains(&size);
        line.bootstrap_only = [4, 5].contains(&size) && !self.is_k3s(cluster);
        if size == 0 {
            line.clone_from(&old);
        }
        if size == 6 && !self.is_k3s(cluster) {
            let id = line.token.split('.').next().unwrap_or_default().to_owned();
            self.clusters[cluster].model.remove_bootstrap_token(&id);
        }
        self.joins(line.clone(), how);
        // The control plane prints a line without `--force`.
        self.people.wanted = Some(Line { force: false, ..line });
        if how != 0 && draw(self.plan.seed, "repents", self.people.count).is_multiple_of(3) {
            self.people.wanted = Some(Line { force: false, ..old });
            self.later(Duration::from_secs(50), |world, _| world.repeats_join(), 0);
        }
    }

    /// An upgrade, a removal, a purge, a reset; and back.
    pub(crate) fn change_package(&mut self, size: u64) {
        match size {
            0 => self.install_package(),
            1 | 2 => {
                if size == 1 {
                    self.remove_package()
                } else {
                    self.purge_package()
                }
                self.later(Duration::from_secs(40), |world, _| world.install_package(), 0);
            }
            _ => {
                self.stop_unit();
                let reset = |world: &mut Self, _| world.types(Command::Reset);
                self.later(Duration::from_secs(31), reset, 0);
                // And again, after a join that is cut off at one of its operations.
                if size == 4 {
                    let join = |world: &mut Self, _| {
                        if let Some(line) = world.people.wanted.clone() {
                            world.types_and_is_cut(Command::Join(line), 1);
                        }
                    };
                    self.later(Duration::from_secs(35), join, 0);
                    self.later(Duration::from_secs(45), reset, 0);
                }
            }
        }
    }

    /// An administrator's flag that wins over those of the join.
    pub(crate) fn override_name(&mut self, size: u64) {
        self.write_flags(&format!(" --hostname-override={OVERRIDDEN}"));
        if size == 1 {
            self.start_again();
        }
        self.later(Duration::from_secs(5), |world, _| world.repeats_join(), 0);
    }

    /// The administrator's flags, with `more`.
    fn write_flags(&mut self, more: &str) {
        let text = format!("{}{more}\n", self.flags().trim_end());
        self.board.replace(FLAGS, text.as_bytes());
    }

    /// The administrator adds a flag with a blank, in quotes within those of the value; the unit is
    /// restarted.
    pub(crate) fn quote_flag(&mut self) {
        let text = self.board.read(FLAGS).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        let Some(old) = text.strip_prefix("NODELET_FLAGS=").filter(|old| !old.contains('"')) else {
            return;
        };
        self.board.put("etc/my file", b"");
        let text = format!("NODELET_FLAGS=\"{old} '--ready-when-exists=/etc/my file'\"\n");
        self.board.replace(FLAGS, text.as_bytes());
        self.start_again();
    }

    /// Checks in the quiet time after a story, in some stories. Without faults the agent is alone.
    pub(crate) fn checks_before(&mut self, until: Duration) {
        if self.plan.steps.is_empty() {
            return;
        }
        if draw(self.plan.seed, "checks", until.as_secs()).is_multiple_of(2) {
            let at = until.saturating_sub(Duration::from_secs(25));
            self.plan_at(at, Event::Runs(Box::new(Command::Check), None));
        }
    }

    // --- faults that the commands or the card meet ---

    /// The reads of a command. Each takes a while, so that the agent and the command take turns;
    /// that of the mount table may fail.
    pub(crate) fn command_reads(
        &mut self,
        pid: Pid,
        inode: u64,
    ) -> Option<(Duration, std::io::Result<()>)> {
        self.people.commands.get(&pid)?;
        let is_table = self.board.path_of(inode) == Some("proc/self/mountinfo");
        self.people.reads += 1;
        let size = self.faults.size("mounts-unread").filter(|_| is_table);
        let met = |one_in| self.is_met("mounts-unread", self.people.reads, one_in);
        if size.is_some_and(met) {
            return Some((Duration::ZERO, Err(nix::errno::Errno::EIO.into())));
        }
        self.faults.is_empty().then(|| (Duration::from_micros(500), Ok(())))
    }

    /// The card takes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.faults.has("disk-read-only") || self.now < self.people.read_only_until
    }

    /// A file of a join cannot be replaced: something is mounted in its place.
    pub(crate) fn is_in_the_way(&self, path: &str) -> bool {
        self.faults.has("files-in-the-way")
            && ["/etc/credstore/nodelet.kubeconfig", "/etc/default/nodelet-join"].contains(&path)
    }

    /// The card turns read-only for three lives of a certificate.
    pub(crate) fn turn_read_only(&mut self) {
        let life: u64 = self.plan.setting("life").parse().unwrap_or(86_400);
        self.people.read_only_until = self.now + Duration::from_secs(3 * life);
    }
}
