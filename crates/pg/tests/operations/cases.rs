//! What librados cannot say in one call: truncation numbers, sparse reads, watches, tmaps, full pools.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode, Writer};
use messages::osd::{
    CmpOp, Extent, ListSnapsResponse, ListWatchersResponse, Op, OsdOp, SparseReadResponse, cmp_mode, flags,
    op_flags, watch_op,
};
use pg::exec::{Effect, classify};
use types::{EntityName, Errno, SnapContext, SnapId};

use crate::bench::{Bench, Request, failok};

fn write(offset: u64, data: &'static str) -> Op {
    Op::Write { extent: Extent::new(offset, data.len() as u64), data: data.into() }
}
fn whole(b: &mut Bench, name: &str) -> Bytes {
    b.op(name, Op::Read(Extent::default())).1
}

/// An extent with the truncation that its sender knows of.
fn after_truncation(offset: u64, length: u64, seq: u32, size: u64) -> Extent {
    Extent { offset, length, truncate_size: size, truncate_seq: seq }
}

#[test]
fn length_zero_reads_to_the_end() {
    let mut b = Bench::new();
    b.op("o", write(0, "0123456789"));
    assert_eq!(whole(&mut b, "o"), "0123456789");
    assert_eq!(b.op("o", Op::Read(Extent::new(4, 0))).1, "456789");
    assert_eq!(b.op("o", Op::Read(Extent::new(4, u64::MAX))).1, "456789");
    assert_eq!(b.op("o", Op::Read(Extent::new(u64::MAX, u64::MAX))), (0, Bytes::new()));
}

#[test]
fn truncation_numbers_order_writes_and_truncations() {
    let mut b = Bench::new();
    let data = Bytes::from_static(b"xxxxxxxx");
    b.op("o", write(0, "0123456789"));
    // A write that knows of a truncation which is still on its way does it.
    let extent = after_truncation(2, 2, 5, 4);
    assert_eq!(b.op("o", Op::Write { extent, data: data.slice(..2) }).0, 0);
    assert_eq!(whole(&mut b, "o"), "01xx");
    // The truncation itself then does nothing, nor does an older one.
    assert_eq!(b.op("o", Op::TrimTrunc(after_truncation(0, 0, 5, 4))).0, 0);
    assert_eq!(b.op("o", Op::TrimTrunc(after_truncation(0, 0, 4, 1))).0, 0);
    assert_eq!(whole(&mut b, "o"), "01xx");
    // A write from before the truncation writes nothing behind the end.
    let extent = after_truncation(3, 8, 4, 0);
    assert_eq!(b.op("o", Op::Write { extent, data: data.clone() }).0, 0);
    assert_eq!(whole(&mut b, "o"), "01xx");
    let extent = after_truncation(9, 8, 4, 0);
    assert_eq!(b.op("o", Op::Write { extent, data: data.clone() }).0, 0);
    assert_eq!(whole(&mut b, "o").len(), 4 + 5, "a cut-off write still grows the object to its offset");
    // A reader that knows of a later truncation sees only up to it.
    assert_eq!(b.op("o", Op::Read(after_truncation(0, 9, 6, 3))).1, "01x");
    assert_eq!(b.op("o", Op::Read(after_truncation(0, 9, 5, 3))).1.len(), 9);
    // The number 1 with the largest size means none.
    let extent = after_truncation(0, 1, 1, u64::MAX);
    assert_eq!(b.op("new", Op::Write { extent, data: data.slice(..1) }).0, 0);
    assert_eq!(b.op("new", Op::TrimTrunc(after_truncation(0, 0, 1, 0))).0, 0);
    assert_eq!(whole(&mut b, "new"), "");
}

#[test]
fn sparse_reads_leave_holes_out() {
    let mut b = Bench::new();
    b.op("o", Op::Write { extent: Extent::new(0, 4096), data: vec![1; 4096].into() });
    b.op("o", Op::Write { extent: Extent::new(16384, 3), data: vec![2; 3].into() });
    let (r, out) = b.op("o", Op::SparseRead(Extent::new(0, 1 << 20)));
    let got = SparseReadResponse::from_bytes(out).unwrap();
    assert_eq!((r, got.extents), (0, BTreeMap::from([(0, 4096), (16384, 3)])));
    assert_eq!(got.data, [vec![1; 4096], vec![2; 3]].concat());
    let (_, out) = b.op("o", Op::SparseRead(Extent::new(4000, 12384 + 1)));
    let got = SparseReadResponse::from_bytes(out).unwrap();
    assert_eq!(got.extents, BTreeMap::from([(4000, 96), (16384, 1)]));
    let (_, out) = b.op("o", Op::MapExt(Extent::new(0, 1 << 20)));
    assert_eq!(BTreeMap::from_bytes(out), Ok(BTreeMap::from([(0u64, 4096u64), (16384, 3)])));
    assert_eq!(b.op("o", Op::SparseRead(after_truncation(0, 9, 2, 0))).0, Errno::EINVAL.neg());
}

