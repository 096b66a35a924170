//! What is asked and when, and what the agent reads of it in the file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::kube::facts::{Handler, Image, RuntimeFacts};
use crate::os::tree::Tree;
use crate::runtime::report::{CriCondition, Images, RuntimeVersion, Status};

use super::*;

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

fn found(status: Status) -> RuntimeReport {
    RuntimeReport::new(Ok(status))
}

fn ready() -> RuntimeReport {
    found(Status::default())
}

fn failed() -> RuntimeReport {
    RuntimeReport::new(Err(RuntimeFailure::api("connection refused")))
}

fn details(images: &[(&str, u64)]) -> RuntimeReport {
    let mut all = Images::new(10);
    for (id, size_bytes) in images {
        let id = (*id).to_owned();
        all.push(Image { names: vec![id.clone()], id, size_bytes: *size_bytes });
    }
    RuntimeReport {
        version: RuntimeVersion::new("containerd".to_owned(), "2.1.9".to_owned()),
        images: Some(all),
        image_folder: Some("/var/lib/containerd".to_owned()),
        ..ready()
    }
}

/// Docker was restarted between two questions, with another `data-root`; then an answer has none.
#[test]
fn the_folder_is_that_of_the_last_details_that_have_it() {
    let mut pair = Pair::new(Protocol::Docker);
    for (second, folder, want) in [
        (0, Some("/var/lib/docker"), "/var/lib/docker"),
        (60, Some("/mnt/docker"), "/mnt/docker"),
        (120, None, "/mnt/docker"),
    ] {
        let image_folder = folder.map(str::to_owned);
        pair.ask(|_| RuntimeReport { image_folder, ..details(&[]) }, second);
        assert_eq!(pair.facts(second).image_folder.as_deref(), Some(want));
    }
}

const DOWN: &str = "container runtime is down";
const NOT_YET: &str = "container runtime status check may not have completed yet";

/// `report` without what was not asked for. A runtime that is gone is asked for its status alone.
fn asked(last: Part, mut report: RuntimeReport) -> RuntimeReport {
    report.asked = if report == failed() { Part::Status } else { last };
    if last < Part::List {
        (report.images, report.list_is_large) = (None, false);
        (report.details_took, report.errors) = Default::default();
    }
    report
}

/// `nodelet runtime` and the agent's reader, which share a boot clock.
struct Pair {
    state: RuntimeState,
    written: VolatileFile,
    file: RuntimeFile,
    tree: Tree,
}

impl Pair {
    fn new(protocol: Protocol) -> Self {
        let tree = Tree::empty("runtime-state");
        let path = tree.path().join("facts");
        let (written, file) = (VolatileFile::new(&path), RuntimeFile::new(&path));
        Self { state: RuntimeState::new(protocol), written, file, tree }
    }

    /// A question, if one is due, and its answer.
    fn ask(&mut self, report: impl FnOnce(Part) -> RuntimeReport, second: u64) {
        let is_news = match self.state.query(at(second)) {
            Some(last) => self.state.on_report(asked(last, report(last)), at(second)),
            None => true,
        };
        if is_news {
            publish(&self.state, &mut self.written, 0).unwrap();
        }
    }

    /// Asks whenever a question is due, up to second `end`, with `check` after each. Returns the
    /// seconds of all questions, those of questions for details, and of those for the list.
    fn questions(
        &mut self,
        end: u64,
        report: impl Fn(u64, bool) -> RuntimeReport,
        mut check: impl FnMut(&mut Self, u64),
    ) -> [Vec<u64>; 3] {
        let (mut second, mut asked) = (0, [const { Vec::new() }; 3]);
        while second <= end {
            let answer = |last: Part| {
                asked[0].push(second);
                asked[1].extend((last >= Part::Details).then_some(second));
                asked[2].extend((last == Part::List).then_some(second));
                report(second, last >= Part::Details)
            };
            self.ask(answer, second);
            check(self, second);
            second += self.state.pause().as_secs();
        }
        asked
    }

    fn facts(&mut self, second: u64) -> RuntimeFacts {
        self.file.facts(at(second), Duration::from_secs(second)).0
    }

    /// The lines of Ready, in order.
    fn lines(&mut self, second: u64) -> Vec<String> {
        let facts = self.facts(second);
        let down = facts.down.map(str::to_owned);
        [down, facts.not_ready, facts.network].into_iter().flatten().collect()
    }
}

fn condition(kind: &str, status: bool) -> CriCondition {
    let [kind, reason, message] = [kind, "R", "M"].map(str::to_owned);
    CriCondition { kind, status, reason, message }
}

