//! Why bytes from a peer or a disk were not accepted.

/// Decoding failed; the bytes are the peer's (or the medium's) fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the value needs.
    #[error("short buffer: needs {needed} bytes, {left} left")]
    Short { needed: u64, left: u64 },
    /// A count or length above what the rest of the buffer, or the stated cap, can hold.
    #[error("{what}: {claimed} is above the bound {bound}")]
    TooLarge { what: &'static str, claimed: u64, bound: u64 },
    /// The value needs a newer reader.
    #[error("{what}: needs a reader of version {compat}, this one is version {ours}")]
    Incompatible { what: &'static str, compat: u8, ours: u8 },
    /// A field holds a value that the type does not have.
    #[error("{what}: invalid value {value:#x}")]
    Invalid { what: &'static str, value: u64 },
    /// A string that is not UTF-8 where the type asks for text.
    #[error("{what}: not UTF-8")]
    NotUtf8 { what: &'static str },
}
