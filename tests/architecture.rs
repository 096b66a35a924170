//! The import direction of the design, held mechanically: the core decides and
//! never acts, the kernel side knows facts alone, the wire knows neither.
//!
//! Reads `src/**/*.rs` as text, without comments and tests. A file that is in no
//! list below is core, the strictest part.

#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs)]

use std::fs;
use std::path::Path;

/// Without its tests.
const MOST_LINES: usize = 400;

/// The words of `kube`: values and their texts, no acts.
const WORDS: [&str; 8] = [
    "der", "message", "names", "object", "protobuf", "quantity", "time", "x509",
];

/// The half of `dns` that only holds and reads values.
const DNS_WORDS: [&str; 3] = ["hosts", "message", "resolv_conf"];

/// Parts of the process that act beside the wire.
const PROCESS: [&str; 4] = ["clock", "journal", "notify", "wakeup"];

/// They put the pieces together, and may see all of them.
const TOP: [&str; 6] = ["agent", "cli", "identity", "lib", "machine", "main"];

/// What the core must not even name: the world outside its arguments.
const ACTS: [&str; 18] = [
    "std::fs",
    "std::io",
    "std::net::Tcp",
    "std::net::Udp",
    "std::net::ToSocketAddrs",
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
    "ureq::",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Core,
    Host,
    Wire,
    /// Sockets to name servers; told the time, and nothing else of ours.
    Names,
    Process,
    Top,
}

/// `module` is a path below the crate: `kube::api`, `kube`, `status::machine`.
fn part(module: &str) -> Part {
    let mut names = module.split("::");
    match (names.next().unwrap_or_default(), names.next()) {
        ("host", _) => Part::Host,
        ("kube", Some(word)) if WORDS.contains(&word) => Part::Core,
        ("kube", _) => Part::Wire,
        ("check", Some("walk")) => Part::Top,
        ("dns", Some(word)) if DNS_WORDS.contains(&word) => Part::Core,
        ("dns", _) => Part::Names,
        (name, _) if PROCESS.contains(&name) => Part::Process,
        (name, _) if TOP.contains(&name) => Part::Top,
        _ => Part::Core,
    }
}

/// Whether a file of part `from` may name the module `to`.
fn may_name(from: Part, to: &str) -> bool {
    match from {
        Part::Core => part(to) == Part::Core,
        Part::Host => {
            part(to) == Part::Host || to.starts_with("facts") || to.starts_with("dns::hosts")
        }
        Part::Wire => ["kube", "dns", "now", "edge"]
            .iter()
            .any(|room| to.starts_with(room)),
        Part::Names => to.starts_with("dns") || to.starts_with("now"),
        Part::Process => matches!(part(to), Part::Core | Part::Process),
        Part::Top => true,
    }
}

/// What is wrong with one file; `module` is its path below the crate.
fn faults(module: &str, text: &str) -> Vec<String> {
    let from = part(module);
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let lines = production(text);
    let mut faults = Vec::new();
    if lines.len() > MOST_LINES {
        faults.push(format!("{} lines, at most {MOST_LINES}", lines.len()));
    }
    for path in paths(&lines) {
        for to in named(&path, "crate::", "").chain(named(&path, "super::", parent)) {
            if !may_name(from, &to) {
                faults.push(format!("{from:?} names {to}: {path}"));
            }
        }
        // What certificates and keys are, and no act.
        let path = path.replace("rustls::pki_types", "");
        if from == Part::Core && ACTS.iter().any(|act| path.contains(act)) {
            faults.push(format!("Core acts: {path}"));
        }
    }
    faults
}

/// The lines, but a group of imports, `use a::{b, c};`, as `use a::b` and `use a::c`.
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

/// The modules, below the crate, that `line` names after `prefix`.
fn named<'a>(line: &'a str, prefix: &'a str, base: &'a str) -> impl Iterator<Item = String> {
    line.split(prefix).skip(1).map(move |rest| {
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
            .unwrap_or(rest.len());
        format!("{base}::{}", &rest[..end])
            .trim_matches(':')
            .to_owned()
    })
}

