//! Outputs of operations: what a server encodes into an operation's `outdata`.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};
use types::{EntityAddr, EntityName, HObject, ReqId, SnapId, Utime};

/// Output of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatResponse {
    pub size: u64,
    pub mtime: Utime,
}
wire_plain!(StatResponse { size, mtime });

/// Output of `sparse-read` and, without the data, of `mapext`: offset and length of each extent that holds data, and
/// their bytes one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SparseReadResponse {
    pub extents: BTreeMap<u64, u64>,
    pub data: Bytes,
}
wire_plain!(SparseReadResponse { extents, data });

/// Output of `omap-get-keys`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmapKeysResponse {
    pub keys: Vec<Bytes>,
    /// There are more keys behind the last one.
    pub more: bool,
}
wire_plain!(OmapKeysResponse { keys, more });

/// Output of `omap-get-vals`; that of `omap-get-vals-by-keys` and `getxattrs` is such a map alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmapValsResponse {
    pub vals: BTreeMap<Bytes, Bytes>,
    pub more: bool,
}
wire_plain!(OmapValsResponse { vals, more });

/// One watcher of an object. Source: watch_item_t in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchItem {
    pub name: EntityName,
    pub cookie: u64,
    pub timeout_s: u32,
    pub addr: EntityAddr,
}

impl Encode for WatchItem {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.name.encode(w);
            w.u64(self.cookie);
            w.u32(self.timeout_s);
            self.addr.encode(w);
        });
    }
}
impl Decode for WatchItem {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("watch_item_t", 2, |r, env| {
            Ok(Self {
                name: EntityName::decode(r)?,
                cookie: r.u64()?,
                timeout_s: r.u32()?,
                addr: if env.version >= 2 { EntityAddr::decode(r)? } else { EntityAddr::default() },
            })
        })
    }
}

/// Output of `list-watchers`. Source: obj_list_watch_response_t.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListWatchersResponse {
    pub entries: Vec<WatchItem>,
}
wire_struct!(ListWatchersResponse(1, 1) { entries });

/// One clone of an object. Source: clone_info in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloneInfo {
    /// The clone's own id, or the head.
    pub clone: SnapId,
    /// The snapshots it stands for, ascending; empty for the head.
    pub snaps: Vec<SnapId>,
    /// Offset and length of what it shares with the next newer one.
    pub overlap: Vec<(u64, u64)>,
    pub size: u64,
}
wire_struct!(CloneInfo(1, 1) { clone, snaps, overlap, size });

/// Output of `list-snaps`. Source: obj_list_snap_response_t.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListSnapsResponse {
    /// Ascending, the head last.
    pub clones: Vec<CloneInfo>,
    /// The newest snapshot that the object knows.
    pub seq: SnapId,
}
wire_struct!(ListSnapsResponse(2, 1) { clones, seq });

/// One object in a PG's list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ListedObject {
    pub nspace: String,
    pub name: String,
    /// The locator key; empty when the name places the object.
    pub key: String,
}
wire_plain!(ListedObject { nspace, name, key });

/// Output of `pgnls`. The operation's result is 1 when the PG's last object is in here. Source: pg_nls_response_t.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgnlsResponse {
    /// Where to go on; behind a PG's end, the next PG's start in sort order.
    pub cursor: HObject,
    pub entries: Vec<ListedObject>,
}
wire_struct!(PgnlsResponse(1, 1) { cursor, entries });

/// Output of `pgls`: names and locator keys of one namespace. Source: pg_ls_response_t.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PglsResponse {
    pub cursor: HObject,
    pub entries: Vec<(String, String)>,
}

/// A version byte, not an envelope.
impl Encode for PglsResponse {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.cursor.encode(w);
        self.entries.encode(w);
    }
}
impl Decode for PglsResponse {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => Ok(Self { cursor: HObject::decode(r)?, entries: Vec::decode(r)? }),
            v => Err(DecodeError::Invalid { what: "pg_ls_response_t version", value: v.into() }),
        }
    }
}

/// How far a copy has come. Source: object_copy_cursor_t.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyCursor {
    pub attr_complete: bool,
    pub data_offset: u64,
    pub data_complete: bool,
    pub omap_offset: Bytes,
    pub omap_complete: bool,
}
wire_struct!(CopyCursor(1, 1) { attr_complete, data_offset, data_complete, omap_offset, omap_complete });

impl CopyCursor {
    pub fn is_complete(&self) -> bool {
        self.attr_complete && self.data_complete && self.omap_complete
    }
}

/// Output of `copy-get`: a piece of an object. Source: object_copy_data_t (version 8).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyData {
    pub size: u64,
    pub mtime: Utime,
    pub attrs: BTreeMap<String, Bytes>,
    pub data: Bytes,
    /// An encoded map of keys to values, or empty.
    pub omap: Bytes,
    pub cursor: CopyCursor,
    pub omap_header: Bytes,
    pub snaps: Vec<SnapId>,
    pub snap_seq: SnapId,
    /// `FLAG_*`.
    pub flags: u32,
    pub data_digest: u32,
    pub omap_digest: u32,
    pub reqids: Vec<(ReqId, u64)>,
    pub truncate_seq: u64,
    pub truncate_size: u64,
    /// Results of failed requests, by index in `reqids`.
    pub reqid_return_codes: BTreeMap<u32, i32>,
}

impl CopyData {
    pub const FLAG_DATA_DIGEST: u32 = 1;
    pub const FLAG_OMAP_DIGEST: u32 = 2;
}

wire_struct!(CopyData(8, 5) {
    size, mtime, attrs, data, omap, cursor, omap_header, snaps, snap_seq, flags, data_digest, omap_digest, reqids,
    truncate_seq, truncate_size, reqid_return_codes,
});

/// Output of `checksum` with a 32-bit algorithm; `xxhash64` has 64-bit values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checksums<T>(pub Vec<T>);

impl<T: Encode> Encode for Checksums<T> {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl<T: Decode> Decode for Checksums<T> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Vec::decode(r).map(Self)
    }
}

/// Who watched: the client's global id and its cookie.
pub type WatcherId = (u64, u64);

/// What a notifier gets when all watchers answered or the time is up. Source: Notify::maybe_complete_notify
/// in src/osd/Watch.cc.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotifyResult {
    /// Sorted by watcher.
    pub replies: Vec<(WatcherId, Bytes)>,
    /// Watchers that did not answer in time.
    pub missed: Vec<WatcherId>,
}
wire_plain!(NotifyResult { replies, missed });
