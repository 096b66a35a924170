//! What a run comes to: its verdict, and a number that is the same for the same run.

use std::time::Duration;

use super::Outcome;
use super::process::Exit;
use super::trace::{Entry, What};

/// The verdict of a run, and the exit status that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Ok,
    Safety,
    Liveness,
    Panic,
    /// The same plan gave another trace.
    Replay,
    /// The simulator itself panicked.
    Simulator,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Safety => "safety",
            Self::Liveness => "liveness",
            Self::Panic => "panic",
            Self::Replay => "replay",
            Self::Simulator => "simulator",
        }
    }

    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::Safety => 1,
            Self::Simulator => 2,
            Self::Liveness => 3,
            Self::Replay => 4,
            Self::Panic => 5,
        }
    }

    /// Whether the agent is to blame.
    pub(crate) fn is_of_the_agent(self) -> bool {
        matches!(self, Self::Safety | Self::Liveness | Self::Panic)
    }
}

/// The sentence of recovery: something good does not happen. Each other sentence is of safety.
const LIVENESS: usize = 2;

impl Outcome {
    pub(crate) fn verdict(&self) -> Verdict {
        let mut panics = self.trace.iter().filter_map(|entry| match &entry.what {
            What::Ends { exit: Exit::Panic(text), .. } => Some(text),
            _ => None,
        });
        let first = panics.next();
        if first.into_iter().chain(panics).any(|text| !super::panics::is_of_the_agent(text)) {
            return Verdict::Simulator;
        }
        match &self.broken {
            None => Verdict::Ok,
            Some((_, broken)) if broken.kind.contains("panicked") => Verdict::Panic,
            Some((sentence, _)) if sentence.number == LIVENESS => Verdict::Liveness,
            Some(_) => Verdict::Safety,
        }
    }

    /// How long the run was.
    pub(crate) fn virtual_time(&self) -> Duration {
        self.trace.last().map_or(Duration::ZERO, |entry| entry.at)
    }

    /// The same number for the same run.
    pub(crate) fn hash(&self) -> u64 {
        // FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>.
        self.trace.iter().map(comparable).fold(0xcbf2_9ce4_8422_2325, |hash, line| {
            line.bytes()
                .chain([b'\n'])
                .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        })
    }
}

/// Where two traces differ first, for the eye.
pub(crate) fn difference(one: &[Entry], other: &[Entry]) -> String {
    let mut pairs = one.iter().map(comparable).zip(other.iter().map(comparable)).enumerate();
    match pairs.find(|(_, (one, other))| one != other) {
        Some((number, (one, other))) => format!("entry {number}:\n  {one}\n  {other}"),
        None => format!("{} and {} entries", one.len(), other.len()),
    }
}

/// An entry without what ring draws: keys, signatures, certificates and their digests.
pub(crate) fn comparable(entry: &Entry) -> String {
    let line = entry.to_string();
    let mut kept = String::with_capacity(line.len());
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    for word in line.split_inclusive(|c: char| !is_inside(c)) {
        let body = word.trim_end_matches(|c: char| !is_inside(c));
        let tail = &word[body.len()..];
        match is_drawn(body) {
            true => kept.push('*'),
            false => kept.push_str(body),
        }
        kept.push_str(tail);
    }
    kept
}

/// Whether a word is base64 or hexadecimal digits of a key, a certificate or a digest.
fn is_drawn(word: &str) -> bool {
    let word = word.rsplit('/').next().filter(|last| last.len() >= 40).unwrap_or(word);
    // One digest in 40 has fewer than three digits.
    let is_rare = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    word.len() >= 40 && word.bytes().filter(is_rare).count() >= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_request_for_a_certificate_is_not_compared() {
        let compared = |text: &str| {
            let what = What::Print { pid: 0, text: text.to_owned() };
            comparable(&Entry { at: Duration::ZERO, what })
        };
        let name = compared("node-csr-F5ANFON2Of08qo-AsBY4w6GPH6LdvCUhsgUzVzuyB1c");
        assert_eq!(compared("node-csr-FbANFONxOfuhqo-AsBYhwfGPHfLdvCUhsgUzVzuyBxc"), name);
        assert!(compared("--kubeconfig=/var/lib/nodelet/kubeconfig").contains("kubeconfig"));
    }
}
