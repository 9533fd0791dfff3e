//! Operations that no capture holds: their wire form by hand from the structures' layout, and back.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::Encode;
use messages::osd::{
    ARG_LEN, CmpOp, CopyCursor, CopyFromArgs, CopySource, Extent, ListFilter, MOsdOp, MOsdOpReply, MOsdPing,
    Op, OpCode, OpResult, OsdOp, cmp_mode, copy_from_flags, flags, op_flags,
};
use messages::{Message, Payload, WireMessage};
use types::{
    EntityName, EntityType, Epoch, Eversion, HObject, ObjectLocator, PgId, PoolId, ReqId, SnapContext,
    SnapId, SpgId, Utime,
};

fn arg(hex: &str) -> [u8; ARG_LEN] {
    let mut out = [0; ARG_LEN];
    for (i, pair) in hex.split(' ').enumerate() {
        out[i] = u8::from_str_radix(pair, 16).expect("hex");
    }
    out
}

/// The operation builds to this argument and data, and parses back to itself.
fn check(op: Op, code: OpCode, want_arg: &str, want_data: &[u8]) {
    let raw = OsdOp::from(op.clone());
    assert_eq!((raw.code, raw.arg, &raw.indata[..]), (code, arg(want_arg), want_data));
    assert_eq!(raw.parse(), Ok(op));
}

