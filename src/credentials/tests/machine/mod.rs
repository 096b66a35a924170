//! A state machine of one board and its cluster in virtual time: random responses, clocks, files,
//! kills and restarts. From every state, a healthy world leads to a Ready Node within two minutes
//! without a restart.
//!
//! Kubelet, identity and files are real. The server is a model: it authenticates the credentials
//! that the identity would send, by the true time.
#![allow(clippy::disallowed_methods)]

mod decade;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};

use crate::agent::others;
use crate::client::api_config::{ApiConfig, Authorization};
use crate::config::Config;
use crate::config::flags::Flags;
use crate::credentials::pki::tests::{Pem, Signer};
use crate::credentials::rotation::Step;
use crate::credentials::tests::model::{
    START, approved, epoch, is_ready, live_all, mark, posted, wall, wanted,
};
use crate::credentials::{Credentials, IdentitySource, SigningClient};
use crate::files::recorder;
use crate::files::tree::Tree;
use crate::kube::delay::Jitter;
use crate::kube::instant::{Mono, Now};
use crate::kube::message::{Answer, Method, Request, Response, answered, not_found};
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::node::facts::Facts;
use crate::node::kubelet::Kubelet;
use crate::node::kubelet::tests::Server;
use crate::node::kubelet::tests::storm::{collect_lines, take_lines};
use crate::node::schedule::tests::Random;
use crate::node::schedule::{Action, RequestKind};
use crate::node::wall_clock::WallClock;

const NAME: &str = "system:node:pi";
const RESOURCE: &str = "certificatesigningrequests";

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

/// What the server does with requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Well,
    Silent,
    /// It refuses with this code.
    Refuses(u16),
    /// A gateway responds with its own page.
    Gateway,
}

/// How the kubeconfig has the first certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum User {
    Inline,
    Files,
    /// There is no kubeconfig: the bootstrap writes it.
    None,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    rotate: bool,
    bootstrap: bool,
    user: User,
    ca_file: bool,
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

/// A CertificateSigningRequest on the server.
struct Csr {
    object: Value,
    /// When the signer decides.
    at: Duration,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Signed,
    Denied,
    Deleted,
}

/// The API server with its signer.
struct Cluster {
    signer: Signer,
    /// Shortest and longest life of a certificate in seconds.
    life: (u64, u64),
    /// Certificates that were issued before are of a CA that the server has dropped.
    dropped: Option<Duration>,
    /// The controllers run since then, and have waited for no Lease before.
    controllers_since: Duration,
    server: Server,
    mode: Mode,
    tokens: Vec<String>,
    csrs: BTreeMap<String, Csr>,
    serial: u64,
    /// When the Node was created.
    registered: Option<Duration>,
}

/// A running process.
struct Process {
    kubelet: Kubelet,
    credentials: Credentials,
    started: Duration,
}

struct Machine {
    seed: u64,
    setup: Setup,
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
    /// Start of the last renewal that the server accepted.
    renewed: Option<Duration>,
    /// The same, while the server was well and no process ended since.
    steady: Option<Duration>,
    /// Times of the last turns.
    turns: VecDeque<Duration>,
    operator: [KeyPair; 2],
    /// Last steps, for messages.
    story: VecDeque<String>,
    secrets: Vec<String>,
    stamp: u64,
}

impl Cluster {
    fn is_trusted(&self, config: &ApiConfig) -> bool {
        let ca = config.ca.as_ref().and_then(|ca| str::from_utf8(&ca.bytes).ok());
        let is_known = ca.is_some_and(|bundle| bundle.contains(self.signer.ca.trim()));
        config.endpoint.host == SERVER && is_known
    }

    /// The user of a request: the node, or with `false` a bootstrap token.
    fn user(&self, config: &ApiConfig, now: Wall) -> Option<bool> {
        let leaf = config.certificate.as_ref();
        let leaf = leaf.and_then(|certificate| Leaf::of_pem(&certificate.chain.bytes));
        let is_valid = |leaf: &Leaf| {
            now <= leaf.not_after && self.dropped.is_none_or(|at| leaf.not_before >= wall(at))
        };
        if leaf.is_some_and(|leaf| is_valid(&leaf) && leaf.subject.common_name == NAME) {
            return Some(true);
        }
        match &config.authorization {
            Some(Authorization::Bearer { token, .. }) => {
                let is_known = self.tokens.iter().any(|known| known == token.reveal());
                is_known.then_some(false)
            }
            _ => None,
        }
    }

