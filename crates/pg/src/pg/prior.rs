//! Makes a new primary wait for those of earlier intervals. An earlier primary may not know yet that it was
//! replaced, and answers reads as long as it holds leases of all its members. A new primary goes active only
//! when no earlier one can still answer. ARCHITECTURE.md has the argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::OsdMap;

use types::OsdId;

use super::{Pg, Phase};
use crate::interval::Interval;
use crate::osd::lease::padded;
use crate::osd::shared::Shared;

/// What the primary of the present interval knows of the leases of earlier primaries.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prior {
    /// When the interval began here.
    since: Duration,
    /// OSDs that have spoken in the present interval, so that they know of it, and when (monotonic) they
    /// first did.
    heard: BTreeMap<OsdId, Duration>,
    /// By member and earlier primary: when (monotonic) the lease that the member gave that primary is over.
    owed: BTreeMap<(OsdId, OsdId), Duration>,
}

/// By OSD: for how many milliseconds it may still hold a lease of the sender of a notify.
pub(crate) type Owed = Vec<(OsdId, u32)>;

impl Prior {
    pub fn begin(now: Duration) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// Notes that an OSD has spoken in the present interval, with the leases that it still owes.
    pub fn heard(&mut self, from: OsdId, owed: &Owed, now: Duration) {
        self.heard.entry(from).or_insert(now);
        for (primary, ms) in owed {
            // The first statement holds: the OSD's later answers to pings carry a map that an OSD which does
            // not know of this interval lacks, and such an answer extends no lease.
            let until = now + padded(Duration::from_millis(u64::from(*ms)));
            self.owed.entry((from, *primary)).or_insert(until);
        }
    }

    /// Whether the OSD that led an interval is known to be dead, or to know that the interval is over.
    fn has_ended(&self, i: &Interval, map: &OsdMap) -> bool {
        self.heard.contains_key(&i.primary) || is_over(map, i)
    }

    /// Until when (monotonic) the primary of an earlier interval may still answer. It needs the leases of all
    /// its members, so the member whose lease ends first decides. A member that has spoken in the present
    /// interval gives that primary no more leases; if it said nothing of that primary, it may have given one
    /// just before it spoke. If no member has spoken, a whole lease counts from the beginning of the present
    /// interval. `own`: this OSD, and when its own lease to that primary is over.
    fn readable_until(&self, i: &Interval, own: (OsdId, Duration), lease: Duration) -> Duration {
        let lease = padded(lease);
        let heard = |osd: OsdId| self.heard.get(&osd).map(|at| *at + lease);
        let stated = |osd: OsdId| match osd == own.0 {
            true => Some(own.1),
            false => self.owed.get(&(osd, i.primary)).copied().or_else(|| heard(osd)),
        };
        let least = i.acting.iter().filter(|o| **o != i.primary).filter_map(|o| stated(*o)).min();
        least.unwrap_or(self.since + lease)
    }
}

impl Pg {
    /// The leases that this OSD still owes the earlier primaries which this copy knows of.
    pub fn owed(&self, cx: &Shared) -> Owed {
        let primaries: BTreeSet<OsdId> = self.past.iter().map(|i| i.primary).filter(|p| p.is_osd()).collect();
        owed_to(primaries, cx)
    }

    /// Activates the PG if no earlier primary can answer any more; else makes it wait, and reports for which
    /// OSDs.
    pub fn check_prior(&mut self, cx: &mut Shared) {
        let readers = self.prior_readers(cx);
        if readers.is_empty() || types::is_planted!(cx.config.planted, NoWaitForReaders) {
            return self.activate(cx);
        }
        self.blocked_by = readers.into_iter().collect();
        self.report |= self.phase != Phase::WaitReadable;
        self.phase = Phase::WaitReadable;
    }

