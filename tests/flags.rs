//! `nodelet --help`, the manual page and systemd/README.md list the same flags.
#![cfg(test)]
#![allow(missing_docs)]

use std::collections::BTreeSet;

use nodelet::config::command_line::USAGE;
use nodelet::core::join::command::USAGE as JOIN;

const MANUAL: &str = include_str!("../cross/debian/nodelet.8");
const README: &str = include_str!("../systemd/README.md");

/// The flags in `text`, without their values.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', '`', '[', '='])
        .filter(|word| word.trim_start_matches('-').len() < word.len())
}

/// The flags at the start of each line of `--help`.
fn in_help(usage: &'static str) -> BTreeSet<&'static str> {
    let lines = usage.lines().filter(|line| line.starts_with("  -"));
    lines
        .flat_map(|line| flags(line.trim().split("  ").next().unwrap()))
        .collect()
}

/// `.It Fl -name Ar VALUE`, or two flags separated by a comma.
fn in_manual(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with(".It Fl ")) {
        for flag in line.split("Fl ").skip(1) {
            let name = flag.split(' ').next().unwrap();
            found.insert(format!("-{name}"));
        }
    }
    found
}

/// The first cell of each row of a section.
fn in_readme(title: &str) -> BTreeSet<&'static str> {
    let section = README
        .split("\n## ")
        .find(|section| section.starts_with(title));
    let rows = section
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("| `-"));
    rows.flat_map(|row| flags(row.split('|').nth(1).unwrap()))
        .collect()
}

#[test]
fn help_and_manual_and_readme_have_the_same_flags() {
    let help = in_help(USAGE);
    assert!(help.contains("--kubeconfig") && help.contains("--event-burst") && help.contains("-o"));
    let (run, join) = MANUAL.split_once("\n.Sh JOIN\n").unwrap();
    same(&help, run, "Flags");
    let help = in_help(JOIN);
    assert!(help.contains("--token-file") && help.contains("--bootstrap-only"));
    same(&help, join, "nodelet join");
}

fn same(help: &BTreeSet<&str>, manual: &str, section: &str) {
    let manual = in_manual(manual);
    let manual: BTreeSet<&str> = manual.iter().map(String::as_str).collect();
    for (place, listed) in [
        ("cross/debian/nodelet.8", manual),
        ("systemd/README.md", in_readme(section)),
    ] {
        let lacks: Vec<_> = help.difference(&listed).collect();
        assert!(lacks.is_empty(), "{place} lacks {lacks:?}");
        let more: Vec<_> = listed.difference(help).collect();
        assert!(more.is_empty(), "--help lacks {more:?}, which {place} has");
    }
}
