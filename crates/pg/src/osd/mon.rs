//! Messages to the monitors.

use std::collections::BTreeMap;

use messages::mon::{MMonGetVersion, MMonSubscribe, SubscribeItem};
use messages::osd::{MMonGetOsdMap, MOsdAlive, MOsdFailure, MOsdMarkMeDead, MOsdPgTemp};
use messages::{Message, PaxosVersion};
use types::{AddrVec, Epoch, Fsid, OsdId, PgId};

/// Asks for OSD maps from this epoch on.
pub(crate) fn subscribe(from: Epoch) -> Message {
    let what = BTreeMap::from([("osdmap".to_owned(), SubscribeItem { start: from.0.into(), flags: 0 })]);
    MMonSubscribe { what, hostname: String::new() }.into()
}

/// Asks for the whole map of an epoch. Source: OSD::request_full_map.
pub(crate) fn whole_osdmap(e: Epoch) -> Message {
    let version = PaxosVersion(e.0.into());
    MMonGetOsdMap { version, full_first: e, full_last: e, ..MMonGetOsdMap::default() }.into()
}

/// Asks for the newest map's epoch.
pub(crate) fn newest_osdmap(handle: u64) -> Message {
    MMonGetVersion { handle, what: "osdmap".to_owned() }.into()
}

/// Asks that `up_thru` be raised to `want`.
pub(crate) fn alive(epoch: Epoch, want: Epoch) -> Message {
    MOsdAlive { version: PaxosVersion(epoch.0.into()), want }.into()
}

/// Asks for an acting set; an empty one for CRUSH's.
pub(crate) fn pg_temp(epoch: Epoch, pgid: PgId, acting: Vec<OsdId>) -> Message {
    MOsdPgTemp {
        version: PaxosVersion(epoch.0.into()),
        map_epoch: epoch,
        pg_temp: BTreeMap::from([(pgid, acting.into_iter().map(|osd| osd.0).collect())]),
        forced: false,
    }
    .into()
}

/// Reports a failed OSD.
pub(crate) fn failure(
    fsid: Fsid,
    epoch: Epoch,
    osd: OsdId,
    addrs: AddrVec,
    failed_for_s: i32,
    at_once: bool,
) -> Message {
    let flags = MOsdFailure::FAILED | if at_once { MOsdFailure::IMMEDIATE } else { 0 };
    about(fsid, epoch, osd, addrs, flags, failed_for_s)
}

/// Takes a report of a failure back. Source: OSD::send_still_alive.
pub(crate) fn still_alive(fsid: Fsid, epoch: Epoch, osd: OsdId, addrs: AddrVec) -> Message {
    about(fsid, epoch, osd, addrs, 0, 0)
}

/// Tells that nothing of an OSD that is down serves any more. Source: MOSDMarkMeDead in OSD::_committed_osd_maps.
pub(crate) fn dead(fsid: Fsid, epoch: Epoch, osd: OsdId) -> Message {
    let version = PaxosVersion(epoch.0.into());
    MOsdMarkMeDead { version, fsid, target_osd: osd.0, epoch }.into()
}

fn about(fsid: Fsid, epoch: Epoch, osd: OsdId, addrs: AddrVec, flags: u8, failed_for_s: i32) -> Message {
    MOsdFailure {
        version: PaxosVersion(epoch.0.into()),
        fsid,
        target_osd: osd.0,
        target_addrs: addrs,
        epoch,
        flags,
        failed_for_s,
    }
    .into()
}
