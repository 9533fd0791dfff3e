//! Following paths of requests, and finding inodes by their numbers.
//!
//! Source: MDCache::path_traverse, MDCache::open_ino.

use messages::fs::{FileName, FilePath};
use types::{Errno, Ino};

use super::cache::{Key, Target};
use super::request::{Request, Run, Stop, Wait};
use super::server::Server;
use crate::format::{DirFrag, names};

/// Bytes of a name. Source: NAME_MAX.
const MAX_NAME: usize = 255;
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
        let mut names = parts(&path.path)?.into_iter().peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                self.check_entry_path(request, at, &name)?;
                return self.look_up(at, &name, Some(request));
            }
            at = self.step(request, at, &name)?;
        }
        Err(Errno::EINVAL.into())
    }

    /// Follows a path to what is there.
    pub(crate) fn walk(&mut self, request: &Request, path: &FilePath) -> Run<Walked> {
        let mut at = self.base_of(path.base)?;
        let mut last = None;
        let names = parts(&path.path)?;
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
        Ok(Walked { ino: at, found: last })
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

/// The names of a path. An empty one in its middle is a folder of snapshots, of which there are none.
fn parts(path: &FileName) -> Run<Vec<FileName>> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    let mut rest = path.clone();
    if rest.first() == Some(&b'/') {
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
    Ok(parts)
}
