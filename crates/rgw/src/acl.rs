//! Who may do what with a bucket or an object.
//!
//! Source: src/rgw/rgw_acl.h, and for the order of grants src/rgw/rgw_acl.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::UserId;

/// Bits of what may be done: 1 reads, 2 writes, 4 reads the list of grants, 8 writes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permissions(pub u32);

impl Permissions {
    pub const READ: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const READ_ACL: Self = Self(4);
    pub const WRITE_ACL: Self = Self(8);
    pub const FULL_CONTROL: Self = Self(15);
}

impl Encode for Permissions {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| self.0.encode(w));
    }
}
impl Decode for Permissions {
    const MIN_SIZE: usize = 5;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("permissions", 2, 2, |r, _| r.u32().map(Self))
    }
}

/// What a grant is given to. Source: ACLGranteeTypeEnum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grantee(pub u32);

impl Grantee {
    pub const USER: Self = Self(0);
    pub const EMAIL: Self = Self(1);
    pub const GROUP: Self = Self(2);
    pub const UNKNOWN: Self = Self(3);
    pub const REFERER: Self = Self(4);
}

impl Encode for Grantee {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| self.0.encode(w));
    }
}
impl Decode for Grantee {
    const MIN_SIZE: usize = 5;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("grantee", 2, 2, |r, _| r.u32().map(Self))
    }
}

/// Source: ACLGrant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    pub to: Grantee,
    pub id: UserId,
    pub email: Bytes,
    pub permissions: Permissions,
    /// For people.
    pub name: Bytes,
    /// 1 for everybody, 2 for everybody with a key.
    pub group: u32,
    /// Of requests that come from another site.
    pub referer: Bytes,
}

impl Grant {
    pub const ALL_USERS: u32 = 1;
    pub const AUTHENTICATED_USERS: u32 = 2;

    pub fn to_user(id: UserId, name: Bytes, permissions: Permissions) -> Self {
        Self { id, name, permissions, ..Self::default() }
    }

    pub fn to_group(group: u32, permissions: Permissions) -> Self {
        Self { to: Grantee::GROUP, group, permissions, ..Self::default() }
    }
}

impl Encode for Grant {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 3, |w| {
            self.to.encode(w);
            self.id.to_text().encode(w);
            // Where a group's address was.
            Bytes::new().encode(w);
            self.email.encode(w);
            self.permissions.encode(w);
            self.name.encode(w);
            self.group.encode(w);
            self.referer.encode(w);
        });
    }
}
impl Decode for Grant {
    const MIN_SIZE: usize = 20;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("grant", 5, 3, |r, version| {
            let (to, id) = (Decode::decode(r)?, UserId::from_text(&r.blob()?));
            let (address, email) = (r.blob()?, r.blob()?);
            let (permissions, name) = (Decode::decode(r)?, r.blob()?);
            let group = if version > 1 { r.u32()? } else { group_at(&address) };
            let referer = if version >= 5 { r.blob()? } else { Bytes::new() };
            Ok(Self { to, id, email, permissions, name, group, referer })
        })
    }
}

fn group_at(address: &[u8]) -> u32 {
    match address {
        b"http://acs.amazonaws.com/groups/global/AllUsers" => Grant::ALL_USERS,
        b"http://acs.amazonaws.com/groups/global/AuthenticatedUsers" => Grant::AUTHENTICATED_USERS,
        _ => 0,
    }
}

/// Rights of requests that other sites' pages make. Source: ACLReferer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Referer {
    pub site: Bytes,
    pub permissions: u32,
}
wire_struct!(Referer(1, 1) { site, permissions });

/// All grants of a bucket or an object, and what they add up to for each user and each group.
/// Source: RGWAccessControlList.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessList {
    users: BTreeMap<Bytes, u32>,
    groups: BTreeMap<u32, u32>,
    referers: Vec<Referer>,
    /// By the grantee's id, or an empty one; those of one id in the order in which they were given.
    grants: Vec<(Bytes, Grant)>,
}

impl AccessList {
    pub fn add(&mut self, grant: Grant) {
        let Permissions(bits) = grant.permissions;
        let key = match grant.to {
            Grantee::GROUP => {
                *self.groups.entry(grant.group).or_default() |= bits;
                Bytes::new()
            }
            Grantee::REFERER => {
                self.referers.push(Referer { site: grant.referer.clone(), permissions: bits });
                // What every site may, everybody may.
                if grant.referer == "*" {
                    *self.groups.entry(Grant::ALL_USERS).or_default() |= bits;
                }
                Bytes::new()
            }
            to => {
                let id = if to == Grantee::EMAIL { grant.email.clone() } else { grant.id.to_text() };
                *self.users.entry(id.clone()).or_default() |= bits;
                id
            }
        };
        let at = self.grants.partition_point(|(other, _)| *other <= key);
        self.grants.insert(at, (key, grant));
    }

    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().map(|(_, grant)| grant)
    }

    /// Bits that were granted to a user by name.
    pub fn of_user(&self, id: &UserId) -> u32 {
        self.users.get(&id.to_text()).copied().unwrap_or_default()
    }

    /// Bits that were granted to a group.
    pub fn of_group(&self, group: u32) -> u32 {
        self.groups.get(&group).copied().unwrap_or_default()
    }

    pub fn referers(&self) -> &[Referer] {
        &self.referers
    }
}

impl Encode for AccessList {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| {
            true.encode(w);
            self.users.encode(w);
            self.grants.encode(w);
            self.groups.encode(w);
            self.referers.encode(w);
        });
    }
}
impl Decode for AccessList {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("access list", 4, 3, |r, version| {
            let summed: bool = Decode::decode(r)?;
            let users = Decode::decode(r)?;
            let mut grants: Vec<(Bytes, Grant)> = Decode::decode(r)?;
            grants.sort_by(|(a, _), (b, _)| a.cmp(b));
            let mut list = Self { users, grants, ..Self::default() };
            if version >= 2 {
                list.groups = Decode::decode(r)?;
            } else if !summed {
                list = list.grants.into_iter().fold(Self::default(), |mut list, (_, grant)| {
                    list.add(grant);
                    list
                });
            }
            if version >= 4 {
                list.referers = Decode::decode(r)?;
            }
            Ok(list)
        })
    }
}

/// Whose a bucket or an object is. Source: ACLOwner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub id: UserId,
    pub display_name: Bytes,
}

impl Encode for Owner {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            self.id.to_text().encode(w);
            self.display_name.encode(w);
        });
    }
}
impl Decode for Owner {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("owner", 3, 2, |r, _| {
            Ok(Self { id: UserId::from_text(&r.blob()?), display_name: r.blob()? })
        })
    }
}

/// The attribute `user.rgw.acl`. Source: RGWAccessControlPolicy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessControl {
    pub owner: Owner,
    pub list: AccessList,
}

impl AccessControl {
    /// What belongs to its owner alone.
    pub fn private(owner: Owner) -> Self {
        let mut list = AccessList::default();
        list.add(Grant::to_user(owner.id.clone(), owner.display_name.clone(), Permissions::FULL_CONTROL));
        Self { owner, list }
    }
}

impl Encode for AccessControl {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.owner.encode(w);
            self.list.encode(w);
        });
    }
}
impl Decode for AccessControl {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("access control", 2, 2, |r, _| {
            Ok(Self { owner: Decode::decode(r)?, list: Decode::decode(r)? })
        })
    }
}
