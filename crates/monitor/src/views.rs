//! The maps that the state holds in another form, made for those who read them.

use maps::MonMap;

use crate::settings::Settings;
use crate::state::State;

/// Names of the monitors with these ranks.
pub(crate) fn quorum_names(map: &MonMap, ranks: &[u32]) -> Vec<String> {
    let name = |rank: &u32| map.ranks.get(usize::try_from(*rank).ok()?).cloned();
    ranks.iter().filter_map(name).collect()
}

/// Names of the quorum's members.
pub(crate) fn quorum(state: &State, settings: &Settings) -> Vec<String> {
    quorum_names(&state.monmap, &settings.quorum.members)
}
