//! A state machine of one board and its cluster in virtual time: random responses, clocks, files,
//! kills and restarts. From every state, a healthy world leads to a Ready Node within two minutes
//! without a restart.
//!
//! Kubelet, identity and files are real. The server is a model: it authenticates the credentials
//! that the identity would send, by the true time.
#![allow(clippy::disallowed_methods)]

mod decade;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _};

use crate::config::Config;
use crate::credentials::pki::tests::Pem;
use crate::credentials::tests::cluster::{self, Behavior, Cluster, Fate, START, epoch, wall};
use crate::credentials::tests::process::{Process, Sent, Turn, is_certificate, live_all};
use crate::credentials::{IdentitySource, SigningClient};
use crate::kube::delay::Jitter;
use crate::kube::facts::Facts;
use crate::kube::message::Method;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject, Wanted};
use crate::node::kubelet::tests::storm::{collect_lines, take_lines};
use crate::node::schedule::RequestKind;
use crate::node::schedule::tests::Random;
use crate::os::recorder;
use crate::os::tree::Tree;

/// The API server, and the host of an operator's mistake.
const SERVER: &str = "10.0.0.1";
const WRONG_SERVER: &str = "10.0.0.9";

/// A build time before [`START`].
const BUILT: u64 = 1_790_000_000;

/// Shortest and longest life of a certificate in seconds. A tenth of it must suffice for a renewal.
const LIFE: (u64, u64) = (400, 600);

/// Time from a healthy world to a Ready Node.
const RECOVERY: Duration = Duration::from_secs(120);

/// `Law::after_success` of the usual Lease.
const LONGEST_GAP: Duration = Duration::from_millis(15_400);

/// Most turns of the loop in a minute.
const TURNS: usize = 150;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// How the kubeconfig has the first certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum User {
    Inline,
    Files,
    /// There is no kubeconfig: the bootstrap writes it.
    None,
}

/// `--rotate-certificates`, `--bootstrap-kubeconfig` and the kubeconfig.
const SETUPS: [(bool, bool, User); 8] = [
    (true, true, User::None),
    (true, true, User::Files),
    (true, false, User::Inline),
    (true, false, User::Files),
    (false, true, User::None),
    (false, true, User::Inline),
    (false, false, User::Files),
    (false, false, User::Inline),
];

fn setup(seed: u64) -> (bool, bool, User) {
    SETUPS[usize::try_from(seed).unwrap() % SETUPS.len()]
}

struct Machine {
    seed: u64,
    /// `--rotate-certificates`, and `--bootstrap-kubeconfig`.
    rotate: bool,
    bootstrap: bool,
    user: User,
    ca_file: bool,
    random: Random,
    tree: Tree,
    config: Config,
    cluster: Cluster,
    process: Option<Process>,
    /// Next attempt of the supervisor.
    restart: Duration,
    /// Virtual time since the start.
    now: Duration,
    /// What the board's clock shows, in seconds before or after the true time.
    skew: i64,
    /// Start of the last renewal, if the server was well and no process ended since.
    steady: Option<Duration>,
    /// Times of the last turns.
    turns: VecDeque<Duration>,
    operator: [KeyPair; 2],
    /// Last steps, for messages.
    story: VecDeque<String>,
    secrets: Vec<String>,
    stamp: u64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        collect_lines();
        recorder::start();
        let (rotate, bootstrap, user) = setup(seed);
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let tree = Tree::empty("machine");
        let mut config = Config::of(&[]);
        config.rotate_certificates = rotate;
        config.cert_dir = tree.join("lib/pki");
        config.bootstrap_kubeconfig = bootstrap.then(|| tree.join("etc/bootstrap.conf"));
        let ca_file = random.below(2) == 0;
        let mut cluster = Cluster::new(SERVER);
        cluster.server_life = 100 * cluster::YEAR;
        cluster.life = [LIFE.0, LIFE.1].map(seconds);
        cluster.backdated = seconds(60);
        cluster.random = Some(Random(random.below(u64::MAX) | 1));
        let operator = [(); 2].map(|()| KeyPair::generate().unwrap());
        let mut machine = Self {
            seed,
            rotate,
            bootstrap,
            user,
            ca_file,
            random,
            config,
            cluster,
            process: None,
            restart: Duration::ZERO,
            now: Duration::ZERO,
            skew: 0,
            steady: None,
            turns: VecDeque::new(),
            secrets: operator.iter().map(|key| key.serialize_pem()[60..90].to_owned()).collect(),
            operator,
            story: VecDeque::new(),
            stamp: 0,
            tree,
        };
        fs::create_dir(machine.tree.join("lib")).unwrap();
        machine.write_ca();
        machine.write_bootstrap(true);
        if user != User::None {
            machine.write_certificate();
        }
        machine
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn shown(&self, what: &str) -> String {
        let story: Vec<&str> = self.story.iter().map(String::as_str).collect();
        format!(
            "seed {}, {:?}, CA file {}, at {:?}: {what}; last steps:\n{}",
            self.seed,
            setup(self.seed),
            self.ca_file,
            self.now,
            story.join("\n")
        )
    }

