//! The pool that keeps what disks have told.
//!
//! Source: Module.maybe_create_device_pool, create_device_pool in src/pybind/mgr/devicehealth/module.py (16.2).

use serde_json::json;
use types::{Now, PoolId};

use crate::core::Manager;
use crate::io::Output;
use crate::mon_commands::MonRequest;
use crate::outcome::Then;

const APPLICATION: &str = "mgr_devicehealth";

/// How far the monitors are with making it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Making {
    #[default]
    NotAsked,
    /// They have not answered.
    Asked,
    /// They refused, for this reason.
    Refused(String),
}

/// Whether it can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pool {
    Is(PoolId),
    /// It is being made.
    Soon,
    /// For this reason.
    None(String),
}

impl Manager {
    /// The pool, which is made where it is missing and there are OSDs enough for it.
    pub(super) fn device_pool(&mut self, now: Now, out: &mut Vec<Output>) -> Pool {
        let Some(map) = &self.map else { return Pool::Soon };
        let name = self.device_health.options.pool_name.clone();
        let there = map.pool_by_name(&name);
        let has_application =
            |pool| map.pools.get(&pool).is_some_and(|pool| !pool.application_metadata.is_empty());
        let request = match there {
            Some(pool) if has_application(pool) => {
                self.device_health.pool = Making::NotAsked;
                return Pool::Is(pool);
            }
            Some(_) => json!({
                "prefix": "osd pool application enable", "format": "json", "pool": name,
                "app": APPLICATION,
            }),
            None => {
                let up = map.existing_osds().filter(|(_, osd)| osd.is_up()).count();
                if i64::try_from(up).unwrap_or(i64::MAX) < self.options.int("osd_pool_default_size") {
                    return Pool::None(format!("{name} pool not yet available"));
                }
                json!({
                    "prefix": "osd pool create", "format": "json", "pool": name, "pg_num": 1,
                    "pg_num_min": 1, "pg_num_max": 32,
                })
            }
        };
        match std::mem::take(&mut self.device_health.pool) {
            Making::Asked => self.device_health.pool = Making::Asked,
            Making::Refused(why) => return Pool::None(why),
            Making::NotAsked => {
                self.device_health.pool = Making::Asked;
                let request = MonRequest { json: request.to_string(), ..MonRequest::default() };
                self.ask_of_itself(now, vec![request], Then::DevicePool, out);
            }
        }
        Pool::Soon
    }

    /// The monitors have answered.
    pub(crate) fn device_pool_asked(&mut self, refused: Option<String>) {
        self.device_health.pool = refused.map_or(Making::NotAsked, Making::Refused);
    }
}
