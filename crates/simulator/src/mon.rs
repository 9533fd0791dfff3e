//! The monitor's shell in the simulation: logins, the log on a device that takes its time, death and return.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use cephx::{CryptoKey, EntityAuth, METHOD_NONE};
use maps::MonMap;
use messages::{Header, Message};
use monitor::{GenesisConfig, GenesisOsd, Input, Member, Monitor, Output, Settings};
use quorum::{HardState, MemberId, Membership, Snapshot, Tuning, Write, stored};
use types::{AuthName, ConnId, EntityType, Epoch, Fsid, GlobalId, SeededEntropy, Utime};

use crate::faults::{Death, Trigger};
use crate::history::Hash;
use crate::mutant::Mutant;
use crate::net::{End, Node};
use crate::queue::{MICROSECOND, MILLISECOND, SECOND, Time};
use crate::scenario::Scenario;
use crate::world::{Event, FSID, World, addr, addr_of};

/// So many OSD maps within so long mean that somebody runs in circles.
const CHURN_EPOCHS: usize = 500;
const CHURN_TIME: Time = 10 * SECOND;

/// The monitor's process and its disk.
pub struct MonHost {
    pub core: Option<Member>,
    pub life: u32,
    pub silent: bool,
    settings: Settings,
    /// On the disk: vote, snapshot, log.
    vote: Bytes,
    snapshot: Bytes,
    log: BTreeMap<u64, Bytes>,
    /// On its way to the disk.
    writing: VecDeque<Write>,
    /// Each epoch's map as it was first committed.
    epochs: BTreeMap<Epoch, u64>,
    /// When the last epochs were committed.
    recent: VecDeque<Time>,
}

pub fn osd_uuid(osd: i32) -> Fsid {
    Fsid([100 + osd as u8; 16])
}

impl MonHost {
    pub fn new(s: &Scenario, now: types::Now) -> Self {
        let o = &s.options;
        let key = |b: u8| CryptoKey::new([b; 16], Utime::ZERO);
        let all = |mon: &str| -> BTreeMap<String, String> {
            ["mon", "osd", "mgr"].map(|c| (c.to_owned(), mon.to_owned())).into()
        };
        let mut entities = BTreeMap::new();
        let mut names = vec!["mon.".to_owned(), "client.admin".to_owned(), "mgr.x".to_owned()];
        names.extend((0..o.osds).map(|osd| format!("osd.{osd}")));
        names.extend((0..o.clients).map(|c| format!("client.c{c}")));
        for (i, name) in names.iter().enumerate() {
            if let Some(name) = AuthName::parse(name) {
                entities.insert(name, EntityAuth { key: key(i as u8 + 1), caps: all("allow *") });
            }
        }
        let option = |name: &str, value: String| ("global".to_owned(), name.to_owned(), value);
        let config = GenesisConfig {
            fsid: FSID,
            monmap: MonMap::new(FSID, now.wall, [("a".to_owned(), addr(3_300, 0))]),
            entities,
            failure_domain: "osd".to_owned(),
            options: vec![
                option("osd_pool_default_size", o.size.to_string()),
                option("osd_pool_default_min_size", o.min_size.to_string()),
                option("osd_heartbeat_grace", o.heartbeat_grace_s.to_string()),
                option("osd_heartbeat_interval", "1".to_owned()),
                option("mon_osd_down_out_interval", o.down_out_s.to_string()),
                option("mon_osd_min_down_reporters", if o.osds > 3 { "2" } else { "1" }.to_owned()),
                option("osd_min_pg_log_entries", o.log_entries.to_string()),
                option("osd_max_pg_log_entries", (o.log_entries * 4).to_string()),
                option("osd_pg_log_trim_min", "3".to_owned()),
                option("osd_pg_log_dups_tracked", o.dups_tracked.to_string()),
                option("osd_backfill_scan_max", o.backfill_scan.to_string()),
                option("osd_pool_default_pg_autoscale_mode", "off".to_owned()),
            ],
            osds: (0..o.osds)
                .map(|id| GenesisOsd {
                    id,
                    uuid: osd_uuid(id),
                    weight_16_16: 0x1_0000,
                    host: format!("host{id}"),
                })
                .collect(),
        };
        let state = Monitor::genesis(&config, now, &mut SeededEntropy(s.seed ^ 1));
        let id = MemberId(1);
        let members = Membership::of([(id, "a".to_owned())]);
        let snapshot = Snapshot { members, state, ..Snapshot::default() };
        let mut settings = Settings::new("a", addr(3_300, 0));
        settings.auth_methods = vec![METHOD_NONE];
        settings.snapshot_every = o.mon_snapshot_every;
        Self {
            core: None,
            life: 0,
            silent: false,
            settings,
            vote: stored::pack_hard_state(&HardState { id, ..HardState::default() }),
            snapshot: stored::pack_snapshot(&snapshot),
            log: BTreeMap::new(),
            writing: VecDeque::new(),
            epochs: BTreeMap::new(),
            recent: VecDeque::new(),
        }
    }
}

