//! Sentence 6: after a loss of power the identity is the old or the new one, no file is a part of
//! another, no file with a key is left behind, and files and folders do not grow.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::process::Exit;
use crate::sim::trace::{FileSeen, What};
use crate::sim::world::relative;

pub(super) const SENTENCE: Sentence = Sentence { number: 6, name: "files", judge };

/// Where secrets are, by the administrator or by systemd.
const FOREIGN: &[&str] = &["etc/credstore/", "etc/kubernetes/", "run/credentials/"];

const PKI: &str = "var/lib/nodelet/pki/";

/// The pair in use, the newest other one, and while a link cannot be made the next one.
const PAIRS: usize = 2;
const PAIRS_WHILE_FAULTY: usize = 3;

/// What a process that ended within a change has left is removed at the next start.
const PAIRS_AFTER_A_CUT: usize = 4;

/// What else the agent has: `boots`, `podcidr`, the kubeconfig of a bootstrap, and what is written
/// beside each of them.
const OTHERS: usize = 6;

/// A certificate is stored again after so long, and what could not be removed is written anew then.
const STORED_AGAIN: Duration = Duration::from_secs(1000);

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let mut was_cut = false;
    // The last look found too many pairs: old ones are removed some seconds after the next one is
    // in use.
    let mut had_many = false;
    // The status line says that the card takes no certificate, and so keeps the old ones.
    let mut stores_none = false;
    // An operation on a file failed since the last look.
    let mut fails = false;
    // The process has not told its status yet. If it links a pair, because none was current, the
    // next start removes the others.
    let (mut is_starting, mut has_linked) = (false, false);
    // Until when a file that could not be removed may stay.
    let mut stays: BTreeMap<String, Duration> = BTreeMap::new();
    // Since when a process runs.
    let mut began = None;
    for entry in run.trace {
        match &entry.what {
            What::Starts { name: "nodelet", .. } => began = Some(entry.at),
            What::Ends { name: "nodelet", .. } => began = None,
            _ => {}
        }
        match &entry.what {
            What::Ends { name: "nodelet" | "nodelet join", exit: Exit::Killed, .. } => {
                was_cut = true;
            }
            What::Starts { name: "nodelet", .. } => (is_starting, has_linked) = (true, false),
            What::PowerLost { torn, has_lost_identity } => {
                judged.count += 1;
                if let Some(path) = torn.first() {
                    judged.breaks(entry.at, "a file is torn", path.clone());
                }
                if *has_lost_identity {
                    let text = "no whole certificate is current".to_owned();
                    judged.breaks(entry.at, "the identity is lost", text);
                }
            }
            What::Files { seen, while_faulty } => {
                judged.count += 1;
                // The next process removes it.
                let is_kept =
                    |until| entry.at < until || began.is_none_or(|at| entry.at < at + STORED_AGAIN);
                stays.retain(|_, until| is_kept(*until));
                look(&mut judged, entry.at, seen, &stays, *while_faulty);
                let most = match () {
                    () if was_cut || has_linked => PAIRS_AFTER_A_CUT,
                    () if *while_faulty => PAIRS_WHILE_FAULTY,
                    () => PAIRS,
                };
                let pairs = seen.iter().filter(|file| is_pair(&file.path));
                let takes_writes = !stores_none && !std::mem::take(&mut fails);
                let has_many = pairs.clone().count() > most && takes_writes;
                if std::mem::replace(&mut had_many, has_many) && has_many {
                    judged.breaks(entry.at, "old pairs stay", names(pairs));
                }
                was_cut &= *while_faulty;
            }
            What::Notify { text } => {
                stores_none = text.contains("in use, but not stored");
                is_starting = false;
            }
            What::File { op } => {
                fails |= op.ends_with(" fails");
                has_linked |= is_starting && op.starts_with("Link(");
                if let Some((path, end)) =
                    op.strip_prefix("Remove(\"").and_then(|op| op.split_once("\")"))
                    && end == " fails"
                {
                    stays.insert(relative(path).to_owned(), entry.at + STORED_AGAIN);
                }
            }
            _ => {}
        }
    }
    judged
}

fn look(
    judged: &mut Judged,
    now: Duration,
    seen: &[FileSeen],
    stays: &BTreeMap<String, Duration>,
    while_faulty: bool,
) {
    for file in seen.iter().filter(|file| file.is_secret) {
        let is_foreign = FOREIGN.iter().any(|folder| file.path.starts_with(folder));
        let kind = match () {
            () if file.mode & 0o077 != 0 => "others may read a secret",
            () if is_foreign => continue,
            // What is written beside a file takes its place in a moment, if nothing fails.
            () if while_faulty && file.path.ends_with(".new") => continue,
            () if stays.contains_key(&file.path) => continue,
            () if file.path.ends_with(".new") => "a part of a file with a key is left",
            () if is_pair(&file.path) || is_pending_key(&file.path) => continue,
            () if file.path == "var/lib/nodelet/kubeconfig" => continue,
            () => "a secret is where none belongs",
        };
        judged.breaks(now, kind, format!("{} with mode {:o}", file.path, file.mode));
    }
    let is_other =
        |file: &&FileSeen| file.path.starts_with("var/lib/nodelet/") && !file.path.starts_with(PKI);
    let others = seen.iter().filter(is_other);
    if others.clone().count() > OTHERS {
        judged.breaks(now, "files grow", names(others));
    }
}

fn names<'a>(seen: impl Iterator<Item = &'a FileSeen>) -> String {
    seen.map(|file| file.path.as_str()).collect::<Vec<_>>().join(" ")
}

