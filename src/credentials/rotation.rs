//! The renewal of one certificate, one step at a time: a request, or one operation on a file.
//!
//! The agent, `nodelet serve` and `nodelet join` each have a [`Rotation`]. [`Certificate`] decides,
//! and [`CertificateFiles`] has the key and the files. The caller sends the requests.

use std::path::PathBuf;

use super::certificate::{Certificate, FileTask, TaskResult, Work};
use crate::kube::instant::{ClusterSeen, Mono};
use crate::kube::message::{Answer, Request, RequestError};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::os::write::{self, Changes, Op};

/// The key and the files of a certificate.
pub(crate) trait CertificateFiles {
    /// The operations that must precede [`Self::result`].
    fn operations(&mut self, _: &FileTask, _: Wall) -> Result<Vec<Op>, Fault> {
        Ok(Vec::new())
    }

    /// The rest of the task. `written` is the result of the operations, or why there are none.
    fn result(&mut self, task: &FileTask, written: Result<(), Fault>, now: Wall) -> TaskResult;

    /// The changes that nothing waits for, each with the message if it fails.
    fn take_later(&mut self) -> Vec<(&'static str, Vec<Op>)> {
        Vec::new()
    }
}

/// What a step did.
#[derive(Debug)]
pub(crate) enum RotationStep {
    /// A part of the file work.
    Files,
    /// This certificate is in use from now on.
    InUse(Leaf),
    /// Nothing: this request must be sent. [`Rotation::on_response`] takes its answer.
    Send(Request),
}

/// What a file change is for.
#[derive(Debug, PartialEq)]
enum Purpose {
    /// [`CertificateFiles::result`] follows.
    Task(FileTask),
    /// Nothing follows; the message if it fails.
    Later(&'static str),
}

impl Purpose {
    /// Whether an operation for this makes an issued certificate the current one. The other renames
    /// end a write.
    fn is_replacement((purpose, op): (&Self, &Op)) -> bool {
        let ends_write = |new: &PathBuf, path: &PathBuf| *new == write::beside(path);
        matches!(purpose, Self::Task(FileTask::Install(_)))
            && matches!(op, Op::Rename(new, path) if !ends_write(new, path))
    }
}

/// A certificate and its renewal.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// `None` if nothing is renewed.
    certificate: Option<Certificate>,
    changes: Changes<Purpose>,
    /// The creation time that [`Certificate::follow_node`] was last called with. It is called once
    /// for each Node, whatever the clocks show.
    node_created: Option<Wall>,
}

impl Rotation {
    pub(crate) fn new(certificate: Option<Certificate>) -> Self {
        Self { certificate, changes: Changes::none(), node_created: None }
    }

    /// When the next step is due. Logs once that the certificate has expired.
    ///
    /// The supervisor renews a certificate only for a Node that exists, so its renewal waits for
    /// the first Lease, after which the server's time is known, too. It does not wait without a
    /// certificate, or with an expired one: then there will be no Lease. The search in the files
    /// never waits: a server that refuses an expired certificate within TLS never tells the time,
    /// and the stored one may have been unread at the start.
    pub(crate) fn due(&mut self, at: ClusterSeen) -> Option<Mono> {
        let certificate = self.certificate.as_mut()?;
        let now = at.now;
        if let Some(created) = at.node_created {
            // A Node after another one of this process is the newer, whatever the clocks showed.
            let former = self.node_created.replace(created);
            if former != Some(created) {
                certificate.follow_node(created, former.is_some(), now.mono);
            }
        }
        let at_supervisor = certificate.kind.is_at_supervisor();
        // Before the server's time is known, a certificate of the supervisor counts as good.
        let knows_expiry = at.knows_time || !at_supervisor;
        if knows_expiry && let Some(line) = certificate.expiry_to_log(at) {
            log::warn!("certificate: {line}");
        }
        let has_none = certificate.is_missing() || knows_expiry && !certificate.is_usable(at);
        let waits = at_supervisor && !at.has_lease && !has_none;
        if waits { certificate.search_due(at) } else { Some(certificate.due(at)) }
    }

    /// Whether nothing is under way, and the next request is not due yet. What failed while the
    /// clock was ahead is no outage any more.
    pub(crate) fn is_settled(&self, at: ClusterSeen) -> bool {
        let is_settled = |it: &Certificate| {
            let is_new = matches!(it.next(at), Work::Files(FileTask::Sign { .. }));
            is_new && !it.until_renewal(at).is_zero()
        };
        self.changes.is_empty() && self.certificate.as_ref().is_some_and(is_settled)
    }

