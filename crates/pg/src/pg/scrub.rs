//! Scrub: the members of a clean PG compare what they hold, chunk by chunk in object order.
//!
//! ```text
//!   scrub_begin ──► Reserving ──► Chunk ──► Light ──► Deep ──► (next chunk: Chunk)
//!                       │ refused    ▲  begin_chunk │  light_done   │ deep_done
//!                       ▼            └──────────────┴───────────────┘
//!                   try later                             finish ──► repairs
//! ```
//! The primary asks every member about a range, and looks at its own store at the same moment. Questions travel in order
//! with writes, so all answers show the same point of the PG's history: no write ever waits for a scrub. A family (a head
//! with its clones) is never divided. A light question covers a chunk; a deep scrub then has digests of its objects made,
//! at most a stride of bytes per question, so that client operations go between.
//!
//! Invariants:
//! 1. Only a primary in `Active` has a run, and it holds this OSD's reservation.
//! 2. Everything below `Run::begin` was compared; no answer counts but to the question last asked.
//! 3. A copy is replaced only by one that the comparison took for good.

mod compare;
mod finish;
mod record;
mod scan;
mod schedule;
mod snaps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use types::{Epoch, Errno, HObject, PgShard};

use super::witness::is_witness;
use super::{Pg, Phase};
use crate::entry::EntryKind;
use crate::info::PgSums;
use crate::io::LogLevel;
use crate::osd::shared::Shared;
use crate::peer::PgBody;
use crate::range::pg_range;

use compare::{BadObject, Context, Maps, Tally};
pub(crate) use finish::Repair;
use record::{ListError, Records};
pub(super) use scan::behind;
pub(crate) use scan::{DeepAsk, ScrubAsk, ScrubPart};
use scan::{DeepState, Scanned};
pub(crate) use schedule::{Plan, Wanted};
use snaps::SnapTally;

/// Objects that are not whole everywhere.
type BadObjects = BTreeMap<HObject, BadObject>;

/// Questions in one tick where no other member has to answer.
const ALONE_STEPS: u32 = 32;
/// Lines of one scrub for the cluster log, besides its result.
const MOST_LINES: usize = 500;
/// How long a refused scrub waits, at least.
const BACKOFF: Duration = Duration::from_secs(1);
/// How long an OSD begins no scrub after a refusal, at most: some ticks.
const PAUSE: Duration = Duration::from_secs(2);

/// All that a PG knows of scrubs.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// Asked for by somebody, or due after a repair.
    pub wanted: Option<Wanted>,
    pub run: Option<Box<Run>>,
    /// What the newest scrub has found; `None` before the first.
    pub records: Option<Records>,
    /// Not before then (monotonic).
    pub not_before: Duration,
    tries: u32,
    last_id: u64,
    /// Copies that are to be replaced, as soon as nothing else is under way there.
    pub repairs: BTreeMap<HObject, Repair>,
    /// From the begin of a repair until everything is whole.
    pub repairing: bool,
    pub failed_repair: bool,
    /// A repair could not tell what it has mended: scrub again.
    pub check_after_repair: bool,
    /// All that was found is gone when everything is whole.
    errors_go: bool,
}

/// A scrub under way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub plan: Plan,
    stage: Stage,
    /// Members that hold a reservation for it.
    reserved: BTreeSet<PgShard>,
    /// Who has not answered.
    waiting: BTreeSet<PgShard>,
    /// The chunk: from, and up to without.
    begin: HObject,
    end: HObject,
    maps: Maps,
    /// Objects that something else is mending.
    skip: BTreeSet<HObject>,
    /// Objects that changed between the light question and the last deep one.
    moving: BTreeSet<HObject>,
    /// Objects of the chunk of which shards were replaced by a write since the light question.
    replaced: BTreeMap<HObject, BTreeSet<i8>>,
    /// Something that was found has been replaced since.
    forgave: bool,
    /// Objects of the chunk without digests yet, with their greatest size; `None` for one that goes alone.
    todo: VecDeque<(HObject, Option<u64>)>,
    /// The deep question: its range, where members go on, and who does.
    range: (HObject, HObject),
    more: BTreeMap<PgShard, DeepState>,
    tally: Tally,
    snaps: SnapTally,
    /// Sums of writes to what was counted already.
    later: PgSums,
    /// Whether the sums can be compared.
    countable: bool,
    /// Lines that went to the cluster log, and those that did not.
    lines: (usize, usize),
    omap: (u64, u64, u32),
    not_before: Duration,
    /// For sums of shards: another one for each scrub.
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Reserving,
    Chunk,
    Light,
    Deep,
}

