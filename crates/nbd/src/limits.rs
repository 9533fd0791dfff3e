//! What a peer may claim before it is believed.

/// The longest payload of a write and the longest read, in bytes; told to clients as the maximum block size.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// The longest option, in bytes: room for a name of 4096 bytes and many metadata queries.
pub const MAX_OPTION: u32 = 64 << 10;

/// The longest name of an export or metadata context, in bytes.
pub const MAX_NAME: usize = 4096;

/// Extents that one block status reply may carry.
pub const MAX_EXTENTS: usize = 4096;
