//! The reader of the file that `nodelet runtime` writes.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::form::{self, NOT_YET};
use crate::kube::facts::RuntimeFacts;
use crate::kube::instant::Mono;
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::os::clock::{boot_number, is_other_boot};
use crate::os::guard;
use crate::os::read::{LARGE, cause, from_start, open};

/// A runtime without success for this time is down (maxWaitForContainerRuntime of the kubelet).
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// `nodelet runtime` writes every 10 s. If the last success is older than this, the next status is
/// computed when that success is 30 s old, because then the runtime is down.
const LATE_AFTER: Duration = Duration::from_secs(15);
/// For this time after the start, a first success is looked for every [`RETRY`].
const STARTING: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_secs(1);

const SEE_LOG: &str = "see the log of nodelet runtime";
const DOWN: &str = "container runtime is down";

/// The file, and what was last read of it.
#[derive(Debug)]
pub struct RuntimeFile {
    path: PathBuf,
    /// Stays open while it has not been replaced, and its time advances.
    file: Option<File>,
    /// The JSON of `facts`. If the file has the same JSON again, it is not parsed again.
    json: String,
    facts: RuntimeFacts,
    /// The last success, by [`clock::awake`](crate::os::clock::awake).
    success: Option<Duration>,
    boot: u64,
    log: OutageLog,
}

