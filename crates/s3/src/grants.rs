//! Lists of grants, as S3 shows them and as canned ones stand for.

use bytes::Bytes;
use gateway::{Error, Plan, Stored};
use hyper::{HeaderMap, Response};
use rgw::{AccessControl, AccessList, Grant, Grantee, Owner, Permissions, UserId, UserInfo, UserRecord};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, dto, s3_error};

use crate::errors;
use crate::state::Gateway;
use crate::xml::{Document, Element};

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

/// Grants of one list. Source: rgw_acl_grants_max_num in src/common/options.cc.
const MAX_GRANTS: usize = 100;
/// Headers that grant something, each to a list of people and groups.
const HEADERS: [(&str, Permissions); 5] = [
    ("x-amz-grant-read", Permissions::READ),
    ("x-amz-grant-write", Permissions::WRITE),
    ("x-amz-grant-read-acp", Permissions::READ_ACL),
    ("x-amz-grant-write-acp", Permissions::WRITE_ACL),
    ("x-amz-grant-full-control", Permissions::FULL_CONTROL),
];

const NAMES: [(&str, Permissions); 5] = [
    ("FULL_CONTROL", Permissions::FULL_CONTROL),
    ("READ", Permissions::READ),
    ("WRITE", Permissions::WRITE),
    ("READ_ACP", Permissions::READ_ACL),
    ("WRITE_ACP", Permissions::WRITE_ACL),
];

fn invalid(what: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, what)
}

pub fn has_headers(headers: &HeaderMap) -> bool {
    HEADERS.iter().any(|(name, _)| headers.contains_key(*name))
}

/// The list that a request's headers ask for: a canned one, or grants. Source: create_s3_policy in
/// src/rgw/rgw_rest_s3.cc.
pub async fn of_headers(
    gateway: &Gateway,
    headers: &HeaderMap,
    owner: Owner,
    bucket_owner: &Owner,
) -> S3Result<AccessControl> {
    let name = headers.get("x-amz-acl").map(|name| name.to_str().unwrap_or("?"));
    let name = name.filter(|name| !name.is_empty());
    if !has_headers(headers) {
        return canned(name, owner, bucket_owner);
    }
    if name.is_some() {
        return Err(s3_error!(InvalidRequest, "a canned ACL and grants are not given together"));
    }
    let granted = of_grant_headers(headers)?;
    if granted.is_empty() {
        return Err(invalid("a header grants nothing"));
    }
    let mut acl = AccessControl { owner: owner.clone(), list: AccessList::default() };
    granted.into_iter().for_each(|grant| acl.list.add(grant));
    known(gateway, acl, &owner).await
}

fn of_grant_headers(headers: &HeaderMap) -> S3Result<Vec<Grant>> {
    let mut all = Vec::new();
    for (name, permissions) in HEADERS {
        let Some(value) = headers.get(name) else { continue };
        let value = value.to_str().map_err(|_| invalid("a grant is no text"))?;
        for field in value.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let (kind, who) =
                field.split_once('=').ok_or_else(|| invalid("a grant names a kind and a name"))?;
            let who = who.trim().trim_matches('"');
            all.push(match kind.trim().to_ascii_lowercase().as_str() {
                "id" => Grant::to_user(user_id(who), Bytes::new(), permissions),
                "emailaddress" => to_email(who, permissions),
                "uri" => Grant::to_group(group_of(who)?, permissions),
                _ => return Err(invalid("a grant is to an id, an address or a group")),
            });
        }
    }
    if all.len() > MAX_GRANTS { Err(too_many()) } else { Ok(all) }
}

fn too_many() -> S3Error {
    errors::custom("LimitExceeded", 400)
}

fn user_id(text: &str) -> UserId {
    UserId::from_text(&text.to_owned().into())
}

fn to_email(address: &str, permissions: Permissions) -> Grant {
    Grant { to: Grantee::EMAIL, email: address.to_owned().into(), permissions, ..Grant::default() }
}

fn group_of(uri: &str) -> S3Result<u32> {
    match uri {
        ALL_USERS => Ok(Grant::ALL_USERS),
        AUTHENTICATED => Ok(Grant::AUTHENTICATED_USERS),
        _ => Err(invalid("Invalid group uri")),
    }
}

