//! Versions without an id, beside those with one, while gateways die, indexes fail and others change the same
//! name: what is acknowledged is there with its bytes, and nothing else is left, in RADOS or in the index.

use std::collections::BTreeSet;

use codec::Decode;
use rgw::index::Entry;
use types::{Entropy, Errno, SeededEntropy};

use super::tests::{DATA, MIB, collect_garbage, copy_to, finish, ramp, stats, step};
use super::versions_tests::*;
use super::*;
use crate::cluster::{Cluster, Lost, NOW, run, site};
use crate::error::BUSY_RESHARDING;
use crate::{Moment, Op, Output, Plan, Request};

fn null() -> Key {
    version("k", &"null".into())
}

/// A bucket whose name `k` has one version with an id; its flags are those of a kind.
fn begun(c: &mut Cluster, flags: u32) -> (SharedBucket, Bytes) {
    let enabled = bucket(c);
    let first = put(c, &enabled, "k", b"first").unwrap();
    (with_flags(&enabled, flags), first)
}

/// All keys of the index, with what they say where that is an entry.
fn index(c: &mut Cluster, b: &SharedBucket) -> Vec<(Bytes, Option<Entry>)> {
    let mut all = Vec::new();
    for shard in site().index_objects(b).unwrap() {
        let list = Request::new(shard).op(Op::OmapList { after: Bytes::new(), max: 1000 });
        let reply = Plan::ask(list).run(c).unwrap();
        let Some(Output::Page { entries, .. }) = reply.outputs.into_iter().next() else { panic!() };
        all.extend(entries.into_iter().map(|(key, raw)| (key, Entry::from_bytes(raw).ok())));
    }
    all
}

/// Removes all versions, and finds that nothing of them is left.
fn remove_all(c: &mut Cluster, b: &SharedBucket, at: &dyn std::fmt::Debug) {
    for (name, id, ..) in versions(c, b, 9) {
        remove(c, b, version(&name, &id)).unwrap();
    }
    let found = get(c, b, Key::plain("k")).map(|data| data.len());
    assert_eq!(found, Err(Error::NoSuchKey), "{at:?} {:?}", index(c, b));
    assert_eq!(versions(c, b, 9), vec![], "{at:?}");
    assert_eq!(stats(c, b), (0, 0), "{at:?} {:?}", index(c, b));
    collect_garbage(c);
}

/// The bucket can be removed, and leaves nothing.
fn remove_bucket(c: &mut Cluster, at: &dyn std::fmt::Debug) {
    let there = site().bucket(&Bytes::new(), &"b".into()).run(c).unwrap();
    let later = RealTime(types::Utime::new(NOW.0.sec + 100_000, 0));
    site().remove_bucket(there, later).run(c).unwrap_or_else(|e| panic!("{at:?}: {e:?}"));
    collect_garbage(c);
    assert_eq!(c.names(DATA), Vec::<String>::new(), "{at:?}");
}

/// What lies in the data pool is what versions are made of, and names.
fn nothing_else(c: &mut Cluster, b: &SharedBucket, at: &dyn std::fmt::Debug) {
    collect_garbage(c);
    let mut held = BTreeSet::new();
    let keys = versions(c, b, 9).into_iter().map(|(name, id, ..)| version(&name, &id));
    for key in keys.chain([Key::plain("k")]) {
        let Some(head) = site().head(b, &key, 0).run(c).unwrap() else { continue };
        let tail = super::put::waste(&site(), &head);
        held.extend(tail.iter().chain([&head.object]).map(|o| String::from_utf8(o.oid.to_vec()).unwrap()));
    }
    assert_eq!(c.names(DATA).into_iter().collect::<BTreeSet<_>>(), held, "{at:?}");
}

#[test]
fn what_cannot_be_shown_keeps_its_bytes() {
    let data = ramp(6 * MIB);
    for flags in [ENABLED, SUSPENDED] {
        for copies in [false, true] {
            let mut c = Cluster::default();
            let (b, first) = begun(&mut c, flags);
            let from = put(&mut c, &with_flags(&b, ENABLED), "from", &data).unwrap();
            c.refuse = Some(("bucket_link_olh", Errno(BUSY_RESHARDING)));
            let done = match copies {
                false => put(&mut c, &b, "k", &data),
                true => copy(&mut c, &b, version("from", &from)).map(|written| written.version),
            };
            assert_eq!(done, Err(Error::Resharding));
            c.refuse = None;
            collect_garbage(&mut c);
            match flags {
                // One with an id goes again, with its bytes.
                ENABLED => assert_eq!(get(&mut c, &b, Key::plain("k")), Ok("first".into())),
                _ => assert!(get(&mut c, &b, null()).unwrap() == data, "{copies}"),
            }
            assert_eq!(get(&mut c, &b, version("k", &first)), Ok("first".into()));
            assert!(get(&mut c, &b, version("from", &from)).unwrap() == data);
            // No list shows it, and whoever names it removes it.
            assert_eq!(remove(&mut c, &b, null()).is_ok(), flags == SUSPENDED);
            remove_all(&mut c, &b, &(flags, copies));
            remove_bucket(&mut c, &(flags, copies));
        }
    }
}

