//! The cluster of a test: the API double, or a real control plane.
//!
//! - `KUBEBUILDER_ASSETS`: a folder with `etcd`, `kube-apiserver` and optionally
//!   `kube-controller-manager`; each test starts its own, one at a time. With `kube-scheduler` and
//!   `kubemark` pods run.
//! - `KUBECONFIG`: administrator's kubeconfig of a running cluster. Names of Nodes contain the id
//!   of this process, and Nodes are not removed: use a throw-away cluster.
//! - Neither: the double.
//! - `K3S_SERVER`: a k3s, for the tests of it alone.

mod control_plane;
pub mod k3s;
pub mod kubelet;
pub mod program;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apidouble::{BootstrapToken, Builder, Double};
use nodelet::client::api::Api;
use nodelet::client::api_config::ApiConfig;
use nodelet::credentials::kubeconfig;
use nodelet::kube::message::{Accept, Method, Request};
use serde_json::{Value, json};

use control_plane::ControlPlane;
use program::Program;
use support::{Folder, skip};

pub struct Cluster {
    kind: Kind,
    folder: Folder,
    _alone: Option<MutexGuard<'static, ()>>,
}

/// A real control plane, with or without hollow kubelets, needs the whole machine. A test that
/// starts a second one waits for ever.
static ALONE: Mutex<()> = Mutex::new(());

/// The token of a double of kubeadm.
const KUBEADM_TOKEN: &str = "lwxivu.2uczm8x4xi2v7hqd";

enum Kind {
    Double(Double),
    Real(Box<ControlPlane>),
    Existing(PathBuf),
}

