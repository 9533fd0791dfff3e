//! What this OSD counts, and the table of its counters: `perf dump` shows it, and the manager is told of it.
//!
//! Counters are plain integers that are added to where something happens. A time is the difference of two
//! times that the core was given. How long a batch of inputs took is told by the shell when it is through
//! (`OsdCore::batch_done`), and is added to the requests that it has answered; the histograms lack it.
//!
//! Counters have Ceph's names where they count the same. What Ceph has and nothing here would move is left
//! out.
//!
//! Source: src/osd/osd_perf_counters.cc, PrimaryLogPG::log_op_stats.

use std::time::Duration;

use admin::perf::{Count, Histogram, Logger, priority};

use super::OsdCore;
use crate::exec::RequestKind;

/// How often something took how long altogether, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Latency {
    count: u64,
    sum_ns: u64,
}

impl Latency {
    #[inline]
    pub fn add(&mut self, took_ns: u64) {
        self.count += 1;
        self.sum_ns += took_ns;
    }

    fn count(self) -> Count {
        Count::Time { count: self.count, sum_ns: self.sum_ns }
    }

    pub fn average_ns(self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// When a request of a client came, had its turn, and last began to run: nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Times {
    pub came: u64,
    pub begun: u64,
    pub ran: u64,
}

/// Requests of clients that succeeded, and what they moved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    count: u64,
    in_bytes: u64,
    out_bytes: u64,
    latency_ns: u64,
    /// Without the wait for a turn.
    process_ns: u64,
    /// From the turn until they ran: they may have waited for an object or a lease.
    prepare_ns: u64,
    /// By latency, and by what they wrote or read.
    by_in_bytes: Box<Histogram>,
    by_out_bytes: Box<Histogram>,
    /// What `count` was when the shell last told how long a batch took.
    told: u64,
}

/// How long a request took.
#[derive(Debug, Clone, Copy)]
struct Took {
    latency_ns: u64,
    process_ns: u64,
    prepare_ns: u64,
}

impl Requests {
    #[inline]
    fn add(&mut self, took: Took, in_bytes: u64, out_bytes: u64) {
        self.count += 1;
        self.in_bytes += in_bytes;
        self.out_bytes += out_bytes;
        self.latency_ns += took.latency_ns;
        self.process_ns += took.process_ns;
        self.prepare_ns += took.prepare_ns;
    }

    /// The requests answered since the last call took so much longer.
    fn batch_done(&mut self, took_ns: u64) {
        let answered = self.count - self.told;
        self.told = self.count;
        self.latency_ns += answered * took_ns;
        self.process_ns += answered * took_ns;
    }

    fn time(&self, sum_ns: u64) -> Count {
        Count::Time { count: self.count, sum_ns }
    }
}

/// Running totals since the OSD started.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpCounters {
    pub reads: Requests,
    pub writes: Requests,
    /// Requests that do both.
    pub rws: Requests,
    /// From the arrival of a request to its turn.
    pub waited_for_turn: Latency,
    /// Writes of primaries elsewhere, from their arrival until they were durable here.
    pub rep_ops: Latency,
    /// The bytes of those.
    pub rep_op_bytes: u64,
    pub pulls: u64,
    /// Objects sent in recovery.
    pub pushes: u64,
    /// The messages that they went in.
    pub push_messages: u64,
    /// Their data, omap and attributes.
    pub push_bytes: u64,
    /// Requests for objects, and messages with objects, that came from other OSDs, and the bytes in these.
    pub pulls_taken: u64,
    pub pushes_taken: u64,
    pub push_in_bytes: u64,
    /// The load of the host in the last minute, in hundredths.
    pub load: u64,
    /// Objects whose recovery was begun by a primary here, and the bytes that came and went for it.
    pub recoveries: u64,
    pub recovery_bytes: u64,
    /// Damaged objects replaced from another copy, here or on a member.
    pub repairs: u64,
    /// Shards of which a member gave nothing, or that came in another place than their own.
    pub shards_refused: u64,
    /// Connections whose tickets had Ceph's form.
    pub tickets_refused: u64,
    /// Clients told not to send for a while.
    pub backoffs: u64,
    /// Requests that copy other objects.
    pub copies: u64,
    /// Large writes whose data went ahead to all members.
    pub staged: u64,
    /// Messages with maps, the epochs in them, and those that were known already.
    pub map_messages: u64,
    pub map_epochs: u64,
    pub map_epochs_known: u64,
    /// Messages that had to wait for a map.
    pub waited_for_map: u64,
}

