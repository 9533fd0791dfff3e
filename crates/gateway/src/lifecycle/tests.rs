//! Rounds along the list, and what goes and what stays.

use rgw::index::Meta;
use rgw::{Expiration, Filter, Rule};
use types::Utime;

use super::*;
use crate::Listing;
use crate::cluster::{Cluster, NOW, run, site};
use crate::objects::versions_tests::{ENABLED, bucket, get, ids, put, remove, versions, with_flags};

const INTERVAL: u32 = 10;

fn at(seconds: u32) -> RealTime {
    RealTime(Utime { sec: NOW.0.sec + seconds, nsec: 0 })
}

fn age(seconds: u32) -> Age {
    Age { now: at(seconds), interval: INTERVAL }
}

fn days(days: &'static str) -> Expiration {
    Expiration { days: days.into(), date: Bytes::new() }
}

fn rule() -> Rule {
    Rule { id: "r".into(), status: "Enabled".into(), ..Rule::default() }
}

fn seen(name: &str, mtime: u32) -> Seen {
    Seen {
        key: Key { instance: "null".into(), ..Key::plain(name.to_owned()) },
        meta: Meta { mtime: at(mtime), ..Meta::default() },
        is_latest: true,
        is_marker: false,
        newer: None,
        is_last: true,
    }
}

fn entries(c: &mut Cluster) -> Vec<(u32, LifecycleEntry)> {
    (0..SHARDS)
        .flat_map(|shard| {
            let args = list::ListArgs { version: LIST_VERSION, marker: Bytes::new(), max: 100 };
            let reply = Plan::ask(Request::new(site().lifecycles(shard)).call(&list::LIST, &args)).run(c);
            let page = reply.map(|r| r.answer(0, &list::LIST).unwrap().entries).unwrap_or_default();
            page.into_iter().map(move |entry| (shard, entry)).collect::<Vec<_>>()
        })
        .collect()
}

/// Where radosgw put the bucket of the captured entry.
#[test]
fn buckets_are_listed_where_radosgw_lists_them() {
    let captured = include_str!("../../../rgw/tests/data/captured.txt");
    let line = captured.lines().find(|line| line.starts_with("lc ")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let hex = words[2];
    let raw: Vec<u8> =
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    let entry = LifecycleEntry::from_bytes(raw).unwrap();
    let mut words = entry.bucket.split(|b| *b == b':').map(Bytes::copy_from_slice);
    let mut word = || words.next().unwrap();
    let bucket = Bucket { tenant: word(), name: word(), marker: word(), ..Bucket::default() };
    assert_eq!(name(&bucket), entry.bucket);
    let shard = shard_of(crush::str_hash_linux(&entry.bucket), SHARDS);
    assert!(line.starts_with(&format!("lc lc.{shard}/")), "{shard}");
}

#[test]
fn a_round_takes_each_bucket_once_and_the_next_one_begins_later() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    run(&mut c, |m| site().list_lifecycle(&b.bucket, true, m)).unwrap();
    let [(shard, listed)] = &entries(&mut c)[..] else { panic!() };
    let shard = *shard;
    assert_eq!(listed.bucket, format!(":b:{}", String::from_utf8_lossy(&b.bucket.marker)));
    let next = |c: &mut Cluster, seconds| site().next_lifecycle(shard, age(seconds)).run(c).unwrap();
    let taken = next(&mut c, 0).unwrap();
    assert_eq!((taken.status, taken.started), (status::UNDER_WAY, u64::from(NOW.0.sec)));
    // Another gateway sees that somebody is at it, until he is taken for dead.
    assert_eq!(next(&mut c, 2 * INTERVAL), None);
    assert!(next(&mut c, 2 * INTERVAL + 1).is_some());
    run(&mut c, |m| site().end_lifecycle(shard, taken.clone(), Outcome::Done, m)).unwrap();
    assert_eq!(entries(&mut c)[0].1.status, status::DONE);
    // The round that began at 21 s is over, and the next one begins ten seconds later.
    assert_eq!(next(&mut c, 30), None);
    let again = next(&mut c, 31).unwrap();
    assert_eq!(again.started, u64::from(NOW.0.sec) + 31);
    run(&mut c, |m| site().end_lifecycle(shard, again, Outcome::Gone, m)).unwrap();
    assert_eq!(entries(&mut c), Vec::new());
    assert_eq!((next(&mut c, 60), next(&mut c, 90)), (None, None));
}

