//! Lists of grants, as S3 shows them and as canned ones stand for.

use bytes::Bytes;
use rgw::{AccessControl, Grant, Grantee, Owner, Permissions};
use s3s::{S3Result, dto, s3_error};

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn group(group: u32, permissions: Permissions) -> Grant {
    Grant { to: Grantee::GROUP, group, permissions, ..Grant::default() }
}

/// What a canned list stands for. Source: RGWAccessControlList_S3::create_canned in src/rgw/rgw_acl_s3.cc.
pub fn canned(name: Option<&str>, owner: Owner, bucket_owner: &Owner) -> S3Result<AccessControl> {
    let mut acl = AccessControl::private(owner);
    let mut to_bucket_owner = |permissions| {
        if bucket_owner.id != acl.owner.id {
            let grant =
                Grant::to_user(bucket_owner.id.clone(), bucket_owner.display_name.clone(), permissions);
            acl.list.add(grant);
        }
    };
    match name.unwrap_or("private") {
        "private" | "" => {}
        "public-read" => acl.list.add(group(Grant::ALL_USERS, Permissions::READ)),
        "public-read-write" => {
            acl.list.add(group(Grant::ALL_USERS, Permissions::READ));
            acl.list.add(group(Grant::ALL_USERS, Permissions::WRITE));
        }
        "authenticated-read" => acl.list.add(group(Grant::AUTHENTICATED_USERS, Permissions::READ)),
        "bucket-owner-read" => to_bucket_owner(Permissions::READ),
        "bucket-owner-full-control" => to_bucket_owner(Permissions::FULL_CONTROL),
        _ => return Err(s3_error!(InvalidArgument, "there is no such canned ACL")),
    }
    Ok(acl)
}

pub fn owner(owner: &Owner) -> dto::Owner {
    dto::Owner { display_name: Some(text(&owner.display_name)), id: Some(text(&owner.id.to_text())) }
}

/// As the answer to a request for a list has them.
pub fn shown(acl: &AccessControl) -> Vec<dto::Grant> {
    acl.list.grants().filter_map(|grant| Some((grantee(grant)?, grant.permissions))).flat_map(each).collect()
}

fn each((grantee, permissions): (dto::Grantee, Permissions)) -> Vec<dto::Grant> {
    let Permissions(bits) = permissions;
    let full = Permissions::FULL_CONTROL.0;
    let all = [
        (full, dto::Permission::FULL_CONTROL),
        (Permissions::READ.0, dto::Permission::READ),
        (Permissions::WRITE.0, dto::Permission::WRITE),
        (Permissions::READ_ACL.0, dto::Permission::READ_ACP),
        (Permissions::WRITE_ACL.0, dto::Permission::WRITE_ACP),
    ];
    let is_full = bits & full == full;
    let named = all.into_iter().filter(|(bit, _)| bits & bit == *bit && (*bit == full) == is_full);
    let grant = |(_, name)| dto::Grant {
        grantee: Some(grantee.clone()),
        permission: Some(dto::Permission::from_static(name)),
    };
    named.map(grant).collect()
}

fn grantee(grant: &Grant) -> Option<dto::Grantee> {
    let of = |kind| dto::Grantee {
        display_name: None,
        email_address: None,
        id: None,
        type_: dto::Type::from_static(kind),
        uri: None,
    };
    match grant.to {
        Grantee::USER => Some(dto::Grantee {
            display_name: Some(text(&grant.name)),
            id: Some(text(&grant.id.to_text())),
            ..of(dto::Type::CANONICAL_USER)
        }),
        Grantee::GROUP => {
            let uri = match grant.group {
                Grant::ALL_USERS => ALL_USERS,
                Grant::AUTHENTICATED_USERS => AUTHENTICATED,
                _ => return None,
            };
            Some(dto::Grantee { uri: Some(uri.to_owned()), ..of(dto::Type::GROUP) })
        }
        Grantee::EMAIL => Some(dto::Grantee {
            email_address: Some(text(&grant.email)),
            ..of(dto::Type::AMAZON_CUSTOMER_BY_EMAIL)
        }),
        _ => None,
    }
}
