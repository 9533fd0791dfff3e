//! What an object's attributes say of it, apart from its manifest and its rights.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

use crate::{Cksum, Manifest, Object, PlacementRule};

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

impl Compression {
    /// No compressor: what is stored is encrypted in a way that radosgw 16.2 does not know. Told that it is
    /// compressed by something that it does not have, it refuses to read it; of a copy that it makes it keeps
    /// this attribute in any case. Source: RGWGetObj_Decompress::handle_data in src/rgw/rgw_compression.cc.
    const SEALED: &[u8] = b"loligo-encrypted";

    /// Says of so many bytes that they are sealed. radosgw needs a block in any case.
    pub fn sealed(size: u64) -> Self {
        let block = CompressedBlock { original: 0, stored: 0, length: size };
        Self { kind: Bytes::from_static(Self::SEALED), size, message: None, blocks: vec![block] }
    }

    /// Whether the stored bytes are compressed by nothing.
    pub fn is_sealed(&self) -> bool {
        self.kind == Self::SEALED
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
    /// 16.2 passes over it.
    pub checksum: Option<Cksum>,
}

impl Encode for PartInfo {
    fn encode(&self, w: &mut Writer) {
        // With a sum as releases behind 16.2 write it, and otherwise as 16.2 does.
        let version = if self.checksum.is_some() { 6 } else { 4 };
        w.envelope(version, 2, |w| {
            self.number.encode(w);
            self.size.encode(w);
            self.etag.encode(w);
            self.modified.encode(w);
            self.manifest.encode(w);
            self.compression.encode(w);
            self.accounted_size.encode(w);
            if self.checksum.is_some() {
                // Places of the part that were given up before.
                BTreeSet::<Bytes>::new().encode(w);
                self.checksum.encode(w);
            }
        });
    }
}
impl Decode for PartInfo {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("part", 6, 2, |r, version| {
            let (number, size) = (r.u32()?, r.u64()?);
            let mut p = Self { number, size, accounted_size: size, ..Self::default() };
            (p.etag, p.modified) = (r.blob()?, Decode::decode(r)?);
            if version >= 3 {
                p.manifest = Decode::decode(r)?;
            }
            if version >= 4 {
                (p.compression, p.accounted_size) = (Decode::decode(r)?, r.u64()?);
            }
            if version >= 6 {
                BTreeSet::<Bytes>::decode(r)?;
                p.checksum = Decode::decode(r)?;
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
    /// radosgw 16.2 cannot read it, and so takes no part: it would store parts plain in an object that is
    /// told to be encrypted.
    pub is_sealed: bool,
}

impl UploadInfo {
    /// A version that no release of Ceph's can read.
    const SEALED: u8 = u8::MAX;
}

impl Encode for UploadInfo {
    fn encode(&self, w: &mut Writer) {
        let version = if self.is_sealed { Self::SEALED } else { 1 };
        w.envelope(version, version, |w| self.placement.encode(w));
    }
}
impl Decode for UploadInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("upload", Self::SEALED, |r, env| {
            let (compat, ours) = (env.compat, 1);
            let is_sealed = compat == Self::SEALED;
            if compat > ours && !is_sealed {
                return Err(DecodeError::Incompatible { what: "upload", compat, ours });
            }
            Ok(Self { placement: Decode::decode(r)?, is_sealed })
        })
    }
}
