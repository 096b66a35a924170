//! `tests/upstream.md`, the list of upstream's cases: every file, function and row that
//! it names is there, and no case was lost.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// As many cases as the document has.
const CASES: usize = 503;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn ledger() -> String {
    fs::read_to_string(root().join("tests/upstream.md")).unwrap()
}

/// The text of a test function of a file, up to the next one.
fn function<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let start = source.find(&format!("fn {name}("))?;
    let attributes = source[..start].trim_end().ends_with("#[test]");
    let text = &source[start..];
    let end = text.find("#[test]").unwrap_or(text.len());
    attributes.then_some(&text[..end])
}

/// What is wrong with the line of one case.
fn fault(line: &str) -> Option<String> {
    let fault = |what: &str| Some(format!("{what}: {line}"));
    for reason in [": not applicable: ", ": not done: "] {
        if let Some((_, why)) = line.split_once(reason) {
            return why.trim().is_empty().then(|| format!("no reason: {line}"));
        }
    }
    let Some((_, held)) = line.split_once(": `") else {
        return fault("neither held nor excused");
    };
    let mut parts = held.split('`');
    let Some((file, name)) = parts.next().unwrap().split_once("::") else {
        return fault("no file::function");
    };
    let Ok(source) = fs::read_to_string(root().join(file)) else {
        return fault("no such file");
    };
    let Some(text) = function(&source, name) else {
        return fault("no such test");
    };
    let row = match parts.next() {
        Some(" ") => parts.next()?,
        _ => return None,
    };
    // A row called `4` is a text of its own, not some digit.
    let found = match row.chars().all(|c| c.is_ascii_alphanumeric()) {
        true => text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| word == row),
        false => text.contains(row),
    };
    (!found).then(|| format!("no such row: {line}"))
}

#[test]
fn every_case_is_held_by_a_test_that_is_there() {
    let ledger = ledger();
    let faults: Vec<String> = ledger
        .lines()
        .filter(|line| line.starts_with("- "))
        .filter_map(fault)
        .collect();
    assert_eq!(faults, [] as [String; 0]);
}

#[test]
fn no_case_was_lost() {
    let ledger = ledger();
    let mut all = 0;
    for part in ledger.split("\n### ").skip(1) {
        let title = part.lines().next().unwrap();
        let (_, count) = title.trim_end_matches(')').rsplit_once('(').unwrap();
        let cases = part.lines().filter(|line| line.starts_with("- ")).count();
        assert_eq!(cases, count.parse::<usize>().unwrap(), "{title}");
        all += cases;
    }
    assert_eq!(all, CASES);
}

/// The document is not ours, and not in every clone.
#[test]
fn every_test_of_the_document_has_its_title() {
    let path = root().join("../shared/spec/upstream-tests.md");
    let Ok(document) = fs::read_to_string(&path) else {
        // Not eprintln: the harness would keep it for itself.
        let _ = writeln!(
            std::io::stderr(),
            "upstream: DID NOT RUN on {}, which is absent",
            path.display()
        );
        return;
    };
    let ledger = ledger();
    let mut names = BTreeSet::new();
    for part in document.split("\n## ") {
        if part.starts_with(['1', '2', '4', '5', '6', '7']) && part[1..].starts_with('.') {
            let words = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            names.extend(words.filter(|word| word.len() > 4 && word.starts_with("Test")));
        }
    }
    assert!(names.len() > 70, "{}", names.len());
    let missing: Vec<&str> = names
        .into_iter()
        .filter(|name| !ledger.contains(name))
        .collect();
    assert_eq!(missing, [] as [&str; 0]);
}

#[test]
fn a_planted_fault_is_found() {
    let here = "tests/upstream.rs::no_case_was_lost";
    for (line, good) in [
        (format!("- a: `{here}`"), true),
        (format!("- a: `{here}` `title`; and why"), true),
        ("- a: not applicable: no pods".to_owned(), true),
        ("- a: not applicable: ".to_owned(), false),
        ("- a".to_owned(), false),
        (format!("- a: `{here}` `nothing like it`"), false),
        // A function, but no test.
        ("- a: `tests/upstream.rs::fault`".to_owned(), false),
        ("- a: `tests/upstream.rs::gone`".to_owned(), false),
        ("- a: `tests/gone.rs::gone`".to_owned(), false),
    ] {
        assert_eq!(fault(&line).is_none(), good, "{line}");
    }
}
