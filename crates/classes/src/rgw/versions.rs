//! Versions of an object: one is added, or made the newest, or removed. Each has an entry by its id and one
//! for listings, and the object's head says which is the newest.

use bytes::Bytes;
use codec::{Decode, Encode, Writer, wire_struct};
use types::{Errno, RealTime, Utime};

use super::header::{Header, InOmap};
use super::log::{self, COMPLETE, LogEntry, VERSIONED_OP, op};
use super::lookup::{Located, locate};
use super::names;
use super::olh::{self, Head, HeadChange};
use crate::registry::{Done, stored};
use crate::{ObjectView, keys};
use ::rgw::index::Zones;
use ::rgw::index::entry::{CURRENT, DELETE_MARKER, Entry, Key, Meta, VERSION_MARKER, VERSIONED, Written};

/// Epoch of plain entries that became versions.
const CONVERTED: u64 = 1;

/// Source: rgw_cls_link_olh_op in src/cls/rgw/cls_rgw_ops.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkArgs {
    pub key: Key,
    pub tag: Bytes,
    pub delete_marker: bool,
    pub op_tag: Bytes,
    pub meta: Meta,
    /// 0 for the next one.
    pub epoch: u64,
    pub log: bool,
    pub log_flags: u16,
    /// Nothing is done to a version that is not older.
    pub unmodified_since: RealTime,
    /// Times are compared with their nanoseconds.
    pub precise: bool,
    pub zones: Zones,
}

