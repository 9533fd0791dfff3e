//! What clients asked and what they were told, and what an object does when requests run on it one after the other.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use crate::queue::Time;

/// An object's whole content as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    pub data: Bytes,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub attrs: BTreeMap<Bytes, Bytes>,
}

/// A request on one object. Payloads are unlike any other request's.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    WriteFull(Bytes),
    Write {
        offset: u64,
        data: Bytes,
    },
    Append(Bytes),
    Delete,
    CreateExclusive,
    OmapSet {
        key: Bytes,
        value: Bytes,
    },
    OmapRemove {
        key: Bytes,
    },
    SetAttr {
        key: Bytes,
        value: Bytes,
    },
    /// All in one: data replaced, an attribute and an omap value set.
    Bundle {
        data: Bytes,
        key: Bytes,
        value: Bytes,
    },
    /// Replaces the data when the attribute has this value.
    Guarded {
        key: Bytes,
        value: Bytes,
        data: Bytes,
    },
    /// Everything at once.
    Read,
}

impl Call {
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read)
    }
}

/// A reply's content.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A write's result: 0 or a negated errno.
    Done(i32),
    /// What a read saw; `None`: there is no such object.
    Seen(Option<Content>),
}

/// One request.
#[derive(Debug, Clone)]
pub struct Record {
    pub client: usize,
    pub object: usize,
    pub call: Call,
    pub begun: Time,
    /// `None`: never answered; it may have happened at any time since, or not.
    pub ended: Option<(Time, Outcome)>,
    /// The object's version as the reply states it, a hint at the order.
    pub version: u64,
    pub sends: u32,
}

pub const ENOENT: i32 = -2;
pub const EEXIST: i32 = -17;
pub const ECANCELED: i32 = -125;

/// A sequential object; cloning shares the content.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub content: Option<Rc<Content>>,
    pub hash: u64,
    /// Of the data alone, which many calls leave as it is.
    data_hash: u64,
}

impl State {
    fn of(content: Content, data_hash: u64) -> Self {
        let hash = hash_of(&content, data_hash);
        Self { content: Some(Rc::new(content)), hash, data_hash }
    }

    /// An object that was found like this.
    pub fn holding(content: Option<Content>) -> Self {
        content.map(|c| (hash_of_data(&c.data), c)).map(|(hash, c)| Self::of(c, hash)).unwrap_or_default()
    }

    /// The state after the call, when the call may be answered with `seen` (or was not answered) in this state.
    pub fn step(&self, call: &Call, seen: Option<&Outcome>) -> Option<Self> {
        if let Call::Read = call {
            return match seen {
                None => Some(self.clone()),
                Some(Outcome::Seen(seen)) if seen.as_ref() == self.content.as_deref() => Some(self.clone()),
                Some(_) => None,
            };
        }
        let (next, result) = self.write(call);
        match seen {
            None => Some(next),
            Some(Outcome::Done(r)) if *r == result => Some(next),
            // A comparison with an attribute of no object may be refused either way.
            Some(Outcome::Done(ENOENT)) if matches!(call, Call::Guarded { .. }) && self.content.is_none() => {
                Some(next)
            }
            Some(_) => None,
        }
    }

