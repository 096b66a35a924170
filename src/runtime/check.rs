//! The judgements of `nodelet check`: one question to the container runtime, and the file of
//! `nodelet runtime`. Without an endpoint there is no line.

use std::path::Path;

use super::config::{Protocol, RuntimeConfig};
use super::report::{FailedAt, RuntimeReport};
use crate::kube::finding::Finding;
use crate::kube::text::Fault;

/// The findings of one question. If the question failed, the failure is the last finding.
/// `offers_pods` is `--max-pods` above 0.
pub(super) fn question(
    config: &RuntimeConfig,
    found: &RuntimeReport,
    offers_pods: bool,
) -> Vec<Finding> {
    let path = config.path.display().to_string();
    let status = match &found.status {
        Ok(status) => status,
        Err(failure) if failure.at == FailedAt::Socket => {
            return vec![Finding::failed("runtime-socket", failure.fault.clone(), "")];
        }
        Err(failure) => {
            let api = Finding::failed("runtime-api", failure.fault.clone(), "");
            return vec![Finding::ok("runtime-socket", path), api];
        }
    };
    let protocol = match config.protocol {
        Protocol::Cri => "CRI v1",
        Protocol::Docker | Protocol::Podman => "the Docker Engine API",
    };
    let api = match (&found.version, found.errors.first()) {
        (_, Some(error)) => Finding::failed("runtime-api", error, "see the log of the runtime"),
        (None, None) => Finding::note("runtime-api", format!("no version, {protocol}"), ""),
        (Some(version), None) => {
            let text = format!("{} {}, {protocol}", version.kind, version.version);
            Finding::ok("runtime-api", text)
        }
    };
    let ready = match &status.runtime {
        None => Finding::ok("runtime-ready", "ready"),
        Some(line) => Finding::failed("runtime-ready", line, "see the log of the runtime"),
    };
    let network = match &status.network {
        None => Finding::ok("runtime-network", "ready (or the runtime reports no NetworkReady)"),
        Some(line) if offers_pods => {
            let remedy = "install a CNI plugin, or set --max-pods=0";
            Finding::failed("runtime-network", line, remedy)
        }
        Some(_) => Finding::note("runtime-network", "not ready, not needed with --max-pods=0", ""),
    };
    let mut findings = vec![Finding::ok("runtime-socket", path), api, ready, network];
    findings.extend(found.images.as_ref().map(|images| match images.count {
        0 => Finding::note(
            "runtime-images",
            "0",
            "CRI lists only the namespace k8s.io of containerd; nerdctl and Docker use others",
        ),
        count => Finding::ok("runtime-images", count.to_string()),
    }));
    findings.extend(found.image_folder.as_ref().map(|folder| Finding::ok("imagefs", folder)));
    findings
}

/// The folder of `nodelet-runtime.service`, which exists while the unit runs (RuntimeDirectory=).
pub(super) const UNIT_FOLDER: &str = "/run/nodelet-runtime";

