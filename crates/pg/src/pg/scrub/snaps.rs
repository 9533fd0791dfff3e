//! Heads and clones: whether every clone that a head names is there, and no other; and sums over what is there.
//!
//! Source: PrimaryLogScrub::scrub_snapshot_metadata in src/osd/PrimaryLogScrub.cc.

use std::collections::BTreeMap;

use codec::Decode;
use types::{HObject, PgId, SnapId};

use super::compare::MOST_FOUND;
use super::record::{FoundSnapset, snapset_error};
use super::scan::Scanned;
use crate::info::PgSums;
use crate::object::{CloneInfo, INFO_ATTR, ObjectInfo, SNAPSET_ATTR, SnapSet, info_flags};

/// What is wrong with the snapshots of a chunk's objects.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SnapTally {
    pub errors: u32,
    pub found: Vec<FoundSnapset>,
    pub lines: Vec<String>,
    /// Found, but not remembered.
    pub more: u32,
    /// Sums over the objects.
    pub sums: PgSums,
}

impl SnapTally {
    fn add(&mut self, found: FoundSnapset) {
        match self.found.len() < MOST_FOUND {
            true => self.found.push(found),
            false => self.more += 1,
        }
    }
}

/// Looks at the objects of a chunk, which holds whole families: a head with its clones.
pub(crate) fn check(pgid: PgId, mode: &str, objects: &BTreeMap<HObject, Scanned>, tally: &mut SnapTally) {
    let mut families: BTreeMap<HObject, Vec<(&HObject, &Scanned)>> = BTreeMap::new();
    for (object, copy) in objects {
        families.entry(object.head()).or_default().push((object, copy));
    }
    for (head, members) in families {
        Family { pgid, mode, head, tally }.check(&members);
    }
}

struct Family<'a> {
    pgid: PgId,
    mode: &'a str,
    head: HObject,
    tally: &'a mut SnapTally,
}

fn no_errors(object: &HObject) -> FoundSnapset {
    FoundSnapset { object: object.clone(), errors: 0, clones: Vec::new(), missing: Vec::new(), snapset: None }
}

impl Family<'_> {
    fn fault(&mut self, object: &HObject, text: &str) {
        self.tally.errors += 1;
        self.tally.lines.push(format!("{} {} {object} : {text}", self.mode, self.pgid));
    }

    /// `members` are in order, the head last.
    fn check(mut self, members: &[(&HObject, &Scanned)]) {
        let head = members.iter().find(|(o, _)| o.is_head());
        let head_object = self.head.clone();
        let mut head_error = no_errors(&head_object);
        let mut snapset = None;
        if let Some((object, copy)) = head {
            self.common(object, copy, &mut head_error);
            snapset = self.snapset(object, copy, &mut head_error);
        }
        let mut clone_errors = 0;
        let mut expected: BTreeMap<u64, &CloneInfo> =
            snapset.iter().flat_map(|s| &s.clones).map(|(id, c)| (*id, c)).collect();
        for (object, copy) in members.iter().rev().filter(|(o, _)| !o.is_head()) {
            let mut error = no_errors(object);
            let info = self.common(object, copy, &mut error);
            match expected.remove(&object.snap.0) {
                Some(clone) => self.clone(object, info.as_ref(), clone, &mut error),
                None => {
                    let why = match (head, &snapset) {
                        (Some(_), None) => "clone ignored due to missing snapset",
                        _ => "is an unexpected clone",
                    };
                    self.fault(object, why);
                    error.errors |= snapset_error::HEADLESS_CLONE;
                    if head.is_some() {
                        head_error.errors |= snapset_error::EXTRA_CLONES;
                        head_error.clones.push(object.snap.0);
                    }
                }
            }
            if error.errors != 0 {
                clone_errors += 1;
                self.tally.add(error);
            }
        }
        for (count, id) in expected.keys().rev().enumerate() {
            let clone = head_object.at(SnapId(*id));
            self.fault(&head_object, &format!("expected clone {clone} {} missing", count + 1));
            head_error.errors |= snapset_error::CLONE_MISSING;
            head_error.missing.push(*id);
        }
        if !expected.is_empty() {
            let text = format!("{} missing clone(s)", expected.len());
            self.tally.lines.push(format!("{} {} {head_object} : {text}", self.mode, self.pgid));
        }
        if head.is_some() && (head_error.errors != 0 || clone_errors != 0) {
            head_error.snapset = snapset;
            self.tally.add(head_error);
        }
    }

    /// What heads and clones have in common.
    fn common(&mut self, object: &HObject, copy: &Scanned, error: &mut FoundSnapset) -> Option<ObjectInfo> {
        let sums = &mut self.tally.sums;
        sums.objects += 1;
        sums.clones += i64::from(!object.is_head());
        let info = match copy.attrs.get(INFO_ATTR).map(|raw| ObjectInfo::from_bytes(raw.clone())) {
            None => {
                self.fault(object, "no '_' attr");
                error.errors |= snapset_error::INFO_MISSING;
                return None;
            }
            Some(Err(e)) => {
                self.fault(object, &format!("can't decode '_' attr {e}"));
                error.errors |= snapset_error::INFO_CORRUPTED | snapset_error::INFO_MISSING;
                return None;
            }
            Some(Ok(info)) => info,
        };
        let sums = &mut self.tally.sums;
        sums.objects_omap += i64::from(info.test(info_flags::OMAP));
        sums.whiteouts += i64::from(info.test(info_flags::WHITEOUT));
        if object.is_head() {
            sums.bytes += info.size as i64;
        }
        if info.size != copy.size {
            self.fault(
                object,
                &format!(
                    "on disk size ({}) does not match object info size ({}) adjusted for ondisk to ({})",
                    copy.size, info.size, info.size
                ),
            );
            error.errors |= snapset_error::SIZE_MISMATCH;
        }
        Some(info)
    }

    fn snapset(&mut self, object: &HObject, copy: &Scanned, error: &mut FoundSnapset) -> Option<SnapSet> {
        match copy.attrs.get(SNAPSET_ATTR).map(|raw| SnapSet::from_bytes(raw.clone())) {
            None => Some(SnapSet::default()),
            Some(Ok(s)) => {
                if !s.clones.is_empty() && s.seq == 0 {
                    self.fault(object, "snaps.seq not set");
                    error.errors |= snapset_error::SNAP_ERROR;
                }
                Some(s)
            }
            Some(Err(e)) => {
                self.fault(object, &format!("can't decode 'snapset' attr {e}"));
                error.errors |= snapset_error::SNAPSET_CORRUPTED;
                None
            }
        }
    }

    /// A clone that its head names.
    fn clone(
        &mut self,
        object: &HObject,
        info: Option<&ObjectInfo>,
        clone: &CloneInfo,
        error: &mut FoundSnapset,
    ) {
        if let Some(info) = info.filter(|i| i.size != clone.size) {
            self.fault(object, &format!("size {} != clone_size {}", info.size, clone.size));
            error.errors |= snapset_error::SIZE_MISMATCH;
        }
        let shared = clone.overlap.iter().try_fold(0u64, |all, (_, len)| all.checked_add(*len));
        match shared.and_then(|shared| clone.size.checked_sub(shared)) {
            Some(alone) => self.tally.sums.bytes += alone as i64,
            None => {
                self.fault(object, "bad interval_set in clone_overlap");
                error.errors |= snapset_error::SIZE_MISMATCH;
            }
        }
    }
}
