//! What radosgw 16.2.15 stored is understood as it was meant, and written again to the byte.
//!
//! Each line of `tests/data/captured.txt` is a kind of place, the place, and the bytes that were there. A
//! cluster of Ceph's had two zones, two users and three buckets, on which each feature was used once.

use bytes::Bytes;
use codec::Decode;

use crate::hostile::KINDS;
use crate::*;

const CAPTURED: &str = include_str!("../tests/data/captured.txt");
const MIB: u64 = 1 << 20;

fn bytes(hex: &str) -> Bytes {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// Kind, place and bytes of everything that was captured.
fn lines() -> impl Iterator<Item = (&'static str, &'static str, Bytes)> {
    CAPTURED.lines().map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{line}"));
        (word(), word(), bytes(word()))
    })
}

/// The first captured thing of a kind whose place ends with `at`.
fn captured<T: Decode>(kind: &str, at: &str) -> T {
    let found = lines().find(|(k, place, _)| *k == kind && place.ends_with(at));
    let (_, _, bytes) = found.unwrap_or_else(|| panic!("no {kind} at {at}"));
    T::from_bytes(bytes).unwrap_or_else(|e| panic!("{kind} at {at}: {e}"))
}

fn texts<'a>(all: impl IntoIterator<Item = &'a Bytes>) -> Vec<&'a str> {
    all.into_iter().map(|b| std::str::from_utf8(b).unwrap()).collect()
}

/// Names of RADOS objects are the test's own; what is a structure has a kind.
fn structures() -> impl Iterator<Item = (&'static str, &'static str, Bytes, hostile::Again)> {
    lines().filter(|(kind, ..)| !matches!(*kind, "rados_object" | "latest_epoch")).map(|(kind, at, bytes)| {
        let again = KINDS.iter().find(|(k, _)| *k == kind);
        (kind, at, bytes, again.unwrap_or_else(|| panic!("nothing reads {kind}")).1)
    })
}

#[test]
fn what_radosgw_wrote_comes_back_to_the_byte() {
    for (kind, at, bytes, again) in structures() {
        assert_eq!(again(&bytes).as_ref(), Ok(&bytes), "{kind} {at}");
        for n in 0..bytes.len() {
            assert!(again(&bytes.slice(..n)).is_err(), "{kind} {at} cut at {n}");
        }
    }
}

#[test]
fn of_every_kind_there_are_golden_bytes() {
    let without: Vec<&str> =
        KINDS.iter().map(|(kind, _)| *kind).filter(|kind| lines().all(|(k, ..)| k != *kind)).collect();
    assert_eq!(without, Vec::<&str>::new());
}

#[test]
fn no_byte_of_any_makes_a_panic() {
    for (_, _, bytes, again) in structures() {
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = bytes.to_vec();
                other[at] = value;
                if let Ok(once) = again(&other.into()) {
                    // What is read of it stays as it is from there on.
                    assert_eq!(again(&once), Ok(once));
                }
            }
        }
    }
}

#[test]
fn a_user_is_what_the_administrator_made() {
    let UserRecord { pointer, info } = captured("user", "te$full");
    assert_eq!((pointer.0.to_text(), info.id.to_text()), ("te$full".into(), "te$full".into()));
    assert_eq!(texts([&info.display_name, &info.email]), ["Full", "full@example.com"]);
    let keys: Vec<_> = info.keys.values().flat_map(|k| texts([&k.id, &k.secret])).collect();
    assert_eq!(keys, ["KEYFULL", "secret", "KEYTWO", "two"]);
    let caps: Vec<_> = info.caps.iter().map(|(k, v)| (texts([k])[0], *v)).collect();
    assert_eq!(caps, [("roles", 3), ("usage", 1), ("users", 3)]);
    assert_eq!((info.max_buckets, info.op_mask, texts(&info.placement_tags)), (9, 3, vec!["fast", "slow"]));
    assert_eq!((info.user_quota.enabled, info.user_quota.max_size), (true, 1 << 30));
    assert_eq!((info.bucket_quota.enabled, info.bucket_quota.max_objects), (false, 77));
    assert_eq!((texts(&info.mfa_ids), info.suspended), (vec!["m1"], 0));
    let UserPointer(id) = captured("uid", "users.email/full@example.com");
    assert_eq!(id, info.id);
}