impl MonHost {
    /// A write reaches the disk.
    fn write(&mut self, write: &Write) {
        if let Some(hard) = &write.hard {
            self.vote = stored::pack_hard_state(hard);
        }
        if let Some(snapshot) = &write.snapshot {
            self.snapshot = stored::pack_snapshot(snapshot);
            self.log.retain(|index, _| *index > snapshot.index);
        }
        if let Some(from) = write.truncate {
            self.log.retain(|index, _| *index < from);
        }
        for entry in &write.entries {
            self.log.insert(entry.index, stored::pack_entry(entry, write.durable));
        }
    }
}

impl World {
    pub fn start_mon(&mut self) {
        let now = self.clock();
        let mon = &mut self.mon;
        mon.life += 1;
        mon.silent = false;
        // The bug: a process that cannot be told from its predecessor takes what that one had reserved.
        let reuses = self.scenario.mutant == Some(Mutant::ReuseGlobalIds);
        let life = if reuses { 0 } else { mon.life };
        let entropy = SeededEntropy(self.scenario.seed ^ (u64::from(life) << 32));
        let rows = mon.log.iter().map(|(index, row)| (*index, row.clone()));
        let start = stored::recover(&mon.vote, &mon.snapshot, rows).map_err(|e| e.to_string());
        let settings = mon.settings.clone();
        let core = start.and_then(|start| {
            Member::new(settings, Tuning::default(), Vec::new(), Box::new(entropy), start, now)
                .map_err(|e| e.to_string())
        });
        match core {
            Ok(core) => mon.core = Some(core),
            Err(e) => return self.violation(format!("the monitor's store cannot be read: {e}")),
        }
        let life = mon.life;
        self.mon_input(Input::Tick);
        self.plan_in(500 * MILLISECOND, Event::Tick { node: Node::Mon, life });
    }

    pub fn crash_mon(&mut self, death: Death) {
        if self.mon.core.take().is_none() {
            return;
        }
        self.mon.silent = death == Death::PowerLoss;
        for write in std::mem::take(&mut self.mon.writing) {
            // Lost, or on the disk without anybody knowing.
            if self.rng.one_in(2) {
                break;
            }
            self.mon.write(&write);
        }
        self.drop_connections(Node::Mon, death);
    }

    pub fn mon_input(&mut self, input: Input) {
        let now = self.clock();
        let Some(core) = &mut self.mon.core else { return };
        let mut out = Vec::new();
        let before = core.core().index();
        core.handle(now, input, &mut out);
        let applied = core.core().index() != before;
        for o in out {
            self.mon_output(o);
        }
        if applied {
            self.check_epochs();
        }
    }

