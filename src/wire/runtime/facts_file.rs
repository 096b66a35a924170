//! The output of `nodelet runtime`, which another unit writes to a file, and which an endpoint
//! `file://` reads: who has the network then has no access to the socket of the runtime.
//!
//! The time in it is of CLOCK_BOOTTIME, so that a step of the wall clock changes no age.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::runtime::RuntimeConfig;
use crate::core::runtime::{Failure, Found, Handler, Image, Images, Status, Step, Version};
use crate::files::read::read;
use crate::kube::text::one_line;
use crate::kube::{self, object};

/// A file that is older says nothing about the runtime.
const MAX_AGE: Duration = Duration::from_secs(30);

/// What a look found, as JSON; the failure if it found no status. `since_boot` is the time of the
/// look, from which the age of what it found is taken: a copy of a file is as old as the file.
pub(crate) fn write(found: Found, since_boot: Duration) -> Result<Value, Failure> {
    let status = found.status?;
    let at = since_boot.saturating_sub(found.age);
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
        "bootMilliseconds": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
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

/// Reads the file.
pub(super) fn look(config: &RuntimeConfig, since_boot: Duration) -> Found {
    let path = &config.path;
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
    match parse(&bytes, Images::new(config.max_images), since_boot) {
        Ok(found) => found,
        Err(cause) => failed(Step::Api, cause),
    }
}

/// What the document says; the error is one line. `images` is an empty list.
pub fn parse(bytes: &[u8], mut images: Images, since_boot: Duration) -> Result<Found, String> {
    let document = kube::json::parse(bytes).unwrap_or_default();
    let (Some(at), Some(status)) = (
        document.get("bootMilliseconds").and_then(Value::as_u64),
        document.get("status").filter(|status| status.is_object()),
    ) else {
        return Err("not the output of nodelet runtime".to_owned());
    };
    let age = since_boot
        .checked_sub(Duration::from_millis(at))
        .ok_or("it is of another boot")?;
    if age >= MAX_AGE {
        return Err(format!("it is {} s old", age.as_secs()));
    }
    let line = |key: &str| status.get(key).and_then(Value::as_str).map(one_line);
    let text = |value: &Value, key: &str| one_line(object::text(value, &[key]));
    let images = document
        .get("images")
        .filter(|list| list.is_array())
        .map(|_| {
            for image in object::list(&document, &["images"]) {
                let names = object::list(image, &["names"]).iter();
                images.push(Image {
                    id: text(image, "id"),
                    names: names.filter_map(Value::as_str).map(one_line).collect(),
                    size_bytes: image.get("sizeBytes").and_then(Value::as_u64).unwrap_or(0),
                });
            }
            let count = document.get("imageCount").and_then(Value::as_u64);
            images.count = count.unwrap_or(images.count);
            images
        });
    let handler = |listed: &Value| {
        let has = |key: &str| listed.get(key) == Some(&Value::Bool(true));
        Handler {
            name: text(listed, "name"),
            recursive_read_only_mounts: has("recursiveReadOnlyMounts"),
            user_namespaces: has("userNamespaces"),
        }
    };
    let folder = object::text(&document, &["imageFolder"]);
    Ok(Found {
        status: Ok(Status {
            runtime: line("runtime"),
            network: line("network"),
            handlers: object::list(&document, &["handlers"])
                .iter()
                .map(handler)
                .collect(),
            supplemental_groups_policy: document
                .get("supplementalGroupsPolicy")
                .and_then(Value::as_bool),
        }),
        version: Version::new(text(&document, "runtime"), text(&document, "version")),
        images,
        list_is_large: false,
        image_folder: folder.starts_with('/').then(|| folder.to_owned()),
        errors: Vec::new(),
        age,
    })
}
