//! Objects that go to another storage class in a cluster in memory: whole, in one class, whatever happens.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rgw::{Pool, StorageClass};

use super::seal_tests::{begin_sealed, part_sealed, put_sealed, seal};
use super::tests::{DATA, MIB, copy_to, finish, stats, step};
use super::upload_tests::{begin, complete, part};
use super::versions_tests::{ENABLED, SUSPENDED, bucket, remover, version, with_flags};
use super::*;
use crate::cluster::{self, Cluster, Lost, NOW, run};
use crate::lifecycle::Seen;
use crate::{Op, Plan, Request};

const COLD: &str = "default.rgw.cold.data";

/// A ramp of bytes, which is made once.
fn ramp(len: usize) -> &'static [u8] {
    static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| super::tests::ramp(10 * MIB));
    &ALL[..len]
}

/// A zone with another storage class, in a pool of its own, and one in the standard one's.
fn site() -> Site {
    let site = cluster::site();
    let mut zone = rgw::Zone::clone(&site.zone);
    let pools = zone.placement.values_mut().next().unwrap();
    let class = |data| StorageClass { data, compression: None };
    pools.classes.insert("COLD".into(), class(Some(Pool::new(COLD, ""))));
    pools.classes.insert("NEAR".into(), class(Some(Pool::new(DATA, ""))));
    Site { zone: zone.into(), ..site }
}

fn put_at(c: &mut Cluster, b: &SharedBucket, key: &str, data: &[u8], now: RealTime) {
    let (number, key) = (c.done.len() as u64, Key::plain(key.as_bytes().to_vec()));
    let (data, finish) = (Bytes::copy_from_slice(data), Finish { now, ..finish(Condition::Any) });
    run(c, |moment| {
        let upload = site().put(b, key, Bytes::new(), number, moment).unwrap();
        upload.write(data).and_then(|upload| upload.finish(finish))
    })
    .unwrap();
}

fn put(c: &mut Cluster, b: &SharedBucket, key: &str, data: &[u8]) {
    put_at(c, b, key, data, NOW);
}

fn remove(c: &mut Cluster, b: &SharedBucket, key: Key) {
    run(c, |moment| site().remove_version(b, key, &remover(), moment)).unwrap();
}

/// What a list shows.
fn seen(c: &mut Cluster, b: &SharedBucket) -> Vec<Seen> {
    let versions = b.flags.has(rgw::Versioning::VERSIONED);
    let page = site().list(b, Listing { max: 100, versions, ..Listing::default() }).run(c).unwrap();
    let objects = page.objects.into_iter().map(|(key, meta)| (key, meta, true, false));
    let versions = page.versions.into_iter().map(|v| (v.key, v.meta, v.is_latest, v.is_marker));
    let of = |(key, meta, is_latest, is_marker)| Seen {
        key,
        meta,
        is_latest,
        is_marker,
        newer: None,
        is_last: false,
    };
    objects.chain(versions).map(of).collect()
}

fn plan(c: &Cluster, b: &SharedBucket, seen: &Seen, class: &'static str) -> Plan<bool> {
    let mut entropy = types::SeededEntropy(c.done.len() as u64 + 77);
    let moment = &mut crate::Moment { now: later(), entropy: &mut entropy };
    site().transition(b, (&class.into(), seen), &BTreeMap::new(), moment)
}

fn later() -> RealTime {
    RealTime(types::Utime { sec: NOW.0.sec + 1000, nsec: 0 })
}

fn move_to(c: &mut Cluster, b: &SharedBucket, seen: &Seen, class: &'static str) -> Result<bool, Error> {
    plan(c, b, seen, class).run(c)
}

/// The classes that a list shows, in its order.
fn classes(c: &mut Cluster, b: &SharedBucket) -> Vec<Bytes> {
    seen(c, b).into_iter().map(|seen| seen.meta.storage_class).collect()
}

