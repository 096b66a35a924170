//! Judges the client certificate of the kubeconfig, before any server does.

use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject};

use super::Finding;

const GROUP: &str = "system:nodes";
const PREFIX: &str = "system:node:";

/// Whose it is. Another user than a node may have what a run needs from RBAC.
pub fn subject(leaf: &Leaf, node_name: &str) -> Finding {
    let check = "certificate";
    let Subject {
        common_name,
        organizations,
    } = &leaf.subject;
    let groups = organizations.join(", ");
    let found = format!("CN={common_name}, O={groups}");
    let is_node = organizations.iter().any(|group| group == GROUP);
    match common_name.strip_prefix(PREFIX) {
        Some(name) if is_node && name == node_name => Finding::fine(check, found),
        Some(name) if is_node => Finding::wrong(
            check,
            &format!("{found}: it is the one of the node {name}, and this is {node_name}"),
            &format!("use --hostname-override={name}, or the certificate of {node_name}"),
        ),
        None if is_node => Finding::wrong(
            check,
            &format!("{found}: a user of {GROUP} is called {PREFIX}<name>"),
            &format!("have one made with CN={PREFIX}{node_name}"),
        ),
        _ => Finding::open(
            check,
            format!("{found}: no node's, what it may do stands below"),
            &format!("for a node's, have one made with O={GROUP}, CN={PREFIX}{node_name}"),
        ),
    }
}

/// Whether it is valid now.
pub fn expiry(leaf: &Leaf, now: Wall) -> Finding {
    let check = "certificate-expiry";
    let (from, until) = (leaf.not_before.time(), leaf.not_after.time());
    if now < leaf.not_before {
        let line = format!("not valid before {from}, clock says {}", now.time());
        return Finding::wrong(check, &line, "set the clock (NTP, RTC)");
    }
    if leaf.not_after < now {
        let line = format!("expired at {until}, clock says {}", now.time());
        return Finding::wrong(check, &line, "renew it, or correct the clock");
    }
    let days = leaf.not_after.since(now).as_secs() / 86_400;
    Finding::fine(check, format!("valid until {until}, for {days} days"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::Mark;

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
    fn a_nodes_certificate_has_its_name_and_group() {
        for (name, groups, mark, part) in [
            (
                "system:node:pi",
                &["system:nodes"][..],
                Mark::Fine,
                "CN=system:node:pi, O=system:nodes",
            ),
            (
                "system:node:pi",
                &["a", "system:nodes"],
                Mark::Fine,
                "O=a, system:nodes",
            ),
            (
                "system:node:pi2",
                &["system:nodes"],
                Mark::Wrong,
                "; use --hostname-override=pi2, or",
            ),
            (
                "system:node:",
                &["system:nodes"],
                Mark::Wrong,
                "the certificate of pi",
            ),
            (
                "pi",
                &["system:nodes"],
                Mark::Wrong,
                "; have one made with CN=system:node:pi",
            ),
            (
                "system:node:pi",
                &[],
                Mark::Open,
                "stands below; for a node's",
            ),
            (
                "admin",
                &["system:masters"],
                Mark::Open,
                "CN=admin, O=system:masters: no node's",
            ),
            ("", &[], Mark::Open, "CN=, O=: no node's"),
        ] {
            let finding = subject(&leaf(name, groups), "pi");
            assert_eq!(finding.mark, mark, "{finding:?}");
            assert!(finding.line().contains(part), "{finding:?}");
        }
    }

    #[test]
    fn a_certificate_is_valid_from_its_first_to_its_last_second() {
        for (now, mark, part) in [
            (
                99,
                Mark::Wrong,
                "not valid before 1970-01-01T00:01:40Z, clock says 1970-01-01T00:01:39Z; set the clock",
            ),
            (
                100,
                Mark::Fine,
                "valid until 1970-01-03T07:33:20Z, for 2 days",
            ),
            (200_000, Mark::Fine, "for 0 days"),
            (
                200_001,
                Mark::Wrong,
                "expired at 1970-01-03T07:33:20Z, clock says 1970-01-03T07:33:21Z; renew it",
            ),
        ] {
            let finding = expiry(&leaf("", &[]), at(now));
            assert_eq!(finding.mark, mark, "{finding:?}");
            assert!(finding.line().contains(part), "{finding:?}");
        }
    }
}
