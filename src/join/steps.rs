//! The steps of `nodelet join`, in order: the parts that are the same for every cluster.

use std::ffi::OsString;
use std::io::Read as _;

use zeroize::Zeroizing;

use super::existing::{self, Existing};
use super::files::Written;
use super::walk::{Board, Failed, Joined, Renewal, Walk};
use super::{End, certificate, kubeadm, ready, supervisor};
use crate::check::{Finding, probe};
use crate::config::Config;
use crate::config::command_line::{self, Command};
use crate::core::eviction::Pressures;
use crate::core::join::command::{Settings, TokenSource};
use crate::core::join::token::{Bootstrap, Token};
use crate::core::status;
use crate::files::read::read;
use crate::files::write;
use crate::host::{Host, HostRoot};
use crate::identity::pki::kubeconfig_text::{self, User};
use crate::kube::object;
use crate::process::clock::Clock;
use crate::wire::api_config::ApiConfig;
use crate::wire::authorization::Authorization;

/// Bytes of a token on stdin.
const STDIN_LIMIT: usize = 4096;
const ROTATE: &str = "--rotate-certificates";
/// The remedy of an agent that does not run.
const ENABLE: &str = "systemctl enable --now --no-block nodelet";

/// Runs the command.
pub(super) fn join(
    settings: &Settings,
    user_agent: &str,
    print: &mut dyn FnMut(&str) -> Result<(), String>,
) -> End {
    let usage = |line| (true, line);
    let token = parsed(&settings.token)?;
    settings.check(&token).map_err(usage)?;
    let bearer = match settings.bearer.as_ref().map(parsed).transpose()? {
        None => None,
        Some(Token::Bootstrap(bearer)) => Some(bearer),
        Some(Token::Supervisor { .. }) => {
            return Err(usage("--tls-bootstrap-token: not a token id.secret".into()));
        }
    };
    let board = board(settings).map_err(usage)?;
    let mut walk = Walk::new(settings, board, user_agent, print);
    if !settings.ignored.is_empty() {
        log::info!(
            "accepted without effect: --{}",
            settings.ignored.join(", --")
        );
    }
    // A failed step ends the walk.
    if let Err(failed) = walk.run(&token, bearer.as_ref()) {
        walk.add(*failed);
    }
    walk.finish()
}

/// The token of `source`.
pub(super) fn parsed(source: &TokenSource) -> Result<Token, (bool, String)> {
    match source {
        TokenSource::Text(text) => Token::parse(text).map_err(|line| (true, line)),
        TokenSource::File(path) => {
            let bytes = match path.as_os_str() == "-" {
                true => stdin(),
                false => read(path),
            };
            let line = |why: String| match path.to_str().is_some_and(Token::is_whole) {
                true => (
                    true,
                    "--token-file: this is a token; use --token".to_owned(),
                ),
                false => (false, format!("--token-file {}: {why}", path.display())),
            };
            let bytes = Zeroizing::new(bytes.map_err(line)?);
            let text = str::from_utf8(&bytes).map_err(|_| line("not UTF-8 text".into()))?;
            Token::parse(text).map_err(line)
        }
    }
}

