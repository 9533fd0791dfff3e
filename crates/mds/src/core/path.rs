//! Following paths of requests, and finding inodes by their numbers.
//!
//! Source: MDCache::path_traverse, MDCache::open_ino.

use messages::fs::{FileName, FilePath};
use types::{Errno, Ino, SnapId};

use super::cache::{Key, Target};
use super::request::{Request, Run, Stop, Wait};
use super::server::Server;
use crate::format::{DirFrag, names};

/// Bytes of a name. Source: NAME_MAX.
pub(crate) const MAX_NAME: usize = 255;
/// Names of a path.
const MAX_STEPS: usize = 2_048;

/// A name in a folder, and where it leads.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub dir: Ino,
    pub frag: DirFrag,
    pub key: Key,
    pub target: Target,
}

/// Where a path ends.
#[derive(Debug, Clone)]
pub(crate) struct Walked {
    pub ino: Ino,
    /// `HEAD`: as it is now.
    pub snap: SnapId,
    /// The last name of the path; `None`: the path was an inode's number alone.
    pub found: Option<Found>,
}

impl Server {
    /// The inode is in memory, or is read.
    pub(crate) fn ensure_inode(&mut self, ino: Ino) -> Run<()> {
        if self.cache.get(ino).is_some() {
            self.cache.touch(ino);
            return Ok(());
        }
        if self.disk.is_lost(ino) {
            return Err(Errno::ESTALE.into());
        }
        self.find_inode(ino)?;
        if self.cache.get(ino).is_some() { Ok(()) } else { Err(Stop::Wait(Wait::Find(ino))) }
    }

