//! The OSD's options, under the names that Ceph gives them.

use std::time::Duration;

/// Option values; `set` takes the text forms that `ceph config set` and `ceph tell` send.
#[derive(Debug, Clone, PartialEq)]
pub struct OsdConfig {
    pub max_object_name_len: usize,
    pub max_object_namespace_len: usize,
    /// Bytes.
    pub max_object_size: u64,
    /// Bytes of one message's data.
    pub max_write_size: u64,
    pub max_attr_size: u64,
    pub max_attr_name_len: usize,
    /// Objects in one page of a listing.
    pub max_pgls: u64,
    pub max_omap_entries_per_request: u64,
    pub max_omap_bytes_per_request: u64,
    /// Bytes of a write's outputs that are returned and kept for resends.
    pub max_write_op_reply_len: usize,
    /// Log entries kept per PG.
    pub min_pg_log_entries: usize,
    /// Log entries kept per PG while a member is missing or behind.
    pub max_pg_log_entries: usize,
    /// Entries beyond the bound before a trim is worth it.
    pub pg_log_trim_min: usize,
    /// Versions behind the head that a resend is recognised for.
    pub pg_log_dups_tracked: u64,
    pub heartbeat_interval: Duration,
    /// Between two signs of life to the monitors: less than Ceph's 300 s by default, which costs nothing
    /// here.
    pub beacon_interval: Duration,
    pub heartbeat_grace: Duration,
    /// OSDs that are pinged at least, and looked for by one that was marked down.
    pub heartbeat_min_peers: usize,
    /// An OSD that was marked down more often than this within the period, although it lives, stops.
    pub max_markdown_count: usize,
    pub max_markdown_period: Duration,
    pub stats_interval: Duration,
    /// Objects in recovery at one time, over all PGs.
    pub recovery_max_active: usize,
    /// Pause between the beginnings of two, on average.
    pub recovery_sleep: Duration,
    /// Objects, and bytes, in one message of recovery; an object with more goes alone.
    pub max_push_objects: usize,
    pub max_push_cost: u64,
    /// Bytes of data and omap, and omap keys, in one piece of an object; twice as many bytes are under way at one time.
    pub recovery_max_chunk: u64,
    pub recovery_max_omap_entries: usize,
    /// PGs that are backfilled from here at one time, and as many to here.
    pub max_backfills: usize,
    /// A target without room is asked again after so long.
    pub backfill_retry_interval: Duration,
    /// Objects compared in one step of a backfill.
    pub backfill_scan_max: usize,
    /// Newest map epochs kept on disk.
    pub map_cache_size: u32,
    pub client_watch_timeout: Duration,
    pub default_notify_timeout: Duration,
    /// Objects whose clones are being trimmed at one time, in one PG.
    pub max_snap_trims: usize,
    /// Pause behind them.
    pub snap_trim_sleep: Duration,
    /// How much is done at a time.
    pub portions: Portions,
    /// Client operations under way at one time; 0 for any number.
    pub client_message_cap: u64,
    /// Bytes of their data; 0 for any number.
    pub client_message_size_cap: u64,
    /// Bytes of memory for all that the OSD keeps; 0 leaves the store what it was opened with.
    pub memory_target: u64,
    /// Clients that know backoffs keep to themselves what would wait for a PG's peering, a degraded object, a lost one.
    pub backoff_on_peering: bool,
    pub backoff_on_degraded: bool,
    pub backoff_on_unfound: bool,
    /// The share of the store at which writes are dropped, 0 to 1.
    pub failsafe_full_ratio: f32,
    /// Pause between slices of a copy that is deleted.
    pub delete_sleep: Duration,
    /// PGs that this OSD scrubs or helps to scrub at one time.
    pub max_scrubs: usize,
    /// A PG is scrubbed again after so long, at the earliest; at the latest; and deep.
    pub scrub_min_interval: Duration,
    pub scrub_max_interval: Duration,
    pub deep_scrub_interval: Duration,
    /// Up to this share of the least interval is waited in addition; that share of light scrubs becomes deep.
    pub scrub_randomize_ratio: f32,
    pub deep_scrub_randomize_ratio: f32,
    /// Hours of the day (UTC) and days of the week (0: Sunday) between which scrubs begin; equal ones: always.
    pub scrub_begin_hour: u32,
    pub scrub_end_hour: u32,
    pub scrub_begin_week_day: u32,
    pub scrub_end_week_day: u32,
    /// Pause between chunks.
    pub scrub_sleep: Duration,
    /// Objects in a chunk.
    pub scrub_chunk_min: usize,
    pub scrub_chunk_max: usize,
    /// Bytes that a deep scrub reads at one time.
    pub deep_scrub_stride: u64,
    /// An object with more omap keys, or bytes of values, is told of.
    pub large_omap_keys: u64,
    pub large_omap_bytes: u64,
    /// Scrubs, or only repairs that were asked for, may begin while objects are recovered here.
    pub scrub_during_recovery: bool,
    pub repair_during_recovery: bool,
    /// What a scrub finds is mended at once, if it is not more than so many objects.
    pub scrub_auto_repair: bool,
    pub scrub_auto_repair_num_errors: usize,
    /// A bug to be found by the simulator.
    #[doc(hidden)]
    #[cfg(feature = "planted")]
    pub planted: Option<Planted>,
}

