//! Who may do what. Source: verify_bucket_permission_no_policy and verify_object_permission_no_policy in
//! src/rgw/rgw_common.cc, RGWAccessControlPolicy::get_perm in src/rgw/rgw_acl.cc.

use std::borrow::Cow;

use codec::Decode;
use rgw::policy::{Action, EXISTING_TAG, Effect, Environment, Policy};
use rgw::{AccessControl, Grant, Ownership, Permissions, Tags};

use crate::attrs::{self, Attrs};
use crate::state::BucketView;
use crate::users::Caller;

/// Rights over all objects of a bucket, as Swift grants them. Source: RGW_PERM_READ_OBJS and
/// RGW_PERM_WRITE_OBJS in src/rgw/rgw_common.h.
const READ_OBJECTS: u32 = 0x10;
const WRITE_OBJECTS: u32 = 0x20;

/// Bits of the kinds of requests that a user may make at all. Source: RGW_OP_TYPE_READ and its like.
fn kind(action: Action) -> u32 {
    use Action as A;
    match action {
        A::AbortMultipartUpload | A::DeleteBucket | A::DeleteObject | A::DeleteObjectVersion => 4,
        A::DeleteObjectTagging | A::DeleteObjectVersionTagging => 4,
        A::GetBucketAcl | A::GetBucketCORS | A::GetBucketLocation | A::GetBucketPolicy => 1,
        A::GetBucketPolicyStatus | A::GetBucketRequestPayment | A::GetBucketTagging => 1,
        A::GetBucketPublicAccessBlock | A::GetBucketVersioning | A::GetBucketWebsite => 1,
        A::GetBucketObjectLockConfiguration | A::GetObjectRetention | A::GetObjectLegalHold => 1,
        A::GetLifecycleConfiguration | A::GetEncryptionConfiguration => 1,
        A::GetBucketOwnershipControls | A::GetBucketLogging => 1,
        A::GetObject | A::GetObjectAcl | A::GetObjectTagging | A::ListAllMyBuckets | A::ListBucket => 1,
        A::GetObjectVersion | A::GetObjectVersionAcl | A::GetObjectVersionTagging => 1,
        A::ListBucketMultipartUploads | A::ListBucketVersions | A::ListMultipartUploadParts => 1,
        _ => 2,
    }
}

/// The right to do with a version that is named what another right lets do with the one that is shown.
/// Source: the uses of have_instance and get_instance in src/rgw/rgw_op.cc.
pub fn for_version(action: Action, is_named: bool) -> Action {
    use Action as A;
    match action {
        A::GetObject if is_named => A::GetObjectVersion,
        A::GetObjectAcl if is_named => A::GetObjectVersionAcl,
        A::PutObjectAcl if is_named => A::PutObjectVersionAcl,
        A::GetObjectTagging if is_named => A::GetObjectVersionTagging,
        A::PutObjectTagging if is_named => A::PutObjectVersionTagging,
        A::DeleteObjectTagging if is_named => A::DeleteObjectVersionTagging,
        A::DeleteObject if is_named => A::DeleteObjectVersion,
        other => other,
    }
}

impl Caller {
    /// Whether an administrator lets the user make such requests.
    pub fn may(&self, action: Action) -> bool {
        self.user().is_none_or(|info| info.op_mask & kind(action) != 0)
    }

    /// What the user's own policies say of something by its name.
    fn said(&self, env: &Environment, action: Action, name: &[u8], is_at_home: bool) -> Effect {
        Effect::of(self.policies().iter().map(|policy| policy.eval_own(env, action, name, is_at_home)))
    }

    /// Whether a user may do what is of no bucket that is there. Source: verify_user_permission.
    pub fn may_by_itself(&self, action: Action, name: &[u8]) -> bool {
        self.may(action) && self.said(self.env(), action, name, self.is_at_home()) != Effect::Deny
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

/// An object that something is to be done with.
pub struct Target<'a> {
    pub key: &'a [u8],
    pub acl: &'a AccessControl,
    pub attrs: &'a Attrs,
}

impl BucketView {
    /// What the bucket's policy says, and the caller's own. Source: verify_bucket_permission.
    fn said(&self, caller: &Caller, env: &Environment, action: Action, key: Option<&[u8]>) -> Effect {
        if self.policy.is_none() && caller.policies().is_empty() {
            return Effect::Pass;
        }
        let bucket = &self.info.bucket.name;
        let name = match key {
            Some(key) => Cow::Owned([bucket, &b"/"[..], key].concat()),
            None => Cow::Borrowed(&bucket[..]),
        };
        let is_at_home = caller.user().is_some_and(|info| info.id.tenant == self.info.bucket.tenant);
        let own = caller.said(env, action, &name, is_at_home);
        // What a policy opens to everybody is the owner's alone, where that is so restricted.
        let is_shut = self.public.restrict_buckets && !caller.is(&self.info.owner);
        let opens = |said: Effect, policy: &Policy| said == Effect::Allow && is_shut && policy.is_public();
        let buckets = self.policy.iter().map(|policy| match policy.eval(env, &caller.id(), action, &name) {
            said if opens(said, policy) => Effect::Pass,
            said => said,
        });
        Effect::of(buckets.chain([own]))
    }

    /// Who is no owner of a bucket whose requesters pay has to say that he does.
    fn is_paid(&self, caller: &Caller) -> bool {
        !self.info.requester_pays || caller.is(&self.info.owner) || (caller.user().is_some() && caller.pays())
    }

