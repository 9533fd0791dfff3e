//! What must hold at the very moment at which an OSD tells a client that its write is done (O1): the log of every acting member
//! has the write and all before it, and there are as many of them as the pool asks for; in memory each time,
//! and on the medium every now and then.

use std::sync::Arc;

use pg::{Logged, OsdCore};
use store::{Options, Store};
use types::{Eversion, OsdId, PgId, SpgId};

use crate::world::{FSID, World};

/// So many entries are compared, back from the acknowledged one: each was the last when its own time came.
const BACK: usize = 8;
/// At one of so many acknowledgements, and on the media, all that the logs have.
const WHOLE: u64 = 64;
/// One of so many acknowledgements is looked for on the media.
const ON_MEDIA: u64 = 4_000;
/// The first of them: a planted bug is found soon.
const FIRST_ON_MEDIA: u64 = 5;

impl World {
    /// `osd` acknowledges the write that made this version of the PG.
    pub fn check_acknowledged(&mut self, osd: i32, pgid: PgId, version: Eversion) {
        let Some(primary) = &self.osds[osd as usize].core else { return };
        let id = primary.osdmap().primary_shard(pgid).map_or(SpgId::replicated(pgid), |(_, id)| id);
        let epoch = primary.osdmap().epoch;
        let on_media = (self.acknowledged + 1) % ON_MEDIA == FIRST_ON_MEDIA;
        let back = if on_media || self.acknowledged % WHOLE == 0 { usize::MAX } else { BACK };
        // An answer that is given again may be about a write that was trimmed long ago.
        let Some(wanted) = primary.logged(id, version, back).filter(|l| l.versions.first() == Some(&version))
        else {
            return;
        };
        let acting = primary.acting_of(id).to_vec();
        self.acknowledged += 1;
        let least = primary.osdmap().pool(pgid.pool).map_or(0, |pool| usize::from(pool.min_size));
        let members = acting.iter().filter(|osd| **osd != OsdId::HOLE).count();
        if members < least {
            return self.violation(format!(
                "O1: osd.{osd} acknowledges {version} of pg {pgid} with {members} members of {least}: {acting:?}"
            ));
        }
        for (place, member) in acting.into_iter().enumerate().filter(|(_, osd)| *osd != OsdId::HOLE) {
            let shard = if id.shard == SpgId::NO_SHARD { id.shard } else { place as i8 };
            let id = SpgId { shard, ..id };
            let host = &self.osds[member.0 as usize];
            let Some(core) = &host.core else { continue };
            // One that has another map may have split the PG, or given it up.
            if core.osdmap().epoch != epoch {
                continue;
            }
            let mut seen = vec![("log", core.logged(id, version, back))];
            if on_media {
                let device = Arc::new(host.device.after_the_worst());
                seen.push(("medium", logged_on(device, id, version)));
            }
            for (place, logged) in seen {
                if let Some(fault) = fault(&wanted, logged) {
                    return self.violation(format!(
                        "O1: osd.{osd} acknowledges {version} of pg {pgid}; the {place} of osd.{member} {fault}"
                    ));
                }
            }
        }
        if on_media {
            self.happened("acknowledged writes looked for on the media");
        }
    }
}

/// What a power loss now leaves of the PG's log, at worst.
fn logged_on(device: Arc<dyn store::Device>, id: SpgId, version: Eversion) -> Option<Logged> {
    let options = Options { memory_bytes: 16 << 20, expect_fsid: Some(FSID), ..Options::default() };
    let mut store = Store::open(device, options).ok()?;
    OsdCore::logged_in(&mut store, id, version, usize::MAX)
}

/// How a member's log differs from the primary's above where both begin.
fn fault(wanted: &Logged, logged: Option<Logged>) -> Option<String> {
    let Some(logged) = logged else { return Some("does not have the PG".to_owned()) };
    let above = |all: &[Eversion]| -> Vec<Eversion> {
        let floor = wanted.tail.max(logged.tail);
        all.iter().copied().take_while(|v| *v > floor).collect()
    };
    let (theirs, ours) = (above(&logged.versions), above(&wanted.versions));
    (theirs != ours).then(|| format!("has {theirs:?} and not {ours:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    fn log(versions: &[u64], tail: u64) -> Logged {
        let of = |v: &u64| Eversion::new(Epoch(3), *v);
        Logged { versions: versions.iter().map(of).collect(), tail: of(&tail) }
    }

    #[test]
    fn a_gap_is_a_fault_and_what_was_trimmed_is_none() {
        let primary = log(&[9, 8, 7, 6], 5);
        assert_eq!(fault(&primary, Some(log(&[9, 8, 7, 6], 4))), None);
        assert_eq!(fault(&primary, Some(log(&[9, 8], 7))), None);
        assert_eq!(fault(&primary, Some(log(&[], 9))), None);
        for bad in [log(&[9, 7, 6], 5), log(&[8, 7, 6], 5), log(&[9, 8, 6], 5), log(&[], 5)] {
            assert!(fault(&primary, Some(bad)).is_some());
        }
        assert!(fault(&primary, None).is_some());
    }
}