#[test]
fn numbers_compare_as_numbers() {
    let mut b = Bench::new();
    b.op("o", Op::SetXattr { name: "n".into(), value: "17".into() });
    for (op, value, ok) in [(1, 17u64, true), (1, 18, false), (3, 100, true), (3, 9, false), (5, 9, true)] {
        let value = value.to_bytes();
        let (r, _) = b.op("o", Op::CmpXattr { name: "n".into(), op, mode: cmp_mode::U64, value });
        assert_eq!(r, if ok { 1 } else { Errno::ECANCELED.neg() }, "{op}");
    }
    let bad = |op, mode| Op::CmpXattr { name: "n".into(), op, mode, value: 17u64.to_bytes() };
    assert_eq!(b.op("o", bad(1, 9)).0, Errno::EINVAL.neg());
    assert_eq!(b.op("o", bad(0, cmp_mode::U64)).0, Errno::EINVAL.neg());
}

#[test]
fn what_the_osd_stores_for_itself_stays_hidden() {
    let mut b = Bench::new();
    let snapc = SnapContext { seq: 2, snaps: vec![2] };
    b.op("o", write(0, "x"));
    b.run(&Request { snapc, ..Request::new("o", vec![write(0, "y").into()]) });
    let (r, out) = b.op("o", Op::GetXattrs);
    assert_eq!((r, BTreeMap::<Bytes, Bytes>::from_bytes(out)), (0, Ok(BTreeMap::new())));
    // Its name would be that of the info.
    assert_eq!(b.op("o", Op::GetXattr { name: String::new() }).0, Errno::ENODATA.neg());
    assert_eq!(b.op("o", Op::SetXattr { name: String::new(), value: "x".into() }).0, 0);
    assert_eq!(b.op("o", Op::RmXattr { name: String::new() }).0, 0);
    assert_eq!(b.op("o", Op::Stat).0, 0);
}

fn watch(cookie: u64, op: u8) -> Op {
    Op::Watch { cookie, op, generation: 0, timeout_s: 0 }
}

#[test]
fn watches_are_kept_with_the_object() {
    let mut b = Bench::new();
    assert_eq!(b.op("o", watch(1, watch_op::WATCH)).0, Errno::ENOENT.neg());
    b.op("o", Op::Create);
    let version = b.last_user;
    assert_eq!(b.op("o", watch(1, watch_op::WATCH)).0, 0);
    assert_eq!(b.op("o", watch(2, watch_op::LEGACY_WATCH)).0, 0);
    assert_eq!(b.op("o", watch(3, watch_op::RECONNECT)).0, Errno::ENOTCONN.neg());
    assert_eq!(b.op("o", watch(3, watch_op::PING)).0, Errno::ENOTCONN.neg());
    assert_eq!(
        b.op("o", watch(1, watch_op::PING)).0,
        Errno::ETIMEDOUT.neg(),
        "nobody carried the effect out"
    );
    assert_eq!(b.op("o", watch(1, watch_op::RECONNECT)).0, 0);
    assert_eq!(b.op("o", watch(9, watch_op::UNWATCH)).0, 0);
    let (_, out) = b.op("o", Op::ListWatchers);
    let listed = ListWatchersResponse::from_bytes(out).unwrap();
    let seen: Vec<_> = listed.entries.iter().map(|w| (w.cookie, w.name, w.timeout_s)).collect();
    assert_eq!(seen, [(1, EntityName::client(4123), 30), (2, EntityName::client(4123), 30)]);
    assert_eq!(b.op("o", watch(1, watch_op::UNWATCH)).0, 0);
    assert_eq!(b.last_user, version, "watching is no change to clients");
    b.effects.clear();
    assert_eq!(b.op("o", Op::Delete).0, 0);
    let watcher = EntityName::client(4123);
    assert_eq!(b.effects, [Effect::Unwatch { cookie: 2, watcher, tell: true }]);
}