fn copy(c: &mut Cluster, b: &SharedBucket, from: Key) -> Result<Written, Error> {
    let opened = run(c, |m| site().open(b, &from, 0, m))?;
    let to = copy_to(b, Key::plain("k"), 70);
    run(c, |moment| site().copy(opened, to, moment))
}

/// The index has decided: who cannot do what its log says leaves that to whoever reads the name.
#[test]
fn what_is_shown_stays_also_where_its_log_cannot_be_read() {
    for flags in [ENABLED, SUSPENDED] {
        let mut c = Cluster::default();
        let (b, _) = begun(&mut c, flags);
        c.refuse = Some(("bucket_read_olh_log", Errno(BUSY_RESHARDING)));
        let data = ramp(5 * MIB);
        let id = put(&mut c, &b, "k", &data).unwrap();
        c.refuse = None;
        collect_garbage(&mut c);
        assert!(get(&mut c, &b, Key::plain("k")).unwrap() == data);
        assert_eq!(ids(&mut c, &b, "k").first(), Some(&id));
        remove_all(&mut c, &b, &flags);
    }
}

fn begin_upload(c: &mut Cluster, b: &SharedBucket) -> UploadId {
    let upload = super::upload_tests::begin(c, b, "k");
    super::upload_tests::part(c, b, &upload, 1, &ramp(5 * MIB), "a").unwrap();
    super::upload_tests::part(c, b, &upload, 2, b"end", "b").unwrap();
    upload
}

/// Wherever a gateway dies that completes an upload, the next one shows what it made.
#[test]
fn an_upload_becomes_the_version_without_an_id() {
    let whole = [ramp(5 * MIB), b"end".to_vec()].concat();
    let parts = [(1, "a"), (2, "b")];
    for had_one in [false, true] {
        for left in 0.. {
            let mut c = Cluster::default();
            let (b, first) = begun(&mut c, SUSPENDED);
            let mut want = vec![Bytes::from("null"), first];
            if had_one {
                put(&mut c, &b, "k", b"before").unwrap();
                want.insert(1, put(&mut c, &with_flags(&b, ENABLED), "k", b"between").unwrap());
            }
            let upload = begin_upload(&mut c, &b);
            c.left = Some(left);
            let done = super::upload_tests::complete(&mut c, &b, &upload, &parts);
            c.left = None;
            c.pass(700);
            collect_garbage(&mut c);
            for upload in super::upload_tests::uploads(&mut c, &b) {
                super::upload_tests::complete(&mut c, &b, &upload, &parts).unwrap();
            }
            collect_garbage(&mut c);
            let at = (had_one, left);
            assert!(get(&mut c, &b, Key::plain("k")).unwrap() == whole, "{at:?}");
            assert_eq!(ids(&mut c, &b, "k"), want, "{at:?}");
            remove_all(&mut c, &b, &at);
            if done.is_ok() && left > 20 {
                break;
            }
        }
    }
}

/// One that was completed, and shown, before others came stays behind them when it is completed once more.
#[test]
fn an_upload_that_was_shown_stays_where_it_is() {
    let parts = [(1, "a"), (2, "b")];
    for left in 0.. {
        let mut c = Cluster::default();
        let (b, _) = begun(&mut c, SUSPENDED);
        let upload = begin_upload(&mut c, &b);
        c.left = Some(left);
        let done = super::upload_tests::complete(&mut c, &b, &upload, &parts);
        c.left = None;
        c.pass(700);
        let is_shown = get(&mut c, &b, Key::plain("k")).unwrap() != "first";
        let later = put(&mut c, &with_flags(&b, ENABLED), "k", b"later").unwrap();
        for upload in super::upload_tests::uploads(&mut c, &b) {
            super::upload_tests::complete(&mut c, &b, &upload, &parts).unwrap();
        }
        if is_shown {
            assert_eq!(ids(&mut c, &b, "k")[..2], [later, "null".into()], "{left}");
        }
        if done.is_ok() {
            break;
        }
    }
}

