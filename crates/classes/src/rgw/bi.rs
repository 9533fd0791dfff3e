//! The index as tools see it: entries as they are stored, and sums that are counted anew.

use bytes::Bytes;
use codec::{Decode, wire_struct};
use types::Errno;

use super::header::{Header, InOmap};
use super::names;
use super::olh::Head;
use crate::ObjectView;
use crate::registry::{Done, Nothing, stored};
use ::rgw::index::entry::{Entry, Key};

/// Entries of one answer. Source: MAX_BI_LIST_ENTRIES in src/cls/rgw/cls_rgw.cc.
const MAX_ENTRIES: u32 = 1000;

const PLAIN: u8 = 1;
const INSTANCE: u8 = 2;
const HEAD: u8 = 3;

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEntry {
    pub kind: u8,
    pub key: Bytes,
    pub value: Bytes,
}
wire_struct!(RawEntry(1, 1) { kind, key, value });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetArgs {
    pub key: Key,
    pub kind: u8,
}
wire_struct!(GetArgs(1, 1) { key, kind });

/// Answer of `get`, input of `put`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneEntry {
    pub entry: RawEntry,
}
wire_struct!(OneEntry(1, 1) { entry });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    pub max: u32,
    /// Of one object alone; of all when it is empty.
    pub name: Bytes,
    /// Key to go on behind.
    pub marker: Bytes,
}
wire_struct!(ListArgs(1, 1) { max, name, marker });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<RawEntry>,
    pub truncated: bool,
}
wire_struct!(ListReply(1, 1) { entries, truncated });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReply {
    pub existing: Header,
    pub calculated: Header,
}
wire_struct!(CheckReply(1, 1) { existing, calculated });

pub(super) fn get(v: &mut dyn ObjectView, args: GetArgs) -> Result<OneEntry, Errno> {
    let GetArgs { key, kind } = args;
    let at = match kind {
        PLAIN => key.name,
        INSTANCE => names::entry(&key),
        HEAD => names::head(&key.name),
        _ => return Err(Errno::EINVAL),
    };
    let value = v.omap_value(&at)?;
    Ok(OneEntry { entry: RawEntry { kind, key: at, value } })
}

/// Stores what it is given, whatever it is. As in Ceph, a failure to do so is not told.
pub(super) fn put(v: &mut dyn ObjectView, args: OneEntry) -> Result<Done, Errno> {
    let _ = v.put(args.entry.key, args.entry.value);
    Ok(Done)
}

/// Lists plain entries, versions, heads, and plain entries again: those before and behind the special keys.
pub(super) fn list(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let max = args.max.min(MAX_ENTRIES);
    let mut entries = Vec::new();
    let (name, marker) = (&args.name, &args.marker);
    let mut more = before_special(v, name, marker, max, &mut entries)?.more;
    for part in [Part::Instances, Part::Heads] {
        if !more {
            let left = left(max, &entries);
            more = special(v, &part, name, marker, left, &mut entries)?;
        }
    }
    if !more {
        let left = left(max, &entries);
        more = behind_special(v, name, marker, left, &mut entries)?.more;
    }
    let truncated = more || entries.len() as u64 > max.into();
    entries.truncate(max as usize);
    Ok(ListReply { entries, truncated })
}

fn left(max: u32, entries: &[RawEntry]) -> u32 {
    max.wrapping_sub(entries.len() as u32)
}

/// How a look at plain entries ended.
struct PlainEnd {
    more: bool,
    /// The end of the part was reached, and not just that of the look.
    at_end: bool,
}

fn before_special(
    v: &mut dyn ObjectView,
    name: &Bytes,
    marker: &Bytes,
    max: u32,
    entries: &mut Vec<RawEntry>,
) -> Result<PlainEnd, Errno> {
    if marker.as_ref() >= names::SPECIAL_BEGIN {
        return Ok(PlainEnd { more: false, at_end: true });
    }
    plain(v, name, marker, Some(names::SPECIAL_BEGIN), max, entries)
}

fn behind_special(
    v: &mut dyn ObjectView,
    name: &Bytes,
    marker: &Bytes,
    max: u32,
    entries: &mut Vec<RawEntry>,
) -> Result<PlainEnd, Errno> {
    let start = marker.clone().max(Bytes::from_static(names::SPECIAL_END));
    plain(v, name, &start, None, max, entries)
}

/// Plain entries of an object, or of all, in front of `end`.
fn plain(
    v: &mut dyn ObjectView,
    name: &Bytes,
    start: &Bytes,
    end: Option<&[u8]>,
    max: u32,
    entries: &mut Vec<RawEntry>,
) -> Result<PlainEnd, Errno> {
    let (found, more) = v.omap_list(start, name, max.into())?;
    for (key, value) in found {
        if end.is_some_and(|end| key.as_ref() >= end) {
            return Ok(PlainEnd { more: false, at_end: true });
        }
        let entry: Entry = stored(value.clone())?;
        if !name.is_empty() && entry.key.name > *name {
            return Ok(PlainEnd { more: false, at_end: true });
        }
        entries.push(RawEntry { kind: PLAIN, key, value });
    }
    Ok(PlainEnd { more, at_end: false })
}

