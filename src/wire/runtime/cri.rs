//! The Container Runtime Interface: which calls a look makes, and what their answers mean.
//! Upstream: `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`.

use std::path::PathBuf;

use super::Conversation;
use super::http2::Connection;
use super::protobuf::{Value, fields};
use crate::config::runtime::RuntimeConfig;
use crate::core::runtime::{
    Condition, Failure, Found, Handler, Image, Images, LARGE_LIST, Look, MAX_NAMES, Status, Version,
};
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

/// One look by CRI: one connection, or two if the images have a socket of their own.
#[derive(Debug)]
pub struct Cri {
    /// Connections that were not opened yet, in order.
    plan: Vec<(PathBuf, Vec<&'static str>)>,
    calls: Vec<&'static str>,
    connection: Option<Connection>,
    answers: Answers,
    found: Found,
}

/// What the answers said so far.
#[derive(Debug)]
struct Answers {
    kind: String,
    version: String,
    has_status: bool,
    conditions: Vec<Condition>,
    handlers: Vec<Handler>,
    policy: Option<bool>,
    images: Option<Images>,
    image_bytes: usize,
    image_folder: Option<String>,
}

impl Cri {
    /// A look that asks for `look`.
    pub fn new(config: &RuntimeConfig, look: Look) -> Self {
        let (mut runtime, mut image) = (vec![STATUS], Vec::new());
        if look.details {
            runtime.push(VERSION);
            image.extend([LIST_IMAGES, IMAGE_FS_INFO]);
        }
        let mut plan = Vec::new();
        match &config.image_path {
            Some(path) if look.details => plan.push((path.clone(), image)),
            _ => runtime.append(&mut image),
        }
        // The last one is opened first.
        plan.push((config.path.clone(), runtime));
        Self {
            plan,
            calls: Vec::new(),
            connection: None,
            answers: Answers {
                kind: String::new(),
                version: String::new(),
                has_status: false,
                conditions: Vec::new(),
                handlers: Vec::new(),
                policy: None,
                images: Some(Images::new(config.max_images)),
                image_bytes: 0,
                image_folder: None,
            },
            found: Found::failed(Failure::api("no answer")),
        }
    }
}

impl Conversation for Cri {
    fn open(&mut self) -> Option<(PathBuf, Vec<u8>)> {
        let (path, calls) = self.plan.pop()?;
        let requests: Vec<(&'static str, &[u8])> = calls
            .iter()
            .map(|path| match *path {
                VERSION => (VERSION, KUBELET_API),
                path => (path, [].as_slice()),
            })
            .collect();
        let (connection, out) = Connection::open(&requests);
        self.calls = calls;
        self.connection = Some(connection);
        Some((path, out))
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let (calls, answers) = (&self.calls, &mut self.answers);
        let Some(connection) = &mut self.connection else {
            return true;
        };
        connection.take(bytes, out, &mut |call, number, value| {
            if let Some(call) = calls.get(call) {
                answers.on_field(call, number, value);
            }
        });
        connection.is_done()
    }

    fn close(&mut self, failure: Option<Failure>) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let closed = || Failure::api("the runtime has closed the connection");
        connection.abandon(&failure.unwrap_or_else(closed));
        let list = self.calls.iter().position(|call| *call == LIST_IMAGES);
        self.found.list_is_large |= list.is_some_and(|list| connection.is_too_large(list));
        for (call, outcome) in self.calls.iter().zip(connection.outcomes()) {
            self.answers.on_end(call, outcome, &mut self.found);
        }
    }

