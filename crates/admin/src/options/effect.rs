//! Which options do something, so that none is taken in silence.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::{OptionOf, lines};

/// What an option does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Code of ours reads it.
    Acts,
    /// Ceph's own programs read it: clients, and services that use the cluster.
    Programs,
    /// It is known and has no effect, for this reason.
    Nothing(&'static str),
}

const TABLE: &str = include_str!("effects.tsv");

/// By name, or by the beginning of names with a star behind it.
static EFFECTS: LazyLock<BTreeMap<&'static str, Effect>> =
    LazyLock::new(|| lines(TABLE).filter_map(read).collect());

fn read(line: &'static str) -> Option<(&'static str, Effect)> {
    let mut fields = line.split('\t');
    let name = fields.next()?;
    let effect = match (fields.next()?, fields.next()) {
        ("acts", None) => Effect::Acts,
        ("programs", None) => Effect::Programs,
        ("nothing", Some(why)) => Effect::Nothing(why),
        _ => return None,
    };
    Some((name, effect))
}

/// Of the entries that fit, the one with the longest name.
pub(super) fn of(name: &str) -> Option<Effect> {
    let whole = EFFECTS.get(name).copied();
    let starred = |end| EFFECTS.get(format!("{}*", name.get(..end)?).as_str()).copied();
    whole.or_else(|| (1..=name.len()).rev().find_map(starred))
}

impl OptionOf<'_> {
    /// What it does here. What is not in the table belongs to a module of the manager in charge, which reads
    /// it.
    pub fn effect(&self) -> Effect {
        of(self.name).unwrap_or(Effect::Acts)
    }

    /// Why it does nothing when it is set for `section` (`osd`, `osd.3`, `client.a`, `global`); `None` when
    /// it does something there, or is for Ceph's own programs.
    pub fn no_effect_on(&self, section: &str) -> Option<String> {
        let kind = section.split_once('.').map_or(section, |(kind, _)| kind);
        let is_ours = matches!(kind, "osd" | "mon" | "mgr");
        match self.effect() {
            Effect::Nothing(why) if is_ours || kind == "global" => {
                Some(format!("{} has no effect on Loligo's daemons: {why}", self.name))
            }
            Effect::Programs if is_ours => {
                Some(format!("{} has no effect on Loligo's {kind}: only Ceph's programs read it", self.name))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{all, find};

    #[test]
    fn every_option_says_what_it_does() {
        for o in all() {
            assert!(of(o.name).is_some(), "{} is missing in effects.tsv", o.name);
        }
        let counted = lines(TABLE).count();
        assert_eq!(EFFECTS.len(), counted, "a line that is none, or twice the same name");
        let names: Vec<&str> = lines(TABLE).filter_map(|l| l.split('\t').next()).collect();
        assert!(names.is_sorted(), "in order");
        for name in names {
            let fits = |o: OptionOf<'_>| match name.strip_suffix('*') {
                Some(start) => o.name.starts_with(start),
                None => o.name == name,
            };
            assert!(all().any(fits), "{name} is no option");
        }
    }

    #[test]
    fn the_longest_entry_counts() {
        let says = |name: &str| find(name).expect("known").effect();
        assert_eq!(says("osd_max_backfills"), Effect::Acts);
        assert_eq!(says("rbd_cache_policy"), Effect::Programs);
        assert_eq!(says("mon_client_ping_timeout"), Effect::Programs);
        assert!(matches!(says("osd_op_queue"), Effect::Nothing(why) if why.contains("turns")));
        assert!(matches!(says("osd_command_max_records"), Effect::Nothing(why) if why.contains("no such")));
    }

    #[test]
    fn an_option_without_effect_says_so() {
        let said = |name: &str, section| find(name).expect("known").no_effect_on(section);
        assert_eq!(said("osd_max_backfills", "osd.1"), None);
        assert_eq!(
            said("osd_op_queue", "global").as_deref(),
            Some("osd_op_queue has no effect on Loligo's daemons: requests are served in turns by client")
        );
        assert_eq!(said("debug_ms", "client.a"), None);
        assert_eq!(
            said("debug_ms", "osd.3").as_deref(),
            Some("debug_ms has no effect on Loligo's osd: only Ceph's programs read it")
        );
        assert_eq!(said("ms_async_op_threads", "client"), None, "librados reads it");
    }
}
