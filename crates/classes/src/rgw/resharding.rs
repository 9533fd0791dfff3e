//! Whether a bucket index moves to other shards: writers are held off as long.

use bytes::Bytes;
use codec::wire_struct;
use types::Errno;

use super::header::{Header, InOmap, Resharding};
use crate::ObjectView;
use crate::registry::{Done, input};
use crate::wire::EmptyEnvelope;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetArgs {
    pub resharding: Resharding,
}
wire_struct!(SetArgs(1, 1) { resharding });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardArgs {
    /// What a caller is answered meanwhile.
    pub result: i32,
}
wire_struct!(GuardArgs(1, 1) { result });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetReply {
    pub resharding: Resharding,
}
wire_struct!(GetReply(1, 1) { resharding });

pub(super) fn set(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    let header = Header::load(v)?;
    Header { resharding: args.resharding, ..header }.save(v)
}

/// The number of shards stays as it was set.
pub(super) fn clear(v: &mut dyn ObjectView, _: EmptyEnvelope) -> Result<Done, Errno> {
    let mut header = Header::load(v)?;
    header.resharding = Resharding { shards: header.resharding.shards, ..Resharding::default() };
    header.save(v)
}

/// Answers what the caller gave while the bucket is being resharded, or was.
pub(super) fn guard(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: GuardArgs = input(bytes)?;
    match Header::load(v)?.resharding.status {
        0 => Ok(0),
        _ if args.result >= 0 => Ok(args.result),
        _ => Err(args.result.checked_neg().map_or(Errno::EINVAL, Errno)),
    }
}

pub(super) fn get(v: &mut dyn ObjectView, _: EmptyEnvelope) -> Result<GetReply, Errno> {
    Ok(GetReply { resharding: Header::load(v)?.resharding })
}
