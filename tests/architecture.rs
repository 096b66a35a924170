//! The rooms of `src/README.md`: the table has their imports, pure rooms never act, files are
//! short.
//!
//! Reads `src/**/*.rs` as text, without comments and test items. Clippy finds what acts by a
//! function of std, `.clippy.toml`; here are the types, by room.

#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest file without its test items, unless its header says `Longer than 500 lines:` and why.
const LONGEST: usize = 500;

/// Longest line of a comment, in characters.
const WIDEST: usize = 100;

/// Most floors and imports of the house: a room stands one floor above the highest that it imports.
const FLOORS: usize = 7;
const IMPORTS: usize = 55;

/// Only the commands ask the container runtime. The agent has the reader of its file, and all have
/// the pure files.
const ASK: [&str; 2] = ["cli", "check"];
const READER: &str = "runtime::file";

/// Rooms, and files or folders of other rooms, without a clock, file, socket or environment.
const PURE: [&str; 13] = [
    "node",
    "config",
    "kube",
    "credentials::certificate",
    "runtime::check",
    "runtime::config",
    "runtime::form",
    "runtime::hpack",
    "runtime::report",
    "runtime::state",
    "serve::access",
    "serve::config",
    "serve::log_query",
];

/// Types and modules that act, and the rooms that may name them; empty is each room that is not
/// pure.
const EFFECTS: [(&str, &str); 4] = [
    ("std::fs File:: OpenOptions nix::fcntl procfs::", "credentials host os runtime::file"),
    (
        "TcpListener TcpStream ToSocketAddrs UdpSocket UnixDatagram UnixListener UnixStream \
         nix::sys::socket",
        "client host os::logging os::notify os::unix_socket os::wakeup runtime serve",
    ),
    ("Instant SystemTime std::thread", "os::clock"),
    (
        "std::env::args std::env::current std::env::var std::io std::net; std::os std::process \
         std::sync nix:: ring:: rustls:: ureq::",
        "",
    ),
];

/// Would hide a name from this test. `rustls::pki_types` has only values.
const HIDES: [&str; 6] =
    ["super::super::", "crate::{", "std::{", "std::net::{self", "std::net as", "std::net::*"];

/// A row of the table of rooms in `src/README.md`.
struct Room {
    name: &'static str,
    /// The rooms that it imports. All of them stand below it in the table.
    imports: Vec<&'static str>,
    /// Lines of production code, without comments and empty ones.
    lines: usize,
}

fn rooms() -> Vec<Room> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
        let [name, _, imports, lines] = cells[..] else { return None };
        let imports = imports.split(", ").filter(|import| !import.is_empty()).collect();
        Some(Room { name: name.strip_suffix("/`")?, imports, lines: lines.parse().unwrap() })
    };
    include_str!("../src/README.md").lines().filter_map(row).collect()
}

/// Whether the table has the import.
fn may_import(room: &str, to: &str) -> bool {
    rooms().iter().any(|row| row.name == room && row.imports.contains(&to))
}

