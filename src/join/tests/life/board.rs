//! One board: its files below a temporary root, systemd, the agent, and what a person types.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::MINUTE;
use crate::check::Finding;
use crate::client::api::Api;
use crate::client::api_config::Secret;
use crate::config::Config;
use crate::config::command_line;
use crate::credentials::IdentitySource;
use crate::credentials::tests::cluster::{Cluster, wall};
use crate::credentials::tests::process::{Process, Turn};
use crate::join::command::{Settings, TokenSource};
use crate::join::files::JoinPaths;
use crate::join::run::{Board, ClockAndNetwork, JoinRun};
use crate::join::token::{Digest, Token};
use crate::kube::delay::Jitter;
use crate::kube::facts::Facts;
use crate::kube::instant::{Mono, Now};
use crate::kube::message::{Answer, Request};
use crate::kube::time::Wall;
use crate::node::kubelet::tests::lines::take_lines;
use crate::node::schedule::tests::Random;
use crate::os::tree::Tree;

/// The host name: that of a Node whose flags are lost.
const HOSTNAME: &str = "board";
const UNITS: &str = "usr/lib/systemd/system";
const CREDENTIALS: &str = "run/credentials/nodelet.service";
const CGROUP: &str = "sys/fs/cgroup/nodelet.service/cgroup.procs";
/// What deb-systemd-helper enables in postinst.
const LINKS: [(&str, &str); 2] = [
    ("etc/systemd/system/multi-user.target.wants/nodelet.service", "nodelet.service"),
    ("etc/systemd/system/paths.target.wants/nodelet.path", "nodelet.path"),
];

