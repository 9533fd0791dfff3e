//! Requests that change names: hard links, removal, renaming.
//!
//! Source: Server::handle_client_link, handle_client_unlink, handle_client_rename, _unlink_local,
//! _rename_apply.

use types::{Errno, Ino, SnapId};

use super::access::{READ, WRITE};
use super::cache::{Key, Target};
use super::change::Change;
use super::hold::{Mode, Part};
use super::past::d_type;
use super::path::{Found, Walked};
use super::request::{Done, Request, Run, Stop};
use super::server::{Server, Then, is_good_name};
use crate::format::{DirFrag, NestInfo, SnapRealm};
use messages::fs::{FsOp, SnapOp};

/// Hard links of one inode. Ceph has no bound; this is ext4's.
const MAX_LINKS: i32 = 65_000;

impl Server {
    pub(crate) fn op_link(&mut self, request: &mut Request) -> Run<Done> {
        let (path, path2) = (request.msg.path.clone(), request.msg.path2.clone());
        let found = self.walk_to_name(request, &path)?;
        let Walked { ino, .. } = self.walk_to_head(request, &path2)?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        if inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        if !found.target.is_null() {
            return Err(Errno::EEXIST.into());
        }
        if !is_good_name(&found.key.name) {
            return Err(Errno::EINVAL.into());
        }
        if inode.store.inode.nlink >= MAX_LINKS {
            return Err(Errno::EMLINK.into());
        }
        if inode.store.inode.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        self.check(request, ino, READ | WRITE)?;
        self.check(request, found.dir, WRITE)?;
        self.name_fits(&found)?;
        let subvolume = self.subvolume_of(ino);
        if subvolume != self.subvolume_of(found.dir) {
            return Err(Errno::EXDEV.into());
        }
        // A name may be in any snapshot from now on, unless both names stay in one subvolume.
        let parent = self.cache.parent(ino).filter(|_| subvolume.is_none() && !self.is_global(ino));
        if parent.is_some() {
            self.wait_for_snaps()?;
        }
        self.need(request, &[(found.dir, Part::File, Mode::Names), (ino, Part::Link, Mode::Write)])?;
        self.free_name(request, found.frag, &found.key)?;

        let mut change = self.change_of(request, "link_local");
        self.cow(ino);
        let realm = parent.map(|dir| self.linked_realm(ino, dir));
        let d_type = self.cache.get(ino).map_or(0, |i| d_type(i.store.inode.mode));
        self.link_more(&mut change, ino, 1);
        self.set_target(&mut change, found.frag, &found.key, Target::Remote { ino, d_type });
        self.set_alternate_name(request, &found);
        self.count_name(&mut change, found.frag, false, 1, None);
        change.holds(found.dir, Part::File, Mode::Names);
        change.holds(ino, Part::Link, Mode::Write);
        let told = self.set_realm(ino, realm);
        let seq = self.commit_request(request, change, Ino(0));
        self.when_safe(seq, told);
        let dentry = Some((found.frag, found.key));
        Ok(Done { dentry, target: Some(ino), seq: Some(seq), ..Done::default() })
    }

    fn set_alternate_name(&mut self, request: &Request, found: &Found) {
        if let Some(dentry) = self.cache.dentry_mut(found.frag, &found.key) {
            dentry.alternate_name = request.msg.alternate_name.clone();
        }
    }

    /// An inode has a link more or less.
    fn link_more(&mut self, change: &mut Change, ino: Ino, by: i32) {
        let stamp = change.stamp;
        self.cow(ino);
        if let Some(inode) = self.cache.get_mut(ino) {
            let i = &mut inode.store.inode;
            i.nlink = i.nlink.saturating_add(by).max(0);
            i.ctime = i.ctime.max(stamp);
            i.rstat.rctime = i.rstat.rctime.max(stamp);
            i.change_attr = i.change_attr.saturating_add(1);
        }
        self.touch_inode(change, ino);
        self.note_rstat(ino);
    }

