//! Advisory locks on objects, kept by the object class `lock`. Source: src/cls/lock/cls_lock_client.cc.

use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use types::{EntityAddr, EntityName, Errno, Utime};

use crate::lock_wire::{BreakArgs, InfoArgs, InfoReply, ListReply, LockArgs, Locker, LockerId, UnlockArgs};
use crate::{Error, IoCtx, Result, WriteOp};

/// How many may hold a lock. Source: ClsLockType.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LockKind {
    Exclusive = 1,
    Shared = 2,
    /// The object goes with the lock.
    ExclusiveEphemeral = 3,
}

impl LockKind {
    fn from_u8(v: u8) -> Option<Self> {
        [Self::Exclusive, Self::Shared, Self::ExclusiveEphemeral].into_iter().find(|k| *k as u8 == v)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::ExclusiveEphemeral => "exclusive-ephemeral",
        }
    }
}

/// What lock to take, and how.
#[derive(Debug, Clone)]
pub struct LockRequest<'a> {
    pub name: &'a str,
    pub kind: LockKind,
    /// Tells this holder from others of the same client.
    pub cookie: &'a str,
    /// Shared holders must agree on it.
    pub tag: &'a str,
    pub description: &'a str,
    /// `None`: until it is released.
    pub duration: Option<Duration>,
    /// Take it again when we hold it already.
    pub may_renew: bool,
}

impl<'a> LockRequest<'a> {
    pub fn exclusive(name: &'a str, cookie: &'a str) -> Self {
        let kind = LockKind::Exclusive;
        Self { name, kind, cookie, tag: "", description: "", duration: None, may_renew: false }
    }

    pub fn shared(name: &'a str, cookie: &'a str, tag: &'a str) -> Self {
        Self { kind: LockKind::Shared, tag, ..Self::exclusive(name, cookie) }
    }
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    pub client: EntityName,
    pub cookie: String,
    pub addr: EntityAddr,
    pub description: String,
    /// Zero for never.
    pub expiration: Utime,
}

/// A lock. Without holders it is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    pub kind: Option<LockKind>,
    pub tag: String,
    pub holders: Vec<LockHolder>,
}

impl LockInfo {
    /// The attribute of an object in which the class keeps the lock of this name: one compound operation can compare and
    /// change it as a whole, which the class's methods cannot. Source: LOCK_PREFIX in src/cls/lock/cls_lock.cc.
    #[must_use]
    pub fn attribute(name: &str) -> String {
        format!("lock.{name}")
    }

    /// # Errors
    /// The attribute's value is no lock.
    pub fn from_attribute(value: Bytes) -> Result<Self> {
        Ok(Self::from_reply(&InfoReply::from_bytes(value)?))
    }

    /// The attribute's value.
    #[must_use]
    pub fn to_attribute(&self) -> Bytes {
        let lockers = self.holders.iter().map(|h| {
            let id = LockerId { locker: h.client, cookie: h.cookie.clone().into() };
            let description = h.description.clone().into();
            (id, Locker { expiration: h.expiration, addr: h.addr, description })
        });
        let kind = self.kind.map_or(0, |k| k as u8);
        InfoReply { lockers: lockers.collect(), kind, tag: self.tag.clone().into() }.to_bytes()
    }

    fn from_reply(r: &InfoReply) -> Self {
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        let holders = r.lockers.iter().map(|(id, l)| LockHolder {
            client: id.locker,
            cookie: text(&id.cookie),
            addr: l.addr,
            description: text(&l.description),
            expiration: l.expiration,
        });
        Self { kind: LockKind::from_u8(r.kind), tag: text(&r.tag), holders: holders.collect() }
    }
}

/// Source: LOCK_FLAG_MAY_RENEW.
const MAY_RENEW: u8 = 1;

impl WriteOp {
    /// Takes a lock as a step of a compound operation.
    #[must_use]
    pub fn lock(self, r: &LockRequest<'_>) -> Self {
        let args = LockArgs {
            name: r.name.to_owned(),
            kind: r.kind as u8,
            cookie: r.cookie.to_owned(),
            tag: r.tag.to_owned(),
            description: r.description.to_owned(),
            duration: r.duration.map_or(Utime::ZERO, Utime::from_unix),
            flags: if r.may_renew { MAY_RENEW } else { 0 },
        };
        self.exec("lock", "lock", args.to_bytes())
    }

    /// Releases a lock as a step of a compound operation.
    #[must_use]
    pub fn unlock(self, name: &str, cookie: &str) -> Self {
        let args = UnlockArgs { name: name.to_owned(), cookie: cookie.to_owned() };
        self.exec("lock", "unlock", args.to_bytes())
    }
}

impl IoCtx {
    /// Takes a lock: EBUSY when somebody else has it, EEXIST when we have it.
    pub async fn lock(&self, object: &str, request: &LockRequest<'_>) -> Result<()> {
        self.write_op(object, WriteOp::new().lock(request)).await.map(drop)
    }

    pub async fn unlock(&self, object: &str, name: &str, cookie: &str) -> Result<()> {
        self.write_op(object, WriteOp::new().unlock(name, cookie)).await.map(drop)
    }

    /// Takes a lock away from whoever holds it.
    pub async fn break_lock(&self, object: &str, name: &str, holder: EntityName, cookie: &str) -> Result<()> {
        let args = BreakArgs { name: name.to_owned(), locker: holder, cookie: cookie.to_owned() };
        self.write_op(object, WriteOp::new().exec("lock", "break_lock", args.to_bytes())).await.map(drop)
    }

    pub async fn lock_info(&self, object: &str, name: &str) -> Result<LockInfo> {
        let args = InfoArgs { name: name.to_owned() };
        let reply = self.exec(object, "lock", "get_info", args.to_bytes()).await?;
        Ok(LockInfo::from_reply(&InfoReply::from_bytes(reply)?))
    }

    /// The names of an object's locks.
    pub async fn list_locks(&self, object: &str) -> Result<Vec<String>> {
        match self.exec(object, "lock", "list_locks", Bytes::new()).await {
            Ok(output) => Ok(ListReply::from_bytes(output)?.locks),
            Err(Error::Os(Errno::EOPNOTSUPP)) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}