fn status(conditions: &[CriCondition]) -> RuntimeReport {
    let [runtime, network] = CriCondition::lines(conditions);
    found(Status { runtime, network, ..Status::default() })
}

/// kubelet_node_status_test.go TestUpdateNodeStatusWithRuntimeStateError. Each row begins with a
/// success at second 0; then a question at `second` finds something.
#[test]
fn test_update_node_status_with_runtime_state_error() {
    let both = [condition("NetworkReady", true), condition("RuntimeReady", true)];
    let runtime_only = [condition("NetworkReady", false), both[1].clone()];
    let network_only = [condition("RuntimeReady", false), both[0].clone()];
    let both_false = [runtime_only[0].clone(), network_only[0].clone()];
    let neither = [condition("ContainerdHasNoDeprecationWarnings", false)];
    let runtime_line = "container runtime not ready: RuntimeReady=false reason:R message:M";
    let network_line = "container runtime network not ready: NetworkReady=false reason:R message:M";
    for (name, second, report, want) in [
        ("the last check is 30 s old", 30, failed(), &[DOWN][..]),
        ("fresh", 29, failed(), &[]),
        ("both true", 30, status(&both), &[]),
        (
            "neither",
            30,
            status(&neither),
            &[
                DOWN,
                "container runtime not ready: <nil>",
                "container runtime network not ready: <nil>",
            ],
        ),
        ("RuntimeReady=false", 10, status(&network_only), &[runtime_line]),
        ("RuntimeReady=false, 30 s", 30, status(&network_only), &[DOWN, runtime_line]),
        ("NetworkReady=false", 10, status(&runtime_only), &[network_line]),
        ("both false", 10, status(&both_false), &[runtime_line, network_line]),
    ] {
        let mut pair = Pair::new(Protocol::Cri);
        pair.ask(|_| status(&both), 0);
        assert_eq!(pair.lines(0), [""; 0]);
        pair.ask(|_| report, second);
        assert_eq!(pair.lines(second), want, "{name}");
    }
}

#[test]
fn a_runtime_that_never_answered_has_no_status_and_no_network() {
    let mut pair = Pair::new(Protocol::Cri);
    let want = [NOT_YET, "network state unknown"];
    assert_eq!(pair.lines(0), want);
    pair.ask(|_| failed(), 0);
    assert_eq!(pair.lines(100), want);
    assert_eq!(pair.facts(0).version, None);
    assert_eq!(pair.facts(0).images, None);
    // An answer without success makes the network known.
    let answer = status(&[condition("RuntimeReady", false), condition("NetworkReady", true)]);
    pair.ask(|_| answer, 1);
    assert_eq!(
        pair.lines(100),
        [NOT_YET, "container runtime not ready: RuntimeReady=false reason:R message:M"]
    );
}

/// One change when the runtime goes, and one when it returns.
#[test]
fn an_outage_is_two_changes() {
    let mut pair = Pair::new(Protocol::Cri);
    let mut told = Vec::new();
    let report = |second, _| match second {
        50..120 => failed(),
        _ => details(&[("a", 1), ("b", 2)]),
    };
    pair.questions(199, report, |pair, second| {
        let facts = pair.facts(second);
        if told.last().is_none_or(|(_, last)| *last != facts) {
            told.push((second, facts));
        }
    });
    let seconds: Vec<u64> = told.iter().map(|(second, _)| *second).collect();
    // The last success was at 40.
    assert_eq!(seconds, [0, 70, 120]);
    let down = &told[1].1;
    assert_eq!(down.version.as_deref(), Some("containerd://Unknown"));
    assert_eq!(down.down, Some(DOWN));
    assert_eq!(down.images, told[0].1.images, "images stay");
    assert_eq!(told[0].1, told[2].1);
}

#[test]
fn details_are_asked_for_once_a_minute_and_after_a_failure() {
    let report = |second, with_details| match (second, with_details) {
        (90..100, _) => failed(),
        (_, true) => details(&[]),
        _ => ready(),
    };
    let [all, with_details, _] = Pair::new(Protocol::Cri).questions(199, report, |_, _| {});
    assert_eq!(with_details, [0, 60, 92, 94, 96, 98, 100, 160]);
    assert_eq!(all[..3], [0, 10, 20]);
}

