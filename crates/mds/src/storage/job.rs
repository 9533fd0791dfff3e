//! Requests that are one operation or several, and how they end.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Decode;
use messages::fs::FileLayout;
use messages::osd::{Extent, Op, StatResponse};
use types::{Errno, Ino, SnapContext, Utime};

use super::desk::{Desk, Owner};
use super::event::{Event, StorageError, Tag};
use super::object::{ObjectName, ObjectSteps, Reply, StepResult};
use super::striping::Stripes;
use crate::format::{DirFrag, names};

/// An operation of a job. `place`: the number of a file's object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobOp {
    job: u64,
    place: u64,
    object: ObjectName,
}

/// What is told when a job ends.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// `Done`, or `Failed`.
    Done(Tag),
    /// `Done`; without success the rank cannot go on.
    Must(Tag),
    Committed(Tag, DirFrag),
    Removed(Tag, DirFrag),
    BaseInode(Tag),
    Backtrace(Tag),
    Probed(Tag, u64, Utime),
    /// An item of the purge queue, by its position.
    Purged(u64),
    /// What a former attempt left is gone.
    Cleared,
    Created,
}

/// How a job ended, for those that are nobody else's.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ended {
    Told(Event),
    Purged(u64, Option<StorageError>),
    Cleared,
}

/// What is done with each object of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Each {
    Remove,
    /// The file is cut to `size`.
    Truncate {
        size: u64,
        seq: u32,
    },
    Stat,
}

/// A run of objects of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FileRange {
    pub(super) ino: Ino,
    pub(super) layout: FileLayout,
    pub(super) stripes: Stripes,
    pub(super) snaps: SnapContext,
    pub(super) next: u64,
    pub(super) end: u64,
    pub(super) each: Each,
    /// Operations under way at most.
    pub(super) at_once: usize,
}

impl FileRange {
    fn object(&self, no: u64) -> ObjectName {
        object_of(&self.layout, self.ino, no)
    }

    /// `None`: nothing is to be done with this object.
    fn step(&self, no: u64) -> Option<Op> {
        Some(match self.each {
            Each::Remove => Op::Delete,
            Each::Stat => Op::Stat,
            Each::Truncate { size, seq } => {
                let left = self.stripes.size_in_object(no, size);
                if left == self.stripes.size_in_object(no, u64::MAX) {
                    return None;
                }
                Op::TrimTrunc(Extent { offset: 0, length: 0, truncate_size: left, truncate_seq: seq })
            }
        })
    }
}

/// An object of a file.
pub(super) fn object_of(layout: &FileLayout, ino: Ino, no: u64) -> ObjectName {
    ObjectName {
        pool: layout.pool,
        nspace: layout.pool_ns.as_str().into(),
        name: names::object(ino, no).into(),
    }
}

#[derive(Debug)]
struct Job {
    waiting: usize,
    range: Option<FileRange>,
    /// That an object is not there is as good as success.
    absent_is_fine: bool,
    error: Option<StorageError>,
    output: Bytes,
    end: End,
}

/// Jobs under way.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    last: u64,
    jobs: BTreeMap<u64, Job>,
    ended: Vec<Ended>,
}

impl Jobs {
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Operations that all have to be done, in any order but for those on the same object.
    pub(super) fn start(&mut self, desk: &mut Desk, end: End, absent_is_fine: bool, ops: Vec<ObjectSteps>) {
        self.start_all(desk, end, absent_is_fine, ops, None);
    }

    /// The same with a file's objects.
    pub(super) fn start_all(
        &mut self,
        desk: &mut Desk,
        end: End,
        absent_is_fine: bool,
        ops: Vec<ObjectSteps>,
        range: Option<FileRange>,
    ) {
        self.last += 1;
        let id = self.last;
        let waiting = ops.len();
        for (object, snaps, steps) in ops {
            let owner = Owner::Job(JobOp { job: id, place: 0, object: object.clone() });
            desk.send_with(owner, object, snaps, None, steps);
        }
        let job = Job { waiting, range, absent_is_fine, error: None, output: Bytes::new(), end };
        self.jobs.insert(id, job);
        self.go_on(id, desk);
    }