    /// Whether the next step is a request, and not file work.
    pub(crate) fn sends(&self, at: ClusterSeen) -> bool {
        let sends = |it: &Certificate| it.sends(at);
        self.changes.is_empty() && self.certificate.as_ref().is_some_and(sends)
    }

    /// Whether operations on files are left. They need no server.
    pub(crate) fn has_change(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether the board has no certificate, and so can send no other request.
    pub(crate) fn is_missing(&self) -> bool {
        self.certificate.as_ref().is_some_and(Certificate::is_missing)
    }

    /// Whether a certificate is issued and not stored yet.
    pub(crate) fn is_issued(&self, at: ClusterSeen) -> bool {
        let installs = |it: &Certificate| matches!(it.next(at), Work::Files(FileTask::Install(_)));
        self.certificate.as_ref().is_some_and(installs)
    }

    /// When the certificate must be replaced; 1970 for at once.
    pub(crate) fn deadline(&self) -> Option<Wall> {
        self.certificate.as_ref().map(|certificate| certificate.deadline)
    }

    /// Takes one step. As long as operations of earlier changes are left, the step is the next of
    /// them: a task must not read files of a change that has not ended.
    pub(crate) fn step(
        &mut self,
        files: &mut dyn CertificateFiles,
        at: ClusterSeen,
    ) -> Result<RotationStep, Fault> {
        let Some(certificate) = &mut self.certificate else {
            return Ok(RotationStep::Files);
        };
        let now = at.now;
        let (task, written) = if self.changes.is_empty() {
            certificate.give_up(at)?;
            let task = match certificate.next(at) {
                Work::Send(request) => return Ok(RotationStep::Send(request)),
                Work::Files(task) => task,
            };
            match files.operations(&task, now.wall) {
                Ok(ops) if !ops.is_empty() => {
                    self.changes.add(Purpose::Task(task), ops);
                    return Ok(RotationStep::Files);
                }
                none => (task, none.map(drop)),
            }
        } else {
            match self.changes.carry_out_next() {
                Some((Purpose::Task(task), written)) => (task, written),
                Some((Purpose::Later(failure), Err(why))) => {
                    log::warn!("{failure}: {why}");
                    return Ok(RotationStep::Files);
                }
                None | Some((Purpose::Later(_), Ok(()))) => return Ok(RotationStep::Files),
            }
        };
        let result = files.result(&task, written, now.wall);
        let later = files.take_later().into_iter().filter(|(_, ops)| !ops.is_empty());
        for (failure, ops) in later {
            self.changes.add(Purpose::Later(failure), ops);
        }
        let new = match &result {
            TaskResult::InUse(leaf) => Some(leaf.clone()),
            _ => None,
        };
        certificate.on_task(result, at)?;
        Ok(new.map_or(RotationStep::Files, RotationStep::InUse))
    }

    /// Takes the answer of the request. If the CSR waits for long, logs a line that begins with
    /// `what`.
    pub(crate) fn on_response(
        &mut self,
        what: &str,
        answer: Answer,
        at: ClusterSeen,
    ) -> Result<(), RequestError> {
        if let Some(certificate) = &mut self.certificate
            && let Some(line) = certificate.on_response(answer, at)?
        {
            log::info!("{what}: {line}");
        }
        Ok(())
    }

    /// Whether the next operation makes an issued certificate the current one.
    pub(crate) fn replaces_next(&self) -> bool {
        self.changes.left().next().is_some_and(Purpose::is_replacement)
    }

    /// Whether an issued certificate is the current one on disk, and its task has not ended.
    pub(crate) fn has_replaced(&self) -> bool {
        let is_install =
            |(purpose, _): (&Purpose, &Op)| matches!(purpose, Purpose::Task(FileTask::Install(_)));
        self.changes.left().any(is_install) && !self.changes.left().any(Purpose::is_replacement)
    }

    /// Another program put this certificate into the files; it is in use. An issued one does not
    /// take its place any more.
    pub(crate) fn on_replaced(&mut self, leaf: Leaf, at: ClusterSeen) {
        if self.changes.left().any(Purpose::is_replacement) {
            self.changes = Changes::none();
        }
        if let Some(certificate) = &mut self.certificate {
            certificate.on_replaced(leaf, at);
        }
    }
}