/// Whether a line has one of the names, and not as the end of a longer name.
fn has(line: &str, names: &[&str]) -> bool {
    let is_name = |(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    names.iter().any(|name| line.match_indices(name).any(is_name))
}

/// The room of a file, which is named by the first two parts of its module: `runtime::form`.
fn room_of(file: &str) -> &str {
    file.split("::").next().unwrap_or(file)
}

fn is_pure(file: &str) -> bool {
    PURE.contains(&room_of(file)) || PURE.contains(&file)
}

/// The faults of one file.
fn faults(file: &str, text: &str) -> Vec<String> {
    let room = room_of(file);
    let mut faults = Vec::new();
    let lines = production(text);
    if lines.len() > LONGEST && !text.contains("//! Longer than 500 lines: ") {
        faults.push(format!("{} lines, at most {LONGEST}", lines.len()));
    }
    // rustfmt wraps code alone.
    let is_wide =
        |line: &&str| line.trim_start().starts_with("//") && line.chars().count() > WIDEST;
    faults.extend(text.lines().filter(is_wide).map(|line| format!("wider than {WIDEST}: {line}")));
    for line in lines {
        let paths = match PURE.contains(&file) {
            // Its neighbours may not be pure.
            true => line.replace("super::", &format!("crate::{room}::")),
            false => line.to_owned(),
        };
        for path in paths.split("crate::").skip(1) {
            let mut names = path.split(|c: char| !c.is_alphanumeric() && c != '_');
            let to = names.next().unwrap_or_default();
            // Between them is the empty name of `::`.
            let module = format!("{to}::{}", names.nth(1).unwrap_or_default());
            let may_ask = to != "runtime" || ASK.contains(&room) || module == READER;
            let is_fine = is_pure(&module) || !is_pure(file) && (to == room || may_ask);
            if !(is_fine && (to == room || may_import(room, to))) {
                faults.push(format!("{file} must not import {module}: {line}"));
            }
        }
        let acts = line.replace("rustls::pki_types", "");
        for (names, rooms) in EFFECTS {
            let names: Vec<&str> = names.split(' ').collect();
            let is_allowed = match rooms {
                "" => !is_pure(file),
                _ => rooms.split(' ').any(|name| name == file || name == room && !is_pure(file)),
            };
            if has(&acts, &names) && !is_allowed {
                faults.push(format!("only {rooms:?} may do this: {line}"));
            }
        }
        if has(line, &HIDES) {
            faults.push(format!("name it in full: {line}"));
        }
    }
    faults
}

/// The lines without comments and without `#[cfg(test)]` items, which rustfmt ends at the
/// indentation where they begin.
fn production(text: &str) -> Vec<&str> {
    let mut test_item = None;
    let mut found = Vec::new();
    for line in text.lines() {
        let code = line.trim_start();
        let indentation = line.len() - code.len();
        if test_item.is_some() {
            if test_item == Some(indentation) && (line.ends_with(';') || code.starts_with('}')) {
                test_item = None;
            }
        } else if code == "#[cfg(test)]" {
            test_item = Some(indentation);
        } else {
            found.push(if code.starts_with("//") { "" } else { code });
        }
    }
    found
}

/// All files in `folder` but tests, as (module, path, text). `module` is that of the folder.
fn files_below(folder: &Path, module: Option<&str>) -> Vec<(String, PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let [name, stem] =
            [path.file_name(), path.file_stem()].map(|n| n.unwrap().to_str().unwrap());
        let module = match module {
            None => stem.to_owned(),
            Some(module) if module.contains("::") => module.to_owned(),
            Some(room) => format!("{room}::{stem}"),
        };
        if path.is_dir() && name != "tests" {
            found.extend(files_below(&path, Some(&module)));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            found.push((module, path, text));
        }
    }
    found
}

#[test]
fn imports_are_those_of_the_table_and_effects_stay_in_their_rooms() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files_below(&source, None);
    let mut found = Vec::new();
    for (module, path, text) in &files {
        let faults = faults(module, text);
        found.extend(faults.iter().map(|fault| format!("{}: {fault}", path.display())));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    for module in PURE {
        let path = source.join(module.replace("::", "/"));
        assert!(path.exists() || path.with_extension("rs").exists(), "{module}");
    }
    let rooms = rooms();
    for (at, room) in rooms.iter().enumerate() {
        let of_room = files.iter().filter(|(module, ..)| room_of(module) == room.name);
        let lines: Vec<&str> = of_room.flat_map(|(.., text)| production(text)).collect();
        for import in &room.imports {
            let (name, path) = (room.name, format!("crate::{import}"));
            assert!(
                lines.iter().any(|line| has(line, &[&path])),
                "{name} does not import {import}"
            );
            let is_below = rooms[at + 1..].iter().any(|below| below.name == *import);
            assert!(is_below, "{name} imports {import}, which does not stand below it");
        }
        let count = lines.iter().filter(|line| !line.is_empty()).count();
        let is_close = count.abs_diff(room.lines) <= count / 10;
        assert!(is_close, "{} has {count} lines, and not {}", room.name, room.lines);
    }
}

