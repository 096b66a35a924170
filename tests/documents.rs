//! The documents: their links, their paths, and the commands of their `sh` blocks.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Output};

use apidouble::Double;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodelet::files::yaml;
use serde_json::json;

use nodelet::core::join::command::{self, Command, TokenSource};
use nodelet::core::join::token::Token;
use support::{Folder, skip};

const DOCUMENTS: [&str; 10] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "cross/README.md",
    "src/README.md",
    "systemd/README.md",
    "systemd/cluster/README.md",
    "systemd/monitoring/README.md",
    "tests/README.md",
];

/// Lines of README.md.
const LONGEST_README: usize = 200;

/// What runs a command.
enum Runner {
    /// A script with a line that has the words of the command, in their order.
    Script(&'static str),
    /// The test of this name below. It runs the `sh` block below this heading of this document.
    Test(&'static str, &'static str, &'static str),
}

const CI: Runner = Runner::Script(".ci/run");
const BOARDS: Runner = Runner::Script(".ci/boards");
const RELEASE: Runner = Runner::Script("cross/release.sh");
const KUBEADM: Runner = Runner::Test(
    "the_kubeadm_commands_make_a_bootstrap_kubeconfig",
    "systemd/README.md",
    "By hand, with a bootstrap token",
);
const TOKEN: Runner = Runner::Test(
    "the_token_commands_make_a_kubeconfig",
    "systemd/README.md",
    "With a ServiceAccount token",
);
const INSTALL: Runner = Runner::Test(
    "the_install_commands_install_and_enable",
    "systemd/README.md",
    "Install by hand",
);
const INITRAMFS: Runner = Runner::Test(
    "the_initramfs_commands_append_an_aligned_archive",
    "systemd/README.md",
    "Initramfs",
);
const DAEMONSETS: Runner = Runner::Test(
    "the_commands_for_daemonsets_apply_and_patch",
    "systemd/cluster/README.md",
    "DaemonSets",
);
const PODCIDRS: Runner = Runner::Test(
    "the_command_for_podcidrs_applies_the_policy",
    "systemd/cluster/README.md",
    "podCIDRs",
);
const STOLEN: Runner = Runner::Test(
    "the_command_for_a_stolen_board_names_it_in_the_policy",
    "systemd/cluster/README.md",
    "A stolen board",
);
const RETIRE: Runner = Runner::Test(
    "the_command_to_retire_a_board_deletes_its_node",
    "systemd/cluster/README.md",
    "Retire a board",
);
const OPERATOR: Runner = Runner::Test(
    "the_commands_for_prometheus_operator_make_a_prometheus_rule",
    "systemd/monitoring/README.md",
    "Install",
);
const PROMTOOL: Runner = Runner::Test(
    "the_promtool_commands_check_and_test_the_rules",
    "systemd/monitoring/README.md",
    "Test",
);

/// Every command of every `sh` block, and what runs it. Of a here-document, the first line.
#[rustfmt::skip]
const COMMANDS: &[(&str, Runner)] = &[
    ("cargo run --example demo", CI),
    ("cargo run -- inspect --output=text", CI),
    ("cargo test --workspace", CI),
    ("cargo fmt --all --check", CI),
    ("cargo clippy --workspace --all-targets --locked -- -D warnings", CI),
    ("cross/build.sh aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf", CI),
    ("cross/build.sh --plain aarch64-unknown-linux-musl", CI),
    ("cross/deb.sh arm64 armhf", RELEASE),
    ("cross/release.sh", BOARDS),
    ("cross/reproduce.sh armv7-unknown-linux-musleabihf", BOARDS),
    ("cross/order.sh", BOARDS),
    ("tests/package.sh arm64 armhf", BOARDS),
    ("cargo test --test soak -- --ignored", BOARDS),
    ("tests/runtimes.sh", BOARDS),
    ("tests/fuzz/run.sh 20", BOARDS),
    ("cargo test --test boot -- --ignored --nocapture --test-threads 1", BOARDS),
    ("cargo bench --bench facts", BOARDS),
    ("cargo bench --bench heartbeat", BOARDS),
    ("umask 077", KUBEADM),
    ("cat >nodelet.bootstrap-kubeconfig <<END", KUBEADM),
    ("umask 077", TOKEN),
    ("kubectl apply -f systemd/rbac.yaml", TOKEN),
    ("until kubectl -n kube-system get secret nodelet -o jsonpath='{.data.token}' | grep -q .; do sleep 1; done", TOKEN),
    ("kubectl -n kube-system get secret nodelet -o jsonpath='{.data.token}' | base64 -d > token", TOKEN),
    ("kubectl -n kube-system get secret nodelet -o jsonpath='{.data.ca\\.crt}' | base64 -d > ca.crt", TOKEN),
    ("kubectl config --kubeconfig=kubeconfig set-cluster nodelet --server=https://10.0.0.1:6443 --certificate-authority=ca.crt --embed-certs", TOKEN),
    ("kubectl config --kubeconfig=kubeconfig set-credentials nodelet --token=\"$(cat token)\"", TOKEN),
    ("kubectl config --kubeconfig=kubeconfig set-context nodelet --cluster=nodelet --user=nodelet", TOKEN),
    ("kubectl config --kubeconfig=kubeconfig use-context nodelet", TOKEN),
    ("install -m 755 nodelet /usr/bin/nodelet", INSTALL),
    ("install -m 644 nodelet.service /etc/systemd/system/nodelet.service", INSTALL),
    ("install -m 700 -d /etc/credstore", INSTALL),
    ("install -m 600 kubeconfig /etc/credstore/nodelet.kubeconfig", INSTALL),
    ("nodelet check --kubeconfig=/etc/credstore/nodelet.kubeconfig --root-dir=/var/lib/nodelet", INSTALL),
    ("systemctl enable --now --no-block nodelet", INSTALL),
    ("umask 077", INITRAMFS),
    ("systemd/initramfs.sh dist/aarch64-unknown-linux-musl/nodelet nodelet.kubeconfig >nodelet.cpio", INITRAMFS),
    ("cp initramfs.img board.img && truncate -s %4 board.img && cat nodelet.cpio >>board.img", INITRAMFS),
    ("kubectl apply -f systemd/cluster/daemonsets.yaml", DAEMONSETS),
    ("kubectl -n kube-system patch daemonset nodelocaldns --patch-file=systemd/cluster/daemonset-patch.yaml", DAEMONSETS),
    ("kubectl apply -f systemd/cluster/podcidrs.yaml", PODCIDRS),
    ("kubectl delete node barn-pi", RETIRE),
    ("sed 's/node:stolen-board/node:barn-pi/' systemd/cluster/stolen-boards.yaml | kubectl apply -f -", STOLEN),
    ("(printf 'apiVersion: monitoring.coreos.com/v1\\nkind: PrometheusRule\\nmetadata: {name: nodelet}\\nspec:\\n'; sed 's/^/  /' systemd/monitoring/rules.yaml) >nodelet-rules.yaml", OPERATOR),
    ("kubectl -n monitoring apply -f nodelet-rules.yaml", OPERATOR),
    ("promtool check rules systemd/monitoring/rules.yaml", PROMTOOL),
    ("promtool test rules systemd/monitoring/rules_test.yaml", PROMTOOL),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// A fenced block: the heading above it, its language, its lines.
struct Block<'a> {
    heading: &'a str,
    language: &'a str,
    lines: Vec<&'a str>,
}

/// The headings of a document, its fenced blocks, and its other lines.
fn parse(text: &str) -> (Vec<&str>, Vec<Block<'_>>, Vec<&str>) {
    let (mut headings, mut blocks, mut prose) = (Vec::new(), Vec::new(), Vec::new());
    let mut open: Option<Block<'_>> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(language), None) => {
                open = Some(Block {
                    heading: headings.last().copied().unwrap_or_default(),
                    language,
                    lines: Vec::new(),
                });
            }
            (None, Some(mut block)) => {
                block.lines.push(line);
                open = Some(block);
            }
            (None, None) => {
                let title = line.trim_start_matches('#');
                if title.len() < line.len() && title.starts_with(' ') {
                    headings.push(title.trim());
                }
                prose.push(line);
            }
        }
    }
    assert!(open.is_none(), "a fenced block without an end");
    (headings, blocks, prose)
}

