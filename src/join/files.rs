//! The files of `nodelet join` and `nodelet reset`, and changes as lists of operations.

use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::agent::environment_file::{value_of, variables, words};
use crate::agent::unit::{self, JOIN_FLAGS, SERVE_SOCKET};
use crate::client::api_config::{ApiConfig, ClientCertificate, Endpoint};
use crate::config::flags::Values;
use crate::credentials::kubeconfig;
use crate::credentials::pki::{
    remove_certificates, remove_serving_certificates, stored_certificate,
};
use crate::kube::text::Fault;
use crate::kube::x509::Leaf;
use crate::os::guard;
use crate::os::mounts::{Mount, is_volatile, over};
use crate::os::read::{cause, read_found};
use crate::os::root::HostRoot;
use crate::os::write::{self, Op, PRIVATE, PUBLIC};

/// The kubeconfigs of a kubelet.
const KUBELET_KUBECONFIGS: [&str; 3] = [
    "etc/kubernetes/kubelet.conf",
    "var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "var/lib/rancher/rke2/agent/kubelet.kubeconfig",
];
/// The unit of `nodelet serve`.
const SERVE: &str = "nodelet-serve.service";
/// `--root-dir` of the unit.
pub(super) const ROOT_DIR: &str = "/var/lib/nodelet";
/// The processes of a kubelet; that of MicroK8s is kubelite.
const KUBELETS: [&str; 4] = ["kubelet", "kubelite", "k3s-agent", "k3s-server"];

/// Where the files are. All are below one root, which is `/` unless an image is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinPaths {
    root: PathBuf,
    /// `--root-dir` of the agent.
    root_dir: PathBuf,
    /// `--cert-dir` of the agent, if it is given.
    cert_dir: Option<PathBuf>,
    /// The kubeconfigs that the flags of the agent name.
    named: Vec<PathBuf>,
}

/// What `nodelet join` writes.
#[derive(Default)]
pub(super) struct JoinedFiles {
    /// The kubeconfig with the certificate.
    pub(super) kubeconfig: Option<Zeroizing<String>>,
    /// With `--bootstrap-only` instead of `kubeconfig`: the one with the bootstrap token.
    pub(super) bootstrap: Option<Zeroizing<String>>,
    /// The flags of the run.
    pub(super) flags: StoredFlags,
    /// The stored certificate stays: no file of a certificate is removed.
    pub(super) is_kept: bool,
}

/// Whether a reboot undoes a change of `path`, by this table of mounts: as [`is_volatile`].
pub(super) fn is_undone(path: &Path, mounts: &[Mount]) -> Option<bool> {
    is_volatile(&over(mounts, &guard::resolve(path).ok()?.existing)?.fs_type)
}

/// The environment file of the unit, which remembers what the last join was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredFlags {
    /// The URL on the command line. The kubeconfig may have another one, from the cluster.
    pub(super) server: String,
    /// The URL in the kubeconfig that was stored with these flags.
    pub(super) api_server: String,
    /// The flags of the run.
    pub(super) words: Vec<String>,
}

const SERVER: &str = "NODELET_JOIN_SERVER";
const API_SERVER: &str = "NODELET_JOIN_API_SERVER";

impl StoredFlags {
    fn text(&self) -> String {
        let Self { server, api_server, words } = self;
        let words = words.join(" ");
        format!(
            "# Written by nodelet join.\n{SERVER}={server}\n{API_SERVER}={api_server}\n\
             {JOIN_FLAGS}={words}\n"
        )
    }

    /// The values of `--k3s-supervisor`.
    pub(super) fn supervisors(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter_map(|word| word.strip_prefix("--k3s-supervisor="))
    }

    /// Whether these flags were stored with a kubeconfig of this server, and with the same choice
    /// of `--bootstrap-only`. The file of a former version does not name the server and is taken
    /// for one of this server.
    pub(super) fn are_of(&self, server: &Endpoint, bootstrap_only: bool) -> bool {
        (self.api_server.is_empty()
            || Endpoint::parse(&self.api_server).is_ok_and(|own| own == *server))
            && self.are_of_bootstrap() == bootstrap_only
    }

    /// Whether they were stored with `--bootstrap-only`.
    fn are_of_bootstrap(&self) -> bool {
        self.words.iter().any(|word| word.starts_with("--bootstrap-kubeconfig="))
    }

    /// `None` if this is not a file of a join. A person may have changed it.
    fn parse(text: &str) -> Option<Self> {
        let set = variables(text);
        let is_of_join = set.iter().any(|(name, _)| name == JOIN_FLAGS);
        let value = |name| value_of(&set, name).to_owned();
        is_of_join.then(|| Self {
            server: value(SERVER),
            api_server: value(API_SERVER),
            words: words(&value(JOIN_FLAGS)),
        })
    }
}

