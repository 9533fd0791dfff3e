//! Requests that open and make files, folders, links and other inodes.
//!
//! Source: Server::handle_client_open, handle_client_openc, handle_client_mknod, handle_client_mkdir,
//! handle_client_symlink, prepare_new_inode.

use bytes::Bytes;
use codec::Encode;
use messages::fs::{
    Caps, CreateReply, FileLayout, FsOp, InodeStat, OpenArgs, RequestArgs, decode_xattrs, features,
};
use types::{Errno, Ino, PoolId, SnapId};

use super::access::{READ, SET_VXATTR, WRITE};
use super::cache::{DIR, Dir, FILE, Inode, Key, SYMLINK, TYPE, Target, whole};
use super::cap::Cap;
use super::change::Change;
use super::hold::{Mode, Part};
use super::path::{Found, Walked};
use super::realm::View;
use super::request::{Done, Request, Run, Stop, Wait};
use super::server::{Dirty, Server, is_good_name};
use crate::format::{ClientRange, Inode as Stored, InodeStore, NestInfo};

/// Robert Jenkins' hash. Source: CEPH_STR_HASH_RJENKINS, mds_default_dir_hash.
const DIR_HASH: u8 = 2;
/// Bytes of a symbolic link's target. Source: PATH_MAX.
const MAX_TARGET: usize = 4_096;

/// What an open mode wants. Source: ceph_flags_to_mode and ceph_caps_for_mode in src/common/ceph_fs.cc.
fn wanted_for(flags: u32) -> Result<Caps, Errno> {
    let reads = Caps::FILE_SHARED | Caps::FILE_RD | Caps::FILE_CACHE;
    let writes = Caps::FILE_EXCL
        | Caps::FILE_WR
        | Caps::FILE_BUFFER
        | Caps::AUTH_SHARED
        | Caps::AUTH_EXCL
        | Caps::XATTR_SHARED
        | Caps::XATTR_EXCL;
    if flags & OpenArgs::DIRECTORY != 0 {
        return Ok(Caps::PIN);
    }
    let wanted = match flags & 3 {
        OpenArgs::RDONLY => reads,
        OpenArgs::WRONLY => writes,
        OpenArgs::RDWR => reads | writes,
        _ => return Err(Errno::EINVAL),
    };
    let lazy = if flags & OpenArgs::LAZY != 0 { Caps::FILE_LAZYIO } else { Caps::NONE };
    Ok(wanted | lazy | Caps::PIN)
}

impl Server {
    pub(crate) fn op_open(&mut self, request: &mut Request) -> Run<Done> {
        let path = request.msg.path.clone();
        let walked = self.walk(request, &path)?;
        if walked.snap != SnapId::HEAD {
            return self.open_at(request, walked);
        }
        let Walked { ino, found, .. } = walked;
        let wants_dentry = request.msg.flags & messages::fs::MClientRequest::WANT_DENTRY != 0;
        let dentry = found.filter(|_| wants_dentry).map(|f| (f.frag, f.key));
        self.open_inode(request, ino, dentry)
    }

    /// What is in a snapshot is read only. Source: Server::handle_client_open.
    fn open_at(&mut self, request: &mut Request, walked: Walked) -> Run<Done> {
        let RequestArgs::Open(args) = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let wanted = wanted_for(args.flags)?;
        if wanted.intersects(Caps::FILE_WR) || args.flags & OpenArgs::TRUNC != 0 {
            return Err(Errno::EROFS.into());
        }
        self.check_at(request, &walked, READ)?;
        let Walked { ino, snap, found } = walked;
        let kind = self.version(ino, snap).map_or(0, |v| v.inode.mode & TYPE);
        if args.flags & OpenArgs::DIRECTORY != 0 && !matches!(kind, DIR | SYMLINK) {
            return Err(Errno::EINVAL.into());
        }
        self.need_told(request, ino, snap)?;
        let wants_dentry = request.msg.flags & messages::fs::MClientRequest::WANT_DENTRY != 0;
        let dentry = found.filter(|_| wants_dentry).map(|f| (f.frag, f.key));
        Ok(Done { dentry, target: Some(ino), snap, ..Done::default() })
    }

