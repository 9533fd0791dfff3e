//! What stock radosgw 16.2.15 asked of RADOS in a session, and that we ask the same: operation by operation
//! and to the byte, given the same names, times and made-up letters.
//!
//! The session is the one of the object classes' tests (`crates/classes/tests/data/radosgw.jsonl`). It has no
//! comparisons of attributes and no reads of data.

use bytes::Bytes;
use codec::Decode;
use rgw::{AccessControl, EntryPoint, UserRecord, Versioning, Zone};
use serde_json::{Value, json};
use types::{Entropy, RealTime};

use crate::cluster::{Cluster, site};
use crate::{Moment, NewBucket, Op, Request, Site};

const SESSION: &str = include_str!("../../classes/tests/data/radosgw.jsonl");
const ZONE: &str = "dc5339fc-692a-4314-a86f-9b4193102a07";
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Hexadecimal digits, and `(n)` for so many zeros.
pub fn bytes(hex: &Value) -> Bytes {
    let mut out = Vec::new();
    for part in hex.as_str().unwrap().split_inclusive(')') {
        let (hex, zeros) = part.split_once('(').unwrap_or((part, "0)"));
        out.extend((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()));
        out.resize(out.len() + zeros[..zeros.len() - 1].parse::<usize>().unwrap(), 0);
    }
    out.into()
}

/// An operation as the session has it, with its bytes whole.
fn shown(op: &Op) -> Option<Value> {
    let text = |bytes: &Bytes| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Some(match op {
        Op::Call { class, method, input, .. } => json!(["call", class, method, text(input)]),
        Op::Create { exclusive } => json!(["create", u8::from(*exclusive)]),
        Op::Remove { may_miss } => json!(["remove", u8::from(*may_miss) * 2]),
        Op::WriteFull(data) => json!(["write_full", text(data)]),
        Op::SetAttr { name, value } => json!(["set_xattr", text(name), text(value)]),
        Op::RemoveAttr(name) => json!(["rm_xattr", text(name)]),
        _ => return None,
    })
}

/// The same of a recorded operation.
fn recorded(op: &Value) -> Value {
    let text = |v: &Value| -> Value {
        if !v.is_string() {
            return v.clone();
        }
        bytes(v).iter().map(|b| format!("{b:02x}")).collect::<String>().into()
    };
    match op[0].as_str().unwrap() {
        "call" => json!(["call", op[1], op[2], text(&op[3])]),
        "create" | "remove" => json!([op[0], op[1]]),
        "set_xattr" => json!([op[0], text(&op[1]), text(&op[2])]),
        _ => json!([op[0], text(&op[1])]),
    }
}

/// Operations of the requests to an object.
pub fn requests(oid: &str) -> Vec<Vec<Value>> {
    let objects = SESSION.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let object = objects.into_iter().find(|o| o["object"] == oid).unwrap_or_else(|| panic!("{oid}"));
    let requests = object["requests"].as_array().unwrap().iter();
    requests.map(|r| r["ops"].as_array().unwrap().iter().map(recorded).collect()).collect()
}

/// The first request to an object that has such an operation.
pub fn with(oid: &str, op: &str) -> Vec<Value> {
    let found = requests(oid).into_iter().find(|ops| ops.iter().any(|o| o[0] == op || o[2] == op));
    found.unwrap_or_else(|| panic!("{oid} {op}"))
}

/// An argument of the first operation of a kind.
pub fn argument(ops: &[Value], op: &str, at: usize) -> Bytes {
    bytes(&ops.iter().find(|o| o[0] == op || o[2] == op).unwrap()[at])
}

pub fn asked<'a>(done: &'a [Request], oid: &str) -> Vec<&'a Request> {
    done.iter().filter(|r| r.object.oid == oid).collect()
}

pub fn ops(request: &Request) -> Vec<Value> {
    request.ops.iter().filter_map(shown).collect()
}

/// Made-up letters as they are told.
pub struct Told(pub Vec<u8>);