impl OpCounters {
    /// Counts a request of a client that has succeeded `now`.
    #[inline]
    pub fn request(&mut self, kind: &RequestKind, times: Times, now: u64, in_bytes: u64, out_bytes: u64) {
        let took = Took {
            latency_ns: now.saturating_sub(times.came),
            process_ns: now.saturating_sub(times.begun),
            prepare_ns: times.ran.saturating_sub(times.begun),
        };
        let of_kind = match (kind.reads, kind.writes) {
            (true, true) => &mut self.rws,
            (false, true) => &mut self.writes,
            (_, false) => &mut self.reads,
        };
        of_kind.add(took, in_bytes, out_bytes);
        if kind.writes {
            of_kind.by_in_bytes.add(took.latency_ns, in_bytes);
        }
        if kind.reads || !kind.writes {
            of_kind.by_out_bytes.add(took.latency_ns, out_bytes);
        }
    }

    fn sum(&self, of: impl Fn(&Requests) -> u64) -> u64 {
        [&self.reads, &self.writes, &self.rws].into_iter().map(of).sum()
    }

    fn time(&self, of: impl Fn(&Requests) -> u64) -> Count {
        Count::Time { count: self.sum(|r| r.count), sum_ns: self.sum(of) }
    }
}

impl OsdCore {
    /// Whether the batch of inputs has answered requests, so that `batch_done` is to be called when it is
    /// through.
    pub fn has_answered(&self) -> bool {
        let c = &self.shared.counters;
        [&c.reads, &c.writes, &c.rws].into_iter().any(|r| r.count != r.told)
    }

    /// What the shell knows of the host's load: that of the last minute, in hundredths.
    pub fn set_load(&mut self, hundredths: u64) {
        self.shared.counters.load = hundredths;
    }

    /// A batch of inputs is through, answers included, at `mono` (monotonic, as in `Now`).
    pub fn batch_done(&mut self, mono: Duration) {
        let cx = &mut self.shared;
        let took_ns = mono.saturating_sub(cx.now.mono).as_nanos() as u64;
        let c = &mut cx.counters;
        [&mut c.reads, &mut c.writes, &mut c.rws].into_iter().for_each(|r| r.batch_done(took_ns));
        cx.queries.settle(took_ns);
    }

    /// Every counter of this OSD.
    pub(super) fn loggers(&self) -> Vec<Logger> {
        vec![self.osd_logger(), self.store_logger()]
    }

    fn osd_logger(&self) -> Logger {
        let c = &self.shared.counters;
        let osd = Logger::new("osd").usually(priority::USEFUL);
        let osd = osd.with("op_wip", "operations under way", Count::Gauge(self.tracker.in_flight() as u64));
        let osd = with_requests(osd, c).usually(priority::DEBUG_ONLY);
        let osd = osd.with("op_before_dequeue_op_lat", "wait for a turn", c.waited_for_turn.count());
        let osd = self.with_state(with_peers(osd, c));
        let told = "times that a client was told not to send";
        let tickets = "connections with tickets in Ceph's form";
        let refused = "shards that were stale, damaged or in another place";
        osd.with("repair", "damaged objects replaced from another copy", Count::Total(c.repairs))
            .with("loligo_shards_refused", refused, Count::Total(c.shards_refused))
            .with("loligo_tickets_refused", tickets, Count::Total(c.tickets_refused))
            .with("backoff", told, Count::Total(c.backoffs))
    }

