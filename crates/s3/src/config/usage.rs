//! `GET /?usage`: what a user did, as far as gateways log it, and what its buckets hold. An addition of
//! radosgw's. Source: RGWGetUsage in src/rgw/rgw_op.cc and rgw_rest_s3.cc, as of 16.2.
//!
//! radosgw 16.2 reads the log of a bucket alone and a service has none, so that it never tells an entry; and
//! it tells a bucket's quota of bytes as that of objects, and the reverse. Here the log is read, and each
//! quota has its name.

use std::collections::BTreeMap;

use classes::client::usage::ReadArgs;
use hyper::Response;
use rgw::policy::Action;
use rgw::{Usage, UsageEntry, UserBucketEntry};
use s3s::{Body, S3ErrorCode, S3Result};

use super::Asked;
use crate::admin::args::Args;
use crate::admin::shown::{Held, text};
use crate::admin::{usage, users};
use crate::state::Gateway;
use crate::xml::Document;

const ROOT: &str = "Usage";

/// A sum of a category, or of all.
fn figures(document: &mut Document, usage: &Usage) {
    let rows = [
        ("BytesSent", usage.sent),
        ("BytesReceived", usage.received),
        ("Ops", usage.ops),
        ("SuccessfulOps", usage.successful_ops),
    ];
    rows.iter().for_each(|(name, value)| document.text(name, value.to_string()));
}

fn categories(document: &mut Document, entry: &UsageEntry) {
    document.open("categories");
    for (name, usage) in &entry.by_category {
        document.open("Entry");
        document.text("Category", name);
        figures(document, usage);
        document.close("Entry");
    }
    document.close("categories");
}

fn entries(document: &mut Document, user: &str, entries: &[(String, UsageEntry)]) {
    document.open("Entries");
    if !entries.is_empty() {
        document.open("User");
        document.text("Owner", user);
        document.open("Buckets");
        for (_, entry) in entries {
            document.open("Bucket");
            document.text("Bucket", &entry.bucket);
            let at = types::RealTime(types::Utime::new(u32::try_from(entry.epoch).unwrap_or(u32::MAX), 0));
            document.text("Time", rgw::iso_8601::text(at, 6));
            document.text("Epoch", entry.epoch.to_string());
            categories(document, entry);
            document.close("Bucket");
        }
        document.close("Buckets");
        document.close("User");
    }
    document.close("Entries");
}

fn summary(document: &mut Document, info: &rgw::UserInfo, sum: Option<&UsageEntry>, held: Held) {
    document.open("Summary");
    if let Some(sum) = sum {
        document.open("User");
        document.text("User", info.id.to_text());
        categories(document, sum);
        document.open("Total");
        figures(document, &sum.total);
        document.close("Total");
        document.close("User");
    }
    let rows = [
        ("QuotaMaxBytes", info.user_quota.max_size.to_string()),
        ("QuotaMaxBuckets", info.max_buckets.to_string()),
        ("QuotaMaxObjCount", info.user_quota.max_objects.to_string()),
        ("QuotaMaxBytesPerBucket", info.bucket_quota.max_size.to_string()),
        ("QuotaMaxObjCountPerBucket", info.bucket_quota.max_objects.to_string()),
        ("TotalBytes", held.bytes.to_string()),
        ("TotalBytesRounded", held.rounded.to_string()),
        ("TotalEntries", held.objects.to_string()),
    ];
    rows.iter().for_each(|(name, value)| document.text(name, value));
    document.close("Summary");
}

fn capacity(document: &mut Document, buckets: &[UserBucketEntry]) {
    document.open("CapacityUsed");
    document.open("User");
    document.open("Buckets");
    for entry in buckets {
        document.open("Entry");
        document.text("Bucket", &entry.bucket.name);
        document.text("Bytes", entry.size.to_string());
        document.text("Bytes_Rounded", entry.size_rounded.to_string());
        document.close("Entry");
    }
    document.close("Buckets");
    document.close("User");
    document.close("CapacityUsed");
}

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let caller = asked.caller;
    let info = caller.user().ok_or(S3ErrorCode::AccessDenied)?;
    if !caller.may_by_itself(Action::ListAllMyBuckets, b"*") {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let args = Args::of(&asked.query)?;
    let range = ReadArgs {
        start: usage::epoch(&args, "start-date")?.unwrap_or_default(),
        end: usage::epoch(&args, "end-date")?.unwrap_or(u64::MAX),
        user: info.id.to_text(),
        ..ReadArgs::default()
    };
    let logged = usage::read(gateway, &range).await?;
    let mut sums: BTreeMap<&str, UsageEntry> = BTreeMap::new();
    logged.iter().for_each(|(user, entry)| sums.entry(user).or_default().aggregate(entry));
    let (mut buckets, mut held) = (Vec::new(), Held::default());
    users::each_bucket(gateway, &info.id, |entry| {
        held.add(&entry);
        buckets.push(entry);
    })
    .await?;
    let user = text(&info.id.to_text());
    let mut document = Document::plain(ROOT);
    entries(&mut document, &user, &logged);
    summary(&mut document, info, sums.get(user.as_str()), held);
    capacity(&mut document, &buckets);
    Ok(document.done(ROOT))
}
