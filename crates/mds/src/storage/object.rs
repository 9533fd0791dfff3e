//! Operations on objects that storage asks for, and what they brought.

use bytes::Bytes;
use messages::osd::{Op, OpResult, OsdOp, flags};
use objecter::OpRequest;
use types::{Errno, HObject, Name, PoolId, SnapContext, SnapId, Utime};

/// The name of one operation on an object; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub pool: PoolId,
    pub nspace: Name,
    pub name: Name,
}

impl ObjectName {
    /// An object without a namespace, as all of the metadata pool are.
    pub fn new(pool: PoolId, name: impl Into<Name>) -> Self {
        Self { pool, nspace: Name::new(), name: name.into() }
    }
}

/// What is to be done with an object.
pub(super) type ObjectSteps = (ObjectName, SnapContext, Vec<Step>);

/// One step of an operation, with flags of its own (`messages::osd::op_flags`).
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub op: Op,
    pub flags: u32,
}

impl From<Op> for Step {
    fn from(op: Op) -> Self {
        Self { op, flags: 0 }
    }
}

/// An operation on one object: its steps happen together or not at all. Operations on the same object are
/// executed in the order in which they were handed out.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectOp {
    pub id: OpId,
    pub object: ObjectName,
    /// With which the object is changed.
    pub snaps: SnapContext,
    /// The time of the change; `None`: that of the submission.
    pub mtime: Option<Utime>,
    pub steps: Vec<Step>,
}

impl ObjectOp {
    /// The request for an objecter. It is made also while the pool is full: a metadata server must be able to
    /// remove. Source: Objecter's CEPH_OSD_FLAG_FULL_FORCE of metadata servers (`honor_pool_full` off).
    pub fn into_request(self) -> OpRequest {
        let ops = self.steps.into_iter().map(|step| {
            let mut op = OsdOp::from(step.op);
            op.flags |= step.flags;
            op
        });
        let ops: Vec<OsdOp> = ops.collect();
        let is_write = ops.iter().any(|op| op.code.is_write());
        OpRequest {
            object: HObject {
                pool: self.object.pool,
                hash: 0,
                nspace: self.object.nspace,
                key: Name::new(),
                name: self.object.name,
                snap: SnapId::HEAD,
                max: false,
            },
            ops,
            flags: if is_write { flags::WRITE | flags::FULL_FORCE } else { flags::READ },
            snapc: self.snaps,
            mtime: self.mtime,
            timeout: None,
        }
    }
}

/// What a step brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepResult {
    /// 0 or more, or a negated errno.
    pub result: i32,
    pub output: Bytes,
}

/// What an operation brought: results by step, or why it failed as a whole.
pub type Reply = Result<Vec<StepResult>, Errno>;

/// The reply that an objecter's answer is.
pub fn reply_of(reply: objecter::OpReply) -> Reply {
    if reply.result < 0 {
        return Err(Errno(reply.result.saturating_neg()));
    }
    Ok(reply.ops.into_iter().map(OpResult::joined).map(step_result).collect())
}

fn step_result(op: OpResult) -> StepResult {
    StepResult { result: op.rval, output: op.outdata }
}