fn get(c: &mut Cluster, b: &SharedBucket, key: Key) -> Result<Bytes, Error> {
    run(c, |m| site().open(b, &key, 1024, m))?.read(0, u64::MAX).run(c)
}

fn head(c: &mut Cluster, b: &SharedBucket, key: &Key) -> Head {
    site().head(b, key, 0).run(c).unwrap().unwrap()
}

/// All that stays of a head that moves.
fn kept(head: &Head) -> (Attrs, RealTime, u64) {
    let goes = [attr::ID_TAG, attr::TAIL_TAG, attr::MANIFEST, attr::STORAGE_CLASS];
    let mut attrs = head.attrs.clone();
    attrs.retain(|name, _| !goes.contains(&&name[..]));
    (attrs, head.modified, head.size())
}

/// Names of tails that lie in both pools.
fn tails(c: &Cluster) -> [usize; 2] {
    let is_tail = |name: &&String| name.contains("__shadow") || name.contains("__multipart");
    [DATA, COLD].map(|pool| c.names(pool).iter().filter(is_tail).count())
}

/// Does what garbage collection does, in both pools.
fn collect(c: &mut Cluster) {
    c.pass(2 * 3600 + 1);
    for shard in 0..crate::GARBAGE_SHARDS {
        site().sweep_garbage(shard).run(c).unwrap();
    }
}

#[test]
fn an_object_goes_there_and_back() {
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), 0);
    for (key, len) in
        [("empty", 0), ("small", 5), ("head", 4 * MIB), ("over", 4 * MIB + 1), ("large", 9 * MIB + 11)]
    {
        let data = ramp(len);
        put(&mut c, &b, key, data);
        let (before, counted) = (kept(&head(&mut c, &b, &Key::plain(key))), stats(&mut c, &b));
        for (class, in_head, tails_then) in [
            ("COLD", 0, [0, len.div_ceil(4 * MIB)]),
            ("NEAR", len.min(4 * MIB), [len.saturating_sub(4 * MIB).div_ceil(4 * MIB), 0]),
            ("COLD", 0, [0, len.div_ceil(4 * MIB)]),
            ("STANDARD", len.min(4 * MIB), [len.saturating_sub(4 * MIB).div_ceil(4 * MIB), 0]),
        ] {
            let [was] = &seen(&mut c, &b)[..] else { panic!() };
            assert_eq!(move_to(&mut c, &b, was, class), Ok(true), "{key} {class}");
            collect(&mut c);
            assert!(get(&mut c, &b, Key::plain(key)).unwrap() == data, "{key} {class}");
            let there = head(&mut c, &b, &Key::plain(key));
            assert_eq!((kept(&there), there.head_size), (before.clone(), in_head as u64), "{key} {class}");
            assert_eq!(tails(&c), tails_then, "{key} {class}");
            let shown = if class == "STANDARD" { "" } else { class };
            assert_eq!(classes(&mut c, &b), [shown], "{key}");
            assert_eq!(there.attrs.get(attr::STORAGE_CLASS).map_or(&b""[..], |v| v), shown.as_bytes());
            assert_eq!(stats(&mut c, &b), counted);
            let [now] = &seen(&mut c, &b)[..] else { panic!() };
            assert_eq!((now.meta.mtime, &now.meta.etag[..]), (was.meta.mtime, &b"etag"[..]));
        }
        remove(&mut c, &b, Key::plain(key));
        collect(&mut c);
        assert_eq!((tails(&c), c.names(DATA).len()), ([0, 0], 0), "{key}");
    }
}