/// The commands of a block, without comments; of a here-document, the first line.
fn commands(lines: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut until: Option<&str> = None;
    let mut continues = false;
    for line in lines {
        if let Some(end) = until {
            until = (*line != end).then_some(end);
            continue;
        }
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let part = line.trim_end_matches('\\').trim();
        match commands.last_mut().filter(|_| continues) {
            Some(last) => *last = format!("{last} {part}"),
            None => commands.push(part.to_owned()),
        }
        continues = line.ends_with('\\');
        until = line.split_once("<<").map(|(_, end)| end);
    }
    assert!(until.is_none() && !continues, "{commands:?}: no end");
    commands
}

/// The `sh` block below a heading.
fn block(document: &str, heading: &str) -> String {
    let text = text(document);
    let (_, blocks, _) = parse(&text);
    let mut found = blocks
        .iter()
        .filter(|block| block.heading == heading && block.language == "sh");
    let block = found.next();
    let block = block.unwrap_or_else(|| panic!("{document}: no sh block below {heading:?}"));
    assert!(found.next().is_none(), "{document}: two below {heading:?}");
    block.lines.join("\n")
}

/// The lines of a script, without comments, and with the values of its plain variables.
fn script_lines(script: &str) -> Vec<String> {
    let lines = script.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    let variables: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
    let expanded = lines.into_iter().map(|line| {
        let replace = |line: String, (name, value): &(&str, &str)| {
            line.replace(&format!("\"${name}\""), value)
        };
        variables.iter().fold(line.to_owned(), replace)
    });
    expanded.collect()
}

