//! Compound operations: several steps on one object that happen together or not at all.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use messages::osd::{CmpOp, CopyFromArgs, CopySource, Extent, Op, OsdOp, checksum_type, cmp_mode, op_flags};
use types::{Errno, ObjectLocator, SnapId, Utime};

use crate::IoCtx;

/// The longest name of a class or method. Source: the one byte in ceph_osd_op.
const MAX_CLASS_NAME: usize = 255;

/// The steps and flags of a request under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    pub(crate) ops: Vec<OsdOp>,
    /// `messages::osd::flags::*`.
    pub(crate) flags: u32,
    pub(crate) mtime: Option<Utime>,
    /// What makes the request impossible.
    pub(crate) error: Option<Errno>,
}

impl Steps {
    fn push(&mut self, op: Op) {
        self.ops.push(op.into());
    }

    fn exec(&mut self, class: &str, method: &str, input: Bytes) {
        if class.len() > MAX_CLASS_NAME || method.len() > MAX_CLASS_NAME {
            self.error = Some(Errno::EINVAL);
            return;
        }
        self.push(Op::Call { class: class.to_owned(), method: method.to_owned(), input });
    }
}

/// A compound operation that reads. Results come by the steps' places: `reply.output(0)` is that of the first.
#[derive(Debug, Clone, Default)]
pub struct ReadOp(pub(crate) Steps);

/// A compound operation that changes an object.
#[derive(Debug, Clone, Default)]
pub struct WriteOp(pub(crate) Steps);

/// Steps that both kinds may have: conditions, class methods, flags.
macro_rules! common_steps {
    ($kind:ident) => {
        impl $kind {
            pub fn new() -> Self {
                Self::default()
            }

            pub fn is_empty(&self) -> bool {
                self.0.ops.is_empty()
            }

            /// How many steps there are: the place of the next one.
            pub fn len(&self) -> usize {
                self.0.ops.len()
            }

            #[must_use]
            fn step(mut self, op: Op) -> Self {
                self.0.push(op);
                self
            }

            /// Fails with ENOENT when the object does not exist.
            #[must_use]
            pub fn assert_exists(self) -> Self {
                self.step(Op::Stat)
            }

            /// Fails with ERANGE or EOVERFLOW when the object has another version.
            #[must_use]
            pub fn assert_version(self, version: u64) -> Self {
                self.step(Op::AssertVer { version })
            }

            /// Compares bytes; fails with [`crate::Error::Mismatch`].
            #[must_use]
            pub fn cmpext(self, offset: u64, data: impl Into<Bytes>) -> Self {
                let data = data.into();
                let extent = Extent::new(offset, data.len() as u64);
                self.step(Op::CmpExt { extent, data })
            }

            /// Fails with ECANCELED unless the attribute compares so with `value`, as bytes.
            #[must_use]
            pub fn cmp_xattr(self, name: &str, op: CmpOp, value: impl Into<Bytes>) -> Self {
                let (name, op, value) = (name.to_owned(), op as u8, value.into());
                self.step(Op::CmpXattr { name, op, mode: cmp_mode::STRING, value })
            }

            /// As [`Self::cmp_xattr`] with the attribute's text read as a number.
            #[must_use]
            pub fn cmp_xattr_u64(self, name: &str, op: CmpOp, value: u64) -> Self {
                let value = Bytes::copy_from_slice(&value.to_le_bytes());
                self.step(Op::CmpXattr { name: name.to_owned(), op: op as u8, mode: cmp_mode::U64, value })
            }

            /// Fails with ECANCELED unless each key's value compares so with the one given.
            #[must_use]
            pub fn omap_cmp(self, assertions: BTreeMap<Bytes, (Bytes, CmpOp)>) -> Self {
                let assertions = assertions.into_iter().map(|(k, (v, op))| (k, (v, op as i32))).collect();
                self.step(Op::OmapCmp { assertions })
            }

            /// Calls a method of an object class.
            #[must_use]
            pub fn exec(mut self, class: &str, method: &str, input: impl Into<Bytes>) -> Self {
                self.0.exec(class, method, input.into());
                self
            }

            /// Any step, as the protocol has it.
            #[must_use]
            pub fn raw(mut self, op: impl Into<OsdOp>) -> Self {
                self.0.ops.push(op.into());
                self
            }

            /// Sets `op_flags::*` on the last step: a cache hint, or FAILOK.
            #[must_use]
            pub fn flag_last(mut self, flags: u32) -> Self {
                if let Some(op) = self.0.ops.last_mut() {
                    op.flags |= flags;
                }
                self
            }

            /// Sets `messages::osd::flags::*` on the whole request.
            #[must_use]
            pub fn flags(mut self, flags: u32) -> Self {
                self.0.flags |= flags;
                self
            }
        }
    };
}

