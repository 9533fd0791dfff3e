//! Seeds from bytes that Ceph 16.2.15 sent or stored, as the other crates' tests keep them.

use std::path::{Path, PathBuf};

use classes::fake::FakeObject;
use messages::wire::{Header, WireMessage};
use serde_json::Value;

fn tests_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("tests/data")
}

pub(crate) fn text(krate: &str, file: &str) -> String {
    let path = tests_of(krate).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
    text.trim().as_bytes().chunks_exact(2).map(|p| digit(p[0]) << 4 | digit(p[1])).collect()
}

/// Whole files of a folder, by the beginning and the end of their names; in the order of their names.
pub(crate) fn files(krate: &str, folder: &str, begin: &str, end: &str) -> Vec<Vec<u8>> {
    let dir = tests_of(krate).join(folder);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.starts_with(begin))
        .collect();
    names.retain(|n| n.ends_with(end));
    names.sort_unstable();
    names.iter().filter_map(|n| std::fs::read(dir.join(n)).ok()).collect()
}

/// A message of a real cluster: its number, version, front and data.
pub(crate) struct Captured {
    pub ty: u16,
    pub version: u8,
    pub front: Vec<u8>,
    pub data: Vec<u8>,
}

impl Captured {
    pub(crate) fn wire(&self) -> WireMessage {
        let header = Header { ty: self.ty, version: self.version.into(), ..Header::default() };
        let (front, data) = (self.front.clone().into(), self.data.clone().into());
        WireMessage { header, front, data, ..WireMessage::default() }
    }

    /// As the target `message` takes it.
    pub(crate) fn input(&self) -> Vec<u8> {
        let front_len = self.front.len() as u32;
        [&self.ty.to_le_bytes()[..], &[self.version], &front_len.to_le_bytes(), &self.front, &self.data]
            .concat()
    }
}

/// All of them, in the order of their numbers.
pub(crate) fn messages() -> Vec<Captured> {
    let dir = tests_of("messages");
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let number = |name: String| name.strip_suffix(".hex")?.parse::<u16>().ok();
    let mut types: Vec<u16> =
        entries.filter_map(|e| number(e.ok()?.file_name().into_string().ok()?)).collect();
    types.sort_unstable();
    let of_type = |ty: u16| {
        let lines: Vec<String> = text("messages", &format!("{ty}.hex")).lines().map(str::to_owned).collect();
        let one = move |m: &[String]| {
            let words: Vec<&str> = m[0].split(' ').collect();
            let at = words.iter().position(|w| *w == "version").unwrap_or(0);
            let version = words.get(at + 1).and_then(|w| w.parse().ok()).unwrap_or(1);
            Captured { ty, version, front: unhex(&m[1]), data: unhex(&m[2]) }
        };
        lines.chunks_exact(3).map(one).collect::<Vec<_>>()
    };
    types.into_iter().flat_map(of_type).collect()
}

/// The payloads of recorded logins, by a name's beginning.
pub(crate) fn handshakes(begin: &str) -> Vec<Vec<u8>> {
    let all = text("cephx", "handshake.txt");
    let of = all.lines().filter_map(|l| l.split_once(' ')).filter(|(n, _)| n.starts_with(begin));
    of.map(|(_, hex)| unhex(hex)).collect()
}

/// Capability strings of a service, some of them refused.
pub(crate) fn caps(service: &str) -> Vec<Vec<u8>> {
    let all = text("cephx", "caps.txt");
    let rows = all.lines().map(|l| l.split('\t').collect::<Vec<_>>());
    rows.filter(|r| r[0] == service && r.len() > 1).map(|r| r[1].as_bytes().to_vec()).collect()
}

/// Commands that a monitor answered.
pub(crate) fn commands() -> Vec<Vec<u8>> {
    let all = text("monitor", "changes.jsonl");
    let rows = all.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    rows.filter_map(|row| Some(row["cmd"].as_str()?.as_bytes().to_vec())).collect()
}

/// Hexadecimal digits, in which `(n)` stands for so many zeros.
fn unpack(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for part in text.split(')') {
        let (hex, zeros) = part.split_once('(').unwrap_or((part, "0"));
        out.extend(unhex(hex));
        out.resize(out.len() + zeros.parse().unwrap_or(0), 0);
    }
    out
}

/// Calls of class methods: class, method, input.
pub(crate) fn calls() -> Vec<(String, String, Vec<u8>)> {
    let all = files("classes", "", "", ".jsonl").concat();
    let rows = all.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<Value>(l).ok());
    let call =
        |c: &Value| Some((c[0].as_str()?.to_owned(), c[1].as_str()?.to_owned(), unpack(c[2].as_str()?)));
    rows.flat_map(|row| row["calls"].as_array().into_iter().flatten().filter_map(call).collect::<Vec<_>>())
        .collect()
}

/// Calls of class methods that follow each other on one object.
pub(crate) struct Scenario {
    pub before: Option<FakeObject>,
    pub calls: Vec<(String, String, Vec<u8>)>,
}

/// All of them, but for those of whole gateways.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = files("classes", "", "", ".jsonl").concat();
    let rows = all.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<Value>(l).ok());
    let hex = |v: &Value| v.as_str().map(unpack);
    let call = |c: &Value| Some((c[0].as_str()?.to_owned(), c[1].as_str()?.to_owned(), hex(&c[2])?));
    let scenario = |row: Value| {
        let calls = row["calls"].as_array()?.iter().filter_map(call).collect();
        let entries = row["omap"].as_object();
        let omap = entries
            .map(|omap| omap.iter().filter_map(|(k, v)| Some((unpack(k).into(), hex(v)?.into()))).collect());
        let before = match (omap, hex(&row["data"])) {
            (None, None) => None,
            (omap, data) => Some(FakeObject {
                omap: omap.unwrap_or_default(),
                data: data.unwrap_or_default(),
                ..FakeObject::default()
            }),
        };
        Some(Scenario { before, calls })
    };
    rows.filter_map(scenario).collect()
}

/// Entries of bucket indexes, one out of eight: values in the omaps that recorded calls left.
pub(crate) fn index_values() -> Vec<Vec<u8>> {
    let all = text("classes", "rgw_versions.jsonl");
    let rows = all.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let values = |row: Value| row["end"]["omap"].as_object().cloned().unwrap_or_default().into_iter();
    rows.flat_map(values).step_by(8).filter_map(|(_, v)| v.as_str().map(unhex)).collect()
}

/// What class methods stored: values of omaps and attributes.
pub(crate) fn class_values() -> Vec<Vec<u8>> {
    let all = text("classes", "stored.jsonl");
    let rows = all.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let values = |row: &Value, what: &str| {
        let map = row[what].as_object().cloned().unwrap_or_default();
        map.values().filter_map(|v| v.as_str().map(unhex)).collect::<Vec<_>>()
    };
    rows.flat_map(|row| [values(&row, "omap"), values(&row, "xattrs")].concat()).collect()
}