/// The name of the type that a line declares. `type` is left out: a member of a trait has its name.
fn declared(line: &str) -> Option<&str> {
    let words = line.split(' ').skip_while(|word| word.starts_with("pub"));
    let mut words = words.skip_while(|word| *word == "in" || word.ends_with(')'));
    let is_type = ["struct", "enum", "trait"].contains(&words.next()?);
    words.next().filter(|_| is_type)?.split(|c: char| !c.is_alphanumeric()).next()
}

/// Who looks for a name finds its thing, also without regard to case.
#[test]
fn each_type_of_production_code_has_a_name_of_its_own() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files_below(&source, None);
    let lines = files.iter().flat_map(|(module, _, text)| {
        production(text).into_iter().filter_map(move |line| Some((declared(line)?, module)))
    });
    let mut found: HashMap<String, &str> = HashMap::new();
    let twice: Vec<String> = lines
        .filter_map(|(name, module)| {
            let other = found.insert(name.to_lowercase(), module)?;
            Some(format!("{name} in {other} and in {module}"))
        })
        .collect();
    assert!(found.len() > 300, "{} types", found.len());
    assert!(twice.is_empty(), "{twice:#?}");
    for line in ["pub(in crate::node) struct A<'a> {", "enum A {", "pub trait A: B {", "struct A;"]
    {
        assert_eq!(declared(line), Some("A"), "{line}");
    }
    assert_eq!(declared("type A = B;"), None);
}

/// The module of a file: `client::dns` of `client/dns/mod.rs`.
fn module_of(path: &Path, source: &Path) -> Vec<String> {
    let path = path.strip_prefix(source).unwrap().with_extension("");
    let mut parts: Vec<String> =
        path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    parts.pop_if(|last| last == "mod");
    parts
}

/// The paths that a text names from `crate::` and `super::` on, each item of a list as a path.
fn paths(module: &[String], text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (start, base) in [("crate::", &module[..0]), ("super::", &module[..module.len() - 1])] {
        for path in text.split(start).skip(1) {
            let items: Vec<&str> = match path.strip_prefix('{') {
                Some(list) => {
                    let list = list.split_once('}').unwrap().0;
                    assert!(!list.contains('{'), "one line for each path: {list}");
                    list.split(',').collect()
                }
                None => vec![path],
            };
            found.extend(items.iter().map(|item| {
                let names = item.trim().split("::").map_while(|part| {
                    let end = part.find(|c: char| !c.is_alphanumeric() && c != '_');
                    Some(&part[..end.unwrap_or(part.len())]).filter(|name| !name.is_empty())
                });
                base.iter().cloned().chain(names.map(str::to_owned)).collect()
            }));
        }
    }
    found
}

/// The files that import each other, in one or more steps, and who imports them. A folder and its
/// files may.
fn circle(files: &[(Vec<String>, String)]) -> Vec<String> {
    let is_module = |path: &[String]| files.iter().any(|(module, _)| module == path);
    let mut imports: HashMap<&Vec<String>, Vec<Vec<String>>> = HashMap::new();
    for (module, text) in files {
        let text = production(text).join(" ");
        for mut path in paths(module, &text) {
            while !path.is_empty() && !is_module(&path) {
                path.pop();
            }
            let is_own = path.starts_with(module) || module.starts_with(&path);
            imports.entry(module).or_default().extend((!is_own).then_some(path));
        }
    }
    loop {
        let left: Vec<Vec<String>> = imports.keys().map(|module| module.to_vec()).collect();
        imports.retain(|_, to| to.iter().any(|path| left.contains(path)));
        if imports.len() == left.len() {
            let mut left: Vec<String> = left.iter().map(|module| module.join("::")).collect();
            left.sort_unstable();
            return left;
        }
    }
}

