//! The look at the board's health, and its conditions and events.
//!
//! Files that are looked at every minute stay open, so each costs one system call.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::condition_file;
use super::condition_state::{ConditionState, Known, Problem, RuleResult};
use super::config::HealthConfig;
use super::events::EventSources;
use super::reader::{HealthReader, SLOW};
use super::time::{REBOOTS, TimeSources};
use super::{ConditionKind, KINDS, RuleInput, Source, corruption, filesystems, voltage, wear};
use crate::kube::facts::{HealthCondition, HealthConditions, Presence, Sign, Unread};
use crate::kube::instant::{Mono, Now};
use crate::kube::object;
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::os::guard;
use crate::os::mounts::is_in_initramfs;
use crate::os::read::{SMALL, is_end, read_found};
use crate::os::reread_file::RereadFile;
use crate::os::root::{HostRoot, unread};
use crate::os::write::Op;

/// Least time between two looks while a source is suspect: every 10 s.
const FAST: Duration = Duration::from_secs(9);
/// Least time between two discoveries; after a uevent it is [`SLOW`].
const DISCOVERY: Duration = Duration::from_secs(3600);
/// The number of the last uevent: the kernel sends one for each device that comes or goes, and for
/// each driver that is bound to one.
const UEVENTS: &str = "sys/kernel/uevent_seqnum";
/// After the agent was started, udev loads drivers, and disks are checked and mounted. Before this
/// time a device that is missing may come.
const DEVICES_COME: Duration = Duration::from_secs(120);

/// The conditions whose problem is on a disk, and lasts until a repair.
const ON_A_DISK: [&str; 3] = [corruption::KIND.name, wear::KIND.name, REBOOTS.name];

/// All conditions about the board's health.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    reader: HealthReader,
    looked: Option<Mono>,
    /// When the last discovery was; `None` if it could not read all files that exist.
    discovered: Option<Mono>,
    uevents: RereadFile,
    /// The last uevent before that discovery.
    last_uevent: Option<i64>,
    /// The boot id of the Node before this process wrote it.
    node_boot_id: Option<String>,
    /// One for each of [`KINDS`].
    conditions: Vec<BoardCondition>,
    time: TimeSources,
    event_sources: EventSources,
    /// The first line of each `--node-condition` file.
    files: Vec<Presence<String>>,
    /// Their reads.
    files_log: OutageLog,
    signs: Vec<Sign>,
    /// Types that are not detected and that an earlier process left on the Node. Deleted once:
    /// afterwards they may be another program's, which may use the same reasons.
    leftovers: Vec<&'static str>,
    /// Types whose condition on the Node has a reason of another program.
    foreign: Vec<&'static str>,
}

#[derive(Debug)]
struct BoardCondition {
    kind: &'static ConditionKind,
    source: Option<Box<dyn Source>>,
    state: ConditionState,
}