#[test]
fn a_bucket_is_what_its_owner_set() {
    let point: EntryPoint = captured("entry_point", "te/locked");
    let locked: BucketInfo = captured("bucket_instance", &texts([&point.bucket.id])[0][1..]);
    assert_eq!((&locked.bucket, locked.bucket.entry_point()), (&point.bucket, "te/locked".into()));
    assert!(lines().any(|(_, at, _)| at.as_bytes() == locked.bucket.instance()));
    assert_eq!(locked.flags.0, Versioning::VERSIONED | Versioning::OBJECT_LOCK);
    let rule = locked.object_lock.rule.unwrap();
    assert_eq!((rule.mode, rule.days), ("GOVERNANCE".into(), 1));

    let simple: EntryPoint = captured("entry_point", "simple");
    let simple: BucketInfo = captured("bucket_instance", &texts([&simple.bucket.id])[0][1..]);
    assert_eq!((simple.owner.to_text(), simple.layout.current.shards.count), ("plain".into(), 11));
    assert_eq!((simple.quota.enabled, simple.quota.max_objects), (true, 5000));
    let website = simple.website.unwrap();
    assert_eq!(texts([&website.index_suffix, &website.error_key]), ["i.html", "e.html"]);
    let rule = &website.rules[0];
    assert_eq!((&rule.key_prefix_equals, &rule.redirect.hostname), (&"a/".into(), &"h".into()));
    assert_eq!((rule.redirect.http_code, &rule.replace_key_prefix_with), (302, &"b/".into()));
}

#[test]
fn grants_that_are_added_make_the_bytes_that_radosgw_makes() {
    let simple: EntryPoint = captured("entry_point", "simple");
    let at = format!("simple:{}", texts([&simple.bucket.id])[0]);
    let acl: AccessControl = captured("attr:acl", &at);
    let (plain, full) = (UserId::plain("plain"), UserId::from_text(&"te$full".into()));
    let mut made = AccessList::default();
    made.add(Grant::to_user(plain.clone(), "Plain".into(), Permissions::FULL_CONTROL));
    made.add(Grant::to_user(full.clone(), "Full".into(), Permissions::READ));
    made.add(Grant::to_group(Grant::ALL_USERS, Permissions::READ));
    made.add(Grant::to_group(Grant::AUTHENTICATED_USERS, Permissions::WRITE));
    assert_eq!(
        acl,
        AccessControl { owner: Owner { id: plain.clone(), display_name: "Plain".into() }, list: made }
    );
    assert_eq!([&plain, &full].map(|user| acl.list.of_user(user)), [15, 1]);
    assert_eq!([1, 2, 3].map(|group| acl.list.of_group(group)), [1, 2, 0]);
    assert_eq!(acl.list.grants().count(), 4);
    assert!(acl.list.referers().is_empty());
}

#[test]
fn a_manifest_names_the_objects_that_hold_the_bytes() {
    let sizes: std::collections::BTreeMap<Bytes, u64> = lines()
        .filter(|(kind, ..)| *kind == "rados_object")
        .map(|(_, at, size)| (at.into(), u64::from_bytes(size).unwrap()))
        .collect();
    for (key, size, tail) in [("_small", 5, false), ("_large", 9 * MIB, true), ("_mp", 10 * MIB + 3, true)] {
        let manifest: Manifest = captured("attr:manifest", key);
        assert_eq!((manifest.size, manifest.has_tail()), (size, tail), "{key}");
        let mut at = 0;
        for stripe in manifest.stripes(100) {
            let raw = stripe.object.raw(Pool::default());
            assert_eq!((stripe.at, sizes.get(&raw.oid)), (at, Some(&stripe.length)), "{key} {raw:?}");
            assert_eq!(manifest.stripe_at(at + stripe.length - 1).as_ref(), Some(&stripe));
            at += stripe.length;
        }
        assert_eq!((at, manifest.stripe_at(at)), (size, None), "{key}");
    }
    // Two stripes each of the first two parts, one of the third.
    let parts: Manifest = captured("attr:manifest", "_mp");
    assert_eq!(parts.stripes(100).len(), 5);
    assert_eq!(parts.stripes(2).len(), 2);
}

