//! The units as systemd sees them: which of them a boot starts, the flags of the next start, and
//! what the process that runs was started with. Files tell it: no program is run.

use std::ffi::OsString;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::environment_file::{value_of, variables, words};
use crate::config::command_line;
use crate::kube::facts::{Read, Unread, UnreadKind};
use crate::kube::finding::Finding;
use crate::kube::text::Fault;
use crate::os::clock;
use crate::os::command::AGENT_CREDENTIALS;
use crate::os::guard;
use crate::os::read::{LARGE, SMALL, cause};
use crate::os::root::HostRoot;

/// The agent.
pub(crate) const SERVICE: &str = "nodelet.service";
/// What opens the kubelet's port.
pub(crate) const SERVE_SOCKET: &str = "nodelet-serve.socket";

/// Folders of units that a boot reads.
const UNITS: [&str; 3] = ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

/// The files that a start copies to [`AGENT_CREDENTIALS`].
const FILES: &str = "etc/credstore/nodelet.";
const CREDENTIALS: [&str; 6] =
    ["kubeconfig", "bootstrap-kubeconfig", "ca.crt", "client.crt", "client.key", "token"];
/// Ticks of the times in /proc in a second, on all architectures of Linux (USER_HZ).
const TICKS: i64 = 100;
/// The kernel's overflow uid, of an owner that an id-mapped mount does not map.
const NOBODY: u32 = 65534;
/// The other folders in which systemd looks for a credential (credential_search_path in
/// exec-credential.c).
const CREDSTORES: [&str; 7] = [
    "etc/credstore.encrypted",
    "run/credstore",
    "run/credstore.encrypted",
    "usr/lib/credstore",
    "usr/lib/credstore.encrypted",
    "run/credentials/@system",
    "run/credentials/@encrypted",
];
/// The flags that name files with a key or a token.
const FILE_FLAGS: [&str; 4] =
    ["--kubeconfig", "--bootstrap-kubeconfig", "--cert-dir", "--root-dir"];
/// A start needs one of these.
pub(crate) const KUBECONFIGS: [&str; 2] = ["kubeconfig", "bootstrap-kubeconfig"];
/// Of the others, those that prove the board.
pub(crate) const KEYS: [&str; 3] = ["client.crt", "client.key", "token"];
/// It counts only for an agent with a supervisor.
const PASSWORD: &str = "k3s-password";

/// The commands of nodelet. The agent runs without one.
const COMMANDS: [&str; 7] = ["check", "inspect", "join", "logs", "reset", "runtime", "serve"];

/// The environment files of the agent, in their order. Only join writes the first one.
const ENVIRONMENT: [&str; 2] = ["etc/default/nodelet-join", "etc/default/nodelet"];
/// The variables with flags, in the order of the command line.
pub(crate) const JOIN_FLAGS: &str = "NODELET_JOIN_FLAGS";
pub(crate) const FLAGS: &str = "NODELET_FLAGS";

/// Whether a target wants the unit, and nobody has masked it. The link leads to a file of the unit.
pub(crate) fn is_enabled(root: &HostRoot, unit: &str) -> bool {
    !is_masked(root, unit)
        && UNITS.iter().any(|folder| {
            let names = root.list(folder).unwrap_or_default();
            let mut wants =
                names.iter().filter(|n| n.ends_with(".wants") || n.ends_with(".requires"));
            wants.any(|wants| root.open(&format!("{folder}/{wants}/{unit}")).is_ok())
        })
}

/// Whether a link to /dev/null is in the place of the unit.
pub(crate) fn is_masked(root: &HostRoot, unit: &str) -> bool {
    let leads_to = |path: &str| guard::path_below(root.path(), Path::new(path)).ok();
    ["etc/systemd/system", "run/systemd/system"].iter().any(|folder| {
        let target = leads_to(&format!("{folder}/{unit}"));
        target.is_some() && target == leads_to("dev/null")
    })
}

/// Whether the cgroup of the unit has a process: its own, or a program that prepares its start.
pub(crate) fn is_running(root: &HostRoot, unit: &str) -> Result<bool, Fault> {
    processes(root, unit).map(|processes| !processes.is_empty())
}

/// The ids of the processes in the cgroup of the unit; empty if it does not run. The cgroup is in
/// the root slice, in `system.slice`, or in the hierarchy `systemd` of cgroup v1: all three are
/// read, and a board has one of them. If a drop-in sets another `Slice=`, /proc tells the cgroup of
/// each process. `Err`: a file exists and cannot be read.
fn processes(root: &HostRoot, unit: &str) -> Result<Vec<String>, Fault> {
    let mut all = Vec::new();
    for slice in ["", "system.slice/", "systemd/"] {
        let processes = content(root, &format!("sys/fs/cgroup/{slice}{unit}/cgroup.procs"))?;
        let processes = processes.unwrap_or_default();
        all.extend(String::from_utf8_lossy(&processes).lines().map(str::to_owned));
    }
    if all.is_empty() {
        let is_units = |pid: &str| {
            let cgroups = root.text(&format!("proc/{pid}/cgroup"), LARGE).unwrap_or_default();
            cgroups.lines().any(|path| path.ends_with(&format!("/{unit}")))
        };
        let pids = machine_processes(root).map(|(pid, _)| pid);
        all.extend(pids.filter(|pid| is_units(pid)));
    }
    Ok(all)
}