    /// Where a name of a folder leads; `by`: whose changes that are not safe count already.
    pub(crate) fn look_up(&mut self, dir: Ino, name: &FileName, by: Option<&Request>) -> Run<Found> {
        if name.len() > MAX_NAME {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let inode = self.cache.get(dir).ok_or(Stop::Fail(Errno::ESTALE))?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let (frag, key) = self.cache.spot(dir, name).ok_or(Stop::Fail(Errno::ESTALE))?;
        let known = self.cache.dir(frag).map(|d| (d.entries.get(&key).cloned(), d.is_complete));
        let target = match known {
            Some((Some(dentry), _)) => {
                if let (Some((client, seq)), Some(request)) = (dentry.unsafe_by, by) {
                    if client != request.client && seq > self.safe_seq {
                        return Err(Stop::Wait(Wait::Safe(seq)));
                    }
                }
                dentry.target
            }
            Some((None, true)) => Target::Null,
            Some((None, false)) | None => {
                self.load_name(frag, &key)?;
                return Err(Stop::Wait(Wait::Dir(frag)));
            }
        };
        Ok(Found { dir, frag, key, target })
    }

    /// Follows a path; its last name need not lead anywhere.
    pub(crate) fn walk_to_name(&mut self, request: &Request, path: &FilePath) -> Run<Found> {
        let mut at = self.base_of(path.base)?;
        let (is_snap, names) = parts(&path.path)?;
        if is_snap {
            return Err(Errno::EROFS.into());
        }
        let mut names = names.into_iter().peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                self.check_entry_path(request, at, &name)?;
                return self.look_up(at, &name, Some(request));
            }
            at = self.step(request, at, &name)?;
        }
        Err(Errno::EINVAL.into())
    }

    /// Follows a path to what is there, and can be changed.
    pub(crate) fn walk_to_head(&mut self, request: &Request, path: &FilePath) -> Run<Walked> {
        let walked = self.walk(request, path)?;
        if walked.snap == SnapId::HEAD { Ok(walked) } else { Err(Errno::EROFS.into()) }
    }

    /// Follows a path to what is there, or was at a snapshot.
    pub(crate) fn walk(&mut self, request: &Request, path: &FilePath) -> Run<Walked> {
        let mut at = self.base_of(path.base)?;
        let mut last = None;
        let (is_snap, names) = parts(&path.path)?;
        if is_snap {
            return self.walk_in_snap(at, names);
        }
        let count = names.len();
        for (i, name) in names.into_iter().enumerate() {
            let is_end = i + 1 == count;
            if is_end {
                self.check_entry_path(request, at, &name)?;
            }
            let found = self.look_up(at, &name, Some(request))?;
            let Some(ino) = found.target.ino() else {
                return Err(match is_end {
                    true => Stop::NoEntry(found.frag, found.key),
                    false => Stop::Fail(Errno::ENOENT),
                });
            };
            self.ensure_target(&found)?;
            at = ino;
            last = Some(found);
        }
        Ok(Walked { ino: at, snap: SnapId::HEAD, found: last })
    }

    /// Follows a path from a folder's snapshots on: the first name is a snapshot's.
    fn walk_in_snap(&mut self, dir: Ino, names: Vec<FileName>) -> Run<Walked> {
        if !self.cache.get(dir).is_some_and(|i| i.is_dir()) {
            return Err(Errno::ENOTDIR.into());
        }
        let mut names = names.into_iter();
        let name = names.next().ok_or(Stop::Fail(Errno::EINVAL))?;
        let snap = self.resolve_snap(dir, &name).ok_or(Stop::Fail(Errno::ENOENT))?;
        let mut walked = Walked { ino: dir, snap, found: None };
        for name in names {
            let found = self.look_up_at(walked.ino, &name, snap)?;
            let ino = found.target.ino().ok_or(Stop::Fail(Errno::ENOENT))?;
            self.ensure_version(ino, snap)?;
            walked = Walked { ino, snap, found: Some(found) };
        }
        Ok(walked)
    }

    /// Where a name of a folder led at a snapshot.
    fn look_up_at(&mut self, dir: Ino, name: &FileName, snap: SnapId) -> Run<Found> {
        if name.len() > MAX_NAME {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let version = self.version(dir, snap).ok_or(Stop::Fail(Errno::ESTALE))?;
        if !version.inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let (frag, key) = self.cache.spot(dir, name).ok_or(Stop::Fail(Errno::ESTALE))?;
        let found = |target| Found { dir, frag, key: key.clone(), target };
        if let Some(now) = self.cache.dentry(frag, &key).filter(|d| !d.target.is_null() && d.first <= snap) {
            return Ok(found(now.target));
        }
        if let Some((_, old)) = self.cache.old_name(frag, &key, snap) {
            return Ok(found(old.target()));
        }
        if !self.cache.dir(frag).is_some_and(|d| d.is_complete) {
            self.load_dir(frag)?;
            return Err(Stop::Wait(Wait::Dir(frag)));
        }
        Ok(found(Target::Null))
    }

    /// What an inode was at a snapshot is in memory.
    pub(crate) fn ensure_version(&mut self, ino: Ino, snap: SnapId) -> Run<()> {
        if self.cache.copy_at(ino, snap).is_some() {
            return Ok(());
        }
        match self.ensure_inode(ino) {
            // A hard link to nothing is damage of this name alone.
            Err(Stop::Fail(_)) => Err(Errno::EIO.into()),
            other => other,
        }
    }

    fn step(&mut self, request: &Request, dir: Ino, name: &FileName) -> Run<Ino> {
        let found = self.look_up(dir, name, Some(request))?;
        let ino = found.target.ino().ok_or(Stop::Fail(Errno::ENOENT))?;
        self.ensure_target(&found)?;
        Ok(ino)
    }

    /// The inode that a name leads to is in memory: a hard link's may not be.
    pub(crate) fn ensure_target(&mut self, found: &Found) -> Run<()> {
        let Some(ino) = found.target.ino() else { return Ok(()) };
        match self.ensure_inode(ino) {
            // A hard link to nothing is damage of this name alone.
            Err(Stop::Fail(_)) => Err(Errno::EIO.into()),
            Ok(()) => {
                if matches!(found.target, Target::Remote { .. }) {
                    self.note_home(ino, found.frag, &found.key);
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Clients name inodes by numbers, but not those that servers have for themselves.
    fn base_of(&mut self, base: Ino) -> Run<Ino> {
        if base != Ino::ROOT && base < names::SYSTEM_END {
            return Err(Errno::ESTALE.into());
        }
        self.ensure_inode(base)?;
        Ok(base)
    }
}

/// The names of a path, and whether they begin in the folder of snapshots, which is an empty name at its
/// beginning. Source: MDCache::path_traverse.
fn parts(path: &FileName) -> Run<(bool, Vec<FileName>)> {
    if path.is_empty() {
        return Ok((false, Vec::new()));
    }
    let mut parts = Vec::new();
    let mut rest = path.clone();
    let is_snap = rest.first() == Some(&b'/');
    if is_snap {
        rest = rest.slice(1..);
    }
    loop {
        let at = rest.iter().position(|b| *b == b'/');
        let name = rest.slice(..at.unwrap_or(rest.len()));
        if name.is_empty() {
            // A slash at the end says nothing.
            if at.is_none() && !parts.is_empty() {
                break;
            }
            return Err(Errno::ENOENT.into());
        }
        if name.contains(&0) || matches!(name.as_ref(), b"." | b"..") {
            return Err(Errno::EINVAL.into());
        }
        parts.push(name);
        if parts.len() > MAX_STEPS {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let Some(at) = at else { break };
        rest = rest.slice(at + 1..);
        if rest.is_empty() {
            break;
        }
    }
    Ok((is_snap, parts))
}
