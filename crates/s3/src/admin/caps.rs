//! Capabilities of users: what each may ask this API, as `users=read;buckets=*`. Source: RGWUserCaps in
//! src/rgw/rgw_common.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use s3s::S3Result;
use serde_json::{Value, json};

use super::args::Args;
use super::{errors, users};
use crate::state::Gateway;

pub const READ: u32 = 1;
pub const WRITE: u32 = 2;
const ALL: u32 = READ | WRITE;

/// What capabilities are about. Source: RGWUserCaps::is_valid_cap_type.
const KINDS: [&str; 14] = [
    "users",
    "buckets",
    "metadata",
    "usage",
    "zone",
    "bilog",
    "mdlog",
    "datalog",
    "roles",
    "user-policy",
    "amz-cache",
    "oidc-provider",
    "info",
    "ratelimit",
];

pub type Caps = BTreeMap<Bytes, u32>;

/// Reads capabilities.
pub fn read(text: &str) -> S3Result<Caps> {
    let mut caps = Caps::new();
    for cap in text.split(';').map(str::trim).filter(|cap| !cap.is_empty()) {
        let (kind, rights) = cap.split_once('=').unwrap_or((cap, ""));
        let kind =
            KINDS.iter().find(|known| **known == kind.trim()).ok_or_else(errors::invalid_capability)?;
        let mut bits = 0;
        for right in rights.split([',', ' ', '|']).filter(|right| !right.is_empty()) {
            bits |= match right {
                "read" => READ,
                "write" => WRITE,
                "*" => ALL,
                _ => return Err(errors::invalid_capability()),
            };
        }
        *caps.entry(Bytes::from_static(kind.as_bytes())).or_default() |= bits;
    }
    Ok(caps)
}

pub fn to_json(caps: &Caps) -> Value {
    let cap = |(kind, bits): (&Bytes, &u32)| {
        let perm = match bits & ALL {
            ALL => "*",
            READ => "read",
            WRITE => "write",
            _ => "<none>",
        };
        json!({ "type": String::from_utf8_lossy(kind), "perm": perm })
    };
    caps.iter().map(cap).collect()
}

async fn change(gateway: &Gateway, args: &Args, adds: bool) -> S3Result<Option<Value>> {
    let caps = read(args.get("user-caps").unwrap_or_default())?;
    if caps.is_empty() {
        return Err(errors::invalid_capability());
    }
    let user = args.user()?;
    let info = users::change(gateway, &user, move |info| {
        for (kind, bits) in &caps {
            let entry = info.caps.entry(kind.clone()).or_default();
            if adds { *entry |= bits } else { *entry &= !bits }
        }
        info.caps.retain(|_, bits| *bits != 0);
        Ok(())
    });
    Ok(Some(to_json(&info.await?.caps)))
}

pub async fn add(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    change(gateway, args, true).await
}

pub async fn remove(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    change(gateway, args, false).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_radosgw_reads_them() {
        let caps = read("users=read; buckets=read, write;usage=*;users=write").unwrap();
        assert_eq!(caps, Caps::from([("users".into(), 3), ("buckets".into(), 3), ("usage".into(), 3)]));
        let shown = to_json(&Caps::from([("usage".into(), READ), ("users".into(), ALL)]));
        assert_eq!(shown.to_string(), r#"[{"type":"usage","perm":"read"},{"type":"users","perm":"*"}]"#);
        for bad in ["cats=read", "users=all", "=read"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
