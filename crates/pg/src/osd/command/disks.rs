//! `list_devices` and `smart`: the disks below this OSD, which the shell knows and asks.
//!
//! Invariant: at most `MOST` questions wait for the shell; each is answered once.
//!
//! Source: OSD::asok_command, OSD::probe_smart in src/osd/OSD.cc.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::Reply;
use admin::common::Request;
use messages::common::MCommandReply;
use serde_json::Value;
use types::{ConnId, Errno};

use crate::io::{DiskQuestion, Output};
use crate::osd::OsdCore;

/// A disk that does not answer holds its question for `osd_smart_report_timeout`.
const MOST: usize = 4;
/// Seconds, whatever that option says.
const MOST_S: u64 = 600;

/// Questions that the shell has not answered, by their numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct DiskQuestions {
    last: u64,
    waiting: BTreeMap<u64, (ConnId, u64, Request)>,
}

impl OsdCore {
    /// Asks the shell; the reply comes when it has answered.
    pub(super) fn ask_disks(&mut self, conn: ConnId, tid: u64, request: Request) -> Result<(), Reply> {
        if self.disk_questions.waiting.len() >= MOST {
            return Err(Reply::error(Errno::EBUSY, "other questions for the disks wait for their answer"));
        }
        let within = self.values.int("osd_smart_report_timeout").unsigned_abs();
        let question = match request.prefix.as_str() {
            "smart" => DiskQuestion::Smart {
                of: request.args.text("devid").filter(|id| !id.is_empty()).map(str::to_owned),
                within: Duration::from_secs(within.min(MOST_S)),
            },
            _ => DiskQuestion::List,
        };
        self.disk_questions.last += 1;
        let id = self.disk_questions.last;
        self.disk_questions.waiting.insert(id, (conn, tid, request));
        self.shared.out.push(Output::AskDisks { id, question });
        Ok(())
    }

    /// The shell has answered.
    pub(in crate::osd) fn disks_told(&mut self, id: u64, told: &Value) {
        let Some((conn, tid, request)) = self.disk_questions.waiting.remove(&id) else { return };
        let reply = match request.prefix.as_str() {
            // Whatever format is asked for.
            "smart" => Reply::text(admin::json_text(admin::Format::JsonPretty, told).trim_end()),
            _ => request.finish(Reply::json(request.format, told)),
        };
        self.shared.out.push(match conn == super::ADMIN_SOCKET {
            true => Output::AdminReply { tid, reply },
            false => {
                let msg = MCommandReply { result: reply.code, status: reply.outs, output: reply.data };
                Output::Reply { conn, tid, msg: msg.into() }
            }
        });
    }
}
