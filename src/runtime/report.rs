//! What one question to a container runtime found, as plain values.
//! Upstream: `pkg/kubelet/util/sliceutils`, `pkg/kubelet/nodestatus/setters.go` Images.

use std::time::Duration;

use crate::kube::facts::{Handler, Image};
use crate::kube::text::Fault;
use crate::kube::version::{is_padded, is_suffix};

/// Bytes of a list of images above which it is asked for less often.
pub const LARGE_LIST: usize = 1 << 20;

/// A part of a question. A question for a part asks for the parts before it, too. Each part has a
/// time limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Part {
    /// CRI's Status.
    Status,
    /// The version, and the folder of the images.
    Details,
    /// The list of images, which may take long: nothing follows it.
    List,
}

/// What was found. `None` is a part that was not asked for, or whose request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeReport {
    /// The last part that was asked for.
    pub asked: Part,
    /// CRI's Status; an error if the runtime gave none.
    pub status: Result<Status, RuntimeFailure>,
    /// Type and version.
    pub version: Option<RuntimeVersion>,
    /// The images.
    pub images: Option<Images>,
    /// The list of images has more than [`LARGE_LIST`], or was refused for its size.
    pub list_is_large: bool,
    /// How long the runtime took for what follows the status, answered or not.
    pub details_took: Duration,
    /// The folder of the images: `image_filesystems[0].fs_id.mountpoint`, or `DockerRootDir`.
    pub image_folder: Option<String>,
    /// One line for each request that failed, apart from the status, in their order.
    pub errors: Vec<String>,
}

impl RuntimeReport {
    /// What a question for the status found.
    pub fn new(status: Result<Status, RuntimeFailure>) -> Self {
        Self {
            asked: Part::Status,
            status,
            version: None,
            images: None,
            list_is_large: false,
            details_took: Duration::ZERO,
            image_folder: None,
            errors: Vec::new(),
        }
    }

    /// The answer to a request for details; `None` if it failed, and then `errors` gets a line.
    pub fn take<T>(&mut self, answer: Result<T, RuntimeFailure>) -> Option<T> {
        answer.map_err(|failure| self.errors.push(failure.fault.to_string())).ok()
    }
}

/// Why a question failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFailure {
    /// What failed.
    pub at: FailedAt,
    /// The object and the cause: `/run/containerd/containerd.sock: permission denied`.
    pub fault: Fault,
}

impl RuntimeFailure {
    /// A failure of the runtime's API.
    pub fn api(fault: impl Into<Fault>) -> Self {
        Self { at: FailedAt::Api, fault: fault.into() }
    }

    /// Says first which request failed. A failure of the socket names the socket.
    pub fn of(self, request: &str) -> Self {
        match self.at {
            FailedAt::Socket => self,
            _ => Self { fault: self.fault.at(request), ..self },
        }
    }
}

/// The part that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedAt {
    /// The socket.
    Socket,
    /// The requests.
    Api,
    /// The size of an answer.
    Size,
    /// The time limit: no answer came within it.
    Time,
}

/// The answer to CRI's Status. For Docker and Podman, which have no Status, a default value says
/// that they answered.
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

/// A condition in CRI's Status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriCondition {
    /// `RuntimeReady`, `NetworkReady`, or another one, which is ignored.
    pub kind: String,
    /// Whether it is met.
    pub status: bool,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl CriCondition {
    /// Ready's lines about the runtime and the network (kubelet.go updateRuntimeUp).
    pub fn lines(conditions: &[Self]) -> [Option<String>; 2] {
        [
            ("container runtime not ready", "RuntimeReady"),
            ("container runtime network not ready", "NetworkReady"),
        ]
        .map(|(line, kind)| match conditions.iter().find(|c| c.kind == kind) {
            Some(Self { status: true, .. }) => None,
            Some(Self { reason, message, .. }) => {
                Some(format!("{line}: {kind}=false reason:{reason} message:{message}"))
            }
            None => Some(format!("{line}: <nil>")),
        })
    }
}

/// Type and version of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`, `cri-o`, `docker`, `podman`.
    pub kind: String,
    /// As the runtime tells it: `2.1.9+unknown`.
    pub version: String,
}

impl RuntimeVersion {
    /// `None` unless the type is 1 to 64 of `[A-Za-z0-9._-]` and the version is not empty.
    pub fn new(kind: String, version: String) -> Option<Self> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_valid = (1..=64).contains(&kind.len()) && kind.bytes().all(is_word);
        (is_valid && !version.is_empty()).then_some(Self { kind, version })
    }

    /// `containerd://2.1.9`. A version that cannot be parsed is `Unknown`.
    pub fn text(&self) -> String {
        let version = printed(&self.version);
        format!("{}://{}", self.kind, version.as_deref().unwrap_or("Unknown"))
    }
}

