//! Messages that are not one service's own: ping, and commands to a daemon.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};
use types::Fsid;

use crate::payload::{Parts, Payload, Segments, message};
use crate::type_numbers;

message! {
    /// Asks nothing; keeps a session alive.
    #[derive(Default)]
    MPing = type_numbers::PING, "ping", 1, 1 {}
}

/// A command to one daemon; its input travels in the data segment. Source: src/messages/MCommand.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MCommand {
    pub fsid: Fsid,
    /// Usually one string of JSON.
    pub cmd: Vec<String>,
    pub input: Bytes,
}

impl Payload for MCommand {
    const TYPE: u16 = type_numbers::COMMAND;
    const NAME: &'static str = "command";
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        self.fsid.encode(&mut out.front);
        self.cmd.encode(&mut out.front);
        out.data = self.input.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        Ok(Self {
            fsid: Fsid::decode(&mut parts.front)?,
            cmd: Vec::decode(&mut parts.front)?,
            input: parts.data.clone(),
        })
    }
}

/// A command's outcome; its output travels in the data segment. Source: src/messages/MCommandReply.h.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MCommandReply {
    /// 0 or a negated errno.
    pub result: i32,
    /// A line for people.
    pub status: String,
    pub output: Bytes,
}

impl Payload for MCommandReply {
    const TYPE: u16 = type_numbers::COMMAND_REPLY;
    const NAME: &'static str = "command_reply";
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_payload(&self, out: &mut Segments) {
        self.result.encode(&mut out.front);
        self.status.encode(&mut out.front);
        out.data = self.output.clone();
    }

    fn decode_payload(parts: &mut Parts) -> Result<Self, DecodeError> {
        Ok(Self {
            result: parts.front.i32()?,
            status: String::decode(&mut parts.front)?,
            output: parts.data.clone(),
        })
    }
}
