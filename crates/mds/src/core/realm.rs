//! Realms: which snapshots something is in, what they are called there, and how realms change when names
//! move.
//!
//! A folder that has, or had, snapshots begins a realm; everything below it up to the next such folder is in
//! that realm. A realm has its own snapshots, those that its inode brought along from where it was before,
//! and those of the realm above since it has been there. An inode with hard links is in the realm above all,
//! whose snapshots are those of the whole file system, for its names may be anywhere.
//!
//! Source: src/mds/SnapRealm.cc, CInode::record_snaprealm_past_parent, record_snaprealm_parent_dentry,
//! mark_snaprealm_global, clear_snaprealm_global.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use messages::fs::{SnapRealmInfo, SnapTrace};
use types::{Ino, SnapContext, SnapId};

use super::cache::Inode;
use super::server::Server;
use crate::format::names::GLOBAL_SNAPREALM as GLOBAL;
use crate::format::{SnapInfo, SnapRealm};

/// Of a change of snapshots that is not safe yet, whether it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// As the server has it.
    Now,
    /// As clients may know it.
    Told,
}

/// The snapshots that something is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Snaps {
    pub all: BTreeSet<SnapId>,
    /// The newest change of any realm that counts.
    pub seq: SnapId,
}

impl Snaps {
    pub fn has(&self, first: SnapId, last: SnapId) -> bool {
        first <= last && self.all.range(first..=last).next().is_some()
    }
}

fn is_global(realm: &SnapRealm) -> bool {
    realm.flags & SnapRealm::PARENT_GLOBAL != 0
}

fn falling<'a>(snaps: impl DoubleEndedIterator<Item = &'a SnapId>) -> Vec<u64> {
    snaps.rev().map(|s| s.0).collect()
}

/// `_NAME_INO`, as the snapshots of folders above are called.
fn long_name(name: &[u8]) -> Option<(&[u8], Ino)> {
    let rest = name.strip_prefix(b"_")?;
    let at = rest.iter().rposition(|b| *b == b'_').filter(|at| *at > 0)?;
    let ino = std::str::from_utf8(rest.get(at + 1..)?).ok()?.parse().ok()?;
    Some((rest.get(..at)?, Ino(ino)))
}

/// How a snapshot is called in a folder.
pub(crate) fn snap_name(info: &SnapInfo, dir: Ino) -> Bytes {
    if info.ino == dir {
        return info.name.clone();
    }
    [b"_", info.name.as_ref(), b"_", info.ino.0.to_string().as_bytes()].concat().into()
}

/// Whether a snapshot has this name in a folder.
fn is_called(info: &SnapInfo, dir: Ino, name: &[u8]) -> bool {
    match info.ino == dir {
        true => info.name == name,
        false => long_name(name).is_some_and(|(short, ino)| ino == info.ino && short == info.name),
    }
}

impl Inode {
    /// Since which snapshot it exists. Source: CInode::get_oldest_snap.
    pub(crate) fn oldest(&self) -> SnapId {
        let old = self.store.old_inodes.values().next().map_or(self.first, |old| old.first);
        old.min(self.first).min(self.store.oldest_snap)
    }
}

impl Server {
    pub(crate) fn realm(&self, ino: Ino, view: View) -> Option<&SnapRealm> {
        let pending = self.snap_change.as_ref().filter(|p| p.ino == ino && view == View::Told);
        match pending {
            Some(pending) => pending.before.as_ref(),
            None => self.cache.get(ino)?.store.realm.as_ref(),
        }
    }

    /// The newest number that a snapshot or its removal has. Source: SnapRealm::get_newest_seq of the realm
    /// above all.
    pub(crate) fn newest_snap(&self, view: View) -> SnapId {
        match &self.snap_change {
            Some(pending) if view == View::Told => pending.newest_before,
            _ => self.snaps.last_created.max(self.snaps.last_destroyed),
        }
    }

    /// The realm of an inode and those above, up to the one of a base inode or above all.
    pub(crate) fn realms_above(&self, ino: Ino, view: View) -> Vec<Ino> {
        let mut chain = Vec::new();
        for at in self.cache.ancestors(ino) {
            let Some(inode) = self.cache.get(at) else { break };
            let realm = self.realm(at, view);
            if realm.is_none() && inode.place.is_some() {
                continue;
            }
            chain.push(at);
            if realm.is_some_and(is_global) {
                chain.push(GLOBAL);
                break;
            }
        }
        if chain.is_empty() {
            chain.push(Ino::ROOT);
        }
        chain
    }

    /// The realm that clients have an inode in.
    pub(crate) fn realm_of(&self, ino: Ino) -> Ino {
        self.realms_above(ino, View::Told).first().copied().unwrap_or(Ino::ROOT)
    }

