//! The map of metadata servers: asked for, and what its changes mean for sessions.

use std::collections::BTreeMap;

use codec::Decode;
use maps::{FsMapUser, MdsMap, MdsState, Rank};
use messages::Message;
use messages::mon::{MMdsMap, MMonSubscribe, SubscribeItem};
use types::Errno;

use crate::core::Client;
use crate::io::{Call, Effect, Ticket};
use crate::session::State;

impl Client {
    /// By name, the file system's number has to be found first. Source: Client::subscribe_mdsmap.
    pub(crate) fn subscribe(&mut self) {
        if !self.is_mon_ready {
            return;
        }
        let start = u64::from(self.map.epoch.0) + 1;
        let (what, item) = match (&self.settings.fs_name, self.fs) {
            (Some(_), None) => {
                ("fsmap.user".to_owned(), SubscribeItem { start: 0, flags: SubscribeItem::ONETIME })
            }
            (_, Some(fs)) => (format!("mdsmap.{fs}"), SubscribeItem { start, flags: 0 }),
            (None, None) => ("mdsmap".to_owned(), SubscribeItem { start, flags: 0 }),
        };
        let what = BTreeMap::from([(what, item)]);
        self.out.push(Effect::SendMon(MMonSubscribe { what, hostname: String::new() }.into()));
    }

    pub(crate) fn on_mon(&mut self, msg: Message) {
        match msg {
            Message::FsMapUser(m) => {
                let Ok(map) = FsMapUser::from_bytes(m.map.0) else { return };
                let wanted = self.settings.fs_name.as_ref();
                let found = map.names.iter().find(|(_, name)| Some(*name) == wanted);
                match found {
                    Some((fs, _)) => {
                        self.fs = Some(*fs);
                        self.subscribe();
                    }
                    None => self.fail_mounts(Errno::ENOENT),
                }
            }
            Message::MdsMap(m) => self.on_map(m),
            _ => {}
        }
    }

    fn fail_mounts(&mut self, errno: Errno) {
        let is_mount = |call: &Call| matches!(call, Call::Mount { .. });
        let mounts: Vec<Ticket> =
            self.calls.iter().filter(|(_, r)| is_mount(&r.call)).map(|(t, _)| *t).collect();
        for ticket in mounts {
            self.requests.retain(|_, r| r.ticket != Some(ticket));
            self.done(ticket, Err(errno));
        }
    }

    /// Source: Client::handle_mds_map.
    pub(crate) fn on_map(&mut self, m: MMdsMap) {
        let Ok(map) = MdsMap::from_bytes(m.map) else { return };
        if map.epoch <= self.map.epoch {
            return;
        }
        if !map.enabled {
            // No file system is there (yet): whoever mounts hears so.
            self.fail_mounts(Errno::ENOENT);
        }
        let old = std::mem::replace(&mut self.map, map);
        let ranks: Vec<Rank> = self.sessions.keys().copied().collect();
        for rank in ranks {
            self.session_after_map(rank, &old);
        }
        self.send_waiting();
        self.wake_settling();
    }

    pub(crate) fn state_of(map: &MdsMap, rank: Rank) -> MdsState {
        map.holder(rank).map_or(MdsState::NULL, |i| i.state)
    }

    pub(crate) fn is_serving(&self, rank: Rank) -> bool {
        matches!(Self::state_of(&self.map, rank), MdsState::ACTIVE | MdsState::STOPPING)
    }

    /// Any rank that serves, for what no inode leads to.
    pub(crate) fn some_rank(&self) -> Option<Rank> {
        self.map.up.keys().copied().find(|rank| Self::state_of(&self.map, *rank) == MdsState::ACTIVE)
    }

    fn session_after_map(&mut self, rank: Rank, old: &MdsMap) {
        let new = Self::state_of(&self.map, rank);
        let mut before = Self::state_of(old, rank);
        let Some(holder) = self.map.holder(rank) else {
            // A rank that is gone for good takes its session along; another holder may come for others.
            self.drop_conn(rank);
            if rank >= self.map.max_mds && !self.map.r#in.contains(&rank) {
                self.close_session(rank, Errno::EIO);
            }
            return;
        };
        let (gid, addrs) = (holder.gid, holder.addrs.clone());
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        if session.gid != gid && matches!(session.state, State::Rejected(_)) {
            // Another server may allow what this one refused.
            self.sessions.remove(&rank);
            return;
        }
        if session.gid != gid {
            session.gid = gid;
            session.addrs = addrs;
            before = MdsState::NULL;
            self.drop_conn(rank);
        } else if before == new {
            return;
        }
        if new == MdsState::RECONNECT {
            return self.reconnect(rank);
        }
        if new.0 < MdsState::RECONNECT.0 {
            return;
        }
        if before.0 < MdsState::RECONNECT.0 {
            // Nobody asked for our reconnect, or we missed the time for it: the session is void.
            return self.close_session(rank, Errno::EIO);
        }
        if new.0 >= MdsState::ACTIVE.0 && before.0 < MdsState::ACTIVE.0 {
            self.kick_flushes(rank);
            self.wake_session(rank);
            self.renew(rank);
            let is_opening = self.sessions.get(&rank).is_some_and(|s| s.state == State::Opening);
            if is_opening {
                self.ask_open(rank);
            }
        }
    }
}
