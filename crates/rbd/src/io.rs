//! Reading and changing an image's bytes: objects, the parent behind them, the object map before them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use block::{Piece, Range};
use bytes::{Bytes, BytesMut};
use messages::osd::SparseReadResponse;
use rados::{Pending, ReadOp, SnapContext, WriteOp};
use tokio::task::JoinSet;
use types::Errno;

use crate::class::MapUpdateArgs;
use crate::error::{Error, Result};
use crate::header::feature;
use crate::image::{Image, Inner, Touch, View};
use crate::layout::Extent;
use crate::object_map::{self, EXISTS, EXISTS_CLEAN, NONEXISTENT, PENDING};

/// From this length on only what is allocated is read.
const SPARSE_FROM: u64 = 64 << 10;
/// Objects changed at once by one request.
const OBJECTS_AT_ONCE: usize = 16;
/// Objects asked at once whether they exist.
const STATS_AT_ONCE: usize = 64;

/// A change of one data object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectChange {
    Write {
        offset: u64,
        data: Bytes,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    Truncate {
        offset: u64,
    },
    /// The range reads as zeros afterwards, in front of a parent too.
    Remove,
    /// The object goes, because the image ends before it; what the parent shows there matters to snapshots alone.
    Drop,
}

impl Image {
    /// What a range holds, in order.
    ///
    /// # Errors
    /// EINVAL outside the image.
    pub async fn read_pieces(&self, offset: u64, len: u64) -> Result<Vec<Piece>> {
        let view = self.inner.view();
        check_range(offset, len, view.size)?;
        self.inner.touch(Touch::Read);
        let extents = view.layout.extents(offset, len);
        let started: Vec<(Extent, Option<Pending>)> =
            extents.into_iter().map(|e| (e, self.inner.start_read(&view, &e))).collect();
        let mut out = Vec::with_capacity(started.len());
        for (extent, pending) in started {
            let found = match pending {
                None => None,
                Some(pending) => match pending.await {
                    Ok(reply) => Some(reply.output(0)),
                    Err(e) if e.is_not_found() => None,
                    Err(e) => return Err(e.into()),
                },
            };
            match found {
                Some(data) => object_pieces(&extent, data, &mut out)?,
                None => out.extend(parent_pieces(&view, &extent).await?),
            }
        }
        Ok(out)
    }

    /// The bytes of a range.
    ///
    /// # Errors
    /// EINVAL outside the image.
    pub async fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        Ok(flatten(self.read_pieces(offset, len).await?))
    }

    /// # Errors
    /// EINVAL outside the image; EROFS on one that is open for reading; ESHUTDOWN once another client broke our lock.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let _ready = self.inner.ready().await?;
        let view = self.inner.view();
        check_range(offset, data.len() as u64, view.size)?;
        self.inner.touch(Touch::Written);
        let changes = view.layout.extents(offset, data.len() as u64).into_iter().map(|e| {
            let from = (e.image - offset) as usize;
            (
                e.object,
                ObjectChange::Write { offset: e.offset, data: data.slice(from..from + e.len as usize) },
            )
        });
        self.inner.change_objects(&view, changes.collect()).await
    }

    /// Makes a range read as zeros and gives its space back.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let _ready = self.inner.ready().await?;
        let view = self.inner.view();
        check_range(offset, len, view.size)?;
        self.inner.touch(Touch::Written);
        let changes = view.layout.extents(offset, len).into_iter().map(|e| {
            // The image's last object may be shorter than the others.
            let to_end = e.offset + e.len == view.layout.object_size || e.image + e.len == view.size;
            let change = match (e.offset, to_end && view.layout.stripe_count == 1) {
                (0, true) => ObjectChange::Remove,
                (offset, true) => ObjectChange::Truncate { offset },
                (offset, false) => ObjectChange::Zero { offset, len: e.len },
            };
            (e.object, change)
        });
        self.inner.change_objects(&view, changes.collect()).await
    }

    /// What is allocated of a range: whole objects, or what an object's size tells. Ends early, behind some window of
    /// objects, once it has more than `most` ranges that differ from their neighbours.
    ///
    /// # Errors
    /// EINVAL outside the image.
    pub async fn status(&self, offset: u64, len: u64, most: usize) -> Result<Vec<Range>> {
        let view = self.inner.view();
        check_range(offset, len, view.size)?;
        let extents = view.layout.extents(offset, len);
        let mut out = Vec::new();
        for window in extents.chunks(STATS_AT_ONCE) {
            self.status_of(&view, window, &mut out).await?;
            if differing(&out) > most {
                break;
            }
        }
        Ok(out)
    }

    async fn status_of(&self, view: &View, extents: &[Extent], out: &mut Vec<Range>) -> Result<()> {
        let ask = |e: &Extent| {
            let known = self.inner.map_state(e.object);
            let asked =
                known.is_none().then(|| view.data.submit_read(&view.object(e.object), ReadOp::new().stat()));
            (*e, known, asked)
        };
        let started: Vec<_> = extents.iter().map(ask).collect();
        for (extent, known, asked) in started {
            let exists = match asked {
                None => known.unwrap_or(false),
                Some(pending) => match pending.await {
                    Ok(_) => true,
                    Err(e) if e.is_not_found() => false,
                    Err(e) => return Err(e.into()),
                },
            };
            if exists {
                out.push(Range { len: extent.len, hole: false, zero: false });
            } else {
                out.extend(parent_status(view, &extent).await?);
            }
        }
        Ok(())
    }
}

