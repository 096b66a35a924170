use std::ffi::OsString;

use super::*;
use crate::config::flags::SETTINGS;
use crate::join::token::parse_digest;

const TOKEN: &str = "lwxivu.2uczm8x4xi2v7hqd";
const HASH: &str = "sha256:4569202d96996c30541d8e62bb1609824d98773f6590010c31b95e68352133cc";
const OTHER_HASH: &str = "sha256:9F28B252192D797538C03673CA513FE4A7310282AF8C0DFC494B4530B4A2B137";

fn args<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

fn parsed(line: &str) -> Result<JoinCommand, String> {
    parse(&args(line.split(' '))).expect("join or reset")
}

fn settings(line: &str) -> JoinSettings {
    match parsed(line) {
        Ok(JoinCommand::Join(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

fn error(line: &str) -> String {
    parsed(line).expect_err(line)
}

fn text(token: &str) -> TokenSource {
    TokenSource::Text(Secret::new(token.to_owned()))
}

fn pins() -> Vec<Digest> {
    let digest = |hash: &str| parse_digest(&hash[7..]).unwrap();
    vec![digest(HASH), digest(OTHER_HASH)]
}

/// The recorded line of kubeadm v1.36.2, its blank at the end included.
#[test]
fn the_recorded_line_is_parsed() {
    let recording = include_str!("../../../tests/recordings/join-kubeadm.json");
    let recording: serde_json::Value = serde_json::from_str(recording).unwrap();
    let line = recording["command"].as_str().unwrap();
    let line = line.strip_prefix("kubeadm ").unwrap();
    assert!(line.ends_with(' '));
    let settings = settings(line);
    assert_eq!(settings.server, "https://127.0.0.1:52609");
    assert_eq!(settings.token, text(TOKEN));
    assert_eq!(settings.pins, &pins()[..1]);
    assert!(settings.wait && !settings.unsafe_skip);
    let token = Token::parse(TOKEN).unwrap();
    assert_eq!(settings.check(&token), Ok(()));
}

#[test]
fn a_pasted_line_is_parsed() {
    let want =
        settings(&format!("join h:6443 --token {TOKEN} --discovery-token-ca-cert-hash {HASH}"));
    for line in [
        // A line break that the shell did not take, and a blank behind the backslash.
        "join|h:6443 |--token|TOKEN|\\| |\n|--discovery-token-ca-cert-hash|HASH|",
        // The whole line in quotes, as kubeadm init prints it.
        "join|kubeadm join h:6443 --token TOKEN \\\n\t--discovery-token-ca-cert-hash HASH ",
        "join|kubeadm|join|h:6443|--token|TOKEN|--discovery-token-ca-cert-hash|HASH",
        "join|h:6443|--token|TOKEN|--discovery-token-ca-cert-hash|HASH|--dry-run=false|--force=false",
        // The options first.
        "join|--discovery-token-ca-cert-hash|HASH|--token|TOKEN|h:6443",
    ] {
        let line = line.replace("TOKEN", TOKEN).replace("HASH", HASH);
        let Some(Ok(JoinCommand::Join(settings))) = parse(&args(line.split('|'))) else {
            panic!("{line}");
        };
        assert_eq!(*settings, want, "{line}");
    }
}

#[test]
fn an_endpoint_is_a_host_with_a_port_or_a_url() {
    for (endpoint, want) in [
        ("10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("10.0.0.1", "https://10.0.0.1:6443"),
        ("[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("[fd00::1]", "https://[fd00::1]:6443"),
        ("cp.example:6443/prefix", "https://cp.example:6443/prefix"),
        ("cp.example/a/b", "https://cp.example:6443/a/b"),
        ("https://server", "https://server"),
        ("https://server:9345", "https://server:9345"),
        ("HTTPS://server:9345", "https://server:9345"),
    ] {
        let line = format!("join {endpoint} --token {TOKEN}");
        assert_eq!(settings(&line).server, want);
    }
    for (endpoint, part) in [
        ("fd00::1:6443", "needs brackets"),
        ("http://10.0.0.1:6443", "only https"),
        ("ftp://x", "only https"),
        ("10.0.0.1:6443/api", "/api is a path of the API server; give HOST:PORT"),
        ("10.0.0.1:6443/api/v1/namespaces", "/api is a path"),
        ("https://cp.example/apis/", "/apis is a path"),
        ("https://10.0.0.1:6443/cacerts", "/cacerts is a path"),
        (
            "10.0.0.1:25000/5ecret",
            "microk8s join is for its own agent: give the board a kubeconfig",
        ),
        ("microk8s join 10.0.0.1:25000/5ecret/0f --worker", "microk8s join is for"),
        ("10.0.0.1:25000/5ecret --worker", "microk8s join is for"),
        ("k0s worker H4sI5ecret", "bootstrap-kubeconfig with mode 0600, and its flags in /etc/"),
        (K0S_TOKEN, "a token of k0s is a kubeconfig"),
    ] {
        let error = error(&format!("join {endpoint} --token {TOKEN}"));
        assert!(error.contains(part), "{endpoint}: {error}");
        assert!(!error.contains("5ecret"), "{endpoint}: {error}");
    }
}

const K0S_TOKEN: &str = "H4sI5ecretAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\
                         AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[test]
fn a_hash_repeats_and_takes_commas() {
    for hashes in [
        format!(
            "--discovery-token-ca-cert-hash {HASH} --discovery-token-ca-cert-hash={OTHER_HASH}"
        ),
        format!("--discovery-token-ca-cert-hash {HASH},{OTHER_HASH},{HASH}"),
        format!("--discovery_token_ca_cert_hash={HASH},,{}", OTHER_HASH.replace("sha", "SHA")),
    ] {
        let settings = settings(&format!("join h --token {TOKEN} {hashes}"));
        assert_eq!(settings.pins, pins(), "{hashes}");
    }
    for hash in ["sha256:00", "md5:00", "00", &HASH[7..], &format!("{HASH}0")] {
        let line = format!("join h --token {TOKEN} --discovery-token-ca-cert-hash {hash}");
        assert!(error(&line).contains("--discovery-token-ca-cert-hash"));
    }
}

#[test]
fn tokens_come_from_four_flags_and_token_fills_what_is_missing() {
    for (flags, token, bearer) in [
        ("--token a", text("a"), None),
        ("--token-file /run/t", TokenSource::File("/run/t".into()), None),
        ("--token-file -", TokenSource::File("-".into()), None),
        ("--discovery-token b", text("b"), None),
        ("--discovery-token b --token a", text("b"), Some(text("a"))),
        ("--token a --tls-bootstrap-token c", text("a"), Some(text("c"))),
        ("--discovery-token b --tls-bootstrap-token c --token a", text("b"), Some(text("c"))),
    ] {
        let settings = settings(&format!("join h {flags}"));
        assert_eq!((settings.token, settings.bearer), (token, bearer), "{flags}");
    }
    assert!(error("join h").contains("--token is missing"));
    let shown = format!("{:?}", parsed("join h --token-file f --tls-bootstrap-token s3cret"));
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn flags_of_a_run_are_kept_and_checked() {
    let settings = settings(
        "join h --token a --node-labels a=b,c=d --node-name Pi-3 --max-pods=0 --register-node false \
         --register-with-taints k=v:NoSchedule -v 2 --event-qps 5 --runonce --feature-gates A=true \
         --cri-socket unix:///x --ignore-preflight-errors=all --skip-phases=a",
    );
    // Flags of kubeadm that change nothing.
    assert_eq!(settings.ignored, ["cri-socket", "ignore-preflight-errors", "skip-phases"]);
    assert_eq!(
        settings.flags,
        [
            "--node-labels=a=b,c=d",
            "--max-pods=0",
            "--register-node=false",
            "--register-with-taints=k=v:NoSchedule",
            "--v=2",
            "--event-qps=5",
            "--runonce",
            "--feature-gates=A=true"
        ]
    );
    assert_eq!(settings.node_name.as_deref(), Some("Pi-3"));
    for (flags, part) in [
        ("--node-labels='a'", "quotes"),
        ("--node-labels=a\u{e9}", "quotes"),
        ("--provider-id=a\\b", "backslashes"),
        ("--event-qps=many", "--event-qps"),
        ("--no-such-flag", "unknown flag: --no-such-flag"),
        ("--kubeconfig=x", "nodelet join sets it"),
        ("--root-dir=x", "nodelet join sets it"),
        ("--max-pods", "needs an argument"),
        ("-x", "-x"),
        ("other", "two endpoints"),
        ("--timeout=5", "--timeout"),
        ("-o yaml", "write json or text"),
        // `--node-name=$UNSET` in the script of an image.
        ("--node-name=", "--node-name: an empty name"),
        ("--hostname-override=", "--node-name: an empty name"),
        ("--bootstrap-only --root=", "--root: an empty path"),
        ("--control-plane", "no control plane; use the line without"),
        ("--certificate-key=00", "no control plane; use the line without"),
        ("--apiserver-advertise-address=::", "no control plane; use the line without"),
        ("--apiserver-bind-port=1", "no control plane; use the line without"),
        ("--config=x", "nodelet.bootstrap-kubeconfig"),
        ("--discovery-file=x", "nodelet.bootstrap-kubeconfig, and its flags in /etc/default/"),
    ] {
        let error = error(&format!("join h --token a {flags}"));
        assert!(error.contains(part), "{flags}: {error}");
    }
}

#[test]
fn a_token_at_the_wrong_place_is_in_no_error() {
    let k10 = format!("K10{}::node:s3cret", &HASH[7..]);
    for token in [TOKEN, &k10] {
        for (line, part) in [
            ("join h:6443 TOKEN", "two endpoints; a token needs --token"),
            ("join TOKEN h:6443 --token-file f", "two endpoints"),
            ("join TOKEN", "the endpoint is missing"),
            ("join TOKEN --token-file f", "the endpoint is missing"),
            ("join http://TOKEN --token-file f", "only https"),
            ("join x:TOKEN:1 --token-file f", "needs brackets"),
            ("join h --discovery-token-ca-cert-hash TOKEN", "unknown hash format"),
            ("join h --discovery-token-ca-cert-hash sha256:TOKEN", "64 hexadecimal"),
            ("join h --discovery-token-unsafe-skip-ca-verification=TOKEN", "takes no value"),
            ("join h --TOKEN", "unknown flag: --…"),
            ("join h --timeout TOKEN", "--timeout: not a duration"),
            ("join h --output TOKEN", "--output: write json"),
            ("join h --max-pods TOKEN", "--max-pods: this is a token; use --token"),
            ("join h --node-name TOKEN", "--node-name: this is a token; use --token"),
            ("join h --hostname-override=TOKEN", "--node-name: this is a token; use --token"),
            ("join h --node-labels=a=b,c=TOKEN", "--node-labels: this is a token; use --token"),
            ("join h --node-labels=TOKEN", "--node-labels: this is a token; use --token"),
            ("join h --register-node=TOKEN", "--register-node: this is a token; use --token"),
            ("reset --TOKEN", "unknown flag: --…"),
            ("reset -o TOKEN", "--output: write json"),
            ("reset TOKEN", "unexpected argument"),
            ("reset --force=TOKEN", "takes no value"),
        ] {
            let error = error(&line.replace("TOKEN", token));
            assert!(error.contains(part), "{line}: {error}");
            for secret in ["2uczm8x4xi2v7hqd", "s3cret"] {
                assert!(!error.contains(secret), "{line}: {error}");
            }
        }
    }
}

/// A short token of k3s looks like any other word.
#[test]
fn no_error_quotes_the_value_of_a_flag_of_a_run() {
    let mut refused = 0;
    for flag in SETTINGS.iter().map(|setting| setting.flag) {
        for value in ["s3cret", "s3cret=", "a=s3cret", "a=b,s3cret", "1s3cret"] {
            let line = format!("join h --token a --{flag}={value}");
            if let Some(Err(error)) = parse(&args(line.split(' '))) {
                refused += 1;
                assert!(!error.contains("s3cret"), "{line}: {error}");
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn an_image_needs_a_name_or_the_bootstrap_way() {
    let line = "join h --token a --root tree";
    assert!(error(line).contains("--root needs --node-name"));
    for more in ["--node-name=pi", "--bootstrap-only"] {
        let settings = settings(&format!("{line} {more}"));
        assert_eq!(settings.root, Some("tree".into()));
        assert!(!settings.wait);
    }
    assert!(!settings("join h --token a --dry-run").wait);
    assert!(!settings("join h --token a --no-wait").wait);
}

#[test]
fn a_token_without_a_way_to_trust_the_server_is_refused() {
    let k10 = format!("K10{}::server:x", &HASH[7..]);
    let (ca, pin, skip) = (
        "--certificate-authority=ca",
        &format!("--discovery-token-ca-cert-hash={HASH}"),
        "--discovery-token-unsafe-skip-ca-verification",
    );
    for (token, flags, part) in [
        (TOKEN, "", "needs --discovery-token-ca-cert-hash"),
        (TOKEN, ca, ""),
        (TOKEN, pin, ""),
        (TOKEN, skip, ""),
        ("password", "", "use the whole token, K10"),
        ("password", ca, ""),
        ("password", skip, ""),
        (&k10, "", ""),
        (&k10, pin, "needs a token id.secret"),
        (&k10, "--bootstrap-only", "--bootstrap-only needs a token of kubeadm; k3s gives"),
        // Of `k3s token create`, without its first half.
        (&format!("::{TOKEN}"), "", "use the whole token, K10"),
        (&format!("::{TOKEN}"), ca, ""),
    ] {
        let settings = settings(format!("join https://h --token {token} {flags}").trim_end());
        let checked = settings.check(&Token::parse(token).unwrap());
        match part {
            "" => assert_eq!(checked, Ok(()), "{token} {flags}"),
            part => assert!(checked.unwrap_err().contains(part), "{token} {flags}"),
        }
    }
}

#[test]
fn reset_has_three_flags() {
    assert_eq!(parsed("reset"), Ok(JoinCommand::Reset(Reset::default())));
    let reset = Reset { force: true, root: Some("tree".into()), json: true };
    assert_eq!(parsed("reset -o json --root tree --force"), Ok(JoinCommand::Reset(reset)));
    for line in ["reset --token=a", "reset x", "reset -x", "reset --root"] {
        error(line);
    }
    assert!(error("reset --force --root=").starts_with("--root: an empty path; is its variable"));
    assert!(error("reset --root ").starts_with("--root: an empty path"));
    for line in ["join --help", "reset -h", "join h --help"] {
        assert_eq!(parsed(line), Ok(JoinCommand::Help));
    }
    assert_eq!(parsed("join --version"), Ok(JoinCommand::Version));
    for other in [&["inspect"][..], &["--kubeconfig=join"], &[]] {
        assert_eq!(parse(&args(other.iter().copied())), None);
    }
}