    /// What the OSD has and is.
    fn with_state(&self, osd: Logger) -> Logger {
        let cx = &self.shared;
        let space = cx.store.statfs();
        let used = space.total_bytes.saturating_sub(space.available_bytes);
        let (mut primaries, mut replicas) = (0, 0);
        for pg in self.pgs.values() {
            let primary = pg.is_primary(cx);
            primaries += u64::from(primary);
            replicas += u64::from(!primary && pg.is_acting(pg.me(cx)));
        }
        let strays = self.pgs.len() as u64 - primaries - replicas;
        let peers = self.heartbeats.peers().len() as u64;
        let load = Count::Gauge(cx.counters.load);
        osd.with("loadavg", "load of the host in the last minute, in hundredths", load)
            .with("numpg", "PGs here", Count::Gauge(self.pgs.len() as u64))
            .headed("pgs", priority::USEFUL)
            .with("numpg_primary", "PGs led from here", Count::Gauge(primaries))
            .with("numpg_replica", "PGs led from elsewhere", Count::Gauge(replicas))
            .with("numpg_stray", "PGs here that do not serve any more", Count::Gauge(strays))
            .with("numpg_removing", "copies that are being deleted", Count::Gauge(cx.removals.len() as u64))
            .headed("pgsr", priority::USEFUL)
            .with("heartbeat_to_peers", "OSDs that are pinged", Count::Gauge(peers))
            .with("stat_bytes", "size of the store", Count::GaugeBytes(space.total_bytes))
            .headed("size", priority::USEFUL)
            .with("stat_bytes_used", "bytes in use", Count::GaugeBytes(used))
            .headed("used", priority::USEFUL)
            .with("stat_bytes_avail", "bytes free", Count::GaugeBytes(space.available_bytes))
            .with("map_epoch", "epoch of the OSD map", Count::Gauge(cx.epoch().0.into()))
    }

    fn store_logger(&self) -> Logger {
        let s = self.shared.store.counters();
        let commits = self.tracker.commits.count();
        Logger::new("store")
            .with("commit_lat", "time until transactions are durable", commits)
            .headed("c_l", priority::CRITICAL)
            .usually(priority::USEFUL)
            .with("txns", "transactions", Count::Total(s.txns))
            .with("commits", "commits", Count::Total(s.commits))
            .with("checkpoints", "checkpoints", Count::Total(s.checkpoints))
            .with("log_bytes", "bytes written to the log", Count::TotalBytes(s.log_bytes))
            .with("log_used_bytes", "bytes of the log in use", Count::GaugeBytes(s.log_used_bytes))
            .with("direct_bytes", "bytes written to their place at once", Count::TotalBytes(s.direct_bytes))
            .with("checkpoint_bytes", "bytes written by checkpoints", Count::TotalBytes(s.checkpoint_bytes))
            .with(
                "discarded_bytes",
                "bytes of free ranges told to the device",
                Count::TotalBytes(s.discarded_bytes),
            )
            .with("onode_hits", "objects found in memory", Count::Total(s.onode_cache_hits))
            .with("onode_misses", "objects not found in memory", Count::Total(s.onode_cache_misses))
            .with("corrupt_blocks", "checksum mismatches", Count::Total(s.corrupt_blocks))
            .with(
                "corrupt_pages",
                "metadata pages read from their second copy",
                Count::Total(s.corrupt_pages),
            )
            .with("memory_bytes", "memory in use", Count::GaugeBytes(s.memory_bytes))
            .usually(priority::DEBUG_ONLY)
            .with("memory_peak_bytes", "most memory in use so far", Count::GaugeBytes(s.memory_peak_bytes))
            .with("batches_direct", "commits that placed small writes", Count::Total(s.batches_direct))
            .with("batches_logged", "commits that logged small writes", Count::Total(s.batches_logged))
            .with("blocks_read", "data blocks read", Count::Total(s.blocks_read))
            .with("pages_read", "metadata pages read", Count::Total(s.pages_read))
            .with("page_cache_hits", "metadata pages found in memory", Count::Total(s.page_cache_hits))
    }
}

