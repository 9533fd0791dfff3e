//! The start of a gateway: its zone is found, or made where there is none, and the objects that gateways
//! share are there. Source: RGWZoneGroup::create_default and RGWSystemMetaObj::create in src/rgw/rgw_zone.cc,
//! RGWSI_Notify::init_watch, RGWGC::initialize.
//!
//! 1. What is described is there before its name leads to it.
//! 2. Of two that make one name, the first one's stays; the other one takes its description back.

use bytes::Bytes;
use classes::client::gc_queue;
use classes::client::version::{self, CondArgs, Condition, VersionArgs};
use codec::{Decode, Encode};
use rgw::{DefaultId, NameToId, ObjectVersion, Pool, RawObject, Zone, ZoneEntry, ZoneGroup};
use types::{Errno, RealTime};

use crate::garbage::{EQUAL, QUEUE, SHARDS};
use crate::plan::optional;
use crate::site::NOTICES;
use crate::system::{self, Attrs, Over, Write};
use crate::{Error, Moment, Op, Plan, Reply, Request, Site};

/// Where zones are described. Source: rgw_zone_root_pool in src/common/options.cc.
const ROOT: &str = ".rgw.root";
/// Index shards of new buckets, unless the zone says otherwise. Source: RGWZoneGroup's default of
/// bucket_index_max_shards in src/rgw/rgw_zone.h.
const BUCKET_SHARDS: u32 = 11;
/// Bytes of a queue of garbage. Source: rgw_gc_max_queue_size.
const QUEUE_BYTES: u64 = 134_213_632;
/// Tags in it that may be put off. Source: rgw_gc_max_deferred.
const MAX_DEFERRED: u64 = 50;

/// Who starts, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub zone: Bytes,
    pub zonegroup: Bytes,
    /// Number of the gateway's client in the cluster.
    pub instance: u64,
}

fn root(prefix: &str, rest: &[u8]) -> RawObject {
    RawObject::new(&Pool::new(ROOT, ""), [prefix.as_bytes(), rest].concat())
}

/// A made-up id of 36 letters, as libuuid makes them.
fn new_id(moment: &mut Moment) -> Bytes {
    let mut bytes = [0u8; 16];
    moment.entropy.fill(&mut bytes);
    let n = u128::from_be_bytes(bytes);
    // Version 4, variant 1.
    let n = n & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{n:032x}");
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    let parts = parts.map(|(from, to)| hex.get(from..to).unwrap_or_default());
    parts.join("-").into()
}

/// A thing that has an id and a name.
#[derive(Clone)]
struct Named<T> {
    info: &'static str,
    names: &'static str,
    name: Bytes,
    id: Bytes,
    made: T,
    now: RealTime,
}

impl<T: Encode + Decode + Clone + Send + 'static> Named<T> {
    fn find(&self) -> Plan<Option<T>> {
        let info = self.info;
        optional(system::read::<NameToId>(root(self.names, &self.name))).and_then(move |found| match found {
            None => Plan::ok(None),
            Some(name) => system::read::<T>(root(info, &name.value.id)).try_map(|info| Ok(Some(info.value))),
        })
    }

    fn write(&self, object: RawObject, data: Bytes) -> Plan<Reply> {
        let (attrs, over, version, now) = (Attrs::new(), Over::Nothing, None, self.now);
        Plan::ask(system::request(&Write { object, data, attrs, over, version, now }))
    }

    /// What is there under the name, or what is made.
    fn find_or_make(self) -> Plan<T> {
        self.find().and_then(move |found| {
            if let Some(found) = found {
                return Plan::ok(found);
            }
            let (info, name) = (root(self.info, &self.id), NameToId { id: self.id.clone() });
            let named = self.write(root(self.names, &self.name), name.to_bytes());
            self.write(info.clone(), self.made.to_bytes()).and_then(move |_| named).then(move |done| {
                match done {
                    Ok(_) => Plan::ok(self.made),
                    Err(Error::Rados(Errno::EEXIST)) => {
                        Plan::ask(Request::new(info).op(Op::Remove { may_miss: true }))
                            .and_then(move |_| self.find())
                            .try_map(|found| found.ok_or(Error::Raced))
                    }
                    Err(e) => Plan::failed(e),
                }
            })
        })
    }
}

impl Site {
    /// Finds or makes the zone that a gateway works in. A zone of a realm is refused: what its gateways log
    /// for other zones, this core does not write yet.
    pub fn start(start: Start, moment: &mut Moment) -> Plan<Self> {
        let (now, zone_id, group_id) = (moment.now, new_id(moment), new_id(moment));
        let zone = Named {
            info: "zone_info.",
            names: "zone_names.",
            made: Zone::new(zone_id.clone(), start.zone.clone()),
            name: start.zone.clone(),
            id: zone_id,
            now,
        };
        let realm = optional(system::read::<DefaultId>(root("default.realm", b"")));
        realm
            .and_then(move |realm| match realm {
                Some(_) => Plan::failed(Error::Realm),
                None => zone.find_or_make(),
            })
            .and_then(move |zone| {
                let member = ZoneEntry::new(zone.id.clone(), zone.name.clone());
                let group = Named {
                    info: "zonegroup_info.",
                    names: "zonegroups_names.",
                    made: ZoneGroup::new(group_id.clone(), start.zonegroup.clone(), member),
                    name: start.zonegroup,
                    id: group_id,
                    now,
                };
                group.find_or_make().and_then(move |group| {
                    let member = group.zones.get(&zone.id);
                    let shards = member.map_or(BUCKET_SHARDS, |zone| zone.index_shards);
                    let site = Self {
                        zonegroup: group.id,
                        default_placement: group.default_placement,
                        shards,
                        instance: start.instance,
                        zone: zone.into(),
                    };
                    site.share().and_then(|()| Plan::ok(site))
                })
            })
    }