    fn open_inode(
        &mut self,
        request: &mut Request,
        ino: Ino,
        dentry: Option<(crate::format::DirFrag, Key)>,
    ) -> Run<Done> {
        let RequestArgs::Open(args) = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let mut wanted = wanted_for(args.flags)?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        let kind = inode.store.inode.mode & TYPE;
        if kind != FILE {
            wanted = Caps::PIN;
        }
        if args.flags & OpenArgs::DIRECTORY != 0 && !matches!(kind, DIR | SYMLINK) {
            return Err(Errno::EINVAL.into());
        }
        let follows = kind == SYMLINK && args.flags & OpenArgs::NOFOLLOW == 0;
        let cuts = args.flags & OpenArgs::TRUNC != 0 && !follows && !request.was_done;
        if cuts && kind != FILE {
            return Err(if kind == DIR { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        let writes = wanted.intersects(Caps::FILE_WR);
        self.check(request, ino, if writes || cuts { READ | WRITE } else { READ })?;
        let mut needs = Vec::new();
        let own = self.cache.get(ino).and_then(|i| i.caps.get(&request.client));
        let issued = own.map_or(Caps::NONE, Cap::issued);
        for (part, shared, excl) in [
            (Part::Auth, Caps::AUTH_SHARED, Caps::AUTH_EXCL),
            (Part::Xattr, Caps::XATTR_SHARED, Caps::XATTR_EXCL),
        ] {
            if args.mask.contains(shared) && !issued.contains(excl) {
                needs.push((ino, part, Mode::Read));
            }
        }
        if cuts {
            needs.push((ino, Part::File, Mode::Write));
        }
        self.need(request, &needs)?;
        let seq = if cuts { self.cut_on_open(request, ino, args.old_size)? } else { None };
        self.want(request.client, ino, wanted);
        if seq.is_none() && writes {
            self.look_at_ranges(ino);
        }
        Ok(Done { dentry, target: Some(ino), mask: args.mask, seq, ..Done::default() })
    }

    fn cut_on_open(&mut self, request: &Request, ino: Ino, old_size: u64) -> Run<Option<u64>> {
        self.free_to_cut(ino)?;
        let mut change = self.change_of(request, "open_truncate");
        let stamp = change.stamp;
        self.cow(ino);
        let Some(inode) = self.cache.get_mut(ino) else { return Err(Errno::ESTALE.into()) };
        let i = &mut inode.store.inode;
        (i.mtime, i.ctime) = (stamp, stamp);
        i.rstat.rctime = i.rstat.rctime.max(stamp);
        i.change_attr = i.change_attr.saturating_add(1);
        let from = i.size.max(old_size);
        change.holds(ino, Part::File, Mode::Write);
        if from > 0 {
            self.cut(&mut change, ino, from, 0);
        }
        self.touch_inode(&mut change, ino);
        change.blob.opened_ino = ino;
        let seq = self.commit_request(request, change, Ino(0));
        self.note_rstat(ino);
        if from > 0 {
            self.when_safe(seq, super::server::Then::Truncate(ino));
        }
        Ok(Some(seq))
    }

    /// A client wants these of an inode from now on.
    pub(crate) fn want(&mut self, client: types::GlobalId, ino: Ino, wanted: Caps) {
        if self.take_missing(client, ino) {
            return;
        }
        let is_new = self.cache.get(ino).is_some_and(|i| !i.caps.contains_key(&client));
        if is_new {
            self.last_cap += 1;
            let id = self.last_cap;
            if let (Some(inode), Some(session)) = (self.cache.get_mut(ino), self.sessions.get_mut(&client)) {
                inode.caps.insert(client, Cap::new(id));
                session.caps.insert(ino);
            }
        }
        if let Some(cap) = self.cache.get_mut(ino).and_then(|i| i.caps.get_mut(&client)) {
            cap.wanted |= wanted;
        }
        self.stirred.insert(ino);
    }

    pub(crate) fn op_create(&mut self, request: &mut Request) -> Run<Done> {
        let RequestArgs::Open(args) = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let wanted = wanted_for(args.flags & !OpenArgs::DIRECTORY)?;
        let path = request.msg.path.clone();
        let found = self.walk_to_name(request, &path)?;
        if !found.target.is_null() {
            if args.flags & OpenArgs::EXCL != 0 && !request.was_done {
                return Err(Errno::EEXIST.into());
            }
            self.ensure_target(&found)?;
            let ino = found.target.ino().ok_or(Stop::Fail(Errno::ENOENT))?;
            return self.open_inode(request, ino, Some((found.frag, found.key)));
        }
        let (layout, is_own) = self.layout_of_new(found.dir, &args)?;
        let access = if is_own { WRITE | SET_VXATTR } else { WRITE };
        let ino = self.prepare_name(request, &found, access)?;
        let mut change = self.change_of(request, "openc");
        let mode = args.mode & 0o7777 | FILE;
        self.make_inode(request, &mut change, &found, ino, mode, layout)?;
        self.want(request.client, ino, wanted);
        if wanted.intersects(Caps::FILE_WR) {
            let last = self.max_size_for(ino, 0);
            if let Some(inode) = self.cache.get_mut(ino) {
                let follows = SnapId(inode.first.0.saturating_sub(1));
                let range = ClientRange { first: 0, last, follows };
                inode.store.inode.client_ranges.insert(request.client, range);
                inode.store.inode.max_size_ever = last;
                // Whoever replays this replays the room as well.
                inode.safe_ranges.insert(request.client, last);
            }
        }
        change.blob.opened_ino = ino;
        let seq = self.commit_request(request, change, ino);
        let has_feature = self.sessions.get(&request.client).is_some_and(|s| s.has(features::DELEG_INO));
        let extra = match has_feature {
            true => CreateReply { created: ino, ..CreateReply::default() }.to_bytes(),
            false => ino.to_bytes(),
        };
        let dentry = Some((found.frag, found.key));
        Ok(Done { dentry, target: Some(ino), extra, seq: Some(seq), ..Done::default() })
    }

    /// Whether a file's layout is another one than it would get anyway.
    fn layout_of_new(&self, dir: Ino, args: &OpenArgs) -> Run<(FileLayout, bool)> {
        let default = self.layout_in(dir);
        let mut layout = default.clone();
        if args.stripe_unit != 0 {
            layout.stripe_unit = args.stripe_unit;
        }
        if args.stripe_count != 0 {
            layout.stripe_count = args.stripe_count;
        }
        if args.object_size != 0 {
            layout.object_size = args.object_size;
        }
        if args.pool >= 0 {
            layout.pool = PoolId(args.pool.into());
        }
        self.check_layout(&layout)?;
        let is_own = layout != default;
        Ok((layout, is_own))
    }

    /// A layout is possible, and its pool is one of the file system.
    pub(crate) fn check_layout(&self, layout: &FileLayout) -> Run<()> {
        let is_good = layout.is_valid() && self.map.data_pools.contains(&layout.pool.0);
        if is_good { Ok(()) } else { Err(Errno::EINVAL.into()) }
    }

    /// The layout that files in a folder get.
    pub(crate) fn layout_in(&self, dir: Ino) -> FileLayout {
        let own = self.cache.ancestors(dir).into_iter().find_map(|at| {
            self.cache.get(at).map(|i| &i.store.inode.layout).filter(|l| l.pool.0 >= 0 && l.stripe_unit > 0)
        });
        own.cloned().unwrap_or_else(|| self.default_layout())
    }

    pub(crate) fn default_layout(&self) -> FileLayout {
        FileLayout {
            stripe_unit: 1 << 22,
            stripe_count: 1,
            object_size: 1 << 22,
            pool: PoolId(self.map.data_pools.first().copied().unwrap_or(-1)),
            pool_ns: String::new(),
        }
    }

    /// A name can be made: nobody takes for granted that there is none. Answers the inode's number.
    fn prepare_name(&mut self, request: &mut Request, found: &Found, access: u32) -> Run<Ino> {
        if !is_good_name(&found.key.name) {
            return Err(Errno::EINVAL.into());
        }
        self.check(request, found.dir, access)?;
        self.name_fits(found)?;
        self.need(request, &[(found.dir, Part::File, Mode::Names)])?;
        self.free_name(request, found.frag, &found.key)?;
        let made = if request.is_replay() { request.msg.ino } else { Ino(0) };
        self.disk.next_ino(made).ok_or(Stop::Fail(Errno::ENOSPC))
    }

    /// The folder is one that clients may make names in: not one that is removed.
    pub(crate) fn name_fits(&self, found: &Found) -> Run<()> {
        let gone = self.cache.get(found.dir).is_none_or(|i| i.store.inode.nlink == 0)
            || self.cache.is_stray(found.dir);
        if gone { Err(Errno::ENOENT.into()) } else { Ok(()) }
    }

    fn make_inode(
        &mut self,
        request: &Request,
        change: &mut Change,
        found: &Found,
        ino: Ino,
        mode: u32,
        layout: FileLayout,
    ) -> Run<()> {
        let xattrs = match request.msg.op {
            FsOp::SYMLINK => Default::default(),
            _ if request.msg.data.len() > self.settings.max_xattr_bytes => {
                return Err(Errno::ENOSPC.into());
            }
            _ => decode_xattrs(&request.msg.data).map_err(|_| Stop::Fail(Errno::EINVAL))?,
        };
        let Some(dir) = self.cache.get(found.dir) else { return Err(Errno::ESTALE.into()) };
        let above = &dir.store.inode;
        let is_dir = mode & TYPE == DIR;
        let inherits = above.mode & 0o2000 != 0;
        let gid = if inherits { above.gid } else { request.msg.caller_gid };
        let mode = if inherits && is_dir { mode | 0o2000 } else { mode };
        let stamp = change.stamp;
        let mut stored = Stored {
            ino,
            mode,
            uid: request.msg.caller_uid,
            gid,
            nlink: 1,
            ctime: stamp,
            mtime: stamp,
            atime: stamp,
            btime: stamp,
            truncate_size: u64::MAX,
            truncate_seq: 1,
            version: 1,
            xattr_version: 1,
            inline_version: InodeStat::INLINE_NONE,
            ..Stored::default()
        };
        if is_dir {
            stored.dir_hash = DIR_HASH;
            stored.rstat.rsubdirs = 1;
        } else {
            stored.layout = layout;
            stored.rstat.rfiles = 1;
        }
        stored.rstat.rctime = stamp;
        stored.accounted_rstat = stored.rstat.clone();
        let default_pool = self.default_layout().pool;
        if !is_dir && stored.layout.pool != default_pool {
            stored.old_pools.insert(default_pool);
        }
        let nested: NestInfo = stored.rstat.clone();
        let store = InodeStore { inode: stored, xattrs, ..InodeStore::default() };
        let first = SnapId(self.newest_snap(View::Now).0 + 1);
        let place = Some((found.frag, found.key.clone()));
        self.cache.insert(Inode { first, ..Inode::new(store, place) });
        self.set_target(change, found.frag, &found.key, Target::Primary(ino));
        if let Some(dentry) = self.cache.dentry_mut(found.frag, &found.key) {
            dentry.alternate_name = request.msg.alternate_name.clone();
        }
        self.count_name(change, found.frag, is_dir, 1, Some(&nested));
        change.holds(found.dir, Part::File, Mode::Names);
        self.take_ino(change, ino);
        self.backtrace_due(ino);
        Ok(())
    }

    /// The number is used, by this event.
    fn take_ino(&mut self, change: &mut Change, ino: Ino) {
        change.blob.allocated_ino = ino;
        change.blob.ino_table_version = self.disk.take_ino(ino);
        change.blob.client = change.req.name;
        let seq = self.last_seq + 1;
        self.mark_dirty(Dirty::InoTable, seq);
    }

    /// The inode's backtrace has to be written.
    pub(crate) fn backtrace_due(&mut self, ino: Ino) {
        let seq = self.last_seq + 1;
        if let Some(inode) = self.cache.get_mut(ino) {
            inode.store.inode.backtrace_version = inode.store.inode.version + 1;
        }
        self.mark_dirty(Dirty::Backtrace(ino), seq);
    }

    pub(crate) fn op_make(&mut self, request: &mut Request) -> Run<Done> {
        let path = request.msg.path.clone();
        let found = self.walk_to_name(request, &path)?;
        if !found.target.is_null() {
            return Err(Errno::EEXIST.into());
        }
        let (mode, rdev) = match (request.msg.op, &request.msg.args) {
            (FsOp::MKDIR, RequestArgs::Mkdir { mode }) => (mode & 0o7777 | DIR, 0),
            (FsOp::MKNOD, RequestArgs::Mknod { mode, rdev }) => {
                let kind = mode & TYPE;
                (mode & 0o7777 | if kind == 0 { FILE } else { kind }, *rdev)
            }
            (FsOp::SYMLINK, _) => (SYMLINK | 0o777, 0),
            _ => return Err(Errno::EINVAL.into()),
        };
        if request.msg.op == FsOp::MKNOD && mode & TYPE == DIR {
            return Err(Errno::EPERM.into());
        }
        let target = request.msg.path2.path.clone();
        if request.msg.op == FsOp::SYMLINK && (target.is_empty() || target.len() > MAX_TARGET) {
            return Err(if target.is_empty() { Errno::EINVAL } else { Errno::ENAMETOOLONG }.into());
        }
        let ino = self.prepare_name(request, &found, WRITE)?;
        let layout = self.layout_in(found.dir);
        let what = request.msg.op.name();
        let mut change = self.change_of(request, what);
        self.make_inode(request, &mut change, &found, ino, mode, layout)?;
        self.finish_make(&mut change, ino, rdev, target);
        let seq = self.commit_request(request, change, ino);
        let dentry = Some((found.frag, found.key));
        Ok(Done { dentry, target: Some(ino), seq: Some(seq), ..Done::default() })
    }

    /// What is special of links, devices and folders.
    fn finish_make(&mut self, change: &mut Change, ino: Ino, rdev: u32, target: Bytes) {
        let Some(inode) = self.cache.get_mut(ino) else { return };
        inode.store.inode.rdev = rdev;
        match inode.store.inode.mode & TYPE {
            SYMLINK => {
                let len = target.len() as u64;
                inode.store.symlink = target;
                inode.store.inode.size = len;
                inode.store.inode.rstat.rbytes = len as i64;
                self.note_rstat(ino);
            }
            DIR => {
                let frag = whole(ino);
                let mut dir = Dir { is_complete: true, is_new: true, ..Dir::default() };
                dir.fnode.version = 1;
                self.cache.dirs.insert(frag, dir);
                change.new_dirs.insert(frag);
            }
            _ => {}
        }
    }

    /// A cut that is under way comes first, and so does the search for a file's end.
    pub(crate) fn free_to_cut(&mut self, ino: Ino) -> Run<()> {
        let Some(inode) = self.cache.get(ino) else { return Err(Errno::ESTALE.into()) };
        if inode.needs_recover {
            self.recover_file(ino);
            return Err(Stop::Wait(Wait::File(ino)));
        }
        if inode.store.inode.truncate_pending > 0 {
            return Err(Stop::Wait(Wait::File(ino)));
        }
        Ok(())
    }
}
