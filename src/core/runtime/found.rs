//! What one look at a container runtime found, as plain values.

use std::fmt;
use std::time::Duration;

use super::images::Images;

/// Bytes of a list of images above which it is asked for less often.
pub const LARGE_LIST: usize = 1 << 20;

/// What a look asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Version, images, and the folder of the images; otherwise the status alone.
    pub details: bool,
    /// The folder of the images, where that is a question of its own (Docker, Podman).
    pub folder: bool,
}

/// What one look found. `None` is a part that was not asked for, or whose request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// CRI's Status; an error if the runtime gave none.
    pub status: Result<Status, Failure>,
    /// Type and version.
    pub version: Option<Version>,
    /// The images.
    pub images: Option<Images>,
    /// The list of images has more than [`LARGE_LIST`], or was refused for its size.
    pub list_is_large: bool,
    /// The folder of the images: `image_filesystems[0].fs_id.mountpoint`, or `DockerRootDir`.
    pub image_folder: Option<String>,
    /// One line for each request that failed, apart from the status.
    pub errors: Vec<String>,
    /// How long ago it was found; more than zero for `file://`.
    pub age: Duration,
}

impl Found {
    /// A look that found nothing yet; it failed with `failure` unless a status follows.
    pub fn failed(failure: Failure) -> Self {
        Self {
            status: Err(failure),
            version: None,
            images: None,
            list_is_large: false,
            image_folder: None,
            errors: Vec::new(),
            age: Duration::ZERO,
        }
    }
}

/// Why a look failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub at: Step,
    /// The object and the cause: `/run/containerd/containerd.sock: permission denied`.
    pub cause: String,
    /// What to do; empty if that is not known.
    pub remedy: &'static str,
}

impl Failure {
    /// A failure of the runtime's API.
    pub fn api(cause: impl Into<String>) -> Self {
        Self {
            at: Step::Api,
            cause: cause.into(),
            remedy: "",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        match self.remedy {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}

/// The part of a look that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The socket, or the file of `file://`.
    Socket,
    /// The requests.
    Api,
}

/// The answer to CRI's Status. Docker and Podman have only the first member: they answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Ready's line about the runtime; `None` if it is ready.
    pub runtime: Option<String>,
    /// Ready's line about the network; `None` if it is ready.
    pub network: Option<String>,
    /// Runtime handlers, sorted by name.
    pub handlers: Vec<Handler>,
    /// `features.supplementalGroupsPolicy`; `None` if the answer has no features.
    pub supplemental_groups_policy: Option<bool>,
}

/// One runtime handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handler {
    /// Empty is the default handler.
    pub name: String,
    /// `recursiveReadOnlyMounts`.
    pub recursive_read_only_mounts: bool,
    /// `userNamespaces`.
    pub user_namespaces: bool,
}

/// A condition in CRI's Status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// `RuntimeReady`, `NetworkReady`, or another one, which is ignored.
    pub kind: String,
    /// Whether it is met.
    pub status: bool,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl Condition {
    /// Ready's lines about the runtime and the network (kubelet.go updateRuntimeUp).
    pub fn lines(conditions: &[Self]) -> [Option<String>; 2] {
        [
            ("container runtime not ready", "RuntimeReady"),
            ("container runtime network not ready", "NetworkReady"),
        ]
        .map(
            |(line, kind)| match conditions.iter().find(|c| c.kind == kind) {
                Some(Self { status: true, .. }) => None,
                Some(Self {
                    reason, message, ..
                }) => Some(format!(
                    "{line}: {kind}=false reason:{reason} message:{message}"
                )),
                None => Some(format!("{line}: <nil>")),
            },
        )
    }
}

/// Type and version of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// `containerd`, `cri-o`, `docker`, `podman`.
    pub kind: String,
    /// As the runtime tells it: `2.1.9+unknown`.
    pub version: String,
}

impl Version {
    /// A version whose type can stand in a Node: 1 to 64 of `[A-Za-z0-9._-]`.
    pub fn new(kind: String, version: String) -> Option<Self> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_valid = (1..=64).contains(&kind.len()) && kind.bytes().all(is_word);
        (is_valid && !version.is_empty()).then_some(Self { kind, version })
    }

    /// `containerd://2.1.9`. A version that cannot be parsed is `Unknown`.
    pub fn text(&self) -> String {
        let version = super::version::parse(&self.version);
        self.with(version.as_deref().unwrap_or(UNKNOWN))
    }

    /// The text while the runtime is down.
    pub fn unknown(&self) -> String {
        self.with(UNKNOWN)
    }

    fn with(&self, version: &str) -> String {
        format!("{}://{version}", self.kind)
    }
}

const UNKNOWN: &str = "Unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_status_are_the_kubelets() {
        let condition = |kind: &str, status| Condition {
            kind: kind.to_owned(),
            status,
            reason: "R".to_owned(),
            message: "M".to_owned(),
        };
        let runtime = "container runtime not ready: RuntimeReady=false reason:R message:M";
        let network = "container runtime network not ready: NetworkReady=false reason:R message:M";
        for (conditions, want) in [
            (
                vec![
                    condition("RuntimeReady", true),
                    condition("NetworkReady", true),
                ],
                [None, None],
            ),
            (
                vec![
                    condition("NetworkReady", false),
                    condition("RuntimeReady", false),
                ],
                [Some(runtime), Some(network)],
            ),
            (
                vec![condition("ContainerdHasNoDeprecationWarnings", false)],
                [
                    Some("container runtime not ready: <nil>"),
                    Some("container runtime network not ready: <nil>"),
                ],
            ),
        ] {
            let lines = Condition::lines(&conditions);
            assert_eq!(lines.each_ref().map(Option::as_deref), want);
        }
    }

    /// setters_test.go TestVersionInfo.
    #[test]
    fn a_version_has_its_type() {
        let version = |kind: &str, version: &str| Version::new(kind.into(), version.into());
        let known = version("containerd", "2.1.9+unknown").unwrap();
        assert_eq!(known.text(), "containerd://2.1.9+unknown");
        assert_eq!(known.unknown(), "containerd://Unknown");
        assert_eq!(version("cri-o", "devel").unwrap().text(), "cri-o://Unknown");
        for (kind, text) in [
            ("", "1.0"),
            ("containerd", ""),
            ("a b", "1.0"),
            ("ä", "1.0"),
        ] {
            assert_eq!(version(kind, text), None);
        }
        assert_eq!(version(&"x".repeat(65), "1.0"), None);
    }
}
