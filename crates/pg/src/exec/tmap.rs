//! The map that objects held in their data before there was an omap: old clients still write it.
//! Source: CEPH_OSD_OP_TMAP* and do_tmapup in src/osd/PrimaryLogPG.cc, CEPH_OSD_TMAP_* in src/include/rados.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode, Reader};
use messages::osd::Extent;
use types::Errno;

use super::answer::{Answer, OpError, Outcome};
use super::scratch::Scratch;
use super::{ExecEnv, omap, read, write};

/// Commands of an update.
mod command {
    pub const HEADER: u8 = b'h';
    pub const SET: u8 = b's';
    pub const CREATE: u8 = b'c';
    pub const REMOVE: u8 = b'r';
    pub const REMOVE_SLOPPY: u8 = b'R';
}

/// An object without data converts to nothing, and that is no error. Source: CEPH_OSD_TMAP2OMAP_NULLOK.
const NULL_OK: u8 = 1;

#[derive(Default)]
struct Tmap {
    header: Bytes,
    entries: BTreeMap<Bytes, Bytes>,
}

codec::wire_plain!(Tmap { header, entries });

/// Bytes of an encoded map: its entries may have eight each, and take ten times as much memory.
const MAX_BYTES: usize = 8 << 20;

impl Tmap {
    fn read(data: Bytes) -> Result<Self, OpError> {
        if data.len() > MAX_BYTES {
            return Err(Errno::E2BIG.into());
        }
        Ok(Self::from_bytes(data)?)
    }
}

fn supported(env: &ExecEnv<'_>) -> Result<(), OpError> {
    if env.pool.is_erasure() { Err(Errno::EOPNOTSUPP.into()) } else { Ok(()) }
}

pub(super) fn get(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>) -> Outcome {
    supported(env)?;
    read::read(env, s, Extent::default())
}

/// Replaces the map; entries are put in order.
pub(super) fn put(env: &ExecEnv<'_>, s: &mut Scratch<'_>, data: &Bytes) -> Outcome {
    supported(env)?;
    let map = Tmap::read(data.clone())?.to_bytes();
    s.user_modify = true;
    write::write_full(env, s, Extent::new(0, map.len() as u64), map)
}

/// Carries out a list of commands.
pub(super) fn update(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, commands: Bytes) -> Outcome {
    supported(env)?;
    if commands.is_empty() {
        return Ok(Answer::done());
    }
    let stored = read::read(env, s, Extent::default())?.joined();
    let mut map = if stored.is_empty() { Tmap::default() } else { Tmap::read(stored)? };
    let r = &mut Reader::new(commands);
    while !r.is_empty() {
        apply(&mut map, r)?;
    }
    let map = map.to_bytes();
    write::write_full(env, s, Extent::new(0, map.len() as u64), map)
}

fn apply(map: &mut Tmap, r: &mut Reader) -> Result<(), OpError> {
    let code = r.u8()?;
    if code == command::HEADER {
        map.header = r.blob()?;
        return Ok(());
    }
    let key = r.blob()?;
    match code {
        command::SET => {
            map.entries.insert(key, r.blob()?);
        }
        command::CREATE if map.entries.contains_key(&key) => return Err(Errno::EEXIST.into()),
        command::CREATE => {
            map.entries.insert(key, r.blob()?);
        }
        command::REMOVE => {
            map.entries.remove(&key).ok_or(Errno::ENOENT)?;
        }
        command::REMOVE_SLOPPY => {
            map.entries.remove(&key);
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(())
}

/// Moves the map into the omap.
pub(super) fn to_omap(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, flags: u8) -> Outcome {
    if s.info().size == 0 {
        return if flags & NULL_OK != 0 { Ok(Answer::done()) } else { Err(Errno::ENODATA.into()) };
    }
    let stored = read::read(env, s, Extent::default())?.joined();
    let map = Tmap::read(stored)?;
    write::truncate(env, s, Extent::default())?;
    omap::set_header(env, s, map.header)?;
    omap::set(env, s, map.entries)
}