/// The lines before the tests, which stand last, and without comments.
fn production(text: &str) -> Vec<&str> {
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .map(|line| match line.trim_start().starts_with("//") {
            true => "",
            false => line.trim(),
        })
        .collect()
}

/// `src/kube/mod.rs` -> `kube`, `src/kube/api.rs` -> `kube::api`.
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

/// Every module of the crate with its text, but for files of tests.
fn sources(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            sources(&path, root, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((module(path.strip_prefix(root).unwrap()), text));
        }
    }
}

#[test]
fn imports_point_left() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &root, &mut files);
    let found: Vec<String> = files
        .iter()
        .flat_map(|(module, text)| {
            let faults = faults(module, text);
            faults.into_iter().map(move |f| format!("{module}: {f}"))
        })
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    // It did look: one file of each part.
    for known in [
        "schedule",
        "kube::quantity",
        "host::disk",
        "kube::api",
        "dns::exchange",
        "clock",
        "agent",
    ] {
        assert!(files.iter().any(|(module, _)| module == known), "{known}");
    }
}

#[test]
fn a_planted_import_is_found() {
    for (module, line) in [
        ("lease", "use crate::host::Host;"),
        ("lease", "use super::agent;"),
        ("node", "use crate::kube::api::Api;"),
        ("node", "use crate::{now, host::Host};"),
        ("node", "use crate::kube::{object, api, names};"),
        ("node", "pub(crate) use crate::{\n    now,\n    agent,\n};"),
        (
            "node::reconcile",
            "    let now = crate::clock::Clock::start();",
        ),
        ("status::machine", "pub use crate::journal::Edge;"),
        ("schedule", "use std::time::Instant;"),
        ("schedule", "use std::time::{Duration, Instant};"),
        ("patch", "    std::env::var(\"HOME\")"),
        ("facts", "use crate::host::root::HostRoot;"),
        ("config", "use std::fs;"),
        ("kube::quantity", "use super::tls;"),
        ("kube::x509", "use rustls::ClientConfig;"),
        ("kube::x509", "use super::pki::Key;"),
        ("kube::message", "use crate::agent::Agent;"),
        ("eviction", "use nix::unistd;"),
        ("events", "use crate::notify::Notify;"),
        ("host::disk", "use crate::status;"),
        ("host::disk", "use crate::kube::quantity::Quantity;"),
        ("host::disk", "use crate::config::Config;"),
        ("kube::api", "use crate::lease::Lease;"),
        ("kube::api", "use crate::facts::Facts;"),
        ("kube", "use crate::host;"),
        ("dns", "use crate::kube::file;"),
        ("dns::node_name", "use crate::status;"),
        ("dns::lookup", "use crate::clock::Clock;"),
        ("dns::message", "use std::net::UdpSocket;"),
        ("dns::resolv_conf", "use super::exchange::PORT;"),
        ("host::address", "use crate::dns::Resolver;"),
        ("status::addresses", "use crate::dns::NodeName;"),
        ("clock", "use crate::kube::api::Api;"),
        ("notify", "use crate::host::Host;"),
    ] {
        assert_eq!(faults(module, line).len(), 1, "{module}: {line}");
        assert_eq!(
            faults(module, &format!("#[cfg(test)]\n{line}")),
            [] as [&str; 0]
        );
        assert_eq!(faults("agent", line), [] as [&str; 0]);
    }
    for fine in [
        "// use crate::host::Host;",
        "use crate::kube::object::{self, quantity};",
        "use std::net::{IpAddr, Ipv4Addr};",
        "use std::{fmt, time::Duration};",
        "use super::*;",
        "use rustls::pki_types::CertificateDer;",
    ] {
        assert_eq!(faults("node::reconcile", fine), [] as [&str; 0]);
    }
    assert_eq!(faults("lease", &"x\n".repeat(MOST_LINES)), [] as [&str; 0]);
    assert_eq!(faults("lease", &"x\n".repeat(MOST_LINES + 1)).len(), 1);
}
