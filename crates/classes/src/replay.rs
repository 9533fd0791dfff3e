//! What Ceph 16.2.15 answered to recorded calls, and what its objects then held: ours answer and hold the same.
//!
//! The files of `tests/data` are what `bench/classes_differential.py --record` wrote on a cluster of Ceph:
//! `calls.jsonl` from its own table, the others from the table of the module under `bench` that is called
//! `classes_` and their name; `rgw_versions.jsonl` is from that of `classes_rgw`, too.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use types::Utime;

use crate::fake::{Fake, FakeObject};
use crate::find;

/// The recorded scenarios: the file's name and its lines.
pub(crate) const RECORDED: [(&str, &str); 10] = [
    ("calls", include_str!("../tests/data/calls.jsonl")),
    ("cephfs", include_str!("../tests/data/cephfs.jsonl")),
    ("cmpomap", include_str!("../tests/data/cmpomap.jsonl")),
    ("fifo", include_str!("../tests/data/fifo.jsonl")),
    ("gateway", include_str!("../tests/data/gateway.jsonl")),
    ("otp", include_str!("../tests/data/otp.jsonl")),
    ("queue", include_str!("../tests/data/queue.jsonl")),
    ("rgw", include_str!("../tests/data/rgw.jsonl")),
    ("rgw_lists", include_str!("../tests/data/rgw_lists.jsonl")),
    ("rgw_versions", include_str!("../tests/data/rgw_versions.jsonl")),
];

/// Hexadecimal digits, and `(n)` for so many zeros.
pub(crate) fn bytes(hex: &Value) -> Bytes {
    let mut out = Vec::new();
    for part in hex.as_str().unwrap().split_inclusive(')') {
        let (hex, zeros) = part.split_once('(').unwrap_or((part, "0)"));
        out.extend((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()));
        out.resize(out.len() + zeros[..zeros.len() - 1].parse::<usize>().unwrap(), 0);
    }
    out.into()
}

/// Code and output as librados gives them for a call that stands alone: reads count their output, writes have none.
fn answer(f: &mut Fake, class: &str, method: &str, input: Bytes) -> (i64, Bytes) {
    let writes = find(class, method).unwrap().flags.write;
    match f.call(class, method, input) {
        Err(e) => (e.neg().into(), Bytes::new()),
        Ok(_) if writes => (0, Bytes::new()),
        Ok((_, out)) => (out.len() as i64, out),
    }
}

pub(crate) fn map(entries: &Value) -> BTreeMap<Bytes, Bytes> {
    entries.as_object().unwrap().iter().map(|(k, v)| (bytes(&k.as_str().into()), bytes(v))).collect()
}

pub(crate) fn stored(end: &Value) -> FakeObject {
    FakeObject {
        data: bytes(&end["data"]).to_vec(),
        attrs: map(&end["xattrs"]),
        omap: map(&end["omap"]),
        header: Bytes::new(),
    }
}

/// The object as it is before the first call.
fn before(scenario: &Value) -> Option<FakeObject> {
    if scenario["omap"].is_object() {
        return Some(FakeObject { omap: map(&scenario["omap"]), ..FakeObject::default() });
    }
    let data = Some(&scenario["data"]).filter(|data| data.is_string())?;
    Some(FakeObject { data: bytes(data).to_vec(), ..FakeObject::default() })
}

/// Makes the calls of a scenario, of which there are as many as it returns.
fn replay(scenario: &Value) -> usize {
    let mut f = before(scenario).map_or_else(Fake::default, Fake::with);
    let calls = scenario["calls"].as_array().unwrap();
    for (i, call) in calls.iter().enumerate() {
        f.watches |= scenario["watch_at"] == i;
        if f.object.is_none() {
            // librados sends a call that stands alone without a time: an object that it makes has none.
            f.mtime = Utime::ZERO;
        }
        if scenario["ticks"] == true {
            f.now.nsec = i as u32;
        }
        let (class, method) = (call[0].as_str().unwrap(), call[1].as_str().unwrap());
        let got = answer(&mut f, class, method, bytes(&call[2]));
        let want = (call[3].as_i64().unwrap(), bytes(&call[4]));
        assert_eq!(got, want, "{} {i}: {class}.{method}({})", scenario["kind"], call[2]);
    }
    // librados reads no header back, no attribute without a name, and nothing in front of the first key that
    // it starts behind: the empty one.
    let got = f.object.map(|mut o| {
        o.omap.remove(&Bytes::new());
        o.attrs.remove(&Bytes::new());
        FakeObject { header: Bytes::new(), ..o }
    });
    let want = Some(&scenario["end"]).filter(|end| !end.is_null()).map(stored);
    assert_eq!(got, want, "{}", scenario["kind"]);
    calls.len()
}

#[test]
fn recorded_calls_are_answered_as_ceph_did() {
    for (name, recorded) in RECORDED {
        let calls: usize = recorded.lines().map(|line| replay(&serde_json::from_str(line).unwrap())).sum();
        assert!(calls > 100, "{name}: {calls}");
    }
}
