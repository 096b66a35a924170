//! The steps of `nodelet join`, in order: the parts that are the same for every cluster.

use std::ffi::OsString;
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use super::command::{JoinSettings, TokenSource, is_set_by_join};
use super::existing::{CompleteIdentity, JOINED, existing};
use super::files::{JoinChange, JoinedFiles, ROOT_DIR, StoredFlags, environment_text};
use super::kubeadm::{self, ProvedServer};
use super::run::{Board, JoinRun, Joined, ROTATE, SUDO, Stop, UNCHANGED, failed};
use super::start::start_and_wait;
use super::supervisor;
use super::token::{Bootstrap, Token};
use crate::agent::environment_file::{self, value_of, variables};
use crate::agent::setup::{Setup, with_config_files};
use crate::agent::unit::{FLAGS, JOIN_FLAGS, SERVE_SOCKET, copies};
use crate::client::api_config::{ApiConfig, Authorization};
use crate::config::command_line::{self, Command};
use crate::config::flags::Values;
use crate::credentials::kubeconfig::{KubeconfigUser, render};
use crate::kube::finding::Finding;
use crate::kube::names::node_name;
use crate::kube::text::Fault;
use crate::os::clock::Clock;
use crate::os::command::{self, CommandFailure, End};
use crate::os::guard::{self, writable};
use crate::os::read::{cause, read_stream};
use crate::os::write::{self, Lock, Op};
use crate::serve::ServeConfig;

/// Bytes of a file with a token.
const TOKEN_LIMIT: usize = 4096;
const OVERRIDE: &str = "hostname-override";
const NAME: &str = "--hostname-override=";
/// The name in the place of those of the boards of an image.
const IMAGE: &str = "image";
/// The kubeconfigs of the unit: the credential, or what an agent with a token writes.
const KUBECONFIG: &str = "/run/credentials/nodelet.service/kubeconfig";
const ISSUED: &str = "/var/lib/nodelet/kubeconfig";
const BOOTSTRAP: &str = "/run/credentials/nodelet.service/bootstrap-kubeconfig";

/// Runs the command.
pub(super) fn join(settings: &JoinSettings) -> End {
    let token = parsed(&settings.token)?;
    settings.check(&token).map_err(CommandFailure::Usage)?;
    let bearer = match settings.bearer.as_ref().map(parsed).transpose()? {
        None => None,
        Some(Token::Bootstrap(bearer)) => Some(bearer),
        Some(Token::Supervisor { .. }) => {
            return Err(CommandFailure::Usage(
                "--tls-bootstrap-token: not a token id.secret".into(),
            ));
        }
    };
    let board = board(settings)?;
    let clock = Clock::start();
    let mut print = command::print;
    let run = JoinRun::new(settings, board, &clock, &mut print);
    if !settings.ignored.is_empty() {
        log::info!("ignored: --{}", settings.ignored.join(", --"));
    }
    run.run(&token, bearer.as_ref())
}

/// The token of `source`.
pub(super) fn parsed(source: &TokenSource) -> Result<Token, CommandFailure> {
    match source {
        TokenSource::Text(text) => Token::parse(text.reveal()).map_err(CommandFailure::Usage),
        TokenSource::File(path) => {
            let bytes = read_stream(path, TOKEN_LIMIT).map_err(|e| cause(&e).to_string());
            let line = |why: String| {
                if path.to_str().is_some_and(Token::is_whole) {
                    CommandFailure::Usage("--token-file: this is a token; use --token".to_owned())
                } else {
                    CommandFailure::Other(format!("--token-file {}: {why}", path.display()))
                }
            };
            let bytes = Zeroizing::new(bytes.map_err(line)?);
            let text = str::from_utf8(&bytes).map_err(|_| line("not UTF-8 text".into()))?;
            Token::parse(text).map_err(line)
        }
    }
}