/// A change of the files, in two lists of operations, and the paths that the second one replaces.
pub(super) struct JoinChange {
    /// Writes each new file beside the old one. Until it ends, nothing old is changed.
    pub(super) prepare: Vec<Op>,
    /// Puts the new files in place, and removes old ones last.
    pub(super) commit: Vec<Op>,
    /// The paths of the new files.
    pub(super) paths: Vec<PathBuf>,
}

impl JoinPaths {
    pub(super) fn new(root: Option<&Path>) -> Self {
        Self {
            root: root.unwrap_or(Path::new("/")).to_owned(),
            root_dir: ROOT_DIR.into(),
            cert_dir: None,
            named: Vec::new(),
        }
    }

    /// Follows the flags of the agent.
    pub(super) fn follow(&mut self, flags: &Values) {
        self.root_dir.clone_from(&flags.root_dir);
        let cert_dir = Some(&flags.config.cert_dir);
        self.cert_dir = cert_dir.filter(|folder| !folder.as_os_str().is_empty()).cloned();
        let named = [&flags.config.kubeconfig, &flags.config.bootstrap_kubeconfig];
        self.named = named.into_iter().flatten().cloned().collect();
    }

    /// The flags of the folders that the agent is to use.
    pub(super) fn folder_flags(&self) -> String {
        let given = self.cert_dir.as_ref();
        let cert_dir = given.map(|folder| format!(" --cert-dir={}", folder.display()));
        format!("--root-dir={}{}", self.root_dir.display(), cert_dir.unwrap_or_default())
    }

