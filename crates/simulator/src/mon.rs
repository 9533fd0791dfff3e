//! A monitor's process and its disk in the simulation: what it begins with, death and return.
//!
//! A write reaches the disk whole or not at all, as the real store's transactions do; so the store is read as strictly as the
//! real one is: a row that is damaged or missing is corruption and never a torn tail.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use cephx::{CryptoKey, EntityAuth, METHOD_NONE};
use maps::MonMap;
use monitor::{GenesisConfig, GenesisOsd, Input, Member, Monitor, Settings};
use quorum::{HardState, MemberId, Membership, Snapshot, Tuning, Write, stored};
use types::{AuthName, Epoch, Fsid, SeededEntropy, Utime};

use crate::faults::Death;
use crate::mutant::Mutant;
use crate::net::Node;
use crate::queue::MILLISECOND;
use crate::scenario::{Options, Scenario};
use crate::world::{Event, FSID, World, addr_of};

/// A monitor's process and its disk.
pub struct MonHost {
    pub core: Option<Member>,
    pub life: u32,
    pub silent: bool,
    settings: Settings,
    pub disk: MonDisk,
    /// On its way to the disk.
    pub writing: VecDeque<Write>,
    /// Connections that it opened to other monitors.
    pub links: BTreeMap<usize, types::ConnId>,
    /// When each of them was last tried.
    pub tried: BTreeMap<usize, u64>,
    /// Its monotonic clock runs at so many parts per thousand.
    pub rate: u64,
    /// Seconds that its wall clock is ahead of the others.
    pub skew_s: i64,
    /// What it had applied when it was last looked at.
    pub seen: u64,
    /// The newest OSD map then.
    pub epoch: Epoch,
    /// The administrator wants it to be one of the monitors.
    pub listed: bool,
    /// It was added, and has not voted yet.
    pub joins: bool,
}

/// The rows of a monitor's store.
#[derive(Clone)]
pub struct MonDisk {
    pub vote: Bytes,
    pub snapshot: Bytes,
    pub log: BTreeMap<u64, Bytes>,
}

pub fn mon_name(mon: usize) -> String {
    char::from(b'a' + mon as u8).to_string()
}

pub fn osd_uuid(osd: i32) -> Fsid {
    Fsid([100 + osd as u8; 16])
}

fn member_id(mon: usize, life: u32) -> MemberId {
    MemberId(1 + mon as u64 + u64::from(life) * 1_000)
}

fn key(b: u8) -> CryptoKey {
    CryptoKey::new([b; 16], Utime::ZERO)
}

fn entities(o: &Options) -> BTreeMap<AuthName, EntityAuth> {
    let caps: BTreeMap<String, String> =
        ["mon", "osd", "mgr"].map(|c| (c.to_owned(), "allow *".to_owned())).into();
    let mut names = vec!["mon.".to_owned(), "client.admin".to_owned(), "mgr.x".to_owned()];
    names.extend((0..o.osds).map(|osd| format!("osd.{osd}")));
    names.extend((0..o.clients).map(|c| format!("client.c{c}")));
    let parsed = names.iter().enumerate().filter_map(|(i, name)| Some((i, AuthName::parse(name)?)));
    parsed.map(|(i, name)| (name, EntityAuth { key: key(i as u8 + 1), caps: caps.clone() })).collect()
}

