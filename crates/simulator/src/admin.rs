//! An administrator: commands to the monitor, one after the other, each repeated until it is answered.

use std::collections::VecDeque;

use messages::Message;
use messages::mon::MMonCommand;

use crate::net::Node;
use crate::queue::SECOND;
use crate::world::{Event, FSID, MonLink, World};

#[derive(Default)]
pub struct Admin {
    pub mon: MonLink,
    waiting: VecDeque<String>,
    tid: u64,
    /// Answers so far: command, result, status.
    pub answers: Vec<(String, i32, String)>,
}

impl Admin {
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl World {
    pub fn admin_command(&mut self, json: String) {
        self.admin.waiting.push_back(json);
        if self.admin.waiting.len() == 1 {
            self.admin.tid += 1;
            self.admin_mon_ready();
        }
    }

    /// Sends the first command that is not answered.
    pub fn admin_mon_ready(&mut self) {
        let Some(cmd) = self.admin.waiting.front().cloned() else { return };
        let msg = MMonCommand { fsid: FSID, cmd: vec![cmd], ..MMonCommand::default() };
        let tid = self.admin.tid;
        self.send_mon(Node::Admin, tid, msg.into());
    }

    pub fn admin_tick(&mut self) {
        self.admin_mon_ready();
    }

    pub fn admin_message(&mut self, tid: u64, msg: Message) {
        let Message::MonCommandAck(ack) = msg else { return };
        if tid != self.admin.tid {
            return;
        }
        if let Some(cmd) = self.admin.waiting.pop_front() {
            self.say(|| format!("admin: {cmd}: {} {}", ack.result, ack.status));
            self.admin.answers.push((cmd, ack.result, ack.status));
            self.admin.tid += 1;
            self.admin_mon_ready();
        }
    }

    pub fn start_admin(&mut self) {
        self.seek_mon(Node::Admin, 1);
        self.plan_in(5 * SECOND, Event::Tick { node: Node::Admin, life: 1 });
    }
}
