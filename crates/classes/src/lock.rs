//! Class `lock`: named advisory locks in an object's attributes. Source: src/cls/lock/cls_lock.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode, wire_struct};
use types::{AddrKind, EntityAddr, EntityName, Errno, Utime};

use crate::ObjectView;
use crate::registry::{Class, Method, MethodFlags as F, input, stored};

pub static CLASS: Class = Class {
    name: "lock",
    methods: &[
        Method::new("lock", F::RD_WR, lock),
        Method::new("unlock", F::RD_WR, unlock),
        Method::new("break_lock", F::RD_WR, break_lock),
        Method::new("get_info", F::RD, get_info),
        Method::new("list_locks", F::RD, list_locks),
        Method::new("assert_locked", F::RD, assert_locked),
        Method::new("set_cookie", F::RD_WR, set_cookie),
    ],
};

const PREFIX: &[u8] = b"lock.";

/// Taking a lock again renews it.
const MAY_RENEW: u8 = 1;
/// The lock must be held already.
const MUST_RENEW: u8 = 2;

/// Kinds of locks. Source: ClsLockType in src/cls/lock/cls_lock_types.h.
mod kind {
    pub const EXCLUSIVE: u8 = 1;
    pub const SHARED: u8 = 2;
    /// The object goes with the lock.
    pub const EXCLUSIVE_EPHEMERAL: u8 = 3;
}

fn is_valid(kind: u8) -> bool {
    (kind::EXCLUSIVE..=kind::EXCLUSIVE_EPHEMERAL).contains(&kind)
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockerId {
    pub locker: EntityName,
    pub cookie: Bytes,
}
wire_struct!(LockerId(1, 1) { locker, cookie });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locker {
    /// Zero for never.
    pub expiration: Utime,
    pub addr: EntityAddr,
    pub description: Bytes,
}
wire_struct!(Locker(1, 1) { expiration, addr, description });

/// A lock as stored, and as `get_info` answers it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockInfo {
    pub lockers: BTreeMap<LockerId, Locker>,
    pub kind: u8,
    pub tag: Bytes,
}
wire_struct!(LockInfo(1, 1) { lockers, kind, tag });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockArgs {
    pub name: Bytes,
    pub kind: u8,
    pub cookie: Bytes,
    pub tag: Bytes,
    pub description: Bytes,
    pub duration: Utime,
    pub flags: u8,
}
wire_struct!(LockArgs(1, 1) { name, kind, cookie, tag, description, duration, flags });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlockArgs {
    pub name: Bytes,
    pub cookie: Bytes,
}
wire_struct!(UnlockArgs(1, 1) { name, cookie });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakArgs {
    pub name: Bytes,
    pub locker: EntityName,
    pub cookie: Bytes,
}
wire_struct!(BreakArgs(1, 1) { name, locker, cookie });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoArgs {
    pub name: Bytes,
}
wire_struct!(InfoArgs(1, 1) { name });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertArgs {
    pub name: Bytes,
    pub kind: u8,
    pub cookie: Bytes,
    pub tag: Bytes,
}
wire_struct!(AssertArgs(1, 1) { name, kind, cookie, tag });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetCookieArgs {
    pub name: Bytes,
    pub kind: u8,
    pub cookie: Bytes,
    pub tag: Bytes,
    pub new_cookie: Bytes,
}
wire_struct!(SetCookieArgs(1, 1) { name, kind, cookie, tag, new_cookie });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub locks: Vec<Bytes>,
}
wire_struct!(ListReply(1, 1) { locks });

/// Reads a method's input. Version 0 would have no envelope, and was never in use.
fn request<T: Decode>(bytes: &Bytes) -> Result<T, Errno> {
    if bytes.first() == Some(&0) { Err(Errno::EINVAL) } else { input(bytes) }
}

/// The attribute of a lock. A zero byte ends its name.
fn attr(name: &Bytes) -> Vec<u8> {
    let name = crate::wire::c_text(name);
    [PREFIX, name].concat()
}

/// The lock without holders whose time is over. An object without the lock has it with no holders.
fn load(v: &mut dyn ObjectView, name: &Bytes) -> Result<LockInfo, Errno> {
    let raw = match v.xattr(&attr(name)) {
        Err(Errno::ENODATA) => return Ok(LockInfo::default()),
        raw => raw?,
    };
    let mut info: LockInfo = stored(raw)?;
    let now = v.now();
    info.lockers.retain(|_, l| l.expiration.is_zero() || l.expiration >= now);
    if info.lockers.is_empty() && info.kind == kind::EXCLUSIVE_EPHEMERAL {
        // A failure leaves the object to the next who looks.
        let _ = v.remove();
    }
    Ok(info)
}

fn save(v: &mut dyn ObjectView, name: &Bytes, info: &LockInfo) -> Result<i32, Errno> {
    v.set_xattr(&attr(name), info.to_bytes())?;
    Ok(0)
}