#[test]
fn manifests_are_made_as_radosgw_makes_them() {
    for key in ["_small", "_large", "___under"] {
        let m: Manifest = captured("attr:manifest", key);
        let (object, placement, prefix) = (m.object.clone(), m.head_placement.clone(), m.prefix.clone());
        assert_eq!(Manifest::whole(object, placement, prefix, m.size, 4 * MIB, 4 * MIB), m, "{key}");
    }
    let part: PartInfo = captured("part", ".meta/part.00000001");
    assert_eq!((part.number, part.size, part.accounted_size), (1, 5 * MIB, 5 * MIB));
    let m = part.manifest;
    let (object, placement, prefix) = (m.object.clone(), m.tail.placement.clone(), m.prefix.clone());
    assert_eq!(placement, PlacementRule::named("default-placement"));
    assert_eq!(Manifest::part(object, placement, prefix, 1, m.size, 4 * MIB), m);
    let upload: UploadInfo = captured("upload", ".meta");
    assert_eq!(upload.placement, PlacementRule::named("default-placement"));
}

/// What is in the omap of an index is found under the names that keys have there.
#[test]
fn an_index_says_what_its_bucket_holds() {
    let under: index::Entry = captured("index_entry", "/5f5f756e646572");
    let key = Key::plain("_under");
    assert_eq!((under.key.name, under.key.instance), (key.index_name(), Bytes::new()));
    assert_eq!((under.exists, under.meta.size, under.meta.category), (true, 5, 1));
    assert_eq!(texts([&under.meta.owner, &under.meta.owner_name]), ["plain", "Plain"]);
    assert_eq!(under.meta.etag, "5d41402abc4b2a76b9719d911017c592");
    let part = Key::within("multipart", "open").index_name();
    let parts: Vec<index::Entry> = lines()
        .filter(|(kind, ..)| *kind == "index_entry")
        .map(|(.., bytes)| index::Entry::from_bytes(bytes).unwrap())
        .filter(|e| e.key.name.starts_with(&part))
        .collect();
    // The part counts as an object does, the upload apart.
    assert_eq!(parts.iter().map(|e| e.meta.category).collect::<Vec<_>>(), [1, 3]);

    // Written three times, the first time before there were versions; then deleted.
    let head: index::Head = captured("index_head", "/80313030315f6b");
    assert_eq!((head.key.name.as_ref(), head.delete_marker, head.exists), (&b"k"[..], true, true));
    let versions = lines()
        .filter(|(kind, at, _)| *kind == "index_entry" && at.contains("/80313030305f6b00"))
        .map(|(.., bytes)| index::Entry::from_bytes(bytes).unwrap());
    let mut versions: Vec<_> = versions.collect();
    versions.sort_by_key(|e| e.versioned_epoch);
    assert_eq!(versions.iter().filter(|e| e.has(index::entry::DELETE_MARKER)).count(), 1);
    assert_eq!(versions.len(), 4);
    assert_eq!(
        versions.last().map(|e| (e.key.clone(), e.has(index::entry::CURRENT))),
        Some((head.key, true))
    );

    let sizes = lines().filter(|(kind, ..)| *kind == "index_header").map(|(.., bytes)| {
        let header = index::Header::from_bytes(bytes).unwrap();
        header.stats.get(&1).map_or(0, |main| main.size)
    });
    // What was deleted in the bucket of versions counts as long as its versions are there.
    assert_eq!(sizes.sum::<u64>(), (5 + 5 + 9 * MIB + 10 * MIB + 3 + 5 * MIB) + (1 + 1) + (6 + 1 + 1 + 1));
}

