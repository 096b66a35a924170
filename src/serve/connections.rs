//! The connections: how many there are, which one makes room, and when the next one ends.

use std::time::Duration;

use super::connection::{ConnectionState, PortConnection};
use crate::kube::instant::Mono;

/// Most connections. A scraper keeps one.
pub(super) const MOST: usize = 8;
/// In the first 2 s of a handshake or a head a connection is not closed to make room for another
/// one: its link may be slow. Nor is one whose client had no answer yet.
const YOUNG: Duration = Duration::from_secs(2);

/// The open connections, at most [`MOST`].
#[derive(Debug)]
pub(super) struct Connections(pub(super) Vec<PortConnection>);

impl Connections {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(MOST))
    }

    /// From when on another connection has room; `None` while each one is busy.
    pub(super) fn room(&self) -> Option<Mono> {
        if self.0.len() < MOST {
            return Some(Mono::START);
        }
        self.0.iter().filter_map(Self::spare_from).min()
    }

    /// Adds a connection. Of those that had an answer the one that does nothing for the longest
    /// time makes room, else the one of the others that waits for the longest time.
    pub(super) fn add(&mut self, new: PortConnection, now: Mono) {
        if self.0.len() >= MOST {
            let spare = self.0.iter().enumerate().filter(|(_, connection)| {
                Self::spare_from(connection).is_some_and(|from| from <= now)
            });
            let order = |c: &PortConnection| (!Self::is_content(c), c.since);
            let Some((index, _)) = spare.min_by_key(|(_, connection)| order(connection)) else {
                return;
            };
            self.0.swap_remove(index);
        }
        self.0.push(new);
    }

    /// From when on a connection may be closed for another one.
    fn spare_from(connection: &PortConnection) -> Option<Mono> {
        match connection.state {
            ConnectionState::Answer | ConnectionState::Journal => None,
            _ if Self::is_content(connection) => Some(connection.since),
            _ => Some(connection.since.after(YOUNG)),
        }
    }

    /// Whether its client has what it asked for.
    fn is_content(connection: &PortConnection) -> bool {
        let is_quiet = matches!(connection.state, ConnectionState::Idle | ConnectionState::Closing);
        is_quiet && connection.was_answered
    }

    /// Does not count the time since `start`, in which none of them had a turn: what a client sent
    /// meanwhile is not read yet.
    pub(super) fn skip_time(&mut self, start: Mono, now: Mono) {
        for connection in &mut self.0 {
            connection.since = connection.since.after(now.since(start));
        }
    }

    /// Closes those whose time is over. Returns when the next one's is.
    pub(super) fn expire(&mut self, now: Mono) -> Option<Mono> {
        self.0.retain_mut(|connection| now < connection.deadline() || connection.outlives(now));
        self.0.iter().map(PortConnection::deadline).min()
    }
}
