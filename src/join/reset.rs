//! `nodelet reset`: removes what `nodelet join` wrote, and the certificates of the agent.

use serde_json::json;

use super::files::Places;
use super::walk::{Failed, failed};
use super::{End, finish};
use crate::check::{Finding, Mark, Report};
use crate::core::join::command::Reset;
use crate::files::write::Disk;
use crate::identity::kubeconfig;
use crate::identity::pki::stored_certificate;
use crate::kube::x509::Leaf;

const CHECKS: [&str; 3] = ["running", "files", "node"];

pub(super) fn reset(settings: &Reset, print: &mut dyn FnMut(&str) -> Result<(), String>) -> End {
    let places = Places::new(settings.root.as_deref());
    let (report, removed) = carry_out(&mut Disk::default(), &places, settings.force);
    if settings.json {
        return finish(
            "reset",
            &report,
            Some(&[("removed", json!(removed))]),
            print,
        );
    }
    for finding in &report.findings {
        if finding.mark != Mark::Skipped {
            print(&finding.line()).map_err(|line| (false, line))?;
        }
    }
    finish("reset", &report, None, print)
}

/// The report, and the removed paths.
pub(super) fn carry_out(disk: &mut Disk, places: &Places, force: bool) -> (Report, Vec<String>) {
    let mut report = Report {
        node_name: node_name(places).unwrap_or_default(),
        findings: Vec::new(),
    };
    let mut removed = Vec::new();
    match remove(disk, places, force, &mut removed) {
        Ok(findings) => report.findings = findings.into(),
        Err(finding) => {
            let cause = finding.check;
            let later = CHECKS.iter().skip_while(|check| **check != cause).skip(1);
            report.findings = vec![*finding];
            let skipped = later.map(|check| Finding::skipped(check, cause));
            report.findings.extend(skipped);
        }
    }
    (report, removed)
}

fn remove(
    disk: &mut Disk,
    places: &Places,
    force: bool,
    removed: &mut Vec<String>,
) -> Result<[Finding; 3], Failed> {
    if places.is_running() {
        let remedy = "systemctl disable --now nodelet";
        return Err(failed("running", "nodelet.service runs", remedy));
    }
    let name = node_name(places).unwrap_or_default();
    let running = Finding::ok("running", "nodelet.service does not run");
    let failed = |why: String| Failed::from(Finding::failed("files", &why, "run it with sudo"));
    let (ops, paths) = places.remove(force).map_err(failed)?;
    disk.carry_out(ops).map_err(failed)?;
    removed.extend(paths.iter().map(|path| path.display().to_string()));
    let detail = match removed.as_slice() {
        [] => "nothing to remove".to_owned(),
        removed => format!("removed {}", removed.join(", ")),
    };
    let node = match name.as_str() {
        "" => Finding::ok("node", "no Node of this board is known"),
        name => Finding::note(
            "node",
            format!(
                "the Node {name} stays, and a copy of its certificate is valid until it expires"
            ),
            &format!("kubectl delete node {name}"),
        ),
    };
    Ok([running, Finding::ok("files", detail), node])
}

/// The name in the certificate of the board.
fn node_name(places: &Places) -> Option<String> {
    let given = || {
        let config = kubeconfig::load(&places.kubeconfig(), None).ok()?;
        Leaf::of_pem(&config.certificate.as_ref()?.chain.bytes)
    };
    let leaf = stored_certificate(&places.cert_dir()).or_else(given)?;
    leaf.subject.node_name().map(str::to_owned)
}