/// The process of the agent, and its flags. Before systemd starts the agent, other programs run in
/// the cgroup of the unit, and copy the credentials.
fn agent_process(root: &HostRoot) -> Result<Option<(String, Vec<String>)>, Fault> {
    for process in processes(root, SERVICE)? {
        let Some(line) = content(root, &format!("proc/{process}/cmdline"))? else {
            if processes(root, SERVICE)?.contains(&process) {
                // With hidepid=2, /proc has only the processes of this user.
                return Err(format!("/proc does not show its process {process}").into());
            }
            continue;
        };
        let line = String::from_utf8_lossy(&line);
        let mut flags = line.split_terminator('\0').map(str::to_owned);
        if flags.next().is_some_and(|program| program.ends_with("nodelet")) {
            return Ok(Some((process, flags.collect())));
        }
    }
    Ok(None)
}

/// The folder of the copies.
pub(crate) fn copies() -> PathBuf {
    Path::new("/").join(AGENT_CREDENTIALS)
}

/// An agent with the files of a join that runs without the unit, as below procd, OpenRC or runit.
pub(crate) fn agent_outside(root: &HostRoot) -> Option<String> {
    process(root, &|pid, name| {
        let line = root.bytes(&format!("proc/{pid}/cmdline"), LARGE).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let is_agent = name == "nodelet" && !line.split('\0').any(|word| COMMANDS.contains(&word));
        // A flag and its value are one word or two.
        let has_file = |file| ['=', '\0'].iter().any(|c| line.contains(&format!("{c}{file}")));
        is_agent && ["/etc/credstore/nodelet.", "/var/lib/nodelet"].into_iter().any(has_file)
    })
}

/// The first process of which `is_it` is true, by its id and name.
pub(crate) fn process(root: &HostRoot, is_it: &dyn Fn(&str, &str) -> bool) -> Option<String> {
    let mut all = machine_processes(root);
    let (pid, name) = all.find(|(pid, name)| is_it(pid, name))?;
    Some(format!("process {pid}, {name}"))
}

/// The processes, by id and name. A process in a container, as of kind, is skipped: the line
/// `NSpid` has several ids for it, one for each PID namespace.
fn machine_processes(root: &HostRoot) -> impl Iterator<Item = (String, String)> {
    root.list("proc").unwrap_or_default().into_iter().filter_map(|pid| {
        let status = root.text(&format!("proc/{pid}/status"), SMALL).ok()?;
        let is_own = field(&status, "NSpid:").is_none_or(|ids| ids.split_whitespace().count() == 1);
        let name = field(&status, "Name:\t").filter(|_| is_own)?.to_owned();
        Some((pid, name))
    })
}

/// The rest of the line that begins with `name`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

/// The mount table of the agent's process; empty if it does not run.
pub(crate) fn mount_table(root: &HostRoot) -> Read<String> {
    let process = agent_process(root).map_err(|why| Unread::new(SERVICE, why.what))?;
    let Some((process, _)) = process else { return Ok(String::new()) };
    // The table of a process that has ended is unread, not absent: it would hide nothing.
    let table = root.text(&format!("proc/{process}/mountinfo"), LARGE);
    table.map_err(|unread| Unread { kind: UnreadKind::Failed, ..unread })
}

/// The process of the agent, compared with the files of the next start.
#[derive(Debug, PartialEq)]
pub(crate) enum UnitProcess {
    NotRunning,
    /// An agent runs without the unit.
    Outside(String),
    /// It has what the files say.
    Same,
    /// It still has an old copy of the flags (`flags`), or of the credential of this name.
    Former(&'static str),
    /// A file cannot be read.
    Unknown(Fault),
}

impl UnitProcess {
    /// Compares the process with the files. A credential that has no file here, or that a drop-in
    /// loads, is from somewhere else, such as a boot loader. What the process read of `--config`
    /// and `--config-dir` at its start is not known.
    pub(crate) fn find(root: &HostRoot) -> Self {
        Self::of(root, &agent_process(root))
    }

    fn of(root: &HostRoot, process: &Result<Option<(String, Vec<String>)>, Fault>) -> Self {
        match process {
            // With systemd (sd_booted(3)) the unit is started, and its process is compared then.
            Ok(None) if root.open("run/systemd/system").is_ok() => Self::NotRunning,
            Ok(None) => agent_outside(root).map_or(Self::NotRunning, Self::Outside),
            Ok(Some((process, flags))) => {
                Self::compare(root, process, flags).unwrap_or_else(Self::Unknown)
            }
            Err(why) => Self::Unknown(why.clone()),
        }
    }

