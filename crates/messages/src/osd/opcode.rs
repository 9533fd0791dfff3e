//! Operation codes with their names, and what an operation may do to an object.
//!
//! Source: __CEPH_FORALL_OSD_OPS, CEPH_OSD_FLAG_* and CEPH_OSD_OP_FLAG_* in src/include/rados.h.

/// An operation's code: mode bits, type bits and a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OpCode(pub u16);

const MODE_READ: u16 = 0x1000;
const MODE_WRITE: u16 = 0x2000;
const MODE_CACHE: u16 = 0x8000;
const TYPE_MASK: u16 = 0x0f00;
const TYPE_ATTR: u16 = 0x0300;
const TYPE_PG: u16 = 0x0500;

macro_rules! opcodes {
    ($( $name:ident = $value:literal $text:literal ),+ $(,)?) => {
        impl OpCode {
            $( pub const $name: Self = Self($value); )+

            /// Every code with a name.
            pub const ALL: &'static [Self] = &[$( Self::$name ),+];

            /// The name that Ceph's logs use; `???` for a code without one.
            pub fn name(self) -> &'static str {
                match self { $( Self::$name => $text, )+ _ => "???" }
            }
        }
    };
}

opcodes! {
    READ = 0x1201 "read",
    STAT = 0x1202 "stat",
    MAPEXT = 0x1203 "mapext",
    MASKTRUNC = 0x1204 "masktrunc",
    SPARSE_READ = 0x1205 "sparse-read",
    NOTIFY = 0x1206 "notify",
    NOTIFY_ACK = 0x1207 "notify-ack",
    ASSERT_VER = 0x1208 "assert-version",
    LIST_WATCHERS = 0x1209 "list-watchers",
    LIST_SNAPS = 0x120a "list-snaps",
    SYNC_READ = 0x120b "sync_read",
    TMAPGET = 0x120c "tmapget",
    OMAP_GET_KEYS = 0x1211 "omap-get-keys",
    OMAP_GET_VALS = 0x1212 "omap-get-vals",
    OMAP_GET_HEADER = 0x1213 "omap-get-header",
    OMAP_GET_VALS_BY_KEYS = 0x1214 "omap-get-vals-by-keys",
    OMAP_CMP = 0x1219 "omap-cmp",
    ISDIRTY = 0x121d "isdirty",
    COPY_GET = 0x121e "copy-get",
    CHECKSUM = 0x121f "checksum",
    CMPEXT = 0x1220 "cmpext",
    WRITE = 0x2201 "write",
    WRITEFULL = 0x2202 "writefull",
    TRUNCATE = 0x2203 "truncate",
    ZERO = 0x2204 "zero",
    DELETE = 0x2205 "delete",
    APPEND = 0x2206 "append",
    STARTSYNC = 0x2207 "startsync",
    SETTRUNC = 0x2208 "settrunc",
    TRIMTRUNC = 0x2209 "trimtrunc",
    TMAPUP = 0x320a "tmapup",
    TMAPPUT = 0x220b "tmapput",
    CREATE = 0x220d "create",
    ROLLBACK = 0x220e "rollback",
    WATCH = 0x220f "watch",
    OMAP_SET_VALS = 0x2215 "omap-set-vals",
    OMAP_SET_HEADER = 0x2216 "omap-set-header",
    OMAP_CLEAR = 0x2217 "omap-clear",
    OMAP_RM_KEYS = 0x2218 "omap-rm-keys",
    OMAP_RM_KEY_RANGE = 0x222c "omap-rm-key-range",
    COPY_FROM = 0x221a "copy-from",
    COPY_FROM2 = 0x222d "copy-from2",
    UNDIRTY = 0x221c "undirty",
    CACHE_FLUSH = 0x821f "cache-flush",
    CACHE_EVICT = 0x8220 "cache-evict",
    CACHE_TRY_FLUSH = 0x8221 "cache-try-flush",
    TMAP2OMAP = 0x3222 "tmap2omap",
    SET_ALLOC_HINT = 0x2223 "set-alloc-hint",
    CACHE_PIN = 0x2224 "cache-pin",
    CACHE_UNPIN = 0x2225 "cache-unpin",
    WRITESAME = 0x2226 "write-same",
    SET_REDIRECT = 0x2227 "set-redirect",
    SET_CHUNK = 0x8228 "set-chunk",
    TIER_PROMOTE = 0x2229 "tier-promote",
    UNSET_MANIFEST = 0x222a "unset-manifest",
    TIER_FLUSH = 0x822b "tier-flush",
    TIER_EVICT = 0x822c "tier-evict",
    GETXATTR = 0x1301 "getxattr",
    GETXATTRS = 0x1302 "getxattrs",
    CMPXATTR = 0x1303 "cmpxattr",
    SETXATTR = 0x2301 "setxattr",
    SETXATTRS = 0x2302 "setxattrs",
    RESETXATTRS = 0x2303 "resetxattrs",
    RMXATTR = 0x2304 "rmxattr",
    PULL = 0x4001 "pull",
    PUSH = 0x4002 "push",
    BALANCEREADS = 0x4003 "balance-reads",
    UNBALANCEREADS = 0x4004 "unbalance-reads",
    SCRUB = 0x4005 "scrub",
    SCRUB_RESERVE = 0x4006 "scrub-reserve",
    SCRUB_UNRESERVE = 0x4007 "scrub-unreserve",
    SCRUB_MAP = 0x4009 "scrub-map",
    CALL = 0x1401 "call",
    PGLS = 0x1501 "pgls",
    PGLS_FILTER = 0x1502 "pgls-filter",
    PG_HITSET_LS = 0x1503 "pg-hitset-ls",
    PG_HITSET_GET = 0x1504 "pg-hitset-get",
    PGNLS = 0x1505 "pgnls",
    PGNLS_FILTER = 0x1506 "pgnls-filter",
    SCRUBLS = 0x1507 "scrubls",
}

