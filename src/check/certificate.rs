//! Judges the client certificate of the kubeconfig without a server.

use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, NODE, NODES};

use super::Finding;

/// The subject. RBAC may give a user that is not a node everything that a run needs.
pub fn subject(leaf: &Leaf, node_name: &str) -> Finding {
    let check = "certificate";
    let (user, groups) = (&leaf.subject.common_name, &leaf.subject.organizations);
    let found = format!("CN={user}, O={}", groups.join(", "));
    let is_node = groups.iter().any(|group| group == NODES);
    match leaf.subject.node_name() {
        Some(name) if is_node && name == node_name => Finding::ok(check, found),
        Some(name) if is_node => Finding::failed(
            check,
            &format!(
                "{found}: the certificate is for the node {name}, but this node is {node_name}"
            ),
            &format!("use --hostname-override={name}, or the certificate of {node_name}"),
        ),
        None if is_node => Finding::failed(
            check,
            &format!("{found}: in the group {NODES}, CN must be {NODE}<name>"),
            &format!("request one with CN={NODE}{node_name}"),
        ),
        _ => Finding::note(
            check,
            format!("{found}: not a node, see its permissions below"),
            &format!("for a node, request one with O={NODES}, CN={NODE}{node_name}"),
        ),
    }
}

/// The validity at `now`, by the board's clock. `at_supervisor` the server's clock decides, and this
/// one may be ahead.
pub fn expiry(leaf: &Leaf, now: Wall, at_supervisor: bool) -> Finding {
    let check = "certificate-expiry";
    let (from, until) = (leaf.not_before.time(), leaf.not_after.time());
    if now < leaf.not_before {
        let line = format!("not valid before {from}, clock says {}", now.time());
        return Finding::failed(check, &line, "set the clock (NTP, RTC)");
    }
    if leaf.not_after < now {
        let line = format!("expired at {until}, clock says {}", now.time());
        if at_supervisor {
            let remedy = "correct the clock; if it is right, nodelet join --force";
            return Finding::note(check, line, remedy);
        }
        return Finding::failed(check, &line, "renew it, or correct the clock");
    }
    let days = leaf.not_after.since(now).as_secs() / 86_400;
    Finding::ok(check, format!("valid until {until}, for {days} days"))
}

/// Who renews the certificate, and when: `due` is the time, 1970 for at once; `None` if nobody does.
/// `supervisor` is its URL, and why it cannot be asked, with a remedy.
pub fn renewal(due: Option<Wall>, supervisor: Option<(&str, Option<&str>)>) -> Finding {
    let check = "certificate-renewal";
    let Some(due) = due else {
        return Finding::note(check, "not by nodelet", "replace it before it expires");
    };
    let when = match due == Wall::default() {
        true => "at once".to_owned(),
        false => format!("from {} on", due.time()),
    };
    match supervisor {
        Some((_, Some(why))) => {
            let (why, remedy) = why.split_once("; ").unwrap_or((why, ""));
            Finding::note(check, why, remedy)
        }
        Some((url, None)) => Finding::ok(check, format!("{when}, at the supervisor {url}")),
        None => Finding::ok(check, format!("{when}, if the cluster approves")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::Mark;
    use crate::kube::x509::Subject;

    fn at(seconds: u64) -> Wall {
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    fn leaf(common_name: &str, groups: &[&str]) -> Leaf {
        Leaf {
            subject: Subject {
                common_name: common_name.to_owned(),
                organizations: groups.iter().map(|group| (*group).to_owned()).collect(),
            },
            not_before: at(100),
            not_after: at(200_000),
            public_key: Vec::new(),
        }
    }

    #[test]
    fn a_node_certificate_has_the_node_name_and_group() {
        for (name, groups, mark, part) in [
            (
                "system:node:pi",
                &["system:nodes"][..],
                Mark::Ok,
                "CN=system:node:pi, O=system:nodes",
            ),
            (
                "system:node:pi",
                &["a", "system:nodes"],
                Mark::Ok,
                "O=a, system:nodes",
            ),
            (
                "system:node:pi2",
                &["system:nodes"],
                Mark::Failed,
                "; use --hostname-override=pi2, or",
            ),
            (
                "system:node:",
                &["system:nodes"],
                Mark::Failed,
                "the certificate of pi",
            ),
            (
                "pi",
                &["system:nodes"],
                Mark::Failed,
                "; request one with CN=system:node:pi",
            ),
            (
                "system:node:pi",
                &[],
                Mark::Note,
                "permissions below; for a node",
            ),
            (
                "admin",
                &["system:masters"],
                Mark::Note,
                "CN=admin, O=system:masters: not a node",
            ),
            ("", &[], Mark::Note, "CN=, O=: not a node"),
        ] {
            let finding = subject(&leaf(name, groups), "pi");
            assert_eq!(finding.mark, mark, "{finding:?}");
            assert!(finding.line().contains(part), "{finding:?}");
        }
    }

    #[test]
    fn the_renewal_has_a_time_and_a_signer() {
        let url = "https://cp:9345";
        for (due, supervisor, want) in [
            (
                None,
                None,
                "– certificate-renewal: not by nodelet; replace it before it expires",
            ),
            (
                Some(at(200_000)),
                None,
                "✓ certificate-renewal: from 1970-01-03T07:33:20Z on, if the cluster approves",
            ),
            (
                Some(at(200_000)),
                Some((url, None)),
                "✓ certificate-renewal: from 1970-01-03T07:33:20Z on, at the supervisor https://cp:9345",
            ),
            (
                Some(at(0)),
                Some((url, None)),
                "✓ certificate-renewal: at once, at the supervisor https://cp:9345",
            ),
            (
                Some(at(0)),
                Some((url, Some("k3s-password: no such file; restore it"))),
                "– certificate-renewal: k3s-password: no such file; restore it",
            ),
        ] {
            assert_eq!(renewal(due, supervisor).line(), want);
        }
    }

    #[test]
    fn a_certificate_is_valid_from_its_first_to_its_last_second() {
        for (now, mark, part) in [
            (
                99,
                Mark::Failed,
                "not valid before 1970-01-01T00:01:40Z, clock says 1970-01-01T00:01:39Z; set the clock",
            ),
            (
                100,
                Mark::Ok,
                "valid until 1970-01-03T07:33:20Z, for 2 days",
            ),
            (200_000, Mark::Ok, "for 0 days"),
            (
                200_001,
                Mark::Failed,
                "expired at 1970-01-03T07:33:20Z, clock says 1970-01-03T07:33:21Z; renew it",
            ),
        ] {
            let finding = expiry(&leaf("", &[]), at(now), false);
            assert_eq!(finding.mark, mark, "{finding:?}");
            assert!(finding.line().contains(part), "{finding:?}");
        }
        let finding = expiry(&leaf("", &[]), at(200_001), true);
        assert_eq!(finding.mark, Mark::Note, "{finding:?}");
        assert!(finding.line().contains("; correct the clock; if it is"));
    }
}
