//! The monitors' own status, which commands and `tell` share.

use serde_json::{Value, json};

use crate::settings::Settings;
use crate::state::State;

/// What `mon_status` answers. Source: Monitor::get_mon_status.
pub fn mon_status(state: &State, settings: &Settings) -> Value {
    let q = &settings.quorum;
    let role = match q.leader {
        Some(leader) if leader == q.rank => "leader",
        Some(_) => "peon",
        None => "electing",
    };
    json!({
        "name": settings.name,
        "rank": q.rank,
        "state": role,
        "election_epoch": q.term,
        "quorum": q.members,
        "features": {
            "required_con": "2449958747317026820",
            "required_mon": maps::mon_features::names(maps::mon_features::ALL),
            "quorum_con": types::features::PACIFIC.to_string(),
            "quorum_mon": maps::mon_features::names(maps::mon_features::ALL),
        },
        "outside_quorum": [],
        "extra_probe_peers": [],
        "sync_provider": [],
        "monmap": state.monmap.dump(),
        "feature_map": {},
        "stretch_mode": false,
    })
}