impl Health {
    /// The health of the machine below `root`; reads nothing yet. `built` is the time of this
    /// program's build: no right clock shows an earlier one.
    pub fn new(
        root: &HostRoot,
        root_dir: &Path,
        config: &HealthConfig,
        built: Wall,
        clock: impl Fn() -> Now + 'static,
    ) -> Self {
        let condition = |kind: &'static ConditionKind| {
            let source = kind.source.filter(|_| is_read(config, kind)).map(|new| new());
            BoardCondition { kind, source, state: ConditionState::default() }
        };
        Self {
            config: config.clone(),
            reader: HealthReader::new(root.clone(), clock),
            looked: None,
            discovered: None,
            uevents: RereadFile::new(UEVENTS),
            last_uevent: None,
            node_boot_id: None,
            conditions: KINDS.iter().map(condition).collect(),
            time: TimeSources::new(root, root_dir, built),
            event_sources: EventSources::default(),
            files: Vec::new(),
            files_log: OutageLog::new("--node-condition"),
            signs: Vec::new(),
            leftovers: Vec::new(),
            foreign: Vec::new(),
        }
    }

    /// Whether [`Self::look`] would look at `now`.
    pub fn is_look_due(&self, now: Mono) -> bool {
        let distance = if self.is_suspect() { FAST } else { SLOW };
        let is_due = self.looked.is_none_or(|at| now.since(at) >= distance);
        self.config.detects_any() && is_due
    }

    /// Looks at the sources and judges them, if that is due; returns whether it was.
    pub fn look(&mut self) -> bool {
        let now = self.reader.now().mono;
        if !self.is_look_due(now) {
            return false;
        }
        let look = self.reader.begin();
        self.looked = Some(now);
        let uevent = self.reader.reread_number(&mut self.uevents).ok();
        let distance = if uevent == self.last_uevent { DISCOVERY } else { SLOW };
        let is_due = |at| now.since(at) >= distance && !self.reader.root_can_block;
        let mut is_cut_off = false;
        if self.discovered.is_none_or(is_due) {
            self.discover();
            is_cut_off = self.reader.root.may_read().is_err();
            self.last_uevent = uevent;
            // A discovery that could not read all files is repeated at the next look.
            self.discovered = (!is_cut_off && self.reader.unread.is_none()).then_some(now);
        }
        self.look_at(false);
        self.time.look(&mut self.reader, &self.config);
        self.event_sources.look(&mut self.reader);
        self.look_at(true);
        self.reader.end(look, true);
        let now = self.reader.now();
        // A discovery that was cut off did not find all sources: the rules would delete conditions
        // and forget changes of links.
        if !is_cut_off {
            let is_of_this_boot = self.is_of_this_boot();
            let is_new_boot =
                (!is_of_this_boot.is_unread()).then(|| is_of_this_boot != Presence::Found(true));
            let signs = self.event_sources.judge(is_new_boot, now.mono);
            self.signs.extend(signs);
        }
        self.judge(!is_cut_off, now);
        true
    }

    /// Whether an earlier process wrote the Node in this boot; absent if the kernel tells no id of
    /// the boot, unread while the id or the Node is not known.
    fn is_of_this_boot(&self) -> Presence<bool> {
        match (&self.time.history.id, &self.node_boot_id) {
            (Some(own), Some(node)) if own.is_empty() || node.is_empty() => Presence::Absent,
            (Some(own), Some(node)) => Presence::Found(own == node),
            _ => Presence::Unread(Unread::new("boot id", "not read yet")),
        }
    }

    fn look_at(&mut self, slow: bool) {
        for source in self.conditions.iter_mut().filter_map(|one| one.source.as_mut()) {
            if source.is_slow() == slow {
                source.look(&mut self.reader);
            }
        }
    }

    fn discover(&mut self) {
        let reader = &mut self.reader;
        // Without the file, the initramfs is the whole system (in_initrd of systemd's
        // src/basic/initrd-util.c): no other root follows.
        let release = reader.root.open("etc/initrd-release");
        let is_whole = release.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let is_on_ram = reader.root.is_real() && is_in_initramfs(Path::new("/"));
        reader.is_initramfs = is_on_ram && !is_whole;
        let mut compatible = RereadFile::new("proc/device-tree/compatible");
        let compatible = reader.reread_bytes(&mut compatible, SMALL, &mut is_end(SMALL));
        if let Ok(names) = Presence::from(compatible).present() {
            let vendor = b"raspberrypi,";
            let is_pi = |names: Vec<u8>| names.windows(vendor.len()).any(|part| part == vendor);
            reader.is_pi = Some(names.is_some_and(is_pi));
        }
        for source in self.conditions.iter_mut().filter_map(|one| one.source.as_mut()) {
            source.discover(reader);
        }
        self.event_sources.discover(reader);
        self.time.discover(reader, &self.config);
    }

    /// Takes the `Date` of a response to a request that was sent at `start`. `now.wall` is the
    /// board's clock.
    pub fn on_date(&mut self, date: Wall, start: Mono, now: Now) {
        self.time.ntp.on_date(date, start, now);
        self.judge(false, now);
    }

    /// Whether a driver may still be bound, or a disk be mounted.
    fn devices_may_come(&self, now: Mono) -> bool {
        now.since(Mono::START) < DEVICES_COME || self.reader.is_initramfs
    }

    /// The result of a rule whose look found no source. Only a complete discovery shows that the
    /// board has none.
    fn without_source(&self, now: Mono) -> RuleResult {
        if self.devices_may_come(now) {
            RuleResult::Waiting
        } else if self.discovered.is_none() {
            RuleResult::Unread
        } else {
            RuleResult::NoSource
        }
    }

    /// Asks the rules. Between two looks (not `is_look`), only the rules of `time.rs` are asked.
    fn judge(&mut self, is_look: bool, now: Now) {
        let without_source = self.without_source(now.mono);
        let devices_may_come = self.devices_may_come(now.mono);
        let (node, began) = (self.is_of_this_boot(), self.time.began(now));
        // An agent of this boot may only have kept an older condition, as the agent of an initramfs
        // does. A transition before the boot does not show that: the clock may have been set since.
        let is_of_this_boot = |problem: &Problem| match &node {
            _ if !problem.is_adopted() => Presence::Found(true),
            Presence::Found(true) => {
                let is_new = problem.since.zip(began).is_some_and(|(since, began)| since >= began);
                if is_new { Presence::Found(true) } else { Presence::Absent }
            }
            node => node.clone(),
        };
        for BoardCondition { kind, source, state } in &mut self.conditions {
            let mut signs = Vec::new();
            let result = match source {
                None if kind.source.is_none() => self.time.judge(kind.name, now),
                Some(source) if is_look => source.judge(&mut RuleInput {
                    now,
                    clock_is_wrong: self.time.ntp.is_refuted(now.wall),
                    problem: state.known.problem(),
                    is_of_this_boot: state.known.problem().map(is_of_this_boot).unwrap_or_default(),
                    signs: &mut signs,
                }),
                _ => continue,
            };
            let result = match result {
                RuleResult::NoSource => without_source.clone(),
                // A disk with a problem may be mounted later than the healthy disks. The disk with
                // `boots` may be mounted later over a folder without that file.
                RuleResult::NoProblem
                    if devices_may_come
                        && ON_A_DISK.contains(&kind.name)
                        && state.known.problem().is_some_and(Problem::is_adopted) =>
                {
                    RuleResult::Waiting
                }
                result => result,
            };
            state.step(result, |reason| kind.clear(reason), now.mono);
            if self.config.detects(kind.name) {
                self.signs.extend(signs);
            }
        }
    }

    /// The conditions of the Node if what one look finds lasted.
    pub fn if_it_lasted(&mut self) -> HealthConditions {
        self.look();
        self.read_files();
        self.let_it_last(None);
        self.conditions()
    }

    /// Judges as if what the last look found lasted: every waiting time is taken as over. `date` is
    /// the server's time, if known.
    pub fn let_it_last(&mut self, date: Option<Wall>) {
        const TICK: Duration = Duration::from_secs(10);
        /// 2 minutes: longer than each time to True, as [`Source::judge`] demands, and shorter than
        /// the 10 minutes after which a counter's growth is over.
        const TICKS: u32 = 12;
        let mut at = self.reader.now();
        for _ in 0..TICKS {
            at.mono = at.mono.after(TICK);
            if let Some(date) = date {
                self.on_date(date, at.mono, at);
            }
            self.judge(true, at);
        }
    }

    /// Reads the first line of each `--node-condition` file. If the time of the look is over, the
    /// remaining files keep what was read before, as does a file that cannot be read. A file that
    /// may not be read exists: if nothing was read before, its line counts as empty.
    pub fn read_files(&mut self) {
        let files = self.config.files.iter().enumerate();
        let lines = files.map_while(|(index, file)| {
            self.reader.root.may_read().ok()?;
            let before = self.files.get(index).and_then(Presence::found);
            let found = guard::found(&file.path);
            let line = found.and_then(|path| condition_file::line(read_found(&path), before));
            let source = || format!("{}={}", file.name, file.path.display());
            Some(line.map_err(|error| unread(&source(), &error)).into())
        });
        let lines: Vec<Presence<String>> = lines.collect();
        let unread = lines.iter().filter_map(|line| match line {
            Presence::Unread(unread) => Some(unread.to_string()),
            Presence::Absent | Presence::Found(_) => None,
        });
        let unread: Vec<String> = unread.collect();
        if !unread.is_empty() {
            self.files_log.failed(&unread.join(" | "), self.reader.now().mono);
        } else if self.files_log.last_error().is_some() && lines.len() == self.config.files.len() {
            self.files_log.succeeded(self.reader.now().mono);
        }
        self.on_files(lines);
    }

    pub(super) fn on_files(&mut self, lines: Vec<Presence<String>>) {
        for (index, line) in lines.into_iter().enumerate() {
            match self.files.get_mut(index) {
                None => self.files.push(line),
                Some(_) if line.is_unread() => {}
                Some(old) => *old = line,
            }
        }
    }

    /// Takes the conditions of the Node as the server has them, and the id of the boot in which the
    /// Node was written, if it is known. Until a write of this process has succeeded (`is_ours`),
    /// each call takes over the conditions as those of an earlier process: a server may answer with
    /// an old Node first.
    pub fn on_node(&mut self, conditions: &[Value], boot_id: Option<&str>, is_ours: bool) {
        if !is_ours || self.node_boot_id.is_none() {
            self.node_boot_id = boot_id.map(str::to_owned);
        }
        let find = |name| object::of_type(conditions, name);
        self.leftovers.retain(|name| find(name).is_some());
        self.foreign.clear();
        for kind in KINDS {
            if find(kind.name).is_some_and(|condition| kind.recognize(condition).is_none()) {
                self.foreign.push(kind.name);
            }
        }
        if is_ours || conditions.is_empty() {
            return;
        }
        self.leftovers.clear();
        // Each patch of this program sets the heartbeat of Ready and of all its conditions.
        let heartbeat = |condition| object::text(condition, &["lastHeartbeatTime"]);
        let last_patch = find("Ready").map(heartbeat);
        for BoardCondition { kind, state, .. } in &mut self.conditions {
            let Some(condition) = find(kind.name) else { continue };
            let Some(known) = kind.recognize(condition) else { continue };
            if self.config.detects(kind.name) {
                state.adopt(known);
            } else if last_patch == Some(heartbeat(condition)) {
                self.leftovers.push(kind.name);
            }
        }
    }

    /// The conditions for the next write of the Node.
    pub fn conditions(&self) -> HealthConditions {
        let mut found = HealthConditions { known: Vec::new(), absent: self.leftovers.clone() };
        for BoardCondition { kind, state, .. } in &self.conditions {
            if !self.config.detects(kind.name) {
                continue;
            }
            let (reason, message) = match &state.known {
                Known::Nothing => continue,
                Known::Absent => {
                    // A condition of another program stays.
                    if !self.foreign.contains(&kind.name) {
                        found.absent.push(kind.name);
                    }
                    continue;
                }
                Known::Fine => (kind.fine.0, kind.fine.1.into()),
                Known::Problem(problem) => (problem.reason, problem.message.clone().into()),
            };
            found.known.push(HealthCondition {
                name: kind.name.into(),
                is_true: state.known.problem().is_some(),
                reason: reason.into(),
                message,
                event_reason: reason,
                is_always_listed: self.config.lists_all,
            });
        }
        let files = self.config.files.iter().zip(&self.files);
        found.known.extend(files.filter_map(|(file, line)| match line {
            Presence::Unread(_) => None,
            Presence::Found(line) => Some(condition_file::condition(file, Some(line))),
            Presence::Absent => Some(condition_file::condition(file, None)),
        }));
        found
    }

    /// What is worth an event, since the last call.
    pub fn take_signs(&mut self) -> Vec<Sign> {
        std::mem::take(&mut self.signs)
    }

    fn is_suspect(&self) -> bool {
        let is_suspect = |one: &BoardCondition| {
            one.state.known.problem().is_none()
                && one.source.as_ref().is_some_and(|source| source.is_suspect())
        };
        self.conditions.iter().any(is_suspect)
    }

    /// Whether to wait for reports of the voltage driver. Not while the condition is True, because
    /// a weak supply reports every few seconds.
    pub fn waits_for_voltage(&self) -> bool {
        let is_low = |one: &BoardCondition| {
            one.kind.name == voltage::KIND.name && one.state.known.problem().is_some()
        };
        !self.conditions.iter().any(is_low)
    }

    /// The descriptor of the voltage driver's reports.
    pub fn voltage_descriptor(&self) -> Option<OwnedFd> {
        self.conditions.iter().find_map(|one| one.source.as_ref()?.report())
    }

    /// The voltage driver reported a change.
    pub fn on_voltage(&mut self) {
        let look = self.reader.begin();
        for source in self.conditions.iter_mut().filter_map(|one| one.source.as_mut()) {
            source.on_report(&mut self.reader);
        }
        self.reader.end(look, false);
    }

    /// Whether [`Self::record_boot`] is due, see [`TimeSources::is_record_due`].
    pub(crate) fn is_record_due(&self, now: Now) -> bool {
        self.config.detects(REBOOTS.name) && self.time.is_record_due(now)
    }

    /// The operations that record this boot, see [`TimeSources::record`]; `None` if FrequentReboot
    /// is not detected.
    pub(crate) fn record_boot(&mut self, now: Now) -> Option<Vec<Op>> {
        if self.config.detects(REBOOTS.name) { self.time.record(now) } else { None }
    }

    /// Takes the result of the write that records this boot or an orderly stop.
    pub(crate) fn on_boot_recorded(&mut self, result: Result<(), Fault>) {
        self.time.on_written(result, self.reader.now().mono);
    }

    /// The operations that record an orderly stop of this process.
    pub(crate) fn record_stop(&mut self) -> Option<Vec<Op>> {
        self.time.stop(self.reader.now().mono)
    }

    /// Up to three files that the last look used for `kind`, with their values.
    pub fn sources(&self, kind: &ConditionKind) -> Vec<String> {
        let value = |path: String| {
            let text = self.reader.root.text(&path, SMALL).unwrap_or_default();
            match text.trim() {
                "" => path,
                text if text.len() > 40 => path,
                text => format!("{path} is {text}"),
            }
        };
        let is_kind = |one: &&BoardCondition| one.kind.name == kind.name;
        let paths = match self.conditions.iter().find(is_kind).and_then(|one| one.source.as_ref()) {
            Some(source) => source.paths(),
            None => self.time.path(kind.name).into_iter().collect(),
        };
        paths.into_iter().take(3).map(value).collect()
    }
}

/// Whether the files of a condition type are read. ReadonlyFilesystem's files are also read for the
/// errors on record of FilesystemCorruptionProblem.
fn is_read(config: &HealthConfig, kind: &ConditionKind) -> bool {
    let is_for_errors = kind.name == filesystems::KIND.name;
    config.detects(kind.name) || (is_for_errors && config.detects(corruption::KIND.name))
}

#[cfg(test)]
mod tests;