/// Known mistakes, which tests must find.
#[doc(hidden)]
#[cfg(feature = "planted")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// A new primary begins although an earlier one may still answer.
    NoWaitForReaders,
    /// The snapshot behind a removed one is trimmed too.
    TrimsTooMuch,
    /// Nobody wrote in an interval whose start is forgotten.
    ForgottenMapsHideWrites,
    /// Of the intervals that may have taken writes the newest is not asked after.
    SkipsPriorInterval,
    /// A copy may give the log although it took no part in the newest start.
    IgnoresLastStart,
    /// A copy that a backfill has not come to the end of gives the log, and leads.
    IncompleteCopyLeads,
    /// A primary begins before the monitors have recorded that it lives.
    NoWaitForUpThru,
    /// A primary begins when it has made the start durable itself, whatever the members have.
    StartsAlone,
    /// Requests run although fewer than min_size members are there.
    ServesBelowMinSize,
    /// A write is answered when all others have made it durable.
    AckWithoutOwnCommit,
    /// Neither a lost session nor a hole before a write is minded.
    AcceptsGaps,
    /// A copy tells a primary of entries that are not durable yet.
    TellsBeforeDurable,
    /// The log is trimmed of entries that a member has not made durable.
    TrimsUnacknowledged,
    /// What lost entries did to objects stays.
    DivergentObjectsStay,
    /// Objects that a merge of logs found to be deleted stay in the store.
    DeletedObjectsStay,
    /// A write of the last object that a backfill has copied does not reach its target.
    BackfillBoundary,
    /// Writes go on in the range that a backfill copies.
    WritesInBackfillRange,
    /// A backfill's target keeps objects that the primary does not have.
    BackfillKeepsStrangers,
    /// A backfill goes on to the next range when all but one object of this one are copied.
    BackfillMovesEarly,
    /// A member that a backfill begins with learns of no requests before its log.
    BackfillWithoutDups,
    /// The child of a split learns of no requests before its log.
    SplitForgetsDups,
    /// An OSD that restarted owes nothing to those whom its earlier life let answer.
    LeaseForgottenAtRestart,
    /// A PG is clean when its primary is whole.
    CleanTooSoon,
    /// A member whose interval ends forgets what lies aside, and leaves it in its store.
    StagedLeftBehind,
    /// A client that was held is not let go.
    HeldForEver,
    /// A shard that is missing, or of another version, is read like any other.
    StaleShardsServe,
    /// Of lost writes that a shard has, what takes them back is thrown away.
    LostShardsStay,
    /// What is added to a coding chunk is added twice.
    ParityAddedTwice,
    /// A copy whose shard is made gets that of another place.
    ShardsOutOfPlace,
}

impl OsdConfig {
    /// Whether there may be writes in an interval whose start is not known: there may.
    pub(crate) fn presumes_writes(&self) -> bool {
        !types::is_planted!(self.planted, ForgottenMapsHideWrites)
    }

    /// Whether a copy that a backfill is not through with may give the log, and lead: it may not.
    pub(crate) fn lets_incomplete_lead(&self) -> bool {
        types::is_planted!(self.planted, IncompleteCopyLeads)
    }

