//! Names in a fragment of a directory: keys and values of its omap.
//!
//! Source: dentry_key_t in src/mds/mdstypes.h, CDir::_load_dentry, CDir::_omap_commit_ops in src/mds/CDir.cc;
//! 16.2.15 writes the types `i` and `l`, which have an envelope and a name of another encoding.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::FileName;
use types::{Ino, SnapId};

use super::store::InodeStore;

/// A name, and the last snapshot that has it like this; `SnapId::HEAD` for what is there now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DentryKey {
    pub name: FileName,
    pub last: SnapId,
}

const HEAD: &[u8] = b"head";

impl DentryKey {
    pub fn head(name: impl Into<FileName>) -> Self {
        Self { name: name.into(), last: SnapId::HEAD }
    }

    /// `name_head`, or the snapshot's number in hex instead of `head`.
    pub fn to_key(&self) -> Vec<u8> {
        let mut key = self.name.to_vec();
        key.push(b'_');
        match self.last {
            SnapId::HEAD => key.extend_from_slice(HEAD),
            SnapId(snap) => key.extend_from_slice(format!("{snap:x}").as_bytes()),
        }
        key
    }

    /// `None` for what no server writes.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        let at = key.iter().rposition(|b| *b == b'_')?;
        let (name, last) = (key.get(..at)?, key.get(at + 1..)?);
        let last = if last == HEAD {
            SnapId::HEAD
        } else {
            SnapId(u64::from_str_radix(std::str::from_utf8(last).ok()?, 16).ok()?)
        };
        let found = Self { name: Bytes::copy_from_slice(name), last };
        (found.to_key() == key).then_some(found)
    }
}

/// What a name leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// The inode is stored with this name.
    Primary(Box<InodeStore>),
    /// It is stored elsewhere: a hard link. `d_type` is that of directory entries (`DT_REG`).
    Remote { ino: Ino, d_type: u8 },
}

/// A name's value.
#[derive(Debug, Clone, PartialEq)]
pub struct Dentry {
    /// The first snapshot that has the name like this.
    pub first: SnapId,
    /// The name as clients that encrypt see it; empty without encryption.
    pub alternate_name: Bytes,
    pub link: Link,
}

impl Encode for Dentry {
    fn encode(&self, w: &mut Writer) {
        self.first.encode(w);
        match &self.link {
            Link::Primary(inode) => {
                w.u8(b'i');
                w.envelope(2, 1, |w| {
                    w.blob(&self.alternate_name);
                    inode.encode(w);
                });
            }
            Link::Remote { ino, d_type } => {
                w.u8(b'l');
                w.envelope(2, 1, |w| {
                    ino.encode(w);
                    w.u8(*d_type);
                    w.blob(&self.alternate_name);
                });
            }
        }
    }
}

impl Decode for Dentry {
    const MIN_SIZE: usize = 9;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let first = SnapId::decode(r)?;
        let (alternate_name, link) = match r.u8()? {
            b'i' => r.envelope("dentry", 2, |r, env| {
                let other = if env.version >= 2 { r.blob()? } else { Bytes::new() };
                Ok((other, Link::Primary(Box::new(InodeStore::decode(r)?))))
            })?,
            b'I' => (Bytes::new(), Link::Primary(Box::new(InodeStore::decode_bare(r, 5)?))),
            b'l' => r.envelope("dentry", 2, |r, env| {
                let link = Link::Remote { ino: Ino::decode(r)?, d_type: r.u8()? };
                Ok((if env.version >= 2 { r.blob()? } else { Bytes::new() }, link))
            })?,
            b'L' => (Bytes::new(), Link::Remote { ino: Ino::decode(r)?, d_type: r.u8()? }),
            other => return Err(DecodeError::Invalid { what: "type of a dentry", value: other.into() }),
        };
        Ok(Self { first, alternate_name, link })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_name_and_last_snapshot() {
        for (name, last, key) in [
            ("a", SnapId::HEAD, "a_head"),
            ("a_head", SnapId(0x1f), "a_head_1f"),
            ("", SnapId(2), "_2"),
            ("n\u{e4}me_", SnapId::HEAD, "n\u{e4}me__head"),
        ] {
            let found = DentryKey { name: Bytes::copy_from_slice(name.as_bytes()), last };
            assert_eq!(
                (found.to_key().as_slice(), DentryKey::of_key(key.as_bytes())),
                (key.as_bytes(), Some(found))
            );
        }
        for other in ["", "a", "a_", "a_Head", "a_0x2", "a_02", "a_1F", "a_+1", "a_fffffffffffffffff"] {
            assert_eq!(DentryKey::of_key(other.as_bytes()), None, "{other}");
        }
        assert_eq!(DentryKey::of_key(b"\xff\xfe_head"), Some(DentryKey::head(&b"\xff\xfe"[..])));
    }

    /// What the first servers of 16.2 wrote is what they write now, less envelopes and other name.
    #[test]
    fn values_without_an_envelope_are_read() {
        let inode = InodeStore { oldest_snap: SnapId(7), ..InodeStore::default() };
        let body = inode.to_bytes().slice(6..);
        let primary = |body: &[u8]| Dentry::from_bytes([&3u64.to_le_bytes()[..], b"I", body].concat());
        let want = |inode| Dentry {
            first: SnapId(3),
            alternate_name: Bytes::new(),
            link: Link::Primary(Box::new(inode)),
        };
        assert_eq!(primary(&body), Ok(want(inode.clone())));
        assert_eq!(primary(&body[..body.len() - 4]), Ok(want(inode)));
        assert_eq!(primary(&body[..body.len() - 12]), Ok(want(InodeStore::default())));
        assert!(primary(&body[..body.len() - 13]).is_err());
        let remote = [&3u64.to_le_bytes()[..], b"L", &9u64.to_le_bytes(), &[8]].concat();
        let link = Link::Remote { ino: Ino(9), d_type: 8 };
        assert_eq!(
            Dentry::from_bytes(remote),
            Ok(Dentry { first: SnapId(3), alternate_name: Bytes::new(), link })
        );
        assert!(Dentry::from_bytes([&3u64.to_le_bytes()[..], b"x"].concat()).is_err());
    }
}