/// Whatever a gateway leaves of a write without an id, lists show what is there, and the index keeps what
/// stands for all versions.
#[test]
fn lists_leave_the_index_as_it_is_to_be() {
    for left in 0.. {
        let mut c = Cluster::default();
        let (b, first) = begun(&mut c, SUSPENDED);
        put(&mut c, &b, "k", b"before").unwrap();
        c.left = Some(left);
        let done = put(&mut c, &b, "k", b"died");
        c.left = None;
        put(&mut c, &b, "k", b"after").unwrap();
        for _ in 0..3 {
            c.pass(200);
            assert_eq!(ids(&mut c, &b, "k"), ["null".into(), first.clone()], "{left}");
            assert_eq!(super::tests::list(&mut c, &b), ["k"], "{left}");
            let plain = index(&mut c, &b).into_iter().find(|(key, _)| key == "k").unwrap().1.unwrap();
            assert!(plain.has(rgw::index::entry::VERSION_MARKER) && !plain.exists, "{left}");
            assert_eq!(stats(&mut c, &b), (2, 10), "{left}");
        }
        remove(&mut c, &b, null()).unwrap();
        assert_eq!(super::tests::list(&mut c, &b), ["k"], "{left}");
        assert_eq!(ids(&mut c, &b, "k"), [first], "{left}");
        remove_all(&mut c, &b, &left);
        remove_bucket(&mut c, &left);
        if done.is_ok() {
            break;
        }
    }
}

fn plan_put(c: &Cluster, b: &SharedBucket, seed: u64, data: Vec<u8>) -> Plan<Written> {
    let mut entropy = SeededEntropy(seed + 500 + c.done.len() as u64);
    let moment = &mut Moment { now: NOW, entropy: &mut entropy };
    let upload = site().put(b, Key::plain("k"), Bytes::new(), seed, moment).unwrap();
    upload.write(data.into()).and_then(|upload| upload.finish(finish(Condition::Any)))
}

/// Steps two plans in an order that a seed gives, then both to their ends.
fn in_turn<A: Send + 'static, B: Send + 'static>(
    c: &mut Cluster,
    seed: u64,
    (mut one, mut other): (Plan<A>, Plan<B>),
) -> (Result<A, Error>, Result<B, Error>) {
    let mut draw = [0; 64];
    SeededEntropy(seed).fill(&mut draw);
    for n in draw {
        match n % 2 {
            0 => one = step(one, c),
            _ => other = step(other, c),
        }
    }
    (one.run(c), other.run(c))
}

/// Of two that write the version without an id at once one is there, whole, and nothing of the other one.
#[test]
fn two_may_write_the_version_without_an_id_at_once() {
    let datas = [ramp(5 * MIB), ramp(6 * MIB)];
    for before in 0..4 {
        for seed in 0..25 {
            let mut c = Cluster::default();
            let (b, first) = begun(&mut c, SUSPENDED);
            match before {
                // A name without data.
                0 => {}
                1 => drop(put(&mut c, &b, "k", b"before").unwrap()),
                // The same without the tag of a write.
                2 => {
                    put(&mut c, &b, "k", b"before").unwrap();
                    remove(&mut c, &b, null()).unwrap();
                }
                // A name that is about to be given up.
                _ => drop(remove(&mut c, &b, version("k", &first)).unwrap()),
            }
            let [one, other] = [(1, &datas[0]), (2, &datas[1])]
                .map(|(n, data)| plan_put(&c, &b, seed * 2 + n, data.clone()));
            let (one, other) = in_turn(&mut c, seed, (one, other));
            assert!(one.is_ok() && other.is_ok(), "{before} {seed}: {one:?} {other:?}");
            let shown = get(&mut c, &b, Key::plain("k")).unwrap();
            assert!(datas.iter().any(|data| *data == shown), "{before} {seed}");
            assert!(get(&mut c, &b, null()).unwrap() == shown, "{before} {seed}");
            nothing_else(&mut c, &b, &(before, seed));
            let bytes = shown.len() as u64 + if before == 3 { 0 } else { 5 };
            assert_eq!(stats(&mut c, &b).1, bytes, "{before} {seed}");
            // The name goes on as before.
            put(&mut c, &b, "k", b"last").unwrap();
            assert_eq!(get(&mut c, &b, Key::plain("k")), Ok("last".into()), "{before} {seed}");
            remove_all(&mut c, &b, &(before, seed));
            remove_bucket(&mut c, &(before, seed));
        }
    }
}

