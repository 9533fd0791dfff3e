//! A toy monitor: one map, every change its own epoch, nothing checked.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode};
use crush::{CrushMap, RuleMode};
use maps::flags::{WEIGHT_IN, WEIGHT_OUT};
use maps::{Incremental, OsdAddrs, OsdMap, Pool, PoolType, pool_flags};
use messages::Message;
use messages::mon::{MMonGetVersionReply, MOsdMap};
use messages::osd::{MOsdFailure, MOsdPgReadyToMerge};
use types::{AddrVec, EntityAddr, Epoch, Fsid, OsdId, PgId, PoolId, Utime, features};

pub const FSID: Fsid = Fsid([7; 16]);

pub struct Mon {
    pub map: OsdMap,
    /// What OSDs said of merges.
    pub merges: Vec<bool>,
    /// How full each OSD last said that it is.
    pub told_full: BTreeMap<i32, u32>,
    /// Every map that a client has not seen yet, oldest first.
    pub unseen: Vec<OsdMap>,
    incs: BTreeMap<Epoch, Bytes>,
    /// The oldest map that it keeps, whole, when it has forgotten any.
    oldest: Option<OsdMap>,
    /// All maps.
    past: BTreeMap<Epoch, OsdMap>,
    /// How often a whole map was asked for.
    pub whole_asked: usize,
    /// The next epoch that each subscriber gets.
    subscribers: BTreeMap<i32, Epoch>,
}

pub fn addr(osd: i32, life: u32) -> AddrVec {
    let socket = format!("127.0.0.1:{}", 6800 + osd).parse().unwrap();
    AddrVec::single(EntityAddr::v2(socket, life))
}

pub fn uuid(osd: i32) -> Fsid {
    Fsid([100 + osd as u8; 16])
}

impl Mon {
    pub fn new(osds: i32) -> Self {
        let mut crush = CrushMap::new_default();
        for osd in 0..osds {
            let at = BTreeMap::from([("root".into(), "default".into()), ("host".into(), format!("h{osd}"))]);
            crush.insert_item(osd, 0x10000, &format!("osd.{osd}"), &at).unwrap();
        }
        crush.add_simple_rule("r", "default", "osd", None, RuleMode::Firstn, 1, None).unwrap();
        crush.add_simple_rule("coded", "default", "osd", None, RuleMode::Indep, 3, None).unwrap();
        let map = OsdMap::new_cluster(FSID, Utime::new(1, 0), crush);
        let first = Incremental::first(&map);
        let mut mon = Self {
            incs: BTreeMap::from([(map.epoch, first.to_bytes())]),
            merges: vec![],
            told_full: BTreeMap::new(),
            unseen: vec![map.clone()],
            oldest: None,
            past: BTreeMap::from([(map.epoch, map.clone())]),
            map,
            whole_asked: 0,
            subscribers: BTreeMap::new(),
        };
        mon.change(|inc, map| {
            for osd in 0..osds {
                inc.create_osd(map, OsdId(osd), uuid(osd));
                inc.set_weight(OsdId(osd), WEIGHT_IN);
            }
        });
        mon
    }

    pub fn change(&mut self, f: impl FnOnce(&mut Incremental, &OsdMap)) {
        let now = Utime::new(1000 + self.map.epoch.0, 0);
        let mut inc = Incremental::after(&self.map, now);
        f(&mut inc, &self.map);
        let (map, _) = inc.finish(&self.map, now).unwrap();
        self.incs.insert(map.epoch, inc.to_bytes());
        self.unseen.push(map.clone());
        self.past.insert(map.epoch, map.clone());
        self.map = map;
    }

    /// The newest epoch's increment leads to another map than it should, and says so by its checksum.
    pub fn spoil_newest(&mut self) {
        let raw = self.incs.get_mut(&self.map.epoch).unwrap();
        let mut inc = Incremental::from_bytes(raw.clone()).unwrap();
        inc.set_weight(OsdId(0), 77);
        *raw = inc.to_bytes();
    }

    /// Forgets the maps before this epoch; the real one does not before every PG was clean in it or later.
    pub fn trim(&mut self, oldest: Epoch) {
        self.incs.retain(|e, _| *e > oldest);
        self.oldest = Some(self.past[&oldest].clone());
    }

    fn oldest(&self) -> Epoch {
        self.oldest.as_ref().map_or(Epoch(1), |m| m.epoch)
    }