    fn compare(root: &HostRoot, process: &str, line: &[String]) -> Result<Self, Fault> {
        let next = environment(root)?;
        let own = content(root, &format!("proc/{process}/environ"))?.unwrap_or_default();
        let own: Vec<_> = own.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let has = |name: &str| {
            let mut values = own.iter().filter_map(|variable| {
                variable.split_once('=').filter(|(own, _)| *own == name).map(|(_, value)| value)
            });
            words(values.next().unwrap_or_default())
        };
        let flags = [JOIN_FLAGS, FLAGS].map(|name| (has(name), words(value_of(&next, name))));
        let is_changed = flags.iter().any(|(own, next)| own != next);
        let drop_in = if is_changed { flags_drop_in(root) } else { None };
        if is_changed && drop_in.is_none() {
            continued_comment(root)?;
            return Ok(Self::Former("flags"));
        }
        let mut flags = flags.iter().flat_map(|(own, _)| own);
        let password = flags.any(|flag| flag.starts_with("--k3s-supervisor")).then_some(PASSWORD);
        for name in CREDENTIALS.into_iter().chain(password) {
            if credential_drop_in(root, name).is_some() {
                continue;
            }
            let file = content(root, &source(root, name))?;
            if file.is_some() && file != content(root, &format!("{AGENT_CREDENTIALS}{name}"))? {
                return Ok(Self::Former(name));
            }
        }
        has_read_kubeconfig(root, process, line)?;
        match drop_in {
            Some(path) => Err(Fault::new(format!("/{path} can set other flags"), RESTART)),
            None => Ok(Self::Same),
        }
    }