/// The command line of a join.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) cluster: usize,
    pub(super) name: &'static str,
    /// The value of a label.
    pub(super) label: u64,
    pub(super) pins: Vec<Digest>,
    pub(super) token: String,
    pub(super) timeout: Duration,
    pub(super) force: bool,
    pub(super) bootstrap_only: bool,
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) tree: Tree,
    pub(super) now: Duration,
    /// What the clock of the board shows, if it is wrong: this time, from then on.
    pub(super) wrong_clock: Option<(Duration, Wall)>,
    pub(super) clusters: [Cluster; 2],
    /// The unit is started: it runs, or systemd starts it again.
    pub(super) is_started: bool,
    pub(super) is_on: bool,
    agent: Option<Process>,
    restart: Duration,
    facts: Facts,
    boots: u64,
    /// The last lines of the agent.
    pub(super) said: Vec<String>,
    story: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            tree: Tree::in_memory("life"),
            now: Duration::ZERO,
            wrong_clock: None,
            clusters: ["10.0.0.1", "10.0.0.2"].map(Cluster::new),
            is_started: false,
            is_on: true,
            agent: None,
            restart: Duration::ZERO,
            facts: Facts::example(),
            boots: 0,
            said: Vec::new(),
            story: Vec::new(),
        };
        for folder in ["etc/default", "var/lib", "dev"] {
            fs::create_dir_all(world.tree.join(folder)).unwrap();
        }
        fs::write(world.tree.join("dev/null"), "").unwrap();
        world.boot();
        world
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    pub(super) fn tell(&mut self, what: &str) {
        self.story.push(format!("[{:?}] {what}", self.now));
    }

    pub(super) fn shown(&self) -> String {
        let story = &self.story[self.story.len().saturating_sub(80)..];
        format!("{}\nthe agent said: {:#?}", story.join("\n"), self.said)
    }

    pub(super) fn paths(&self) -> JoinPaths {
        JoinPaths::new(Some(self.tree.path()))
    }

    fn board_wall(&self) -> Wall {
        match self.wrong_clock {
            Some((since, shown)) => shown.after(self.now - since),
            None => wall(self.now),
        }
    }

    // --- the package ---

    pub(super) fn is_installed(&self) -> bool {
        self.tree.join(UNITS).join("nodelet.service").exists()
    }

    /// The unpacked units, and cross/debian/postinst.
    pub(super) fn install(&mut self) {
        for unit in ["nodelet.service", "nodelet.path"] {
            self.tree.write(&format!("{UNITS}/{unit}"), b"[Unit]");
        }
        for (link, unit) in LINKS {
            let link = self.tree.join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&link);
            symlink(format!("/{UNITS}/{unit}"), link).unwrap();
        }
        if self.is_started || self.paths().kubeconfig().exists() {
            self.restart();
        }
    }

    /// cross/debian/prerm, and the removed units.
    pub(super) fn remove(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(self.tree.join(UNITS));
    }

    // --- systemd ---

    fn is_enabled(&self) -> bool {
        self.is_installed() && self.tree.join(LINKS[0].0).is_symlink()
    }

    pub(super) fn boot(&mut self) {
        self.boots += 1;
        self.is_on = true;
        self.facts.boot_id = Ok(format!("boot-{}", self.boots));
        for folder in ["run", "sys"] {
            let _ = fs::remove_dir_all(self.tree.join(folder));
        }
        fs::create_dir_all(self.tree.join("run/systemd/system")).unwrap();
        self.is_started = self.is_enabled();
        self.end_agent(Duration::ZERO);
    }

    pub(super) fn stop(&mut self) {
        self.is_started = false;
        self.end_agent(Duration::ZERO);
    }

    pub(super) fn restart(&mut self) {
        self.is_started = self.is_installed();
        self.end_agent(Duration::ZERO);
    }

    /// `systemctl enable --now nodelet`, or a restart.
    pub(super) fn enable(&mut self) {
        self.install();
        self.restart();
    }

    fn end_agent(&mut self, pause: Duration) {
        self.agent = None;
        self.restart = self.now + pause;
        let _ = fs::remove_file(self.tree.join(CGROUP));
        let _ = fs::remove_dir_all(self.tree.join(CREDENTIALS));
    }

    /// nodelet.path.
    fn trigger(&mut self) {
        let trigger = self.tree.join("run/nodelet-joined");
        if trigger.exists() && self.is_on && self.is_installed() {
            fs::remove_file(trigger).unwrap();
            if !self.is_started {
                self.restart();
            }
        }
    }

    /// The configuration of a run, and its credentials: copies, as systemd makes them.
    fn source(&self, credentials: &str) -> Result<(Config, IdentitySource), String> {
        let credentials = self.tree.join(credentials);
        let _ = fs::remove_dir_all(&credentials);
        fs::create_dir_all(&credentials).unwrap();
        for entry in fs::read_dir(self.tree.join("etc/credstore")).into_iter().flatten() {
            let (path, name) = entry.map(|e| (e.path(), e.file_name())).unwrap();
            if let Some(name) = name.to_str().unwrap().strip_prefix("nodelet.")
                && !name.ends_with(".new")
            {
                fs::copy(path, credentials.join(name)).unwrap();
            }
        }
        let root = self.tree.display();
        let mut args = vec![
            format!("--kubeconfig={}", credentials.join("kubeconfig").display()),
            format!("--root-dir={root}/var/lib/nodelet"),
        ];
        let stored = self.paths().stored_flags();
        args.extend(stored.into_iter().flat_map(|flags| flags.words));
        let (_, flags) = command_line::parse(args.into_iter().map(OsString::from))?;
        let config = Config::new(*flags, || Ok(HOSTNAME.to_owned()))?;
        let path = config.kubeconfig.clone().unwrap();
        let source = IdentitySource::new(&config, &path, Some(credentials));
        Ok((config, source))
    }

    /// The variables of the unit.
    fn environment(&self) -> Vec<u8> {
        let files = ["etc/default/nodelet-join", "etc/default/nodelet"];
        let texts = files.map(|path| fs::read_to_string(self.tree.join(path)).unwrap_or_default());
        texts.concat().replace('\n', "\0").into_bytes()
    }

    fn start_agent(&mut self) {
        let permille = self.below(1001);
        let state = self.tree.join("var/lib/nodelet");
        fs::create_dir_all(state).unwrap();
        let opened = self.source(CREDENTIALS).and_then(|(config, source)| {
            let opened = source.open(self.board_wall(), Jitter::new(permille));
            Ok((config, opened.map_err(|why| why.to_string())?))
        });
        match opened {
            Ok((config, credentials)) => {
                let (built, seed) = (wall(Duration::ZERO), self.below(u64::MAX));
                self.agent = Some(Process::new(config, credentials, built, seed, self.now));
                self.tree.write(CGROUP, b"7\n");
                self.tree.write("proc/7/environ", &self.environment());
            }
            Err(why) => {
                self.said.push(why);
                self.end_agent(Duration::from_secs(10));
            }
        }
    }

    /// One turn of the loop in `agent`, not beyond `end`.
    fn turn(&mut self, end: Duration) {
        self.trigger();
        if !self.is_started {
            self.now = end;
            return;
        }
        if self.agent.is_none() {
            if self.restart > self.now {
                self.now = self.restart.min(end);
                return;
            }
            self.start_agent();
        }
        let board = self.board_wall();
        let Some(agent) = &mut self.agent else {
            return;
        };
        let sent = match agent.turn(self.now, board, &self.facts, true) {
            Turn::Waits(pause) => {
                self.now = (self.now + pause).min(end);
                return;
            }
            Turn::Other => return,
            Turn::Sends(sent) => sent,
        };
        let api = agent.client(&sent);
        let host = &api.config.endpoint.host;
        let server = self.clusters.iter_mut().find(|cluster| cluster.host == host);
        let outcome = server.unwrap().call(api, &sent.request, self.now, board);
        self.now += Duration::from_millis(match &outcome {
            Ok(_) => 30,
            Err(_) => 2000,
        });
        agent.on_answer(&sent, outcome, self.now, board);
    }

    pub(super) fn run_until(&mut self, end: Duration, done: impl Fn(&Self) -> bool) {
        let others = take_lines();
        while self.now < end && !done(self) {
            self.turn(end);
            self.said.extend(take_lines());
        }
        let old = self.said.len().saturating_sub(12);
        self.said.drain(..old);
        drop(others);
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.run_until(self.now + time, |_| false);
    }

    /// The middle of a long time is left out.
    pub(super) fn pass(&mut self, time: Duration) {
        let (end, few) = (self.now + time, Duration::from_secs(12));
        self.run(time.min(few));
        let last = if time > MINUTE { few } else { Duration::ZERO };
        self.now = self.now.max(end.saturating_sub(last));
        self.run_until(end, |_| false);
    }

    // --- what the server sees ---

    /// The Node that the files on disk can renew the Lease of, at its cluster.
    pub(super) fn node(&self) -> Option<(usize, String)> {
        let (config, source) = self.source("run/look").ok()?;
        let access = source.open_read_only(wall(self.now)).ok()?.current;
        let host = &access.api.config.endpoint.host;
        let index = self.clusters.iter().position(|cluster| cluster.host == host)?;
        let cluster = &self.clusters[index];
        let name = cluster.node_of(&access.api.config, self.now)?;
        let is_usable = cluster.trusts_server(&access.api.config) && name == config.node.name;
        is_usable.then_some((index, name))
    }

    /// Whether the Lease of this Node was renewed since.
    pub(super) fn is_ready(&self, line: &Line, since: Duration) -> bool {
        self.clusters[line.cluster][line.name].is_ready_since(since)
    }

    /// A line as the control plane prints it now.
    pub(super) fn new_line(&mut self, cluster: usize, name: &'static str, label: u64) -> Line {
        let (timeout, force, bootstrap_only) = (MINUTE, false, false);
        let cluster_now = &mut self.clusters[cluster];
        let (pins, token) = (cluster_now.pins(), cluster_now.new_token());
        Line { cluster, name, label, pins, token, timeout, force, bootstrap_only }
    }
}

