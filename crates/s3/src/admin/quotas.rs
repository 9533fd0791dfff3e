//! Quotas of users, of their buckets, and of one bucket. Source: RGWOp_Quota_Set in
//! src/rgw/rgw_rest_user.cc, RGWOp_Set_Bucket_Quota in src/rgw/rgw_rest_bucket.cc.

use bytes::Bytes;
use rgw::Quota;
use s3s::{S3Result, s3_error};
use serde_json::{Value, json};

use super::args::Args;
use super::{buckets, errors, shown, users};
use crate::state::{Gateway, now};

/// Which of a user's quotas are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Both,
    User,
    Bucket,
}

fn which(args: &Args) -> S3Result<Which> {
    match args.get("quota-type").unwrap_or_default() {
        "" => Ok(Which::Both),
        "user" => Ok(Which::User),
        "bucket" => Ok(Which::Bucket),
        _ => Err(s3_error!(InvalidArgument, "quota-type is user or bucket")),
    }
}

/// What a request says of a quota; what it leaves out stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Said {
    max_size: Option<i64>,
    max_objects: Option<i64>,
    enabled: Option<bool>,
}

impl Said {
    fn in_query(args: &Args) -> S3Result<Self> {
        let kb = args.number::<i64>("max-size-kb")?;
        let kb = kb.map(|kb| if kb < 0 { -1 } else { kb.saturating_mul(1024) });
        Ok(Self {
            max_size: kb.or(args.number("max-size")?),
            max_objects: args.number("max-objects")?,
            enabled: args.flag("enabled")?,
        })
    }

    /// A document says all: what it leaves out has no bound. Source: RGWQuotaInfo::decode_json in
    /// src/rgw/rgw_quota.cc.
    fn in_document(value: &Value) -> S3Result<Self> {
        let number = |name: &str| match value.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(number) => {
                let wrong = || s3_error!(InvalidArgument, "{name} is a number");
                let text = number.as_str().and_then(|text| text.parse().ok());
                number.as_i64().or(text).map(Some).ok_or_else(wrong)
            }
        };
        if !value.is_object() {
            return Err(s3_error!(InvalidArgument, "a quota is an object"));
        }
        let kb = number("max_size_kb")?.map(|kb| if kb < 0 { -1 } else { kb.saturating_mul(1024) });
        let size = number("max_size")?.or(kb).unwrap_or(-1);
        let objects = number("max_objects")?.unwrap_or(-1);
        let enabled = value.get("enabled").and_then(Value::as_bool).unwrap_or_default();
        Ok(Self { max_size: Some(size), max_objects: Some(objects), enabled: Some(enabled) })
    }

    fn apply(self, quota: &mut Quota) {
        quota.max_size = self.max_size.unwrap_or(quota.max_size);
        quota.max_objects = self.max_objects.unwrap_or(quota.max_objects);
        quota.enabled = self.enabled.unwrap_or(quota.enabled);
    }
}

fn read(document: &Bytes) -> S3Result<Option<Value>> {
    if document.is_empty() {
        return Ok(None);
    }
    let read = serde_json::from_slice(document);
    read.map(Some).map_err(|_| s3_error!(InvalidArgument, "the document is no JSON"))
}

pub async fn of_user(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let which = which(args)?;
    let info = users::of_id(gateway, &args.user()?).await?;
    let (bucket, user) = (shown::quota(&info.bucket_quota), shown::quota(&info.user_quota));
    Ok(Some(match which {
        Which::Both => json!({ "bucket_quota": bucket, "user_quota": user }),
        Which::User => user,
        Which::Bucket => bucket,
    }))
}

/// What a request sets of a user's quota and of that of its buckets.
fn said(args: &Args, document: &Bytes) -> S3Result<[Option<Said>; 2]> {
    let document = read(document)?;
    match (which(args)?, document) {
        (Which::Both, None) => Err(s3_error!(InvalidArgument, "quota-type is missing")),
        (Which::Both, Some(both)) => {
            let of = |name: &str| both.get(name).map(Said::in_document).transpose();
            Ok([of("user_quota")?, of("bucket_quota")?])
        }
        (which, document) => {
            let said = document.map_or_else(|| Said::in_query(args), |one| Said::in_document(&one))?;
            Ok(if which == Which::User { [Some(said), None] } else { [None, Some(said)] })
        }
    }
}

pub async fn set_of_user(gateway: &Gateway, args: &Args, document: &Bytes) -> S3Result<Option<Value>> {
    let [user, bucket] = said(args, document)?;
    users::change(gateway, &args.user()?, move |info| {
        user.iter().for_each(|said| said.apply(&mut info.user_quota));
        bucket.iter().for_each(|said| said.apply(&mut info.bucket_quota));
        Ok(())
    })
    .await?;
    Ok(None)
}

pub async fn set_of_bucket(gateway: &Gateway, args: &Args, document: &Bytes) -> S3Result<Option<Value>> {
    let (user, name) = (args.user()?, args.wanted("bucket")?);
    let said = match read(document)? {
        Some(one) => Said::in_document(&one)?,
        None => Said::in_query(args)?,
    };
    let bucket = buckets::of_name(gateway, &user.tenant, &name).await?.instance.value;
    if bucket.owner != user {
        return Err(s3_error!(InvalidArgument, "the bucket is not that user's"));
    }
    let set = move |info: &mut rgw::BucketInfo, _: &mut std::collections::BTreeMap<Bytes, Bytes>| {
        said.apply(&mut info.quota);
    };
    gateway.run(gateway.site().change_bucket(&bucket.bucket, now(), set)).await.map_err(errors::of)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(query: &str, document: &str) -> S3Result<[Option<Said>; 2]> {
        said(&Args::of(query).unwrap(), &Bytes::copy_from_slice(document.as_bytes()))
    }

    #[test]
    fn quotas_are_set_by_queries_and_by_documents() {
        let old = Quota { max_size: 7, max_objects: 8, enabled: true, on_raw: true };
        let applied = |said: Option<Said>| {
            let mut quota = old;
            said.iter().for_each(|said| said.apply(&mut quota));
            (quota.max_size, quota.max_objects, quota.enabled)
        };
        let [user, bucket] = set("quota-type=user&max-size-kb=2&enabled=false", "").unwrap();
        assert_eq!((applied(user), bucket), ((2048, 8, false), None));
        let [user, bucket] = set("quota-type=bucket", r#"{"max_objects":3,"enabled":true}"#).unwrap();
        assert_eq!((user, applied(bucket)), (None, (-1, 3, true)));
        let both = r#"{"user_quota":{"max_size_kb":-1},"bucket_quota":{"max_size":"5"}}"#;
        let [user, bucket] = set("", both).unwrap();
        assert_eq!((applied(user), applied(bucket)), ((-1, -1, false), (5, -1, false)));
        for (query, document) in [
            ("", ""),
            ("quota-type=cat", "{}"),
            ("quota-type=user", "[]"),
            ("quota-type=user", "{"),
            ("quota-type=user&max-objects=x", ""),
            ("quota-type=user", r#"{"max_size":[]}"#),
        ] {
            assert!(set(query, document).is_err(), "{query} {document}");
        }
    }
}