#[test]
fn notifies_answer_their_id_at_once() {
    let mut b = Bench::new();
    b.op("o", Op::Create);
    let notify = Op::Notify { cookie: 5, timeout_s: 0, payload: "p".into() };
    let (r, out) = b.op("o", notify);
    let notify_id = u64::from_bytes(out).unwrap();
    let (cookie, timeout_s, payload, user_version) = (5, 30, "p".into(), b.last_user);
    assert_eq!(r, 0);
    assert_eq!(b.effects, [Effect::Notify { notify_id, cookie, timeout_s, payload, user_version }]);
    b.effects.clear();
    b.op("o", Op::NotifyAck { notify_id, cookie: 8, reply: "r".into() });
    let mut old = OsdOp::from(Op::NotifyAck { notify_id: 0, cookie: 0, reply: Bytes::new() });
    old.indata = Bytes::new();
    old.arg[..8].copy_from_slice(&notify_id.to_le_bytes());
    b.run(&Request::new("o", vec![old]));
    let ack = |cookie, reply: &'static str| Effect::NotifyAck { notify_id, cookie, reply: reply.into() };
    assert_eq!(b.effects, [ack(Some(8), "r"), ack(None, "")]);
    assert_eq!(
        b.op("gone", Op::Notify { cookie: 5, timeout_s: 1, payload: Bytes::new() }).0,
        Errno::ENOENT.neg()
    );
}

#[test]
fn a_request_is_what_its_operations_are() {
    let kind = |ops: &[Op], flags| {
        let ops: Vec<OsdOp> = ops.iter().cloned().map(OsdOp::from).collect();
        classify(&ops, flags).map(|k| (k.reads, k.writes, k.needs_read_cap, k.needs_write_cap, k.rwordered))
    };
    let call = |class: &str, method: &str| Op::Call {
        class: class.into(),
        method: method.into(),
        input: Bytes::new(),
    };
    assert_eq!(kind(&[Op::Stat], 0), Ok((true, false, true, false, false)));
    assert_eq!(kind(&[Op::Delete, Op::Stat], 0), Ok((true, true, true, true, false)));
    assert_eq!(kind(&[watch(1, watch_op::WATCH)], 0), Ok((true, true, true, true, false)));
    assert_eq!(kind(&[watch(1, watch_op::PING)], 0), Ok((true, false, true, false, true)));
    assert_eq!(kind(&[call("lock", "lock")], 0), Ok((true, true, false, false, false)));
    assert_eq!(kind(&[call("hello", "record_hello")], 0), Ok((false, true, false, false, false)));
    assert_eq!(kind(&[Op::Stat], flags::RWORDERED), Ok((true, false, true, false, true)));
    assert_eq!(kind(&[call("lock", "pick")], 0), Err(Errno::EOPNOTSUPP));
    assert_eq!(kind(&[call("none", "lock")], 0), Err(Errno::EPERM));
    assert_eq!(kind(&[], 0), Err(Errno::EINVAL));
}

#[test]
fn malformed_arguments_are_refused() {
    let mut b = Bench::new();
    b.op("o", write(0, "x"));
    let ops = [
        Op::OmapGetKeys { start_after: "a".into(), max: 1 },
        Op::OmapGetVals { start_after: "a".into(), max: 1, prefix: "p".into() },
        Op::OmapGetValsByKeys { keys: ["k".into()].into() },
        Op::OmapSetVals { vals: [("k".into(), "v".into())].into() },
        Op::OmapRmKeys { keys: ["k".into()].into() },
        Op::OmapCmp { assertions: [("k".into(), ("v".into(), 1))].into() },
        Op::SetXattr { name: "n".into(), value: "v".into() },
        Op::GetXattr { name: "n".into() },
        Op::Call { class: "hello".into(), method: "say_hello".into(), input: "i".into() },
        write(0, "data"),
        Op::WriteFull { extent: Extent::new(0, 4), data: "data".into() },
    ];
    for op in ops.map(OsdOp::from) {
        for n in 0..op.indata.len() {
            let cut = OsdOp { indata: op.indata.slice(..n), ..op.clone() };
            let reply = b.run(&Request::new("o", vec![cut]));
            assert_eq!(reply.result, Errno::EINVAL.neg(), "{:?} cut to {n}", op.code);
        }
    }
    assert_eq!(whole(&mut b, "o"), "x");
}

