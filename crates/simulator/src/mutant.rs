//! Bugs that can be planted, most of them in the adapters around the cores, to prove that the checks find such bugs.

use std::fmt;
use std::str::FromStr;

#[cfg(not(feature = "planted"))]
use {NoBug as OfOsds, NoBug as OfStores};
#[cfg(feature = "planted")]
use {pg::Planted as OfOsds, store::Planted as OfStores};

/// What can be planted in cores that were built without their bugs. Such a simulator runs the very code of
/// the product, and knows no bug by its name.
#[cfg(not(feature = "planted"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoBug {}

/// See each one's place in the adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// OSDs hear "durable" as soon as they submit.
    AckEarly,
    /// The same on replicas only: the primary stops waiting for what it needs.
    ReplicaAckEarly,
    /// Flushes of devices do nothing.
    LoseFlush,
    /// A resent request looks like a new one.
    ForgetRequests,
    /// Reads go to any member, which answers from its store whatever its state.
    ReadAnyCopy,
    /// Resumed sessions between OSDs repeat what was under way.
    RepeatingSessions,
    /// The monitor hears "committed" before its log is durable.
    MonForgets,
    /// An OSD restarts with the disk of its last start.
    OldDisk,
    /// The device keeps the log's records but not large payloads.
    LosePayload,
    /// The clock of an OSD nearly stands still: what it promised to stop doing in time it goes on doing.
    SlowClock,
    /// A monitor that comes back with an empty disk takes its old identity, and votes.
    WipedVoter,
    /// Monitors count entries as replicated before they are on the disk.
    MonAckEarly,
    /// A monitor takes the last entries of its log for the torn tail of a write, and drops them.
    MonDropsTail,
    /// Resumed sessions between OSDs turn the order of what was under way.
    ReorderingSessions,
    /// What reaches a process just when its connection breaks counts as received, and nobody is given it.
    AckedUnhanded,
    /// The first message of a resumed session is dropped.
    ResumeDrops,
    /// PGs forget at once which requests they have done.
    DupsForgotten,
    /// A client that is started again goes on under its old id, and counts its requests from the beginning.
    SameClient,
    /// A monitor that comes back from its log takes itself for the leader at once, and gives out the global ids again that its
    /// snapshot does not know of.
    ReuseGlobalIds,
    /// A PG's new primary begins although the one before may still answer reads.
    NoWaitForReaders,
    /// When a snapshot is removed, the next one's clones are trimmed too.
    TrimsTooMuch,
    /// OSDs do not know clients by their addresses: whoever is on the blocklist goes on.
    BlocklistIgnored,
    /// The time that a watcher has without a sign of life never ends.
    WatchesForever,
    /// Scrubs find what is rotten and leave it as it is.
    NoRepair,
    /// The checkpoint flushes through the commit's handle: what one of them is told of, the other never hears of.
    OneHandle,
    /// OSDs that lack maps take it that nobody wrote in an interval whose start they do not know.
    ForgottenMaps,
    /// An OSD's shell ends a session with another OSD, and its core does not hear of that.
    EndsUnheard,
    /// In the OSDs: see there.
    Osd(OfOsds),
    /// In the OSDs' stores.
    Store(OfStores),
}