#[test]
fn a_list_that_is_locked_is_left_to_who_holds_it() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    run(&mut c, |m| site().list_lifecycle(&b.bucket, true, m)).unwrap();
    let shard = entries(&mut c)[0].0;
    let turn = site().lifecycle_turn(shard, "other".into());
    // The lock is never given back: it ends by itself.
    let mut held = turn.hold(|| Plan::<()>::failed(Error::Unexpected));
    held = crate::objects::tests::step(held, &mut c);
    assert_eq!(site().next_lifecycle(shard, age(0)).run(&mut c), Ok(None));
    c.left = None;
    drop(held);
    c.pass(LOCK_S + 1);
    assert!(site().next_lifecycle(shard, age(0)).run(&mut c).unwrap().is_some());
}

#[test]
fn rules_are_read_as_radosgw_reads_them() {
    let objects = Action::of(&Rule { expiration: days("2"), prefix: "a/".into(), ..rule() }).unwrap();
    for (name, mtime, now, want) in
        [("a/k", 0, 19, None), ("a/k", 0, 20, Some(Expiry::Shown)), ("a/k", 5, 20, None), ("b", 0, 99, None)]
    {
        assert_eq!(objects.due(age(now), &seen(name, mtime)), want, "{name} {mtime} {now}");
    }
    assert_eq!(Action::of(&Rule { status: "Disabled".into(), ..rule() }), None);
    // In days, from midnight on.
    let midnight = NOW.0.sec / 86_400 * 86_400;
    let daily = |sec| Age { now: RealTime(Utime { sec, nsec: 0 }), interval: 0 };
    let late = Seen { meta: Meta { mtime: daily(midnight + 5).now, ..Meta::default() }, ..seen("a/k", 0) };
    assert_eq!(objects.due(daily(midnight + 3 * 86_400 - 1), &late), None);
    assert_eq!(objects.due(daily(midnight + 3 * 86_400), &late), Some(Expiry::Shown));
    let dated = Expiration { days: Bytes::new(), date: "2023-11-15".into() };
    let dated = Action::of(&Rule { expiration: dated, ..rule() }).unwrap();
    assert_eq!(dated.due(daily(1_700_006_399), &late), None);
    assert_eq!(dated.due(daily(1_700_006_400), &late), Some(Expiry::Shown));
    // What is no number is none, and keeps all.
    for text in ["", "x", "-1", "0", "99999999999"] {
        let none = Action::of(&Rule { expiration: days(text), ..rule() }).unwrap();
        assert_eq!(none.due(age(1_000_000), &seen("k", 0)), None, "{text}");
    }
}

#[test]
fn older_versions_and_markers_have_rules_of_their_own() {
    let older = Seen { is_latest: false, newer: Some(at(10)), ..seen("k", 0) };
    let action = Action::of(&Rule { noncurrent_expiration: days("1"), ..rule() }).unwrap();
    assert_eq!((action.due(age(19), &older), action.due(age(20), &older)), (None, Some(Expiry::Version)));
    assert_eq!(action.due(age(99), &seen("k", 0)), None);
    let marker = Seen { is_marker: true, ..seen("k", 0) };
    let others = Seen { is_last: false, ..marker.clone() };
    let markers = Action::of(&Rule { expires_markers: true, ..rule() }).unwrap();
    for action in [markers, Action::of(&Rule { expiration: days("9"), ..rule() }).unwrap()] {
        assert_eq!((action.due(age(0), &marker), action.due(age(0), &others)), (Some(Expiry::Version), None));
    }
    let upload = Action::of(&Rule { upload_expiration: days("1"), ..rule() }).unwrap();
    assert!(
        !upload.is_of_objects() && upload.ends_upload(age(10), at(0)) && !upload.ends_upload(age(9), at(0))
    );
    // A rule with tags leaves delete markers alone.
    let tags = Tags { tags: [("t".into(), "v".into())].into() };
    let tagged = Rule { filter: Filter { prefix: Bytes::new(), tags }, expiration: days("1"), ..rule() };
    assert_eq!(Action::of(&tagged).unwrap().due(age(99), &marker), None);
}

