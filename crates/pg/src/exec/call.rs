//! Class methods: what they see of the object are the operations of this module's siblings, run inside the same request.
//! Source: src/osd/objclass.cc, CEPH_OSD_OP_CALL in PrimaryLogPG::do_osd_ops.

use std::collections::BTreeMap;

use bytes::Bytes;
use classes::{KeyPage, ObjectView, Origin, Stat};
use codec::Encode;
use messages::osd::{Extent, WatchItem};
use types::{Errno, SnapId, Utime};

use super::answer::{Answer, OpError, Outcome};
use super::scratch::Scratch;
use super::work::{self, METHOD_STEP};
use super::{ExecEnv, ExecStop, attrs, omap, read, snaps, watch, write, xxhash};

/// What a byte of a method's input costs when it is decoded, at most about.
const DECODED: u64 = 8;

pub(super) fn call(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    (class, method): (&str, &str),
    input: &Bytes,
) -> Outcome {
    let method = classes::find(class, method).map_err(|_| Errno::EOPNOTSUPP)?;
    // Lists of short things take many times their bytes once they are decoded, which a method does before all
    // else.
    if (input.len() as u64).saturating_mul(DECODED) > work::bytes(env.config) {
        return Err(ExecStop::Refused(Errno::E2BIG).into());
    }
    s.user_modify |= method.flags.write;
    let slice = s.slice.take();
    let mut view = View { env, s, stop: None, read: false, wrote: false };
    let mut out = Bytes::new();
    let result = (method.run)(&mut view, input, &mut out);
    view.s.slice = slice;
    if let Some(stop) = view.stop {
        return Err(stop.into());
    }
    let (read, wrote) = (view.read, view.wrote);
    if (read && !method.flags.read) || (wrote && !method.flags.write) {
        // What it changed was allowed to nobody: caps were asked for what the method declares.
        s.broken |= wrote;
        return Err(Errno::EIO.into());
    }
    Ok(Answer::of(result.unwrap_or_else(Errno::neg), out))
}

/// The object as a method sees it.
struct View<'a, 'e, 's> {
    env: &'a mut ExecEnv<'e>,
    s: &'a mut Scratch<'s>,
    /// The whole request stops: the method's own result does not count.
    stop: Option<ExecStop>,
    /// What the method did, held against its declaration.
    read: bool,
    wrote: bool,
}

impl<'e, 's> View<'_, 'e, 's> {
    fn run<T>(
        &mut self,
        op: impl FnOnce(&mut ExecEnv<'e>, &mut Scratch<'s>) -> Result<T, OpError>,
    ) -> Result<T, Errno> {
        let outcome = match (&self.stop, self.s.work.spend(METHOD_STEP)) {
            (None, Ok(())) => op(self.env, self.s),
            (Some(stop), _) => Err(stop.clone().into()),
            (None, Err(stop)) => Err(stop.into()),
        };
        self.s.note_metadata(self.env.store);
        self.s.inner_ops += u32::from(outcome.is_ok());
        outcome.map_err(|e| match e {
            OpError::Errno(e) => e,
            // Methods read to the end: nothing pauses in them.
            OpError::SliceOver | OpError::OnDevice(_) => Errno::EIO,
            OpError::Stop(stop) => {
                self.stop = Some(*stop);
                Errno::EIO
            }
        })
    }

    fn reading<T>(
        &mut self,
        op: impl FnOnce(&mut ExecEnv<'e>, &mut Scratch<'s>) -> Result<T, OpError>,
    ) -> Result<T, Errno> {
        self.read = true;
        self.run(op)
    }

    fn writing(
        &mut self,
        op: impl FnOnce(&mut ExecEnv<'e>, &mut Scratch<'s>) -> Outcome,
    ) -> Result<(), Errno> {
        self.wrote = true;
        self.s.user_modify = true;
        self.run(op).map(|_| ())
    }
}