impl Mutant {
    /// None without the feature `planted`.
    #[cfg(not(feature = "planted"))]
    pub const ALL: &[(&'static str, Self)] = &[];
    #[cfg(feature = "planted")]
    pub const ALL: &[(&'static str, Self)] = &[
        ("ack-early", Self::AckEarly),
        ("replica-ack-early", Self::ReplicaAckEarly),
        ("lose-flush", Self::LoseFlush),
        ("forget-requests", Self::ForgetRequests),
        ("read-any-copy", Self::ReadAnyCopy),
        ("repeating-sessions", Self::RepeatingSessions),
        ("mon-forgets", Self::MonForgets),
        ("old-disk", Self::OldDisk),
        ("lose-payload", Self::LosePayload),
        ("slow-clock", Self::SlowClock),
        ("reuse-global-ids", Self::ReuseGlobalIds),
        ("wiped-voter", Self::WipedVoter),
        ("mon-ack-early", Self::MonAckEarly),
        ("mon-drops-tail", Self::MonDropsTail),
        ("reordering-sessions", Self::ReorderingSessions),
        ("acked-unhanded", Self::AckedUnhanded),
        ("resume-drops", Self::ResumeDrops),
        ("dups-forgotten", Self::DupsForgotten),
        ("same-client", Self::SameClient),
        ("no-wait-for-readers", Self::NoWaitForReaders),
        ("trims-too-much", Self::TrimsTooMuch),
        ("blocklist-ignored", Self::BlocklistIgnored),
        ("watches-forever", Self::WatchesForever),
        ("one-handle", Self::OneHandle),
        ("no-repair", Self::NoRepair),
        ("forgotten-maps", Self::ForgottenMaps),
        ("ends-unheard", Self::EndsUnheard),
        ("skips-prior-interval", Self::Osd(pg::Planted::SkipsPriorInterval)),
        ("ignores-last-start", Self::Osd(pg::Planted::IgnoresLastStart)),
        ("incomplete-copy-leads", Self::Osd(pg::Planted::IncompleteCopyLeads)),
        ("no-wait-for-up-thru", Self::Osd(pg::Planted::NoWaitForUpThru)),
        ("starts-alone", Self::Osd(pg::Planted::StartsAlone)),
        ("serves-below-min-size", Self::Osd(pg::Planted::ServesBelowMinSize)),
        ("ack-without-own-commit", Self::Osd(pg::Planted::AckWithoutOwnCommit)),
        ("accepts-gaps", Self::Osd(pg::Planted::AcceptsGaps)),
        ("tells-before-durable", Self::Osd(pg::Planted::TellsBeforeDurable)),
        ("trims-unacknowledged", Self::Osd(pg::Planted::TrimsUnacknowledged)),
        ("divergent-objects-stay", Self::Osd(pg::Planted::DivergentObjectsStay)),
        ("deleted-objects-stay", Self::Osd(pg::Planted::DeletedObjectsStay)),
        ("backfill-boundary", Self::Osd(pg::Planted::BackfillBoundary)),
        ("writes-in-backfill-range", Self::Osd(pg::Planted::WritesInBackfillRange)),
        ("backfill-keeps-strangers", Self::Osd(pg::Planted::BackfillKeepsStrangers)),
        ("backfill-moves-early", Self::Osd(pg::Planted::BackfillMovesEarly)),
        ("backfill-without-dups", Self::Osd(pg::Planted::BackfillWithoutDups)),
        ("split-forgets-dups", Self::Osd(pg::Planted::SplitForgetsDups)),
        ("lease-forgotten-at-restart", Self::Osd(pg::Planted::LeaseForgottenAtRestart)),
        ("clean-too-soon", Self::Osd(pg::Planted::CleanTooSoon)),
        ("staged-left-behind", Self::Osd(pg::Planted::StagedLeftBehind)),
        ("held-for-ever", Self::Osd(pg::Planted::HeldForEver)),
        ("stale-shards-serve", Self::Osd(pg::Planted::StaleShardsServe)),
        ("lost-shards-stay", Self::Osd(pg::Planted::LostShardsStay)),
        ("parity-added-twice", Self::Osd(pg::Planted::ParityAddedTwice)),
        ("shards-out-of-place", Self::Osd(pg::Planted::ShardsOutOfPlace)),
        ("freed-too-soon", Self::Store(store::Planted::FreedTooSoon)),
        ("publishes-unflushed", Self::Store(store::Planted::PublishesUnflushed)),
        ("copies-at-once", Self::Store(store::Planted::CopiesAtOnce)),
        ("publishes-undurable", Self::Store(store::Planted::PublishesUndurable)),
        ("tail-too-soon", Self::Store(store::Planted::TailTooSoon)),
        ("trusts-placed-data", Self::Store(store::Planted::TrustsPlacedData)),
        ("replay-takes-places", Self::Store(store::Planted::ReplayTakesPlaces)),
        ("move-forgets-sharers", Self::Store(store::Planted::MoveForgetsSharers)),
    ];
}

impl Mutant {
    /// Where messages travel as they are there is no place for it.
    pub fn needs_bytes(self) -> bool {
        matches!(self, Self::AckedUnhanded | Self::ResumeDrops)
    }

    /// Those that are planted in the OSDs.
    #[cfg(feature = "planted")]
    pub(crate) fn in_osds(self) -> Option<pg::Planted> {
        match self {
            Self::NoWaitForReaders => Some(pg::Planted::NoWaitForReaders),
            Self::ForgottenMaps => Some(pg::Planted::ForgottenMapsHideWrites),
            Self::TrimsTooMuch => Some(pg::Planted::TrimsTooMuch),
            Self::Osd(bug) => Some(bug),
            _ => None,
        }
    }

    /// Those that are planted in the stores.
    #[cfg(feature = "planted")]
    pub(crate) fn in_stores(self) -> Option<store::Planted> {
        match self {
            Self::Store(bug) => Some(bug),
            _ => None,
        }
    }

    /// Those that are planted in the monitors' quorum.
    #[cfg(feature = "planted")]
    pub(crate) fn in_quorum(self) -> Option<quorum::Planted> {
        match self {
            Self::MonAckEarly => Some(quorum::Planted::AckBeforeDurable),
            _ => None,
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, m)| m == self).map_or("?", |(n, _)| n);
        f.write_str(name)
    }
}
impl FromStr for Mutant {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(n, _)| *n == s);
        found.map(|(_, m)| *m).ok_or_else(|| match cfg!(feature = "planted") {
            true => format!("no mutant '{s}'"),
            false => "no mutants in this build: it has not the feature 'planted'".to_owned(),
        })
    }
}
