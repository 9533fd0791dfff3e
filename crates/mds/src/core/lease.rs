//! Leases on names: taken back before a name changes, at the latest when their time is over.
//!
//! Source: Locker::handle_client_lease, Locker::revoke_client_leases.

use messages::fs::{FileName, LeaseAction, MClientLease};
use types::{GlobalId, Ino, SnapId};

use super::cache::{Dentry, Key, Lease, Target};
use super::request::{Request, Run, Stop, Wait};
use super::server::Server;
use crate::format::DirFrag;

impl Server {
    /// No other client takes the name for granted any more; else the request waits.
    pub(crate) fn free_name(&mut self, request: &Request, frag: DirFrag, key: &Key) -> Run<()> {
        let now = self.now.mono;
        self.suppose_leases(frag, key);
        let Some(dentry) = self.cache.dentry_mut(frag, key) else { return Ok(()) };
        if let Some((client, seq)) = dentry.unsafe_by {
            if client != request.client && seq > self.safe_seq {
                return Err(Stop::Wait(Wait::Safe(seq)));
            }
        }
        let by = request.client;
        dentry.leases.retain(|c, lease| *c == by || lease.until > now);
        let mut told = Vec::new();
        for (client, lease) in dentry.leases.iter_mut().filter(|(c, _)| **c != by) {
            if !lease.is_revoked {
                lease.is_revoked = true;
                told.push((*client, lease.seq));
            }
        }
        if dentry.leases.keys().all(|c| *c == by) {
            return Ok(());
        }
        for (client, seq) in told {
            let m = lease_message(LeaseAction::REVOKE, frag.ino, &key.name, seq);
            self.push(client, 0, m.into());
        }
        Err(Stop::Wait(Wait::Lease(frag, key.clone())))
    }

    /// Leases that a former server gave are known to nobody but the clients: each that came back may have
    /// one, until its time is over.
    fn suppose_leases(&mut self, frag: DirFrag, key: &Key) {
        let until = self.old_leases_until;
        if self.now.mono >= until || !self.asked_names.insert((frag, key.clone())) {
            return;
        }
        let may_have: Vec<GlobalId> = self.recon.came.iter().copied().collect();
        let may_have: Vec<GlobalId> =
            may_have.into_iter().filter(|c| self.sessions.get(c).is_some_and(|s| s.conn.is_some())).collect();
        let Some(dir) = self.cache.dirs.get_mut(&frag) else { return };
        let dentry = dir.entries.entry(key.clone()).or_insert_with(|| Dentry::new(Target::Null));
        for client in may_have {
            dentry.leases.entry(client).or_insert(Lease { seq: 0, until, is_revoked: false });
        }
    }

    pub(crate) fn on_lease(&mut self, client: GlobalId, m: &MClientLease) {
        match m.action {
            LeaseAction::RELEASE | LeaseAction::REVOKE_ACK => {
                self.drop_lease(client, m.ino, &m.name, Some(m.seq));
            }
            LeaseAction::RENEW => self.renew_lease(client, m),
            _ => {}
        }
    }

    fn renew_lease(&mut self, client: GlobalId, m: &MClientLease) {
        let until = self.now.mono + self.settings.lease;
        let Some((frag, key)) = self.cache.spot(m.ino, &m.name) else { return };
        let duration_ms = u32::try_from(self.settings.lease.as_millis()).unwrap_or(u32::MAX);
        let Some(lease) = self.cache.dentry_mut(frag, &key).and_then(|d| d.leases.get_mut(&client)) else {
            return;
        };
        if lease.is_revoked || lease.seq != m.seq {
            return;
        }
        lease.seq = lease.seq.wrapping_add(1);
        lease.until = until;
        let m = MClientLease { seq: lease.seq, duration_ms, ..m.clone() };
        self.push(client, 0, m.into());
    }

    pub(crate) fn drop_lease(&mut self, client: GlobalId, dir: Ino, name: &FileName, seq: Option<u32>) {
        let Some((frag, key)) = self.cache.spot(dir, name) else { return };
        let Some(dentry) = self.cache.dentry_mut(frag, &key) else { return };
        let is_it = dentry.leases.get(&client).is_some_and(|l| seq.is_none_or(|s| s == l.seq));
        if is_it {
            dentry.leases.remove(&client);
            self.wake(&Wait::Lease(frag, key));
        }
    }

    /// Leases whose time is over are awaited no longer.
    pub(crate) fn expire_leases(&mut self) {
        let now = self.now.mono;
        if now >= self.old_leases_until {
            self.asked_names.clear();
        }
        let over: Vec<Wait> = self
            .waits
            .keys()
            .filter(|w| match w {
                Wait::Lease(frag, key) => {
                    self.cache.dentry(*frag, key).is_none_or(|d| d.leases.values().any(|l| l.until <= now))
                }
                _ => false,
            })
            .cloned()
            .collect();
        over.iter().for_each(|w| self.wake(w));
    }
}

fn lease_message(action: LeaseAction, ino: Ino, name: &FileName, seq: u32) -> MClientLease {
    MClientLease {
        action,
        mask: messages::fs::LeaseStat::VALID,
        ino,
        first: SnapId::HEAD,
        last: SnapId::HEAD,
        seq,
        duration_ms: 0,
        name: name.clone(),
    }
}
