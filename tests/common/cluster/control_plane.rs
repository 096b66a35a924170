//! etcd, kube-apiserver and, if present, kube-controller-manager on loopback, with new
//! certificates, and with the Node and RBAC authorizers and NodeRestriction, as in kubeadm;
//! kube-scheduler for the tests that need it.
//!
//! kube-controller-manager runs all controllers of its default, `--controllers=*`, and those of
//! kubeadm's tokens. Only that of the tokens of ServiceAccounts has no key. The ServiceAccount
//! admission is off, so pods need none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use apidouble::{Authority, Credentials, Identity, Validity};
use nodelet::credentials::kubeconfig;
use nodelet::kube::message::Method;
use serde_json::{Value, json};
use support::{eventually, skip};

use super::call_as;
use super::program::{Program, free_ports};
use crate::common::api::condition;

pub(super) struct ControlPlane {
    authority: Authority,
    port: u16,
    programs: Vec<(&'static str, Program)>,
    /// Whether there is a kube-controller-manager.
    pub(super) signs: bool,
    /// Path of the administrator's kubeconfig.
    pub(super) admin: PathBuf,
}

/// A Node without an agent: once it is `Unknown`, the node-lifecycle controller works.
const CANARY: &str = "canary";

/// A bootstrap token, and the user and groups that it authenticates.
pub(super) const TOKEN: &str = "07401b.0123456789abcdef";
const BOOTSTRAPPER: &str = "system:bootstrap:07401b,bootstrap,system:bootstrappers";

/// Validity of signed certificates.
const SIGNING: Duration = Duration::from_secs(60);

impl ControlPlane {
    /// `grace`: `--node-monitor-grace-period` of kube-controller-manager.
    pub(super) fn start(assets: &Path, folder: &Path, grace: Duration) -> Self {
        let authority = Authority::new("kubernetes-ca");
        let serving = authority.server(&["127.0.0.1", "localhost", "kubernetes"], Validity::VALID);
        let accounts = authority.server(&["service-accounts"], Validity::VALID);
        let file = |name: &str, content: &str| {
            let path = folder.join(name);
            fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let name = "kube-apiserver-kubelet-client";
        let kubelets = authority.client(name, &["system:masters"], Validity::VALID);
        let ca = file("ca.pem", authority.pem());
        let ca_key = file("ca.key", &authority.key_pem());
        let tokens = file("tokens.csv", &format!("{TOKEN},{BOOTSTRAPPER}\n"));
        let pair = |name: &str, own: &Identity| {
            (
                file(&format!("{name}.pem"), &own.cert_pem),
                file(&format!("{name}.key"), &own.key_pem),
            )
        };
        let (cert, key) = pair("serving", &serving);
        let (account_cert, account_key) = pair("accounts", &accounts);
        let (kubelet_cert, kubelet_key) = pair("kubelets", &kubelets);

        let [client, peer, port] = free_ports();
        let etcd = format!("http://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let mut plane = Self {
            authority,
            port,
            programs: Vec::new(),
            signs: false,
            admin: folder.join("admin"),
        };
        plane.run(
            assets,
            folder,
            "etcd",
            &[
                format!("--data-dir={}", folder.join("etcd").display()),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
                "--unsafe-no-fsync".to_owned(),
            ],
        );
        plane.run(
            assets,
            folder,
            "kube-apiserver",
            &[
                format!("--etcd-servers={etcd}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", folder.display()),
                format!("--tls-cert-file={cert}"),
                format!("--tls-private-key-file={key}"),
                format!("--client-ca-file={ca}"),
                format!("--kubelet-client-certificate={kubelet_cert}"),
                format!("--kubelet-client-key={kubelet_key}"),
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                format!("--token-auth-file={tokens}"),
                "--enable-bootstrap-token-auth".to_owned(),
                "--authorization-mode=Node,RBAC".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={account_cert}"),
                format!("--service-account-signing-key-file={account_key}"),
            ],
        );
        let admin = plane.kubeconfig("admin", &["system:masters"]);
        fs::write(&plane.admin, admin).unwrap();
        // The node-lifecycle controller finds a silent Node after the grace period at the earliest.
        let limit = Duration::from_secs(60) + 2 * grace;
        // The API server creates it some time after its first answer.
        plane.await_answer("kube-node-lease", limit, |plane| {
            plane.get("/api/v1/namespaces/kube-node-lease").map(drop)
        });
        if assets.join("kube-controller-manager").exists() {
            let admin = plane.admin.display().to_string();
            let period = grace / 4;
            plane.run(
                assets,
                folder,
                "kube-controller-manager",
                &[
                    format!("--kubeconfig={admin}"),
                    "--bind-address=127.0.0.1".to_owned(),
                    "--secure-port=0".to_owned(),
                    "--leader-elect=false".to_owned(),
                    "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
                    format!("--node-monitor-period={}ms", period.as_millis()),
                    format!("--node-monitor-grace-period={}ms", grace.as_millis()),
                    format!("--node-startup-grace-period={}ms", grace.as_millis()),
                    format!("--cluster-signing-cert-file={ca}"),
                    format!("--cluster-signing-key-file={ca_key}"),
                    format!("--cluster-signing-duration={}s", SIGNING.as_secs()),
                ],
            );
            plane.signs = true;
            plane.allow_bootstrap();
            plane.await_lifecycle(limit);
        } else {
            skip::optional("no kube-controller-manager: no controller taints a silent Node");
        }
        plane
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// A kubeconfig for `user` in `groups`.
    pub(super) fn kubeconfig(&self, user: &str, groups: &[&str]) -> String {
        let identity = self.authority.client(user, groups, Validity::VALID);
        self.kubeconfig_with(&Credentials::Certificate(&identity))
    }

    /// A kubeconfig with the bootstrap token.
    pub(super) fn kubeconfig_token(&self) -> String {
        self.kubeconfig_with(&Credentials::Token(TOKEN))
    }

    fn kubeconfig_with(&self, credentials: &Credentials<'_>) -> String {
        let url = format!("https://127.0.0.1:{}", self.port);
        apidouble::kubeconfig(&url, self.authority.pem(), credentials)
    }

    /// The bindings of kubeadm: bootstrappers may create CSRs, which are approved, and nodes may
    /// renew.
    fn allow_bootstrap(&self) {
        let requests = "system:certificates.k8s.io:certificatesigningrequests";
        for (group, role) in [
            ("system:bootstrappers", "system:node-bootstrapper".to_owned()),
            ("system:bootstrappers", format!("{requests}:nodeclient")),
            ("system:nodes", format!("{requests}:selfnodeclient")),
        ] {
            let api_group = "rbac.authorization.k8s.io";
            let binding = json!({
                "apiVersion": format!("{api_group}/v1"),
                "kind": "ClusterRoleBinding",
                "metadata": {"generateName": "bootstrap-"},
                "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": api_group, "kind": "Group", "name": group}],
            });
            let path = format!("/apis/{api_group}/v1/clusterrolebindings");
            let made = self.call(Method::Post, &path, &binding);
            assert!(made.is_some(), "no binding of {group} to {role}");
        }
    }

