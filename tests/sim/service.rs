//! What systemd sees of nodelet.service: the datagrams of sd_notify, and the watchdog. And twins: a
//! restart of the agent in a world that does not change meanwhile.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::process::Signal;
use super::trace::{Objects, What};
use super::world::World;

/// `WatchdogSec=` of the unit.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(90);

/// What another process sends to fill the queue of the socket.
const FILLER: &str = "X_FILLER=1";

/// An upgrade keeps the unit stopped for so long.
const UPGRADE: Duration = Duration::from_secs(20);

/// A restart of the agent in quiet time, by the size of the step.
const BY_SIGKILL: u64 = 2;
const BY_UPGRADE: u64 = 3;
/// No restart: the other twin.
pub(crate) const NO_RESTART: u64 = 9;

/// Files of which one cannot be read while two twins are compared: what is not read changes
/// nothing, with a restart and without one.
pub(crate) const UNREAD: &[&str] = &[
    "proc/meminfo",
    "proc/loadavg",
    "proc/uptime",
    "proc/sys/kernel/random/boot_id",
    "proc/sys/kernel/osrelease",
    "proc/net/route",
    "sys/class/hwmon/hwmon1/in0_lcrit_alarm",
    "sys/class/thermal/thermal_zone0/temp",
    "sys/fs/ext4/mmcblk0p2/errors_count",
    "sys/kernel/oops_count",
    "sys/fs/cgroup/memory.current",
    "etc/os-release",
    "etc/machine-id",
    "var/lib/nodelet/boots",
];

impl World {
    /// What is wrong with the board from its first day on.
    pub(crate) fn set_hardware(&mut self) {
        let hardware = &mut self.board.hardware;
        match self.plan.setting("hardware") {
            "disk-low" => hardware.disk_free_bytes = 1 << 30,
            "memory-low" => hardware.memory_is_low = true,
            "undervolted" => hardware.is_undervolted = true,
            "hot" => hardware.heat = 109_000,
            _ => {}
        }
    }

    /// Whether a file cannot be read while two twins are compared.
    pub(crate) fn is_unread(&self, path: &str) -> bool {
        self.faults
            .target("twin")
            .and_then(|target| UNREAD.get(usize::try_from(target).ok()?.checked_sub(1)?))
            .is_some_and(|unread| *unread == path)
    }

    /// systemd does not read its socket any more, whose queue is full: each send fails. It has read
    /// what came before.
    pub(crate) fn fill_notify(&mut self) {
        self.read_notifications();
        let address = SocketAddr::from_abstract_name(&self.notify_name).expect("a name");
        let other = UnixDatagram::unbound().expect("a socket");
        other.connect_addr(&address).expect("the socket of systemd");
        other.set_nonblocking(true).expect("a socket");
        while other.send(FILLER.as_bytes()).is_ok() {}
    }

    /// systemd reads its socket again.
    pub(crate) fn drain_notify(&mut self) {
        self.unit.pinged = self.now.max(self.frozen_until);
        self.take_notifications();
    }

    /// systemd reads its socket.
    pub(crate) fn take_notifications(&mut self) {
        if !self.faults.has("notify-full") {
            self.read_notifications();
        }
    }

    fn read_notifications(&mut self) {
        // systemd ignores a longer datagram.
        const LONGEST: usize = 4096;
        let mut buffer = [0; LONGEST + 1];
        while let Ok(length) = self.notify.recv(&mut buffer) {
            if length > LONGEST {
                continue;
            }
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text == FILLER {
                continue;
            }
            let is_ready = text.contains("READY=1");
            if is_ready || text.contains("WATCHDOG=1") {
                self.unit.pinged = self.now.max(self.frozen_until);
            }
            self.unit.is_ready |= is_ready;
            if let Some((_, status)) = text.split_once("STATUS=") {
                self.unit.status = status.to_owned();
            }
            self.check_secrets("the status line", &text);
            self.tell(What::Notify { text });
        }
    }

    /// The watchdog of systemd, which is armed by READY=1. A name lookup and the storing of a
    /// certificate wait for the dead server of a root (systemd/differences.md).
    pub(crate) fn ping_is_due(&mut self) {
        if self.unit.pid.is_some()
            && self.unit.is_ready
            && self.now > self.unit.pinged + WATCHDOG
            && !self.faults.has("notify-full")
            && self.now >= self.frozen_until.max(self.waits_until)
        {
            let text = format!("no ping of the watchdog since {:?}", self.unit.pinged);
            self.tell(What::Broken { sentence: 9, text });
            self.kill_agent();
        }
    }

    /// The agent is restarted while nothing else happens, if it runs, with the files that it runs
    /// with.
    pub(crate) fn begin_twin(&mut self, how: u64) {
        if self.unit.pid.is_none() || !self.board.is_on || !self.faults.is_only("twin") {
            return;
        }
        // A kubeconfig that names another cluster counts with the next start.
        let moves = self.people.home != self.people.installed;
        if moves || self.running_start().differs(&self.next_start()).is_some() {
            return;
        }
        let objects = Box::new(self.objects());
        self.tell(What::Twin { begins: true, objects });
        match how {
            NO_RESTART => {}
            BY_SIGKILL => self.kill_agent(),
            BY_UPGRADE => {
                self.signal(Signal::Term);
                self.unit.starts_after = Some(UPGRADE);
            }
            _ => self.restart_unit(),
        }
    }

    pub(crate) fn end_twin(&mut self) {
        let objects = Box::new(self.objects());
        self.tell(What::Twin { begins: false, objects });
    }

    /// What the cluster has of this board.
    fn objects(&mut self) -> Objects {
        self.set_double();
        let (cluster, name) = self.place();
        let model = &self.clusters[cluster].model;
        let event = |event: &serde_json::Value| {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let line = format!("{} {}: {}", text("type"), text("reason"), text("message"));
            // A process counts its own event up, and makes another one for that of a former one.
            let count = event["count"].as_u64().and_then(|count| usize::try_from(count).ok());
            vec![line; count.unwrap_or(1)]
        };
        let mut events: Vec<String> = model.list("events").iter().flat_map(event).collect();
        events.sort_unstable();
        Objects {
            node: model.get(&format!("nodes/{name}")).unwrap_or_default(),
            lease: model.get(&format!("leases/{name}")).unwrap_or_default(),
            events,
        }
    }
}
