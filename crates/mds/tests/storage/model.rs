//! Objects in memory, and a rank's storage over them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use codec::Encode;
use mds::format::{LogEvent, NoOp};
use mds::storage::{Event, Mode, ObjectName, ObjectOp, Reply, Settings, StepResult, Storage};
use messages::osd::{Extent, OmapValsResponse, Op, StatResponse, op_flags};
use types::{Errno, Now, PoolId, SnapId, Utime};

pub const POOL: PoolId = PoolId(1);
pub const DATA: PoolId = PoolId(2);

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object {
    pub data: Vec<u8>,
    pub header: Bytes,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub xattrs: BTreeMap<String, Bytes>,
    pub truncate_seq: u32,
}

#[derive(Debug, Clone, Default)]
pub struct Objects(pub BTreeMap<ObjectName, Object>);

impl Objects {
    pub fn get(&self, name: &str) -> &Object {
        self.find(name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub fn find(&self, name: &str) -> Option<&Object> {
        self.0.get(&ObjectName::new(POOL, name))
    }

    pub fn get_mut(&mut self, name: &str) -> &mut Object {
        self.0.get_mut(&ObjectName::new(POOL, name)).expect("an object")
    }

    pub fn put(&mut self, name: &str, data: Vec<u8>) {
        self.0.insert(ObjectName::new(POOL, name), Object { data, ..Object::default() });
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(&ObjectName::new(POOL, name)).expect("an object");
    }

    pub fn execute(&mut self, op: &ObjectOp) -> Reply {
        let mut object = self.0.get(&op.object).cloned();
        let mut results = Vec::new();
        for step in &op.steps {
            let output = run(&mut object, &step.op, step.flags)?;
            results.push(StepResult { result: 0, output });
        }
        match object {
            Some(object) => drop(self.0.insert(op.object.clone(), object)),
            None => drop(self.0.remove(&op.object)),
        }
        Ok(results)
    }
}

fn run(object: &mut Option<Object>, op: &Op, flags: u32) -> Result<Bytes, Errno> {
    if let Some(output) = read(object.as_ref(), op) {
        return output;
    }
    match op {
        Op::Delete => return object.take().map(|_| Bytes::new()).ok_or(Errno::ENOENT),
        Op::Create if flags & op_flags::EXCL != 0 && object.is_some() => return Err(Errno::EEXIST),
        Op::Truncate(_) | Op::Zero(_) | Op::TrimTrunc(_) if object.is_none() => return Ok(Bytes::new()),
        _ => {}
    }
    let object = object.get_or_insert_default();
    match op {
        Op::Create => {}
        Op::Write { extent, data } => {
            let (at, end) = (extent.offset as usize, extent.end().expect("an end") as usize);
            assert!(end <= 4 << 20, "a write behind the object's end");
            object.data.resize(object.data.len().max(end), 0);
            object.data[at..end].copy_from_slice(data);
        }
        Op::WriteFull { data, .. } => object.data = data.to_vec(),
        Op::Truncate(Extent { offset, .. }) => object.data.resize(*offset as usize, 0),
        Op::Zero(Extent { offset, length, .. }) if offset + length >= object.data.len() as u64 => {
            object.data.truncate(*offset as usize);
        }
        Op::Zero(Extent { offset, length, .. }) => {
            object.data[*offset as usize..(offset + length) as usize].fill(0);
        }
        Op::TrimTrunc(extent) => {
            if extent.truncate_seq > object.truncate_seq {
                object.truncate_seq = extent.truncate_seq;
                object.data.truncate(extent.truncate_size as usize);
            }
        }
        Op::SetXattr { name, value } => drop(object.xattrs.insert(name.clone(), value.clone())),
        Op::OmapSetHeader { header } => object.header = header.clone(),
        Op::OmapSetVals { vals } => object.omap.extend(vals.clone()),
        Op::OmapRmKeys { keys } => object.omap.retain(|key, _| !keys.contains(key)),
        Op::OmapClear => {
            object.omap.clear();
            object.header = Bytes::new();
        }
        other => panic!("{other:?}"),
    }
    Ok(Bytes::new())
}

fn read(object: Option<&Object>, op: &Op) -> Option<Result<Bytes, Errno>> {
    let bytes = |of: &dyn Fn(&Object) -> Result<Bytes, Errno>| object.ok_or(Errno::ENOENT).and_then(of);
    Some(match op {
        Op::Read(extent) => bytes(&|o| {
            let at = (extent.offset as usize).min(o.data.len());
            let end =
                if extent.length == 0 { o.data.len() } else { (extent.offset + extent.length) as usize };
            Ok(Bytes::copy_from_slice(&o.data[at..end.min(o.data.len())]))
        }),
        Op::Stat => bytes(&|o| {
            Ok(StatResponse { size: o.data.len() as u64, mtime: Utime::new(o.data.len() as u32, 0) }
                .to_bytes())
        }),
        Op::GetXattr { name } => bytes(&|o| o.xattrs.get(name).cloned().ok_or(Errno::ENODATA)),
        Op::OmapGetHeader => bytes(&|o| Ok(o.header.clone())),
        Op::OmapGetValsByKeys { keys } => bytes(&|o| {
            let found: BTreeMap<_, _> = o
                .omap
                .iter()
                .filter(|(k, _)| keys.contains(*k))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            Ok(found.to_bytes())
        }),
        Op::OmapGetVals { start_after, max, .. } => bytes(&|o| {
            let mut rest =
                o.omap.iter().filter(|(k, _)| *k > start_after).map(|(k, v)| (k.clone(), v.clone()));
            let vals = rest.by_ref().take(*max as usize).collect();
            Ok(OmapValsResponse { vals, more: rest.next().is_some() }.to_bytes())
        }),
        _ => return None,
    })
}

/// A rank's storage over objects; operations wait until they are executed.
pub struct Bed {
    pub objects: Objects,
    pub storage: Storage,
    pub waiting: VecDeque<ObjectOp>,
    pub now: Now,
    /// What was told and not looked at yet.
    pub events: Vec<Event>,
    /// Operations that were executed.
    pub executed: usize,
}

impl Bed {
    pub fn over(objects: Objects) -> Self {
        Self::with(objects, Settings::default())
    }

    pub fn with(objects: Objects, settings: Settings) -> Self {
        let now = Now { mono: Duration::from_secs(100), wall: Utime::new(1_700_000_000, 0) };
        let storage = Storage::new(0, POOL, true, settings);
        Self { objects, storage, waiting: VecDeque::new(), now, events: Vec::new(), executed: 0 }
    }

    /// A rank that was made and writes its journal.
    pub fn fresh() -> Self {
        let mut bed = Self::over(Objects::default());
        bed.storage.create(bed.now, DATA, SnapId(0));
        assert_eq!(bed.run(), [Event::Created]);
        bed.started()
    }

    /// Opens, replays and writes.
    pub fn started(mut self) -> Self {
        self.open();
        self.storage.replay();
        self.run();
        self.storage.start_writing();
        let writeable = self.run();
        assert!(matches!(writeable[..], [Event::Writeable { .. }]), "{writeable:?}");
        self
    }

    pub fn open(&mut self) {
        self.storage.open(Mode::Active);
        let opened = self.run();
        assert!(matches!(opened[..], [Event::Opened(_)]), "{opened:?}");
    }

    /// Takes what storage wants and tells.
    pub fn collect(&mut self) {
        self.events.extend(self.storage.take_events());
        self.waiting.extend(self.storage.take_ops());
        self.storage.assert_invariants();
    }

    /// Executes the operation that waits at `at`, and hands the result over.
    pub fn step(&mut self, at: usize) {
        let op = self.waiting.remove(at).expect("an operation");
        let reply = self.objects.execute(&op);
        self.executed += 1;
        self.storage.done(self.now, op.id, reply);
        self.storage.flush(true, self.now);
        self.collect();
    }

    /// Executes everything, and answers what was told.
    pub fn run(&mut self) -> Vec<Event> {
        self.storage.flush(true, self.now);
        self.collect();
        while !self.waiting.is_empty() {
            self.step(0);
        }
        std::mem::take(&mut self.events)
    }

    /// Appends an entry of about `bytes` and answers where it ends.
    pub fn append(&mut self, n: u64, bytes: usize) -> u64 {
        let end = self.storage.append(&entry(n, bytes));
        self.storage.flush(true, self.now);
        self.collect();
        end
    }
}

/// An event that is told from others by its number.
pub fn entry(n: u64, bytes: usize) -> LogEvent {
    let mut what = n.to_le_bytes().to_vec();
    what.resize(bytes.max(8), b'x');
    LogEvent::Update(mds::format::Update { what: what.into(), ..mds::format::Update::default() })
}

/// The number of such an event; `None` for others.
pub fn number(event: &LogEvent) -> Option<u64> {
    match event {
        LogEvent::Update(update) => update.what.get(..8)?.try_into().ok().map(u64::from_le_bytes),
        _ => None,
    }
}

/// Reads the journal as the next server does: the numbers of its entries, or how it failed.
pub fn replayed(objects: Objects) -> (Vec<u64>, Vec<Event>) {
    let mut bed = Bed::over(objects);
    bed.open();
    bed.storage.replay();
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    for event in bed.run() {
        match event {
            Event::Replayed { event, .. } => numbers.extend(number(&event)),
            other => others.push(other),
        }
    }
    (numbers, others)
}

/// An event without anything in it.
pub fn noop() -> LogEvent {
    LogEvent::NoOp(NoOp::default())
}

/// A small generator, so that a failure comes again.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }
}