/// How many ranges are left when neighbours alike are joined.
fn differing(ranges: &[Range]) -> usize {
    let pairs = ranges.iter().zip(ranges.iter().skip(1));
    usize::from(!ranges.is_empty()) + pairs.filter(|(a, b)| (a.hole, a.zero) != (b.hole, b.zero)).count()
}

fn check_range(offset: u64, len: u64, size: u64) -> Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::refused(Errno::EINVAL, format!("{len} bytes at {offset} do not lie inside {size} bytes")))
}

/// Joins pieces to bytes.
pub(crate) fn flatten(mut pieces: Vec<Piece>) -> Bytes {
    if let [Piece::Data(data)] = &mut pieces[..] {
        return std::mem::take(data);
    }
    let mut out = BytesMut::with_capacity(pieces.iter().map(Piece::len).sum::<u64>() as usize);
    for piece in pieces {
        match piece {
            Piece::Data(data) => out.extend_from_slice(&data),
            Piece::Zeros(len) => out.resize(out.len() + len as usize, 0),
        }
    }
    out.freeze()
}

/// What an object's answer holds of the extent; behind its end are zeros.
pub(crate) fn object_pieces(extent: &Extent, output: Bytes, out: &mut Vec<Piece>) -> Result<()> {
    let mut at = extent.offset;
    let end = extent.offset + extent.len;
    let more = || Error::refused(Errno::EIO, "an OSD answered with other extents than asked for");
    if extent.len < SPARSE_FROM {
        at += output.len() as u64;
        if at > end {
            return Err(more());
        }
        if !output.is_empty() {
            out.push(Piece::Data(output));
        }
    } else {
        let sparse = <SparseReadResponse as codec::Decode>::from_bytes(output)?;
        let mut data = sparse.data;
        for (offset, len) in sparse.extents {
            if offset < at || offset.saturating_add(len) > end || len > data.len() as u64 {
                return Err(more());
            }
            if offset > at {
                out.push(Piece::Zeros(offset - at));
            }
            out.push(Piece::Data(data.split_to(len as usize)));
            at = offset + len;
        }
    }
    if at < end {
        out.push(Piece::Zeros(end - at));
    }
    Ok(())
}

/// What a missing object's extent holds: the parent's bytes as far as they are shared.
async fn parent_pieces(view: &View, extent: &Extent) -> Result<Vec<Piece>> {
    let shared = view.overlap.saturating_sub(extent.image).min(extent.len);
    let mut out = Vec::new();
    if let (Some(parent), 1..) = (&view.parent, shared) {
        // A parent that shrank holds less than was shared.
        let there = parent.size().saturating_sub(extent.image).min(shared);
        if there > 0 {
            out = Box::pin(parent.read_pieces(extent.image, there)).await?;
        }
        if there < extent.len {
            out.push(Piece::Zeros(extent.len - there));
        }
    } else {
        out.push(Piece::Zeros(extent.len));
    }
    Ok(out)
}

