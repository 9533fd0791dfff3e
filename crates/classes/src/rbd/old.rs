//! Snapshots of images of the first format, whose header is one binary structure in the object's data. Source:
//! rbd_obj_header_ondisk in src/include/rbd_types.h.

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer, wire_plain};
use types::Errno;

use crate::registry::{Done, Nothing, Raw, input};
use crate::{ObjectView, keys};

/// Bytes of the header up to `snap_seq`, with the image's size as the last eight.
const FIXED_LEN: usize = 88;
/// Bytes of the header in front of the snapshots.
const HEADER_LEN: usize = 112;
const SIZE_AT: usize = 80;
const SNAP_LEN: u64 = 16;

const LIMIT: &str = "snap_limit";

struct OldSnap {
    id: u64,
    image_size: u64,
    name: Bytes,
}

/// The header, with what is not about snapshots kept as it is.
struct Header {
    fixed: Bytes,
    image_size: u64,
    seq: u64,
    reserved: u32,
    /// Newest first.
    snaps: Vec<OldSnap>,
}

/// Input of `snap_add`.
struct AddArgs {
    name: Bytes,
    id: u64,
}
wire_plain!(AddArgs { name, id });

struct RenameArgs {
    id: u64,
    name: Bytes,
}
wire_plain!(RenameArgs { id, name });

/// Fixed part of a header as read: sizes, and how long the rest is.
struct Counts {
    seq: u64,
    snaps: u32,
    reserved: u32,
    names_len: u64,
}
wire_plain!(Counts { seq, snaps, reserved, names_len });

/// EINVAL when the object is too short for a header.
fn counts(v: &mut dyn ObjectView) -> Result<(Bytes, Counts), Errno> {
    let raw = v.read(0, HEADER_LEN as u64)?;
    if raw.len() < HEADER_LEN {
        return Err(Errno::EINVAL);
    }
    let counts = Counts::from_bytes(raw.slice(FIXED_LEN..)).map_err(|_| Errno::EIO)?;
    Ok((raw.slice(..FIXED_LEN), counts))
}

/// Snapshots of the header; nothing when the object holds none of this kind.
pub(super) fn snapshot_count(v: &mut dyn ObjectView) -> Result<Option<u64>, Errno> {
    match counts(v) {
        Ok((_, counts)) => Ok(Some(counts.snaps.into())),
        Err(Errno::EINVAL) => Ok(None),
        Err(e) => Err(e),
    }
}

/// EIO for names that do not fit the snapshots.
fn load(v: &mut dyn ObjectView) -> Result<Header, Errno> {
    let (fixed, counts) = counts(v)?;
    let snaps_len = u64::from(counts.snaps) * SNAP_LEN;
    let rest_len = snaps_len.checked_add(counts.names_len).ok_or(Errno::EIO)?;
    // Length 0 would read to the end.
    let rest = if rest_len == 0 { Bytes::new() } else { v.read(HEADER_LEN as u64, rest_len)? };
    if rest.len() as u64 != rest_len {
        return Err(Errno::EIO);
    }
    let mut names = rest.slice(snaps_len as usize..);
    let mut r = Reader::new(rest);
    let mut snaps = Vec::new();
    for _ in 0..counts.snaps {
        let (id, image_size) = (u64::decode(&mut r), u64::decode(&mut r));
        let end = names.iter().position(|b| *b == 0).ok_or(Errno::EIO)?;
        let name = names.split_to(end);
        names = names.slice(1..);
        snaps.push(OldSnap {
            id: id.map_err(|_| Errno::EIO)?,
            image_size: image_size.map_err(|_| Errno::EIO)?,
            name,
        });
    }
    let size = fixed.slice(SIZE_AT..FIXED_LEN);
    let image_size = u64::from_bytes(size).map_err(|_| Errno::EIO)?;
    Ok(Header { fixed, image_size, seq: counts.seq, reserved: counts.reserved, snaps })
}

fn save(v: &mut dyn ObjectView, h: &Header) -> Result<Done, Errno> {
    let names_len = h.snaps.iter().map(|s| s.name.len() as u64 + 1).sum();
    let counts = Counts { seq: h.seq, snaps: h.snaps.len() as u32, reserved: h.reserved, names_len };
    let mut w = Writer::new();
    w.raw(&h.fixed);
    counts.encode(&mut w);
    for snap in &h.snaps {
        snap.id.encode(&mut w);
        snap.image_size.encode(&mut w);
    }
    for snap in &h.snaps {
        w.raw(&snap.name);
        w.u8(0);
    }
    v.write_full(w.into_bytes())?;
    Ok(Done)
}

/// A name as the header holds it: up to the first zero.
fn c_string(name: Bytes) -> Bytes {
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    name.slice(..end)
}

pub(super) fn snap_list(v: &mut dyn ObjectView, _: Nothing) -> Result<Raw, Errno> {
    let header = load(v)?;
    let mut w = Writer::new();
    w.u64(header.seq);
    w.count(header.snaps.len());
    for snap in &header.snaps {
        snap.id.encode(&mut w);
        snap.image_size.encode(&mut w);
        snap.name.encode(&mut w);
    }
    Ok(Raw(w.into_bytes()))
}

pub(super) fn snap_add(v: &mut dyn ObjectView, raw: Raw) -> Result<Done, Errno> {
    let mut header = load(v)?;
    let args: AddArgs = input(&raw.0)?;
    let name = c_string(args.name);
    if header.seq > args.id {
        return Err(Errno::ESTALE);
    }
    if header.snaps.len() as u64 >= keys::find(v, LIMIT)?.unwrap_or(u64::MAX) {
        return Err(Errno::EDQUOT);
    }
    if header.snaps.iter().any(|s| s.name == name) {
        return Err(Errno::EEXIST);
    }
    header.seq = args.id;
    header.snaps.insert(0, OldSnap { id: args.id, image_size: header.image_size, name });
    save(v, &header)
}

pub(super) fn snap_remove(v: &mut dyn ObjectView, raw: Raw) -> Result<Done, Errno> {
    let mut header = load(v)?;
    let name = c_string(input(&raw.0)?);
    let at = header.snaps.iter().position(|s| s.name == name).ok_or(Errno::ENOENT)?;
    header.snaps.remove(at);
    save(v, &header)
}

pub(super) fn snap_rename(v: &mut dyn ObjectView, raw: Raw) -> Result<Done, Errno> {
    let mut header = load(v)?;
    let args: RenameArgs = input(&raw.0)?;
    let name = c_string(args.name);
    if header.snaps.iter().any(|s| s.name == name) {
        return Err(Errno::EEXIST);
    }
    header.snaps.iter_mut().find(|s| s.id == args.id).ok_or(Errno::ENOENT)?.name = name;
    save(v, &header)
}