    fn chain(&self, key: &[u8], now: Duration, backdated: u64, life: u64) -> String {
        let now = epoch(now);
        self.signer.chain(NAME, key, now - seconds(backdated), now + seconds(life))
    }

    fn answer(
        &mut self,
        request: &Request,
        config: &ApiConfig,
        now: Duration,
        random: &mut Random,
    ) -> Answer {
        if !self.is_trusted(config) {
            return Err("not our server".into());
        }
        let status = |code: u16, reason: &str| answered(code, json!({"reason": reason}));
        match self.mode {
            Mode::Well => {}
            Mode::Silent => return Err("tested".into()),
            Mode::Refuses(code) => return status(code, "Tested"),
            Mode::Gateway => return Ok(Response::test(404, "<html>")),
        }
        match self.user(config, wall(now)) {
            None => status(401, "Unauthorized"),
            Some(_) if request.path.contains(RESOURCE) => self.answer_csr(request, now, random),
            Some(true) => {
                let outcome = self.server.carry_out(request);
                if self.server.node.is_some() {
                    self.registered.get_or_insert(now);
                }
                outcome
            }
            Some(false) => status(403, "Forbidden"),
        }
    }

    fn answer_csr(&mut self, request: &Request, now: Duration, random: &mut Random) -> Answer {
        if request.method == Method::Post {
            self.serial += 1;
            let (name, object) = posted(request, self.serial);
            if self.csrs.contains_key(&name) {
                return answered(409, json!({"reason": "AlreadyExists"}));
            }
            let fate = match random.below(8) {
                0 => Fate::Denied,
                1 => Fate::Deleted,
                _ => Fate::Signed,
            };
            let at = now + Duration::from_millis(random.below(20_000));
            let csr = Csr { object: object.clone(), at, fate };
            self.csrs.insert(name, csr);
            return answered(201, object);
        }
        let name = request.path.rsplit('/').next().unwrap();
        let Some(csr) = self.csrs.get(name) else {
            return not_found(RESOURCE, name);
        };
        let mut object = csr.object.clone();
        if csr.at > now || object.get("status").is_some() {
            return answered(200, object);
        }
        match csr.fate {
            Fate::Deleted => {
                self.csrs.remove(name);
                return not_found(RESOURCE, name);
            }
            Fate::Denied => {
                let denied = json!({"type": "Denied", "reason": "Why", "message": "because"});
                object["status"] = json!({"conditions": [denied]});
            }
            Fate::Signed => {
                let at = csr.at;
                let key = wanted(&object).public_key;
                let life = self.life.0 + random.below(self.life.1 - self.life.0);
                let chain = self.chain(&key, at, random.below(2) * 60, life);
                object["status"] = approved(&chain);
            }
        }
        self.csrs.get_mut(name).unwrap().object = object.clone();
        answered(200, object)
    }

    /// As node-lifecycle-controller: Ready is Unknown after 50 s without a renewal.
    fn watch_lease(&mut self, renewed: Option<Duration>, now: Duration) {
        let last = renewed.or(self.registered).max(Some(self.controllers_since));
        if self.registered.is_none() || last.is_none_or(|at| now <= at + seconds(50)) {
            return;
        }
        mark(&mut self.server);
    }

    fn is_ready(&self) -> bool {
        is_ready(&self.server)
    }
}