    /// `path` below the root. Below another root than `/`, links are resolved as if that root were
    /// `/`, and a path that cannot be resolved is replaced by one that cannot exist.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        let path = path.strip_prefix("/").unwrap_or(path);
        if self.root == Path::new("/") {
            return self.root.join(path);
        }
        let found = guard::path_below(&self.root, path);
        found.unwrap_or_else(|_| Path::new("/dev/null").join(path))
    }

    /// Whether the paths are those of an image, whose machine is not running.
    pub(super) fn are_of_image(&self) -> bool {
        self.root != Path::new("/")
    }

    /// The folder of systemd's credentials.
    pub(super) fn credentials(&self) -> PathBuf {
        self.at("etc/credstore")
    }

    /// The credential `kubeconfig` of the unit.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.at("etc/credstore/nodelet.kubeconfig")
    }

    /// The credential `bootstrap-kubeconfig` of the unit.
    pub(super) fn bootstrap(&self) -> PathBuf {
        self.at("etc/credstore/nodelet.bootstrap-kubeconfig")
    }

    /// The path of the credential `name` of a boot loader or a hypervisor, which wins over a file.
    pub(super) fn received_credential(&self, name: &str) -> Option<PathBuf> {
        unit::received_credential(&self.host(), name).map(|path| self.at(path))
    }

    /// The path of a credential with a kubeconfig that join does not write: encrypted, from a boot
    /// loader or a hypervisor, or of the running unit. Else the path of a drop-in that names a
    /// kubeconfig.
    pub(super) fn foreign_credential(&self) -> Option<PathBuf> {
        let of_unit = unit::KUBECONFIGS.map(|name| self.at(unit::copies().join(name)));
        let of_unit = of_unit.into_iter().find(|path| guard::exists(path));
        unit::foreign_credential(&self.host()).or(of_unit)
    }

    /// The kubeconfigs that the flags of the agent name, without the copies of its process.
    pub(super) fn named(&self) -> impl Iterator<Item = PathBuf> {
        let named = self.named.iter().map(|path| Path::new("/").join(path));
        named.filter(|path| !path.starts_with(unit::copies())).map(|path| self.at(path))
    }

    /// What a reset leaves, with which the board or its next owner may write a Node: what join does
    /// not write, and files that a drop-in names, which are not looked for.
    pub(super) fn left(&self) -> Vec<String> {
        let keys = unit::KEYS.map(|name| self.credentials().join(format!("nodelet.{name}")));
        let paths = unit::foreign_credential(&self.host()).into_iter().chain(self.named());
        let paths = paths.chain(keys).filter(|path| guard::exists(path));
        let drop_in = unit::files_drop_in(&self.host()).map(|path| self.at(path));
        let of_drop_in = drop_in.map(|path| format!("what {} names", path.display()));
        paths.map(|path| path.display().to_string()).chain(of_drop_in).collect()
    }

    /// A drop-in that gives the unit another credential `name` than the one that join writes.
    pub(super) fn drop_in(&self, name: &str) -> Option<PathBuf> {
        unit::credential_drop_in(&self.host(), name).map(|path| self.at(path))
    }

    /// The node password of k3s. As long as the server has stored a password for a name, only the
    /// board that sends this password gets a certificate of this name.
    pub(super) fn password(&self) -> PathBuf {
        self.at("etc/credstore/nodelet.k3s-password")
    }

    /// The node password of a k3s agent that ran here before.
    pub(super) fn password_of_k3s(&self) -> PathBuf {
        self.at("etc/rancher/node/password")
    }

    /// The operations that store a node password. The caller has made and locked its folder.
    pub(super) fn write_password(&self, password: &str) -> Result<Vec<Op>, Fault> {
        let path = guard::target(&self.password())?;
        Ok(write::replace(&path, PRIVATE, password.as_bytes().to_vec()))
    }

    /// The environment file of the unit, which only join writes.
    pub(super) fn flags(&self) -> PathBuf {
        self.at("etc/default/nodelet-join")
    }

    /// What the last join stored; `None` if there is no file, or it is not one of a join.
    pub(super) fn stored_flags(&self) -> Result<Option<StoredFlags>, Fault> {
        environment_text(&self.flags()).map(|text| StoredFlags::parse(&text))
    }

    /// The environment file of the administrator, whose flags win over those of a join.
    pub(super) fn administrators_flags(&self) -> PathBuf {
        self.at("etc/default/nodelet")
    }

    /// What the agent writes after a bootstrap.
    pub(super) fn issued_kubeconfig(&self) -> PathBuf {
        self.at("var/lib/nodelet/kubeconfig")
    }

    /// The certificates of the agent. Their owner is a dynamic user: join only removes them.
    pub(super) fn cert_dir(&self) -> PathBuf {
        self.at(self.own_cert_dir())
    }

    /// The same path, as the machine or the image itself has it.
    fn own_cert_dir(&self) -> PathBuf {
        self.cert_dir.clone().unwrap_or_else(|| self.root_dir.join("pki"))
    }

    /// The certificate that the agent has stored, if it can be used.
    pub(super) fn stored_certificate(&self) -> Option<(ClientCertificate, Leaf)> {
        let folder = Path::new("/").join(self.own_cert_dir());
        stored_certificate(&folder, &|path| self.at(path))
    }

    /// Reads a kubeconfig. The files that it names are those of the machine or the image.
    pub(super) fn load(&self, kubeconfig: &Path) -> Result<ApiConfig, Fault> {
        kubeconfig::load_below(kubeconfig, &|path| self.at(path))
    }

    /// What nodelet.path watches. Unlike the kubeconfig it is never removed: systemd starts the
    /// unit after a removal, too.
    pub(super) fn trigger(&self) -> PathBuf {
        self.at("run/nodelet-joined")
    }

    /// A folder that exists while systemd is PID 1 (sd_booted(3)).
    pub(super) fn has_systemd(&self) -> bool {
        guard::exists(&self.at("run/systemd/system"))
    }

    /// The machine or the image, for what its units do.
    pub(super) fn host(&self) -> HostRoot {
        HostRoot::new(self.at(""))
    }

    /// Whether the next boot starts this unit.
    pub(super) fn is_enabled(&self, unit: &str) -> bool {
        unit::is_enabled(&self.host(), unit)
    }

    /// Whether nodelet.service has a process.
    pub(super) fn is_running(&self) -> Result<bool, Fault> {
        unit::is_running(&self.host(), unit::SERVICE)
    }

    /// Whether nodelet-serve.service has a process; false if that is unknown.
    pub(super) fn serves(&self) -> bool {
        unit::is_running(&self.host(), SERVE).unwrap_or_default()
    }

    /// A kubelet on this machine: its kubeconfig, which may be at another path, or its process.
    pub(super) fn kubelet(&self) -> Option<String> {
        let mut paths = KUBELET_KUBECONFIGS.iter().map(|path| self.at(path));
        let path = paths.find(|path| guard::exists(path));
        let path = path.map(|path| path.display().to_string());
        path.or_else(|| unit::process(&self.host(), &|_, name| KUBELETS.contains(&name)))
    }

    /// An agent with the files of a join that runs without the unit.
    pub(super) fn agent(&self) -> Option<String> {
        unit::agent_outside(&self.host())
    }

    /// The operations that write a new identity. The caller has made and locked the folder of the
    /// credentials. After each operation the identity is the old one or the new one; if a power cut
    /// ends them, `nodelet join` again completes them. The flags come first, because an agent with
    /// the new kubeconfig and without its flags would register another Node. They come last if the
    /// former ones have the other choice of `--bootstrap-only`: each choice has its own file.
    pub(super) fn write(&self, new: JoinedFiles) -> Result<JoinChange, Fault> {
        let (mut prepare, mut commit, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        // On a board whose /etc is volatile, a file may be a link to a disk that is not.
        let mut add = |path: PathBuf, mode, text: &[u8]| {
            let path = guard::target(&path)?;
            let mut ops = write::replace(&path, mode, text.to_vec());
            let rename = ops.iter().position(|op| matches!(op, Op::Rename(..)));
            commit.extend(ops.split_off(rename.unwrap_or_default()));
            prepare.extend(ops);
            prepare.push(Op::Sync(write::parent(&path)));
            paths.push(path);
            Ok::<_, Fault>(())
        };
        let was_bootstrap = self.stored_flags()?.unwrap_or_default().are_of_bootstrap();
        let (is_last, flags) = (was_bootstrap != new.bootstrap.is_some(), new.flags.text());
        if !is_last {
            add(self.flags(), PUBLIC, flags.as_bytes())?;
        }
        let mut old = Vec::new();
        for (path, text) in [(self.kubeconfig(), new.kubeconfig), (self.bootstrap(), new.bootstrap)]
        {
            match text {
                Some(text) => add(path, PRIVATE, text.as_bytes())?,
                None => old.push(path),
            }
        }
        if is_last {
            add(self.flags(), PUBLIC, flags.as_bytes())?;
        }
        if !new.is_kept {
            // With rotation, the agent would prefer a stored certificate of another cluster.
            commit.extend(self.forget_certificates()?);
            for path in old {
                remove_target(&mut commit, &path)?;
            }
        }
        Ok(JoinChange { prepare, commit, paths })
    }

    fn forget_certificates(&self) -> Result<Vec<Op>, Fault> {
        let mut ops = remove_certificates(&self.cert_dir())?;
        // `nodelet serve` has those of its unit, and without systemd the agent's.
        for folder in [self.at("var/lib/nodelet-serve"), self.cert_dir()] {
            ops.extend(remove_serving_certificates(&folder)?);
        }
        remove(&mut ops, &self.issued_kubeconfig());
        Ok(ops)
    }

    /// The link by which a boot opens the kubelet's port.
    pub(super) fn port(&self) -> PathBuf {
        self.at("etc/systemd/system/sockets.target.wants").join(SERVE_SOCKET)
    }

    /// The operations that remove every file of a join. Files that a power cut left beside them are
    /// removed, too: they may hold a key. Without `password` the node password of k3s stays: the
    /// board cannot get its name again without it. A password that lies beside its place was never
    /// sent, and is removed in any case.
    pub(super) fn remove(&self, password: bool) -> Result<Vec<Op>, Fault> {
        let mut ops = Vec::new();
        let pod_cidr = self.at(self.root_dir.join("podcidr"));
        for path in [self.kubeconfig(), self.bootstrap(), self.flags()] {
            remove_target(&mut ops, &path)?;
        }
        if password {
            remove_target(&mut ops, &self.password())?;
        } else {
            remove(&mut ops, &write::beside(&guard::target(&self.password())?));
        }
        remove(&mut ops, &write::beside(&self.issued_kubeconfig()));
        for path in [pod_cidr, self.port()] {
            remove(&mut ops, &path);
            remove(&mut ops, &write::beside(&path));
        }
        ops.extend(self.forget_certificates()?);
        Ok(ops)
    }
}

/// The text of an environment file; empty if there is none. `Err` if it cannot be read: its flags
/// may name the folders of the agent.
pub(super) fn environment_text(path: &Path) -> Result<String, Fault> {
    let read = match guard::found(path) {
        Err(error) if error.kind() == NotFound => Ok(Vec::new()),
        found => found.and_then(|path| read_found(&path)),
    };
    let bytes = read.map_err(|error| cause(&error).at(path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// [`remove`] for the file that `path` leads to, which has the key, and for what a power cut left
/// beside it. A link stays for the next join.
pub(super) fn remove_target(ops: &mut Vec<Op>, path: &Path) -> Result<(), Fault> {
    let target = guard::target(path)?;
    remove(ops, &target);
    remove(ops, &write::beside(&target));
    Ok(())
}

/// Adds the operations that remove a file, if there is one. A link that leads nowhere counts: in an
/// image, it may lead to a file that only the image has.
fn remove(ops: &mut Vec<Op>, path: &Path) {
    if guard::has_entry(path) {
        ops.extend([Op::Remove(path.to_owned()), Op::Sync(write::parent(path))]);
    }
}