    /// Whether objects that a merge of logs found to be deleted stay: they go.
    pub(crate) fn keeps_deleted(&self) -> bool {
        types::is_planted!(self.planted, DeletedObjectsStay)
    }

    /// Whether writes go on in the range that a backfill copies: they wait.
    pub(crate) fn writes_in_backfill_range(&self) -> bool {
        types::is_planted!(self.planted, WritesInBackfillRange)
    }

    /// Whether requests run although fewer than min_size members are there: they wait.
    pub(crate) fn serves_below_min_size(&self) -> bool {
        types::is_planted!(self.planted, ServesBelowMinSize)
    }

    /// Whether a write may follow a hole: it may not.
    pub(crate) fn accepts_gaps(&self) -> bool {
        types::is_planted!(self.planted, AcceptsGaps)
    }

    /// Whether what lost entries did to objects is undone: it is.
    pub(crate) fn undoes_divergent(&self) -> bool {
        !types::is_planted!(self.planted, DivergentObjectsStay)
    }

    /// For how long a member's answer lets a primary serve: mostly over by the time that one who is silent is marked down.
    /// Source: osd_pool_default_read_lease_ratio (0.8).
    pub fn read_lease(&self) -> Duration {
        self.heartbeat_grace * 4 / 5
    }
}

/// How much an OSD does, and at a time, so that heavy requests hold up nobody; no option changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portions {
    /// Bytes of work that is done for clients with one batch of inputs, as `osd/turns.rs` counts it.
    pub slice: u64,
    /// A write of more data than this goes ahead to the members in pieces; see `pg/staging.rs`.
    pub stage_from: usize,
    /// Bytes of such a piece.
    pub stage_piece: u64,
    /// Bytes that may lie aside for such writes of one primary.
    pub aside: u64,
    /// Bytes that requests of erasure-coded PGs gather together, beside one of them; see `osd/gathers.rs`.
    pub gathered: u64,
}

impl Default for Portions {
    fn default() -> Self {
        Self {
            slice: crate::osd::turns::SLICE,
            stage_from: 4 << 20,
            stage_piece: 1 << 20,
            aside: 256 << 20,
            gathered: 64 << 20,
        }
    }
}