impl OpCode {
    /// Whether the operation reads. A class method's mode is the method's own, so `call` counts as neither.
    pub fn is_read(self) -> bool {
        self.0 & MODE_READ != 0 && self != Self::CALL
    }

    /// Whether the operation changes the object.
    pub fn is_write(self) -> bool {
        self.0 & MODE_WRITE != 0
    }

    /// Whether it concerns cache tiers only.
    pub fn is_cache(self) -> bool {
        self.0 & MODE_CACHE != 0
    }

    /// Whether it concerns a PG and no object.
    pub fn is_pg_op(self) -> bool {
        self.0 & TYPE_MASK == TYPE_PG
    }

    pub fn is_attr(self) -> bool {
        self.0 & TYPE_MASK == TYPE_ATTR
    }

    /// Whether the argument is an extent.
    pub fn uses_extent(self) -> bool {
        matches!(
            self,
            Self::READ
                | Self::MAPEXT
                | Self::MASKTRUNC
                | Self::SPARSE_READ
                | Self::SYNC_READ
                | Self::WRITE
                | Self::WRITEFULL
                | Self::TRUNCATE
                | Self::ZERO
                | Self::APPEND
                | Self::TRIMTRUNC
                | Self::CMPEXT
        )
    }
}

impl std::fmt::Debug for OpCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            "???" => write!(f, "op {:#06x}", self.0),
            name => f.write_str(name),
        }
    }
}
impl std::fmt::Display for OpCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Flags of a whole request or reply.
pub mod flags {
    pub const ACK: u32 = 0x1;
    pub const ONNVRAM: u32 = 0x2;
    /// The client wants to hear (a reply: says) that the change is on disk.
    pub const ONDISK: u32 = 0x4;
    pub const RETRY: u32 = 0x8;
    pub const READ: u32 = 0x10;
    pub const WRITE: u32 = 0x20;
    /// Refuse a write whose snapshot context is older than the object's.
    pub const ORDERSNAP: u32 = 0x40;
    pub const BALANCE_READS: u32 = 0x100;
    pub const PARALLELEXEC: u32 = 0x200;
    pub const PGOP: u32 = 0x400;
    pub const EXEC: u32 = 0x800;
    pub const LOCALIZE_READS: u32 = 0x2000;
    pub const RWORDERED: u32 = 0x4000;
    pub const IGNORE_CACHE: u32 = 0x8000;
    pub const SKIPRWLOCKS: u32 = 0x1_0000;
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    pub const FLUSH: u32 = 0x4_0000;
    pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
    /// Use the request's snapshot context although the pool has its own.
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    pub const REDIRECTED: u32 = 0x20_0000;
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    pub const FULL_TRY: u32 = 0x80_0000;
    pub const FULL_FORCE: u32 = 0x100_0000;
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    /// Each operation's result and output are wanted although the whole succeeds with a write.
    pub const RETURNVEC: u32 = 0x400_0000;
}

/// Flags of one operation.
pub mod op_flags {
    /// `create` fails when the object exists.
    pub const EXCL: u32 = 0x1;
    /// Go on with the next operation although this one fails.
    pub const FAILOK: u32 = 0x2;
    pub const FADVISE_RANDOM: u32 = 0x4;
    pub const FADVISE_SEQUENTIAL: u32 = 0x8;
    pub const FADVISE_WILLNEED: u32 = 0x10;
    pub const FADVISE_DONTNEED: u32 = 0x20;
    pub const FADVISE_NOCACHE: u32 = 0x40;
    pub const WITH_REFERENCE: u32 = 0x80;
    pub const BYPASS_CLEAN_CACHE: u32 = 0x100;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_follow_the_bits_and_call_is_neither() {
        assert!(OpCode::READ.is_read() && !OpCode::READ.is_write());
        assert!(OpCode::TMAPUP.is_read() && OpCode::TMAPUP.is_write());
        assert!(!OpCode::CALL.is_read() && !OpCode::CALL.is_write());
        assert!(
            OpCode::PGNLS.is_pg_op() && OpCode::CACHE_EVICT.is_cache() && !OpCode::CACHE_EVICT.is_write()
        );
    }

    #[test]
    fn codes_and_names_are_distinct() {
        let codes: std::collections::BTreeSet<_> = OpCode::ALL.iter().collect();
        let names: std::collections::BTreeSet<_> = OpCode::ALL.iter().map(|c| c.name()).collect();
        assert_eq!((codes.len(), names.len()), (OpCode::ALL.len(), OpCode::ALL.len()));
    }
}
