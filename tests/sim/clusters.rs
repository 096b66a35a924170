//! What the administrators of the two clusters do to their CA, and what the owner of a board does to
//! its kubeconfig.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use apidouble::{Authority, BootstrapToken, Identity, Model, Supervisor, Validity};
use serde_json::Value;

use super::cluster;
use super::draw::draw;
use super::people::Command;
use super::plan::Plan;
use super::trace::What;
use super::world::{Cluster, NODE, World};

/// Server certificates and CAs live longer than a run, and are older than the build:
/// systemd/differences.md promises nothing else to a clock of 1970.
const LONG: Validity = Validity { from: -100 * 86_400, until: 3650 * 86_400 };
/// An address that no machine has yet: nobody answers.
pub(crate) const SILENT: &str = "10.0.0.99";
/// The name of another board, whose files are taken for those of this one.
const OTHER: &str = "other";
/// The card may be so slow that an agent reads its files only so long after its start.
const SLOW_START: Duration = Duration::from_secs(60);

/// The names of the servers of a cluster, for now and after a move.
fn names(index: usize) -> Vec<String> {
    if index > 0 {
        return vec![address(index).to_string(), name(index).to_owned()];
    }
    let moved = ["10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.1.11", "10.0.1.12", "10.0.1.13"];
    cluster::NAMES.iter().copied().chain(moved).map(str::to_owned).collect()
}

/// The address of the first server of a cluster.
pub(crate) fn address(index: usize) -> IpAddr {
    let third = if index == 0 { 0 } else { 9 };
    [10, 0, third, 1].into()
}

/// The DNS name of a cluster.
pub(crate) fn name(index: usize) -> &'static str {
    if index == 0 { "api.test" } else { "b.test" }
}

impl Cluster {
    pub(crate) fn new(index: usize, plan: &Plan) -> Self {
        // Both have the name that kubeadm gives.
        Self::of(index, plan, Authority::new("kubernetes"), Vec::new())
    }

    /// A cluster whose servers and certificates are of this authority; clients may still be of
    /// `former` ones.
    fn of(index: usize, plan: &Plan, authority: Authority, former: Vec<Authority>) -> Self {
        let names = names(index);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let identity = match plan.setting("key") {
            "p384" => authority.server_with_p384(&names, LONG),
            _ => authority.server(&names, LONG),
        };
        let forged = Authority::new("somebody-else").server(&names, LONG);
        let model = Model::new(authority, &format!("{}:6443", address(index)));
        let trusted: Vec<&Authority> = former.iter().chain([model.authority()]).collect();
        model.trust(&trusted);
        let config = match plan.setting("tls") {
            "1.2" => model.server_config_of_tls12(&identity),
            _ => model.server_config(&identity),
        };
        let strict = Model::strict_server_config(&identity, &trusted);
        let wrong = model.server_config(&forged);
        let (ca_pem, pins) = (model.ca_pem(), vec![model.authority().pin()]);
        let verifies = plan.setting("gateway") == "strict";
        let (backup, next, signs_until) = (None, None, None);
        Self {
            model,
            config,
            strict,
            wrong,
            backup,
            ca_pem,
            pins,
            next,
            former,
            verifies,
            signs_until,
        }
    }

    /// The same cluster with another authority; clients may still be of `former`, too.
    fn change(&mut self, index: usize, plan: &Plan, authority: Authority, also: Option<Authority>) {
        let mut former = std::mem::take(&mut self.former);
        former.extend(also);
        let new = Self::of(index, plan, authority, former);
        new.model.restore(self.model.snapshot());
        let (backup, verifies, signs_until) = (self.backup.take(), self.verifies, self.signs_until);
        *self = Self { backup, verifies, signs_until, ..new };
    }

    /// What the line of `kubeadm token create --print-join-command` has.
    pub(crate) fn pins(&self) -> Vec<String> {
        self.pins.clone()
    }

    /// Also after a restored backup, which may be of the time of another CA.
    pub(crate) fn publish_ca(&self) {
        let info = self.model.cluster_info(&self.model.url(), &self.ca_pem);
        self.model.set_cluster_info(Some(&info));
        if self.model.supervisor().is_some() {
            let ca = self.ca_pem.clone();
            self.model.set_supervisor(|supervisor| supervisor.cacerts = ca);
        }
    }
}