#[test]
fn tmaps_are_updated_and_become_omaps() {
    let mut b = Bench::new();
    let commands = |list: &[(u8, &str, Option<&str>)]| {
        let mut w = Writer::new();
        for (code, key, value) in list {
            w.u8(*code);
            w.blob(key.as_bytes());
            value.iter().for_each(|v| w.blob(v.as_bytes()));
        }
        Op::TmapUp { commands: w.into_bytes() }
    };
    assert_eq!(
        b.op("t", commands(&[(b'h', "head", None), (b's', "b", Some("2")), (b'c', "a", Some("1"))])).0,
        0
    );
    assert_eq!(b.op("t", commands(&[(b'c', "a", Some("1"))])).0, Errno::EEXIST.neg());
    assert_eq!(b.op("t", commands(&[(b'r', "z", None)])).0, Errno::ENOENT.neg());
    assert_eq!(b.op("t", commands(&[(b'R', "z", None), (b'r', "b", None)])).0, 0);
    assert_eq!(b.op("t", commands(&[(b'x', "z", None)])).0, Errno::EINVAL.neg());
    let (_, out) = b.op("t", Op::TmapGet);
    let map = (Bytes::from("head"), BTreeMap::from([(Bytes::from("a"), Bytes::from("1"))]));
    assert_eq!(<(Bytes, BTreeMap<Bytes, Bytes>)>::from_bytes(out), Ok(map.clone()));
    assert_eq!(b.op("t", Op::Tmap2Omap { flags: 0 }).0, 0);
    assert_eq!(b.op("t", Op::OmapGetHeader).1, "head");
    let (_, out) = b.op("t", Op::OmapGetValsByKeys { keys: ["a".into(), "b".into()].into() });
    assert_eq!(BTreeMap::from_bytes(out), Ok(map.1));
    assert_eq!(whole(&mut b, "t"), "");
    assert_eq!(b.op("t", Op::Tmap2Omap { flags: 0 }).0, Errno::ENODATA.neg());
    assert_eq!(b.op("t", Op::Tmap2Omap { flags: 1 }).0, 0);
}

#[test]
fn full_pools_refuse_growth_only() {
    let mut b = Bench::new();
    b.op("o", write(0, "0123456789"));
    b.pool.set_flag(maps::pool_flags::FULL);
    let mut grow = Request::new("o", vec![write(10, "more").into()]);
    grow.flags = flags::FULL_TRY;
    assert_eq!(b.run(&grow).result, Errno::ENOSPC.neg());
    b.pool.set_flag(maps::pool_flags::FULL_QUOTA);
    assert_eq!(b.run(&grow).result, Errno::EDQUOT.neg());
    assert_eq!(b.op("o", write(0, "9876543210")).0, 0);
    assert_eq!(b.op("o", Op::Truncate(Extent::new(3, 0))).0, 0);
    grow.flags = flags::FULL_FORCE;
    assert_eq!(b.run(&grow).result, 0);
    assert_eq!(b.op("o", Op::Delete).0, 0);
}

#[test]
fn clones_and_what_they_share_are_listed() {
    let mut b = Bench::new();
    let snapc = |ids: &[u64]| SnapContext { seq: ids[0], snaps: ids.to_vec() };
    b.op("o", write(0, "0123456789"));
    b.run(&Request { snapc: snapc(&[4, 2]), ..Request::new("o", vec![write(2, "XX").into()]) });
    b.run(&Request { snapc: snapc(&[7, 4, 2]), ..Request::new("o", vec![write(5, "Y").into()]) });
    assert_eq!((b.sums.objects, b.sums.clones, b.sums.bytes), (3, 2, 10 + 2 + 1));
    let mut list = Request::new("o", vec![Op::ListSnaps.into()]);
    list.object.snap = SnapId::SNAPDIR;
    let reply = b.run(&list);
    let got = ListSnapsResponse::from_bytes(reply.results[0].outdata.clone()).unwrap();
    let seen: Vec<_> =
        got.clones.iter().map(|c| (c.clone.0, c.snaps.len(), c.overlap.clone(), c.size)).collect();
    let head = (SnapId::HEAD.0, 0, vec![], 10);
    assert_eq!(seen, [(4, 2, vec![(0, 2), (4, 6)], 10), (7, 1, vec![(0, 5), (6, 4)], 10), head]);
    assert_eq!(got.seq, SnapId(7));
    let at = |b: &mut Bench, snap| {
        let mut r = Request::new("o", vec![Op::Read(Extent::default()).into()]);
        r.object.snap = SnapId(snap);
        let reply = b.run(&r);
        (reply.result, reply.results.first().map(|r| r.outdata.clone()).unwrap_or_default())
    };
    for (snap, want) in [(2, "0123456789"), (4, "0123456789"), (7, "01XX456789"), (9, "01XX4Y6789")] {
        assert_eq!(at(&mut b, snap), (0, want.into()), "{snap}");
    }
    assert_eq!(at(&mut b, 3), (Errno::ENOENT.neg(), Bytes::new()));
    // The head goes, its clones stay reachable; a new head hides nothing.
    b.run(&Request { snapc: snapc(&[7, 4, 2]), ..Request::new("o", vec![Op::Delete.into()]) });
    assert_eq!(at(&mut b, 7), (0, "01XX456789".into()));
    assert_eq!(b.op("o", Op::Stat).0, Errno::ENOENT.neg());
    assert_eq!((b.sums.objects, b.sums.whiteouts), (3, 1));
    let rollback = Request {
        snapc: snapc(&[7, 4, 2]),
        ..Request::new("o", vec![Op::Rollback { snap: SnapId(4) }.into()])
    };
    assert_eq!(b.run(&rollback).result, 0);
    assert_eq!(whole(&mut b, "o"), "0123456789");
    assert_eq!((b.sums.objects, b.sums.whiteouts), (3, 0));
}

