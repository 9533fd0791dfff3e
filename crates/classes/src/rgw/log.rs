//! The log of changes to a bucket index, which other zones follow.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::{Errno, RealTime};

use super::entry::{Key, Written, packed, put_packed};
use super::header::Header;
use super::names;
use super::zones::Zones;
use crate::ObjectView;
use crate::registry::{Done, Nothing, stored};

/// What changed. Source: RGWModifyOp in src/cls/rgw/cls_rgw_types.h.
pub(super) mod op {
    pub const ADD: u8 = 0;
    pub const DELETE: u8 = 1;
    pub const CANCEL: u8 = 2;
    pub const UNKNOWN: u8 = 3;
    pub const LINK: u8 = 4;
    pub const LINK_DELETE_MARKER: u8 = 5;
    pub const UNLINK_INSTANCE: u8 = 6;
    pub const STOP: u8 = 7;
    pub const RESYNC: u8 = 8;
}

/// State of a change that is done.
pub(super) const COMPLETE: u8 = 1;
/// Flag of a change to a versioned object.
pub(super) const VERSIONED_OP: u16 = 1;

/// Source: rgw_bi_log_entry in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogEntry {
    pub id: Bytes,
    pub key: Key,
    pub time: RealTime,
    pub written: Written,
    pub tag: Bytes,
    pub op: u8,
    pub state: u8,
    /// The header's version before the change.
    pub index_version: u64,
    pub flags: u16,
    /// Set for delete markers alone, as is `owner_name`.
    pub owner: Bytes,
    pub owner_name: Bytes,
    pub zones: Zones,
}

impl Default for LogEntry {
    fn default() -> Self {
        Self {
            id: Bytes::new(),
            key: Key::default(),
            time: RealTime::default(),
            written: Written::default(),
            tag: Bytes::new(),
            op: op::UNKNOWN,
            state: 0,
            index_version: 0,
            flags: 0,
            owner: Bytes::new(),
            owner_name: Bytes::new(),
            zones: Zones::default(),
        }
    }
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            self.id.encode(w);
            self.key.name.encode(w);
            self.time.encode(w);
            self.written.encode(w);
            self.tag.encode(w);
            self.op.encode(w);
            self.state.encode(w);
            put_packed(w, self.index_version);
            self.key.instance.encode(w);
            self.flags.encode(w);
            self.owner.encode(w);
            self.owner_name.encode(w);
            self.zones.encode(w);
        });
    }
}
impl Decode for LogEntry {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("log entry", 4, |r, env| {
            let mut e = Self { id: r.blob()?, key: Key::plain(r.blob()?), ..Self::default() };
            (e.time, e.written) = (Decode::decode(r)?, Decode::decode(r)?);
            (e.tag, e.op, e.state, e.index_version) = (r.blob()?, r.u8()?, r.u8()?, packed(r)?);
            if env.version >= 2 {
                (e.key.instance, e.flags) = (r.blob()?, r.u16()?);
            }
            if env.version >= 3 {
                (e.owner, e.owner_name) = (r.blob()?, r.blob()?);
            }
            if env.version >= 4 {
                e.zones = Decode::decode(r)?;
            }
            Ok(e)
        })
    }
}

/// Writes an entry of the log under an id that sorts it behind what was logged before.
pub(super) fn append(v: &mut dyn ObjectView, header: &mut Header, entry: LogEntry) -> Result<(), Errno> {
    let id = format!("{:011}.{}.{}", header.version, v.current_version(), v.subop());
    let entry = LogEntry { id: id.into(), ..entry };
    header.max_marker = header.max_marker.clone().max(entry.id.clone());
    let key = [names::LOG, &entry.id].concat();
    v.put(key, entry.to_bytes())
}

pub(super) struct ListArgs {
    marker: Bytes,
    max: u32,
}
wire_struct!(ListArgs(1, 1) { marker, max });

pub(super) struct ListReply {
    entries: Vec<LogEntry>,
    truncated: bool,
}
wire_struct!(ListReply(1, 1) { entries, truncated });

pub(super) struct TrimArgs {
    /// Ids from behind this one on.
    start: Bytes,
    /// To this one with it; all when it is empty.
    end: Bytes,
}
wire_struct!(TrimArgs(1, 1) { start, end });

pub(super) fn list(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let start = [names::LOG, &args.marker].concat();
    let (found, mut truncated) = v.omap_list(&start, b"", args.max.into())?;
    let mut entries = Vec::new();
    for (key, value) in found {
        if key.as_ref() > names::LOG_END {
            truncated = false;
            break;
        }
        entries.push(stored(value)?);
    }
    Ok(ListReply { entries, truncated })
}

/// ENODATA when nothing is left in the range: callers repeat until then.
pub(super) fn trim(v: &mut dyn ObjectView, args: TrimArgs) -> Result<Done, Errno> {
    let start = [names::LOG, &args.start].concat();
    let end: Bytes = if args.end.is_empty() {
        Bytes::from_static(names::LOG_END)
    } else {
        [names::LOG, &args.end, b"\0"].concat().into()
    };
    let (found, _) = v.omap_list(&start, b"", 1)?;
    match found.into_iter().next() {
        Some((first, _)) if first <= end => v.omap_remove_range(first, end).map(|()| Done),
        _ => Err(Errno::ENODATA),
    }
}

pub(super) fn resync(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    switch(v, op::RESYNC, false)
}

pub(super) fn stop(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    switch(v, op::STOP, true)
}

/// Logs that the log ends here, or begins anew.
fn switch(v: &mut dyn ObjectView, op: u8, stopped: bool) -> Result<Done, Errno> {
    let mut header = Header::load(v)?;
    let entry = LogEntry { time: RealTime(v.now()), op, state: COMPLETE, ..LogEntry::default() };
    append(v, &mut header, entry)?;
    Header { log_stopped: stopped, ..header }.save(v)
}