/// The file of `nodelet runtime`. Before the first start of the agent there is none, nor before the
/// first answer of the runtime. `runs`: [`UNIT_FOLDER`] exists.
pub(super) fn facts_file(
    path: &Path,
    fresh: Result<(), Fault>,
    exists: bool,
    runs: bool,
) -> Finding {
    const CHECK: &str = "runtime-facts";
    match fresh {
        Ok(()) => Finding::ok(CHECK, path.display().to_string()),
        Err(fault) if exists => Finding::failed(CHECK, fault, ""),
        Err(_) if runs => Finding::failed(
            CHECK,
            "nodelet runtime has had no answer yet",
            "see `journalctl -u nodelet-runtime`: its unit may not reach the socket",
        ),
        Err(_) => Finding::note(
            CHECK,
            format!("no {}: nodelet runtime does not run", path.display()),
            "it starts with nodelet.service; without systemd run it beside the agent",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::facts::Image;
    use crate::runtime::report::{Images, RuntimeFailure, RuntimeVersion, Status};

    #[test]
    fn each_part_of_a_runtime_has_a_line() {
        let config = RuntimeConfig::parse("/run/c.sock", "", 10, Path::new("/f")).unwrap().unwrap();
        let mut images = Images::new(10);
        (0..12).for_each(|_| images.push(Image::default()));
        let healthy = RuntimeReport {
            version: RuntimeVersion::new("containerd".into(), "2.1.9".into()),
            images: Some(images),
            image_folder: Some("/var/lib/images".to_owned()),
            ..RuntimeReport::new(Ok(Status::default()))
        };
        let [runtime, network] =
            ["not ready: R", "no network: N"].map(|line| Some(line.to_owned()));
        let partly = RuntimeReport {
            images: Some(Images::new(10)),
            ..RuntimeReport::new(Ok(Status { runtime, network, ..Status::default() }))
        };
        let wrong = RuntimeReport { errors: vec!["Version: rpc error".into()], ..partly.clone() };
        let failed = |at, remedy| {
            let fault = Fault::new("/run/c.sock: cause", remedy);
            RuntimeReport::new(Err(RuntimeFailure { at, fault }))
        };
        let no_network = "✗ runtime-network: no network: N; install a CNI plugin, or";
        for (found, offers_pods, count, want) in [
            (
                &healthy,
                true,
                6,
                "✓ runtime-socket: /run/c.sock\n\
                 ✓ runtime-api: containerd 2.1.9, CRI v1\n\
                 ✓ runtime-ready: ready\n\
                 ✓ runtime-network: ready (or the runtime reports no NetworkReady)\n\
                 ✓ runtime-images: 12\n\
                 ✓ imagefs: /var/lib/images",
            ),
            (&partly, true, 5, no_network),
            (
                &partly,
                false,
                5,
                "✓ runtime-socket: /run/c.sock\n\
                 – runtime-api: no version, CRI v1\n\
                 ✗ runtime-ready: not ready: R; see the log of the runtime\n\
                 – runtime-network: not ready, not needed with --max-pods=0\n\
                 – runtime-images: 0; CRI lists only the namespace k8s.io of containerd; ",
            ),
            (&wrong, false, 5, "✗ runtime-api: Version: rpc error; see the log of the runtime"),
            (
                &failed(FailedAt::Socket, "start it"),
                true,
                1,
                "✗ runtime-socket: /run/c.sock: cause; start it",
            ),
            (
                &failed(FailedAt::Api, "write docker://"),
                true,
                2,
                "✓ runtime-socket: /run/c.sock\n✗ runtime-api: /run/c.sock: cause; write docker://",
            ),
        ] {
            let findings = question(&config, found, offers_pods);
            assert_eq!(findings.len(), count, "{findings:?}");
            let lines = findings.iter().map(Finding::line).collect::<Vec<_>>().join("\n");
            assert!(lines.contains(want), "{lines}\ninstead of\n{want}");
        }
    }

    #[test]
    fn nodelet_runtime_that_does_not_run_or_has_no_answer_has_a_line() {
        let fault = || Err(Fault::new("no success for 31 s", "see the log"));
        let starting = "✗ runtime-facts: nodelet runtime has had no answer yet; \
                        see `journalctl -u nodelet-runtime`: its unit may not reach the socket";
        for (fresh, exists, runs, want) in [
            (Ok(()), true, true, "✓ runtime-facts: /f"),
            (fault(), true, true, "✗ runtime-facts: no success for 31 s; see the log"),
            (fault(), false, true, starting),
            (
                fault(),
                false,
                false,
                "– runtime-facts: no /f: nodelet runtime does not run; it starts with \
                 nodelet.service; without systemd run it beside the agent",
            ),
        ] {
            assert_eq!(facts_file(Path::new("/f"), fresh, exists, runs).line(), want);
        }
    }
}