    /// The whole of an old map.
    pub fn map_at(&self, e: Epoch) -> &OsdMap {
        &self.past[&e]
    }

    pub fn create_pool(&mut self, size: u8, min_size: u8, pg_num: u32) -> PoolId {
        let mut id = PoolId(0);
        self.change(|inc, map| {
            let pool = Pool { size, min_size, ..Pool::new(PoolType::Replicated, pg_num) };
            id = inc.create_pool(map, &format!("p{}", map.pools.len()), pool);
        });
        id
    }

    /// An erasure-coded pool of this profile, whose chunks have 4,096 bytes.
    pub fn create_coded_pool(&mut self, k: u8, m: u8, min_size: u8) -> PoolId {
        let (data, coding) = (k.to_string(), m.to_string());
        let words = [("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", &*data), ("m", &*coding)];
        self.create_pool_of_profile(&words, k, k + m, min_size)
    }

    /// A pool whose objects lie on `size` shards, as much of it as `k` of them hold.
    pub fn create_pool_of_profile(
        &mut self,
        words: &[(&str, &str)],
        k: u8,
        size: u8,
        min_size: u8,
    ) -> PoolId {
        let mut id = PoolId(0);
        let profile = words.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned()));
        self.change(|inc, map| {
            inc.new_erasure_code_profiles.insert("coded".into(), profile.collect());
            let pool = Pool {
                size,
                min_size,
                crush_rule: 1,
                erasure_code_profile: "coded".into(),
                stripe_width: u32::from(k) * 4096,
                flags: pool_flags::HASHPSPOOL | pool_flags::CREATING | pool_flags::EC_OVERWRITES,
                ..Pool::new(PoolType::Erasure, 1)
            };
            id = inc.create_pool(map, &format!("p{}", map.pools.len()), pool);
        });
        id
    }

    pub fn mark_down(&mut self, osd: i32) {
        if self.map.is_up(osd) {
            self.change(|inc, map| inc.mark_down(map, OsdId(osd)));
        }
    }

    /// Down, and surely dead.
    pub fn mark_dead(&mut self, osd: i32) {
        if self.map.is_up(osd) {
            self.change(|inc, map| {
                inc.mark_down(map, OsdId(osd));
                let Some(o) = map.osd(osd) else { return };
                inc.new_xinfo.insert(osd, maps::OsdXInfo { dead_epoch: map.epoch.next(), ..o.xinfo });
            });
        }
    }

    pub fn mark_out(&mut self, osd: i32) {
        self.change(|inc, _| inc.set_weight(OsdId(osd), WEIGHT_OUT));
    }

    pub fn mark_in(&mut self, osd: i32) {
        self.change(|inc, _| inc.set_weight(OsdId(osd), WEIGHT_IN));
    }

    /// Sends an OSD what it missed while it was cut off.
    pub fn resubscribe(&mut self, osd: i32) {
        self.subscribers.insert(osd, Epoch(1));
    }

    pub fn forget(&mut self, osd: i32) {
        self.subscribers.remove(&osd);
    }

    /// Takes an OSD's message; returns answers for it.
    pub fn handle(&mut self, from: i32, life: u32, msg: Message) -> Vec<Message> {
        match msg {
            Message::MonSubscribe(m) => {
                if let Some(item) = m.what.get("osdmap") {
                    self.subscribers.insert(from, Epoch(item.start as u32));
                }
            }
            Message::MonGetOsdMap(m) => {
                self.whole_asked += 1;
                let (oldest, newest) = (self.oldest(), self.map.epoch);
                let full = self.past.range(m.full_first..=m.full_last);
                let full = full.map(|(e, map)| (*e, map.to_bytes())).collect();
                return vec![
                    MOsdMap { fsid: FSID, incremental: BTreeMap::new(), full, oldest, newest }.into(),
                ];
            }
            Message::MonGetVersion(m) => {
                let version = self.map.epoch.0.into();
                let oldest_version = self.oldest().0.into();
                return vec![MMonGetVersionReply { handle: m.handle, version, oldest_version }.into()];
            }
            Message::OsdBoot(m) => {
                // As the monitors do: a store that was never up is a stranger to a number that holds data.
                let wanted = self.map.osd(from).is_some_and(|o| o.info.up_from > o.info.lost_at);
                if wanted && m.superblock.mounted.0 == 0 {
                    return Vec::new();
                }
                let at = addr(from, life);
                if self.map.osd(from).is_some_and(|o| o.is_up() && o.cluster_addrs == at) {
                    return Vec::new();
                }
                self.mark_down(from);
                let addrs =
                    OsdAddrs { client: at.clone(), cluster: at.clone(), hb_back: at.clone(), hb_front: at };
                self.change(|inc, map| inc.boot_osd(map, OsdId(from), addrs, features::PACIFIC));
            }
            Message::OsdAlive(m) => {
                let thru = self.map.osd(from).map_or(Epoch(0), |o| o.info.up_thru);
                if thru < m.want && self.map.is_up(from) {
                    self.change(|inc, map| {
                        inc.new_up_thru.insert(from, map.epoch);
                    });
                }
            }
            Message::OsdFull(m) => drop(self.told_full.insert(from, m.state)),
            Message::OsdPgReadyToMerge(m) => self.merge(&m),
            Message::OsdPgTemp(m) => self.pg_temp(from, &m.pg_temp),
            Message::OsdFailure(m) if m.flags & MOsdFailure::IMMEDIATE != 0 => self.mark_dead(m.target_osd),
            Message::OsdFailure(m) if m.flags & MOsdFailure::FAILED != 0 => self.mark_down(m.target_osd),
            Message::OsdMarkMeDown(m) => self.mark_dead(m.target_osd),
            Message::OsdMarkMeDead(m) if !self.map.is_up(from) => self.change(|inc, map| {
                let Some(o) = map.osd(from) else { return };
                inc.new_xinfo.insert(from, maps::OsdXInfo { dead_epoch: m.epoch, ..o.xinfo });
            }),
            _ => {}
        }
        Vec::new()
    }

    /// As the real one does, which also checks that the sender is alive, leads both PGs and has seen the pair named.
    fn merge(&mut self, m: &MOsdPgReadyToMerge) {
        let Some(pool) = self.map.pool(m.pgid.pool).cloned() else { return };
        if pool.pg_num != m.pgid.seed + 1 || pool.pg_num_pending != m.pgid.seed {
            return;
        }
        self.merges.push(m.ready);
        self.change(|inc, map| {
            let p = inc.pool_mut(map, m.pgid.pool).unwrap();
            p.finish_merge(
                m.pgid,
                map.epoch.next(),
                m.ready.then_some(maps::PgMergeMeta {
                    source_pgid: m.pgid,
                    ready_epoch: map.epoch.next(),
                    last_epoch_started: m.last_epoch_started,
                    last_epoch_clean: m.last_epoch_clean,
                    source_version: m.source_version,
                    target_version: m.target_version,
                }),
            );
        });
    }

    fn pg_temp(&mut self, from: i32, wanted: &BTreeMap<PgId, Vec<i32>>) {
        let map = &self.map;
        let usable = |osds: &[i32]| osds.iter().all(|o| *o == OsdId::HOLE.0 || map.is_up(*o));
        let from_primary = |pg: PgId| map.pg_to_up_acting(pg).acting_primary == from;
        let changes: Vec<(PgId, Vec<i32>)> = wanted
            .iter()
            .filter(|(pg, osds)| usable(osds) && from_primary(**pg))
            .filter(|(pg, osds)| map.pg_temp.get(pg).cloned().unwrap_or_default() != **osds)
            .map(|(pg, osds)| (*pg, osds.clone()))
            .collect();
        if !changes.is_empty() {
            self.change(|inc, _| {
                for (pg, osds) in changes {
                    inc.set_pg_temp(pg, osds);
                }
            });
        }
    }

    /// The maps that each subscriber lacks.
    pub fn publish(&mut self) -> Vec<(i32, Message)> {
        let (oldest, newest) = (self.oldest(), self.map.epoch);
        let mut out = Vec::new();
        let message =
            |incremental, full| Message::from(MOsdMap { fsid: FSID, incremental, full, oldest, newest });
        for (osd, next) in &mut self.subscribers {
            if *next > newest {
                continue;
            }
            if let Some(map) = self.oldest.as_ref().filter(|m| *next <= m.epoch) {
                out.push((*osd, message(BTreeMap::new(), [(oldest, map.to_bytes())].into())));
            }
            let lacking = self.incs.range(Epoch(next.0.max(1))..).map(|(e, b)| (*e, b.clone()));
            let lacking: BTreeMap<Epoch, Bytes> = lacking.collect();
            if !lacking.is_empty() {
                out.push((*osd, message(lacking, BTreeMap::new())));
            }
            *next = newest.next();
        }
        out
    }
}