    /// kube-scheduler. `--kubeconfig` and `--leader-elect` hold without `--config`; with port 0 it
    /// serves nothing. Upstream: cmd/kube-scheduler/app/options.
    pub(super) fn schedule(&mut self, assets: &Path, folder: &Path) {
        let admin = self.admin.display().to_string();
        self.run(
            assets,
            folder,
            "kube-scheduler",
            &[
                format!("--kubeconfig={admin}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--secure-port=0".to_owned(),
                "--leader-elect=false".to_owned(),
            ],
        );
    }

    /// Makes the cluster one of kubeadm, and creates a token with it: the line that it prints,
    /// without its first word. A real kubeadm, with what its users type.
    pub(super) fn kubeadm(&self, kubeadm: &Path) -> Vec<String> {
        let run = |args: &[&str]| {
            let mut command = Command::new(kubeadm);
            let output = command.args(args).arg("--kubeconfig").arg(&self.admin);
            let output = output.output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "kubeadm {args:?}: {error}");
            String::from_utf8(output.stdout).unwrap()
        };
        // RBAC, the ConfigMap cluster-info, and a token that is not used.
        run(&["init", "phase", "bootstrap-token", "--skip-token-print"]);
        let line = run(&["token", "create", "--print-join-command"]);
        let words = line.split_whitespace().skip(1);
        words.map(str::to_owned).collect()
    }

    fn run(&mut self, assets: &Path, folder: &Path, program: &'static str, args: &[String]) {
        let mut command = Command::new(assets.join(program));
        command.args(args);
        let log = folder.join(format!("{program}.log"));
        self.programs.push((program, Program::start(command, log)));
    }

    /// Applies `change` to the programs of these names.
    pub(super) fn each(&mut self, names: &[&str], mut change: impl FnMut(&mut Program)) {
        let named = self.programs.iter_mut().filter(|(name, _)| names.contains(name));
        named.for_each(|(_, program)| change(program));
    }

    /// Whether a Node ever left Ready.
    pub(super) fn ever_left_ready(&self) -> bool {
        let doubts = "/api/v1/namespaces/default/events?fieldSelector=reason%3DNodeNotReady";
        let events = self.get(doubts).unwrap();
        !events["items"].as_array().unwrap().is_empty()
    }

    /// One object, read as administrator; `None` without an answer of success.
    fn get(&self, path: &str) -> Option<Value> {
        self.call(Method::Get, path, &Value::Null)
    }

    fn call(&self, method: Method, path: &str, body: &Value) -> Option<Value> {
        let kubeconfig = kubeconfig::load(&self.admin, None).unwrap();
        let (code, answer) = call_as(&kubeconfig, method, path, body).ok()?;
        (200..300).contains(&code).then_some(answer)
    }

    /// Without a working controller no Node would ever leave Ready. The canary is deleted, because
    /// a silent Node counts when kube-controller-manager decides about evictions.
    fn await_lifecycle(&mut self, limit: Duration) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": CANARY}});
        self.call(Method::Post, "/api/v1/nodes", &node).unwrap();
        let canary = format!("/api/v1/nodes/{CANARY}");
        self.await_answer("the node-lifecycle controller", limit, |plane| {
            let node = plane.get(&canary)?;
            (condition(&node, "Ready")?["status"] == "Unknown").then_some(())
        });
        self.call(Method::Delete, &canary, &Value::Null).unwrap();
    }

    /// Calls `look` until it returns a value; panics with the log of a process that ended, or with
    /// all logs after `limit`.
    fn await_answer(&mut self, what: &str, limit: Duration, look: impl Fn(&Self) -> Option<()>) {
        // The logs are printed when the programs are dropped.
        eventually(what, limit, || {
            if let Some(end) = self.programs.iter_mut().find_map(|(_, p)| p.ended()) {
                panic!("{what}: {end}");
            }
            let seen = look(self);
            if seen.is_none() {
                // Each look is a TLS handshake with a server that starts.
                thread::sleep(Duration::from_millis(90));
            }
            seen
        });
    }
}

impl Drop for ControlPlane {
    /// etcd is the last one to end.
    fn drop(&mut self) {
        while self.programs.pop().is_some() {}
    }
}