impl Told {
    pub fn letters(texts: &[&[u8]]) -> Self {
        let place = |b: &u8| LETTERS.iter().position(|l| l == b).unwrap() as u8;
        Self(texts.concat().iter().map(place).collect())
    }
}

impl Entropy for Told {
    fn fill(&mut self, out: &mut [u8]) {
        let rest = self.0.split_off(out.len());
        out.copy_from_slice(&self.0);
        self.0 = rest;
    }
}

/// The zone of the session.
pub fn session() -> Site {
    let zone = Zone::new(ZONE.into(), "default".into()).into();
    // The zone group's id is as long as any.
    Site { zone, zonegroup: ZONE.into(), instance: 6232, ..site() }
}

/// The letters behind the underscore in the tag of the version that a request sets.
pub fn version_letters(ops: &[Value]) -> Vec<u8> {
    let version = argument(ops, "set", 3);
    version[version.len() - 23..].to_vec()
}

#[test]
fn a_user_is_made_as_radosgw_makes_it() {
    let want = with("recorded", "write_full");
    let record = UserRecord::from_bytes(argument(&want, "write_full", 1)).unwrap();
    let (mut cluster, letters) = (Cluster::default(), version_letters(&want));
    let mut entropy = Told::letters(&[&letters]);
    let now = RealTime::default();
    let mut moment = Moment { now, entropy: &mut entropy };
    session().create_user(record.info.clone(), &mut moment).run(&mut cluster).unwrap();
    let got = asked(&cluster.done, "recorded");
    assert_eq!(got.len(), 1);
    // radosgw-admin writes over what it found missing; we hold to that it is.
    assert_eq!(ops(got[0])[1..], want[2..]);
    assert_eq!(ops(got[0])[0], json!(["create", 1]));
    let leads: Vec<String> =
        record.info.keys.keys().map(|k| String::from_utf8(k.to_vec()).unwrap()).collect();
    assert_eq!(cluster.names("default.rgw.meta:users.keys"), leads);
    assert_eq!(cluster.names("default.rgw.meta:users.uid"), ["recorded"]);
}

#[test]
fn a_bucket_is_made_as_radosgw_makes_it() {
    let entry_want = with("plain", "write_full");
    let entry = EntryPoint::from_bytes(argument(&entry_want, "write_full", 1)).unwrap();
    let instance_oid = format!(".bucket.meta.plain:{ZONE}.6232.1");
    let instance_want = with(&instance_oid, "write_full");
    let acl = AccessControl::from_bytes(argument(&instance_want, "set_xattr", 2)).unwrap();
    let letters = [version_letters(&instance_want), version_letters(&entry_want)];
    let mut entropy = Told::letters(&[&letters[0], &letters[1]]);
    let mut cluster = Cluster::default();
    let new = NewBucket {
        name: "plain".into(),
        acl,
        placement: rgw::PlacementRule::default(),
        flags: Versioning::default(),
        number: 1,
        max_buckets: Some(1000),
        attrs: <_>::default(),
    };
    let mut moment = Moment { now: entry.created, entropy: &mut entropy };
    let info = session().create_bucket(new, &mut moment).run(&mut cluster).unwrap();
    assert_eq!((&info.bucket, &info.owner), (&entry.bucket, &entry.owner));

    assert_eq!(ops(asked(&cluster.done, "plain")[0]), entry_want);
    let shard = format!(".dir.{ZONE}.6232.1.10");
    assert_eq!(ops(asked(&cluster.done, &shard)[0]), with(&shard, "create"));
    assert_eq!(
        ops(asked(&cluster.done, "recorded.buckets")[0]),
        with("recorded.buckets", "set_buckets_info")
    );
    // Of an instance the session has the length alone.
    let mut got = ops(asked(&cluster.done, &instance_oid)[0]);
    let data = got.iter_mut().find(|op| op[0] == "write_full").unwrap();
    data[1] = json!(data[1].as_str().unwrap().len() / 2);
    assert_eq!(got, instance_want);
    assert_eq!(cluster.names("default.rgw.buckets.index").len(), 11);
}