/// A write without an id comes while the last version of its name goes, and with it the name.
#[test]
fn a_name_may_be_given_up_while_it_is_written() {
    for seed in 0..50 {
        let mut c = Cluster::default();
        let (b, first) = begun(&mut c, SUSPENDED);
        let data = ramp(5 * MIB);
        let one = plan_put(&c, &b, seed, data.clone());
        let mut entropy = SeededEntropy(seed + 9000);
        let moment = &mut Moment { now: NOW, entropy: &mut entropy };
        let other = site().remove_version(&b, version("k", &first), &remover(), moment);
        let (written, removed) = in_turn(&mut c, seed, (one, other));
        let done = (written.map(|written| written.overtaken), removed.map(|removed| removed.is_marker));
        assert_eq!(done, (Ok(false), Ok(false)), "{seed}");
        assert!(get(&mut c, &b, Key::plain("k")).unwrap() == data, "{seed}");
        nothing_else(&mut c, &b, &seed);
        assert_eq!(ids(&mut c, &b, "k"), ["null"], "{seed}");
        remove(&mut c, &b, null()).unwrap();
        assert_eq!(get(&mut c, &b, Key::plain("k")).map(|data| data.len()), Err(Error::NoSuchKey));
        assert_eq!(ids(&mut c, &b, "k"), Vec::<Bytes>::new(), "{seed}");
        remove_bucket(&mut c, &seed);
    }
}

/// Two read a name at once, at which somebody died; and who reads may die, too.
#[test]
fn readers_end_what_was_begun() {
    for flags in [ENABLED, SUSPENDED] {
        for left in 0.. {
            for seed in 0..6 {
                let mut c = Cluster::default();
                let (b, first) = begun(&mut c, flags);
                let second = put(&mut c, &b, "k", b"the second").unwrap();
                c.left = Some(left);
                let done = remove(&mut c, &b, version("k", &second));
                // A third one dies as it reads.
                c.left = Some(seed as usize);
                let _ = get(&mut c, &b, Key::plain("k"));
                c.left = None;
                let reader = |n: u64| {
                    let mut entropy = SeededEntropy(n);
                    let moment = &mut Moment { now: NOW, entropy: &mut entropy };
                    site().open(&b, &Key::plain("k"), 10, moment)
                };
                let (one, other) = in_turn(&mut c, seed, (reader(50), reader(60)));
                let at = (flags, left, seed);
                assert!(one.is_ok() && other.is_ok(), "{at:?}");
                let there = versions(&mut c, &b, 9);
                let bytes: usize = there
                    .iter()
                    .map(|(name, id, ..)| get(&mut c, &b, version(name, id)).unwrap().len())
                    .sum();
                assert_eq!(stats(&mut c, &b), (there.len() as u64, bytes as u64), "{at:?}");
                assert!(there.iter().any(|(_, id, ..)| *id == first), "{at:?}");
                nothing_else(&mut c, &b, &at);
                remove_all(&mut c, &b, &at);
                // What is begun of one without an id, and never ended, goes with the bucket.
                let left = index(&mut c, &b);
                let is_over = |entry: &Option<Entry>| entry.as_ref().is_some_and(|e| !e.exists);
                let is_name = |key: &Bytes| key.starts_with(b"\x801001_");
                let is_left = |(key, entry): &(Bytes, _)| is_name(key) || is_over(entry);
                assert!(left.iter().all(is_left), "{at:?} {left:?}");
                assert!(done.is_ok() || at.1 < 40);
                remove_bucket(&mut c, &at);
            }
            if left > 30 {
                break;
            }
        }
    }
}

/// A version goes while it is opened: what the name shows then is opened.
#[test]
fn a_read_goes_on_to_the_version_that_is_shown_next() {
    let mut c = Cluster::default();
    let (b, _) = begun(&mut c, ENABLED);
    let second = put(&mut c, &b, "k", b"second").unwrap();
    let mut entropy = SeededEntropy(5);
    let moment = &mut Moment { now: NOW, entropy: &mut entropy };
    let reading = step(site().open(&b, &Key::plain("k"), 10, moment), &mut c);
    remove(&mut c, &b, version("k", &second)).unwrap();
    assert_eq!(reading.run(&mut c).unwrap().head.first, "first");
}

