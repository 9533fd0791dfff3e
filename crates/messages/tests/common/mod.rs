//! Reads the captured messages in `tests/data`: three lines each, of the header (with the middle segment, if
//! there is one), the front and the data.

use messages::{Header, WireMessage};

/// A file's messages, in order. The file's name is the type number.
pub fn captured(ty: u16) -> Vec<WireMessage> {
    let path = format!("{}/tests/data/{ty}.hex", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let lines: Vec<&str> = text.lines().collect();
    assert!(!lines.is_empty() && lines.len() % 3 == 0, "{path}: three lines per message");
    lines.chunks(3).map(|m| parse(ty, m)).collect()
}

/// Every type with a file.
pub fn captured_types() -> Vec<u16> {
    let dir = format!("{}/tests/data", env!("CARGO_MANIFEST_DIR"));
    let mut types: Vec<u16> = std::fs::read_dir(dir)
        .expect("tests/data is there")
        .filter_map(|e| e.ok()?.file_name().to_str()?.strip_suffix(".hex")?.parse().ok())
        .collect();
    types.sort_unstable();
    types
}

fn parse(ty: u16, lines: &[&str]) -> WireMessage {
    let words: Vec<&str> = lines[0].split(' ').collect();
    let field = |name: &str| -> u64 {
        let at = words.iter().position(|w| *w == name).expect("field is there");
        words[at + 1].parse().expect("a number")
    };
    let header = Header {
        seq: 0,
        tid: field("tid"),
        ty,
        priority: field("priority") as u16,
        version: field("version") as u16,
        compat_version: field("compat") as u16,
        data_off: field("data_off") as u16,
    };
    let front = unhex(lines[1]).into();
    let middle = words.iter().position(|w| *w == "middle").map(|at| unhex(words[at + 1]));
    let middle = middle.unwrap_or_default().into();
    WireMessage { header, front, middle, data: unhex(lines[2]).into(), more: vec![] }
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
}