/// What `nodelet join` sees of the world.
pub(super) struct View(pub(super) RefCell<World>);

impl ClockAndNetwork for View {
    fn now(&self) -> Now {
        let world = self.0.borrow();
        Now { mono: Mono::START.after(world.now), wall: world.board_wall() }
    }

    fn pause(&self, time: Duration) {
        self.0.borrow_mut().run(time);
    }

    fn dial(&self, addresses: &[SocketAddr]) -> Finding {
        let world = &mut self.0.borrow_mut();
        let now = world.now;
        let host = addresses[0].ip().to_string();
        let server = world.clusters.iter_mut().find(|cluster| cluster.host == host).unwrap();
        server.control(now);
        Finding::ok("tcp", host)
    }

    fn call(&self, api: &mut Api, request: &Request, _: Duration) -> Answer {
        let world = &mut self.0.borrow_mut();
        let (now, board) = (world.now, world.board_wall());
        world.now += Duration::from_millis(20);
        let host = api.config.endpoint.host.clone();
        let server = world.clusters.iter_mut().find(|cluster| cluster.host == host).unwrap();
        server.call(api, request, now, board)
    }
}

impl View {
    pub(super) fn new(seed: u64) -> Self {
        Self(RefCell::new(World::new(seed)))
    }

    /// [`Self::run`]. Returns the lines with a remedy, first that of the failed step.
    pub(super) fn join(&self, line: &Line) -> Vec<String> {
        let mut lines = self.run(line);
        let has_failed = lines.iter().any(|line| line.starts_with('✗'));
        lines.retain(|line| !line.starts_with('✓') && line.contains("; "));
        lines.sort_by_key(|line| !line.starts_with('✗'));
        assert!(!has_failed || lines.first().is_some_and(|line| line.starts_with('✗')));
        lines
    }

    /// Runs the command line. Returns all lines.
    pub(super) fn run(&self, line: &Line) -> Vec<String> {
        let (board, paths, host) = {
            let world = self.0.borrow();
            let boot_id = world.facts.boot_id.clone().unwrap();
            let board =
                Board { name: line.name.to_owned(), address: "192.0.2.10".to_owned(), boot_id };
            (board, world.paths(), world.clusters[line.cluster].host)
        };
        let settings = Settings {
            server: format!("https://{host}:6443"),
            token: TokenSource::Text(Secret::new(line.token.clone())),
            pins: line.pins.clone(),
            node_name: Some(line.name.to_owned()),
            timeout: line.timeout,
            wait: true,
            force: line.force,
            bootstrap_only: line.bootstrap_only,
            flags: vec![format!("--node-labels=label={}", line.label)],
            ..Settings::default()
        };
        let mut lines = Vec::new();
        let mut print = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        let mut run = JoinRun::new(&settings, board, self, &mut print);
        run.paths = paths;
        let end = run.run(&Token::parse(&line.token).unwrap(), None);
        let mut world = self.0.borrow_mut();
        world.trigger();
        for line in &lines {
            world.tell(&format!("    {line}"));
            // A line about the clock has its remedy.
            assert!(!line.contains("clock says") || line.contains("set the clock"), "{line}");
        }
        assert_eq!(end.is_err(), lines.iter().any(|line| line.starts_with('✗')));
        lines
    }
}

/// In 1970 and in 2045.
pub(super) fn wrong_clocks() -> [Wall; 2] {
    [5, 2_366_841_600].map(|seconds| Wall::from_epoch(Duration::from_secs(seconds)))
}
