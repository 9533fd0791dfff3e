//! What one operation answers.

use bytes::Bytes;
use codec::DecodeError;
use store::{ReadPlan, StoreError};
use types::Errno;

use super::ExecStop;
use crate::object::LoadError;

/// An operation's result and output. The result may be an error that comes with output (class methods).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    /// `None` leaves the result of the operation before it in place: Ceph's loop resets it in some operations only,
    /// and clients see that.
    pub rval: Option<i32>,
    pub data: Bytes,
    /// What follows `data`.
    pub more: Vec<Bytes>,
}

impl Answer {
    /// Success without output.
    pub fn done() -> Self {
        Self::of(0, Bytes::new())
    }

    /// Success with output.
    pub fn data(data: Bytes) -> Self {
        Self::of(0, data)
    }

    /// Output beside the result of the operation before.
    pub fn kept(data: Bytes) -> Self {
        Self { rval: None, data, more: Vec::new() }
    }

    pub fn of(rval: i32, data: Bytes) -> Self {
        Self { rval: Some(rval), data, more: Vec::new() }
    }

    /// Success with output in pieces.
    pub fn pieces(pieces: Vec<Bytes>) -> Self {
        let mut pieces = pieces.into_iter();
        let data = pieces.next().unwrap_or_default();
        Self { rval: Some(0), data, more: pieces.collect() }
    }

    /// The output as one buffer.
    pub fn joined(mut self) -> Bytes {
        if self.more.is_empty() {
            return self.data;
        }
        self.more.insert(0, self.data);
        self.more.concat().into()
    }

    /// Bytes of the output.
    pub fn len(&self) -> usize {
        self.data.len() + self.more.iter().map(Bytes::len).sum::<usize>()
    }
}

/// Why an operation failed: an errno for its result, or a stop for the whole request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OpError {
    Errno(Errno),
    /// It did not fail: the request's slice is over in the middle of it.
    SliceOver,
    /// It did not fail: the device has this to read first.
    OnDevice(Box<ReadPlan>),
    Stop(Box<ExecStop>),
}

pub(crate) type Outcome = Result<Answer, OpError>;

impl From<Errno> for OpError {
    fn from(e: Errno) -> Self {
        Self::Errno(e)
    }
}
impl From<ExecStop> for OpError {
    fn from(e: ExecStop) -> Self {
        Self::Stop(Box::new(e))
    }
}
impl From<StoreError> for OpError {
    fn from(e: StoreError) -> Self {
        ExecStop::Store(e).into()
    }
}
impl From<LoadError> for OpError {
    fn from(e: LoadError) -> Self {
        ExecStop::Load(e).into()
    }
}
/// Malformed arguments are the client's fault.
impl From<DecodeError> for OpError {
    fn from(_: DecodeError) -> Self {
        Self::Errno(Errno::EINVAL)
    }
}