/// The machine, as the flags of the run that will follow describe it.
fn board(settings: &JoinSettings) -> Result<Board, CommandFailure> {
    // The host name of the machine that builds an image is not the name of a board.
    let is_image = settings.root.is_some() && settings.node_name.is_none();
    let name = settings.node_name.as_deref().or(is_image.then_some(IMAGE));
    let name = name.map(|name| format!("{NAME}{name}"));
    let args = settings.flags.iter().cloned().chain(name);
    // Somebody may enable the socket of `nodelet serve` later.
    let setup = setup(args.map(OsString::from).collect(), settings.root.is_none(), true)?;
    Ok(Board {
        address: setup.address().unwrap_or_default(),
        boot_id: setup.facts.boot_id.unwrap_or_default(),
        kubelet_version: setup.config.node.kubelet_version,
        name: if is_image { String::new() } else { setup.config.node.name },
    })
}

/// What a run with these flags begins with, or why it would not start. `serves`: `nodelet serve`
/// must start with them, too.
fn setup(args: Vec<OsString>, is_here: bool, serves: bool) -> Result<Setup, CommandFailure> {
    let parsed = command_line::parse(args.clone()).map_err(CommandFailure::Usage)?;
    let (Command::Run, mut flags) = parsed else {
        return Err(CommandFailure::Usage("not the flags of a run".into()));
    };
    let Values { config_file, config_dir, .. } = &mut flags.values;
    for path in [config_file, config_dir].into_iter().flatten() {
        // The unit runs in /.
        *path = Path::new("/").join(&path);
    }
    // The files of an image may not exist yet.
    let mut flags = if is_here { with_config_files(flags, args)? } else { flags };
    let root_dir = &mut flags.values.root_dir;
    // An empty one is refused below.
    if !root_dir.as_os_str().is_empty() {
        *root_dir = Path::new("/").join(&*root_dir);
    }
    if serves {
        ServeConfig::new(&flags.values).map_err(CommandFailure::Usage)?;
    }
    Setup::new(*flags, is_here)
}

/// The command line of a run with the flags `words` of a join, and then those in the environment
/// file of the administrator, `text`, which win.
fn command_line_of(words: Vec<String>, text: &str) -> Vec<OsString> {
    let set = variables(text);
    let is_set = set.iter().any(|(name, _)| name == JOIN_FLAGS);
    let words = if is_set { environment_file::words(value_of(&set, JOIN_FLAGS)) } else { words };
    let unit = [format!("--root-dir={ROOT_DIR}")].into_iter();
    let words = unit.chain(words).chain(environment_file::words(value_of(&set, FLAGS)));
    words.map(OsString::from).collect()
}

/// The values of that command line. `Err` if it cannot be parsed.
pub(super) fn administered(words: Vec<String>, text: &str) -> Result<Values, String> {
    command_line::parse(command_line_of(words, text)).map(|(_, flags)| flags.values)
}

