//! What a server still has to remove or cut: entries of the purge queue's journal.
//!
//! Source: PurgeItem in src/mds/PurgeQueue.h and PurgeQueue.cc.

use std::collections::BTreeSet;

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::{FileLayout, FragTree};
use types::{Ino, PoolId, SnapContext, Utime};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum PurgeAction {
    /// Nothing: stands where a tool took an entry out.
    #[default]
    None = 0,
    File = 1,
    Truncate = 2,
    Dir = 3,
}

/// An inode whose objects go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PurgeItem {
    pub action: PurgeAction,
    pub ino: Ino,
    pub size: u64,
    pub layout: FileLayout,
    /// Pools that have backtraces of it.
    pub old_pools: BTreeSet<PoolId>,
    /// With which its objects are deleted.
    pub snaps: SnapContext,
    pub frag_tree: FragTree,
    pub stamp: Utime,
    /// Bytes that fill an entry up.
    pub padding: u32,
}

const PAD: u8 = 0xff;

impl PurgeItem {
    fn decode_body(r: &mut Reader) -> Result<Self, DecodeError> {
        let action = match r.u8()? {
            0 => PurgeAction::None,
            1 => PurgeAction::File,
            2 => PurgeAction::Truncate,
            3 => PurgeAction::Dir,
            other => return Err(DecodeError::Invalid { what: "action of a purge", value: other.into() }),
        };
        Ok(Self {
            action,
            ino: Ino::decode(r)?,
            size: r.u64()?,
            layout: FileLayout::decode(r)?,
            old_pools: Decode::decode(r)?,
            snaps: SnapContext::decode(r)?,
            frag_tree: FragTree::decode(r)?,
            ..Self::default()
        })
    }

    /// What 13.2.2 wrote as version 1: time and padding in front.
    fn decode_13_2_2(r: &mut Reader) -> Result<Self, DecodeError> {
        let (stamp, padding) = (Utime::decode(r)?, r.u32()?);
        r.skip(padding as usize)?;
        Ok(Self { stamp, padding, ..Self::decode_body(r)? })
    }
}

impl Encode for PurgeItem {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.u8(self.action as u8);
            self.ino.encode(w);
            w.u64(self.size);
            self.layout.encode(w);
            self.old_pools.encode(w);
            self.snaps.encode(w);
            self.frag_tree.encode(w);
            self.stamp.encode(w);
            (0..self.padding).for_each(|_| w.u8(PAD));
        });
    }
}
impl Decode for PurgeItem {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("PurgeItem", 2, |r, env| {
            if env.version == 1 {
                // Only trying tells the two forms apart.
                return Self::decode_13_2_2(&mut r.clone()).or_else(|_| Self::decode_body(r));
            }
            let mut item = Self::decode_body(r)?;
            item.stamp = Utime::decode(r)?;
            item.padding = r.remaining() as u32;
            Ok(item)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_version_1_are_told_apart() {
        let item = PurgeItem {
            action: PurgeAction::Dir,
            ino: Ino(0x100_0000_0001),
            size: 9,
            ..PurgeItem::default()
        };
        let whole = item.to_bytes();
        let body = &whole[6..whole.len() - 8];
        let wrap = |body: &[u8]| {
            let mut w = Writer::new();
            w.envelope(1, 1, |w| w.raw(body));
            PurgeItem::from_bytes(w.into_bytes())
        };
        assert_eq!(wrap(body), Ok(item.clone()));
        let bad = [&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, PAD, PAD, PAD], body].concat();
        assert_eq!(wrap(&bad), Ok(PurgeItem { stamp: Utime::new(1, 2), padding: 3, ..item.clone() }));
        let padded = PurgeItem { padding: 5, ..item };
        assert_eq!(padded.to_bytes().len(), whole.len() + 5);
        assert_eq!(PurgeItem::from_bytes(padded.to_bytes()), Ok(padded));
    }
}