impl ObjectView for View<'_, '_, '_> {
    fn stat(&mut self) -> Result<Stat, Errno> {
        self.run(|_, s| {
            read::stat(s)?;
            Ok(Stat { size: s.info().size, mtime: s.info().mtime })
        })
    }
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Errno> {
        self.reading(|env, s| Ok(read::read(env, s, Extent::new(offset, length))?.joined()))
    }
    fn xattr(&mut self, name: &[u8]) -> Result<Bytes, Errno> {
        self.reading(|env, s| Ok(attrs::get(env, s, name)?.data))
    }
    fn xattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
        self.reading(
            |env, s| if s.before.exists { attrs::visible(env, s) } else { Err(Errno::ENOENT.into()) },
        )
    }
    fn omap_list(&mut self, start_after: &[u8], prefix: &[u8], max: u64) -> Result<KeyPage, Errno> {
        self.reading(|env, s| omap::list(env, s, start_after, max, prefix))
    }
    fn omap_get(&mut self, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, Errno> {
        self.reading(|env, s| omap::get(env, s, keys))
    }
    fn omap_header(&mut self) -> Result<Bytes, Errno> {
        self.reading(|env, s| Ok(omap::header(env, s)?.data))
    }
    fn watchers(&mut self) -> Result<Vec<WatchItem>, Errno> {
        self.reading(|_, s| Ok(watch::watchers(s)))
    }
    fn snapset_seq(&mut self) -> Result<u64, Errno> {
        let state = &self.s.state;
        let hidden = !state.is_present() && state.snapset.clones.is_empty();
        if !state.exists || hidden { Err(Errno::ENOENT) } else { Ok(state.snapset.seq) }
    }

    fn create(&mut self, exclusive: bool) -> Result<(), Errno> {
        self.writing(|_, s| write::create(s, exclusive))
    }
    fn remove(&mut self) -> Result<(), Errno> {
        self.writing(|env, s| write::delete(env, s))
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Errno> {
        self.writing(|env, s| write::write(env, s, Extent::new(offset, data.len() as u64), data))
    }
    fn write_full(&mut self, data: Bytes) -> Result<(), Errno> {
        self.writing(|env, s| write::write_full(env, s, Extent::new(0, data.len() as u64), data))
    }
    fn truncate(&mut self, size: u64) -> Result<(), Errno> {
        self.writing(|env, s| write::truncate(env, s, Extent::new(size, 0)))
    }
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        self.writing(|env, s| write::zero(env, s, Extent::new(offset, length)))
    }
    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Errno> {
        self.writing(|env, s| attrs::set(env, s, name, value))
    }
    fn omap_set(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Errno> {
        self.writing(|env, s| omap::set(env, s, entries))
    }
    fn omap_set_header(&mut self, header: Bytes) -> Result<(), Errno> {
        self.writing(|env, s| omap::set_header(env, s, header))
    }
    fn omap_remove(&mut self, key: Bytes) -> Result<(), Errno> {
        self.writing(|env, s| omap::remove(env, s, [key].into()))
    }
    fn omap_remove_range(&mut self, begin: Bytes, end: Bytes) -> Result<(), Errno> {
        self.writing(|env, s| omap::remove_range(env, s, begin, end))
    }
    fn omap_clear(&mut self) -> Result<(), Errno> {
        self.writing(|env, s| omap::clear(env, s))
    }
    fn rollback(&mut self, snap: SnapId) -> Result<(), Errno> {
        self.writing(|env, s| snaps::rollback(env, s, snap))
    }

    fn origin(&self) -> Origin {
        Origin { name: self.env.requester.name, addr: self.env.requester.addr }
    }
    fn now(&self) -> Utime {
        self.env.now
    }
    fn current_version(&self) -> u64 {
        self.env.last_user_version
    }
    fn subop(&self) -> u32 {
        self.s.subop.saturating_add(self.s.inner_ops)
    }
    fn unique(&self) -> [u8; 16] {
        // The request's name, the place in the PG's order and the time: never the same twice.
        let mut w = codec::Writer::new();
        self.env.reqid.encode(&mut w);
        self.env.first_version.encode(&mut w);
        self.env.now.encode(&mut w);
        self.env.pgid.pgid.encode(&mut w);
        w.u32(self.s.subop);
        let half = |seed| xxhash::xxh64(seed, w.as_slice()).to_le_bytes();
        let mut out = [0; 16];
        out.iter_mut().zip(half(1).into_iter().chain(half(2))).for_each(|(to, from)| *to = from);
        out
    }
    fn spend(&mut self, bytes: u64) -> Result<(), Errno> {
        if self.stop.is_none() {
            self.stop = self.s.work.spend(bytes).err();
        }
        if self.stop.is_some() { Err(Errno::E2BIG) } else { Ok(()) }
    }
}