    /// The primaries of earlier intervals that may still answer reads.
    fn prior_readers(&self, cx: &Shared) -> BTreeSet<OsdId> {
        self.past_with_writes()
            .filter(|i| i.primary != cx.whoami && !self.prior.has_ended(i, &cx.map))
            .filter(|i| {
                let own = (cx.whoami, cx.now.mono + cx.owed(i.primary));
                self.prior.readable_until(i, own, cx.config.read_lease()) > cx.now.mono
            })
            .map(|i| i.primary)
            .collect()
    }
}

/// The leases that this OSD still owes each of these OSDs.
pub(crate) fn owed_to(osds: impl IntoIterator<Item = OsdId>, cx: &Shared) -> Owed {
    let ms = |left: Duration| u32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
    osds.into_iter().map(|osd| (osd, ms(cx.owed(osd)))).collect()
}

/// The members of an interval of which some have to come back before it is known what was written in it.
/// Empty when those that are up are enough by their places: one of a replicated PG, for an acknowledged write
/// is on all; of an erasure-coded one, those that make up the data.
///
/// A member whose data was given up since does not count, whether it is down or up with another disk: it
/// knows nothing of the interval. When the data of all members was given up, so were the interval's writes,
/// and there is nobody to wait for.
pub(super) fn missing_witnesses(
    i: &Interval,
    is_enough: impl Fn(Vec<usize>) -> bool,
    map: &OsdMap,
) -> Vec<OsdId> {
    let given_up = |osd: &OsdId| map.osd(*osd).is_some_and(|o| o.info.lost_at > i.first);
    let members = i.acting.iter().copied().enumerate().filter(|(_, o)| map.exists(*o) && !given_up(o));
    let (up, down): (Vec<_>, Vec<_>) = members.partition(|(_, o)| map.is_up(*o));
    match is_enough(up.into_iter().map(|(place, _)| place).collect()) {
        true => Vec::new(),
        false => down.into_iter().map(|(_, osd)| osd).collect(),
    }
}

/// Whether the map proves that the process which led this interval is dead, or has learned of a later
/// interval.
fn is_over(map: &OsdMap, i: &Interval) -> bool {
    map.is_dead(i.primary) || map.osd(i.primary).is_some_and(|o| o.exists() && o.info.up_from > i.last)
}

#[cfg(test)]
mod tests {
    use maps::flags::osd_state;
    use maps::{Osd, OsdInfo, OsdXInfo};
    use types::Epoch;

    use super::*;

    const LEASE: Duration = Duration::from_secs(16);
    /// The new primary, which was a member before.
    const SELF: OsdId = OsdId(0);
    const OLD: OsdId = OsdId(1);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// An interval of epochs 10 to 20 that OSD 1 led.
    fn interval(acting: &[OsdId]) -> Interval {
        Interval {
            first: Epoch(10),
            last: Epoch(20),
            up: acting.to_vec(),
            acting: acting.to_vec(),
            primary: OLD,
            maybe_went_rw: true,
        }
    }

    /// A map of two OSDs, the second of which led the interval.
    fn map(state: u32, up_from: u32, dead_epoch: u32) -> OsdMap {
        let info = OsdInfo { up_from: Epoch(up_from), ..OsdInfo::default() };
        let xinfo = OsdXInfo { dead_epoch: Epoch(dead_epoch), ..OsdXInfo::default() };
        let old = Osd { state, info, xinfo, ..Osd::default() };
        OsdMap { epoch: Epoch(30), osds: vec![Osd::default(), old], ..OsdMap::default() }
    }