    fn write(&self, call: &Call) -> (Self, i32) {
        let mut c = self.content.as_deref().cloned().unwrap_or_default();
        match call {
            Call::WriteFull(data) => c.data = data.clone(),
            Call::Write { offset, data } => c.data = overlay(&c.data, *offset as usize, data),
            Call::Append(data) => c.data = overlay(&c.data, c.data.len(), data),
            Call::Delete if self.content.is_some() => return (Self::default(), 0),
            Call::Delete => return (self.clone(), ENOENT),
            Call::CreateExclusive if self.content.is_some() => return (self.clone(), EEXIST),
            Call::CreateExclusive => {}
            Call::OmapSet { key, value } => {
                c.omap.insert(key.clone(), value.clone());
            }
            Call::OmapRemove { key } => {
                if self.content.is_none() {
                    return (self.clone(), ENOENT);
                }
                c.omap.remove(key);
            }
            Call::SetAttr { key, value } => {
                c.attrs.insert(key.clone(), value.clone());
            }
            Call::Bundle { data, key, value } => {
                c.data = data.clone();
                c.omap.insert(key.clone(), value.clone());
                c.attrs.insert(key.clone(), value.clone());
            }
            Call::Guarded { key, value, data } => {
                if c.attrs.get(key) != Some(value) {
                    return (self.clone(), ECANCELED);
                }
                c.data = data.clone();
            }
            Call::Read => {}
        }
        let same = self.content.as_ref().is_some_and(|old| old.data.as_ptr_range() == c.data.as_ptr_range());
        let data_hash = if same { self.data_hash } else { hash_of_data(&c.data) };
        (Self::of(c, data_hash), 0)
    }
}

fn overlay(old: &Bytes, offset: usize, data: &Bytes) -> Bytes {
    let mut out = old.to_vec();
    let end = offset + data.len();
    if out.len() < end {
        out.resize(end, 0);
    }
    out[offset..end].copy_from_slice(data);
    out.into()
}

/// FNV-1a over words.
#[derive(Debug, Clone, Copy)]
pub struct Hash(pub u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub fn word(&mut self, w: u64) {
        self.0 = (self.0 ^ w).wrapping_mul(0x0100_0000_01b3);
        self.0 ^= self.0 >> 29;
    }

    pub fn bytes(&mut self, b: &[u8]) {
        self.word(b.len() as u64);
        let words = b.chunks_exact(8);
        let rest = words.remainder();
        words.for_each(|w| self.word(u64::from_le_bytes(w.try_into().unwrap_or_default())));
        if !rest.is_empty() {
            let mut w = [0; 8];
            w[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(w));
        }
    }
}

fn hash_of_data(data: &Bytes) -> u64 {
    let mut h = Hash::default();
    h.bytes(data);
    h.0
}

fn hash_of(c: &Content, data_hash: u64) -> u64 {
    let mut h = Hash(data_hash);
    for map in [&c.omap, &c.attrs] {
        h.word(map.len() as u64);
        for (k, v) in map {
            h.bytes(k);
            h.bytes(v);
        }
    }
    h.0
}

/// A short form for messages: lengths and first bytes.
pub fn brief(b: &Bytes) -> String {
    let head: String = b.iter().take(8).map(|x| format!("{x:02x}")).collect();
    format!("{}:{head}", b.len())
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "data {}", brief(&self.data))?;
        for (name, map) in [("omap", &self.omap), ("attrs", &self.attrs)] {
            for (k, v) in map {
                write!(f, " {name}[{}]={}", String::from_utf8_lossy(k), brief(v))?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |t: Time| t as f64 / 1e6;
        write!(f, "client {} object {} from {:.3} ms", self.client, self.object, ms(self.begun))?;
        match &self.call {
            Call::WriteFull(d) => write!(f, " writefull {}", brief(d))?,
            Call::Write { offset, data } => write!(f, " write at {offset} {}", brief(data))?,
            Call::Append(d) => write!(f, " append {}", brief(d))?,
            Call::Bundle { data, key, .. } => {
                write!(f, " bundle {} {}", String::from_utf8_lossy(key), brief(data))?
            }
            Call::Guarded { key, data, .. } => {
                write!(f, " guarded {} {}", String::from_utf8_lossy(key), brief(data))?
            }
            other => write!(f, " {other:?}")?,
        }
        match &self.ended {
            None => write!(f, ": never answered")?,
            Some((at, Outcome::Done(r))) => write!(f, ": {r} at {:.3} ms", ms(*at))?,
            Some((at, Outcome::Seen(None))) => write!(f, ": no object, at {:.3} ms", ms(*at))?,
            Some((at, Outcome::Seen(Some(c)))) => write!(f, ": {c}, at {:.3} ms", ms(*at))?,
        }
        write!(f, " (version {}, sent {} times)", self.version, self.sends)
    }
}