/// A runtime without a CNI plugin may be not ready for ever, and one that is overloaded may fail the
/// status alone: each list costs it as much as when it is well.
#[test]
fn a_list_is_asked_for_once_a_minute_also_while_the_runtime_is_not_ready_or_its_status_fails() {
    let not_ready = || Ok(Status { runtime: Some("no".to_owned()), ..Status::default() });
    let cases: [(&dyn Fn() -> Result<Status, RuntimeFailure>, _, _); 2] =
        [(&not_ready, 10, [0, 60, 120]), (&|| failed().status, 2, [0, 60, 120])];
    for (status, second, want) in cases {
        let report = |_, with_details| RuntimeReport {
            status: status(),
            ..if with_details { details(&[]) } else { ready() }
        };
        let [all, _, lists] = Pair::new(Protocol::Cri).questions(130, report, |_, _| {});
        assert_eq!((all[1], &lists[..]), (second, &want[..]));
    }
}

/// Each attempt would transfer up to its limit. Its failure lasts until the next attempt: without
/// a line that it ended, and another one that it began.
#[test]
fn a_large_list_or_one_that_is_refused_for_its_size_is_asked_for_every_five_minutes() {
    let too_large = "/images/json: the answer is larger than 4 MiB";
    let refused =
        || RuntimeReport { list_is_large: true, errors: vec![too_large.to_owned()], ..ready() };
    let large = || RuntimeReport { list_is_large: true, ..details(&[]) };
    for (report, fails) in [(&refused as &dyn Fn() -> RuntimeReport, true), (&large, false)] {
        let report = |second, with_details| match (second, with_details) {
            (900, true) => details(&[]),
            (_, true) => report(),
            _ => ready(),
        };
        let [_, _, asked] = Pair::new(Protocol::Docker).questions(900, report, |pair, second| {
            let why = pair.state.last_error();
            assert_eq!(why, (fails && second < 900).then_some(too_large), "{second}");
            assert_eq!(pair.lines(second), [""; 0]);
        });
        assert_eq!(asked, [0, 300, 600, 900]);
    }
}

/// A list that needs seconds, or all of its limit, takes at most a fiftieth of the runtime's time.
/// The limit has no answer, and after it the next one may have.
#[test]
fn a_list_that_took_long_is_asked_for_after_fifty_times_as_long() {
    let late = || {
        let errors = vec!["ListImages: no answer in time".to_owned()];
        RuntimeReport { errors, ..ready() }
    };
    for (report, took, want) in [
        (&(|| details(&[])) as &dyn Fn() -> RuntimeReport, 1, [0, 60, 120]),
        (&|| details(&[]), 4, [0, 200, 400]),
        (&late, 10, [0, 500, 1000]),
    ] {
        let details_took = Duration::from_secs(took);
        let report = |_, with_details| match with_details {
            true => RuntimeReport { details_took, ..report() },
            false => ready(),
        };
        let [_, _, asked] = Pair::new(Protocol::Cri).questions(want[2], report, |_, _| {});
        assert_eq!(asked, want);
    }
}

/// On a slow board the list itself may be why a status fails.
#[test]
fn a_list_that_took_long_rests_also_while_the_status_fails_now_and_then() {
    let report = |second, with_details| match with_details {
        _ if second % 50 >= 40 => failed(),
        true => RuntimeReport { details_took: Duration::from_secs(4), ..details(&[]) },
        false => ready(),
    };
    let [all, _, asked] = Pair::new(Protocol::Cri).questions(399, report, |_, _| {});
    assert_eq!(all.iter().filter(|second| *second % 50 >= 40).count(), 40);
    assert_eq!(asked, [0, 200]);
}

fn of_version(version: &str, report: RuntimeReport) -> RuntimeReport {
    let version = RuntimeVersion::new("containerd".to_owned(), version.to_owned());
    RuntimeReport { version, ..report }
}

/// The runtime is updated in an outage, or between two questions.
#[test]
fn a_new_version_is_told_at_the_end_of_an_outage_or_in_a_minute_also_while_the_list_rests() {
    for (outage, want) in [(20..30, 30), (0..0, 60)] {
        let report = |second, with_details: bool| match second {
            _ if outage.contains(&second) => failed(),
            _ if !with_details => ready(),
            0..25 => RuntimeReport {
                details_took: Duration::from_secs(10),
                ..of_version("2.1.9", details(&[]))
            },
            _ => of_version("2.2.0", details(&[])),
        };
        let [_, _, lists] = Pair::new(Protocol::Cri).questions(499, report, |pair, second| {
            let facts = pair.facts(second);
            let is_new = facts.version.as_deref() == Some("containerd://2.2.0");
            assert_eq!(is_new, second >= want, "{second} {facts:?}");
        });
        assert_eq!(lists, [0]);
    }
}