impl World {
    // --- the CA ---

    /// The certificate of the CA is renewed, with its key and its name; `kubeadm certs renew` and
    /// most hosters do that. With `size` 1 the board gets a new bootstrap kubeconfig, whose token
    /// has expired when the unit is restarted.
    pub(crate) fn renew_ca(&mut self, size: u64) {
        self.set_double();
        // The owner of a cluster does one thing after the other.
        if self.clusters[0].next.is_some() {
            return;
        }
        let renewed = self.clusters[0].model.authority().renewed(LONG);
        self.use_ca(renewed);
        if size == 1 && self.plan.setting("auth") == "bootstrap" {
            self.replace_bootstrap();
            self.end_token_of_bootstrap();
            self.later(Duration::from_secs(10), |world, _| world.restart_unit(), 0);
        }
    }

    /// Another CA takes the place of the cluster's, and nothing trusts the former one any more: only
    /// a new line of the cluster brings the board back.
    pub(crate) fn replace_ca(&mut self) {
        self.set_double();
        if self.clusters[0].next.is_some() {
            return;
        }
        self.use_ca(Authority::new("kubernetes"));
    }

    /// The last step of a new CA: the cluster trusts no certificate of a former one any more.
    pub(crate) fn drop_former_ca(&mut self) {
        self.set_double();
        if self.clusters[0].next.is_some() || self.clusters[0].former.is_empty() {
            return;
        }
        self.clusters[0].former.clear();
        let own = self.clusters[0].model.authority().renewed(LONG);
        self.use_ca(own);
    }

    /// The cluster signs with this CA from now on, and its servers have certificates of it.
    fn use_ca(&mut self, authority: Authority) {
        self.clusters[0].change(0, &self.plan, authority, None);
        self.set_signing(0);
        self.clusters[0].publish_ca();
        self.end_connections_of_cluster(0);
    }

    /// The token of the bootstrap kubeconfig expires: a board that has a certificate needs it no
    /// more.
    fn end_token_of_bootstrap(&mut self) {
        if self.has_valid_pair() {
            let token = format!("{:06x}", self.tokens);
            self.clusters[0].model.remove_bootstrap_token(&token);
            self.people.token_is_dead = true;
        }
    }

    /// The cluster gets a second CA. The owner of the board adds it, by a second line of a join, in
    /// the file of the CA, in the kubeconfig, or in the bootstrap kubeconfig, from which the agent
    /// writes its kubeconfig again (systemd/cluster/README.md). Then the servers use it.
    pub(crate) fn add_ca(&mut self) {
        self.set_double();
        if self.clusters[0].next.is_some() || self.place().0 != 0 || self.is_k3s(0) {
            return;
        }
        let cluster = &mut self.clusters[0];
        let next = Authority::new("kubernetes");
        cluster.ca_pem = format!("{}{}", cluster.model.ca_pem(), next.pem());
        cluster.pins.push(next.pin());
        cluster.model.trust(&[cluster.model.authority(), &next]);
        cluster.next = Some(next);
        cluster.publish_ca();
        match self.people.wanted.clone() {
            Some(wanted) => {
                let line = self.new_line(wanted.cluster, wanted.name, wanted.label);
                self.joins(line.clone(), 0);
                // The line is overlooked, and typed again: then all is well, it says.
                self.later(Duration::from_secs(90), |world, _| world.repeats_join(), 0);
            }
            // It needs no restart.
            None if self.has_ca_file() => self.write_ca_file(),
            None => {
                self.replace_kubeconfig(0);
                if self.plan.setting("auth") == "bootstrap" {
                    self.end_token_of_bootstrap();
                    self.board.remove_all("var/lib/nodelet/kubeconfig");
                }
                self.later(Duration::from_secs(10), |world, _| world.restart_unit(), 0);
            }
        }
        self.later(Duration::from_secs(200), |world, _| world.use_next_ca(), 0);
    }

    /// The same line again.
    pub(crate) fn repeats_join(&mut self) {
        if let Some(wanted) = self.people.wanted.clone() {
            self.types(Command::Join(wanted));
        }
    }

