//! Which scenario of the catalog finds which planted bug, and which tests find those that no scenario does.

use crate::mutant::Mutant;

/// A bug, and the scenario that finds it.
#[derive(Clone, Copy)]
pub struct Plant {
    pub mutant: Mutant,
    pub name: &'static str,
    /// The seed that found it last.
    pub seed: u64,
}

#[cfg(not(feature = "planted"))]
pub const PLANTED: &[Plant] = &[];
#[cfg(not(feature = "planted"))]
pub const NOT_FOUND: &[Unfound] = &[];

#[cfg(feature = "planted")]
macro_rules! planted {
    ($($mutant:ident $(($bug:expr))? , $name:literal, $seed:literal);+ $(;)?) => {
        /// Every planted bug.
        pub const PLANTED: &[Plant] = &[$( Plant { mutant: Mutant::$mutant $(($bug))?, name: $name, seed: $seed } ),+];
    };
}
#[cfg(feature = "planted")]
planted![
    AckEarly, "power_loss_of_all", 1;
    ReplicaAckEarly, "power_loss_of_all_with_two_copies", 1;
    LoseFlush, "power_loss_of_all", 1;
    LosePayload, "power_loss_of_all", 1;
    ForgetRequests, "lost_replies", 1;
    DupsForgotten, "late_resends", 1;
    ReadAnyCopy, "flapping_replica", 4;
    RepeatingSessions, "cut_links", 1;
    ReorderingSessions, "cut_links", 1;
    AckedUnhanded, "cut_frames", 1;
    ResumeDrops, "cut_frames", 1;
    EndsUnheard, "messages_that_do_not_decode", 3;
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
    OneHandle, "dropped_writes", 1;
    NoRepair, "rot_that_nobody_reads", 1;
    ForgottenMaps, "maps_forgotten_within_an_interval", 1;
    Osd(pg::Planted::SkipsPriorInterval), "only_a_stale_copy_returns", 1;
    Osd(pg::Planted::NoWaitForUpThru), "only_a_stale_copy_returns", 1;
    Osd(pg::Planted::AckWithoutOwnCommit), "power_loss_of_all_with_two_copies", 1;
    Osd(pg::Planted::DeletedObjectsStay), "primary_killed_at_each_step", 2;
    Osd(pg::Planted::BackfillMovesEarly), "splits_and_moves", 1;
    Osd(pg::Planted::ServesBelowMinSize), "one_member_stays_alone", 1;
    Osd(pg::Planted::IncompleteCopyLeads), "objects_move_one_by_one", 1;
    Osd(pg::Planted::BackfillBoundary), "objects_move_one_by_one", 1;
    Osd(pg::Planted::WritesInBackfillRange), "writes_while_ranges_are_copied", 1;
    Osd(pg::Planted::BackfillKeepsStrangers), "members_return_behind_the_log", 2;
    Osd(pg::Planted::BackfillWithoutDups), "late_resends_after_backfill", 1;
    Osd(pg::Planted::DivergentObjectsStay), "writes_that_only_a_primary_has", 1;
    Osd(pg::Planted::TellsBeforeDurable), "writes_that_were_told_and_lost", 3;
    Osd(pg::Planted::AcceptsGaps), "cut_frames", 2;
    Osd(pg::Planted::LeaseForgottenAtRestart), "a_member_restarts_within_its_lease", 1;
    Osd(pg::Planted::CleanTooSoon), "a_disk_is_lost_before_all_are_whole", 1;
    Osd(pg::Planted::SplitForgetsDups), "late_resends_after_splits", 2;
    Osd(pg::Planted::IgnoresLastStart), "a_disk_with_lost_writes_returns_and_is_lost", 1;
    Osd(pg::Planted::StartsAlone), "a_start_that_a_slow_member_loses", 1;
    Osd(pg::Planted::TrimsUnacknowledged), "a_slow_member_is_left_alone", 1;
    Osd(pg::Planted::StagedLeftBehind), "large_writes_through_failures", 1;
    Osd(pg::Planted::HeldForEver), "clients_beyond_their_share", 1;
    Osd(pg::Planted::StaleShardsServe), "coded_members_die_in_turn", 1;
    Osd(pg::Planted::LostShardsStay), "coded_writes_that_a_primary_has_alone", 1;
    Osd(pg::Planted::ParityAddedTwice), "coded_stripes_change_in_part", 1;
    Osd(pg::Planted::ShardsOutOfPlace), "coded_members_die_in_turn", 1;
    Store(store::Planted::ReplayTakesPlaces), "power_loss_of_all", 1;
];

/// A bug that no scenario finds, but tests of its own crate.
#[derive(Clone, Copy)]
pub struct Unfound {
    pub mutant: Mutant,
    pub found_by: &'static str,
}

#[cfg(feature = "planted")]
macro_rules! unfound {
    ($($mutant:ident ($bug:expr), $tests:expr);+ $(;)?) => {
        /// Every planted bug that no scenario finds.
        pub const NOT_FOUND: &[Unfound] = &[$( Unfound { mutant: Mutant::$mutant($bug), found_by: $tests } ),+];
    };
}

#[cfg(feature = "planted")]
const STORES_WALKS: &str = "store's tests/planted.rs";

#[cfg(feature = "planted")]
unfound![
    Store(store::Planted::FreedTooSoon), STORES_WALKS;
    Store(store::Planted::PublishesUnflushed), STORES_WALKS;
    Store(store::Planted::CopiesAtOnce), STORES_WALKS;
    Store(store::Planted::PublishesUndurable), STORES_WALKS;
    Store(store::Planted::TrustsPlacedData), STORES_WALKS;
    Store(store::Planted::TailTooSoon), STORES_WALKS;
    Store(store::Planted::MoveForgetsSharers), STORES_WALKS;
];
