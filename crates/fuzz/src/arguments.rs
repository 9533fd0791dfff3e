//! Commands that fit a table's signatures, with arguments that the input's bytes choose: from values that
//! mean something in the cluster that hears them, from bounds of numbers, or from the input itself.

use admin::{Param, ParamKind, Signature};
use serde_json::{Map, Value, json};

/// From here on a byte says that the value stands in the input, as text behind a length of one byte.
pub(crate) const RAW: u8 = 240;

/// The bytes that choose.
pub(crate) struct Chooser<'a>(pub &'a [u8]);

impl Chooser<'_> {
    /// Zero behind the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn of<'t, T>(&mut self, all: &'t [T]) -> Option<&'t T> {
        let at = usize::from(self.byte());
        all.get(at % all.len().max(1))
    }

    fn text(&mut self) -> String {
        let len = usize::from(self.byte()).min(self.0.len());
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A command of this signature as JSON.
pub(crate) fn command(sig: &Signature, chooser: &mut Chooser<'_>) -> String {
    let mut object = Map::from_iter([("prefix".to_owned(), json!(sig.prefix.join(" ")))]);
    for param in &sig.params {
        let first = chooser.byte();
        // A parameter that may be missing is so in one of four.
        if !param.required && first % 4 == 3 {
            continue;
        }
        let one = |chooser: &mut Chooser<'_>| {
            if first >= RAW { json!(chooser.text()) } else { value(param, chooser) }
        };
        let value = if param.repeated {
            let count = usize::from(first % 4) + 1;
            Value::Array((0..count).map(|_| one(chooser)).collect())
        } else {
            one(chooser)
        };
        object.insert(param.name.to_owned(), value);
    }
    if let Some(format) =
        chooser.of(&["", "json", "json-pretty", "xml", "xml-pretty", "plain"]).filter(|f| !f.is_empty())
    {
        object.insert("format".to_owned(), json!(format));
    }
    Value::Object(object).to_string()
}

fn value(param: &Param, chooser: &mut Chooser<'_>) -> Value {
    if let Some(choice) = chooser.of(&param.choices) {
        return json!(choice);
    }
    match param.kind {
        ParamKind::Int => chooser.of(INTEGERS).map_or(Value::Null, |n| json!(n)),
        ParamKind::Float => chooser.of(FLOATS).map_or(Value::Null, |n| json!(n)),
        ParamKind::Bool => json!(chooser.byte() % 2 == 0),
        ParamKind::OsdName => chooser.of(OSDS).map_or(Value::Null, |n| json!(n)),
        ParamKind::Text => json!(chooser.of(texts(param)).copied().unwrap_or_default()),
    }
}

const INTEGERS: &[i64] = &[
    0,
    1,
    2,
    3,
    -1,
    4,
    8,
    16,
    17,
    64,
    100,
    255,
    256,
    4_096,
    65_535,
    65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    1 << 40,
    i64::MAX,
    i64::MIN,
];
const FLOATS: &[f64] = &[0.0, 0.5, 1.0, 0.05, 0.97, 1.5, -1.0, 1e-9, 65_536.0, 1e18, 1e308, -1e308];
const OSDS: &[&str] = &["0", "1", "osd.2", "2", "*", "all", "any", "7", "-1", "osd.99999999999"];
const POOLS: &[&str] = &["p", "q", "r", "nope", "", ".p"];
/// A file system, and who has its first rank.
const FILE_SYSTEMS: &[&str] = &["a", "a", "b", "nope", ""];
/// Some are another one's.
const FILE_SYSTEM_POOLS: &[&str] = &["p", "q", "m", "d", "nope"];
const ROLES: &[&str] = &["a:0", "0", "1", "a:1", "nope", "a"];
const PGS: &[&str] = &["1.0", "2.1", "1.7", "9.0", "1.ffffffff", "x"];
const ENTITIES: &[&str] = &["client.x", "client.admin", "osd.0", "mon.", "mgr.x", "mds.a", "client.", "x"];
const UUIDS: &[&str] =
    &["11111111-1111-4111-8111-111111111111", "00000000-0000-0000-0000-000000000000", "zz"];
const ADDRESSES: &[&str] = &[
    "127.0.0.1:0/7",
    "v2:10.0.0.1:3300/0",
    "10.0.0.1",
    "[::1]:6789/1",
    "[v2:1.2.3.4:1/0,v1:1.2.3.4:2/0]",
    "x",
];
/// What commands take as plain strings, whatever for.
const WORDS: &[&str] = &[
    "p",
    "q",
    "0",
    "1",
    "3",
    "-1",
    "1.5",
    "18446744073709551616",
    "1Gi",
    "yes",
    "on",
    "off",
    "true",
    "",
    "default",
    "root=default",
    "host=h0",
    "rack=r1",
    "h0",
    "h1",
    "r1",
    "osd.0",
    "osd.1",
    "osd.77",
    "replicated_rule",
    "host",
    "osd",
    "root",
    "ssd",
    "hdd",
    "default~ssd",
    "firstn",
    "k=2",
    "m=1",
    "plugin=jerasure",
    "technique=reed_sol_van",
    "crush-failure-domain=osd",
    "prof",
    "rbd",
    "key",
    "value",
    "mon",
    "allow r",
    "allow profile osd",
    "client.x",
    "global",
    "osd/rack:r1",
    "osd/class:ssd",
    "mon_osd_down_out_interval",
    "osd_pool_default_size",
    "debug_osd",
    "noout",
    "POOL_NO_REDUNDANCY",
    "OSD_DOWN",
    "1h",
    "1.0",
    "all",
    "upmap",
    "luminous",
    "pacific",
    "cluster",
    "info",
    "a",
    "x",
    "c1f9a4a6-0000-4000-8000-000000000001",
    "2026-11-25T00:00:00.000000Z",
    "snap1",
    "client.x=1",
    "weight",
    "--yes-i-really-mean-it",
];

fn texts(param: &Param) -> &'static [&'static str] {
    let kind = param.described.iter().find(|(key, _)| *key == "type").map(|(_, kind)| *kind);
    match kind.unwrap_or_default() {
        "CephPoolname" => POOLS,
        "CephPgid" => PGS,
        "CephEntityAddr" | "CephIPAddr" => ADDRESSES,
        "CephUUID" => UUIDS,
        "CephName" => ENTITIES,
        _ => match param.name {
            "pool" | "srcpool" | "destpool" | "poolname" | "tierpool" => POOLS,
            "entity" | "who" => ENTITIES,
            "fs_name" | "filesystem" => FILE_SYSTEMS,
            "role" | "role_or_gid" => ROLES,
            "metadata" | "data" => FILE_SYSTEM_POOLS,
            "ids" => OSDS,
            "uuid" | "fsid" => UUIDS,
            _ => WORDS,
        },
    }
}
