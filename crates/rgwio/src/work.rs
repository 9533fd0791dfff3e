//! What a gateway does by itself: objects that expire or go to another storage class, uploads that nobody
//! completes, garbage. All gateways work off the same lists, radosgw's as well.
//!
//! 1. One request of the work is under way at a time, beside those of clients.
//! 2. What fails is logged and tried again in the next round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway::lifecycle::{Action, Age, Outcome, SHARDS, Seen};
use gateway::{Error, GARBAGE_SHARDS, ListedVersion, Listing, Moment, SharedBucket, Site, UploadId};
use rgw::{LifecycleEntry, Versioning};
use types::{RealTime, Utime};

use crate::Performer;

/// Between looks for buckets whose objects expire.
const LOOK: Duration = Duration::from_secs(60);
/// The hours in which a day's round is begun, of UTC. Source: rgw_lifecycle_work_time in
/// src/common/options.cc.
const HOURS: std::ops::Range<u32> = 0..6;
/// Between looks for garbage. Source: rgw_gc_processor_period.
const SWEEP: Duration = Duration::from_secs(3600);
/// Entries of a list's page.
const PAGE: usize = 100;

/// Works by itself until it is told to stop.
#[derive(Debug, Clone)]
pub struct Worker {
    site: Site,
    performer: Performer,
    interval: u32,
    stops: Arc<AtomicBool>,
}

fn now() -> RealTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RealTime(Utime { sec: u32::try_from(since.as_secs()).unwrap_or(u32::MAX), nsec: since.subsec_nanos() })
}

fn at_once<T>(with: impl FnOnce(&mut Moment) -> T) -> T {
    with(&mut Moment { now: now(), entropy: &mut runtime::OsEntropy })
}

/// Versions of a bucket in order, each with what is known when the next one came.
#[derive(Debug, Default)]
struct Walk {
    /// The name of the last one that was passed, and when that came.
    before: Option<(bytes::Bytes, RealTime)>,
    held: Option<ListedVersion>,
}

impl Walk {
    /// Takes the next version, or the end, and gives the one before it.
    fn next(&mut self, version: Option<ListedVersion>) -> Option<Seen> {
        let is_last = version.as_ref().map(|v| &v.key.name) != self.held.as_ref().map(|v| &v.key.name);
        let ListedVersion { key, meta, is_latest, is_marker } = std::mem::replace(&mut self.held, version)?;
        let newer = self.before.take().filter(|(name, _)| *name == key.name).map(|(_, mtime)| mtime);
        self.before = Some((key.name.clone(), meta.mtime));
        Some(Seen { key, meta, is_latest, is_marker, newer, is_last })
    }
}

impl Worker {
    /// `interval`: seconds that lifecycles take for a day, for tests; 0 for days.
    pub fn new(site: Site, performer: Performer, interval: u32) -> Self {
        Self { site, performer, interval, stops: Arc::default() }
    }

