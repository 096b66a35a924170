//! The endpoint of the command line.

/// The port of an endpoint without one, as in kubeadm.
const PORT: u16 = 6443;

/// `HOST[:6443][/prefix]` or `https://HOST[:443][/prefix]` as a URL.
pub(super) fn url(endpoint: &str) -> Result<String, String> {
    if let Some(scheme) = endpoint.split_once("://").map(|(scheme, _)| scheme) {
        return match scheme {
            "https" => Ok(endpoint.to_owned()),
            _ => Err("the endpoint: only https is safe for a token".into()),
        };
    }
    let (authority, prefix) = match endpoint.split_once('/') {
        Some((authority, prefix)) => (authority, format!("/{prefix}")),
        None => (endpoint, String::new()),
    };
    let after_host = match authority.rsplit_once(']') {
        Some((_, after)) => after,
        None if authority.matches(':').count() > 1 => {
            return Err("the endpoint: an IPv6 address needs brackets: [fd00::1]:6443".into());
        }
        None => authority,
    };
    let port = match after_host.contains(':') {
        true => String::new(),
        false => format!(":{PORT}"),
    };
    Ok(format!("https://{authority}{port}{prefix}"))
}
