//! Replays what `record.py` recorded of a real cluster: results, versions and outputs must be the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Decode;
use messages::osd::{
    Extent, OmapKeysResponse, OmapValsResponse, Op, OpResult, OsdOp, StatResponse, cmp_mode, flags, op_flags,
};
use serde_json::Value;
use types::{SnapContext, SnapId};

use crate::bench::{Bench, MTIME, Reply, Request};

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect::<Vec<u8>>().into()
}

/// A value as sequences.py writes it.
fn raw(v: &Value) -> Bytes {
    match v {
        Value::Null => Bytes::new(),
        Value::String(s) => s.clone().into(),
        v if v.get("hex").is_some() => hex(text(v, "hex")),
        v => vec![num(v, "fill") as u8; num(v, "count") as usize].into(),
    }
}

fn num(v: &Value, key: &str) -> u64 {
    v[key].as_u64().unwrap_or_else(|| panic!("{key} of {v}"))
}
fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or_else(|| panic!("{key} of {v}"))
}
fn bytes(v: &Value, key: &str) -> Bytes {
    raw(&v[key])
}
fn list<'a>(v: &'a Value, key: &str) -> &'a Vec<Value> {
    v[key].as_array().unwrap_or_else(|| panic!("{key} of {v}"))
}

fn operation(o: &Value) -> OsdOp {
    let mut op =
        OsdOp::from(data_operation(o).or_else(|| other_operation(o)).unwrap_or_else(|| panic!("{o}")));
    let set = |key: &str, flag| if o[key] == true { flag } else { 0 };
    op.flags = set("excl", op_flags::EXCL) | set("failok", op_flags::FAILOK);
    op
}

fn data_operation(o: &Value) -> Option<Op> {
    let written = |offset| (Extent::new(offset, bytes(o, "data").len() as u64), bytes(o, "data"));
    let range = || Extent::new(num(o, "off"), num(o, "len"));
    Some(match text(o, "op") {
        "create" => Op::Create,
        "write" => {
            let (extent, data) = written(num(o, "off"));
            Op::Write { extent, data }
        }
        "writefull" => {
            let (extent, data) = written(0);
            Op::WriteFull { extent, data }
        }
        "append" => {
            let (extent, data) = written(0);
            Op::Append { extent, data }
        }
        "writesame" => {
            let data = bytes(o, "data");
            let (offset, length) = (num(o, "off"), num(o, "len"));
            Op::WriteSame { offset, length, data_length: data.len() as u64, data }
        }
        "delete" => Op::Delete,
        "truncate" => Op::Truncate(Extent::new(num(o, "off"), 0)),
        "zero" => Op::Zero(range()),
        "set-alloc-hint" => {
            Op::AllocHint { object_size: num(o, "size"), write_size: num(o, "wsize"), flags: 0 }
        }
        "stat" | "stat-assert" => Op::Stat,
        "read" => Op::Read(range()),
        "cmpext" => {
            let (extent, data) = written(num(o, "off"));
            Op::CmpExt { extent, data }
        }
        "checksum" => Op::Checksum {
            offset: num(o, "off"),
            length: num(o, "len"),
            chunk_size: num(o, "chunk") as u32,
            kind: num(o, "kind") as u8,
            init: hex(text(o, "init")),
        },
        _ => return None,
    })
}

fn other_operation(o: &Value) -> Option<Op> {
    let name = || text(o, "name").to_owned();
    let after = || Bytes::from(o["after"].as_str().unwrap_or("").to_owned());
    Some(match text(o, "op") {
        "setxattr" => Op::SetXattr { name: name(), value: bytes(o, "value") },
        "rmxattr" => Op::RmXattr { name: name() },
        "getxattr" => Op::GetXattr { name: name() },
        "getxattrs" => Op::GetXattrs,
        "cmpxattr" => Op::CmpXattr {
            name: name(),
            op: num(o, "cmp") as u8,
            mode: cmp_mode::STRING,
            value: bytes(o, "value"),
        },
        "assert-version" => Op::AssertVer { version: num(o, "version") },
        "rollback" => Op::Rollback { snap: SnapId(num(o, "snap")) },
        "call" => {
            let (class, method) = (text(o, "class").to_owned(), text(o, "method").to_owned());
            Op::Call { class, method, input: bytes(o, "in") }
        }
        "omap-get-keys" => Op::OmapGetKeys { start_after: after(), max: num(o, "max") },
        "omap-get-vals" => {
            let prefix = o["prefix"].as_str().unwrap_or("").to_owned().into();
            Op::OmapGetVals { start_after: after(), max: num(o, "max"), prefix }
        }
        "omap-get-vals-by-keys" => Op::OmapGetValsByKeys { keys: list(o, "keys").iter().map(raw).collect() },
        "omap-set-vals" => {
            Op::OmapSetVals { vals: list(o, "vals").iter().map(|kv| (raw(&kv[0]), raw(&kv[1]))).collect() }
        }
        "omap-rm-keys" => Op::OmapRmKeys { keys: list(o, "keys").iter().map(raw).collect() },
        "omap-rm-key-range" => Op::OmapRmKeyRange { begin: bytes(o, "begin"), end: bytes(o, "end") },
        "omap-clear" => Op::OmapClear,
        "omap-cmp" => {
            Op::OmapCmp { assertions: [(bytes(o, "key"), (bytes(o, "value"), num(o, "cmp") as i32))].into() }
        }
        _ => return None,
    })
}

