//! Requests that change nothing: attributes, names, listings.
//!
//! Source: Server::handle_client_getattr, handle_client_lookup_ino, handle_client_readdir,
//! handle_client_lssnap, handle_client_getvxattr.

use bytes::Bytes;
use codec::{Encode, Writer};
use messages::fs::{Caps, DirEntry, DirStat, FsOp, ReaddirArgs, ReaddirReply, RequestArgs};
use types::{Errno, Ino, SnapId};

use super::access::READ;
use super::cache::{Dentry, HASH_MASK, Key, Target};
use super::hold::{Mode, Part};
use super::path::Walked;
use super::request::{Done, Request, Run, Stop, Wait};
use super::server::Server;
use crate::format::{DirFrag, names};

/// Bytes of a listing's part unless the client says otherwise, and at most.
const LISTING_BYTES: usize = 512 << 10;
const MAX_LISTING_BYTES: usize = 4 << 20;
/// About the bytes of an entry besides its name and attributes of variable length.
const ENTRY_BYTES: usize = 400;
/// Names of a listing's part at most.
const MAX_ENTRIES: usize = 4_096;

impl Server {
    pub(crate) fn op_getattr(&mut self, request: &mut Request) -> Run<Done> {
        // The name of a snapshot is not told as one.
        let is_lookup = request.msg.op == FsOp::LOOKUP;
        let RequestArgs::Mask(mask) = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let path = request.msg.path.clone();
        if is_lookup && path.path.is_empty() {
            return Err(Errno::EINVAL.into());
        }
        let walked = self.walk(request, &path)?;
        if walked.snap != SnapId::HEAD {
            return self.show_at(request, walked, is_lookup);
        }
        let dentry = walked.found.filter(|_| is_lookup).map(|f| (f.frag, f.key));
        self.show(request, walked.ino, mask, dentry)
    }

    /// What an inode was at a snapshot.
    fn show_at(&mut self, request: &mut Request, walked: Walked, wants_dentry: bool) -> Run<Done> {
        self.check_at(request, &walked, READ)?;
        let Walked { ino, snap, found } = walked;
        self.need_told(request, ino, snap)?;
        let dentry = found.filter(|_| wants_dentry).map(|f| (f.frag, f.key));
        Ok(Done { dentry, target: Some(ino), snap, ..Done::default() })
    }

    /// The attributes of an inode, right as far as `mask` asks.
    fn show(
        &mut self,
        request: &mut Request,
        ino: Ino,
        mask: Caps,
        dentry: Option<(DirFrag, Key)>,
    ) -> Run<Done> {
        self.check(request, ino, READ)?;
        if mask.intersects(Caps::FILE_WREXTEND) && self.cache.get(ino).is_some_and(|i| i.is_dir()) {
            self.sum_all();
        }
        let own = self.cache.get(ino).and_then(|i| i.caps.get(&request.client));
        let issued = own.map_or(Caps::NONE, super::cap::Cap::issued);
        let asked = [
            (Part::Link, Caps::LINK_SHARED, Caps::LINK_EXCL),
            (Part::Auth, Caps::AUTH_SHARED, Caps::AUTH_EXCL),
            (Part::Xattr, Caps::XATTR_SHARED, Caps::XATTR_EXCL),
            (Part::File, Caps::FILE_SHARED, Caps::FILE_EXCL),
        ];
        let needs: Vec<(Ino, Part, Mode)> = asked
            .into_iter()
            .filter(|(_, shared, excl)| mask.contains(*shared) && !issued.contains(*excl))
            .map(|(part, ..)| (ino, part, Mode::Read))
            .collect();
        self.need(request, &needs)?;
        if self.cache.get(ino).is_some_and(|i| i.needs_recover) && mask.contains(Caps::FILE_SHARED) {
            self.recover_file(ino);
            return Err(Stop::Wait(Wait::File(ino)));
        }
        Ok(Done { dentry, target: Some(ino), mask, ..Done::default() })
    }

