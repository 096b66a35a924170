//! Ten years of one board: outages, reboots, rotations, new CAs, upgrades of the control plane, and
//! a clock that leaps over 2038. Between two events the board is suspended, so that ten years take
//! seconds; around each event the whole loop runs.

use super::*;

const DAY: u64 = 86_400;
const YEAR: u64 = 365 * DAY;

/// Three years after [`START`], so that 2038 is in the middle.
const BEGIN: u64 = 3 * YEAR;

/// The loop runs for so long after each event: longer than the two minutes of close looks.
const AFTER: u64 = 200;

/// Longest time from a mark of the control plane to Ready, and from the end of an outage with an
/// earlier mark.
const REPAIR: Duration = Duration::from_secs(15);
const RETURN: Duration = Duration::from_secs(25);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The link is down for some seconds; the controllers see that.
    Link(u64),
    /// The control plane is down for some seconds, and then marks the Node after others.
    Down(u64, u64),
    /// The same, with a new version.
    Upgrade(u64),
    /// Power is off for some seconds. The clock shows 1970 for so many seconds after the start.
    Reboot(u64, u64),
    /// The clock is in 2045 for some seconds.
    Leap(u64),
    /// The CA file, or the kubeconfig, has the old and the new CA.
    BothCas,
    /// The server has a certificate of the new CA, which signs from now on.
    NewCa,
    /// The server does not know the old CA any more.
    OldCaGone,
}

/// All events of ten years: second, and what happens.
fn events(random: &mut Random) -> Vec<(u64, Event)> {
    let mut events = Vec::new();
    // From a second to three days, as many short ones as long ones.
    let outage = |random: &mut Random| {
        let shift = random.below(18);
        ((1 << shift) + random.below(1 << shift)).min(3 * DAY)
    };
    for number in 0..500 {
        let time = outage(random);
        let event = match number % 2 {
            0 => Event::Link(time),
            _ => Event::Down(time, random.below(120)),
        };
        events.push((random.below(10 * YEAR), event));
    }
    for _ in 0..200 {
        let (off, unset) = (10 + outage(random), random.below(60));
        events.push((random.below(10 * YEAR), Event::Reboot(off, unset)));
    }
    for number in 0..20 {
        let time = 20 + random.below(180);
        events.push((number * YEAR / 2 + random.below(YEAR / 2), Event::Upgrade(time)));
    }
    for year in [3, 7] {
        let begin = year * YEAR;
        events.push((begin, Event::BothCas));
        events.push((begin + 30 * DAY, Event::NewCa));
        // Each certificate was renewed since.
        events.push((begin + 30 * DAY + YEAR, Event::OldCaGone));
    }
    events.push((8 * YEAR, Event::Leap(3600)));
    events.sort_by_key(|(at, _)| *at);
    events
}

/// A board and what was measured of it.
struct Decade {
    machine: Machine,
    longest_return: Duration,
    longest_repair: Duration,
    rotations: u32,
    leaf: Option<Leaf>,
}

impl Decade {
    fn new(seed: u64, ca_file: bool) -> Self {
        let mut machine = Machine::new(seed);
        machine.now = seconds(BEGIN);
        machine.restart = machine.now;
        machine.cluster.life = [YEAR - DAY, YEAR].map(seconds);
        machine.ca_file = ca_file;
        machine.write_bootstrap(true);
        let mut decade = Self {
            machine,
            longest_return: Duration::ZERO,
            longest_repair: Duration::ZERO,
            rotations: 0,
            leaf: None,
        };
        decade.run(AFTER);
        let machine = &decade.machine;
        assert!(machine.cluster["pi"].is_ready(), "{}", machine.shown("the first start"));
        decade.rotations = 0;
        decade
    }

    /// The loop for some seconds; the signer signs everything.
    fn run(&mut self, time: u64) {
        self.run_to(self.machine.now + seconds(time), |_| false);
    }

    fn run_to(&mut self, end: Duration, done: impl Fn(&Machine) -> bool) {
        self.machine.run_until(end, done);
        let leaf = self.machine.leaf();
        if leaf.is_some() && leaf != self.leaf {
            self.leaf = leaf;
            self.rotations += 1;
        }
    }

    /// The board is suspended until then, and the Lease is renewed all the same.
    fn suspend(&mut self, until: Duration) {
        let machine = &mut self.machine;
        if until > machine.now {
            machine.now = until;
            machine.turns.clear();
            machine.steady = None;
            let renewed = &mut machine.cluster["pi"].renewed;
            *renewed = renewed.map(|_| until);
        }
    }

    /// Without an answer for `time`. Of a long one, the middle is left out.
    fn outage(&mut self, time: u64) {
        let end = self.machine.now + seconds(time);
        self.machine.cluster.behavior = Behavior::Silent(false);
        if time > 4 * AFTER {
            self.run(AFTER);
            let machine = &mut self.machine;
            machine.now = end - seconds(AFTER);
            machine.turns.clear();
        }
        self.run_to(end, |_| false);
        self.machine.cluster.behavior = Behavior::Correct;
    }

    /// Until the Node is Ready and its Lease renewed.
    fn returns(&mut self) {
        let begin = self.machine.now;
        self.run_to(begin + seconds(300), |machine| machine.cluster["pi"].is_ready_since(begin));
        let time = self.machine.now - begin;
        assert!(time <= RETURN, "{}", self.machine.shown(&format!("back after {time:?}")));
        self.longest_return = self.longest_return.max(time);
    }

