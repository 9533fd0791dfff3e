//! Class `queue`: entries in a ring within an object's data. Source: src/cls/queue/cls_queue.cc.

use bytes::Bytes;
use codec::{Decode, wire_struct};
use types::Errno;

use crate::ObjectView;
use crate::registry::{Class, Done, Nothing, methods};

mod head;
mod ring;

pub(crate) use head::{FRAME, Head};
use ring::list;
pub(crate) use ring::{Pages, enqueue, remove};

pub static CLASS: Class = Class {
    name: "queue",
    methods: methods![
        queue_init RD_WR init,
        queue_get_capacity RD get_capacity,
        queue_enqueue RD_WR enqueue_entries,
        queue_list_entries RD list_entries,
        queue_remove_entries RD_WR remove_entries,
    ],
};

/// The attribute for what a class of queues keeps and its head has no place for.
pub(crate) const SPILLED_ATTR: &[u8] = b"cls_queue_urgent_data";

/// What that attribute holds, if it is there. EINVAL when it does not decode.
pub(crate) fn spilled<T: Decode>(v: &mut dyn ObjectView) -> Result<Option<T>, Errno> {
    match v.xattr(SPILLED_ATTR) {
        Ok(raw) => T::from_bytes(raw).map(Some).map_err(|_| Errno::EINVAL),
        Err(Errno::ENOENT | Errno::ENODATA) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(crate) struct InitArgs {
    /// Bytes for entries.
    pub size: u64,
    /// Bytes.
    pub max_urgent: u64,
    pub urgent: Bytes,
}
wire_struct!(InitArgs(1, 1) { size, max_urgent, urgent });

struct EnqueueArgs {
    entries: Vec<Bytes>,
}
wire_struct!(EnqueueArgs(1, 1) { entries });

pub(crate) struct ListArgs {
    /// Entries; 0 for those of one read.
    pub max: u64,
    /// Where to begin; the front when it gives no offset.
    pub start: Bytes,
}
wire_struct!(ListArgs(1, 1) { max, start });

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListReply {
    pub truncated: bool,
    pub next_marker: Bytes,
    pub entries: Vec<Entry>,
}
wire_struct!(ListReply(1, 1) { truncated, next_marker, entries });

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub data: Bytes,
    pub marker: Bytes,
}
wire_struct!(Entry(1, 1) { data, marker });

pub(crate) struct RemoveArgs {
    /// The first entry that stays.
    pub end: Bytes,
}
wire_struct!(RemoveArgs(1, 1) { end });

pub(crate) struct Capacity {
    /// Bytes.
    pub size: u64,
}
wire_struct!(Capacity(1, 1) { size });

/// EEXIST when there is a queue; EINVAL when the head has no room for what is urgent.
pub(crate) fn init(v: &mut dyn ObjectView, args: InitArgs) -> Result<Done, Errno> {
    match Head::read(v) {
        Ok(_) => return Err(Errno::EEXIST),
        Err(Errno::EINVAL) => {}
        Err(e) => return Err(e),
    }
    Head::new(args.size, args.max_urgent, args.urgent).write(v)
}

pub(crate) fn get_capacity(v: &mut dyn ObjectView, _: Nothing) -> Result<Capacity, Errno> {
    let head = Head::read(v)?;
    Ok(Capacity { size: head.end.wrapping_sub(head.start) })
}

fn enqueue_entries(v: &mut dyn ObjectView, args: EnqueueArgs) -> Result<Done, Errno> {
    let mut head = Head::read(v)?;
    enqueue(v, &mut head, args.entries)?;
    head.write(v)
}

pub(crate) fn list_entries(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let head = Head::read(v)?;
    list(v, &head, args.max, &args.start)
}

pub(crate) fn remove_entries(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    let mut head = Head::read(v)?;
    remove(v, &mut head, &args.end)?;
    head.write(v)
}

#[cfg(test)]
mod tests;
