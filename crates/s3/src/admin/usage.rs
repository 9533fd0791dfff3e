//! What users did, as gateways logged it. Source: RGWUsage in src/rgw/rgw_usage.cc.

use std::collections::{BTreeMap, BTreeSet};

use classes::client::usage::{ReadArgs, TrimArgs};
use rgw::{Usage, UsageEntry};
use s3s::{S3Result, s3_error};
use serde_json::{Value, json};

use super::args::Args;
use super::errors;
use super::shown::text;
use crate::state::Gateway;

/// Entries in one answer.
const MAX_ENTRIES: usize = 100_000;

/// A time as `2026-01-31`, with a time of day behind a space or not. Source: RESTArgs::get_epoch.
pub fn epoch(args: &Args, name: &str) -> S3Result<Option<u64>> {
    let Some(text) = args.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let (day, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let whole = format!("{day}T{}Z", time.trim_end_matches('Z'));
    let read = whole.parse::<jiff::Timestamp>();
    let time = read.map_err(|_| s3_error!(InvalidArgument, "{name} is a day, and a time of day"))?;
    Ok(Some(u64::try_from(time.as_second()).unwrap_or_default()))
}

/// Whose entries of what time are meant.
fn range(args: &Args) -> S3Result<ReadArgs> {
    Ok(ReadArgs {
        start: epoch(args, "start")?.unwrap_or_default(),
        end: epoch(args, "end")?.unwrap_or(u64::MAX),
        user: args.text("uid").unwrap_or_default(),
        bucket: args.text("bucket").unwrap_or_default(),
        ..ReadArgs::default()
    })
}

fn figures(usage: &Usage) -> Value {
    json!({
        "bytes_sent": usage.sent,
        "bytes_received": usage.received,
        "ops": usage.ops,
        "successful_ops": usage.successful_ops,
    })
}

/// Figures by category, of those that are asked for; none asked for are all.
fn categories(entry: &UsageEntry, wanted: &BTreeSet<String>) -> (Value, Usage) {
    let (mut shown, mut total) = (Vec::new(), Usage::default());
    for (name, usage) in &entry.by_category {
        let name = text(name);
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let mut one = json!({ "category": name });
        if let (Some(fields), Value::Object(more)) = (one.as_object_mut(), figures(usage)) {
            fields.extend(more);
        }
        total.sent = total.sent.wrapping_add(usage.sent);
        total.received = total.received.wrapping_add(usage.received);
        total.ops = total.ops.wrapping_add(usage.ops);
        total.successful_ops = total.successful_ops.wrapping_add(usage.successful_ops);
        shown.push(one);
    }
    (shown.into(), total)
}

fn told(entries: &[(String, UsageEntry)], wanted: &BTreeSet<String>, [each, sums]: [bool; 2]) -> Value {
    let mut by_user: BTreeMap<&str, (Vec<Value>, UsageEntry)> = BTreeMap::new();
    for (user, entry) in entries {
        let (buckets, sum) = by_user.entry(user).or_default();
        let (owner, payer) = (text(&entry.owner.to_text()), text(&entry.payer.to_text()));
        let at = types::RealTime(types::Utime::new(u32::try_from(entry.epoch).unwrap_or(u32::MAX), 0));
        let mut bucket = json!({
            "bucket": text(&entry.bucket),
            "time": rgw::iso_8601::text(at, 6),
            "epoch": entry.epoch,
            "owner": owner,
        });
        if let Some(fields) = bucket.as_object_mut() {
            if !payer.is_empty() && payer != owner {
                fields.insert("payer".to_owned(), payer.into());
            }
            fields.insert("categories".to_owned(), categories(entry, wanted).0);
        }
        buckets.push(bucket);
        sum.aggregate(entry);
    }
    let mut answer = serde_json::Map::new();
    if each {
        let of =
            |(user, (buckets, _)): (&&str, &(Vec<Value>, _))| json!({ "user": user, "buckets": buckets });
        answer.insert("entries".to_owned(), by_user.iter().map(of).collect());
    }
    if sums {
        let of = |(user, (_, sum)): (&&str, &(_, UsageEntry))| {
            let (categories, total) = categories(sum, wanted);
            json!({ "user": user, "categories": categories, "total": figures(&total) })
        };
        answer.insert("summary".to_owned(), by_user.iter().map(of).collect());
    }
    answer.into()
}

/// What a user did, or everybody where none is named, and in whose name each entry is.
pub async fn read(gateway: &Gateway, range: &ReadArgs) -> S3Result<Vec<(String, UsageEntry)>> {
    let mut entries: Vec<(String, UsageEntry)> = Vec::new();
    for shard in gateway.site().usage_shards(&range.user) {
        let mut next = range.clone();
        loop {
            let page = gateway.read(gateway.site().usage(&shard, &next)).await.map_err(errors::of)?;
            let Some(page) = page else { break };
            entries.extend(page.usage.into_iter().map(|(of, entry)| (text(&of.user), entry)));
            if entries.len() > MAX_ENTRIES {
                return Err(s3_error!(InvalidArgument, "too many entries: ask for less time"));
            }
            if !page.truncated || page.next_marker == next.marker {
                break;
            }
            next.marker = page.next_marker;
        }
    }
    Ok(entries)
}

pub async fn show(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let range = range(args)?;
    let flags = [args.flag("show-entries")?.unwrap_or(true), args.flag("show-summary")?.unwrap_or(true)];
    let wanted = args.get("categories").unwrap_or_default().split(',').filter(|name| !name.is_empty());
    let wanted = wanted.map(str::to_owned).collect();
    Ok(Some(told(&read(gateway, &range).await?, &wanted, flags)))
}

pub async fn trim(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let range = range(args)?;
    let all = range.user.is_empty() && range.start == 0 && range.end == u64::MAX;
    if all && args.flag("remove-all")? != Some(true) {
        return Err(s3_error!(InvalidArgument, "everything goes with remove-all alone"));
    }
    for shard in gateway.site().usage_shards(&range.user) {
        let ReadArgs { start, end, user, bucket, .. } = range.clone();
        let trim = TrimArgs { start, end, user, bucket };
        gateway.run(gateway.site().trim_usage(&shard, &trim)).await.map_err(errors::of)?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use rgw::UserId;

    use super::*;

    #[test]
    fn times_are_days_with_or_without_a_time() {
        let epoch = |text: &str| epoch(&Args::of(&format!("start={text}")).unwrap(), "start").ok().flatten();
        assert_eq!(epoch("1970-01-02"), Some(86_400));
        assert_eq!(epoch("1970-01-02+01:00:00"), Some(90_000));
        assert_eq!((epoch(""), epoch("yesterday")), (None, None));
    }

    #[test]
    fn figures_are_summed_by_user_and_category() {
        let entry = |bucket: &'static str, name: &'static str, ops: u64| {
            let usage = Usage { sent: 10, received: 1, ops, successful_ops: ops };
            UsageEntry {
                owner: UserId::plain("u"),
                bucket: bucket.into(),
                epoch: 3600,
                total: usage,
                by_category: BTreeMap::from([(name.into(), usage)]),
                ..UsageEntry::default()
            }
        };
        let entries =
            [("u".to_owned(), entry("a", "get_obj", 2)), ("u".to_owned(), entry("b", "put_obj", 3))];
        let all = told(&entries, &BTreeSet::new(), [true, true]);
        assert_eq!(all["entries"][0]["buckets"].as_array().unwrap().len(), 2);
        assert_eq!(all["summary"][0]["total"]["ops"], 5);
        assert_eq!(all["entries"][0]["buckets"][0]["time"], "1970-01-01T01:00:00.000000Z");
        let gets = told(&entries, &BTreeSet::from(["get_obj".to_owned()]), [false, true]);
        assert_eq!((gets["summary"][0]["total"]["ops"].as_u64(), gets.get("entries")), (Some(2), None));
    }
}