    fn mon_output(&mut self, output: Output) {
        match output {
            Output::AuthDone { conn, global_id, .. } => {
                let Some(opener) = self.net.conn(conn).map(|c| c.nodes[0]) else { return };
                self.net.accept(self.now, conn, global_id.0);
                let (peer, _, _) = self.name_of(opener);
                let peer = match opener {
                    Node::Osd(_) => peer,
                    _ => types::EntityName { num: global_id.0 as i64, ..peer },
                };
                let addrs = addr_of(opener, self.life(opener));
                let features = types::features::PACIFIC;
                self.mon_input(Input::Connected { conn, peer, addrs, features });
            }
            Output::AuthMore { conn, .. } | Output::AuthBad { conn, .. } => {
                self.violation(format!("the monitor refused a login on {conn}"));
            }
            Output::Send { conn, tid, msg } => self.net.send(self.now, conn, End::Target, tid, msg),
            Output::Close { conn } => {
                self.net.close(self.now, conn, End::Target);
                self.mon_input(Input::Disconnected { conn });
            }
            Output::Write(write) => {
                let (seq, life) = (write.seq, self.mon.life);
                self.mon.writing.push_back(write);
                let delay = self.disk_time();
                if self.scenario.mutant == Some(Mutant::MonForgets) {
                    self.plan_in(delay * 40, Event::MonAppended { life });
                    return self.mon_input(Input::Written { seq });
                }
                self.plan_in(delay, Event::MonAppended { life });
            }
            // There are no other monitors.
            Output::Peer { .. } => {}
            // These stay between the core and its share of the quorum.
            Output::Propose { .. }
            | Output::TakeSnapshot { .. }
            | Output::Read { .. }
            | Output::Forward { .. }
            | Output::WantIds { .. } => {}
        }
    }

    fn disk_time(&mut self) -> Time {
        500 * MICROSECOND + self.rng.below(5 * MILLISECOND)
    }

    pub fn mon_appended(&mut self, life: u32) {
        if self.mon.life != life || self.mon.core.is_none() {
            return;
        }
        if let Some(write) = self.mon.writing.pop_front() {
            self.mon.write(&write);
            if self.scenario.mutant != Some(Mutant::MonForgets) {
                self.mon_input(Input::Written { seq: write.seq });
            }
        }
    }

    /// O7: an epoch that was committed never changes.
    fn check_epochs(&mut self) {
        let Some(core) = self.mon.core.as_ref().map(Member::core) else { return };
        let newest = core.state().osds.newest();
        let Some(full) = core.state().osds.full(newest) else { return };
        let mut hash = Hash::default();
        hash.bytes(&full);
        let fresh = !self.mon.epochs.contains_key(&newest);
        let known = *self.mon.epochs.entry(newest).or_insert(hash.0);
        let last = self.mon.epochs.keys().next_back().copied();
        if known != hash.0 {
            self.violation(format!("O7: OSD map {newest} was committed twice with different content"));
        } else if last.is_some_and(|l| l > newest) {
            self.violation(format!("O7: the newest OSD map is {newest} after {last:?}"));
        } else if fresh {
            self.check_churn();
            self.pull(Trigger::NewMap);
        }
    }

    /// O5: daemons that ask for one change after the other, without end, bring nothing to rest.
    fn check_churn(&mut self) {
        let recent = &mut self.mon.recent;
        recent.push_back(self.now);
        if recent.len() <= CHURN_EPOCHS {
            return;
        }
        if recent.pop_front().is_some_and(|first| self.now - first < CHURN_TIME) {
            let faults = self.faults;
            self.violation(format!("O5: {CHURN_EPOCHS} OSD maps within 10 s (after {faults} faults)"));
        }
    }

    pub fn mon_login(&mut self, conn: ConnId, opener: Node) {
        self.net.set_target_life(conn, self.mon.life);
        let (kind, name) = match opener {
            Node::Osd(osd) => (EntityType::Osd, osd.to_string()),
            Node::Mgr => (EntityType::Mgr, "x".to_owned()),
            Node::Client(c) => (EntityType::Client, format!("c{c}")),
            _ => (EntityType::Client, "admin".to_owned()),
        };
        let global_id = self.mon_link(opener).map_or(0, |l| l.global_id);
        let payload = cephx::none_login_request(&AuthName::new(kind, name), GlobalId(global_id));
        let peer_addr = addr_of(opener, self.life(opener)).0[0];
        self.mon_input(Input::AuthRequest {
            conn,
            peer_type: kind,
            method: METHOD_NONE,
            preferred_modes: vec![2, 1],
            payload,
            peer_addr,
        });
    }

    pub fn mon_message(&mut self, conn: ConnId, tid: u64, msg: Message) {
        let header = Header { tid, ..Header::default() };
        self.mon_input(Input::Message { conn, header, msg });
    }
}
