//! The world: time, the board, the cluster, the network, and what the plan does to them.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use apidouble::{Authority, BootstrapToken, Identity, Model, Snapshot, Validity};
use nix::errno::Errno;
use rustls::ServerConfig;
use serde_json::{Value, json};

use super::board::Board;
use super::cluster;
use super::devices::{Hardware, Truth};
use super::draw::{Draws, draw};
use super::net::Net;
use super::plan::{Faults, Plan, Story, When};
use super::process::{Exit, Pid, Processes, Shared, Signal, Sleep};
use super::serve::Request;
use super::service::WATCHDOG;
use super::trace::{Entry, Exchange, State, What};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::os::read::cause;
use crate::os::wakeup::Woken;
use crate::os::write::Op;

/// The true time at the begin of a run, in seconds since 1970: 2027.
const START: u64 = 1_800_000_000;

/// The program was built at this time, whenever it really was.
pub(crate) fn built() -> Wall {
    Wall::from_epoch(Duration::from_secs(START - 30 * 86_400))
}

/// The grace period of the node lifecycle controller.
pub(crate) const GRACE: Duration = Duration::from_secs(50);

/// How often the controllers look.
const CONTROLLERS: Duration = Duration::from_secs(5);

/// The name of the Node.
pub(crate) const NODE: &str = "pi";

/// What happens at a time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A step of the plan begins or ends.
    Begins(usize),
    Ends(usize),
    /// The last fault of a story ends: the power is back, the board awake, and what still waits for
    /// a hook does not happen.
    Heals,
    /// The promises are judged.
    Judges(Story),
    /// Bytes of a client arrive at its server.
    Arrives {
        connection: u64,
        bytes: Vec<u8>,
    },
    /// The client has closed a connection.
    Closed {
        connection: u64,
    },
    /// The client of a connection has input.
    Input {
        connection: u64,
    },
    /// A connection may have been idle for long enough.
    Idle {
        connection: u64,
    },
    /// A server carries a request out.
    Serves(Box<Request>),
    /// One pass of the controllers.
    Controllers,
    /// systemd starts the unit.
    Starts,
    /// The kernel ends before this start of it.
    Off(u64),
    /// The kernel starts, unless another start was planned since.
    Boots(u64),
    /// A signal for the agent.
    Signals(Signal),
    /// The agent had its time to end.
    Kills(Pid),
    /// Others write to the Node.
    Writes,
    /// What a class planned for later.
    Calls(fn(&mut World)),
}

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) model: Model,
    config: Arc<ServerConfig>,
    strict: Arc<ServerConfig>,
    /// Of a CA that nobody trusts.
    wrong: Arc<ServerConfig>,
    pub(super) backup: Option<Snapshot>,
}

/// A server of a cluster.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Its address of IPv6, where it has one.
    pub(crate) also: Option<SocketAddr>,
    pub(crate) cluster: usize,
}

impl Server {
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.address == address || self.also == Some(address)
    }
}

/// systemd's view of nodelet.service.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub(crate) is_enabled: bool,
    pub(crate) pid: Option<Pid>,
    /// The last ping of the watchdog, or the start.
    pub(crate) pinged: Duration,
    pub(crate) is_ready: bool,
    /// The machine goes down: nothing is started again.
    pub(crate) is_stopping: bool,
    /// Restarts in a row, for the delay of the next one.
    restarts: u32,
    /// The delay of the next start, if it is not that of a restart.
    pub(crate) starts_after: Option<Duration>,
    /// A number of the start that is planned; an older plan is void.
    start: u64,
    pub(crate) status: String,
    pub(crate) asked_to_stop: Option<Duration>,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Duration,
    pub(crate) processes: Processes,
    pub(crate) agenda: BTreeMap<(Duration, u64), Event>,
    /// The board is suspended until then.
    pub(crate) frozen_until: Duration,
    pub(crate) is_over: bool,
    pub(crate) board: Board,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) servers: Vec<Server>,
    pub(crate) names: BTreeMap<String, Vec<IpAddr>>,
    /// The servers have other addresses than at first.
    pub(super) has_moved: bool,
    /// The server of the root file system is silent until then: who touches a file sleeps.
    pub(super) root_gone_until: Duration,
    /// What a server that lags shows: objects by their path.
    pub(super) lagged: BTreeMap<String, Value>,
    /// The end of the client certificate that was last shown to a server.
    pub(super) shown_until: Option<Wall>,
    /// Pod CIDRs that the controller has given, and pods that others have made.
    pub(super) cidrs: u64,
    pub(super) others: u64,
    /// When a controller last wrote `spec.podCIDRs`, or somebody made a pod of this Node.
    pub(super) changed_spec: Duration,
    pub(crate) net: Net,
    pub(crate) faults: Faults,
    pub(crate) unit: Unit,
    pub(crate) trace: Vec<Entry>,
    /// The clock of the board, in seconds from the true time.
    skew: i64,
    /// Calls of hooks, and what happens at one of them.
    hooks: u64,
    /// Reads of files while there was a fault.
    pub(crate) reads: u64,
    /// What was last told of the board.
    pub(crate) told: Option<Box<Truth>>,
    at_hook: BTreeMap<u64, usize>,
    sequence: u64,
    /// The number of the last planned start of the kernel.
    boot: u64,
    random: Draws,
    doubles: u64,
    pub(crate) requests: u64,
    pub(crate) notify: UnixDatagram,
    pub(crate) notify_name: String,
    /// The last lines of the agent.
    pub(crate) lines: VecDeque<String>,
    /// Texts that only their owner may see: never in a log.
    pub(crate) secrets: Vec<String>,
    tokens: u64,
    /// The last renewal of the Lease that a store took.
    pub(crate) renewed: Option<Duration>,
    /// The operations of file changes whose names are not synced.
    pub(crate) unsynced: Vec<Undo>,
    pending: Option<Undo>,
    /// A person must act, or the design promises nothing: from then on the run is not judged.
    pub(crate) excuse: Option<&'static str>,
    /// The run ends after so many turns of the agent.
    pub(crate) last_turn: Option<u64>,
    turns: u64,
}