impl Default for OsdConfig {
    fn default() -> Self {
        Self {
            max_object_name_len: 2048,
            max_object_namespace_len: 256,
            max_object_size: 128 << 20,
            max_write_size: 90 << 20,
            max_attr_size: 0,
            max_attr_name_len: 100,
            max_pgls: 1024,
            max_omap_entries_per_request: 1024,
            max_omap_bytes_per_request: 1 << 30,
            max_write_op_reply_len: 64,
            min_pg_log_entries: 250,
            max_pg_log_entries: 10_000,
            pg_log_trim_min: 100,
            pg_log_dups_tracked: 3_000,
            heartbeat_interval: Duration::from_secs(6),
            beacon_interval: Duration::from_secs(60),
            heartbeat_grace: Duration::from_secs(20),
            heartbeat_min_peers: 10,
            max_markdown_count: 5,
            max_markdown_period: Duration::from_secs(600),
            stats_interval: Duration::from_secs(5),
            recovery_max_active: 10,
            recovery_sleep: Duration::ZERO,
            max_push_objects: 10,
            max_backfills: 1,
            backfill_retry_interval: Duration::from_secs(30),
            max_push_cost: 8 << 20,
            recovery_max_chunk: 8 << 20,
            recovery_max_omap_entries: 8_096,
            backfill_scan_max: 128,
            map_cache_size: 500,
            client_watch_timeout: Duration::from_secs(30),
            max_snap_trims: 2,
            snap_trim_sleep: Duration::ZERO,
            portions: Portions::default(),
            client_message_cap: 256,
            client_message_size_cap: 500 << 20,
            memory_target: 0,
            failsafe_full_ratio: 0.97,
            delete_sleep: Duration::ZERO,
            backoff_on_peering: false,
            backoff_on_degraded: false,
            backoff_on_unfound: true,
            default_notify_timeout: Duration::from_secs(30),
            max_scrubs: 1,
            scrub_min_interval: Duration::from_secs(86_400),
            scrub_max_interval: Duration::from_secs(604_800),
            deep_scrub_interval: Duration::from_secs(604_800),
            scrub_randomize_ratio: 0.5,
            deep_scrub_randomize_ratio: 0.15,
            scrub_begin_hour: 0,
            scrub_end_hour: 0,
            scrub_begin_week_day: 0,
            scrub_end_week_day: 0,
            scrub_sleep: Duration::ZERO,
            scrub_chunk_min: 5,
            scrub_chunk_max: 25,
            deep_scrub_stride: 512 << 10,
            large_omap_keys: 200_000,
            large_omap_bytes: 1 << 30,
            scrub_during_recovery: false,
            repair_during_recovery: false,
            scrub_auto_repair: false,
            scrub_auto_repair_num_errors: 5,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

/// An option's place in the structure, so that reading and writing cannot disagree.
enum Slot<'a> {
    Size(&'a mut usize),
    Bytes(&'a mut u64),
    Count(&'a mut u32),
    Seconds(&'a mut Duration),
    Ratio(&'a mut f32),
    Flag(&'a mut bool),
    /// Stored in bytes, spoken of in MiB.
    Mebibytes(&'a mut u64),
}

/// Every option's name.
pub const OPTIONS: [&str; 63] = [
    "osd_pg_max_concurrent_snap_trims",
    "osd_snap_trim_sleep",
    "osd_max_object_name_len",
    "osd_max_object_namespace_len",
    "osd_max_object_size",
    "osd_max_write_size",
    "osd_max_attr_size",
    "osd_max_attr_name_len",
    "osd_max_pgls",
    "osd_max_omap_entries_per_request",
    "osd_max_omap_bytes_per_request",
    "osd_max_write_op_reply_len",
    "osd_min_pg_log_entries",
    "osd_max_pg_log_entries",
    "osd_pg_log_trim_min",
    "osd_pg_log_dups_tracked",
    "osd_beacon_report_interval",
    "osd_heartbeat_interval",
    "osd_heartbeat_grace",
    "osd_heartbeat_min_peers",
    "osd_max_markdown_count",
    "osd_max_markdown_period",
    "mgr_stats_period",
    "osd_recovery_max_active",
    "osd_recovery_sleep",
    "osd_max_backfills",
    "osd_backfill_retry_interval",
    "osd_max_push_objects",
    "osd_max_push_cost",
    "osd_recovery_max_chunk",
    "osd_recovery_max_omap_entries_per_chunk",
    "osd_backfill_scan_max",
    "osd_map_cache_size",
    "osd_client_watch_timeout",
    "osd_default_notify_timeout",
    "osd_client_message_cap",
    "osd_client_message_size_cap",
    "osd_memory_target",
    "osd_failsafe_full_ratio",
    "osd_backoff_on_peering",
    "osd_backoff_on_degraded",
    "osd_backoff_on_unfound",
    "osd_delete_sleep",
    "osd_max_scrubs",
    "osd_scrub_min_interval",
    "osd_scrub_max_interval",
    "osd_deep_scrub_interval",
    "osd_scrub_interval_randomize_ratio",
    "osd_deep_scrub_randomize_ratio",
    "osd_scrub_begin_hour",
    "osd_scrub_end_hour",
    "osd_scrub_begin_week_day",
    "osd_scrub_end_week_day",
    "osd_scrub_sleep",
    "osd_scrub_chunk_min",
    "osd_scrub_chunk_max",
    "osd_deep_scrub_stride",
    "osd_deep_scrub_large_omap_object_key_threshold",
    "osd_deep_scrub_large_omap_object_value_sum_threshold",
    "osd_scrub_during_recovery",
    "osd_repair_during_recovery",
    "osd_scrub_auto_repair",
    "osd_scrub_auto_repair_num_errors",
];

impl OsdConfig {
    fn slot(&mut self, name: &str) -> Option<Slot<'_>> {
        Some(match name {
            "osd_max_object_name_len" => Slot::Size(&mut self.max_object_name_len),
            "osd_max_object_namespace_len" => Slot::Size(&mut self.max_object_namespace_len),
            "osd_max_object_size" => Slot::Bytes(&mut self.max_object_size),
            "osd_max_write_size" => Slot::Mebibytes(&mut self.max_write_size),
            "osd_max_attr_size" => Slot::Bytes(&mut self.max_attr_size),
            "osd_max_attr_name_len" => Slot::Size(&mut self.max_attr_name_len),
            "osd_max_pgls" => Slot::Bytes(&mut self.max_pgls),
            "osd_max_omap_entries_per_request" => Slot::Bytes(&mut self.max_omap_entries_per_request),
            "osd_max_omap_bytes_per_request" => Slot::Bytes(&mut self.max_omap_bytes_per_request),
            "osd_max_write_op_reply_len" => Slot::Size(&mut self.max_write_op_reply_len),
            "osd_min_pg_log_entries" => Slot::Size(&mut self.min_pg_log_entries),
            "osd_max_pg_log_entries" => Slot::Size(&mut self.max_pg_log_entries),
            "osd_pg_log_trim_min" => Slot::Size(&mut self.pg_log_trim_min),
            "osd_pg_log_dups_tracked" => Slot::Bytes(&mut self.pg_log_dups_tracked),
            "osd_beacon_report_interval" => Slot::Seconds(&mut self.beacon_interval),
            "osd_heartbeat_interval" => Slot::Seconds(&mut self.heartbeat_interval),
            "osd_heartbeat_grace" => Slot::Seconds(&mut self.heartbeat_grace),
            "osd_heartbeat_min_peers" => Slot::Size(&mut self.heartbeat_min_peers),
            "osd_max_markdown_count" => Slot::Size(&mut self.max_markdown_count),
            "osd_max_markdown_period" => Slot::Seconds(&mut self.max_markdown_period),
            "mgr_stats_period" => Slot::Seconds(&mut self.stats_interval),
            "osd_recovery_sleep" => Slot::Seconds(&mut self.recovery_sleep),
            "osd_backfill_retry_interval" => Slot::Seconds(&mut self.backfill_retry_interval),
            "osd_max_backfills" => Slot::Size(&mut self.max_backfills),
            "osd_max_push_objects" => Slot::Size(&mut self.max_push_objects),
            "osd_max_push_cost" => Slot::Bytes(&mut self.max_push_cost),
            "osd_recovery_max_chunk" => Slot::Bytes(&mut self.recovery_max_chunk),
            "osd_recovery_max_omap_entries_per_chunk" => Slot::Size(&mut self.recovery_max_omap_entries),
            "osd_recovery_max_active" => Slot::Size(&mut self.recovery_max_active),
            "osd_backfill_scan_max" => Slot::Size(&mut self.backfill_scan_max),
            "osd_map_cache_size" => Slot::Count(&mut self.map_cache_size),
            "osd_client_watch_timeout" => Slot::Seconds(&mut self.client_watch_timeout),
            "osd_pg_max_concurrent_snap_trims" => Slot::Size(&mut self.max_snap_trims),
            "osd_snap_trim_sleep" => Slot::Seconds(&mut self.snap_trim_sleep),
            "osd_client_message_cap" => Slot::Bytes(&mut self.client_message_cap),
            "osd_client_message_size_cap" => Slot::Bytes(&mut self.client_message_size_cap),
            "osd_memory_target" => Slot::Bytes(&mut self.memory_target),
            "osd_failsafe_full_ratio" => Slot::Ratio(&mut self.failsafe_full_ratio),
            "osd_backoff_on_peering" => Slot::Flag(&mut self.backoff_on_peering),
            "osd_backoff_on_degraded" => Slot::Flag(&mut self.backoff_on_degraded),
            "osd_backoff_on_unfound" => Slot::Flag(&mut self.backoff_on_unfound),
            "osd_max_scrubs" => Slot::Size(&mut self.max_scrubs),
            "osd_scrub_min_interval" => Slot::Seconds(&mut self.scrub_min_interval),
            "osd_scrub_max_interval" => Slot::Seconds(&mut self.scrub_max_interval),
            "osd_deep_scrub_interval" => Slot::Seconds(&mut self.deep_scrub_interval),
            "osd_scrub_interval_randomize_ratio" => Slot::Ratio(&mut self.scrub_randomize_ratio),
            "osd_deep_scrub_randomize_ratio" => Slot::Ratio(&mut self.deep_scrub_randomize_ratio),
            "osd_scrub_begin_hour" => Slot::Count(&mut self.scrub_begin_hour),
            "osd_scrub_end_hour" => Slot::Count(&mut self.scrub_end_hour),
            "osd_scrub_begin_week_day" => Slot::Count(&mut self.scrub_begin_week_day),
            "osd_scrub_end_week_day" => Slot::Count(&mut self.scrub_end_week_day),
            "osd_scrub_sleep" => Slot::Seconds(&mut self.scrub_sleep),
            "osd_scrub_chunk_min" => Slot::Size(&mut self.scrub_chunk_min),
            "osd_scrub_chunk_max" => Slot::Size(&mut self.scrub_chunk_max),
            "osd_deep_scrub_stride" => Slot::Bytes(&mut self.deep_scrub_stride),
            "osd_deep_scrub_large_omap_object_key_threshold" => Slot::Bytes(&mut self.large_omap_keys),
            "osd_deep_scrub_large_omap_object_value_sum_threshold" => Slot::Bytes(&mut self.large_omap_bytes),
            "osd_scrub_during_recovery" => Slot::Flag(&mut self.scrub_during_recovery),
            "osd_repair_during_recovery" => Slot::Flag(&mut self.repair_during_recovery),
            "osd_scrub_auto_repair" => Slot::Flag(&mut self.scrub_auto_repair),
            "osd_scrub_auto_repair_num_errors" => Slot::Size(&mut self.scrub_auto_repair_num_errors),
            "osd_delete_sleep" => Slot::Seconds(&mut self.delete_sleep),
            "osd_default_notify_timeout" => Slot::Seconds(&mut self.default_notify_timeout),
            _ => return None,
        })
    }

    /// Sets an option from its text; false when the name is not ours or the text is no number in range.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let Some(slot) = self.slot(name) else { return false };
        let value = value.trim();
        match slot {
            Slot::Size(v) => value.parse().map(|n| *v = n).is_ok(),
            Slot::Bytes(v) => value.parse().map(|n| *v = n).is_ok(),
            Slot::Count(v) => value.parse().map(|n| *v = n).is_ok(),
            Slot::Seconds(v) => match value.parse::<f64>() {
                Ok(s) if (0.0..1e9).contains(&s) => {
                    *v = Duration::from_secs_f64(s);
                    true
                }
                _ => false,
            },
            Slot::Ratio(v) => value.parse().map(|n| *v = n).is_ok(),
            Slot::Flag(v) => value.parse().map(|n| *v = n).is_ok(),
            Slot::Mebibytes(v) => match value.parse::<u64>() {
                Ok(n) if n < 1 << 40 => {
                    *v = n << 20;
                    true
                }
                _ => false,
            },
        }
    }

    /// An option's value as text.
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match self.clone().slot(name)? {
            Slot::Size(v) => v.to_string(),
            Slot::Bytes(v) => v.to_string(),
            Slot::Count(v) => v.to_string(),
            Slot::Seconds(v) => v.as_secs_f64().to_string(),
            Slot::Ratio(v) => v.to_string(),
            Slot::Flag(v) => v.to_string(),
            Slot::Mebibytes(v) => (*v >> 20).to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `config get` and `config help` say what the OSD does.
    #[test]
    fn defaults_are_those_of_the_table_of_options() {
        let config = OsdConfig::default();
        for name in OPTIONS {
            let table = admin::options::find(name).expect("in the table").default_value();
            let ours = config.get(name).expect("an option");
            let same = match (table.parse::<f64>(), ours.parse::<f64>()) {
                (Ok(a), Ok(b)) => (a - b).abs() < 1e-6,
                _ => table == ours,
            };
            // There 0 stands for what suits the device.
            assert!(same || name == "osd_recovery_max_active", "{name}: {table} in the table, {ours} here");
        }
        let flash = admin::options::find("osd_recovery_max_active_ssd").expect("in the table");
        assert_eq!(flash.default_value(), config.recovery_max_active.to_string());
    }

    #[test]
    fn every_option_reads_back_what_was_set() {
        for name in OPTIONS {
            let mut c = OsdConfig::default();
            let flag = matches!(c.slot(name), Some(Slot::Flag(_)));
            let value = if flag { "true" } else { "17" };
            assert!(c.set(name, value), "{name}");
            assert_eq!(c.get(name).as_deref(), Some(value), "{name}");
            assert!(!c.set(name, "many"), "{name}");
        }
        assert!(!OsdConfig::default().set("osd_colour", "1"));
    }
}