impl JoinRun<'_> {
    /// Takes all steps. A failed one ends the run.
    pub(super) fn run(mut self, token: &Token, bearer: Option<&Bootstrap>) -> End {
        if let Err(failed) = self.steps(token, bearer) {
            self.add(failed);
        }
        self.finish()
    }

    fn steps(&mut self, token: &Token, bearer: Option<&Bootstrap>) -> Result<(), Finding> {
        self.step(self.root())?;
        let lock = self.lock()?;
        self.contradicted(token)?;
        let now = self.now().wall;
        let (finding, existing) =
            existing(&self.paths, self.settings, token, &self.board.name, now)?;
        self.add(finding);
        let config = match existing {
            Some(identity) => self.update(identity, token, bearer)?,
            None => self.new_identity(token, bearer)?,
        };
        drop(lock);
        start_and_wait(self, &config)
    }

    fn root(&self) -> Finding {
        if self.settings.dry_run {
            return Finding::note("root", "not needed for --dry-run", "");
        }
        let folders = [self.paths.credentials(), write::parent(&self.paths.flags())];
        let only_bootstrap = self.settings.bootstrap_only;
        let identity =
            if only_bootstrap { self.paths.bootstrap() } else { self.paths.kubeconfig() };
        let links = [identity, self.paths.flags()];
        let targets = links.iter().map(|link| guard::target(link).map(|path| write::parent(&path)));
        for folder in folders.iter().cloned().map(Ok).chain(targets) {
            let unwritable = |folder: PathBuf| {
                let at = format!("{} cannot be written", folder.display());
                writable(&folder).map_err(|why| why.at(at))
            };
            if let Err(why) = folder.and_then(unwritable) {
                let remedy = format!("{SUDO}, or with --root DIR");
                return Finding::failed("root", why, &remedy);
            }
        }
        let [credentials, flags] = folders.each_ref().map(|folder| folder.display());
        Finding::ok("root", format!("{credentials} and {flags} can be written"))
    }

    /// Waits until no other `nodelet join` or `nodelet reset` changes the files.
    fn lock(&mut self) -> Result<Option<Lock>, Finding> {
        if self.settings.dry_run {
            return Ok(None);
        }
        let folder = self.paths.credentials();
        // If another join has created the folder since, this fails, and the lock succeeds.
        let created = self.disk.carry_out(write::private_folder(&folder));
        self.until(|| match write::lock(&folder) {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => {
                let busy = failed("root", "another nodelet join or reset runs", "wait for its end");
                Err(Stop::Again(busy, Duration::from_secs(1)))
            }
            Err(why) => {
                let why = created.as_ref().err().unwrap_or(&why);
                Err(Stop::Failed(failed("root", why.clone(), SUDO)))
            }
        })
    }

    /// The administrator's flags win over those of join, so they must name the same Node and files,
    /// and a run must start with both. The folders of the agent are those that they name.
    pub(super) fn contradicted(&mut self, token: &Token) -> Result<(), Finding> {
        let text = environment_text(&self.paths.administrators_flags());
        let text = text.map_err(|why| Finding::failed(JOINED, why, SUDO))?;
        let source = self.paths.administrators_flags();
        let source = source.display();
        let (kubeconfig, bootstrap) =
            if self.settings.bootstrap_only { (ISSUED, BOOTSTRAP) } else { (KUBECONFIG, "") };
        let is_of_many = self.board.name.is_empty();
        let flags = [
            (OVERRIDE, if is_of_many { IMAGE } else { &self.board.name }),
            ("kubeconfig", kubeconfig),
            ("bootstrap-kubeconfig", bootstrap),
        ];
        let own = flags.iter().map(|(flag, value)| format!("--{flag}={value}"));
        let supervisor = matches!(token, Token::Supervisor { .. })
            .then(|| format!("--k3s-supervisor={}", self.settings.server));
        let own = own.chain([ROTATE.to_owned()]).chain(supervisor);
        let own = own.chain(self.settings.flags.iter().cloned()).collect();
        let set = variables(&text);
        let sets_flags = [JOIN_FLAGS, FLAGS].iter().any(|name| !value_of(&set, name).is_empty());
        let refused = |why: String| {
            if sets_flags {
                let remedy = "correct it there, or in the file that it names";
                failed(JOINED, format!("{source}: {why}"), remedy)
            } else {
                failed(JOINED, why, "correct the line")
            }
        };
        let args = command_line_of(own, &text);
        let (_, parsed) = command_line::parse(args.clone()).map_err(refused)?;
        let values = parsed.values;
        self.paths.follow(&values);
        let is_here = self.settings.root.is_none();
        let Values { config, config_file, config_dir, hostname_override: name, .. } = values;
        // A file of an image may not exist yet, and a credential does only while the unit runs.
        let is_unread =
            |path: &PathBuf| !is_here || Path::new("/").join(path).starts_with(copies());
        let has_unread = [config_file, config_dir].iter().flatten().any(is_unread);
        let path = |path: Option<PathBuf>| path.unwrap_or_default().display().to_string();
        // The agent changes the name to lower case, as join did with the name of the board.
        let is_own = |given: &str| node_name(given).is_ok_and(|given| given == self.board.name);
        let given = [name, path(config.kubeconfig), path(config.bootstrap_kubeconfig)];
        for ((flag, want), given) in flags.into_iter().zip(given) {
            if given == want || flag == OVERRIDE && (is_of_many || is_own(&given)) {
                continue;
            }
            let line = format!("{source}: --{flag}={given} would win over what join writes");
            let or = format!("remove it there, or join with --node-name={given}");
            let remedy = if flag == OVERRIDE { &or } else { "remove it there" };
            return Err(failed(JOINED, line, remedy));
        }
        if has_unread {
            return Ok(());
        }
        let serves = self.paths.is_enabled(SERVE_SOCKET);
        match setup(args, is_here, serves) {
            Ok(setup) => {
                self.board.kubelet_version = setup.config.node.kubelet_version;
                Ok(())
            }
            Err(CommandFailure::Usage(why) | CommandFailure::Other(why)) => Err(refused(why)),
        }
    }

    /// Writes what differs from the command line.
    pub(super) fn update(
        &mut self,
        identity: CompleteIdentity,
        token: &Token,
        bearer: Option<&Bootstrap>,
    ) -> Result<ApiConfig, Finding> {
        let CompleteIdentity { mut config, flags: stored, lacks_ca } = identity;
        let mut new = JoinedFiles { is_kept: true, ..JoinedFiles::default() };
        if let (true, Token::Bootstrap(token)) = (lacks_ca, token) {
            let ca = kubeadm::find(self, token)?.config.ca;
            if ca.as_ref().map(|ca| &ca.bytes) != config.ca.as_ref().map(|ca| &ca.bytes) {
                config.ca = ca;
                new.kubeconfig = Some(rendered(&config)?);
            }
        }
        if let (true, Token::Bootstrap(token)) = (self.settings.bootstrap_only, token) {
            new.bootstrap = self.other_token(token, bearer.unwrap_or(token))?;
        }
        let is_set = |word: &&String| is_set_by_join(word) && !word.starts_with(NAME);
        let set = stored.words.iter().filter(is_set).cloned();
        let words = self.flags(set.collect());
        if words == stored.words && new.kubeconfig.is_none() && new.bootstrap.is_none() {
            return Ok(config);
        }
        if words != stored.words {
            log::info!("the flags were: {}", stored.words.join(" "));
        }
        new.flags = StoredFlags { words, ..stored };
        self.write(new)?;
        Ok(config)
    }

    /// The bootstrap kubeconfig with the token of the command line, if another one is stored: the
    /// board needs a valid one if its certificate expires while it is off. It stays removed if
    /// somebody removed it.
    fn other_token(
        &mut self,
        token: &Bootstrap,
        bearer: &Bootstrap,
    ) -> Result<Option<Zeroizing<String>>, Finding> {
        let path = self.paths.bootstrap();
        if guard::found(&path).is_err_and(|error| error.kind() == NotFound) {
            let line = format!("not stored: {} was removed", path.display());
            self.add(Finding::note("token", line, "nodelet join --force stores it"));
            return Ok(None);
        }
        let stored = self.paths.load(&path).ok().and_then(|stored| stored.authorization);
        if stored == Some(bearer.authorization()) {
            return Ok(None);
        }
        let found = kubeadm::find(self, token)?;
        let joined = self.asked(found, bearer)?;
        rendered(&joined.config).map(Some)
    }

    /// What the server that was found gives for a token.
    fn asked(&mut self, found: ProvedServer, bearer: &Bootstrap) -> Result<Joined, Finding> {
        let ProvedServer { config, is_supervisor } = found;
        if is_supervisor {
            supervisor::get(self, (config, None), &bearer.authorization())
        } else {
            kubeadm::get(self, config, bearer)
        }
    }

    /// Gets and stores an identity.
    fn new_identity(
        &mut self,
        token: &Token,
        bearer: Option<&Bootstrap>,
    ) -> Result<ApiConfig, Finding> {
        let joined = match token {
            Token::Bootstrap(token) => {
                let found = kubeadm::find(self, token)?;
                self.asked(found, bearer.unwrap_or(token))?
            }
            Token::Supervisor { hash, authorization } => {
                let found = supervisor::find(self, hash.as_ref())?;
                supervisor::get(self, found, authorization)?
            }
        };
        let Joined { config, renewal } = joined;
        let new = self.written(&config, renewal)?;
        self.write(new)?;
        Ok(config)
    }

    pub(super) fn write(&mut self, new: JoinedFiles) -> Result<(), Finding> {
        let unchanged = |why: Fault| Finding::failed("files", why, UNCHANGED);
        let JoinChange { prepare, commit, paths } = self.paths.write(new).map_err(unchanged)?;
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        if self.settings.dry_run {
            self.add(Finding::note("files", format!("would write {}", names.join(", ")), ""));
            return Ok(());
        }
        if let Err(why) = self.disk.carry_out(prepare) {
            self.discard(&paths);
            return Err(unchanged(why));
        }
        let mut changed = Vec::new();
        for op in commit {
            let change = match &op {
                Op::Rename(_, path) => Some(format!("wrote {}", path.display())),
                Op::Remove(path) => Some(format!("removed {}", path.display())),
                _ => None,
            };
            if let Err(why) = self.disk.carry_out(vec![op]) {
                self.discard(&paths);
                if changed.is_empty() {
                    return Err(unchanged(why));
                }
                let remedy = format!("{} before; correct it and join again", changed.join(", "));
                return Err(Finding::failed("files", why, &remedy));
            }
            changed.extend(change);
        }
        self.add(Finding::ok("files", format!("wrote {}", names.join(", "))));
        self.wrote.extend(names);
        Ok(())
    }

    /// Removes the new files that are not in place. One of them may hold the new key.
    fn discard(&mut self, paths: &[PathBuf]) {
        for path in paths {
            let _ = self.disk.carry_out(vec![Op::Remove(write::beside(path))]);
        }
    }

    fn written(&self, config: &ApiConfig, renewal: Vec<String>) -> Result<JoinedFiles, Finding> {
        let (mut new, mut words) = (JoinedFiles::default(), Vec::new());
        let kubeconfig = Some(rendered(config)?);
        if self.settings.bootstrap_only {
            new.bootstrap = kubeconfig;
            words.push(format!("--kubeconfig={ISSUED}"));
            words.push(format!("--bootstrap-kubeconfig={BOOTSTRAP}"));
        } else {
            new.kubeconfig = kubeconfig;
        }
        words.extend(renewal);
        new.flags = StoredFlags {
            server: self.settings.server.clone(),
            api_server: format!("{}{}", config.endpoint, config.endpoint.prefix),
            words: self.flags(words),
        };
        Ok(new)
    }

    /// The flags of the run: `words`, which join sets, and those of the command line.
    fn flags(&self, mut words: Vec<String>) -> Vec<String> {
        if !self.board.name.is_empty() {
            words.push(format!("{NAME}{}", self.board.name));
        }
        words.extend(self.settings.flags.iter().cloned());
        words
    }
}

/// The kubeconfig, with the token or the certificate of `config`. In a dry run it has neither.
fn rendered(config: &ApiConfig) -> Result<Zeroizing<String>, Finding> {
    let user = match (&config.authorization, &config.certificate) {
        (Some(Authorization::Bearer { token, .. }), _) => KubeconfigUser::Token(token),
        (_, Some(pair)) => KubeconfigUser::Inline(pair),
        _ => return Ok(Zeroizing::default()),
    };
    let text = render(config, &user).map(Zeroizing::new);
    text.map_err(|why| failed("files", why, ""))
}
