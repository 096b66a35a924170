//! Where the Node's request stands: what is to be sent next, or what was sent.

use serde_json::Value;

/// One state for the Node's request. While a request is under way, the state holds what its
/// response needs.
#[derive(Debug)]
pub(super) enum State {
    /// To be created.
    Create,
    /// The create was sent.
    Creating,
    /// To be read: the server's Node is not known, or may have changed.
    Read(Round),
    /// The read was sent.
    Reading(Round),
    /// The server's Node is known. It is patched where it differs from the facts.
    Known {
        round: Round,
        /// It was read in this very turn, so a report needs no further read.
        just_read: bool,
    },
    /// The patch was sent.
    Patching {
        round: Round,
        /// The Node as the patch makes it.
        want: Value,
        /// The patch carries more than a heartbeat.
        changed: bool,
    },
}

/// One round of reads and patches, until a patch is accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// The Node existed before this process: the patch makes it ours.
    pub(super) adopts: bool,
    /// Patches in a row that were answered with 409.
    pub(super) conflicts: u32,
}

impl Round {
    /// The first round of a Node that exists already.
    pub(super) const ADOPTION: Self = Self {
        adopts: true,
        conflicts: 0,
    };
}

impl State {
    /// The round that goes on; a Node that is to be created has none yet.
    pub(super) fn round(&self) -> Option<Round> {
        match self {
            Self::Create | Self::Creating => None,
            Self::Read(round)
            | Self::Reading(round)
            | Self::Known { round, .. }
            | Self::Patching { round, .. } => Some(*round),
        }
    }

    /// Whether the next request is the first one that makes the Node ours.
    pub(super) fn registers(&self) -> bool {
        self.round().is_none_or(|round| round.adopts)
    }
}