async fn parent_status(view: &View, extent: &Extent) -> Result<Vec<Range>> {
    let shared = view.overlap.saturating_sub(extent.image).min(extent.len);
    let mut out = Vec::new();
    let mut rest = extent.len;
    if let (Some(parent), 1..) = (&view.parent, shared) {
        let there = parent.size().saturating_sub(extent.image).min(shared);
        if there > 0 {
            out = Box::pin(parent.status(extent.image, there, usize::MAX)).await?;
            rest -= there;
        }
    }
    if rest > 0 {
        out.push(Range { len: rest, hole: true, zero: true });
    }
    Ok(out)
}

impl Inner {
    /// Whether the object exists, if a map that can be relied upon says so.
    fn map_state(&self, object: u64) -> Option<bool> {
        let relies = self.snap_id.is_some() || self.owned.load(Ordering::SeqCst);
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.as_ref().filter(|_| relies).map(|m| m.get(object) != NONEXISTENT)
    }

    fn start_read(&self, view: &View, extent: &Extent) -> Option<Pending> {
        if self.map_state(extent.object) == Some(false) {
            return None;
        }
        let op = if extent.len < SPARSE_FROM {
            ReadOp::new().read(extent.offset, extent.len)
        } else {
            ReadOp::new().sparse_read(extent.offset, extent.len)
        };
        Some(view.data.submit_read(&view.object(extent.object), op))
    }

    pub async fn change_objects(
        self: &Arc<Self>,
        view: &Arc<View>,
        mut changes: Vec<(u64, ObjectChange)>,
    ) -> Result<()> {
        if changes.len() == 1 {
            if let Some((object, change)) = changes.pop() {
                return self.change_object(view, object, change).await;
            }
        }
        let mut running = Running::default();
        for (object, change) in changes {
            if !running.has_room(OBJECTS_AT_ONCE).await {
                break;
            }
            let (inner, view) = (Arc::clone(self), Arc::clone(view));
            running.tasks.spawn(async move { inner.change_object(&view, object, change).await });
        }
        running.finish().await
    }

    async fn change_object(&self, view: &View, object: u64, change: ObjectChange) -> Result<()> {
        let drops = change == ObjectChange::Drop;
        let nobody_shares = drops && view.header.snaps.is_empty();
        let shared = if nobody_shares { Vec::new() } else { shared_extents(view, object) };
        let has_parent = !shared.is_empty();
        let removes = drops || change == ObjectChange::Remove && !has_parent;
        let only_frees = !matches!(change, ObjectChange::Write { .. });
        if only_frees && !has_parent && self.map_state(object) == Some(false) {
            return Ok(());
        }
        let state = if removes { PENDING } else { EXISTS };
        self.update_map(object, state, None).await?;
        let covers = match &change {
            ObjectChange::Write { offset, data } => {
                *offset == 0 && data.len() as u64 == view.layout.object_size
            }
            ObjectChange::Remove | ObjectChange::Drop => true,
            _ => false,
        };
        let copies_up = has_parent && !(covers && view.header.snaps.is_empty());
        let name = view.object(object);
        let first = if copies_up { WriteOp::new().assert_exists() } else { WriteOp::new() };
        let result = view.data.write_op(&name, steps(first, view, &change, has_parent)).await;
        match result {
            Ok(_) => {}
            Err(e) if e.is_not_found() && copies_up => {
                let op = self.copy_up(view, object, &shared).await?;
                let op = if drops { WriteOp::new() } else { op };
                match view.data.write_op(&name, steps(op, view, &change, has_parent)).await {
                    // The parent had nothing but zeros, so there is nothing to drop.
                    Err(e) if drops && e.is_not_found() => {}
                    other => drop(other?),
                }
            }
            Err(e) if e.is_not_found() && only_frees => {}
            Err(e) => return Err(e.into()),
        }
        if removes {
            self.update_map(object, NONEXISTENT, Some(PENDING)).await?;
        }
        Ok(())
    }

