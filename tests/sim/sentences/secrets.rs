//! Sentence 8: the bytes of a secret (a token, a password, a private key) are in no request to a
//! server of another cluster or with a wrong certificate, in no log line, no line on stderr, no
//! status line and no file that others may read; a private key is in no request at all. The world
//! marks each secret and searches for it (`watch`), because no trace has the heads of requests.

use super::{Judged, Run, Sentence};
use crate::sim::trace::What;

pub(super) const SENTENCE: Sentence = Sentence { number: 8, name: "secrets", judge };

fn judge(run: &Run<'_>) -> Judged {
    let is_searched = |what: &What| {
        matches!(
            what,
            What::Request(_)
                | What::Log { .. }
                | What::Print { .. }
                | What::Notify { .. }
                | What::File { .. }
        )
    };
    let searched = run.trace.iter().filter(|entry| is_searched(&entry.what));
    Judged { count: searched.count() as u64, ..Judged::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::os::write::Op;
    use crate::sim::sentences::planted::{judged_trace, quiet_plan};
    use crate::sim::world::World;

    /// The world in which a board has a secret, after `act`.
    fn broken_by(act: impl FnOnce(&mut World, &str)) -> Option<String> {
        let mut world = World::new(quiet_plan());
        let pem =
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END", "0123456789abcdef".repeat(8));
        world.mark_key(&pem);
        act(&mut world, &pem);
        judged_trace(&SENTENCE, &world.trace).broken.map(|broken| broken.text)
    }

    #[test]
    fn planted_secrets_are_found() {
        assert_eq!(broken_by(|world, _| world.printed(1, "nothing")), None);
        assert!(broken_by(|world, pem| world.printed(1, &pem[28..])).is_some());
        let write = |mode| {
            broken_by(|world, pem| {
                let content = pem.as_bytes().to_vec().into();
                drop(world.changes(1, &Op::Write("/var/key".into(), mode, content)));
            })
        };
        assert_eq!((write(0o600), write(0o640).is_some()), (None, true));
        let send = |text: &str, is_forged| {
            broken_by(|world, pem| {
                let bytes = text.replace("PEM", &pem[28..]);
                world.search_request(
                    0,
                    is_forged,
                    &apidouble::Request::default(),
                    bytes.as_bytes(),
                );
            })
        };
        assert_eq!(send("GET /", false), None);
        assert!(send("PEM", false).is_some() && send("GET /", true).is_some());
        assert_eq!(Duration::ZERO, World::new(quiet_plan()).now);
    }
}
