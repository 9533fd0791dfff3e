//! Listing a bucket: plain entries and versions by name, with what lies behind a delimiter taken together.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use memchr::memmem::Finder;
use types::Errno;

use super::header::{Header, InOmap};
use super::names::{self, SPECIAL};
use crate::registry::input;
use crate::{KeyPage, ObjectView, keys};
use ::rgw::index::entry::{COMMON_PREFIX, Entry, Key, VERSION_MARKER};

/// Looks into the omap, at most: a listing that skips much ends short of what it was asked for.
const MAX_LOOKS: usize = 8;
/// The answer has no entries, and a marker to go on from. Source: RGWBIAdvanceAndRetryError in
/// src/cls/rgw/cls_rgw_types.h.
const ADVANCE_AND_RETRY: Errno = Errno::EFBIG;

/// Source: rgw_cls_list_op in src/cls/rgw/cls_rgw_ops.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListArgs {
    pub start: Key,
    pub max: u32,
    pub prefix: Bytes,
    pub versions: bool,
    pub delimiter: Bytes,
}

impl Encode for ListArgs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, 4, |w| {
            self.max.encode(w);
            self.prefix.encode(w);
            self.start.encode(w);
            self.versions.encode(w);
            self.delimiter.encode(w);
        });
    }
}
impl Decode for ListArgs {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("bucket list", 6, 2, |r, version| {
            let mut a = Self::default();
            if version < 4 {
                a.start.name = r.blob()?;
            }
            a.max = r.u32()?;
            if version >= 3 {
                a.prefix = r.blob()?;
            }
            if version >= 4 {
                a.start = Decode::decode(r)?;
            }
            if version >= 5 {
                a.versions = Decode::decode(r)?;
            }
            if version >= 6 {
                a.delimiter = r.blob()?;
            }
            Ok(a)
        })
    }
}

/// Source: rgw_cls_list_ret in src/cls/rgw/cls_rgw_ops.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListReply {
    pub header: Header,
    pub entries: BTreeMap<Bytes, Entry>,
    pub truncated: bool,
    /// Where to go on, when the listing is cut.
    pub marker: Key,
}

impl Encode for ListReply {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 2, |w| {
            w.envelope(2, 2, |w| {
                self.header.encode(w);
                self.entries.encode(w);
            });
            self.truncated.encode(w);
            self.marker.encode(w);
        });
    }
}
impl Decode for ListReply {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("listing", 4, 2, |r, version| {
            let (header, entries) =
                r.legacy_envelope("listed", 2, 2, |r, _| Ok((Decode::decode(r)?, Decode::decode(r)?)))?;
            let truncated = Decode::decode(r)?;
            let marker = if version >= 4 { Decode::decode(r)? } else { Key::default() };
            Ok(Self { header, entries, truncated, marker })
        })
    }
}

/// A listing under way.
struct Listing {
    args: ListArgs,
    /// Finds the delimiter; nothing where there is none.
    delimiter: Option<Finder<'static>>,
    found: BTreeMap<Bytes, Entry>,
    /// Key that the next look starts behind.
    after: Bytes,
    marker: Key,
    last_key: Bytes,
    last_prefix: Bytes,
}

pub(super) fn bucket_list(v: &mut dyn ObjectView, bytes: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    let args: ListArgs = input(bytes)?;
    let header = Header::load(v)?;
    if args.max == 0 {
        *out = ListReply { header, ..ListReply::default() }.to_bytes();
        return Ok(0);
    }
    let mut listing = Listing::start(v, args);
    let truncated = listing.look(v)?;
    let marker = if truncated { listing.marker } else { Key::default() };
    let empty = listing.found.is_empty();
    *out = ListReply { header, entries: listing.found, truncated, marker }.to_bytes();
    if truncated && empty { Err(ADVANCE_AND_RETRY) } else { Ok(0) }
}

impl Listing {
    fn start(v: &mut dyn ObjectView, args: ListArgs) -> Self {
        let mut after = start_key(v, &args.start).unwrap_or_default();
        let delimited = !args.delimiter.is_empty() && after.ends_with(&args.delimiter);
        if delimited && after > args.prefix {
            after = behind(&after);
        }
        let (found, marker) = (BTreeMap::new(), Key::default());
        let delimiter = Some(&args.delimiter).filter(|d| !d.is_empty());
        let delimiter = delimiter.map(|d| Finder::new(d).into_owned());
        let (last_key, last_prefix) = (Bytes::new(), Bytes::new());
        Self { args, delimiter, found, after, marker, last_key, last_prefix }
    }

    fn is_full(&self) -> bool {
        self.found.len() as u64 >= u64::from(self.args.max)
    }

    /// Fills the listing; whether more follows.
    fn look(&mut self, v: &mut dyn ObjectView) -> Result<bool, Errno> {
        for _ in 0..MAX_LOOKS {
            let max = self.args.max.wrapping_sub(self.found.len() as u32);
            let (page, more) = objects(v, &self.after, &self.args.prefix, max)?;
            let done = page.is_empty();
            self.take(&page)?;
            if done || !more {
                return Ok(false);
            }
            if self.is_full() {
                break;
            }
        }
        Ok(true)
    }