    /// Brings the parent's data below the snapshots; the returned operation goes on with the change itself.
    async fn copy_up(&self, view: &View, object: u64, shared: &[Extent]) -> Result<WriteOp> {
        let data = self.parent_data(view, shared).await?;
        if data.is_empty() {
            return Ok(WriteOp::new().create(false));
        }
        if view.header.snaps.is_empty() {
            return Ok(WriteOp::new().exec("rbd", "copyup", data));
        }
        self.copy_up_below_snapshots(view, object, data).await?;
        Ok(WriteOp::new())
    }

    /// Only with an empty snapshot context do all snapshots see the data.
    async fn copy_up_below_snapshots(&self, view: &View, object: u64, data: Bytes) -> Result<()> {
        if view.header.has(feature::OBJECT_MAP) {
            for (at, snap) in view.header.snaps.iter().enumerate() {
                if object >= view.layout.objects(snap.size) {
                    continue;
                }
                let is_clean = at > 0 && view.header.has(feature::FAST_DIFF);
                let state = if is_clean { EXISTS_CLEAN } else { EXISTS };
                let args = MapUpdateArgs { from: object, to: object + 1, state, expected: None };
                match object_map::update(&self.meta, &self.id, Some(snap.id), args).await {
                    Err(e) if !matches!(e.errno(), Errno::ENOENT | Errno::EINVAL) => return Err(e),
                    _ => {}
                }
            }
        }
        let below = view.data.with_snap_context(SnapContext::default())?;
        below.write_op(&view.object(object), WriteOp::new().exec("rbd", "copyup", data)).await?;
        Ok(())
    }

    /// The object's bytes as the parent has them, without the zeros at their end.
    async fn parent_data(&self, view: &View, shared: &[Extent]) -> Result<Bytes> {
        let mut data = BytesMut::new();
        for extent in shared {
            let part = flatten(parent_pieces(view, extent).await?);
            data.resize(data.len().max(extent.offset as usize), 0);
            data.extend_from_slice(&part);
        }
        let used = data.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        data.truncate(used);
        Ok(data.freeze())
    }

    /// Copies what an object shares with the parent, for good. Used by flattening.
    pub async fn flatten_object(self: &Arc<Self>, object: u64) -> Result<()> {
        let _ready = self.wait_unless(self.ready(), &|| false).await?;
        let view = self.view();
        let shared = shared_extents(&view, object);
        if shared.is_empty() {
            return Ok(());
        }
        let name = view.object(object);
        match view.data.read_op(&name, ReadOp::new().stat()).await {
            Ok(_) => return Ok(()),
            Err(e) if !e.is_not_found() => return Err(e.into()),
            Err(_) => {}
        }
        let data = self.parent_data(&view, &shared).await?;
        if data.is_empty() {
            return Ok(());
        }
        self.update_map(object, EXISTS, None).await?;
        if view.header.snaps.is_empty() {
            view.data.write_op(&name, WriteOp::new().exec("rbd", "copyup", data)).await?;
            return Ok(());
        }
        self.copy_up_below_snapshots(&view, object, data).await
    }

    /// Brings one object's state into the map, through the class first.
    async fn update_map(&self, object: u64, state: u8, expected: Option<u8>) -> Result<()> {
        if self.is_in_map(object, state) {
            return Ok(());
        }
        let _one = self.map_updates.lock().await;
        if self.is_in_map(object, state) {
            return Ok(());
        }
        let args = MapUpdateArgs { from: object, to: object + 1, state, expected };
        match object_map::update(&self.meta, &self.id, None, args).await {
            Ok(()) => {}
            // A map that cannot be kept is worth nothing; the image is.
            Err(e) if matches!(e.errno(), Errno::EINVAL | Errno::ERANGE | Errno::ENOENT) => {
                return self.invalidate_map(&e.to_string()).await;
            }
            Err(e) => return Err(e),
        }
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = map.as_mut() {
            if expected.is_none_or(|e| map.get(object) == e) {
                map.set(object, state);
            }
        }
        Ok(())
    }

