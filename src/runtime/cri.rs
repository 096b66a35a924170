//! The Container Runtime Interface: which calls a question makes, and what their answers mean.
//! Upstream: `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`.

use super::config::RuntimeConfig;
use super::grpc::{RuntimeConnection, call};
use super::report::{
    CriCondition, FailedAt, Images, LARGE_LIST, MAX_NAMES, Part, RuntimeFailure, RuntimeReport,
    RuntimeVersion, Status,
};
use super::socket::OpenStream;
use crate::kube::facts::{Handler, Image};
use crate::kube::protobuf::{WireValue, field, fields};
use crate::kube::text::one_line;

/// Paths of the calls.
const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const STATUS: &str = "/runtime.v1.RuntimeService/Status";
const LIST_IMAGES: &str = "/runtime.v1.ImageService/ListImages";
const IMAGE_FS_INFO: &str = "/runtime.v1.ImageService/ImageFsInfo";

/// The kubelet's own API version, the one field of Version's request.
const KUBELET_API: &[u8] = b"\x0a\x050.1.0";

const MAX_CONDITIONS: usize = 16;
const MAX_HANDLERS: usize = 64;

/// The connections to the runtime, which are kept between two questions.
#[derive(Debug, Default)]
pub struct Cri {
    runtime: Option<RuntimeConnection>,
    /// To the socket of the image service, if that is another one.
    images: Option<RuntimeConnection>,
}

impl Cri {
    /// Asks for `last` and the parts before it, one call after the other. Calls `on_part` before
    /// each part but the status, with the report so far.
    pub fn ask(
        &mut self,
        config: &RuntimeConfig,
        last: Part,
        open: OpenStream<'_>,
        on_part: &mut dyn FnMut(Part, &RuntimeReport),
    ) -> RuntimeReport {
        let runtime = &mut self.runtime;
        let mut report = RuntimeReport::new(
            call(runtime, &config.path, STATUS, &[], open).and_then(|answer| status(&answer)),
        );
        // Without a connection the other calls fail as well.
        let is_connected = report.status.is_ok() || runtime.is_some();
        if last < Part::Details || !is_connected {
            return report;
        }
        on_part(Part::Details, &report);
        report.asked = Part::Details;
        let answer = call(runtime, &config.path, VERSION, KUBELET_API, open);
        report.version = report.take(answer.and_then(|answer| version(&answer)));
        let (images, socket) = match &config.image_path {
            Some(path) => (&mut self.images, path),
            None => (runtime, &config.path),
        };
        let info = call(images, socket, IMAGE_FS_INFO, &[], open);
        report.image_folder = report.take(info.and_then(|info| mount_point(&info)));
        if last < Part::List {
            return report;
        }
        on_part(Part::List, &report);
        report.asked = Part::List;
        let list = call(images, socket, LIST_IMAGES, &[], open);
        report.list_is_large = match &list {
            Ok(list) => list.len() > LARGE_LIST,
            Err(failure) => failure.at == FailedAt::Size,
        };
        let images = list.and_then(|list| images_of(&list, config.max_images));
        report.images = report.take(images);
        report
    }
}

fn status(answer: &[u8]) -> Result<Status, RuntimeFailure> {
    let mut status = Status::default();
    let mut conditions = None;
    let read = fields(answer, &mut |number, value| {
        match number {
            1 => {
                let conditions = conditions.get_or_insert_with(Vec::new);
                fields(value.bytes(), &mut |number, value| {
                    if number == 1 && conditions.len() < MAX_CONDITIONS {
                        conditions.push(condition(value.bytes())?);
                    }
                    Some(())
                })?;
            }
            3 if status.handlers.len() < MAX_HANDLERS => {
                status.handlers.push(handler(value.bytes())?);
            }
            4 => {
                let policy = status.supplemental_groups_policy.get_or_insert(false);
                fields(value.bytes(), &mut |number, value| {
                    *policy |= number == 1 && value.number() != 0;
                    Some(())
                })?;
            }
            _ => {}
        }
        Some(())
    });
    whole("Status", read)?;
    let conditions =
        conditions.ok_or_else(|| RuntimeFailure::api("Status: the answer has no status"))?;
    [status.runtime, status.network] = CriCondition::lines(&conditions);
    status.handlers.sort();
    Ok(status)
}

/// What was read of the answer to `call`; an error if it or an inner message is no protobuf.
fn whole<T>(call: &str, read: Option<T>) -> Result<T, RuntimeFailure> {
    read.ok_or_else(|| RuntimeFailure::api(format!("{call}: the answer is no protobuf")))
}

fn version(answer: &[u8]) -> Result<RuntimeVersion, RuntimeFailure> {
    let (mut kind, mut version) = (String::new(), String::new());
    let read = fields(answer, &mut |number, value| {
        match number {
            2 => kind = value.text(),
            3 => version = value.text(),
            _ => {}
        }
        Some(())
    });
    whole("Version", read)?;
    let none = || RuntimeFailure::api("Version: the answer has no name or no version");
    RuntimeVersion::new(kind, version).ok_or_else(none)
}

fn condition(message: &[u8]) -> Option<CriCondition> {
    let mut condition = CriCondition::default();
    fields(message, &mut |number, value| {
        match number {
            1 => condition.kind = value.text(),
            2 => condition.status = value.number() != 0,
            3 => condition.reason = value.text(),
            4 => condition.message = value.text(),
            _ => {}
        }
        Some(())
    })?;
    Some(condition)
}

fn handler(message: &[u8]) -> Option<Handler> {
    let mut handler = Handler::default();
    fields(message, &mut |number, value| match number {
        1 => {
            handler.name = value.text();
            Some(())
        }
        2 => fields(value.bytes(), &mut |number, value| {
            match number {
                1 => handler.recursive_read_only_mounts = value.number() != 0,
                2 => handler.user_namespaces = value.number() != 0,
                _ => {}
            }
            Some(())
        }),
        _ => Some(()),
    })?;
    Some(handler)
}

fn images_of(list: &[u8], max_images: i32) -> Result<Images, RuntimeFailure> {
    let mut images = Images::new(max_images);
    let read = fields(list, &mut |number, value| {
        if number == 1 {
            images.push(image(value.bytes())?);
        }
        Some(())
    });
    whole("ListImages", read)?;
    Ok(images)
}

fn image(message: &[u8]) -> Option<Image> {
    let mut image = Image::default();
    let mut tags = Vec::new();
    fields(message, &mut |number, value| {
        match number {
            1 => image.id = value.text(),
            2 if tags.len() < MAX_NAMES => tags.push(name(value)),
            3 if image.names.len() < MAX_NAMES => image.names.push(name(value)),
            4 => image.size_bytes = value.number(),
            _ => {}
        }
        Some(())
    })?;
    image.names.append(&mut tags);
    Some(image)
}

/// A name is not cut, so that [`Images`] can skip an image whose name is too long.
fn name(value: WireValue<'_>) -> String {
    one_line(&String::from_utf8_lossy(value.bytes()))
}

/// `image_filesystems[0].fs_id.mountpoint`.
fn mount_point(answer: &[u8]) -> Result<String, RuntimeFailure> {
    let mut point = Some(answer);
    for number in [1, 2, 1] {
        point = point.and_then(|message| field(message, number));
    }
    let point = point.map(|bytes| WireValue::Bytes(bytes).text());
    let none = || RuntimeFailure::api("ImageFsInfo: the answer names no folder of the images");
    point.filter(|point| point.starts_with('/')).ok_or_else(none)
}