/// The list in a document, as it stands there.
pub fn of_document(document: &[u8]) -> S3Result<AccessControl> {
    let unread = || invalid("the document cannot be read");
    let root = Element::read(document, "AccessControlPolicy").map_err(|_| unread())?;
    let (owner, list) = root.first("Owner").zip(root.first("AccessControlList")).ok_or_else(unread)?;
    let id = user_id(owner.text_of("ID").ok_or_else(unread)?.trim());
    let mut acl = AccessControl { owner: Owner { id, ..Owner::default() }, list: AccessList::default() };
    for (n, grant) in list.all("Grant").enumerate() {
        if n >= MAX_GRANTS {
            return Err(too_many());
        }
        let (to, named) = grant.first("Grantee").zip(grant.text_of("Permission")).ok_or_else(unread)?;
        let mut permissions = NAMES.iter().filter(|(name, _)| name.eq_ignore_ascii_case(named.trim()));
        let permissions = permissions.next().map(|(_, permissions)| *permissions).ok_or_else(unread)?;
        let text = |name| to.text_of(name).map(str::trim).ok_or_else(unread);
        acl.list.add(match to.attribute("xsi:type") {
            Some("CanonicalUser") => Grant::to_user(user_id(text("ID")?), Bytes::new(), permissions),
            Some("AmazonCustomerByEmail") => to_email(text("EmailAddress")?, permissions),
            Some("Group") => Grant::to_group(group_of(text("URI")?)?, permissions),
            _ => return Err(unread()),
        });
    }
    Ok(acl)
}