#[test]
fn an_upload_keeps_its_parts() {
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), 0);
    let upload = begin(&mut c, &b, "k");
    let datas = [ramp(9 * MIB), ramp(9 * MIB), ramp(17)];
    for (number, data) in [2, 3, 5].into_iter().zip(&datas) {
        part(&mut c, &b, &upload, number, data, "p").unwrap();
    }
    complete(&mut c, &b, &upload, &[(2, "p"), (3, "p"), (5, "p")]).unwrap();
    let opened = |c: &mut Cluster| run(c, |m| site().open(&b, &Key::plain("k"), 0, m)).unwrap();
    let of_parts = opened(&mut c).part_attrs(&[2, 3, 5]).run(&mut c).unwrap();
    assert!(of_parts.iter().all(|attrs| attrs.contains_key(attr::ETAG)));
    let before = kept(&opened(&mut c).head);
    let was = seen(&mut c, &b).remove(0);
    assert_eq!(move_to(&mut c, &b, &was, "COLD"), Ok(true));
    collect(&mut c);
    assert_eq!(tails(&c), [0, 7]);
    let there = opened(&mut c);
    assert_eq!(there.head.manifest.as_ref().unwrap().parts(), Some(3));
    assert_eq!((there.part_attrs(&[2, 3, 5]).run(&mut c).unwrap(), kept(&there.head)), (of_parts, before));
    assert!(there.read(0, u64::MAX).run(&mut c).unwrap() == datas.concat());
    remove(&mut c, &b, Key::plain("k"));
    collect(&mut c);
    assert_eq!(tails(&c), [0, 0]);
}

/// Stripes of others may be longer than what is held at a time.
#[test]
fn long_stripes_go_in_pieces() {
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), 0);
    let upload = begin(&mut c, &b, "k");
    let data = ramp(4 * MIB);
    part(&mut c, &b, &upload, 1, data, "p").unwrap();
    complete(&mut c, &b, &upload, &[(1, "p")]).unwrap();
    let head = head(&mut c, &b, &Key::plain("k"));
    let mut manifest = head.manifest.clone().unwrap();
    manifest.rules.values_mut().for_each(|rule| rule.stripe_size = 16 << 20);
    manifest.size = 9 << 20;
    let long = ramp(9 * MIB);
    let object = site().raw(&manifest.stripe_at(0).unwrap().object, &b.placement).unwrap();
    let held = Request::new(object).op(Op::WriteFull(Bytes::from_static(long)));
    Plan::ask(held).run(&mut c).unwrap();
    let request = Request::new(head.object).at(head.modified);
    Plan::ask(request.set_attr(attr::MANIFEST, codec::Encode::to_bytes(&manifest))).run(&mut c).unwrap();
    let was = seen(&mut c, &b).remove(0);
    c.done.clear();
    assert_eq!(move_to(&mut c, &b, &was, "COLD"), Ok(true));
    let longest = c.done.iter().flat_map(|r| &r.ops).map(|op| match op {
        Op::WriteFull(data) | Op::Append(data) => data.len(),
        _ => 0,
    });
    assert_eq!((longest.max(), tails(&c)), (Some(4 * MIB), [1, 1]));
    assert!(get(&mut c, &b, Key::plain("k")).unwrap() == long);
}

#[test]
fn what_is_encrypted_is_deciphered_as_before() {
    let (seal, data) = (seal(), ramp(9 * MIB + 5));
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), 0);
    put_sealed(&mut c, &b, "a", data, seal.clone());
    // In parts, of which each one begins its stream anew.
    let upload = begin_sealed(&mut c, &b, "b", &seal);
    for (number, data) in [(1, &data[..5 * MIB + 3]), (2, &data[5 * MIB + 3..])] {
        part_sealed(&mut c, &b, &upload, number, data, &seal);
    }
    complete(&mut c, &b, &upload, &[(1, "1"), (2, "2")]).unwrap();
    for was in seen(&mut c, &b) {
        assert_eq!(move_to(&mut c, &b, &was, "COLD"), Ok(true));
        collect(&mut c);
        let opened = run(&mut c, |m| site().open(&b, &was.key, 0, m)).unwrap();
        assert_eq!(opened.read(0, 9).run(&mut c), Err(Error::Encrypted));
        let opened = opened.unlocked(seal.cipher.clone());
        assert!(opened.read(0, u64::MAX).run(&mut c).unwrap() == data, "{:?}", was.key);
        let part = opened.read(5 * MIB as u64 + 1, 77).run(&mut c).unwrap();
        assert!(part == data[5 * MIB + 1..][..77], "{:?}", was.key);
    }
    assert_eq!(classes(&mut c, &b), ["COLD", "COLD"]);
}

