//! Judges the API server's responses: authentication, another board with the same node name, and
//! a CA that the cluster adds.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::client::api_config::Pem;
use crate::client::tls::name_and_key;
use crate::kube::cluster_info::{ClusterInfo, cluster};
use crate::kube::finding::Finding;
use crate::kube::message::{NO_API_SERVER, Response};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::kube::yaml;

/// Where a new CA goes if the trusted ones are in no file of their own.
const IN_KUBECONFIG: &str = "the kubeconfig that you wrote, or the bootstrap kubeconfig; if \
                             nodelet join wrote it, join again with a new line of kubeadm";

/// Judges the credentials by the response to the first review. `credential` is what that request
/// carried.
pub(super) fn authentication(response: &Response, credential: Option<&str>) -> Finding {
    let check = "authentication";
    match (response.code, credential, response.accepted()) {
        // 403: authenticated, but the server does not allow the review.
        (403, Some(credential), _) | (_, Some(credential), Ok(())) => {
            Finding::ok(check, format!("with {credential}"))
        }
        (401 | 403, None, _) | (_, None, Ok(())) => Finding::failed(
            check,
            "the kubeconfig has neither a client certificate nor a token",
            "add one to its user",
        ),
        (401, Some(credential), _) => Finding::failed(
            check,
            format!("the server does not accept {credential}: 401"),
            "check that it belongs to this cluster and is neither expired nor revoked",
        ),
        (_, _, Err(refused)) => Finding::failed(check, refused, NO_API_SERVER),
    }
}

/// Whether another board uses this node name now: the control plane sets Ready to Unknown when it
/// sees no renewal of the Lease. The times in a Lease are of the clock of the board that wrote it.
/// `node` is `None` if the server has none.
pub(super) fn namesake(node: Option<&Value>, boot_id: &str) -> Finding {
    let check = "namesake";
    let Some(node) = node else {
        return Finding::ok(check, "there is no Node of this name yet");
    };
    let node_boot_id = object::text(node, &["status", "nodeInfo", "bootID"]);
    if node_boot_id == boot_id && !boot_id.is_empty() {
        return Finding::ok(check, "this board registered the Node");
    }
    let ready = object::of_type(object::list(node, &["status", "conditions"]), "Ready");
    match ready.map(|ready| object::text(ready, &["status"])) {
        None => Finding::ok(check, "the Node has no Ready: no board uses it"),
        Some("Unknown") => Finding::ok(check, "the Node is Ready=Unknown: no board uses it"),
        Some(status) if boot_id.is_empty() => Finding::note(
            check,
            format!(
                "the Node is Ready={status}, perhaps by this board: its boot id cannot be read"
            ),
            "compare the address in kubectl get node -o wide with ip address",
        ),
        Some(status) => Finding::failed(
            check,
            format!("the Node is Ready={status}, by a board with boot id {node_boot_id:?}"),
            "give one of the two boards another --hostname-override; if it is this board before \
             its last boot, start its agent, or check again when the Node is Ready=Unknown",
        ),
    }
}