    /// The servers get certificates of the second CA, if the board said that it trusts it.
    fn use_next_ca(&mut self) {
        self.set_double();
        let was_added = self.people.wanted.is_none() || self.has_joined_well();
        if !was_added {
            return self.later(Duration::from_secs(120), |world, _| world.use_next_ca(), 0);
        }
        let Some(next) = self.clusters[0].next.take() else { return };
        let (ca_pem, pins) = (self.clusters[0].ca_pem.clone(), self.clusters[0].pins());
        let former = self.clusters[0].model.authority().renewed(LONG);
        self.clusters[0].change(0, &self.plan, next, Some(former));
        (self.clusters[0].ca_pem, self.clusters[0].pins) = (ca_pem, pins);
        self.clusters[0].publish_ca();
        self.set_signing(0);
        self.end_connections_of_cluster(0);
        let text = "the servers use the second CA".to_owned();
        self.tell(What::Fault { begins: true, text });
    }

    /// The last join said that nothing is left to do.
    fn has_joined_well(&self) -> bool {
        let last = self.trace.iter().rev().find_map(|entry| match &entry.what {
            What::Ran(ran) if ran.command == "join" => Some(ran),
            _ => None,
        });
        last.is_some_and(|ran| ran.says_all_is_well())
    }

    fn end_connections_of_cluster(&mut self, cluster: usize) {
        for server in 0..self.servers.len() {
            if self.servers[server].cluster == cluster {
                self.end_connections_of(server, false);
            }
        }
    }

    pub(crate) fn set_signing(&self, cluster: usize) {
        let life = self.plan.setting("life").parse().unwrap_or(86_400);
        let signing = apidouble::Signing { longest: life, backdate: 300 };
        self.clusters[cluster].model.set_signing(signing);
    }

    /// A gateway that verifies client certificates comes before the servers, for good. The board
    /// gets a certificate of a minute and a half, and then nobody signs: it expires.
    pub(crate) fn stop_signing_early(&mut self) {
        self.set_double();
        self.clusters[0].verifies = true;
        self.clusters[0].model.set_signing(apidouble::Signing { longest: 90, backdate: 300 });
        self.clusters[0].signs_until = Some(self.now + Duration::from_secs(40));
        self.end_connections_of_cluster(0);
        self.remove_identity();
        self.restart_unit();
    }

    pub(crate) fn sign_again(&mut self) {
        self.clusters[0].signs_until = None;
        self.set_signing(0);
    }

    // --- the files of the board ---

    /// A kubeconfig for a cluster.
    pub(crate) fn kubeconfig_of(&self, cluster: usize, server: &str, user: &str) -> String {
        let proxy = self.proxy_url();
        let ca = match self.has_ca_file() {
            true => "certificate-authority: ca.crt".to_owned(),
            false => {
                format!("certificate-authority-data: {}", base64(&self.clusters[cluster].ca_pem))
            }
        };
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{server}', {proxy}{ca}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    fn has_ca_file(&self) -> bool {
        self.plan.setting("ca") == "file"
    }

    /// The CA beside a kubeconfig that names files.
    pub(crate) fn write_ca_file(&mut self) {
        if self.has_ca_file() {
            let ca = self.clusters[self.people.installed].ca_pem.clone();
            self.board.replace("etc/kubernetes/ca.crt", ca.as_bytes());
        }
    }

    /// The files of another cluster, and at the end those of the first one again. `size`: 1 the
    /// file is half written for some seconds, 2 a restart follows, 4 also at the end, 8 also the
    /// agent's kubeconfig is removed.
    pub(crate) fn change_cluster(&mut self, cluster: usize, size: u64) {
        self.people.installed = cluster;
        // Only the next pair that is stored is that of this cluster for certain.
        self.card.has_identity = false;
        let path = "var/lib/nodelet/kubeconfig";
        // The bootstrap kubeconfig does not count beside a person's, which has its own certificate.
        let own =
            |text: Vec<u8>| String::from_utf8_lossy(&text).contains("client-certificate-data: ");
        let is_a_persons = || self.board.read(path).is_some_and(own);
        if size & 8 != 0 || self.plan.setting("auth") == "bootstrap" && is_a_persons() {
            self.board.remove_all(path);
        }
        self.install_files(size & 1 != 0);
        // Who puts the files back looks whether the agent ever left.
        let restarts = match cluster {
            0 => size & 4 != 0 || !self.is_agent_in(0),
            _ => size & 2 != 0,
        };
        if restarts {
            self.later(Duration::from_secs(8), |world, _| world.restart_unit(), 0);
        }
    }