/// How to take an operation back that a loss of power may undo.
#[derive(Debug)]
pub(crate) struct Undo {
    folder: String,
    /// What was at a path before: a file, a link, or nothing.
    before: Vec<(String, Before)>,
}

#[derive(Debug)]
enum Before {
    File(Vec<u8>),
    Link(String),
    Nothing,
}

/// The status of Ready; empty without a Node.
pub(crate) fn ready_of(node: &Value) -> &str {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.next().and_then(|ready| ready["status"].as_str()).unwrap_or_default()
}

impl World {
    /// The world of a plan, before its first moment.
    pub(crate) fn new(plan: Plan) -> Self {
        let seed = plan.seed;
        let notify_name = format!("nodelet-sim-{}-{}", std::process::id(), next_number());
        let address = UnixAddress::from_abstract_name(&notify_name).expect("a name");
        let notify = UnixDatagram::bind_addr(&address).expect("a socket of systemd");
        notify.set_nonblocking(true).expect("a socket");
        apidouble::set_time(Some(Duration::from_secs(START)));
        let servers = cluster::servers(&plan);
        let mut world = Self {
            now: Duration::ZERO,
            processes: Processes::default(),
            agenda: BTreeMap::new(),
            frozen_until: Duration::ZERO,
            is_over: false,
            board: Board::new(NODE),
            clusters: vec![Cluster::new(&plan)],
            servers,
            names: BTreeMap::new(),
            has_moved: false,
            root_gone_until: Duration::ZERO,
            lagged: BTreeMap::new(),
            shown_until: None,
            cidrs: 0,
            others: 0,
            changed_spec: Duration::ZERO,
            net: Net::default(),
            faults: Faults::default(),
            unit: Unit::default(),
            trace: Vec::new(),
            skew: 0,
            hooks: 0,
            reads: 0,
            told: None,
            at_hook: BTreeMap::new(),
            sequence: 0,
            boot: 0,
            random: Draws::new(seed, "random"),
            doubles: 0,
            requests: 0,
            notify,
            notify_name,
            lines: VecDeque::new(),
            secrets: Vec::new(),
            tokens: 0,
            renewed: None,
            unsynced: Vec::new(),
            pending: None,
            excuse: None,
            last_turn: None,
            turns: 0,
            plan,
        };
        world.set_up();
        world
    }

    /// What the administrator of the board did before it was first switched on.
    fn set_up(&mut self) {
        self.board.equip(&self.plan.setting);
        self.set_double();
        self.set_names();
        let life = self.plan.setting("life").parse().unwrap_or(86_400);
        let signing = apidouble::Signing { longest: life, backdate: 300 };
        self.clusters[0].model.set_signing(signing);
        self.clusters[0].model.bind_bootstrappers(true);
        if self.plan.setting("auth") == "k3s" {
            self.clusters[0].model.set_supervisor(|supervisor| supervisor.lifetime = Some(life));
            // `nodelet join` has stored it.
            let password = self.new_token();
            self.board.put("etc/credstore/nodelet.k3s-password", password.as_bytes());
            self.store_password(&password);
        }
        match self.plan.setting("auth") {
            "token" => self.write_token(),
            "bootstrap" => self.write_bootstrap(),
            _ => self.write_kubeconfig(false),
        }
        self.unit.is_enabled = true;
    }

    /// The first moment.
    pub(crate) fn begin(&mut self, _: &Arc<Shared>) {
        for index in 0..self.plan.steps.len() {
            let step = &self.plan.steps[index];
            let (at, lasts) = (step.when.at(), step.lasts);
            self.plan_at(at, Event::Begins(index));
            if !lasts.is_zero() {
                self.plan_at(at + lasts, Event::Ends(index));
            }
        }
        for story in self.plan.stories.clone() {
            self.plan_at(story.healed, Event::Heals);
            self.plan_at(story.until, Event::Judges(story));
        }
        self.boot_in(Duration::ZERO);
        self.plan_at(CONTROLLERS, Event::Controllers);
    }

