//! The kubelet's port of a virtual board: the socket, the sandbox, and, on a machine with dpkg, an
//! upgrade while a scraper is connected.

use apidouble::{Credentials, Double};
use nodelet::client::api::Api;
use nodelet::client::api_config::ApiConfig;
use nodelet::credentials::kubeconfig;
use nodelet::kube::message::{Accept, Request};

use crate::A_MINUTE;
use crate::guest::{Guest, keep};
use crate::join::{Board, cluster, is_ready};
use support::eventually;

/// Of a user that the double lets scrape.
const TOKEN: &str = "s3cret";
const SERVE: &str = "nodelet-serve.service";

#[test]
#[ignore = "boots a virtual board: minutes, mkfs.ext4, and the network the first time"]
fn a_board_answers_on_the_kubelets_port() {
    let board = Board::new();
    let (double, line) = cluster();
    double.add_token(TOKEN, "scraper", &["system:masters"]);
    let mut guest = board.boot(&board.new_disk());
    println!("{}", guest.run(&line));
    is_ready(&double, &mut guest);
    let state = guest.run("cat /run/nodelet/state");
    assert!(!state.is_empty());
    // Not below /run/private, where nobody else can look.
    assert_eq!(guest.run("stat -c '%F %a' /run/nodelet"), "directory 755");

    guest.run("systemctl enable --now nodelet-serve.socket");
    assert_eq!(active(&mut guest, SERVE), "inactive", "without a connection");
    let mut scraper = Scraper::new(guest.port);
    let metrics = scraper.ask(&mut guest, "/metrics/resource");
    for name in ["node_cpu_usage_seconds_total ", "node_memory_working_set_bytes "] {
        assert!(metrics.contains(name), "{metrics}");
    }
    assert_eq!(scraper.ask(&mut guest, "/healthz/lease"), "ok");
    is_confined(&mut guest);
    refuses_kill_and_writes(&mut guest);

    // Without an agent there is no state, and the port says so.
    guest.run("systemctl stop nodelet");
    assert_eq!(active(&mut guest, SERVE), "inactive", "it would keep credentials of before");
    let (code, why) = scraper.answer(&mut guest, "/healthz/lease");
    assert_eq!(code, 500, "{why}");
    assert_eq!(active(&mut guest, SERVE), "active");
    guest.run("systemctl --no-block start nodelet");
    is_ready(&double, &mut guest);
    assert_eq!(active(&mut guest, SERVE), "inactive", "it would keep those of the stop");
    guest.run("systemctl disable --now nodelet-serve.socket");
    assert_eq!(active(&mut guest, SERVE), "inactive", "it ends with its socket");
    keep("boot-serve.log", &guest.journal());
    assert!(guest.power_off().success());
}

fn active(guest: &mut Guest, unit: &str) -> String {
    guest.try_run(&format!("systemctl is-active {unit}"))
}

fn pid(guest: &mut Guest, unit: &str) -> String {
    guest.run(&format!("systemctl show {unit} -p MainPID --value"))
}

/// The user of the agent, without capabilities, in a cgroup with limits.
fn is_confined(guest: &mut Guest) {
    let (agent, serve) = (pid(guest, "nodelet.service"), pid(guest, SERVE));
    let mut uid = |pid: &str| guest.run(&format!("grep Uid: /proc/{pid}/status"));
    assert_eq!(uid(&agent), uid(&serve));
    let status = guest.run(&format!("cat /proc/{serve}/status"));
    for line in ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Threads:\t1"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert_eq!(guest.run(&format!("cat /proc/{serve}/oom_score_adj")), "500");
    let group = format!("/sys/fs/cgroup/system.slice/{SERVE}");
    assert_eq!(guest.run(&format!("cat {group}/memory.max")), "16777216");
}