/// A copy has references of its own to the tail that it shares.
#[test]
fn what_shares_its_tail_leaves_it_to_the_other() {
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), 0);
    let data = ramp(9 * MIB);
    put(&mut c, &b, "a", data);
    let opened = run(&mut c, |m| site().open(&b, &Key::plain("a"), 0, m)).unwrap();
    run(&mut c, |m| site().copy(opened, copy_to(&b, Key::plain("b"), 9), m)).unwrap();
    let was = seen(&mut c, &b).remove(0);
    assert_eq!((move_to(&mut c, &b, &was, "COLD"), tails(&c)), (Ok(true), [2, 3]));
    collect(&mut c);
    assert_eq!((tails(&c), classes(&mut c, &b)), ([2, 3], vec!["COLD".into(), "".into()]));
    for key in ["a", "b"] {
        assert!(get(&mut c, &b, Key::plain(key)).unwrap() == data, "{key}");
    }
}

/// A bucket with three versions of one name: without an id, and with one or, where versions are suspended
/// then, with one and without.
fn with_versions(c: &mut Cluster, flags: u32) -> SharedBucket {
    let b = bucket(c);
    put(c, &with_flags(&b, 0), "k", ramp(5 * MIB));
    put(c, &b, "k", ramp(4 * MIB + 2));
    put(c, &with_flags(&b, flags), "k", ramp(4 * MIB + 1));
    with_flags(&b, flags)
}

#[test]
fn versions_go_one_by_one_and_stay_in_order() {
    for flags in [ENABLED, SUSPENDED] {
        let mut c = Cluster::default();
        let b = with_versions(&mut c, flags);
        let before = seen(&mut c, &b);
        assert_eq!(before.len(), if flags == ENABLED { 3 } else { 2 });
        let all: Vec<Bytes> = before.iter().map(|s| get(&mut c, &b, s.key.clone()).unwrap()).collect();
        let counted = stats(&mut c, &b);
        for at in (0..before.len()).rev() {
            let was = seen(&mut c, &b).remove(at);
            assert_eq!(move_to(&mut c, &b, &was, "COLD"), Ok(true), "{flags} {at}");
            collect(&mut c);
            let then = seen(&mut c, &b);
            let order = |all: &[Seen]| -> Vec<(Key, bool, RealTime)> {
                all.iter().map(|s| (s.key.clone(), s.is_latest, s.meta.mtime)).collect()
            };
            assert_eq!(order(&then), order(&before), "{flags} {at}");
            for (n, seen) in then.iter().enumerate() {
                let class = if n >= at { "COLD" } else { "" };
                assert_eq!(seen.meta.storage_class, class, "{flags} {at} {n}");
                assert!(get(&mut c, &b, seen.key.clone()).unwrap() == all[n], "{flags} {at} {n}");
            }
            assert!(get(&mut c, &b, Key::plain("k")).unwrap() == all[0]);
            assert_eq!(stats(&mut c, &b), counted, "{flags} {at}");
        }
        // The names are what they were: a removal finds the version behind.
        remove(&mut c, &b, version("k", &before[0].key.instance));
        assert!(get(&mut c, &b, Key::plain("k")).unwrap() == all[1]);
        put(&mut c, &b, "k", b"new");
        assert_eq!(get(&mut c, &b, Key::plain("k")).unwrap(), "new");
    }
}

/// One without an id that nobody made a version of yet.
#[test]
fn a_plain_object_goes_where_versions_are_kept_since() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &with_flags(&b, 0), "k", b"plain");
    let was = seen(&mut c, &b).remove(0);
    assert_eq!(move_to(&mut c, &b, &was, "COLD"), Ok(true));
    put(&mut c, &b, "k", b"new");
    assert_eq!(classes(&mut c, &b), ["", "COLD"]);
    assert_eq!(get(&mut c, &b, version("k", &"null".into())).unwrap(), "plain");
}

