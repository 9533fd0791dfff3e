//! What radosgw and radosgw-admin 16.2.15 asked of OSDs in a session of users and administrators, and what
//! Ceph's OSDs answered: ours answer and hold the same.
//!
//! `tests/data/radosgw.jsonl` is what `bench/classes_radosgw.py` read along.

use bytes::Bytes;
use serde_json::Value;

use crate::fake::{Fake, FakeObject};
use crate::replay::{bytes, map, stored};

pub(crate) const RECORDED: &str = include_str!("../tests/data/radosgw.jsonl");

/// Data of a write: itself, or how much there was.
fn data(value: &Value) -> Bytes {
    value.as_u64().map_or_else(|| bytes(value), |len| vec![0; len as usize].into())
}

/// Makes an operation and returns its code; output is compared where it was recorded.
fn run(f: &mut Fake, op: &Value) -> i64 {
    match op[0].as_str().unwrap() {
        "call" => {
            let (class, method) = (op[1].as_str().unwrap(), op[2].as_str().unwrap());
            let got = f.call_within(class, method, bytes(&op[3]));
            if let Some(out) = op[5].as_str() {
                let want = bytes(&out.into());
                assert_eq!(got.as_ref().map(|(_, out)| out.clone()).unwrap_or_default(), want, "{op}");
            }
            got.map_or_else(|e| e.neg().into(), |(code, _)| code.into())
        }
        "create" if f.changed().is_some() && op[1] == 1 => -17,
        "remove" if f.changed().is_none() && op[1] == 0 => -2,
        "remove" => {
            *f.changed() = None;
            0
        }
        change => {
            apply(f.changed().get_or_insert_default(), change, op);
            0
        }
    }
}

/// Operations that always come about.
fn apply(object: &mut FakeObject, change: &str, op: &Value) {
    match change {
        "create" => {}
        "write_full" => object.data = data(&op[1]).to_vec(),
        "write" => {
            let (at, data) = (op[1].as_u64().unwrap() as usize, data(&op[2]));
            object.data.resize(object.data.len().max(at + data.len()), 0);
            object.data[at..at + data.len()].copy_from_slice(&data);
        }
        "set_xattr" => {
            object.attrs.insert(bytes(&op[1]), bytes(&op[2]));
        }
        "rm_xattr" => {
            object.attrs.remove(&bytes(&op[1]));
        }
        "omap_set" => object.omap.extend(map(&op[1])),
        "omap_set_header" => object.header = bytes(&op[1]),
        other => panic!("{other}"),
    }
}

/// Makes the requests to one object. A request that fails changes nothing.
fn replay(object: &Value, calls: &mut usize) {
    let mut f = Fake::default();
    f.object = Some(&object["before"]).filter(|o| o.is_object()).map(stored);
    for request in object["requests"].as_array().unwrap() {
        let (mut got, want) = (0, request["result"].as_i64().unwrap());
        f.begin();
        for op in request["ops"].as_array().unwrap() {
            got = run(&mut f, op);
            *calls += usize::from(op[0] == "call");
            // An OSD that does not come to an operation says 0 of it.
            if op[0] == "call" && (want >= 0 || op[4] != 0) {
                assert_eq!(got, op[4].as_i64().unwrap(), "{}: {op}", object["object"]);
            }
            if got < 0 {
                break;
            }
        }
        assert!(got == want || (got >= 0 && want >= 0), "{}: {got} {request}", object["object"]);
        if want >= 0 {
            f.commit();
        }
    }
    if object["end"] != "not kept" {
        let got = f.object.map(|o| FakeObject { header: Bytes::new(), ..o });
        assert_eq!(got, Some(&object["end"]).filter(|o| o.is_object()).map(stored), "{}", object["object"]);
    }
}

#[test]
fn what_radosgw_asks_is_answered_as_ceph_did() {
    let mut calls = 0;
    for line in RECORDED.lines() {
        replay(&serde_json::from_str(line).unwrap(), &mut calls);
    }
    assert!(calls > 500, "{calls}");
}