common_steps!(ReadOp);
common_steps!(WriteOp);

impl ReadOp {
    /// `len` 0 reads to the end.
    #[must_use]
    pub fn read(self, offset: u64, len: u64) -> Self {
        self.step(Op::Read(Extent::new(offset, len)))
    }

    /// Output: `messages::osd::SparseReadResponse`.
    #[must_use]
    pub fn sparse_read(self, offset: u64, len: u64) -> Self {
        self.step(Op::SparseRead(Extent::new(offset, len)))
    }

    /// Output: `messages::osd::StatResponse`.
    #[must_use]
    pub fn stat(self) -> Self {
        self.step(Op::Stat)
    }

    /// `kind`: `checksum_type::*`. Output: `messages::osd::Checksums`.
    #[must_use]
    pub fn checksum(self, kind: u8, init: u64, offset: u64, length: u64, chunk_size: u32) -> Self {
        let init = match kind {
            checksum_type::XXHASH64 => Bytes::copy_from_slice(&init.to_le_bytes()),
            _ => Bytes::copy_from_slice(&(init as u32).to_le_bytes()),
        };
        self.step(Op::Checksum { offset, length, chunk_size, kind, init })
    }

    #[must_use]
    pub fn get_xattr(self, name: &str) -> Self {
        self.step(Op::GetXattr { name: name.to_owned() })
    }

    /// Output: a map of names to values.
    #[must_use]
    pub fn get_xattrs(self) -> Self {
        self.step(Op::GetXattrs)
    }

    /// Keys behind `start_after`. Output: `messages::osd::OmapKeysResponse`.
    #[must_use]
    pub fn omap_get_keys(self, start_after: impl Into<Bytes>, max: u64) -> Self {
        self.step(Op::OmapGetKeys { start_after: start_after.into(), max })
    }

    /// Entries behind `start_after` with a key that begins with `prefix`. Output: `messages::osd::OmapValsResponse`.
    #[must_use]
    pub fn omap_get_vals(self, start_after: impl Into<Bytes>, prefix: impl Into<Bytes>, max: u64) -> Self {
        self.step(Op::OmapGetVals { start_after: start_after.into(), max, prefix: prefix.into() })
    }

    /// Output: a map of those that are there.
    #[must_use]
    pub fn omap_get_by_keys(self, keys: BTreeSet<Bytes>) -> Self {
        self.step(Op::OmapGetValsByKeys { keys })
    }

    #[must_use]
    pub fn omap_get_header(self) -> Self {
        self.step(Op::OmapGetHeader)
    }

    /// Output: `messages::osd::ListWatchersResponse`.
    #[must_use]
    pub fn list_watchers(self) -> Self {
        self.step(Op::ListWatchers)
    }

    /// Output: `messages::osd::ListSnapsResponse`. To be sent to `SnapId::SNAPDIR`.
    #[must_use]
    pub fn list_snaps(self) -> Self {
        self.step(Op::ListSnaps)
    }

    #[must_use]
    pub fn notify_ack(self, notify_id: u64, cookie: u64, reply: impl Into<Bytes>) -> Self {
        self.step(Op::NotifyAck { notify_id, cookie, reply: reply.into() })
    }
}

/// Where `copy_from` reads.
#[derive(Debug, Clone)]
pub struct CopyFrom<'a> {
    pub pool: &'a IoCtx,
    pub object: &'a str,
    /// The version that the source must have; 0 for any.
    pub version: u64,
    /// `op_flags::FADVISE_*` for reading the source.
    pub src_fadvise: u32,
}

