//! A user: the keys, the rights and the bounds that were given to one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};

use crate::{PlacementRule, Quota, UserId};

/// Buckets that a user may have unless told otherwise. Source: RGW_DEFAULT_MAX_BUCKETS in
/// src/rgw/rgw_common.h.
const MAX_BUCKETS: i32 = 1_000;
/// Reading, writing and deleting. Source: RGW_OP_TYPE_ALL.
const ALL_KINDS: u32 = 7;

/// What a request is signed with. Source: RGWAccessKey in src/rgw/rgw_common.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessKey {
    pub id: Bytes,
    pub secret: Bytes,
    /// Empty for the user itself.
    pub subuser: Bytes,
}

impl Encode for AccessKey {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.id.encode(w);
            self.secret.encode(w);
            self.subuser.encode(w);
        });
    }
}
impl Decode for AccessKey {
    const MIN_SIZE: usize = 16;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope_32("access key", 2, 2, |r, _| {
            Ok(Self { id: r.blob()?, secret: r.blob()?, subuser: r.blob()? })
        })
    }
}

/// A name under a user's, with rights of its own. Source: RGWSubUser.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subuser {
    pub name: Bytes,
    /// As in `Permissions`.
    pub rights: u32,
}

impl Encode for Subuser {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.name.encode(w);
            self.rights.encode(w);
        });
    }
}
impl Decode for Subuser {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope_32("subuser", 2, 2, |r, _| Ok(Self { name: r.blob()?, rights: r.u32()? }))
    }
}

/// What a user may ask of the admin API: bits for reading and writing, by what they are about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Caps {
    caps: BTreeMap<Bytes, u32>,
}
wire_struct!(Caps(1, 1) { caps });

/// Who vouches for a user. Source: UserIDType in src/rgw/rgw_common.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserKind(pub u32);

impl UserKind {
    pub const NONE: Self = Self(0);
    pub const RGW: Self = Self(1);
    pub const KEYSTONE: Self = Self(2);
    pub const LDAP: Self = Self(3);
}

/// Source: RGWUserInfo in src/rgw/rgw_common.h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserInfo {
    pub id: UserId,
    pub display_name: Bytes,
    pub email: Bytes,
    /// By their ids.
    pub keys: BTreeMap<Bytes, AccessKey>,
    /// By `user:subuser`.
    pub swift_keys: BTreeMap<Bytes, AccessKey>,
    pub subusers: BTreeMap<Bytes, Subuser>,
    pub suspended: u8,
    /// 0 for no bound, negative for none at all.
    pub max_buckets: i32,
    /// Kinds of requests that are allowed: 1 reads, 2 writes, 4 deletes.
    pub op_mask: u32,
    pub caps: BTreeMap<Bytes, u32>,
    pub admin: u8,
    /// Another zone's gateway.
    pub system: u8,
    pub placement: PlacementRule,
    /// Of placement targets that are not for everybody.
    pub placement_tags: Vec<Bytes>,
    pub bucket_quota: Quota,
    pub user_quota: Quota,
    pub temp_url_keys: BTreeMap<i32, Bytes>,
    pub kind: UserKind,
    /// Serial numbers of tokens that make one-time passwords.
    pub mfa_ids: BTreeSet<Bytes>,
    pub assumed_role: Bytes,
}

impl Default for UserInfo {
    fn default() -> Self {
        Self {
            id: UserId::default(),
            display_name: Bytes::new(),
            email: Bytes::new(),
            keys: BTreeMap::new(),
            swift_keys: BTreeMap::new(),
            subusers: BTreeMap::new(),
            suspended: 0,
            max_buckets: MAX_BUCKETS,
            op_mask: ALL_KINDS,
            caps: BTreeMap::new(),
            admin: 0,
            system: 0,
            placement: PlacementRule::default(),
            placement_tags: Vec::new(),
            bucket_quota: Quota::default(),
            user_quota: Quota::default(),
            temp_url_keys: BTreeMap::new(),
            kind: UserKind::NONE,
            mfa_ids: BTreeSet::new(),
            assumed_role: Bytes::new(),
        }
    }
}

