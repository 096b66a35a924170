//! Processes in virtual time.
//!
//! Each simulated process is a thread, so that its thread-locals are its state, as in life. Only
//! the thread that holds the baton runs: it hands the baton on when it sleeps, to the process that
//! wakes first. So a run is deterministic. What happens in the world at a time between (the
//! agenda) is carried out by the thread that goes to sleep.
//!
//! The root folder of the thread is the tree of the board (chroot(2) of one thread, after
//! unshare(CLONE_FS)): to the program it is the real root, and each path means what it says.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::fstat;
use nix::unistd::{chroot, fchdir};

use super::trace::What;
use super::world::World;
use crate::kube::text::Fault;
use crate::os::wakeup::Woken;
use crate::os::write::Op;

/// A process; 0 is the driver, which runs no program.
pub(crate) type Pid = u32;

/// The process that waits for the end of the run.
const DRIVER: Pid = 0;

/// What a killed process unwinds with.
struct Killed;

/// The world, and who may touch it.
pub(crate) struct Shared {
    world: Mutex<World>,
    baton: Condvar,
}

/// A process of the simulation, as its own thread sees it.
#[derive(Clone)]
pub(crate) struct Me {
    shared: Arc<Shared>,
    pub(crate) pid: Pid,
}

thread_local! {
    static ME: RefCell<Option<Me>> = const { RefCell::new(None) };
}

/// Calls `act` if this thread is a process of the simulation. Each call may be the moment at which
/// an event of the plan happens, or the process is killed.
pub(crate) fn me<T>(act: impl FnOnce(&Me) -> T) -> Option<T> {
    let me = ME.with_borrow(Clone::clone)?;
    if !thread::panicking() {
        me.world().count_hook(me.pid);
        me.die_if_killed();
    }
    Some(act(&me))
}

/// Whether this thread is a process of the simulation.
pub(crate) fn is_process() -> bool {
    ME.try_with(|me| me.try_borrow().is_ok_and(|me| me.is_some())).unwrap_or(false)
}

/// What a process is, as the world sees it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) environment: BTreeMap<&'static str, String>,
    /// When it goes on.
    wake: Duration,
    /// What may end its sleep early.
    pub(crate) sleeps: Sleep,
    pub(crate) is_killed: bool,
    /// SIGTERM or SIGUSR1 that were not taken.
    pub(crate) signals: VecDeque<Signal>,
    /// What the next wait reports.
    pub(crate) woken: Woken,
    /// The last version of a file that a descriptor reported, by descriptor and inode.
    seen: BTreeMap<(i32, u64), u64>,
    /// DNS packets: when they arrive, from which server.
    pub(crate) packets: Vec<(Duration, std::net::SocketAddr, Result<Vec<u8>, String>)>,
}

