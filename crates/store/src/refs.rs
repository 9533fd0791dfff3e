//! How often a block is used beyond once: blocks that clones share. A block that is not listed has one user.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Blocks per region: one index value each.
pub(crate) const REFS_REGION: u32 = 512;

pub(crate) fn refs_region(block: u32) -> u32 {
    block / REFS_REGION
}

/// Extra users of the blocks of one region, by position in it; sorted, without zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RefRegion {
    extra: Vec<(u16, u32)>,
}

impl RefRegion {
    fn find(&self, block: u32) -> Result<usize, usize> {
        let position = (block % REFS_REGION) as u16;
        self.extra.binary_search_by_key(&position, |e| e.0)
    }

    pub(crate) fn extra(&self, block: u32) -> u32 {
        self.find(block).ok().and_then(|at| self.extra.get(at)).map_or(0, |e| e.1)
    }

    pub(crate) fn add_user(&mut self, block: u32) {
        match self.find(block) {
            Ok(at) => {
                if let Some(e) = self.extra.get_mut(at) {
                    e.1 += 1;
                }
            }
            Err(at) => self.extra.insert(at, ((block % REFS_REGION) as u16, 1)),
        }
    }

    /// Takes one user away; false when the block had no second one, so that it is free now.
    pub(crate) fn drop_user(&mut self, block: u32) -> bool {
        let Ok(at) = self.find(block) else { return false };
        if let Some(e) = self.extra.get_mut(at) {
            e.1 -= 1;
            if e.1 == 0 {
                self.extra.remove(at);
            }
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extra.is_empty()
    }

    /// Blocks with their extra users, for a region by its number.
    pub(crate) fn blocks(&self, region: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.extra.iter().map(move |(p, n)| (region * REFS_REGION + u32::from(*p), *n))
    }

    pub(crate) fn weight(&self) -> usize {
        64 + self.extra.capacity() * 8
    }
}

/// Runs of blocks with the same number of extra users.
impl Encode for RefRegion {
    fn encode(&self, w: &mut Writer) {
        let mut runs: Vec<(u16, u16, u32)> = Vec::new();
        for (position, extra) in &self.extra {
            match runs.last_mut() {
                Some((start, len, n)) if *start + *len == *position && n == extra => *len += 1,
                _ => runs.push((*position, 1, *extra)),
            }
        }
        w.count(runs.len());
        for (start, len, extra) in runs {
            w.u16(start);
            w.u16(len);
            w.u32(extra);
        }
    }
}
impl Decode for RefRegion {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let runs = r.count("shared block runs", 8)?;
        let mut extra = Vec::new();
        let mut next = 0;
        for _ in 0..runs {
            let (start, len, n) = (u32::from(r.u16()?), u32::from(r.u16()?), r.u32()?);
            if start < next || start + len > REFS_REGION || n == 0 || len == 0 {
                return Err(DecodeError::Invalid { what: "shared block run", value: u64::from(start) });
            }
            next = start + len;
            extra.extend((start..next).map(|p| (p as u16, n)));
        }
        Ok(Self { extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_and_go() {
        let mut r = RefRegion::default();
        for b in [1029, 1024, 1025, 1029] {
            r.add_user(b);
        }
        assert_eq!((r.extra(1029), r.extra(1024), r.extra(1030)), (2, 1, 0));
        let raw = r.to_bytes();
        assert_eq!(RefRegion::from_bytes(raw.clone()), Ok(r.clone()));
        assert!((0..raw.len()).all(|n| RefRegion::from_bytes(raw.slice(..n)).is_err()));
        assert_eq!(r.blocks(2).collect::<Vec<_>>(), vec![(1024, 1), (1025, 1), (1029, 2)]);
        assert!(r.drop_user(1029) && r.drop_user(1029) && !r.drop_user(1029));
        assert!(r.drop_user(1024) && r.drop_user(1025) && r.is_empty());
    }
}
