//! What OSDs and monitors tell each other: boot, failure, PG creation, snapshots to remove.

use std::collections::BTreeMap;

use types::{AddrVec, Epoch, Eversion, Fsid, PgId, SnapId, SpgId, Utime};

use super::superblock::{OsdSuperblock, PgHistory, RawEnvelope};
use crate::payload::{PaxosVersion, message};
use crate::type_numbers;

message! {
    /// An OSD is ready and asks to be marked up. Source: src/messages/MOSDBoot.h (version 7).
    #[derive(Default)]
    MOsdBoot = type_numbers::OSD_BOOT, "osd_boot", 7, 7 {
        version: PaxosVersion,
        superblock: OsdSuperblock,
        hb_back_addrs: AddrVec,
        cluster_addrs: AddrVec,
        /// The last epoch that this daemon was added to the map in; 0 when never.
        boot_epoch: Epoch,
        hb_front_addrs: AddrVec,
        metadata: BTreeMap<String, String>,
        features: u64,
    }
}

message! {
    /// Asks for `up_thru` to be raised to `want`. Source: src/messages/MOSDAlive.h.
    #[derive(Default)]
    MOsdAlive = type_numbers::OSD_ALIVE, "osd_alive", 1, 1 {
        version: PaxosVersion,
        want: Epoch,
    }
}

message! {
    /// Reports a peer as failed or alive again. Source: src/messages/MOSDFailure.h (version 4).
    #[derive(Default)]
    MOsdFailure = type_numbers::OSD_FAILURE, "osd_failure", 4, 4 {
        version: PaxosVersion,
        fsid: Fsid,
        target_osd: i32,
        target_addrs: AddrVec,
        epoch: Epoch,
        /// `MOsdFailure::FAILED`, `IMMEDIATE`; 0 for alive.
        flags: u8,
        failed_for_s: i32,
    }
}

impl MOsdFailure {
    /// Failed; without it the target is alive after all.
    pub const FAILED: u8 = 1;
    /// Known and not only suspected, for instance because its port refuses connections.
    pub const IMMEDIATE: u8 = 2;
}

message! {
    /// An OSD that shuts down asks to be marked down. Source: src/messages/MOSDMarkMeDown.h (version 4 in 16.2.15).
    #[derive(Default)]
    MOsdMarkMeDown = type_numbers::OSD_MARK_ME_DOWN, "MOSDMarkMeDown", 4, 3 {
        version: PaxosVersion,
        fsid: Fsid,
        target_osd: i32,
        target_addrs: AddrVec,
        epoch: Epoch,
        request_ack: bool,
        /// And dead: nothing of it serves reads any more.
        down_and_dead: bool [since 4],
    }
}

message! {
    /// After `MOsdMarkMeDown`: and nothing of it is running any more. Source: src/messages/MOSDMarkMeDead.h.
    #[derive(Default)]
    MOsdMarkMeDead = type_numbers::OSD_MARK_ME_DEAD, "MOSDMarkMeDead", 1, 1 {
        version: PaxosVersion,
        fsid: Fsid,
        target_osd: i32,
        epoch: Epoch,
    }
}

message! {
    /// An OSD lives. Source: src/messages/MOSDBeacon.h (version 3).
    #[derive(Default)]
    MOsdBeacon = type_numbers::OSD_BEACON, "osd_beacon", 3, 1 {
        version: PaxosVersion,
        pgs: Vec<PgId>,
        min_last_epoch_clean: Epoch,
        last_purged_snaps_scrub: Utime [since 2],
        report_interval_s: i32 [since 3],
    }
}

message! {
    /// The primary of two PGs says whether one may be merged into the other now. Source: src/messages/MOSDPGReadyToMerge.h.
    #[derive(Default)]
    MOsdPgReadyToMerge = type_numbers::OSD_PG_READY_TO_MERGE, "osd_pg_ready_to_merge", 1, 1 {
        version: PaxosVersion,
        /// Which of them goes.
        pgid: PgId,
        source_version: Eversion,
        target_version: Eversion,
        last_epoch_started: Epoch,
        last_epoch_clean: Epoch,
        ready: bool,
    }
}