fn request(step: &Value, snapc: &mut Vec<u64>) -> Request {
    if let Some(ids) = step["snapc"].as_array() {
        *snapc = ids.iter().map(|v| v.as_u64().unwrap()).collect();
    }
    let mut r = Request::new(text(step, "object"), list(step, "ops").iter().map(operation).collect());
    r.snapc = SnapContext { seq: snapc.first().copied().unwrap_or(0), snaps: snapc.clone() };
    if let Some(snap) = step["read_snap"].as_u64() {
        r.object.snap = SnapId(snap);
    }
    if step["returnvec"] == true {
        r.flags |= flags::RETURNVEC;
    }
    r
}

fn pairs(v: &Value) -> BTreeMap<Bytes, Bytes> {
    let pair = |kv: &Value| (hex(kv[0].as_str().unwrap()), hex(kv[1].as_str().unwrap()));
    v.as_array().unwrap().iter().map(pair).collect()
}

/// Compares one operation's output with what librados made of Ceph's.
fn check_output(o: &Value, got: &OpResult, at: &str) {
    let more = |m: bool| assert_eq!(o["more"].as_u64(), Some(u64::from(m)), "{at}");
    let out = || got.outdata.clone();
    match text(o, "op") {
        "omap-get-keys" => {
            let r = OmapKeysResponse::from_bytes(out()).unwrap();
            let want: Vec<Bytes> = list(o, "map").iter().map(|k| hex(k.as_str().unwrap())).collect();
            assert_eq!(r.keys, want, "{at}");
            more(r.more);
        }
        "omap-get-vals" => {
            let r = OmapValsResponse::from_bytes(out()).unwrap();
            assert_eq!(r.vals, pairs(&o["map"]), "{at}");
            more(r.more);
        }
        "omap-get-vals-by-keys" | "getxattrs" => {
            assert_eq!(BTreeMap::from_bytes(out()), Ok(pairs(&o["map"])), "{at}");
        }
        "stat" => {
            let r = StatResponse::from_bytes(out()).unwrap();
            assert_eq!(r.size, o["stat"][0].as_u64().unwrap(), "{at}");
            // A rollback by librados alone has a time of its own.
            if o["stat"][1].as_u64() == Some(u64::from(MTIME.sec)) {
                assert_eq!(r.mtime, MTIME, "{at}");
            }
        }
        // librados leaves its buffer alone when there is no output.
        "checksum" if got.outdata.is_empty() => assert_eq!(text(o, "out"), "00000000", "{at}"),
        _ => {
            if let Some(want) = o["out"].as_str() {
                assert_eq!(got.outdata, hex(want), "{at}");
            }
        }
    }
}

fn check_step(step: &Value, got: &Reply, at: &str) {
    let single = ["getxattr", "rollback"].contains(&text(&step["ops"][0], "op"));
    assert_eq!(i64::from(got.result), step["result"].as_i64().unwrap(), "result of {at}");
    // The single calls of librados leave the version of the call before.
    if !single {
        assert_eq!(got.user_version, num(step, "version"), "version of {at}");
    }
    if !got.ran {
        return;
    }
    for (o, r) in list(step, "ops").iter().zip(&got.results) {
        let at = format!("{} in {at}", o["op"]);
        if let Some(rval) = o["rval"].as_i64() {
            assert_eq!(i64::from(r.rval), rval, "rval of {at}");
        }
        if r.rval < 0 && o["failok"] != true {
            break;
        }
        if r.rval >= 0 {
            check_output(o, r, &at);
        }
    }
}

#[test]
fn a_real_cluster_answered_the_same() {
    let recorded: Value = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let mut bench = Bench::new();
    let mut snapc = Vec::new();
    let mut steps = 0;
    for seq in recorded.as_array().unwrap() {
        for (i, step) in list(seq, "steps").iter().enumerate() {
            if step["object"].is_null() {
                continue;
            }
            let reply = bench.run(&request(step, &mut snapc));
            check_step(step, &reply, &format!("{} #{i}: {step}", text(seq, "name")));
            steps += 1;
        }
    }
    assert!(steps > 800, "{steps} requests");
}
