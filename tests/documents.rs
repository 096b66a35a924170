//! The documents: their links, their paths, and the commands of their `sh` blocks.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Output};
use std::time::Duration;

use apidouble::{Double, Validity};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nodelet::config::command_line;
use nodelet::kube::yaml;
use nodelet::node::schedule::LeaseTimings;
use serde_json::json;

use nodelet::join::command::{self, JoinCommand, TokenSource};
use nodelet::join::token::Token;
use support::{Folder, eventually, skip};

#[path = "../cross/flags.rs"]
#[expect(dead_code, reason = "main is that of the command")]
mod flags;

/// Lines of README.md.
const LONGEST_README: usize = 150;

/// What tests the `sh` block below a heading of a document.
type Runner = fn(script: &str);

/// The `sh` blocks that a test runs, here. Each line of the others is a line of [`SCRIPTS`].
const BLOCKS: [(&str, &str, Runner); 13] = [
    ("README.md", "Your own cluster from your desk", this_machine_becomes_a_node_and_goes_again),
    ("systemd/README.md", "Initramfs", the_archive_is_appended_and_aligned),
    ("systemd/README.md", "Install by hand", the_unit_is_installed_and_enabled),
    ("systemd/cluster/README.md", "A stolen board", the_policy_names_the_stolen_board),
    ("systemd/cluster/README.md", "DaemonSets", the_policy_is_applied_and_the_daemon_set_patched),
    ("systemd/cluster/README.md", "Retire a board", the_node_is_deleted),
    ("systemd/cluster/README.md", "podCIDRs", the_policy_is_applied),
    ("systemd/health.md", "The board's health", kubectl_shows_what_each_board_has),
    ("systemd/join.md", "By hand, with a bootstrap token", kubeadm_makes_a_bootstrap_kubeconfig),
    ("systemd/join.md", "With a ServiceAccount token", kubectl_makes_a_kubeconfig),
    ("systemd/join.md", "microk8s and k0s", a_token_of_k0s_is_a_bootstrap_kubeconfig),
    ("systemd/monitoring/README.md", "Install", a_prometheus_rule_is_made),
    ("systemd/monitoring/README.md", "Test", promtool_checks_and_tests_the_rules),
];

