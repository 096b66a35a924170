//! The world: time, the board, the cluster, the network, and what the plan does to them.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use apidouble::{Authority, Model, Snapshot};
use rustls::ServerConfig;
use serde_json::{Value, json};

use super::board::Board;
use super::card::Card;
use super::cluster;
use super::clusters::{self, decoded};
use super::devices::{Hardware, Truth};
use super::draw::{Draws, draw};
use super::net::Net;
use super::people::{Command, Cut, People};
use super::plan::{Faults, Plan, Step, Story, When};
use super::process::{Exit, Pid, Processes, Shared, Signal, Sleep};
use super::serve::Request;
use super::service::WATCHDOG;
use super::trace::{Entry, Exchange, State, What};
use super::watch::Watch;
use crate::kube::time::Wall;
use crate::os::wakeup::Woken;

/// The true time at the begin of a run, in seconds since 1970: 2027.
pub(crate) const START: u64 = 1_800_000_000;

/// The program was built at this time, whenever it really was.
pub(crate) fn built() -> Wall {
    Wall::from_epoch(Duration::from_secs(START - 30 * 86_400))
}

/// The true time at a time of a run.
pub(crate) fn true_wall_at(at: Duration) -> Wall {
    Wall::from_epoch(Duration::from_secs(START) + at)
}

/// The grace period of the node lifecycle controller.
pub(crate) const GRACE: Duration = Duration::from_secs(50);

/// How often the controllers look.
const CONTROLLERS: Duration = Duration::from_secs(5);

/// Most calls of hooks at one moment: a discovery of 61 sensors takes some thousand.
const MOST_CALLS: u64 = 100_000;

/// The flags of a board with a bootstrap token.
const BOOTSTRAP: &str = "--kubeconfig=/var/lib/nodelet/kubeconfig \
     --bootstrap-kubeconfig=/run/credentials/nodelet.service/bootstrap-kubeconfig";

/// The name of the Node.
pub(crate) const NODE: &str = "pi";

/// Its name after another line of a join.
pub(crate) const RENAMED: &str = "pie";