/// The version part of `status.nodeInfo.containerRuntimeVersion`, as apimachinery
/// `pkg/util/version` prints a parsed version; `None` if it is no version. A semantic version is
/// printed whole, any other one as its numbers: `1.6.20~ds1` is `1.6.20`.
fn printed(version: &str) -> Option<String> {
    let text = version.trim_start();
    let text = text.strip_prefix('v').unwrap_or(text);
    // `digits(.digits)*`, then the rest.
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let parts = text.get(..end)?.split('.');
    let numbers: Vec<&str> = parts.take_while(|part| !part.is_empty()).collect();
    let values: Option<Vec<u64>> = numbers.iter().map(|number| number.parse().ok()).collect();
    let values = values?;
    let rest = text.get(numbers.join(".").len()..)?;
    let is_semantic = numbers.len() == 3 && !numbers.iter().any(|n| is_padded(n));
    if is_semantic && is_suffix(rest) {
        return Some(text.to_owned());
    }
    if numbers.len() < 2 || numbers.first().is_some_and(|first| is_padded(first)) {
        return None;
    }
    let values: Vec<String> = values.iter().map(u64::to_string).collect();
    Some(values.join("."))
}

/// Most names of one image (MaxNamesPerImageInNodeStatus). It is also the most digests, and the
/// most tags, that are read for one image.
pub const MAX_NAMES: usize = 5;
/// Bytes of one name; an image with a longer one is skipped.
const MAX_NAME_BYTES: usize = 1 << 10;
/// Most images, and most bytes of their names and ids, whatever `--node-status-max-images` is.
const MAX_IMAGES: usize = 1000;
const MAX_BYTES: usize = 256 << 10;

/// The largest images of a list. Its other images are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// By size, then id, both descending.
    largest: Vec<Image>,
    max: usize,
    /// The sum of [`text_bytes`] of all kept images.
    bytes: usize,
    /// Number of images in the list.
    pub count: u64,
}

impl Images {
    /// An empty list. `max` is `--node-status-max-images`; a negative `max` is no limit. In any
    /// case at most 1,000 images, and 256 KiB of names and ids, are kept.
    pub fn new(max: i32) -> Self {
        Self {
            largest: Vec::new(),
            max: usize::try_from(max).unwrap_or(MAX_IMAGES).min(MAX_IMAGES),
            bytes: 0,
            count: 0,
        }
    }

    /// Counts an image, and keeps it if it is one of the largest.
    pub fn push(&mut self, mut image: Image) {
        self.count = self.count.saturating_add(1);
        image.names.truncate(MAX_NAMES);
        if image.names.iter().any(|name| name.len() > MAX_NAME_BYTES) {
            return;
        }
        let new = (image.size_bytes, &image.id);
        let place = self.largest.partition_point(|other| (other.size_bytes, &other.id) > new);
        if place >= self.max {
            return;
        }
        self.bytes += text_bytes(&image);
        self.largest.insert(place, image);
        while self.largest.len() > self.max || self.bytes > MAX_BYTES {
            let Some(smallest) = self.largest.pop() else {
                return;
            };
            self.bytes -= text_bytes(&smallest);
        }
    }

    /// The images that the Node reports. A runtime may list the same names of an image in another
    /// order each time: then the order of `before` is kept, so that the Node does not change.
    pub fn reported(self, before: &[Image]) -> Vec<Image> {
        let mut images = self.largest;
        for image in &mut images {
            if let Some(old) = before.iter().find(|old| old.id == image.id)
                && old.names.len() == image.names.len()
                && old.names.iter().all(|name| image.names.contains(name))
            {
                image.names.clone_from(&old.names);
            }
        }
        images
    }
}