fn stdin() -> Result<Vec<u8>, String> {
    let mut stdin = std::io::stdin().lock();
    let (mut bytes, mut length) = (vec![0; STDIN_LIMIT], 0);
    while let Some(room @ [_, ..]) = bytes.get_mut(length..) {
        match stdin.read(room).map_err(|e| e.to_string())? {
            0 => break,
            more => length += more,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// The machine, as the flags of the run that will follow describe it.
fn board(settings: &Settings) -> Result<Board, String> {
    let name = settings.node_name.iter();
    let name = name.map(|name| format!("--hostname-override={name}"));
    let args = settings.flags.iter().cloned().chain(name);
    let Command::Run(flags) = command_line::parse(args.map(OsString::from))? else {
        return Err("not the flags of a run".into());
    };
    let host = Host::new(HostRoot::new(&flags.host_root), &flags.root_dir);
    let hostname = || host.hostname().map_err(|unread| unread.to_string());
    let config = Config::new(*flags, hostname)?;
    let facts = host.facts(&config.node.name);
    let now = Clock::start().now().wall;
    let node = status::initial(&config, &facts, Pressures::default(), now).node;
    let addresses = object::list(&node, &["status", "addresses"]).iter();
    let mut addresses = addresses.filter(|a| object::text(a, &["type"]) == "InternalIP");
    let address = addresses
        .next()
        .map_or("", |a| object::text(a, &["address"]));
    // The host name of the builder of an image is no board's.
    let is_image = settings.root.is_some() && settings.node_name.is_none();
    Ok(Board {
        address: address.to_owned(),
        boot_id: facts.boot_id.unwrap_or_default(),
        name: match is_image {
            true => String::new(),
            false => config.node.name,
        },
    })
}

impl Walk<'_> {
    fn run(&mut self, token: &Token, bearer: Option<&Bootstrap>) -> Result<(), Failed> {
        self.add(self.root()?);
        let now = self.now().wall;
        let found = existing::find(&self.places, self.settings, token, &self.board.name, now)?;
        let (finding, same, is_replaced) = match found {
            Existing::None(finding) => (finding, None, false),
            Existing::Replaced(finding) => (finding, None, true),
            Existing::Same(finding, config) => (finding, Some(*config), false),
        };
        self.add(finding);
        let config = match same {
            Some(config) => config,
            None => self.new_identity(token, bearer)?,
        };
        self.start_and_wait(&config, is_replaced)
    }

    fn root(&self) -> Result<Finding, Failed> {
        let folder = self.places.credentials();
        if self.settings.dry_run {
            return Ok(Finding::note("root", "not needed for --dry-run", ""));
        }
        match probe::writable(&folder) {
            Ok(()) => Ok(Finding::ok(
                "root",
                format!("{} can be written", folder.display()),
            )),
            Err(why) => {
                let line = format!("{} cannot be written: {why}", folder.display());
                Err(Finding::failed("root", &line, "run it with sudo, or with --root DIR").into())
            }
        }
    }

    /// Gets and stores an identity.
    fn new_identity(
        &mut self,
        token: &Token,
        bearer: Option<&Bootstrap>,
    ) -> Result<ApiConfig, Failed> {
        let joined = match token {
            Token::Bootstrap(token) => {
                let config = kubeadm::find(self, token)?;
                certificate::get(self, config, bearer.unwrap_or(token))?
            }
            Token::Supervisor { hash, credentials } => {
                supervisor::get(self, hash.as_ref(), credentials)?
            }
        };
        self.write(&joined)?;
        Ok(joined.config)
    }

    fn write(&mut self, joined: &Joined) -> Result<(), Failed> {
        let failed = |why: String| {
            let remedy = "nothing else was changed; correct it and join again";
            Failed::from(Finding::failed("files", &why, remedy))
        };
        let new = self.written(joined).map_err(failed)?;
        let (ops, paths) = self.places.write(new).map_err(failed)?;
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        if self.settings.dry_run {
            self.add(Finding::note(
                "files",
                format!("would write {}", paths.join(", ")),
                "",
            ));
            return Ok(());
        }
        self.disk.carry_out(ops).map_err(failed)?;
        self.add(Finding::ok("files", format!("wrote {}", paths.join(", "))));
        self.wrote.extend(paths);
        Ok(())
    }

    fn written(&self, joined: &Joined) -> Result<Written, String> {
        let config = &joined.config;
        let mut new = Written::default();
        let text = |user: &User<'_>| kubeconfig_text::render(config, user).map(Zeroizing::new);
        match (&config.certificate, &config.authorization) {
            (Some(certificate), _) => {
                new.kubeconfig = Some(text(&User::Inline(certificate))?);
                match &joined.renewal {
                    Renewal::None => {}
                    Renewal::Cluster => new.flags.push(ROTATE.to_owned()),
                    Renewal::Supervisor(flags) => {
                        new.flags.push(ROTATE.to_owned());
                        new.flags.extend(flags.iter().cloned());
                    }
                }
            }
            (None, Some(Authorization::Bearer { token, .. })) => {
                new.bootstrap = Some(text(&User::Token(token))?);
                let flags = [
                    "--kubeconfig=/var/lib/nodelet/kubeconfig",
                    "--bootstrap-kubeconfig=/run/credentials/nodelet.service/bootstrap-kubeconfig",
                    ROTATE,
                ];
                new.flags.extend(flags.map(str::to_owned));
            }
            // A dry run has no certificate.
            _ => new.kubeconfig = Some(Zeroizing::default()),
        }
        if !self.board.name.is_empty() {
            new.flags
                .push(format!("--hostname-override={}", self.board.name));
        }
        new.flags.extend(self.settings.flags.iter().cloned());
        Ok(new)
    }

    /// `is_replaced`: a running agent has a copy of the former identity. One without an identity
    /// ends, and systemd starts it again.
    fn start_and_wait(&mut self, config: &ApiConfig, is_replaced: bool) -> Result<(), Failed> {
        let mut wait = self.settings.wait;
        if self.settings.dry_run || self.settings.root.is_some() {
            let why = match self.settings.dry_run {
                true => "--dry-run",
                false => "--root: the board starts it",
            };
            self.add(Finding::note("start", why, ""));
        } else if self.places.is_running() && is_replaced {
            let line = "nodelet.service runs, with its copy of the former identity";
            self.add(Finding::note("start", line, "systemctl restart nodelet"));
            wait = false;
        } else if self.places.is_running() {
            self.add(Finding::ok("start", "nodelet.service runs"));
        } else if self.places.has_systemd() {
            let trigger = self.places.trigger();
            let text = format!("{}\n", self.server);
            match write::publish(&trigger, text) {
                Ok(()) => self.add(Finding::ok("start", "by nodelet.path")),
                Err(why) => self.add(Finding::note("start", why, ENABLE)),
            }
        } else {
            let flags =
                "--kubeconfig=/etc/credstore/nodelet.kubeconfig --root-dir=/var/lib/nodelet";
            let line = format!(
                "nodelet {flags}, with the flags in {}",
                self.places.flags().display()
            );
            self.add(Finding::note("start", "systemd does not run", &line));
        }
        if !wait {
            self.add(Finding::note(
                "ready",
                "not waited for",
                &format!("kubectl get node {}", self.board.name),
            ));
            return Ok(());
        }
        let mut api = self.api(config, "ready", "")?;
        let finding = ready::wait(self, &mut api, ENABLE);
        self.add(finding);
        Ok(())
    }
}