#[test]
fn what_is_not_what_was_listed_stays() {
    let mut c = Cluster::default();
    let b = with_flags(&bucket(&mut c), 0);
    put(&mut c, &b, "k", b"old");
    let was = seen(&mut c, &b).remove(0);
    let earlier = RealTime(types::Utime { sec: NOW.0.sec - 1, nsec: 0 });
    let old = Seen { meta: rgw::index::Meta { mtime: earlier, ..was.meta.clone() }, ..was.clone() };
    assert_eq!(move_to(&mut c, &b, &old, "COLD"), Ok(false));
    let gone = Seen { key: Key::plain("gone"), ..was.clone() };
    assert_eq!(move_to(&mut c, &b, &gone, "COLD"), Ok(false));
    assert_eq!(move_to(&mut c, &b, &was, "NONE"), Err(Error::NoSuchPlacement));
    let tags = BTreeMap::from([("t".into(), "v".into())]);
    let tagged = run(&mut c, |m| site().transition(&b, (&"COLD".into(), &was), &tags, m));
    assert_eq!((tagged, classes(&mut c, &b)), (Ok(false), vec![Bytes::new()]));
    // A version that is not shown any more goes by another rule; a delete marker by none.
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put(&mut c, &b, "k", b"1");
    let shown = seen(&mut c, &b).remove(0);
    put(&mut c, &b, "k", b"2");
    assert_eq!(move_to(&mut c, &b, &shown, "COLD"), Ok(false));
    remove(&mut c, &b, Key::plain("k"));
    let marker = seen(&mut c, &b).remove(0);
    assert!(marker.is_marker);
    assert_eq!(move_to(&mut c, &b, &marker, "COLD"), Ok(false));
    assert_eq!(tails(&c), [0, 0]);
}

/// Stops after each request. What is there is whole and in one class; the next round ends what was begun.
#[test]
fn a_gateway_that_dies_leaves_the_object_whole_in_one_class() {
    for (flags, at) in [(0, 0), (ENABLED, 0), (ENABLED, 1), (ENABLED, 2), (SUSPENDED, 0), (SUSPENDED, 1)] {
        for left in 0.. {
            let mut c = Cluster::default();
            let b = with_versions(&mut c, if flags == 0 { ENABLED } else { flags });
            let b = if flags == 0 { with_flags(&b, 0) } else { b };
            if flags == 0 {
                put(&mut c, &b, "plain", ramp(5 * MIB));
            }
            let pick = |c: &mut Cluster| {
                let mut all = seen(c, &b);
                if flags == 0 {
                    all.retain(|s| s.key.name == "plain")
                }
                all.remove(at)
            };
            let was = pick(&mut c);
            let data = get(&mut c, &b, was.key.clone()).unwrap();
            let counted = stats(&mut c, &b);
            c.left = Some(left);
            let done = move_to(&mut c, &b, &was, "COLD");
            c.left = None;
            collect(&mut c);
            assert!(get(&mut c, &b, was.key.clone()).unwrap() == data, "{flags} {at} {left}");
            let again = pick(&mut c);
            assert_eq!((&again.key, again.is_latest), (&was.key, was.is_latest), "{flags} {at} {left}");
            if again.meta.storage_class != "COLD" {
                assert_eq!(move_to(&mut c, &b, &again, "COLD"), Ok(true), "{flags} {at} {left}");
            }
            collect(&mut c);
            assert_eq!(pick(&mut c).meta.storage_class, "COLD", "{flags} {at} {left}");
            assert!(get(&mut c, &b, was.key.clone()).unwrap() == data, "{flags} {at} {left}");
            assert_eq!(stats(&mut c, &b), counted, "{flags} {at} {left}");
            if done.is_ok() {
                assert!(left > 6, "{left}");
                break;
            }
        }
    }
}