/// A part of the special keys.
enum Part {
    Instances,
    Heads,
}

impl Part {
    /// Beginning of the keys of an object, or of all.
    fn prefix(&self, name: &Bytes) -> Bytes {
        match self {
            Self::Instances if name.is_empty() => Bytes::from_static(names::INSTANCES),
            Self::Instances => names::instance(&Key::plain(name.clone())),
            Self::Heads => names::head(name),
        }
    }

    fn raw(&self, key: Bytes, value: Bytes) -> RawEntry {
        let kind = match self {
            Self::Instances => INSTANCE,
            Self::Heads => HEAD,
        };
        RawEntry { kind, key, value }
    }

    /// The object's name in a value.
    fn name(&self, value: &Bytes) -> Result<Bytes, Errno> {
        Ok(match self {
            Self::Instances => stored::<Entry>(value.clone())?.key.name,
            Self::Heads => stored::<Head>(value.clone())?.key.name,
        })
    }
}

/// Entries of a part behind the marker, or from its beginning on; whether more follow.
fn special(
    v: &mut dyn ObjectView,
    part: &Part,
    name: &Bytes,
    marker: &Bytes,
    max: u32,
    entries: &mut Vec<RawEntry>,
) -> Result<bool, Errno> {
    let prefix = part.prefix(name);
    let begins = names::compare(marker, &prefix).is_le();
    let start = if begins { prefix.clone() } else { marker.clone() };
    let first = match v.omap_value(&start) {
        Err(Errno::ENOENT) => None,
        value if start != *marker => Some((start.clone(), value?)),
        value => value.map(|_| None)?,
    };
    // Ceph lets this one count below zero, and then takes all that its OSD gives in one look.
    let max = if first.is_some() { max.wrapping_sub(1) } else { max };
    let (found, more) = if max > 0 { v.omap_list(&start, b"", max.into())? } else { (Vec::new(), false) };
    for (key, value) in first.into_iter().chain(found) {
        if !key.starts_with(&prefix) {
            return Ok(false);
        }
        if part.name(&value)? != *name && !name.is_empty() {
            return Ok(false);
        }
        entries.push(part.raw(key, value));
    }
    Ok(more)
}

pub(super) fn check(v: &mut dyn ObjectView, _: Nothing) -> Result<CheckReply, Errno> {
    let existing = Header::load(v)?;
    let calculated = count(v, &existing)?;
    Ok(CheckReply { existing, calculated })
}

pub(super) fn rebuild(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    let existing = Header::load(v)?;
    count(v, &existing)?.save(v)
}

/// The header as it ought to be. What is counted are plain objects and versions, each once.
fn count(v: &mut dyn ObjectView, existing: &Header) -> Result<Header, Errno> {
    let mut header = Header {
        tag_timeout_s: existing.tag_timeout_s,
        version: existing.version,
        log_stopped: existing.log_stopped,
        ..Header::default()
    };
    let mut marker = Bytes::new();
    loop {
        let mut entries = Vec::new();
        let more = all_plain(v, &marker, &mut entries)?;
        let going_on = add_up(&mut header, &mut marker, entries, |e| e.flags == 0)?;
        if !more || !going_on {
            break;
        }
    }
    marker = Bytes::new();
    loop {
        let mut entries = Vec::new();
        let more = special(v, &Part::Instances, &Bytes::new(), &marker, MAX_ENTRIES, &mut entries)?;
        let going_on = add_up(&mut header, &mut marker, entries, |_| true)?;
        if !more || !going_on {
            return Ok(header);
        }
    }
}

/// Plain entries before and behind the special keys, as one sequence.
fn all_plain(v: &mut dyn ObjectView, marker: &Bytes, entries: &mut Vec<RawEntry>) -> Result<bool, Errno> {
    let none = Bytes::new();
    let end = before_special(v, &none, marker, MAX_ENTRIES, entries)?;
    if !end.at_end || entries.len() as u64 >= MAX_ENTRIES.into() {
        return Ok(end.more);
    }
    let left = left(MAX_ENTRIES, entries);
    Ok(behind_special(v, &none, marker, left, entries)?.more)
}

/// Counts entries that exist and moves the marker behind them; whether there were any.
fn add_up(
    header: &mut Header,
    marker: &mut Bytes,
    entries: Vec<RawEntry>,
    counts: impl Fn(&Entry) -> bool,
) -> Result<bool, Errno> {
    let any = !entries.is_empty();
    for RawEntry { key, value, .. } in entries {
        let entry = Entry::from_bytes(value).map_err(|_| Errno::EIO)?;
        if entry.exists && counts(&entry) {
            header.count(&entry);
        }
        *marker = key;
    }
    Ok(any)
}