    pub(crate) fn snaps_of(&self, ino: Ino, view: View) -> Snaps {
        self.snaps_in(&self.realms_above(ino, view), view)
    }

    /// Source: SnapRealm::build_snap_set.
    fn snaps_in(&self, chain: &[Ino], view: View) -> Snaps {
        let mut above: Option<Snaps> = None;
        for at in chain.iter().rev() {
            if *at == GLOBAL {
                above = Some(Snaps { all: self.all_snaps(view), seq: self.newest_snap(view) });
                continue;
            }
            let base = SnapRealm { seq: SnapId(1), ..SnapRealm::default() };
            let realm = self.realm(*at, view).unwrap_or(&base);
            let mut snaps = Snaps { all: realm.snaps.keys().copied().collect(), seq: realm.seq };
            if is_global(realm) {
                snaps.seq = self.newest_snap(view);
            }
            let past = self.existing(&realm.past_parent_snaps, view);
            snaps.seq = snaps.seq.max(past.last().copied().unwrap_or(SnapId(0)));
            snaps.all.extend(past);
            let since = realm.current_parent_since;
            if let Some(above) = above.filter(|above| above.seq >= since) {
                snaps.all.extend(above.all.range(since..));
                snaps.seq = snaps.seq.max(above.seq);
            }
            above = Some(snaps);
        }
        above.unwrap_or_default()
    }

    fn all_snaps(&self, view: View) -> BTreeSet<SnapId> {
        let made = self.snap_change.as_ref().filter(|_| view == View::Told).and_then(|p| p.made);
        self.snaps.snaps.keys().copied().filter(|snap| Some(*snap) != made).collect()
    }

    fn existing(&self, snaps: &BTreeSet<SnapId>, view: View) -> BTreeSet<SnapId> {
        if snaps.is_empty() {
            return BTreeSet::new();
        }
        let all = self.all_snaps(view);
        snaps.intersection(&all).copied().collect()
    }

    /// With what an inode's data is changed.
    pub(crate) fn snap_context(&self, ino: Ino) -> SnapContext {
        let snaps = self.snaps_of(ino, View::Told);
        SnapContext { seq: snaps.seq.0, snaps: falling(snaps.all.iter()) }
    }

    /// Realms as clients are told of them. Source: SnapRealm::build_snap_trace.
    pub(crate) fn snap_trace(&self, ino: Ino) -> SnapTrace {
        let chain = self.realms_above(ino, View::Told);
        let above = chain.iter().copied().skip(1).chain([Ino(0)]);
        SnapTrace(chain.iter().zip(above).map(|(at, above)| self.realm_info(*at, above)).collect())
    }

    pub(crate) fn global_trace(&self) -> SnapTrace {
        SnapTrace(vec![self.realm_info(GLOBAL, Ino(0))])
    }

    fn realm_info(&self, ino: Ino, parent: Ino) -> SnapRealmInfo {
        if ino == GLOBAL {
            let (snaps, seq) = (self.all_snaps(View::Told), self.newest_snap(View::Told).0);
            return SnapRealmInfo { ino, seq, snaps: falling(snaps.iter()), ..SnapRealmInfo::default() };
        }
        let Some(realm) = self.realm(ino, View::Told) else {
            return SnapRealmInfo { ino, parent, parent_since: 1, seq: 1, ..SnapRealmInfo::default() };
        };
        let mut past = self.existing(&realm.past_parent_snaps, View::Told);
        if is_global(realm) {
            drop(past.split_off(&realm.current_parent_since));
        }
        SnapRealmInfo {
            ino,
            created: realm.created.0,
            parent,
            parent_since: realm.current_parent_since.0,
            seq: realm.seq.0.max(1),
            snaps: falling(realm.snaps.keys()),
            prior_parent_snaps: falling(past.iter()),
        }
    }

    /// The snapshots that a folder shows. Source: SnapRealm::get_snap_info.
    pub(crate) fn snap_infos(&self, dir: Ino, first: SnapId) -> BTreeMap<SnapId, &SnapInfo> {
        let mut infos = BTreeMap::new();
        let mut first = first;
        for at in self.realms_above(dir, View::Told) {
            let Some(realm) = self.realm(at, View::Told) else { break };
            infos.extend(realm.snaps.range(first..).map(|(snap, info)| (*snap, info)));
            for snap in realm.past_parent_snaps.range(first..) {
                infos.extend(self.snaps.snaps.get(snap).map(|info| (*snap, info)));
            }
            first = first.max(realm.current_parent_since);
        }
        infos
    }

