//! Changes to plain entries of a bucket index: prepared before the object changes, and completed after it.
//! What a gateway left between the two is put right by what others suggest when they list the bucket.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Errno, RealTime, Utime};

use super::header::{Header, InOmap};
use super::log::{self, COMPLETE, LogEntry, op};
use super::lookup::{Located, locate};
use super::names;
use crate::registry::{Done, Raw};
use crate::{ObjectView, keys};
use ::rgw::index::Zones;
use ::rgw::index::entry::{Entry, Key, Meta, Pending, VERSIONED, Written};

/// Seconds after which a prepared change is given up where the header has none. Source: CEPH_RGW_TAG_TIMEOUT
/// in src/cls/rgw/cls_rgw_types.h.
const TAG_TIMEOUT_S: u64 = 120;

/// Source: rgw_cls_obj_prepare_op in src/cls/rgw/cls_rgw_ops.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrepareArgs {
    pub op: u8,
    pub key: Key,
    pub tag: Bytes,
    pub locator: Bytes,
    /// Whether the change is to be logged, and how: its completion says it again, and is believed.
    pub log: bool,
    pub log_flags: u16,
    pub zones: Zones,
}

impl Encode for PrepareArgs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 5, |w| {
            self.op.encode(w);
            self.tag.encode(w);
            self.locator.encode(w);
            self.log.encode(w);
            self.key.encode(w);
            self.log_flags.encode(w);
            self.zones.encode(w);
        });
    }
}
impl Decode for PrepareArgs {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("prepare", 7, 3, |r, version| {
            let mut a = Self { op: r.u8()?, ..Self::default() };
            if version < 5 {
                a.key.name = r.blob()?;
            }
            a.tag = r.blob()?;
            if version >= 2 {
                a.locator = r.blob()?;
            }
            if version >= 4 {
                a.log = Decode::decode(r)?;
            }
            if version >= 5 {
                a.key = Decode::decode(r)?;
            }
            if version >= 6 {
                a.log_flags = r.u16()?;
            }
            if version >= 7 {
                a.zones = Decode::decode(r)?;
            }
            Ok(a)
        })
    }
}

/// Source: rgw_cls_obj_complete_op in src/cls/rgw/cls_rgw_ops.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompleteArgs {
    pub op: u8,
    pub key: Key,
    pub locator: Bytes,
    pub written: Written,
    pub meta: Meta,
    pub tag: Bytes,
    pub log: bool,
    pub log_flags: u16,
    /// Entries that go with the change, such as those of parts of an upload.
    pub remove: Keys,
    pub zones: Zones,
}

impl Encode for CompleteArgs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 7, |w| {
            self.op.encode(w);
            self.written.epoch.encode(w);
            self.meta.encode(w);
            self.tag.encode(w);
            self.locator.encode(w);
            self.remove.encode(w);
            self.written.encode(w);
            self.log.encode(w);
            self.key.encode(w);
            self.log_flags.encode(w);
            self.zones.encode(w);
        });
    }
}
impl Decode for CompleteArgs {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("complete", 9, 3, |r, version| {
            let mut a = Self { op: r.u8()?, ..Self::default() };
            if version < 7 {
                a.key.name = r.blob()?;
            }
            a.written.epoch = r.u64()?;
            (a.meta, a.tag) = (Decode::decode(r)?, r.blob()?);
            if version >= 2 {
                a.locator = r.blob()?;
            }
            a.remove = Keys::decode(r, (4..7).contains(&version))?;
            if version >= 5 {
                a.written = Decode::decode(r)?;
            }
            if version >= 6 {
                a.log = Decode::decode(r)?;
            }
            if version >= 7 {
                a.key = Decode::decode(r)?;
            }
            if version >= 8 {
                a.log_flags = r.u16()?;
            }
            if version >= 9 {
                a.zones = Decode::decode(r)?;
            }
            Ok(a)
        })
    }
}

/// Keys as they came: each is made when its turn comes, as many small ones take far more than their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    count: usize,
    bytes: Bytes,
    /// Whether they are names alone.
    names: bool,
}

impl FromIterator<Key> for Keys {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let (mut count, mut w) = (0, Writer::new());
        for key in keys {
            key.encode(&mut w);
            count += 1;
        }
        Self { count, bytes: w.into_bytes(), names: false }
    }
}

impl Keys {
    /// As keys in any case, which is what 16.2 writes.
    fn encode(&self, w: &mut Writer) {
        w.count(self.count);
        if self.names {
            self.iter().for_each(|key| key.encode(w));
        } else {
            w.raw(&self.bytes);
        }
    }

    fn decode(r: &mut Reader, names: bool) -> Result<Self, DecodeError> {
        let count = r.count("keys", if names { Bytes::MIN_SIZE } else { Key::MIN_SIZE })?;
        let (rest, before) = (r.rest(), r.remaining());
        for _ in 0..count {
            Self::key(r, names)?;
        }
        Ok(Self { count, bytes: rest.slice(..before - r.remaining()), names })
    }

