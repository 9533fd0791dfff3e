//! A part of a queue: a header, then entries, each behind a mark and a header of its own.

use bytes::{BufMut, BytesMut};
use codec::Encode;
use types::{Errno, RealTime};

use super::reader::Entries;
use super::types::{
    ENTRY_HEADER_SIZE, ENTRY_OVERHEAD, EntryHeader, InitArgs, ListArgs, ListReply, MARK_SIZE, Mark,
    PART_HEADER_SIZE, PartHeader, PartReply, PushArgs, TrimArgs,
};
use crate::ObjectView;
use crate::registry::{Done, stored};
use crate::wire::EmptyEnvelope;

/// Entries in one listing. Source: MAX_LIST_ENTRIES in src/cls/fifo/cls_fifo_ops.h.
const MAX_LISTED: i32 = 512;
/// Bytes of data that end a listing, which says that there is more. Ceph has no such bound.
const MAX_LISTED_BYTES: usize = 64 << 20;

/// EEXIST for a part with other sizes.
pub(super) fn init(v: &mut dyn ObjectView, args: InitArgs) -> Result<Done, Errno> {
    match v.stat() {
        Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
        Ok(stat) if stat.size == 0 => {}
        Ok(_) if load(v)?.params == args.params => return Ok(Done),
        Ok(_) => return Err(Errno::EEXIST),
    }
    let [a, b, c, d, e, f, g, h, ..] = v.unique();
    let header = PartHeader {
        params: args.params,
        magic: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        min_offset: PART_HEADER_SIZE,
        next_offset: PART_HEADER_SIZE,
        max_time: RealTime(v.now()),
        ..PartHeader::default()
    };
    save(v, &header)
}

/// How many entries found room: at least one. ERANGE for a full part, EFAULT when there are no entries.
pub(super) fn push(v: &mut dyn ObjectView, args: PushArgs) -> Result<i32, Errno> {
    let mut header = load(v)?;
    let overhead = u64::from(ENTRY_OVERHEAD).wrapping_mul(args.entries.len() as u64);
    if args.total.wrapping_add(overhead) > header.params.max_part_size {
        return Err(Errno::EINVAL);
    }
    if header.is_full() {
        return Err(Errno::ERANGE);
    }
    if args.entries.iter().map(|data| data.len() as u64).sum::<u64>() != args.total {
        return Err(Errno::EINVAL);
    }
    let time = RealTime(v.now());
    let (start, mut pushed, mut all) = (header.next_offset, 0, BytesMut::new());
    for data in args.entries {
        if header.is_full() {
            break;
        }
        let mark = Mark {
            magic: header.magic,
            mark_size: MARK_SIZE,
            header_size: ENTRY_HEADER_SIZE,
            data_size: data.len() as u64,
            index: header.max_index,
            reserved: 0,
        };
        all.put(mark.to_bytes());
        all.put(EntryHeader { time }.to_bytes());
        all.put(data);
        pushed += 1;
        header.last_offset = header.next_offset;
        header.next_offset = start.wrapping_add(all.len() as u64);
        header.max_index = header.max_index.wrapping_add(1);
    }
    header.max_time = time;
    v.write(start, all.freeze())?;
    save(v, &header)?;
    // Only now, as in Ceph: a request whose failed operations count keeps the header's new time.
    if pushed == 0 { Err(Errno::EFAULT) } else { Ok(pushed) }
}

/// Removes entries up to an offset; a full part of which nothing is left goes as a whole.
pub(super) fn trim(v: &mut dyn ObjectView, args: TrimArgs) -> Result<Done, Errno> {
    let mut header = load(v)?;
    let first = header.min_offset;
    if args.offset < first || (args.exclusive && args.offset == first) {
        return Ok(Done);
    }
    if args.offset < header.next_offset {
        let mut entries = Entries::new(v, &header, args.offset);
        let index = entries.mark()?.index;
        if args.exclusive {
            header.min_index = index;
        } else {
            entries.next()?;
            header.min_index = index.wrapping_add(1);
        }
        header.min_offset = entries.offset();
    } else if header.is_full() {
        v.remove()?;
        return Ok(Done);
    } else {
        header.min_offset = header.next_offset;
        header.min_index = header.max_index;
    }
    save(v, &header)
}

pub(super) fn list(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let header = load(v)?;
    let mut reader = Entries::new(v, &header, args.offset);
    if args.offset >= header.min_offset && !reader.is_at_end() {
        reader.next()?;
    }
    let (mut entries, mut bytes) = (Vec::new(), 0_usize);
    for _ in 0..args.max.min(MAX_LISTED) {
        if reader.is_at_end() || bytes >= MAX_LISTED_BYTES {
            break;
        }
        let entry = reader.next()?;
        bytes = bytes.saturating_add(entry.data.len());
        entries.push(entry);
    }
    let (more, full) = (!reader.is_at_end(), header.is_full());
    Ok(ListReply { old_tag: header.old_tag, entries, more, full })
}

pub(super) fn info(v: &mut dyn ObjectView, _: EmptyEnvelope) -> Result<PartReply, Errno> {
    Ok(PartReply { header: load(v)? })
}

/// EIO for what is not a part, an absent object too.
fn load(v: &mut dyn ObjectView) -> Result<PartHeader, Errno> {
    stored(v.read(0, PART_HEADER_SIZE)?)
}

fn save(v: &mut dyn ObjectView, header: &PartHeader) -> Result<Done, Errno> {
    v.write(0, header.to_bytes())?;
    Ok(Done)
}