/// Whether a line has the words of a command in their order; others may stand between.
fn has_words(line: &str, command: &str) -> bool {
    let mut words = line.split_whitespace();
    command
        .split_whitespace()
        .all(|word| words.any(|found| found == word))
}

#[test]
fn the_readme_is_short() {
    let lines = text("README.md").lines().count();
    assert!(lines <= LONGEST_README, "README.md has {lines} lines");
}

#[test]
fn each_command_is_run_by_a_test_or_in_ci() {
    let mut written = BTreeSet::new();
    for document in DOCUMENTS {
        let text = text(document);
        let (_, blocks, _) = parse(&text);
        for block in blocks {
            let is_known = ["sh", "text"].contains(&block.language);
            assert!(is_known, "{document}: a block of {:?}", block.language);
            if block.language == "sh" {
                written.extend(commands(&block.lines));
            }
        }
    }
    let listed = COMMANDS.iter().map(|(command, _)| (*command).to_owned());
    let listed: BTreeSet<String> = listed.collect();
    let unlisted: Vec<_> = written.difference(&listed).collect();
    assert!(unlisted.is_empty(), "not in COMMANDS: {unlisted:#?}");
    let unwritten: Vec<_> = listed.difference(&written).collect();
    assert!(unwritten.is_empty(), "in no document: {unwritten:#?}");

    let source = text("tests/documents.rs");
    for (command, runner) in COMMANDS {
        match runner {
            Runner::Script(script) => {
                let is_run = script_lines(&text(script))
                    .iter()
                    .any(|line| has_words(line, command));
                assert!(is_run, "{script} does not run {command}");
            }
            Runner::Test(test, document, heading) => {
                let block = block(document, heading);
                let lines: Vec<&str> = block.lines().collect();
                let is_in_block = commands(&lines).iter().any(|line| line == command);
                assert!(is_in_block, "{document}, {heading}: no {command}");
                let (_, body) = source
                    .split_once(&format!("#[test]\nfn {test}() {{\n"))
                    .unwrap_or_else(|| panic!("{test} is no test"));
                let body = body.split("\n}\n").next().unwrap();
                let call = format!("block(\"{document}\", \"{heading}\")");
                assert!(body.contains(&call), "{test} does not run {command}");
            }
        }
    }
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase();
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().replace(' ', "-")
}

