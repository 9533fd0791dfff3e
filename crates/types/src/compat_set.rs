//! Sets of named features that a reader may, should or must know: what metadata servers understand of a file system.
//!
//! Source: src/include/CompatSet.h, get_compat_set_default in src/mds/MDSMap.cc.

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Named feature numbers, each from 1 to 63.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureSet(pub BTreeMap<u64, String>);

/// What a reader may, should and must know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompatSet {
    pub compat: FeatureSet,
    pub ro_compat: FeatureSet,
    pub incompat: FeatureSet,
}

codec::wire_plain!(CompatSet { compat, ro_compat, incompat });

/// File data that lies in the inode.
pub const INLINE_DATA: (u64, &str) = (7, "mds uses inline data");

impl FeatureSet {
    /// A bit for each feature.
    pub fn mask(&self) -> u64 {
        self.0.keys().filter_map(|n| 1u64.checked_shl(u32::try_from(*n).ok()?)).fold(0, |m, b| m | b)
    }

    fn contains_all(&self, other: &Self) -> bool {
        other.mask() & !self.mask() == 0
    }

    fn merge(&mut self, other: &Self) {
        for (n, name) in &other.0 {
            self.0.entry(*n).or_insert_with(|| name.clone());
        }
    }
}

impl std::fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(n, name)| format!("{n}={name}")).collect();
        write!(f, "{{{}}}", pairs.join(","))
    }
}

impl Encode for FeatureSet {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.mask());
        self.0.encode(w);
    }
}
impl Decode for FeatureSet {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        // The mask repeats what the names say.
        r.skip(8)?;
        let names: BTreeMap<u64, String> = Decode::decode(r)?;
        match names.keys().find(|n| !(1..64).contains(*n)) {
            Some(n) => Err(DecodeError::Invalid { what: "feature number", value: *n }),
            None => Ok(Self(names)),
        }
    }
}

impl CompatSet {
    /// What a file system of 16.2 begins with.
    pub fn of_new_file_system() -> Self {
        let names = [
            (1, "base v0.20"),
            (2, "client writeable ranges"),
            (3, "default file layouts on dirs"),
            (4, "dir inode in separate object"),
            (5, "mds uses versioned encoding"),
            (6, "dirfrag is stored in omap"),
            (8, "no anchor table"),
            (9, "file layout v2"),
            (10, "snaprealm v2"),
        ];
        Self::of(&names)
    }

    /// What 16.2's metadata servers know.
    pub fn all() -> Self {
        let mut all = Self::of_new_file_system();
        all.incompat.0.insert(INLINE_DATA.0, INLINE_DATA.1.to_owned());
        all
    }

    /// What was there before features had numbers.
    pub fn base() -> Self {
        Self::of(&[(1, "base v0.20")])
    }

    fn of(names: &[(u64, &str)]) -> Self {
        let incompat = FeatureSet(names.iter().map(|(n, s)| (*n, (*s).to_owned())).collect());
        Self { incompat, ..Self::default() }
    }

    /// Whether a daemon that knows these features may write what has the features of `other`.
    pub fn may_write(&self, other: &Self) -> bool {
        self.incompat.contains_all(&other.incompat) && self.ro_compat.contains_all(&other.ro_compat)
    }

    /// Takes over what only `other` has.
    pub fn merge(&mut self, other: &Self) {
        self.compat.merge(&other.compat);
        self.ro_compat.merge(&other.ro_compat);
        self.incompat.merge(&other.incompat);
    }

    /// The masks alone, as lines of daemons show them; their lowest bit is always set.
    pub fn masks(&self) -> String {
        let mask = |set: &FeatureSet| set.mask() | 1;
        format!(
            "{{c=[{:x}],r=[{:x}],i=[{:x}]}}",
            mask(&self.compat),
            mask(&self.ro_compat),
            mask(&self.incompat)
        )
    }
}

impl std::fmt::Display for CompatSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "compat={},rocompat={},incompat={}", self.compat, self.ro_compat, self.incompat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_writes_what_it_knows_all_of() {
        let (new, all, base) = (CompatSet::of_new_file_system(), CompatSet::all(), CompatSet::base());
        for (daemon, fs, may) in
            [(&all, &new, true), (&new, &all, false), (&base, &new, false), (&all, &all, true)]
        {
            assert_eq!(daemon.may_write(fs), may, "{daemon} {fs}");
        }
        let mut merged = new;
        merged.merge(&all);
        assert_eq!(merged, all);
        assert_eq!(all.masks(), "{c=[1],r=[1],i=[7ff]}");
    }
}