    fn is_in_map(&self, object: u64, state: u8) -> bool {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.as_ref().is_none_or(|m| m.get(object) == state)
    }
}

/// Changes that run at the same time. The first error is told only when all of them ended: with the caller's guard the
/// lock may go, and then none may still be on its way to an OSD.
pub(crate) struct Running {
    pub tasks: JoinSet<Result<()>>,
    result: Result<()>,
}

impl Default for Running {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), result: Ok(()) }
    }
}

impl Running {
    /// Waits until fewer than `most` run; false once one failed.
    pub async fn has_room(&mut self, most: usize) -> bool {
        while self.tasks.len() >= most {
            self.join().await;
        }
        self.result.is_ok()
    }

    /// Waits for all of them.
    pub async fn finish(mut self) -> Result<()> {
        while !self.tasks.is_empty() {
            self.join().await;
        }
        self.result
    }

    async fn join(&mut self) {
        let result = match self.tasks.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(e)) => Err(Error::refused(Errno::EIO, e.to_string())),
            None => Ok(()),
        };
        if self.result.is_ok() {
            self.result = result;
        }
    }
}

/// The parts of an object that the parent may have, in the object's order.
pub(crate) fn shared_extents(view: &View, object: u64) -> Vec<Extent> {
    if view.parent.is_none() {
        return Vec::new();
    }
    let all = view.layout.of_object(object, 0, view.layout.object_size);
    let cut = |e: Extent| Extent { len: view.overlap.saturating_sub(e.image).min(e.len), ..e };
    all.into_iter().map(cut).filter(|e| e.len > 0).collect()
}

/// The steps of a change; an object in front of a parent stays, so that the parent does not show.
fn steps(op: WriteOp, view: &View, change: &ObjectChange, has_parent: bool) -> WriteOp {
    let size = view.layout.object_size;
    match change {
        ObjectChange::Write { offset, data } => op.set_alloc_hint(size, size, 0).write(*offset, data.clone()),
        ObjectChange::Zero { offset, len } => op.zero(*offset, *len),
        ObjectChange::Truncate { offset } => op.truncate(*offset),
        ObjectChange::Remove if has_parent => op.create(false).truncate(0),
        ObjectChange::Remove | ObjectChange::Drop => op.remove(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_more_than_was_asked_for_is_none() {
        use codec::Encode;
        let extent = |len| Extent { object: 0, offset: 10, len, image: 10 };
        let mut out = Vec::new();
        assert!(object_pieces(&extent(4), Bytes::from_static(b"abc"), &mut out).is_ok());
        assert_eq!(out, [Piece::Data(Bytes::from_static(b"abc")), Piece::Zeros(1)]);
        let longer = object_pieces(&extent(4), Bytes::from_static(b"abcde"), &mut out);
        assert_eq!(longer.map_err(|e| e.errno()), Err(Errno::EIO));
        for extents in [vec![(9, 1)], vec![(10, 2)], vec![(10 + SPARSE_FROM, 1)], vec![(12, 1), (11, 1)]] {
            let extents = extents.into_iter().collect();
            let sparse = SparseReadResponse { extents, data: Bytes::from_static(b"a") }.to_bytes();
            let got = object_pieces(&extent(SPARSE_FROM), sparse, &mut Vec::new());
            assert_eq!(got.map_err(|e| e.errno()), Err(Errno::EIO));
        }
    }

    #[tokio::test]
    async fn the_first_error_is_told_when_all_ended() {
        let ended = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut running = Running::default();
        for i in 0..4 {
            assert!(running.has_room(8).await);
            let ended = Arc::clone(&ended);
            running.tasks.spawn(async move {
                for _ in 0..i * 10 {
                    tokio::task::yield_now().await;
                }
                ended.fetch_add(1, Ordering::SeqCst);
                if i % 2 == 0 { Err(Error::refused(Errno(i + 1), "")) } else { Ok(()) }
            });
        }
        assert!(!running.has_room(3).await, "no more are started");
        assert_eq!(running.finish().await.map_err(|e| e.errno()), Err(Errno(1)));
        assert_eq!(ended.load(Ordering::SeqCst), 4);
    }
}