fn lock(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: LockArgs = request(bytes)?;
    let may_renew = args.flags & MAY_RENEW != 0;
    let must_renew = args.flags & MUST_RENEW != 0;
    if !is_valid(args.kind) || args.name.is_empty() || (may_renew && must_renew) {
        return Err(Errno::EINVAL);
    }
    let mut info = match load(v, &args.name) {
        Err(Errno::ENOENT) => LockInfo::default(),
        info => info?,
    };
    let origin = v.origin();
    let id = LockerId { locker: origin.name, cookie: args.cookie };
    if !info.lockers.is_empty() && info.tag != args.tag {
        return Err(Errno::EBUSY);
    }
    match info.lockers.remove(&id) {
        Some(_) if !may_renew && !must_renew => return Err(Errno::EEXIST),
        None if must_renew => return Err(Errno::ENOENT),
        _ => {}
    }
    let exclusive = args.kind != kind::SHARED;
    if !info.lockers.is_empty() && (exclusive || info.kind != args.kind) {
        return Err(Errno::EBUSY);
    }
    info.kind = args.kind;
    info.tag = args.tag;
    let expiration = if args.duration.is_zero() {
        Utime::ZERO
    } else {
        Utime::from_nanos(v.now().as_nanos().saturating_add(args.duration.as_nanos()))
    };
    // The protocol through which the holder came does not tell it apart.
    let addr = EntityAddr { kind: AddrKind::Legacy, ..origin.addr };
    info.lockers.insert(id, Locker { expiration, addr, description: args.description });
    save(v, &args.name, &info)
}

fn release(v: &mut dyn ObjectView, name: &Bytes, locker: EntityName, cookie: Bytes) -> Result<i32, Errno> {
    let mut info = load(v, name)?;
    info.lockers.remove(&LockerId { locker, cookie }).ok_or(Errno::ENOENT)?;
    if info.kind == kind::EXCLUSIVE_EPHEMERAL {
        v.remove()?;
        return Ok(0);
    }
    save(v, name, &info)
}

fn unlock(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: UnlockArgs = request(bytes)?;
    let locker = v.origin().name;
    release(v, &args.name, locker, args.cookie)
}

fn break_lock(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: BreakArgs = request(bytes)?;
    release(v, &args.name, args.locker, args.cookie)
}

fn get_info(v: &mut dyn ObjectView, bytes: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    let args: InfoArgs = request(bytes)?;
    *out = load(v, &args.name)?.to_bytes();
    Ok(0)
}

fn list_locks(v: &mut dyn ObjectView, _: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    let attrs = v.xattrs()?;
    let name = |attr: &Bytes| attr.strip_prefix(PREFIX).map(Bytes::copy_from_slice);
    *out = ListReply { locks: attrs.keys().filter_map(name).collect() }.to_bytes();
    Ok(0)
}

/// The lock, if it is held by the caller in this way.
fn held(v: &mut dyn ObjectView, args: &AssertArgs) -> Result<(LockInfo, LockerId), Errno> {
    if !is_valid(args.kind) || args.name.is_empty() {
        return Err(Errno::EINVAL);
    }
    let info = load(v, &args.name)?;
    let id = LockerId { locker: v.origin().name, cookie: args.cookie.clone() };
    let as_said = info.kind == args.kind && info.tag == args.tag && info.lockers.contains_key(&id);
    if as_said { Ok((info, id)) } else { Err(Errno::EBUSY) }
}

fn assert_locked(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    held(v, &request(bytes)?)?;
    Ok(0)
}

fn set_cookie(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let a: SetCookieArgs = request(bytes)?;
    let args = AssertArgs { name: a.name, kind: a.kind, cookie: a.cookie, tag: a.tag };
    let (mut info, id) = held(v, &args)?;
    let new = LockerId { cookie: a.new_cookie, ..id.clone() };
    if info.lockers.contains_key(&new) {
        return Err(Errno::EBUSY);
    }
    if let Some(locker) = info.lockers.remove(&id) {
        info.lockers.insert(new, locker);
    }
    save(v, &args.name, &info)
}

#[cfg(test)]
mod tests {
    use types::Utime;

    use super::*;
    use crate::fake::Fake;

    fn take(f: &mut Fake, kind: u8, cookie: &'static str, flags: u8) -> Result<(), Errno> {
        let duration = Utime::new(10, 0);
        let (name, tag, description) = ("l".into(), "t".into(), "d".into());
        let args = LockArgs { name, kind, cookie: cookie.into(), tag, description, duration, flags };
        f.call("lock", "lock", args.to_bytes()).map(|_| ())
    }

    fn drop_lock(f: &mut Fake, cookie: &'static str) -> Result<(), Errno> {
        let args = UnlockArgs { name: "l".into(), cookie: cookie.into() };
        f.call("lock", "unlock", args.to_bytes()).map(|_| ())
    }