    /// The snapshot of a name in a folder. Source: SnapRealm::resolve_snapname.
    pub(crate) fn resolve_snap(&self, dir: Ino, name: &[u8]) -> Option<SnapId> {
        let infos = self.snap_infos(dir, SnapId(0));
        infos.into_iter().find(|(_, info)| is_called(info, dir, name)).map(|(snap, _)| snap)
    }

    // Changes.

    /// An inode's realm, or the one that it would begin. Source: CInode::prepare_new_srnode.
    pub(crate) fn realm_or_new(&self, ino: Ino, seq: SnapId) -> SnapRealm {
        let Some(inode) = self.cache.get(ino) else { return SnapRealm::default() };
        inode.store.realm.clone().unwrap_or_else(|| SnapRealm {
            seq,
            created: seq,
            current_parent_since: inode.oldest(),
            ..SnapRealm::default()
        })
    }

    /// The realm of an inode that moves from one folder to another; `None`: nothing of it changes. Clients
    /// that hold something of it (`is_held`) hear by its realm that it is elsewhere: without that they would
    /// write with the snapshots of where it was.
    pub(crate) fn moved_realm(&self, ino: Ino, from: Ino, to: Ino, is_held: bool) -> Option<SnapRealm> {
        let inode = self.cache.get(ino)?;
        if self.realms_above(from, View::Now).first() == self.realms_above(to, View::Now).first() {
            return None;
        }
        let old = self.snaps_of(from, View::Now);
        let is_in_any = old.seq.0 + 1 > inode.oldest().0;
        if inode.store.realm.is_none() && !is_in_any && !is_held {
            return None;
        }
        let mut realm = self.realm_or_new(ino, old.seq);
        if old.seq.0 + 1 > realm.current_parent_since.0 {
            realm.past_parent_snaps.extend(old.all.range(realm.current_parent_since..));
            realm.seq = realm.seq.max(old.seq);
        }
        realm.current_parent_since = SnapId(self.newest_snap(View::Now).0 + 1);
        Some(realm)
    }

    pub(crate) fn is_global(&self, ino: Ino) -> bool {
        self.cache.get(ino).and_then(|i| i.store.realm.as_ref()).is_some_and(is_global)
    }

    /// The realm of an inode that gets its first hard link; its own name is in `dir`.
    pub(crate) fn linked_realm(&self, ino: Ino, dir: Ino) -> SnapRealm {
        let newest = self.newest_snap(View::Now);
        let mut realm = self.realm_or_new(ino, newest);
        // Source: CInode::mark_snaprealm_global: `last_destroyed` keeps since when the name's realm counts.
        realm.last_destroyed = realm.current_parent_since;
        realm.current_parent_since = SnapId(newest.0 + 1);
        realm.flags |= SnapRealm::PARENT_GLOBAL;
        self.keep_snaps_of_name(&mut realm, dir, None);
        realm
    }

    /// A realm above all keeps the snapshots that a name was in: since `first`, or for the primary name since
    /// that was last noted. Source: CInode::record_snaprealm_parent_dentry.
    pub(crate) fn keep_snaps_of_name(&self, realm: &mut SnapRealm, dir: Ino, first: Option<SnapId>) {
        let snaps = self.snaps_of(dir, View::Now).all;
        realm.past_parent_snaps.extend(snaps.range(first.unwrap_or(realm.last_destroyed)..));
        if first.is_none() {
            realm.last_destroyed = SnapId(self.newest_snap(View::Now).0 + 1);
        }
    }

    /// An inode that has one name again is in the realm of that. Source: CInode::clear_snaprealm_global.
    pub(crate) fn unlinked_realm(&self, realm: &mut SnapRealm) {
        realm.current_parent_since = realm.last_destroyed;
        realm.last_destroyed = SnapId(0);
        realm.seq = self.newest_snap(View::Now);
        realm.flags &= !SnapRealm::PARENT_GLOBAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_of_folders_above_have_long_names() {
        let info = |ino| SnapInfo { ino: Ino(ino), name: Bytes::from_static(b"a_b"), ..SnapInfo::default() };
        let name = snap_name(&info(1099511627776), Ino(7));
        assert_eq!(name, &b"_a_b_1099511627776"[..]);
        assert!(is_called(&info(1099511627776), Ino(7), &name));
        assert!(!is_called(&info(1099511627777), Ino(7), &name));
        assert!(is_called(&info(7), Ino(7), b"a_b") && !is_called(&info(8), Ino(7), b"a_b"));
        for bad in [&b"__1"[..], b"_", b"", b"_a_", b"_a_x", b"a_1"] {
            assert_eq!(long_name(bad), None);
        }
    }
}