impl Run {
    fn new(plan: Plan, start: HObject) -> Self {
        Self {
            plan,
            stage: Stage::Reserving,
            reserved: BTreeSet::new(),
            waiting: BTreeSet::new(),
            begin: start.clone(),
            end: start.clone(),
            maps: Maps::new(),
            skip: BTreeSet::new(),
            moving: BTreeSet::new(),
            replaced: BTreeMap::new(),
            forgave: false,
            todo: VecDeque::new(),
            range: (start.clone(), start),
            more: BTreeMap::new(),
            tally: Tally::default(),
            snaps: SnapTally::default(),
            later: PgSums::default(),
            countable: true,
            lines: (0, 0),
            omap: (0, 0, 0),
            not_before: Duration::ZERO,
            seed: 0,
        }
    }

    /// Whether it shows in the PG's state.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::Reserving
    }
}

impl Scrub {
    /// Answers a client that asks what the newest scrub has found. Source: PrimaryLogPG::do_scrub_ls.
    pub fn list(&self, args: Bytes, interval: Epoch) -> Result<Bytes, Errno> {
        let records = self.records.as_ref().ok_or(Errno::ENOENT)?;
        records.list(args, interval).map_err(|e| match e {
            ListError::Malformed => Errno::EINVAL,
            ListError::Expired => Errno::EAGAIN,
        })
    }

    /// A write changed the sums by so much: what was counted before counts with it.
    pub fn note_write(&mut self, object: &HObject, delta: &PgSums) {
        if let Some(run) = self.run.as_deref_mut().filter(|r| r.has_begun()) {
            if *object < run.end {
                run.later.add(delta);
            }
            if *object >= run.begin && *object < run.end {
                run.moving.insert(object.clone());
            }
        }
    }
}

impl Scrub {
    /// Whether something is known, or will be, of an object as it is now.
    pub fn looks_at(&self, object: &HObject) -> bool {
        self.run.as_deref().is_some_and(|run| run.has_begun() && *object < run.end)
    }

    /// A write has replaced all data of these shards of an object.
    pub fn note_replaced(&mut self, object: HObject, shards: BTreeSet<i8>) {
        let Some(run) = self.run.as_deref_mut().filter(|run| run.has_begun()) else { return };
        run.forgave |= run.tally.forgive(&object, &shards);
        if object >= run.begin && object < run.end {
            run.replaced.entry(object).or_default().extend(shards);
        }
    }
}

impl Pg {
    /// Primary: begins a scrub by asking the members for a place among theirs.
    pub fn scrub_begin(&mut self, plan: Plan, cx: &mut Shared) {
        cx.scrubs.insert(self.id);
        let mut run = Run::new(plan, pg_range(self.id.pgid, self.key.pg_num).0);
        run.seed = self.scrub.last_id ^ u64::from(cx.now.wall.sec) << 20;
        run.waiting = self.other_members(cx).into_iter().collect();
        for osd in &run.waiting {
            cx.send_pg(*osd, self.id, self.interval(), PgBody::ScrubReserve);
        }
        let alone = run.waiting.is_empty();
        self.scrub.run = Some(Box::new(run));
        if alone {
            self.scrub_reserved(cx);
        }
    }

    fn other_members(&self, cx: &Shared) -> Vec<PgShard> {
        self.acting().filter(|o| *o != self.me(cx)).collect()
    }

    /// Member: the primary wants to scrub.
    pub fn handle_scrub_reserve(&mut self, from: PgShard, reply: Epoch, cx: &mut Shared) {
        if from != self.primary() || self.phase != Phase::Replica {
            return;
        }
        let granted = cx.scrubs.contains(&self.id) || cx.may_scrub();
        if granted {
            cx.scrubs.insert(self.id);
        }
        cx.send_pg(from, self.id, reply, PgBody::ScrubGrant { granted });
    }