/// Whether `trusted` has each CA of kubeadm's cluster-info, from the response to a request for it.
/// A cluster that replaces its CA has two there for a while.
pub(super) fn ca(response: &Response, trusted: &Pem, now: Wall) -> Finding {
    let check = "ca";
    if let Err(refused) = response.accepted() {
        let why = Fault::from(refused).what;
        return Finding::note(check, format!("kubeadm's cluster-info cannot be read: {why}"), "");
    }
    let info = ClusterInfo::parse(&response.body);
    let document = info.and_then(|info| yaml::parse(&info.kubeconfig).ok());
    let Some(cluster) = document.and_then(|document| cluster(&document).ok()) else {
        return Finding::note(check, "cluster-info is not that of kubeadm", "");
    };
    let own: Vec<_> = CertificateDer::pem_slice_iter(&trusted.bytes).flatten().collect();
    let trusts =
        |ca: &CertificateDer<'_>| own.iter().map(name_and_key).any(|it| it == name_and_key(ca));
    let (old, new): (Vec<_>, Vec<_>) =
        CertificateDer::pem_slice_iter(&cluster.ca).partition(|ca| ca.as_ref().is_ok_and(trusts));
    let mut ends = own.iter().filter_map(|ca| Some(Leaf::parse(ca)?.not_after));
    if let Some(end) = ends.find(|end| *end < now)
        && new.is_empty()
    {
        let line =
            format!("a CA that is trusted here expired at {}, kubectl refuses it", end.time());
        return Finding::note(check, line, "remove it, or replace it by the renewed one");
    }
    if new.is_empty() {
        return Finding::ok(check, format!("those of cluster-info ({}) are trusted", old.len()));
    }
    let line = format!("cluster-info has a CA ({}) that this board does not trust", new.len());
    let file = trusted.file.as_ref().map(|file| file.display().to_string());
    let place = file.as_deref().unwrap_or(IN_KUBECONFIG);
    Finding::failed(check, line, &format!("before the server uses it, add it to {place}"))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;
    use crate::kube::finding::tests::assert_lines;
    use crate::kube::x509;

    fn response(code: u16, body: Value) -> Response {
        Response::test(code, body.to_string())
    }

    #[test]
    fn authentication_fails_for_401_and_without_a_credential() {
        let token = Some("the token");
        let of = |code, credential| authentication(&response(code, json!({})), credential);
        let down = response(502, json!({"kind": "Status", "message": "down; send me money"}));
        let gateway = "✗ 502: down; send me money; check the API server, and the load balancer";
        assert_lines(&[
            (of(201, token), "✓ with the token"),
            (of(403, token), "✓ with the token"),
            (of(401, token), "✗ does not accept the token: 401"),
            (of(401, None), "✗ neither a client certificate nor a token"),
            (of(403, None), "✗ neither a client certificate nor a token"),
            (of(201, None), "✗ neither a client certificate nor a token"),
            (of(404, token), "✗ URL of an API server"),
            (of(502, None), "✗ load balancer"),
            (authentication(&down, token), gateway),
        ]);
    }

    /// The clock of the other board says nothing: it may be an hour behind, or show 2099.
    #[test]
    fn a_node_with_another_boot_id_that_the_control_plane_hears_is_another_board() {
        let node = |boot_id: &str, ready: &str| {
            let ready = json!({"type": "Ready", "status": ready});
            json!({"status": {"nodeInfo": {"bootID": boot_id}, "conditions": [ready]}})
        };
        let of = |node: Value, boot_id| namesake(Some(&node), boot_id);
        let another = "✗ Ready=True, by a board with boot id \"other\"; give one of the two boards \
                       another --hostname-override; if it is this board before its \
                       last boot, start its agent, or check again when the Node is Ready=Unknown";
        let bare = json!({"status": {"nodeInfo": {"bootID": "other"}}});
        assert_lines(&[
            (namesake(None, "own"), "✓ no Node of this name"),
            (of(node("other", "True"), "own"), another),
            (of(node("other", "True"), "other"), "✓ this board registered"),
            (of(node("other", "Unknown"), "own"), "✓ Ready=Unknown: no board uses it"),
            // Its container runtime is down, and it renews the Lease.
            (of(node("other", "False"), "own"), "✗ Ready=False, by a board"),
            (of(bare, "own"), "✓ no Ready: no board uses it"),
            // The Node of a board whose boot id cannot be read has none.
            (of(node("", "True"), ""), "– Ready=True, perhaps by this board"),
            (of(node("", "True"), "own"), "✗ Ready=True, by a board"),
        ]);
    }

    #[test]
    fn a_ca_of_cluster_info_that_is_not_trusted_fails() {
        let [old, new] = &[&b"old"[..], b"new"].map(|der| x509::pem("CERTIFICATE", der));
        let both = &format!("{new}{old}");
        let info = |ca: &str| {
            let ca = STANDARD.encode(ca);
            let kubeconfig = format!(
                "clusters: [{{name: '', cluster: {{server: s, certificate-authority-data: {ca}}}}}]"
            );
            response(200, json!({"data": {"kubeconfig": kubeconfig}}))
        };
        let forbidden = json!({"kind": "Status", "reason": "Forbidden", "message": "no"});
        let of = |response: Response, trusted: &str, file: &str| {
            let file = Some(file.into()).filter(|_| !file.is_empty());
            let bytes = trusted.to_owned().into();
            let now = Wall::parse("2050-01-01T00:00:00Z").unwrap();
            ca(&response, &Pem { file, source: String::new(), bytes }, now)
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        let expired = &params.self_signed(&key).unwrap().pem();
        // With the same name and key.
        params.not_after = rcgen::date_time_ymd(2060, 1, 1);
        let renewed = &params.self_signed(&key).unwrap().pem();
        let expired_at = "– expired at 2040-01-01T00:00:00Z, kubectl refuses it; remove it";
        let again = "✗ a CA (1) that this board does not trust; before the server uses it, add it \
                     to the kubeconfig that you wrote, or the bootstrap kubeconfig; if nodelet \
                     join wrote it, join again with a new line of kubeadm";
        let add = "✗ trust; before the server uses it, add it to /etc/ca.crt";
        assert_lines(&[
            (of(info(expired), expired, ""), expired_at),
            (of(info(renewed), expired, ""), expired_at),
            (of(info(expired), renewed, ""), "✓ those of cluster-info (1) are trusted"),
            (of(info(old), old, ""), "✓ those of cluster-info (1) are trusted"),
            // The old one is gone.
            (of(info(new), both, ""), "✓ those of cluster-info (1) are trusted"),
            (of(info(both), old, ""), again),
            (of(info(both), new, "/etc/ca.crt"), add),
            (of(info(&both.replacen("END", "", 1)), both, ""), again),
            (of(info(""), old, ""), "– cluster-info is not that of kubeadm"),
            (of(response(403, forbidden), old, ""), "– cannot be read: 403 Forbidden: no"),
        ]);
    }
}