    fn tell(&mut self, what: &str) {
        let line = format!("[{:?}, skew {}] {what}", self.now, self.skew);
        self.story.push_back(line);
        if self.story.len() > 60 {
            self.story.pop_front();
        }
    }

    /// Replaces a file. Each write has another modification time: writes follow each other faster
    /// here than the kernel's clock ticks.
    fn replace(&mut self, path: &Path, text: &str) {
        self.stamp += 1;
        let new = path.with_extension("operator");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&new, text).unwrap();
        let file = fs::File::options().write(true).open(&new).unwrap();
        let time = SystemTime::UNIX_EPOCH + seconds(START + self.stamp);
        file.set_modified(time).unwrap();
        fs::rename(new, path).unwrap();
    }

    fn kubeconfig_path(&self) -> PathBuf {
        self.tree.join("etc/kubelet.conf")
    }

    fn write_ca(&mut self) {
        let (path, ca) = (self.tree.join("etc/ca.crt"), self.cluster.bundle());
        self.replace(&path, &ca);
    }

    fn kubeconfig(&self, user: &str) -> String {
        let text = self.cluster.kubeconfig(user);
        if self.ca_file {
            let data = format!("certificate-authority-data: {}", Pem(&self.cluster.bundle()));
            let file = format!("certificate-authority: {}", self.tree.join("etc/ca.crt").display());
            text.replace(&data, &file)
        } else {
            text
        }
    }

    /// A new bootstrap token in the bootstrap kubeconfig; with `false` its server is wrong.
    fn write_bootstrap(&mut self, is_right: bool) {
        let token = self.cluster.new_token();
        let text = self.kubeconfig(&format!("token: {token}"));
        self.secrets.push(token);
        let text = if is_right { text } else { text.replace(SERVER, WRONG_SERVER) };
        if self.bootstrap {
            self.replace(&self.tree.join("etc/bootstrap.conf"), &text);
        }
    }

    fn operator_pair(&mut self) -> [String; 2] {
        let index = usize::from(self.one_in(2));
        let key = &self.operator[index];
        let public_key = key.subject_public_key_info();
        let wanted = Wanted { subject: Subject::of_node("pi"), public_key };
        let now = epoch(self.now);
        let chain = self.cluster.issue(&wanted, now, now + seconds(LIFE.1));
        [chain, key.serialize_pem()]
    }

    /// The operator writes the kubeconfig with a new certificate.
    fn write_certificate(&mut self) {
        let pair = self.operator_pair();
        let user = match self.user {
            User::Inline | User::None => {
                let [chain, key] = pair.map(|pem| STANDARD.encode(pem));
                format!("client-certificate-data: {chain}, client-key-data: {key}")
            }
            User::Files => {
                let files = ["etc/client.crt", "etc/client.key"].map(|f| self.tree.join(f));
                for (file, pem) in files.iter().zip(&pair) {
                    self.replace(file, pem);
                }
                let [chain, key] = files.map(|file| file.display().to_string());
                format!("client-certificate: {chain}, client-key: {key}")
            }
        };
        let text = self.kubeconfig(&user);
        self.replace(&self.kubeconfig_path(), &text);
    }

    /// The operator replaces the stored pair, or half of the kubeconfig's pair.
    fn replace_certificate(&mut self) {
        let current = self.config.cert_dir.join("kubelet-client-current.pem");
        if self.user == User::Files && self.one_in(2) {
            let [chain, _] = self.operator_pair();
            return self.replace(&self.tree.join("etc/client.crt"), &chain);
        }
        if !current.is_symlink() {
            return;
        }
        let [chain, key] = self.operator_pair();
        let target = self.config.cert_dir.join("operator.pem");
        self.replace(&target, &format!("{chain}{key}"));
        let link = self.config.cert_dir.join("operator-link");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(target, &link).unwrap();
        fs::rename(link, current).unwrap();
    }

    /// Cuts a file off, as a write that is under way.
    fn cut(&mut self, name: &str) {
        let path = self.tree.join(name);
        if let Ok(text) = fs::read_to_string(&path) {
            let end = self.random.below(text.len() as u64 + 1);
            let whole = path.with_extension("whole");
            if !whole.exists() {
                fs::rename(&path, &whole).unwrap();
            }
            let text = text.get(..usize::try_from(end).unwrap()).unwrap();
            self.replace(&path, text);
        }
    }

    /// Completes every write that was cut off, unless the file was replaced since.
    fn complete(&mut self) {
        for name in ["ca.crt", "kubelet.conf", "bootstrap.conf"] {
            let path = self.tree.join("etc").join(name);
            let whole = path.with_extension("whole");
            if let Ok(text) = fs::read_to_string(&whole) {
                self.replace(&path, &text);
                fs::remove_file(whole).unwrap();
            }
        }
    }

    fn block_store(&mut self) {
        let (folder, away) = (self.config.cert_dir.clone(), self.tree.join("lib/away"));
        if away.exists() || folder.is_file() {
            return;
        }
        let _ = fs::rename(&folder, away);
        fs::write(folder, "").unwrap();
    }

    fn unblock_store(&mut self) {
        let (folder, away) = (self.config.cert_dir.clone(), self.tree.join("lib/away"));
        if folder.is_file() {
            fs::remove_file(&folder).unwrap();
            let _ = fs::rename(away, folder);
        }
    }

    fn board_wall(&self) -> Wall {
        let skew = seconds(self.skew.unsigned_abs());
        if self.skew < 0 { wall(self.now).before(skew) } else { wall(self.now).after(skew) }
    }

    fn kill(&mut self) {
        self.process = None;
        self.restart = self.now;
        self.steady = None;
    }

    /// Starts the process; after a failure the supervisor waits 5 s.
    fn start(&mut self) {
        let source = IdentitySource::new(&self.config, &self.kubeconfig_path(), None);
        let permille = thousandths(&mut self.random);
        match source.open(self.board_wall(), Jitter::new(permille.into())) {
            Ok(credentials) => {
                let (config, seed) = (self.config.clone(), self.random.below(u64::MAX));
                let built = Wall::from_epoch(seconds(BUILT));
                self.process = Some(Process::new(config, credentials, built, seed, self.now));
            }
            Err(why) => {
                self.tell(&format!("cannot start: {why}"));
                self.restart = self.now + seconds(5);
            }
        }
    }

    /// One turn of the loop in `agent`, not beyond `end`.
    fn turn(&mut self, end: Duration) {
        if self.process.is_none() {
            if self.restart > self.now {
                self.now = self.restart.min(end);
                return;
            }
            self.start();
        }
        self.count_turn();
        let board = self.board_wall();
        let Some(process) = &mut self.process else {
            return;
        };
        let is_connected = self.random.below(4) > 0;
        recorder::take();
        let turn = process.turn(self.now, board, &Facts::example(), is_connected);
        // Rule 1 of the lease law.
        assert!(recorder::take().len() <= 1, "two operations in a turn");
        let sent = match turn {
            Turn::Waits(pause) => {
                self.now = (self.now + pause).min(end);
                return;
            }
            Turn::Credentials(step, false) => return self.tell(&format!("credentials: {step:?}")),
            Turn::Credentials(_, true) => {
                if self.one_in(20) {
                    // An operation of a slow card; others take no time.
                    self.now += Duration::from_millis(self.random.below(5_000));
                }
                return;
            }
            Turn::Other => return,
            Turn::Sends(sent) => sent,
        };
        let outcome = self.cluster.call(process.client(&sent), &sent.request, self.now, board);
        let start = self.now;
        let permille = thousandths(&mut self.random);
        self.now += match (&outcome, self.cluster.behavior) {
            (Err(_), _) => sent.budget / 1000 * permille,
            (_, Behavior::Correct) => {
                Duration::from_millis(10) + Duration::from_micros(300) * permille
            }
            _ => sent.budget / 2000 * permille,
        };
        let what = match &outcome {
            Ok(response) => response.code.to_string(),
            Err(_) => "silence".to_owned(),
        };
        process.on_answer(&sent, outcome, self.now, board);
        let is_well =
            self.cluster.behavior == Behavior::Correct && ["200", "201"].contains(&what.as_str());
        let Sent { kind, request, .. } = sent;
        if !is_well && !is_certificate(kind) {
            self.steady = None;
        }
        if kind == RequestKind::Lease
            && is_well
            && request.method != Method::Get
            && let Some(last) = self.steady.replace(start)
        {
            let gap = start - last;
            assert!(gap <= LONGEST_GAP, "{}", self.shown(&format!("gap {gap:?}")));
        }
        if is_certificate(kind) || !is_well {
            self.tell(&format!("{kind:?} {:?}: {what}", request.method));
        }
    }

    fn count_turn(&mut self) {
        let now = self.now;
        self.turns.push_back(now);
        while self.turns.front().is_some_and(|at| now - *at > seconds(60)) {
            self.turns.pop_front();
        }
        let turns = self.turns.len();
        assert!(turns < TURNS, "{}", self.shown(&format!("{turns} turns in a minute")));
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.turn(end);
        }
    }

    /// One random change, then the loop for a while.
    fn step(&mut self) {
        let choice = self.random.below(22);
        match choice {
            0 | 1 => self.cluster.behavior = Behavior::Correct,
            2 => self.cluster.behavior = Behavior::Silent(false),
            3 => {
                let code = self.random.one_of(&[401, 429, 500, 503]);
                self.cluster.behavior = Behavior::Refuses(code, None);
            }
            4 => self.cluster.behavior = Behavior::Gateway,
            5 | 6 => {
                let size = self.random.one_of(&[30, 90, 600, 3600, 86_400, 400 * 86_400]);
                self.skew = if self.one_in(2) { size } else { -size };
            }
            7 => self.skew = -i64::try_from(START + self.now.as_secs() - 5).unwrap(),
            8 | 9 => self.skew = 0,
            10 => self.cluster.tokens.clear(),
            11 => {
                let is_right = self.random.below(3) > 0;
                self.write_bootstrap(is_right);
            }
            12 => self.cut("etc/ca.crt"),
            13 => self.cut("etc/kubelet.conf"),
            14 => self.cut("etc/bootstrap.conf"),
            15 => self.complete(),
            16 => self.replace_certificate(),
            17 => self.block_store(),
            18 => self.unblock_store(),
            19 => {
                let current = self.config.cert_dir.join("kubelet-client-current.pem");
                let _ = fs::remove_file(current);
            }
            20 => self.kill(),
            _ => {}
        }
        self.tell(&format!("step {choice}, server {:?}", self.cluster.behavior));
        let time = match self.random.below(40) {
            0 => 600,
            1..5 => 60,
            _ => self.random.below(12),
        };
        self.run(seconds(time));
        self.check_lines();
    }

    /// No log line has a key or a token in it.
    fn check_lines(&mut self) {
        for line in take_lines() {
            let has_secret = self.secrets.iter().any(|secret| line.contains(secret));
            let has_key = has_secret || line.contains("PRIVATE KEY");
            assert!(!has_key, "{}", self.shown(&line));
        }
    }

    /// Whether the credentials in use, or the files, are enough for a recovery.
    fn has_certificate(&self) -> bool {
        self.leaf().is_some_and(|leaf| leaf.not_after >= wall(self.now + seconds(200)))
    }

    /// The world as an operator leaves it who followed the log.
    fn heal(&mut self) {
        self.cluster.behavior = Behavior::Correct;
        self.skew = 0;
        self.write_ca();
        self.complete();
        self.unblock_store();
        self.write_bootstrap(true);
        // "kubectl delete csr" after a denial; the approver was repaired.
        self.cluster.csrs.retain(|_, csr| csr.fate == Fate::Signed);
        let was_running = self.process.is_some();
        if !self.bootstrap && !self.has_certificate() {
            self.write_certificate();
            if !self.rotate && self.user == User::Inline {
                // systemd/join.md: a new kubeconfig needs a restart.
                self.kill();
            }
        }
        // A bootstrap kubeconfig with a wrong server ends in the kubeconfig, which is read at
        // start.
        let text = fs::read_to_string(self.kubeconfig_path()).unwrap_or_default();
        if text.contains(WRONG_SERVER) {
            let path = self.kubeconfig_path();
            self.replace(&path, &text.replace(WRONG_SERVER, SERVER));
        }
        let is_lost = self.process.as_ref().is_some_and(|process| {
            let current = &process.credentials.current;
            let has_bootstrap = matches!(current.signing, SigningClient::MainBootstrap);
            !has_bootstrap && current.api.config.endpoint.host == WRONG_SERVER
        });
        if is_lost {
            self.kill();
        }
        self.tell(&format!("healed; running: {was_running}"));
    }

    /// Runs until `done`, not beyond `end`; the signer signs everything.
    fn run_until(&mut self, end: Duration, done: impl Fn(&Self) -> bool) {
        while !done(self) && self.now < end {
            self.turn(end);
            for csr in self.cluster.csrs.values_mut() {
                csr.fate = Fate::Signed;
            }
        }
    }

    fn recover(&mut self) {
        self.heal();
        let healed = self.now;
        let end = healed + RECOVERY;
        let is_recovered = |machine: &Self| {
            let start = healed.max(machine.now.saturating_sub(LONGEST_GAP));
            machine.cluster["pi"].is_ready_since(start)
        };
        self.run_until(end, is_recovered);
        assert!(is_recovered(self), "{}", self.shown("no recovery"));
        self.check_lines();
    }

    fn leaf(&self) -> Option<Leaf> {
        let certificate =
            self.process.as_ref()?.credentials.current.api.config.certificate.as_ref()?;
        Leaf::of_pem(&certificate.chain.bytes)
    }

    /// In a healthy world the certificate is replaced before or, without rotation, after its
    /// expiry.
    fn rotates(&mut self) {
        if !self.rotate && !self.bootstrap {
            return;
        }
        let leaf = self.leaf();
        let has_time = self.has_certificate();
        let end = self.now + seconds(LIFE.1) + RECOVERY;
        self.run_until(end, |machine| machine.leaf() != leaf);
        assert!(self.leaf() != leaf, "{}", self.shown("no rotation"));
        if self.rotate && has_time {
            assert!(self.steady.is_some(), "{}", self.shown("rotated after an outage"));
        }
    }
}

fn thousandths(random: &mut Random) -> u32 {
    u32::try_from(random.below(1001)).unwrap()
}

/// 200 steps, with a recovery after each 20.
fn live(seed: u64) {
    let mut machine = Machine::new(seed);
    for round in 0..10 {
        for _ in 0..20 {
            machine.step();
        }
        machine.recover();
        if round % 5 == 0 {
            machine.rotates();
        }
    }
}

/// `MACHINE_SEED=5 cargo test --lib machine` repeats the run of one seed.
fn live_with(rotate: bool) {
    live_all("MACHINE_SEED", 1..51, |seed| {
        if setup(seed).0 == rotate {
            live(seed);
        }
    });
}

#[test]
fn from_every_state_a_healthy_world_leads_to_a_ready_node() {
    live_with(false);
}

#[test]
fn with_rotation_every_state_leads_to_a_ready_node_and_a_renewed_certificate() {
    live_with(true);
}
