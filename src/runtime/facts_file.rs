//! The output of `nodelet runtime`, which another unit writes to a file, and which an endpoint
//! `file://` reads: who has the network then has no access to the socket of the runtime.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::core::runtime::{Failure, Found, Handler, Image, Images, Status, Step, Version};
use crate::files::read::read;
use crate::kube::text::one_line;

/// A file that is older says nothing about the runtime.
const MAX_AGE: Duration = Duration::from_secs(30);

/// The document. Times are of CLOCK_BOOTTIME, so that a step of the wall clock changes no age.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    boot_milliseconds: u64,
    status: ReadyLines,
    runtime: Option<String>,
    version: Option<String>,
    images: Option<Vec<Listed>>,
    image_count: Option<u64>,
    image_folder: Option<String>,
    handlers: Vec<ListedHandler>,
    supplemental_groups_policy: Option<bool>,
}

#[derive(Deserialize)]
struct ReadyLines {
    runtime: Option<String>,
    network: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    id: String,
    names: Vec<String>,
    size_bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedHandler {
    name: String,
    recursive_read_only_mounts: bool,
    user_namespaces: bool,
}

/// What a look found, as JSON; the failure if it found no status. `since_boot` is the time of the
/// look.
pub(crate) fn write(found: Found, since_boot: Duration) -> Result<Value, Failure> {
    let status = found.status?;
    let count = found.images.as_ref().map(|images| images.count);
    let images = found.images.map(|images| {
        let images = images.told(&[]).into_iter();
        images
            .map(|i| json!({"id": i.id, "names": i.names, "sizeBytes": i.size_bytes}))
            .collect::<Vec<Value>>()
    });
    let handlers: Vec<Value> = status
        .handlers
        .into_iter()
        .map(|handler| {
            json!({
                "name": handler.name,
                "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
                "userNamespaces": handler.user_namespaces,
            })
        })
        .collect();
    Ok(json!({
        "bootMilliseconds": u64::try_from(since_boot.as_millis()).unwrap_or(u64::MAX),
        "status": {"runtime": status.runtime, "network": status.network},
        "runtime": found.version.as_ref().map(|version| &version.kind),
        "version": found.version.as_ref().map(|version| &version.version),
        "images": images,
        "imageCount": count,
        "imageFolder": found.image_folder,
        "handlers": handlers,
        "supplementalGroupsPolicy": status.supplemental_groups_policy,
    }))
}

/// Reads the file at `path`. `images` is an empty list.
pub(super) fn look(path: &Path, images: Images, since_boot: Duration) -> Found {
    let failed = |at, cause: String| {
        Found::failed(Failure {
            at,
            cause: format!("{}: {cause}", path.display()),
            remedy: "is the timer that runs nodelet runtime active?",
        })
    };
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(cause) => return failed(Step::Socket, cause),
    };
    match parse(&bytes, images, since_boot) {
        Ok(found) => found,
        Err(cause) => failed(Step::Api, cause),
    }
}

/// What the document says; the error is one line.
pub fn parse(bytes: &[u8], mut images: Images, since_boot: Duration) -> Result<Found, String> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| format!("not the output of nodelet runtime: {error}"))?;
    let age = since_boot
        .checked_sub(Duration::from_millis(document.boot_milliseconds))
        .ok_or("it is of another boot")?;
    if age >= MAX_AGE {
        return Err(format!("it is {} s old", age.as_secs()));
    }
    let images = document.images.map(|listed| {
        for image in listed {
            images.push(Image {
                id: image.id,
                names: image.names.iter().map(|name| one_line(name)).collect(),
                size_bytes: image.size_bytes,
            });
        }
        images.count = document.image_count.unwrap_or(images.count);
        images
    });
    let handler = |listed: ListedHandler| Handler {
        name: one_line(&listed.name),
        recursive_read_only_mounts: listed.recursive_read_only_mounts,
        user_namespaces: listed.user_namespaces,
    };
    let version = document.runtime.zip(document.version);
    Ok(Found {
        status: Ok(Status {
            runtime: document.status.runtime.as_deref().map(one_line),
            network: document.status.network.as_deref().map(one_line),
            handlers: document.handlers.into_iter().map(handler).collect(),
            supplemental_groups_policy: document.supplemental_groups_policy,
        }),
        version: version.and_then(|(kind, version)| Version::new(kind, one_line(&version))),
        images,
        list_is_large: false,
        image_folder: document.image_folder.filter(|path| path.starts_with('/')),
        errors: Vec::new(),
        age,
    })
}