/// What a defect in the process could try, run by a shell in the same sandbox.
fn refuses_kill_and_writes(guest: &mut Guest) {
    let agent = pid(guest, "nodelet.service");
    let script = format!(
        "kill -0 {agent}; touch /var/lib/nodelet/x /run/nodelet/x /etc/x; \
         echo x >>/run/nodelet/state; cat /run/nodelet/state; \
         ls /var/lib/nodelet/pki; ls $$CREDENTIALS_DIRECTORY; touch /var/lib/nodelet-serve/x"
    );
    let edits = [
        "/^Requires=/d; /^After=/d; /^StandardInput=/d; /^CPUQuota=/d".to_owned(),
        "s|^Type=.*|Type=oneshot|; /^NoExecPaths=/d; /^ExecPaths=/d".to_owned(),
        format!("s|^ExecStart=.*|ExecStart=/bin/busybox sh -c \"{script}\"|"),
    ];
    let unit = "/run/systemd/system/probe.service";
    let source = format!("/usr/lib/systemd/system/{SERVE}");
    guest.run(&format!("sed '{}' {source} >{unit}", edits.join("; ")));
    guest.run("systemctl daemon-reload");
    // What is refused last decides its exit code.
    guest.try_run("systemctl start probe.service");
    let log = guest.run("journalctl -b -u probe -o cat");
    for line in [
        &format!("can't kill pid {agent}: Operation not permitted"),
        "/var/lib/nodelet/x: Read-only file system",
        "/run/nodelet/x: Read-only file system",
        "/etc/x: Read-only file system",
        "/run/nodelet/state: Read-only file system",
        "kubelet-client-current.pem",
        "kubeconfig",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(!log.contains("nodelet-serve/x"), "its own folder: {log}");
}

/// dpkg installs the package again while a scraper is connected: the socket stays, the process is a
/// new one, and the agent, which was replaced as well, keeps the Node Ready.
pub fn is_replaced_by_an_upgrade(double: &Double, guest: &mut Guest) {
    double.add_token(TOKEN, "scraper", &["system:masters"]);
    guest.run("systemctl enable --now nodelet-serve.socket");
    let mut scraper = Scraper::new(guest.port);
    let mut start = |guest: &mut Guest| {
        let metrics = scraper.ask(guest, "/metrics");
        assert!(metrics.contains("kubelet_node_name{node=\"board\"} 1"), "{metrics}");
        let start = metrics.lines().find(|line| line.starts_with("process_start_time_seconds "));
        start.unwrap().to_owned()
    };
    let before = start(guest);
    assert_eq!(start(guest), before);
    double.clear_requests();
    guest.run("dpkg --install /root/nodelet.deb");
    assert_ne!(start(guest), before);
    eventually("the new agent reads its Node", A_MINUTE, || {
        let mut requests = double.requests().into_iter();
        requests.find(|request| request.method == "GET" && request.path.ends_with("/board"))
    });
    assert!(!double.ever_left_ready());
}

/// A client that keeps its connection, as metrics-server does.
struct Scraper(Api);

impl Scraper {
    fn new(port: u16) -> Self {
        let url = format!("https://127.0.0.1:{port}");
        let text = apidouble::kubeconfig(&url, "", &Credentials::Token(TOKEN));
        let config = kubeconfig::parse(&text, &[]).unwrap();
        Self(Api::new(&ApiConfig { insecure: true, ..config }).unwrap())
    }

    fn ask(&mut self, guest: &mut Guest, path: &str) -> String {
        let (code, body) = self.answer(guest, path);
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    /// Code and body; the next attempt of a scraper may be a minute away.
    fn answer(&mut self, guest: &mut Guest, path: &str) -> (u16, String) {
        match self.0.call(&Request::get(path.to_owned(), Accept::Object), A_MINUTE) {
            Ok(response) => (response.code, String::from_utf8(response.body).unwrap()),
            Err(why) => {
                let log = guest.run(&format!("journalctl -b -u {SERVE} -o cat"));
                panic!("{path}: {why}: {log}")
            }
        }
    }
}
