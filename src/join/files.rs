//! The files of `nodelet join`, and their changes as lists of operations.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::files::guard;
use crate::files::read::read;
use crate::files::write::{self, Op, PRIVATE, PUBLIC};
use crate::identity::pki::remove_certificates;

/// Where the files are. All are below one root, which is `/` unless an image is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    root: PathBuf,
}

/// What `nodelet join` writes.
#[derive(Default)]
pub(super) struct Written {
    /// The kubeconfig with the certificate.
    pub(super) kubeconfig: Option<Zeroizing<String>>,
    /// Instead, the kubeconfig with the bootstrap token.
    pub(super) bootstrap: Option<Zeroizing<String>>,
    /// The flags of the run.
    pub(super) flags: Vec<String>,
}

impl Places {
    pub(super) fn new(root: Option<&Path>) -> Self {
        Self {
            root: root.unwrap_or(Path::new("/")).to_owned(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
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

    /// The node password of k3s. Only the board that has it gets a certificate of this name again.
    pub(super) fn password(&self) -> PathBuf {
        self.at("etc/credstore/nodelet.k3s-password")
    }

    /// The node password of a k3s agent that ran here before.
    pub(super) fn password_of_k3s(&self) -> PathBuf {
        self.at("etc/rancher/node/password")
    }

    /// The operations that store a node password.
    pub(super) fn write_password(&self, password: &str) -> Vec<Op> {
        let mut ops = write::private_folder(&self.credentials());
        let text = password.as_bytes().to_vec();
        ops.extend(write::replace(&self.password(), PRIVATE, text));
        once_each_folder(ops)
    }

    /// The environment file of the unit that join alone writes.
    pub(super) fn flags(&self) -> PathBuf {
        self.at("etc/default/nodelet-join")
    }

    /// What the agent writes after a bootstrap.
    pub(super) fn issued_kubeconfig(&self) -> PathBuf {
        self.at("var/lib/nodelet/kubeconfig")
    }

    /// The certificates of the agent. Its owner is a dynamic user: nothing is written here.
    pub(super) fn cert_dir(&self) -> PathBuf {
        self.at("var/lib/nodelet/pki")
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

    /// Whether the unit has a process: in the root slice, in the default one, or on cgroup v1.
    pub(super) fn is_running(&self) -> bool {
        ["", "system.slice/", "systemd/"].iter().any(|slice| {
            let path = format!("sys/fs/cgroup/{slice}nodelet.service/cgroup.procs");
            read(&self.at(&path)).is_ok_and(|processes| !processes.is_empty())
        })
    }

    /// The kubeconfigs of a kubelet on this machine.
    pub(super) fn of_a_kubelet(&self) -> [PathBuf; 3] {
        [
            "etc/kubernetes/kubelet.conf",
            "var/lib/rancher/k3s/agent/kubelet.kubeconfig",
            "var/lib/rancher/rke2/agent/kubelet.kubeconfig",
        ]
        .map(|path| self.at(path))
    }

    /// The operations that write a new identity, and the paths of the new files. The kubeconfig
    /// of a former cluster is removed before the flags change, and the new one comes last: after a
    /// power cut between them there is none, the unit does not start, and `nodelet join` again is
    /// the cure.
    pub(super) fn write(&self, new: Written) -> Result<(Vec<Op>, Vec<PathBuf>), String> {
        // With rotation, a stored certificate of another cluster would win over the new one.
        let mut ops = self.forget_certificates()?;
        for path in [self.kubeconfig(), self.bootstrap()] {
            remove(&mut ops, &path);
        }
        ops.extend(write::private_folder(&self.credentials()));
        let flags = format!(
            "# Written by nodelet join.\nNODELET_JOIN_FLAGS={}\n",
            new.flags.join(" ")
        );
        ops.extend(write::replace(&self.flags(), PUBLIC, flags.into_bytes()));
        let mut paths = vec![self.flags()];
        let texts = [
            (self.kubeconfig(), new.kubeconfig),
            (self.bootstrap(), new.bootstrap),
        ];
        for (path, text) in texts {
            if let Some(text) = text {
                ops.extend(write::replace(&path, PRIVATE, text.as_bytes().to_vec()));
                paths.push(path);
            }
        }
        Ok((once_each_folder(ops), paths))
    }

    fn forget_certificates(&self) -> Result<Vec<Op>, String> {
        let mut ops = remove_certificates(&self.cert_dir())?;
        remove(&mut ops, &self.issued_kubeconfig());
        Ok(ops)
    }

    /// The operations that remove every file of a join, and their paths. Without its `password` a
    /// board of k3s cannot get its name again.
    pub(super) fn remove(&self, password: bool) -> Result<(Vec<Op>, Vec<PathBuf>), String> {
        let mut ops = Vec::new();
        for path in [self.kubeconfig(), self.bootstrap(), self.flags()] {
            remove(&mut ops, &path);
        }
        if password {
            remove(&mut ops, &self.password());
        }
        ops.extend(self.forget_certificates()?);
        let removed = ops.iter().filter_map(|op| match op {
            Op::Remove(path) => Some(path.clone()),
            _ => None,
        });
        let removed = removed.collect();
        Ok((ops, removed))
    }
}

/// Each list of operations creates the folders that are missing now: drops the repeated ones.
fn once_each_folder(ops: Vec<Op>) -> Vec<Op> {
    let mut created: Vec<PathBuf> = Vec::new();
    let mut kept = Vec::new();
    for op in ops {
        match &op {
            Op::Folder(path, _) if created.contains(path) => continue,
            Op::Folder(path, _) => created.push(path.clone()),
            _ => {}
        }
        kept.push(op);
    }
    kept
}

/// Adds the operations that remove a file, if there is one.
fn remove(ops: &mut Vec<Op>, path: &Path) {
    if guard::exists(path) {
        ops.extend([Op::Remove(path.to_owned()), Op::Sync(write::parent(path))]);
    }
}
