//! What every message has in common: its numbers, and how its segments are written and read.

use bytes::{Bytes, BytesMut};
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::wire::priority;
use crate::{Header, WireMessage};

/// One kind of message.
pub trait Payload: Sized {
    /// Its number on the wire.
    const TYPE: u16;
    /// The name that Ceph's logs use.
    const NAME: &'static str;
    /// The form we write, and the newest that we read whole.
    const VERSION: u16;
    /// The oldest reader that understands what we write.
    const COMPAT: u16;
    const PRIORITY: u16 = priority::DEFAULT;

    fn encode_payload(&self, out: &mut Segments);

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError>;

    /// The whole message as bytes; `tid` names the request it is or answers.
    fn to_wire(&self, tid: u64) -> WireMessage {
        let mut out = Segments::default();
        self.encode_payload(&mut out);
        WireMessage {
            header: Header {
                seq: 0,
                tid,
                ty: Self::TYPE,
                priority: Self::PRIORITY,
                version: out.version.unwrap_or(Self::VERSION),
                compat_version: Self::COMPAT,
                data_off: out.data_off,
            },
            front: out.front.into_bytes(),
            middle: out.middle,
            data: out.data,
            more: out.more,
        }
    }

    /// Reads a message whose type number was checked; refuses one that needs a newer reader.
    ///
    /// Bytes behind the known fields are a newer sender's and ignored. Source: decode_message in src/msg/Message.cc.
    fn from_wire(wire: &WireMessage) -> Result<Self, DecodeError> {
        if wire.header.compat_version > Self::VERSION {
            return Err(DecodeError::Incompatible {
                what: Self::NAME,
                compat: u8::try_from(wire.header.compat_version).unwrap_or(u8::MAX),
                ours: u8::try_from(Self::VERSION).unwrap_or(u8::MAX),
            });
        }
        Self::decode_payload(&mut Parts {
            version: wire.header.version,
            front: Reader::new(wire.front.clone()),
            middle: wire.middle.clone(),
            data: wire.whole_data(),
        })
    }
}

impl<T: Payload> Payload for Box<T> {
    const TYPE: u16 = T::TYPE;
    const NAME: &'static str = T::NAME;
    const VERSION: u16 = T::VERSION;
    const COMPAT: u16 = T::COMPAT;
    const PRIORITY: u16 = T::PRIORITY;

    fn encode_payload(&self, out: &mut Segments) {
        T::encode_payload(self, out);
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        T::decode_payload(parts).map(Box::new)
    }
}

/// Segments being written.
#[derive(Debug, Default)]
pub struct Segments {
    /// The form that was written, if it is not the newest.
    pub version: Option<u16>,
    pub front: Writer,
    pub middle: Bytes,
    pub data: Bytes,
    /// What follows `data`.
    pub more: Vec<Bytes>,
    pub data_off: u16,
}

impl Segments {
    /// Parts up to here are gathered in one buffer: a piece of its own costs a call more than their copy.
    const GATHERED: usize = 64 << 10;

    /// Makes the parts the data segment; long ones are shared and not copied.
    pub fn set_data<'a>(&mut self, parts: impl Iterator<Item = &'a Bytes>) {
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut gathered = BytesMut::new();
        let mut filled = parts.filter(|p| !p.is_empty()).peekable();
        while let Some(part) = filled.next() {
            let is_alone = pieces.is_empty() && gathered.is_empty() && filled.peek().is_none();
            if part.len() <= Self::GATHERED && !is_alone {
                gathered.extend_from_slice(part);
                continue;
            }
            if !gathered.is_empty() {
                pieces.push(gathered.split().freeze());
            }
            pieces.push(part.clone());
        }
        if !gathered.is_empty() {
            pieces.push(gathered.freeze());
        }
        let mut pieces = pieces.into_iter();
        self.data = pieces.next().unwrap_or_default();
        self.more = pieces.collect();
    }
}

/// Segments being read.
#[derive(Debug)]
pub struct Parts {
    /// The sender's form of the payload.
    pub version: u16,
    pub front: Reader,
    pub middle: Bytes,
    pub data: Bytes,
}

/// The head of messages to monitor services: the version of the service's state that the sender has.
///
/// Behind it travel two fields that lost their meaning; they are written as Ceph writes them (-1 and 0) and skipped.
/// Source: src/messages/PaxosServiceMessage.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PaxosVersion(pub u64);

impl Encode for PaxosVersion {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
        w.u16(u16::MAX);
        w.u64(0);
    }
}
impl Decode for PaxosVersion {
    const MIN_SIZE: usize = 18;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u64()?;
        r.skip(10)?;
        Ok(Self(version))
    }
}

/// A part that makes up the rest of a message, without a length of its own: kept encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestOfFront(pub Bytes);

impl Encode for RestOfFront {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}
impl Decode for RestOfFront {
    const MIN_SIZE: usize = 0;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let rest = r.remaining();
        r.raw(rest).map(Self)
    }
}

/// Declares a message whose fields go through the front segment in order; `[since n]` marks a field that older forms lack
/// and that is then the type's default. A name behind the versions is the priority when it is not `DEFAULT`.
macro_rules! message {
    (
        $(#[$meta:meta])*
        $name:ident = $ty:expr, $label:expr, $version:literal, $compat:literal $(, $priority:ident)? {
            $( $(#[$fmeta:meta])* $field:ident : $t:ty $([since $since:literal])? ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $t, )*
        }

        impl $crate::payload::Payload for $name {
            const TYPE: u16 = $ty;
            const NAME: &'static str = $label;
            const VERSION: u16 = $version;
            const COMPAT: u16 = $compat;
            $( const PRIORITY: u16 = $crate::wire::priority::$priority; )?

            #[allow(unused_variables)]
            fn encode_payload(&self, out: &mut $crate::payload::Segments) {
                $( codec::Encode::encode(&self.$field, &mut out.front); )*
            }

            #[allow(unused_variables)]
            fn decode_payload(parts: &mut $crate::payload::Parts) -> Result<Self, codec::DecodeError> {
                Ok(Self { $( $field: $crate::payload::message!(@read parts $($since)?), )* })
            }
        }
    };
    (@read $parts:ident) => { codec::Decode::decode(&mut $parts.front)? };
    (@read $parts:ident $since:literal) => {
        if $parts.version >= $since { codec::Decode::decode(&mut $parts.front)? } else { Default::default() }
    };
}
pub(crate) use message;