    fn found(self: Box<Self>) -> Found {
        self.found
    }
}

impl Answers {
    fn on_field(&mut self, call: &str, number: u64, value: Value<'_>) {
        match (call, number) {
            (VERSION, 2) => self.kind = value.text(),
            (VERSION, 3) => self.version = value.text(),
            (STATUS, 1) => {
                self.has_status = true;
                fields(value.bytes(), &mut |number, value| {
                    if number == 1 && self.conditions.len() < MAX_CONDITIONS {
                        self.conditions.push(condition(value.bytes()));
                    }
                });
            }
            (STATUS, 3) if self.handlers.len() < MAX_HANDLERS => {
                self.handlers.push(handler(value.bytes()));
            }
            (STATUS, 4) => {
                let mut policy = false;
                fields(value.bytes(), &mut |number, value| {
                    policy |= number == 1 && value.number() != 0;
                });
                self.policy = Some(policy);
            }
            (LIST_IMAGES, 1) => {
                self.image_bytes = self.image_bytes.saturating_add(value.bytes().len());
                if let Some(images) = &mut self.images {
                    images.push(image(value.bytes()));
                }
            }
            (IMAGE_FS_INFO, 1) if self.image_folder.is_none() => {
                self.image_folder = mount_point(value.bytes());
            }
            _ => {}
        }
    }

    fn on_end(&mut self, call: &str, outcome: Result<(), Failure>, found: &mut Found) {
        let failure = match (call, outcome) {
            (STATUS, Ok(())) if self.has_status => {
                let [runtime, network] = Condition::lines(&self.conditions);
                let mut handlers = std::mem::take(&mut self.handlers);
                handlers.sort();
                found.status = Ok(Status {
                    runtime,
                    network,
                    handlers,
                    supplemental_groups_policy: self.policy,
                });
                return;
            }
            (STATUS, outcome) => {
                let none = || Failure::api("Status: the answer has no status");
                found.status = Err(outcome.err().unwrap_or_else(none));
                return;
            }
            (VERSION, Ok(())) => {
                let kind = std::mem::take(&mut self.kind);
                found.version = Version::new(kind, std::mem::take(&mut self.version));
                match found.version {
                    Some(_) => return,
                    None => Failure::api("Version: the answer has no name or no version"),
                }
            }
            (LIST_IMAGES, Ok(())) => {
                found.images = self.images.take();
                found.list_is_large |= self.image_bytes > LARGE_LIST;
                return;
            }
            (IMAGE_FS_INFO, Ok(())) => {
                found.image_folder = self.image_folder.take();
                return;
            }
            (_, Ok(())) => return,
            (_, Err(failure)) => failure,
        };
        // A connection that failed is told once, with the status.
        if found.status.as_ref().err() != Some(&failure) {
            found.errors.push(failure.to_string());
        }
    }
}

fn condition(message: &[u8]) -> Condition {
    let mut condition = Condition::default();
    fields(message, &mut |number, value| match number {
        1 => condition.kind = value.text(),
        2 => condition.status = value.number() != 0,
        3 => condition.reason = value.text(),
        4 => condition.message = value.text(),
        _ => {}
    });
    condition
}

fn handler(message: &[u8]) -> Handler {
    let mut handler = Handler::default();
    fields(message, &mut |number, value| match number {
        1 => handler.name = value.text(),
        2 => fields(value.bytes(), &mut |number, value| match number {
            1 => handler.recursive_read_only_mounts = value.number() != 0,
            2 => handler.user_namespaces = value.number() != 0,
            _ => {}
        }),
        _ => {}
    });
    handler
}

fn image(message: &[u8]) -> Image {
    let mut image = Image::default();
    let mut tags = Vec::new();
    fields(message, &mut |number, value| match number {
        1 => image.id = value.text(),
        2 if tags.len() < MAX_NAMES => tags.push(name(value)),
        3 if image.names.len() < MAX_NAMES => image.names.push(name(value)),
        4 => image.size_bytes = value.number(),
        _ => {}
    });
    image.names.append(&mut tags);
    image
}

/// A name is not cut, so that [`Images`] can skip an image whose name is too long.
fn name(value: Value<'_>) -> String {
    one_line(&String::from_utf8_lossy(value.bytes()))
}

/// `fs_id.mountpoint` of `FilesystemUsage`.
fn mount_point(message: &[u8]) -> Option<String> {
    let mut point = String::new();
    fields(message, &mut |number, value| {
        if number == 2 {
            fields(value.bytes(), &mut |number, value| {
                if number == 1 {
                    point = value.text();
                }
            });
        }
    });
    Some(point).filter(|point| point.starts_with('/'))
}
