//! The rooms of `src/README.md`, checked: imports point downwards, three rooms never act, only some
//! modules open files and sockets, files are short, and a folder is the one module style.
//!
//! Reads `src/**/*.rs` as text, without comments and test items.

#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs)]

use std::fs;
use std::path::Path;

/// Longest file without its test items, unless its header says `Longer than 300 lines:` and why.
const LONGEST: usize = 300;

/// From the top down: a room may import rooms that stand below it.
const ROOMS: [&str; 14] = [
    "main", "lib", "cli", "agent", "join", "check", "identity", "host", "wire", "process", "core",
    "config", "kube", "files",
];

/// Rooms without a clock, a file, a socket or the environment.
const PURE: [&str; 3] = ["core", "config", "kube"];

/// Names that a pure room must not contain.
const ACTS: [&str; 18] = [
    "std::*",
    "std as ",
    "std::fs",
    "std::io",
    "std::os",
    "std::env::arg",
    "std::env::current",
    "std::env::var",
    "std::process",
    "std::sync",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "nix::",
    "procfs::",
    "rustls::",
    "use ring",
    "ureq::",
];

/// The exception: pki_types are the values of certificates and keys.
const VALUES: &str = "rustls::pki_types";

/// The values of `std::net`. A pure room may name nothing else of it, and not the module alone.
const ADDRESSES: [&str; 6] = [
    "IpAddr",
    "Ipv4Addr",
    "Ipv6Addr",
    "SocketAddr",
    "SocketAddrV4",
    "SocketAddrV6",
];

/// Names of an effect, and the modules that may contain them, with the modules below.
const EFFECTS: [(&[&str], &[&str]); 2] = [
    (
        &["std::fs", "File::", "OpenOptions", "nix::fcntl", "procfs::"],
        &["files", "host", "identity", "process::wakeup"],
    ),
    (
        &[
            "TcpListener",
            "TcpStream",
            "ToSocketAddrs",
            "UdpSocket",
            "UnixDatagram",
            "UnixListener",
            "UnixStream",
            "nix::sys::socket",
        ],
        &["wire", "process", "host::address", "check::probe"],
    ),
];

fn room(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

fn floor(room: &str) -> Option<usize> {
    ROOMS.iter().position(|name| *name == room)
}

/// Whether `path` names `std::net` alone, or an item of it that is no address.
fn names_a_socket(path: &str) -> bool {
    path.split("std::net").skip(1).any(|rest| {
        let item = rest.strip_prefix("::").unwrap_or_default();
        let end = item.find(|c: char| !c.is_alphanumeric());
        !ADDRESSES.contains(&&item[..end.unwrap_or(item.len())])
    })
}

fn is_in(module: &str, place: &str) -> bool {
    let rest = module.strip_prefix(place);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The faults of one file; `module` is its path below the crate.
fn faults(module: &str, text: &str) -> Vec<String> {
    let from = room(module);
    let Some(from_floor) = floor(from) else {
        return vec![format!("{from} is not a room")];
    };
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let lines = production(text);
    let mut faults = Vec::new();
    let length = lines.iter().filter(|line| line.is_some()).count();
    if length > LONGEST && !text.contains("//! Longer than 300 lines: ") {
        faults.push(format!("{length} lines, at most {LONGEST}"));
    }
    let code: Vec<&str> = lines.into_iter().flatten().collect();
    for path in paths(&code) {
        for to in [named(&path, "crate::", ""), named(&path, "super::", parent)].concat() {
            let to = room(&to);
            if to != from && floor(to).is_none_or(|floor| floor <= from_floor) {
                faults.push(format!("imports {to}, which is not below: {path}"));
            } else if PURE.contains(&from) && !PURE.contains(&to) {
                faults.push(format!("{from} is pure, and imports {to}: {path}"));
            }
        }
        let path = path.replace(VALUES, "");
        if PURE.contains(&from) {
            if ACTS.iter().any(|act| path.contains(act)) || names_a_socket(&path) {
                faults.push(format!("{from} is pure: {path}"));
            }
            continue;
        }
        for (names, places) in EFFECTS {
            let named = names.iter().any(|name| path.contains(name));
            if named && !places.iter().any(|place| is_in(module, place)) {
                faults.push(format!("only {places:?} may do this: {path}"));
            }
        }
    }
    faults
}

/// The lines, with a group of imports, `use a::{b, c};`, as `use a::b` and `use a::c`.
fn paths(lines: &[&str]) -> Vec<String> {
    let mut paths = Vec::new();
    let mut import = String::new();
    for line in lines {
        let begins = matches!(
            line.split_once("use "),
            Some(("" | "pub " | "pub(crate) " | "pub(super) ", _))
        );
        if import.is_empty() && !begins {
            paths.push((*line).to_owned());
            continue;
        }
        import.push_str(line);
        if !line.ends_with(';') {
            continue;
        }
        match import.split_once('{') {
            Some((head, group)) => {
                assert!(!group.contains('{'), "a group in a group: {import}");
                let names = group.trim_end_matches(['}', ';']).split(',');
                let names = names.map(str::trim).filter(|name| !name.is_empty());
                paths.extend(names.map(|name| format!("{head}{name}")));
            }
            None => paths.push(import.clone()),
        }
        import.clear();
    }
    paths
}

/// The modules, below the crate, that `line` names after `prefix`. Each further `super::` in a row
/// climbs one module.
fn named(line: &str, prefix: &str, base: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut base = base;
    let mut pieces = line.split(prefix).skip(1).peekable();
    while let Some(rest) = pieces.next() {
        if rest.is_empty() && pieces.peek().is_some() {
            base = base.rsplit_once("::").map_or("", |(parent, _)| parent);
            continue;
        }
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
            .unwrap_or(rest.len());
        let path = format!("{base}::{}", &rest[..end]);
        let path = path.trim_matches(':');
        if !path.is_empty() {
            found.push(path.to_owned());
        }
    }
    found
}

/// Each line, trimmed, empty for a comment; `None` for the lines of a `#[cfg(test)]` item, which
/// rustfmt ends at the indentation where it begins.
fn production(text: &str) -> Vec<Option<&str>> {
    let mut test_item: Option<&str> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let indentation = &line[..line.len() - line.trim_start().len()];
        if let Some(outer) = test_item {
            lines.push(None);
            let ends = line.ends_with(';') || line.trim_start().starts_with('}');
            if indentation == outer && ends {
                test_item = None;
            }
        } else if line.trim() == "#[cfg(test)]" {
            test_item = Some(indentation);
            lines.push(None);
        } else if line.trim_start().starts_with("//") {
            lines.push(Some(""));
        } else {
            lines.push(Some(line.trim()));
        }
    }
    lines
}

/// `src/kube/mod.rs` is `kube`, `src/wire/api.rs` is `wire::api`.
fn module(path: &Path) -> String {
    let path = path.with_extension("");
    let path = match path.ends_with("mod") {
        true => path.parent().unwrap(),
        false => &path,
    };
    path.iter()
        .map(|name| name.to_str().unwrap())
        .collect::<Vec<_>>()
        .join("::")
}

fn source() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every module of the crate with its text, without files of tests.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            found.push((module(path.strip_prefix(source()).unwrap()), text));
        }
    }
}