    #[test]
    fn the_map_says_who_is_over() {
        let (gone, down, up) = (0, osd_state::EXISTS, osd_state::EXISTS | osd_state::UP);
        let table = [
            // State, when it started last, `dead_epoch`: whether the interval's primary is over.
            (up, 5, 0, false),
            (down, 5, 0, false),
            (down, 5, 21, true),
            // It was dead before, and started since: of this life nothing is known.
            (down, 5, 4, false),
            (down, 5, 5, false),
            (down, 5, 6, true),
            // It started again, before the interval ended or behind it.
            (up, 20, 0, false),
            (up, 21, 0, true),
            (down, 21, 0, true),
            // What was removed from the map says nothing.
            (gone, 25, 26, false),
        ];
        for (state, up_from, dead_epoch, over) in table {
            let map = map(state, up_from, dead_epoch);
            let what = (state, up_from, dead_epoch);
            assert_eq!(is_over(&map, &interval(&[OLD, SELF])), over, "{what:?}");
            assert_eq!(Prior::begin(s(100)).has_ended(&interval(&[OLD, SELF]), &map), over, "{what:?}");
        }
        assert!(!is_over(&OsdMap::default(), &interval(&[OLD, SELF])), "an OSD outside the map");
    }

    /// Two new disks whose owners came up before the third member did began the PG anew (simulated seed 182).
    #[test]
    fn a_new_disk_is_no_witness() {
        let (down, up) = (osd_state::EXISTS, osd_state::EXISTS | osd_state::UP);
        let osd = |state, lost_at| {
            let info = OsdInfo { up_from: Epoch(25), lost_at: Epoch(lost_at), ..OsdInfo::default() };
            Osd { state, info, ..Osd::default() }
        };
        let table: [(&[Osd], &[OsdId]); 8] = [
            (&[osd(up, 0), osd(down, 0)], &[]),
            (&[osd(down, 0), osd(down, 0)], &[SELF, OLD]),
            (&[osd(up, 15), osd(down, 0)], &[OLD]),
            (&[osd(up, 15), osd(up, 15), osd(down, 0)], &[OsdId(2)]),
            (&[osd(down, 15), osd(down, 0)], &[OLD]),
            (&[osd(up, 15), osd(down, 15)], &[]),
            (&[osd(down, 15), osd(up, 0)], &[]),
            // It was given up before the interval began.
            (&[osd(up, 5), osd(down, 0)], &[]),
        ];
        for (osds, missing) in table {
            let map = OsdMap { epoch: Epoch(30), osds: osds.to_vec(), ..OsdMap::default() };
            let all: Vec<OsdId> = (0..osds.len() as i32).map(OsdId).collect();
            assert_eq!(missing_witnesses(&interval(&all), |up| !up.is_empty(), &map), missing, "{osds:?}");
        }
        assert_eq!(
            missing_witnesses(&interval(&[OsdId(7)]), |up| !up.is_empty(), &OsdMap::default()),
            [],
            "outside the map"
        );
    }

    #[test]
    fn as_many_shards_have_to_be_there_as_make_up_the_data() {
        let (down, up) = (osd_state::EXISTS, osd_state::EXISTS | osd_state::UP);
        let osd = |state, lost_at| {
            let info = OsdInfo { up_from: Epoch(25), lost_at: Epoch(lost_at), ..OsdInfo::default() };
            Osd { state, info, ..Osd::default() }
        };
        let osds = |ids: &[i32]| ids.iter().map(|id| OsdId(*id)).collect::<Vec<_>>();
        let table: [(&[Osd], &[i32]); 6] = [
            (&[osd(up, 0), osd(up, 0), osd(down, 0)], &[]),
            (&[osd(up, 0), osd(down, 0), osd(down, 0)], &[1, 2]),
            (&[osd(down, 0), osd(down, 0), osd(down, 0)], &[0, 1, 2]),
            // What was given up is no witness, and nobody waits for it.
            (&[osd(up, 0), osd(up, 15), osd(down, 0)], &[2]),
            (&[osd(up, 0), osd(down, 15), osd(down, 0)], &[2]),
            (&[osd(up, 0), osd(down, 15), osd(up, 15)], &[]),
        ];
        for (state, missing) in table {
            let map = OsdMap { epoch: Epoch(30), osds: state.to_vec(), ..OsdMap::default() };
            let mut all = osds(&[0, 1, 2]);
            assert_eq!(
                missing_witnesses(&interval(&all), |up| up.len() >= 2, &map),
                osds(missing),
                "{state:?}"
            );
            // A hole was nobody.
            all.push(OsdId::HOLE);
            assert_eq!(
                missing_witnesses(&interval(&all), |up| up.len() >= 2, &map),
                osds(missing),
                "{state:?}"
            );
        }
    }

