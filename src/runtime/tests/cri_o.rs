//! Answers of CRI-O 1.37, which no Debian has, as its source builds them: the messages are encoded
//! by protoc from its copy of `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`, the headers by the
//! rules of grpc-go 1.80 and `golang.org/x/net/http2/hpack`. File names are those of CRI-O.

use super::*;

/// `server/runtime_status.go`, with a network: the default runtime a second time, without a name; a
/// feature that is false is left out. Their order is random.
pub(super) const READY: &[u8] = b"\
    \n$\n\x10\n\x0cRuntimeReady\x10\x01\n\x10\n\x0cNetworkReady\x10\x01\x1a\x0c\n\x04runc\x12\
    \x04\x08\x01\x10\x01\x1a\x0c\n\x04crun\x12\x04\x08\x01\x10\x01\x1a\x06\x12\x04\x08\x01\x10\
    \x01\x1a\x08\n\x04kata\x12\0\"\x04\x08\x01\x10\x01";
/// The same without a network; the text is of
/// `vendor/github.com/cri-o/ocicni/pkg/ocicni/ocicni.go`.
const NO_CNI: &[u8] = b"\
    \n\xaa\x01\n\x10\n\x0cRuntimeReady\x10\x01\n\x95\x01\n\x0cNetworkReady\x1a\x15NetworkPluginN\
    otReady\"nNetwork plugin returns error: no CNI configuration file in /etc/cni/net.d/. Has yo\
    ur network provider started?\x1a\x0c\n\x04runc\x12\x04\x08\x01\x10\x01\x1a\x0c\n\x04crun\x12\
    \x04\x08\x01\x10\x01\x1a\x06\x12\x04\x08\x01\x10\x01\x1a\x08\n\x04kata\x12\0\"\x04\x08\x01\
    \x10\x01";
/// `server/version.go`.
pub(super) const VERSION: &[u8] = b"\
    \n\x050.1.0\x12\x05cri-o\x1a\x061.37.0\"\x02v1";
/// `server/image_list.go`: identifiers without `sha256:`. The second one has lost its tag, the last
/// one is an artifact without a size (`internal/ociartifact/artifact.go`).
const IMAGES: &[u8] = b"\
    \n\xc9\x01\n@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x12\x1aregistr\
    y.k8s.io/pause:3.10\x1a]registry.k8s.io/pause@sha256:111111111111111111111111111111111111111\
    1111111111111111111111111 \xd7\xa5-*\x04\x08\xff\xff\x03@\x01\n\xa6\x01\n@bbbbbbbbbbbbbbbbbb\
    bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\x1aWquay.io/lab/app@sha256:222222222222222222\
    2222222222222222222222222222222222222222222222 \x80\x80\x80\x80\x0c2\x03www\n\xa2\x01\n@cccc\
    cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\x1a\\quay.io/lab/artifact@sha25\
    6:3333333333333333333333333333333333333333333333333333333333333333*\0";
/// `server/image_fs_info.go`: the same folder for images and containers.
pub(super) const IMAGE_FS: &[u8] = b"\
    \nC\x08\x80\xc4\x8a\xe8\xe1\xdc\xf6\xe6\x18\x12,\n*/var/lib/containers/storage/overlay-image\
    s\x1a\x05\x08\x95\x9a\xef:\"\x02\x08*\x12C\x08\x80\xc4\x8a\xe8\xe1\xdc\xf6\xe6\x18\x12,\n*/v\
    ar/lib/containers/storage/overlay-images\x1a\x05\x08\x95\x9a\xef:\"\x02\x08*";
/// The same, with `imagestore` in `storage.conf`.
const SPLIT: &[u8] = b"\
    \n,\x08\x80\xc4\x8a\xe8\xe1\xdc\xf6\xe6\x18\x12\x18\n\x16/images/overlay-images\x1a\x02\x08\
    \x05\"\x02\x08\x06\x12D\x08\x80\xc4\x8a\xe8\xe1\xdc\xf6\xe6\x18\x120\n./var/lib/containers/s\
    torage/overlay-containers\x1a\x02\x08\x01\"\x02\x08\x02";
/// An error of `server/image_fs_info.go`: it has no code, and grpc-go sends it as 2, with the
/// headers in one block.
const FAILED: &[u8] = b"\
     \x20\x88\x0f\x10\x8b\x1du\xd0b\x0d&=LMed\0\x88\x9a\xca\xc8\xb2\x124\xda\x8f\x012\0\x89\x9a\xca\
    \xc8\xb5%B\x071\x7f\xff\"\x98\xa9P\xd4\x8eb\xa9*\x145R\x9dKj\x1ct\x15D\x9dI\x8a\x95-@\xe6*\
    \x92\x9e\xc5\x18\xee;\x18\xa0\xd1\xb0C\xd4\x91\x9a\xa2\xd8\x86\x10\x93\xd89\x8a\xc1\xfb\x96\
    \xca\x07\xe9cR9\x8a\x8b\x8aLT\xa9!\x91\xd5KP9\x8a\xa4\xa7\xb1J\xc6\x99\xd4c\xb8\xecb\x83F\
    \xc1\x0fRFj\x8bb\x18BO`\xe6+\x07\xee[(\x1f\xa5\x8dH\xe6*.)B\x124\xa8\xc7q\xd8\xc5\x06\x8d\
    \x82\x1e\xa4\x8c\xd5\x16\xc40\x84\x9e\xc1\xccV\x0f\xdc\xb6P?K\x1a\x91\xccT\\R\xa3\xa8\x8bI:\
    \x92\x9a\x82\xa8{\x14\x90\xd6\x14\x89=\x9e\xbf";