impl WriteOp {
    /// Creates the object; with `exclusive` an existing one is EEXIST.
    #[must_use]
    pub fn create(self, exclusive: bool) -> Self {
        let made = self.step(Op::Create);
        if exclusive { made.flag_last(op_flags::EXCL) } else { made }
    }

    #[must_use]
    pub fn write(self, offset: u64, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.step(Op::Write { extent: Extent::new(offset, data.len() as u64), data })
    }

    /// Replaces the contents.
    #[must_use]
    pub fn write_full(self, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.step(Op::WriteFull { extent: Extent::new(0, data.len() as u64), data })
    }

    #[must_use]
    pub fn append(self, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.step(Op::Append { extent: Extent::new(0, data.len() as u64), data })
    }

    /// Repeats `data` over the range; its length divides `length`.
    #[must_use]
    pub fn write_same(self, offset: u64, length: u64, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.step(Op::WriteSame { offset, length, data_length: data.len() as u64, data })
    }

    #[must_use]
    pub fn zero(self, offset: u64, length: u64) -> Self {
        self.step(Op::Zero(Extent::new(offset, length)))
    }

    #[must_use]
    pub fn truncate(self, size: u64) -> Self {
        self.step(Op::Truncate(Extent::new(size, 0)))
    }

    #[must_use]
    pub fn remove(self) -> Self {
        self.step(Op::Delete)
    }

    #[must_use]
    pub fn set_xattr(self, name: &str, value: impl Into<Bytes>) -> Self {
        self.step(Op::SetXattr { name: name.to_owned(), value: value.into() })
    }

    #[must_use]
    pub fn rm_xattr(self, name: &str) -> Self {
        self.step(Op::RmXattr { name: name.to_owned() })
    }

    #[must_use]
    pub fn omap_set(self, vals: BTreeMap<Bytes, Bytes>) -> Self {
        self.step(Op::OmapSetVals { vals })
    }

    #[must_use]
    pub fn omap_set_header(self, header: impl Into<Bytes>) -> Self {
        self.step(Op::OmapSetHeader { header: header.into() })
    }

    #[must_use]
    pub fn omap_rm_keys(self, keys: BTreeSet<Bytes>) -> Self {
        self.step(Op::OmapRmKeys { keys })
    }

    /// Removes keys from `begin` up to, without, `end`.
    #[must_use]
    pub fn omap_rm_range(self, begin: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        self.step(Op::OmapRmKeyRange { begin: begin.into(), end: end.into() })
    }

    #[must_use]
    pub fn omap_clear(self) -> Self {
        self.step(Op::OmapClear)
    }

    /// Back to what the object was at a snapshot.
    #[must_use]
    pub fn rollback(self, snap: SnapId) -> Self {
        self.step(Op::Rollback { snap })
    }

    /// `flags`: LIBRADOS_ALLOC_HINT_FLAG_*.
    #[must_use]
    pub fn set_alloc_hint(self, object_size: u64, write_size: u64, flags: u32) -> Self {
        self.step(Op::AllocHint { object_size, write_size, flags }).flag_last(op_flags::FAILOK)
    }

    /// Takes over another object's data, attributes and omap, within the cluster.
    #[must_use]
    pub fn copy_from(self, from: &CopyFrom<'_>) -> Self {
        let (source, args) = from.parts(0);
        self.step(Op::CopyFrom { from: source, args })
    }

    /// The modification time to set, instead of now.
    #[must_use]
    pub fn mtime(mut self, mtime: Utime) -> Self {
        self.0.mtime = Some(mtime);
        self
    }
}

impl CopyFrom<'_> {
    fn parts(&self, flags: u8) -> (CopySource, CopyFromArgs) {
        let locator = ObjectLocator {
            pool: self.pool.pool_id(),
            key: self.pool.locator().into(),
            nspace: self.pool.namespace().into(),
            hash: -1,
        };
        let args = CopyFromArgs {
            snap: self.pool.snap(),
            version: self.version,
            flags,
            src_fadvise: self.src_fadvise,
        };
        (CopySource { object: self.object.into(), locator }, args)
    }
}