    /// The files that the setting has, for the cluster that is installed. In two steps: the first
    /// half of it first.
    fn install_files(&mut self, in_two_steps: bool) {
        let path = match self.plan.setting("auth") {
            "bootstrap" => "etc/credstore/nodelet.bootstrap-kubeconfig",
            _ => self.kubeconfig_path(),
        };
        self.replace_kubeconfig(0);
        if in_two_steps && let Some(content) = self.board.read(path) {
            self.board.put(path, &content[..content.len() / 2]);
            self.later(Duration::from_secs(3), |world, _| world.replace_kubeconfig(1), 0);
        }
    }

    /// The server line is put back. systemd/join.md ("A changed kubeconfig"): an agent that has
    /// started meanwhile uses the wrong one until a restart.
    pub(crate) fn restore_server_line(&mut self, since: Duration) {
        self.write_server_line(true);
        if self.unit.started + SLOW_START >= since {
            self.restart_unit();
        }
    }

    /// The server line names an address at which nobody answers yet, or the right one.
    pub(crate) fn write_server_line(&mut self, is_right: bool) {
        let path = self.kubeconfig_path();
        let Some(content) = self.board.read(path) else { return };
        let text = String::from_utf8_lossy(&content).into_owned();
        let url = self.url_of(self.people.installed);
        let early = format!("https://{SILENT}:6443");
        let (from, to) = if is_right { (&early, &url) } else { (&url, &early) };
        self.person_writes(path, text.replace(from.as_str(), to).as_bytes());
    }

    /// A kubeconfig with a token, while the flags stay; and a restart.
    pub(crate) fn install_token(&mut self) {
        let (cluster, name) = match &self.people.wanted {
            Some(line) => (line.cluster, line.name),
            None => (self.people.installed, NODE),
        };
        let token = self.new_token(cluster);
        let user = format!("system:node:{name}");
        self.clusters[cluster].model.add_token(&token, &user, &["system:nodes"]);
        let url = self.url_of(cluster);
        let text = self.kubeconfig_of(cluster, &url, &format!("token: {token:?}"));
        self.person_writes(self.kubeconfig_path(), text.as_bytes());
        self.later(Duration::from_secs(8), |world, _| world.restart_unit(), 0);
    }

    /// The bootstrap kubeconfig names a server that nobody hears of; the board has no certificate.
    /// A while later the person installs a kubeconfig with a certificate.
    pub(crate) fn mislead_bootstrap(&mut self) {
        self.set_double();
        let cluster = self.people.installed;
        let text = self.bootstrap_kubeconfig(cluster, &format!("https://{SILENT}:6443"));
        self.person_writes("etc/credstore/nodelet.bootstrap-kubeconfig", text.as_bytes());
        self.remove_identity();
        self.restart_unit();
        let of = cluster as u64;
        self.later(Duration::from_secs(120), |world, of| world.install_good_kubeconfig(of), of);
    }

    /// Unless the files of another cluster than `of` were installed since.
    fn install_good_kubeconfig(&mut self, of: u64) {
        if self.people.installed as u64 != of {
            return;
        }
        self.set_double();
        let life = self.plan.setting("life").parse().unwrap_or(86_400);
        let cluster = self.people.installed;
        let (url, user) = (self.url_of(cluster), self.user_with_certificate(cluster, NODE, life));
        let text = self.kubeconfig_of(cluster, &url, &user);
        self.person_writes("var/lib/nodelet/kubeconfig", text.as_bytes());
        // And the bootstrap kubeconfig is right again, for the next restart.
        let text = self.bootstrap_kubeconfig(cluster, &url);
        self.person_writes("etc/credstore/nodelet.bootstrap-kubeconfig", text.as_bytes());
    }

