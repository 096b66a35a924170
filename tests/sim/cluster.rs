//! What happens in the cluster and with its servers: addresses, controllers, other boards, a
//! person who corrects what is on the board. And what the agent has to have done about it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use apidouble::Phase;
use serde_json::{Value, json};

use super::clusters;
use super::dns::{FIRST, SECOND};
use super::net::DEAD;
use super::plan::{Plan, Step};
use super::trace::{Exchange, What};
use super::world::{Event, GRACE, NODE, OVERRIDDEN, RENAMED, Server, World, ready_of};
use crate::kube::x509::Leaf;

/// The names and addresses in the certificate of each server.
pub(super) const NAMES: &[&str] = &[
    "api.test", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1", "10.0.1.2", "10.0.1.3", "fd00::1",
    "fd00::2", "fd00::3",
];

/// An attempt to renew a certificate that began before the board's clock was set is over.
const CLOCK_SET: Duration = Duration::from_secs(1200);

/// How exact the end of a certificate is: a server's Date has whole seconds.
const ROUNDED: Duration = Duration::from_secs(5);

/// How long the agent may take for what its promises name: a report, a read, and a write.
const PROMISED: Duration = Duration::from_secs(900);

/// The servers of a setting, at their first addresses.
pub(super) fn servers(plan: &Plan) -> Vec<Server> {
    let count: u8 = plan.setting("servers").parse().unwrap_or(1);
    let has_6 = plan.setting("reach") == "both";
    let server = |index: u8| {
        let sixth = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(index) + 1);
        Server {
            address: SocketAddr::new([10, 0, 0, index + 1].into(), 6443),
            also: has_6.then(|| SocketAddr::new(sixth.into(), 6443)),
            cluster: 0,
        }
    };
    (0..count).map(server).collect()
}

impl World {
    // --- names and addresses ---

    fn has_name(&self) -> bool {
        self.plan.setting("address") == "name"
    }

    /// The URL of the servers.
    pub(super) fn url(&self) -> String {
        match self.has_name() {
            true => "https://api.test:6443".to_owned(),
            false => format!("https://{}", self.servers[0].address),
        }
    }