/// containerd listens before its plugin for CRI is initialized: all calls are refused.
#[test]
fn a_runtime_that_starts_has_its_details_with_its_first_status() {
    let refused = || RuntimeReport {
        errors: ["Version: rpc error", "ListImages: rpc error"].map(str::to_owned).to_vec(),
        ..failed()
    };
    let report = |second, with_details| match (second, with_details) {
        (0..6, true) => refused(),
        (_, true) => details(&[("a", 1)]),
        _ => ready(),
    };
    let mut pair = Pair::new(Protocol::Cri);
    let [_, _, lists] = pair.questions(66, report, |pair, second| {
        let facts = pair.facts(second);
        let has_details = facts.version.is_some() && facts.images.is_some();
        assert_eq!((facts.down.is_none(), has_details), (second >= 6, second >= 6), "{second}");
    });
    assert_eq!(lists, [0, 2, 4, 6, 66]);
}

/// Its socket is activated by systemd: a question starts a process. Between two of them the last
/// answer counts, and one failure says little.
#[test]
fn podman_is_asked_every_five_minutes_and_is_down_30_s_after_the_first_failure() {
    let report = |second, _| if second < 300 { details(&[]) } else { failed() };
    let [all, asked, _] = Pair::new(Protocol::Podman).questions(399, report, |pair, second| {
        let want = if second < 320 { &[][..] } else { &[DOWN] };
        assert_eq!(pair.lines(second), want, "{second}");
    });
    assert_eq!(all, asked);
    assert_eq!(asked[..4], [0, 300, 302, 304]);
}

/// The kubelet clears the runtime's error with the next good status, and only that one takes
/// handlers and features.
#[test]
fn a_status_that_is_not_ready_changes_no_handlers() {
    let with = |runtime: Option<&str>, name: &str, policy| {
        found(Status {
            runtime: runtime.map(str::to_owned),
            handlers: vec![Handler { name: name.to_owned(), ..Handler::default() }],
            supplemental_groups_policy: policy,
            ..Status::default()
        })
    };
    let mut pair = Pair::new(Protocol::Cri);
    let told = |facts: RuntimeFacts| {
        (facts.handlers.unwrap()[0].name.clone(), facts.supplemental_groups_policy)
    };
    pair.ask(|_| with(None, "runc", Some(true)), 0);
    pair.ask(|_| with(Some("no"), "crun", Some(false)), 1);
    assert_eq!(told(pair.facts(1)), ("runc".to_owned(), Some(true)));
    pair.ask(|_| with(None, "crun", None), 2);
    assert_eq!(pair.facts(2).not_ready, None);
    assert_eq!(told(pair.facts(2)), ("crun".to_owned(), Some(true)), "the policy stays");
}

#[test]
fn a_failed_part_keeps_the_last_value_and_is_asked_for_again() {
    let mut pair = Pair::new(Protocol::Cri);
    pair.ask(|_| details(&[("a", 1)]), 0);
    let partly = RuntimeReport { errors: vec!["ListImages: rpc error".to_owned()], ..ready() };
    pair.ask(|_| partly, 60);
    let facts = pair.facts(60);
    assert_eq!(facts.images.unwrap().len(), 1);
    assert_eq!(facts.version.as_deref(), Some("containerd://2.1.9"));
    assert_eq!(facts.image_folder.as_deref(), Some("/var/lib/containerd"));
    // Not at once: what hangs must not delay each question for the status.
    for (second, last) in [(70, Part::Status), (119, Part::Status), (120, Part::List)] {
        assert_eq!(pair.state.query(at(second)), Some(last), "{second}");
    }
}

/// Neither a Node without images, nor lines of the log that a failure ended and began again.
#[test]
fn a_status_before_its_details_is_taken_after_a_first_success_and_ends_no_failure() {
    let mut pair = Pair::new(Protocol::Cri);
    assert!(!pair.state.on_part(&ready(), at(0)));
    assert_eq!(pair.state.file(0), RuntimeState::new(Protocol::Cri).file(0));
    let partly = || RuntimeReport { errors: vec!["ListImages: late".to_owned()], ..ready() };
    for second in [0, 60, 120] {
        assert_eq!(pair.state.query(at(second)), Some(Part::List));
        assert_eq!(pair.state.on_part(&ready(), at(second)), second > 0);
        let before = (second > 0).then_some("ListImages: late");
        assert_eq!(pair.state.last_error(), before, "{second}");
        pair.ask(|_| partly(), second);
        assert_eq!(pair.state.last_error(), Some("ListImages: late"));
    }
    pair.ask(|_| details(&[]), 180);
    assert_eq!(pair.state.last_error(), None);
}

