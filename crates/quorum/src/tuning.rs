//! How long things take.

use std::time::Duration;

/// Times of one group; the same on all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Between two signs of life of a leader.
    pub heartbeat: Duration,
    /// A member that heard from a leader so lately helps nobody to replace it.
    pub election_min: Duration,
    /// The longest that a member waits for a leader before it asks for votes.
    pub election_max: Duration,
    /// For how long after a round of signs of life a leader answers reads by itself. Below `election_min` by more than two
    /// clocks can differ in their rate.
    pub lease: Duration,
    /// The largest part of a snapshot's state that one message carries, in bytes. Larger states go in
    /// several.
    pub part_bytes: usize,
    /// A bug to be found by the tests of this crate.
    #[doc(hidden)]
    #[cfg(feature = "planted")]
    pub planted: Option<Planted>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(150),
            election_min: Duration::from_millis(750),
            election_max: Duration::from_millis(1_350),
            lease: Duration::from_millis(550),
            part_bytes: 16 << 20,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

/// Known mistakes, which the tests must find.
#[doc(hidden)]
#[cfg(feature = "planted")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Votes are answered before they are durable.
    VoteInMemory,
    /// Entries count as replicated before they are durable.
    AckBeforeDurable,
    /// An entry of an earlier term is committed because a majority holds it.
    CommitOldTerm,
    /// Neither a pre-vote nor loyalty to a leader that is alive.
    Disturb,
    /// The lease is five times as long as the loyalty of the followers.
    LongLease,
    /// A leader reads before it knows what earlier leaders committed.
    ReadBeforeOwnTerm,
    /// A new leader's entry does not replace what a follower has at its place.
    KeepConflict,
    /// Answers tell a term that is not durable yet.
    TermInMemory,
    /// A snapshot replaces what a member acknowledged behind it.
    SnapshotDropsTail,
    /// A follower commits what the leader has committed, whether or not its own entries are the leader's.
    CommitUnverified,
    /// Members are changed while another change is under way.
    TwoChanges,
    /// A vote is given whatever the candidate's log holds.
    VoteForAnybody,
    /// A leader counts its own entries before they are durable.
    LeaderCountsEarly,
}
