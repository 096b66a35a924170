//! What is answered about a running agent.

use std::fs;

use apidouble::Double;
use nix::sys::signal::Signal;

use super::{Client, SOON, Served};
use crate::common::board::Board;
use support::{Folder, eventually};

/// The value of a metric without labels.
fn value(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.split(' ').next()?.parse().ok()
}

/// Health and metrics follow the heartbeat of another process; a scraper keeps its connection.
#[test]
fn a_scraper_learns_of_the_board_and_of_the_heartbeat_of_its_agent() {
    let double = Double::builder().token("scraper", "prometheus", &["system:masters"]).start();
    let folder = Folder::new("serve-endpoints");
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let state = folder.path().join("run/state");
    let state_file = format!("--state-file={}", state.display());
    let common = [kubeconfig.as_str(), "--hostname-override=pi", &state_file];
    let served = Served::start(&common);
    let mut client = Client::connect(served.port, None);
    let mut get = |path: &str| client.ask("GET", path, &["Authorization: Bearer scraper"]);
    let silent = get("/healthz/lease");
    let text = "internal server error: lease: no state; is nodelet running?\n";
    assert_eq!((silent.code, silent.body.as_str()), (500, text));
    assert_eq!(get("/healthz").code, 500);

    // systemd tells the agent the folder by a variable.
    fs::create_dir(folder.path().join("run")).unwrap();
    let runtime = folder.path().join("run").display().to_string();
    let short = ["--node-lease-duration-seconds=4", "--node-ip=127.0.0.1"];
    let args = [&common[..2], &short].concat();
    let mut agent = Board::start_with(&args, &[("RUNTIME_DIRECTORY", &runtime)]);
    eventually("a heartbeat", SOON, || (get("/healthz/lease").code == 200).then_some(()));
    assert_eq!(get("/healthz").body, "ok");
    let renewals = |text: &str| value(text, "nodelet_lease_renewals_total");
    let first = renewals(&get("/metrics").body).unwrap();
    eventually("two renewals", SOON, || {
        renewals(&get("/metrics").body).filter(|now| *now > first + 1.0)
    });
    assert!(value(&get("/metrics").body, "process_resident_memory_bytes").unwrap() > 500_000.0);
    let codes =
        ["/metrics/resource", "/stats/summary", "/pods", "/exec/a"].map(|path| get(path).code);
    assert_eq!(codes, [200, 200, 200, 404]);

    // About health, metrics, stats, pods and all else: what is known is not asked again.
    let reviews = |of: &str| {
        let requests = double.requests().into_iter();
        requests.filter(|r| r.method == "POST" && r.path.ends_with(of)).count()
    };
    assert_eq!(reviews("/tokenreviews"), 1);
    assert_eq!(reviews("/subjectaccessreviews"), 5);

    agent.stop(Signal::SIGKILL);
    eventually("the end of the Lease", SOON, || (get("/healthz/lease").code == 500).then_some(()));
}
