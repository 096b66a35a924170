//! `--container-runtime-endpoint`, `--image-service-endpoint`, `--node-status-max-images` and
//! `--container-runtime-facts`.
//! Error texts: cri-client `pkg/util/util_unix.go`.

use std::path::{Path, PathBuf};

/// Bytes of the path of a socket: `sun_path` of unix(7) without its last zero.
const MAX_PATH: usize = 107;

/// What an endpoint speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `unix://PATH` or a bare path: the Container Runtime Interface, v1.
    Cri,
    /// `docker://PATH`: the Docker Engine API.
    Docker,
    /// `podman://PATH`: the same API of Podman.
    Podman,
}

/// The container runtime of this board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// What the endpoint speaks.
    pub protocol: Protocol,
    /// The socket.
    pub path: PathBuf,
    /// CRI: the socket of the image service, if it is another one.
    pub image_path: Option<PathBuf>,
    /// `--node-status-max-images`: images in the Node; -1 is no limit.
    pub max_images: i32,
    /// `--container-runtime-facts`: the file that `nodelet runtime` writes and the agent reads.
    pub facts_file: PathBuf,
}

impl RuntimeConfig {
    /// Parses the values of the flags; an error names the flag. `None` without an endpoint;
    /// `images` is the endpoint of the image service, or empty.
    pub fn parse(
        endpoint: &str,
        images: &str,
        max_images: i32,
        facts_file: &Path,
    ) -> Result<Option<Self>, String> {
        if endpoint.is_empty() && !images.is_empty() {
            return Err("--image-service-endpoint needs --container-runtime-endpoint: without a \
                        runtime there are no images"
                .to_owned());
        }
        if endpoint.is_empty() {
            return Ok(None);
        }
        let (protocol, path) = parse_endpoint("--container-runtime-endpoint", endpoint)?;
        let mut image_path = None;
        if !images.is_empty() {
            let (of_images, socket) = parse_endpoint("--image-service-endpoint", images)?;
            if (protocol, of_images) != (Protocol::Cri, Protocol::Cri) {
                return Err(format!(
                    "--image-service-endpoint {images:?}: both endpoints must be unix://PATH"
                ));
            }
            image_path = Some(socket).filter(|socket| *socket != path);
        }
        let facts_file = facts_file.to_owned();
        Ok(Some(Self { protocol, path, image_path, max_images, facts_file }))
    }
}

/// What the endpoint of a flag names.
fn parse_endpoint(flag: &str, endpoint: &str) -> Result<(Protocol, PathBuf), String> {
    let refused = |why: String| Err(format!("{flag} {endpoint:?}: {why}"));
    let (protocol, path) = match endpoint.split_once("://") {
        None => (Protocol::Cri, endpoint),
        Some(("unix", path)) => (Protocol::Cri, path),
        Some(("docker", path)) => (Protocol::Docker, path),
        Some(("podman", path)) => (Protocol::Podman, path),
        Some(("tcp", _)) => return refused("only support unix socket endpoint".to_owned()),
        Some((other, _)) => return refused(format!("protocol {other:?} not supported")),
    };
    if !path.starts_with('/') || path.contains('\0') {
        let example = "unix:///run/containerd/containerd.sock";
        return refused(format!("the path must be absolute, as in {example}"));
    }
    if path.len() > MAX_PATH {
        return refused(format!("the path is longer than {MAX_PATH} bytes"));
    }
    Ok((protocol, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(endpoint: &str, images: &str) -> Result<Option<RuntimeConfig>, String> {
        RuntimeConfig::parse(endpoint, images, 10, Path::new("/f"))
    }

    #[test]
    fn an_endpoint_names_its_protocol_and_its_path() {
        assert_eq!(parsed("", ""), Ok(None));
        for (endpoint, protocol, path) in [
            ("unix:///run/a.sock", Protocol::Cri, "/run/a.sock"),
            ("/run/a.sock", Protocol::Cri, "/run/a.sock"),
            ("docker:///run/docker.sock", Protocol::Docker, "/run/docker.sock"),
            ("podman:///run/p.sock", Protocol::Podman, "/run/p.sock"),
        ] {
            let config = parsed(endpoint, "").unwrap().unwrap();
            assert_eq!((config.protocol, config.path), (protocol, path.into()));
            assert_eq!((config.image_path, config.max_images), (None, 10));
            assert_eq!(config.facts_file, PathBuf::from("/f"));
        }
        let two = |images| parsed("unix:///run/a.sock", images).unwrap().unwrap();
        assert_eq!(two("/run/b.sock").image_path, Some("/run/b.sock".into()));
        assert_eq!(two("unix:///run/a.sock").image_path, None);
    }

    #[test]
    fn an_endpoint_that_cannot_work_is_refused() {
        let long = format!("/{}", "x".repeat(107));
        for (endpoint, images, want) in [
            ("tcp://127.0.0.1:1", "", "only support unix socket endpoint"),
            ("file:///run/a", "", "protocol \"file\" not supported"),
            ("npipe:////./pipe/x", "", "protocol \"npipe\" not supported"),
            ("unix://run/a.sock", "", "the path must be absolute"),
            ("containerd.sock", "", "the path must be absolute"),
            ("unix:///a\0b", "", "the path must be absolute"),
            (&long, "", "the path is longer than 107 bytes"),
            ("", "/run/b.sock", "needs --container-runtime-endpoint"),
            ("docker:///run/a", "/run/b.sock", "both endpoints must be unix://PATH"),
            ("/run/a", "docker:///run/b.sock", "both endpoints must be unix://PATH"),
            ("/run/a", "tcp://b", "--image-service-endpoint \"tcp://b\": only support"),
        ] {
            let error = parsed(endpoint, images).unwrap_err();
            assert!(error.contains(want), "{endpoint} {images}: {error}");
        }
        assert!(parsed(&long[..107], "").is_ok());
    }
}