    /// Has the work end at the next place where it can.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    fn age(&self) -> Age {
        Age { now: now(), interval: self.interval }
    }

    /// Waits, unless it is told to stop.
    async fn pause(&self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while !self.stops() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Has objects expire, or go to other storage classes.
    pub async fn run_lifecycles(&self) {
        let pause = match self.interval {
            0 => LOOK,
            seconds => Duration::from_secs(u64::from(seconds.clamp(1, 60))).div_f32(4.0),
        };
        while !self.stops() {
            let hour = now().0.sec / 3600 % 24;
            if self.interval > 0 || HOURS.contains(&hour) {
                for shard in 0..SHARDS {
                    self.lifecycles_of(shard).await;
                }
            }
            self.pause(pause).await;
        }
    }

    async fn lifecycles_of(&self, shard: u32) {
        while !self.stops() {
            let next = self.performer.perform(self.site.next_lifecycle(shard, self.age())).await;
            let entry = match next {
                Ok(Some(entry)) => entry,
                Ok(None) => return,
                // Nobody has rules yet.
                Err(e) => return tracing::debug!("lifecycles of lc.{shard}: {e:?}"),
            };
            let outcome = match self.lifecycle(&entry).await {
                Ok(true) if self.stops() => Outcome::Failed,
                Ok(true) => Outcome::Done,
                Ok(false) => Outcome::Gone,
                Err(e) => {
                    let name = String::from_utf8_lossy(&entry.bucket);
                    tracing::warn!("the lifecycle of {name} failed, and is tried again later: {e:?}");
                    Outcome::Failed
                }
            };
            let ended = at_once(|moment| self.site.end_lifecycle(shard, entry, outcome, moment));
            if let Err(e) = self.performer.perform(ended).await {
                tracing::warn!("how the work on lc.{shard} ended was not kept: {e:?}");
                return;
            }
        }
    }

    /// Does what a bucket's rules say; whether the bucket is there.
    async fn lifecycle(&self, entry: &LifecycleEntry) -> Result<bool, Error> {
        let found = self.performer.perform(self.site.lifecycle_of(entry)).await?;
        let Some((bucket, rules)) = found else { return Ok(false) };
        let actions: Vec<Action> = rules.rules.values().filter_map(Action::of).collect();
        for action in &actions {
            for class in action.classes().filter(|class| !self.site.has_class(&bucket, class)) {
                let (name, class) = (String::from_utf8_lossy(&entry.bucket), String::from_utf8_lossy(class));
                tracing::warn!("{name}: its place has no storage class {class}, and no object goes there");
            }
            if action.is_of_objects() {
                self.walk(entry, &bucket, action).await?;
            }
            if action.upload_days > 0 {
                self.end_uploads(entry, &bucket, action).await?;
            }
        }
        Ok(true)
    }

    /// Whether the bucket still has this rule, and keeps versions or none as it did.
    async fn is_asked_for(
        &self,
        entry: &LifecycleEntry,
        bucket: &SharedBucket,
        action: &Action,
    ) -> Result<bool, Error> {
        let found = self.performer.perform(self.site.lifecycle_of(entry)).await?;
        Ok(found.is_some_and(|(fresh, rules)| {
            fresh.flags == bucket.flags && rules.rules.values().filter_map(Action::of).any(|a| a == *action)
        }))
    }

    /// Does to a bucket's objects what a rule says.
    async fn walk(
        &self,
        entry: &LifecycleEntry,
        bucket: &SharedBucket,
        action: &Action,
    ) -> Result<(), Error> {
        let versions = bucket.flags.has(Versioning::VERSIONED);
        let (prefix, max) = (action.prefix.clone(), PAGE);
        let mut listing = Listing { prefix, versions, max, ..Listing::default() };
        let mut walk = Walk::default();
        // A walk may take hours, and its owner may have changed the rules meanwhile.
        while !self.stops() && self.is_asked_for(entry, bucket, action).await? {
            let page = self.performer.perform(self.site.list(bucket, listing.clone())).await?;
            let objects = page.objects.into_iter().map(|(key, meta)| ListedVersion {
                key,
                meta,
                is_latest: true,
                is_marker: false,
            });
            for version in objects.chain(page.versions) {
                let seen = walk.next(Some(version));
                self.act_on(bucket, action, seen).await?;
            }
            match page.next {
                Some(next) => (listing.after, listing.after_version) = (next, page.next_version),
                None => return self.act_on(bucket, action, walk.next(None)).await,
            }
        }
        Ok(())
    }

    async fn act_on(&self, bucket: &SharedBucket, action: &Action, seen: Option<Seen>) -> Result<(), Error> {
        let Some(seen) = seen else { return Ok(()) };
        let age = self.age();
        let done = match (action.due(age, &seen), action.moves_to(age, &seen)) {
            (Some(expiry), _) => {
                at_once(|moment| self.site.expire(bucket, (expiry, &seen), &action.tags, moment))
            }
            // Where a class is not, nothing goes; the rule was told of.
            (None, Some(class)) if self.site.has_class(bucket, class) => {
                at_once(|moment| self.site.transition(bucket, (class, &seen), &action.tags, moment))
            }
            _ => return Ok(()),
        };
        match self.performer.perform(done).await {
            Ok(_) => Ok(()),
            // Of one object no other depends.
            Err(e @ (Error::Damaged(_) | Error::Unexpected)) => {
                let name = String::from_utf8_lossy(&seen.key.name);
                tracing::warn!("an object does not expire or move, {name}: {e:?}");
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    async fn end_uploads(
        &self,
        entry: &LifecycleEntry,
        bucket: &SharedBucket,
        action: &Action,
    ) -> Result<(), Error> {
        let mut listing = Listing { prefix: action.prefix.clone(), max: PAGE, ..Listing::default() };
        while !self.stops() && self.is_asked_for(entry, bucket, action).await? {
            let page = self.performer.perform(self.site.uploads(bucket, listing.clone())).await?;
            for (key, meta) in page.objects {
                let upload =
                    UploadId::from_name(&key.name).filter(|_| action.ends_upload(self.age(), meta.mtime));
                let Some(upload) = upload else { continue };
                let ended = at_once(|moment| self.site.abort_upload(bucket, upload, moment));
                match self.performer.perform(ended).await {
                    Ok(()) | Err(Error::NoSuchUpload | Error::Raced) => {}
                    Err(e) => return Err(e),
                }
            }
            match page.next {
                Some(next) => listing.after = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Removes garbage that is due.
    pub async fn run_garbage(&self) {
        while !self.stops() {
            for shard in 0..GARBAGE_SHARDS {
                while !self.stops() {
                    match self.performer.perform(self.site.sweep_garbage(shard)).await {
                        Ok(swept) if swept.more => {}
                        Ok(_) => break,
                        Err(e) => {
                            tracing::warn!("garbage of gc.{shard} stays: {e:?}");
                            break;
                        }
                    }
                }
            }
            self.pause(SWEEP).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use rgw::Key;
    use rgw::index::Meta;

    use super::*;

    #[test]
    fn versions_are_judged_by_those_beside_them() {
        let version = |name: &'static str, sec| ListedVersion {
            key: Key::plain(name),
            meta: Meta { mtime: RealTime(Utime { sec, nsec: 0 }), ..Meta::default() },
            is_latest: false,
            is_marker: false,
        };
        let mut walk = Walk::default();
        let list = [version("a", 3), version("a", 2), version("b", 9), version("c", 5)];
        let seen = list.into_iter().map(Some).chain([None]).filter_map(|v| walk.next(v));
        let seen: Vec<_> = seen.map(|s| (s.key.name, s.newer.map(|t| t.0.sec), s.is_last)).collect();
        let want = [("a", None, false), ("a", Some(3), true), ("b", None, true), ("c", None, true)];
        assert_eq!(seen, want.map(|(name, newer, last)| (name.into(), newer, last)));
        assert_eq!(walk.next(None), None);
    }
}