#[test]
fn imports_point_downwards_and_effects_stay_in_their_rooms() {
    let mut files = Vec::new();
    sources(&source(), &mut files);
    let found: Vec<String> = files
        .iter()
        .flat_map(|(module, text)| {
            let faults = faults(module, text);
            faults.into_iter().map(move |f| format!("{module}: {f}"))
        })
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    for room in ROOMS {
        assert!(
            files.iter().any(|(module, _)| module.starts_with(room)),
            "{room} is empty"
        );
    }
}

/// Each room is a folder or one of four files, and there is one module style: `foo/mod.rs`.
#[test]
fn a_room_is_a_folder_and_a_folder_has_a_mod() {
    let entries = fs::read_dir(source()).unwrap();
    let entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(entries.len() <= 15, "{entries:?}");
    for entry in &entries {
        let name = entry.file_name().unwrap().to_str().unwrap();
        let known = ["main.rs", "lib.rs", "cli.rs", "agent.rs", "README.md"].contains(&name);
        assert!(known || ROOMS.contains(&name) && entry.is_dir(), "{name}");
    }
    let mut folders = entries
        .into_iter()
        .filter(|entry| entry.is_dir())
        .collect::<Vec<_>>();
    while let Some(folder) = folders.pop() {
        assert!(folder.join("mod.rs").is_file(), "{}", folder.display());
        assert!(
            !folder.with_extension("rs").exists(),
            "{}",
            folder.display()
        );
        let inside = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        folders.extend(inside.filter(|entry| entry.is_dir()));
    }
}

/// Only cargo-fuzz reads this manifest, and no other test compiles the targets.
#[test]
fn each_fuzz_target_has_its_entry() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let (_, entries) = manifest.split_once("\n[[bin]]\n").unwrap();
    let mut entries: Vec<&str> = entries.trim_end().split("\n\n[[bin]]\n").collect();
    entries.sort_unstable();
    let targets = fuzz.join("targets").read_dir().unwrap();
    let mut targets: Vec<String> = targets
        .map(|file| {
            let file = file.unwrap().file_name().into_string().unwrap();
            let name = file.strip_suffix(".rs").unwrap();
            let rest = "test = false\ndoc = false\nbench = false";
            format!("name = \"{name}\"\npath = \"targets/{file}\"\n{rest}")
        })
        .collect();
    targets.sort_unstable();
    assert_eq!(entries, targets);
}

