//! The cluster of a test: the API double, or a real control plane.
//!
//! - `KUBEBUILDER_ASSETS`: a folder with `etcd`, `kube-apiserver` and optionally
//!   `kube-controller-manager`; each test starts its own.
//! - `KUBECONFIG`: administrator's kubeconfig of a running cluster. Names of Nodes contain the id
//!   of this process, and Nodes are not removed: use a throw-away cluster.
//! - Neither: the double.

mod control_plane;

use std::path::PathBuf;
use std::time::Duration;

use apidouble::Double;
use nodelet::identity::kubeconfig;
use nodelet::kube::message::{Accept, Method, Outcome, Request};
use nodelet::wire::api::Api;
use nodelet::wire::api_config::ApiConfig;
use serde_json::Value;

use control_plane::ControlPlane;
use support::{Folder, skip};

pub struct Cluster {
    kind: Kind,
    folder: Folder,
}

enum Kind {
    Double(Double),
    Real(Box<ControlPlane>),
    Existing(PathBuf),
}

impl Cluster {
    /// `grace`: grace period of the node-lifecycle controller, unless the cluster runs already.
    pub fn start(grace: Duration) -> Self {
        let folder = Folder::new("cluster");
        let kind = if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
            Kind::Real(Box::new(ControlPlane::start(
                assets.as_ref(),
                folder.path(),
                grace,
            )))
        } else if let Some(kubeconfig) = std::env::var_os("KUBECONFIG") {
            Kind::Existing(kubeconfig.into())
        } else {
            skip::optional(
                "a real API server: KUBEBUILDER_ASSETS and KUBECONFIG are unset; the double is used",
            );
            let double = Double::builder().lifecycle(grace);
            let double = double.bootstrap_token(control_plane::TOKEN);
            // Renewal is due after 5 to 10 s; with a real signer after half a minute.
            let double = double.signing_seconds(12).backdate_seconds(12);
            Kind::Double(double.approve_csrs().start())
        };
        Self { kind, folder }
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
        let path = match &self.kind {
            Kind::Double(double) => {
                let text = double.kubeconfig_for_node(name);
                self.folder
                    .write(name, text.replace("127.0.0.1", "localhost"))
            }
            Kind::Real(real) => {
                let text = real.kubeconfig(&format!("system:node:{name}"), &["system:nodes"]);
                self.folder
                    .write(name, text.replace("127.0.0.1", "localhost"))
            }
            Kind::Existing(admin) => admin.clone(),
        };
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
        if let Kind::Double(double) = &self.kind {
            return double.get(path);
        }
        match self.call(Method::Get, path, Vec::new()) {
            (200, object) => Some(object),
            (404, _) => None,
            other => panic!("GET {path}: {other:?}"),
        }
    }

    /// A POST as administrator; status code and body of the answer.
    pub fn post(&self, path: &str, object: &Value) -> (u16, Value) {
        if let Kind::Double(double) = &self.kind {
            return double.as_admin("POST", path, "application/json", object);
        }
        self.call(Method::Post, path, object.to_string().into_bytes())
    }

    /// A merge patch as administrator; not for the double.
    pub fn patch(&self, path: &str, patch: &Value) -> (u16, Value) {
        self.call(Method::Patch, path, patch.to_string().into_bytes())
    }

    /// URL and CA of the server.
    pub fn server(&self) -> (String, Vec<u8>) {
        if let Kind::Double(double) = &self.kind {
            return (double.url(), double.ca_pem().into_bytes());
        }
        let admin = self.admin();
        let url = format!("{}{}", admin.endpoint, admin.endpoint.prefix);
        (url, admin.ca.unwrap().bytes.clone())
    }

    fn admin(&self) -> ApiConfig {
        let path = match &self.kind {
            Kind::Double(_) => unreachable!("the double needs no kubeconfig for that"),
            Kind::Real(real) => self
                .folder
                .write("admin", real.kubeconfig("admin", &["system:masters"])),
            Kind::Existing(admin) => admin.clone(),
        };
        kubeconfig::load(&path, None).unwrap()
    }

    fn call(&self, method: Method, path: &str, body: Vec<u8>) -> (u16, Value) {
        call_as(&self.admin(), method, path, body)
    }

    pub fn node(&self, name: &str) -> Option<Value> {
        self.get(&format!("/api/v1/nodes/{name}"))
    }

    pub fn lease(&self, name: &str) -> Option<Value> {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        self.get(&format!("{leases}/{name}"))
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

/// A POST with this kubeconfig; status code and body of the answer.
pub fn post_as(kubeconfig: &str, path: &str, object: &Value) -> (u16, Value) {
    let user = kubeconfig::load(kubeconfig.as_ref(), None).unwrap();
    call_as(&user, Method::Post, path, object.to_string().into_bytes())
}

fn call_as(user: &ApiConfig, method: Method, path: &str, body: Vec<u8>) -> (u16, Value) {
    let mut api = Api::new(user, "nodelet-tests").unwrap();
    let request = Request {
        method,
        path: path.to_owned(),
        accept: Accept::Object,
        body,
    };
    match api.call(&request, Duration::from_secs(10)) {
        Outcome::Answered(answer) => {
            let body = serde_json::from_slice(&answer.body);
            (answer.code, body.unwrap_or_default())
        }
        Outcome::Silent(why) => panic!("{path}: {why}"),
    }
}
