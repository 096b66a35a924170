//! Kubeconfigs as kubeadm, k3s and administrators write them, and the error for each mistake.
#![allow(clippy::disallowed_methods)]

use std::fs;

use apidouble::Validity;
use rcgen::{CertificateParams, KeyPair};
use support::{Folder, skip};

use super::*;
use crate::client::api::Api;
use crate::credentials::pki::key::Key;
use crate::kube::keys::KeyKind;
use crate::kube::x509::{CertificatePurpose, Leaf};

/// A PEM file of a folder, as the kubeconfig parser reads it.
fn pem(folder: &Folder, name: &str) -> Pem {
    let path = folder.path().join(name);
    Pem { source: path.display().to_string(), bytes: fs::read(&path).unwrap(), file: Some(path) }
}

/// A kubeconfig with these members of `cluster` and `user`.
fn with(cluster: &str, user: &str) -> String {
    let indent =
        |lines: &str| lines.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
         clusters:\n- name: k\n  cluster:\n    server: https://10.0.0.1:6443\n{}\
         users:\n- name: u\n  user:\n    x-unknown: 1\n{}",
        indent(cluster),
        indent(user)
    )
}

/// The file of a stored pair is the source of both. People show a certificate to each other.
#[test]
fn a_key_is_not_written_as_a_certificate() {
    let key = KeyPair::generate().unwrap();
    let chain = CertificateParams::default().self_signed(&key).unwrap().pem();
    let pem = |text: String| Pem { file: None, source: "pair".into(), bytes: text.into_bytes() };
    let both = [chain, key.serialize_pem()].concat();
    let pair = ClientCertificate { chain: pem(both.clone()), key: pem(both) };
    let config = ApiConfig::at(Endpoint::parse("https://a").unwrap());
    let text = render(&config, &KubeconfigUser::Inline(&pair)).unwrap();
    let data = |name: &str| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
        String::from_utf8(STANDARD.decode(value.trim_matches([':', ' ', '"'])).unwrap()).unwrap()
    };
    let chain = data("client-certificate-data");
    assert!(chain.starts_with("-----BEGIN CERTIFICATE") && !chain.contains("KEY"), "{chain}");
    assert!(data("client-key-data").contains("PRIVATE KEY"));
}

const KUBEADM: &str = "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Q0E=
    server: https://192.168.1.10:6443
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: system:node:pi-3
  name: system:node:pi-3@kubernetes
current-context: system:node:pi-3@kubernetes
kind: Config
preferences: {}
users:
- name: system:node:pi-3
  user:
    client-certificate: pki/kubelet-client-current.pem
    client-key: pki/kubelet-client-current.pem
";

#[test]
fn kubeadm_keeps_certificate_and_key_in_one_file() {
    let folder = Folder::new("kubeadm");
    folder.write("pki/kubelet-client-current.pem", "CERT KEY");
    let path = folder.write("kubelet.conf", KUBEADM);
    let both = pem(&folder, "pki/kubelet-client-current.pem");
    let want = ApiConfig {
        ca: Some(Pem {
            file: None,
            source: "clusters[kubernetes].cluster.certificate-authority-data".into(),
            bytes: b"CA".into(),
        }),
        certificate: Some(ClientCertificate { chain: both.clone(), key: both }),
        ..ApiConfig::of("https://192.168.1.10:6443").unwrap()
    };
    assert_eq!(load(&path, None), Ok(want));
}

#[test]
fn k3s_names_absolute_files_and_data_wins_over_files_that_need_not_exist() {
    let folder = Folder::new("k3s");
    for file in ["server-ca.crt", "client-kubelet.crt", "client-kubelet.key"] {
        folder.write(file, file);
    }
    let here = folder.path().display();
    let user = format!(
        "client-certificate: {here}/client-kubelet.crt\nclient-key: {here}/client-kubelet.key"
    );
    let text = with(&format!("certificate-authority: {here}/server-ca.crt"), &user);
    let text = text.replace("user: u}", "user: u, namespace: default}");
    let want = ApiConfig {
        ca: Some(pem(&folder, "server-ca.crt")),
        certificate: Some(ClientCertificate {
            chain: pem(&folder, "client-kubelet.crt"),
            key: pem(&folder, "client-kubelet.key"),
        }),
        ..ApiConfig::of("https://10.0.0.1:6443").unwrap()
    };
    assert_eq!(parse(&text, &[Path::new("/elsewhere")]), Ok(want));
    let text = with(
        "certificate-authority: /nowhere/ca\ncertificate-authority-data: QQ==",
        "client-certificate: /nowhere/c\nclient-certificate-data: Qg==\nclient-key: /nowhere/k\nclient-key-data: |\n  Q0\n  M=",
    );
    let read = parse(&text, &[]).unwrap();
    let identity = read.certificate.unwrap();
    assert_eq!(read.ca.unwrap().bytes, b"A");
    assert_eq!((&identity.chain.bytes[..], &identity.key.bytes[..]), (&b"B"[..], &b"CC"[..]));
}