    /// The subvolume that an inode is in: no hard link and no rename leads out of one.
    pub(crate) fn subvolume_of(&self, ino: Ino) -> Option<Ino> {
        let is_one = |at: &Ino| {
            self.cache
                .get(*at)
                .and_then(|i| i.store.realm.as_ref())
                .is_some_and(|r| r.flags & SnapRealm::SUBVOLUME != 0)
        };
        self.cache.ancestors(ino).into_iter().find(is_one)
    }

    pub(crate) fn op_unlink(&mut self, request: &mut Request) -> Run<Done> {
        let is_rmdir = request.msg.op == FsOp::RMDIR;
        let path = request.msg.path.clone();
        let found = self.walk_to_name(request, &path)?;
        let Some(ino) = found.target.ino() else { return Err(Stop::NoEntry(found.frag, found.key)) };
        self.ensure_target(&found)?;
        let is_dir = self.cache.get(ino).is_some_and(|i| i.is_dir());
        match (is_dir, is_rmdir) {
            (true, false) => return Err(Errno::EISDIR.into()),
            (false, true) => return Err(Errno::ENOTDIR.into()),
            _ => {}
        }
        self.check(request, found.dir, WRITE)?;
        if is_dir {
            self.is_removable(ino)?;
        }
        let mut needs = vec![(found.dir, Part::File, Mode::Names), (ino, Part::Link, Mode::Write)];
        if is_dir {
            needs.push((ino, Part::File, Mode::Read));
        }
        self.need(request, &needs)?;
        self.free_name(request, found.frag, &found.key)?;
        if is_dir {
            self.is_removable(ino)?;
        }
        let stray = self.stray_for(&found)?;
        self.wait_for_snaps()?;

        let mut change = self.change_of(request, "unlink_local");
        let told = self.unlink(&mut change, &found, ino, stray.as_ref());
        change.holds(found.dir, Part::File, Mode::Names);
        change.holds(ino, Part::Link, Mode::Write);
        let seq = self.commit_request(request, change, Ino(0));
        self.when_safe(seq, told);
        self.when_safe_at_last(seq, Then::Stray(ino));
        let dentry = Some((found.frag, found.key));
        Ok(Done { dentry, seq: Some(seq), ..Done::default() })
    }

    /// A folder without names and without snapshots of its own.
    fn is_removable(&self, ino: Ino) -> Run<()> {
        let Some(inode) = self.cache.get(ino) else { return Err(Errno::ESTALE.into()) };
        if inode.store.realm.as_ref().is_some_and(|r| !r.snaps.is_empty()) {
            return Err(Errno::ENOTEMPTY.into());
        }
        let stat = &inode.store.inode.dirstat;
        let loaded = self.cache.leaves(ino).into_iter().filter_map(|frag| self.cache.dir(frag));
        let has_names = stat.files + stat.subdirs > 0 || loaded.into_iter().any(|d| !d.is_empty());
        if has_names { Err(Errno::ENOTEMPTY.into()) } else { Ok(()) }
    }

    /// The place among the strays for an inode that loses its primary name.
    fn stray_for(&mut self, found: &Found) -> Run<Option<(DirFrag, Key)>> {
        match found.target {
            Target::Primary(ino) => self.stray_place(ino).map(Some),
            Target::Remote { .. } | Target::Null => Ok(None),
        }
    }

    /// A name is gone; an inode that was stored with it goes to the strays. What clients hear when that is
    /// safe.
    fn unlink(
        &mut self,
        change: &mut Change,
        found: &Found,
        ino: Ino,
        stray: Option<&(DirFrag, Key)>,
    ) -> Then {
        self.cow(ino);
        let realm = self.realm_without(ino, found, stray);
        let Some(inode) = self.cache.get(ino) else { return Then::Nothing };
        let is_dir = inode.is_dir();
        let prior = self.cache.path(ino);
        let nested: NestInfo = inode.store.inode.accounted_rstat.clone();
        self.set_target(change, found.frag, &found.key, Target::Null);
        match stray {
            None => self.count_name(change, found.frag, false, -1, None),
            Some((frag, key)) => {
                self.count_name(change, found.frag, is_dir, -1, Some(&nested));
                if let Some(inode) = self.cache.get_mut(ino) {
                    inode.store.inode.stray_prior_path = [b"/", prior.as_slice()].concat().into();
                    inode.store.inode.accounted_rstat = inode.store.inode.rstat.clone();
                }
                self.unsummed.remove(&ino);
                self.set_target(change, *frag, key, Target::Primary(ino));
                let nested = self.cache.get(ino).map(|i| i.store.inode.rstat.clone());
                self.count_name(change, *frag, is_dir, 1, nested.as_ref());
                self.backtrace_due(ino);
            }
        }
        self.link_more(change, ino, -1);
        self.set_realm(ino, realm)
    }

