//! What a bucket refuses to make public, whatever its grants and policy say. Source:
//! src/rgw/rgw_public_access.h.

use codec::wire_struct;

/// The attribute `user.rgw.public-access`. Source: PublicAccessBlockConfiguration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublicAccessBlock {
    pub block_acls: bool,
    pub ignore_acls: bool,
    pub block_policy: bool,
    pub restrict_buckets: bool,
}
wire_struct!(PublicAccessBlock(1, 1) { block_acls, ignore_acls, block_policy, restrict_buckets });