    pub(crate) fn op_lookup_ino(&mut self, request: &mut Request) -> Run<Done> {
        let ino = request.msg.path.base;
        let RequestArgs::LookupIno { mask, snap, .. } = request.msg.args else {
            return Err(Errno::EINVAL.into());
        };
        if ino != Ino::ROOT && ino < names::SYSTEM_END {
            return Err(Errno::ESTALE.into());
        }
        if snap.0 > 0 && snap < SnapId::MAX {
            self.ensure_version(ino, snap).or(Err(Stop::Fail(Errno::ESTALE)))?;
            return self.show_at(request, Walked { ino, snap, found: None }, false);
        }
        self.ensure_inode(ino)?;
        let place = self.cache.get(ino).and_then(|i| i.place.clone());
        let is_stray = self.cache.is_stray(ino);
        // The name of a stray is the server's own.
        let dentry = place.filter(|_| !is_stray && request.msg.flags & WANT_DENTRY != 0);
        self.show(request, ino, mask, dentry)
    }

    pub(crate) fn op_lookup_parent(&mut self, request: &mut Request) -> Run<Done> {
        let ino = request.msg.path.base;
        if ino < names::SYSTEM_END {
            return Err(Errno::EINVAL.into());
        }
        self.ensure_inode(ino)?;
        let parent = self.cache.parent(ino).ok_or(Stop::Fail(Errno::EINVAL))?;
        if parent != Ino::ROOT && parent < names::SYSTEM_END {
            return Err(Errno::ENOENT.into());
        }
        self.check(request, parent, READ)?;
        Ok(Done { target: Some(parent), ..Done::default() })
    }

    /// The name of an inode: what its primary link is called.
    pub(crate) fn op_lookup_name(&mut self, request: &mut Request) -> Run<Done> {
        // `path2` is the folder that the client takes for its.
        let (ino, dir) = (request.msg.path.base, request.msg.path2.base);
        if ino < names::SYSTEM_END {
            return Err(Errno::EINVAL.into());
        }
        self.ensure_inode(ino)?;
        let place = self.cache.get(ino).and_then(|i| i.place.clone());
        let (frag, key) = place.ok_or(Stop::Fail(Errno::EINVAL))?;
        if self.cache.is_stray(ino) || dir.0 != 0 && dir != frag.ino {
            return Err(Errno::ENOENT.into());
        }
        self.check(request, ino, READ)?;
        Ok(Done { dentry: Some((frag, key)), target: Some(ino), ..Done::default() })
    }

    pub(crate) fn op_readdir(&mut self, request: &mut Request) -> Run<Done> {
        let RequestArgs::Readdir(args) = request.msg.args else { return Err(Errno::EINVAL.into()) };
        let path = request.msg.path.clone();
        let walked = self.walk(request, &path)?;
        let Walked { ino, snap, .. } = walked;
        if !self.version(ino, snap).is_some_and(|v| v.inode.is_dir()) {
            return Err(Errno::ENOTDIR.into());
        }
        self.check_at(request, &walked, READ)?;
        if snap == SnapId::HEAD {
            self.need(request, &[(ino, Part::File, Mode::Read)])?;
        }
        let after = request.msg.path2.path.clone();
        let hash = match after.is_empty() {
            false => self.cache.spot(ino, &after).map_or(0, |(_, key)| key.hash),
            true => args.offset_hash & HASH_MASK,
        };
        let frag = self.frag_of_listing(ino, &args, hash);
        if !self.cache.dir(frag).is_some_and(|d| d.is_complete) {
            self.load_dir(frag)?;
            return Err(Stop::Wait(Wait::Dir(frag)));
        }
        let from = Key { hash, name: after };
        let is_start = hash == 0 && from.name.is_empty();
        let (entries, is_end) = self.list(request, frag, snap, &from, &args)?;
        let mut flags = ReaddirReply::HASH_ORDER | ReaddirReply::OFFSET_HASH;
        if is_end {
            flags |= ReaddirReply::END;
            if is_start {
                flags |= ReaddirReply::COMPLETE;
            }
        }
        if args.flags & ReaddirArgs::REPLY_BITFLAGS == 0 {
            // Old clients read two bytes there: whether this is the end, and whether it is all.
            flags = u16::from(is_end) | u16::from(is_end && is_start) << 8;
        }
        let stat = DirStat { frag: frag.frag, auth: self.rank, ..DirStat::default() };
        let reply = ReaddirReply { frag: stat, flags, entries };
        Ok(Done { target: Some(ino), snap, extra: reply.to_bytes(), ..Done::default() })
    }