/// Its name after a person has overridden that.
pub(crate) const OVERRIDDEN: &str = "another";

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
    /// The certificate of a client has expired: a gateway ends the connection.
    Expires {
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
    /// A person types a command, which may be cut, also by a loss of power.
    Runs(Box<Command>, Option<(Cut, bool)>),
    /// What a person does a while later.
    Later(fn(&mut World, u64), u64),
}

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) model: Model,
    pub(super) config: Arc<ServerConfig>,
    pub(super) strict: Arc<ServerConfig>,
    /// Of a CA that nobody trusts.
    pub(super) wrong: Arc<ServerConfig>,
    pub(super) backup: Option<Snapshot>,
    /// The CAs that its administrator hands out, and their digests.
    pub(super) ca_pem: String,
    pub(super) pins: Vec<String>,
    /// A second CA, which the servers do not use yet.
    pub(super) next: Option<Authority>,
    /// Those that clients may still be of.
    pub(super) former: Vec<Authority>,
    /// A gateway before its servers verifies client certificates within TLS.
    pub(super) verifies: bool,
    /// Nobody signs from then on.
    pub(super) signs_until: Option<Duration>,
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
    /// When that process started.
    pub(crate) started: Duration,
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
    /// When the last read for a name lookup, and the last use of the pairs on the card, ends.
    pub(super) waits_until: Duration,
    /// The last certificate that the agent itself asked for, as PEM.
    pub(super) issued: Option<Vec<u8>>,
    /// What a server that lags shows: objects by their path.
    pub(super) lagged: BTreeMap<String, Value>,
    /// The end of the client certificate that was last shown to a server.
    pub(super) shown_until: Option<Wall>,
    /// Pod CIDRs that the controller has given, and pods that others have made.
    pub(super) cidrs: u64,
    pub(super) others: u64,
    /// The pod that a kubelet beside the agent started: its cluster, its name, and in which boot.
    pub(super) running: Option<(usize, String, u64)>,
    /// A policy denies each Node a range.
    pub(super) has_denied_ranges: bool,
    /// When a controller last wrote `spec.podCIDRs`, or somebody made a pod of this Node.
    pub(super) changed_spec: Duration,
    /// The informers of the lifecycle controller are behind by so many seconds.
    pub(super) late: Option<u64>,
    /// A read of the board's health was so slow since the class began.
    pub(super) has_hung: bool,
    /// When another board last wrote to the Node.
    pub(super) other_board_wrote: Option<Duration>,
    pub(crate) net: Net,
    pub(crate) faults: Faults,
    pub(crate) unit: Unit,
    pub(crate) people: People,
    pub(crate) trace: Vec<Entry>,
    /// The clock of the board, in seconds from the true time.
    skew: i64,
    /// When the clock was last set.
    pub(super) clock_changed: Duration,
    /// Calls of hooks, and what happens at one of them.
    hooks: u64,
    /// Reads of files while there was a fault.
    pub(crate) reads: u64,
    /// What was last told of the board.
    pub(crate) told: Option<Box<Truth>>,
    at_hook: BTreeMap<u64, usize>,
    pub(crate) sequence: u64,
    /// Operations of file changes, and writes of others: keys of draws.
    pub(crate) acts: u64,
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
    pub(crate) tokens: u64,
    /// The last renewal of the Lease that a store took.
    pub(crate) renewed: Option<Duration>,
    pub(crate) card: Card,
    /// A person must act, or the design promises nothing: from then on the run is not judged.
    pub(crate) excuse: Option<&'static str>,
    pub(crate) watch: Watch,
    /// The run ends after so many turns of the agent.
    pub(crate) last_turn: Option<u64>,
    turns: u64,
    /// The present moment, and the calls of hooks in it.
    moment: (Duration, u64),
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
        let mut servers = cluster::servers(&plan);
        let second = SocketAddr::new(clusters::address(1), 6443);
        servers.push(Server { address: second, also: None, cluster: 1 });
        let mut world = Self {
            now: Duration::ZERO,
            processes: Processes::default(),
            agenda: BTreeMap::new(),
            frozen_until: Duration::ZERO,
            is_over: false,
            board: Board::new(NODE),
            clusters: vec![Cluster::new(0, &plan), Cluster::new(1, &plan)],
            servers,
            names: BTreeMap::new(),
            has_moved: false,
            root_gone_until: Duration::ZERO,
            waits_until: Duration::ZERO,
            issued: None,
            lagged: BTreeMap::new(),
            shown_until: None,
            cidrs: 0,
            running: None,
            has_denied_ranges: false,
            others: 0,
            changed_spec: Duration::ZERO,
            late: None,
            has_hung: false,
            other_board_wrote: None,
            net: Net::default(),
            faults: Faults::default(),
            unit: Unit::default(),
            people: People::default(),
            trace: Vec::new(),
            skew: 0,
            clock_changed: Duration::ZERO,
            hooks: 0,
            reads: 0,
            told: None,
            at_hook: BTreeMap::new(),
            sequence: 0,
            acts: 0,
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
            card: Card::default(),
            excuse: None,
            watch: Watch::default(),
            last_turn: None,
            turns: 0,
            moment: (Duration::ZERO, 0),
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
        for cluster in 0..self.clusters.len() {
            self.set_signing(cluster);
            self.clusters[cluster].model.bind_bootstrappers(true);
            if self.is_k3s(cluster) {
                let life = self.plan.setting("life").parse().unwrap_or(86_400);
                let model = &self.clusters[cluster].model;
                model.set_supervisor(|supervisor| supervisor.lifetime = Some(life));
            }
        }
        if self.plan.setting("auth") == "k3s" {
            // `nodelet join` has stored it.
            let password = self.new_token(self.people.installed);
            self.board.put("etc/credstore/nodelet.k3s-password", password.as_bytes());
            self.store_password(&password);
        }
        match self.plan.setting("auth") {
            "token" => self.write_token(),
            "bootstrap" => self.write_bootstrap(),
            "files" => self.write_files(),
            "joined" | "joined-k3s" => self.people.is_stopped = self.plan.seed.is_multiple_of(2),
            _ => self.write_kubeconfig(false),
        }
        self.board.put("etc/default/nodelet", self.flags().as_bytes());
        self.install_package();
        self.set_hardware();
    }

    /// The first moment.
    pub(crate) fn begin(&mut self) {
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
        if self.is_joined() {
            self.later(
                Duration::from_secs(4),
                |world, _| {
                    let line = world.new_line(0, NODE, 0);
                    world.joins(line, 0);
                },
                0,
            );
        }
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
        draw(self.plan.seed, class, key).is_multiple_of(one_in.max(1))
    }

    /// Sets the time and the random bytes of the double on this thread.
    pub(crate) fn set_double(&mut self) {
        let ahead = self.faults.size("servers-clock-ahead").unwrap_or_default();
        self.set_double_ahead(ahead);
    }

    /// An administrator's own clock is right.
    pub(crate) fn set_double_of_person(&mut self) {
        self.set_double_ahead(0);
    }

    fn set_double_ahead(&mut self, ahead: u64) {
        self.doubles += 1;
        apidouble::set_time(Some(Duration::from_secs(START + ahead) + self.now));
        apidouble::set_seed(Some(draw(self.plan.seed, "double", self.doubles)));
    }

    /// The true time.
    pub(crate) fn true_wall(&self) -> Wall {
        true_wall_at(self.now)
    }

    /// What the clock of the board shows.
    pub(crate) fn board_wall(&self) -> Wall {
        let skew = Duration::from_secs(self.skew.unsigned_abs());
        let true_wall = self.true_wall();
        if self.skew < 0 { true_wall.before(skew) } else { true_wall.after(skew) }
    }

    /// A hook was called: an event of the plan may wait for it.
    pub(crate) fn count_hook(&mut self, pid: Pid) {
        self.hooks += 1;
        if self.is_cut(pid, false) {
            self.cut(pid);
        }
        self.check_progress(pid);
        while let Some((&hook, &index)) = self.at_hook.first_key_value()
            && hook <= self.hooks
        {
            self.at_hook.remove(&hook);
            self.begins(index);
        }
    }

    /// A program that never lets time pass would never end.
    fn check_progress(&mut self, pid: Pid) {
        match self.moment.0 == self.now {
            true => self.moment.1 += 1,
            false => self.moment = (self.now, 0),
        }
        if self.moment.1 > MOST_CALLS && !self.is_over {
            let text = format!("process {pid} spins: {MOST_CALLS} calls without a wait");
            self.tell(What::Broken { sentence: 10, text });
            self.end_run(pid);
        }
    }

    /// The run ends here, also for a process that does not sleep any more.
    fn end_run(&mut self, pid: Pid) {
        self.is_over = true;
        if let Some(process) = self.processes.get_mut(pid) {
            process.is_killed = true;
        }
    }

    /// Something happens.
    pub(crate) fn happen(&mut self, shared: &Arc<Shared>, event: Event) {
        match event {
            Event::Begins(index) => match self.plan.steps[index].when {
                When::At(_) => self.begins(index),
                When::Hook(_, count) => {
                    let mut hook = self.hooks + count;
                    while self.at_hook.contains_key(&hook) {
                        hook += 1;
                    }
                    self.at_hook.insert(hook, index);
                }
            },
            // Its hook has not come.
            Event::Ends(index) if self.at_hook.values().any(|waits| *waits == index) => {
                self.at_hook.retain(|_, waits| *waits != index);
            }
            Event::Ends(index) => {
                let step = self.plan.steps[index].clone();
                self.tell(What::Fault { begins: false, text: step.to_string() });
                self.faults.end(index);
                (step.class.end)(self, &step);
            }
            Event::Heals => {
                self.tell_files(true);
                self.at_hook.clear();
                if self.now < self.frozen_until {
                    (self.frozen_until, self.unit.pinged) = (self.now, self.now);
                }
                if !self.board.is_on || self.unit.is_stopping {
                    self.kill_agent();
                    self.boot_in(Duration::ZERO);
                }
                self.outlives_its_certificate();
                let now = self.now;
                let story = self.plan.stories.iter().find(|story| story.healed == now);
                if let Some(until) = story.map(|story| story.until) {
                    self.person_wakes(until);
                    self.checks_before(until);
                }
            }
            Event::Judges(story) => self.judge(story),
            Event::Arrives { connection, bytes } => self.arrived(connection, bytes),
            Event::Closed { connection } => self.forget(connection),
            Event::Input { connection } => self.rouse_reader(connection),
            Event::Idle { connection } => self.is_idle(connection),
            Event::Expires { connection } => self.end_connection(connection, false),
            Event::Serves(request) => self.serve(*request),
            Event::Controllers => self.controllers(),
            Event::Starts => self.start_unit(shared),
            Event::Off(number) if number == self.boot => {
                self.kill_all();
                self.board.is_on = false;
                self.card.unsynced.clear();
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
            Event::Runs(command, cut) => self.run_command(shared, *command, cut),
            Event::Later(act, with) => act(self, with),
        }
    }

    fn begins(&mut self, index: usize) {
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
        match () {
            () if self.faults.at("wrong-certificate", server).is_some() => cluster.wrong.clone(),
            () if cluster.verifies || self.faults.at("tls-refuses", server).is_some() => {
                cluster.strict.clone()
            }
            () => cluster.config.clone(),
        }
    }

    // --- the unit ---

    fn boots(&mut self) {
        // Nothing runs on after a start of the kernel, whose clock begins anew.
        self.kill_all();
        self.boots_kernel();
        self.start_clock();
        self.make_ready(true);
        self.unit.is_ready = false;
        self.unit.is_stopping = false;
        self.unit.restarts = 0;
        self.people.is_stopped = !self.unit.is_enabled;
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
        let is_wanted = self.is_installed() && !self.people.is_stopped && !self.unit.is_stopping;
        if self.unit.pid.is_some() || !self.board.is_on || !is_wanted {
            return;
        }
        if self.now < self.frozen_until {
            return self.plan_at(self.woken(), Event::Starts);
        }
        let start = self.next_start();
        self.load_credentials(&start);
        self.board.folder("var/lib/nodelet");
        self.board.folder("run/nodelet");
        self.unit.started = self.now;
        if self.now < self.people.read_only_until && self.people.has_lost_pair {
            self.excuse = Some("a restart with a card that keeps no certificate");
        }
        self.people.home = self.people.installed;
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
        let words = start.words.clone();
        let (line, shown) = (words.join(" "), words.clone());
        let program = move || {
            let code = crate::cli::main(words.into_iter().map(Into::into));
            format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS)
        };
        let pid = shared.start(self, "nodelet", environment, program);
        self.unit.pid = Some(pid);
        self.people.started = start;
        self.people.has_token = self.names_a_token();
        self.show_process(pid, &shown, true);
        // What the times of errors say to this process.
        self.tell_truth();
        self.tell(What::Starts { pid, name: "nodelet", line });
    }

    /// What the administrator wrote to /etc/default/nodelet.
    pub(crate) fn flags(&self) -> String {
        let renewed = format!("{BOOTSTRAP} --rotate-certificates");
        let k3s = format!("--rotate-certificates --k3s-supervisor={}", self.url());
        let own = match self.plan.setting("auth") {
            "joined" | "joined-k3s" => "",
            "bootstrap" if self.plan.renews_never() => BOOTSTRAP,
            "bootstrap" => &renewed,
            "rotate" => "--rotate-certificates",
            "rotate-file" => "--kubeconfig=/etc/kubernetes/kubelet.conf --rotate-certificates",
            "k3s" => &k3s,
            _ => "--kubeconfig=/etc/kubernetes/kubelet.conf",
        };
        let label = if self.is_joined() { "" } else { "--node-labels=test/own=1 " };
        let health = match self.plan.setting("health") {
            "all" => " --node-problem-detection=all",
            _ => "",
        };
        let pods = if self.plan.setting("pods") == "40" {
            " --max-pods=110 --pods-per-core=10"
        } else {
            ""
        };
        let waits = match self.plan.setting("waits") {
            "path" => " --ready-when-exists=/run/test-ready",
            _ => "",
        };
        format!("NODELET_FLAGS={label}{own}{health}{pods}{waits}\n")
    }

    /// A process has ended.
    pub(crate) fn ended(&mut self, pid: Pid, exit: Exit) {
        if let Exit::Panic(text) = &exit {
            let who =
                if super::panics::is_of_the_agent(text) { "the program" } else { "the simulator" };
            let text = format!("{who} panicked at {text}");
            self.tell(What::Broken { sentence: 0, text });
        }
        let name = self.name_of(pid);
        self.tell(What::Ends { pid, name, exit: exit.clone() });
        self.hide_process(pid);
        self.command_ended(pid, &exit);
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

    /// Whatever runs on the board ends here, at once.
    pub(crate) fn kill_all(&mut self) {
        let now = self.now;
        for pid in self.people.commands.keys().copied().collect::<Vec<_>>() {
            if let Some(process) = self.processes.get_mut(pid) {
                process.is_killed = true;
            }
            self.processes.rouse(pid, now, |_| true);
        }
        self.kill_agent();
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

    /// An alarm ends the process, unless it has ended before.
    pub(crate) fn ends_in(&mut self, pid: Pid, time: Duration) {
        self.plan_at(self.now + time, Event::Kills(pid));
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

    /// The kernel starts after this time.
    pub(crate) fn boot_in(&mut self, delay: Duration) {
        self.boot += 1;
        self.plan_at(self.now + delay, Event::Boots(self.boot));
    }

    /// SIGUSR1 alone: the shutdown is told, and cancelled or delayed for `seconds`.
    pub(crate) fn shut_down(&mut self, seconds: u64) {
        self.signal(Signal::Usr1);
        self.plan_at(self.now + Duration::from_secs(seconds), Event::Signals(Signal::Term));
    }

    /// The board sleeps, unless it shuts down.
    pub(crate) fn suspend(&mut self, seconds: u64) {
        if self.board.is_on && !self.unit.is_stopping {
            self.frozen_until = self.now + Duration::from_secs(seconds);
            let takes = Duration::from_secs(seconds);
            self.tell(What::Blocks { pid: 0, with: "a suspend", lasts: takes });
            self.unit.pinged = self.unit.pinged.max(self.frozen_until);
        }
    }

    /// When to ask a board that sleeps again: the end of the faults wakes it before its time.
    pub(crate) fn woken(&self) -> Duration {
        self.frozen_until.min(self.now + Duration::from_secs(1))
    }

    pub(crate) fn step_clock(&mut self, seconds: i64) {
        self.skew += seconds;
        self.tell_truth();
    }

    /// A number that was not used before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The clock shows this time, or is right.
    pub(crate) fn clock_at(&mut self, seconds: Option<u64>) {
        let now = i64::try_from(START + self.now.as_secs()).expect("a time");
        self.skew = seconds.map_or(0, |at| i64::try_from(at).expect("a time") - now);
        self.clock_changed = self.now;
        self.tell_truth();
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
        if self.last_turn.is_some_and(|last| self.turns >= last) {
            self.end_run(pid);
        }
    }

    pub(crate) fn woke(&mut self, pid: Pid, woken: Woken) {
        if woken != Woken::default() {
            self.tell(What::Woke { pid, woken });
        }
    }

    pub(crate) fn printed(&mut self, pid: Pid, text: &str) {
        self.check_secrets("stderr", text);
        self.command_printed(pid, text);
        self.tell(What::Print { pid, text: text.to_owned() });
    }

    pub(crate) fn logged(&mut self, pid: Pid, record: &log::Record<'_>) {
        let text = record.args().to_string();
        self.check_secrets("the log", &text);
        let place = format!("{}:{}", record.file().unwrap_or_default(), record.line().unwrap_or(0));
        let is_verbose = record.target() == crate::kube::text::VERBOSE;
        if !is_verbose && self.unit.pid == Some(pid) {
            self.lines.push_back(text.clone());
        }
        if self.lines.len() > 20 {
            self.lines.pop_front();
        }
        self.tell(What::Log { pid, level: record.level(), is_verbose, text, place });
    }

    pub(crate) fn check_secrets(&mut self, place: &str, text: &str) {
        if self.has_secret(text) {
            self.tell(What::Broken { sentence: 8, text: format!("a secret in {place}: {text}") });
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
            if self.late.is_none() {
                cluster.model.tick_health(GRACE);
            }
            cluster.model.tick_ttl();
            cluster.model.tick_lifecycle();
            cluster.model.tick_garbage();
        }
        if !self.faults.has("signer-stops") {
            for index in 0..self.clusters.len() {
                self.sign(index);
            }
        }
        self.watch_ready();
        self.repeat_signs();
        self.ping_is_due();
        self.plan_at(self.now + CONTROLLERS, Event::Controllers);
    }

    fn sign(&mut self, cluster: usize) {
        if self.clusters[cluster].signs_until.is_some_and(|until| until <= self.now) {
            return;
        }
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
        let (cluster, _) = self.place();
        let merge = "application/merge-patch+json";
        self.clusters[cluster].model.as_admin(method, path, merge, body)
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
        self.acts += 1;
        let value = self.acts.to_string();
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
            self.write_to_node(self.acts % 2);
            self.plan_at(self.now + Duration::from_secs(3), Event::Writes);
        }
    }

    pub(crate) fn write_to_lease(&mut self) {
        let body =
            json!({"metadata": {"annotations": {"test/foreign": self.requests.to_string()}}});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}");
        self.admin("PATCH", &path, &body);
    }

    pub(crate) fn back_up(&mut self) {
        self.clusters[0].backup = Some(self.clusters[0].model.snapshot());
    }

    /// etcd is restored from the backup; the servers restart. The administrator sets RBAC and
    /// cluster-info as they were just before.
    pub(crate) fn restore(&mut self) {
        if let Some(backup) = self.clusters[0].backup.take() {
            self.set_double();
            let former = (self.clusters[0].model.supervisor(), self.node_created());
            self.clusters[0].model.restore(backup);
            self.keep_password(former);
            self.end_restored_pods();
            self.clusters[0].publish_ca();
            self.set_rbac(!self.faults.has("rbac-removed"));
            self.each_server(0, |world, server| world.end_connections_of(server, true));
        }
    }

    // --- credentials ---

    /// The URL of the servers of a cluster.
    pub(crate) fn url_of(&self, cluster: usize) -> String {
        match (cluster, self.plan.setting("address")) {
            (0, _) => self.url(),
            (_, "name") => format!("https://{}:6443", clusters::name(cluster)),
            _ => format!("https://{}:6443", clusters::address(cluster)),
        }
    }

    pub(crate) fn new_token(&mut self, cluster: usize) -> String {
        self.tokens += 1;
        let token = self.token(self.tokens);
        self.mark_secret(&token, cluster);
        token
    }

    /// A token of this number. A cloud's may be long.
    fn token(&self, number: u64) -> String {
        let length: usize = self.plan.setting("token").parse().unwrap_or(0);
        let token = format!("token-{number}-{:016x}", draw(self.plan.seed, "token", number));
        format!("{token:x<length$}")
    }

    fn kubeconfig(&self, user: &str) -> String {
        let cluster = self.people.installed;
        self.kubeconfig_of(cluster, &self.url_of(cluster), user)
    }

    /// Where the kubeconfig of this setting is.
    pub(crate) fn kubeconfig_path(&self) -> &'static str {
        match self.plan.setting("auth") {
            "rotate" | "k3s" | "joined" | "joined-k3s" => "etc/credstore/nodelet.kubeconfig",
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
        let user = self.user_with_certificate(self.people.installed, NODE, life);
        let text = self.kubeconfig(&user);
        if self.plan.setting("auth") == "k3s"
            && !self.board.has("etc/credstore/nodelet.k3s-password")
        {
            let password = self.new_token(self.people.installed);
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
        let token = self.new_token(self.people.installed);
        let user = format!("system:node:{NODE}");
        let cluster = self.people.installed;
        self.clusters[cluster].model.add_token(&token, &user, &["system:nodes"]);
        match in_place {
            true => self.board.put("etc/kubernetes/token", token.as_bytes()),
            false => self.board.replace("etc/kubernetes/token", token.as_bytes()),
        }
    }

    /// A person replaces the token; the old one is revoked a while later or at once.
    pub(crate) fn replace_token(&mut self, in_place: u64) {
        let old = self.token(self.tokens);
        self.write_token_file(in_place == 1);
        self.clusters[self.people.installed].model.revoke_token(&old);
    }

    pub(crate) fn replace_kubeconfig(&mut self, in_place: u64) {
        match self.plan.setting("auth") {
            "token" => self.write_token(),
            "bootstrap" => self.write_bootstrap(),
            "files" => self.write_files(),
            // A person who joins has a line.
            "joined" | "joined-k3s" => self.repeats_join(),
            _ => self.write_kubeconfig(in_place == 1),
        }
        self.restart_for_a_file();
    }

    /// A person who changed a file of a root that can block, or whose servers have moved, restarts
    /// the unit: such a file, and the address, is read only at the start.
    pub(crate) fn restart_for_a_file(&mut self) {
        if self.plan.root_can_block() || self.faults.has("server-moves") {
            self.later(Duration::from_secs(8), |world, _| world.restart_unit(), 0);
        }
    }

    /// A kubeconfig that names files with certificate and key.
    fn write_files(&mut self) {
        self.write_pair(NODE);
        self.write_ca_file();
        self.people.foreign_pair = None;
        let user = "client-certificate: client.crt, client-key: client.key";
        let text = self.kubeconfig(user);
        self.board.replace("etc/kubernetes/kubelet.conf", text.as_bytes());
    }

    fn write_bootstrap(&mut self) {
        self.set_double();
        self.people.token_is_dead = false;
        let cluster = self.people.installed;
        let text = self.bootstrap_kubeconfig(cluster, &self.url_of(cluster));
        self.board.replace("etc/credstore/nodelet.bootstrap-kubeconfig", text.as_bytes());
        // A person also puts it where the running unit reads it.
        self.board.replace("run/credentials/nodelet.service/bootstrap-kubeconfig", text.as_bytes());
    }

    pub(crate) fn replace_bootstrap(&mut self) {
        self.write_bootstrap();
    }

    // --- the judge ---

    fn judge(&mut self, story: Story) {
        // A Node that is taken away at this moment is not there yet.
        let is_taken = |step: &Step| {
            step.when.at() == self.now
                && ["node-replaced", "node-deleted"].contains(&step.class.name)
        };
        if self.plan.steps.iter().any(is_taken) {
            return;
        }
        self.tell_files(false);
        self.set_double();
        let (cluster, name) = self.place();
        let model = &self.clusters[cluster].model;
        let state = State {
            healed: story.healed,
            cluster,
            node: model.get(&format!("nodes/{name}")).unwrap_or_default(),
            renewed: self.people.renewed.get(&(cluster, name.to_owned())).copied(),
            excuse: self.excuse,
            clock_right: (self.skew == 0).then_some(self.clock_changed),
            card_writes: (!self.is_read_only())
                .then_some(story.healed.max(self.people.read_only_until)),
            is_up: self.board.is_on && self.unit.is_enabled && !self.people.is_busy,
            is_ready: self.unit.is_ready,
            status: self.unit.status.clone(),
            lines: self.lines.iter().cloned().collect(),
            promises: self.broken_promises(),
        };
        let is_judged = state.excuse.is_none() && state.is_up;
        self.tell(What::Judged(Box::new(state)));
        if is_judged {
            self.check_password();
        }
    }

    /// The agent's request was answered.
    pub(crate) fn answered(&mut self, exchange: Exchange) {
        self.check_user(&exchange.user, exchange.pid);
        self.check_pods(&exchange);
        if let Some(issued) = exchange.answer["status"]["certificate"].as_str()
            && self.unit.pid == Some(exchange.pid)
        {
            self.issued = decoded(issued);
        }
        if exchange.is_renewal()
            && let Some(name) = exchange.user.strip_prefix("system:node:")
            && exchange.target.ends_with(name)
        {
            self.renewed = Some(self.now);
            let place = (exchange.cluster, name.to_owned());
            let last = self.people.renewed.insert(place, self.now);
            self.controller_lags(last);
        }
        self.tell(What::Answer(Box::new(exchange)));
    }
}

/// A path below the root, without its first `/`.
pub(crate) fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// A number that no other world of this process has.
fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}