#[test]
fn what_is_left_to_do_names_buckets_and_objects() {
    let waste: Vec<Garbage> = lines()
        .filter(|(kind, ..)| *kind == "gc")
        .map(|(.., bytes)| Garbage::from_bytes(bytes).unwrap())
        .collect();
    let objects: Vec<&GarbageObject> = waste.iter().flat_map(|g| &g.chain.objects).collect();
    assert!(
        objects.len() >= 8 && objects.iter().all(|o| o.pool == "default.rgw.buckets.data"),
        "{objects:?}"
    );
    let simple: EntryPoint = captured("entry_point", "simple");
    let cycle: LifecycleEntry = captured("lc", &texts([&simple.bucket.id])[0][1..]);
    let name = [&b":simple:"[..], &simple.bucket.id].concat();
    assert_eq!((cycle.bucket, cycle.started, cycle.status), (name.into(), 0, 0));
    let mine: UserBucketEntry = captured("cls_user_bucket_entry", "plain.buckets/simple");
    assert_eq!((mine.bucket.name, mine.bucket.id), (simple.bucket.name, simple.bucket.id));
}

#[test]
fn usage_is_summed_up_by_user() {
    let mut sums = std::collections::BTreeMap::<Bytes, UsageEntry>::new();
    // Each entry stands under its time and under its user.
    for (_, at, bytes) in lines().filter(|(kind, at, _)| *kind == "usage" && at.contains("/0")) {
        let entry = UsageEntry::from_bytes(bytes).unwrap();
        let (user, bucket) = (entry.user().to_text(), entry.bucket.clone());
        let [user, bucket] = texts([&user, &bucket])[..] else { unreachable!() };
        assert!(at.ends_with(&format!("/{:011}_{user}_{bucket}", entry.epoch)), "{at}");
        sums.entry(entry.user().to_text()).or_default().aggregate(&entry);
    }
    let plain = &sums[&b"plain"[..]];
    assert!(plain.total.received > 25 * MIB && plain.total.successful_ops >= 20, "{plain:?}");
    assert!(plain.by_category.contains_key(&b"put_obj"[..]), "{plain:?}");
}

#[test]
fn sites_and_public_access_are_what_the_owner_set() {
    let Cors { rules } = captured("attr:cors", "");
    let [rule] = &rules[..] else { panic!("{rules:?}") };
    assert_eq!((rule.methods, rule.max_age_s, &rule.id), (CorsRule::GET | CorsRule::PUT, 30, &"c".into()));
    assert_eq!(texts(&rule.origins), ["*", "http://a"]);
    assert_eq!((texts(&rule.headers), texts(&rule.exposed)), (vec!["x-*"], vec!["e"]));
    let block: PublicAccessBlock = captured("attr:public-access", "");
    assert_eq!(
        [block.block_acls, block.ignore_acls, block.block_policy, block.restrict_buckets],
        [true, false, true, false]
    );
}

#[test]
fn logs_of_a_zone_name_what_has_changed() {
    let simple: EntryPoint = captured("entry_point", "te/locked");
    let change: DataChange = captured("data_change", "data_log.104.LjLFimeDz0s.0");
    let shard = texts([&change.shard])[0];
    assert!(shard.starts_with("te/locked:") && shard.ends_with(":0"), "{shard}");
    assert_eq!((change.kind, simple.bucket.name), (DataChange::BUCKET, "locked".into()));
    let generations: DataLogGenerations = captured("log_generations", "");
    assert_eq!(generations, [(0, DataLogGeneration { number: 0, backing: 1, pruned: None })].into());
    let metadata = lines().filter(|(kind, ..)| *kind == "metadata_change");
    let status: Vec<u32> = metadata.map(|(.., b)| MetadataChange::from_bytes(b).unwrap().status).collect();
    assert!(
        status.iter().all(|s| [MetadataChange::WRITE, MetadataChange::COMPLETE].contains(s)),
        "{status:?}"
    );
    assert!(status.contains(&MetadataChange::COMPLETE), "{status:?}");
}

