//! What a client's key allows: paths, users, and changes of layouts and quotas.
//!
//! Permissions of files are the clients' to check, unless a key names a user: then the server checks them for
//! that user, whatever the client says.
//!
//! Source: Session::check_access in src/mds/SessionMap.cc, MDSAuthCaps::is_capable.

use cephx::caps::MdsGrant;
use messages::fs::FileName;
use types::{Errno, GlobalId, Ino, SnapId};

use super::path::Walked;
use super::request::{Request, Run};
use super::server::Server;

pub(crate) const READ: u32 = 1;
pub(crate) const WRITE: u32 = 1 << 1;
pub(crate) const EXEC: u32 = 1 << 2;
pub(crate) const SNAPSHOT: u32 = 1 << 3;
pub(crate) const CHOWN: u32 = 1 << 4;
pub(crate) const CHGRP: u32 = 1 << 5;
pub(crate) const SET_VXATTR: u32 = 1 << 6;

/// Who asks, for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub uid: u32,
    pub gid: u32,
    pub gids: &'a [u64],
    pub mask: u32,
    pub new_uid: u32,
    pub new_gid: u32,
}

/// An inode's owner and permissions.
#[derive(Debug, Clone, Copy)]
struct Owned {
    uid: u32,
    gid: u32,
    mode: u32,
}

fn admits(grant: &MdsGrant, asked: &Asked, inode: Owned) -> bool {
    let perms = grant.perms;
    if asked.mask & (READ | EXEC) != 0 && !perms.read || asked.mask & WRITE != 0 && !perms.write {
        return false;
    }
    if grant.root_squash && (asked.uid == 0 || asked.gid == 0) && asked.mask & WRITE != 0 {
        return false;
    }
    if asked.mask & SET_VXATTR != 0 && !perms.set_vxattr {
        return false;
    }
    if asked.mask & SNAPSHOT != 0 && !perms.snapshot {
        return false;
    }
    let Some(uid) = grant.uid else { return true };
    let is_in = |gid: &u32| *gid == asked.gid || asked.gids.contains(&u64::from(*gid));
    if uid != asked.uid || !grant.gids.is_empty() && !grant.gids.iter().any(is_in) {
        return false;
    }
    let allowed =
        |gid: u32| grant.gids.contains(&gid) && (gid == asked.gid || asked.gids.contains(&u64::from(gid)));
    if asked.mask & CHOWN != 0 && (asked.new_uid != asked.uid || inode.uid != asked.uid) {
        return false;
    }
    if asked.mask & CHGRP != 0 && (inode.uid != asked.uid || !allowed(asked.new_gid)) {
        return false;
    }
    let shift = if inode.uid == asked.uid {
        6
    } else if allowed(inode.gid) {
        3
    } else {
        0
    };
    let bits = inode.mode >> shift;
    let wants = |mask: u32, bit: u32| asked.mask & mask == 0 || bits & bit != 0;
    wants(READ, 4) && wants(WRITE, 2) && wants(EXEC, 1)
}

fn asked_by(request: &Request, mask: u32) -> Asked<'_> {
    let m = &request.msg;
    Asked { uid: m.caller_uid, gid: m.caller_gid, gids: &m.gids, mask, new_uid: u32::MAX, new_gid: u32::MAX }
}

impl Server {
    fn is_capable(&self, client: GlobalId, path: Option<&[u8]>, asked: &Asked, inode: Owned) -> bool {
        let Some(session) = self.sessions.get(&client) else { return false };
        let grants = &session.peer_caps.grants;
        grants.iter().any(|grant| {
            let is_here = grant.fs_name.as_ref().is_none_or(|fs| *fs == self.map.fs_name)
                && grant.is_for(&session.info.client.addr);
            let covers = grant.path.is_empty()
                || path.is_some_and(|p| std::str::from_utf8(p).is_ok_and(|p| grant.covers(p)));
            is_here && covers && admits(grant, asked, inode)
        })
    }

    /// Whether any grant looks at paths.
    fn needs_path(&self, client: GlobalId) -> bool {
        self.sessions.get(&client).is_some_and(|s| s.peer_caps.grants.iter().any(|g| !g.path.is_empty()))
    }

    /// Whether a client may do this with an inode; `EACCES` if not.
    pub(crate) fn check_inode(&self, client: GlobalId, ino: Ino, asked: &Asked) -> Result<(), Errno> {
        let inode = self.cache.get(ino).ok_or(Errno::ESTALE)?;
        let i = &inode.store.inode;
        let path = self.needs_path(client).then(|| self.cache.path(ino));
        let owned = Owned { uid: i.uid, gid: i.gid, mode: i.mode };
        match self.is_capable(client, path.as_deref(), asked, owned) {
            true => Ok(()),
            false => Err(Errno::EACCES),
        }
    }

    /// The same for what an inode was at a snapshot. One that is gone has the path of its old name.
    pub(crate) fn check_at(&self, request: &Request, walked: &Walked, mask: u32) -> Run<()> {
        if walked.snap == SnapId::HEAD {
            return self.check(request, walked.ino, mask);
        }
        let i = self.version(walked.ino, walked.snap).ok_or(Errno::ESTALE)?.inode;
        let owned = Owned { uid: i.uid, gid: i.gid, mode: i.mode };
        let path = || match (&walked.found, self.cache.get(walked.ino)) {
            (Some(found), None) => {
                let mut path = self.cache.path(found.dir);
                path.push(b'/');
                path.extend_from_slice(&found.key.name);
                path
            }
            _ => self.cache.path(walked.ino),
        };
        let path = self.needs_path(request.client).then(path);
        match self.is_capable(request.client, path.as_deref(), &asked_by(request, mask), owned) {
            true => Ok(()),
            false => Err(Errno::EACCES.into()),
        }
    }

    /// Whether an inode is below a path that a client's key is for.
    pub(crate) fn may_reach(&self, client: GlobalId, ino: Ino) -> bool {
        let asked = Asked { uid: 0, gid: 0, gids: &[], mask: 0, new_uid: u32::MAX, new_gid: u32::MAX };
        let path = self.needs_path(client).then(|| self.cache.path(ino));
        let Some(session) = self.sessions.get(&client) else { return false };
        session.peer_caps.grants.iter().any(|grant| {
            let mut anybody = grant.clone();
            anybody.uid = None;
            let covers = grant.path.is_empty()
                || path.as_ref().is_some_and(|p| std::str::from_utf8(p).is_ok_and(|p| grant.covers(p)));
            covers && admits(&anybody, &asked, Owned { uid: 0, gid: 0, mode: 0 })
        })
    }

    /// The same for a request.
    pub(crate) fn check(&self, request: &Request, ino: Ino, mask: u32) -> Run<()> {
        Ok(self.check_inode(request.client, ino, &asked_by(request, mask))?)
    }

    /// A client whose key is for some paths does not hear whether there is anything elsewhere.
    pub(crate) fn check_entry_path(&self, request: &Request, dir: Ino, name: &FileName) -> Run<()> {
        if !self.needs_path(request.client) {
            return Ok(());
        }
        let mut path = self.cache.path(dir);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let asked = asked_by(request, 0);
        let any = Owned { uid: u32::MAX, gid: u32::MAX, mode: 0o777 };
        match self.is_capable(request.client, Some(&path), &asked, any) {
            true => Ok(()),
            false => Err(Errno::EACCES.into()),
        }
    }
}