/// The headers of an answer, with table size 0.
const HEADERS: &[u8] = b"\x20\x88\x0f\x10\x8b\x1du\xd0b\r&=LMed";
/// Its trailers: `grpc-status` 0, and an empty `grpc-message`.
const TRAILERS: &[u8] =
    b"\0\x88\x9a\xca\xc8\xb2\x124\xda\x8f\x010\0\x89\x9a\xca\xc8\xb5%B\x071\x7f\0";

/// SETTINGS without a value, which `cmux` sends before grpc-go's (`cmd/crio/main.go`), and the
/// answers in the order of the calls: Status, Version, ImageFsInfo, ListImages.
pub(super) fn answers(status: &[u8], image_fs: &[u8]) -> Vec<u8> {
    let mut bytes = [frame(4, 0, 0, &[]), settings(), frame(4, 1, 0, &[])].concat();
    for (stream, message) in [(1, status), (3, VERSION), (5, image_fs), (7, IMAGES)] {
        match message {
            FAILED => bytes.extend(frame(1, 5, stream, FAILED)),
            message => {
                bytes.extend(frame(1, 4, stream, HEADERS));
                bytes.extend(frame(0, 0, stream, &prefixed(message)));
                bytes.extend(frame(1, 5, stream, TRAILERS));
            }
        }
    }
    bytes
}

#[test]
fn the_answers_of_cri_o_in_any_pieces() {
    let bytes = healthy();
    let found = cri(ALL, &bytes, bytes.len());
    for piece in [1, 2, 3, 7, 9, 10, 100] {
        assert_eq!(cri(ALL, &bytes, piece), found, "{piece}");
    }
    assert_eq!(found.errors, [""; 0]);
    assert_eq!(found.version.as_ref().unwrap().text(), "cri-o://1.37.0");
    let status = found.status.clone().unwrap();
    assert_eq!((status.runtime, status.network), (None, None));
    assert_eq!(status.supplemental_groups_policy, Some(true));
    let handlers = status.handlers.iter().map(|handler| {
        let features = (handler.recursive_read_only_mounts, handler.user_namespaces);
        (handler.name.as_str(), features)
    });
    // kubelet's runtime.go sorts them.
    let (yes, no) = ((true, true), (false, false));
    let want = [("", yes), ("crun", yes), ("kata", no), ("runc", yes), ("x", (true, false))];
    assert_eq!(handlers.collect::<Vec<_>>(), want);
    let folder = "/var/lib/containers/storage/overlay-images";
    assert_eq!(found.image_folder.as_deref(), Some(folder));
    let images = told(&found);
    let sizes: Vec<u64> = images.iter().map(|image| image.size_bytes).collect();
    assert_eq!(sizes, [3 << 30, 742_103, 0]);
    let digest = |name: &str, digit: &str| format!("{name}@sha256:{}", digit.repeat(64));
    let pause = digest("registry.k8s.io/pause", "1");
    assert_eq!(images[0].id, "b".repeat(64));
    assert_eq!(images[0].names, [digest("quay.io/lab/app", "2")]);
    assert_eq!(images[1].names, [pause.as_str(), "registry.k8s.io/pause:3.10"]);
    assert_eq!(images[2].names, [digest("quay.io/lab/artifact", "3")]);
}

#[test]
fn what_else_cri_o_can_answer() {
    let network = "container runtime network not ready: NetworkReady=false \
                   reason:NetworkPluginNotReady message:Network plugin returns error: no CNI \
                   configuration file in /etc/cni/net.d/. Has your network provider started?";
    let path = "/var/lib/containers/storage/overlay-images";
    let error = format!(
        "ImageFsInfo: rpc error: code = Unknown desc = get image fs info unable to get usage for \
         {path}: get disk usage for path {path}: lstat {path}: no such file or directory"
    );
    let none = "ImageFsInfo: the answer names no folder of the images".to_owned();
    for (status, image_fs, network, folder, errors) in [
        (NO_CNI, IMAGE_FS, Some(network), Some(path), vec![]),
        (READY, SPLIT, None, Some("/images/overlay-images"), vec![]),
        (READY, FAILED, None, None, vec![error]),
        (READY, b"", None, None, vec![none]),
    ] {
        let found = cri(ALL, &answers(status, image_fs), 50);
        assert_eq!(found.status.unwrap().network.as_deref(), network);
        assert_eq!(found.image_folder.as_deref(), folder);
        assert_eq!(found.errors, errors);
        assert!(found.images.is_some());
    }
}
