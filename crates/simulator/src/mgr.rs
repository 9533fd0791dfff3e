//! The manager's shell in the simulation.

use messages::Message;
use types::ConnId;

use crate::net::{End, Node};
use crate::queue::MILLISECOND;
use crate::world::{Event, MonLink, World, addr_of};

/// The manager's process; it has no disk.
#[derive(Default)]
pub struct MgrHost {
    pub core: Option<manager::Manager>,
    pub life: u32,
    pub mon: MonLink,
}

impl World {
    pub fn start_mgr(&mut self) {
        self.mgr.life += 1;
        let life = self.mgr.life;
        self.mgr.mon = MonLink::default();
        self.mgr.core = Some(manager::Manager::new(manager::Settings {
            name: "x".to_owned(),
            addrs: addr_of(Node::Mgr, life),
            // Monitors take what does not say so for a manager of Ceph's, which no blocklist stops.
            metadata: [("loligo".to_owned(), "simulated".to_owned())].into(),
            options: Default::default(),
            force: false,
        }));
        self.seek_mon(Node::Mgr, life);
        self.plan_in(250 * MILLISECOND, Event::Tick { node: Node::Mgr, life });
    }

    pub fn crash_mgr(&mut self) {
        if self.mgr.core.take().is_some() {
            self.drop_connections(Node::Mgr, crate::faults::Death::Killed);
        }
    }

    pub fn mgr_input(&mut self, input: manager::Input) {
        let now = self.clock_of(Node::Mgr);
        let Some(core) = &mut self.mgr.core else { return };
        let mut out = Vec::new();
        core.handle(now, input, &mut out);
        for o in out {
            match o {
                manager::Output::Send { conn, tid, msg } => {
                    self.net.send(self.now, conn, End::Target, tid, msg)
                }
                manager::Output::SendMon { tid, msg } => self.send_mon(Node::Mgr, tid, msg),
                manager::Output::Close { conn } => self.net.close(self.now, conn, End::Target),
                // What a session that is over has left on the way is refused.
                manager::Output::Warn(_) => {}
                // It is no client of the OSDs, and its address here has no nonce.
                manager::Output::Respawn => {}
                // Everything here is ours, and there is one manager.
                manager::Output::Monitors(whose) => assert_eq!(whose, monitor::Whose::Ours),
                // Nobody asks it beside its clients, and no page is served here.
                manager::Output::Dashboard(_) | manager::Output::Metrics(_) => {}
                o @ (manager::Output::Answer { .. } | manager::Output::Hash { .. }) => {
                    panic!("the manager answers what nobody asked: {o:?}")
                }
                manager::Output::StartClient { .. }
                | manager::Output::EndClient
                | manager::Output::Job { .. }
                | manager::Output::CancelJob { .. } => panic!("no pool here is for images"),
                manager::Output::End(text) => panic!("the manager: {text}"),
            }
        }
    }

    pub fn mgr_from_mon(&mut self, conn: ConnId, tid: u64, msg: Message) {
        if self.mgr.mon.conn == Some(conn) {
            self.mgr_input(manager::Input::FromMon { tid, msg });
        }
    }
}