    pub(super) fn done(&mut self, op: JobOp, reply: Reply, desk: &mut Desk) {
        let Some(job) = self.jobs.get_mut(&op.job) else { return };
        job.waiting -= 1;
        match reply {
            Ok(steps) => job.take(op.place, steps),
            Err(Errno::ENOENT) if job.absent_is_fine => {}
            Err(errno) => {
                let object = op.object.name.to_string();
                let is_read = matches!(job.end, End::BaseInode(_) | End::Backtrace(_) | End::Committed(..));
                job.error.get_or_insert(match errno {
                    Errno::ENOENT if is_read => StorageError::Missing { object },
                    errno => StorageError::Os { object, errno },
                });
            }
        }
        self.go_on(op.job, desk);
    }

    /// Sends what may be sent; ends the job if nothing is left.
    fn go_on(&mut self, id: u64, desk: &mut Desk) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.feed(id, desk);
        if job.waiting == 0 {
            if let Some(job) = self.jobs.remove(&id) {
                self.ended.push(job.finish());
            }
        }
    }
}

impl Job {
    fn feed(&mut self, id: u64, desk: &mut Desk) {
        let Some(range) = &mut self.range else { return };
        // A purge does what it can; anything else stops at the first error.
        if self.error.is_some() && !matches!(self.end, End::Purged(_)) {
            return;
        }
        while range.next < range.end && self.waiting < range.at_once {
            let no = range.next;
            range.next += 1;
            let Some(step) = range.step(no) else { continue };
            let object = range.object(no);
            let owner = Owner::Job(JobOp { job: id, place: no, object: object.clone() });
            self.waiting += 1;
            desk.send_with(owner, object, range.snaps.clone(), None, vec![step.into()]);
        }
    }

    /// What a step brought, of jobs that read.
    fn take(&mut self, place: u64, steps: Vec<StepResult>) {
        let Some(step) = steps.into_iter().next() else { return };
        match &mut self.end {
            End::BaseInode(_) | End::Backtrace(_) => self.output = step.output,
            End::Probed(_, size, mtime) => {
                let (Some(range), Ok(stat)) = (&self.range, StatResponse::from_bytes(step.output)) else {
                    return;
                };
                if stat.size > 0 {
                    *size = (*size).max(range.stripes.end_of_file(place, stat.size));
                    *mtime = (*mtime).max(stat.mtime);
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Ended {
        let Self { error, output, end, .. } = self;
        let told = match (end, error) {
            (End::Purged(at), error) => return Ended::Purged(at, error),
            (End::Cleared, None) => return Ended::Cleared,
            (End::Done(tag), Some(error)) | (End::Probed(tag, ..), Some(error)) => {
                Event::Failed { tag, error }
            }
            (End::BaseInode(tag), Some(error)) => Event::BaseInode { tag, result: Err(error) },
            (End::Backtrace(tag), Some(error)) => Event::Backtrace { tag, result: Err(error) },
            (_, Some(error)) => Event::Fatal(error),
            (End::Done(tag) | End::Must(tag), None) => Event::Done { tag },
            (End::Committed(tag, dir), None) => Event::DirCommitted { tag, dir },
            (End::Removed(tag, dir), None) => Event::DirRemoved { tag, dir },
            (End::Probed(tag, size, mtime), None) => Event::Probed { tag, size, mtime },
            (End::BaseInode(tag), None) => {
                Event::BaseInode { tag, result: decoded("inode", output).map(Box::new) }
            }
            (End::Backtrace(tag), None) => {
                Event::Backtrace { tag, result: decoded("backtrace", output).map(Box::new) }
            }
            (End::Created, None) => Event::Created,
        };
        Ended::Told(told)
    }
}

fn decoded<T: Decode>(object: &str, bytes: Bytes) -> Result<T, StorageError> {
    T::from_bytes(bytes).map_err(|error| StorageError::Damaged { object: object.to_owned(), error })
}