/// The targets of `[text](target)`.
fn links<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let ends = lines.iter().flat_map(|line| line.split("](").skip(1));
    ends.filter_map(|end| end.split(')').next()).collect()
}

#[test]
fn each_link_leads_somewhere() {
    let mut count = 0;
    for document in DOCUMENTS {
        let own = text(document);
        let (_, _, prose) = parse(&own);
        for link in links(&prose) {
            if link.starts_with("https://") {
                continue;
            }
            count += 1;
            let (file, wanted) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => root().join(document),
                file => root().join(document).parent().unwrap().join(file),
            };
            assert!(path.exists(), "{document}: {link}");
            if !wanted.is_empty() {
                let target = fs::read_to_string(&path).unwrap();
                let (headings, _, _) = parse(&target);
                let is_there = headings.iter().any(|heading| anchor(heading) == wanted);
                assert!(is_there, "{document}: no heading for {link}");
            }
        }
    }
    assert!(count > 20, "{count} links");
}

/// The texts in backticks; one may span two lines.
fn code(text: &str) -> Vec<&str> {
    assert_eq!(
        text.matches('`').count() % 2,
        0,
        "a backtick without its pair"
    );
    text.split('`').skip(1).step_by(2).collect()
}

/// Whether a word can be a path of the repository: no command, pattern, URL or absolute path.
fn is_relative_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    !word.starts_with(['/', '-', '~']) && word.chars().all(is_plain)
}

/// What the build writes, and optional data beside the repository.
const NOT_STORED: [&str; 3] = ["dist/", "../shared/fixtures", "../shared/openapi"];

/// Paths of Linux, Kubernetes and a board that are written without their first slash.
const ELSEWHERE: [&str; 2] = ["proc/meminfo", "nodelet/no-pods"];

fn exists(document: &str, word: &str) -> bool {
    let beside = root().join(document).parent().unwrap().join(word);
    let in_source = root().join("src").join(word);
    [beside, in_source, root().join(word)]
        .iter()
        .any(|path| path.exists())
}

#[test]
fn each_path_in_backticks_exists() {
    let mut count = 0;
    for document in DOCUMENTS {
        let text = text(document);
        let (_, _, prose) = parse(&text);
        for word in code(&prose.join("\n")) {
            let file = [".rs", ".sh", ".md"].iter().any(|end| word.ends_with(end));
            let stored = !NOT_STORED.iter().any(|prefix| word.starts_with(prefix));
            let is_path = is_relative_path(word) && stored && !ELSEWHERE.contains(&word);
            let top = word.split('/').next().unwrap();
            let known = document == "src/README.md" || exists(document, top);
            if is_path && (file || word.contains('/') && known) {
                count += 1;
                assert!(
                    exists(document, word),
                    "{document}: `{word}` does not exist"
                );
            }
        }
    }
    assert!(count > 80, "{count} paths");
}

/// The text files of the repository.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() && !["target", "dist", ".git", "corpus", "boards"].contains(&name) {
            files(&path, found);
        } else if kind.is_file() {
            found.push(path);
        }
    }
}

/// A reference to a document that is not in the repository.
fn foreign_reference(line: &str) -> bool {
    // In parts, so that this file has no such reference.
    let names = [
        ["shared/", "design"],
        ["shared/", "spec"],
        ["shared/", "hooks"],
        ["decisions", ".md"],
        ["decisions", ", row"],
        ["house", ".md"],
        ["(spec", ": "],
    ];
    let has_name = names.iter().any(|parts| line.contains(&parts.concat()));
    has_name
        || line.split("spec ").skip(1).any(|rest| {
            // A word and the number of a section.
            let mut words = rest.split(' ');
            let word = words.next().unwrap_or_default();
            let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
            is_word
                && words
                    .next()
                    .is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()))
        })
}