const SCRIPTS: [&str; 3] = [".ci/run", ".ci/boards", "cross/release.sh"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The files of the repository, but what the build writes and recorded data.
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

/// Each document, by its path, and its text.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(root(), &mut found);
    let names = found.iter().filter_map(|path| path.strip_prefix(root()).ok()?.to_str());
    let names = names.filter(|name| name.ends_with(".md"));
    names.map(|name| (name.to_owned(), text(name))).collect()
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

#[test]
fn the_readme_is_short() {
    let lines = text("README.md").lines().count();
    assert!(lines <= LONGEST_README, "README.md has {lines} lines");
}

#[test]
fn each_block_of_commands_works() {
    // Scripts name targets by variables.
    let scripts = SCRIPTS.map(text).concat().replace("\"$aarch64\"", "aarch64-unknown-linux-musl");
    let scripts = scripts.replace("\"$armv7\"", "armv7-unknown-linux-musleabihf");
    let is_run = |command: &str| {
        let mut lines = scripts.lines();
        lines.any(|line| {
            let mut words = line.split_whitespace();
            command.split_whitespace().all(|word| words.any(|found| found == word))
        })
    };
    let mut found = Vec::new();
    for (document, text) in &documents() {
        let (_, blocks, _) = parse(text);
        for Block { heading, language, lines } in blocks {
            assert!(["sh", "text"].contains(&language), "{document}: a block of {language:?}");
            if language == "text" {
                continue;
            }
            let runner =
                BLOCKS.iter().find(|block| (block.0, block.1) == (document.as_str(), heading));
            if let Some((document, heading, run)) = runner {
                println!("{document}, {heading}");
                run(&lines.join("\n"));
                found.push((*document, *heading));
                continue;
            }
            for line in lines {
                let command = line.split(" #").next().unwrap().trim();
                assert!(is_run(command), "{document}, {heading}: nothing runs {command:?}");
            }
        }
    }
    found.sort_unstable();
    assert_eq!(found, BLOCKS.map(|(document, heading, _)| (document, heading)));
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
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
    for (document, own) in &documents() {
        let (_, _, prose) = parse(own);
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
    assert_eq!(text.matches('`').count() % 2, 0, "a backtick without its pair");
    text.split('`').skip(1).step_by(2).collect()
}

/// Whether a word can be a path of the repository: no command, pattern, URL or absolute path.
fn is_relative_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    !word.starts_with(['/', '-', '~']) && word.chars().all(is_plain)
}

/// What the build writes, and optional data beside the repository.
const NOT_STORED: [&str; 2] = ["dist/", "../shared/fixtures"];

/// Paths of Linux, Kubernetes and a board that are written without their first slash.
const ELSEWHERE: [&str; 2] = ["proc/meminfo", "nodelet/no-pods"];

fn exists(document: &str, word: &str) -> bool {
    let beside = root().join(document).parent().unwrap().join(word);
    let in_source = root().join("src").join(word);
    [beside, in_source, root().join(word)].iter().any(|path| path.exists())
}

#[test]
fn each_path_in_backticks_exists() {
    let mut count = 0;
    for (document, text) in &documents() {
        let (_, _, prose) = parse(text);
        for word in code(&prose.join("\n")) {
            let file = [".rs", ".sh", ".md"].iter().any(|end| word.ends_with(end));
            let stored = !NOT_STORED.iter().any(|prefix| word.starts_with(prefix));
            let is_path = is_relative_path(word) && stored && !ELSEWHERE.contains(&word);
            let top = word.split('/').next().unwrap();
            let known = document == "src/README.md" || exists(document, top);
            if is_path && (file || word.contains('/') && known) {
                count += 1;
                assert!(exists(document, word), "{document}: `{word}` does not exist");
            }
        }
    }
    assert!(count > 80, "{count} paths");
}

/// Documents that are not in the repository, in two parts, so that this file does not name one.
const FOREIGN: [[&str; 2]; 7] = [
    ["shared/", "design"],
    ["shared/", "spec"],
    ["shared/", "findings"],
    ["shared/", "hooks"],
    ["decisions", ".md"],
    ["house", ".md"],
    ["(spec", ": "],
];

#[test]
fn no_file_refers_to_a_document_outside_of_the_repository() {
    let mut found = Vec::new();
    files(root(), &mut found);
    assert!(found.len() > 200, "{} files", found.len());
    let mut faults = Vec::new();
    for path in found {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if FOREIGN.iter().any(|parts| line.contains(&parts.concat())) {
                faults.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs a script in `folder`, with `folder/bin` first in PATH.
fn run(folder: &Folder, script: &str) -> Output {
    let output = process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder.path())
        .env("PATH", folder.search_path())
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
    folder.program(&format!("bin/{name}"), format!("#!/bin/sh\n{script}"));
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

fn kubeadm_makes_a_bootstrap_kubeconfig(script: &str) {
    let double = Double::builder().bootstrap_token("abcdef.0123456789abcdef").start();
    let folder = Folder::new("kubeadm");
    write_program(
        &folder,
        "kubeadm",
        "[ \"$*\" = 'token create' ] && echo abcdef.0123456789abcdef",
    );
    let ca = folder.write("ca.crt", double.ca_pem());
    let script = script
        .replace("/etc/kubernetes/pki/ca.crt", ca.to_str().unwrap())
        .replace("https://10.0.0.1:6443", &double.url());
    assert!(script.contains(&double.url()) && script.contains("kubeadm token create"));
    run(&folder, &script);
    let made = folder.path().join("nodelet.bootstrap-kubeconfig");
    assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o600);
    let here = folder.path().display();
    let flags = [
        format!("--kubeconfig={here}/kubeconfig"),
        format!("--bootstrap-kubeconfig={}", made.display()),
        format!("--root-dir={here}"),
    ];
    check(&flags, &double, "csr-create");
}

fn a_token_of_k0s_is_a_bootstrap_kubeconfig(script: &str) {
    let double = Double::builder().bootstrap_token("abcdef.0123456789abcdef").start();
    let folder = Folder::new("k0s");
    folder.write("plain", double.kubeconfig_token("abcdef.0123456789abcdef"));
    run(&folder, "gzip -c plain | base64 >TOKEN-FILE");
    let here = folder.path().display();
    run(&folder, &script.replace("/etc/", &format!("{here}/etc/")));
    let made = folder.path().join("etc/credstore/nodelet.bootstrap-kubeconfig");
    for (path, mode) in [(made.as_path(), 0o600), (made.parent().unwrap(), 0o700)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
    }
    // Those of nodelet.default, which the page names.
    let default = text("systemd/nodelet.default");
    let flags = default.lines().find_map(|line| line.strip_prefix("#NODELET_FLAGS=--kubeconfig"));
    let flags = format!("--kubeconfig{} --root-dir={here}", flags.unwrap());
    let flags = flags.replace("/var/lib/nodelet", &here.to_string());
    let copies = "/run/credentials/nodelet.service/";
    let flags = flags.replace(copies, &format!("{here}/etc/credstore/nodelet."));
    let flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
    check(&flags, &double, "csr-create");
}

/// The first line runs until a signal; the others follow. Also with the address that k3d writes,
/// and with a token.
fn this_machine_becomes_a_node_and_goes_again(script: &str) {
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let token = "t0ken";
    let double = Double::builder().token(token, "admin", &["system:masters"]).start();
    let hosts = ["127.0.0.1", "0.0.0.0"];
    double.swap_validity(Validity::VALID, Some(&hosts));
    let folder = Folder::new("desk");
    let (agent, rest) = script.split_once('\n').unwrap();
    let agent = agent.replace("cargo run --", &format!("exec {}", env!("CARGO_BIN_EXE_nodelet")));
    for kubeconfig in [
        double.kubeconfig_admin(),
        double.kubeconfig_admin().replace("127.0.0.1", "0.0.0.0"),
        double.kubeconfig_token(token),
    ] {
        folder.write(".kube/config", kubeconfig);
        let sh = |script: &str| {
            let mut sh = process::Command::new("sh");
            sh.args(["-ec", script]).env("HOME", folder.path()).env_remove("KUBECONFIG");
            sh
        };
        let mut running = sh(&agent).spawn().unwrap();
        eventually("the Node", Duration::from_secs(20), || double.get("nodes/desk"));
        kill(Pid::from_raw(running.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        assert!(running.wait().unwrap().success());
        assert!(sh(rest).status().unwrap().success());
        assert_eq!(double.get("nodes/desk"), None);
    }
}

/// Each `nodelet join` line of a document is a valid command line, with a way to trust the server.
/// A digest may be shortened.
#[test]
fn the_join_lines_are_valid() {
    let mut count = 0;
    for (document, own) in &documents() {
        let (_, blocks, _) = parse(own);
        for line in blocks.iter().flat_map(|block| &block.lines) {
            let line = line.trim_start_matches(['$', ' ']);
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            let line = line.strip_prefix("nodelet ").or_else(|| line.strip_prefix("kubeadm "));
            let Some(line) = line.filter(|line| line.starts_with("join ")) else {
                continue;
            };
            let line = line.replace("4569…", &"4569".repeat(16));
            let args: Vec<_> = line.split(' ').map(Into::into).collect();
            let Some(Ok(JoinCommand::Join(settings))) = command::parse(&args) else {
                panic!("{document}: {line}");
            };
            let TokenSource::Text(token) = &settings.token else {
                panic!("{document}: {line}");
            };
            let token = Token::parse(token.reveal()).unwrap();
            assert_eq!(settings.check(&token), Ok(()), "{document}: {line}");
            count += 1;
        }
    }
    assert!(count >= 4, "{count} lines");
}

/// The container has its own file system, which is read-only but for what is mounted into it.
#[test]
fn the_container_stores_its_certificate_in_its_volume() {
    let header = text("cross/Containerfile").replace("\\\n#", "");
    let lines: Vec<&str> = header.lines().map(|line| line.trim_start_matches(['#', ' '])).collect();
    let line = lines.iter().find(|line| line.starts_with("podman run ")).unwrap();
    let (options, args) = line.split_once(" nodelet ").unwrap();
    let (args, of_join) = args.split_once(" $(").unwrap();
    let (_, flags) = command_line::parse(args.split_whitespace().map(Into::into)).unwrap();
    let volume = format!("--volume {0}:{0}", flags.values.root_dir.display());
    assert!(
        flags.values.config.rotate_certificates && flags.values.config.cert_dir == Path::new("")
    );
    // The file `boots` is below the root of the host, which is read-only.
    let root = &flags.values.host_root;
    let below = format!("--volume {0}:{1}{0}", flags.values.root_dir.display(), root.display());
    for volume in [volume, below] {
        assert!(format!("{options} ").contains(&format!("{volume} ")), "{volume}: {options}");
    }
    // Podman refuses the source of a volume that is missing.
    let folder = format!("mkdir -m 700 -p {}", flags.values.root_dir.display());
    assert!(lines.contains(&folder.as_str()), "{folder}");
    let folder = Folder::new("container");
    let joined = "# By nodelet join.\nNODELET_JOIN_FLAGS=--k3s-supervisor=https://b --v=2\n";
    let stored = folder.write("nodelet-join", joined).display().to_string();
    let of_join = of_join.trim_end_matches(')').replace("/etc/default/nodelet-join", &stored);
    let found = run(&folder, &of_join).stdout;
    assert_eq!(String::from_utf8(found).unwrap().trim(), "--k3s-supervisor=https://b --v=2");
}

fn kubectl_makes_a_kubeconfig(script: &str) {
    // It may be missing in CI, too.
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let double = Double::builder()
        .token("t0ken", "system:serviceaccount:kube-system:nodelet", &["system:masters"])
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
    let script = script.replace("https://10.0.0.1:6443", &double.url());
    run(&folder, &script);
    let here = folder.path().display();
    let flags = [format!("--kubeconfig={here}/kubeconfig"), format!("--root-dir={here}")];
    check(&flags, &double, "node-status-patch");
}

fn the_unit_is_installed_and_enabled(script: &str) {
    if !skip::has_tool("systemctl") {
        return;
    }
    let double = Double::start();
    let folder = Folder::new("install");
    let here = folder.path().to_str().unwrap();
    for name in ["usr/bin", "etc/systemd/system", "etc/default"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_nodelet"), folder.path().join("nodelet")).unwrap();
    let mut units = Vec::new();
    for entry in fs::read_dir(root().join("systemd")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if [".service", ".socket", ".path"].iter().any(|end| name.ends_with(end)) {
            folder.write(&name, text(&format!("systemd/{name}")));
            units.push(name);
        }
    }
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = name.trim().to_lowercase();
    folder.write("kubeconfig", double.kubeconfig_for_node(&name));

    let (checks, rest): (Vec<&str>, Vec<&str>) =
        script.lines().partition(|line| line.starts_with("nodelet check "));
    let rest = rest.join("\n").replace(" /", &format!(" {here}/"));
    let rest = rest.replace(">/", &format!(">{here}/"));
    // The start is the last line: it reads the flags.
    assert!(rest.lines().last().is_some_and(|line| line.contains("enable --now")), "{rest}");
    // In another root nothing can be started.
    let rest = rest.replace("enable --now --no-block", &format!("--root={here} enable"));
    run(&folder, &rest);

    let [line] = checks[..] else {
        panic!("{checks:?}");
    };
    let flags = line.split_whitespace().skip(2);
    let flags: Vec<String> = flags.map(|flag| flag.replace("=/", &format!("={here}/"))).collect();
    check(&flags, &double, "node-status-patch");
    let wants = "etc/systemd/system/multi-user.target.wants/nodelet.service";
    let enabled = folder.path().join(wants).symlink_metadata();
    assert!(enabled.unwrap().is_symlink());
    for unit in units {
        assert!(folder.path().join("etc/systemd/system").join(&unit).exists(), "{unit}");
    }
    let flags = fs::read_to_string(folder.path().join("etc/default/nodelet")).unwrap();
    assert_eq!(flags, "NODELET_FLAGS=--rotate-certificates\n");
}

fn the_archive_is_appended_and_aligned(script: &str) {
    if !skip::has_tool("cpio") {
        return;
    }
    let folder = folder_with_systemd("initramfs");
    folder.write("dist/aarch64-unknown-linux-musl/nodelet", "a binary");
    folder.write("nodelet.kubeconfig", "a secret");
    folder.write("initramfs.img", "seven b");
    run(&folder, script);
    let image = fs::read(folder.path().join("board.img")).unwrap();
    assert_eq!(&image[..8], b"seven b\0");
    assert!(image[8..].starts_with(b"070701"), "no newc archive at 8");
}

/// What a script gives to `kubectl`, in a folder with `systemd/`: of each call its arguments as a
/// comment, and the content of the file that its last argument names (`-` is its input).
fn applied(name: &str, script: &str) -> String {
    let folder = folder_with_systemd(name);
    let stub = "echo \"# $*\" >>applied\n\
                for file; do :; done\n\
                case \"$*\" in *' -f '* | *' --patch-file='*) ;; *) exit 1 ;; esac\n\
                cat \"${file#--patch-file=}\" >>applied\n";
    write_program(&folder, "kubectl", stub);
    run(&folder, script);
    fs::read_to_string(folder.path().join("applied")).unwrap()
}

/// `tests/agent/policies.rs` tests the manifests.
fn the_policy_is_applied_and_the_daemon_set_patched(script: &str) {
    let applied = applied("daemonsets", script);
    for part in ["kind: MutatingAdmissionPolicyBinding", "operator: NotIn"] {
        assert_eq!(applied.matches(part).count(), 1, "{applied}");
    }
}

fn the_policy_is_applied(script: &str) {
    let applied = applied("podcidrs", script);
    assert!(applied.contains("!has(object.spec.podCIDR)"), "{applied}");
}

fn the_policy_names_the_stolen_board(script: &str) {
    let applied = applied("stolen", script);
    assert!(applied.contains("in ['system:node:barn-pi']"), "{applied}");
    // With one name for all, the command for a second board would free the first.
    assert_eq!(applied.matches("ame: nodelet-denies-barn-pi\n").count(), 3, "{applied}");
    let text = applied.lines().filter(|line| !line.starts_with('#')).collect::<String>();
    assert!(!text.contains("stolen-board"), "{applied}");
}

/// A request of the Node delays a renewal, which gets no response, and the next one opens a
/// connection.
#[test]
fn a_grace_period_is_longer_than_the_lease_law_needs() {
    let text = text("systemd/cluster/README.md");
    let (_, table) = text.split_once("| duration, s |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    for row in table.lines().skip(2) {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let number = |at: usize| cells[at].split(',').next().unwrap().parse::<f64>().unwrap();
        let law = LeaseTimings { lease_duration: Duration::from_secs(cells[0].parse().unwrap()) };
        let call = law.call_budget();
        let longest = law.longest_renew_interval()
            + call
            + law.answer_budget()
            + call / 50
            + law.connect_and_call_budget();
        assert!((longest.as_secs_f64() - number(2)).abs() < 0.1, "{row}: {longest:?}");
        assert!(longest.as_secs_f64() < number(3), "{row}: {longest:?}");
        let renewals = 60.0 / law.renew_interval().as_secs_f64();
        assert!((renewals - number(1)).abs() < 0.1, "{row}: {renewals}");
    }
    assert_eq!(table.lines().count(), 7, "{table}");
}

fn the_node_is_deleted(script: &str) {
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let double = Double::start();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "barn-pi"}});
    let (code, answer) = double.as_admin("POST", "/api/v1/nodes", "application/json", &node);
    assert_eq!(code, 201, "{answer}");
    let folder = Folder::new("retire");
    let admin = folder.write("admin", double.kubeconfig_admin());
    run(&folder, &format!("export KUBECONFIG={}\n{script}", admin.display()));
    assert_eq!(double.get("/api/v1/nodes/barn-pi"), None);
}

/// Its output is the block after it.
fn kubectl_shows_what_each_board_has(script: &str) {
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let double = Double::start();
    for (name, os) in [("barn-pi", "nodelet"), ("server-1", "linux")] {
        let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
        "status": {"conditions": [
            {"type": "UnderVoltage", "status": "False"},
            {"type": "FilesystemCorruptionProblem", "status": "True"},
            {"type": "Ready", "status": "True"},
        ]}});
        let (code, answer) = double.as_admin("POST", "/api/v1/nodes", "application/json", &node);
        assert_eq!(code, 201, "{answer}");
    }
    let folder = Folder::new("columns");
    let admin = folder.write("admin", double.kubeconfig_admin());
    let output = run(&folder, &format!("export KUBECONFIG={}\n{script}", admin.display()));
    let table = String::from_utf8(output.stdout).unwrap();
    let document = text("systemd/health.md");
    assert!(document.contains(&format!("```text\n{table}```")), "not in the document:\n{table}");
    assert_eq!(script.trim(), nodelet::check::board::ALL_BOARDS);
}

fn a_prometheus_rule_is_made(script: &str) {
    let applied = yaml::parse(&applied("operator", script)).unwrap();
    assert_eq!(applied["kind"], "PrometheusRule");
    let rules = yaml::parse(&text("systemd/monitoring/rules.yaml")).unwrap();
    assert!(rules["groups"].is_array());
    assert_eq!(applied["spec"], rules);
}

fn promtool_checks_and_tests_the_rules(script: &str) {
    if !skip::has_tool("promtool") {
        return;
    }
    let folder = folder_with_systemd("promtool");
    run(&folder, script);
}

#[test]
fn the_manual_has_a_row_for_each_condition_about_the_boards_health() {
    let document = text("systemd/health.md");
    for kind in nodelet::health::KINDS {
        let row = format!("| `{}` |", kind.name);
        assert!(document.lines().any(|line| line.starts_with(&row)), "no row {row}");
    }
}

/// The data volume of a month is computed from the bytes a minute of README.md.
#[test]
fn the_data_volume_of_a_month_is_that_of_the_readme() {
    let readme = text("README.md");
    let mut rows = readme.lines().filter(|row| row.starts_with("| bytes sent and received"));
    let row = rows.next().unwrap();
    let minute = row.rsplit('|').map(str::trim).find(|cell| !cell.is_empty());
    let minute: u64 = minute.unwrap().replace(',', "").parse().unwrap();
    let month = minute * 60 * 24 * 30;
    let megabytes = (month + 500_000) / 1_000_000;
    let sentence = format!("**{megabytes} MB a month**");
    let chapter = text("systemd/cluster/README.md");
    assert!(chapter.contains(&sentence), "not in the chapter: {sentence}");
}

/// A value of tests/budgets.toml.
fn recorded(name: &str) -> usize {
    let budgets = text("tests/budgets.toml");
    let mut found = budgets.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    found.next().unwrap().parse().unwrap()
}

/// RECORD_BUDGETS=1 changes them, and no document.
#[test]
fn memory_and_sizes_in_the_documents_are_those_of_the_budgets() {
    let with_commas = |value: usize| {
        let digits = value.to_string();
        let groups = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap());
        groups.collect::<Vec<_>>().join(",")
    };
    let readme = text("README.md");
    let resident = recorded("resident_kibibytes");
    for (row, value, end) in [
        ("| resident memory, KiB | 71,392 |", resident, " |"),
        ("| binary, bytes |", recorded("aarch64_binary_bytes"), " (arm64) |"),
    ] {
        let line = readme.lines().find(|line| line.starts_with(row)).unwrap();
        let value = with_commas(value);
        assert!(line.ends_with(&format!(" {value}{end}")), "{line}: recorded is {value}");
    }
    let megabytes = |kibibytes: usize| kibibytes as f64 * 1024.0 / 1e6;
    let control = text("cross/debian/control").replace("\n ", " ");
    let sentence = format!(
        "needs {:.1} megabytes of memory; a kubelet needs {:.0}.",
        megabytes(resident),
        megabytes(71_392)
    );
    assert!(control.contains(&sentence), "not in the package: {sentence}");
    let targets = text("cross/README.md");
    for target in ["aarch64", "armv7", "x86_64"] {
        let row =
            targets.lines().find(|line| line.contains(&format!(" {target}-unknown-"))).unwrap();
        let size = recorded(&format!("{target}_binary_bytes")) as f64 / 1e6;
        assert!(row.ends_with(&format!("| {size:.2} MB |")), "{row}: {size:.2}");
    }
}

