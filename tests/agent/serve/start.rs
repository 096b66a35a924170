//! Starts that cannot serve, and the socket of systemd.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus, Stdio};

use apidouble::Double;
use support::{Folder, eventually};

use super::{Client, SOON};
use crate::common::command::{command, end as end_of};

/// `nodelet` with a listening socket as stdin.
fn with_socket(listener: &TcpListener, name: &str, flags: &[String]) -> Child {
    let socket = OwnedFd::from(listener.try_clone().unwrap());
    let mut command = command([name]);
    command.args(flags).stdin(Stdio::from(socket)).stderr(Stdio::piped()).spawn().unwrap()
}

/// The exit status and what was said.
fn end(mut child: Child) -> (ExitStatus, String) {
    eventually("the end", SOON, || child.try_wait().unwrap());
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8(output.stderr).unwrap())
}

/// Wrong flags are in `command_line.rs`.
#[test]
fn a_start_that_cannot_serve_is_one_line_and_exit_code_1() {
    let (double, folder) = (Double::start(), Folder::new("serve-start"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--listen={}", taken.local_addr().unwrap());
    let free = "--listen=127.0.0.1:0".to_owned();
    let nobody = double.kubeconfig_token("x").replace("user:\n    token: x", "user: {}");
    let stranger = folder.write("stranger", nobody);
    let empty = folder.write("empty", "");
    let certificate = folder.write("certificate", double.ca_pem());
    for (more, want) in [
        (vec![taken], "address already in use"),
        (
            vec![free.clone(), format!("--client-ca-file={}", empty.display())],
            "no certificate in it",
        ),
        (
            vec![
                free.clone(),
                format!("--tls-cert-file={}", certificate.display()),
                format!("--tls-private-key-file={}", empty.display()),
            ],
            "no private key in it",
        ),
        (vec![free.clone(), format!("--kubeconfig={}", stranger.display())], "no credentials"),
        (vec![free, "--kubeconfig=/nonexistent/kubeconfig".to_owned()], "no such file"),
    ] {
        let ended = end_of(command(["serve"]).args(super::flags(&double, &folder)).args(&more));
        let said = ended.stderr;
        assert_eq!(ended.code, 1, "{more:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{more:?}: {said}");
        assert!(said.contains(want), "{more:?}: {said}");
    }
}

/// The flags are those of the agent's unit, whose credentials this unit does not see.
#[test]
fn a_bootstrap_kubeconfig_of_the_agents_unit_is_read_from_the_own_credentials() {
    let (double, folder) = (Double::start(), Folder::new("serve-bootstrap"));
    folder.write("bootstrap-kubeconfig", double.kubeconfig_token("x"));
    let bootstrap = "/run/credentials/nodelet.service/bootstrap-kubeconfig";
    let mut serve = command(["serve", "--listen=127.0.0.1:0", "--hostname-override=pi"]);
    serve.args([
        "--kubeconfig=/nonexistent/kubeconfig".to_owned(),
        format!("--bootstrap-kubeconfig={bootstrap}"),
        format!("--root-dir={}", folder.path().display()),
        format!("--cert-dir={}", folder.path().join("pki").display()),
    ]);
    let said = end_of(serve.env("CREDENTIALS_DIRECTORY", folder.path())).stderr;
    assert!(said.contains("there is no certificate yet"), "{said}");
}

/// systemd starts it at a connection, and again when it ended.
#[test]
fn the_socket_of_systemd_is_served_until_nobody_asks() {
    let (double, folder) = (Double::start(), Folder::new("serve-socket"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut flags = super::flags(&double, &folder);
    flags.push("--idle-exit=1s".to_owned());
    for _ in 0..2 {
        let child = with_socket(&listener, "serve", &flags);
        let mut client = Client::connect(address.port(), None);
        for _ in 0..2 {
            assert_eq!(client.ask("GET", "/healthz", &[]).code, 401);
        }
        drop(client);
        let (status, said) = end(child);
        assert!(status.success(), "{said}");
    }
}

/// systemd starts it again after `RestartSec=`.
#[test]
fn a_failed_start_at_a_socket_logs_one_line() {
    let folder = Folder::new("serve-failed-start");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let missing = format!("--kubeconfig={}", folder.path().join("missing").display());
    let one = with_socket(&listener, "serve", &[missing, "--hostname-override=pi".to_owned()]);
    let two = with_socket(&listener, "serve", &["--idle-exit=soon".to_owned()]);
    // The socket's clients would wait for ever.
    let double = Double::start();
    let mut flags = super::flags(&double, &folder);
    flags.push("--listen=127.0.0.1:0".to_owned());
    let three = with_socket(&listener, "serve", &flags);
    for (child, code, want) in
        [(one, 1, "missing"), (two, 2, "soon"), (three, 1, "remove --listen")]
    {
        let (status, said) = end(child);
        assert_eq!((status.code(), said.lines().count()), (Some(code), 1), "{said}");
        assert!(said.contains(want), "{said}");
    }
}