#[test]
fn no_files_import_each_other() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files_below(&source, None).into_iter();
    let files = files.map(|(_, path, text)| (module_of(&path, &source), text));
    assert_eq!(circle(&files.collect::<Vec<_>>()), [] as [&str; 0]);
    let files = [
        ("a::b", "use super::{c::D, x};"),
        ("a::c", "    crate::a::e::F::new()"),
        ("a::e", "use super::b;\n#[cfg(test)]\nuse super::g;"),
        ("a::g", "use super::b;"),
        ("a::h", ""),
    ];
    let files = files.map(|(module, text)| {
        (module.split("::").map(str::to_owned).collect::<Vec<_>>(), text.to_owned())
    });
    assert_eq!(circle(&files), ["a::b", "a::c", "a::e", "a::g"]);
    assert_eq!(circle(&files[1..]), [] as [&str; 0]);
}

/// Files whose functions may first ask the simulation (`tests/sim/hook.rs`), and how many may.
const HOOKED: [&str; 6] =
    ["os", "client::socket", "client::dns", "host::network", "host::disk", "host::system"];
const HOOKS: usize = 30;

/// The hooks of a file, and those that do not keep the rule.
fn hooks(file: &str, text: &str) -> (usize, Vec<String>) {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_for_tests = |index: usize| lines.get(index).is_some_and(|line| *line == "#[cfg(test)]");
    let (mut count, mut faults) = (0, Vec::new());
    for (index, line) in lines.iter().enumerate() {
        if !has(line, &["sim::"]) || line.starts_with("//") {
            continue;
        }
        let is_alias = *line == "use crate::sim::hook as sim;";
        let is_type = file == "client::socket" && line.ends_with("use crate::sim::tcp::Tcp;");
        count += usize::from(!is_alias);
        let head = lines[index.saturating_sub(2)];
        let begins = head.ends_with('{') && (head.contains("fn ") || head.starts_with(')'));
        // What it has done is told by the same function, at its end.
        let ends = lines.get(index + 1..index + 3) == Some(&["Ok(())", "}"]);
        let is_fine = is_alias || is_type || begins || ends;
        let may = HOOKED.contains(&file) || HOOKED.contains(&room_of(file));
        if !(is_fine && may && index > 0 && is_for_tests(index - 1)) {
            faults.push(format!("{file}: not a hook: {line}"));
        }
    }
    (count, faults)
}

#[test]
fn a_hook_of_the_simulation_is_the_first_statement_of_a_function() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files_below(&source, None);
    let found = files.iter().map(|(module, _, text)| hooks(module, text));
    let (counts, faults): (Vec<usize>, Vec<Vec<String>>) = found.unzip();
    assert!(faults.concat().is_empty(), "\n{}", faults.concat().join("\n"));
    let count: usize = counts.iter().sum();
    assert!((20..=HOOKS).contains(&count), "{count} hooks, at most {HOOKS}");

    let hook = "    #[cfg(test)]\n    if sim::f() {\n        return;\n    }\n";
    for (file, text, is_fine) in [
        ("os::clock", format!("fn f() {{\n{hook}    g();\n}}\n"), true),
        ("os::clock", format!("fn f(\n    a: u8,\n) -> u8 {{\n{hook}    g()\n}}\n"), true),
        ("os::clock", format!("fn f() {{\n    g();\n{hook}}}\n"), false),
        ("os::clock", format!("fn f() {{\n    if a {{\n{hook}    }}\n}}\n"), false),
        ("os::clock", "fn f() {\n    if sim::f() {\n".to_owned(), false),
        ("node::lease", format!("fn f() {{\n{hook}    g();\n}}\n"), false),
    ] {
        assert_eq!(hooks(file, &text).1.is_empty(), is_fine, "{file}: {text}");
    }
}

