//! Captured messages of Ceph 16.2.15 decode, and encode to the same bytes again.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, Encode};
use common::{captured, captured_types};
use messages::osd::{
    CopyData, ListSnapsResponse, ListWatchersResponse, MOsdOp, NotifyResult, OmapKeysResponse,
    OmapValsResponse, Op, OpCode, OsdOp, PgnlsResponse, SparseReadResponse, StatResponse, watch_event,
};
use messages::pg_map_digest::PgMapDigest;
use messages::{Message, WireMessage, type_numbers as ty};

#[test]
fn every_captured_message_comes_back_byte_for_byte() {
    let types = captured_types();
    assert!(types.len() >= 45, "captures are missing: {types:?}");
    for ty in types {
        for (i, wire) in captured(ty).iter().enumerate() {
            check_round_trip(wire, &format!("type {ty} message {i}"));
        }
    }
}

fn check_round_trip(wire: &WireMessage, what: &str) {
    let message = Message::decode(wire).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(!matches!(message, Message::Unknown(_)), "{what} is not known");
    let mut again = message.clone().into_wire(wire.header.tid);
    // Ceph leaves a ping reply's compat version 0, and OSDs pass maps and logs on at a lower priority than monitors.
    if wire.header.ty == ty::PING {
        again.header.compat_version = wire.header.compat_version;
    }
    // Sent by monitors and by others; by OSDs for recovery.
    let many_senders = [ty::PING, ty::OSD_MAP, ty::LOG, ty::OSD_MARK_ME_DOWN, ty::OSD_OP, ty::OSD_OP_REPLY];
    if many_senders.contains(&wire.header.ty) {
        again.header.priority = wire.header.priority;
    }
    assert_eq!(again.header, wire.header, "{what} {message:?}");
    assert_same_bytes(&again.front, &wire.front, what, &message);
    assert_same_bytes(&again.middle, &wire.middle, what, &message);
    assert_same_bytes(&again.data, &wire.data, what, &message);
}

fn assert_same_bytes(got: &Bytes, want: &Bytes, what: &str, message: &Message) {
    if got != want {
        let at = got.iter().zip(want).position(|(a, b)| a != b).unwrap_or(got.len().min(want.len()));
        panic!("{what}: {} and {} bytes, different from {at}: {message:?}", got.len(), want.len());
    }
}

/// Its hash maps come in an order of their own: the same things are said in as many bytes.
#[test]
fn digests_of_pg_statistics_say_the_same_again() {
    let (mut pools, mut osds) = (0, 0);
    for wire in captured(ty::MON_MGR_REPORT) {
        let Ok(Message::MonMgrReport(m)) = Message::decode(&wire) else { panic!("a report") };
        if m.digest.is_empty() {
            continue;
        }
        let digest = PgMapDigest::from_bytes(m.digest.clone()).expect("decodes");
        let again = digest.to_bytes();
        assert_eq!(again.len(), m.digest.len());
        assert_eq!(PgMapDigest::from_bytes(again), Ok(digest.clone()));
        let by_state: i64 = digest.num_pg_by_state.values().map(|n| i64::from(*n)).sum();
        assert_eq!(digest.num_pg, by_state);
        assert_eq!(digest.num_pg, digest.num_pg_by_pool.values().sum::<i64>());
        pools += digest.pools.len();
        osds += digest.num_pg_by_osd.len();
        for n in (0..m.digest.len()).step_by(7) {
            assert!(PgMapDigest::from_bytes(m.digest.slice(..n)).is_err(), "{n}");
        }
    }
    assert!(pools > 0 && osds > 0, "{pools} pools, {osds} OSDs");
}

fn requests() -> Vec<MOsdOp> {
    let decode = |w: &WireMessage| match Message::decode(w) {
        Ok(Message::OsdOp(m)) => *m,
        other => panic!("not a request: {other:?}"),
    };
    captured(ty::OSD_OP).iter().map(decode).collect()
}

#[test]
fn operations_parse_and_build_to_the_same_bytes() {
    let mut seen = BTreeSet::new();
    for op in requests().iter().flat_map(|m| &m.ops) {
        let parsed = op.parse().unwrap_or_else(|e| panic!("{op:?}: {e}"));
        let mut built = OsdOp { flags: op.flags, ..OsdOp::from(parsed.clone()) };
        // Clients also fill in an extent where the operation has none; no server reads it.
        if !op.code.uses_extent() && built.arg.iter().all(|b| *b == 0) {
            built.arg = op.arg;
        }
        assert_eq!(built.indata, op.indata, "{parsed:?}");
        assert_eq!(built.arg, op.arg, "{parsed:?}");
        if !matches!(parsed, Op::Other(_)) {
            seen.insert(op.code);
        }
    }
    let must = [
        OpCode::READ,
        OpCode::STAT,
        OpCode::SPARSE_READ,
        OpCode::NOTIFY,
        OpCode::NOTIFY_ACK,
        OpCode::LIST_WATCHERS,
        OpCode::LIST_SNAPS,
        OpCode::OMAP_GET_KEYS,
        OpCode::OMAP_GET_VALS,
        OpCode::OMAP_GET_VALS_BY_KEYS,
        OpCode::OMAP_SET_VALS,
        OpCode::OMAP_RM_KEYS,
        OpCode::OMAP_RM_KEY_RANGE,
        OpCode::COPY_GET,
        OpCode::COPY_FROM,
        OpCode::CMPEXT,
        OpCode::GETXATTR,
        OpCode::SETXATTR,
        OpCode::CALL,
        OpCode::PGNLS,
        OpCode::WRITE,
        OpCode::WRITEFULL,
        OpCode::APPEND,
        OpCode::TRUNCATE,
        OpCode::DELETE,
        OpCode::CREATE,
        OpCode::ROLLBACK,
        OpCode::WATCH,
        OpCode::WRITESAME,
        OpCode::ASSERT_VER,
    ];
    for code in must {
        assert!(seen.contains(&code), "no capture of {code}");
    }
}

