//! The log of changes to a bucket index, which other zones follow.

use bytes::Bytes;
use codec::{Encode, wire_struct};
use types::{Errno, RealTime};

pub(super) use ::rgw::index::LogEntry;
pub(super) use ::rgw::index::log::{COMPLETE, VERSIONED_OP, op};

use super::header::{Header, InOmap};
use super::names;
use crate::ObjectView;
use crate::registry::{Done, Nothing, stored};

/// Writes an entry of the log under an id that sorts it behind what was logged before.
pub(super) fn append(v: &mut dyn ObjectView, header: &mut Header, entry: LogEntry) -> Result<(), Errno> {
    let id = format!("{:011}.{}.{}", header.version, v.current_version(), v.subop());
    let entry = LogEntry { id: id.into(), ..entry };
    header.max_marker = header.max_marker.clone().max(entry.id.clone());
    let key = [names::LOG, &entry.id].concat();
    v.put(key, entry.to_bytes())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    pub marker: Bytes,
    pub max: u32,
}
wire_struct!(ListArgs(1, 1) { marker, max });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<LogEntry>,
    pub truncated: bool,
}
wire_struct!(ListReply(1, 1) { entries, truncated });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimArgs {
    /// Ids from behind this one on.
    pub start: Bytes,
    /// To this one with it; all when it is empty.
    pub end: Bytes,
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