#[test]
fn tokens_and_passwords() {
    let folder = Folder::new("token");
    let file = folder.write("token", "abc.def\n");
    let bearer = |token: &str, file: Option<&PathBuf>| Authorization::Bearer {
        token: Secret::new(token.into()),
        file: file.cloned(),
    };
    for (user, want) in [
        ("token: abc", Some(bearer("abc", None))),
        ("tokenFile: token", Some(bearer("abc.def", Some(&file)))),
        ("tokenFile: token\ntoken: old", Some(bearer("abc.def", Some(&file)))),
        (
            "username: me\npassword: 'a:b c'",
            Some(Authorization::Basic {
                username: "me".into(),
                password: Secret::new("a:b c".into()),
            }),
        ),
        ("token: ''\nas: ''\nas-groups: []\nexec: null", None),
    ] {
        let read = parse(&with("", user), &[folder.path()]).expect(user);
        assert_eq!(read.authorization, want, "{user}");
    }
}

#[test]
fn an_insecure_server_and_a_proxy() {
    let read = |cluster: &str| parse(&with(cluster, ""), &[]).unwrap();
    assert_eq!((read("").insecure, read("").proxy), (false, None));
    assert!(read("insecure-skip-tls-verify: true").insecure);
    assert!(!read("insecure-skip-tls-verify: false\ncertificate-authority-data: QQ==").insecure);
    let proxy = read("proxy-url: http://10.0.0.9:3128").proxy.unwrap();
    assert_eq!(proxy.to_string(), "proxy http://10.0.0.9:3128");
    assert_eq!(read("tls-server-name: api").tls_server_name.as_deref(), Some("api"));
}