#[test]
fn a_planted_fault_is_found() {
    for (module, line) in [
        ("core::lease", "use crate::host::Host;"),
        ("core::lease", "use super::super::agent;"),
        ("core::node", "use crate::wire::api::Api;"),
        ("core::node", "use crate::{config, host::Host};"),
        (
            "core::node",
            "pub(crate) use crate::{\n    config,\n    agent,\n};",
        ),
        (
            "core::node::reconcile",
            "    let now = crate::process::clock::Clock::start();",
        ),
        ("core::schedule", "use std::time::Instant;"),
        ("core::schedule", "use std::time::{Duration, Instant};"),
        ("core::patch", "    std::env::var(\"HOME\")"),
        ("core::facts", "use crate::host::root::HostRoot;"),
        ("core::eviction", "use nix::unistd;"),
        ("core::certificate", "use crate::identity::pki::Key;"),
        ("config", "use std::fs;"),
        ("config", "use crate::core::eviction;"),
        ("kube::quantity", "use crate::wire::tls;"),
        ("kube::x509", "use rustls::ClientConfig;"),
        ("kube::message", "use crate::core::facts;"),
        ("files::read", "use crate::kube::time;"),
        ("host::disk", "use crate::identity::Source;"),
        ("wire::api", "use crate::host::Host;"),
        ("wire::api", "use crate::identity::kubeconfig;"),
        ("wire::dns::lookup", "use crate::host::Host;"),
        ("process::clock", "use crate::wire::api::Api;"),
        ("identity", "use crate::check::Report;"),
        ("check::probe", "use crate::agent::Agent;"),
        ("cellar", "use std::fmt;"),
        ("core::node", "use crate::files::read::read;"),
        ("config", "use crate::files;"),
        ("kube::time", "use super::super::files::write;"),
        ("core::lease", "use std::net;"),
        ("core::lease", "use std::net as network;"),
        ("core::lease", "use std::net::{self, IpAddr};"),
        ("core::lease", "use std::net::*;"),
        ("core::lease", "use std::{fmt, net};"),
        ("core::lease", "    std::net::UdpSocket::bind(any)"),
        ("core::lease", "use std::net::ToSocketAddrs;"),
        ("core::lease", "use std::*;"),
        ("agent", "    net::TcpStream::connect(address)"),
        ("cli", "use std::net::UdpSocket;"),
        ("host::disk", "use std::net::TcpStream;"),
        ("identity::watch", "use std::os::unix::net::UnixStream;"),
        ("check::server", "    TcpStream::connect_timeout(a, b)"),
        ("wire::tls", "    let file = File::open(path)?;"),
        ("wire::dns", "use std::fs;"),
        ("process::notify", "use std::fs::OpenOptions;"),
        ("check::probe", "use nix::fcntl::open;"),
    ] {
        assert_eq!(faults(module, line).len(), 1, "{module}: {line}");
    }
    for line in ["use crate::host::Host;", "use nix::unistd;"] {
        assert_eq!(faults("core::lease", line).len(), 1);
        assert_eq!(faults("agent", line), [] as [&str; 0]);
        // In a test item, and no longer behind it.
        let test = format!("#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
        assert_eq!(faults("core::lease", &test), [] as [&str; 0]);
        assert_eq!(faults("core::lease", &format!("{test}{line}")).len(), 1);
        let test = format!("#[cfg(test)]\nmod tree;\n{line}");
        assert_eq!(faults("core::lease", &test).len(), 1);
    }
    for fine in [
        "// use crate::host::Host;",
        "use crate::kube::object::{self, quantity};",
        "use std::net::{IpAddr, Ipv4Addr};",
        "use std::{fmt, time::Duration};",
        "use super::*;",
        "use rustls::pki_types::CertificateDer;",
    ] {
        assert_eq!(faults("core::node::reconcile", fine), [] as [&str; 0]);
    }
    for (module, fine) in [
        ("wire::dns::exchange", "use std::net::{IpAddr, UdpSocket};"),
        ("host::address", "use nix::sys::socket::SockaddrStorage;"),
        ("check::probe::access", "use std::net::TcpStream;"),
        ("process::wakeup", "use std::fs::{File, OpenOptions};"),
        ("core::node", "use std::net::SocketAddr;"),
        ("core::node", "use crate::kube::names;"),
    ] {
        assert_eq!(faults(module, fine), [] as [&str; 0], "{module}: {fine}");
    }
    let long = "x\n".repeat(LONGEST + 1);
    assert_eq!(faults("core::lease", &long[2..]), [] as [&str; 0]);
    assert_eq!(faults("core::lease", &long).len(), 1);
    let reason = format!("//! Longer than 300 lines: one table.\n{long}");
    assert_eq!(faults("core::lease", &reason), [] as [&str; 0]);
}
