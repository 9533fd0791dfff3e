//! The zones that a change has passed. They are passed on and never looked at, and one message can name
//! millions: they stay the bytes that they came in.

use std::cmp::Ordering;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Zones that are put in order here: many times what a realm has.
const MAX_UNSORTED: usize = 1 << 16;

/// A set of zones, each with where in it the change was made, as text. Source: rgw_zone_set in
/// src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zones {
    count: usize,
    /// The texts as they are encoded, in order and each once.
    texts: Bytes,
}

impl Zones {
    /// The zone in which a change is made, and the bucket there.
    pub fn of(zone: &[u8], bucket: &[u8]) -> Self {
        let text: Bytes = [zone, b":", bucket].concat().into();
        Self { count: 1, texts: text.to_bytes() }
    }
}

impl Encode for Zones {
    fn encode(&self, w: &mut Writer) {
        w.count(self.count);
        w.raw(&self.texts);
    }
}
impl Decode for Zones {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let count = r.count("zones", 4)?;
        let (rest, before) = (r.rest(), r.remaining());
        let (mut in_order, mut earlier) = (true, None::<Bytes>);
        for _ in 0..count {
            let text = r.blob()?;
            in_order &= earlier.is_none_or(|e| compare(&e, &text).is_lt());
            earlier = Some(text);
        }
        let texts = rest.slice(..before - r.remaining());
        if in_order { Ok(Self { count, texts }) } else { sorted(count, texts) }
    }
}

/// The set of zones that come in another order than ours, or more than once.
fn sorted(count: usize, texts: Bytes) -> Result<Zones, DecodeError> {
    if count > MAX_UNSORTED {
        let (claimed, bound) = (count as u64, MAX_UNSORTED as u64);
        return Err(DecodeError::TooLarge { what: "zones out of order", claimed, bound });
    }
    let mut r = Reader::new(texts);
    let mut zones = (0..count).map(|_| r.blob()).collect::<Result<Vec<_>, _>>()?;
    zones.sort_unstable_by(|a, b| compare(a, b));
    zones.dedup();
    let texts = Writer::collect(|w| zones.iter().for_each(|text| text.encode(w)));
    Ok(Zones { count: zones.len(), texts })
}

/// By zone, then by the place in it, which stands behind a colon; one without a place comes first.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    parts(a).cmp(&parts(b))
}

fn parts(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut parts = text.splitn(2, |b| *b == b':');
    (parts.next().unwrap_or_default(), parts.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(texts: &[&str]) -> Bytes {
        texts.iter().map(|t| Bytes::copy_from_slice(t.as_bytes())).collect::<Vec<_>>().to_bytes()
    }

    #[test]
    fn zones_in_order_stay_the_bytes_they_came_in() {
        // A colon is behind the sign that comes before it in text.
        let raw = encoded(&["", "a", "a:", "a:b", "a:b:c", "a:c", "a!", "a!:x", "b"]);
        let zones = Zones::from_bytes(raw.clone()).unwrap();
        assert_eq!(zones.to_bytes(), raw);
        assert_eq!(zones.texts.as_ptr(), raw[4..].as_ptr());
    }

    #[test]
    fn zones_are_put_in_order_and_each_once() {
        let zones = Zones::from_bytes(encoded(&["b", "a!", "a:c", "b", "a", "a:"])).unwrap();
        assert_eq!(zones.to_bytes(), encoded(&["a", "a:", "a:c", "a!", "b"]));
        assert_eq!(Zones::from_bytes(encoded(&[])), Ok(Zones::default()));
    }

    #[test]
    fn millions_of_zones_are_refused_unless_they_come_in_order() {
        let texts: Vec<String> = (0..=MAX_UNSORTED).map(|i| format!("{i:06}")).collect();
        let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert!(Zones::from_bytes(encoded(&texts)).is_ok());
        texts.reverse();
        assert!(Zones::from_bytes(encoded(&texts)).is_err());
        texts.pop();
        assert!(Zones::from_bytes(encoded(&texts)).is_ok());
    }
}