fn genesis(s: &Scenario, now: types::Now) -> Bytes {
    let o = &s.options;
    let (log_entries, dups_tracked) = o.remembered(s.mutant);
    let option = |name: &str, value: String| ("global".to_owned(), name.to_owned(), value);
    let mons = (0..o.mons).map(|m| (mon_name(m), addr_of(Node::Mon(m), 0)));
    let config = GenesisConfig {
        fsid: FSID,
        monmap: MonMap::new(FSID, now.wall, mons),
        entities: entities(o),
        failure_domain: "osd".to_owned(),
        options: vec![
            option("osd_pool_default_size", o.size.to_string()),
            option("osd_pool_default_min_size", o.min_size.to_string()),
            option("osd_heartbeat_grace", o.heartbeat_grace_s.to_string()),
            option("osd_heartbeat_interval", o.heartbeat_interval_s.to_string()),
            option("mon_osd_down_out_interval", o.down_out_s.to_string()),
            option("mon_osd_min_down_reporters", if o.osds > 3 { "2" } else { "1" }.to_owned()),
            option("osd_min_pg_log_entries", log_entries.to_string()),
            option("osd_max_pg_log_entries", (log_entries * 4).to_string()),
            option("osd_pg_log_trim_min", "3".to_owned()),
            option("osd_pg_log_dups_tracked", dups_tracked.to_string()),
            option("osd_backfill_scan_max", o.backfill_scan.to_string()),
            option("osd_pool_default_pg_autoscale_mode", "off".to_owned()),
            option("mon_min_osdmap_epochs", o.maps_kept.to_string()),
            option("mon_allow_pool_delete", "true".to_owned()),
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
    Monitor::genesis(&config, now, &mut SeededEntropy(s.seed ^ 1))
}

impl MonHost {
    pub fn new(s: &Scenario, mon: usize, snapshot: &Snapshot) -> Self {
        let mut settings = Settings::new(mon_name(mon), addr_of(Node::Mon(mon), 0));
        settings.auth_methods = vec![METHOD_NONE];
        settings.snapshot_every = s.options.mon_snapshot_every;
        let (rate, skew_s) = s.options.mon_clocks.get(mon).copied().unwrap_or((1_000, 0));
        Self {
            core: None,
            life: 0,
            silent: false,
            settings,
            disk: MonDisk::new(member_id(mon, 0), snapshot),
            writing: VecDeque::new(),
            links: BTreeMap::new(),
            tried: BTreeMap::new(),
            rate,
            skew_s,
            seen: 0,
            epoch: Epoch(0),
            listed: true,
            joins: false,
        }
    }
}

impl MonDisk {
    fn new(id: MemberId, snapshot: &Snapshot) -> Self {
        Self {
            vote: stored::pack_hard_state(&HardState { id, ..HardState::default() }),
            snapshot: stored::pack_snapshot(snapshot),
            log: BTreeMap::new(),
        }
    }

    /// One bit of one record is turned.
    pub fn damage(&mut self, nth: u64) {
        let rows = self.log.len() as u64 + 2;
        let record = match nth % rows {
            0 => &mut self.vote,
            1 => &mut self.snapshot,
            n => match self.log.values_mut().nth(n as usize - 2) {
                Some(row) => row,
                None => return,
            },
        };
        let mut bytes = record.to_vec();
        let at = (nth >> 8) as usize % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << (nth >> 5 & 7);
        }
        *record = bytes.into();
    }

    /// A write reaches the disk.
    pub fn write(&mut self, write: &Write) {
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
    pub fn start_mon(&mut self, at: usize) {
        let now = self.clock_of(Node::Mon(at));
        let tuning = Tuning {
            #[cfg(feature = "planted")]
            planted: self.scenario.mutant.and_then(Mutant::in_quorum),
            ..Tuning::default()
        };
        let others = (0..self.mons.len()).filter(|m| *m != at);
        let seeds = others.filter_map(|m| addr_of(Node::Mon(m), 0).0.first().copied()).collect();
        let seed = self.scenario.seed;
        let mutant = self.scenario.mutant;
        let mon = &mut self.mons[at];
        mon.life += 1;
        mon.silent = false;
        mon.seen = 0;
        mon.epoch = Epoch(0);
        // The bug: a process that cannot be told from its predecessor takes what that one had reserved.
        let life = if mutant == Some(Mutant::ReuseGlobalIds) { 0 } else { mon.life };
        let entropy = SeededEntropy(seed ^ (u64::from(life) << 32) ^ ((at as u64) << 24));
        if mutant == Some(Mutant::MonDropsTail) {
            // The bug: what is whole is taken for a torn tail.
            let last = mon.disk.log.keys().next_back().copied().unwrap_or(0);
            mon.disk.log.retain(|index, _| index + 2 < last);
        }
        let rows = mon.disk.log.iter().map(|(index, row)| (*index, row.clone()));
        let start =
            stored::recover_whole(&mon.disk.vote, &mon.disk.snapshot, rows).map_err(|e| e.to_string());
        let settings = mon.settings.clone();
        let core = start.and_then(|start| {
            Member::new(settings, tuning, seeds, Box::new(entropy), start, now).map_err(|e| e.to_string())
        });
        match core {
            Ok(core) => mon.core = Some(core),
            Err(e) => {
                self.refused_stores += 1;
                return self.mon_refused(at, &e);
            }
        }
        let life = mon.life;
        self.mon_input(at, Input::Tick);
        self.plan_in(50 * MILLISECOND, Event::Tick { node: Node::Mon(at), life });
    }

    /// A store that is refused is replaced by an empty one, when it was damaged on purpose.
    fn mon_refused(&mut self, at: usize, why: &str) {
        self.say(|| format!("mon.{at} refuses its store: {why}"));
        if !self.damaged_mons.remove(&at) {
            return self.violation(format!("the store of mon.{at} cannot be read: {why}"));
        }
        self.wipe_mon_disk(at);
        self.start_mon(at);
    }

    pub fn crash_mon(&mut self, at: usize, death: Death) {
        let mon = &mut self.mons[at];
        if mon.core.take().is_none() {
            return;
        }
        mon.silent = death == Death::PowerLoss;
        self.frozen.remove(&Node::Mon(at));
        let mon = &mut self.mons[at];
        mon.links.clear();
        mon.tried.clear();
        for write in std::mem::take(&mut mon.writing) {
            // Lost, or on the disk without anybody knowing.
            if self.rng.one_in(2) {
                break;
            }
            self.mons[at].disk.write(&write);
        }
        self.drop_connections(Node::Mon(at), death);
    }

    /// The disk of a monitor is gone, and replaced by an empty one.
    pub fn wipe_mon_disk(&mut self, at: usize) {
        self.blank_mon_disk(at);
        self.happened("monitors' disks lost");
    }

    /// A new disk under the old name; nothing on it says who the old one was.
    pub fn blank_mon_disk(&mut self, at: usize) {
        let auth = EntityAuth { key: key(1), caps: BTreeMap::new() };
        let now = self.clock_of(Node::Mon(at));
        let entropy = &mut SeededEntropy(self.rng.next_u64());
        let state = Monitor::blank(FSID, auth, now, entropy);
        let life = self.mons[at].life + 1;
        let mut snapshot = Snapshot { state, ..Snapshot::default() };
        let mut id = member_id(at, life);
        if self.scenario.mutant == Some(Mutant::WipedVoter) {
            // The bug: the empty store takes the old one's identity, and votes.
            (id, snapshot) = (member_id(at, 0), self.genesis.clone());
        }
        self.mons[at].disk = MonDisk::new(id, &snapshot);
    }
}

/// What every monitor of a new cluster begins with.
pub fn first_snapshot(s: &Scenario, now: types::Now) -> Snapshot {
    let members = Membership::of((0..s.options.mons).map(|m| (member_id(m, 0), mon_name(m))));
    Snapshot { members, state: genesis(s, now), ..Snapshot::default() }
}
