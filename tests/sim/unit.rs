//! systemd as far as a board meets it: units and their links, environment files, credentials, the
//! path unit, what /proc and the cgroup show of a process; and the scripts of the package.
//!
//! The unit files are those of the package, so that a flag or a credential that is added there is
//! in this world, too.

use std::collections::BTreeMap;
use std::time::Duration;

use super::process::Pid;
use super::world::{Event, World};

const SERVICE: &str = include_str!("../../systemd/nodelet.service");
const PATH: &str = include_str!("../../systemd/nodelet.path");

const UNITS: &str = "usr/lib/systemd/system";
pub(crate) const CREDENTIALS: &str = "run/credentials/nodelet.service";
const CGROUP: &str = "sys/fs/cgroup/nodelet.service";
/// What deb-systemd-helper enables in postinst.
const LINKS: [(&str, &str); 2] = [
    ("etc/systemd/system/multi-user.target.wants/nodelet.service", "nodelet.service"),
    ("etc/systemd/system/paths.target.wants/nodelet.path", "nodelet.path"),
];
/// What nodelet.path watches.
const TRIGGER: &str = "/run/nodelet-joined";
/// The environment files of the unit, in their order.
const ENVIRONMENT: [&str; 2] = ["etc/default/nodelet-join", "etc/default/nodelet"];

/// What a process of the unit is started with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Start {
    /// Without the program.
    pub(crate) words: Vec<String>,
    /// The copies of the credentials, by their short names.
    pub(crate) credentials: BTreeMap<String, Vec<u8>>,
}

impl Start {
    /// The last value of a flag.
    pub(crate) fn flag(&self, name: &str) -> Option<&str> {
        let prefix = format!("--{name}=");
        self.words.iter().rev().find_map(|word| word.strip_prefix(&prefix))
    }

    /// What another start differs in: a person who changed it has to restart the unit. The password
    /// counts only where there is a supervisor, and a kubeconfig only where the last flag names it.
    pub(crate) fn differs(&self, other: &Self) -> Option<&'static str> {
        let counts = |(name, _): &(&String, &Vec<u8>)| match name.as_str() {
            "k3s-password" => other.flag("k3s-supervisor").is_some(),
            "kubeconfig" => other.flag(name).is_some_and(|path| path.contains(CREDENTIALS)),
            _ => true,
        };
        let [own, new] = [self, other].map(|start| start.credentials.iter().filter(counts));
        match () {
            () if self.words != other.words => Some("flags"),
            () if own.ne(new) => Some("credentials"),
            () => None,
        }
    }
}

/// The variables of an environment file, as `load_env_file` of systemd reads it: the last one wins.
pub(crate) fn environment(text: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut rest = text.chars().peekable();
    while let Some(&first) = rest.peek() {
        if first.is_whitespace() {
            rest.next();
        } else if first == '#' || first == ';' {
            // The line of a comment ends where it ends.
            while rest.next().is_some_and(|c| c != '\n') {}
        } else {
            let (name, value) = variable(&mut rest);
            variables.insert(name, value);
        }
    }
    variables
}

fn variable(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> (String, String) {
    let (mut name, mut value, mut quote) = (String::new(), String::new(), None);
    for c in rest.by_ref() {
        match c {
            '=' => break,
            '\n' => return (name, value),
            c => name.push(c),
        }
    }
    // A quote opens only at the begin of a value, or after another one that has closed. Blanks at
    // the end of a value count only within quotes.
    let (mut may_open, mut blanks) = (true, 0);
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, '\n') => break,
            (None, ' ' | '\t') if may_open => continue,
            (None, '"' | '\'') if may_open => quote = Some(c),
            (Some(open), c) if c == open => (quote, may_open) = (None, true),
            (None | Some('"'), '\\') => {
                may_open = false;
                match rest.next() {
                    Some('\n') | None => {}
                    Some(c) => value.push(c),
                }
            }
            (_, c) => {
                may_open = false;
                value.push(c);
                if quote.is_none() && [' ', '\t'].contains(&c) {
                    blanks += 1;
                    continue;
                }
            }
        }
        blanks = 0;
    }
    value.truncate(value.len() - blanks);
    (name.trim().to_owned(), value)
}