/// Loses each answer, in time or for ever.
#[test]
fn an_answer_that_is_lost_leaves_the_object_whole() {
    for flags in [0, ENABLED] {
        for is_late in [false, true] {
            for after in 0.. {
                let mut c = Cluster::default();
                let b = with_flags(&bucket(&mut c), flags);
                let data = ramp(9 * MIB);
                put(&mut c, &b, "k", data);
                let was = seen(&mut c, &b).remove(0);
                c.lost = Some(Lost { after, is_late });
                let done = move_to(&mut c, &b, &was, "COLD");
                if c.lost.take().is_some() {
                    assert!(after > 6 && done == Ok(true), "{after} {done:?}");
                    break;
                }
                c.catch_up();
                collect(&mut c);
                assert!(get(&mut c, &b, Key::plain("k")).unwrap() == data, "{flags} {is_late} {after}");
                c.pass(200);
                let again = seen(&mut c, &b).remove(0);
                if again.meta.storage_class != "COLD" {
                    assert_eq!(move_to(&mut c, &b, &again, "COLD"), Ok(true), "{flags} {after}");
                }
                collect(&mut c);
                assert_eq!(classes(&mut c, &b), ["COLD"], "{flags} {is_late} {after}");
                assert!(get(&mut c, &b, Key::plain("k")).unwrap() == data, "{flags} {is_late} {after}");
            }
        }
    }
}

/// Somebody changes the object after each step of its way.
fn check_beside(
    flags: u32,
    change: impl Fn(&mut Cluster, &SharedBucket),
    hold: impl Fn(&mut Cluster, &SharedBucket),
) {
    let mut stayed = 0;
    for steps in 0.. {
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), flags);
        put(&mut c, &b, "k", ramp(9 * MIB));
        let was = seen(&mut c, &b).remove(0);
        let mut planned = plan(&c, &b, &was, "COLD");
        for _ in 0..steps {
            planned = step(planned, &mut c);
        }
        let Plan::Ask(..) = planned else { break };
        change(&mut c, &b);
        stayed += usize::from(planned.run(&mut c) == Ok(false));
        collect(&mut c);
        hold(&mut c, &b);
    }
    assert!(stayed > 3, "{stayed}");
}

#[test]
fn what_is_written_meanwhile_is_not_replaced() {
    check_beside(
        0,
        |c, b| put_at(c, b, "k", b"new", later()),
        |c, b| {
            assert_eq!(get(c, b, Key::plain("k")).unwrap(), "new");
            assert_eq!((tails(c), classes(c, b), stats(c, b)), ([0, 0], vec![Bytes::new()], (1, 3)));
        },
    );
    check_beside(
        0,
        |c, b| remove(c, b, Key::plain("k")),
        |c, b| {
            assert_eq!(get(c, b, Key::plain("k")), Err(Error::NoSuchKey));
            assert_eq!((tails(c), classes(c, b), stats(c, b)), ([0, 0], Vec::new(), (0, 0)));
        },
    );
}

#[test]
fn what_is_said_of_it_meanwhile_stays() {
    const TAGS: &[u8] = b"user.rgw.x-amz-tagging";
    for flags in [0, ENABLED] {
        check_beside(
            flags,
            |c, b| {
                let key = seen(c, b).remove(0).key;
                let key = super::versions::without_null(key);
                let head = head(c, b, &key);
                let tags = vec![(Bytes::from_static(TAGS), Some("tags".into()))];
                run(c, |m| site().set_attrs(b, &key, head, tags, m)).unwrap();
            },
            |c, b| {
                let key = super::versions::without_null(seen(c, b).remove(0).key);
                assert_eq!(head(c, b, &key).attrs.get(TAGS), Some(&"tags".into()));
                assert!(get(c, b, Key::plain("k")).unwrap() == ramp(9 * MIB));
                let [here, cold] = tails(c);
                assert!([here, cold] == [2, 0] || [here, cold] == [0, 3], "{here} {cold}");
            },
        );
    }
}
