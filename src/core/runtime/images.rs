//! `status.images`: which images a Node tells, and their order and names.
//! Upstream: `pkg/kubelet/util/sliceutils`, `pkg/kubelet/nodestatus/setters.go` Images.

/// Names of one image (MaxNamesPerImageInNodeStatus), and digests or tags that are read of one.
pub const MAX_NAMES: usize = 5;
/// Bytes of one name; an image with a longer one is skipped.
const MAX_NAME_BYTES: usize = 1 << 10;
/// Without a limit of their number: images, and bytes of their names and ids.
const MAX_IMAGES: usize = 1000;
const MAX_BYTES: usize = 256 << 10;

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The runtime's id; not told, it orders images of one size.
    pub id: String,
    /// Digests, then tags.
    pub names: Vec<String>,
    /// Bytes on disk: unpacked for Docker, Podman and CRI-O, compressed for containerd.
    pub size_bytes: u64,
}

impl Image {
    fn bytes(&self) -> usize {
        self.names
            .iter()
            .fold(self.id.len(), |sum, n| sum + n.len())
    }
}

/// The largest images of a list of any length, which is never held as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// By size, then id, both descending.
    largest: Vec<Image>,
    max: usize,
    bytes: usize,
    /// Number of images in the list.
    pub count: u64,
}

impl Images {
    /// An empty list. `max` is `--node-status-max-images`; negative is no limit but that of memory:
    /// 1,000 images and 256 KiB.
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
        let place = self
            .largest
            .partition_point(|other| (other.size_bytes, &other.id) > new);
        if place >= self.max {
            return;
        }
        self.bytes += image.bytes();
        self.largest.insert(place, image);
        while self.largest.len() > self.max || self.bytes > MAX_BYTES {
            let Some(smallest) = self.largest.pop() else {
                return;
            };
            self.bytes -= smallest.bytes();
        }
    }

    /// The images that the Node tells. A runtime may list the names of an image in another order
    /// each time: the order of `before` is kept, so that it is no change.
    pub fn told(self, before: &[Image]) -> Vec<Image> {
        let mut told = self.largest;
        for image in &mut told {
            if let Some(old) = before.iter().find(|old| old.id == image.id)
                && old.names.len() == image.names.len()
                && old.names.iter().all(|name| image.names.contains(name))
            {
                image.names.clone_from(&old.names);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let told = all.told(&[]);
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
        let told = images.told(&[]);
        assert_eq!(told.len(), 2);
        assert_eq!(told[1].names, ["1", "2", "3", "4", "5"]);
    }

    #[test]
    fn another_order_of_the_names_is_no_change() {
        let before = [image("a", 1, &["x", "y"]), image("b", 1, &["x"])];
        for (names, want) in [(&["y", "x"][..], ["x", "y"]), (&["y", "z"], ["y", "z"])] {
            let mut images = Images::new(10);
            images.push(image("a", 1, names));
            assert_eq!(images.told(&before)[0].names, want);
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
        let told = images.told(&[]);
        assert_eq!(told.len(), MAX_BYTES / (5 * 1024 + 10));
        assert_eq!(told[0].size_bytes, 9_999);

        let mut images = Images::new(-1);
        (0..3000).for_each(|size| images.push(image("x", size, &[])));
        assert_eq!(images.told(&[]).len(), 1000);
    }
}