    /// A bootstrap kubeconfig with a new token.
    pub(crate) fn bootstrap_kubeconfig(&mut self, cluster: usize, server: &str) -> String {
        self.tokens += 1;
        let secret = draw(self.plan.seed, "bootstrap", self.tokens);
        let token = format!("{:06x}.{secret:016x}", self.tokens);
        self.mark_secret(&format!("{secret:016x}"), cluster);
        let groups = [apidouble::KUBEADM_GROUP];
        let model = &self.clusters[cluster].model;
        model.add_bootstrap_token(BootstrapToken::new(&token).groups(&groups));
        self.kubeconfig_of(cluster, server, &format!("token: {token:?}"))
    }

    /// The user of a kubeconfig with a certificate inside.
    pub(crate) fn user_with_certificate(
        &mut self,
        cluster: usize,
        name: &str,
        life: i64,
    ) -> String {
        self.set_double_of_person();
        let validity = Validity { from: -300, until: life };
        let identity: Identity = self.clusters[cluster].model.node_identity(name, validity);
        let [chain, key] = [&identity.cert_pem, &identity.key_pem].map(|text| base64(text));
        self.secrets.push(key.clone());
        self.mark_key(&identity.key_pem);
        format!("client-certificate-data: {chain}, client-key-data: {key}")
    }

    /// The files with certificate and key become those of a board of this name.
    pub(crate) fn write_pair(&mut self, name: &str) {
        self.set_double_of_person();
        // Nobody renews it.
        let validity = Validity { from: -300, until: 365 * 86_400 };
        let cluster = self.people.installed;
        let identity = self.clusters[cluster].model.node_identity(name, validity);
        self.person_writes("etc/kubernetes/client.key", identity.key_pem.as_bytes());
        self.person_writes("etc/kubernetes/client.crt", identity.cert_pem.as_bytes());
    }

    pub(crate) fn write_pair_of_another_node(&mut self) {
        self.write_pair(OTHER);
        self.people.foreign_pair.get_or_insert(self.now);
    }

    /// A board that has run since the files of another node came never uses them.
    pub(crate) fn check_user(&mut self, user: &str, pid: u32) {
        let is_other = user == format!("system:node:{OTHER}");
        if is_other
            && self.unit.pid == Some(pid)
            && self.people.foreign_pair.is_some_and(|since| self.unit.started + SLOW_START < since)
        {
            let text = format!("the certificate of another node was used: {user}");
            self.tell(What::Broken { sentence: 3, text });
        }
    }

    /// The agent has shown a certificate.
    pub(crate) fn note_certificate(&mut self, connection: u64) {
        let pid = self.net.connections.get(&connection).map(|connection| connection.pid);
        let chain = self.certificates(connection).unwrap_or_default();
        let leaf = chain.first().and_then(|der| crate::kube::x509::Leaf::parse(der));
        if let Some(leaf) = leaf
            && pid == self.unit.pid
        {
            let start = self.true_wall().before(self.now);
            self.people.shown_until = Some(leaf.not_after.since(start));
            if self.people.has_token && self.names_a_token() {
                let text = "a certificate is shown beside the token of the kubeconfig".to_owned();
                self.tell(What::Broken { sentence: 8, text });
            }
        }
    }

    /// Whether the kubeconfig of the unit's process names its user by a token.
    pub(crate) fn names_a_token(&self) -> bool {
        let path = self.people.started.flag("kubeconfig").unwrap_or_default();
        let text = self.board.read(path.trim_start_matches('/')).unwrap_or_default();
        String::from_utf8_lossy(&text).contains("token: ")
    }

