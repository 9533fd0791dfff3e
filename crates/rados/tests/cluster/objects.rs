//! Data, attributes, omap and compound operations of single objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rados::{CmpOp, CopyFrom, Errno, Error, ReadOp, SnapContext, WriteOp, checksum_type};

use crate::setup::{Bed, with_pool};

const LIMIT: Duration = Duration::from_secs(180);

fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    result.expect_err("an error").errno()
}

#[test]
fn data_is_what_was_written() {
    with_pool("data", LIMIT, |Bed { pool, .. }| async move {
        assert_eq!(errno(pool.read("a", 0, 10).await), Errno::ENOENT);
        assert_eq!(errno(pool.stat("a").await), Errno::ENOENT);
        assert_eq!(errno(pool.remove("a").await), Errno::ENOENT);
        pool.write("a", 4, "abcd").await.expect("write");
        assert_eq!(pool.read("a", 0, 100).await.expect("read"), "\0\0\0\0abcd");
        assert_eq!(pool.read("a", 5, 2).await.expect("read"), "bc");
        assert_eq!(pool.read("a", 100, 2).await.expect("read"), "");
        assert_eq!(pool.stat("a").await.expect("stat").size, 8);
        pool.append("a", "ef").await.expect("append");
        pool.zero("a", 5, 2).await.expect("zero");
        assert_eq!(pool.read("a", 4, 100).await.expect("read"), "a\0\0def");
        pool.truncate("a", 6).await.expect("truncate");
        assert_eq!(pool.stat("a").await.expect("stat").size, 6);
        pool.write_full("a", "new").await.expect("write full");
        pool.write_same("a", 4, 6, "xy").await.expect("write same");
        assert_eq!(pool.read("a", 0, 100).await.expect("read"), "new\0xyxyxy");
        assert_eq!(errno(pool.write_same("a", 0, 5, "xy").await), Errno::EINVAL);
        assert_eq!(errno(pool.create("a", true).await), Errno::EEXIST);
        pool.create("a", false).await.expect("create again");
        assert_eq!(pool.cmpext("a", 0, "new").await.expect("cmpext"), None);
        assert_eq!(pool.cmpext("a", 0, "nex").await.expect("cmpext"), Some(2));
        let sums = pool.checksum("a", checksum_type::CRC32C, u64::MAX, (0, 8), 4).await.expect("checksum");
        assert_eq!(sums.len(), 2);
        pool.remove("a").await.expect("remove");
        assert_eq!(errno(pool.stat("a").await), Errno::ENOENT);
    });
}

#[test]
fn sparse_reads_skip_holes() {
    with_pool("sparse", LIMIT, |Bed { pool, .. }| async move {
        pool.write("s", 1 << 20, vec![7u8; 4096]).await.expect("write");
        let r = pool.sparse_read("s", 0, 4 << 20).await.expect("sparse read");
        let total: u64 = r.extents.iter().map(|(_, len)| len).sum();
        assert_eq!(total, r.data.len() as u64);
        let mut whole = vec![0u8; (1 << 20) + 4096];
        let mut at = 0;
        for (offset, len) in r.extents {
            whole[offset as usize..(offset + len) as usize].copy_from_slice(&r.data[at..at + len as usize]);
            at += len as usize;
        }
        assert_eq!(pool.read("s", 0, 4 << 20).await.expect("read"), whole);
    });
}

#[test]
fn attributes_and_omap() {
    with_pool("omap", LIMIT, |Bed { pool, .. }| async move {
        pool.set_xattr("x", "color", "blue").await.expect("set");
        pool.set_xattr("x", "size", "12").await.expect("set");
        assert_eq!(pool.get_xattr("x", "color").await.expect("get"), "blue");
        assert_eq!(errno(pool.get_xattr("x", "taste").await), Errno::ENODATA);
        let all = pool.get_xattrs("x").await.expect("all");
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), ["color", "size"]);
        let guarded = WriteOp::new().cmp_xattr("color", CmpOp::Eq, "red").write_full("no");
        assert_eq!(errno(pool.write_op("x", guarded).await), Errno::ECANCELED);
        let guarded = WriteOp::new().cmp_xattr_u64("size", CmpOp::Gt, 11).write_full("yes");
        // The operand stands on the left: 11 > 12 does not hold.
        let held = pool.write_op("x", guarded).await;
        assert_eq!(errno(held), Errno::ECANCELED);
        pool.rm_xattr("x", "size").await.expect("remove");
        assert_eq!(pool.get_xattrs("x").await.expect("all").len(), 1);

        let vals = |range: std::ops::Range<u32>| -> BTreeMap<Bytes, Bytes> {
            range.map(|i| (format!("key{i:03}").into(), format!("value{i}").into())).collect()
        };
        pool.omap_set("x", vals(0..20)).await.expect("set");
        pool.omap_set_header("x", "head").await.expect("header");
        assert_eq!(pool.omap_header("x").await.expect("header"), "head");
        let page = pool.omap_vals("x", "key004", "", 5).await.expect("page");
        assert!(page.more && page.entries == vals(5..10));
        let (keys, more) = pool.omap_keys("x", "key017", 10).await.expect("keys");
        assert_eq!((keys.len(), more), (2, false));
        assert_eq!(pool.omap_vals("x", "", "key00", 100).await.expect("prefix").entries, vals(0..10));
        let wanted = BTreeSet::from([Bytes::from("key001"), Bytes::from("none")]);
        assert_eq!(pool.omap_by_keys("x", wanted.clone()).await.expect("by keys"), vals(1..2));
        pool.omap_rm_keys("x", wanted).await.expect("remove");
        pool.write_op("x", WriteOp::new().omap_rm_range("key010", "key020")).await.expect("range");
        let mut left = vals(0..10);
        left.remove("key001".as_bytes());
        assert_eq!(pool.omap_all("x").await.expect("all"), left);
        let cmp = |v: &'static str| BTreeMap::from([(Bytes::from("key003"), (Bytes::from(v), CmpOp::Eq))]);
        pool.read_op("x", ReadOp::new().omap_cmp(cmp("value3"))).await.expect("equal");
        assert_eq!(errno(pool.read_op("x", ReadOp::new().omap_cmp(cmp("value4"))).await), Errno::ECANCELED);
        pool.omap_clear("x").await.expect("clear");
        assert!(pool.omap_all("x").await.expect("all").is_empty());
    });
}

