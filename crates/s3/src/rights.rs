//! Who may do what. Source: verify_bucket_permission_no_policy and verify_object_permission_no_policy in
//! src/rgw/rgw_common.cc, RGWAccessControlPolicy::get_perm in src/rgw/rgw_acl.cc.

use rgw::{AccessControl, Grant, Permissions};

use crate::users::Caller;

/// Rights over all objects of a bucket, as Swift grants them. Source: RGW_PERM_READ_OBJS and
/// RGW_PERM_WRITE_OBJS in src/rgw/rgw_common.h.
const READ_OBJECTS: u32 = 0x10;
const WRITE_OBJECTS: u32 = 0x20;

/// Kinds of requests that a user may make at all. Source: RGW_OP_TYPE_READ and its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Read = 1,
    Write = 2,
    Delete = 4,
}

impl Caller {
    /// Whether an administrator lets the user make such requests.
    pub fn may(&self, does: Does) -> bool {
        self.user().is_none_or(|info| info.op_mask & does as u32 != 0)
    }

    fn is_administrator(&self) -> bool {
        self.user().is_some_and(|info| info.admin != 0 || info.system != 0)
    }
}

/// The bits of a list that are a caller's; those of groups count unless they are to be passed over.
fn granted(acl: &AccessControl, caller: &Caller, mask: u32, groups: bool) -> u32 {
    let mut bits = caller.user().map_or(0, |info| acl.list.of_user(&info.id));
    if caller.is(&acl.owner.id) {
        bits |= Permissions::READ_ACL.0 | Permissions::WRITE_ACL.0;
    }
    if groups {
        bits |= acl.list.of_group(Grant::ALL_USERS);
        if caller.user().is_some() {
            bits |= acl.list.of_group(Grant::AUTHENTICATED_USERS);
        }
    }
    bits & mask
}

/// Whether a bucket's or an object's own list lets a caller do something.
pub fn allows(acl: &AccessControl, caller: &Caller, wanted: Permissions, groups: bool) -> bool {
    let Permissions(wanted) = wanted;
    let mut bits = granted(acl, caller, wanted | READ_OBJECTS | WRITE_OBJECTS, groups);
    if bits & WRITE_OBJECTS != 0 {
        bits |= Permissions::WRITE.0 | Permissions::WRITE_ACL.0;
    }
    if bits & READ_OBJECTS != 0 {
        bits |= Permissions::READ.0 | Permissions::READ_ACL.0;
    }
    bits & wanted == wanted || caller.is_administrator()
}

/// Whether a caller may do something with an object: by its own list, or by what its bucket's says of all.
pub fn allows_object(
    bucket: &AccessControl,
    object: &AccessControl,
    caller: &Caller,
    wanted: Permissions,
    groups: bool,
) -> bool {
    if allows(object, caller, wanted, groups) {
        return true;
    }
    let reads = wanted.0 & (Permissions::READ.0 | Permissions::READ_ACL.0) != 0;
    let writes = wanted.0 & Permissions::WRITE.0 != 0;
    let of_all = if reads { READ_OBJECTS } else { 0 } | if writes { WRITE_OBJECTS } else { 0 };
    of_all != 0 && granted(bucket, caller, of_all, groups) == of_all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rgw::{Grantee, Owner, UserId, UserInfo};

    use super::*;

    fn user(id: &'static str) -> Caller {
        Caller::User(Arc::new(UserInfo { id: UserId::plain(id), ..UserInfo::default() }))
    }

    fn with(grants: &[Grant]) -> AccessControl {
        let mut acl = AccessControl::private(Owner { id: UserId::plain("o"), display_name: "o".into() });
        grants.iter().for_each(|grant| acl.list.add(grant.clone()));
        acl
    }

    fn to_group(group: u32, permissions: Permissions) -> Grant {
        Grant { to: Grantee::GROUP, group, permissions, ..Grant::default() }
    }

    #[test]
    fn grants_to_users_and_groups_count_and_nothing_else_does() {
        let (read, write, full) = (Permissions::READ, Permissions::WRITE, Permissions::FULL_CONTROL);
        let (owner, other) = (user("o"), user("u"));
        let check = |acl: &AccessControl, caller: &Caller, wanted, want| {
            assert_eq!(allows(acl, caller, wanted, true), want, "{caller:?} {wanted:?}");
        };
        let private = with(&[]);
        check(&private, &owner, full, true);
        check(&private, &other, read, false);
        check(&private, &Caller::Nobody, read, false);
        let public = with(&[to_group(Grant::ALL_USERS, read)]);
        check(&public, &Caller::Nobody, read, true);
        check(&public, &Caller::Nobody, write, false);
        assert!(!allows(&public, &Caller::Nobody, read, false));
        let known = with(&[to_group(Grant::AUTHENTICATED_USERS, read)]);
        check(&known, &Caller::Nobody, read, false);
        check(&known, &other, read, true);
        let given = with(&[Grant::to_user(UserId::plain("u"), "u".into(), write)]);
        check(&given, &other, write, true);
        check(&given, &other, full, false);
        // Whose it is may always change the list, and no more, when all grants are gone.
        let mut empty = private.clone();
        empty.list = rgw::AccessList::default();
        check(&empty, &owner, Permissions::WRITE_ACL, true);
        check(&empty, &owner, read, false);
    }

    #[test]
    fn administrators_may_all_and_masks_bound_the_others() {
        let admin = UserInfo { id: UserId::plain("a"), admin: 1, ..UserInfo::default() };
        assert!(allows(&with(&[]), &Caller::User(Arc::new(admin)), Permissions::FULL_CONTROL, true));
        let masked = UserInfo { id: UserId::plain("m"), op_mask: 1, ..UserInfo::default() };
        let masked = Caller::User(Arc::new(masked));
        assert_eq!(
            [Does::Read, Does::Write, Does::Delete].map(|does| masked.may(does)),
            [true, false, false]
        );
    }

    #[test]
    fn a_bucket_may_open_all_its_objects() {
        let reader = Grant::to_user(UserId::plain("u"), "u".into(), Permissions(READ_OBJECTS));
        let (bucket, object, caller) = (with(&[reader]), with(&[]), user("u"));
        assert!(allows_object(&bucket, &object, &caller, Permissions::READ, true));
        assert!(!allows_object(&bucket, &object, &caller, Permissions::WRITE, true));
        assert!(!allows_object(&object, &object, &caller, Permissions::READ, true));
    }
}