    /// The fragment that the client means, or that has come in its place.
    fn frag_of_listing(&self, ino: Ino, args: &ReaddirArgs, hash: u32) -> DirFrag {
        let tree = self.cache.get(ino).map(|i| i.store.frag_tree.clone()).unwrap_or_default();
        let mut frag = args.frag;
        if tree.leaf(frag.value()) != frag {
            frag = if frag.contains(hash) && hash != 0 { tree.leaf(hash) } else { tree.leaf(frag.value()) };
        }
        DirFrag { ino, frag }
    }

    fn list(
        &mut self,
        request: &Request,
        frag: DirFrag,
        snap: SnapId,
        from: &Key,
        args: &ReaddirArgs,
    ) -> Run<(Vec<DirEntry>, bool)> {
        let max = if args.max_entries == 0 { MAX_ENTRIES } else { args.max_entries as usize };
        let max = max.min(MAX_ENTRIES);
        let bytes = if args.max_bytes == 0 { LISTING_BYTES } else { args.max_bytes as usize };
        let mut left = bytes.min(MAX_LISTING_BYTES);
        // One more than may go out tells whether anything is left.
        let found = self.names_behind(frag, snap, from, max + 1);
        let mut is_end = found.len() <= max;
        let mut entries = Vec::new();
        for (key, target) in found.into_iter().take(max) {
            let Some(ino) = target.ino() else { continue };
            let is_here = match snap {
                SnapId::HEAD => self.ensure_inode(ino),
                snap => self.ensure_version(ino, snap),
            };
            if let Err(stop) = is_here {
                match stop {
                    // A hard link to nothing is left out.
                    Stop::Fail(_) | Stop::NoEntry(..) => continue,
                    // What is known goes out; the rest follows when it is asked for.
                    Stop::Wait(_) if !entries.is_empty() => {
                        is_end = false;
                        break;
                    }
                    Stop::Wait(_) => return Err(stop),
                }
            }
            let more = self.version(ino, snap).map_or(0, |v| {
                let xattrs: usize = v.xattrs.iter().map(|(k, v)| k.len() + v.len() + 8).sum();
                xattrs + v.symlink.len()
            });
            let size = ENTRY_BYTES + key.name.len() + more;
            if size > left && !entries.is_empty() {
                is_end = false;
                break;
            }
            left = left.saturating_sub(size);
            let (lease, inode) = match snap {
                SnapId::HEAD => {
                    let lease = self.lend(request.client, frag, &key);
                    (lease, self.inode_stat(request.client, ino, Caps::NONE))
                }
                snap => (Self::lease_at(), self.stat_at(ino, snap)),
            };
            let Some(inode) = inode else { continue };
            entries.push(DirEntry { name: key.name, lease, inode });
        }
        Ok((entries, is_end))
    }

    /// Names of a fragment that lead somewhere, or did at a snapshot.
    fn names_behind(&self, frag: DirFrag, snap: SnapId, from: &Key, max: usize) -> Vec<(Key, Target)> {
        let Some(dir) = self.cache.dir(frag) else { return Vec::new() };
        let is_behind = |key: &Key| from.name.is_empty() || key > from;
        let is_in = |d: &Dentry| !d.target.is_null() && (snap == SnapId::HEAD || d.first <= snap);
        let now = dir.entries.range(from..).filter(|(key, d)| is_behind(key) && is_in(d));
        let mut found: Vec<(Key, Target)> = now.take(max).map(|(key, d)| (key.clone(), d.target)).collect();
        if snap != SnapId::HEAD {
            let old = dir.old.range((from.clone(), SnapId(0))..);
            let was =
                old.filter(|((key, last), o)| is_behind(key) && o.dentry.first <= snap && snap <= *last);
            found.extend(was.take(max).map(|((key, _), o)| (key.clone(), o.target())));
            found.sort_by(|a, b| a.0.cmp(&b.0));
            found.truncate(max);
        }
        found
    }

    pub(crate) fn op_getvxattr(&mut self, request: &mut Request) -> Run<Done> {
        let path = request.msg.path.clone();
        let Walked { ino, .. } = self.walk_to_head(request, &path)?;
        self.check(request, ino, READ)?;
        let name = request.msg.path2.path.clone();
        let value = self.vxattr(ino, &name)?;
        let extra: Bytes = Writer::collect(|w| w.envelope(1, 1, |w| w.blob(&value)));
        Ok(Done { extra, ..Done::default() })
    }
}

const WANT_DENTRY: u32 = messages::fs::MClientRequest::WANT_DENTRY;
