//! Reads the stored values in `tests/data`.

use bytes::Bytes;

/// Where each value of a kind was, and the value.
pub fn cases(kind: &str) -> Vec<(String, Bytes)> {
    let path = format!("{}/tests/data/{kind}.hex", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let cases: Vec<_> = text.lines().map(parse).collect();
    assert!(!cases.is_empty(), "{path} is empty");
    cases
}

fn parse(line: &str) -> (String, Bytes) {
    let (place, value) = line.split_once(' ').expect("place and value");
    (place.to_owned(), unhex(value).into())
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
}

/// An entry's position, from the place of its case.
pub fn position(place: &str) -> u64 {
    place.rsplit('@').next().and_then(|at| at.parse().ok()).expect("a position")
}
