//! What a manager is to the monitors: whose they are, the beacon that offers it to them, and the modules that
//! it does not stand for.
//!
//! Invariants:
//! 1. There is no beacon before it is known whose the monitors are.
//! 2. Where the monitors are Ceph's and modules are in use that we do not stand for, there is none either,
//!    unless it was forced: whoever sends beacons is put in charge when the manager before it fails.
//!
//! Source: MgrStandby::send_beacon in src/mgr/MgrStandby.cc, MgrMonitor::prepare_beacon.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode};
use maps::{MgrMap, ServiceMap};
use messages::mgr::MMgrBeacon;
use messages::mon::{MMonCommandAck, SubscribeItem};
use monitor::Whose;
use serde_json::json;
use types::{Epoch, Now};

use crate::core::{Manager, subscribe};
use crate::daemons::Daemons;
use crate::io::Output;
use crate::modules;
use crate::mon_commands::MonRequest;
use crate::rbd::MODULE;

const BEACON_EVERY: Duration = Duration::from_secs(2);
/// A monitor that has no quorum answers late, one that was replaced never.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// `None` until they have said.
    pub(crate) whose: Option<Whose>,
    /// The question that waits for its answer, and when it is asked again.
    asked: Option<u64>,
    ask_at: Duration,
    beacon_at: Duration,
    /// That they do not say whose they are was told.
    complained: bool,
    /// Modules in use that we do not stand for: all, and those of them that pools show.
    unserved: BTreeSet<String>,
    used_by_pools: BTreeSet<String>,
    /// What the map of managers shows, and whether we stand by there.
    switched_on: BTreeSet<String>,
    stands_by: bool,
    /// What Ceph's manager always does and we do not, until that has been said.
    always_on: Option<String>,
    always_on_said: bool,
    /// The newest map that had us, under our number of now.
    listed: Option<Epoch>,
    /// The epoch of the last service map that the monitors are known to have, and which state of ours it is.
    services_epoch: Epoch,
    services_sent: Option<u64>,
}

impl Standing {
    /// A session with a monitor begins; with another number than before the maps do not know us yet.
    pub(crate) fn connected(&mut self, other_number: bool) {
        self.asked = None;
        self.listed = self.listed.filter(|_| !other_number);
        // A monitor that died may have had our services, and no other may have heard of them.
        self.services_sent = None;
    }

    pub(crate) fn is_answer(&self, tid: u64) -> bool {
        self.asked == Some(tid)
    }

    /// The service map, when Ceph's monitors do not have it from us yet; empty otherwise.
    pub(crate) fn services_to_send(&mut self, now: Now, daemons: &mut Daemons) -> (Bytes, Option<String>) {
        let version = daemons.services_version;
        if self.services_sent.replace(version) == Some(version) {
            return (Bytes::new(), None);
        }
        self.services_epoch = daemons.services.epoch.max(self.services_epoch.next());
        daemons.services.epoch = self.services_epoch;
        let (map, line) = daemons.services_for_monitors(now);
        (map.to_bytes(), line)
    }
}

impl Manager {
    pub(crate) fn tick_standing(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.mon && now.mono >= self.standing.beacon_at {
            self.beacon(now, out);
        }
        if self.standing.whose.is_none() && now.mono >= self.standing.ask_at {
            self.standing.asked = None;
            self.ask_whose(now, out);
        }
    }

    /// Offers ourselves to the monitors, where that may be.
    pub(crate) fn beacon(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.may_offer() {
            return;
        }
        self.standing.beacon_at = now.mono + BEACON_EVERY;
        let of_ceph = self.standing.whose == Some(Whose::Ceph);
        let client = self.client.addrs().filter(|_| self.confirmed);
        let beacon = MMgrBeacon {
            client_names: client.map(|_| MODULE.to_owned()).into_iter().collect(),
            client_addrs: client.cloned().into_iter().collect(),
            addrs: self.settings.addrs.clone(),
            gid: self.gid,
            // Ceph's monitors take the commands of a manager that has just begun to serve.
            available: !of_ceph || self.confirmed,
            name: self.settings.name.clone(),
            fsid: self.fsid(),
            commands: crate::command::descriptions(),
            metadata: self.settings.metadata.clone(),
            services: self.serving.clone(),
            modules: if of_ceph { modules::offered() } else { modules::served() },
            features: types::features::PACIFIC,
            ..MMgrBeacon::default()
        };
        out.push(Output::send_mon(beacon));
    }

    fn may_offer(&self) -> bool {
        match self.standing.whose {
            None => false,
            Some(Whose::Ours) => true,
            Some(Whose::Ceph) if self.confirmed || self.settings.force => true,
            // Before the first map it is not known which modules are on.
            Some(Whose::Ceph) => self.modules.is_some() && self.standing.unserved.is_empty(),
        }
    }

    /// Asks the monitors whose they are. They want the cluster's id, which comes with the first map.
    pub(crate) fn ask_whose(&mut self, now: Now, out: &mut Vec<Output>) {
        let fsid = self.fsid();
        if !self.mon || fsid.is_zero() || self.standing.whose.is_some() || self.standing.asked.is_some() {
            return;
        }
        let request = MonRequest { json: Whose::QUESTION.to_owned(), ..MonRequest::default() };
        self.standing.asked = Some(self.mon_commands.send_own(fsid, request, out));
        self.standing.ask_at = now.mono + ASK_AGAIN;
    }