fn b(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

#[test]
fn arguments_have_cephs_layout() {
    check(
        Op::CmpXattr { name: "n".into(), op: CmpOp::Gte as u8, mode: cmp_mode::STRING, value: b("vv") },
        OpCode::CMPXATTR,
        "01 00 00 00 02 00 00 00 04 01",
        b"nvv",
    );
    check(
        Op::Checksum { offset: 1, length: 8, chunk_size: 4, kind: 2, init: b("\x7f\x00\x00\x00") },
        OpCode::CHECKSUM,
        "01 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00 04 00 00 00 02",
        b"\x7f\0\0\0",
    );
    check(
        Op::AllocHint { object_size: 5, write_size: 6, flags: 7 },
        OpCode::SET_ALLOC_HINT,
        "05 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00 07 00 00 00",
        b"",
    );
    check(
        Op::OmapCmp { assertions: [(b("k"), (b("v"), 1))].into() },
        OpCode::OMAP_CMP,
        "00",
        b"\x01\0\0\0\x01\0\0\0k\x01\0\0\0v\x01\0\0\0",
    );
    check(Op::Rollback { snap: SnapId(9) }, OpCode::ROLLBACK, "09", b"");
    check(
        Op::Call { class: "c".into(), method: "mm".into(), input: b("in") },
        OpCode::CALL,
        "01 02 00 02 00 00 00",
        b"cmmin",
    );
    check(
        Op::Watch { cookie: 3, op: 5, generation: 2, timeout_s: 30 },
        OpCode::WATCH,
        "03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 05 02 00 00 00 1e 00 00 00",
        b"",
    );
    check(
        Op::Read(Extent { offset: 1, length: 2, truncate_size: 3, truncate_seq: 4 }),
        OpCode::READ,
        "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 04",
        b"",
    );
}

/// Every operation with arguments, for round trips and cutting.
fn samples() -> Vec<Op> {
    let from = CopySource { object: "src".into(), locator: ObjectLocator::pool(PoolId(3)) };
    let args =
        CopyFromArgs { snap: SnapId(4), version: 5, flags: copy_from_flags::TRUNCATE_SEQ, src_fadvise: 4 };
    let cursor = CopyCursor { data_offset: 7, ..Default::default() };
    let plain = [b("\x01\0\0\0a"), b("\x01\0\0\0v"), HObject::min().to_bytes()].concat();
    let filter = ListFilter { kind: "plain".into(), args_and_cursor: plain.into() };
    let keys: BTreeSet<Bytes> = [b("a"), Bytes::from_static(&[0x80, 0xff])].into();
    let vals: BTreeMap<Bytes, Bytes> = keys.iter().map(|k| (k.clone(), b("v"))).collect();
    vec![
        Op::CopyFrom { from: from.clone(), args: CopyFromArgs { flags: 0, ..args } },
        Op::CopyFrom2 { from: from.clone(), args, truncation: Some((8, 9)) },
        Op::CopyFrom2 { from, args: CopyFromArgs { flags: 0, ..args }, truncation: None },
        Op::CopyGet { max: 4096, cursor },
        Op::PgnlsFilter { count: 10, start_epoch: 2, filter: filter.clone() },
        Op::PglsFilter { count: 10, start_epoch: 2, filter },
        Op::OmapGetKeys { start_after: b("k"), max: 1 },
        Op::OmapGetVals { start_after: b("k"), max: 1, prefix: b("p") },
        Op::OmapGetValsByKeys { keys: keys.clone() },
        Op::OmapRmKeys { keys },
        Op::OmapSetVals { vals },
        Op::OmapRmKeyRange { begin: b("a"), end: b("b") },
        Op::SetXattr { name: "n".into(), value: b("v") },
        Op::GetXattr { name: "n".into() },
        Op::RmXattr { name: "n".into() },
        Op::CmpXattr { name: "n".into(), op: 1, mode: cmp_mode::U64, value: b("\x01\0\0\0\0\0\0\0") },
        Op::Call { class: "lock".into(), method: "lock".into(), input: b("x") },
    ]
}

#[test]
fn operations_come_back_and_cut_data_is_refused() {
    for op in samples() {
        let raw = OsdOp::from(op.clone());
        assert_eq!(raw.parse(), Ok(op.clone()));
        // A filter's end is the filter's own business.
        if matches!(op, Op::PglsFilter { .. } | Op::PgnlsFilter { .. }) {
            continue;
        }
        for n in 0..raw.indata.len() {
            let cut = OsdOp { indata: raw.indata.slice(..n), ..raw.clone() };
            assert!(cut.parse().is_err(), "{n} bytes of {op:?}");
        }
    }
}

#[test]
fn a_plain_filter_tells_attribute_value_and_cursor() {
    let Some(Op::PgnlsFilter { filter, .. }) =
        samples().into_iter().find(|o| matches!(o, Op::PgnlsFilter { .. }))
    else {
        panic!("a sample is missing");
    };
    assert_eq!(filter.plain(), Ok(("a".into(), "v".into(), HObject::min())));
}

#[test]
fn malformed_notifies_are_taken_as_old_ones() {
    let short = OsdOp { code: OpCode::NOTIFY, indata: b("xx"), arg: arg("05"), ..OsdOp::default() };
    assert_eq!(short.parse(), Ok(Op::Notify { cookie: 5, timeout_s: 0, payload: Bytes::new() }));
    let short = OsdOp { code: OpCode::NOTIFY_ACK, indata: b("xx"), arg: arg("05"), ..OsdOp::default() };
    assert_eq!(short.parse(), Ok(Op::NotifyAck { notify_id: 5, cookie: 0, reply: Bytes::new() }));
}

#[test]
fn the_truncation_that_old_clients_send_means_none() {
    let old = Extent { truncate_seq: 1, truncate_size: u64::MAX, ..Extent::new(3, 4) };
    assert_eq!(old.normalised(), Extent::new(3, 4));
    let real = Extent { truncate_seq: 2, truncate_size: u64::MAX, ..Extent::new(3, 4) };
    assert_eq!(real.normalised(), real);
}

fn request(ops: Vec<OsdOp>) -> MOsdOp {
    let pgid = PgId::new(PoolId(1), 5);
    MOsdOp {
        pgid: SpgId::replicated(pgid),
        epoch: Epoch(10),
        flags: flags::WRITE | flags::ONDISK | flags::ACK,
        explicit_reqid: ReqId { inc: 2, ..ReqId::default() },
        client_inc: 2,
        mtime: Utime::new(1, 2),
        object: HObject {
            pool: pgid.pool,
            hash: 0x15,
            name: "obj".into(),
            snap: SnapId::HEAD,
            ..HObject::min()
        },
        ops,
        snapc: SnapContext::default(),
        retry_attempt: 0,
        features: 0,
    }
}

#[test]
fn operations_share_the_data_segment_without_a_copy() {
    let big = Bytes::from(vec![7u8; 4096]);
    let write = OsdOp::from(Op::Write { extent: Extent::new(0, 4096), data: big.clone() });
    let stat = OsdOp { flags: op_flags::FAILOK, ..OsdOp::from(Op::Stat) };
    let wire = request(vec![stat.clone(), write]).to_wire(4);
    assert_eq!(wire.data.as_ptr(), big.as_ptr(), "a single payload is not copied out");
    let Ok(Message::OsdOp(got)) = Message::decode(&wire) else { panic!("not a request") };
    assert_eq!(got.ops[1].indata.as_ptr(), big.as_ptr(), "nor in");
    assert_eq!(got.ops[0], stat);
}

#[test]
fn several_payloads_are_cut_apart_again() {
    let ops = vec![
        OsdOp::from(Op::SetXattr { name: "a".into(), value: b("1") }),
        OsdOp::from(Op::Create),
        OsdOp::from(Op::Append { extent: Extent::new(0, 3), data: b("xyz") }),
        OsdOp::from(Op::Write { extent: Extent::new(0, 2), data: b("uv") }),
    ];
    let m = request(ops);
    let wire = m.to_wire(4);
    assert_eq!(&wire.data[..], b"a1xyzuv");
    assert_eq!(Message::decode(&wire), Ok(m.into()));
}

#[test]
fn a_request_is_named_by_its_sender_unless_a_daemon_says_otherwise() {
    let m = request(vec![]);
    let source = EntityName::client(4100);
    assert_eq!(m.reqid(source, 7), ReqId { name: source, tid: 7, inc: 2 });
    let explicit = ReqId { name: EntityName::client(1), tid: 3, inc: 1 };
    let named = MOsdOp { explicit_reqid: explicit, ..m };
    for daemon in [EntityName::osd(3), EntityName::new(EntityType::Mds, 2)] {
        assert_eq!(named.reqid(daemon, 7), explicit);
    }
    for other in [source, EntityName::new(EntityType::Mgr, 1)] {
        assert_eq!(named.reqid(other, 7), ReqId { name: other, tid: 7, inc: 1 });
    }
}

#[test]
fn a_key_equal_to_the_name_is_no_key() {
    let mut m = request(vec![]);
    m.object.key = "obj".into();
    let Ok(Message::OsdOp(got)) = Message::decode(&m.to_wire(1)) else { panic!("not a request") };
    assert_eq!(got.object.key, "");
}

#[test]
fn a_reply_repeats_the_request_and_carries_each_output() {
    let m = request(vec![OsdOp::from(Op::Stat), OsdOp::from(Op::Read(Extent::new(0, 5)))]);
    let mut reply = MOsdOpReply::to(&m, 0, Epoch(11), flags::ONDISK);
    assert_eq!(reply.flags, i64::from(flags::WRITE | flags::ONDISK));
    reply.ops[0].rval = -2;
    reply.ops[1].outdata = b("hello");
    reply.set_versions(Eversion::new(Epoch(11), 40), 39);
    assert_eq!((reply.replay_version.version, reply.bad_replay_version.version), (40, 39));
    let wire: WireMessage = reply.to_wire(8);
    assert_eq!(&wire.data[..], b"hello");
    let Ok(Message::OsdOpReply(got)) = Message::decode(&wire) else { panic!("not a reply") };
    assert_eq!(*got, reply);
    assert_eq!(got.ops[0], OpResult { rval: -2, ..OpResult::from(&m.ops[0]) });
}

#[test]
fn long_outputs_are_sent_from_where_they_lie() {
    let outputs = [10, 0, 100_000, 20, 30, 200_000, 70_000, 5].map(|n| Bytes::from(vec![n as u8; n]));
    let m = request(vec![OsdOp::from(Op::Stat); outputs.len()]);
    let mut reply = MOsdOpReply::to(&m, 0, Epoch(11), flags::ONDISK);
    for (op, outdata) in reply.ops.iter_mut().zip(&outputs) {
        op.outdata = outdata.clone();
    }
    let wire = reply.to_wire(8);
    let pieces: Vec<&Bytes> = std::iter::once(&wire.data).chain(&wire.more).collect();
    assert_eq!(pieces.iter().map(|p| p.len()).collect::<Vec<_>>(), [10, 100_000, 50, 200_000, 70_000, 5]);
    for (piece, output) in [(1, 2), (3, 5), (4, 6)] {
        assert_eq!(pieces[piece].as_ptr(), outputs[output].as_ptr(), "no copy");
    }
    assert_eq!(wire.data_len(), outputs.iter().map(Bytes::len).sum::<usize>());
    let sent = WireMessage { data: wire.whole_data(), more: vec![], ..wire.clone() };
    for wire in [wire, sent] {
        assert_eq!(Message::decode(&wire), Ok(reply.clone().into()));
    }
}

#[test]
fn an_output_in_pieces_is_sent_from_where_they_lie_and_comes_as_one() {
    let pieces = [100_000, 200_000, 70_000].map(|n| Bytes::from(vec![n as u8; n]));
    let m = request(vec![OsdOp::from(Op::Stat); 2]);
    let mut reply = MOsdOpReply::to(&m, 0, Epoch(11), flags::ONDISK);
    reply.ops[0].outdata = pieces[0].clone();
    reply.ops[0].more = pieces[1..].to_vec();
    reply.ops[1].outdata = b("behind it");
    let wire: WireMessage = reply.to_wire(8);
    for (sent, piece) in std::iter::once(&wire.data).chain(&wire.more).zip(&pieces) {
        assert_eq!((sent.as_ptr(), sent.len()), (piece.as_ptr(), piece.len()), "no copy");
    }
    let Ok(Message::OsdOpReply(got)) = Message::decode(&wire) else { panic!("not a reply") };
    assert_eq!((got.ops[0].output_len(), got.ops[0].more.len()), (370_000, 0));
    assert_eq!(got.ops[0], reply.ops[0].clone().joined());
    assert_eq!(got.ops[1].outdata, "behind it");
}

#[test]
fn one_output_is_not_copied_however_short() {
    let m = request(vec![OsdOp::from(Op::Stat), OsdOp::from(Op::Read(Extent::new(0, 5)))]);
    let mut reply = MOsdOpReply::to(&m, 0, Epoch(11), flags::ONDISK);
    reply.ops[1].outdata = b("hello");
    let wire = reply.to_wire(8);
    assert_eq!((wire.data.as_ptr(), wire.more.len()), (reply.ops[1].outdata.as_ptr(), 0));
}

#[test]
fn pings_are_padded_to_the_wanted_size() {
    let ping = MOsdPing { op: MOsdPing::PING, min_message_size: 2000, ..MOsdPing::default() };
    let wire = ping.to_wire(0);
    assert!(wire.front.len() >= 2000 && wire.front.len() < 2100);
    assert_eq!(Message::decode(&wire), Ok(Message::OsdPing(ping)));
}