message! {
    /// Asks for other acting sets than CRUSH's; an empty list ends one. Source: src/messages/MOSDPGTemp.h (version 2).
    #[derive(Default)]
    MOsdPgTemp = type_numbers::OSD_PG_TEMP, "osd_pgtemp", 2, 1 {
        version: PaxosVersion,
        map_epoch: Epoch,
        pg_temp: BTreeMap<PgId, Vec<i32>>,
        forced: bool [since 2],
    }
}

message! {
    /// Creates PGs. Source: src/messages/MOSDPGCreate2.h (version 2).
    #[derive(Default)]
    MOsdPgCreate2 = type_numbers::OSD_PG_CREATE2, "pg_create2", 2, 1, HIGH {
        epoch: Epoch,
        /// When each was created: epoch and time.
        pgs: BTreeMap<SpgId, (Epoch, Utime)>,
        /// History and past intervals of PGs that existed before and were lost.
        extra: BTreeMap<SpgId, (PgHistory, RawEnvelope)> [since 2],
    }
}

message! {
    /// Source: src/messages/MOSDPGCreated.h.
    #[derive(Default)]
    MOsdPgCreated = type_numbers::OSD_PG_CREATED, "pg_created", 1, 1 {
        version: PaxosVersion,
        pgid: PgId,
    }
}

message! {
    /// How full an OSD is, as state bits of the OSD map. Source: src/messages/MOSDFull.h.
    #[derive(Default)]
    MOsdFull = type_numbers::OSD_FULL, "osd_full", 1, 1 {
        version: PaxosVersion,
        map_epoch: Epoch,
        state: u32,
    }
}

message! {
    /// Snapshots to remove, by pool. Source: src/messages/MRemoveSnaps.h.
    #[derive(Default)]
    MRemoveSnaps = type_numbers::REMOVE_SNAPS, "remove_snaps", 1, 1 {
        version: PaxosVersion,
        snaps: BTreeMap<i32, Vec<SnapId>>,
    }
}

message! {
    /// Asks which snapshots were purged in a range of epochs. Source: src/messages/MMonGetPurgedSnaps.h.
    #[derive(Default)]
    MMonGetPurgedSnaps = type_numbers::MON_GET_PURGED_SNAPS, "mon_get_purged_snaps", 1, 1 {
        version: PaxosVersion,
        start: Epoch,
        last: Epoch,
    }
}

message! {
    /// Source: src/messages/MMonGetPurgedSnapsReply.h.
    #[derive(Default)]
    MMonGetPurgedSnapsReply = type_numbers::MON_GET_PURGED_SNAPS_REPLY, "mon_get_purged_snaps_reply", 1, 1, HIGH {
        version: PaxosVersion,
        start: Epoch,
        last: Epoch,
        /// By epoch and pool: first snapshot and count of each run.
        purged: BTreeMap<Epoch, BTreeMap<i64, Vec<(SnapId, u64)>>>,
    }
}

message! {
    /// Asks for OSD maps: whole ones and increments, each a range of epochs. Source: src/messages/MMonGetOSDMap.h.
    #[derive(Default)]
    MMonGetOsdMap = type_numbers::MON_GET_OSDMAP, "mon_get_osdmap", 1, 1 {
        version: PaxosVersion,
        full_first: Epoch,
        full_last: Epoch,
        inc_first: Epoch,
        inc_last: Epoch,
    }
}

message! {
    /// Tells an OSD to scrub PGs that it leads. Source: src/messages/MOSDScrub2.h.
    #[derive(Default)]
    MOsdScrub2 = type_numbers::OSD_SCRUB2, "scrub2", 1, 1 {
        fsid: Fsid,
        epoch: Epoch,
        pgs: Vec<SpgId>,
        repair: bool,
        deep: bool,
    }
}

message! {
    /// Raises or restores the priority of PGs' recovery. Source: src/messages/MOSDForceRecovery.h (version 2).
    #[derive(Default)]
    MOsdForceRecovery = type_numbers::OSD_FORCE_RECOVERY, "force_recovery", 2, 2 {
        fsid: Fsid,
        pgs: Vec<SpgId>,
        /// `MOsdForceRecovery::RECOVERY` or `BACKFILL`, with or without `CANCEL`.
        options: u8,
    }
}

impl MOsdForceRecovery {
    pub const RECOVERY: u8 = 1;
    pub const BACKFILL: u8 = 2;
    pub const CANCEL: u8 = 4;
}