    /// Member: the primary's scrub is over.
    pub fn handle_scrub_release(&mut self, from: PgShard, cx: &mut Shared) {
        if from == self.primary() && !self.is_primary(cx) {
            cx.scrubs.remove(&self.id);
        }
    }

    /// Primary: a member has a place, or none.
    pub fn handle_scrub_grant(&mut self, from: PgShard, granted: bool, cx: &mut Shared) {
        let reserving = |r: &&mut Run| r.stage == Stage::Reserving;
        let Some(run) = self.scrub.run.as_deref_mut().filter(reserving) else {
            if granted {
                // Nobody waits for it any more.
                cx.send_pg(from, self.id, self.interval(), PgBody::ScrubRelease);
            }
            return;
        };
        if !run.waiting.remove(&from) {
            return;
        }
        if !granted {
            // The whole OSD pauses, as long as chance has it: two that are led by the same clock, and have many PGs to scrub,
            // would else hold their places against each other at every tick. Source: osd_scrub_backoff_ratio.
            cx.scrub_refusals += 1;
            let spread = schedule::fraction(self.id, cx.scrub_refusals, cx.whoami.0 as u64);
            cx.scrub_pause = cx.now.mono + PAUSE.mul_f64(spread);
            return self.scrub_stop(true, cx);
        }
        run.reserved.insert(from);
        if run.waiting.is_empty() {
            self.scrub_reserved(cx);
        }
    }

    /// Every member takes part.
    fn scrub_reserved(&mut self, cx: &mut Shared) {
        let was = self.cluster_state(cx);
        let Some(run) = &mut self.scrub.run else { return };
        run.stage = Stage::Chunk;
        let text = format!("{} {} starts", self.id.pgid, run.plan.mode());
        self.scrub.records = Some(Records::default());
        self.scrub.tries = 0;
        self.scrub.failed_repair = false;
        self.scrub.errors_go = false;
        self.scrub.repairing = self.scrub.run.as_ref().is_some_and(|r| r.plan.repair);
        cx.cluster_log(LogLevel::Debug, text);
        self.note_state(was, cx);
        self.scrub_drive(1, cx);
    }

    /// Ends a run without a result. `again`: somebody was busy; it is tried again soon.
    pub fn scrub_stop(&mut self, again: bool, cx: &mut Shared) {
        let Some(run) = self.scrub.run.take() else { return };
        let was = self.cluster_state(cx);
        cx.scrubs.remove(&self.id);
        for osd in run.reserved.iter().chain(&run.waiting) {
            cx.send_pg(*osd, self.id, self.interval(), PgBody::ScrubRelease);
        }
        self.scrub.wanted = self.scrub.wanted.or(run.plan.from);
        if run.has_begun() {
            self.scrub.repairing = false;
        }
        if again {
            // Two primaries that refuse each other must not do so for ever.
            self.scrub.tries = self.scrub.tries.saturating_add(1);
            let spread = schedule::fraction(self.id, u64::from(self.scrub.tries), cx.whoami.0 as u64);
            self.scrub.not_before = cx.now.mono + BACKOFF + BACKOFF.mul_f64(4.0 * spread);
        }
        self.note_state(was, cx);
    }

    /// The interval is over, or this OSD leads the PG no more.
    pub fn scrub_interrupted(&mut self, cx: &mut Shared) {
        cx.scrubs.remove(&self.id);
        if let Some(run) = self.scrub.run.take() {
            self.scrub.wanted = self.scrub.wanted.or(run.plan.from);
        }
        if !self.is_primary(cx) {
            self.scrub.wanted = None;
        }
        self.scrub.repairs.clear();
        self.scrub.repairing = false;
        self.scrub.errors_go = false;
        self.scrub.check_after_repair = false;
        self.scrub.not_before = Duration::ZERO;
    }