    /// The realm of an inode that loses a name; `None`: it stays as it is. Source:
    /// Server::handle_client_unlink.
    fn realm_without(&self, ino: Ino, found: &Found, stray: Option<&(DirFrag, Key)>) -> Option<SnapRealm> {
        if !self.is_global(ino) {
            return stray.and_then(|(frag, _)| self.moved_realm(ino, found.dir, frag.ino, false));
        }
        let mut realm = self.realm_or_new(ino, SnapId(0));
        self.keep_name(&mut realm, found);
        let nlink = self.cache.get(ino).map_or(0, |i| i.store.inode.nlink);
        // The last name, or the last one beside the primary one.
        let leaves_primary = nlink == 2 && stray.is_none() && !self.cache.is_stray(ino);
        if nlink <= 1 || leaves_primary {
            self.unlinked_realm(&mut realm);
        }
        Some(realm)
    }

    /// A name goes that snapshots have.
    fn keep_name(&self, realm: &mut SnapRealm, found: &Found) {
        let first = match found.target {
            Target::Primary(_) => None,
            _ => self.cache.dentry(found.frag, &found.key).map(|d| d.first),
        };
        self.keep_snaps_of_name(realm, found.dir, first);
    }

    /// The inode's realm is this one from now on; clients hear of it when that is safe.
    pub(crate) fn set_realm(&mut self, ino: Ino, realm: Option<SnapRealm>) -> Then {
        let (Some(realm), Some(inode)) = (realm, self.cache.get_mut(ino)) else { return Then::Nothing };
        match inode.store.realm.replace(realm) {
            Some(_) => Then::Realm(ino, SnapOp::UPDATE),
            None => Then::Realm(ino, SnapOp::SPLIT),
        }
    }

    /// The realm of an inode that a rename moves.
    fn renamed_realm(&self, ino: Ino, src: &Found, dest: &Found) -> Option<SnapRealm> {
        if self.is_global(ino) {
            let mut realm = self.realm_or_new(ino, SnapId(0));
            self.keep_name(&mut realm, src);
            return Some(realm);
        }
        match src.target {
            Target::Primary(_) => {
                let is_held = self.cache.get(ino).is_some_and(|i| i.is_dir() || !i.caps.is_empty());
                self.moved_realm(ino, src.dir, dest.dir, is_held)
            }
            _ => None,
        }
    }

    pub(crate) fn op_rename(&mut self, request: &mut Request) -> Run<Done> {
        let (to, from) = (request.msg.path.clone(), request.msg.path2.clone());
        let dest = self.walk_to_name(request, &to)?;
        let src = self.walk_to_name(request, &from)?;
        let Some(ino) = src.target.ino() else { return Err(Errno::ENOENT.into()) };
        self.ensure_target(&src)?;
        self.ensure_target(&dest)?;
        if (src.frag, &src.key) == (dest.frag, &dest.key) {
            return Ok(Done::default());
        }
        if !is_good_name(&dest.key.name) {
            return Err(Errno::EINVAL.into());
        }
        let old = dest.target.ino();
        if self.check_rename(&dest, ino, old)? {
            return Ok(Done::default());
        }
        for at in [src.dir, dest.dir, ino] {
            self.check(request, at, WRITE)?;
        }
        if self.subvolume_of(src.dir) != self.subvolume_of(dest.dir) {
            return Err(Errno::EXDEV.into());
        }
        let mut needs = vec![
            (src.dir, Part::File, Mode::Names),
            (dest.dir, Part::File, Mode::Names),
            (ino, Part::Link, Mode::Write),
        ];
        if let Some(old) = old {
            needs.push((old, Part::Link, Mode::Write));
            if self.cache.get(old).is_some_and(|i| i.is_dir()) {
                needs.push((old, Part::File, Mode::Read));
            }
        }
        self.need(request, &needs)?;
        self.free_name(request, src.frag, &src.key)?;
        self.free_name(request, dest.frag, &dest.key)?;
        if self.check_rename(&dest, ino, old)? {
            return Ok(Done::default());
        }
        let stray = self.stray_for(&dest)?;
        self.wait_for_snaps()?;
        let seq = self.rename(request, &src, &dest, ino, old, stray.as_ref());
        let dentry = Some((dest.frag, dest.key));
        Ok(Done { dentry, target: Some(ino), seq: Some(seq), ..Done::default() })
    }

