//! What the object class `lock` takes and gives. Source: src/cls/lock/cls_lock_ops.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{EntityAddr, EntityName, Utime};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockerId {
    pub(crate) locker: EntityName,
    pub(crate) cookie: Bytes,
}
codec::wire_struct!(LockerId(1, 1) { locker, cookie });

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Locker {
    pub(crate) expiration: Utime,
    pub(crate) addr: EntityAddr,
    pub(crate) description: Bytes,
}
codec::wire_struct!(Locker(1, 1) { expiration, addr, description });

pub(crate) struct InfoReply {
    pub(crate) lockers: BTreeMap<LockerId, Locker>,
    pub(crate) kind: u8,
    pub(crate) tag: Bytes,
}
codec::wire_struct!(InfoReply(1, 1) { lockers, kind, tag });

pub(crate) struct LockArgs {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) cookie: String,
    pub(crate) tag: String,
    pub(crate) description: String,
    pub(crate) duration: Utime,
    pub(crate) flags: u8,
}
codec::wire_struct!(LockArgs(1, 1) { name, kind, cookie, tag, description, duration, flags });

pub(crate) struct UnlockArgs {
    pub(crate) name: String,
    pub(crate) cookie: String,
}
codec::wire_struct!(UnlockArgs(1, 1) { name, cookie });

pub(crate) struct BreakArgs {
    pub(crate) name: String,
    pub(crate) locker: EntityName,
    pub(crate) cookie: String,
}
codec::wire_struct!(BreakArgs(1, 1) { name, locker, cookie });

pub(crate) struct InfoArgs {
    pub(crate) name: String,
}
codec::wire_struct!(InfoArgs(1, 1) { name });

pub(crate) struct ListReply {
    pub(crate) locks: Vec<String>,
}
codec::wire_struct!(ListReply(1, 1) { locks });