    pub fn iter(&self) -> impl Iterator<Item = Key> {
        let mut r = Reader::new(self.bytes.clone());
        (0..self.count).map_while(move |_| Self::key(&mut r, self.names).ok())
    }

    fn key(r: &mut Reader, names: bool) -> Result<Key, DecodeError> {
        if names { r.blob().map(Key::plain) } else { Key::decode(r) }
    }
}

/// Remembers in the object's entry that a change is under way.
pub(super) fn prepare(v: &mut dyn ObjectView, args: PrepareArgs) -> Result<Done, Errno> {
    if args.tag.is_empty() {
        return Err(Errno::EINVAL);
    }
    let Located { at, entry } = locate(v, &args.key, false);
    let mut entry = match entry {
        Err(Errno::ENOENT) => Entry { key: args.key, locator: args.locator, ..Entry::default() },
        found => found?,
    };
    entry.pending.insert(args.tag, Pending { state: 0, time: RealTime(v.now()), op: args.op });
    keys::write(v, at, &entry)?;
    Ok(Done)
}

/// Takes a prepared change off the entry and does it, unless the entry tells of a later write already.
pub(super) fn complete(v: &mut dyn ObjectView, mut args: CompleteArgs) -> Result<Done, Errno> {
    let mut header = Header::load(v).map_err(|_| Errno::EINVAL)?;
    let Located { at, entry } = locate(v, &args.key, false);
    let (mut entry, stored) = match entry {
        Err(Errno::ENOENT) => (args.new_entry(), false),
        found => (found?, true),
    };
    entry.index_version = header.version;
    entry.flags &= VERSIONED;
    if !args.tag.is_empty() && entry.pending.remove(&args.tag).is_none() {
        return Err(Errno::EINVAL);
    }
    let (given, known) = (args.written, entry.written);
    if given.pool == known.pool && given.epoch != 0 && given.epoch <= known.epoch {
        args.op = op::CANCEL;
    }
    entry.written = given;
    let logging = args.log && !header.log_stopped;
    let mut logged = logging;
    match args.op {
        op::CANCEL => {
            logged = false;
            if !args.tag.is_empty() {
                let gone = !entry.exists && entry.pending.is_empty();
                put_or_remove(v, at, &entry, gone)?;
            }
        }
        op::DELETE => {
            header.uncount(&entry);
            entry.meta = args.meta.clone();
            logged &= stored;
            if stored {
                entry.exists = false;
                let gone = entry.pending.is_empty();
                put_or_remove(v, at, &entry, gone)?;
            }
        }
        op::ADD => {
            header.uncount(&entry);
            (entry.meta, entry.key, entry.tag) = (args.meta.clone(), args.key.clone(), args.tag.clone());
            entry.exists = true;
            header.count(&entry);
            keys::write(v, at, &entry)?;
        }
        _ => {}
    }
    if logged {
        let logged = args.logged(&header, &entry);
        log::append(v, &mut header, logged)?;
    }
    for key in args.remove.iter() {
        // What is left over of an upload is no reason to fail.
        let _ = remove(v, &mut header, &key, logging);
    }
    header.save(v)
}

impl CompleteArgs {
    fn new_entry(&self) -> Entry {
        Entry {
            key: self.key.clone(),
            written: self.written,
            meta: self.meta.clone(),
            locator: self.locator.clone(),
            ..Entry::default()
        }
    }

    fn logged(&self, header: &Header, entry: &Entry) -> LogEntry {
        LogEntry {
            key: self.key.clone(),
            time: entry.meta.mtime,
            written: entry.written,
            tag: self.tag.clone(),
            op: self.op,
            state: COMPLETE,
            index_version: header.version,
            flags: self.log_flags,
            zones: self.zones.clone(),
            ..LogEntry::default()
        }
    }
}

fn put_or_remove(v: &mut dyn ObjectView, at: Bytes, entry: &Entry, gone: bool) -> Result<(), Errno> {
    if gone { v.omap_remove(at) } else { keys::write(v, at, entry) }
}

/// Removes an entry and what it counts for.
fn remove(v: &mut dyn ObjectView, header: &mut Header, key: &Key, logging: bool) -> Result<(), Errno> {
    let Located { at, entry } = locate(v, key, false);
    let entry = entry?;
    header.uncount(&entry);
    if logging {
        // Entries of the log are apart by the version, which each of these takes one of.
        header.version = header.version.wrapping_add(1);
        let logged = LogEntry {
            key: key.clone(),
            time: entry.meta.mtime,
            written: entry.written,
            op: op::DELETE,
            state: COMPLETE,
            index_version: header.version,
            ..LogEntry::default()
        };
        log::append(v, header, logged)?;
    }
    v.omap_remove(at)
}

/// What a gateway found an object to be: it is gone, or as the entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub op: u8,
    pub entry: Entry,
}