    /// The addresses of the servers' name.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let mut all = Vec::new();
        if self.plan.setting("reach") == "dead-6" {
            all.push(DEAD);
        }
        let own = || self.servers.iter().filter(|server| server.cluster == 0);
        all.extend(own().filter_map(|server| server.also).map(|it| it.ip()));
        all.extend(own().map(|server| server.address.ip()));
        all
    }

    /// Name servers and hosts file, by the setting.
    pub(super) fn set_names(&mut self) {
        let addresses = self.addresses();
        let second = vec![clusters::address(1)];
        let mut names = BTreeMap::from([
            (clusters::name(0).to_owned(), addresses.clone()),
            (clusters::name(1).to_owned(), second),
        ]);
        let resolv = match self.plan.setting("dns") {
            "one" | "" => format!("nameserver {FIRST}\n"),
            "alias" => {
                names.insert("api.test".to_owned(), Vec::new());
                names.insert("api.test.lan.test".to_owned(), addresses.clone());
                format!("nameserver {FIRST}\nnameserver {SECOND}\nsearch lan.test\n")
            }
            _ => format!("nameserver {FIRST}\nnameserver {SECOND}\nsearch lan.test corp.test\n"),
        };
        self.names = names;
        self.board.put("etc/resolv.conf", resolv.as_bytes());
        if self.plan.setting("dns") == "hosts" {
            // No name server knows them.
            let names = std::mem::take(&mut self.names);
            let line = |name: &String, address: &IpAddr| format!("{address} {name}\n");
            let lines =
                names.iter().flat_map(|(name, all)| all.iter().map(move |it| line(name, it)));
            self.board.hardware.servers_named = lines.collect();
            self.board.write_etc();
        }
        if let Some(named) = self.board.hardware.named.filter(|_| self.names_node()) {
            for name in [NODE, RENAMED, OVERRIDDEN] {
                self.names.insert(name.to_owned(), vec![named]);
            }
        }
    }

    /// The name servers know the board.
    fn names_node(&self) -> bool {
        self.plan.setting("hosts") == "dns"
    }

    /// The servers get other addresses; the old ones lead nowhere.
    pub(crate) fn move_servers(&mut self) {
        self.each_server(0, |world, server| world.end_connections_of(server, true));
        self.has_moved = !self.has_moved;
        let third = u8::from(self.has_moved);
        for server in self.servers.iter_mut().filter(|server| server.cluster == 0) {
            if let IpAddr::V4(v4) = server.address.ip() {
                let last = v4.octets()[3];
                server.address.set_ip(Ipv4Addr::new(10, 0, third, last).into());
            }
        }
    }

    /// A person corrects the names, and the address in each file of the board and in the line of
    /// `nodelet join`: k3s' line has an address though its servers have a name.
    pub(crate) fn correct_addresses(&mut self) {
        if self.has_name() {
            self.set_names();
        }
        let own = self.servers.iter().filter(|server| server.cluster == 0);
        let corrections: Vec<(String, String)> = own
            .filter_map(|server| {
                let IpAddr::V4(v4) = server.address.ip() else { return None };
                let [_, _, third, last] = v4.octets();
                Some((format!("10.0.{}.{last}:", 1 - third.min(1)), format!("{v4}:")))
            })
            .collect();
        let correct = |text: &str| {
            corrections.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
        };
        self.correct_line(&correct);
        let mut paths: Vec<String> = [
            "etc/kubernetes/kubelet.conf",
            "var/lib/nodelet/kubeconfig",
            "etc/default/nodelet",
            "etc/default/nodelet-join",
        ]
        .map(str::to_owned)
        .into();
        for folder in ["etc/credstore", "run/credentials/nodelet.service"] {
            paths.extend(self.board.list(folder).iter().map(|name| format!("{folder}/{name}")));
        }
        let mut has_changed = false;
        for path in paths {
            let Some(content) = self.board.read(&path) else { continue };
            let Ok(text) = String::from_utf8(content) else { continue };
            let corrected = correct(&text);
            if corrected != text {
                self.person_writes(&path, corrected.as_bytes());
                has_changed = true;
            }
        }
        // Somebody may have corrected a file that the process has not read.
        if !has_changed && self.running_start().differs(&self.next_start()).is_none() {
            return;
        }
        // systemd/join.md: "before each attempt it reads the files again" is about an expired
        // certificate, and an agent that searches. Any other one is restarted.
        let searches = self.plan.setting("auth") == "bootstrap" && self.has_expired();
        if !searches {
            self.restart_unit();
        }
    }

    // --- certificates ---

    /// A server has seen the certificate of a client.
    pub(super) fn saw_certificate(&mut self, id: u64) {
        let chain = self.certificates(id);
        let leaf = chain.as_ref().and_then(|chain| chain.first()).and_then(|der| Leaf::parse(der));
        let Some(leaf) = leaf else { return };
        self.shown_until = Some(leaf.not_after);
        // A gateway that verifies it within TLS lets no connection outlive it: its workers restart.
        let cluster = self.net.connections.get(&id).map(|it| self.servers[it.server].cluster);
        if cluster.is_some_and(|cluster| self.clusters[cluster].verifies) {
            let until = self.now + leaf.not_after.since(self.true_wall());
            self.plan_at(until, Event::Expires { connection: id });
        }
    }

    /// A clock that is ahead for a while does not make each board renew at once: the agent renews
    /// its last certificate when less than 30 % of the life are left, or when a server's clock says
    /// that the last tenth has begun.
    pub(super) fn check_renewal(&mut self, id: u64, request: &Exchange) {
        let is_csr = request.method == "POST" && request.target.contains("/certificatesigning");
        // The attempt may have begun while the board's clock was ahead.
        let is_clock_right = self.board_wall() <= self.true_wall()
            && (self.clock_changed.is_zero() || self.now > self.clock_changed + CLOCK_SET);
        if !is_csr || self.unit.pid != Some(request.pid) || !is_clock_right {
            return;
        }
        let chain = self.certificates(id);
        let leaf = chain.as_ref().and_then(|chain| chain.first()).and_then(|der| Leaf::parse(der));
        let issued = self.issued.as_deref().and_then(Leaf::of_pem);
        let Some(leaf) = leaf.filter(|leaf| issued.as_ref() == Some(leaf)) else { return };
        let life = leaf.not_after.since(leaf.not_before);
        let ahead = Duration::from_secs(self.faults.size("servers-clock-ahead").unwrap_or(0));
        let (now, ended) = (self.true_wall(), leaf.not_before.after(life / 10 * 9));
        if leaf.not_after.since(now) > life / 10 * 3 + ROUNDED && now.after(ahead + ROUNDED) < ended
        {
            let text =
                format!("a renewal too early: {now:?}, and it is valid until {:?}", leaf.not_after);
            self.tell(What::Broken { sentence: 10, text });
        }
    }

    /// Whether the certificate that was last shown is over.
    pub(super) fn has_expired(&self) -> bool {
        self.shown_until.is_some_and(|until| until < self.true_wall())
    }

    // --- controllers, and others who write ---

    /// The controller of pod CIDRs.
    pub(super) fn give_pod_cidrs(&mut self) {
        let stops = self.has_denied_ranges || self.faults.has("lifecycle-stops");
        if self.plan.setting("cidr") != "yes" || stops {
            return;
        }
        if self.own_node(|node| node["spec"]["podCIDRs"].is_null()) == Some(true) {
            self.cidrs += 1;
            self.changed_spec = self.now;
            let cidr = format!("10.244.{}.0/24", self.cidrs % 256);
            let body = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
            let (_, name) = self.place();
            self.admin("PATCH", &format!("/api/v1/nodes/{name}"), &body);
        }
    }

    /// The first renewal after an outage, and the controller, whose informers are behind, has not seen
    /// it yet when it looks at the Node.
    pub(super) fn controller_lags(&mut self, last: Option<Duration>) {
        let is_outage = last.is_some_and(|last| self.now > last + GRACE);
        if let Some(seconds) = self.late.filter(|_| is_outage) {
            self.later(Duration::from_secs(seconds), |world, _| world.nobody_is_heard(), 0);
        }
        if is_outage || !self.faults.has("lifecycle-late") {
            self.late = None;
        }
    }

    fn nobody_is_heard(&mut self) {
        let (cluster, name) = self.place();
        if self.own_node(|node| ready_of(node) == "True") != Some(true) || !self.is_heard() {
            return;
        }
        let text = "the lifecycle controller is late".to_owned();
        self.tell(What::Fault { begins: true, text });
        let time = self.true_wall().time();
        let unknown = |kind: &str| {
            json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.", "lastTransitionTime": time})
        };
        let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
        let body = json!({"status": {"conditions": kinds.map(unknown)}});
        let path = format!("/api/v1/nodes/{name}/status");
        let kind = "application/strategic-merge-patch+json";
        self.set_double();
        self.clusters[cluster].model.as_admin("PATCH", &path, kind, &body);
        self.watch_ready();
    }

    /// The Lease is renewed in time.
    fn is_heard(&self) -> bool {
        let renewed = self.people.renewed.values().max();
        renewed.is_some_and(|at| self.now.saturating_sub(*at) < GRACE / 2)
    }

    /// A policy denies the Node a range, and somebody deletes the Node, which has one.
    pub(crate) fn deny_ranges(&mut self) {
        self.has_denied_ranges = true;
        self.changed_spec = self.now;
        self.delete("nodes/pi");
    }

    /// A pod of the Node, as of `kubectl debug node`; or one with so many arguments.
    pub(crate) fn bind_pod(&mut self, arguments: u64) {
        let (cluster, name) = self.place();
        self.others += 1;
        self.changed_spec = self.now;
        let arguments: Vec<&str> = (0..arguments).map(|_| "x").collect();
        let body = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("stray-{}", self.others), "namespace": "default"},
            "spec": {"nodeName": name, "containers": [
                {"name": "c", "image": "i", "args": arguments}]}});
        self.set_double();
        let path = "/api/v1/namespaces/default/pods";
        self.clusters[cluster].model.as_admin("POST", path, "application/json", &body);
    }

    /// A kubelet beside the agent starts a pod.
    pub(crate) fn run_pod(&mut self) {
        self.end_pod();
        self.bind_pod(0);
        let (name, now) = (format!("stray-{}", self.others), self.true_wall().time());
        let container = json!({"name": "c", "state": {"running": {"startedAt": now}}});
        let body = json!({"status":
            {"phase": "Running", "startTime": now, "containerStatuses": [container]}});
        self.admin("PATCH", &format!("/api/v1/namespaces/default/pods/{name}/status"), &body);
        self.running = Some((self.place().0, name, self.board.boots));
    }

    /// It ends, or the agent has ended it: in the same boot the pod would then run twice.
    pub(crate) fn end_pod(&mut self) {
        // The board may be in another cluster since.
        let Some((cluster, name, boot)) = self.running.take() else { return };
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.set_double();
        let pod = self.clusters[cluster].model.get(&path).unwrap_or_default();
        // A process that starts while a server's clock is hours ahead knows no other time of the
        // boot (`WallClock::boot`).
        let began = self.unit.started + Duration::from_secs(60);
        let is_misled = |step: &Step| {
            step.class.name == "servers-clock-ahead"
                && step.size >= 3600
                && step.when.at() <= began
                && self.unit.started <= step.end()
        };
        let is_misled = self.plan.steps.iter().any(is_misled);
        if pod["status"]["phase"] == "Failed" && boot == self.board.boots && !is_misled {
            let text = "a pod that runs was ended".to_owned();
            self.tell(What::Broken { sentence: 5, text });
        }
        self.admin_of(cluster, "DELETE", &path, &json!({"gracePeriodSeconds": 0}));
    }

    /// A kubelet ends the pods of a backup that it does not run any more.
    pub(crate) fn end_restored_pods(&mut self) {
        let own = self.running.as_ref().map(|(_, name, _)| name.clone()).unwrap_or_default();
        let running = "/api/v1/pods?fieldSelector=status.phase%3DRunning";
        for pod in self.clusters[0].model.list(running) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if name != own {
                let path = format!("/api/v1/namespaces/default/pods/{name}");
                self.admin_of(0, "DELETE", &path, &json!({"gracePeriodSeconds": 0}));
            }
        }
    }

    /// `kubectl replace --force`: the Node is deleted, and made anew at once.
    pub(crate) fn replace_node(&mut self) {
        let (cluster, name) = self.place();
        if self.own_node(|_| ()).is_none() {
            return;
        }
        self.changed_spec = self.now;
        self.delete(&format!("nodes/{name}"));
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let model = &self.clusters[cluster].model;
        model.as_admin("POST", "/api/v1/nodes", "application/json", &body);
    }

    /// A copy of the card in another board writes its status, with its own boot id.
    pub(crate) fn other_board_writes(&mut self) {
        // Each time another boot: a write that changes nothing is seen by nobody.
        self.others += 1;
        let boot = format!("ffffffff-ffff-4fff-8fff-{:012}", self.others);
        let body = json!({"status": {"nodeInfo": {"bootID": boot}}});
        let (code, _) = self.admin("PATCH", &format!("/api/v1/nodes/{NODE}/status"), &body);
        if code < 300 {
            self.other_board_wrote = Some(self.now);
        }
    }

    /// The agent has ended a pod while another machine, which it has seen, writes to its Node.
    pub(super) fn check_pods(&mut self, exchange: &Exchange) {
        // It asks each five minutes whether the Node has changed, and remembers what it saw for an
        // hour, until it ends. A Node that is read late may show nothing of the other machine.
        const SEEN: Duration = Duration::from_secs(320);
        const KEPT: Duration = Duration::from_secs(3500);
        const HIDES: [&str; 6] = ["node-", "etcd-", "server-l", "clock-", "cluster-", "servers-m"];
        let Some(at) = self.other_board_wrote else { return };
        let is_between = |time: Duration| (at..self.now).contains(&time);
        let hides = |name: &str| HIDES.iter().any(|start| name.starts_with(start));
        let mut steps = self.plan.steps.iter();
        let is_hidden = steps
            .any(|it| hides(it.class.name) && (is_between(it.when.at()) || is_between(it.end())));
        let is_change = exchange.method != "GET" && exchange.target.contains("/pods/");
        if is_change
            && exchange.is_carried_out
            && (at + SEEN..at + KEPT).contains(&self.now)
            && self.unit.started < at
            && !is_hidden
        {
            let text = format!("a pod of another machine is ended: {}", exchange.target);
            self.tell(What::Broken { sentence: 5, text });
        }
    }

    /// Somebody makes the Node so large, or as small as before.
    pub(crate) fn fill_node(&mut self, kib: u64) {
        let names = (0..kib).map(|number| format!("{number:0>1000}")).collect::<Vec<String>>();
        let images: Vec<Value> =
            names.iter().map(|name| json!({"names": [name], "sizeBytes": 1})).collect();
        let body = json!({"status": {"images": images}});
        self.admin("PATCH", &format!("/api/v1/nodes/{NODE}/status"), &body);
    }

    /// etcd is restored from a backup of an earlier story, or backed up for a later one.
    pub(crate) fn restore_or_back_up(&mut self) {
        match self.clusters[0].backup.is_some() {
            true => self.restore(),
            false => self.back_up(),
        }
    }

    // --- k3s ---

    /// The server of k3s restarts, and refuses what its phases refuse.
    pub(crate) fn supervisor_starts(&mut self) {
        self.each_server(0, |world, server| world.end_connections_of(server, true));
        self.clusters[0].model.set_supervisor(|supervisor| {
            supervisor.start = vec![Phase::Starting, Phase::WithoutApi, Phase::WithoutCore];
        });
    }

    /// Another holder of a join token asks for a certificate of this Node's name: the supervisor
    /// stores its password where there is none. Whose Node was deleted may lose the name for good.
    pub(crate) fn name_is_taken(&mut self) {
        self.set_double();
        if self.clusters[0].model.get(&format!("nodes/{NODE}")).is_none() {
            return;
        }
        self.clusters[0].model.set_supervisor(|supervisor| {
            supervisor.passwords.entry(NODE.to_owned()).or_insert("of-another-board".to_owned());
        });
    }

    /// The password of this board is stored, as `nodelet join` does it.
    pub(super) fn store_password(&mut self, password: &str) {
        self.clusters[0].model.set_supervisor(|supervisor| {
            supervisor.passwords.insert(NODE.to_owned(), password.to_owned());
        });
    }

    // --- what was promised ---

    /// What the agent has not done, though it had the time; `None` where it had not.
    pub(super) fn broken_promises(&self) -> Option<Vec<(&'static str, String)>> {
        let quiet_since = self.plan.stories.iter().map(|story| story.healed);
        let quiet_since = quiet_since.filter(|healed| *healed <= self.now).max()?;
        let since = quiet_since.max(self.changed_spec);
        if self.now < since + PROMISED || !self.board.is_on {
            return None;
        }
        let mut broken = Vec::new();
        broken.extend(self.wrong_cidr());
        broken.extend(self.missing_password());
        broken.extend(self.stray_pods());
        broken.extend(self.missing_label());
        Some(broken)
    }

    /// What `look` finds in the Node that the board has now: a join may have given it another name,
    /// or cluster.
    fn own_node<T>(&self, look: impl FnOnce(&Value) -> T) -> Option<T> {
        let (cluster, name) = self.place();
        self.clusters[cluster].model.look_at(&format!("nodes/{name}"), look)
    }

    fn wrong_cidr(&self) -> Option<(&'static str, String)> {
        let cidr_of =
            |node: &Value| node["spec"]["podCIDR"].as_str().unwrap_or_default().to_owned();
        let cidr = self.own_node(cidr_of)?;
        let file = self.board.read("var/lib/nodelet/podcidr").unwrap_or_default();
        let file = String::from_utf8_lossy(&file).trim().to_owned();
        let text = format!("podcidr has {file:?}, and the Node {cidr:?}");
        // On a root that can block, a file that could not be written is written by the next start.
        // A card that takes writes again is tried with the next report.
        let writes = self.people.read_only_until + PROMISED;
        let waits = self.plan.root_can_block() && self.card.refused_cidr || self.now < writes;
        (file != cidr && !waits).then_some(("podcidr", text))
    }

    /// A guest excludes itself, also on a Node that another client made anew.
    fn missing_label(&self) -> Option<(&'static str, String)> {
        let label = "node.kubernetes.io/exclude-disruption";
        let is_guest = self.plan.setting("pods") != "40";
        let is_missing = self.own_node(|node| node["metadata"]["labels"][label].is_null())?;
        (is_guest && is_missing).then(|| ("label", format!("the Node has no {label}")))
    }

    fn missing_password(&self) -> Option<(&'static str, String)> {
        if self.plan.setting("auth") != "k3s" || self.place() != (0, NODE) {
            return None;
        }
        let supervisor = self.clusters[0].model.supervisor()?;
        self.clusters[0].model.get(&format!("nodes/{NODE}"))?;
        let own = self.board.read("etc/credstore/nodelet.k3s-password").unwrap_or_default();
        let own = String::from_utf8_lossy(&own).trim().to_owned();
        let stored = supervisor.passwords.get(NODE);
        let text = match stored {
            Some(other) if *other != own => "another board has this Node's password".to_owned(),
            Some(_) => return None,
            None => "the supervisor has no password of this Node".to_owned(),
        };
        Some(("node password", text))
    }

    fn stray_pods(&self) -> Option<(&'static str, String)> {
        // A pod that was forbidden, or whose end was accepted and then lost, by a lie or a backup, is
        // tried again after an hour; and a Node that offers pods ends none.
        let hides = [
            "server-forbids",
            "rbac-lost",
            "gateway-page",
            "pods-refused",
            "server-lies",
            "etcd-backup",
            "etcd-old-backup",
        ];
        let offers = self.plan.setting("pods") == "40";
        // The pods may run on the other board: they are left for an hour after it was last seen, and
        // it is seen with the next report.
        let is_other = |at: Duration| self.now < at + Duration::from_secs(3600 + 600);
        let is_shared = self.other_board_wrote.is_some_and(is_other);
        let ago = self.now.saturating_sub(Duration::from_secs(3600 + 600));
        let is_recent = |at: Duration, lasts| at <= self.now && at + lasts > ago;
        let mut steps = self.plan.steps.iter().filter(|it| is_recent(it.when.at(), it.lasts));
        let is_hidden = steps.any(|step| hides.contains(&step.class.name));
        if offers || is_shared || is_hidden {
            return None;
        }
        let (cluster, name) = self.place();
        let stray = format!(
            "/api/v1/pods?fieldSelector=spec.nodeName%3D{name},status.phase%21%3DFailed,\
             status.phase%21%3DSucceeded"
        );
        let pods = self.clusters[cluster].model.list(&stray);
        let pod = pods.first()?;
        Some(("stray pod", format!("{} still waits on the Node", pod["metadata"]["name"])))
    }
}