/// What a list of versions shows of one.
fn listed(c: &mut Cluster, b: &SharedBucket) -> Vec<Seen> {
    let listing = Listing { max: 100, versions: true, ..Listing::default() };
    let page = site().list(b, listing).run(c).unwrap().versions;
    let of = |v: crate::ListedVersion| Seen {
        key: v.key,
        meta: v.meta,
        is_latest: v.is_latest,
        is_marker: v.is_marker,
        newer: None,
        is_last: false,
    };
    page.into_iter().map(of).collect()
}

fn expire(c: &mut Cluster, b: &SharedBucket, expiry: Expiry, seen: &Seen) -> bool {
    run(c, |m| site().expire(b, (expiry, seen), &BTreeMap::new(), m)).unwrap()
}

#[test]
fn what_was_written_since_the_list_stays() {
    for flags in [0, ENABLED] {
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), flags);
        put(&mut c, &b, "k", b"old").unwrap();
        let mut old = listed(&mut c, &b).remove(0);
        match flags {
            0 => old.meta.mtime = RealTime(Utime { sec: NOW.0.sec - 1, nsec: 0 }),
            _ => old.key.instance = "another".into(),
        }
        assert!(!expire(&mut c, &b, Expiry::Shown, &old));
        assert_eq!(get(&mut c, &b, Key::plain("k")).unwrap(), "old");
        if flags == ENABLED {
            // Of a version of which only attributes changed, the list tells the old time.
            let mut earlier = listed(&mut c, &b).remove(0);
            earlier.meta.mtime = RealTime(Utime { sec: NOW.0.sec - 1, nsec: 0 });
            assert!(expire(&mut c, &b, Expiry::Shown, &earlier));
            continue;
        }
        let seen = listed(&mut c, &b).remove(0);
        let wanted = BTreeMap::from([("t".into(), "v".into())]);
        assert!(!run(&mut c, |m| site().expire(&b, (Expiry::Shown, &seen), &wanted, m)).unwrap());
        assert!(expire(&mut c, &b, Expiry::Shown, &seen));
        assert_eq!(get(&mut c, &b, Key::plain("k")), Err(Error::NoSuchKey));
        // What is gone is no failure.
        assert!(!expire(&mut c, &b, Expiry::Shown, &seen));
    }
}

#[test]
fn versions_go_one_by_one_and_the_newest_stays() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &b, "k", b"1").unwrap();
    put(&mut c, &b, "k", b"2").unwrap();
    let [newest, older] = &listed(&mut c, &b)[..] else { panic!() };
    assert!(!expire(&mut c, &b, Expiry::Version, newest));
    assert!(expire(&mut c, &b, Expiry::Version, older));
    assert_eq!(get(&mut c, &b, Key::plain("k")).unwrap(), "2");
    remove(&mut c, &b, Key::plain("k")).unwrap();
    let [marker, data] = &listed(&mut c, &b)[..] else { panic!() };
    assert!(expire(&mut c, &b, Expiry::Version, data));
    assert!(expire(&mut c, &b, Expiry::Version, marker));
    assert_eq!(versions(&mut c, &b, 10), Vec::new());
}

#[test]
fn a_lock_keeps_what_is_due() {
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), ENABLED | rgw::Versioning::OBJECT_LOCK);
    put(&mut c, &b, "k", b"1").unwrap();
    let id = put(&mut c, &b, "k", b"2").unwrap();
    let older = listed(&mut c, &b).remove(1);
    let head = site().head(&b, &older.key, 0).run(&mut c).unwrap().unwrap();
    let hold = codec::Encode::to_bytes(&rgw::LegalHold { status: "ON".into() });
    let change = vec![(Bytes::from("user.rgw.object-legal-hold"), Some(hold))];
    run(&mut c, |m| site().set_attrs(&b, &older.key, head, change, m)).unwrap();
    let older = Seen { meta: Meta { mtime: at(9), ..older.meta.clone() }, ..older };
    assert!(!expire(&mut c, &b, Expiry::Version, &older));
    assert_eq!(ids(&mut c, &b, "k"), [id, older.key.instance.clone()]);
}
