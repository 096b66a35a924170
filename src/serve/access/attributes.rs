//! What a request needs: the verb, and the subresources of the Node of which one must be allowed.
//!
//! `pkg/kubelet/server/auth.go` GetRequestAttributes, with KubeletFineGrainedAuthz.

/// The verb of the API for a method; empty for every other method.
pub(super) fn verb(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The subresources of a path, in the order in which they are asked for; the first that is allowed
/// is enough.
pub(super) fn subresources(path: &str) -> &'static [&'static str] {
    const TABLE: &[(&str, &[&str])] = &[
        ("/pods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
    ];
    let is_below = |above| {
        let rest = path.strip_prefix(above);
        rest.is_some_and(|rest: &str| rest.is_empty() || rest.starts_with('/'))
    };
    let found = TABLE.iter().find(|(above, _)| is_below(*above));
    found.map_or(&["proxy"], |(_, subresources)| subresources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pkg/kubelet/server/auth_test.go` TestGetRequestAttributes, with the gate that 1.36 has
    /// locked, and TestIsSubPath.
    #[test]
    fn test_get_request_attributes() {
        for (path, want) in [
            ("/attach/{podNamespace}/{podID}/{containerName}", &["proxy"][..]),
            ("/checkpoint/{podNamespace}/{podID}/{containerName}", &["checkpoint"]),
            ("/configz", &["configz", "proxy"]),
            ("/flagz", &["configz"]),
            ("/statusz", &["statusz"]),
            ("/containerLogs/{podNamespace}/{podID}/{containerName}", &["proxy"]),
            ("/debug/flags/v", &["proxy"]),
            ("/debug/pprof/{subpath:*}", &["proxy"]),
            ("/exec/{podNamespace}/{podID}/{containerName}", &["proxy"]),
            ("/healthz", &["healthz", "proxy"]),
            ("/healthz/log", &["healthz", "proxy"]),
            ("/logs/", &["log"]),
            ("/metrics", &["metrics"]),
            ("/metrics/slis", &["metrics"]),
            ("/metrics/cadvisor", &["metrics"]),
            ("/metrics/probes", &["metrics"]),
            ("/metrics/resource", &["metrics"]),
            ("/pods/", &["pods", "proxy"]),
            ("/portForward/{podNamespace}/{podID}", &["proxy"]),
            ("/run/{podNamespace}/{podID}/{containerName}", &["proxy"]),
            ("/runningpods/", &["pods", "proxy"]),
            ("/stats/", &["stats"]),
            ("/stats/summary", &["stats"]),
            // Not in the table of upstream.
            ("/", &["proxy"]),
            ("//metrics", &["proxy"]),
            ("/metricsx", &["proxy"]),
            ("/%6detrics", &["proxy"]),
        ] {
            assert_eq!(subresources(path), want, "{path}");
        }
        for (method, want) in [
            ("POST", "create"),
            ("GET", "get"),
            ("PUT", "update"),
            ("PATCH", "patch"),
            ("DELETE", "delete"),
            ("HEAD", ""),
            ("get", ""),
        ] {
            assert_eq!(verb(method), want, "{method}");
        }
    }
}