    /// Time has passed.
    pub fn scrub_tick(&mut self, cx: &mut Shared) {
        self.repair_step(cx);
        let Some(run) = &self.scrub.run else { return };
        if self.phase != Phase::Active {
            return self.scrub_stop(false, cx);
        }
        if !run.has_begun() {
            return;
        }
        if !self.scrub_allowed(run.plan, cx) {
            return self.scrub_stop(false, cx);
        }
        self.scrub_drive(ALONE_STEPS, cx);
    }

    /// Goes on until somebody has to answer, or for so many steps.
    fn scrub_drive(&mut self, steps: u32, cx: &mut Shared) {
        for _ in 0..steps {
            let Some(run) = &self.scrub.run else { return };
            if !run.waiting.is_empty() || cx.now.mono < run.not_before || cx.fatal.is_some() {
                return;
            }
            match run.stage {
                Stage::Reserving => return,
                Stage::Chunk => self.begin_chunk(cx),
                Stage::Light => self.light_done(cx),
                Stage::Deep => self.deep_done(cx),
            }
        }
    }

    /// Chooses the next chunk and asks about it.
    fn begin_chunk(&mut self, cx: &mut Shared) {
        let until = pg_range(self.id.pgid, self.key.pg_num).1;
        let Some(run) = &self.scrub.run else { return };
        if !self.scrub_allowed(run.plan, cx) {
            return self.scrub_stop(false, cx);
        }
        let max = cx.config.scrub_chunk_max.max(cx.config.scrub_chunk_min).max(1);
        let listed = match cx.store.list(self.id.shard, &run.begin, &until, max + 1) {
            Ok(listed) => listed,
            Err(e) => return self.scrub_failed(self.me(cx), &e.to_string(), cx),
        };
        let end = chunk_end(&listed, max).unwrap_or(until);
        let mut skip: BTreeSet<HObject> = self.missing.iter().map(|(o, _)| o.clone()).collect();
        skip.extend(self.lacked_by_members());
        let Some(run) = &mut self.scrub.run else { return };
        run.end = end.clone();
        run.skip = skip;
        run.moving.clear();
        run.replaced.clear();
        run.maps.clear();
        run.stage = Stage::Light;
        let begin = run.begin.clone();
        let everybody = self.acting().map(|osd| (osd, None)).collect();
        self.scrub_ask(&begin, &end, everybody, cx);
    }

    /// Objects that are on their way to members.
    fn lacked_by_members(&self) -> Vec<HObject> {
        let missing = self.peers.values().filter_map(|p| p.missing.as_ref());
        let lacked = missing.flat_map(|m| m.iter().map(|(o, _)| o.clone()));
        lacked.chain(self.recovering.keys().cloned()).collect()
    }

    /// Asks members, each going on where it has to, and looks at the own store if we are among them.
    fn scrub_ask(
        &mut self,
        begin: &HObject,
        end: &HObject,
        whom: BTreeMap<PgShard, Option<DeepAsk>>,
        cx: &mut Shared,
    ) {
        self.scrub.last_id += 1;
        let id = self.scrub.last_id;
        let mut own = None;
        for (osd, deep) in whom {
            let ask = ScrubAsk { id, begin: begin.clone(), end: end.clone(), deep };
            if osd == self.me(cx) {
                own = Some(self.scan(&ask, cx));
                continue;
            }
            if let Some(run) = &mut self.scrub.run {
                run.waiting.insert(osd);
            }
            cx.send_pg(osd, self.id, self.interval(), PgBody::ScrubRead(Box::new(ask)));
        }
        if let Some(part) = own {
            self.take_part(self.me(cx), part, cx);
        }
    }

    fn scan(&self, ask: &ScrubAsk, cx: &mut Shared) -> ScrubPart {
        let codec = self.backend.geometry().map(|geometry| &geometry.codec);
        scan::scan(self.id.shard, ask, codec, &mut cx.store)
    }

    /// Member: answers the primary's question.
    pub fn handle_scrub_read(&mut self, from: PgShard, reply: Epoch, ask: &ScrubAsk, cx: &mut Shared) {
        if from != self.primary() || self.phase != Phase::Replica {
            return;
        }
        let part = self.scan(ask, cx);
        cx.send_pg(from, self.id, reply, PgBody::ScrubMap(Box::new(part)));
    }

