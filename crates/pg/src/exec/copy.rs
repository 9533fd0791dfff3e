//! Copying whole objects: `copy-get` gives an object in pieces, `copy-from` makes an object the copy of another, which has
//! been fetched before the request runs.
//!
//! Source: PrimaryLogPG::do_copy_get, finish_copyfrom.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::osd::{CopyCursor, CopyData};
use types::{Errno, SnapId, Utime};

use super::answer::{Answer, Outcome};
use super::scratch::Scratch;
use super::work::KEY;
use super::{ExecEnv, attrs};
use crate::object::{info_flags, user_attr};

/// A fetched object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    pub user_version: u64,
    pub mtime: Utime,
    pub truncate_seq: u64,
    pub truncate_size: u64,
    pub attrs: BTreeMap<String, Bytes>,
    /// The source's data, as far as it has come, in pieces without gaps.
    pub data: Vec<Bytes>,
    /// How much the source says that it has.
    pub told_size: u64,
    pub omap_header: Bytes,
    pub omap: Vec<(Bytes, Bytes)>,
}

/// What each `copy-from` of a request copies, by its place, or why that could not be fetched.
pub type Sources = BTreeMap<u32, Result<Copied, Errno>>;

impl Copied {
    /// Takes a piece; where the next one begins.
    pub fn add(&mut self, piece: Bytes) -> Result<CopyCursor, DecodeError> {
        let piece = CopyData::from_bytes(piece)?;
        self.mtime = piece.mtime;
        (self.truncate_seq, self.truncate_size) = (piece.truncate_seq, piece.truncate_size);
        self.attrs.extend(piece.attrs);
        self.told_size = piece.size;
        if !piece.data.is_empty() {
            self.data.push(piece.data);
        }
        if !piece.omap_header.is_empty() {
            self.omap_header = piece.omap_header;
        }
        if !piece.omap.is_empty() {
            let r = &mut Reader::new(piece.omap);
            for _ in 0..r.count("omap entries", 8)? {
                self.omap.push((r.blob()?, r.blob()?));
            }
        }
        Ok(piece.cursor)
    }

    /// Bytes of data that are here.
    fn here(&self) -> u64 {
        self.data.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Bytes of data that the source has beside those.
    pub fn data_to_come(&self) -> u64 {
        self.told_size.saturating_sub(self.here())
    }

    /// Bytes of data in all.
    pub fn size(&self) -> u64 {
        self.here().max(self.told_size)
    }

    /// Bytes of data, omap and attributes that are here.
    pub fn bytes(&self) -> u64 {
        let attrs: usize = self.attrs.iter().map(|(k, v)| k.len() + v.len()).sum();
        let omap: usize = self.omap.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.here() + (attrs + self.omap_header.len() + omap) as u64
    }
}

/// A piece of the object: attributes first, then data, then omap, `max` bytes at most of the last two.
pub(super) fn get(env: &mut ExecEnv<'_>, s: &mut Scratch<'_>, mut cursor: CopyCursor, max: u64) -> Outcome {
    let info = s.info().clone();
    let mut piece = CopyData {
        size: info.size,
        mtime: info.mtime,
        truncate_seq: info.truncate_seq.into(),
        truncate_size: info.truncate_size,
        data_digest: u32::MAX,
        omap_digest: u32::MAX,
        ..CopyData::default()
    };
    if s.key.object.is_head() {
        piece.snap_seq = SnapId(s.state.snapset.seq);
    }
    if !cursor.attr_complete {
        let visible = attrs::visible(env, s)?.into_iter();
        piece.attrs = visible.map(|(k, v)| (String::from_utf8_lossy(&k).into_owned(), v)).collect();
        cursor.attr_complete = true;
    }
    let mut left = max.min(s.work.left()).min(s.work.answers_left());
    if left > 0 && !cursor.data_complete {
        let length = left.min(info.size.saturating_sub(cursor.data_offset));
        if length > 0 {
            piece.data = match env.gathered {
                None => env.store.read(&s.key, cursor.data_offset, length)?,
                Some(_) => super::read::gathered(env, &s.key.object, cursor.data_offset, length)?,
            };
        }
        left -= length;
        cursor.data_offset += length;
        cursor.data_complete = cursor.data_offset >= info.size;
    }
    if !info.test(info_flags::OMAP) {
        cursor.omap_complete = true;
    } else if left > 0 && cursor.data_complete && !cursor.omap_complete {
        if cursor.omap_offset.is_empty() {
            piece.omap_header = env.store.omap_header(&s.key)?;
        }
        let offset = cursor.omap_offset.as_ref();
        let after = if offset.is_empty() { Bound::Included(offset) } else { Bound::Excluded(offset) };
        let max_bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let (entries, more) = env.store.omap_list(&s.key, after, usize::MAX, max_bytes)?;
        match entries.last() {
            Some((last, _)) if more => cursor.omap_offset = last.clone(),
            _ => cursor.omap_complete = true,
        }
        if !entries.is_empty() {
            let mut w = Writer::new();
            entries.encode(&mut w);
            piece.omap = w.into_bytes();
        }
    }
    s.work.note((piece.data.len() + piece.omap.len()) as u64);
    s.count_read(piece.data.len());
    piece.cursor = cursor;
    let about = piece.data.len() + piece.omap.len() + KEY as usize;
    Ok(Answer::data(Writer::collect_about(about, |w| piece.encode(w))))
}

/// Makes the object a copy of the fetched one. `truncation` is what the client wants for sequence number and size.
pub(super) fn from(env: &ExecEnv<'_>, s: &mut Scratch<'_>, truncation: Option<(u32, u64)>) -> Outcome {
    let source = env.sources.get(&s.subop).ok_or(Errno::EOPNOTSUPP)?;
    let copied = source.as_ref().map_err(|e| *e)?;
    s.work.spend(copied.bytes())?;
    if s.state.exists {
        s.txn.remove(&s.key);
    }
    s.txn.touch(&s.key);
    s.make_exist();
    let mut size = 0;
    for piece in &copied.data {
        s.txn.write(&s.key, size, piece.clone());
        size += piece.len() as u64;
    }
    for (name, value) in &copied.attrs {
        s.txn.set_attr(&s.key, user_attr(name.as_bytes()), value.clone());
    }
    if !copied.omap_header.is_empty() {
        s.txn.omap_set_header(&s.key, copied.omap_header.clone());
    }
    if !copied.omap.is_empty() {
        s.txn.omap_set(&s.key, copied.omap.clone());
    }
    let old_size = s.info().size;
    s.touch_range(0, old_size);
    s.set_size(size);
    s.forget_digests();
    s.count_write(size);
    let has_omap = !copied.omap.is_empty() || !copied.omap_header.is_empty();
    let source_truncation = (u32::try_from(copied.truncate_seq).unwrap_or(u32::MAX), copied.truncate_size);
    let info = s.info_mut();
    info.flags = (info.flags & !info_flags::OMAP) | if has_omap { info_flags::OMAP } else { 0 };
    info.user_version = copied.user_version;
    info.mtime = copied.mtime;
    (info.truncate_seq, info.truncate_size) = truncation.unwrap_or(source_truncation);
    s.copied = true;
    Ok(Answer::done())
}
