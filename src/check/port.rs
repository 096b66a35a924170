//! The port of `nodelet serve`, asked as metrics-server asks it: at the address and the port that
//! the Node reports.

use std::time::Duration;

use serde_json::Value;

use crate::client::api::{Api, Distrust};
use crate::client::api_config::{ApiConfig, Endpoint, Pem};
use crate::kube::finding::{Finding, Mark};
use crate::kube::message::{Accept, Request};
use crate::kube::object;
use crate::kube::text::Fault;

/// The names of the findings of [`port`].
pub(super) const PORT: [&str; 2] = ["metrics", "serving-certificate"];

/// Time limit of one request. The first one starts the process.
const CALL: Duration = Duration::from_secs(10);

/// `node` is the Node on the server; `None` if the server has none; or why it cannot be read. `ca`
/// signs what the cluster issues. At a supervisor, the port gets a certificate of the cluster
/// without a flag that asks for it.
pub(super) fn port(
    is_enabled: bool,
    at_supervisor: bool,
    node: Result<Option<&Value>, &Fault>,
    ca: Option<Pem>,
) -> [Finding; 2] {
    let [metrics, certificate] = PORT;
    let config = node.ok().flatten().and_then(endpoint).map(ApiConfig::at);
    let config = config.map(|config| ApiConfig { insecure: true, ..config });
    match config.map(|config| (metrics_finding(&config), config)) {
        Some((finding, config)) if finding.mark == Mark::Ok => {
            let judged = match ca {
                // Public CAs do not sign it, and k3s behind a public certificate has a CA of its
                // own for it.
                None => {
                    Finding::note(certificate, "the kubeconfig has no CA to verify it with", "")
                }
                ca => {
                    let config = ApiConfig { insecure: false, ca, ..config };
                    certificate_finding(&config, at_supervisor)
                }
            };
            [finding, judged]
        }
        // Only if the port did not answer 401: it may run without systemd, with --listen.
        _ if !is_enabled => [
            Finding::note(
                metrics,
                "nodelet-serve.socket is not enabled, kubectl top has no values",
                "systemctl enable --now nodelet-serve.socket",
            ),
            Finding::note(certificate, "nothing listens here", ""),
        ],
        Some((finding, _)) => [finding, Finding::skipped(certificate, metrics)],
        None => {
            let finding = match node {
                Ok(_) => Finding::note(
                    metrics,
                    "there is no Node with an InternalIP and a port yet",
                    "check again when it is registered",
                ),
                Err(why) => Finding::note(metrics, why.clone().at("the Node cannot be read"), ""),
            };
            [finding, Finding::skipped(certificate, metrics)]
        }
    }
}

/// The address and the port of the Node at which metrics-server asks, by its own manifest.
fn endpoint(node: &Value) -> Option<Endpoint> {
    let address = object::address(node, "InternalIP")?;
    let port = ["status", "daemonEndpoints", "kubeletEndpoint", "Port"];
    let port = object::at(node, &port)?.as_u64().filter(|port| *port != 0)?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    Endpoint::parse(&format!("https://{host}:{port}")).ok()
}

/// The finding `metrics`: OK if the port answers 401 to a request without credentials. Any other
/// code is a failure, because another program has the port. The certificate is not verified here.
fn metrics_finding(config: &ApiConfig) -> Finding {
    let [check, _] = PORT;
    let remedy = "systemctl status nodelet-serve.socket; journalctl -u nodelet-serve; is its \
                  ListenStream= the --port of the agent, and is it in the firewall?";
    match ask(config) {
        Ok(401) => Finding::ok(check, format!("{} answers", config.endpoint)),
        Ok(code) => Finding::failed(
            check,
            format!("{} answers {code} to a request without credentials, not 401", config.endpoint),
            "another program has this port, see ss -ltnp; or set another --port and ListenStream=",
        ),
        Err((why, _)) => Finding::failed(check, why, remedy),
    }
}

/// The finding `serving-certificate`: whether a client can verify the certificate of the port with
/// the cluster's CA. Any code of the answer is OK.
fn certificate_finding(config: &ApiConfig, at_supervisor: bool) -> Finding {
    let [_, check] = PORT;
    match ask(config) {
        Ok(_) => Finding::ok(check, format!("of the cluster, for {}", config.endpoint.host)),
        Err((_, Some(Distrust::Issuer))) => Finding::note(
            check,
            "not signed by the cluster's CA: metrics-server needs --kubelet-insecure-tls",
            if at_supervisor {
                "check again in a minute; then journalctl -u nodelet-serve"
            } else {
                "or set --rotate-server-certificates, and approve what kubectl get csr shows"
            },
        ),
        Err((why, Some(Distrust::Other))) => Finding::failed(
            check,
            why,
            "it needs the address of the Node as a name; remove the files of --tls-cert-file, or \
             replace them",
        ),
        Err((why, _)) => Finding::failed(check, why, "journalctl -u nodelet-serve"),
    }
}

/// The code of the answer, or why there is none. The remedy of the fault is left out, because it is
/// for a kubeconfig.
fn ask(config: &ApiConfig) -> Result<u16, (String, Option<Distrust>)> {
    let mut api = Api::new(config).map_err(|why| (why.what, None))?;
    match api.call(&Request::get("/healthz".to_owned(), Accept::Object), CALL) {
        Ok(response) => Ok(response.code),
        Err(why) => Err((why.what, api.distrust())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::finding::tests::assert_lines;

    #[test]
    fn a_node_that_cannot_be_read_is_not_missing() {
        let found = |is_enabled, node| {
            let [metrics, certificate] = port(is_enabled, false, node, None);
            assert_eq!(certificate.mark == Mark::Skipped, is_enabled);
            metrics
        };
        let why = Fault::from("403 Forbidden");
        assert_lines(&[
            (found(true, Ok(None)), "– metrics: there is no Node"),
            (found(true, Err(&why)), "– metrics: the Node cannot be read: 403 Forbidden"),
            (found(false, Err(&why)), "– metrics: nodelet-serve.socket is not enabled"),
        ]);
    }
}