/// `bad_writer` declares that it reads only: caps were asked for no more.
#[test]
fn what_a_method_may_not_change_is_not_kept_although_its_failure_is_allowed() {
    let mut b = Bench::new();
    let bad = Op::Call { class: "hello".into(), method: "bad_writer".into(), input: "x".into() };
    let others = Op::SetXattr { name: "a".into(), value: "v".into() };
    let reply = b.run(&Request::new("o", vec![failok(bad), others.into()]));
    assert_eq!((reply.result, reply.results[0].rval), (Errno::EIO.neg(), Errno::EIO.neg()));
    assert_eq!(b.op("o", Op::Stat).0, Errno::ENOENT.neg());
}

/// Ids in logs count what methods did too: two entries of one request are apart.
#[test]
fn methods_see_how_many_operations_the_request_has_done() {
    let mut b = Bench::new();
    let call = |method: &str| Op::Call { class: "rgw".into(), method: method.into(), input: Bytes::new() };
    let ops = vec![Op::Create.into(), call("bi_log_resync").into(), call("bi_log_stop").into()];
    assert_eq!(b.run(&Request::new("o", ops)).result, 0);
    let (_, keys) = b.op("o", Op::OmapGetKeys { start_after: Bytes::new(), max: 10 });
    let keys: Vec<Bytes> = Vec::from_bytes(keys).unwrap();
    let last = |key: &Bytes| String::from_utf8_lossy(key).rsplit('.').next().map(str::to_owned);
    let places: Vec<_> = keys.iter().filter_map(last).collect();
    // The header was read before; the first call did three operations in all.
    assert_eq!(places, ["2", "6"]);
}

#[test]
fn a_write_remembers_a_failure_that_was_allowed() {
    let mut b = Bench::new();
    b.op("o", Op::Create);
    let ops =
        vec![failok(Op::RmXattr { name: "x".into() }), failok(Op::OmapRmKeys { keys: Default::default() })];
    assert_eq!(b.run(&Request::new("o", ops)).result, 0);
    let ops = vec![
        failok(Op::CmpXattr { name: "x".into(), op: 1, mode: 1, value: "v".into() }),
        write(0, "x").into(),
    ];
    let reply = b.run(&Request::new("o", ops));
    let rvals: Vec<i32> = reply.results.iter().map(|r| r.rval).collect();
    assert_eq!((reply.result, rvals), (0, vec![Errno::ECANCELED.neg(), 0]));
}

