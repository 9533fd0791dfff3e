//! Capabilities: granted, taken back, moved between ranks; what is given back when, and what is asked for.
//!
//! Source: Client::add_update_cap, check_caps, handle_caps, handle_cap_grant, handle_cap_import,
//! handle_cap_export.

use std::time::Duration;

use maps::Rank;
use messages::fs::{CapItem, CapOp, Caps, FsOp, MClientCaps, OpenArgs, ReplyCap};
use types::{Errno, Ino};

use crate::call::{Event, Reply};
use crate::core::Client;
use crate::file::open_args;
use crate::inode::{Cap, Times};
use crate::io::{Node, Ticket};
use crate::request::Ask;

/// How long what is dirty, or not needed any more, is kept back. Source: client_caps_release_delay.
const RELEASE_DELAY: Duration = Duration::from_secs(5);

/// Of two counts that wrap around, whether `a` is the later one. Source: ceph_seq_cmp.
fn is_later(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Client {
    pub(crate) fn add_cap(&mut self, node: Node, rank: Rank, new: &ReplyCap) {
        let Some(generation) = self.sessions.get(&rank).map(|s| s.generation) else { return };
        self.note_shared(node, new.caps);
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let (is_first, was_orphan) = (inode.caps.is_empty(), inode.auth.is_none());
        let is_known = inode.caps.contains_key(&rank);
        let (mut seq, mut migrate_seq, mut issued, mut flags) =
            (new.seq, new.migrate_seq, new.caps, new.flags);
        let cap = inode.caps.entry(rank).or_default();
        if is_known {
            if cap.generation < generation {
                (cap.issued, cap.implemented) = (Caps::PIN, Caps::PIN);
            }
            if !is_later(seq, cap.seq) {
                // Sent before the inode came to this rank.
                (seq, migrate_seq) = (cap.seq, cap.migrate_seq);
                issued |= cap.issued;
                flags |= ReplyCap::AUTH;
            }
        }
        let (gained, lost) = (issued.without(cap.issued), cap.issued.without(issued));
        cap.id = new.cap_id;
        cap.issued = issued;
        cap.implemented |= issued;
        cap.wanted =
            if is_later(migrate_seq, cap.migrate_seq) { new.wanted } else { cap.wanted | new.wanted };
        (cap.seq, cap.issue_seq, cap.migrate_seq, cap.generation) = (seq, seq, migrate_seq, generation);
        let is_auth = flags & ReplyCap::AUTH != 0;
        let newer =
            inode.auth.and_then(|a| inode.caps.get(&a)).is_none_or(|a| is_later(migrate_seq, a.migrate_seq));
        if is_auth && inode.auth != Some(rank) && newer {
            self.new_auth(node, rank);
        }
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let is_found = was_orphan && inode.auth.is_some();
        if (is_first || is_auth) && new.realm != Ino(u64::MAX) {
            inode.realm = new.realm;
        }
        if is_found {
            self.resume_flushes(node);
        }
        if !lost.is_empty() {
            self.check_caps(node, false);
        }
        if !gained.is_empty() {
            self.other_ranks_wait(node, rank, gained);
            self.wake(node);
        }
    }

    /// Flushes under way are the new rank's affair.
    fn new_auth(&mut self, node: Node, rank: Rank) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let old = inode.auth.replace(rank);
        let tids: Vec<u64> = inode.flushing.keys().copied().collect();
        if let Some(session) = old.and_then(|old| self.sessions.get_mut(&old)) {
            session.flushes.retain(|tid| !tids.contains(tid));
        }
        self.orphans.retain(|tid| !tids.contains(tid));
        if let Some(session) = self.sessions.get_mut(&rank) {
            session.flushes.extend(tids);
        }
    }

    /// A rank that takes back what another one just gave is answered.
    fn other_ranks_wait(&mut self, node: Node, rank: Rank, gained: Caps) {
        let Some(inode) = self.inodes.get(&node) else { return };
        let waits =
            |(r, cap): (&Rank, &Cap)| *r != rank && cap.implemented.without(cap.issued).intersects(gained);
        if inode.auth == Some(rank) && inode.caps.iter().any(waits) {
            self.check_caps(node, true);
        }
    }

    /// Names of a folder are covered while its shared capability stays. Source: Client::check_cap_issue.
    fn note_shared(&mut self, node: Node, new: Caps) {
        let had = self.issued(node).contains(Caps::FILE_SHARED);
        let has = new.contains(Caps::FILE_SHARED);
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        if had != has {
            inode.shared_gen += u64::from(has);
            inode.is_complete = false;
            inode.release_count += 1;
        }
    }

    pub(crate) fn remove_cap(&mut self, node: Node, rank: Rank, is_released: bool) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let Some(cap) = inode.caps.remove(&rank) else { return };
        if inode.auth == Some(rank) {
            inode.auth = None;
            // They wait for the next responsible rank.
            if let Some(session) = self.sessions.get_mut(&rank) {
                session.flushes.retain(|tid| !inode.flushing.contains_key(tid));
            }
            self.orphans.extend(inode.flushing.keys());
        }
        if inode.caps.is_empty() {
            inode.is_complete = false;
            inode.release_count += 1;
        }
        if let Some(session) = self.sessions.get_mut(&rank).filter(|_| is_released) {
            session.releases.push(CapItem {
                ino: node.ino,
                cap_id: cap.id,
                migrate_seq: cap.migrate_seq,
                seq: cap.issue_seq,
            });
        }
    }

    /// Tells servers what is kept, wanted and dirty, as far as they have to know: at once when they wait for
    /// it or when `is_urgent`, else after a while.
    pub(crate) fn check_caps(&mut self, node: Node, is_urgent: bool) {
        let Some(inode) = self.inodes.get(&node).filter(|_| node.is_head()) else { return };
        let (wanted, used) = (inode.wanted(), inode.used());
        if inode.auth.is_none() && inode.is_unsent() {
            let until = self.now.mono + RELEASE_DELAY;
            if let Some(inode) = self.inodes.get_mut(&node) {
                inode.hold_until.get_or_insert(until);
            }
        }
        let Some(inode) = self.inodes.get(&node) else { return };
        let mut retain = wanted | used | Caps::PIN;
        if !self.is_unmounting && inode.stat.nlink > 0 {
            retain |= if wanted.is_empty() { Caps::ALL_SHARED } else { Caps(u32::MAX) };
        }
        let auth = inode.auth;
        let auth_issued = auth.and_then(|rank| inode.caps.get(&rank)).map_or(Caps::NONE, |c| c.issued);
        let ranks: Vec<Rank> = inode.caps.keys().copied().collect();
        for rank in ranks {
            let Some(inode) = self.inodes.get(&node) else { return };
            let Some(cap) = inode.caps.get(&rank) else { continue };
            let is_auth = auth == Some(rank);
            let used = if is_auth { used } else { used.without(auth_issued) };
            let revoking = cap.implemented.without(cap.issued);
            let needs_room =
                is_auth && inode.wanted_max > inode.stat.max_size && inode.wanted_max > inode.requested_max;
            // What is still in use follows when its use ends.
            let is_awaited = !revoking.without(used).is_empty();
            let wants_more = !wanted.without(cap.wanted | cap.issued).is_empty();
            let ends = self.is_unmounting && revoking.is_empty() && used.is_empty();
            // What the server keeps for us, or believes that we want.
            let has_too_much =
                !cap.issued.without(retain).is_empty() || !cap.wanted.without(wanted).is_empty();
            let is_dirty = is_auth && !inode.dirty.is_empty();
            if !(needs_room || is_awaited || wants_more || ends) {
                if !has_too_much && !is_dirty {
                    continue;
                }
                if !is_urgent {
                    let until = self.now.mono + RELEASE_DELAY;
                    if let Some(inode) = self.inodes.get_mut(&node) {
                        inode.hold_until.get_or_insert(until);
                    }
                    continue;
                }
            }
            self.tell_caps(node, rank, used, wanted, retain);
        }
    }

    fn tell_caps(&mut self, node: Node, rank: Rank, used: Caps, wanted: Caps, retain: Caps) {
        let Some(inode) = self.inodes.get(&node) else { return };
        let is_auth = inode.auth == Some(rank);
        if is_auth && inode.kick_flush {
            self.send_flushes(node);
        }
        let flush = if is_auth {
            self.flush_snaps(node);
            self.mark_flushing(node)
        } else {
            None
        };
        self.send_cap(node, rank, used, wanted, retain, flush);
    }

    pub(crate) fn on_caps(&mut self, rank: Rank, tid: u64, m: &MClientCaps) {
        self.raise_barrier(m.osd_epoch_barrier);
        self.got_push(rank);
        let node = Node::head(m.ino);
        if !self.inodes.contains_key(&node) {
            if m.op == CapOp::IMPORT {
                if let Some(session) = self.sessions.get_mut(&rank) {
                    let (cap_id, migrate_seq, seq) = (m.cap_id, m.migrate_seq, m.seq);
                    session.releases.push(CapItem { ino: m.ino, cap_id, migrate_seq, seq });
                }
            }
            // The server may wait for what we have given up already.
            return self.flush_releases();
        }
        match m.op {
            CapOp::EXPORT => return self.cap_moved_away(node, rank, m),
            CapOp::FLUSHSNAP_ACK => return self.snap_flushed(node, m.snap_follows, tid),
            CapOp::IMPORT => self.cap_came(node, rank, m),
            _ => {}
        }
        if !self.inodes.get(&node).is_some_and(|i| i.caps.contains_key(&rank)) {
            return;
        }
        match m.op {
            CapOp::TRUNC => {
                if let Some(inode) = self.inodes.get_mut(&node) {
                    inode.update_size(m.size, m.truncate_seq, m.truncate_size);
                }
            }
            CapOp::IMPORT | CapOp::REVOKE | CapOp::GRANT => self.granted(node, rank, m),
            CapOp::FLUSH_ACK => self.flushed(node, tid),
            _ => {}
        }
    }

    fn cap_came(&mut self, node: Node, rank: Rank, m: &MClientCaps) {
        self.update_realms(&m.snaps, true);
        let new = ReplyCap {
            caps: m.caps,
            wanted: m.wanted,
            cap_id: m.cap_id,
            seq: m.seq,
            migrate_seq: m.migrate_seq,
            realm: m.realm,
            flags: ReplyCap::AUTH,
        };
        let had_auth = self.inodes.get(&node).is_some_and(|i| i.auth.is_some());
        self.add_cap(node, rank, &new);
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let is_peer = |cap: &Cap| m.peer.cap_id != 0 && cap.id == m.peer.cap_id;
        let moved = m.peer.rank != rank && inode.caps.get(&m.peer.rank).is_some_and(is_peer);
        let is_less = !m.wanted.intersects(Caps::ANY_FILE_WR) || inode.requested_max > m.max_size;
        if inode.auth == Some(rank) && is_less {
            inode.requested_max = 0;
        }
        if moved {
            self.remove_cap(node, m.peer.rank, m.peer.flags & ReplyCap::RELEASE != 0);
        }
        if had_auth && self.inodes.get(&node).is_some_and(|i| i.auth == Some(rank)) {
            self.send_flushes(node);
        }
    }

    fn cap_moved_away(&mut self, node: Node, rank: Rank, m: &MClientCaps) {
        let Some(inode) = self.inodes.get(&node) else { return };
        let Some(cap) = inode.caps.get(&rank).filter(|c| c.id == m.cap_id).cloned() else { return };
        let was_auth = inode.auth == Some(rank);
        if m.peer.cap_id != 0 && self.open_session(m.peer.rank).is_some() {
            let seq = m.peer.seq.wrapping_sub(1);
            let flags = if was_auth { ReplyCap::AUTH } else { 0 };
            let known = self.inodes.get(&node).and_then(|i| i.caps.get(&m.peer.rank));
            let is_old = known.is_some_and(|k| k.id != m.peer.cap_id || !is_later(m.peer.seq, k.seq));
            if !is_old {
                let new = ReplyCap {
                    caps: cap.issued | known_issued(self, node, m.peer.rank),
                    wanted: Caps::NONE,
                    cap_id: m.peer.cap_id,
                    seq,
                    migrate_seq: m.peer.migrate_seq,
                    realm: Ino(u64::MAX),
                    flags,
                };
                self.add_cap(node, m.peer.rank, &new);
            }
        }
        if m.peer.rank != rank || m.peer.cap_id == 0 {
            self.remove_cap(node, rank, false);
        }
        self.check_caps(node, false);
        // Without a peer, whoever needs the file asks anew.
        self.wake(node);
        self.wake_settling();
    }

    fn granted(&mut self, node: Node, rank: Rank, m: &MClientCaps) {
        let Some(generation) = self.sessions.get(&rank).map(|s| s.generation) else { return };
        if let Some(cap) = self.inodes.get_mut(&node).and_then(|i| i.caps.get_mut(&rank)) {
            if generation > cap.generation {
                (cap.issued, cap.implemented) = (Caps::PIN, Caps::PIN);
            }
            (cap.seq, cap.generation) = (m.seq, generation);
        }
        self.note_shared(node, m.caps);
        let held = self.issued_and_held(node).1;
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        let held = held | inode.dirty;
        take_attributes(inode, held, m);
        if inode.auth == Some(rank)
            && m.caps.intersects(Caps::ANY_FILE_WR)
            && m.max_size != inode.stat.max_size
        {
            inode.stat.max_size = m.max_size;
            if inode.stat.max_size > inode.wanted_max {
                (inode.wanted_max, inode.requested_max) = (0, 0);
            }
        }
        if inode.stat.nlink == 0 {
            self.unlinked.insert(node);
        }
        let wanted = inode.wanted();
        let Some(cap) = inode.caps.get_mut(&rank) else { return };
        let revoked = cap.issued.without(m.caps);
        let gained = m.caps.without(cap.issued);
        let asks_again = m.op == CapOp::IMPORT && !wanted.without(cap.wanted | m.caps).is_empty();
        (cap.issued, cap.implemented) = (m.caps, cap.implemented | m.caps);
        if !revoked.is_empty() || asks_again {
            self.check_caps(node, false);
        } else if !gained.is_empty() {
            self.other_ranks_wait(node, rank, gained);
        }
        self.wake(node);
    }

    /// A call needs capabilities of an open file. Whether it has them; else it is run again when that may
    /// have changed. `end`: how far it writes. Source: Client::get_caps.
    pub(crate) fn need_caps(
        &mut self,
        ticket: Ticket,
        node: Node,
        need: Caps,
        end: Option<u64>,
    ) -> Result<bool, Errno> {
        let issued = self.issued(node);
        let Some(inode) = self.inodes.get_mut(&node) else { return Err(Errno::ESTALE) };
        let mut waits = !issued.contains(need);
        if let (Some(end), true) = (end, issued.contains(need)) {
            if end > inode.stat.max_size {
                inode.wanted_max = inode.wanted_max.max(end);
                waits = true;
            }
            waits |= inode.cap_snaps.last_key_value().is_some_and(|(_, snap)| snap.is_writing);
        }
        let auth = inode.auth;
        if !waits {
            return Ok(true);
        }
        if end.is_some() && auth.and_then(|r| self.sessions.get(&r)).is_some_and(|s| s.is_read_only) {
            return Err(Errno::EROFS);
        }
        let Some(inode) = self.inodes.get_mut(&node) else { return Err(Errno::ESTALE) };
        inode.wait(ticket);
        let is_lost = inode.caps.is_empty() || end.is_some() && auth.is_none();
        if is_lost {
            self.renew_caps(node)?;
        } else {
            self.check_caps(node, false);
        }
        Ok(false)
    }

    /// Opens the file again for all its handles and what is dirty, for the capabilities are gone. Source:
    /// Client::_renew_caps.
    pub(crate) fn renew_caps(&mut self, node: Node) -> Result<(), Errno> {
        let path = self.path(node, None)?;
        let Some(inode) = self.inodes.get_mut(&node).filter(|i| !i.is_renewing) else { return Ok(()) };
        inode.is_renewing = true;
        let flags = match (inode.open_read > 0, inode.open_write > 0 || inode.is_dirty()) {
            (_, false) => OpenArgs::RDONLY,
            (false, true) => OpenArgs::WRONLY,
            (true, true) => OpenArgs::RDWR,
        };
        let args = open_args(flags, 0);
        self.ask(None, Ask { op: FsOp::OPEN, args, path, about: Some(node), renews: true, ..Ask::default() });
        Ok(())
    }

    pub(crate) fn renewed_caps(&mut self, node: Node, result: Result<(), Errno>) {
        let Some(inode) = self.inodes.get_mut(&node) else { return };
        inode.is_renewing = false;
        if let Err(errno) = result {
            let is_lost = inode.auth.is_none();
            let waiters = std::mem::take(&mut inode.waiters);
            self.ready.extend(waiters.into_iter().map(|t| (t, Event::Reply(Reply::failed(errno)))));
            if is_lost {
                self.lose_dirty(node, errno);
            }
        }
        self.wake(node);
        self.wake_settling();
        self.check_caps(node, false);
    }
}