/// Wherever a gateway dies, with versions suspended too, and whichever answer is lost, the bucket can be
/// emptied and removed, and leaves nothing.
#[test]
fn what_is_left_of_a_write_goes_with_its_bucket() {
    for flags in [ENABLED, SUSPENDED] {
        for (had_one, removes) in [(false, false), (true, false), (true, true)] {
            for lost in [None, Some(false), Some(true)] {
                for left in 0.. {
                    let mut c = Cluster::default();
                    let b = with_flags(&bucket(&mut c), flags);
                    let before = had_one.then(|| put(&mut c, &b, "k", b"before").unwrap());
                    match lost {
                        None => c.left = Some(left),
                        Some(is_late) => c.lost = Some(Lost { after: left, is_late }),
                    }
                    let done = match before.filter(|_| removes) {
                        // Tails that were under way are left to nobody, as with other objects.
                        None => put(&mut c, &b, "k", b"new").map(drop),
                        Some(id) => remove(&mut c, &b, version("k", &id)).map(drop),
                    };
                    let is_over = c.lost.is_some() || (lost.is_none() && done.is_ok());
                    (c.left, c.lost) = (None, None);
                    c.catch_up();
                    let at = (flags, had_one, removes, lost, left);
                    c.pass(200);
                    versions(&mut c, &b, 9);
                    super::tests::list(&mut c, &b);
                    for (name, id, ..) in versions(&mut c, &b, 9) {
                        remove(&mut c, &b, version(&name, &id)).unwrap();
                    }
                    assert_eq!(versions(&mut c, &b, 9), vec![], "{at:?}");
                    remove_bucket(&mut c, &at);
                    if is_over && left > 1 {
                        break;
                    }
                }
            }
        }
    }
}

/// A put begins in a bucket that keeps no versions, and ends when it does.
#[test]
fn a_put_from_before_is_shown() {
    for (had_data, seen) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut c = Cluster::default();
        let enabled = bucket(&mut c);
        let plain = with_flags(&enabled, 0);
        if had_data {
            put(&mut c, &plain, "k", b"before").unwrap();
        }
        let data = ramp(5 * MIB);
        let mut late = plan_put(&c, &plain, 7, data.clone());
        if seen {
            late = step(late, &mut c);
        }
        let id = put(&mut c, &enabled, "k", b"with an id").unwrap();
        let written = late.run(&mut c).unwrap();
        assert_eq!((written.version, written.overtaken), ("null".into(), false));
        assert!(get(&mut c, &enabled, Key::plain("k")).unwrap() == data, "{had_data} {seen}");
        // Whoever knows the bucket as it was finds it, too, and removes nothing of it.
        assert!(get(&mut c, &plain, Key::plain("k")).unwrap() == data, "{had_data} {seen}");
        let removed = run(&mut c, |moment| site().remove(&plain, Key::plain("k"), moment));
        assert_eq!(removed, Err(Error::Versioned));
        assert_eq!(ids(&mut c, &enabled, "k"), [Bytes::from("null"), id], "{had_data} {seen}");
        nothing_else(&mut c, &enabled, &(had_data, seen));
        remove_all(&mut c, &enabled, &(had_data, seen));
        remove_bucket(&mut c, &(had_data, seen));
    }
}

/// A copy of the version without an id is an object of its own, where none are kept too.
#[test]
fn a_copy_tells_nothing_of_its_sources_name() {
    for size in [5, 5 * MIB] {
        let mut c = Cluster::default();
        let (b, _) = begun(&mut c, SUSPENDED);
        let data = ramp(size);
        put(&mut c, &b, "k", &data).unwrap();
        let opened = run(&mut c, |m| site().open(&b, &Key::plain("k"), 0, m)).unwrap();
        let plain = with_flags(&b, 0);
        let finish = Finish { attrs: opened.head.attrs.clone(), ..finish(Condition::Any) };
        let to = CopyTo { finish, ..copy_to(&plain, Key::plain("copy"), 70) };
        run(&mut c, |moment| site().copy(opened, to, moment)).unwrap();
        let head = site().head(&plain, &Key::plain("copy"), 0).run(&mut c).unwrap().unwrap();
        assert!(head.attrs.keys().all(|name| !name.starts_with(attr::OLH)), "{:?}", head.attrs.keys());
        assert!(get(&mut c, &plain, Key::plain("copy")).unwrap() == data);
        run(&mut c, |moment| site().remove(&plain, Key::plain("copy"), moment)).unwrap();
    }
}

/// The delete marker without an id is known for one.
#[test]
fn a_marker_without_an_id_goes_as_one() {
    let mut c = Cluster::default();
    let (b, first) = begun(&mut c, SUSPENDED);
    put(&mut c, &b, "k", b"null").unwrap();
    let gone = Removed { version: "null".into(), is_marker: true };
    assert_eq!(remove(&mut c, &b, Key::plain("k")), Ok(gone.clone()));
    assert_eq!(remove(&mut c, &b, null()), Ok(gone));
    assert_eq!(remove(&mut c, &b, null()), Err(Error::NoSuchKey));
    assert_eq!(ids(&mut c, &b, "k"), [first]);
    remove_all(&mut c, &b, &());
}