#[test]
fn no_file_refers_to_a_document_outside_of_the_repository() {
    assert!(foreign_reference(&["(spec", " pressure 3)"].concat()));
    let mut found = Vec::new();
    files(root(), &mut found);
    assert!(found.len() > 200, "{} files", found.len());
    let mut faults = Vec::new();
    for path in found {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if foreign_reference(line) {
                faults.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs a script in `folder`, with `folder/bin` first in PATH.
fn run(folder: &Folder, script: &str) -> Output {
    let path = std::env::var("PATH").unwrap();
    let bin = folder.path().join("bin");
    let output = process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}\n{output:?}");
    output
}

/// A folder with `systemd/` of this repository.
fn folder_with_systemd(name: &str) -> Folder {
    let folder = Folder::new(name);
    symlink(root().join("systemd"), folder.path().join("systemd")).unwrap();
    folder
}

fn write_program(folder: &Folder, name: &str, script: &str) {
    let path = folder.write(&format!("bin/{name}"), format!("#!/bin/sh\n{script}"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `nodelet check` with these flags, which must find an accepted kubeconfig.
fn check(flags: &[String], double: &Double, permission: &str) {
    let output = process::Command::new(env!("CARGO_BIN_EXE_nodelet"))
        .arg("check")
        .args(flags)
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let has = |line: &str| lines.lines().any(|found| found.starts_with(line));
    assert!(has(&format!("✓ kubeconfig: {}", double.url())), "{lines}");
    assert!(has(&format!("✓ {permission}")), "{lines}");
}

#[test]
fn the_kubeadm_commands_make_a_bootstrap_kubeconfig() {
    let double = Double::builder()
        .bootstrap_token("abcdef.0123456789abcdef")
        .start();
    let folder = Folder::new("kubeadm");
    write_program(
        &folder,
        "kubeadm",
        "[ \"$*\" = 'token create' ] && echo abcdef.0123456789abcdef",
    );
    let ca = folder.write("ca.crt", double.ca_pem());
    let script = block("systemd/README.md", "By hand, with a bootstrap token")
        .replace("/etc/kubernetes/pki/ca.crt", ca.to_str().unwrap())
        .replace("https://10.0.0.1:6443", &double.url());
    assert!(script.contains(&double.url()) && script.contains("kubeadm token create"));
    run(&folder, &script);
    let made = folder.path().join("nodelet.bootstrap-kubeconfig");
    assert_eq!(
        fs::metadata(&made).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let here = folder.path().display();
    let flags = [
        format!("--kubeconfig={here}/kubeconfig"),
        format!("--bootstrap-kubeconfig={}", made.display()),
        format!("--root-dir={here}"),
    ];
    check(&flags, &double, "csr-create");
}

/// Each `nodelet join` line of a document is a valid command line, with a way to trust the server.
#[test]
fn the_join_lines_are_valid() {
    let mut count = 0;
    for document in DOCUMENTS {
        let own = text(document);
        let (_, blocks, _) = parse(&own);
        for line in blocks.iter().flat_map(|block| &block.lines) {
            let line = line.trim_start_matches(['$', ' ']);
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            let line = line
                .strip_prefix("nodelet ")
                .or_else(|| line.strip_prefix("kubeadm "));
            let Some(line) = line.filter(|line| line.starts_with("join ")) else {
                continue;
            };
            let args: Vec<_> = line.split(' ').map(Into::into).collect();
            let Some(Ok(Command::Join(settings))) = command::parse(&args) else {
                panic!("{document}: {line}");
            };
            let TokenSource::Text(token) = &settings.token else {
                panic!("{document}: {line}");
            };
            let token = Token::parse(token).unwrap();
            assert_eq!(settings.check(&token), Ok(()), "{document}: {line}");
            count += 1;
        }
    }
    assert!(count >= 4, "{count} lines");
}

#[test]
fn the_token_commands_make_a_kubeconfig() {
    // It may be missing in CI, too.
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let double = Double::builder()
        .token(
            "t0ken",
            "system:serviceaccount:kube-system:nodelet",
            &["system:masters"],
        )
        .start();
    let folder = folder_with_systemd("token");
    let real = run(&folder, "command -v kubectl").stdout;
    let real = String::from_utf8(real).unwrap();
    // The server's part; `kubectl config` is the real one. tests/agent/rbac.rs tests the manifest.
    let [token, ca] = ["t0ken", &double.ca_pem()].map(|text| STANDARD.encode(text));
    let stub = format!(
        "case \"$*\" in\n\
         config*) exec {} \"$@\" ;;\n\
         'apply -f systemd/rbac.yaml') exec test -s systemd/rbac.yaml ;;\n\
         '-n kube-system get secret nodelet -o jsonpath={{.data.token}}') echo {token} ;;\n\
         '-n kube-system get secret nodelet -o jsonpath={{.data.ca\\.crt}}') echo {ca} ;;\n\
         *) exit 1 ;;\n\
         esac\n",
        real.trim()
    );
    write_program(&folder, "kubectl", &stub);
    let script = block("systemd/README.md", "With a ServiceAccount token")
        .replace("https://10.0.0.1:6443", &double.url());
    run(&folder, &script);
    let here = folder.path().display();
    let flags = [
        format!("--kubeconfig={here}/kubeconfig"),
        format!("--root-dir={here}"),
    ];
    check(&flags, &double, "node-status-patch");
}

#[test]
fn the_install_commands_install_and_enable() {
    if !skip::has_tool("systemctl") {
        return;
    }
    let double = Double::start();
    let folder = Folder::new("install");
    let here = folder.path().to_str().unwrap();
    for name in ["usr/bin", "etc/systemd/system"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_nodelet"), folder.path().join("nodelet")).unwrap();
    folder.write("nodelet.service", text("systemd/nodelet.service"));
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = name.trim().to_lowercase();
    folder.write("kubeconfig", double.kubeconfig_for_node(&name));

    let script = block("systemd/README.md", "Install by hand");
    let (checks, rest): (Vec<&str>, Vec<&str>) = script
        .lines()
        .partition(|line| line.starts_with("nodelet check "));
    let rest = rest.join("\n").replace(" /", &format!(" {here}/"));
    // In another root nothing can be started.
    let rest = rest.replace("enable --now --no-block", &format!("--root={here} enable"));
    run(&folder, &rest);

    let [line] = checks[..] else {
        panic!("{checks:?}");
    };
    let flags = line.split_whitespace().skip(2);
    let flags: Vec<String> = flags
        .map(|flag| flag.replace("=/", &format!("={here}/")))
        .collect();
    check(&flags, &double, "node-status-patch");
    let wants = "etc/systemd/system/multi-user.target.wants/nodelet.service";
    let enabled = folder.path().join(wants).symlink_metadata();
    assert!(enabled.unwrap().is_symlink());
}

#[test]
fn the_initramfs_commands_append_an_aligned_archive() {
    if !skip::has_tool("cpio") {
        return;
    }
    let folder = folder_with_systemd("initramfs");
    folder.write("dist/aarch64-unknown-linux-musl/nodelet", "a binary");
    folder.write("nodelet.kubeconfig", "a secret");
    folder.write("initramfs.img", "seven b");
    run(&folder, &block("systemd/README.md", "Initramfs"));
    let image = fs::read(folder.path().join("board.img")).unwrap();
    assert_eq!(&image[..8], b"seven b\0");
    assert!(image[8..].starts_with(b"070701"), "no newc archive at 8");
}

/// A folder with `systemd/`, and with a `kubectl` that adds to the file `applied`: its arguments as
/// a comment, and the content of the file that its last argument names (`-` is its input).
fn folder_with_kubectl(name: &str) -> Folder {
    let folder = folder_with_systemd(name);
    let stub = "echo \"# $*\" >>applied\n\
                for file; do :; done\n\
                case \"$*\" in *' -f '* | *' --patch-file='*) ;; *) exit 1 ;; esac\n\
                cat \"${file#--patch-file=}\" >>applied\n";
    write_program(&folder, "kubectl", stub);
    folder
}

fn applied(folder: &Folder) -> String {
    fs::read_to_string(folder.path().join("applied")).unwrap()
}

/// `tests/agent/policies.rs` tests the manifests.
#[test]
fn the_commands_for_daemonsets_apply_and_patch() {
    let folder = folder_with_kubectl("daemonsets");
    run(&folder, &block("systemd/cluster/README.md", "DaemonSets"));
    let applied = applied(&folder);
    for part in ["kind: MutatingAdmissionPolicyBinding", "operator: NotIn"] {
        assert_eq!(applied.matches(part).count(), 1, "{applied}");
    }
}

#[test]
fn the_command_for_podcidrs_applies_the_policy() {
    let folder = folder_with_kubectl("podcidrs");
    run(&folder, &block("systemd/cluster/README.md", "podCIDRs"));
    let applied = applied(&folder);
    assert!(applied.contains("!has(object.spec.podCIDR)"), "{applied}");
}

#[test]
fn the_command_for_a_stolen_board_names_it_in_the_policy() {
    let folder = folder_with_kubectl("stolen");
    run(
        &folder,
        &block("systemd/cluster/README.md", "A stolen board"),
    );
    let applied = applied(&folder);
    assert!(applied.contains("in ['system:node:barn-pi']"), "{applied}");
    assert!(!applied.contains("node:stolen-board"), "{applied}");
}

#[test]
fn the_command_to_retire_a_board_deletes_its_node() {
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let double = Double::start();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "barn-pi"}});
    let (code, answer) = double.as_admin("POST", "/api/v1/nodes", "application/json", &node);
    assert_eq!(code, 201, "{answer}");
    let folder = Folder::new("retire");
    let admin = folder.write("admin", double.kubeconfig_admin());
    let script = block("systemd/cluster/README.md", "Retire a board");
    run(
        &folder,
        &format!("export KUBECONFIG={}\n{script}", admin.display()),
    );
    assert_eq!(double.get("/api/v1/nodes/barn-pi"), None);
}

#[test]
fn the_commands_for_prometheus_operator_make_a_prometheus_rule() {
    let folder = folder_with_kubectl("operator");
    run(&folder, &block("systemd/monitoring/README.md", "Install"));
    let applied = yaml::parse(&applied(&folder)).unwrap();
    assert_eq!(applied["kind"], "PrometheusRule");
    let rules = yaml::parse(&text("systemd/monitoring/rules.yaml")).unwrap();
    assert!(rules["groups"].is_array());
    assert_eq!(applied["spec"], rules);
}

#[test]
fn the_promtool_commands_check_and_test_the_rules() {
    if !skip::has_tool("promtool") {
        return;
    }
    let folder = folder_with_systemd("promtool");
    run(&folder, &block("systemd/monitoring/README.md", "Test"));
}

/// The data volume of a month is computed from the bytes a minute of README.md.
#[test]
fn the_data_volume_of_a_month_is_that_of_the_readme() {
    let readme = text("README.md");
    let mut rows = readme
        .lines()
        .filter(|row| row.starts_with("| bytes a minute"));
    let row = rows.next().unwrap();
    let minute = row.rsplit('|').map(str::trim).find(|cell| !cell.is_empty());
    let minute: u64 = minute.unwrap().replace(',', "").parse().unwrap();
    let month = minute * 60 * 24 * 30;
    let megabytes = (month + 500_000) / 1_000_000;
    let sentence = format!("**{megabytes} MB a month**");
    let chapter = text("systemd/cluster/README.md");
    assert!(
        chapter.contains(&sentence),
        "not in the chapter: {sentence}"
    );
}