fn known_issued(client: &Client, node: Node, rank: Rank) -> Caps {
    client.inodes.get(&node).and_then(|i| i.caps.get(&rank)).map_or(Caps::NONE, |c| c.issued)
}

fn take_attributes(inode: &mut crate::inode::Inode, held: Caps, m: &MClientCaps) {
    let stat = &mut inode.stat;
    if m.caps.contains(Caps::AUTH_SHARED) && !held.intersects(Caps::AUTH_EXCL) {
        (stat.mode, stat.uid, stat.gid, stat.btime) = (m.mode, m.uid, m.gid, m.btime);
    }
    if m.caps.contains(Caps::LINK_SHARED) && !held.intersects(Caps::LINK_EXCL) {
        stat.nlink = m.nlink;
    }
    if m.caps.contains(Caps::FILE_SHARED) && (m.nfiles, m.nsubdirs) != (-1, -1) {
        stat.nfiles = u64::try_from(m.nfiles).unwrap_or(0);
        stat.nsubdirs = u64::try_from(m.nsubdirs).unwrap_or(0);
    }
    stat.change_attr = stat.change_attr.max(m.change_attr);
    if m.inline_version > stat.inline_version {
        stat.inline_version = m.inline_version;
    }
    inode.update_xattrs(held, m.xattr_version, &m.xattrs);
    if m.caps.intersects(Caps::ALL_SHARED | Caps::FILE_RD | Caps::FILE_CACHE) {
        inode.update_times(held, &Times::of_caps(m));
    }
    if m.caps.intersects(Caps::FILE_SHARED | Caps::FILE_RD | Caps::FILE_CACHE | Caps::ANY_FILE_WR) {
        inode.stat.layout.clone_from(&m.layout);
        inode.update_size(m.size, m.truncate_seq, m.truncate_size);
    }
}