#[test]
fn a_new_time_is_written_into_the_file_and_a_lost_file_is_back_with_the_next_success() {
    let mut pair = Pair::new(Protocol::Cri);
    let path = pair.tree.path().join("facts");
    let other = pair.tree.path().join("other");
    let inode = || fs::metadata(&path).unwrap().ino();
    pair.ask(|_| details(&[("a", 1)]), 0);
    let first = inode();
    let mut second = 0;
    for lose in [
        None,
        Some(&(|| fs::remove_file(&path).unwrap()) as &dyn Fn()),
        Some(&|| {
            fs::write(&other, "other").unwrap();
            fs::rename(&other, &path).unwrap();
        }),
        Some(&|| fs::write(&path, "").unwrap()),
    ] {
        assert_eq!(pair.lines(second + 1), [""; 0]);
        lose.inspect(|lose| lose());
        assert_eq!(pair.lines(second + 2), [""; 0], "the last read counts");
        second += 10;
        pair.ask(|_| ready(), second);
        assert!(lose.is_some() || inode() == first);
        assert_eq!(fs::read_to_string(&path).unwrap(), pair.state.file(0));
        assert_eq!(pair.lines(second + 29), [""; 0]);
        assert_eq!(pair.lines(second + 30), [DOWN]);
    }
    let before = inode();
    pair.ask(|_| details(&[("b", 1)]), second + 60);
    assert_ne!(inode(), before, "other facts are another file");
    assert_eq!(pair.facts(second + 60).images.unwrap()[0].id, "b");
}

/// While /run is full, no new file can be made. What the file says of the runtime's state stays
/// true; its details are those of the last file.
#[test]
fn a_file_that_cannot_be_replaced_has_the_time_of_each_success_with_the_same_status() {
    let mut pair = Pair::new(Protocol::Cri);
    let blocked = pair.tree.path().join("facts.new");
    let ask = |pair: &mut Pair, report: RuntimeReport, second| {
        assert!(pair.state.on_report(report, at(second)));
        publish(&pair.state, &mut pair.written, 0).map_err(|why| why.what)
    };
    assert_eq!(ask(&mut pair, details(&[("a", 1)]), 0), Ok(()));
    fs::create_dir(&blocked).unwrap();
    let full = format!("{}: is a directory", pair.tree.path().join("facts").display());
    for second in [10, 20, 60] {
        assert_eq!(ask(&mut pair, details(&[("b", 1)]), second), Err(full.clone()));
        let facts = pair.facts(second + 29);
        assert_eq!((facts.down, &*facts.images.unwrap()[0].id), (None, "a"), "{second}");
    }
    // Another status would be a lie in the old file, so that its time stands.
    let no_network = status(&[condition("RuntimeReady", true), condition("NetworkReady", false)]);
    assert_eq!(ask(&mut pair, no_network.clone(), 70), Err(full.clone()));
    assert_eq!(pair.lines(89), [""; 0]);
    assert_eq!(pair.lines(90), [DOWN]);
    assert_eq!(ask(&mut pair, details(&[]), 100), Err(full.clone()));
    assert_eq!(pair.lines(100), [""; 0]);
    // A restart of `nodelet runtime`.
    let path = pair.tree.path().join("facts");
    pair.state = RuntimeState::new(Protocol::Cri);
    pair.written = VolatileFile::reopen(&path);
    assert_eq!(ask(&mut pair, details(&[]), 105), Err(full.clone()));
    let facts = pair.facts(134);
    assert_eq!((facts.down, &*facts.images.unwrap()[0].id), (None, "a"));
    // One after a boot writes no time of its own to the facts of the former boot.
    let before = fs::read_to_string(&path).unwrap();
    for (former, now) in [(1, 2), (1, 0)] {
        let of_boot = before.replace("\n0\n", &format!("\n{former}\n"));
        fs::write(&path, &of_boot).unwrap();
        pair.written = VolatileFile::reopen(&path);
        assert!(publish(&pair.state, &mut pair.written, now).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), of_boot);
    }
    fs::remove_dir(&blocked).unwrap();
    assert_eq!(ask(&mut pair, no_network, 110), Ok(()));
    assert_eq!(pair.lines(110).len(), 1);
    assert_eq!(pair.facts(110).images.unwrap(), []);
}