    /// Primary: a member's answer.
    pub fn handle_scrub_map(&mut self, from: PgShard, part: ScrubPart, cx: &mut Shared) {
        if is_witness(part.id) {
            return self.take_witness(from, part, cx);
        }
        let id = self.scrub.last_id;
        let Some(run) = &mut self.scrub.run else { return };
        if part.id != id || !run.waiting.remove(&from) {
            return;
        }
        self.take_part(from, part, cx);
        // With the last answer comes the next question.
        self.scrub_drive(2, cx);
    }

    fn take_part(&mut self, from: PgShard, part: ScrubPart, cx: &mut Shared) {
        if let Some(why) = part.failed {
            return self.scrub_failed(from, &why, cx);
        }
        let Some(run) = &mut self.scrub.run else { return };
        let map = run.maps.entry(from).or_default();
        match run.stage {
            Stage::Light => map.extend(part.objects),
            _ => {
                for (object, found) in part.objects {
                    if let Some(known) = map.get_mut(&object) {
                        known.add_deep(found);
                    }
                }
                if let Some(more) = part.more {
                    run.more.insert(from, more);
                }
            }
        }
    }

    /// A member cannot even list its objects.
    fn scrub_failed(&mut self, osd: PgShard, why: &str, cx: &mut Shared) {
        let mode = self.scrub.run.as_ref().map_or("scrub", |r| r.plan.mode());
        let text = format!("{} {mode} : osd.{osd} cannot list its objects: {why}", self.id.pgid);
        cx.cluster_log(LogLevel::Error, text);
        self.scrub.wanted = None;
        if let Some(run) = &mut self.scrub.run {
            run.plan.required = false;
        }
        self.scrub_stop(false, cx);
        self.scrub.not_before = cx.now.mono + cx.config.scrub_min_interval.min(Duration::from_secs(600));
    }

    /// All members have stated sizes and attributes of the chunk.
    fn light_done(&mut self, cx: &mut Shared) {
        let whoami = self.me(cx);
        let Some(run) = &mut self.scrub.run else { return };
        if !run.plan.deep {
            return self.chunk_done(cx);
        }
        let mut sizes: BTreeMap<HObject, Option<u64>> = BTreeMap::new();
        for map in run.maps.values() {
            for (object, found) in map.iter().filter(|(o, _)| !run.skip.contains(*o)) {
                let size = sizes.entry(object.clone()).or_insert(Some(0));
                *size = match size {
                    Some(max) if !found.has_omap && !found.stat_error => Some((*max).max(found.size)),
                    _ => None,
                };
            }
        }
        run.todo = sizes.into_iter().collect();
        run.stage = Stage::Deep;
        run.more.clear();
        // Members may go in and out of the acting set only with a new interval: the maps hold all of them.
        debug_assert!(run.maps.contains_key(&whoami));
        self.deep_done(cx);
    }

    /// All members have answered the last deep question, or there was none: asks the next.
    fn deep_done(&mut self, cx: &mut Shared) {
        let stride = cx.config.deep_scrub_stride.max(4096);
        let Some(run) = &mut self.scrub.run else { return };
        let more = std::mem::take(&mut run.more);
        if !more.is_empty() {
            let (begin, end) = run.range.clone();
            let ask = |from: DeepState| Some(DeepAsk { stride, from, seed: run.seed });
            let whom = more.into_iter().map(|(osd, from)| (osd, ask(from))).collect();
            return self.scrub_ask(&begin, &end, whom, cx);
        }
        let Some((first, size)) = run.todo.pop_front() else { return self.chunk_done(cx) };
        let mut last = first.clone();
        let mut one = true;
        if let Some(mut bytes) = size {
            while let Some((object, Some(size))) = run.todo.front() {
                bytes = bytes.saturating_add(*size);
                if bytes > stride {
                    break;
                }
                last = object.clone();
                one = false;
                run.todo.pop_front();
            }
        }
        run.range = (first, behind(&last));
        let (begin, end) = run.range.clone();
        let stride = if one { stride } else { u64::MAX };
        let ask = Some(DeepAsk { stride, from: DeepState::default(), seed: run.seed });
        let whom = self.acting().map(|osd| (osd, ask.clone())).collect();
        self.scrub_ask(&begin, &end, whom, cx);
    }

