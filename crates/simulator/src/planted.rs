//! Which scenario of the catalog finds which planted bug, and what is known of those that none finds.

use std::fmt;

use crate::mutant::Mutant;

/// A bug, and the scenario that finds it.
#[derive(Clone, Copy)]
pub struct Plant {
    pub mutant: Mutant,
    pub name: &'static str,
    /// The seed that found it last.
    pub seed: u64,
}

macro_rules! planted {
    ($($mutant:ident $(($bug:expr))? , $name:literal, $seed:literal);+ $(;)?) => {
        /// Every planted bug.
        pub const PLANTED: &[Plant] = &[$( Plant { mutant: Mutant::$mutant $(($bug))?, name: $name, seed: $seed } ),+];
    };
}
planted![
    AckEarly, "power_loss_of_all", 1;
    ReplicaAckEarly, "power_loss_of_all_with_two_copies", 1;
    LoseFlush, "power_loss_of_all", 1;
    LosePayload, "power_loss_of_all", 1;
    ForgetRequests, "lost_replies", 1;
    DupsForgotten, "late_resends", 1;
    ReadAnyCopy, "flapping_replica", 1;
    RepeatingSessions, "cut_links", 1;
    ReorderingSessions, "cut_links", 1;
    AckedUnhanded, "cut_frames", 1;
    ResumeDrops, "cut_frames", 1;
    OldDisk, "all_copies_return_in_every_order", 1;
    SlowClock, "stale_primary", 1;
    NoWaitForReaders, "primary_replaced_while_a_member_supports_it", 4;
    SameClient, "restarted_clients", 1;
    MonForgets, "monitors_lose_power_together", 2;
    MonAckEarly, "monitors_lose_power_together", 1;
    MonDropsTail, "monitors_lose_power_together", 1;
    WipedVoter, "wiped_monitor_and_one_that_lags", 1;
    ReuseGlobalIds, "lone_monitor_restarts", 1;
    TrimsTooMuch, "snapshots_during_recovery_and_kills", 1;
    BlocklistIgnored, "lock_holder_dies", 1;
    WatchesForever, "watcher_dies", 1;
    OneHandle, "dropped_writes", 2;
    NoRepair, "rot_that_nobody_reads", 1;
    ForgottenMaps, "maps_forgotten_within_an_interval", 1;
    Osd(pg::Planted::SkipsPriorInterval), "only_a_stale_copy_returns", 1;
    Osd(pg::Planted::NoWaitForUpThru), "only_a_stale_copy_returns", 1;
    Osd(pg::Planted::AckWithoutOwnCommit), "power_loss_of_all_with_two_copies", 1;
    Osd(pg::Planted::DeletedObjectsStay), "primary_killed_at_each_step", 3;
    Osd(pg::Planted::BackfillMovesEarly), "splits_and_moves", 1;
    Osd(pg::Planted::ServesBelowMinSize), "one_member_stays_alone", 1;
    Osd(pg::Planted::IncompleteCopyLeads), "objects_move_one_by_one", 1;
    Osd(pg::Planted::BackfillBoundary), "objects_move_one_by_one", 1;
    Osd(pg::Planted::WritesInBackfillRange), "writes_while_ranges_are_copied", 1;
    Osd(pg::Planted::BackfillKeepsStrangers), "members_return_behind_the_log", 1;
    Osd(pg::Planted::BackfillWithoutDups), "late_resends_after_backfill", 2;
    Osd(pg::Planted::DivergentObjectsStay), "writes_that_only_a_primary_has", 1;
    Osd(pg::Planted::TellsBeforeDurable), "writes_that_were_told_and_lost", 2;
    Osd(pg::Planted::AcceptsGaps), "cut_frames", 2;
    Osd(pg::Planted::LeaseForgottenAtRestart), "a_member_restarts_within_its_lease", 1;
    Osd(pg::Planted::CleanTooSoon), "a_disk_is_lost_before_all_are_whole", 1;
    Osd(pg::Planted::SplitForgetsDups), "late_resends_after_splits", 2;
    Store(store::Planted::ReplayTakesPlaces), "power_loss_of_all", 1;
];

/// A bug that no scenario finds.
#[derive(Clone, Copy)]
pub struct Unfound {
    pub mutant: Mutant,
    pub why: Why,
}

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The tests of its own crate find it: these.
    FoundBy(&'static str),
    /// Nobody knows; so much was tried.
    Tried(&'static str),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FoundBy(tests) => write!(f, "found by {tests}"),
            Self::Tried(what) => write!(f, "not found; tried: {what}"),
        }
    }
}

macro_rules! unfound {
    ($($mutant:ident ($bug:expr), $why:ident $text:expr);+ $(;)?) => {
        /// Every planted bug that no scenario finds.
        pub const NOT_FOUND: &[Unfound] = &[$( Unfound { mutant: Mutant::$mutant($bug), why: Why::$why($text) } ),+];
    };
}

const STORES_WALKS: &str = "store's tests/planted.rs";

unfound![
    Osd(pg::Planted::IgnoresLastStart), Tried "five scenarios, two seeds each: versions order by epoch first, so the newest start mostly reaches furthest anyway";
    Osd(pg::Planted::StartsAlone), Tried "primary_killed_at_each_step, and a member whose device becomes slow before or while PGs peer, 17 runs: its info waits for that device";
    Osd(pg::Planted::TrimsUnacknowledged), Tried "a slow member of three that comes back first, 4 runs, with logs of 1 and of 8 entries";
    Store(store::Planted::FreedTooSoon), FoundBy STORES_WALKS;
    Store(store::Planted::PublishesUnflushed), FoundBy STORES_WALKS;
    Store(store::Planted::CopiesAtOnce), FoundBy STORES_WALKS;
    Store(store::Planted::PublishesUndurable), FoundBy STORES_WALKS;
    Store(store::Planted::TrustsPlacedData), FoundBy STORES_WALKS;
    Store(store::Planted::TailTooSoon), FoundBy STORES_WALKS;
];
