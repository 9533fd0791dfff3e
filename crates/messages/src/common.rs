//! Messages that are not one service's own: ping, and commands to a daemon.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};
use types::Fsid;

use crate::payload::{Parts, Payload, RestOfFront, Segments, message};
use crate::type_numbers;

message! {
    /// Asks nothing. A monitor answers `ping_monitor` with one that holds a string of JSON.
    #[derive(Default)]
    MPing = type_numbers::PING, "ping", 1, 1 { payload: RestOfFront }
}

/// Declares a command and its reply to one kind of daemon: fsid and words in front, input and output in the data segment.
macro_rules! command {
    ($(#[$meta:meta])* $command:ident $ty:expr, $name:literal; $(#[$rmeta:meta])* $reply:ident $rty:expr, $rname:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $command {
            pub fsid: Fsid,
            /// Usually one string of JSON.
            pub cmd: Vec<String>,
            pub input: Bytes,
        }

        impl Payload for $command {
            const TYPE: u16 = $ty;
            const NAME: &'static str = $name;
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

        $(#[$rmeta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $reply {
            /// 0 or a negated errno.
            pub result: i32,
            /// A line for people.
            pub status: String,
            pub output: Bytes,
        }

        impl Payload for $reply {
            const TYPE: u16 = $rty;
            const NAME: &'static str = $rname;
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
    };
}

command! {
    /// A command to an OSD, and `tell` to any daemon. Source: src/messages/MCommand.h.
    MCommand type_numbers::COMMAND, "command";
    /// Source: src/messages/MCommandReply.h.
    MCommandReply type_numbers::COMMAND_REPLY, "command_reply"
}

command! {
    /// A command to the manager. Source: src/messages/MMgrCommand.h.
    MMgrCommand type_numbers::MGR_COMMAND, "mgr_command";
    /// Source: src/messages/MMgrCommandReply.h.
    MMgrCommandReply type_numbers::MGR_COMMAND_REPLY, "mgr_command_reply"
}
