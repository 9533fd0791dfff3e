//! Class `log`: entries in the order of their time, each under a key of its own. Source: src/cls/log/cls_log.cc.

use bytes::Bytes;
use codec::{Decode, Encode, wire_struct};
use types::{Errno, Utime};

use crate::ObjectView;
use crate::registry::{Class, Done, methods, stored, wire_grown};
use crate::wire::EmptyEnvelope;

pub static CLASS: Class =
    Class { name: "log", methods: methods![add RD_WR add, list RD list, trim RD_WR trim, info RD info] };

const PREFIX: &str = "1_";
const MAX_ENTRIES: u64 = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    pub section: Bytes,
    pub name: Bytes,
    pub time: Utime,
    pub data: Bytes,
    /// Its key; empty for one that the log chooses.
    pub id: Bytes,
}
wire_grown!(Entry(2, 1) { section, name, time, data; 2: id });

/// What the omap's header holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    pub max_marker: Bytes,
    pub max_time: Utime,
}
wire_struct!(Header(1, 1) { max_marker, max_time });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddArgs {
    pub entries: Vec<Entry>,
    /// No entry is filed before an older one.
    pub monotonic: bool,
}
wire_grown!(AddArgs(2, 1) { entries; 2: monotonic });

impl Default for AddArgs {
    fn default() -> Self {
        Self { entries: Vec::new(), monotonic: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    pub from: Utime,
    /// Takes precedence over `from`.
    pub marker: Bytes,
    /// Not included; counts only beside a `from` that is not behind it.
    pub to: Utime,
    /// 0 for as many as one answer holds.
    pub max: i32,
}
wire_struct!(ListArgs(1, 1) { from, marker, to, max });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<Entry>,
    pub marker: Bytes,
    pub more: bool,
}
wire_struct!(ListReply(1, 1) { entries, marker, more });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrimArgs {
    pub from: Utime,
    /// Included, with its whole microsecond.
    pub to: Utime,
    pub from_marker: Bytes,
    /// Included.
    pub to_marker: Bytes,
}
wire_grown!(TrimArgs(2, 1) { from, to; 2: from_marker, to_marker });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoReply {
    pub header: Header,
}
wire_struct!(InfoReply(1, 1) { header });

fn key_prefix(t: Utime) -> Vec<u8> {
    format!("{PREFIX}{:010}.{:06}_", t.sec, t.nsec / 1000).into_bytes()
}

/// A header that does not decode counts as none.
fn header(v: &mut dyn ObjectView) -> Result<Header, Errno> {
    Ok(Header::from_bytes(v.omap_header()?).unwrap_or_default())
}

fn add(v: &mut dyn ObjectView, args: AddArgs) -> Result<Done, Errno> {
    let mut header = header(v)?;
    for mut entry in args.entries {
        let mut time = entry.time;
        if time > header.max_time {
            header.max_time = time;
        } else if args.monotonic {
            time = header.max_time;
        }
        if entry.id.is_empty() {
            let unique = format!("{}.{}", v.current_version(), v.subop());
            entry.id = [key_prefix(time).as_slice(), unique.as_bytes()].concat().into();
        }
        if entry.id > header.max_marker {
            header.max_marker = entry.id.clone();
        }
        v.put(entry.id.clone(), entry.to_bytes())?;
    }
    v.omap_set_header(header.to_bytes())?;
    Ok(Done)
}

fn list(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let from = if args.marker.is_empty() { key_prefix(args.from).into() } else { args.marker };
    let to = (!args.from.is_zero() && args.to >= args.from).then(|| key_prefix(args.to));
    let max = match u64::try_from(args.max) {
        Ok(1..=MAX_ENTRIES) => args.max as u64,
        _ => MAX_ENTRIES,
    };
    let (found, mut more) = v.omap_list(&from, PREFIX.as_bytes(), max)?;
    let (mut entries, mut marker) = (Vec::new(), Bytes::new());
    for (key, value) in found {
        marker = key.clone();
        // Only as many bytes of a key count as the bound has.
        if to.as_ref().is_some_and(|to| key.get(..to.len()).unwrap_or(&key) >= to.as_slice()) {
            more = false;
            break;
        }
        // An entry that does not decode is passed over.
        if let Ok(entry) = stored(value) {
            entries.push(entry);
        }
    }
    Ok(ListReply { entries, marker, more })
}

/// ENODATA when nothing is left to remove.
fn trim(v: &mut dyn ObjectView, args: TrimArgs) -> Result<Done, Errno> {
    let from = if args.from_marker.is_empty() { key_prefix(args.from).into() } else { args.from_marker };
    let to = if args.to_marker.is_empty() {
        key_prefix(Utime::from_nanos(args.to.as_nanos().saturating_add(1000)))
    } else {
        [&args.to_marker[..], b"\0"].concat()
    };
    let (found, _) = v.omap_list(&from, b"", 1)?;
    let (first, _) = found.into_iter().next().ok_or(Errno::ENODATA)?;
    if to < first {
        return Err(Errno::ENODATA);
    }
    v.omap_remove_range(first, to.into())?;
    Ok(Done)
}

fn info(v: &mut dyn ObjectView, _: EmptyEnvelope) -> Result<InfoReply, Errno> {
    Ok(InfoReply { header: header(v)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn entry(sec: u32, id: &'static str) -> Entry {
        Entry { time: Utime::new(sec, 0), id: id.into(), name: "n".into(), ..Entry::default() }
    }

    fn list_from(f: &mut Fake, from: u32, to: u32) -> Vec<u32> {
        let (from, to) = (Utime::new(from, 0), Utime::new(to, 0));
        let args = ListArgs { from, marker: Bytes::new(), to, max: 0 };
        let (_, out) = f.call("log", "list", args.to_bytes()).unwrap();
        ListReply::from_bytes(out).unwrap().entries.iter().map(|e| e.time.sec).collect()
    }

    #[test]
    fn entries_are_listed_and_trimmed_by_time() {
        let mut f = Fake::default();
        for sec in [10, 20, 30] {
            let args = AddArgs { entries: vec![entry(sec, "")], monotonic: true };
            assert!(f.call("log", "add", args.to_bytes()).is_ok());
        }
        assert_eq!(list_from(&mut f, 0, 0), [10, 20, 30]);
        assert_eq!(list_from(&mut f, 15, 30), [20]);
        let trim = TrimArgs { to: Utime::new(20, 0), ..TrimArgs::default() }.to_bytes();
        assert!(f.call("log", "trim", trim.clone()).is_ok());
        assert_eq!(list_from(&mut f, 0, 0), [30]);
        assert_eq!(f.call("log", "trim", trim), Err(Errno::ENODATA));
        let (_, out) = f.call("log", "info", EmptyEnvelope.to_bytes()).unwrap();
        assert_eq!(InfoReply::from_bytes(out).unwrap().header.max_time, Utime::new(30, 0));
    }

    #[test]
    fn a_monotonic_log_files_late_entries_behind_the_newest() {
        let mut f = Fake::default();
        for (sec, monotonic) in [(30, true), (10, true), (20, false)] {
            let args = AddArgs { entries: vec![entry(sec, "")], monotonic };
            assert!(f.call("log", "add", args.to_bytes()).is_ok());
        }
        // The second took the place of the first: same time, same version.
        assert_eq!(list_from(&mut f, 0, 0), [20, 10]);
    }
}