impl Encode for Suggestion {
    fn encode(&self, w: &mut Writer) {
        self.op.encode(w);
        self.entry.encode(w);
    }
}
impl Decode for Suggestion {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { op: r.u8()?, entry: Decode::decode(r)? })
    }
}

/// Input of a call: one suggestion behind the other, without a number of them. The method itself takes each
/// when its turn comes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suggestions(pub Vec<Suggestion>);

impl Encode for Suggestions {
    fn encode(&self, w: &mut Writer) {
        self.0.iter().for_each(|suggestion| suggestion.encode(w));
    }
}
impl Decode for Suggestions {
    const MIN_SIZE: usize = 0;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut all = Vec::new();
        while !r.is_empty() {
            all.push(Suggestion::decode(r)?);
        }
        Ok(Self(all))
    }
}

impl Suggestion {
    pub const REMOVE: u8 = b'r';
    pub const UPDATE: u8 = b'u';
    /// Flag of a suggestion that is to be logged.
    pub const LOGGED: u8 = 0x80;
}

/// Takes suggestions for entries that nobody is changing.
pub(super) fn suggest(v: &mut dyn ObjectView, input: Raw) -> Result<Done, Errno> {
    let mut header = Header::load(v)?;
    let mut changed = false;
    let mut r = Reader::new(input.0);
    while !r.is_empty() {
        let suggestion = Suggestion::decode(&mut r).map_err(|_| Errno::EINVAL)?;
        changed |= consider(v, &mut header, suggestion)?;
    }
    if changed { header.save(v) } else { Ok(Done) }
}

/// Whether the header changed.
fn consider(v: &mut dyn ObjectView, header: &mut Header, given: Suggestion) -> Result<bool, Errno> {
    let at = names::entry(&given.entry.key);
    let Some(entry) = known(v, &at, header)? else { return Ok(false) };
    // The entry was changed after the gateway saw it, or is being changed.
    if given.entry.index_version < entry.index_version || !entry.pending.is_empty() {
        return Ok(false);
    }
    header.uncount(&entry);
    header.category(given.entry.meta.category);
    let logged = given.op & Suggestion::LOGGED != 0 && !header.log_stopped;
    match given.op & !Suggestion::LOGGED {
        Suggestion::REMOVE => {
            v.omap_remove(at)?;
            if logged && entry.exists {
                let logged = as_suggested(header, &entry, op::DELETE);
                log::append(v, header, logged)?;
            }
            Ok(entry.exists)
        }
        Suggestion::UPDATE => {
            let entry = Entry { index_version: header.version, ..given.entry };
            header.count(&entry);
            keys::write(v, at, &entry)?;
            if logged {
                let logged = as_suggested(header, &entry, op::ADD);
                log::append(v, header, logged)?;
            }
            Ok(true)
        }
        _ => Ok(entry.exists),
    }
}

/// The entry without changes that nobody completed in time; nothing where there is none.
fn known(v: &mut dyn ObjectView, at: &Bytes, header: &Header) -> Result<Option<Entry>, Errno> {
    let raw = match keys::optional(v.omap_value(at)).map_err(|_| Errno::EINVAL)? {
        None => return Ok(None),
        Some(raw) if raw.is_empty() => return Ok(Some(Entry::default())),
        Some(raw) => raw,
    };
    let mut entry = Entry::from_bytes(raw).map_err(|_| Errno::EINVAL)?;
    let timeout_s = if header.tag_timeout_s == 0 { TAG_TIMEOUT_S } else { header.tag_timeout_s };
    let now = v.now().as_nanos();
    let ends = |from: Utime| from.as_nanos().wrapping_add(timeout_s.wrapping_mul(1_000_000_000));
    entry.pending.retain(|pending| now <= ends(pending.time.0));
    Ok(Some(entry))
}

fn as_suggested(header: &Header, entry: &Entry, op: u8) -> LogEntry {
    LogEntry {
        key: entry.key.clone(),
        time: entry.meta.mtime,
        written: entry.written,
        tag: entry.tag.clone(),
        op,
        state: COMPLETE,
        index_version: header.version,
        ..LogEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use codec::Encode;

    use super::*;

    #[test]
    fn keys_stay_the_bytes_they_came_in_until_their_turn() {
        let names = vec![Bytes::from("a"), Bytes::from(""), Bytes::from("b")];
        let keys: Vec<Key> = names.iter().cloned().map(Key::plain).collect();
        for (raw, plain) in [(names.to_bytes(), true), (keys.to_bytes(), false)] {
            let read = Keys::decode(&mut Reader::new(raw.clone()), plain).unwrap();
            assert_eq!(read.bytes.as_ptr(), raw[4..].as_ptr());
            assert_eq!(read.iter().collect::<Vec<_>>(), keys);
            for cut in 0..raw.len() {
                assert!(Keys::decode(&mut Reader::new(raw.slice(..cut)), plain).is_err(), "{cut}");
            }
        }
    }
}