#[test]
fn compound_operations_are_atomic() {
    with_pool("compound", LIMIT, |Bed { pool, .. }| async move {
        let made = WriteOp::new()
            .create(true)
            .write(0, "data")
            .set_xattr("a", "1")
            .omap_set(BTreeMap::from([("k".into(), "v".into())]));
        let version = pool.write_op("c", made.clone()).await.expect("made").version;
        assert_eq!(errno(pool.write_op("c", made).await), Errno::EEXIST);
        let version =
            pool.write_op("c", WriteOp::new().write(0, "data")).await.expect("again").version.max(version);
        let read = ReadOp::new().stat().read(0, 0).get_xattr("a").omap_get_vals("", "", 10);
        let reply = pool.read_op("c", read).await.expect("read");
        assert_eq!(reply.version, version);
        assert_eq!((reply.output(1), reply.output(2)), ("data".into(), "1".into()));
        // A failing step undoes the others.
        let failing = WriteOp::new().write_full("gone").set_xattr("a", "2").cmp_xattr("b", CmpOp::Eq, "x");
        let raw = pool.submit_write("c", failing).raw().await.expect("an answer");
        assert!(raw.result < 0, "{raw:?}");
        assert_eq!(pool.read("c", 0, 10).await.expect("read"), "data");
        assert_eq!(pool.get_xattr("c", "a").await.expect("xattr"), "1");
        let stale = WriteOp::new().assert_version(version + 7).write_full("x");
        assert_eq!(errno(pool.write_op("c", stale).await), Errno::EOVERFLOW);
        let old = WriteOp::new().assert_version(version - 1).write_full("x");
        assert_eq!(errno(pool.write_op("c", old).await), Errno::ERANGE);
        assert_eq!(
            errno(pool.write_op("none", WriteOp::new().assert_exists().write_full("x")).await),
            Errno::ENOENT
        );

        let from = CopyFrom { pool: &pool, object: "c", version: 0, src_fadvise: 0 };
        let other = pool.with_namespace("elsewhere");
        other.copy_from("copy", &from).await.expect("copied");
        assert_eq!(other.read("copy", 0, 10).await.expect("read"), "data");
        assert_eq!(other.get_xattr("copy", "a").await.expect("xattr"), "1");
        assert_eq!(errno(pool.read("copy", 0, 10).await), Errno::ENOENT, "namespaces are apart");

        let hello = pool.exec("c", "hello", "say_hello", "you").await.expect("a class method");
        assert_eq!(hello, "Hello, you!");
        assert_eq!(errno(pool.exec("c", "hello", "no_such_method", "").await), Errno::EOPNOTSUPP);
        assert_eq!(errno(pool.exec("c", &"x".repeat(300), "m", "").await), Errno::EINVAL);
        let snapc = SnapContext { seq: 1, snaps: vec![2] };
        assert_eq!(errno(pool.with_snap_context(snapc)), Errno::EINVAL);
    });
}

#[test]
fn submitted_operations_keep_their_order() {
    with_pool("order", LIMIT, |Bed { pool, .. }| async move {
        let pending: Vec<_> =
            (0..200).map(|i| pool.submit_write("o", WriteOp::new().append(format!("{i},")))).collect();
        let read = pool.submit_read("o", ReadOp::new().read(0, 0));
        for p in pending {
            p.await.expect("appended");
        }
        let want: String = (0..200).map(|i| format!("{i},")).collect();
        assert_eq!(read.await.expect("read").output(0), want);
    });
}