    /// Whether nothing is to be done.
    fn check_rename(&self, dest: &Found, ino: Ino, old: Option<Ino>) -> Run<bool> {
        let is_dir = self.cache.get(ino).is_some_and(|i| i.is_dir());
        if is_dir && self.cache.is_within(dest.dir, ino) {
            return Err(Errno::EINVAL.into());
        }
        let gone = self.cache.get(dest.dir).is_none_or(|i| i.store.inode.nlink == 0);
        if gone || self.cache.is_stray(dest.dir) {
            return Err(Errno::ENOENT.into());
        }
        let Some(old) = old else { return Ok(false) };
        if old == ino {
            // Two names of one inode: POSIX has both stay.
            return Ok(true);
        }
        let old_is_dir = self.cache.get(old).is_some_and(|i| i.is_dir());
        match (old_is_dir, is_dir) {
            (true, false) => return Err(Errno::EISDIR.into()),
            (false, true) => return Err(Errno::ENOTDIR.into()),
            (true, true) => self.is_removable(old)?,
            (false, false) => {}
        }
        Ok(false)
    }

    fn rename(
        &mut self,
        request: &Request,
        src: &Found,
        dest: &Found,
        ino: Ino,
        old: Option<Ino>,
        stray: Option<&(DirFrag, Key)>,
    ) -> u64 {
        let mut change = self.change_of(request, "rename");
        let mut told = Vec::new();
        if let Some(old) = old {
            told.push(self.unlink(&mut change, dest, old, stray));
            change.holds(old, Part::Link, Mode::Write);
        }
        self.cow(ino);
        let realm = self.renamed_realm(ino, src, dest);
        let is_dir = self.cache.get(ino).is_some_and(|i| i.is_dir());
        match src.target {
            Target::Primary(_) => {
                let nested = self.cache.get(ino).map(|i| i.store.inode.accounted_rstat.clone());
                self.count_name(&mut change, src.frag, is_dir, -1, nested.as_ref());
                self.set_target(&mut change, src.frag, &src.key, Target::Null);
                if let Some(inode) = self.cache.get_mut(ino) {
                    inode.store.inode.accounted_rstat = inode.store.inode.rstat.clone();
                }
                self.unsummed.remove(&ino);
                self.set_target(&mut change, dest.frag, &dest.key, Target::Primary(ino));
                let nested = self.cache.get(ino).map(|i| i.store.inode.rstat.clone());
                self.count_name(&mut change, dest.frag, is_dir, 1, nested.as_ref());
                self.backtrace_due(ino);
                if is_dir {
                    change.blob.renamed_dir = ino;
                }
            }
            target => {
                self.count_name(&mut change, src.frag, false, -1, None);
                self.set_target(&mut change, src.frag, &src.key, Target::Null);
                self.set_target(&mut change, dest.frag, &dest.key, target);
                self.count_name(&mut change, dest.frag, false, 1, None);
            }
        }
        self.set_alternate_name(request, dest);
        self.link_more(&mut change, ino, 0);
        told.push(self.set_realm(ino, realm));
        change.holds(src.dir, Part::File, Mode::Names);
        change.holds(dest.dir, Part::File, Mode::Names);
        change.holds(ino, Part::Link, Mode::Write);
        let seq = self.commit_request(request, change, Ino(0));
        told.into_iter().for_each(|then| self.when_safe(seq, then));
        if let Some(old) = old {
            self.when_safe_at_last(seq, Then::Stray(old));
        }
        seq
    }
}