/// `kubelet-client-2027-01-15-08-00-02.pem`; a board without an RTC names its first pair by 1970,
/// or by a year more if its clock is set wrong.
fn is_pair(path: &str) -> bool {
    let name = path.strip_prefix(PKI).and_then(|name| name.strip_prefix("kubelet-client-"));
    let has_year = |name: &str| name.starts_with('2') || name.starts_with("197");
    name.is_some_and(|name| has_year(name) && name.ends_with(".pem"))
}

fn is_pending_key(path: &str) -> bool {
    path.strip_prefix(PKI) == Some("kubelet-client.key.tmp")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, breaks};
    use super::*;

    fn files(names: &[(&str, u32)], while_faulty: bool) -> Option<String> {
        let file = |(path, mode): &(&str, u32)| FileSeen {
            path: (*path).to_owned(),
            mode: *mode,
            is_secret: true,
        };
        let seen: Vec<_> = names.iter().map(file).collect();
        let look = |second| at(second, What::Files { while_faulty, seen: seen.clone() });
        breaks(judge, &[look(9), look(39)])
    }

    #[test]
    fn keys_are_where_they_belong_and_nothing_grows() {
        let pair = |second: u64| format!("{PKI}kubelet-client-2027-01-15-08-00-0{second}.pem");
        let [one, two, three] = [pair(1), pair(2), pair(3)];
        let early = format!("{PKI}kubelet-client-1970-01-01-00-00-12.pem");
        let good = [one.as_str(), &early, "etc/credstore/nodelet.token"].map(|path| (path, 0o600));
        assert_eq!(files(&good, false), None);
        let readable = [(one.as_str(), 0o644)];
        assert_eq!(files(&readable, false).as_deref(), Some("others may read a secret"));
        let many = [&one, &two, &three].map(|path| (path.as_str(), 0o600));
        assert_eq!(files(&many, false).as_deref(), Some("old pairs stay"));
        assert_eq!(files(&many, true), None);
        let seen = many.map(|(path, mode)| FileSeen { path: path.into(), mode, is_secret: true });
        let once = What::Files { while_faulty: false, seen: seen.into() };
        assert_eq!(breaks(judge, &[at(9, once)]), None);
        let new = format!("{one}.new");
        let left = [(new.as_str(), 0o600)];
        let is_left = Some("a part of a file with a key is left");
        assert_eq!(files(&left, false).as_deref(), is_left);
        // Its removal failed: the next attempt of a process writes it anew.
        let starts = || What::Starts { pid: 1, name: "nodelet", line: String::new() };
        let unremoved_since = |begins: u64, end: &str, after: u64| {
            let op = format!("Remove(\"/{new}\"){end}");
            let seen = FileSeen { path: new.clone(), mode: 0o600, is_secret: true };
            let seen = What::Files { while_faulty: false, seen: vec![seen] };
            let mut trace = vec![at(9, What::File { op }), at(begins, starts())];
            trace.push(at(9 + after, seen));
            breaks(judge, &trace)
        };
        let unremoved = |end: &str, after| unremoved_since(9, end, after);
        assert_eq!(unremoved_since(500, " fails", 1400), None);
        assert_eq!(unremoved(" fails", 999), None);
        assert_eq!(unremoved(" fails", 1000).as_deref(), is_left);
        assert_eq!(unremoved("", 9).as_deref(), is_left);
        let stray = [("tmp/key", 0o600)];
        assert_eq!(files(&stray, false).as_deref(), Some("a secret is where none belongs"));
    }

    /// A start that links a pair leaves the others to the next one.
    #[test]
    fn old_pairs_stay_after_a_lost_link_and_while_the_card_takes_no_writes() {
        let seen = |pairs: u64| {
            let pair = |second| FileSeen {
                path: format!("{PKI}kubelet-client-2027-01-15-08-00-0{second}.pem"),
                mode: 0o600,
                is_secret: true,
            };
            What::Files { while_faulty: false, seen: (0..pairs).map(pair).collect() }
        };
        let op = |op: &str| What::File { op: op.to_owned() };
        let starts = || What::Starts { pid: 1, name: "nodelet", line: String::new() };
        let told = || What::Notify { text: "STATUS=registering".to_owned() };
        let link = || op("Link(\"a\", \"b\")");
        let many = Some("old pairs stay");
        for (before, between, pairs, want) in [
            (vec![starts(), link(), told()], told(), 4, None),
            (vec![starts(), link(), told()], told(), 5, many),
            (vec![starts(), told(), link()], told(), 4, many),
            (vec![told()], op("Remove(\"a\") fails"), 4, None),
            (vec![told()], op("Remove(\"a\")"), 4, many),
        ] {
            let trace = before.into_iter().chain([seen(pairs), between, seen(pairs)]);
            let trace: Vec<_> = trace.map(|what| at(9, what)).collect();
            assert_eq!(breaks(judge, &trace).as_deref(), want, "{trace:?}");
        }
    }

    #[test]
    fn a_loss_of_power_leaves_the_old_or_the_new() {
        let lost = |torn: &[&str], has_lost_identity| {
            let torn = torn.iter().map(|path| (*path).to_owned()).collect();
            breaks(judge, &[at(9, What::PowerLost { torn, has_lost_identity })])
        };
        assert_eq!(lost(&[], false), None);
        assert_eq!(lost(&["var/lib/nodelet/boots"], false).as_deref(), Some("a file is torn"));
        assert_eq!(lost(&[], true).as_deref(), Some("the identity is lost"));
    }
}