    /// The certificate of one cluster is shown to another one.
    pub(crate) fn check_certificate(
        &mut self,
        cluster: usize,
        user: &str,
        certificates: Option<&[rustls::pki_types::CertificateDer<'_>]>,
    ) {
        if !user.is_empty() || certificates.is_none() {
            return;
        }
        let request = apidouble::Request::parse(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n");
        let request = request.ok().flatten().expect("a request");
        for (index, other) in self.clusters.iter().enumerate() {
            let (owner, _) = other.model.answer(&request, certificates);
            if index != cluster && !owner.is_empty() {
                let text =
                    format!("a certificate of cluster {index} is shown to cluster {cluster}");
                return self.tell(What::Broken { sentence: 8, text });
            }
        }
    }

    /// The servers get other addresses for good; names lead there. A person corrects the files.
    pub(crate) fn move_for_good(&mut self) {
        if self.people.has_moved {
            return;
        }
        self.people.has_moved = true;
        for index in 0..self.servers.len() {
            if self.servers[index].cluster != 0 {
                continue;
            }
            self.end_connections_of(index, true);
            let old = self.servers[index].address;
            let number = u8::try_from(11 + index).expect("few servers");
            self.servers[index].address = SocketAddr::new([10, 0, 0, number].into(), old.port());
        }
        self.set_names();
        self.later(Duration::from_secs(30), |world, _| world.correct_server(), 0);
    }

    /// The person corrects the server line; the unit is restarted.
    fn correct_server(&mut self) {
        if self.plan.setting("address") == "name" || self.people.wanted.is_some() {
            return;
        }
        self.replace_kubeconfig(0);
        if self.plan.setting("auth") == "bootstrap" {
            self.board.remove_all("var/lib/nodelet/kubeconfig");
        }
        // An agent whose certificate has expired reads the files again by itself.
        let has_expired = self.people.shown_until.is_some_and(|until| until < self.now);
        if !(has_expired && self.plan.setting("auth") == "rotate-file") {
            self.later(Duration::from_secs(5), |world, _| world.restart_unit(), 0);
        }
    }

    /// A board that is off until its certificate has expired comes back to servers that have moved,
    /// with a bootstrap kubeconfig of the new address.
    pub(crate) fn sleep_beyond_expiry(&mut self) {
        let life: u64 = self.plan.setting("life").parse().unwrap_or(86_400);
        if !self.board.is_on || life > 14_400 {
            return;
        }
        self.lose_power(life + 60);
        self.people.has_moved = false;
        self.move_for_good();
        if self.plan.setting("auth") == "bootstrap" {
            self.replace_bootstrap();
        }
    }

    /// A backup of the ten seconds between a Node and its password would lose the password, and no
    /// agent can know: the administrator does not restore such a backup. `former` has the passwords,
    /// and the creation of the Node, just before; a Node of another time is known to the agent.
    pub(crate) fn keep_password(&self, former: (Option<Supervisor>, Value)) {
        let model = &self.clusters[0].model;
        let password = former.0.and_then(|it| it.passwords.get(NODE).cloned());
        if let Some(password) = password.filter(|_| self.node_created() == former.1) {
            model.set_supervisor(|supervisor| {
                supervisor.passwords.entry(NODE.to_owned()).or_insert(password);
            });
        }
    }

    /// The creation of the Node; null if there is none.
    pub(crate) fn node_created(&self) -> Value {
        let node = self.clusters[0].model.get(&format!("nodes/{NODE}")).unwrap_or_default();
        node["metadata"]["creationTimestamp"].clone()
    }

    /// The password of the board is with the supervisor wherever its Node is: else another holder
    /// of a join token takes the name, and each renewal of this board is refused.
    pub(crate) fn check_password(&mut self) {
        let (cluster, name) = self.place();
        let model = &self.clusters[cluster].model;
        let is_node = model.get(&format!("nodes/{name}")).is_some();
        let Some(own) = self.board.read("etc/credstore/nodelet.k3s-password") else { return };
        let Some(supervisor) = model.supervisor() else { return };
        let own = String::from_utf8_lossy(&own).trim().to_owned();
        let stored = supervisor.passwords.get(name);
        // With a token nobody asks the supervisor.
        if is_node
            && self.is_k3s(cluster)
            && !self.people.has_token
            && stored.is_none_or(|stored| *stored != own)
        {
            let text = "the node password is not at the supervisor: another board may take the \
                        name"
                .to_owned();
            self.tell(What::Broken { sentence: 2, text });
        }
    }

    /// A request of an administrator of a cluster.
    pub(crate) fn admin_of(&mut self, cluster: usize, method: &str, path: &str, body: &Value) {
        self.set_double();
        let merge = "application/merge-patch+json";
        self.clusters[cluster].model.as_admin(method, path, merge, body);
    }

    /// RBAC of kubeadm is gone, or there again.
    pub(crate) fn set_rbac(&mut self, is_there: bool) {
        self.set_double();
        match is_there {
            true => {
                self.clusters[0].model.bind_bootstrappers(true);
                self.clusters[0].publish_ca();
            }
            false => self.clusters[0].model.set_rbac(&[]),
        }
    }
}

/// What a text in base64 is.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

/// As a kubeconfig has a file.
pub(crate) fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