impl Cluster {
    /// `grace`: grace period of the node-lifecycle controller, unless the cluster runs already.
    pub fn start(grace: Duration) -> Self {
        let folder = Folder::new("cluster");
        let mut alone = None;
        let kind = if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
            alone = Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
            Kind::Real(Box::new(ControlPlane::start(assets.as_ref(), folder.path(), grace)))
        } else if let Some(kubeconfig) = std::env::var_os("KUBECONFIG") {
            Kind::Existing(kubeconfig.into())
        } else {
            skip::optional(
                "a real API server: KUBEBUILDER_ASSETS and KUBECONFIG are unset; the double is used",
            );
            let double = Double::builder().lifecycle(grace);
            let double = short_lives(double.bootstrap_token(control_plane::TOKEN));
            Kind::Double(double.approve_csrs().start())
        };
        Self { kind, folder, _alone: alone }
    }

    /// A real API server. `None`, and a skip, without one.
    pub fn start_real(grace: Duration) -> Option<Self> {
        let is_set = |name| std::env::var_os(name).is_some();
        if !is_set("KUBEBUILDER_ASSETS") && !is_set("KUBECONFIG") {
            skip::optional("a real API server: KUBEBUILDER_ASSETS and KUBECONFIG are unset");
            return None;
        }
        Some(Self::start(grace))
    }

    /// Applies `change` to the programs of these names of a control plane that this test started.
    pub fn each_program(&mut self, names: &[&str], change: impl FnMut(&mut Program)) {
        match &mut self.kind {
            Kind::Real(real) => real.each(names, change),
            _ => panic!("no control plane of our own"),
        }
    }

    /// A real API server with pods that run: the controllers, the scheduler and a hollow kubelet.
    /// `None`, and a skip, without one.
    pub fn start_with_pods(grace: Duration) -> Option<Self> {
        for program in ["kube-controller-manager", "kube-scheduler", "kubemark"] {
            if kubelet::asset(program).is_none() {
                skip::optional(&format!("pods that run: no {program} in KUBEBUILDER_ASSETS"));
                return None;
            }
        }
        let mut cluster = Self::start(grace);
        if let (Kind::Real(real), Some(assets)) =
            (&mut cluster.kind, std::env::var_os("KUBEBUILDER_ASSETS").as_deref())
        {
            real.schedule(assets.as_ref(), cluster.folder.path());
        }
        Some(cluster)
    }

    /// A cluster of kubeadm, and the line that kubeadm prints there, without its first word. The
    /// double, and a skip, without `kubeadm` and `kube-controller-manager` in the folder.
    pub fn start_with_kubeadm(grace: Duration) -> (Self, Vec<String>) {
        let programs = ["kubeadm", "kube-controller-manager"].map(kubelet::asset);
        let [Some(kubeadm), Some(_)] = programs else {
            skip::optional(
                "a real kubeadm: not in KUBEBUILDER_ASSETS, or no kube-controller-manager; \
                 the double is used",
            );
            let double = short_lives(Double::builder().lifecycle(grace).kubeadm()).start();
            double.add_bootstrap_token(BootstrapToken::new(KUBEADM_TOKEN));
            let line = double.join_command(KUBEADM_TOKEN);
            return (Self::on(double), line);
        };
        let cluster = Self::start(grace);
        let Kind::Real(real) = &cluster.kind else {
            unreachable!("KUBEBUILDER_ASSETS is set");
        };
        let line = real.kubeadm(&kubeadm);
        (cluster, line)
    }

    /// This double, whatever the environment says.
    pub fn on(double: Double) -> Self {
        Self { kind: Kind::Double(double), folder: Folder::new("cluster"), _alone: None }
    }

    /// A kubelet with this kubeconfig: a hollow one on a real API server, if there is kubemark,
    /// else nodelet with pods in its place. `labels` has the form of `--node-labels`.
    pub fn kubelet(&self, name: &str, kubeconfig: &str, labels: &str) -> Program {
        let kubemark = match self.kind {
            Kind::Double(_) => None,
            Kind::Real(_) | Kind::Existing(_) => kubelet::asset("kubemark"),
        };
        let folder = self.folder.path();
        kubelet::start(kubemark.as_deref(), folder, name, kubeconfig, labels)
    }

    /// A name that no other test uses.
    pub fn node_name(&self, base: &str) -> String {
        match self.kind {
            Kind::Existing(_) => format!("{base}-{}", std::process::id()),
            _ => base.to_owned(),
        }
    }

    /// The kubeconfig of the node `name`; the server is `localhost`, which has to be looked up,
    /// unless the cluster runs already.
    pub fn kubeconfig(&self, name: &str) -> String {
        let text = match &self.kind {
            Kind::Double(double) => double.kubeconfig_for_node(name),
            Kind::Real(real) => real.kubeconfig(&format!("system:node:{name}"), &["system:nodes"]),
            Kind::Existing(admin) => return admin.to_str().unwrap().to_owned(),
        };
        let path = self.folder.write(name, text.replace("127.0.0.1", "localhost"));
        path.to_str().unwrap().to_owned()
    }

    /// The port of the API server, unless the cluster runs already.
    pub fn port(&self) -> Option<u16> {
        match &self.kind {
            Kind::Double(double) => Some(double.port()),
            Kind::Real(real) => Some(real.port()),
            Kind::Existing(_) => None,
        }
    }

    /// A kubeconfig with a bootstrap token; its certificates are valid for at most a minute.
    /// `None`, and a skip, without a signer.
    pub fn bootstrap_kubeconfig(&self) -> Option<String> {
        let text = match &self.kind {
            Kind::Double(double) => double.kubeconfig_token(control_plane::TOKEN),
            Kind::Real(real) if real.signs => real.kubeconfig_token(),
            Kind::Real(_) | Kind::Existing(_) => {
                skip::optional("this control plane signs no certificates of a minute");
                return None;
            }
        };
        let path = self.folder.write("bootstrap", &text);
        Some(path.to_str().unwrap().to_owned())
    }

    /// One object, read as administrator.
    pub fn get(&self, path: &str) -> Option<Value> {
        match self.call(Method::Get, path, &Value::Null) {
            (200, object) => Some(object),
            (404, _) => None,
            other => panic!("GET {path}: {other:?}"),
        }
    }

    /// The items of a list, read as administrator.
    pub fn list(&self, path: &str) -> Vec<Value> {
        let list = self.get(path).expect("a list");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Sets a condition of a Node, as another program does that writes conditions; the Node after
    /// it.
    pub fn set_condition(&self, node: &str, condition: &Value) -> Value {
        let path = format!("/api/v1/nodes/{node}/status");
        // The client has only merge patches: the whole list, under its version.
        loop {
            let mut seen = self.node(node).expect("the Node");
            let mut list = seen["status"]["conditions"].take();
            let conditions = list.as_array_mut().expect("conditions");
            conditions.retain(|other| other["type"] != condition["type"]);
            conditions.push(condition.clone());
            let version = &seen["metadata"]["resourceVersion"];
            let body = json!({"metadata": {"resourceVersion": version},
                "status": {"conditions": list}});
            match self.patch(&path, &body) {
                (200, answer) => return answer,
                (409, _) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A POST as administrator; status code and body of the answer.
    pub fn post(&self, path: &str, object: &Value) -> (u16, Value) {
        self.call(Method::Post, path, object)
    }

    /// A merge patch as administrator; status code and body of the answer.
    pub fn patch(&self, path: &str, patch: &Value) -> (u16, Value) {
        self.call(Method::Patch, path, patch)
    }

    /// A deletion as administrator, with `v1.DeleteOptions` or `Null`; status code and body of the
    /// answer.
    pub fn delete(&self, path: &str, options: &Value) -> (u16, Value) {
        self.call(Method::Delete, path, options)
    }

    /// URL and CA of the server.
    pub fn server(&self) -> (String, String) {
        if let Kind::Double(double) = &self.kind {
            return (double.url(), double.ca_pem());
        }
        let admin = self.admin();
        let url = format!("{}{}", admin.endpoint, admin.endpoint.prefix);
        (url, String::from_utf8(admin.ca.unwrap().bytes.clone()).unwrap())
    }

    fn admin(&self) -> ApiConfig {
        let path = self.admin_kubeconfig().expect("the double needs no kubeconfig for that");
        kubeconfig::load(path, None).unwrap()
    }

    /// The administrator's kubeconfig of a real API server.
    pub fn admin_kubeconfig(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Double(_) => None,
            // Not a new file: the programs of the control plane read this one.
            Kind::Real(real) => Some(&real.admin),
            Kind::Existing(admin) => Some(admin),
        }
    }

    /// A request as administrator. `Null` is no body.
    fn call(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        if let Kind::Double(double) = &self.kind {
            let (verb, media) = match method {
                Method::Get => ("GET", ""),
                Method::Post => ("POST", "application/json"),
                Method::Patch => ("PATCH", "application/merge-patch+json"),
                Method::Delete => ("DELETE", "application/json"),
            };
            return double.as_admin(verb, path, media, body);
        }
        call_as(&self.admin(), method, path, body).unwrap()
    }

    pub fn node(&self, name: &str) -> Option<Value> {
        self.get(&format!("/api/v1/nodes/{name}"))
    }

    pub fn lease(&self, name: &str) -> Option<Value> {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        self.get(&format!("{leases}/{name}"))
    }

    /// `spec.renewTime` of the Lease of the Node `name`.
    pub fn renew_time(&self, name: &str) -> Option<String> {
        let lease = self.lease(name)?;
        lease["spec"]["renewTime"].as_str().map(str::to_owned)
    }

    /// Whether a Node ever left Ready; `false` without a node-lifecycle controller of our own.
    pub fn ever_left_ready(&self) -> bool {
        match &self.kind {
            Kind::Double(double) => double.ever_left_ready(),
            Kind::Real(real) => real.ever_left_ready(),
            // Other Nodes of the cluster may: the test reads its Node instead.
            Kind::Existing(_) => false,
        }
    }

    /// The double, if this is one.
    pub fn double(&self) -> Option<&Double> {
        match &self.kind {
            Kind::Double(double) => Some(double),
            _ => None,
        }
    }
}

/// A double that signs [`short_lives`], and the flags of a board that begins with a token and looks
/// for changes of its Node each second.
pub fn rotating(folder: &Folder) -> (Double, Vec<String>) {
    const TOKEN: &str = "07401b.0123456789abcdef";
    let double = short_lives(Double::builder().approve_csrs()).bootstrap_token(TOKEN).start();
    let path = |name: &str| folder.path().join(name).display().to_string();
    folder.write("bootstrap", double.kubeconfig_token(TOKEN));
    std::fs::create_dir(path("root")).unwrap();
    let flags = [
        format!("--bootstrap-kubeconfig={}", path("bootstrap")),
        format!("--kubeconfig={}", path("etc/kubeconfig")),
        format!("--cert-dir={}", path("pki")),
        format!("--root-dir={}", path("root")),
        "--hostname-override=pi".to_owned(),
        "--rotate-certificates".to_owned(),
        "--node-resync-frequency=1s".to_owned(),
    ];
    (double, flags.to_vec())
}

/// Certificates are valid for 12 s and backdated by 12 s: renewal is due after 5 to 10 s. Those of
/// the real control plane are renewed after half a minute.
pub fn short_lives(double: Builder) -> Builder {
    double.signing_seconds(12).backdate_seconds(12)
}

/// A POST with this kubeconfig; status code and body of the answer.
pub fn post_as(kubeconfig: &str, path: &str, object: &Value) -> (u16, Value) {
    let user = kubeconfig::load(kubeconfig.as_ref(), None).unwrap();
    call_as(&user, Method::Post, path, object).unwrap()
}

/// `Null` is no body. The error is the cause of a request without a response.
fn call_as(
    user: &ApiConfig,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<(u16, Value), String> {
    let mut api = Api::new(user).unwrap();
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request { method, path: path.to_owned(), accept: Accept::Object, body };
    match api.call(&request, Duration::from_secs(10)) {
        Ok(answer) => {
            let body = serde_json::from_slice(&answer.body);
            Ok((answer.code, body.unwrap_or_default()))
        }
        Err(why) => Err(why.to_string()),
    }
}