    /// Something happens at a time.
    pub(crate) fn plan_at(&mut self, at: Duration, event: Event) {
        self.sequence += 1;
        self.agenda.insert((at.max(self.now), self.sequence), event);
    }

    pub(crate) fn tell(&mut self, what: What) {
        self.trace.push(Entry { at: self.now, what });
    }

    /// A number for the program.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// Whether the `key`-th of something is met by a fault of one in `size`.
    pub(crate) fn is_met(&self, class: &str, key: u64, one_in: u64) -> bool {
        draw(self.plan.seed, class, key) % one_in.max(1) == 0
    }

    /// Sets the time and the random bytes of the double on this thread.
    pub(crate) fn set_double(&mut self) {
        self.doubles += 1;
        apidouble::set_time(Some(Duration::from_secs(START) + self.now));
        apidouble::set_seed(Some(draw(self.plan.seed, "double", self.doubles)));
    }

    /// The true time.
    pub(crate) fn true_wall(&self) -> Wall {
        Wall::from_epoch(Duration::from_secs(START) + self.now)
    }

    /// What the clock of the board shows.
    pub(crate) fn board_wall(&self) -> Wall {
        let skew = Duration::from_secs(self.skew.unsigned_abs());
        let true_wall = self.true_wall();
        if self.skew < 0 { true_wall.before(skew) } else { true_wall.after(skew) }
    }

    /// A hook was called: an event of the plan may wait for it.
    pub(crate) fn count_hook(&mut self, shared: &Arc<Shared>) {
        self.hooks += 1;
        while let Some((&hook, &index)) = self.at_hook.first_key_value()
            && hook <= self.hooks
        {
            self.at_hook.remove(&hook);
            self.begins(shared, index);
        }
    }

    /// Something happens.
    pub(crate) fn happen(&mut self, shared: &Arc<Shared>, event: Event) {
        match event {
            Event::Begins(index) => match self.plan.steps[index].when {
                When::At(_) => self.begins(shared, index),
                When::Hook(_, count) => {
                    let mut hook = self.hooks + count;
                    while self.at_hook.contains_key(&hook) {
                        hook += 1;
                    }
                    self.at_hook.insert(hook, index);
                }
            },
            Event::Ends(index) => {
                self.at_hook.retain(|_, waits| *waits != index);
                let step = self.plan.steps[index].clone();
                self.tell(What::Fault { begins: false, text: step.to_string() });
                self.faults.end(index);
                (step.class.end)(self, &step);
            }
            Event::Heals => {
                self.at_hook.clear();
                self.frozen_until = self.frozen_until.min(self.now);
                if !self.board.is_on || self.unit.is_stopping {
                    self.kill_agent();
                    self.boot_in(Duration::ZERO);
                }
                self.renew_what_has_expired();
            }
            Event::Judges(story) => self.judge(story),
            Event::Arrives { connection, bytes } => self.arrived(connection, bytes),
            Event::Closed { connection } => self.forget(connection),
            Event::Input { connection } => self.rouse_reader(connection),
            Event::Idle { connection } => self.is_idle(connection),
            Event::Serves(request) => self.serve(*request),
            Event::Controllers => self.controllers(),
            Event::Starts => self.start_unit(shared),
            Event::Off(number) if number == self.boot => {
                self.kill_agent();
                self.board.is_on = false;
                self.unsynced.clear();
            }
            Event::Off(_) => {}
            Event::Boots(number) if number == self.boot => self.boots(),
            Event::Boots(_) => {}
            Event::Signals(signal) => self.signal(signal),
            Event::Kills(pid) => {
                if self.unit.pid == Some(pid) {
                    self.kill_agent();
                }
            }
            Event::Writes => self.writes(),
            Event::Calls(call) => call(self),
        }
    }

    fn begins(&mut self, _: &Arc<Shared>, index: usize) {
        let step = self.plan.steps[index].clone();
        self.tell(What::Fault { begins: true, text: step.to_string() });
        if !step.lasts.is_zero() {
            self.faults.begin(index, &step);
        }
        *self.faults.hits.entry(step.class.name).or_default() += 1;
        (step.class.begin)(self, &step);
        if step.class.name == "writes-often" {
            self.plan_at(self.now, Event::Writes);
        }
    }

    /// Calls `act` for the server of a target, or for each.
    pub(crate) fn each_server(&mut self, target: u64, act: impl Fn(&mut Self, usize)) {
        for server in 0..self.servers.len() {
            if target == 0 || target == server as u64 + 1 {
                act(self, server);
            }
        }
    }

    /// Whether a server hears nothing.
    pub(crate) fn is_unheard(&self, server: usize) -> bool {
        self.faults.at("server-silent", server).is_some()
            || self.faults.at("server-unreachable", server).is_some()
            || self.faults.has("partition")
            || self.faults.has("no-network")
    }