/// As the whole was when its upload was completed.
#[test]
fn parts_make_the_manifest_that_radosgw_made_of_them() {
    let whole: Manifest = captured("attr:manifest", "_mp");
    let mut made = Manifest::default();
    // The captured whole's own parts are gone: they are made again, of the sizes that its rules tell.
    for (number, size) in [(1, 5 * MIB), (2, 5 * MIB), (3, 3)] {
        let (object, rule) = (whole.object.clone(), whole.tail.placement.clone());
        assert!(made.append(&Manifest::part(object, rule, whole.prefix.clone(), number, size, 4 * MIB)));
    }
    assert_eq!(made, whole);
    // One that was uploaded again has a prefix of its own.
    let (object, rule) = (whole.object.clone(), whole.tail.placement.clone());
    let again = Manifest::part(object, rule, "mp.again".into(), 4, 5 * MIB, 4 * MIB);
    assert!(made.append(&again));
    let last = made.stripes(100).pop().unwrap();
    assert_eq!((last.object.key.name.as_ref(), last.length), (&b"mp.again.4_1"[..], MIB));
    assert_eq!((made.size, made.rules.len()), (15 * MIB + 3, whole.rules.len() + 1));
}

#[test]
fn a_role_and_the_policies_say_who_may_what() {
    let role: Role = captured("role", "roles.7d2ea1df-5d46-4092-8ac6-43823dfe1360");
    assert_eq!((role.name.as_ref(), role.session_s, role.policies.len()), (&b"reader"[..], 3600, 1));
    assert_eq!(role.arn, "arn:aws:iam:::role/some/reader");
    let places = [role.oid(), role.name_oid(), role.path_oid()];
    let id = "roles.7d2ea1df-5d46-4092-8ac6-43823dfe1360";
    assert_eq!(texts(&places), [id, "role_names.reader", &format!("role_paths./some/{id}")]);
    let named: NameToId = captured("names", "role_names.reader");
    assert_eq!(named.id, role.id);
    let own: UserPolicies = captured("attr:user-policy", "users.uid:plain");
    let plain = |policy: &Bytes| texts([policy])[0].replace(' ', "");
    assert_eq!(plain(&own.policies[&b"own"[..]]), plain(&role.policies[&b"read"[..]]));
}

#[test]
fn a_bucket_tells_topics_of_some_events() {
    let topics: Topics = captured("topics", "log:pubsub.");
    let news = &topics.topics[&b"news"[..]].topic;
    assert_eq!(
        (news.arn.as_ref(), news.opaque.as_ref()),
        (&b"arn:aws:sns:default::news"[..], &b"opaque"[..])
    );
    let (_, at, _) = lines().find(|(kind, ..)| *kind == "bucket_topics").unwrap();
    let all: Notifications = captured("bucket_topics", at);
    let one = &all.topics[&b"n1_news"[..]];
    assert_eq!(
        (&one.id[..], texts(&one.events)),
        (&b"n1"[..], vec!["s3:ObjectCreated:*", "s3:ObjectRemoved:Delete"])
    );
    assert_eq!((&one.filter.key.prefix[..], &one.filter.key.suffix[..]), (&b"a/"[..], &b".jpg"[..]));
    let bucket = Bucket {
        name: "noted".into(),
        id: at.rsplit('/').next().unwrap().to_owned().into(),
        ..Bucket::default()
    };
    assert_eq!(format!("log:{}", texts([&Notifications::oid(b"", &bucket)])[0]), at);
    assert_eq!(Topics::oid(b""), "pubsub.");
}

#[test]
fn a_compressed_object_says_where_its_blocks_are() {
    let squeezed: Compression = captured("attr:compression", "_squeezed");
    assert_eq!((squeezed.kind.as_ref(), squeezed.size, squeezed.blocks.len()), (&b"zlib"[..], 150_000, 1));
}
