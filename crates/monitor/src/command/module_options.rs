//! Options of the modules of the manager in charge, as these describe them.
//!
//! Source: MgrMonitor::find_module_option.

use admin::options::ModuleSetting;
use codec::Decode;
use maps::ModuleOption;
use messages::osd::RawEnvelope;

use crate::state::State;

const PREFIX: &str = "mgr/";

/// Whether the manager in charge says which options its modules have. There may be none, and an older one of
/// ours says nothing.
pub(super) fn are_known(state: &State) -> bool {
    state.mgr.active.as_ref().is_some_and(|a| a.modules.iter().any(|m| !m.options.is_empty()))
}

/// The option `mgr/MODULE/OPTION`, or the same for one manager, `mgr/MODULE/NAME/OPTION`.
pub(super) fn find(state: &State, name: &str) -> Option<ModuleSetting> {
    let (module, rest) = name.strip_prefix(PREFIX)?.split_once('/')?;
    let option = rest.split_once('/').map_or(rest, |(_, option)| option);
    let module = state.mgr.active.as_ref()?.modules.iter().find(|m| m.name == module)?;
    let raw = module.options.get(option)?;
    setting(&module.name, option, raw, |other| module.options.contains_key(other))
}

/// The names of all.
pub(super) fn names(state: &State) -> Vec<String> {
    let modules = state.mgr.active.iter().flat_map(|a| &a.modules);
    let of_module = |m: &messages::mgr::ModuleInfo| {
        m.options.keys().map(|key| format!("{PREFIX}{}/{key}", m.name)).collect::<Vec<_>>()
    };
    let mut names: Vec<String> = modules.flat_map(of_module).collect();
    names.sort_unstable();
    names
}

fn setting(
    module: &str,
    key: &str,
    raw: &RawEnvelope,
    is_sibling: impl Fn(&str) -> bool,
) -> Option<ModuleSetting> {
    let option = ModuleOption::from_bytes(raw.0.clone()).ok()?;
    let join = |words: Vec<String>, by: &str| words.join(by);
    let full = |name: &String| match is_sibling(name) {
        true => format!("{PREFIX}{module}/{name}"),
        false => name.clone(),
    };
    Some(ModuleSetting {
        name: format!("{PREFIX}{module}/{key}"),
        kind: option.kind_name(),
        level: option.level_name(),
        flags: option.flags,
        choices: join(option.enum_allowed.into_iter().collect(), "|"),
        tags: join(option.tags.into_iter().collect(), ","),
        see_also: join(option.see_also.iter().map(full).collect(), ","),
        default: option.default_value,
        min: option.min,
        max: option.max,
        desc: option.desc,
        long_desc: option.long_desc,
    })
}