    /// Everything that was asked about the chunk is here.
    fn chunk_done(&mut self, cx: &mut Shared) {
        let Some(mut run) = self.scrub.run.take() else { return };
        run.skip.extend(self.missing.iter().map(|(o, _)| o.clone()));
        run.skip.extend(self.lacked_by_members());
        let newest =
            |object: &HObject| self.log.entries().rev().find(|e| e.object == *object && !e.is_error());
        let deleted = |object: &HObject, version: types::Eversion| {
            newest(object).is_some_and(|e| e.kind == EntryKind::Delete && e.version > version)
        };
        let context = Context {
            pgid: self.id.pgid,
            primary: self.me(cx),
            max_object_size: cx.config.max_object_size,
            deleted: &deleted,
            moving: &run.moving,
            coded: self.backend.geometry(),
        };
        let in_chunk = run.maps.values().flat_map(|m| m.keys());
        run.countable &= !in_chunk.clone().any(|o| run.skip.contains(o));
        let mut sound = compare::compare(&context, &run.maps, &run.skip, &mut run.tally);
        for (object, bad) in run.tally.bad.iter().filter(|(_, b)| b.extra) {
            debug_assert!(!bad.good.is_empty());
            // What went while the chunk was looked at counts as it was: `later` has its end.
            if !run.moving.contains(&object.head()) {
                sound.remove(object);
            }
        }
        for (object, shards) in std::mem::take(&mut run.replaced) {
            run.forgave |= run.tally.forgive(&object, &shards);
        }
        note_omap(&mut run, cx, self.id.pgid, &sound);
        snaps::check(self.id.pgid, run.plan.mode(), &sound, &mut run.snaps);
        // What is too much to be remembered is not left out of the sums.
        run.countable &= run.tally.more_bad == 0;
        tell_lines(&mut run, cx);
        run.maps.clear();
        run.begin = run.end.clone();
        run.stage = Stage::Chunk;
        run.not_before = cx.now.mono + cx.config.scrub_sleep;
        let until = pg_range(self.id.pgid, self.key.pg_num).1;
        let over = run.begin >= until;
        self.scrub.run = Some(run);
        if over {
            self.scrub_finish(cx);
        } else if self.acting().count() > 1 {
            self.scrub_drive(1, cx);
        }
    }
}

/// Tells the cluster log, as far as it has room for one scrub.
fn tell_lines(run: &mut Run, cx: &mut Shared) {
    let (told, untold) = &mut run.lines;
    for line in run.tally.lines.drain(..).chain(run.snaps.lines.drain(..)) {
        if *told < MOST_LINES {
            *told += 1;
            cx.cluster_log(LogLevel::Error, line);
        } else {
            *untold += 1;
        }
    }
}

/// Where a chunk of about `max` objects ends, when there are more: never inside a family.
fn chunk_end(listed: &[HObject], max: usize) -> Option<HObject> {
    let head = listed.get(max)?.head();
    let family = listed.iter().position(|o| o.head() == head)?;
    Some(if family == 0 { behind(&head) } else { head.at(types::SnapId(0)) })
}

/// Sums up omaps, and tells of those that are too large. Source: PGBackend::be_omap_checks.
fn note_omap(run: &mut Run, cx: &mut Shared, pgid: types::PgId, objects: &BTreeMap<HObject, Scanned>) {
    let config = &cx.config;
    let (max_keys, max_bytes) = (config.large_omap_keys, config.large_omap_bytes);
    for (object, found) in objects {
        run.omap.0 += found.omap_keys;
        run.omap.1 += found.omap_bytes;
        if found.omap_keys > max_keys || found.omap_bytes > max_bytes {
            run.omap.2 += 1;
            let raw = types::PgId::new(object.pool, object.hash);
            let text = format!(
                "Large omap object found. Object: {object} PG: {raw} ({pgid}) Key count: {} Size (bytes): {}",
                found.omap_keys, found.omap_bytes
            );
            cx.cluster_log(LogLevel::Warn, text);
        }
    }
}
