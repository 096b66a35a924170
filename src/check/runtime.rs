//! Judges one look at the container runtime. Without an endpoint there is no line.

use crate::config::runtime::{Protocol, RuntimeConfig};
use crate::core::runtime::{Found, Step};

use super::Finding;

/// The findings of one look. A failed look is its last line. `offers_pods` is `--max-pods` above 0.
pub fn runtime(config: &RuntimeConfig, found: &Found, offers_pods: bool) -> Vec<Finding> {
    let path = config.path.display().to_string();
    let status = match &found.status {
        Ok(status) => status,
        Err(failure) if failure.at == Step::Socket => {
            return vec![Finding::failed(
                "runtime-socket",
                &failure.cause,
                failure.remedy,
            )];
        }
        Err(failure) => {
            let api = Finding::failed("runtime-api", &failure.cause, failure.remedy);
            return vec![Finding::ok("runtime-socket", path), api];
        }
    };
    let protocol = match config.protocol {
        Protocol::Cri => "CRI v1",
        Protocol::Docker | Protocol::Podman => "the Docker Engine API",
        Protocol::File => "a file of nodelet runtime",
    };
    let api = match (&found.version, found.errors.first()) {
        (_, Some(error)) => Finding::failed("runtime-api", error, "look at the runtime's log"),
        (None, None) => Finding::note("runtime-api", format!("no version, {protocol}"), ""),
        (Some(version), None) => {
            let text = format!("{} {}, {protocol}", version.kind, version.version);
            Finding::ok("runtime-api", text)
        }
    };
    let ready = match &status.runtime {
        None => Finding::ok("runtime-ready", "ready"),
        Some(line) => Finding::failed("runtime-ready", line, "look at the runtime's log"),
    };
    let network = match &status.network {
        None => Finding::ok("runtime-network", "ready, or not told"),
        Some(line) if offers_pods => {
            let remedy = "install a CNI plugin, or set --max-pods=0";
            Finding::failed("runtime-network", line, remedy)
        }
        Some(_) => Finding::note(
            "runtime-network",
            "not ready, not needed with --max-pods=0",
            "",
        ),
    };
    let mut findings = vec![Finding::ok("runtime-socket", path), api, ready, network];
    findings.extend(found.images.as_ref().map(|images| match images.count {
        0 => Finding::note(
            "runtime-images",
            "0",
            "CRI lists containerd's namespace k8s.io alone; nerdctl and Docker use others",
        ),
        count => Finding::ok("runtime-images", count.to_string()),
    }));
    findings.extend(
        found
            .image_folder
            .as_ref()
            .map(|folder| Finding::ok("imagefs", folder)),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Mark;
    use crate::core::runtime::{Failure, Image, Images, Status, Version};

    const CONFIG: fn() -> RuntimeConfig = || RuntimeConfig {
        protocol: Protocol::Cri,
        path: "/run/c.sock".into(),
        image_path: None,
        max_images: 10,
    };

    fn lines(found: &Found, offers_pods: bool) -> Vec<String> {
        let findings = runtime(&CONFIG(), found, offers_pods);
        findings.iter().map(Finding::line).collect()
    }

    fn healthy() -> Found {
        let mut images = Images::new(10);
        (0..12).for_each(|_| images.push(Image::default()));
        Found {
            status: Ok(Status::default()),
            version: Version::new("containerd".into(), "2.1.9".into()),
            images: Some(images),
            image_folder: Some("/var/lib/images".to_owned()),
            ..Found::failed(Failure::api(""))
        }
    }

    #[test]
    fn a_healthy_runtime() {
        assert_eq!(
            lines(&healthy(), true),
            [
                "✓ runtime-socket: /run/c.sock",
                "✓ runtime-api: containerd 2.1.9, CRI v1",
                "✓ runtime-ready: ready",
                "✓ runtime-network: ready, or not told",
                "✓ runtime-images: 12",
                "✓ imagefs: /var/lib/images",
            ]
        );
    }

    #[test]
    fn a_failed_look_has_its_remedy() {
        let failed = |at, remedy| {
            Found::failed(Failure {
                at,
                cause: "/run/c.sock: cause".to_owned(),
                remedy,
            })
        };
        let socket = lines(&failed(Step::Socket, "is it running?"), true);
        assert_eq!(
            socket,
            ["✗ runtime-socket: /run/c.sock: cause; is it running?"]
        );
        let api = lines(&failed(Step::Api, "write docker://"), true);
        assert_eq!(api[1], "✗ runtime-api: /run/c.sock: cause; write docker://");
    }

    #[test]
    fn a_part_that_is_missing_has_a_line() {
        let mut found = healthy();
        found.images = Some(Images::new(10));
        found.image_folder = None;
        found.version = None;
        found.status = Ok(Status {
            runtime: Some("not ready: R".to_owned()),
            network: Some("no network: N".to_owned()),
            ..Status::default()
        });
        let marks = |found: &Found, offers_pods| {
            let findings = runtime(&CONFIG(), found, offers_pods);
            findings.iter().map(|f| f.mark).collect::<Vec<Mark>>()
        };
        let (ok, failed, note) = (Mark::Ok, Mark::Failed, Mark::Note);
        assert_eq!(marks(&found, true), [ok, note, failed, failed, note]);
        assert_eq!(marks(&found, false), [ok, note, failed, note, note]);
        found.errors = vec!["Version: rpc error".to_owned()];
        assert_eq!(marks(&found, false)[1], failed);
    }
}