    #[test]
    fn who_speaks_in_the_new_interval_knows() {
        let (mut prior, map) = (Prior::begin(s(100)), map(osd_state::EXISTS, 5, 0));
        prior.heard(OsdId(2), &Owed::new(), s(101));
        assert!(!prior.has_ended(&interval(&[OLD, SELF, OsdId(2)]), &map), "another one spoke");
        prior.heard(OLD, &Owed::new(), s(101));
        assert!(prior.has_ended(&interval(&[OLD, SELF, OsdId(2)]), &map));
    }

    #[test]
    fn who_owes_least_decides() {
        let mut prior = Prior::begin(s(100));
        let own = (SELF, s(112));
        let until = |prior: &Prior, acting: &[OsdId]| prior.readable_until(&interval(acting), own, LEASE);
        assert_eq!(until(&prior, &[OLD, SELF]), s(112), "what this OSD promised");
        assert_eq!(until(&prior, &[OLD, SELF, OsdId(2)]), s(112), "a silent member decides nothing");
        prior.heard(OsdId(2), &vec![(OLD, 5_000)], s(101));
        assert_eq!(until(&prior, &[OLD, SELF, OsdId(2)]), s(101) + padded(s(5)));
        assert_eq!(until(&prior, &[OLD, SELF]), s(112), "it was no member");
        // The first statement holds: what it answers since helps nobody who does not know of the interval.
        prior.heard(OsdId(2), &vec![(OLD, 15_000)], s(110));
        assert_eq!(until(&prior, &[OLD, SELF, OsdId(2)]), s(101) + padded(s(5)));
        prior.heard(OsdId(3), &vec![(OLD, 0)], s(103));
        assert_eq!(until(&prior, &[OLD, SELF, OsdId(2), OsdId(3)]), s(103));
    }

    #[test]
    fn a_member_that_says_nothing_of_the_primary_may_have_answered_it_just_before() {
        let mut prior = Prior::begin(s(100));
        let own = (SELF, s(200));
        let until = |prior: &Prior, acting: &[OsdId]| prior.readable_until(&interval(acting), own, LEASE);
        prior.heard(OsdId(2), &vec![(OsdId(3), 1_000)], s(104));
        assert_eq!(until(&prior, &[OLD, SELF, OsdId(2)]), s(104) + padded(LEASE));
        // Heard again: the first time counts.
        prior.heard(OsdId(2), &Owed::new(), s(109));
        assert_eq!(until(&prior, &[OLD, SELF, OsdId(2)]), s(104) + padded(LEASE));
        assert_eq!(
            until(&prior, &[OLD, OsdId(2), OsdId(3)]),
            s(104) + padded(LEASE),
            "this OSD was no member"
        );
    }

    #[test]
    fn of_a_primary_alone_a_whole_lease_is_waited_out() {
        let mut prior = Prior::begin(s(100));
        let own = (SELF, s(100));
        for acting in [&[OLD][..], &[OLD, OsdId(2), OsdId(3)]] {
            assert_eq!(prior.readable_until(&interval(acting), own, LEASE), s(100) + padded(LEASE));
        }
        // What the primary itself owes somebody is no support of its own.
        prior.heard(OLD, &vec![(OLD, 0)], s(101));
        assert_eq!(prior.readable_until(&interval(&[OLD]), own, LEASE), s(100) + padded(LEASE));
        assert!(padded(LEASE) > LEASE, "clocks run apart");
    }
}
