//! Client certificates as openssl makes them, at the port.

use std::process::{Command, Stdio};

use apidouble::Double;
use support::{Folder, skip};

use super::{Served, flags};

const NO_KEY: &str = "its key cannot be verified";
const NO_SIGNATURE: &str = "its signature, or that of a CA, is ECDSA with SHA-512";
const UNKNOWN: &str = "the critical extension 1.2.3.4 of \"admin\" is not known; issue it without";

/// Runs a shell command in the folder. Returns what it says on stdout.
fn run(folder: &Folder, command: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder.path()).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The status of a request with the certificate `tls.crt`.
fn ask(folder: &Folder, port: u16, header: &str, version: &str) -> String {
    let command = format!(
        "printf 'GET /metrics HTTP/1.1\\r\\nHost: pi\\r\\n{header}Connection: close\\r\\n\\r\\n' | openssl \
         s_client -connect 127.0.0.1:{port} -cert tls.crt -key tls.key {version} -quiet -ign_eof \
         -cipher DEFAULT@SECLEVEL=0"
    );
    run(folder, &command).split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Keys and signatures that only openssl makes. Usages, names, CAs and sizes are in
/// `src/serve/tests.rs`.
#[test]
fn what_cannot_be_verified_is_no_credential_and_the_token_beside_it_counts() {
    if !skip::has_tool("openssl") {
        return;
    }
    let double = Double::builder().token("t0ken", "admin", &["system:masters"]).start();
    let folder = Folder::new("serve-clients");
    folder.write("ca.crt", double.ca_pem());
    folder.write("ca.key", double.authority().key_pem());
    folder.write("client.ext", "extendedKeyUsage=clientAuth");
    folder.write("policies.ext", "certificatePolicies=critical,1.2.3.4");
    folder.write("unknown.ext", "1.2.3.4=critical,DER:0500");
    let flags = flags(&double, &folder);
    let [p256, p384] =
        ["P-256", "P-384"].map(|name| format!("ec -pkeyopt ec_paramgen_curve:{name}"));
    for (what, key, signed, why) in [
        ("RSA", "rsa:2048", "-extfile client.ext", None),
        ("P-384", &p384, "-extfile client.ext -sha384", None),
        ("Ed25519", "ed25519", "-extfile client.ext", None),
        ("version 1", &p256, "", None),
        ("version 1, RSA", "rsa:2048", "", None),
        ("critical policies", &p256, "-extfile policies.ext", None),
        ("unknown and critical", &p256, "-extfile unknown.ext", Some(UNKNOWN)),
        ("SHA-512", &p256, "-extfile client.ext -sha512", Some(NO_SIGNATURE)),
        ("SHA-512, version 1", &p256, "-sha512", Some(NO_SIGNATURE)),
        ("RSA 1024", "rsa:1024", "-extfile client.ext", Some(NO_KEY)),
    ] {
        let request = format!("openssl req -new -newkey {key} -nodes -keyout tls.key -out tls.csr");
        run(&folder, &format!("{request} -subj /O=system:masters/CN=admin"));
        let sign = "openssl x509 -req -in tls.csr -out tls.crt -days 9 -set_serial 7";
        run(&folder, &format!("{sign} -CA ca.crt -CAkey ca.key {signed}"));
        // A log of its own: it has one such line a minute.
        let served = Served::start(&flags);
        let code = if why.is_none() { "200" } else { "401" };
        for version in ["-tls1_3", "-tls1_2"] {
            let ask = |header: &str| ask(&folder, served.port, header, version);
            assert_eq!(ask(""), code, "{what}: {:?}", served.board.log());
            assert_eq!(ask("Authorization: Bearer t0ken\\r\\n"), "200", "{what}");
        }
        let mut lines = served.board.log();
        lines.retain(|line| line.contains("client certificate: not used: from 127.0.0.1, "));
        assert_eq!(lines.len(), usize::from(why.is_some()), "{what}: {lines:?}");
        assert!(lines.iter().all(|line| line.contains(why.unwrap_or_default())), "{lines:?}");
    }
}