impl Encode for LinkArgs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 1, |w| {
            self.key.encode(w);
            self.tag.encode(w);
            self.delete_marker.encode(w);
            self.op_tag.encode(w);
            self.meta.encode(w);
            self.epoch.encode(w);
            self.log.encode(w);
            self.log_flags.encode(w);
            u64::from(self.unmodified_since.0.sec).encode(w);
            self.unmodified_since.encode(w);
            self.precise.encode(w);
            self.zones.encode(w);
        });
    }
}
impl Decode for LinkArgs {
    fn decode(r: &mut codec::Reader) -> Result<Self, codec::DecodeError> {
        r.envelope("link", 5, |r, env| {
            let (key, tag) = (Decode::decode(r)?, r.blob()?);
            let (delete_marker, op_tag, meta) = (Decode::decode(r)?, r.blob()?, Decode::decode(r)?);
            let mut a = Self { key, tag, delete_marker, op_tag, meta, ..Self::default() };
            (a.epoch, a.log, a.log_flags) = (r.u64()?, Decode::decode(r)?, r.u16()?);
            if env.version >= 2 {
                let seconds = r.u64()?;
                a.unmodified_since = RealTime(Utime::new(seconds as u32, 0));
            }
            if env.version >= 3 {
                a.unmodified_since = Decode::decode(r)?;
            }
            if env.version >= 4 {
                a.precise = Decode::decode(r)?;
            }
            if env.version >= 5 {
                a.zones = Decode::decode(r)?;
            }
            Ok(a)
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlinkArgs {
    pub key: Key,
    pub op_tag: Bytes,
    /// 0 for the next one.
    pub epoch: u64,
    pub log: bool,
    pub log_flags: u16,
    pub tag: Bytes,
    pub zones: Zones,
}
wire_struct!(UnlinkArgs(3, 1) { key, op_tag, epoch, log, log_flags } since 2 { tag } since 3 { zones });

/// A version's entry while a method works on it.
struct Version {
    key: Key,
    at: Bytes,
    entry: Entry,
}

impl Version {
    /// The entry where there is none yet.
    fn new(key: Key, at: Bytes) -> Self {
        Self { key, at, entry: Entry::default() }
    }

    fn find(v: &mut dyn ObjectView, key: &Key, marker_first: bool) -> (Self, Result<(), Errno>) {
        let Located { at, entry } = locate(v, key, marker_first);
        match entry {
            Ok(entry) => (Self { key: key.clone(), at, entry }, Ok(())),
            Err(e) => (Self::new(key.clone(), at), Err(e)),
        }
    }

    fn load(v: &mut dyn ObjectView, key: &Key) -> Result<Self, Errno> {
        let (version, found) = Self::find(v, key, true);
        found.map(|()| version)
    }

    fn is_delete_marker(&self) -> bool {
        self.entry.has(DELETE_MARKER)
    }

    fn become_delete_marker(&mut self, meta: Meta) {
        self.entry.key = self.key.clone();
        self.entry.flags = DELETE_MARKER;
        self.entry.meta = meta;
        self.entry.tag = Bytes::from_static(b"delete-marker");
    }

    fn remove_listed(&self, v: &mut dyn ObjectView) -> Result<(), Errno> {
        v.omap_remove(names::listed(&self.entry))
    }

    fn remove(&self, v: &mut dyn ObjectView) -> Result<(), Errno> {
        v.omap_remove(self.at.clone())
    }

    /// Writes both entries.
    fn write(&mut self, v: &mut dyn ObjectView) -> Result<(), Errno> {
        let beside = self.is_delete_marker() && self.entry.key.instance.is_empty();
        self.at = if beside { names::delete_marker(&self.key) } else { names::instance(&self.key) };
        write_both(v, &self.at, &self.entry)
    }

    /// Moves it to an epoch.
    fn write_at(&mut self, v: &mut dyn ObjectView, epoch: u64, current: bool) -> Result<(), Errno> {
        if self.entry.versioned_epoch > 0 {
            self.remove_listed(v)?;
        }
        self.entry.versioned_epoch = epoch;
        self.entry.flags |= if current { VERSIONED | CURRENT } else { VERSIONED };
        self.write(v)
    }

    /// The version that listings show next.
    fn next(&self, v: &mut dyn ObjectView) -> Result<Option<Key>, Errno> {
        let (found, _) = v.omap_list(&names::listed(&self.entry), &self.key.name, 1)?;
        let Some((_, value)) = found.into_iter().next() else { return Ok(None) };
        let next: Entry = stored(value)?;
        Ok(Some(next.key).filter(|key| key.name == self.key.name))
    }
}

fn write_both(v: &mut dyn ObjectView, at: &Bytes, entry: &Entry) -> Result<(), Errno> {
    keys::write(v, at.clone(), entry)?;
    let listed = names::listed(entry);
    if listed == *at { Ok(()) } else { keys::write(v, listed, entry) }
}

/// An object's head; the default one when there is none yet, and whether there is.
fn load_head(v: &mut dyn ObjectView, key: &Key) -> Result<(Head, bool), Errno> {
    let head = keys::find(v, names::head(&key.name))?;
    let found = head.is_some();
    Ok((head.unwrap_or_default(), found))
}

fn save_head(v: &mut dyn ObjectView, key: &Key, head: &Head) -> Result<(), Errno> {
    keys::write(v, names::head(&key.name), head)
}

/// Makes what stood under an object's plain name a version of it, and a marker for all its versions stand
/// there.
fn convert_plain(v: &mut dyn ObjectView, name: &Bytes, demote: bool, unlisted: bool) -> Result<(), Errno> {
    let key = Key::plain(name.clone());
    if let Some(mut entry) = keys::optional(locate(v, &key, false).entry)? {
        entry.versioned_epoch = CONVERTED;
        entry.flags |= VERSIONED;
        if demote {
            entry.flags &= !CURRENT;
        }
        let at = names::instance(&key);
        if unlisted {
            keys::write(v, at, &entry)?;
        } else {
            write_both(v, &at, &entry)?;
        }
    }
    keys::write(v, name.clone(), &Entry { key, flags: VERSION_MARKER, ..Entry::default() })
}

/// Links a version, or a delete marker, to the object's head; it becomes the newest unless a later one is
/// there.
pub(super) fn link(v: &mut dyn ObjectView, args: LinkArgs) -> Result<Done, Errno> {
    let (mut version, found) = Version::find(v, &args.key, args.delete_marker);
    let mut loaded = None;
    match found {
        Err(Errno::ENOENT) if args.delete_marker => {
            let (head, _) = loaded.insert(load_head(v, &args.key)?);
            if head.delete_marker {
                return Err(Errno::ENOENT);
            }
        }
        found => found?,
    }
    if found.is_ok() && args.is_too_late(version.entry.meta.mtime) {
        return Ok(Done);
    }
    let removing = if args.key.instance.is_empty() {
        displace_other(v, &args)?
    } else {
        found.is_ok() && !version.is_delete_marker() && args.delete_marker
    };
    if args.delete_marker {
        version.become_delete_marker(args.meta.clone());
    }
    let (mut head, head_found) = match loaded {
        Some(loaded) => loaded,
        None => load_head(v, &args.key)?,
    };
    let before = head.epoch;
    if !head.advance(args.epoch) {
        version.write_at(v, args.epoch, false)?;
        return Ok(Done);
    }
    // Of two versions of one epoch, the one that sorts first is the newer.
    let newest = head.epoch > before || head.key.instance >= args.key.instance;
    if head_found {
        replace_newest(v, &args, &mut head, newest)?;
    } else {
        let unlisted = args.key.instance.is_empty() && args.delete_marker;
        convert_plain(v, &args.key.name, newest, unlisted)?;
        if args.key.instance.is_empty() {
            version.entry.versioned_epoch = CONVERTED;
        }
        head.tag = args.tag.clone();
    }
    args.log_in(&mut head, removing);
    if newest {
        (head.key, head.delete_marker) = (args.key.clone(), args.delete_marker);
    }
    head.exists = true;
    save_head(v, &args.key, &head)?;
    version.write_at(v, head.epoch, newest)?;
    if !args.log {
        return Ok(Done);
    }
    let kind = if args.delete_marker { op::LINK_DELETE_MARKER } else { op::LINK };
    let (owner, owner_name) = match args.delete_marker {
        true => (version.entry.meta.owner, version.entry.meta.owner_name),
        false => <_>::default(),
    };
    let entry =
        LogEntry { owner, owner_name, time: version.entry.meta.mtime, op: kind, ..args.logged(&head) };
    append(v, entry)
}

impl LinkArgs {
    fn is_too_late(&self, mtime: RealTime) -> bool {
        let (RealTime(given), RealTime(known)) = (self.unmodified_since, mtime);
        let late = if self.precise { known >= given } else { known.sec >= given.sec };
        !given.is_zero() && late
    }

    fn log_in(&self, head: &mut Head, removing: bool) {
        let change = HeadChange {
            epoch: head.epoch,
            op: olh::LINK,
            op_tag: self.op_tag.clone(),
            key: self.key.clone(),
            delete_marker: self.delete_marker,
        };
        head.log(change.clone());
        if removing {
            head.log(HeadChange { op: olh::REMOVE_INSTANCE, delete_marker: false, ..change });
        }
    }

    fn logged(&self, head: &Head) -> LogEntry {
        LogEntry {
            key: self.key.clone(),
            written: Written {
                epoch: if self.epoch == 0 { head.epoch } else { self.epoch },
                ..Written::default()
            },
            tag: self.op_tag.clone(),
            flags: self.log_flags | VERSIONED_OP,
            zones: self.zones.clone(),
            ..LogEntry::default()
        }
    }
}

/// The version without an id and the delete marker without one have entries apart, of which one is listed.
/// Takes the other one off the listing; whether a version gives way to a delete marker.
fn displace_other(v: &mut dyn ObjectView, args: &LinkArgs) -> Result<bool, Errno> {
    let (other, found) = Version::find(v, &args.key, !args.delete_marker);
    if found.is_ok() && other.is_delete_marker() != args.delete_marker {
        other.remove_listed(v)?;
    }
    let removing = found.is_ok() && !other.is_delete_marker() && args.delete_marker;
    if !removing {
        other.remove(v)?;
    }
    Ok(removing)
}

/// Takes the newest version's rank. ECANCELED when the head is another one than the caller knows, unless that
/// one was about to be removed.
fn replace_newest(
    v: &mut dyn ObjectView,
    args: &LinkArgs,
    head: &mut Head,
    newest: bool,
) -> Result<(), Errno> {
    if args.tag != head.tag {
        if !head.removal_pending {
            return Err(Errno::ECANCELED);
        }
        head.tag = args.tag.clone();
    }
    if newest && head.exists && head.key != args.key {
        let mut old = Version::load(v, &head.key)?;
        old.entry.flags &= !CURRENT;
        old.write(v)?;
    }
    head.removal_pending = false;
    Ok(())
}

fn append(v: &mut dyn ObjectView, entry: LogEntry) -> Result<Done, Errno> {
    let mut header = Header::load(v)?;
    if header.log_stopped {
        return Ok(Done);
    }
    let entry = LogEntry { state: COMPLETE, index_version: header.version, ..entry };
    log::append(v, &mut header, entry)?;
    header.save(v)
}

/// Takes a version off the object: the one that listings show next becomes the newest, if it was that.
pub(super) fn unlink(v: &mut dyn ObjectView, args: UnlinkArgs) -> Result<Done, Errno> {
    let mut key = args.key.clone();
    if key.instance.as_ref() == b"null" {
        key.instance = Bytes::new();
    }
    let (mut version, found) = Version::find(v, &key, true);
    if keys::optional(found)?.is_none() {
        return Ok(Done); // removed already
    }
    let (mut head, found) = load_head(v, &key)?;
    if !found {
        convert_plain(v, &key.name, true, false)?;
        (head.key, head.delete_marker, head.tag) = (key.clone(), false, args.tag.clone());
        version.entry.versioned_epoch = CONVERTED;
    }
    let removed = |epoch| HeadChange {
        epoch,
        op: olh::REMOVE_INSTANCE,
        op_tag: args.op_tag.clone(),
        key: args.key.clone(),
        delete_marker: false,
    };
    if !head.advance(args.epoch) {
        version.remove_listed(v)?;
        if !version.is_delete_marker() {
            head.log(removed(args.epoch));
            save_head(v, &key, &head)?;
        }
        return Ok(Done);
    }
    if head.key == key {
        promote_next(v, &args, &version, &mut head)?;
    }
    if version.is_delete_marker() {
        version.remove(v)?;
    } else {
        head.log(removed(head.epoch));
    }
    version.remove_listed(v)?;
    save_head(v, &key, &head)?;
    if !args.log {
        return Ok(Done);
    }
    let entry = LogEntry {
        key: args.key,
        time: version.entry.meta.mtime,
        written: Written {
            epoch: if args.epoch == 0 { head.epoch } else { args.epoch },
            ..Written::default()
        },
        tag: args.op_tag,
        op: op::UNLINK_INSTANCE,
        flags: args.log_flags | VERSIONED_OP,
        zones: args.zones,
        ..LogEntry::default()
    };
    append(v, entry)
}

/// The next version becomes the newest; without one, the object is about to be gone.
fn promote_next(
    v: &mut dyn ObjectView,
    args: &UnlinkArgs,
    version: &Version,
    head: &mut Head,
) -> Result<(), Errno> {
    let (op, delete_marker) = match version.next(v)? {
        Some(key) => {
            // It keeps its epoch, and its place in listings with it.
            let mut next = Version::load(v, &key)?;
            next.entry.flags |= VERSIONED | CURRENT;
            next.write(v)?;
            head.key = key;
            (olh::LINK, next.is_delete_marker())
        }
        None => {
            head.key = Key::plain(version.key.name.clone());
            (head.exists, head.removal_pending) = (false, true);
            (olh::UNLINK, false)
        }
    };
    head.delete_marker = delete_marker;
    let (epoch, op_tag, key) = (head.epoch, args.op_tag.clone(), head.key.clone());
    head.log(HeadChange { epoch, op, op_tag, key, delete_marker });
    Ok(())
}
