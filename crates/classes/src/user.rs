//! Class `user`: a user's buckets and how much they hold in all. Source: src/cls/user/cls_user.cc.

use ::rgw::{UserBucket, UserBucketEntry};
use bytes::Bytes;
use codec::{Encode, wire_struct};
use types::{Errno, RealTime};

use crate::registry::{Class, Done, methods, stored, wire_grown};
use crate::wire::EmptyEnvelope;
use crate::{ObjectView, keys};

pub static CLASS: Class = Class {
    name: "user",
    methods: methods![
        set_buckets_info RD_WR set_buckets_info,
        complete_stats_sync RD_WR complete_stats_sync,
        remove_bucket RD_WR remove_bucket,
        list_buckets RD list_buckets,
        get_header RD get_header,
        reset_user_stats RD_WR reset_user_stats,
        reset_user_stats2 RD_WR reset_user_stats2,
    ],
};

const MAX_ENTRIES: u64 = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub entries: u64,
    pub bytes: u64,
    pub bytes_rounded: u64,
}
wire_struct!(Stats(1, 1) { entries, bytes, bytes_rounded });

impl Stats {
    fn add(&mut self, e: &UserBucketEntry) {
        self.entries = self.entries.wrapping_add(e.count);
        self.bytes = self.bytes.wrapping_add(e.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_add(e.size_rounded);
    }

    fn subtract(&mut self, e: &UserBucketEntry) {
        self.entries = self.entries.wrapping_sub(e.count);
        self.bytes = self.bytes.wrapping_sub(e.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_sub(e.size_rounded);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    pub stats: Stats,
    pub last_sync: RealTime,
    pub last_update: RealTime,
}
wire_struct!(Header(1, 1) { stats, last_sync, last_update });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetArgs {
    pub entries: Vec<UserBucketEntry>,
    /// Otherwise only the sizes of buckets that are there change.
    pub add: bool,
    pub time: RealTime,
}
wire_struct!(SetArgs(1, 1) { entries, add, time });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveArgs {
    pub bucket: UserBucket,
}
wire_struct!(RemoveArgs(1, 1) { bucket });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListArgs {
    pub marker: Bytes,
    pub max: i32,
    pub end: Bytes,
}
wire_grown!(ListArgs(2, 1) { marker, max; 2: end });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<UserBucketEntry>,
    pub marker: Bytes,
    pub more: bool,
}
wire_struct!(ListReply(1, 1) { entries, marker, more });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeArgs {
    pub time: RealTime,
}
wire_struct!(TimeArgs(1, 1) { time });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderReply {
    pub header: Header,
}
wire_struct!(HeaderReply(1, 1) { header });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetArgs {
    pub time: RealTime,
    pub marker: Bytes,
    pub stats: Stats,
}
wire_struct!(ResetArgs(1, 1) { time, marker, stats });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetReply {
    pub marker: Bytes,
    pub stats: Stats,
    pub more: bool,
}
wire_struct!(ResetReply(1, 1) { marker, stats, more });

fn header(v: &mut dyn ObjectView) -> Result<Header, Errno> {
    match v.omap_header()? {
        raw if raw.is_empty() => Ok(Header::default()),
        raw => stored(raw),
    }
}

fn save(v: &mut dyn ObjectView, header: &Header) -> Result<Done, Errno> {
    v.omap_set_header(header.to_bytes())?;
    Ok(Done)
}

fn find(v: &mut dyn ObjectView, bucket: &UserBucket) -> Result<Option<UserBucketEntry>, Errno> {
    if bucket.name.is_empty() { Err(Errno::EINVAL) } else { keys::find(v, &bucket.name) }
}

fn set_buckets_info(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    let mut header = header(v)?;
    for given in args.entries {
        let mut entry = match find(v, &given.bucket)? {
            None if !args.add => continue,
            None => given.clone(),
            Some(mut old) => {
                if args.add {
                    old.bucket.id = given.bucket.id.clone();
                    old.created = given.created;
                }
                old
            }
        };
        if entry.synced {
            header.stats.subtract(&entry);
        }
        if !args.add {
            (entry.size, entry.size_rounded, entry.count) = (given.size, given.size_rounded, given.count);
        }
        entry.synced = true;
        keys::write(v, given.bucket.name, &entry)?;
        header.stats.add(&entry);
    }
    header.last_update = header.last_update.max(args.time);
    save(v, &header)
}

fn complete_stats_sync(v: &mut dyn ObjectView, args: TimeArgs) -> Result<Done, Errno> {
    let mut header = header(v)?;
    header.last_sync = header.last_sync.max(args.time);
    save(v, &header)
}

/// A bucket that is not there is removed already.
fn remove_bucket(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    let mut header = header(v)?;
    let Some(entry) = find(v, &args.bucket)? else { return Ok(Done) };
    v.omap_remove(args.bucket.name)?;
    if !entry.synced {
        return Ok(Done);
    }
    header.stats.subtract(&entry);
    save(v, &header)
}

fn list_buckets(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let max = u64::try_from(args.max).unwrap_or(u64::MAX).min(MAX_ENTRIES);
    let (found, mut more) = v.omap_list(&args.marker, b"", max)?;
    let (mut entries, mut marker) = (Vec::new(), Bytes::new());
    for (key, value) in found {
        marker = key;
        if !args.end.is_empty() && args.end <= marker {
            more = false;
            break;
        }
        // An entry that does not decode is passed over.
        if let Ok(entry) = stored(value) {
            entries.push(entry);
        }
    }
    let marker = if more { marker } else { Bytes::new() };
    Ok(ListReply { entries, marker, more })
}

fn get_header(v: &mut dyn ObjectView, _: EmptyEnvelope) -> Result<HeaderReply, Errno> {
    Ok(HeaderReply { header: header(v)? })
}

/// Adds everything up anew.
fn reset_user_stats(v: &mut dyn ObjectView, args: TimeArgs) -> Result<Done, Errno> {
    let mut header = Header { last_update: args.time, ..Header::default() };
    for (_, value) in keys::list(v, b"", "", u64::MAX)? {
        header.stats.add(&stored(value)?);
    }
    save(v, &header)
}

/// The same in pieces: the caller brings the marker again. As in Ceph, what it brings as sum so far does not count.
fn reset_user_stats2(v: &mut dyn ObjectView, args: ResetArgs) -> Result<ResetReply, Errno> {
    let (found, more) = v.omap_list(&args.marker, b"", MAX_ENTRIES)?;
    let (mut stats, mut marker) = (Stats::default(), Bytes::new());
    for (key, value) in found {
        stats.add(&stored(value)?);
        marker = key;
    }
    if !more {
        let header = Header { stats: stats.clone(), last_update: args.time, ..Header::default() };
        save(v, &header)?;
    }
    Ok(ResetReply { marker, stats, more })
}

#[cfg(test)]
mod tests {
    use codec::Decode;
    use types::Utime;

    use super::*;
    use crate::fake::Fake;

    fn entry(name: &'static str, size: u64) -> UserBucketEntry {
        let bucket = UserBucket { name: name.into(), placement: "default".into(), ..UserBucket::default() };
        UserBucketEntry { bucket, size, size_rounded: 4096, count: 1, ..UserBucketEntry::default() }
    }

    fn stats(f: &mut Fake) -> Stats {
        let input = Header::default().to_bytes(); // any envelope
        let (_, out) = f.call("user", "get_header", input).unwrap();
        HeaderReply::from_bytes(out).unwrap().header.stats
    }

    #[test]
    fn the_header_sums_the_buckets_up() {
        let mut f = Fake::default();
        let set = |entries: Vec<UserBucketEntry>, add| {
            SetArgs { entries, add, time: RealTime(Utime::new(9, 0)) }.to_bytes()
        };
        f.call("user", "set_buckets_info", set(vec![entry("a", 10), entry("b", 20)], true)).unwrap();
        assert_eq!(stats(&mut f), Stats { entries: 2, bytes: 30, bytes_rounded: 8192 });
        f.call("user", "set_buckets_info", set(vec![entry("a", 15), entry("c", 1)], false)).unwrap();
        assert_eq!(stats(&mut f), Stats { entries: 2, bytes: 35, bytes_rounded: 8192 });
        let list = ListArgs { max: 1, ..ListArgs::default() }.to_bytes();
        let (_, out) = f.call("user", "list_buckets", list).unwrap();
        let reply = ListReply::from_bytes(out).unwrap();
        assert_eq!((reply.marker.as_ref(), reply.more, reply.entries[0].size), (&b"a"[..], true, 15));
        let bucket = entry("a", 0).bucket;
        f.call("user", "remove_bucket", RemoveArgs { bucket }.to_bytes()).unwrap();
        f.call("user", "reset_user_stats", TimeArgs { time: RealTime::default() }.to_bytes()).unwrap();
        assert_eq!(stats(&mut f), Stats { entries: 1, bytes: 20, bytes_rounded: 4096 });
    }

    #[test]
    fn buckets_of_both_kinds_come_back() {
        let pools =
            UserBucket { name: "n".into(), data_pool: "d".into(), id: "1".into(), ..UserBucket::default() };
        for bucket in [pools, entry("a", 1).bucket] {
            assert_eq!(UserBucket::from_bytes(bucket.to_bytes()), Ok(bucket));
        }
        assert_eq!(UserBucketEntry::from_bytes(entry("a", 7).to_bytes()), Ok(entry("a", 7)));
    }
}