    pub(crate) fn told_whose(&mut self, now: Now, ack: &MMonCommandAck, out: &mut Vec<Output>) {
        self.standing.asked = None;
        match Whose::of_answer(ack.result, &ack.output) {
            Ok(whose) => {
                self.standing.whose = Some(whose);
                out.push(Output::Monitors(whose));
                // Ceph's monitors listen to whoever has the capabilities.
                self.active &= whose == Whose::Ours || self.confirmed;
                self.follow_services(out);
                self.say_always_on(out);
                self.say_unserved(out);
                self.beacon(now, out);
            }
            Err(errno) if !self.standing.complained => {
                self.standing.complained = true;
                let why = format!(
                    "the monitors do not say whose they are ({errno}); this manager waits until they do"
                );
                out.push(Output::Warn(why));
            }
            Err(_) => {}
        }
    }

    /// Ceph's monitors keep the map of services; ours have it from us as it is.
    pub(crate) fn follow_services(&self, out: &mut Vec<Output>) {
        if self.standing.whose == Some(Whose::Ceph) {
            subscribe([("servicemap", SubscribeItem { start: 0, flags: 0 })], out);
        }
    }

    /// The services that the monitors hold: ours go on from there, for whoever follows them reads later
    /// epochs only.
    ///
    /// Source: DaemonServer::got_service_map.
    pub(crate) fn service_map(&mut self, now: Now, map: Bytes) {
        let Ok(theirs) = ServiceMap::from_bytes(map) else { return };
        if theirs.epoch <= self.standing.services_epoch {
            // Our own, that comes back.
            return;
        }
        self.standing.services_epoch = theirs.epoch;
        let same = theirs.services == self.daemons.services.services;
        self.standing.services_sent = same.then_some(self.daemons.services_version);
        self.pgs.health_changed(!same, now);
    }

    /// Whether a process with our name has taken the place that this one had.
    pub(crate) fn is_replaced_by_its_like(&mut self, map: &MgrMap) -> bool {
        let own = &self.settings.addrs;
        let at_ours = !own.is_empty() && map.active_addrs == *own;
        if map.active_gid == self.gid || map.standbys.contains_key(&self.gid) || at_ours {
            self.standing.listed = self.standing.listed.max(Some(map.epoch));
            return false;
        }
        let name = &self.settings.name;
        let there = map.active_gid != 0 && map.active_name == *name;
        // A monitor that is behind may name an earlier life of this manager.
        let is_news = self.standing.listed.is_some_and(|epoch| map.epoch > epoch);
        is_news && (there || map.standbys.values().any(|s| s.name == *name))
    }

    /// Looks which modules are in use, on Ceph's monitors: where we do not stand for one we leave the others
    /// the place.
    pub(crate) fn look_at_modules(&mut self, now: Now, map: &MgrMap, out: &mut Vec<Output>) {
        let is_first = self.modules.replace(map.modules.clone()).is_none();
        self.standing.switched_on = modules::unserved(map);
        self.standing.stands_by = map.standbys.contains_key(&self.gid);
        self.look_at_dashboard(out);
        self.standing.always_on = modules::always_on_unserved(map);
        self.say_always_on(out);
        self.weigh_modules(now, is_first, out);
    }

    /// The same of pools, which show that some of the modules are used that are always on.
    pub(crate) fn look_at_pools(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        self.standing.used_by_pools = modules::used_by_pools(map);
        self.weigh_modules(now, false, out);
    }

    fn weigh_modules(&mut self, now: Now, is_first: bool, out: &mut Vec<Output>) {
        let standing = &mut self.standing;
        let unserved = &standing.switched_on | &standing.used_by_pools;
        let news = standing.unserved != unserved;
        standing.unserved = unserved;
        if standing.whose != Some(Whose::Ceph) || !news && !is_first {
            return;
        }
        self.say_unserved(out);
        if self.may_offer() {
            return self.beacon(now, out);
        }
        if self.standing.stands_by {
            let json = json!({ "prefix": "mgr fail", "who": self.settings.name }).to_string();
            self.mon_commands.send_own(self.fsid(), MonRequest { json, ..MonRequest::default() }, out);
        }
    }

    /// Says once what Ceph's manager always does and we do not.
    fn say_always_on(&mut self, out: &mut Vec<Output>) {
        if self.standing.whose == Some(Whose::Ceph) && !self.standing.always_on_said {
            self.standing.always_on_said = self.standing.always_on.is_some();
            out.extend(self.standing.always_on.clone().map(Output::Warn));
        }
    }

    fn say_unserved(&self, out: &mut Vec<Output>) {
        let unserved = &self.standing.unserved;
        if self.standing.whose != Some(Whose::Ceph) || unserved.is_empty() {
            return;
        }
        let names = unserved.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let what = match (self.settings.force, self.confirmed) {
            (true, _) => "takes the place all the same (--force)",
            (false, true) => "stays in charge without them",
            (false, false) => "stays out of the way (--force takes the place all the same)",
        };
        out.push(Output::Warn(format!(
            "modules are in use that this manager does not stand for: {names}; it {what}"
        )));
    }
}
