//! One export: what a client is told of an image.

use crate::wire::transmission as flag;

/// An export as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The name clients ask for; the empty name means the only export when there is one alone.
    pub name: String,
    /// A line for people, shown by `nbdinfo --list`.
    pub description: String,
    /// Bytes.
    pub size: u64,
    pub read_only: bool,
    /// Whether a flush on one connection covers writes that completed on the others.
    pub multi_conn: bool,
    /// The preferred size of a request, in bytes; a power of two.
    pub preferred_block: u32,
}

impl Export {
    /// The transmission flags; DF only means something to clients with structured replies.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_CACHE;
        if self.read_only {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::SEND_FUA | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES;
        }
        if self.multi_conn {
            flags |= flag::CAN_MULTI_CONN;
        }
        if structured {
            flags |= flag::SEND_DF;
        }
        flags
    }
}

/// The position of the export a client means.
pub fn find(exports: &[Export], name: &str) -> Option<usize> {
    if name.is_empty() && exports.len() == 1 {
        return Some(0);
    }
    exports.iter().position(|e| e.name == name)
}