#[test]
fn the_house_is_low_and_has_few_imports() {
    let rooms = rooms();
    let mut floors: HashMap<&str, usize> = HashMap::new();
    for room in rooms.iter().rev() {
        let highest = room.imports.iter().map(|import| floors[import]).max();
        floors.insert(room.name, highest.unwrap_or_default() + 1);
    }
    let imports: usize = rooms.iter().map(|room| room.imports.len()).sum();
    let highest = floors.into_values().max().unwrap();
    assert!(highest <= FLOORS && imports <= IMPORTS, "{highest} floors, {imports} imports");
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

/// `.ci/sim planted` counts a patch that does not apply as one that is not found.
#[test]
fn each_planted_patch_of_the_simulator_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("tests/sim/planted").read_dir().unwrap();
    let mut patches: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    assert!(patches.len() > 90, "{} patches", patches.len());
    let does_not_apply = |path: &&PathBuf| {
        let mut git = Command::new("git");
        !git.current_dir(root).args(["apply", "--check"]).arg(path).status().unwrap().success()
    };
    let stale: Vec<&PathBuf> = patches.iter().filter(does_not_apply).collect();
    assert!(stale.is_empty(), "bring these faults into the code as it is now: {stale:#?}");
}

#[test]
fn a_planted_fault_is_found() {
    for (room, line) in [
        ("node", "use crate::runtime::ask;"),
        ("node", "use crate::runtime::file::RuntimeFile;"),
        ("agent", "use crate::runtime::{ask, file::RuntimeFile};"),
        ("host", "    crate::runtime::ask(config, limit)"),
        ("runtime", "use crate::host::Host;"),
        ("runtime::form", "use super::socket::TimedSocket;"),
        ("runtime::form", "use crate::os::clock::Clock;"),
        ("runtime::form", "    let file = File::open(path)?;"),
        ("kube::instant", "use std::time::{Duration, Instant};"),
        ("health", "use crate::host::Host;"),
        ("check", "use std::time::Instant;"),
        ("check", "    net::TcpStream::connect(address)"),
        ("node", "use crate::host::Host;"),
        ("node", "    let now = crate::os::clock::Clock::start();"),
        ("node", "use crate::os::read::read;"),
        ("agent", "use crate::serve::answers;"),
        ("serve", "use crate::agent::Agent;"),
        ("node", "use super::super::agent;"),
        ("node", "use std::net::{self, IpAddr};"),
        ("config", "use std::fs;"),
        ("client", "    let file = File::open(path)?;"),
        ("os::read", "use std::os::unix::net::UnixStream;"),
        ("os::wakeup", "use std::time::Instant;"),
        ("agent", "    net::TcpStream::connect(address)"),
        ("node", "use std::time::{Duration, Instant};"),
        ("kube", "use rustls::ClientConfig;"),
    ] {
        assert!(!faults(room, line).is_empty(), "{room}: {line}");
        // Not in a test item, but behind it.
        let test = format!("#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
        assert_eq!(faults(room, &test), [] as [&str; 0]);
        assert!(!faults(room, &format!("{test}{line}")).is_empty());
    }
    for (room, fine) in [
        ("node", "// use crate::host::Host;"),
        ("node", "use crate::kube::object::{self, quantity};"),
        ("node", "use std::net::{IpAddr, Ipv4Addr};"),
        ("node", "use rustls::pki_types::CertificateDer;"),
        ("runtime::form", "use crate::kube::facts::RuntimeFacts;"),
        ("runtime::state", "use super::config::Protocol;"),
        ("runtime::file", "    let file = File::open(path)?;"),
        ("agent", "use crate::runtime::file::RuntimeFile;"),
        ("agent", "use crate::host::Host;"),
        ("client", "use std::net::{IpAddr, UdpSocket};"),
    ] {
        assert_eq!(faults(room, fine), [] as [&str; 0], "{room}: {fine}");
    }
    let wide = format!("// {}", "x".repeat(WIDEST - 3));
    assert_eq!(faults("node", &wide), [] as [&str; 0]);
    assert_eq!(faults("node", &format!("    {wide}")).len(), 1);
    let long = "x\n".repeat(LONGEST + 1);
    assert_eq!(faults("node", &long[2..]), [] as [&str; 0]);
    assert_eq!(faults("node", &long).len(), 1);
    let reason = format!("//! Longer than 500 lines: one table.\n{long}");
    assert_eq!(faults("node", &reason), [] as [&str; 0]);
}