/// Bytes of the id and the names of an image, which [`MAX_BYTES`] limits.
fn text_bytes(image: &Image) -> usize {
    image.names.iter().fold(image.id.len(), |sum, name| sum + name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// setters_test.go TestVersionInfo.
    #[test]
    fn a_version_has_its_type() {
        let version = |kind: &str, version: &str| RuntimeVersion::new(kind.into(), version.into());
        let known = version("containerd", "2.1.9+unknown").unwrap();
        assert_eq!(known.text(), "containerd://2.1.9+unknown");
        assert_eq!(version("cri-o", "devel").unwrap().text(), "cri-o://Unknown");
        for (kind, text) in [("", "1.0"), ("containerd", ""), ("a b", "1.0"), ("ä", "1.0")] {
            assert_eq!(version(kind, text), None);
        }
        assert_eq!(version(&"x".repeat(65), "1.0"), None);
    }

    /// Measured versions of containerd, dockerd and Podman, and the strings of version_test.go
    /// TestSemanticVersions, TestBadSemanticVersions, TestGenericVersions and
    /// TestBadGenericVersions.
    #[test]
    fn a_version_is_printed_as_upstream_prints_it() {
        for (version, want) in [
            ("1.6.20~ds1", Some("1.6.20")),
            ("2.1.9+unknown", Some("2.1.9+unknown")),
            ("20.10.24+dfsg1", Some("20.10.24+dfsg1")),
            ("5.4.2", Some("5.4.2")),
            ("v1.7.24", Some("1.7.24")),
            ("  v1.2.3", Some("1.2.3")),
            ("1.29.0-rc.1+meta.7", Some("1.29.0-rc.1+meta.7")),
            ("0.0.1-alpha", Some("0.0.1-alpha")),
            ("1.0.0-x-y-z.-", Some("1.0.0-x-y-z.-")),
            ("1.0.0+001", Some("1.0.0+001")),
            // Not semantic.
            ("1.0.0-01", Some("1.0.0")),
            ("1.0.0-", Some("1.0.0")),
            ("1.0.0+", Some("1.0.0")),
            ("1.0.0-a..b", Some("1.0.0")),
            ("1.02.3", Some("1.2.3")),
            ("17.03.1-ce", Some("17.3.1")),
            ("1.11.2-beta with text", Some("1.11.2")),
            ("2", None),
            ("02.1", None),
            ("0.1", Some("0.1")),
            ("1.2.3.4", Some("1.2.3.4")),
            ("1.2.", Some("1.2")),
            ("1.2.3 ", Some("1.2.3")),
            ("99999999999999999999.1", None),
            ("", None),
            ("v", None),
            ("vv1.2", None),
            ("unknown", None),
            (".1.2", None),
            ("-1.2", None),
        ] {
            assert_eq!(printed(version).as_deref(), want, "{version:?}");
        }
    }

    fn image(id: &str, size_bytes: u64, names: &[&str]) -> Image {
        Image {
            id: id.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            size_bytes,
        }
    }

    fn told(max: i32, images: &[(&str, u64)]) -> Vec<String> {
        let mut all = Images::new(max);
        for (id, size) in images {
            all.push(image(id, *size, &[]));
        }
        assert_eq!(all.count, u64::try_from(images.len()).unwrap());
        let told = all.reported(&[]);
        told.into_iter().map(|image| image.id).collect()
    }

    /// setters_test.go TestImages, kubelet_node_status_test.go TestUpdateNewNodeStatus (six images
    /// at a limit of five, and no limit), sliceutils_test.go TestByImageSize.
    #[test]
    fn the_largest_images_are_told_by_size_then_id_descending() {
        let sizes = [("3", 3), ("1", 1), ("4", 4), ("2", 2)];
        for (max, images, want) in [
            (1, &[("a", 1), ("b", 2)][..], &["b"][..]),
            (-1, &sizes, &["4", "3", "2", "1"]),
            (0, &sizes, &[]),
            (2, &[("3", 3), ("4", 3), ("1", 1)], &["4", "3"]),
            (2, &[("4", 3), ("3", 3), ("1", 1)], &["4", "3"]),
            (
                5,
                &[("1", 1), ("2", 1), ("3", 1), ("4", 1), ("5", 1), ("6", 1)],
                &["6", "5", "4", "3", "2"],
            ),
        ] {
            assert_eq!(told(max, images), want, "{max} {images:?}");
        }
    }

    #[test]
    fn at_most_five_names_are_told_and_an_image_with_a_longer_one_is_skipped() {
        let mut images = Images::new(10);
        images.push(image("six", 1, &["1", "2", "3", "4", "5", "6"]));
        images.push(image("fits", 2, &["x".repeat(1024).as_str()]));
        images.push(image("long", 3, &["x".repeat(1025).as_str()]));
        assert_eq!(images.count, 3);
        let told = images.reported(&[]);
        assert_eq!(told.len(), 2);
        assert_eq!(told[1].names, ["1", "2", "3", "4", "5"]);
    }

    #[test]
    fn another_order_of_the_names_is_no_change() {
        let before = [image("a", 1, &["x", "y"]), image("b", 1, &["x"])];
        for (names, want) in [(&["y", "x"][..], ["x", "y"]), (&["y", "z"], ["y", "z"])] {
            let mut images = Images::new(10);
            images.push(image("a", 1, names));
            assert_eq!(images.reported(&before)[0].names, want);
        }
    }

    #[test]
    fn memory_is_bounded_without_a_limit() {
        let mut images = Images::new(-1);
        let name = "n".repeat(1024);
        for size in 0..10_000 {
            images.push(image("0123456789", size, &[name.as_str(); 9]));
            assert!(images.bytes <= MAX_BYTES);
        }
        assert_eq!(images.count, 10_000);
        let told = images.reported(&[]);
        assert_eq!(told.len(), MAX_BYTES / (5 * 1024 + 10));
        assert_eq!(told[0].size_bytes, 9_999);

        let mut images = Images::new(-1);
        (0..3000).for_each(|size| images.push(image("x", size, &[])));
        assert_eq!(images.reported(&[]).len(), 1000);
    }
}
