//! A cluster in memory for tests: objects on which the product's own class methods run.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use classes::ObjectView;
use classes::fake::{Fake, FakeObject};
use codec::Decode;
use rgw::{Notice, RawObject, Zone};
use types::{Errno, RealTime, SeededEntropy, Utime};

use crate::{Moment, Op, Output, Plan, Rados, Reply, Request, Site};

/// What somebody else does between two steps.
type Meanwhile = Box<dyn FnOnce(&mut Cluster)>;

#[derive(Default)]
pub struct Cluster {
    objects: BTreeMap<(Bytes, Bytes), Fake>,
    version: u64,
    /// Pools in the order in which they were first used.
    pools: Vec<Bytes>,
    /// Requests that changed something, in order.
    pub done: Vec<Request>,
    pub notices: Vec<Notice>,
    /// Requests that are still performed: behind them the gateway is dead.
    pub left: Option<usize>,
    /// The answer to one request is lost.
    pub lost: Option<Lost>,
    late: Option<Request>,
    /// Calls of this method fail so.
    pub refuse: Option<(&'static str, Errno)>,
    /// What others do while somebody waits, once.
    pub meanwhile: Option<Meanwhile>,
}

/// A request of which no answer comes.
#[derive(Debug, Clone, Copy)]
pub struct Lost {
    /// Requests before it.
    pub after: usize,
    /// It is not carried out at once, but later.
    pub is_late: bool,
}

fn place(object: &RawObject) -> (Bytes, Bytes) {
    (object.pool.to_text(), object.oid.clone())
}

/// An attribute that is compared: one that is not there is as an empty one.
fn attr(fake: &mut Fake, name: &[u8]) -> Result<Bytes, Errno> {
    match fake.xattr(name) {
        Err(Errno::ENODATA) => Ok(Bytes::new()),
        found => found,
    }
}

impl Cluster {
    pub fn get(&self, pool: &str, oid: &str) -> Option<&FakeObject> {
        self.objects.get(&(pool.to_owned().into(), oid.to_owned().into()))?.object.as_ref()
    }

    /// Names of all objects of a pool.
    pub fn names(&self, pool: &str) -> Vec<String> {
        let there = self.objects.iter().filter(|((p, _), fake)| *p == pool && fake.object.is_some());
        there.map(|((_, oid), _)| String::from_utf8_lossy(oid).into_owned()).collect()
    }

    /// Lets seconds pass on all OSDs.
    pub fn pass(&mut self, seconds: u32) {
        self.objects.values_mut().for_each(|fake| fake.now.sec += seconds);
    }

    /// Carries out what was handed in and is late.
    pub fn catch_up(&mut self) {
        self.late.take().map(|request| self.perform(request));
    }

    fn run(
        fake: &mut Fake,
        writes: bool,
        op: &Op,
        mtime: Utime,
        notices: &mut Vec<Notice>,
    ) -> Result<Output, Errno> {
        let reads = matches!(op, Op::Stat | Op::Read { .. } | Op::Attrs | Op::OmapList { .. });
        if reads && fake.object.is_none() {
            return Err(Errno::ENOENT);
        }
        match op.clone() {
            Op::Stat => {
                let size = fake.object.as_ref().map_or(0, |o| o.data.len() as u64);
                return Ok(Output::Stat { size, mtime: RealTime(fake.mtime) });
            }
            Op::Read { offset, length } => return fake.read(offset, length).map(Output::Data),
            Op::Attrs => return fake.xattrs().map(Output::Attrs),
            Op::OmapList { after, max } => {
                let (entries, more) = fake.omap_list(&after, b"", max)?;
                return Ok(Output::Page { entries, more });
            }
            Op::Call { class, method, input, tolerated } => {
                let method = classes::find(class, method).map_err(|_| Errno::EOPNOTSUPP)?;
                if fake.object.is_none() && !writes {
                    return Err(Errno::ENOENT);
                }
                let mut out = Bytes::new();
                if let Err(e) = (method.run)(fake, &input, &mut out) {
                    return if tolerated == Some(e) { Ok(Output::Data(out)) } else { Err(e) };
                }
                if method.flags.write {
                    fake.mtime = mtime;
                }
                return Ok(Output::Data(out));
            }
            Op::AttrIs { name, value } => {
                let is_it = attr(fake, &name)? == value;
                return if is_it { Ok(Output::Nothing) } else { Err(Errno::ECANCELED) };
            }
            Op::NumberIs { name, value, or_less } => {
                let known: u64 = std::str::from_utf8(&attr(fake, &name)?).unwrap().parse().unwrap_or(0);
                let is_it = known == value || (or_less && known < value);
                return if is_it { Ok(Output::Nothing) } else { Err(Errno::ECANCELED) };
            }
            Op::Create { exclusive } => fake.create(exclusive)?,
            Op::Remove { may_miss } => {
                if fake.changed().take().is_none() && !may_miss {
                    return Err(Errno::ENOENT);
                }
            }
            Op::WriteFull(data) => fake.write_full(data)?,
            Op::Append(data) => {
                let known = fake.object.as_ref().map(|o| o.data.clone()).unwrap_or_default();
                fake.write_full([&known[..], &data].concat().into())?;
            }
            Op::SetAttr { name, value } => fake.set_xattr(&name, value)?,
            Op::RemoveAttr(name) => {
                let object = fake.changed().as_mut().ok_or(Errno::ENOENT)?;
                object.attrs.remove(&name);
            }
            Op::OmapSet(entries) => fake.omap_set(entries)?,
            Op::Notify(payload) => notices.push(Notice::from_bytes(payload).unwrap()),
        }
        fake.mtime = mtime;
        Ok(Output::Nothing)
    }
}

impl Rados for Cluster {
    fn wait(&mut self, time: Duration) {
        self.pass(u32::try_from(time.as_secs()).unwrap());
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile(self);
        }
    }