#[test]
fn an_object_is_copied_piece_by_piece_with_all_that_belongs_to_it() {
    use messages::osd::{CopyCursor, CopyFromArgs, CopySource};
    let mut b = Bench::new();
    b.op("src", write(0, "0123456789"));
    b.op("src", Op::SetXattr { name: "a".into(), value: "1".into() });
    let vals = (0..20).map(|i| (format!("k{i:02}").into(), format!("value{i}").into()));
    let vals: std::collections::BTreeMap<Bytes, Bytes> = vals.chain([(Bytes::new(), "e".into())]).collect();
    b.op("src", Op::OmapSetVals { vals: vals.clone() });
    b.op("src", Op::OmapSetHeader { header: "head".into() });
    let (mut copied, mut cursor, mut pieces) = (pg::exec::Copied::default(), CopyCursor::default(), 0);
    while !cursor.is_complete() {
        let (code, piece) = b.op("src", Op::CopyGet { max: 40, cursor: cursor.clone() });
        assert_eq!(code, 0);
        assert!(pg::exec::Copied::default().add(piece.slice(..piece.len() - 1)).is_err());
        cursor = copied.add(piece).unwrap();
        pieces += 1;
    }
    assert!(pieces > 5, "{pieces} pieces");
    assert_eq!(
        (copied.data.concat().as_slice(), copied.omap_header.as_ref()),
        (&b"0123456789"[..], &b"head"[..])
    );
    assert_eq!(copied.omap.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(), vals);
    copied.user_version = 77;
    // The copy replaces what was there.
    b.op("dst", write(0, "something longer than ten bytes"));
    b.op("dst", Op::SetXattr { name: "old".into(), value: "1".into() });
    b.sources = [(1, Ok(copied)), (0, Err(Errno::ENOENT))].into();
    let (from, args) = (CopySource::default(), CopyFromArgs::default());
    let copy = |truncation| Op::CopyFrom2 { from: from.clone(), args, truncation };
    let reply = b.run(&Request::new("dst", vec![failok(Op::Create), copy(Some((5, 3))).into()]));
    assert_eq!((reply.result, b.op("dst", Op::Read(Extent::default())).1.as_ref()), (0, &b"0123456789"[..]));
    assert_eq!(b.op("dst", Op::GetXattr { name: "old".into() }).0, Errno::ENODATA.neg());
    assert_eq!(b.op("dst", Op::GetXattr { name: "a".into() }).1, "1");
    let reply = b.run(&Request::new("only", vec![copy(None).into()]));
    assert_eq!(reply.result, Errno::ENOENT.neg(), "the source could not be fetched");
    b.sources = [(0, b.sources[&1].clone())].into();
    let reply = b.run(&Request::new("only", vec![copy(None).into()]));
    assert_eq!((reply.result, reply.user_version), (0, 77), "the version of the source");
}

/// What the differential test against a real cluster has found.
#[test]
fn operations_on_what_the_request_has_just_made_see_what_is_stored() {
    let mut b = Bench::new();
    let set = |key: &str| Op::OmapSetVals { vals: [(Bytes::from(key.to_owned()), "z".into())].into() };
    let cmp = |key: &str| Op::OmapCmp {
        assertions: [(Bytes::from(key.to_owned()), ("m".into(), CmpOp::Lt as i32))].into(),
    };
    let new = b.run(&Request::new("new", vec![set("k").into(), cmp("k").into()]));
    assert_eq!(new.result, Errno::ENOENT.neg(), "the store has no omap yet");
    b.op("old", set("k"));
    let again = vec![Op::Delete.into(), Op::Create.into(), cmp("k").into()];
    assert_eq!(b.run(&Request::new("old", again)).result, Errno::ECANCELED.neg(), "still stored");
    let empty = || Op::WriteFull { extent: Extent::new(0, 0), data: Bytes::new() };
    let first = b.run(&Request::new("empty", vec![empty().into()])).user_version;
    assert_eq!(b.run(&Request::new("empty", vec![empty().into()])).user_version, first, "nothing changed");
}

/// Codes of a real cluster for what is beyond its limits; nothing of such a request is applied.
#[test]
fn what_is_beyond_the_limits_is_refused_whole() {
    let mut b = Bench::new();
    b.op("o", write(0, "x"));
    let big = 128u64 << 20;
    let at = |offset, length| Op::Write {
        extent: Extent::new(offset, length),
        data: vec![1; length as usize].into(),
    };
    for (op, code) in [
        (at(big - 1, 2), Errno::EFBIG),
        (at(big, 1), Errno::EFBIG),
        (at(u64::MAX, 2), Errno::EFBIG),
        (Op::Truncate(Extent::new(big, 0)), Errno::EFBIG),
        (Op::Truncate(Extent::new(u64::MAX, 0)), Errno::EFBIG),
        (Op::SetXattr { name: "n".repeat(101), value: Bytes::new() }, Errno::ENAMETOOLONG),
    ] {
        let before = b.run(&Request::new("o", vec![Op::Stat.into()])).user_version;
        let set = Op::SetXattr { name: "half".into(), value: "applied".into() };
        let reply = b.run(&Request::new("o", vec![write(0, "y").into(), set.into(), op.clone().into()]));
        assert_eq!(reply.result, code.neg(), "{op:?}");
        assert_eq!(
            (whole(&mut b, "o").as_ref(), b.op("o", Op::GetXattr { name: "half".into() }).0),
            (&b"x"[..], -61)
        );
        assert_eq!(b.run(&Request::new("o", vec![Op::Stat.into()])).user_version, before);
    }
    for (seq, snaps) in [(5, vec![3, 5]), (4, vec![5, 3]), (5, vec![5, 5])] {
        let mut r = Request::new("o", vec![write(0, "y").into()]);
        r.snapc = SnapContext { seq, snaps };
        assert_eq!(b.run(&r).result, Errno::EINVAL.neg());
    }
    assert_eq!(whole(&mut b, "o"), "x");
}

