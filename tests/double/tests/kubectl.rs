//! A real kubectl against the double, where there is one; its recorded requests in any case.

mod common;

use apidouble::Double;
use common::{Client, normalise, recording, with_lease, with_node};
use std::path::Path;
use std::process::Command;
use support::{Folder, skip};

fn kubectl(dir: &Path, arguments: &str) -> (String, String, i32) {
    let output = Command::new("kubectl")
        .args(arguments.split(' '))
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("KUBECACHEDIR", dir.join("cache"))
        .env("KUBECONFIG", dir.join("admin.kubeconfig"))
        .output()
        .expect("kubectl runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap_or(-1))
}

/// A double with the Node and the Lease of the recording; the uid of the Node.
fn recorded_double() -> (Double, String) {
    let double = Double::start();
    let node = with_node(&double, "nodelet1");
    with_lease(&double, &node, "2026-11-21T07:00:00.000000Z");
    (double, node["metadata"]["uid"].as_str().expect("a uid").to_owned())
}

/// The same words, with what differs from run to run replaced.
fn plain(text: &str) -> String {
    let age = |word: &str| word.strip_suffix('s').is_some_and(|n| n.parse::<u32>().is_ok());
    let plain_line = |line: &str| {
        let start = &line[..line.len() - line.trim_start().len()];
        let words = line.split_whitespace().map(|word| if age(word) { "AGE" } else { word });
        let mut words: Vec<&str> = words.collect();
        match words.first() {
            Some(&"CreationTimestamp:" | &"creationTimestamp:" | &"uid:" | &"resourceVersion:") => {
                words.truncate(1);
            }
            // Not printed since kubectl 1.33.
            Some(&"Kube-Proxy") => return None,
            _ => {}
        }
        Some(format!("{start}{}", words.join(" ")))
    };
    text.trim_end().lines().filter_map(plain_line).collect::<Vec<_>>().join("\n")
}

#[test]
fn kubectl_prints_what_it_prints_against_a_real_server() {
    // Without kubectl, its recorded requests are replayed by the other test all the same.
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let (double, _) = recorded_double();
    let folder = Folder::new("kubectl");
    folder.write("admin.kubeconfig", double.kubeconfig_admin());
    let mut failures = Vec::new();
    for (command, expected) in recording("kubectl")["outputs"].as_object().expect("outputs") {
        if !is_known(command) {
            continue;
        }
        let arguments = command.strip_prefix("kubectl ").expect("a kubectl command");
        let (stdout, stderr, exit) = kubectl(folder.path(), arguments);
        let wanted = expected["stdout"].as_str().unwrap_or("");
        if plain(&stdout) != plain(wanted) || expected["exit"] != exit {
            failures
                .push(format!("$ {command}\nexit {exit}\n{stdout}{stderr}--- wanted\n{wanted}"));
        }
        if arguments == "get nodes -o wide" {
            // to the byte; an age may turn in between, so more than one look
            let same = |_| kubectl(folder.path(), arguments).0 == double.print_nodes();
            assert!((0..5).any(same), "{}\n{stdout}", double.print_nodes());
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n=====\n"));
    let (deleted, stderr, exit) = kubectl(folder.path(), "delete node nodelet1 --wait=true");
    assert_eq!((deleted.as_str(), exit), ("node \"nodelet1\" deleted\n", 0), "{stderr}");
}

/// The double prints Nodes and Leases. `kubectl describe` reads events without a Table.
fn is_known(command: &str) -> bool {
    let is_read = command.starts_with("kubectl get") || command.starts_with("kubectl describe");
    is_read && !command.contains("get events") && !command.contains("get csr")
}

/// The uid of the recorded Node.
const RECORDED_UID: &str = "91bb116c-5f10-49f4-bd63-2669de8acac9";

#[test]
fn recorded_kubectl_requests_get_their_recorded_answers() {
    let (double, uid) = recorded_double();
    let mut client = Client::admin(&double);
    let mut failures = Vec::new();
    for step in recording("kubectl")["steps"].as_array().expect("steps") {
        let command = step["command"].as_str().unwrap_or("");
        if !is_known(command) {
            continue;
        }
        let request = &step["request"];
        let path = request["path"].as_str().expect("a path").replace(RECORDED_UID, &uid);
        let accept = request["headers"]["Accept"].as_str().unwrap_or("");
        let mut answer = client.send("GET", &path, accept, "", "");
        answer.body = answer.body.replace(&uid, RECORDED_UID);
        let wanted = &step["response"];
        let (have, want) = (normalise(&answer.json()), normalise(&wanted["body"]));
        if wanted["status"] != answer.code || have != want {
            failures.push(format!("{path}\nhave {have}\nwant {want}"));
        }
        let media = wanted["headers"]["Content-Type"].as_str();
        assert_eq!(answer.header("content-type"), media, "{path}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