impl Encode for UserInfo {
    fn encode(&self, w: &mut Writer) {
        let first = |keys: &BTreeMap<Bytes, AccessKey>| {
            keys.values().next().map(|k| (k.id.clone(), k.secret.clone())).unwrap_or_default()
        };
        w.envelope(22, 9, |w| {
            w.u64(0);
            first(&self.keys).encode(w);
            self.display_name.encode(w);
            self.email.encode(w);
            first(&self.swift_keys).encode(w);
            self.id.id.encode(w);
            self.keys.encode(w);
            self.subusers.encode(w);
            self.suspended.encode(w);
            self.swift_keys.encode(w);
            self.max_buckets.encode(w);
            w.envelope(1, 1, |w| self.caps.encode(w));
            self.op_mask.encode(w);
            self.system.encode(w);
            self.placement.encode(w);
            self.placement_tags.encode(w);
            self.bucket_quota.encode(w);
            self.temp_url_keys.encode(w);
            self.user_quota.encode(w);
            self.id.tenant.encode(w);
            self.admin.encode(w);
            self.kind.0.encode(w);
            self.mfa_ids.encode(w);
            self.assumed_role.encode(w);
            self.id.namespace.encode(w);
        });
    }
}

impl UserInfo {
    /// What the first twelve versions had.
    fn decode_first(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let mut u = Self::default();
        if version >= 2 {
            r.skip(8)?;
        }
        let (id, secret) = (r.blob()?, r.blob()?);
        u.id.id = id.clone();
        if version < 6 {
            u.keys.insert(id.clone(), AccessKey { id, secret, subuser: Bytes::new() });
        }
        (u.display_name, u.email) = (r.blob()?, r.blob()?);
        // The first of Swift's keys, all of which follow.
        for since in [3, 4] {
            if version >= since {
                r.blob()?;
            }
        }
        if version >= 5 {
            u.id.id = r.blob()?;
        }
        if version >= 6 {
            (u.keys, u.subusers) = (Decode::decode(r)?, Decode::decode(r)?);
        }
        if version >= 7 {
            u.suspended = r.u8()?;
        }
        if version >= 8 {
            u.swift_keys = Decode::decode(r)?;
        }
        if version >= 10 {
            u.max_buckets = r.i32()?;
        }
        if version >= 11 {
            u.caps = Caps::decode(r)?.caps;
        }
        if version >= 12 {
            u.op_mask = r.u32()?;
        }
        Ok(u)
    }
}

impl Decode for UserInfo {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope_32("user", 22, 9, |r, version| {
            let mut u = Self::decode_first(r, version)?;
            if version >= 13 {
                u.system = r.u8()?;
                (u.placement, u.placement_tags) = (Decode::decode(r)?, Decode::decode(r)?);
            }
            if version >= 14 {
                u.bucket_quota = Decode::decode(r)?;
            }
            if version >= 15 {
                u.temp_url_keys = Decode::decode(r)?;
            }
            if version >= 16 {
                u.user_quota = Decode::decode(r)?;
            }
            if version >= 17 {
                u.id.tenant = r.blob()?;
            }
            if version >= 18 {
                u.admin = r.u8()?;
            }
            if version >= 19 {
                u.kind = UserKind(r.u32()?);
            }
            if version >= 20 {
                u.mfa_ids = Decode::decode(r)?;
            }
            if version >= 21 {
                u.assumed_role = r.blob()?;
            }
            if version >= 22 {
                u.id.namespace = r.blob()?;
            }
            Ok(u)
        })
    }
}

/// Which user has a key, an address or a Swift name. Source: RGWUID in src/rgw/rgw_user.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserPointer(pub UserId);

impl Encode for UserPointer {
    fn encode(&self, w: &mut Writer) {
        self.0.to_text().encode(w);
    }
}
impl Decode for UserPointer {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(UserId::from_text(&r.blob()?)))
    }
}

/// What the object with a user's name in the pool of users holds. Source: RGWSI_User_RADOS::store_user_info
/// in src/rgw/services/svc_user_rados.cc.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserRecord {
    pub pointer: UserPointer,
    pub info: UserInfo,
}
wire_plain!(UserRecord { pointer, info });

impl UserRecord {
    pub fn new(info: UserInfo) -> Self {
        Self { pointer: UserPointer(info.id.clone()), info }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_old_have_one_key() {
        let old = Writer::collect(|w| {
            w.u32(4);
            w.u64(0);
            ["key", "secret", "name", "mail", "swift", "key"].iter().for_each(|t| t.encode(w));
        });
        let u = UserInfo::from_bytes(old.clone()).unwrap();
        assert_eq!((u.id, u.keys.len()), (UserId::plain("key"), 1));
        for n in 0..old.len() {
            assert!(UserInfo::from_bytes(old.slice(..n)).is_err(), "{n}");
        }
    }
}