impl RuntimeFile {
    /// Reads nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file: None,
            json: String::new(),
            facts: form::unknown(),
            success: None,
            boot: boot_number(),
            log: OutageLog::new("container runtime"),
        }
    }

    /// What the Node reports now, and when it may change without a change of the file. A file that
    /// is missing, damaged or of another boot changes nothing: the facts that were read before
    /// stay, and their last success grows old.
    pub fn facts(&mut self, now: Mono, awake: Duration) -> (RuntimeFacts, Option<Mono>) {
        let fresh = self.fresh(awake);
        let mut facts = self.facts.clone();
        let due = match (self.success, &fresh) {
            (None, _) => {
                facts.down = Some(NOT_YET);
                (now < Mono::START.after(STARTING)).then(|| now.after(RETRY))
            }
            (Some(success), Ok(())) => {
                let age = awake.saturating_sub(success);
                (age >= LATE_AFTER).then(|| now.after(DOWN_AFTER - age))
            }
            (Some(_), Err(_)) => {
                facts.down = Some(DOWN);
                facts.version = facts.version.map(|version| {
                    let kind = version.split("://").next().unwrap_or_default();
                    format!("{kind}://Unknown")
                });
                None
            }
        };
        let error = fresh.err().map(|why| why.to_string());
        self.log.ended(error.as_deref(), now);
        (facts, due)
    }

    /// Reads the file. `Ok` if the last success is less than 30 s old; the error says why it is
    /// older, or not known.
    pub fn fresh(&mut self, awake: Duration) -> Result<(), Fault> {
        let read = self.read(awake);
        let age = self.success.map(|at| awake.saturating_sub(at));
        match (age, read) {
            (Some(age), _) if age < DOWN_AFTER => Ok(()),
            (_, Err(why)) => Err(Fault::new(
                format!("{}: {why}", self.path.display()),
                "is nodelet runtime running?",
            )),
            (None, Ok(())) => Err(Fault::new("it has not answered yet", SEE_LOG)),
            (Some(age), Ok(())) => {
                Err(Fault::new(format!("no success for {} s", age.as_secs()), SEE_LOG))
            }
        }
    }

    fn read(&mut self, awake: Duration) -> Result<(), Fault> {
        let kept = self.file.take();
        let kept = kept.filter(|file| file.metadata().is_ok_and(|file| file.nlink() > 0));
        let found = || guard::found(&self.path).and_then(|path| open(&path));
        let file = kept.map_or_else(found, Ok).map_err(|error| cause(&error))?;
        let is_whole = &mut |text: &mut Vec<u8>| text.ends_with(b"\n");
        let text = from_start(&file, LARGE, is_whole).map_err(|error| cause(&error))?;
        let text = str::from_utf8(&text).unwrap_or_default();
        let (success, json, boot) =
            form::split(text).ok_or("it was not written by nodelet runtime")?;
        let is_other = is_other_boot(boot, self.boot);
        if is_other || success.is_some_and(|at| at > awake) {
            return Err("it is of another boot".into());
        }
        if json != self.json {
            self.facts = serde_json::from_str(json).map_err(|error| error.to_string())?;
            json.clone_into(&mut self.json);
        }
        if success > self.success {
            (self.success, self.file) = (success, Some(file));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(second: u64) -> Mono {
        Mono::START.after(seconds(second))
    }

    /// A board that was 1,000 s old when the agent started.
    const START: u64 = 1000;

    struct Reader {
        file: RuntimeFile,
        tree: Tree,
    }

    impl Reader {
        fn new() -> Self {
            let tree = Tree::empty("runtime-file");
            Self { file: RuntimeFile::new(tree.path().join("facts")), tree }
        }

        /// Writes the file as after a success at `second`.
        fn success(&self, version: &str, second: u64) {
            let facts =
                RuntimeFacts { version: Some(version.to_owned()), ..RuntimeFacts::default() };
            self.write(&form::file(&facts, Some(seconds(START + second)), 0));
        }

        fn write(&self, text: &str) {
            self.tree.write("facts", text.as_bytes());
        }

        fn read(&mut self, second: u64) -> (RuntimeFacts, Option<Mono>) {
            self.file.facts(at(second), seconds(START + second))
        }

        /// Version, and Ready's line.
        fn told(&mut self, second: u64) -> (String, Option<&'static str>) {
            let facts = self.read(second).0;
            (facts.version.unwrap_or_default(), facts.down)
        }
    }

    fn well(version: &str) -> (String, Option<&'static str>) {
        (version.to_owned(), None)
    }

    fn down() -> (String, Option<&'static str>) {
        ("containerd://Unknown".to_owned(), Some(DOWN))
    }

    /// Whatever happens to the file, what was read before counts for 30 s.
    #[test]
    fn without_a_fresh_file_the_runtime_is_down_after_30_s_and_back_with_the_next_one() {
        let version = "containerd://2.1.9";
        let newer = |at: u64| form::file(&RuntimeFacts::default(), Some(seconds(START + at)), 0);
        let other_boot = form::file(&RuntimeFacts::default(), Some(seconds(START + 129)), 1);
        let whole = newer(109);
        let torn = whole.replacen('9', "8", 1);
        for (name, content) in [
            ("not written again", None),
            ("empty", Some("")),
            ("half written", Some(&whole[..whole.len() / 2])),
            ("cut behind its first line", Some(whole.split_inclusive('\n').next().unwrap())),
            ("garbage", Some("\u{1}\u{2}\nx\n")),
            ("no facts", Some("0000001100000 0000001100000\n[1]\n")),
            ("between two times", Some(&torn)),
            ("of another boot", Some(&newer(90_000))),
            ("of another boot, and no older", Some(&other_boot)),
            ("huge", Some("0".repeat(2 << 20).as_str())),
        ] {
            let mut reader = Reader::new();
            reader.success(version, 100);
            assert_eq!(reader.told(100), well(version));
            if let Some(content) = content {
                reader.write(content);
            }
            assert_eq!(reader.told(129), well(version), "{name}");
            assert_eq!(reader.told(130), down(), "{name}");
            assert_eq!(reader.told(9000), down(), "{name}");
            reader.success("containerd://2.2.0", 9005);
            assert_eq!(reader.told(9010), well("containerd://2.2.0"), "{name}");
        }
    }

    /// `nodelet runtime` writes a new file then.
    #[test]
    fn a_file_that_was_moved_away_is_left_when_its_time_stands() {
        let mut reader = Reader::new();
        reader.success("containerd://2.1.9", 100);
        assert_eq!(reader.told(100), well("containerd://2.1.9"));
        let path = reader.tree.path().join("facts");
        std::fs::rename(&path, path.with_extension("moved")).unwrap();
        reader.success("containerd://2.2.0", 110);
        assert_eq!(reader.told(110), well("containerd://2.1.9"));
        assert_eq!(reader.told(120), well("containerd://2.2.0"));
    }

    #[test]
    fn a_status_is_computed_when_a_late_runtime_counts_as_down_and_each_second_at_the_start() {
        let mut reader = Reader::new();
        assert_eq!(reader.read(0).1, Some(at(1)));
        assert_eq!(reader.read(119).1, Some(at(120)));
        assert_eq!(reader.read(120).1, None);
        reader.success("containerd://2.1.9", 207);
        assert_eq!(reader.read(208).1, None);
        assert_eq!(reader.read(218).1, None, "the next one is not late");
        assert_eq!(reader.read(228).1, Some(at(237)));
        assert_eq!(reader.read(237).1, None);
    }

    /// Either program may be the newer one.
    #[test]
    fn unknown_members_and_lines_are_ignored_and_missing_ones_are_not_known() {
        let mut reader = Reader::new();
        let json = r#"{"new": {"a": [1]}, "images": [{"id": "a", "age": 7}], "handlers": [{}]}"#;
        reader.write(&format!("0000001000000 0000001000000\n{json}\nanother line\n"));
        let facts = reader.read(1).0;
        assert_eq!((facts.version, facts.down, facts.network), (None, None, None));
        let images = facts.images.unwrap();
        assert_eq!((images[0].id.as_str(), images[0].size_bytes), ("a", 0));
        assert_eq!(facts.handlers.unwrap().len(), 1);
    }

    /// After a restart of `nodelet runtime`, and in `nodelet check`.
    #[test]
    fn a_file_that_is_not_fresh_says_why() {
        let mut reader = Reader::new();
        let why =
            |reader: &mut Reader| reader.file.fresh(seconds(START + 200)).unwrap_err().to_string();
        let path = reader.tree.path().join("facts").display().to_string();
        assert_eq!(
            why(&mut reader),
            format!("{path}: no such file or directory; is nodelet runtime running?")
        );
        reader.write(&form::file(&form::unknown(), None, 0));
        assert_eq!(why(&mut reader), "it has not answered yet; see the log of nodelet runtime");
        reader.success("containerd://2.1.9", 100);
        assert_eq!(why(&mut reader), "no success for 100 s; see the log of nodelet runtime");
        reader.success("containerd://2.1.9", 199);
        assert_eq!(reader.file.fresh(seconds(START + 200)), Ok(()));
    }
}
