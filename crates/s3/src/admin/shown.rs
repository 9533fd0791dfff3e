//! Users, buckets and quotas as radosgw shows them. Source: dump_user_info in src/rgw/rgw_user.cc,
//! bucket_stats in src/rgw/rgw_bucket.cc, RGWQuotaInfo::dump in src/rgw/rgw_quota.cc.

use bytes::Bytes;
use rgw::{AccessControl, Grant, Quota, Subuser, UserBucketEntry, UserInfo, UserKind};
use serde_json::{Value, json};

use super::caps;

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Kilobytes, rounded up. Source: rgw_rounded_kb in src/rgw/rgw_common.h.
pub fn kilobytes(bytes: i64) -> i64 {
    bytes.saturating_add(1023) / 1024
}

pub fn quota(quota: &Quota) -> Value {
    json!({
        "enabled": quota.enabled,
        "check_on_raw": quota.on_raw,
        "max_size": quota.max_size,
        "max_size_kb": kilobytes(quota.max_size),
        "max_objects": quota.max_objects,
    })
}

/// What somebody holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    pub bytes: u64,
    pub rounded: u64,
    pub objects: u64,
}

impl Held {
    pub fn add(&mut self, entry: &UserBucketEntry) {
        self.bytes = self.bytes.saturating_add(entry.size);
        self.rounded = self.rounded.saturating_add(entry.size_rounded);
        self.objects = self.objects.saturating_add(entry.count);
    }

    /// Source: RGWStorageStats::dump in src/rgw/rgw_bucket.cc.
    pub fn to_json(self) -> Value {
        let kb = |bytes: u64| bytes.div_ceil(1024);
        json!({
            "size": self.bytes,
            "size_actual": self.rounded,
            "size_utilized": self.bytes,
            "size_kb": kb(self.bytes),
            "size_kb_actual": kb(self.rounded),
            "size_kb_utilized": kb(self.bytes),
            "num_objects": self.objects,
        })
    }
}

/// Words of a subuser's rights, the widest first. Source: rgw_perms in src/rgw/rgw_user.cc.
const RIGHTS: [(u32, &str); 6] =
    [(15, "full-control"), (3, "read-write"), (1, "read"), (2, "write"), (4, "read-acp"), (8, "write-acp")];

/// Source: perm_to_str in src/rgw/rgw_user.cc.
pub fn rights(mut bits: u32) -> String {
    let mut words = Vec::new();
    for (mask, word) in RIGHTS {
        if bits & mask == mask {
            words.push(word);
            bits &= !mask;
        }
    }
    if words.is_empty() { "<none>".to_owned() } else { words.join(", ") }
}

/// Source: op_type_to_str in src/rgw/rgw_user.cc.
fn kinds(mask: u32) -> String {
    let words = [(1, "read"), (2, "write"), (4, "delete")];
    let words: Vec<_> = words.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, word)| *word).collect();
    if words.is_empty() { "<none>".to_owned() } else { words.join(", ") }
}

fn named(info: &UserInfo, subuser: &Bytes) -> String {
    let id = text(&info.id.to_text());
    if subuser.is_empty() { id } else { format!("{id}:{}", text(subuser)) }
}

/// Keys with which the user's requests are signed.
pub fn keys(info: &UserInfo) -> Value {
    let key = |key: &rgw::AccessKey| {
        json!({
            "user": named(info, &key.subuser),
            "access_key": text(&key.id),
            "secret_key": text(&key.secret),
        })
    };
    info.keys.values().map(key).collect()
}

pub fn swift_keys(info: &UserInfo) -> Value {
    let key = |key: &rgw::AccessKey| json!({ "user": text(&key.id), "secret_key": text(&key.secret) });
    info.swift_keys.values().map(key).collect()
}

pub fn subusers(info: &UserInfo) -> Value {
    let subuser = |s: &Subuser| json!({ "id": named(info, &s.name), "permissions": rights(s.rights) });
    info.subusers.values().map(subuser).collect()
}

/// A flag as a text. Source: encode_json of bool in src/common/ceph_json.cc.
fn flag(flag: u8) -> &'static str {
    if flag == 0 { "false" } else { "true" }
}

pub fn user(info: &UserInfo, held: Option<Held>) -> Value {
    let kind = match info.kind {
        UserKind::RGW => "rgw",
        UserKind::KEYSTONE => "keystone",
        UserKind::LDAP => "ldap",
        _ => "none",
    };
    let texts =
        |list: &mut dyn Iterator<Item = &Bytes>| list.map(|t| Value::from(text(t))).collect::<Value>();
    let url_key = |(number, key): (&i32, &Bytes)| json!({ "key": number, "val": text(key) });
    let mut shown = json!({
        "tenant": text(&info.id.tenant),
        "user_id": text(&info.id.id),
        "display_name": text(&info.display_name),
        "email": text(&info.email),
        "suspended": info.suspended,
        "max_buckets": info.max_buckets,
        "subusers": subusers(info),
        "keys": keys(info),
        "swift_keys": swift_keys(info),
        "caps": caps::to_json(&info.caps),
        "op_mask": kinds(info.op_mask),
        "system": flag(info.system),
        "admin": flag(info.admin),
        "default_placement": text(&info.placement.name),
        "default_storage_class": text(&info.placement.storage_class),
        "placement_tags": texts(&mut info.placement_tags.iter()),
        "bucket_quota": quota(&info.bucket_quota),
        "user_quota": quota(&info.user_quota),
        "temp_url_keys": info.temp_url_keys.iter().map(url_key).collect::<Value>(),
        "type": kind,
        "mfa_ids": texts(&mut info.mfa_ids.iter()),
    });
    if let (Some(held), Some(fields)) = (held, shown.as_object_mut()) {
        fields.insert("stats".to_owned(), held.to_json());
    }
    shown
}

/// Source: RGWAccessControlPolicy::dump in src/rgw/rgw_acl.cc.
pub fn acl(acl: &AccessControl) -> Value {
    let grants: Vec<&Grant> = acl.list.grants().collect();
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for grant in &grants {
        if grant.to == rgw::Grantee::GROUP {
            groups.push(json!({ "group": grant.group, "acl": grant.permissions.0 }));
        } else {
            users.push(json!({ "user": text(&grant.id.to_text()), "acl": grant.permissions.0 }));
        }
    }
    let shown = |grant: &&Grant| {
        let id = text(&grant.id.to_text());
        json!({
            "id": id,
            "grant": {
                "type": { "type": grant.to.0 },
                "id": id,
                "email": text(&grant.email),
                "permission": { "flags": grant.permissions.0 },
                "name": text(&grant.name),
                "group": grant.group,
                "url_spec": text(&grant.referer),
            },
        })
    };
    json!({
        "acl": {
            "acl_user_map": users,
            "acl_group_map": groups,
            "grant_map": grants.iter().map(shown).collect::<Value>(),
        },
        "owner": {
            "id": text(&acl.owner.id.to_text()),
            "display_name": text(&acl.owner.display_name),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_bits_as_in_radosgw() {
        assert_eq!([0, 1, 2, 3, 15].map(rights), ["<none>", "read", "write", "read-write", "full-control"]);
        assert_eq!(
            (kinds(7), kinds(1), kinds(0)),
            ("read, write, delete".into(), "read".into(), "<none>".into())
        );
        assert_eq!((kilobytes(-1), kilobytes(1), kilobytes(1024), kilobytes(1025)), (0, 1, 1, 2));
    }
}
