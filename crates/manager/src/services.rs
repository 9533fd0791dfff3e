//! The services as the monitors are told of them, within what the monitors take.
//!
//! Where all is too much, the key whose services say the most loses what they say of themselves first, and
//! then its entries: nobody can keep the others' services from being told of. What is left out is counted,
//! and said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codec::Encode;
use maps::{Service, ServiceDaemon, ServiceMap};
use types::{AuthName, Now};

use crate::daemons::{DaemonKey, Daemons};

/// Bytes of all services that the monitors take.
const SERVICE_MAP_BYTES: usize = 1 << 20;
/// What is left out is said again after so long.
const SAID_AGAIN: Duration = Duration::from_secs(3_600);

/// What one key's services take up in the map, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    /// Of their metadata and tasks.
    texts: usize,
    /// Of all the rest.
    bare: usize,
}

/// Whose texts and whose entries are left out.
#[derive(Debug, Default)]
struct LeftOut<'a> {
    texts: BTreeSet<Option<&'a AuthName>>,
    entries: BTreeSet<Option<&'a AuthName>>,
}

/// What was left out the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cut {
    /// Services whose metadata and tasks were left out, and services that were left out altogether.
    pub texts: u64,
    pub entries: u64,
    /// When (monotonic) that was last said.
    said: Option<Duration>,
}

impl Daemons {
    /// See the module's documentation. The map takes up at most 1 MiB. With it comes a line for the log when
    /// something was left out.
    pub fn services_for_monitors(&mut self, now: Now) -> (ServiceMap, Option<String>) {
        let (map, texts, entries) = self.services_that_fit();
        let said = self.cut.said.filter(|at| now.mono.saturating_sub(*at) < SAID_AGAIN);
        let is_news = said.is_none() && texts + entries > 0;
        self.cut = Cut { texts, entries, said: if is_news { Some(now.mono) } else { said } };
        let line = || {
            format!(
                "services say more than {SERVICE_MAP_BYTES} bytes: the monitors are not told of {entries} of \
                 them, nor what {texts} others say of themselves"
            )
        };
        (map, is_news.then(line))
    }

    /// The map, how many services it has without their texts, and how many it lacks.
    fn services_that_fit(&self) -> (ServiceMap, u64, u64) {
        let left_out = self.left_out();
        let (mut texts, mut entries) = (0, 0);
        let mut map = ServiceMap {
            epoch: self.services.epoch,
            modified: self.services.modified,
            ..ServiceMap::default()
        };
        for (name, service) in &self.services.services {
            let mut told = Service { summary: service.summary.clone(), ..Service::default() };
            for (id, daemon) in &service.daemons {
                let owner = self.owner(name, id);
                if left_out.entries.contains(&owner) {
                    entries += 1;
                    continue;
                }
                let is_cut = left_out.texts.contains(&owner);
                texts += u64::from(is_cut);
                let daemon = if is_cut { bare(daemon) } else { daemon.clone() };
                told.daemons.insert(id.clone(), daemon);
            }
            if !told.daemons.is_empty() {
                map.services.insert(name.clone(), told);
            }
        }
        (map, texts, entries)
    }

    fn left_out(&self) -> LeftOut<'_> {
        let mut sizes: BTreeMap<Option<&AuthName>, Size> = BTreeMap::new();
        for (name, service) in &self.services.services {
            for (id, daemon) in &service.daemons {
                let (whole, bare) = (daemon.to_bytes().len(), bare(daemon).to_bytes().len());
                let size = sizes.entry(self.owner(name, id)).or_default();
                size.texts += whole - bare;
                // The service's own name and envelope are counted with each of its daemons, which is more
                // than they take.
                size.bare += bare + id.len() + name.len() + service.summary.len() + 64;
            }
        }
        let mut total: usize = sizes.values().map(|s| s.texts + s.bare).sum();
        let mut left_out = LeftOut::default();
        let mut largest: Vec<_> = sizes.into_iter().collect();
        largest.sort_by_key(|(_, size)| std::cmp::Reverse(size.texts));
        for (owner, size) in largest.iter().filter(|(_, size)| size.texts > 0) {
            if total <= SERVICE_MAP_BYTES {
                return left_out;
            }
            total -= size.texts;
            left_out.texts.insert(*owner);
        }
        largest.sort_by_key(|(_, size)| std::cmp::Reverse(size.bare));
        for (owner, size) in largest {
            if total <= SERVICE_MAP_BYTES {
                break;
            }
            total -= size.bare;
            left_out.entries.insert(owner);
        }
        left_out
    }

    fn owner(&self, service: &str, id: &str) -> Option<&AuthName> {
        let key = DaemonKey { service: service.to_owned(), id: id.to_owned() };
        self.get(&key)?.owner.as_ref()
    }
}

/// Without what it says of itself.
fn bare(daemon: &ServiceDaemon) -> ServiceDaemon {
    ServiceDaemon {
        gid: daemon.gid,
        addr: daemon.addr,
        start_epoch: daemon.start_epoch,
        start_stamp: daemon.start_stamp,
        ..ServiceDaemon::default()
    }
}
