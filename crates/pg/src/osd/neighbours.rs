//! Chooses the OSDs that an OSD pings besides the members of its PGs. Without them nobody would notice the
//! death of an OSD that shares no PG, and reports might come from too few subtrees for the monitors to
//! believe them.
//!
//! 1. Each OSD that is up is pinged by the next and by the previous OSD that is up, by number.
//! 2. Each OSD is pinged from `reporters` + 1 other subtrees, or from all others where there are fewer. The
//!    monitors want reports from `reporters` different subtrees, and one of those may die together with the
//!    OSD.
//! 3. Each OSD pings at least `least` others, or all if there are fewer.
//!
//! Ceph draws OSDs of other subtrees at random, anew at each map, so that in time each is pinged by some.
//! Here the choice depends on the map alone, so that it stays the same as long as the OSDs that are up stay
//! the same. Source: OSD::maybe_update_heartbeat_peers, OSDMap::get_random_up_osds_by_subtree.

use types::OsdId;

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use maps::OsdMap;

/// How many OSDs an OSD pings, and from how many subtrees it is pinged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Source: mon_osd_min_down_reporters.
    pub reporters: usize,
    /// Source: osd_heartbeat_min_peers.
    pub least: usize,
}

/// The OSDs that are up, in one list for each CRUSH bucket of type `level`. An OSD that is in no such bucket
/// has a list of its own, as the monitors count it as a subtree of its own.
pub(super) fn up_by_subtree(map: &OsdMap, level: &str) -> Vec<Vec<OsdId>> {
    let mut left: BTreeSet<OsdId> =
        map.existing_osds().filter(|(_, o)| o.is_up()).map(|(osd, _)| osd).collect();
    let crush = &map.crush;
    let of_level = crush.type_id(level).filter(|id| *id > 0);
    let buckets = crush.buckets.iter().flatten().filter(|b| Some(i32::from(b.type_id)) == of_level);
    let mut all: Vec<Vec<OsdId>> = buckets
        .filter(|b| !crush.is_shadow(b.id))
        .map(|b| crush.leaves(b.id).into_iter().map(OsdId).filter(|osd| left.remove(osd)).collect())
        .collect();
    all.extend(left.into_iter().map(|osd| vec![osd]));
    all.retain(|osds| !osds.is_empty());
    all
}

/// Adds OSDs to `peers` until `me` pings enough of them. `subtrees` is what `up_by_subtree` gives.
pub(super) fn add_neighbours(
    peers: &mut BTreeSet<OsdId>,
    me: OsdId,
    subtrees: &[Vec<OsdId>],
    bounds: Bounds,
) {
    let up: BTreeSet<OsdId> = subtrees.iter().flatten().copied().collect();
    let from_me_on = || up.range((Excluded(me), Unbounded)).chain(up.range(..me)).copied();
    peers.extend(from_me_on().next());
    peers.extend(from_me_on().next_back());
    let place = |osds: &Vec<OsdId>| osds.iter().position(|osd| *osd == me);
    let mine = subtrees.iter().enumerate().find_map(|(at, osds)| Some((at, place(osds)?, osds.len())));
    let Some((at, rank, size)) = mine else { return };
    // For rule 2 the OSDs of this subtree share out the OSDs of each of the `reporters` + 1 subtrees before
    // it: of `n` OSDs, the one at place `r` takes those at the places `r`, `r + n`, `r + 2n` and so on, and
    // none is left out.
    let (before, after) = subtrees.split_at(at);
    let round = before.iter().rev().chain(after.iter().skip(1).rev());
    for theirs in round.take(bounds.reporters.saturating_add(1)) {
        peers.extend(theirs.iter().skip(rank).step_by(size));
    }
    for osd in from_me_on() {
        if peers.len() >= bounds.least {
            break;
        }
        peers.insert(osd);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// By OSD: whom it pings, in a cluster with so many OSDs in each host, and no PG.
    fn all_peers(sizes: &[i32], bounds: Bounds) -> BTreeMap<OsdId, BTreeSet<OsdId>> {
        let mut next = (0..).map(OsdId);
        let hosts: Vec<Vec<OsdId>> =
            sizes.iter().map(|n| next.by_ref().take(*n as usize).collect()).collect();
        let mut all = BTreeMap::new();
        for me in hosts.iter().flatten() {
            add_neighbours(all.entry(*me).or_default(), *me, &hosts, bounds);
        }
        all
    }

    /// Each OSD is pinged from that many hosts besides its own.
    fn check(sizes: &[i32], bounds: Bounds, hosts: usize) {
        let all = all_peers(sizes, bounds);
        let host_of = |osd: OsdId| {
            let ends = sizes.iter().scan(0, |sum, n| {
                *sum += n;
                Some(*sum)
            });
            ends.take_while(|end| *end <= osd.0).count()
        };
        for (osd, peers) in &all {
            assert!(!peers.contains(osd), "osd.{osd} of {sizes:?} pings itself");
            assert!(peers.len() >= bounds.least.min(all.len() - 1), "osd.{osd} of {sizes:?}: {peers:?}");
            let by = all.iter().filter(|(_, peers)| peers.contains(osd)).map(|(by, _)| host_of(*by));
            let others: BTreeSet<usize> = by.filter(|host| *host != host_of(*osd)).collect();
            assert!(others.len() >= hosts, "osd.{osd} of {sizes:?} is pinged from {others:?} alone");
        }
    }

    #[test]
    fn every_osd_is_pinged_from_enough_other_hosts() {
        let few = Bounds { reporters: 2, least: 0 };
        check(&[1], few, 0);
        check(&[4], few, 0);
        check(&[1, 1], few, 1);
        check(&[1, 1, 1], few, 2);
        check(&[4, 4, 4], few, 2);
        check(&[1; 100], few, 3);
        check(&[10; 10], few, 3);
        check(&[12, 1, 1, 3, 1, 24], few, 3);
        check(&[12, 1, 1, 3, 1, 24], Bounds { reporters: 4, least: 0 }, 5);
        check(&[12, 1, 1, 3, 1, 24], Bounds { reporters: usize::MAX, least: usize::MAX }, 5);
        check(&[12, 1, 1, 3, 1, 24], Bounds { reporters: 2, least: 10 }, 3);
    }

    #[test]
    fn a_large_cluster_does_not_ping_all() {
        for sizes in [[1; 100].as_slice(), &[10; 10], &[50; 2], &[100]] {
            let most = |least| {
                let all = all_peers(sizes, Bounds { reporters: 2, least });
                all.values().map(BTreeSet::len).max()
            };
            assert_eq!(most(10), Some(10), "{sizes:?}");
            assert!(most(0) <= Some(5), "{sizes:?}: {:?}", most(0));
        }
    }

    #[test]
    fn members_of_pgs_count_as_peers() {
        let ids = |osds: &[i32]| osds.iter().copied().map(OsdId).collect::<BTreeSet<_>>();
        let hosts = [0..4, 4..8].map(|host| host.map(OsdId).collect::<Vec<_>>());
        let bounds = Bounds { reporters: 2, least: 5 };
        let mut peers = ids(&[3, 5]);
        add_neighbours(&mut peers, OsdId(0), &hosts, bounds);
        assert_eq!(peers, ids(&[1, 3, 4, 5, 7]), "next, previous, and the one of its rank");
        let mut many = ids(&[2, 3, 4, 5, 6]);
        add_neighbours(&mut many, OsdId(0), &hosts, bounds);
        assert_eq!(many, (1..8).map(OsdId).collect(), "1 and 7 are beside it");
    }
}