impl Machine {
    fn new(seed: u64) -> Self {
        collect_lines();
        recorder::start();
        let (rotate, bootstrap, user) = setup(seed);
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let tree = Tree::empty("machine");
        let mut config = Config::new(Flags::default(), || Ok("pi".to_owned())).unwrap();
        config.rotate_certificates = rotate;
        config.cert_dir = tree.join("lib/pki");
        config.bootstrap_kubeconfig = bootstrap.then(|| tree.join("etc/bootstrap.conf"));
        let setup = Setup { rotate, bootstrap, user, ca_file: random.below(2) == 0 };
        let operator = [(); 2].map(|()| KeyPair::generate().unwrap());
        let mut machine = Self {
            seed,
            setup,
            random,
            config,
            cluster: Cluster {
                signer: Signer::new(),
                life: LIFE,
                dropped: None,
                controllers_since: Duration::ZERO,
                server: Server::default(),
                mode: Mode::Well,
                tokens: Vec::new(),
                csrs: BTreeMap::new(),
                serial: 0,
                registered: None,
            },
            process: None,
            restart: Duration::ZERO,
            now: Duration::ZERO,
            skew: 0,
            renewed: None,
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
            "seed {}, {:?}, at {:?}: {what}; last steps:\n{}",
            self.seed,
            self.setup,
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
        let (path, ca) = (self.tree.join("etc/ca.crt"), self.cluster.signer.ca.clone());
        self.replace(&path, &ca);
    }

    fn kubeconfig(&self, user: &str) -> String {
        let text = self.cluster.signer.kubeconfig(user);
        if self.setup.ca_file {
            let data = format!("certificate-authority-data: {}", Pem(&self.cluster.signer.ca));
            let file = format!("certificate-authority: {}", self.tree.join("etc/ca.crt").display());
            text.replace(&data, &file)
        } else {
            text
        }
    }

    /// A new bootstrap token in the bootstrap kubeconfig; with `false` its server is wrong.
    fn write_bootstrap(&mut self, is_right: bool) {
        self.stamp += 1;
        let token = format!("abcdef.{:016}", self.stamp * 7_919_317);
        self.cluster.tokens.push(token.clone());
        let text = self.kubeconfig(&format!("token: {token}"));
        self.secrets.push(token);
        let text = if is_right { text } else { text.replace(SERVER, WRONG_SERVER) };
        if self.setup.bootstrap {
            self.replace(&self.tree.join("etc/bootstrap.conf"), &text);
        }
    }

    fn operator_pair(&mut self) -> [String; 2] {
        let index = usize::from(self.one_in(2));
        let key = &self.operator[index];
        let chain = self.cluster.chain(&key.subject_public_key_info(), self.now, 0, LIFE.1);
        [chain, key.serialize_pem()]
    }

    /// The operator writes the kubeconfig with a new certificate.
    fn write_certificate(&mut self) {
        let pair = self.operator_pair();
        let user = match self.setup.user {
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
        if self.setup.user == User::Files && self.one_in(2) {
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
                let clock = WallClock::new(Wall::from_epoch(seconds(BUILT)), Duration::ZERO);
                let seed = self.random.below(u64::MAX);
                let config = self.config.clone();
                self.process = Some(Process {
                    kubelet: Kubelet::new(config, clock, seed, Mono::START),
                    credentials,
                    started: self.now,
                });
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
        let started = process.started;
        let clock = |now: Duration| Now { mono: Mono::START.after(now - started), wall: board };
        let start = clock(self.now);
        let Process { kubelet, credentials, .. } = process;
        if credentials.refresh(kubelet.moment(start)) {
            kubelet.on_new_credentials();
        }
        let connected = self.random.below(4) > 0;
        let others = others(&mut credentials.rotation, kubelet.moment(start));
        let (kind, budget, request) = match kubelet.next(start, others, || connected) {
            Action::Wait(until) => {
                let pause = until.since(start.mono);
                self.now = (self.now + pause).min(end);
                return;
            }
            turn @ (Action::Credentials(_) | Action::Change) => {
                let was_change = others.has_change;
                recorder::take();
                let step = credentials.step(kubelet.moment(start));
                // Rule 1 of the lease law.
                assert!(recorder::take().len() <= 1, "two operations in a turn");
                match (step, turn) {
                    (Step::Send(request), Action::Credentials(budget)) => {
                        (RequestKind::Certificate, budget, request)
                    }
                    (Step::Send(_), _) => unreachable!("a change is no request"),
                    (step, _) => {
                        if let Step::InUse(_) = step {
                            kubelet.on_new_credentials();
                        }
                        if !was_change {
                            self.tell(&format!("credentials: {step:?}"));
                        } else if self.one_in(20) {
                            // An operation of a slow card; others take no time.
                            self.now += Duration::from_millis(self.random.below(5_000));
                        }
                        return;
                    }
                }
            }
            Action::ReadFacts => {
                kubelet.on_facts(start.mono);
                return;
            }
            Action::Connect(_)
            | Action::Disconnect(_)
            | Action::TryOtherAddress(_)
            | Action::Registered
            | Action::PodCidrs(_) => return,
            Action::Send(kind, budget) => match kubelet.request(kind, start, &Facts::example()) {
                Some(request) => (kind, budget, request),
                None => return,
            },
            Action::End => unreachable!("no shutdown was announced"),
        };
        let current = &credentials.current;
        let config = match &current.signing {
            SigningClient::Bootstrap(own) if kind == RequestKind::Certificate => &own.config,
            _ => &current.api.config,
        };
        self.cluster.watch_lease(self.renewed, self.now);
        let mut outcome = self.cluster.answer(&request, config, self.now, &mut self.random);
        let sent = self.now;
        self.now += match (&outcome, self.cluster.mode) {
            (Err(_), _) => budget / 1000 * thousandths(&mut self.random),
            (_, Mode::Well) => Duration::from_millis(10 + self.random.below(300)),
            _ => budget / 2000 * thousandths(&mut self.random),
        };
        let what = match &mut outcome {
            Ok(response) => {
                response.date = Some(wall(self.now));
                response.code.to_string()
            }
            Err(_) => "silence".to_owned(),
        };
        let is_well = self.cluster.mode == Mode::Well && ["200", "201"].contains(&what.as_str());
        if !is_well && kind != RequestKind::Certificate {
            self.steady = None;
        }
        if kind == RequestKind::Lease && is_well && request.method != Method::Get {
            self.renewed = Some(sent);
            if let Some(last) = self.steady.replace(sent) {
                let gap = sent - last;
                assert!(gap <= LONGEST_GAP, "{}", self.shown(&format!("gap {gap:?}")));
            }
        }
        let Process { kubelet, credentials, .. } = self.process.as_mut().unwrap();
        credentials.current.on_answer(&outcome);
        let end = clock(self.now);
        if kind == RequestKind::Certificate {
            kubelet.on_answer(kind, &outcome, end.mono);
            let _ = credentials.on_response(outcome, kubelet.moment(end));
        } else {
            kubelet.on_response(kind, outcome, start.mono, end);
        }
        if kind == RequestKind::Certificate || !is_well {
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
            0 | 1 => self.cluster.mode = Mode::Well,
            2 => self.cluster.mode = Mode::Silent,
            3 => {
                let code = self.random.one_of(&[401, 429, 500, 503]);
                self.cluster.mode = Mode::Refuses(code);
            }
            4 => self.cluster.mode = Mode::Gateway,
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
        self.tell(&format!("step {choice}, server {:?}", self.cluster.mode));
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
        let Some(process) = &self.process else {
            return false;
        };
        let certificate = process.credentials.current.api.config.certificate.as_ref();
        let leaf = certificate.and_then(|certificate| Leaf::of_pem(&certificate.chain.bytes));
        leaf.is_some_and(|leaf| leaf.not_after >= wall(self.now + seconds(200)))
    }

    /// The world as an operator leaves it who followed the log.
    fn heal(&mut self) {
        self.cluster.mode = Mode::Well;
        self.skew = 0;
        self.write_ca();
        self.complete();
        self.unblock_store();
        self.write_bootstrap(true);
        // "kubectl delete csr" after a denial; the approver was repaired.
        self.cluster.csrs.retain(|_, csr| csr.fate == Fate::Signed);
        let setup = self.setup;
        let was_running = self.process.is_some();
        if !setup.bootstrap && !self.has_certificate() {
            self.write_certificate();
            if !setup.rotate && setup.user == User::Inline {
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
        let process = self.process.as_ref();
        let used = process.map(|process| &process.credentials.current);
        if used.is_some_and(|current| {
            let has_bootstrap = matches!(current.signing, SigningClient::MainBootstrap);
            !has_bootstrap && current.api.config.endpoint.host == WRONG_SERVER
        }) {
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
            let renewed = machine.renewed.filter(|at| *at >= healed);
            machine.cluster.is_ready() && renewed.is_some_and(|at| machine.now - at < LONGEST_GAP)
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
        if !self.setup.rotate && !self.setup.bootstrap {
            return;
        }
        let leaf = self.leaf();
        let has_time = self.has_certificate();
        let end = self.now + seconds(LIFE.1) + RECOVERY;
        self.run_until(end, |machine| machine.leaf() != leaf);
        assert!(self.leaf() != leaf, "{}", self.shown("no rotation"));
        if self.setup.rotate && has_time {
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