    /// The TLS of a server, for a new connection.
    pub(crate) fn tls_of(&mut self, server: usize) -> Arc<ServerConfig> {
        self.set_double();
        let cluster = &self.clusters[self.servers[server].cluster];
        let refuses = self.plan.setting("gateway") == "strict";
        match () {
            () if self.faults.at("wrong-certificate", server).is_some() => cluster.wrong.clone(),
            () if refuses || self.faults.at("tls-refuses", server).is_some() => {
                cluster.strict.clone()
            }
            () => cluster.config.clone(),
        }
    }

    // --- the unit ---

    fn boots(&mut self) {
        self.boots_kernel();
        self.unit.is_ready = false;
        self.unit.is_stopping = false;
        self.unit.restarts = 0;
        if self.unit.is_enabled {
            self.start_in(Duration::from_secs(2));
        }
    }

    /// systemd will start the unit.
    pub(crate) fn start_in(&mut self, delay: Duration) {
        self.unit.start += 1;
        self.plan_at(self.now + delay, Event::Starts);
    }

    fn start_unit(&mut self, shared: &Arc<Shared>) {
        let is_wanted = self.unit.is_enabled && !self.unit.is_stopping;
        if self.unit.pid.is_some() || !self.board.is_on || !is_wanted {
            return;
        }
        if self.now < self.frozen_until {
            return self.plan_at(self.frozen_until, Event::Starts);
        }
        // LoadCredential= of the unit.
        for name in self.board.list("etc/credstore") {
            let content = self.board.read(&format!("etc/credstore/{name}")).unwrap_or_default();
            let short = name.strip_prefix("nodelet.").unwrap_or(&name);
            self.board.replace(&format!("run/credentials/nodelet.service/{short}"), &content);
        }
        self.unit.pinged = self.now;
        self.unit.asked_to_stop = None;
        self.take_notifications();
        self.unit.status.clear();
        self.unit.is_ready = false;
        let environment = BTreeMap::from([
            ("NOTIFY_SOCKET", format!("@{}", self.notify_name)),
            ("WATCHDOG_USEC", WATCHDOG.as_micros().to_string()),
            ("RUNTIME_DIRECTORY", "/run/nodelet".to_owned()),
            ("CREDENTIALS_DIRECTORY", "/run/credentials/nodelet.service".to_owned()),
        ]);
        let words = self.command_line();
        let line = words.join(" ");
        let program = move || {
            let code = crate::cli::main(words.into_iter().map(Into::into));
            format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS)
        };
        let pid = shared.start(self, "nodelet", environment, program);
        self.unit.pid = Some(pid);
        self.tell(What::Starts { pid, name: "nodelet", line });
    }

    /// The command line of the unit.
    fn command_line(&self) -> Vec<String> {
        let supervisor = format!("--k3s-supervisor={}", self.url());
        let mut words: Vec<&str> = vec!["--root-dir=/var/lib/nodelet", "--node-labels=test/own=1"];
        match self.plan.setting("auth") {
            "bootstrap" => words.extend([
                "--kubeconfig=/var/lib/nodelet/kubeconfig",
                "--bootstrap-kubeconfig=/run/credentials/nodelet.service/bootstrap-kubeconfig",
                "--rotate-certificates",
            ]),
            "rotate" => words.extend([
                "--kubeconfig=/run/credentials/nodelet.service/kubeconfig",
                "--rotate-certificates",
            ]),
            "k3s" => words.extend([
                "--kubeconfig=/run/credentials/nodelet.service/kubeconfig",
                "--rotate-certificates",
                &supervisor,
            ]),
            _ => words.push("--kubeconfig=/etc/kubernetes/kubelet.conf"),
        }
        if self.plan.setting("health") == "all" {
            words.push("--node-problem-detection=all");
        }
        if self.plan.setting("pods") == "40" {
            words.push("--pods-per-core=10");
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// A process has ended.
    pub(crate) fn ended(&mut self, _: &Arc<Shared>, pid: Pid, exit: Exit) {
        if let Exit::Panic(text) = &exit {
            let who =
                if super::panics::is_of_the_agent(text) { "the program" } else { "the simulator" };
            let text = format!("{who} panicked at {text}");
            self.tell(What::Broken { sentence: 0, text });
        }
        self.tell(What::Ends { pid, name: "nodelet", exit });
        for connection in self
            .net
            .connections
            .iter()
            .filter(|(_, c)| c.pid == pid)
            .map(|(id, _)| *id)
            .collect::<Vec<_>>()
        {
            self.closed(connection);
        }
        if self.unit.pid == Some(pid) {
            self.unit.pid = None;
            if self.board.is_on && !self.is_over && !self.unit.is_stopping {
                // RestartSec=5, RestartSteps=4, RestartMaxDelaySec=25.
                let restart = Duration::from_secs(5 + 5 * u64::from(self.unit.restarts.min(4)));
                let delay = self.unit.starts_after.take().unwrap_or(restart);
                self.unit.restarts += 1;
                self.start_in(delay);
            }
        }
    }

    /// Whatever the agent does ends here, at once.
    pub(crate) fn kill_agent(&mut self) {
        let Some(pid) = self.unit.pid else { return };
        let now = self.now;
        if let Some(process) = self.processes.get_mut(pid) {
            process.is_killed = true;
        }
        self.processes.rouse(pid, now, |_| true);
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let Some(pid) = self.unit.pid else { return };
        self.tell(What::Signal { pid, signal });
        if signal == Signal::Term {
            self.unit.asked_to_stop = Some(self.now);
        }
        let now = self.now;
        if let Some(process) = self.processes.get_mut(pid) {
            process.signals.push_back(signal);
        }
        self.processes.rouse(pid, now, |sleep| matches!(sleep, Sleep::Poll(_)));
    }

    /// systemctl restart: SIGTERM, 30 s, SIGKILL.
    pub(crate) fn restart_unit(&mut self) {
        let Some(pid) = self.unit.pid else { return };
        self.signal(Signal::Term);
        self.unit.restarts = 0;
        self.plan_at(self.now + Duration::from_secs(30), Event::Kills(pid));
    }

    /// systemctl reboot: SIGUSR1 and SIGTERM, the end, and `seconds` later the kernel.
    pub(crate) fn reboot(&mut self, seconds: u64) {
        if !self.board.is_on {
            return;
        }
        self.signal(Signal::Usr1);
        self.signal(Signal::Term);
        self.frozen_until = Duration::ZERO;
        self.boot_in(Duration::from_secs(8 + seconds));
        self.plan_at(self.now + Duration::from_secs(8), Event::Off(self.boot));
        self.unit.is_stopping = true;
    }

    /// The power fails; `seconds` later it is back.
    pub(crate) fn lose_power(&mut self, seconds: u64) {
        if !self.board.is_on {
            return;
        }
        self.kill_agent();
        self.board.is_on = false;
        self.frozen_until = Duration::ZERO;
        self.lose_unsynced();
        self.boot_in(Duration::from_secs(seconds));
    }

    /// The kernel starts after this time.
    fn boot_in(&mut self, delay: Duration) {
        self.boot += 1;
        self.plan_at(self.now + delay, Event::Boots(self.boot));
    }

    /// SIGUSR1 alone: the shutdown is told, and cancelled or delayed for `seconds`.
    pub(crate) fn shut_down(&mut self, seconds: u64) {
        self.signal(Signal::Usr1);
        self.plan_at(self.now + Duration::from_secs(seconds), Event::Signals(Signal::Term));
    }

    /// The board sleeps.
    pub(crate) fn suspend(&mut self, seconds: u64) {
        if self.board.is_on {
            self.frozen_until = self.now + Duration::from_secs(seconds);
            self.unit.pinged = self.unit.pinged.max(self.frozen_until);
        }
    }

    pub(crate) fn step_clock(&mut self, seconds: i64) {
        self.skew += seconds;
    }

    /// The clock shows this time, or is right.
    pub(crate) fn clock_at(&mut self, seconds: Option<u64>) {
        let now = i64::try_from(START + self.now.as_secs()).expect("a time");
        self.skew = seconds.map_or(0, |at| i64::try_from(at).expect("a time") - now);
    }

    pub(crate) fn set_clock(&mut self) {
        self.clock_at(None);
    }

    // --- what a process tells the world ---

    /// The agent begins a wait, or polls.
    pub(crate) fn waits(&mut self, pid: Pid, timeout: Duration) {
        self.take_notifications();
        self.tell(What::Waits { pid, timeout });
        self.turns += 1;
        self.is_over |= self.last_turn.is_some_and(|last| self.turns >= last);
    }

    pub(crate) fn woke(&mut self, pid: Pid, woken: Woken) {
        if woken != Woken::default() {
            self.tell(What::Woke { pid, woken });
        }
    }

    pub(crate) fn printed(&mut self, pid: Pid, text: &str) {
        self.check_secrets("stderr", text);
        self.tell(What::Print { pid, text: text.to_owned() });
    }

    pub(crate) fn logged(&mut self, pid: Pid, record: &log::Record<'_>) {
        let text = record.args().to_string();
        self.check_secrets("the log", &text);
        let place = format!("{}:{}", record.file().unwrap_or_default(), record.line().unwrap_or(0));
        let is_verbose = record.target() == crate::kube::text::VERBOSE;
        if !is_verbose {
            self.lines.push_back(text.clone());
        }
        if self.lines.len() > 20 {
            self.lines.pop_front();
        }
        self.tell(What::Log { pid, level: record.level(), is_verbose, text, place });
    }

    fn check_secrets(&mut self, place: &str, text: &str) {
        let shown = self.secrets.iter().any(|secret| text.contains(secret.as_str()));
        if shown || text.contains("PRIVATE KEY") {
            self.tell(What::Broken { sentence: 8, text: format!("a secret in {place}: {text}") });
        }
    }

    // --- files ---

    /// How slow an operation of a file change is, and how it ends.
    pub(crate) fn changes(&mut self, _: Pid, op: &Op) -> (Duration, Result<(), Fault>) {
        let path = match op {
            Op::Folder(path, _)
            | Op::Write(path, ..)
            | Op::Link(_, path)
            | Op::Rename(_, path)
            | Op::Remove(path)
            | Op::Sync(path) => path,
        };
        let shown = path.display().to_string();
        if shown.starts_with("/run/") {
            return (Duration::ZERO, Ok(()));
        }
        self.sequence += 1;
        let slow = Duration::from_millis(self.faults.size("disk-slow").unwrap_or(0));
        let slow = slow.max(self.root_gone_until.saturating_sub(self.now));
        let needs_space = matches!(op, Op::Folder(..) | Op::Write(..) | Op::Link(..));
        let is_sync = matches!(op, Op::Sync(_));
        let errno = match () {
            () if self.faults.has("disk-full") && needs_space => Some(Errno::ENOSPC),
            () if self.faults.has("boots-unwritable") && shown.contains("nodelet/boots") => {
                Some(Errno::EROFS)
            }
            () if self.faults.has("disk-read-only") && !is_sync => Some(Errno::EROFS),
            () => match self.faults.size("disk-broken") {
                Some(one_in) if self.is_met("disk-broken", self.sequence, one_in) => {
                    Some(Errno::EIO)
                }
                _ => None,
            },
        };
        // rename(2) and unlink(2) of a missing file say so first.
        let is_missing = matches!(op, Op::Remove(_)) && !self.board.has(relative(&shown));
        if let Some(errno) = errno.filter(|_| !is_missing) {
            return (slow, Err(cause(&errno.into()).at(shown)));
        }
        self.pending = self.undo_of(op);
        (slow, Ok(()))
    }

    fn undo_of(&self, op: &Op) -> Option<Undo> {
        let text = |path: &std::path::Path| relative(&path.display().to_string()).to_owned();
        let paths = match op {
            Op::Folder(path, _) | Op::Write(path, ..) | Op::Link(_, path) | Op::Remove(path) => {
                vec![text(path)]
            }
            Op::Rename(from, to) => vec![text(from), text(to)],
            Op::Sync(_) => return None,
        };
        let last = paths.last()?;
        let folder = last.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let before = |path: String| {
            let before = match (self.board.link_target(&path), self.board.read(&path)) {
                (Some(target), _) => Before::Link(target),
                (None, Some(content)) => Before::File(content),
                (None, None) => Before::Nothing,
            };
            (path, before)
        };
        Some(Undo { folder, before: paths.into_iter().map(before).collect() })
    }

    pub(crate) fn file_changed(&mut self, pid: Pid, op: &Op) {
        if let Some(undo) = self.pending.take() {
            self.unsynced.push(undo);
        }
        if let Op::Sync(folder) = op {
            let folder = relative(&folder.display().to_string()).to_owned();
            self.unsynced.retain(|undo| undo.folder != folder);
        }
        self.tell(What::File { pid, op: format!("{op:?}") });
        self.note_boots(op);
    }

    /// A loss of power takes back some of the last operations whose folder was not synced.
    fn lose_unsynced(&mut self) {
        let count = self.unsynced.len() as u64;
        let kept = draw(self.plan.seed, "unsynced", self.sequence) % (count + 1);
        let lost = self.unsynced.split_off(usize::try_from(kept).expect("few"));
        self.unsynced.clear();
        for undo in lost.into_iter().rev() {
            for (path, before) in undo.before.into_iter().rev() {
                match before {
                    Before::File(content) => self.board.replace(&path, &content),
                    Before::Link(target) => self.board.link(&target, &path),
                    Before::Nothing => self.board.remove_all(&path),
                }
            }
        }
    }

    // --- hardware ---

    pub(crate) fn hardware(&mut self, change: impl FnOnce(&mut Hardware)) {
        change(&mut self.board.hardware);
        let now = self.now;
        self.board.write_etc();
        self.board.refresh(now);
        self.tell_truth();
        // A report of a driver, or a change of the mounts, ends a wait.
        for pid in self.processes.of_board().map(|(pid, _)| pid).collect::<Vec<_>>() {
            self.processes.rouse(pid, now, |sleep| matches!(sleep, Sleep::Poll(_)));
        }
    }

    pub(crate) fn memory_stalls(&mut self) {
        self.wake_with(|woken| woken.memory_pressure = true, |_| true);
    }

    fn wake_with(&mut self, cause: fn(&mut Woken), ends: fn(bool) -> bool) {
        let now = self.now;
        for pid in self
            .processes
            .of_board()
            .map(|(pid, process)| {
                cause(&mut process.woken);
                pid
            })
            .collect::<Vec<_>>()
        {
            self.processes.rouse(
                pid,
                now,
                |sleep| matches!(sleep, Sleep::Poll(for_network) if ends(for_network)),
            );
        }
    }

    pub(crate) fn network_changed(&mut self) {
        self.wake_with(|woken| woken.network = true, |for_network| for_network);
    }

    pub(crate) fn flap(&mut self, times: u64) {
        self.hardware(|hardware| hardware.carrier_changes += 2 * times);
        self.network_changed();
    }

    pub(crate) fn readdress(&mut self, last: u64) {
        let last = u8::try_from(last).unwrap_or(10);
        self.hardware(|hardware| hardware.addresses = hardware.numbered(last));
        self.network_changed();
    }

    // --- the cluster ---

    fn controllers(&mut self) {
        self.set_double();
        self.take_notifications();
        self.give_pod_cidrs();
        for cluster in &self.clusters {
            if self.faults.has("lifecycle-stops") {
                break;
            }
            cluster.model.tick_health(GRACE);
            cluster.model.tick_ttl();
            cluster.model.tick_lifecycle();
            cluster.model.tick_garbage();
        }
        if !self.faults.has("signer-stops") {
            for index in 0..self.clusters.len() {
                self.sign(index);
            }
        }
        self.ping_is_due();
        self.plan_at(self.now + CONTROLLERS, Event::Controllers);
    }

    fn sign(&mut self, cluster: usize) {
        let model = &self.clusters[cluster].model;
        let verdict = match () {
            () if self.faults.has("signer-denies") => Some("Denied"),
            () if self.faults.has("signer-approves") => Some("Approved"),
            () => None,
        };
        for csr in verdict.map_or(Vec::new(), |_| model.list("csrs")) {
            if csr["status"]["conditions"].is_null() && csr["status"]["certificate"].is_null() {
                let name = csr["metadata"]["name"].as_str().unwrap_or_default();
                model.judge_csr(name, verdict.unwrap_or_default());
            }
        }
        if verdict == Some("Approved") {
            return;
        }
        let is_slow = self.plan.setting("signs") == "slow";
        if !is_slow || self.now.as_secs() % 60 < 5 {
            model.tick_certificates();
        }
    }

    pub(crate) fn admin(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.set_double();
        self.clusters[0].model.as_admin(method, path, "application/merge-patch+json", body)
    }

    pub(crate) fn delete(&mut self, what: &str) {
        let path = match what.split_once('/') {
            Some(("nodes", name)) => format!("/api/v1/nodes/{name}"),
            Some((_, name)) => {
                format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
            }
            None => what.to_owned(),
        };
        self.admin("DELETE", &path, &Value::Null);
    }

    /// An administrator or a controller writes to the Node.
    pub(crate) fn write_to_node(&mut self, which: u64) {
        let value = self.sequence.to_string();
        let body = match which {
            0 => json!({"metadata": {"labels": {"test/foreign": value}}}),
            1 => json!({"metadata": {"annotations": {"test/foreign": value}}}),
            2 => json!({"spec": {"unschedulable": true}}),
            3 => json!({"spec": {"unschedulable": null}}),
            4 => {
                json!({"spec": {"taints": [{"key": "test/foreign", "value": value, "effect": "PreferNoSchedule"}]}})
            }
            5 => json!({"metadata": {"labels": {"test/own": null}}}),
            _ => json!({"metadata": {"finalizers": null, "labels": {"test/foreign": null}}}),
        };
        self.admin("PATCH", &format!("/api/v1/nodes/{NODE}"), &body);
    }

    fn writes(&mut self) {
        if self.faults.has("writes-often") {
            self.write_to_node(self.sequence % 2);
            self.plan_at(self.now + Duration::from_secs(3), Event::Writes);
        }
    }

    pub(crate) fn write_to_lease(&mut self) {
        let body =
            json!({"metadata": {"annotations": {"test/foreign": self.sequence.to_string()}}});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}");
        self.admin("PATCH", &path, &body);
    }

    pub(crate) fn back_up(&mut self) {
        self.clusters[0].backup = Some(self.clusters[0].model.snapshot());
    }

    /// etcd is restored from the backup; the servers restart.
    pub(crate) fn restore(&mut self) {
        if let Some(backup) = self.clusters[0].backup.take() {
            self.set_double();
            self.clusters[0].model.restore(backup);
            self.each_server(0, |world, server| world.end_connections_of(server, true));
        }
    }

    // --- credentials ---

    fn new_token(&mut self) -> String {
        self.tokens += 1;
        let token = self.token(self.tokens);
        self.secrets.push(token.clone());
        token
    }

    /// A token of this number. A cloud's may be long.
    fn token(&self, number: u64) -> String {
        let length: usize = self.plan.setting("token").parse().unwrap_or(0);
        let token = format!("token-{number}-{:016x}", draw(self.plan.seed, "token", number));
        format!("{token:x<length$}")
    }

    fn kubeconfig(&self, user: &str) -> String {
        let ca = base64(&self.clusters[0].model.ca_pem());
        let (url, proxy) = (self.url(), self.proxy_url());
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{url}', {proxy}certificate-authority-data: \
             {ca}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    /// Where the kubeconfig of this setting is.
    fn kubeconfig_path(&self) -> &'static str {
        match self.plan.setting("auth") {
            "rotate" | "k3s" => "etc/credstore/nodelet.kubeconfig",
            _ => "etc/kubernetes/kubelet.conf",
        }
    }

    /// A kubeconfig with a certificate of the life that the cluster gives.
    pub(crate) fn write_kubeconfig(&mut self, in_place: bool) {
        self.set_double();
        let life = match self.plan.setting("auth") {
            "inline" => 365 * 86_400,
            _ => self.plan.setting("life").parse().unwrap_or(86_400),
        };
        let validity = Validity { from: -300, until: life };
        let identity: Identity = self.clusters[0].model.node_identity(NODE, validity);
        let [chain, key] = [&identity.cert_pem, &identity.key_pem].map(|pem| base64(pem));
        self.secrets.push(key.clone());
        let user = format!("client-certificate-data: {chain}, client-key-data: {key}");
        let text = self.kubeconfig(&user);
        if self.plan.setting("auth") == "k3s"
            && !self.board.has("etc/credstore/nodelet.k3s-password")
        {
            let password = self.new_token();
            self.board.put("etc/credstore/nodelet.k3s-password", password.as_bytes());
        }
        let path = self.kubeconfig_path();
        match in_place {
            true => self.board.put(path, text.as_bytes()),
            false => self.board.replace(path, text.as_bytes()),
        }
    }

    /// A kubeconfig that names a file with a token.
    fn write_token(&mut self) {
        self.write_token_file(false);
        let text = self.kubeconfig("tokenFile: token");
        self.board.replace("etc/kubernetes/kubelet.conf", text.as_bytes());
    }

    fn write_token_file(&mut self, in_place: bool) {
        let token = self.new_token();
        let user = format!("system:node:{NODE}");
        self.clusters[0].model.add_token(&token, &user, &["system:nodes"]);
        match in_place {
            true => self.board.put("etc/kubernetes/token", token.as_bytes()),
            false => self.board.replace("etc/kubernetes/token", token.as_bytes()),
        }
    }

    /// A person replaces the token; the old one is revoked a while later or at once.
    pub(crate) fn replace_token(&mut self, in_place: u64) {
        let old = self.token(self.tokens);
        self.write_token_file(in_place == 1);
        self.clusters[0].model.revoke_token(&old);
    }

    pub(crate) fn replace_kubeconfig(&mut self, in_place: u64) {
        match self.plan.setting("auth") {
            "token" => self.write_token(),
            "bootstrap" => self.write_bootstrap(),
            _ => self.write_kubeconfig(in_place == 1),
        }
    }

    fn write_bootstrap(&mut self) {
        self.set_double();
        self.tokens += 1;
        let secret = draw(self.plan.seed, "bootstrap", self.tokens);
        let token = format!("{:06x}.{secret:016x}", self.tokens);
        self.secrets.push(format!("{secret:016x}"));
        let groups = [apidouble::KUBEADM_GROUP];
        self.clusters[0].model.add_bootstrap_token(BootstrapToken::new(&token).groups(&groups));
        let text = self.kubeconfig(&format!("token: {token}"));
        self.board.replace("etc/credstore/nodelet.bootstrap-kubeconfig", text.as_bytes());
        // A person also puts it where the running unit reads it.
        self.board.replace("run/credentials/nodelet.service/bootstrap-kubeconfig", text.as_bytes());
    }

    pub(crate) fn replace_bootstrap(&mut self) {
        self.write_bootstrap();
    }

    pub(crate) fn remove_stored_pair(&mut self) {
        self.board.remove_all("var/lib/nodelet/pki/kubelet-client-current.pem");
    }

    // --- the judge ---

    fn judge(&mut self, story: Story) {
        self.set_double();
        let model = &self.clusters[0].model;
        let state = State {
            healed: story.healed,
            node: model.get(&format!("nodes/{NODE}")).unwrap_or_default(),
            lease: model.get(&format!("leases/{NODE}")).unwrap_or_default(),
            renewed: self.renewed,
            excuse: self.excuse,
            is_up: self.board.is_on && self.unit.is_enabled,
            is_ready: self.unit.is_ready,
            status: self.unit.status.clone(),
            lines: self.lines.iter().cloned().collect(),
            promises: self.broken_promises(),
        };
        self.tell(What::Judged(Box::new(state)));
    }

    /// The agent's request was answered.
    pub(crate) fn answered(&mut self, exchange: Exchange) {
        if exchange.is_renewal() && exchange.user == format!("system:node:{NODE}") {
            self.renewed = Some(self.now);
        }
        self.tell(What::Answer(Box::new(exchange)));
    }
}

impl Cluster {
    fn new(plan: &Plan) -> Self {
        let authority = Authority::new("kubernetes-ca");
        let names = cluster::NAMES;
        // Older than the program: a board of 1970 verifies it at the time of the build.
        let validity = Validity { from: -400 * 86_400, until: 3650 * 86_400 };
        let identity = match plan.setting("key") {
            "p384" => authority.server_with_p384(names, validity),
            _ => authority.server(names, validity),
        };
        let other = Authority::new("somebody-else");
        let forged = other.server(names, validity);
        let model = Model::new(authority, "10.0.0.1:6443");
        let strict = Model::strict_server_config(&identity, &[model.authority()]);
        let config = match plan.setting("tls") {
            "1.2" => model.server_config_of_tls12(&identity),
            _ => model.server_config(&identity),
        };
        let wrong = model.server_config(&forged);
        Self { model, config, strict, wrong, backup: None }
    }
}

/// A path below the root, without its first `/`.
fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A number that no other world of this process has.
fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}