#[test]
fn operations_carry_what_the_client_meant() {
    let ops: Vec<Op> = requests().iter().flat_map(|m| &m.ops).map(|o| o.parse().expect("parses")).collect();
    let has = |f: &dyn Fn(&Op) -> bool| ops.iter().any(f);
    assert!(has(&|o| matches!(o, Op::SetXattr { name, value } if name == "k1" && value == "v1")));
    assert!(has(&|o| matches!(o, Op::OmapSetVals { vals } if vals.get(&b"k2"[..]) == Some(&"22".into()))));
    assert!(has(&|o| matches!(o, Op::Notify { payload, timeout_s: 5, .. } if payload.ends_with(b"payload"))
        || matches!(o, Op::Notify { timeout_s, .. } if *timeout_s > 0)));
    assert!(has(&|o| matches!(o, Op::Call { class, method, .. } if !class.is_empty() && !method.is_empty())));
    assert!(has(&|o| matches!(o, Op::CopyFrom { from, .. } if !from.object.is_empty() && from.pool().0 > 0)));
    assert!(has(&|o| matches!(o, Op::Pgnls(a) if a.count > 0 && a.cursor.is_min())));
    assert!(has(
        &|o| matches!(o, Op::WriteSame { data_length, data, .. } if *data_length == data.len() as u64)
    ));
}

#[test]
fn the_head_of_a_request_agrees_with_the_whole() {
    for wire in captured(ty::OSD_OP) {
        let head = MOsdOp::decode_head(&wire).expect("decodes");
        let Ok(Message::OsdOp(whole)) = Message::decode(&wire) else { panic!("not a request") };
        assert_eq!((head.pgid, head.epoch, head.flags), (whole.pgid, whole.epoch, whole.flags));
        assert_eq!((head.hash, head.explicit_reqid), (whole.object.hash, whole.explicit_reqid));
    }
}

fn check_response<T: Decode + Encode + std::fmt::Debug>(outdata: &Bytes) -> T {
    let got =
        T::from_bytes(outdata.clone()).unwrap_or_else(|e| panic!("{}: {e}", std::any::type_name::<T>()));
    assert_eq!(got.to_bytes(), outdata, "{got:?}");
    for n in 0..outdata.len() {
        assert!(T::from_bytes(outdata.slice(..n)).is_err(), "{n} bytes of {got:?}");
    }
    got
}

#[test]
fn outputs_of_operations_come_back_byte_for_byte() {
    let mut seen = BTreeSet::new();
    for wire in captured(ty::OSD_OP_REPLY) {
        let Ok(Message::OsdOpReply(reply)) = Message::decode(&wire) else { panic!("not a reply") };
        for op in reply.ops.iter().filter(|op| !op.outdata.is_empty()) {
            let out = &op.outdata;
            seen.insert(op.code);
            match op.code {
                OpCode::STAT => assert!(check_response::<StatResponse>(out).mtime.sec > 0),
                OpCode::OMAP_GET_KEYS => drop(check_response::<OmapKeysResponse>(out)),
                OpCode::OMAP_GET_VALS => drop(check_response::<OmapValsResponse>(out)),
                OpCode::OMAP_GET_VALS_BY_KEYS => drop(check_response::<BTreeMap<Bytes, Bytes>>(out)),
                OpCode::GETXATTRS => drop(check_response::<BTreeMap<String, Bytes>>(out)),
                OpCode::LIST_WATCHERS => drop(check_response::<ListWatchersResponse>(out)),
                OpCode::LIST_SNAPS => drop(check_response::<ListSnapsResponse>(out)),
                OpCode::PGNLS => drop(check_response::<PgnlsResponse>(out)),
                OpCode::COPY_GET => drop(check_response::<CopyData>(out)),
                OpCode::SPARSE_READ => drop(check_response::<SparseReadResponse>(out)),
                OpCode::NOTIFY => assert!(check_response::<u64>(out) > 0),
                _ => {}
            }
        }
    }
    for code in [OpCode::STAT, OpCode::OMAP_GET_VALS, OpCode::LIST_SNAPS, OpCode::PGNLS, OpCode::COPY_GET] {
        assert!(seen.contains(&code), "no capture of an output of {code}");
    }
}

#[test]
fn a_notifys_result_comes_back() {
    let results: Vec<NotifyResult> = captured(ty::WATCH_NOTIFY)
        .iter()
        .filter_map(|w| match Message::decode(w) {
            Ok(Message::WatchNotify(m)) if m.event == watch_event::NOTIFY_COMPLETE => {
                Some(check_response(&m.result))
            }
            _ => None,
        })
        .collect();
    assert!(results.iter().any(|r| !r.replies.is_empty()), "{results:?}");
}