/// `$NAME` of an ExecStart, split at blanks; quotes are taken off.
fn split(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in value.chars() {
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

impl World {
    // --- the unit ---

    /// The variables of the environment files.
    fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        for path in ENVIRONMENT {
            let text = self.board.read(path).unwrap_or_default();
            variables.extend(environment(&String::from_utf8_lossy(&text)));
        }
        variables
    }

    /// What systemd would start now.
    pub(crate) fn next_start(&self) -> Start {
        let variables = self.variables();
        let line = SERVICE.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let mut words = Vec::new();
        for word in line.expect("the unit starts a program").split(' ').skip(1) {
            match word.strip_prefix('$') {
                Some(name) => words.extend(variables.get(name).map_or(Vec::new(), |v| split(v))),
                None => {
                    let word = word.replace("%d", "/run/credentials/nodelet.service");
                    words.push(word.replace("%S", "/var/lib"));
                }
            }
        }
        let named = SERVICE.lines().filter_map(|line| line.strip_prefix("LoadCredential="));
        let load = |line: &str| {
            let (short, name) = line.split_once(':')?;
            Some((short.to_owned(), self.board.read(&format!("etc/credstore/{name}"))?))
        };
        Start { words, credentials: named.filter_map(load).collect() }
    }

    /// What the process of the unit has: its flags, and the copies of the credentials, which it reads
    /// again.
    pub(crate) fn running_start(&self) -> Start {
        let names = self.board.list(CREDENTIALS).into_iter();
        let read = |name: String| {
            let content = self.board.read(&format!("{CREDENTIALS}/{name}"))?;
            Some((name, content))
        };
        Start {
            words: self.people.started.words.clone(),
            credentials: names.filter_map(read).collect(),
        }
    }

    /// The copies of the credentials of a start.
    pub(crate) fn load_credentials(&mut self, start: &Start) {
        self.board.remove_all(CREDENTIALS);
        self.board.folder(CREDENTIALS);
        for (name, content) in &start.credentials {
            self.board.replace(&format!("{CREDENTIALS}/{name}"), content);
        }
    }

    /// What the kernel shows of a process of the board.
    pub(crate) fn show_process(&mut self, pid: Pid, words: &[String], is_of_unit: bool) {
        let line = std::iter::once("/usr/bin/nodelet").chain(words.iter().map(String::as_str));
        let line: String = line.flat_map(|word| [word, "\0"]).collect();
        let (id, folder) = (1000 + pid, format!("proc/{}", 1000 + pid));
        self.board.put(&format!("{folder}/cmdline"), line.as_bytes());
        let variables: String = ["NODELET_JOIN_FLAGS", "NODELET_FLAGS"]
            .iter()
            .map(|name| {
                let value = self.variables().remove(*name).unwrap_or_default();
                format!("{name}={value}\0")
            })
            .collect();
        self.board.put(&format!("{folder}/environ"), variables.as_bytes());
        let status = format!("Name:\tnodelet\nPid:\t{id}\nNSpid:\t{id}\n");
        self.board.put(&format!("{folder}/status"), status.as_bytes());
        let slice = if is_of_unit { "/nodelet.service" } else { "/user.slice" };
        self.board.put(&format!("{folder}/cgroup"), format!("0::{slice}\n").as_bytes());
        if is_of_unit {
            self.board.put(&format!("{CGROUP}/cgroup.procs"), format!("{id}\n").as_bytes());
        }
    }

    /// A process is gone.
    pub(crate) fn hide_process(&mut self, pid: Pid) {
        self.board.remove_all(&format!("proc/{}", 1000 + pid));
        if self.unit.pid == Some(pid) {
            self.board.remove_all(CGROUP);
            self.board.remove_all(CREDENTIALS);
        }
    }

    /// Whether a boot starts this unit. No link is followed: it is one of the board.
    fn is_linked(&self, index: usize) -> bool {
        let (link, unit) = LINKS[index];
        self.board.has(&format!("{UNITS}/{unit}")) && self.board.link_target(link).is_some()
    }

    pub(crate) fn is_installed(&self) -> bool {
        self.board.has(&format!("{UNITS}/nodelet.service"))
    }

    /// nodelet.path starts the unit, unless it runs or waits for its next start.
    pub(crate) fn path_changed(&mut self, path: &str) {
        if path == TRIGGER && self.is_linked(1) && self.people.is_stopped {
            self.start_stopped();
        }
    }

    /// systemctl start.
    pub(crate) fn start_stopped(&mut self) {
        self.people.is_stopped = false;
        self.plan_at(self.now + Duration::from_millis(100), Event::Starts);
    }

    /// systemctl stop.
    pub(crate) fn stop_unit(&mut self) {
        self.people.is_stopped = true;
        self.restart_unit();
    }

    /// systemctl restart; it starts a unit that is stopped.
    pub(crate) fn start_again(&mut self) {
        if !self.board.is_on || !self.is_installed() {
            return;
        }
        match self.people.is_stopped || self.unit.pid.is_none() {
            true => self.start_stopped(),
            false => self.restart_unit(),
        }
    }

    // --- the package ---

    /// The unpacked units, and cross/debian/postinst.
    pub(crate) fn install_package(&mut self) {
        for (unit, text) in [("nodelet.service", SERVICE), ("nodelet.path", PATH)] {
            self.board.put(&format!("{UNITS}/{unit}"), text.as_bytes());
        }
        for (link, unit) in LINKS {
            self.board.folder(link.rsplit_once('/').expect("a path").0);
            self.board.link(&format!("/{UNITS}/{unit}"), link);
        }
        self.unit.is_enabled = self.is_linked(0);
        if self.has_identity() || !self.people.is_stopped {
            self.start_again();
        }
    }

    /// Whether the board has a file of those that the flags of a start name.
    fn has_identity(&self) -> bool {
        let words = self.next_start().words;
        ["kubeconfig", "bootstrap-kubeconfig"].iter().any(|name| {
            let flag = format!("--{name}=/");
            let mut named = words.iter().filter_map(|word| word.strip_prefix(&flag));
            self.board.has(&format!("etc/credstore/nodelet.{name}"))
                || named.any(|path| self.board.has(path))
        })
    }

    /// cross/debian/prerm, and the removed units.
    pub(crate) fn remove_package(&mut self) {
        self.stop_unit();
        for (_, unit) in LINKS {
            self.board.remove_all(&format!("{UNITS}/{unit}"));
        }
        self.unit.is_enabled = self.is_linked(0);
    }

    /// The same, and cross/debian/postrm.
    pub(crate) fn purge_package(&mut self) {
        self.remove_package();
        for (link, _) in LINKS {
            self.board.remove_all(link);
        }
        if self.board.has(ENVIRONMENT[0]) {
            for name in ["kubeconfig", "bootstrap-kubeconfig"] {
                self.board.remove_all(&format!("etc/credstore/nodelet.{name}"));
            }
            self.board.remove_all(ENVIRONMENT[0]);
        }
        for name in ["kubeconfig", "bootstrap-kubeconfig", "k3s-password"] {
            self.board.remove_all(&format!("etc/credstore/nodelet.{name}.new"));
        }
        self.board.remove_all("etc/default/nodelet-join.new");
        self.remove_identity();
        self.board.remove_all("var/lib/nodelet");
        self.board.folder("var/lib/nodelet");
        self.tell_boots(false);
    }
}

#[test]
fn an_environment_file_is_read_as_systemd_reads_it() {
    let text = "# A=1\n\nNODELET_JOIN_FLAGS=--a --b=c  \nQ='--x=\"y z\" w'\nR=\"1\\\"2\"\nC=a \\\nb\nC=d\n\
        M=--x '--y=/a b'\n";
    let read = environment(text);
    let of = |name: &str| read.get(name).map_or("none", String::as_str);
    assert_eq!(of("NODELET_JOIN_FLAGS"), "--a --b=c");
    assert_eq!((of("Q"), of("R"), of("C"), of("A")), ("--x=\"y z\" w", "1\"2", "d", "none"));
    assert_eq!(split(of("Q")), ["--x=y z", "w"]);
    assert_eq!(split(of("M")), ["--x", "--y=/a b"]);
}