/// Small requests for much work are refused whole, and what a client of good will asks for is not.
#[test]
fn the_work_of_one_request_is_bounded() {
    let mut b = Bench::new();
    b.config.max_object_size = 2 << 20;
    let size = 1u64 << 20;
    let data: Bytes = vec![7; size as usize].into();
    b.op("o", Op::WriteFull { extent: Extent::new(0, size), data: data.clone() });
    let checksum = |chunk_size| Op::Checksum {
        offset: 0,
        length: size,
        chunk_size,
        kind: messages::osd::checksum_type::CRC32C,
        init: Bytes::from_static(&[0; 4]),
    };
    let same = Op::WriteSame { offset: 0, length: 2 << 20, data_length: 1, data: Bytes::from_static(b"x") };
    let repeated = |op: Op, n: usize| vec![OsdOp::from(op); n];
    let sparsify = |grain: u64| Op::Call {
        class: "rbd".into(),
        method: "sparsify".into(),
        input: (grain, false).to_bytes(),
    };
    // A key that is not there, whose value is held against a default of as many bytes.
    let values = BTreeMap::from([(Bytes::from_static(b"k"), data.clone())]);
    let arguments = ((1u8, 1u8), (values, Some(data)));
    let input = Writer::collect(|w| w.envelope(1, 1, |w| arguments.encode(w)));
    let compare = Op::Call { class: "cmpomap".into(), method: "cmp_vals".into(), input };
    for (what, ops, result) in [
        ("reads", repeated(Op::Read(Extent::default()), 50), 0),
        ("reads", repeated(Op::Read(Extent::default()), 65), Errno::E2BIG.neg()),
        ("sparse reads", repeated(Op::SparseRead(Extent::new(0, size)), 65), Errno::E2BIG.neg()),
        ("operations", repeated(Op::Stat, 4_000), 0),
        ("operations", repeated(Op::Stat, 4_100), Errno::E2BIG.neg()),
        ("checksums", repeated(checksum(4096), 10), 0),
        ("checksums", repeated(checksum(1), 2), Errno::E2BIG.neg()),
        ("copies out", repeated(same.clone(), 1), 0),
        ("copies out", repeated(same, 40), Errno::E2BIG.neg()),
        ("runs", repeated(sparsify(4096), 1), 0),
        ("what methods compute", repeated(compare.clone(), 50), 0),
        ("what methods compute", repeated(compare, 65), Errno::E2BIG.neg()),
    ] {
        let n = ops.len();
        let failed = ops.iter().map(|op| OsdOp { flags: op_flags::FAILOK, ..op.clone() }).collect();
        assert_eq!(b.run(&Request::new("o", ops)).result, result, "{n} {what}");
        if result < 0 {
            assert_eq!(b.run(&Request::new("o", failed)).result, result, "{n} {what}, failures allowed");
        }
    }
    let keys =
        |n: u32| Op::OmapRmKeys { keys: (0..n).map(|i| Bytes::from(i.to_le_bytes().to_vec())).collect() };
    assert_eq!(b.op("o", keys(200_000)).0, 0);
    assert_eq!(b.op("o", keys(270_000)).0, Errno::E2BIG.neg());
    let tmap = |n: usize| Op::TmapPut { data: (Bytes::from(vec![1; n]), 0u32).to_bytes() };
    assert_eq!((b.op("t", tmap(1 << 10)).0, b.op("t", tmap(8 << 20)).0), (0, Errno::E2BIG.neg()));
    let holes: Bytes = b"a\0".repeat(200_000).into();
    b.op("holes", Op::WriteFull { extent: Extent::new(0, 400_000), data: holes });
    assert_eq!(b.op("holes", sparsify(1)).0, Errno::E2BIG.neg());
    assert_eq!(whole(&mut b, "holes").len(), 400_000);
}

