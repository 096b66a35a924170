//! What a Node reports of the container runtime.
//!
//! `nodelet runtime` asks the runtime and writes these facts to a file; the agent reads the file
//! with each status. The first line is the time of the last success in milliseconds of
//! CLOCK_BOOTTIME, which both processes share and which no step of the wall clock moves; `-` before
//! the first success. The second line is the facts as JSON. The two programs may be of different
//! versions: an unknown line or member is ignored, and a missing member is not known.
//!
//! New facts are a new file. If nothing but the time changes, it is written over the old one, which
//! has as many digits. A reader may see some bytes of both: so the time stands there twice, and two
//! different ones are no time. The reader then has the time of its last read, which is one pace
//! old.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Ready's line before the first success.
pub const NOT_YET: &str = "container runtime status check may not have completed yet";

/// The facts of a runtime, and the lines of Ready. `None` is not known: the Node's member is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RuntimeFacts {
    /// `containerd://2.1.9`.
    pub version: Option<String>,
    /// Largest first.
    pub images: Option<Vec<Image>>,
    /// The folder of the images, as the runtime names it.
    pub image_folder: Option<String>,
    /// Sorted by name.
    pub handlers: Option<Vec<Handler>>,
    /// `features.supplementalGroupsPolicy`.
    pub supplemental_groups_policy: Option<bool>,
    /// Ready's line about CRI's RuntimeReady.
    pub not_ready: Option<String>,
    /// Ready's line about CRI's NetworkReady. It counts only where the Node offers pods.
    pub network: Option<String>,
    /// Ready's line if no question has succeeded, or the last success is too old.
    #[serde(skip)]
    pub down: Option<&'static str>,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    /// The runtime's id; not reported, it orders images of one size.
    pub id: String,
    /// Digests, then tags.
    pub names: Vec<String>,
    /// Bytes on disk: unpacked for Docker, Podman and CRI-O, compressed for containerd.
    pub size_bytes: u64,
}

/// One runtime handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Handler {
    /// Empty is the default handler.
    pub name: String,
    /// `recursiveReadOnlyMounts`.
    pub recursive_read_only_mounts: bool,
    /// `userNamespaces`.
    pub user_namespaces: bool,
}

impl RuntimeFacts {
    /// Before the first answer.
    pub fn unknown() -> Self {
        Self { network: Some("network state unknown".to_owned()), ..Self::default() }
    }

    /// The content of the file. `success` is the time of the last success since boot.
    pub fn file(&self, success: Option<Duration>) -> String {
        // 13 digits are 300 years.
        let twice = |at: u128| format!("{at:013} {at:013}");
        let time = success.map_or_else(|| "-".to_owned(), |at| twice(at.as_millis()));
        format!("{time}\n{}\n", serde_json::to_string(self).unwrap_or_default())
    }

    /// The time of the last success, and the JSON of the facts; `None` if `text` is no such file.
    pub fn split(text: &str) -> Option<(Option<Duration>, &str)> {
        let mut lines = text.lines();
        let at = match lines.next()? {
            "-" => None,
            time => {
                let (at, again) = time.split_once(' ')?;
                Some(Duration::from_millis(at.parse().ok().filter(|_| at == again)?))
            }
        };
        Some((at, lines.next()?))
    }
}
