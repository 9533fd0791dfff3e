//! What administrators ask a rank: its sessions, its cache, its journal.

use std::time::Duration;

use types::{EntityInst, GlobalId};

use super::server::Server;
use super::session::State;
use crate::format::ClientMetadata;

/// A session as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionView {
    pub client: GlobalId,
    pub inst: EntityInst,
    /// `opening`, `open`, `stale`, `closing`, `killing`.
    pub state: &'static str,
    pub caps: usize,
    /// Requests that wait or run.
    pub requests: usize,
    pub completed_requests: usize,
    pub completed_flushes: usize,
    /// Since it was last renewed.
    pub silent: Duration,
    pub is_connected: bool,
    pub metadata: ClientMetadata,
}

/// What is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheView {
    pub inodes: usize,
    pub fragments: usize,
    pub caps: usize,
    pub strays: usize,
    /// Things that are in the journal and not in their objects.
    pub dirty: usize,
    pub requests: usize,
    /// Events that the next server would replay.
    pub log_events: u64,
}

impl Server {
    pub fn session_views(&self) -> Vec<SessionView> {
        let shown = self.sessions.iter().filter(|(_, s)| s.state != State::Closed);
        shown
            .map(|(client, s)| SessionView {
                client: *client,
                inst: s.info.client.clone(),
                state: s.state.name(),
                caps: s.caps.len(),
                requests: s.requests.len(),
                completed_requests: s.info.completed_requests.len(),
                completed_flushes: s.info.completed_flushes.len(),
                silent: self.now.mono.saturating_sub(s.renewed),
                is_connected: s.conn.is_some(),
                metadata: s.info.metadata.clone(),
            })
            .collect()
    }

    pub fn cache_view(&self) -> CacheView {
        let strays = self
            .cache
            .dirs
            .iter()
            .filter(|(frag, _)| crate::format::names::stray_owner(frag.ino).is_some())
            .map(|(_, dir)| dir.entries.values().filter(|d| !d.target.is_null()).count());
        CacheView {
            inodes: self.cache.inodes.len(),
            fragments: self.cache.dirs.len(),
            caps: self.sessions.values().map(|s| s.caps.len()).sum(),
            strays: strays.sum(),
            dirty: self.dirty.len(),
            requests: self.requests.len(),
            log_events: self.log_events(),
        }
    }

    /// Begins to write everything that is in the journal alone to its objects; to be called again at each
    /// tick until [`CacheView::dirty`] is 0.
    pub fn flush_journal(&mut self) {
        self.sum_all();
        self.write_all();
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Stale => "stale",
            Self::Closing => "closing",
            Self::Killing => "killing",
        }
    }
}