    fn take(&mut self, page: &[(Bytes, Bytes)]) -> Result<(), Errno> {
        let mut i = 0;
        while let Some((key, value)) = page.get(i) {
            i += 1;
            let entry = Entry::from_bytes(value.clone()).map_err(|_| Errno::EINVAL)?;
            (self.after, self.marker) = (key.clone(), entry.key.clone());
            let Some(name) = names::object_name(key) else { continue };
            let hidden = !self.args.versions && (!entry.is_visible() || self.args.start.name == name);
            if entry.has(VERSION_MARKER) || hidden {
                continue;
            }
            if let Some(prefix) = self.common_prefix(&name) {
                if prefix == self.last_prefix {
                    continue;
                }
                self.take_prefix(prefix);
                // The rest of what lies behind the delimiter is passed over, as far as it was read.
                i = page.partition_point(|(key, _)| *key < self.after).max(i - 1);
                continue;
            }
            if !self.is_full() && *key != self.last_key {
                self.found.insert(key.clone(), entry);
                self.last_key = key.clone();
            }
        }
        Ok(())
    }

    /// The name to behind the first delimiter that follows the listing's own prefix.
    fn common_prefix(&self, name: &Bytes) -> Option<Bytes> {
        let (delimiter, from) = (self.delimiter.as_ref()?, self.args.prefix.len());
        let at = delimiter.find(name.get(from..)?)?;
        Some(name.slice(..from + at + delimiter.needle().len()))
    }

    fn take_prefix(&mut self, prefix: Bytes) {
        if !self.is_full() {
            let key = Key::plain(prefix.clone());
            self.found.insert(prefix.clone(), Entry { key, flags: COMMON_PREFIX, ..Entry::default() });
        }
        self.after = behind(&prefix);
        self.marker = Key { name: self.after.clone(), ..std::mem::take(&mut self.marker) };
        self.last_prefix = prefix;
    }
}

/// Behind everything that begins with a text: no UTF-8 text has this byte.
fn behind(prefix: &[u8]) -> Bytes {
    [prefix, b"\xff"].concat().into()
}

/// The key in a listing of the object, or of its version, that the caller saw last.
fn start_key(v: &mut dyn ObjectView, start: &Key) -> Result<Bytes, Errno> {
    if start.instance.is_empty() {
        return Ok(start.name.clone());
    }
    let mut key = start.clone();
    if key.instance.as_ref() == b"null" {
        key.instance = Bytes::new();
    }
    match keys::read::<Entry>(v, names::instance(&key)) {
        Ok(entry) => Ok(names::listed(&entry)),
        // Its other versions follow.
        Err(Errno::ENOENT) => Ok([&key.name, &b"\x01"[..]].concat().into()),
        Err(e) => Err(e),
    }
}

/// Plain and listed entries behind a key, without what else the omap holds.
fn objects(v: &mut dyn ObjectView, after: &[u8], prefix: &[u8], max: u32) -> Result<KeyPage, Errno> {
    // Ceph counts in an int here, and asks for its bits.
    let max = i64::from(max as i32) as u64;
    let (mut page, more) = v.omap_list(after, prefix, max)?;
    let first_byte = |entry: Option<&(Bytes, Bytes)>| entry.and_then(|(key, _)| key.first().copied());
    let ends_before = first_byte(page.last()).is_none_or(|b| b < SPECIAL);
    let begins_behind = first_byte(page.first()).is_some_and(|b| b > SPECIAL);
    if ends_before || begins_behind {
        return Ok((page, more));
    }
    page.retain(|(key, _)| key.first() != Some(&SPECIAL));
    if page.len() as u64 == max || !more {
        return Ok((page, more));
    }
    let behind_special = Bytes::from_static(&[SPECIAL + 1]);
    let after = page.last().map_or(behind_special.clone(), |(key, _)| key.clone().max(behind_special));
    let (rest, more) = v.omap_list(&after, prefix, max.wrapping_sub(page.len() as u64))?;
    page.extend(rest);
    Ok((page, more))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::fake::{Fake, FakeObject};

    #[test]
    fn long_delimiters_are_looked_for_in_long_names_in_linear_time() {
        let name = Bytes::from("a".repeat(4 << 20));
        let entry = Entry { key: Key::plain(name.clone()), exists: true, ..Entry::default() };
        let omap = BTreeMap::from([(name.clone(), entry.to_bytes())]);
        let mut f = Fake::with(FakeObject { omap, ..FakeObject::default() });
        let delimiter = format!("{}b", "a".repeat(2 << 20));
        let args = Writer::collect(|w| {
            w.envelope(6, 4, |w| ((9u32, ""), (Key::default(), (false, delimiter))).encode(w));
        });
        let begun = Instant::now();
        let (_, out) = f.call("rgw", "bucket_list", args).unwrap();
        // At each place of the name anew, it takes minutes.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert!(out.len() > name.len(), "the name itself is listed");
    }
}