    /// The controllers mark the Node so long after the end of an outage, if it is Ready by then.
    fn mark_after(&mut self, time: u64) {
        self.run(time);
        self.machine.cluster["pi"].mark();
        let marked = self.machine.now;
        self.run_to(marked + seconds(300), |machine| machine.cluster["pi"].is_ready());
        let time = self.machine.now - marked;
        assert!(time <= REPAIR, "{}", self.machine.shown(&format!("repaired after {time:?}")));
        self.longest_repair = self.longest_repair.max(time);
    }

    /// Off for some seconds, then a new process whose clock may be unset.
    fn reboot(&mut self, off: u64, unset: u64) {
        let machine = &mut self.machine;
        machine.kill();
        machine.now += seconds(off);
        machine.restart = machine.now;
        let true_seconds = START + machine.now.as_secs();
        machine.skew = -i64::try_from(true_seconds - 5).unwrap();
        self.run(unset);
        self.machine.skew = 0;
    }

    /// What the operator distributes, as systemd/cluster/README.md says: the CAs in the file, or in
    /// the bootstrap kubeconfig, which needs a restart and no token.
    fn distribute(&mut self) {
        let machine = &mut self.machine;
        if machine.ca_file {
            machine.write_ca();
        } else {
            machine.write_bootstrap(true);
            machine.cluster.tokens.clear();
            fs::remove_file(machine.kubeconfig_path()).unwrap();
            machine.kill();
        }
    }

    fn happens(&mut self, event: Event) {
        self.machine.tell(&format!("{event:?}"));
        match event {
            Event::Link(time) => {
                self.outage(time);
                self.returns();
            }
            Event::Down(time, mark) => {
                self.outage(time);
                self.machine.cluster.controllers_since = self.machine.now;
                self.returns();
                // Half the grace period: the controllers may have seen no renewal.
                if time > 25 {
                    self.mark_after(mark);
                }
            }
            Event::Upgrade(time) => {
                self.outage(time);
                let cluster = &mut self.machine.cluster;
                cluster.controllers_since = self.machine.now;
                cluster.git_version =
                    if cluster.git_version == "v1.38.1" { "v1.39.0" } else { "v1.38.1" };
                self.returns();
            }
            Event::Reboot(off, unset) => {
                self.reboot(off, unset);
                self.returns();
            }
            Event::Leap(time) => {
                let board = START + self.machine.now.as_secs();
                // 2045-01-01.
                self.machine.skew = i64::try_from(2_366_841_600 - board).unwrap();
                self.run(time);
                self.machine.skew = 0;
            }
            Event::BothCas | Event::NewCa | Event::OldCaGone => {
                self.machine.cluster.replace_ca();
                if event != Event::NewCa {
                    self.distribute();
                    self.returns();
                }
            }
        }
        self.run(AFTER);
        let machine = &mut self.machine;
        assert!(machine.cluster["pi"].is_ready(), "{}", machine.shown("not Ready after an event"));
        machine.check_lines();
        // What a server with an etcd forgets, too.
        machine.cluster.csrs.retain(|_, csr| csr.object.get("status").is_none());
        machine.cluster["pi"].events.clear();
    }

    /// Files of the identity, bytes of the Node in memory, and bytes of all files.
    fn size(&self) -> (usize, usize, u64) {
        let mut folders = vec![self.machine.tree.join("lib"), self.machine.tree.join("etc")];
        let (mut files, mut bytes) = (0, 0);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let (path, data) = entry.map(|e| (e.path(), e.metadata().unwrap())).unwrap();
                if data.is_dir() {
                    folders.push(path);
                } else {
                    files += 1;
                    bytes += data.len();
                }
            }
        }
        let process = self.machine.process.as_ref().unwrap();
        (files, process.kubelet.seen_bytes(), bytes)
    }
}

/// 2030 to 2040.
fn live_ten_years(ca_file: bool) {
    // The first of SETUPS: --rotate-certificates, --bootstrap-kubeconfig, and no kubeconfig.
    let mut decade = Decade::new(0, ca_file);
    let mut random = Random(20_300_101);
    let mut sizes = Vec::new();
    for (at, event) in events(&mut random) {
        decade.suspend(seconds(BEGIN + at));
        // A renewal is tried when the board wakes up, or was due meanwhile.
        decade.run(20);
        decade.happens(event);
        sizes.push(decade.size());
    }
    println!(
        "{} rotations, return {:?}, repair {:?}, sizes {:?} to {:?}",
        decade.rotations,
        decade.longest_return,
        decade.longest_repair,
        sizes.first(),
        sizes.last()
    );
    assert!((11..=16).contains(&decade.rotations), "{} rotations", decade.rotations);
    let largest = |sizes: &[(usize, usize, u64)]| {
        let most = sizes.iter().copied();
        most.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1), a.2.max(b.2))).unwrap()
    };
    // The second half has what the first one has: two pairs, and two CAs for a time.
    let (first, second) = sizes.split_at(sizes.len() / 2);
    let (first, second) = (largest(first), largest(second));
    assert!(second.0 <= first.0 && second.1 <= first.1 + 64, "{first:?} to {second:?}");
    assert!(second.2 <= first.2 + 256, "{first:?} to {second:?}");
}

#[test]
fn ten_years_with_a_ca_file() {
    live_ten_years(true);
}

#[test]
fn ten_years_with_a_ca_in_the_kubeconfig() {
    live_ten_years(false);
}