/// README.md gives the limit, because the figure depends on the machine.
#[test]
fn the_system_calls_of_a_minute_are_the_limit_of_the_budgets() {
    let recorded = recorded("idle_minute_system_calls");
    let row = format!("| {} at most |", recorded + recorded * 3 / 100);
    let readme = text("README.md");
    let mut rows = readme.lines().filter(|line| line.starts_with("| system calls |"));
    assert!(rows.next().unwrap().ends_with(&row), "README.md has another limit than {row}");
}

/// The command that the documents name writes the same.
#[test]
fn the_tables_of_flags_are_those_of_the_program() {
    for document in flags::DOCUMENTS {
        let written = fs::read_to_string(root().join(document)).unwrap();
        let table = flags::with_table(document).unwrap();
        assert!(written == table, "{document}: run cargo run --example flags");
    }
    let manual = flags::manual("May 1, 2026");
    for part in [
        "\n.Dd May 1, 2026\n",
        "\n.It Fl -node-status-update-frequency Ar D\nhow often the status is computed (default 10s).\n",
        "\n.It Fl -reject-pods Ns Op =true|false\n",
        "\n.It Fl o , Fl -output Ar json|text\n",
        "\n.It Fl -token-file Ar FILE\nfile or pipe with the token; \\- is stdin.\n",
    ] {
        assert!(manual.contains(part), "{part}\n{manual}");
    }
    assert!(!manual.contains('@'), "{manual}");
}
