//! Requests to RADOS, and what comes back: some operations on one object, done together or not at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use classes::client::Procedure;
use codec::{Decode, Encode};
use rgw::RawObject;
use types::{Errno, RealTime};

use crate::Error;

/// An operation on an object. As in RADOS, what reads sees what was there before the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Stat,
    /// Length 0 means to the end.
    Read {
        offset: u64,
        length: u64,
    },
    Attrs,
    /// Entries behind `after`.
    OmapList {
        after: Bytes,
        max: u64,
    },
    /// A method that fails as `tolerated` says fails no request: its output counts, and it is the last.
    Call {
        class: &'static str,
        method: &'static str,
        input: Bytes,
        tolerated: Option<Errno>,
    },
    /// ECANCELED unless the attribute has this value. One that is not there is as an empty one.
    AttrIs {
        name: Bytes,
        value: Bytes,
    },
    /// ECANCELED unless the attribute's text is this number, or less where it may be. No text is 0.
    NumberIs {
        name: Bytes,
        value: u64,
        or_less: bool,
    },
    /// EEXIST where the object exists and this is exclusive.
    Create {
        exclusive: bool,
    },
    /// That there was none is no failure where it `may_miss`.
    Remove {
        may_miss: bool,
    },
    WriteFull(Bytes),
    /// Behind what is there.
    Append(Bytes),
    SetAttr {
        name: Bytes,
        value: Bytes,
    },
    RemoveAttr(Bytes),
    OmapSet(BTreeMap<Bytes, Bytes>),
    /// Tells whoever watches the object.
    Notify(Bytes),
}

/// A pool that is not there yet is made by whoever performs the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub object: RawObject,
    pub ops: Vec<Op>,
    /// When the object was changed; nothing for the time of the request.
    pub mtime: Option<RealTime>,
}

impl Request {
    pub fn new(object: RawObject) -> Self {
        Self { object, ops: Vec::new(), mtime: None }
    }

    pub fn at(mut self, mtime: RealTime) -> Self {
        self.mtime = Some(mtime);
        self
    }

    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    pub fn call<A: Encode, R: Decode>(self, procedure: &Procedure<A, R>, args: &A) -> Self {
        let (class, method) = (procedure.class, procedure.method);
        self.op(Op::Call { class, method, input: procedure.input(args), tolerated: None })
    }

    /// A call that answers also when it fails with an error.
    pub fn call_or<A: Encode, R: Decode>(self, procedure: &Procedure<A, R>, args: &A, error: Errno) -> Self {
        let (class, method) = (procedure.class, procedure.method);
        self.op(Op::Call { class, method, input: procedure.input(args), tolerated: Some(error) })
    }

    pub fn set_attr(self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.op(Op::SetAttr { name: name.into(), value: value.into() })
    }
}

/// What one operation gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Nothing,
    Stat {
        size: u64,
        mtime: RealTime,
    },
    /// What was read, or what a method answered.
    Data(Bytes),
    Attrs(BTreeMap<Bytes, Bytes>),
    Page {
        entries: Vec<(Bytes, Bytes)>,
        more: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Number of the object's pool.
    pub pool: i64,
    /// The object's version behind the request.
    pub version: u64,
    /// One for each operation.
    pub outputs: Vec<Output>,
}

impl Reply {
    pub fn data(&self, op: usize) -> Result<Bytes, Error> {
        match self.outputs.get(op) {
            Some(Output::Data(data)) => Ok(data.clone()),
            _ => Err(Error::Unexpected),
        }
    }

    pub fn attrs(&self, op: usize) -> Result<BTreeMap<Bytes, Bytes>, Error> {
        match self.outputs.get(op) {
            Some(Output::Attrs(attrs)) => Ok(attrs.clone()),
            _ => Err(Error::Unexpected),
        }
    }

    /// Size and time of the last change.
    pub fn stat(&self, op: usize) -> Result<(u64, RealTime), Error> {
        match self.outputs.get(op) {
            Some(Output::Stat { size, mtime }) => Ok((*size, *mtime)),
            _ => Err(Error::Unexpected),
        }
    }

    /// What a method answered.
    pub fn answer<A: Encode, R: Decode>(&self, op: usize, procedure: &Procedure<A, R>) -> Result<R, Error> {
        Ok(procedure.output(self.data(op)?)?)
    }
}