/// Beside the kubeconfig, or, for a name without a slash, in `$CREDENTIALS_DIRECTORY`, or beside
/// the kubeconfig by the name that it has in `/etc/credstore`, for `nodelet check` run by hand.
#[test]
fn relative_files_are_looked_for_in_three_places() {
    let beside = Folder::new("beside");
    let credentials = Folder::new("credentials");
    credentials.write("token", "credential");
    credentials.write("deep/token", "credential");
    let token_of = |token_file: &str, credentials: Option<&Folder>| {
        let path = beside.write("kubeconfig", with("", &format!("tokenFile: {token_file}")));
        match load(&path, credentials.map(|folder| folder.path()))?.authorization {
            Some(Authorization::Bearer { token, .. }) => Ok::<_, Fault>(token.reveal().to_owned()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(token_of("token", Some(&credentials)), Ok("credential".into()));
    for (absent, credentials) in [
        ("token", None),
        ("deep/token", Some(&credentials)),
        ("./token", Some(&credentials)),
        ("other", Some(&credentials)),
    ] {
        let why = token_of(absent, credentials).unwrap_err().what;
        let path = beside.path().join(absent);
        assert!(why.ends_with(&format!(" {}: no such file or directory", path.display())), "{why}");
    }
    beside.write("nodelet.token", "credstore");
    assert_eq!(token_of("token", Some(&credentials)), Ok("credential".into()));
    assert_eq!(token_of("token", None), Ok("credstore".into()));
    beside.write("token", "beside");
    assert_eq!(token_of("token", Some(&credentials)), Ok("beside".into()));
    let absolute = credentials.path().join("token");
    assert_eq!(token_of(absolute.to_str().unwrap(), None), Ok("credential".into()));
}

#[test]
fn a_context_without_a_user_and_a_plain_server_are_legal() {
    let text = r#"{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:8080/prefix/"}}]}"#;
    let read = parse(text, &[]).unwrap();
    let want =
        Endpoint { tls: false, host: "127.0.0.1".into(), port: 8080, prefix: "/prefix".into() };
    assert_eq!((read.endpoint, read.certificate, read.authorization), (want, None, None));
    let proxied = text.replace("/prefix/\"", "\", \"proxy-url\": \"http://p\"");
    let why = parse(&proxied, &[]).unwrap_err().to_string();
    assert!(why.ends_with("k].cluster.proxy-url: is for https servers only; remove it"), "{why}");
}

/// The members of the cluster or of the user, and the error: `C` is the cluster, `U` the user, and
/// `/` the folder.
const MISTAKES: [(&str, &str); 28] = [
    ("certificate-authority: absent", "C.certificate-authority /absent: no such file or directory"),
    ("certificate-authority: .", "C.certificate-authority /.: not a regular file"),
    ("certificate-authority-data: '*'", "C.certificate-authority-data: not base64"),
    ("certificate-authority-data: QQ", "C.certificate-authority-data: not base64"),
    (
        "certificate-authority-data: 5",
        "C.certificate-authority-data is not a string; put it in quotes",
    ),
    (
        "insecure-skip-tls-verify: true\ncertificate-authority-data: QQ==",
        "C has both certificate-authority and insecure-skip-tls-verify; remove the latter",
    ),
    ("insecure-skip-tls-verify: yes", "C.insecure-skip-tls-verify is neither true nor false"),
    ("proxy-url: https://me:hunter2@p", "C.proxy-url: only a proxy with http:// is supported"),
    ("exec: {command: aws}", "U.exec is not supported; remove it"),
    ("auth-provider: {name: gcp}", "U.auth-provider is not supported; remove it"),
    ("as: root", "U.as is not supported; remove it"),
    ("as-uid: '0'", "U.as-uid is not supported; remove it"),
    ("as-groups: [a]", "U.as-groups is not supported; remove it"),
    ("as-user-extra: {a: [b]}", "U.as-user-extra is not supported; remove it"),
    ("client-certificate: ok", "U has a client-certificate but no client-key"),
    ("client-key: ok", "U has a client-key but no client-certificate"),
    (
        "client-key: ok\nclient-certificate: absent",
        "U.client-certificate /absent: no such file or directory",
    ),
    ("client-key-data: c2VjcmV0-", "U.client-key-data: not base64"),
    ("token: 12345", "U.token is not a string; put it in quotes"),
    ("token: a b", "U: the token has a blank or a control character in it"),
    ("tokenFile: empty", "U.tokenFile /empty: empty"),
    (
        "tokenFile: two lines",
        "U.tokenFile /two lines: the token has a blank or a control character in it",
    ),
    ("tokenFile: binary", "U.tokenFile /binary: not UTF-8 text"),
    ("tokenFile: absent", "U.tokenFile /absent: no such file or directory"),
    ("token: a\nusername: b", "U has both a token and a username; keep one"),
    ("username: a:b", "U.username has a colon in it"),
    ("password: b", "U has a password but no username"),
    ("token: a\ntoken: b", "line 16, column 5: duplicate key \"token\""),
];

#[test]
fn each_mistake_has_its_error() {
    let folder = Folder::new("mistakes");
    for (name, content) in [("empty", "\n"), ("two lines", "a\nb"), ("ok", "ok")] {
        folder.write(name, content);
    }
    folder.write("binary", b"\xff");
    let here = folder.path().display();
    for (lines, want) in MISTAKES {
        let text = if want.starts_with('C') { with(lines, "") } else { with("", lines) };
        let path = folder.write("kubeconfig", text);
        let (place, words) = want.split_at(1);
        let words = words.replace(" /", &format!(" {here}/"));
        let place = match place {
            "C" => "clusters[k].cluster",
            "U" => "users[u].user",
            other => other,
        };
        let want = format!("{here}/kubeconfig: {place}{words}");
        assert_eq!(load(&path, None).unwrap_err().to_string(), want, "{lines}");
    }
}

/// client-go `tools/clientcmd/api/v1` conversion.go: a list becomes a map, and a second entry of
/// the same name is an error.
#[test]
fn a_name_twice_in_a_list_is_refused() {
    let good = with("", "");
    for (list, name) in [("clusters", "k"), ("users", "u"), ("contexts", "c")] {
        let (from, entry) = (format!("{list}:\n"), format!("- {{name: {name}}}\n"));
        let text = good.replace(&from, &format!("{from}{entry}"));
        assert_ne!(text, good);
        let want = format!("{list}: duplicate name {name:?} in list");
        assert_eq!(parse(&text, &[]), Err(want.into()));
        // Other entries may be incomplete.
        let text = good.replace(&from, &format!("{from}- {{name: other}}\n- 5\n- {{}}\n"));
        assert!(parse(&text, &[]).is_ok(), "{text}");
    }
}

#[test]
fn each_mistake_outside_cluster_and_user_has_its_error() {
    let good = with("", "");
    let users = &good[good.find("users:").unwrap()..];
    for (from, to, want) in [
        ("current-context: c\n", "", "current-context is missing; set it to one of: c"),
        (
            &good[..],
            "kind: Config\n",
            "current-context and contexts are missing; is the file cut off",
        ),
        (
            users,
            "",
            "contexts[c].context names \"u\", which is not in users: there is none; is the ",
        ),
        (
            "current-context: c",
            "current-context: d",
            "current-context names \"d\", which is not in contexts; there is: c",
        ),
        (
            "cluster: k,",
            "cluster: z,",
            "contexts[c].context names \"z\", which is not in clusters; there is: k",
        ),
        (
            "user: u}",
            "user: z}",
            "contexts[c].context names \"z\", which is not in users; there is: u",
        ),
        ("cluster: k, ", "", "contexts[c].context has no cluster"),
        ("{cluster: k, user: u}", "5", "contexts[c].context is not a mapping"),
        ("https://10.0.0.1:6443", "''", "clusters[k].cluster.server is missing"),
        (
            "https://10.0.",
            "10.0.",
            "clusters[k].cluster.server: \"10.0.0.1:6443\" has no scheme; did ",
        ),
        ("kind: Config", "kind: Pod", "kind is Pod; a kubeconfig has kind: Config"),
        ("kind: Config", "kind: [", "line 3, column 1: invalid indentation"),
        (&good[..], "", "not a kubeconfig: no mapping at the top"),
        (&good[..], "- a\n", "not a kubeconfig: no mapping at the top"),
    ] {
        assert!(good.contains(from), "{from}");
        let why = parse(&good.replace(from, to), &[]).unwrap_err().to_string();
        assert!(why.starts_with(want), "{why}");
    }
    let absent = load(Path::new("/nowhere/kubeconfig"), None);
    assert_eq!(absent, Err("/nowhere/kubeconfig: no such file or directory".into()));
    let folder = Folder::new("binary");
    let binary = folder.write("binary", b"\xfe\xff");
    assert_eq!(load(&binary, None), Err(format!("{}: not UTF-8 text", binary.display()).into()));
}

#[test]
fn every_prefix_is_parsed_or_is_an_error_of_one_line() {
    for text in [KUBEADM, &with("certificate-authority-data: QQ==", "token: abc")] {
        let prefixes = text.char_indices().map(|(end, _)| &text[..end]);
        let refused = prefixes.filter_map(|prefix| Some(parse(prefix, &[]).err()?.to_string()));
        let refused: Vec<String> = refused.collect();
        // Without the users at its end a kubeconfig is an error.
        assert!(refused.len() > text.len() / 2, "{}", refused.len());
        for line in refused {
            assert!(!line.contains('\n') && !line.is_empty(), "{line}");
        }
    }
}

#[test]
fn secrets_are_not_printed() {
    let text = with(
        "certificate-authority-data: Y2E=",
        "token: hunter2\nclient-certificate-data: Y2VydA==\nclient-key-data: aHVudGVyMg==",
    );
    let printed = format!("{:?}", parse(&text, &[]).unwrap());
    assert!(!printed.contains("hunter2") && !printed.contains("104, 117"), "{printed}");
    assert!(
        printed.contains("token: Secret")
            && printed.contains("key: Pem(users[u].user.client-key-data)"),
        "{printed}"
    );
    let basic = with("", "username: me\npassword: hunter2");
    let printed = format!("{:?}", parse(&basic, &[]).unwrap());
    assert!(!printed.contains("hunter2"), "{printed}");
}

const ENCRYPTED: &str = "the key is encrypted; decrypt it: openssl pkey -in KEY -out NEW";

/// Certificates and keys are checked when the client is built, before anything is sent.
#[test]
fn unusable_certificates_and_keys_have_their_error() {
    let key = KeyPair::generate().unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    let certificate =
        CertificateParams::new(["pi".into()]).unwrap().self_signed(&key).unwrap().pem();
    let key = key.serialize_pem();
    let both = format!("{certificate}{key}");
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let dsa = key.replace("PRIVATE KEY", "DSA PRIVATE KEY");
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let short = &certificate[..certificate.len() - 40];
    let no_base64 = "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n";
    let odd_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let (c, k) = (certificate.as_str(), key.as_str());
    for (ca, chain, key, want) in [
        (c, c, k, ""),
        (c, &both, &both, ""),
        (&format!("\u{feff}{c}"), c, k, ""),
        (&format!("{odd}{no_base64}{c}{short}"), c, k, ""),
        (&format!("{odd}{no_base64}"), c, k, "CA: not a usable CA certificate: "),
        ("junk", c, k, "CA: no certificate in it"),
        (k, c, k, "CA: no certificate in it"),
        (short, c, k, "CA: not PEM: a section has no END line"),
        (no_base64, c, k, "CA: not PEM: a section is not base64"),
        (odd, c, k, "CA: not a usable CA certificate: "),
        (c, c, &other, "KEY: the key does not belong to the certificate in CHAIN"),
        (c, c, c, "KEY: no private key in it"),
        (c, c, &encrypted, &format!("KEY: {ENCRYPTED}")),
        (c, c, odd_key, "KEY: not a usable private key"),
        (c, c, &dsa, "KEY: the key is of DSA, which is not supported; use P-256, "),
        (c, k, k, "CHAIN: no certificate in it"),
        (c, odd, k, "CHAIN: not a usable certificate: not X.509"),
    ] {
        let want = want
            .replace("CA:", "clusters[k].cluster.certificate-authority-data:")
            .replace("CHAIN", "users[u].user.client-certificate-data")
            .replace("KEY:", "users[u].user.client-key-data:");
        let built = client(ca, chain, key).err().unwrap_or_default();
        if want.ends_with([' ']) {
            assert!(built.starts_with(&want), "{built}");
        } else {
            assert_eq!(built, want);
        }
    }
}

/// Builds the client of a kubeconfig with this PEM text.
fn client(ca: &str, chain: &str, key: &str) -> Result<(), String> {
    let [ca, chain, key] = [ca, chain, key].map(|pem| STANDARD.encode(pem));
    let text = with(
        &format!("certificate-authority-data: {ca}"),
        &format!("client-certificate-data: {chain}\nclient-key-data: {key}"),
    );
    let built = Api::new(&parse(&text, &[]).unwrap());
    built.map(drop).map_err(|why| why.to_string())
}

/// Kind of key, the command of OpenSSL that makes it, and the error if the key is not supported.
const KEYS: [(&str, &str, Option<&str>); 16] = [
    ("PKCS#1", "genrsa -traditional 2048", None),
    ("PKCS#8, RSA 2048", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048", None),
    ("PKCS#8, RSA 4096", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:4096", None),
    // EC PARAMETERS before the key, and without.
    ("SEC1", "ecparam -name prime256v1 -genkey", None),
    ("SEC1, alone", "ecparam -name prime256v1 -genkey -noout", None),
    ("SEC1, P-384", "ecparam -name secp384r1 -genkey -noout", None),
    ("PKCS#8, EC", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", None),
    ("Ed25519", "genpkey -algorithm ED25519", None),
    ("P-521", "ecparam -name secp521r1 -genkey -noout", Some("the key is P-521, ")),
    ("secp256k1", "ecparam -name secp256k1 -genkey -noout", Some("the key is 1.3.132.0.10, ")),
    ("Ed448", "genpkey -algorithm ED448", Some("the key is Ed448, ")),
    ("RSA 1024", "genrsa 1024", Some("the key is RSA of 1024 bits, ")),
    ("e=3", "genrsa -3 2048", Some("the key is RSA of 2048 bits with e=3, ")),
    (
        "half",
        "ecparam -name prime256v1 -genkey -noout | openssl ec -no_public",
        Some("the key lacks its public half; add it: openssl ec -in KEY -out NEW"),
    ),
    ("encrypted", "genpkey -algorithm RSA -aes256 -pass pass:word", Some(ENCRYPTED)),
    ("with a header", "genrsa -traditional -aes256 -passout pass:word 2048", Some(ENCRYPTED)),
];

/// The labels of a key that is not encrypted; Go does not look at them.
const LABELS: [&str; 3] = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];

#[test]
fn certificates_and_keys_of_every_common_form_are_read() {
    let ca = apidouble::Authority::new("CA");
    for (what, line, wrong) in KEYS {
        let Some((certificate, key)) = openssl(what, line) else {
            return;
        };
        let public = Leaf::of_pem(certificate.as_bytes()).unwrap().public_key;
        let public = KeyKind::of_public(&public).unwrap();
        let as_ca = client(&certificate, &certificate, &key);
        // A verifier takes more.
        assert!(
            public.verifies() || as_ca.unwrap_err().contains(&format!("its key is {public}; "))
        );
        for label in LABELS {
            let old = LABELS.into_iter().find(|old| key.contains(&format!("BEGIN {old}")));
            if let (Some(old), None) = (old, wrong) {
                let key = key.replace(&format!(" {old}-----"), &format!(" {label}-----"));
                assert_eq!(client(ca.pem(), &certificate, &key), Ok(()), "{what} as {label}");
                assert!(Key::of_pem(key.as_bytes()).is_ok(), "{what} as {label}");
            }
        }
        let [crlf_certificate, crlf_key] =
            [&certificate, &key].map(|pem| pem.replace('\n', "\r\n"));
        let around = |pem: &str| format!("subject=CN = pi\n\n{pem}\nsome words\n");
        for (form, chain, key) in [
            ("as it is", certificate.clone(), key.clone()),
            ("CRLF", crlf_certificate, crlf_key),
            ("text around", around(&certificate), around(&key)),
            // k3s, and a kubelet's pair file.
            ("a chain", format!("{certificate}{certificate}"), key.clone()),
            ("both in one", format!("{certificate}{key}"), format!("{certificate}{key}")),
            ("the key first", format!("{key}{certificate}"), format!("{key}{certificate}")),
        ] {
            // As the client reads it, and as the rotation does.
            let loaded = client(ca.pem(), &chain, &key);
            let read = Key::of_pem(key.as_bytes()).map_err(|why| why.to_string());
            if let Some(wrong) = wrong {
                for why in [loaded.unwrap_err(), read.unwrap_err()] {
                    assert!(why.contains(wrong), "{what}, {form}: {why}");
                }
                continue;
            }
            assert_eq!(loaded, Ok(()), "{what}, {form}");
            let leaf = Leaf::of_pem(chain.as_bytes()).unwrap();
            assert_eq!(leaf.subject.common_name, "pi", "{what}, {form}");
            let request = read.unwrap().request(leaf.subject, CertificatePurpose::CLIENT).unwrap();
            assert_eq!(request.info.public_key, leaf.public_key, "{what}, {form}");
        }
    }
}

/// microk8s signs client certificates without extensions.
#[test]
fn a_certificate_of_version_1_is_used_with_its_own_key_alone() {
    let ca = apidouble::Authority::new("CA");
    let own = ca.version_1(&ca.client("pi", &[], Validity::VALID));
    let other = ca.client("pi", &[], Validity::VALID);
    assert_eq!(client(ca.pem(), &own.cert_pem, &own.key_pem), Ok(()));
    let why = client(ca.pem(), &own.cert_pem, &other.key_pem).unwrap_err();
    assert!(why.contains("the key does not belong to the certificate in "), "{why}");
}

/// A self-signed certificate and its key; `None`, and a skip, without OpenSSL.
fn openssl(what: &str, line: &str) -> Option<(String, String)> {
    if !skip::has_tool("openssl") {
        return None;
    }
    let folder = Folder::new(&what.replace([' ', '#', ','], "-"));
    let script = format!(
        "openssl {line} > key && openssl req -x509 -key key -passin env:WORD -subj /CN=pi -days 2 \
         -out certificate"
    );
    let run = std::process::Command::new("sh")
        .env("WORD", "word")
        .arg("-c")
        .arg(script)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{what}: {words}");
    let read = |file| fs::read_to_string(folder.path().join(file)).unwrap();
    Some((read("certificate"), read("key")))
}