    #[test]
    fn exclusive_locks_exclude_and_expire() {
        let mut f = Fake::default();
        assert_eq!(take(&mut f, kind::EXCLUSIVE, "a", 0), Ok(()));
        assert_eq!(take(&mut f, kind::EXCLUSIVE, "a", 0), Err(Errno::EEXIST));
        assert_eq!(take(&mut f, kind::EXCLUSIVE, "a", MAY_RENEW), Ok(()));
        assert_eq!(take(&mut f, kind::EXCLUSIVE, "b", 0), Err(Errno::EBUSY));
        assert_eq!(take(&mut f, kind::SHARED, "b", 0), Err(Errno::EBUSY));
        assert_eq!(take(&mut f, kind::EXCLUSIVE, "b", MUST_RENEW), Err(Errno::ENOENT));
        assert_eq!(take(&mut f, kind::EXCLUSIVE, "a", MAY_RENEW | MUST_RENEW), Err(Errno::EINVAL));
        assert_eq!(take(&mut f, 0, "a", 0), Err(Errno::EINVAL));
        f.now = Utime::new(f.now.sec + 11, 0);
        assert_eq!(take(&mut f, kind::EXCLUSIVE, "b", 0), Ok(()));
        assert_eq!(drop_lock(&mut f, "a"), Err(Errno::ENOENT));
        assert_eq!(drop_lock(&mut f, "b"), Ok(()));
        let (_, reply) = f.call("lock", "list_locks", "").unwrap();
        assert_eq!(ListReply::from_bytes(reply).unwrap().locks, ["l"]);
    }

    #[test]
    fn shared_locks_share_and_an_ephemeral_one_takes_its_object_along() {
        let mut f = Fake::default();
        assert_eq!(take(&mut f, kind::SHARED, "a", 0), Ok(()));
        assert_eq!(take(&mut f, kind::SHARED, "b", 0), Ok(()));
        let (_, info) = f.call("lock", "get_info", InfoArgs { name: "l".into() }.to_bytes()).unwrap();
        let info = LockInfo::from_bytes(info).unwrap();
        assert_eq!((info.lockers.len(), info.kind, info.tag.as_ref()), (2, kind::SHARED, &b"t"[..]));
        let mut f = Fake::default();
        assert_eq!(take(&mut f, kind::EXCLUSIVE_EPHEMERAL, "a", 0), Ok(()));
        assert_eq!(drop_lock(&mut f, "a"), Ok(()));
        assert!(f.object.is_none());
        assert_eq!(drop_lock(&mut f, "a"), Err(Errno::ENOENT));
    }

    #[test]
    fn cookies_change_hands_only_to_free_ones() {
        let mut f = Fake::default();
        take(&mut f, kind::SHARED, "a", 0).unwrap();
        take(&mut f, kind::SHARED, "b", 0).unwrap();
        let set = |cookie: &'static str, new: &'static str| {
            let (name, tag, kind) = ("l".into(), "t".into(), kind::SHARED);
            SetCookieArgs { name, kind, cookie: cookie.into(), tag, new_cookie: new.into() }.to_bytes()
        };
        assert_eq!(f.call("lock", "set_cookie", set("a", "b")).err(), Some(Errno::EBUSY));
        assert_eq!(f.call("lock", "set_cookie", set("x", "c")).err(), Some(Errno::EBUSY));
        assert!(f.call("lock", "set_cookie", set("a", "c")).is_ok());
        assert_eq!(drop_lock(&mut f, "a"), Err(Errno::ENOENT));
        assert_eq!(drop_lock(&mut f, "c"), Ok(()));
    }

    #[test]
    fn what_holders_write_need_not_be_text() {
        let mut f = Fake::default();
        let odd = Bytes::from_static(b"\xff\xfe");
        let (cookie, tag, description) = (odd.clone(), odd.clone(), odd.clone());
        let args = LockArgs {
            name: odd.clone(),
            kind: 1,
            cookie,
            tag,
            description,
            duration: Utime::ZERO,
            flags: 0,
        };
        assert!(f.call("lock", "lock", args.to_bytes()).is_ok());
        let (_, out) = f.call("lock", "list_locks", "").unwrap();
        assert_eq!(ListReply::from_bytes(out).unwrap().locks, [odd]);
    }

    #[test]
    fn malformed_input_is_refused() {
        let mut f = Fake::with_data("");
        let args = LockArgs {
            name: "l".into(),
            kind: 1,
            cookie: "c".into(),
            tag: Bytes::new(),
            description: Bytes::new(),
            duration: Utime::ZERO,
            flags: 0,
        };
        let whole = args.to_bytes();
        let version_0 = [&[0][..], &whole[1..]].concat();
        assert_eq!(f.call("lock", "lock", version_0), Err(Errno::EINVAL));
        for n in 0..whole.len() {
            assert_eq!(f.call("lock", "lock", whole.slice(..n)), Err(Errno::EINVAL), "{n}");
        }
        for method in ["unlock", "break_lock", "get_info", "assert_locked", "set_cookie"] {
            assert_eq!(f.call("lock", method, ""), Err(Errno::EINVAL), "{method}");
        }
    }
}
