//! An entry of the journal: an event with its kind.
//!
//! Source: src/mds/LogEvent.h, src/mds/LogEvent.cc. Kind 11 (sessions without an envelope) and entries
//! without a wrapper are not read.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

use super::blob::MetaBlob;
use super::events::{
    Committed, Export, Fragment, ImportFinish, ImportStart, NoOp, Opened, PeerUpdate, Purged, ResetJournal,
    SessionEvent, Sessions, SubtreeMap, TableClient, TableServer, Update,
};

/// Stands in front of the wrapper, where a kind stood once. Source: EVENT_NEW_ENCODING.
const WRAPPED: u32 = 0;

macro_rules! log_events {
    ($( $(#[$doc:meta])* $kind:literal $name:ident($t:ty) $word:literal ),+ $(,)?) => {
        /// An event of the journal.
        #[derive(Debug, Clone, PartialEq)]
        pub enum LogEvent {
            $( $(#[$doc])* $name($t), )+
        }

        impl LogEvent {
            /// Its number. Source: EVENT_*.
            pub fn kind(&self) -> u32 {
                match self {
                    $( Self::$name(_) => $kind, )+
                }
            }

            /// As tools print the kind.
            pub fn kind_str(&self) -> &'static str {
                match self {
                    $( Self::$name(_) => $word, )+
                }
            }

            fn encode_body(&self, w: &mut Writer) {
                match self {
                    $( Self::$name(event) => event.encode(w), )+
                }
            }

            fn decode_body(kind: u32, r: &mut Reader) -> Result<Self, DecodeError> {
                match kind {
                    $( $kind => Decode::decode(r).map(Self::$name), )+
                    _ => Err(DecodeError::Invalid { what: "kind of a log event", value: kind.into() }),
                }
            }
        }
    };
}
log_events! {
    2 SubtreeMap(SubtreeMap) "SUBTREEMAP",
    3 Export(Export) "EXPORT",
    4 ImportStart(ImportStart) "IMPORTSTART",
    5 ImportFinish(ImportFinish) "IMPORTFINISH",
    6 Fragment(Fragment) "FRAGMENT",
    9 ResetJournal(ResetJournal) "RESETJOURNAL",
    10 Session(SessionEvent) "SESSION",
    12 Sessions(Sessions) "SESSIONS",
    20 Update(Update) "UPDATE",
    21 PeerUpdate(PeerUpdate) "PEERUPDATE",
    22 Opened(Opened) "OPEN",
    23 Committed(Committed) "COMMITTED",
    24 Purged(Purged) "PURGED",
    42 TableClient(TableClient) "TABLECLIENT",
    43 TableServer(TableServer) "TABLESERVER",
    /// Written with every event when a server checks its own replay (`mds_debug_subtrees`).
    50 SubtreeMapTest(SubtreeMap) "SUBTREEMAP_TEST",
    51 NoOp(NoOp) "NOOP",
}

impl LogEvent {
    /// The metadata in it, of those kinds that have any.
    pub fn metadata(&self) -> Option<&MetaBlob> {
        Some(match self {
            Self::SubtreeMap(e) | Self::SubtreeMapTest(e) => &e.metadata,
            Self::Export(e) => &e.metadata,
            Self::ImportStart(e) => &e.metadata,
            Self::Fragment(e) => &e.metadata,
            Self::Update(e) => &e.metadata,
            Self::PeerUpdate(e) => &e.commit,
            Self::Opened(e) => &e.metadata,
            Self::ImportFinish(_)
            | Self::ResetJournal(_)
            | Self::Session(_)
            | Self::Sessions(_)
            | Self::Committed(_)
            | Self::Purged(_)
            | Self::TableClient(_)
            | Self::TableServer(_)
            | Self::NoOp(_) => return None,
        })
    }
}

impl Encode for LogEvent {
    fn encode(&self, w: &mut Writer) {
        w.u32(WRAPPED);
        w.envelope(1, 1, |w| {
            w.u32(self.kind());
            self.encode_body(w);
        });
    }
}
/// From a whole entry: bytes behind the event are an error.
impl Decode for LogEvent {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let wrapped = r.u32()?;
        if wrapped != WRAPPED {
            return Err(DecodeError::Invalid { what: "log event of old", value: wrapped.into() });
        }
        let all_read = |r: &Reader| match r.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Invalid { what: "bytes behind a log event", value: left as u64 }),
        };
        let event = r.envelope("LogEvent", 1, |r, _| {
            let kind = r.u32()?;
            let event = Self::decode_body(kind, r)?;
            all_read(r).map(|()| event)
        })?;
        all_read(r).map(|()| event)
    }
}
