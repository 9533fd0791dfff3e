//! The OSD's options: what the monitors, the configuration file and operators say, and what the core does by it.

use std::collections::BTreeMap;

use super::OsdCore;
use crate::config::OPTIONS;

impl OsdCore {
    /// Takes up the options of the configuration file, which win over those of the monitors.
    #[must_use]
    pub fn with_file_options(mut self, options: &BTreeMap<String, String>) -> Self {
        self.values = admin::options::Values::new(format!("osd.{}", self.shared.whoami), options);
        self.apply_values();
        self
    }

    /// What the monitors say from now on, in place of what they said before.
    pub(super) fn config_from_mon(&mut self, options: Vec<(String, String)>) {
        self.values.set_from_mon(&options.into_iter().collect());
        self.apply_values();
    }

    /// Options act at once. One that is set nowhere has the value that the core was made with.
    pub(super) fn apply_values(&mut self) {
        let mut config = self.base_config.clone();
        let set = |name: &str| self.values.get(name).filter(|_| self.values.levels(name).next().is_some());
        for name in OPTIONS {
            if let Some(value) = set(name) {
                config.set(name, &value);
            }
        }
        // 0 stands for what suits the device: ours is always taken for flash.
        if self.values.int("osd_recovery_max_active") == 0 {
            let suits = set("osd_recovery_max_active_ssd");
            let base = || self.base_config.recovery_max_active.to_string();
            config.set("osd_recovery_max_active", &suits.unwrap_or_else(base));
        }
        if self.values.float("osd_recovery_sleep") <= 0.0 {
            let suits = set("osd_recovery_sleep_ssd");
            let base = || self.base_config.recovery_sleep.as_secs_f64().to_string();
            config.set("osd_recovery_sleep", &suits.unwrap_or_else(base));
        }
        super::memory::bound(&mut config);
        self.shared.config = config;
        self.tracker.configure(&self.values);
        self.heartbeat_peers_changed();
    }

    /// The value in force of an option.
    pub fn option(&self, name: &str) -> Option<String> {
        self.values.get(name)
    }
}