/// The same list with the names of those that it grants to, who must be there; it belongs to `owner` as
/// before. Source: RGWAccessControlPolicy_S3::rebuild in src/rgw/rgw_acl_s3.cc.
pub async fn known(gateway: &Gateway, acl: AccessControl, owner: &Owner) -> S3Result<AccessControl> {
    if !acl.owner.id.id.is_empty() && acl.owner.id != owner.id {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let owner = user(gateway, gateway.site().user(&owner.id)).await?.ok_or_else(|| invalid("Invalid id"))?;
    let mut list = AccessList::default();
    for grant in acl.list.grants() {
        let found = match grant.to {
            Grantee::GROUP => {
                list.add(grant.clone());
                continue;
            }
            Grantee::EMAIL => user(gateway, gateway.site().user_by_email(&grant.email)).await?,
            _ if grant.id == owner.id => Some(owner.clone()),
            _ => user(gateway, gateway.site().user(&grant.id)).await?,
        };
        let to = found.ok_or_else(|| match grant.to {
            Grantee::EMAIL => errors::custom("UnresolvableGrantByEmailAddress", 400),
            _ => invalid("Invalid id"),
        })?;
        list.add(Grant::to_user(to.id, to.display_name, grant.permissions));
    }
    Ok(AccessControl { owner, list })
}

async fn user(gateway: &Gateway, found: Plan<Stored<UserRecord>>) -> S3Result<Option<Owner>> {
    match gateway.read(found).await {
        Ok(stored) => {
            let UserInfo { id, display_name, .. } = stored.value.info;
            Ok(Some(Owner { id, display_name }))
        }
        Err(Error::NoSuchUser) => Ok(None),
        Err(e) => Err(errors::of(e)),
    }
}

/// As the answer to a request for a list has it. Source: RGWAccessControlPolicy_S3::to_xml.
pub fn document(acl: &AccessControl) -> Response<Body> {
    const ROOT: &str = "AccessControlPolicy";
    let mut document = Document::new(ROOT);
    if !acl.owner.id.id.is_empty() {
        document.open("Owner");
        person(&mut document, &acl.owner.id, &acl.owner.display_name);
        document.close("Owner");
    }
    document.open("AccessControlList");
    acl.list.grants().for_each(|grant| one(&mut document, grant));
    document.close("AccessControlList");
    document.done(ROOT)
}

fn person(document: &mut Document, id: &UserId, name: &Bytes) {
    document.text("ID", id.to_text());
    if !name.is_empty() {
        document.text("DisplayName", name);
    }
}

fn one(document: &mut Document, grant: &Grant) {
    let Permissions(bits) = grant.permissions;
    let full = Permissions::FULL_CONTROL.0;
    let is_full = bits & full == full;
    let named = NAMES.iter().filter(|(_, p)| bits & p.0 == p.0 && (p.0 == full) == is_full);
    let (kind, uri) = match (grant.to, grant.group) {
        (Grantee::USER, _) => ("CanonicalUser", ""),
        (Grantee::EMAIL, _) => ("AmazonCustomerByEmail", ""),
        (Grantee::GROUP, Grant::ALL_USERS) => ("Group", ALL_USERS),
        (Grantee::GROUP, Grant::AUTHENTICATED_USERS) => ("Group", AUTHENTICATED),
        _ => return,
    };
    if bits & full == 0 {
        return;
    }
    document.open("Grant");
    let space = "http://www.w3.org/2001/XMLSchema-instance";
    document.raw(&format!("<Grantee xmlns:xsi=\"{space}\" xsi:type=\"{kind}\">"));
    match kind {
        "CanonicalUser" => person(document, &grant.id, &grant.name),
        "Group" => document.text("URI", uri),
        _ => document.text("EmailAddress", &grant.email),
    }
    document.close("Grantee");
    named.for_each(|(name, _)| document.text("Permission", name));
    document.close("Grant");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: S3Result<T>) -> String {
        result.err().map(|e| e.code().as_str().to_owned()).unwrap_or_default()
    }

    const SPACE: &str = "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"";

    fn text(grants: &str) -> String {
        format!(
            "<AccessControlPolicy><Owner><ID>u</ID></Owner><AccessControlList>{grants}</AccessControlList>\
             </AccessControlPolicy>"
        )
    }

    fn to(kind: &str, inner: &str, permission: &str) -> String {
        format!(
            "<Grant><Grantee {SPACE} xsi:type=\"{kind}\">{inner}</Grantee>\
             <Permission>{permission}</Permission></Grant>"
        )
    }

    #[test]
    fn documents_name_users_groups_and_addresses() {
        let grants = [
            to("CanonicalUser", "<ID>t$v</ID><DisplayName>ignored</DisplayName>", "FULL_CONTROL"),
            to("Group", &format!("<URI>{ALL_USERS}</URI>"), "READ"),
            to("AmazonCustomerByEmail", "<EmailAddress>a@b</EmailAddress>", "write_acp"),
        ];
        let acl = of_document(text(&grants.concat()).as_bytes()).unwrap();
        assert_eq!(acl.owner.id, UserId::plain("u"));
        let mut want = AccessList::default();
        want.add(Grant::to_user(UserId::from_text(&"t$v".into()), Bytes::new(), Permissions::FULL_CONTROL));
        want.add(Grant::to_group(Grant::ALL_USERS, Permissions::READ));
        want.add(to_email("a@b", Permissions::WRITE_ACL));
        assert_eq!(acl.list, want);
    }

    #[test]
    fn documents_that_say_too_little_or_too_much_are_refused() {
        let user = |permission| to("CanonicalUser", "<ID>v</ID>", permission);
        for wrong in [
            String::new(),
            "<AccessControlPolicy/>".to_owned(),
            text(&user("EVERYTHING")),
            text(&to("CanonicalUser", "", "READ")),
            text(&to("Group", "<URI>x</URI>", "READ")),
            text(&to("Unknown", "<ID>v</ID>", "READ")),
            text("<Grant/>"),
        ] {
            assert_eq!(code(of_document(wrong.as_bytes())), "InvalidArgument", "{wrong}");
        }
        assert_eq!(code(of_document(text(&user("READ").repeat(100)).as_bytes())), "");
        assert_eq!(code(of_document(text(&user("READ").repeat(101)).as_bytes())), "LimitExceeded");
    }

    #[test]
    fn headers_grant_to_many() {
        let of = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            of_grant_headers(&headers)
        };
        let got = of("x-amz-grant-read", &format!("id=\"v\", emailAddress=a@b,uri={ALL_USERS}")).unwrap();
        assert_eq!(got[0], Grant::to_user(UserId::plain("v"), Bytes::new(), Permissions::READ));
        assert_eq!(got[1], to_email("a@b", Permissions::READ));
        assert_eq!(got[2], Grant::to_group(Grant::ALL_USERS, Permissions::READ));
        for wrong in ["v", "name=v", "uri=x"] {
            assert_eq!(code(of("x-amz-grant-write", wrong)), "InvalidArgument", "{wrong}");
        }
        assert_eq!(code(of("x-amz-grant-write", &"id=v,".repeat(101))), "LimitExceeded");
    }

    #[test]
    fn lists_are_shown_as_radosgw_shows_them() {
        let owner = Owner { id: UserId::plain("u"), display_name: "U <1>".into() };
        let mut acl = AccessControl::private(owner);
        acl.list.add(Grant::to_group(Grant::ALL_USERS, Permissions(3)));
        acl.list.add(Grant::to_group(Grant::ALL_USERS, Permissions(0x10)));
        let mut document = Document::new("AccessControlPolicy");
        acl.list.grants().for_each(|grant| one(&mut document, grant));
        let person = "<ID>u</ID><DisplayName>U &lt;1&gt;</DisplayName>";
        let group = format!("<URI>{ALL_USERS}</URI>");
        let want = to("Group", &group, "READ</Permission><Permission>WRITE")
            + &to("CanonicalUser", person, "FULL_CONTROL");
        let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><AccessControlPolicy \
                    xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
        assert_eq!(
            format!("{document:?}"),
            format!("{:?}", {
                let mut same = Document::new("AccessControlPolicy");
                same.raw(&want);
                same
            })
        );
        assert!(format!("{document:?}").contains(&format!("{head:?}").trim_matches('"').to_owned()));
    }
}