    fn perform(&mut self, request: Request) -> Result<Reply, Errno> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(Errno::ESHUTDOWN)?;
        }
        match self.lost {
            Some(Lost { after: 0, is_late }) => {
                self.lost = None;
                match is_late {
                    true => self.late = Some(request),
                    false => drop(self.perform(request)),
                }
                return Err(Errno::ETIMEDOUT);
            }
            Some(Lost { after, is_late }) => self.lost = Some(Lost { after: after - 1, is_late }),
            None => {}
        }
        if let Some((refused, e)) = self.refuse {
            let is = |op: &Op| matches!(op, Op::Call { method, .. } if *method == refused);
            if request.ops.iter().any(is) {
                return Err(e);
            }
        }
        let at = place(&request.object);
        let pool = self.pools.iter().position(|p| *p == request.object.pool.name).unwrap_or_else(|| {
            self.pools.push(request.object.pool.name.clone());
            self.pools.len() - 1
        });
        // Methods that read run without an object, in a request that writes.
        let writes = request.ops.iter().any(|op| match op {
            Op::Call { class, method, .. } => classes::find(class, method).is_ok_and(|m| m.flags.write),
            Op::Stat | Op::Read { .. } | Op::Attrs | Op::OmapList { .. } => false,
            Op::AttrIs { .. } | Op::NumberIs { .. } => false,
            _ => true,
        });
        let fake = self.objects.entry(at).or_default();
        let (before, mtime) = (fake.object.clone(), fake.mtime);
        fake.begin();
        let (mut outputs, mut notices) = (Vec::new(), Vec::new());
        let wanted = request.mtime.map_or(fake.now, |RealTime(mtime)| mtime);
        for op in &request.ops {
            match Self::run(fake, writes, op, wanted, &mut notices) {
                Ok(output) => outputs.push(output),
                Err(e) => {
                    fake.mtime = mtime;
                    return Err(e);
                }
            }
        }
        fake.commit();
        self.notices.extend(notices);
        self.version += 1;
        if fake.object != before {
            self.done.push(request);
        }
        Ok(Reply { pool: pool as i64 + 1, version: self.version, outputs })
    }
}

/// A zone as radosgw makes it where there is none.
pub fn site() -> Site {
    Site {
        zone: Zone::new("zone-id".into(), "default".into()).into(),
        zonegroup: "group-id".into(),
        default_placement: rgw::PlacementRule::named("default-placement"),
        shards: 11,
        instance: 4161,
    }
}

pub const NOW: RealTime = RealTime(Utime { sec: 1_700_000_000, nsec: 5 });

/// Runs what an operation plans at `NOW`.
pub fn run<T: Send + 'static>(
    cluster: &mut Cluster,
    plan: impl FnOnce(&mut Moment) -> Plan<T>,
) -> Result<T, crate::Error> {
    let mut entropy = SeededEntropy(cluster.version);
    plan(&mut Moment { now: NOW, entropy: &mut entropy }).run(cluster)
}