    /// Why the process must be started again, if it must.
    pub(crate) fn why_stale(&self) -> Option<Fault> {
        match self {
            Self::NotRunning | Self::Same => None,
            Self::Former(former) => {
                Some(format!("nodelet.service runs with its copy of the former {former}").into())
            }
            Self::Outside(agent) => {
                let what =
                    format!("{agent}, runs without the unit, and with which files is unknown");
                Some(Fault::new(what, "restart it after a change of its files"))
            }
            Self::Unknown(why) => {
                Some(why.clone().at("nodelet.service runs, and with which files is unknown"))
            }
        }
    }
}

/// `Err` if the kubeconfig of this process changed after its start, and the agent did not write it,
/// as after a bootstrap. A kubeconfig that is a credential is compared by its content.
fn has_read_kubeconfig(root: &HostRoot, process: &str, line: &[String]) -> Result<(), Fault> {
    let Ok((_, flags)) = command_line::parse(line.iter().map(OsString::from)) else {
        return Ok(());
    };
    let config = flags.values.config;
    let path = config.kubeconfig.unwrap_or_default().display().to_string();
    let below = path.trim_start_matches('/');
    if below.is_empty() || below.starts_with(AGENT_CREDENTIALS) {
        return Ok(());
    }
    let file = match root.open(below).and_then(|file| file.metadata()) {
        Err(error) if error.kind() == NotFound => return Ok(()),
        found => found.map_err(|error| cause(&error).at(&path))?,
    };
    let text = |name: &str| {
        let bytes = content(root, name)?.unwrap_or_default();
        Ok::<_, Fault>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let status = text(&format!("proc/{process}/status"))?;
    let user = field(&status, "Uid:").and_then(|ids| ids.split_whitespace().next()?.parse().ok());
    // With an id-mapped mount of the state, as of systemd 257, the owner seems to be nobody.
    let is_users = file.uid() == NOBODY || user == Some(file.uid());
    let is_own = config.bootstrap_kubeconfig.is_some() && is_users;
    // proc_pid_stat(5): the name in parentheses may have blanks; starttime is field 22.
    let stat = text(&format!("proc/{process}/stat"))?;
    let ticks = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
    let start = ticks.and_then(|ticks| ticks.parse::<i64>().ok()).map(|ticks| ticks / TICKS);
    let boot = text("proc/stat")?;
    let boot = field(&boot, "btime ").and_then(|at| at.trim().parse::<i64>().ok());
    // The kernel rounds both times.
    let is_newer = start.zip(boot).is_some_and(|(start, boot)| file.ctime() > boot + start + 1);
    // A time in the future is of another clock, as that of the image's builder.
    let is_past = u64::try_from(file.ctime()).is_ok_and(|at| at <= clock::wall().seconds());
    if is_newer && is_past && !is_own {
        return Err(Fault::new(format!("{path} is newer than the process"), RESTART));
    }
    Ok(())
}

/// The path, below the root, of a drop-in for the unit with a line of which `is_it` is true. A
/// comment does not count, nor does a file with another ending than `.conf`, which systemd does not
/// read. A file that cannot be read counts as empty.
fn drop_in_with(root: &HostRoot, is_it: &dyn Fn(&str) -> bool) -> Option<String> {
    UNITS.iter().chain(&["run/systemd/system"]).find_map(|folder| {
        let names = root.list(&format!("{folder}/{SERVICE}.d")).unwrap_or_default();
        let names = names.iter().filter(|name| name.ends_with(".conf"));
        let mut paths = names.map(|name| format!("{folder}/{SERVICE}.d/{name}"));
        paths.find(|path| {
            let file = root.text(path, SMALL).unwrap_or_default();
            let mut lines = file.lines().map(str::trim_start);
            lines.any(|line| !line.starts_with(['#', ';']) && is_it(line))
        })
    })
}

/// A drop-in that can set the variables with the flags. Its values are not read.
fn flags_drop_in(root: &HostRoot) -> Option<String> {
    let settings = ["EnvironmentFile", "PassEnvironment", "UnsetEnvironment"];
    let variables = [JOIN_FLAGS, FLAGS].map(|name| format!("{name}="));
    drop_in_with(root, &|line| {
        settings.iter().any(|name| line.contains(name))
            || variables.iter().any(|name| line.contains(name))
    })
}

/// Whether a line loads a credential from the file that the unit itself loads.
fn loads_own_file(line: &str) -> bool {
    let setting = line.split_once('=').filter(|(name, _)| name.trim_end() == "LoadCredential");
    let value = setting.and_then(|(_, value)| value.trim().split_once(':'));
    value.is_some_and(|(name, source)| {
        [format!("nodelet.{name}"), format!("/{FILES}{name}")].iter().any(|own| own == source)
    })
}

/// A drop-in that loads another credential `name`, as by `LoadCredentialEncrypted=kubeconfig:PATH`.
/// Of two lines for one credential, systemd takes the later one: that of the drop-in.
pub(crate) fn credential_drop_in(root: &HostRoot, name: &str) -> Option<String> {
    drop_in_with(root, &|line| {
        let setting = line.strip_prefix("LoadCredential").and_then(|line| line.split_once('='));
        let id = setting.and_then(|(_, value)| value.trim_start().split(':').next());
        id == Some(name) && !loads_own_file(line)
    })
}

/// A drop-in whose flags name another kubeconfig or folder than the unit and a join.
pub(crate) fn files_drop_in(root: &HostRoot) -> Option<String> {
    let is_other = |word: &str| {
        let flag = word.find("--").and_then(|at| word.get(at..)).unwrap_or_default();
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        let value = value.replace("%S", "/var/lib").replace("${CREDENTIALS_DIRECTORY}", "%d");
        let value = value.replace("%d/", &format!("/{AGENT_CREDENTIALS}"));
        let is_named = FILE_FLAGS.contains(&name.replace('_', "-").as_str());
        let is_own = ["", "/kubeconfig", "/pki"].map(|end| format!("/var/lib/nodelet{end}"));
        // A bare name is a credential; the value may be the next word.
        let is_named_elsewhere = value.is_empty() || value.contains('/');
        let is_elsewhere = is_named_elsewhere && !Path::new(&value).starts_with(copies());
        is_named && !is_own.contains(&value) && is_elsewhere
    };
    drop_in_with(root, &|line| line.split([' ', '\t', '"', '\'']).any(is_other))
}

/// The path of a credential of a boot loader or a hypervisor, below the root. systemd gives it to
/// the unit before one of the same name in /etc/credstore (credential_search_path in
/// exec-credential.c).
pub(crate) fn received_credential(root: &HostRoot, name: &str) -> Option<String> {
    let path = format!("run/credentials/@system/nodelet.{name}");
    root.open(&path).is_ok().then_some(path)
}

/// The file that a start copies as the credential `name`.
fn source(root: &HostRoot, name: &str) -> String {
    received_credential(root, name).unwrap_or_else(|| format!("{FILES}{name}"))
}

/// What may give the next start a kubeconfig, other than a file in /etc/credstore: an encrypted
/// credential, one of a boot loader or a hypervisor, or a drop-in with another source, whose files
/// are not looked for.
pub(crate) fn foreign_credential(root: &HostRoot) -> Option<PathBuf> {
    let mut paths = CREDSTORES
        .iter()
        .flat_map(|folder| KUBECONFIGS.map(|name| format!("{folder}/nodelet.{name}")));
    let path = paths.find(|path| root.open(path).is_ok());
    let is_other = |line: &str| line.contains("kubeconfig:") && !loads_own_file(line);
    let path = path.or_else(|| drop_in_with(root, &is_other));
    path.map(|path| root.path().join(path))
}

/// What `nodelet check` checks without a `--kubeconfig`: the agent that runs, or else that of the
/// next start.
pub(crate) struct UnitAgent {
    pub(crate) flags: Vec<String>,
    /// Whether a process has what the files say.
    pub(crate) finding: Finding,
    pub(crate) runs: bool,
    /// The [`foreign_credential`] of the next start, if the files name no other kubeconfig.
    pub(crate) elsewhere: Option<PathBuf>,
}

/// The agent of the unit. `None` if it does not run, its flags name no kubeconfig, and there is no
/// identity that this user can see.
pub(crate) fn agent_of_unit(root: &HostRoot) -> Result<Option<UnitAgent>, Fault> {
    const CHECK: &str = "unit";
    const SUDO: &str = "run it with sudo";
    let running = agent_process(root);
    let process = UnitProcess::of(root, &running);
    let finding = match (&process, process.why_stale()) {
        (UnitProcess::Unknown(_) | UnitProcess::Outside(_), Some(why)) => {
            Finding::note(CHECK, why, SUDO)
        }
        (_, Some(why)) => Finding::failed(CHECK, why, RESTART),
        (UnitProcess::NotRunning, None) => {
            let start = "systemctl start --no-block nodelet";
            Finding::note(CHECK, "nodelet.service does not run", start)
        }
        (_, None) => {
            Finding::ok(CHECK, "nodelet.service runs with the credentials and flags of this board")
        }
    };
    if let Some((_, flags)) = running.map_err(|why| why.at(SERVICE).or_remedy(SUDO))? {
        return Ok(Some(UnitAgent { flags, finding, runs: true, elsewhere: None }));
    }
    let next = environment(root).map_err(|why| why.or_remedy(SUDO))?;
    let own = [JOIN_FLAGS, FLAGS].into_iter().flat_map(|name| words(value_of(&next, name)));
    let own: Vec<_> = own.collect();
    let has = |name| {
        let flag = format!("--{name}");
        own.iter().any(|word| word.replace('_', "-").starts_with(&flag))
            || guard::exists(&root.path().join(source(root, name)))
    };
    let mut elsewhere = None;
    if !KUBECONFIGS.into_iter().any(has) {
        elsewhere = foreign_credential(root);
        if elsewhere.is_none() {
            return Ok(None);
        }
    }
    let unit = [
        format!("--kubeconfig=/{AGENT_CREDENTIALS}kubeconfig"),
        "--root-dir=/var/lib/nodelet".into(),
    ];
    let stored = |word: String| match word.split_once(&format!("/{AGENT_CREDENTIALS}")) {
        Some((flag, name)) => format!("{flag}/{}", source(root, name)),
        None => word,
    };
    let flags = unit.into_iter().chain(own).map(stored).collect();
    Ok(Some(UnitAgent { flags, finding, runs: false, elsewhere }))
}

/// What to do with a process that has something of the former files.
pub(crate) const RESTART: &str = "systemctl restart nodelet";

/// The variables of the next start. A drop-in of the unit is not read.
fn environment(root: &HostRoot) -> Result<Vec<(String, String)>, Fault> {
    let mut all = Vec::new();
    for path in ENVIRONMENT {
        let bytes = content(root, path)?.unwrap_or_default();
        all.extend(variables(&String::from_utf8_lossy(&bytes)));
    }
    Ok(all)
}

/// `Err` if a comment hides the next line from systemd 253 and older, and from no newer one.
fn continued_comment(root: &HostRoot) -> Result<(), Fault> {
    for path in ENVIRONMENT {
        let bytes = content(root, path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut comments = text.lines().filter(|line| line.trim_start().starts_with(['#', ';']));
        if comments.any(|line| line.ends_with('\\')) {
            let what = format!(
                "/{path}: a comment ends in \\, so up to systemd 253 the next line is a part of it"
            );
            return Err(Fault::new(what, format!("remove that \\, then {RESTART}")));
        }
    }
    Ok(())
}

/// A file, if there is one; in /proc, if the process has not ended.
fn content(root: &HostRoot, path: &str) -> Result<Option<Vec<u8>>, Fault> {
    match root.bytes(path, LARGE) {
        Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(None),
        Err(error) if [NotFound, NotADirectory].contains(&error.kind()) => Ok(None),
        read => read.map(Some).map_err(|error| cause(&error).at(format_args!("/{path}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn a_masked_unit_is_not_enabled() {
        let tree = Tree::empty("units-masked");
        tree.write("dev/null", b"");
        tree.write("usr/lib/systemd/system/a.socket", b"[Socket]");
        tree.write("usr/lib/systemd/system/sockets.target.wants/a.socket", b"");
        let root = HostRoot::new(tree.path());
        assert!(is_enabled(&root, "a.socket"));
        std::fs::create_dir_all(tree.path().join("etc/systemd/system")).unwrap();
        let place = tree.path().join("etc/systemd/system/a.socket");
        std::os::unix::fs::symlink("/dev/null", place).unwrap();
        assert!(!is_enabled(&root, "a.socket"));
    }

    /// A process of the unit, started with `--v=2` and the kubeconfig `a`.
    fn board() -> Tree {
        let tree = Tree::empty("units-process");
        tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"7\n");
        tree.write("proc/7/cmdline", b"/usr/bin/nodelet\0--kubeconfig=/run/c\0--v=2\0");
        tree.write("proc/7/environ", b"A=1\0NODELET_JOIN_FLAGS=--v=2\0NODELET_FLAGS=\0");
        tree.write("run/credentials/nodelet.service/kubeconfig", b"a");
        tree
    }

    #[test]
    fn a_process_keeps_what_it_was_started_with() {
        let (join, own) = ("etc/default/nodelet-join", "etc/default/nodelet");
        let (flags, kubeconfig) = ("NODELET_JOIN_FLAGS=--v=2", "etc/credstore/nodelet.kubeconfig");
        let (password, supervisor) =
            ("etc/credstore/nodelet.k3s-password", "NODELET_JOIN_FLAGS=--k3s-supervisor=https://b");
        let drop_in = "etc/systemd/system/nodelet.service.d/a.conf";
        // As systemd/nodelet.default has it.
        let own_name = "[Service]\nEnvironment=NODELET_NAME=board-%m\nExecStart=\n\
                        ExecStart=/usr/bin/nodelet --hostname-override=${NODELET_NAME} \
                        $NODELET_JOIN_FLAGS $NODELET_FLAGS";
        let encrypted = "[Service]\nLoadCredentialEncrypted = kubeconfig:/etc/k.cred";
        let same = "[Service]\nLoadCredential = kubeconfig:/etc/credstore/nodelet.kubeconfig";
        let own_flags = "[Service]\nEnvironment=NODELET_FLAGS=--v=2";
        let unknown = || {
            let why = format!("/{drop_in} can set other flags");
            UnitProcess::Unknown(Fault::new(why, RESTART))
        };
        let received = "run/credentials/@system/nodelet.kubeconfig";
        let of_comment = || {
            let why = "/etc/default/nodelet: a comment ends in \\, so up to systemd 253 the next \
                       line is a part of it";
            UnitProcess::Unknown(Fault::new(why, "remove that \\, then systemctl restart nodelet"))
        };
        for (files, want) in [
            // The credential is from a boot loader.
            (&[(join, flags)][..], UnitProcess::Same),
            (&[(join, flags), (kubeconfig, "a")], UnitProcess::Same),
            (&[(join, flags), (kubeconfig, "b")], UnitProcess::Former("kubeconfig")),
            (
                &[(join, flags), ("etc/credstore/nodelet.ca.crt", "a")],
                UnitProcess::Former("ca.crt"),
            ),
            // systemd takes that of a boot loader before a file of the same name.
            (&[(join, flags), (received, "a"), (kubeconfig, "b")], UnitProcess::Same),
            (
                &[(join, flags), (received, "b"), (kubeconfig, "a")],
                UnitProcess::Former("kubeconfig"),
            ),
            (&[(join, flags), (password, "a")], UnitProcess::Same),
            (&[(join, supervisor)], UnitProcess::Former("flags")),
            (&[(join, flags), (own, "NODELET_FLAGS=--v=3")], UnitProcess::Former("flags")),
            (&[(join, flags), (own, "NODELET_JOIN_FLAGS=")], UnitProcess::Former("flags")),
            // It hides the next line from systemd 253 and older.
            (&[(join, flags), (own, "# --v=1 \\\nNODELET_FLAGS=--v=3")], of_comment()),
            (&[(join, flags), (own, "# --v=1 \\\n")], UnitProcess::Same),
            (&[], UnitProcess::Former("flags")),
            (&[(drop_in, own_name)], UnitProcess::Former("flags")),
            (&[(drop_in, own_name), (join, flags)], UnitProcess::Same),
            (&[(drop_in, "[Service]\nEnvironment=A=1 \\\nNODELET_FLAGS=--v=2")], unknown()),
            (&[(drop_in, "[Service]\nEnvironmentFile=/etc/a")], unknown()),
            (&[(drop_in, own_flags), (join, flags)], UnitProcess::Same),
            (&[(drop_in, own_flags), (kubeconfig, "b")], UnitProcess::Former("kubeconfig")),
            // `systemd-creds encrypt` keeps its input.
            (&[(drop_in, encrypted), (join, flags), (kubeconfig, "b")], UnitProcess::Same),
            (
                &[(drop_in, same), (join, flags), (kubeconfig, "b")],
                UnitProcess::Former("kubeconfig"),
            ),
            (
                &[(drop_in, encrypted), (join, flags), ("etc/credstore/nodelet.token", "b")],
                UnitProcess::Former("token"),
            ),
            (
                &[(drop_in, "[Service]\n #Environment=NODELET_FLAGS=--v=2")],
                UnitProcess::Former("flags"),
            ),
            (
                &[("etc/systemd/system/nodelet.service.d/a.bak", own_flags)],
                UnitProcess::Former("flags"),
            ),
        ] {
            let tree = board();
            for (path, text) in files {
                tree.write(path, text.as_bytes());
            }
            let root = HostRoot::new(tree.path());
            assert_eq!(UnitProcess::find(&root), want, "{files:?}");
            let flags = agent_of_unit(&root).unwrap().unwrap().flags;
            assert_eq!(flags, ["--kubeconfig=/run/c", "--v=2"], "{files:?}");
        }
    }

    /// The administrator adds a CA to it; the agent reads it when it starts.
    #[test]
    fn a_kubeconfig_that_is_newer_than_the_process_is_named() {
        let (file, owner) = ("etc/nodelet/kubeconfig", nix::unistd::getuid().as_raw());
        let bootstrap = "--bootstrap-kubeconfig=/run/credentials/nodelet.service/b\0";
        let name = format!("/{file}");
        for (kubeconfig, more, uid, boot, is_newer) in [
            (name.as_str(), "", owner, 1_000_000, true),
            (&name, "", owner, 9_000_000_000_u64, false),
            // The agent writes it after a bootstrap.
            (&name, bootstrap, owner, 1_000_000, false),
            (&name, bootstrap, owner + 1, 1_000_000, true),
            ("/run/credentials/nodelet.service/kubeconfig", "", owner, 1_000_000, false),
            ("/missing", "", owner, 1_000_000, false),
        ] {
            let tree = board();
            let line = format!("/usr/bin/nodelet\0--kubeconfig={kubeconfig}\0{more}");
            let stat = format!("7 (a) b) S{} 4200 1\n", " 0".repeat(18));
            tree.write(file, b"a");
            tree.write("etc/default/nodelet-join", b"NODELET_JOIN_FLAGS=--v=2");
            tree.write("proc/7/cmdline", line.as_bytes());
            tree.write("proc/7/status", format!("Uid:\t{uid}\t0\n").as_bytes());
            tree.write("proc/7/stat", stat.as_bytes());
            tree.write("proc/stat", format!("cpu 1\nbtime {boot}\n").as_bytes());
            let finding = agent_of_unit(&HostRoot::new(tree.path())).unwrap().unwrap().finding;
            let want = "– unit: nodelet.service runs, and with which files is unknown: \
                        /etc/nodelet/kubeconfig is newer than the process; systemctl restart";
            let found = finding.line();
            assert_eq!(found.starts_with(want), is_newer, "{kubeconfig} {more} {uid}: {found}");
            assert_eq!(found.starts_with('✓'), !is_newer, "{kubeconfig} {more} {uid}: {found}");
        }
    }

    /// Below procd or OpenRC.
    #[test]
    fn an_agent_without_the_unit_may_have_other_files() {
        let tree = Tree::empty("units-outside");
        tree.write("etc/credstore/nodelet.kubeconfig", b"a");
        tree.write("proc/12/status", b"Name:\tnodelet\n");
        let root = HostRoot::new(tree.path());
        for (line, is_agent) in [
            ("nodelet\0--kubeconfig=/etc/credstore/nodelet.kubeconfig\0", true),
            ("nodelet\0--root-dir\0/var/lib/nodelet\0", true),
            ("nodelet\0--root-dir=/var/lib/nodelet\0check\0", false),
        ] {
            tree.write("proc/12/cmdline", line.as_bytes());
            let found = agent_of_unit(&root).unwrap().unwrap().finding.line();
            let want = if is_agent {
                "– unit: process 12, nodelet, runs without the unit, and with which files is \
                 unknown; restart it after a change of its files"
            } else {
                "– unit: nodelet.service does not run; systemctl start --no-block nodelet"
            };
            assert_eq!(found, want, "{line}");
        }
    }

    /// An administrator's file, or what the agent has written after a bootstrap whose kubeconfig
    /// was removed.
    #[test]
    fn a_unit_that_is_stopped_is_checked_also_without_a_credential() {
        for (flags, want) in [
            ("NODELET_FLAGS=--v=2", None),
            ("#NODELET_FLAGS=--kubeconfig=/etc/a", None),
            ("NODELET_FLAGS=--kubeconfig=/etc/a", Some("--kubeconfig=/etc/a")),
            ("NODELET_FLAGS=--kubeconfig /etc/a", Some("/etc/a")),
            (
                "NODELET_FLAGS=--bootstrap-kubeconfig=/run/credentials/nodelet.service/b",
                Some("--bootstrap-kubeconfig=/etc/credstore/nodelet.b"),
            ),
        ] {
            let tree = Tree::empty("units-flags");
            tree.write("etc/default/nodelet", flags.as_bytes());
            let found = agent_of_unit(&HostRoot::new(tree.path())).unwrap();
            let last = found.as_ref().and_then(|agent| agent.flags.last()).map(String::as_str);
            assert_eq!(last, want, "{flags}");
            assert_eq!(found.and_then(|agent| agent.elsewhere), None, "{flags}");
        }
    }

    /// An image for many machines has a kubeconfig, and each machine gives the board its own.
    #[test]
    fn a_unit_that_is_stopped_is_checked_with_the_credential_of_its_boot_loader() {
        let tree = Tree::empty("units-received");
        let of_unit = "--kubeconfig=/etc/credstore/nodelet.kubeconfig";
        let received = "--kubeconfig=/run/credentials/@system/nodelet.kubeconfig";
        tree.write("etc/credstore/nodelet.kubeconfig", b"of the image");
        for want in [of_unit, received] {
            let agent = agent_of_unit(&HostRoot::new(tree.path())).unwrap().unwrap();
            assert_eq!((agent.flags[0].as_str(), agent.elsewhere), (want, None));
            tree.write("run/credentials/@system/nodelet.kubeconfig", b"of the machine");
        }
    }

    /// The unit of a board that has joined fails with 243/CREDENTIALS, or is stopped.
    #[test]
    fn a_unit_that_is_stopped_may_have_an_encrypted_credential() {
        let drop_in = "etc/systemd/system/nodelet.service.d/a.conf";
        for (path, text) in [
            ("etc/credstore.encrypted/nodelet.kubeconfig", ""),
            (drop_in, "[Service]\nLoadCredentialEncrypted=bootstrap-kubeconfig:/boot/a\n"),
        ] {
            let tree = Tree::empty("units-elsewhere");
            tree.write(path, text.as_bytes());
            tree.write("etc/default/nodelet-join", b"NODELET_JOIN_FLAGS=--hostname-override=a\n");
            let agent = agent_of_unit(&HostRoot::new(tree.path())).unwrap().unwrap();
            assert_eq!(agent.elsewhere, Some(tree.path().join(path)));
            assert!(agent.flags.contains(&"--hostname-override=a".to_owned()) && !agent.runs);
        }
    }

    /// It runs in the cgroup before the agent, with another environment.
    #[test]
    fn a_helper_of_systemd_is_not_the_agent() {
        let tree = board();
        tree.write("etc/default/nodelet-join", b"NODELET_JOIN_FLAGS=--v=2");
        tree.write("proc/6/cmdline", b"(sd-mkdcreds)\0");
        tree.write("proc/6/environ", b"");
        let root = HostRoot::new(tree.path());
        for (processes, want) in [("6\n7\n", UnitProcess::Same), ("6\n", UnitProcess::NotRunning)] {
            tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", processes.as_bytes());
            assert_eq!(UnitProcess::find(&root), want, "{processes:?}");
        }
    }

    /// `mount -o remount,hidepid=2 /proc`, and `nodelet check` without sudo.
    #[test]
    fn a_process_that_proc_hides_is_unknown() {
        let tree = board();
        tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"8\n");
        let found = UnitProcess::find(&HostRoot::new(tree.path()));
        assert_eq!(found, UnitProcess::Unknown("/proc does not show its process 8".into()));
        let line = agent_of_unit(&HostRoot::new(tree.path())).err().unwrap().to_string();
        assert_eq!(line, "nodelet.service: /proc does not show its process 8; run it with sudo");
    }

    /// `Slice=edge.slice` in a drop-in.
    #[test]
    fn a_unit_in_another_slice_runs() {
        let tree = board();
        std::fs::remove_dir_all(tree.path().join("sys")).unwrap();
        tree.write("run/systemd/system/a.service", b"");
        tree.write("etc/default/nodelet-join", b"NODELET_JOIN_FLAGS=--v=2");
        let root = HostRoot::new(tree.path());
        for (cgroup, namespaces, want) in [
            ("0::/edge.slice/nodelet.service\n", "7", UnitProcess::Same),
            ("12:pids:/\n1:name=systemd:/a.slice/nodelet.service\n", "7", UnitProcess::Same),
            ("0::/edge.slice/nodelet-serve.service\n", "7", UnitProcess::NotRunning),
            // In a container.
            ("0::/a.scope/edge.slice/nodelet.service\n", "7\t1", UnitProcess::NotRunning),
        ] {
            tree.write("proc/7/cgroup", cgroup.as_bytes());
            let status = format!("Name:\tnodelet\nNSpid:\t{namespaces}\n");
            tree.write("proc/7/status", status.as_bytes());
            assert_eq!(UnitProcess::find(&root), want, "{cgroup}");
            assert_eq!(is_running(&root, SERVICE), Ok(want == UnitProcess::Same), "{cgroup}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let tree = board();
        tree.write("etc/default/nodelet/a folder", b"");
        let root = HostRoot::new(tree.path());
        assert!(matches!(UnitProcess::find(&root), UnitProcess::Unknown(_)));
        let line = agent_of_unit(&root).unwrap().unwrap().finding.line();
        assert!(line.starts_with("– unit: ") && line.contains("unknown: /etc/default"), "{line}");
        tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"");
        let line = agent_of_unit(&root).err().unwrap().to_string();
        assert!(
            line.ends_with("/etc/default/nodelet: not a regular file; run it with sudo"),
            "{line}"
        );
        let none = Tree::empty("units-none");
        assert_eq!(UnitProcess::find(&HostRoot::new(none.path())), UnitProcess::NotRunning);
    }
}