    fn grants(&self, caller: &Caller, action: Action) -> bool {
        action.grant().is_some_and(|wanted| allows(&self.acl, caller, wanted, self.groups()))
    }

    /// Whether a caller may do something with the bucket.
    pub fn may(&self, caller: &Caller, action: Action) -> bool {
        let said = self.said(caller, caller.env(), action, None);
        let granted = said == Effect::Allow || (said == Effect::Pass && self.grants(caller, action));
        self.noted(caller, said, caller.may(action) && self.is_paid(caller) && granted)
    }

    /// The same, noted where it is so by grants to others than the owner.
    fn noted(&self, caller: &Caller, said: Effect, may: bool) -> bool {
        if may && said == Effect::Pass && !caller.is(&self.acl.owner.id) {
            caller.let_by_grants();
        }
        may
    }

    /// The same of what the owner alone may do, unless a policy says otherwise.
    pub fn is_owners(&self, caller: &Caller, action: Action) -> bool {
        let said = self.said(caller, caller.env(), action, None);
        let own = || caller.is(&self.acl.owner.id) || caller.is_administrator();
        caller.may(action) && (said == Effect::Allow || (said == Effect::Pass && own()))
    }

    /// Whether a caller may do something with a key, whatever is there: the bucket's grants decide.
    pub fn may_with_key(&self, caller: &Caller, action: Action, key: &[u8]) -> bool {
        let said = self.said(caller, caller.env(), action, Some(key));
        let granted = || allows(&self.acl, caller, Permissions::WRITE, self.groups());
        let granted = said == Effect::Allow || (said == Effect::Pass && granted());
        self.noted(caller, said, caller.may(action) && self.is_paid(caller) && granted)
    }

    /// Whether a caller may do something with an object that is there.
    pub fn may_with(&self, caller: &Caller, action: Action, target: &Target<'_>) -> bool {
        let env = self.env_with_tags(caller, target.attrs);
        let said = self.said(caller, &env, action, Some(target.key));
        let wanted = action.grant();
        // Where lists of grants count for nothing, all is the bucket owner's.
        let owners = || AccessControl::private(self.acl.owner.clone());
        let own = (self.ownership == Some(Ownership::Enforced)).then(owners);
        let acl = own.as_ref().unwrap_or(target.acl);
        let granted = || wanted.is_some_and(|p| allows_object(&self.acl, acl, caller, p, self.groups()));
        let granted = said == Effect::Allow || (said == Effect::Pass && granted());
        self.noted(caller, said, caller.may(action) && self.is_paid(caller) && granted)
    }

    /// Whether a caller is told that there is no such object: to others all are alike.
    pub fn may_miss(&self, caller: &Caller, key: &[u8]) -> bool {
        // It is as a list of this name alone would show it.
        let mut env = caller.env().clone();
        env.insert("s3:prefix".to_owned(), String::from_utf8_lossy(key).into_owned());
        match self.said(caller, &env, Action::ListBucket, None) {
            _ if caller.is(&self.acl.owner.id) => true,
            Effect::Allow => true,
            Effect::Deny => false,
            Effect::Pass => allows(&self.acl, caller, Permissions::READ, self.groups()),
        }
    }

    fn env_with_tags<'a>(&self, caller: &'a Caller, attrs: &Attrs) -> Cow<'a, Environment> {
        let wants = self.policy.iter().chain(caller.policies()).any(Policy::asks_for_tags);
        let raw = attrs.get(attrs::TAGGING.as_bytes()).filter(|_| wants);
        let Some(tags) = raw.and_then(|raw| Tags::from_bytes(raw.clone()).ok()) else {
            return Cow::Borrowed(caller.env());
        };
        let mut env = caller.env().clone();
        for (key, value) in &tags.tags {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            env.insert(format!("{EXISTING_TAG}{}", text(key)), text(value));
        }
        Cow::Owned(env)
    }
}

#[cfg(test)]
mod tests {
    use rgw::{Grantee, Owner, UserId, UserInfo};

    use super::*;

    fn user(id: &'static str) -> Caller {
        Caller::new(Some(UserInfo { id: UserId::plain(id), ..UserInfo::default() }.into()))
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
        check(&private, &Caller::default(), read, false);
        let public = with(&[to_group(Grant::ALL_USERS, read)]);
        check(&public, &Caller::default(), read, true);
        check(&public, &Caller::default(), write, false);
        assert!(!allows(&public, &Caller::default(), read, false));
        let known = with(&[to_group(Grant::AUTHENTICATED_USERS, read)]);
        check(&known, &Caller::default(), read, false);
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
        assert!(allows(&with(&[]), &Caller::new(Some(admin.into())), Permissions::FULL_CONTROL, true));
        let masked = UserInfo { id: UserId::plain("m"), op_mask: 1, ..UserInfo::default() };
        let masked = Caller::new(Some(masked.into()));
        assert_eq!(
            [Action::GetObject, Action::PutObject, Action::DeleteObject].map(|action| masked.may(action)),
            [true, false, false]
        );
        // Of versions as of what is shown.
        for (shown, masks) in
            [(Action::GetObjectAcl, 1), (Action::PutObjectTagging, 2), (Action::DeleteObject, 4)]
        {
            let named = for_version(shown, true);
            assert_eq!((named != shown, kind(named), kind(shown)), (true, masks, masks), "{shown:?}");
            assert_eq!((for_version(shown, false), named.grant()), (shown, shown.grant()));
        }
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