/// Requests of clients, together and by kind.
fn with_requests(osd: Logger, c: &OpCounters) -> Logger {
    let (r, w, rw) = (&c.reads, &c.writes, &c.rws);
    // `op_w_in_bytes` has no unit in Ceph either.
    osd.with("op", "requests of clients", Count::Total(c.sum(|r| r.count)))
        .headed("ops", priority::CRITICAL)
        .with("op_in_bytes", "bytes that clients wrote", Count::TotalBytes(c.sum(|r| r.in_bytes)))
        .headed("wr", priority::INTERESTING)
        .with("op_out_bytes", "bytes that clients read", Count::TotalBytes(c.sum(|r| r.out_bytes)))
        .headed("rd", priority::INTERESTING)
        .with("op_latency", "time to answer requests", c.time(|r| r.latency_ns))
        .headed("l", 9)
        .with("op_process_latency", "the same from their turn on", c.time(|r| r.process_ns))
        .with("op_prepare_latency", "from their turn until they ran", c.time(|r| r.prepare_ns))
        .with("op_r", "reads", Count::Total(r.count))
        .with("op_r_out_bytes", "bytes that reads gave", Count::TotalBytes(r.out_bytes))
        .with("op_r_latency", "time to answer reads", r.time(r.latency_ns))
        .with("op_r_latency_out_bytes_histogram", "reads by latency and bytes", histogram(&r.by_out_bytes))
        .with("op_r_process_latency", "the same from their turn on", r.time(r.process_ns))
        .with("op_r_prepare_latency", "from their turn until they ran", r.time(r.prepare_ns))
        .with("op_w", "writes", Count::Total(w.count))
        .with("op_w_in_bytes", "bytes that writes brought", Count::Total(w.in_bytes))
        .with("op_w_latency", "time to answer writes", w.time(w.latency_ns))
        .with("op_w_latency_in_bytes_histogram", "writes by latency and bytes", histogram(&w.by_in_bytes))
        .with("op_w_process_latency", "the same from their turn on", w.time(w.process_ns))
        .with("op_w_prepare_latency", "from their turn until they ran", w.time(w.prepare_ns))
        .with("op_rw", "requests that read and write", Count::Total(rw.count))
        .with("op_rw_in_bytes", "bytes that they brought", Count::TotalBytes(rw.in_bytes))
        .with("op_rw_out_bytes", "bytes that they gave", Count::TotalBytes(rw.out_bytes))
        .with("op_rw_latency", "time to answer them", rw.time(rw.latency_ns))
        .with("op_rw_latency_in_bytes_histogram", "they by latency and bytes in", histogram(&rw.by_in_bytes))
        .with(
            "op_rw_latency_out_bytes_histogram",
            "they by latency and bytes out",
            histogram(&rw.by_out_bytes),
        )
        .with("op_rw_process_latency", "the same from their turn on", rw.time(rw.process_ns))
        .with("op_rw_prepare_latency", "from their turn until they ran", rw.time(rw.prepare_ns))
}

fn histogram(h: &Histogram) -> Count {
    Count::Histogram(Box::new(h.clone()))
}

/// What OSDs do for each other, and maps.
fn with_peers(osd: Logger, c: &OpCounters) -> Logger {
    osd.with("subop", "operations for other OSDs", Count::Total(c.rep_ops.count))
        .with("subop_in_bytes", "their bytes", Count::TotalBytes(c.rep_op_bytes))
        .with("subop_latency", "time until they were durable", c.rep_ops.count())
        .with("subop_w", "writes for other OSDs", Count::Total(c.rep_ops.count))
        .with("subop_w_in_bytes", "their bytes", Count::TotalBytes(c.rep_op_bytes))
        .with("subop_w_latency", "time until they were durable", c.rep_ops.count())
        .with("subop_pull", "requests of other OSDs for objects", Count::Total(c.pulls_taken))
        .with("subop_push", "messages of other OSDs with objects", Count::Total(c.pushes_taken))
        .with("subop_push_in_bytes", "their data, omap and attributes", Count::TotalBytes(c.push_in_bytes))
        .with("pull", "objects asked for in recovery", Count::Total(c.pulls))
        .with("push", "objects sent in recovery", Count::Total(c.pushes))
        .with("push_messages", "messages that they went in", Count::Total(c.push_messages))
        .with("push_out_bytes", "their data, omap and attributes", Count::TotalBytes(c.push_bytes))
        .with("recovery_ops", "objects whose recovery was begun", Count::Total(c.recoveries))
        .headed("rop", priority::INTERESTING)
        .with("recovery_bytes", "bytes of objects in recovery", Count::Total(c.recovery_bytes))
        .headed("rbt", priority::INTERESTING)
        .with("copyfrom", "requests that copy other objects", Count::Total(c.copies))
        .with("staged", "large writes whose data went ahead", Count::Total(c.staged))
        .with("map_messages", "messages with OSD maps", Count::Total(c.map_messages))
        .with("map_message_epochs", "epochs in them", Count::Total(c.map_epochs))
        .with("map_message_epoch_dups", "those that were known", Count::Total(c.map_epochs_known))
        .with("messages_delayed_for_map", "messages that waited for a map", Count::Total(c.waited_for_map))
}
