//! The state of the Node's requests: the next request, which is then the one in flight.

use serde_json::Value;

use crate::config::Config;

/// A patch that was sent has a state of its own, which holds what its response needs.
#[derive(Debug)]
pub(super) enum NodeState {
    /// The Node must be created.
    Create,
    /// The Node must be read: it is not known, or may have changed on the server.
    Read(Round),
    /// The cached Node is the server's. It is patched if its desired state differs.
    Patch(Round),
    /// The patch was sent.
    Patching {
        round: Round,
        /// The Node with the patch applied.
        want: Value,
        content: Content,
    },
}

/// What a patch writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// More than heartbeats.
    Change,
    /// Heartbeats.
    Report,
    /// Nothing: only its precondition says whether the cached Node is still the server's.
    Check,
}

/// One round of reads and patches, until a patch is accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// The Node existed before this process, and the patch adopts it.
    pub(super) adopts: bool,
    /// Number of patches in a row that got a 409.
    pub(super) conflicts: u32,
}

impl Round {
    /// The first round of an existing Node.
    pub(super) const ADOPTION: Self = Self { adopts: true, conflicts: 0 };
}

impl NodeState {
    /// The first request reads the Node, because it exists at most starts.
    pub(super) fn first(config: &Config) -> Self {
        let round = if config.node.register { Round::ADOPTION } else { Round::default() };
        Self::Read(round)
    }

    /// The state after a failed request: the Node is read, in the same round. After a failed create
    /// the round is an adoption, because the Node may exist.
    pub(super) fn read_again(&self) -> Self {
        Self::Read(self.round().unwrap_or(Round::ADOPTION))
    }

    /// The current round; `None` before the Node is created.
    pub(super) fn round(&self) -> Option<Round> {
        match self {
            Self::Create => None,
            Self::Read(round) | Self::Patch(round) | Self::Patching { round, .. } => Some(*round),
        }
    }

    /// Whether the next write creates or adopts the Node.
    pub(super) fn registers(&self) -> bool {
        self.round().is_none_or(|round| round.adopts)
    }
}