    /// Makes the objects that gateways tell each other of changes by, and the queues for garbage.
    fn share(&self) -> Plan<()> {
        let create = |object| Request::new(object).op(Op::Create { exclusive: false });
        let notices = (0..NOTICES).map(|n| create(RawObject::new(&self.zone.control, format!("notify.{n}"))));
        let version = |version| ObjectVersion { version, tag: Bytes::new() };
        let none = Condition { version: version(0), op: EQUAL };
        let none = CondArgs { version: version(0), conditions: vec![none] };
        let init = gc_queue::InitArgs { size: QUEUE_BYTES, max_deferred: MAX_DEFERRED };
        let queues = (0..SHARDS).map(|n| {
            create(RawObject::new(&self.zone.gc, format!("gc.{n}")))
                .call(&version::CHECK, &none)
                .call(&gc_queue::INIT, &init)
                .call(&version::SET, &VersionArgs { version: version(QUEUE) })
        });
        Plan::ask_each(notices.chain(queues).collect()).try_map(|replies| {
            // Of another version are queues that are there.
            let failed = |reply: &Result<Reply, Errno>| reply.as_ref().err().copied();
            let mut failures = replies.iter().filter_map(failed).filter(|e| *e != Errno::ECANCELED);
            failures.next().map_or(Ok(()), |e| Err(e.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use types::{Entropy, SeededEntropy};

    use super::*;
    use crate::Rados;
    use crate::cluster::{Cluster, NOW};
    use crate::recorded::{ops, requests};

    fn start(entropy: &mut SeededEntropy) -> Plan<Site> {
        let start = Start { zone: "default".into(), zonegroup: "default".into(), instance: 7 };
        Site::start(start, &mut Moment { now: NOW, entropy })
    }

    fn one(c: &mut Cluster, seed: u64) -> Result<Site, Error> {
        start(&mut SeededEntropy(seed)).run(c)
    }

    /// The zone as it is stored, and its group.
    fn stored(site: &Site) -> (Bytes, Bytes) {
        (site.zone.to_bytes(), site.zonegroup.clone())
    }

    #[test]
    fn an_empty_cluster_gets_what_radosgw_makes_there() {
        let mut c = Cluster::default();
        let site = one(&mut c, 1).unwrap();
        let id = |id: &Bytes| String::from_utf8(id.to_vec()).unwrap();
        let names = [
            format!("zone_info.{}", id(&site.zone.id)),
            "zone_names.default".into(),
            format!("zonegroup_info.{}", id(&site.zonegroup)),
            "zonegroups_names.default".into(),
        ];
        assert_eq!(c.names(ROOT), names);
        assert_eq!((c.names("default.rgw.control").len(), c.names("default.rgw.log:gc").len()), (8, 32));
        assert_eq!((site.shards, site.default_placement.name.as_ref()), (11, &b"default-placement"[..]));
        assert_eq!((site.zone.id.len(), site.zone.id[14], site.zone.id != site.zonegroup), (36, b'4', true));
        // As stock radosgw asked for a queue, which it found there.
        let queue = c.done.iter().find(|r| r.object.oid == "gc.30").unwrap();
        assert_eq!(ops(queue), requests("gc.30")[0]);
    }

    #[test]
    fn what_is_there_is_found() {
        let mut c = Cluster::default();
        let first = one(&mut c, 1).unwrap();
        let done = c.done.len();
        let again = one(&mut c, 2).unwrap();
        assert_eq!((stored(&again), c.done.len()), (stored(&first), done));
    }

    #[test]
    fn gateways_of_a_realm_are_refused() {
        let mut c = Cluster::default();
        let realm = DefaultId { id: "r".into() }.to_bytes();
        Plan::ask(Request::new(root("default.realm", b"")).op(Op::WriteFull(realm))).run(&mut c).unwrap();
        assert_eq!((one(&mut c, 1).err(), c.done.len()), (Some(Error::Realm), 1));
    }

    #[test]
    fn of_two_that_start_at_once_both_work_in_one_zone() {
        for seed in 0..40 {
            let (mut c, mut entropy) = (Cluster::default(), SeededEntropy(seed));
            let mut plans = [start(&mut SeededEntropy(100 + seed)), start(&mut SeededEntropy(200 + seed))];
            while plans.iter().any(|plan| matches!(plan, Plan::Ask(..))) {
                let n = (entropy.next_u64() % 2) as usize;
                let plan = std::mem::replace(&mut plans[n], Plan::failed(Error::Unexpected));
                plans[n] = match plan {
                    Plan::Ask(requests, next) => next(requests.into_iter().map(|r| c.perform(r)).collect()),
                    done => done,
                };
            }
            let [first, second] = plans.map(|plan| plan.run(&mut c).unwrap());
            assert_eq!(stored(&first), stored(&second), "{seed}");
            assert_eq!(c.names(ROOT).len(), 4, "{seed}");
        }
    }

    #[test]
    fn a_start_that_was_cut_off_can_be_made_again() {
        for left in 0..50 {
            let mut c = Cluster::default();
            c.left = Some(left);
            let _ = one(&mut c, 1);
            c.left = None;
            let site = one(&mut c, 2).unwrap();
            assert_eq!(stored(&one(&mut c, 3).unwrap()), stored(&site), "{left}");
        }
    }
}
