//! One bound over what an OSD keeps in memory: `osd_memory_target` less what the program takes is shared by the PG logs,
//! client operations under way, recovery, and the store, which gets what the others leave.
//!
//! Invariants:
//! 1. Client operations have at most half, and half as much again those that wait for PGs that do not serve; what recovery
//!    has under way has at most an eighth, and so has one of its messages, whatever their own options say.
//! 2. The store has at least `STORE_LEAST`: logs are bounded by their own options and the number of PGs, not by this.
//!
//! Source: osd_memory_target in src/common/options.cc; there the caches alone follow it.

use super::OsdCore;
use crate::OsdConfig;

/// What a daemon takes without a PG: pages of its program and libraries, its runtime and threads, maps.
const PROGRAM: u64 = 24 << 20;
/// The store works with less than this, but reads every page again.
const STORE_LEAST: u64 = 16 << 20;
/// The store's part moves in such steps.
const STEP: u64 = 1 << 20;

/// What is shared: an eighth is lost in half-filled pages of the allocator.
fn shared_bytes(target: u64) -> u64 {
    let rest = target.saturating_sub(PROGRAM);
    rest - rest / 8
}

/// The store's part when the others use so much.
fn store_part(target: u64, others: u64) -> u64 {
    let left = shared_bytes(target).saturating_sub(others).max(STORE_LEAST);
    left - left % STEP
}

/// Keeps the bounds of operations and recovery within the target; 0 leaves all as it is.
pub(super) fn bound(config: &mut OsdConfig) {
    if config.memory_target == 0 {
        return;
    }
    let all = shared_bytes(config.memory_target);
    let clients = (all / 2).max(4 << 20);
    config.client_message_size_cap = match config.client_message_size_cap {
        0 => clients,
        set => set.min(clients),
    };
    config.max_push_cost = config.max_push_cost.min((all / 8).max(1 << 20));
    // Twice as much is under way at one time.
    config.recovery_max_chunk = config.recovery_max_chunk.min((all / 16).max(1 << 20));
}

impl OsdCore {
    /// Gives the store what the others leave.
    pub(super) fn memory_tick(&mut self) {
        let config = &self.shared.config;
        if config.memory_target == 0 {
            return;
        }
        let logs: usize = self.pgs.values().map(|pg| pg.log.about_bytes()).sum();
        let recovery = match self.shared.recovery_active {
            0 => 0,
            _ => config.max_push_cost.max(self.shared.recovery_bytes),
        };
        let part = store_part(config.memory_target, logs as u64 + self.clients.bytes() + recovery);
        if part != self.shared.store.memory_limit() {
            self.shared.store.set_memory_limit(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_parts_are_within_the_target_and_the_store_has_its_least() {
        for target in [0, 64, 96, 192, 512, 4096].map(|m| m * MIB) {
            let mut config = OsdConfig { memory_target: target, ..OsdConfig::default() };
            bound(&mut config);
            if target == 0 {
                assert_eq!(config, OsdConfig::default());
                continue;
            }
            let (clients, push) = (config.client_message_size_cap, config.max_push_cost);
            let under_way = 2 * config.recovery_max_chunk;
            let eighth = shared_bytes(target) / 8;
            assert!(under_way <= eighth.max(2 * MIB) && under_way <= 16 * MIB, "{target}: {under_way}");
            for logs in [0, 5, 20, 60].map(|m| m * MIB) {
                let others = logs + clients + push.max(under_way);
                let store = store_part(target, others);
                assert!(store >= STORE_LEAST && store % MIB == 0);
                assert!(store == STORE_LEAST || PROGRAM + others + store <= target, "{target}: {store}");
            }
            assert!(clients <= 500 * MIB && push <= 8 * MIB);
        }
        assert_eq!(store_part(96 * MIB, 8 * MIB), 55 * MIB);
        assert_eq!(store_part(96 * MIB, 60 * MIB), STORE_LEAST);
    }

    #[test]
    fn own_options_hold_where_they_are_tighter() {
        let mut config = OsdConfig {
            memory_target: 4096 * MIB,
            client_message_size_cap: 3 * MIB,
            max_push_cost: MIB,
            recovery_max_chunk: 100_000,
            ..OsdConfig::default()
        };
        bound(&mut config);
        assert_eq!((config.client_message_size_cap, config.max_push_cost), (3 * MIB, MIB));
        assert_eq!(config.recovery_max_chunk, 100_000);
        config.client_message_size_cap = 0;
        bound(&mut config);
        assert!((MIB..4096 * MIB).contains(&config.client_message_size_cap), "no number is no bound");
    }
}