/// What ends a sleep before its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sleep {
    /// Nothing.
    Sound,
    /// A signal, a change of the network (if `true`), memory pressure, a report of a driver.
    Poll(bool),
    /// Input of this connection.
    Connection(u64),
    /// A DNS packet.
    Packets,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Signal {
    Term,
    Usr1,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Exit {
    /// With this code of success or failure.
    Code(bool),
    Killed,
    Panic(String),
}

/// The processes, and who holds the baton.
#[derive(Debug)]
pub(crate) struct Processes {
    all: BTreeMap<Pid, Process>,
    holder: Pid,
    last: Pid,
}

impl Default for Processes {
    fn default() -> Self {
        let driver = Process::new(BTreeMap::new(), Duration::MAX);
        Self { all: BTreeMap::from([(DRIVER, driver)]), holder: DRIVER, last: DRIVER }
    }
}

impl Process {
    fn new(environment: BTreeMap<&'static str, String>, wake: Duration) -> Self {
        Self {
            environment,
            wake,
            sleeps: Sleep::Sound,
            is_killed: false,
            signals: VecDeque::new(),
            woken: Woken::default(),
            seen: BTreeMap::new(),
            packets: Vec::new(),
        }
    }
}

impl Processes {
    pub(crate) fn get(&self, pid: Pid) -> Option<&Process> {
        self.all.get(&pid)
    }

    pub(crate) fn get_mut(&mut self, pid: Pid) -> Option<&mut Process> {
        self.all.get_mut(&pid)
    }

    /// The processes of the board.
    pub(crate) fn of_board(&mut self) -> impl Iterator<Item = (Pid, &mut Process)> {
        self.all.iter_mut().filter(|(pid, _)| **pid != DRIVER).map(|(pid, process)| (*pid, process))
    }

    /// Ends the sleep of a process, if `cause` may.
    pub(crate) fn rouse(&mut self, pid: Pid, now: Duration, cause: impl FnOnce(Sleep) -> bool) {
        if let Some(process) = self.all.get_mut(&pid)
            && cause(process.sleeps)
        {
            process.wake = process.wake.min(now);
        }
    }

    /// Whoever wakes first, not before `frozen` unless it is the driver.
    fn first(&self, frozen: Duration) -> (Duration, Pid) {
        let wake = |(pid, process): (&Pid, &Process)| match *pid {
            DRIVER => (process.wake, DRIVER),
            pid => (process.wake.max(frozen), pid),
        };
        self.all.iter().map(wake).min().unwrap_or((Duration::MAX, DRIVER))
    }
}

impl Shared {
    /// Starts a process at the present time: a thread that waits for the baton.
    pub(crate) fn start(
        self: &Arc<Self>,
        world: &mut World,
        name: &'static str,
        environment: BTreeMap<&'static str, String>,
        program: impl FnOnce() -> bool + Send + 'static,
    ) -> Pid {
        let processes = &mut world.processes;
        processes.last += 1;
        let pid = processes.last;
        processes.all.insert(pid, Process::new(environment, world.now));
        let me = Me { shared: Arc::clone(self), pid };
        let root = world.board.root();
        let run = move || me.run(root, program);
        thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread");
        pid
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The milliseconds of virtual time that all worlds of this program have gone through, also those
/// that a sentence or a look at the simulator's own strength compares a run with.
pub(crate) static SIMULATED: AtomicU64 = AtomicU64::new(0);

/// Runs a world until `end`, on this thread and on those of its processes. Returns it.
pub(crate) fn run(mut world: World, end: Duration) -> World {
    world.processes.all.get_mut(&DRIVER).expect("the driver").wake = end;
    let shared = Arc::new(Shared { world: Mutex::new(world), baton: Condvar::new() });
    let driver = Me { shared, pid: DRIVER };
    driver.world().begin();
    driver.sleep(end, Sleep::Sound);
    // Each process unwinds when it gets the baton.
    loop {
        let mut world = driver.world();
        world.is_over = true;
        let now = world.now;
        let mut others = world.processes.of_board();
        let Some((pid, process)) = others.next() else { break };
        process.is_killed = true;
        drop(others);
        world.processes.get_mut(pid).expect("it was found").wake = now;
        drop(driver.hand_on(world, pid));
    }
    let shared = driver.shared;
    // The last thread drops its share after it has given the baton away.
    let mut shared = shared;
    loop {
        match Arc::try_unwrap(shared) {
            Ok(shared) => {
                let world = shared.world.into_inner().unwrap_or_else(PoisonError::into_inner);
                let time = u64::try_from(world.now.as_millis()).unwrap_or(u64::MAX);
                SIMULATED.fetch_add(time, Ordering::Relaxed);
                return world;
            }
            Err(again) => shared = again,
        }
        thread::yield_now();
    }
}

impl Me {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.shared.lock()
    }

    /// The life of a process.
    fn run(self, root: File, program: impl FnOnce() -> bool) {
        unshare(CloneFlags::CLONE_FS).expect("a root of its own");
        fchdir(&root).expect("the folder of the board");
        chroot(".").expect("chroot needs CAP_SYS_CHROOT");
        drop(self.wait_for_baton(self.world()));
        ME.set(Some(self.clone()));
        let end = catch_unwind(AssertUnwindSafe(|| {
            self.die_if_killed();
            program()
        }));
        ME.set(None);
        let exit = match end {
            Ok(code) => Exit::Code(code),
            Err(payload) if payload.is::<Killed>() => Exit::Killed,
            Err(payload) => Exit::Panic(super::panics::taken(&message(&*payload))),
        };
        let mut world = self.world();
        world.processes.all.remove(&self.pid);
        world.ended(self.pid, exit);
        let (_, next) = self.advance(&mut world);
        world.processes.holder = next;
        drop(world);
        self.shared.baton.notify_all();
    }

    fn wait_for_baton<'a>(&self, world: MutexGuard<'a, World>) -> MutexGuard<'a, World> {
        let others = |world: &mut World| world.processes.holder != self.pid;
        self.shared.baton.wait_while(world, others).unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_on<'a>(&self, mut world: MutexGuard<'a, World>, to: Pid) -> MutexGuard<'a, World> {
        world.processes.holder = to;
        self.shared.baton.notify_all();
        self.wait_for_baton(world)
    }

    /// Lets the world go on until a process wakes; returns when, and which.
    fn advance(&self, world: &mut World) -> (Duration, Pid) {
        loop {
            if world.is_over {
                return (world.now, DRIVER);
            }
            let (wake, pid) = world.processes.first(world.frozen_until);
            match world.agenda.first_key_value() {
                Some((&(at, _), _)) if at <= wake => {
                    world.now = world.now.max(at);
                    let (_, event) = world.agenda.pop_first().expect("it is the first");
                    world.happen(&self.shared, event);
                }
                _ => {
                    world.now = world.now.max(wake);
                    return (wake, pid);
                }
            }
        }
    }

    /// Sleeps until a time, or until a cause that ends such a sleep.
    fn sleep(&self, until: Duration, sleeps: Sleep) {
        let mut world = self.world();
        let process = world.processes.get_mut(self.pid).expect("it lives");
        (process.wake, process.sleeps) = (until, sleeps);
        let (_, next) = self.advance(&mut world);
        if next != self.pid {
            world = self.hand_on(world, next);
        }
        world.processes.get_mut(self.pid).expect("it lives").sleeps = Sleep::Sound;
        drop(world);
        self.die_if_killed();
    }

    fn die_if_killed(&self) {
        let is_killed =
            self.world().processes.get(self.pid).is_some_and(|process| process.is_killed);
        if is_killed && !thread::panicking() {
            resume_unwind(Box::new(Killed));
        }
    }

    /// Passes time that nothing ends.
    pub(crate) fn pass(&self, time: Duration) {
        if !time.is_zero() && !thread::panicking() {
            let until = self.world().now.saturating_add(time);
            self.sleep(until, Sleep::Sound);
        }
    }

    /// One call that the kernel does not divide.
    fn blocks(&self, with: &'static str, lasts: Duration) {
        if !lasts.is_zero() && !thread::panicking() {
            self.world().tell(What::Blocks { pid: self.pid, with, lasts });
            self.pass(lasts);
        }
    }

    /// Sleeps until a time, or until the connection has input.
    pub(crate) fn sleep_for_input(&self, connection: u64, until: Duration) {
        self.sleep(until, Sleep::Connection(connection));
    }

    /// `Wakeup::wait`.
    pub(crate) fn wait(
        &self,
        timeout: Duration,
        for_network: bool,
        voltage: &mut Option<OwnedFd>,
    ) -> Woken {
        let mut world = self.world();
        world.waits(self.pid, timeout);
        let file = voltage.as_ref().map(key);
        let until = world.now.saturating_add(timeout);
        loop {
            let is_over = world.now >= until;
            let is_new = file.is_some_and(|key| world.is_new(self.pid, key));
            let process = world.processes.get_mut(self.pid).expect("it lives");
            process.woken.voltage |= is_new;
            let has_cause = process.woken.memory_pressure
                || process.woken.voltage
                || process.woken.network && for_network
                || !process.signals.is_empty();
            if has_cause || is_over {
                break;
            }
            drop(world);
            // A change of the hardware that no descriptor reports ends the sleep, too.
            self.sleep(until, Sleep::Poll(for_network));
            world = self.world();
        }
        let is_new = file.is_some_and(|key| world.is_new(self.pid, key));
        let process = world.processes.get_mut(self.pid).expect("it lives");
        let signals = std::mem::take(&mut process.signals);
        let mut woken = Woken {
            stop: signals.contains(&Signal::Term),
            shutdown: signals.contains(&Signal::Usr1),
            voltage: is_new,
            ..process.woken
        };
        woken.network &= for_network;
        process.woken =
            Woken { network: process.woken.network && !for_network, ..Woken::default() };
        world.woke(self.pid, woken);
        if woken.voltage {
            *voltage = None;
        }
        woken
    }

    /// Before a read: it may be slow, or fail.
    pub(crate) fn read(&self, file: &File) -> io::Result<()> {
        let key = key(file);
        let (slow, end) = self.world().reads(self.pid, key.1);
        self.blocks("a read", slow);
        let mut world = self.world();
        world.computes(key.1);
        let version = world.board.version(key.1);
        let (key, is_sysfs) = world.noticed(key);
        let process = world.processes.get_mut(self.pid).expect("it lives");
        let seen = process.seen.entry(key).or_insert(version);
        if is_sysfs {
            *seen = version;
        }
        end
    }

    /// Before a folder is listed: it may be slow, or fail.
    pub(crate) fn list(&self, folder: &Path) -> io::Result<()> {
        let (slow, end) = self.world().lists(folder);
        self.blocks("a read", slow);
        end
    }

    /// Whether the kernel reports a change: of an attribute of sysfs since its last read, of the
    /// mount table since the last call.
    pub(crate) fn has_changed(&self, file: &File) -> bool {
        let key = key(file);
        let mut world = self.world();
        let is_new = world.is_new(self.pid, key);
        let (key, is_sysfs) = world.noticed(key);
        if is_new && !is_sysfs {
            let version = world.board.version(key.1);
            let process = world.processes.get_mut(self.pid).expect("it lives");
            process.seen.insert(key, version);
        }
        is_new
    }

    /// Before an operation of a file change.
    pub(crate) fn file_change(&self, op: &Op) -> Result<(), Fault> {
        let (slow, end) = self.world().changes(self.pid, op);
        self.die_if_killed();
        self.blocks("a file change", slow);
        end
    }

    /// `Exchange::wait`.
    pub(crate) fn dns_wait(&self, at_most: Duration) {
        let world = self.world();
        let (now, process) = (world.now, world.processes.get(self.pid).expect("it lives"));
        let first = process.packets.iter().map(|(at, ..)| *at).min().unwrap_or(Duration::MAX);
        drop(world);
        // Never for no time: production rounds its poll up to a millisecond.
        let until = (now + at_most).min(first).max(now + Duration::from_millis(1));
        self.sleep(until, Sleep::Packets);
    }
}

impl World {
    pub(crate) fn process(&self, pid: Pid) -> &Process {
        self.processes.get(pid).expect("it lives")
    }

    /// By what a report is remembered, and whether a read alone ends it. A copy of a descriptor
    /// shares the reports of an attribute of sysfs.
    fn noticed(&self, (descriptor, inode): (i32, u64)) -> ((i32, u64), bool) {
        let is_sysfs = self.board.path_of(inode).is_some_and(|path| path.starts_with("sys/"));
        ((if is_sysfs { 0 } else { descriptor }, inode), is_sysfs)
    }

    /// Whether a file has changed since a descriptor of it reported that.
    fn is_new(&self, pid: Pid, key: (i32, u64)) -> bool {
        let version = self.board.version(key.1);
        if version == u64::MAX {
            return true;
        }
        let (key, _) = self.noticed(key);
        self.process(pid).seen.get(&key).is_some_and(|seen| *seen < version)
    }
}

/// Descriptor and inode of an open file.
fn key(file: &(impl AsFd + AsRawFd)) -> (i32, u64) {
    (file.as_raw_fd(), fstat(file).map_or(0, |stat| stat.st_ino))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