/// Millions of short things in a method's input are refused before they are decoded.
#[test]
fn what_a_methods_input_becomes_counts() {
    let mut b = Bench::new();
    b.op("o", Op::WriteFull { extent: Extent::new(0, 1), data: Bytes::from_static(b"x") });
    let empty_ids = |n: u32| {
        // An envelope of version 1, and a list of names without a byte.
        let list = [n.to_le_bytes().to_vec(), vec![0; 4 * n as usize]].concat();
        let head = [vec![1, 1], (list.len() as u32).to_le_bytes().to_vec()].concat();
        Op::Call { class: "otp".into(), method: "otp_get".into(), input: Bytes::from([head, list].concat()) }
    };
    assert_ne!(b.op("o", empty_ids(10)).0, Errno::E2BIG.neg());
    assert_eq!(b.op("o", empty_ids(9 << 20)).0, Errno::E2BIG.neg());
}

/// Whoever lists one short key has the long value behind it read, which is nowhere in the answer.
#[test]
fn metadata_that_is_read_for_a_list_counts() {
    let mut b = Bench::with_options(store::Options { memory_bytes: 4 << 20, ..Default::default() });
    b.op("o", Op::WriteFull { extent: Extent::new(0, 1), data: Bytes::from_static(b"x") });
    for i in 0..20u8 {
        let entry = |behind: &[u8], len| (Bytes::from([&[i], behind].concat()), Bytes::from(vec![1; len]));
        b.op("o", Op::OmapSetVals { vals: [entry(b"", 1), entry(b"L", 1 << 20)].into() });
        b.checkpoint();
    }
    let list = |i: u8| Op::OmapGetVals {
        start_after: Bytes::from(vec![i.wrapping_sub(1), b'M']),
        max: 1,
        prefix: Bytes::new(),
    };
    let asks = |n: usize| (1..20u8).cycle().take(n).map(|i| list(i).into()).collect();
    let few = b.run(&Request::new("o", asks(19)));
    assert_eq!(few.result, 0);
    assert!(few.results.iter().all(|r| r.outdata.len() < 100), "short answers");
    let before = b.store.metadata_bytes_read();
    assert_eq!(b.run(&Request::new("o", asks(600))).result, Errno::E2BIG.neg());
    let read = b.store.metadata_bytes_read() - before;
    // The whole of what a request may have done, once for the run in parts and once for the other.
    assert!(read < 2 * (260 << 20), "{read} bytes for 600 short answers");
}

/// What a request answers is in memory at one time.
#[test]
fn the_answers_of_one_request_are_bounded() {
    const MIB: u64 = 1 << 20;
    let mut b = Bench::new();
    b.op("o", Op::WriteFull { extent: Extent::new(0, MIB), data: vec![7; MIB as usize].into() });
    let entries = |n: u16, bytes: usize| {
        let entry = |i: u16| (Bytes::copy_from_slice(&i.to_be_bytes()), Bytes::from(vec![1; bytes]));
        Op::OmapSetVals { vals: (0..n).map(entry).collect() }
    };
    b.op("o", entries(2, MIB as usize));
    b.op("many", entries(1_000, 1 << 10));
    let list = Op::OmapGetVals { start_after: Bytes::new(), max: u64::MAX, prefix: Bytes::new() };
    let two = Op::OmapGetValsByKeys { keys: (0..2u16).map(|i| i.to_be_bytes().to_vec().into()).collect() };
    let too_much = Errno::E2BIG.neg();
    for (object, op, n, result) in [
        ("o", Op::Read(Extent::default()), 140, 0),
        ("o", Op::Read(Extent::default()), 150, too_much),
        ("o", Op::SparseRead(Extent::new(0, MIB)), 150, too_much),
        ("o", list.clone(), 60, 0),
        ("o", list.clone(), 80, too_much),
        ("o", two.clone(), 70, 0),
        ("o", two, 75, too_much),
        // Pages become shorter.
        ("many", list, 150, 0),
    ] {
        let reply = b.run(&Request::new(object, vec![OsdOp::from(op.clone()); n]));
        assert_eq!(reply.result, result, "{n} times {op:?}");
        let bytes: usize = reply.results.iter().map(|r| r.outdata.len()).sum();
        assert!(bytes as u64 <= 144 * MIB, "{bytes}");
    }
}
