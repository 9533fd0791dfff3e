//! What an object's attributes say of it, apart from its manifest and its rights.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

use crate::{Manifest, Object, PlacementRule};

/// The attribute `user.rgw.x-amz-tagging`. Source: RGWObjTags in src/rgw/rgw_tag.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags {
    pub tags: BTreeMap<Bytes, Bytes>,
}
wire_struct!(Tags(1, 1) { tags });

/// The attribute `user.rgw.olh.info`: which version a versioned object shows. Source: RGWOLHInfo in
/// src/rgw/rgw_rados.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OlhInfo {
    pub target: Object,
    pub removed: bool,
}
wire_struct!(OlhInfo(1, 1) { target, removed });

/// An attribute `user.rgw.olh.pending.*`: when a change of what a versioned object shows began. Source:
/// RGWOLHPendingInfo in src/rgw/rgw_rados.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OlhPending {
    pub time: RealTime,
}
wire_struct!(OlhPending(1, 1) { time });

/// Bytes that were compressed together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressedBlock {
    /// Where they begin as clients see them.
    pub original: u64,
    /// Where they begin as stored.
    pub stored: u64,
    /// As stored.
    pub length: u64,
}

impl Encode for CompressedBlock {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.original.encode(w);
            self.stored.encode(w);
            self.length.encode(w);
        });
    }
}
impl Decode for CompressedBlock {
    const MIN_SIZE: usize = 30;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("compressed block", 1, |r, _| {
            Ok(Self { original: r.u64()?, stored: r.u64()?, length: r.u64()? })
        })
    }
}

/// The attribute `user.rgw.compression`. Source: RGWCompressionInfo in src/rgw/rgw_compression_types.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    /// `none`, or a compressor's name.
    pub kind: Bytes,
    /// Bytes as clients see them.
    pub size: u64,
    /// What the compressor wants to know again.
    pub message: Option<i32>,
    pub blocks: Vec<CompressedBlock>,
}

impl Default for Compression {
    fn default() -> Self {
        Self { kind: "none".into(), size: 0, message: None, blocks: Vec::new() }
    }
}

impl Encode for Compression {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.kind.encode(w);
            self.size.encode(w);
            self.message.encode(w);
            self.blocks.encode(w);
        });
    }
}
impl Decode for Compression {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("compression", 2, |r, env| {
            let (kind, size) = (r.blob()?, r.u64()?);
            let message = if env.version >= 2 { Decode::decode(r)? } else { None };
            Ok(Self { kind, size, message, blocks: Decode::decode(r)? })
        })
    }
}

/// A part of an upload: a value in the omap of the upload's object, under `part.` and its number.
/// Source: RGWUploadPartInfo in src/rgw/rgw_multi.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartInfo {
    pub number: u32,
    /// Bytes as stored.
    pub size: u64,
    pub etag: Bytes,
    pub modified: RealTime,
    pub manifest: Manifest,
    pub compression: Compression,
    /// Bytes as clients see them.
    pub accounted_size: u64,
}

impl Encode for PartInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 2, |w| {
            self.number.encode(w);
            self.size.encode(w);
            self.etag.encode(w);
            self.modified.encode(w);
            self.manifest.encode(w);
            self.compression.encode(w);
            self.accounted_size.encode(w);
        });
    }
}
impl Decode for PartInfo {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("part", 4, 2, |r, version| {
            let (number, size) = (r.u32()?, r.u64()?);
            let mut p = Self { number, size, accounted_size: size, ..Self::default() };
            (p.etag, p.modified) = (r.blob()?, Decode::decode(r)?);
            if version >= 3 {
                p.manifest = Decode::decode(r)?;
            }
            if version >= 4 {
                (p.compression, p.accounted_size) = (Decode::decode(r)?, r.u64()?);
            }
            Ok(p)
        })
    }
}

/// The data of an upload's object: where its parts go. Source: multipart_upload_info in
/// src/rgw/rgw_basic_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadInfo {
    pub placement: PlacementRule,
}
wire_struct!(UploadInfo(1, 1) { placement });
