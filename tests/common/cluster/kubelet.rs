//! A kubelet: kubemark's hollow one, which is the kubelet's code without containers, or nodelet
//! with pods in its place. kubemark needs root and a readable `/dev/kmsg`.
//!
//! Upstream: `cmd/kubemark/app/hollow_node.go`, `pkg/kubemark/hollow_kubelet.go`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{Program, free_ports};
use crate::common::board;

/// `kubemark`: its path, or `None` for the stand-in. `labels` has the form of `--node-labels`.
pub fn start(
    kubemark: Option<&Path>,
    folder: &Path,
    name: &str,
    kubeconfig: &str,
    labels: &str,
) -> Program {
    let [port] = free_ports();
    let kubeconfig = format!("--kubeconfig={kubeconfig}");
    let mut command = Command::new(kubemark.map_or(board::binary(), OsString::from));
    if kubemark.is_some() {
        // kubemark is killed, and leaves its temporary folders.
        command.env("TMPDIR", folder);
        command.args([
            "--morph=kubelet",
            &format!("--name={name}"),
            &kubeconfig,
            // Several kubelets run on one host.
            &format!("--kubelet-port={port}"),
            "--kubelet-read-only-port=0",
            // The host may have no containerd, whose image service is the default.
            "--use-host-image-service=false",
        ]);
    } else {
        command.args(["--root-dir=/nonexistent/nodelet", "--max-pods=110", &kubeconfig]);
        command.arg(format!("--hostname-override={name}")).args(board::FAST);
    }
    if !labels.is_empty() {
        command.arg(format!("--node-labels={labels}"));
    }
    Program::start(command, folder.join(format!("{name}.log")))
}

/// The path of `program` in `KUBEBUILDER_ASSETS`.
pub fn asset(program: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS")?;
    let path = Path::new(&folder).join(program);
    path.is_file().then_some(path)
}
