//! Making and removing rules.
//!
//! Source: add_simple_rule_at, remove_rule and rename_rule in src/crush/CrushWrapper.cc.

use crate::validate::MAX_RULES;
use crate::{CrushMap, EditError, Rule, Step};

/// How a rule fills a result: closing gaps, or keeping positions as erasure coding needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleMode {
    Firstn,
    Indep,
}

impl RuleMode {
    pub fn from_name(name: &str) -> Result<Self, EditError> {
        match name {
            "firstn" => Ok(Self::Firstn),
            "indep" => Ok(Self::Indep),
            _ => Err(EditError::UnknownMode(name.to_owned())),
        }
    }
}

/// Pool types that rules name. Source: CEPH_PG_TYPE_* in src/include/rados.h.
pub const RULE_REPLICATED: u8 = 1;
pub const RULE_ERASURE: u8 = 3;

impl CrushMap {
    /// Makes a rule that spreads over the buckets of one type below a root: `osd crush rule create-replicated`, and
    /// what erasure code plugins make. Devices themselves are spread over for type `osd` or an empty one. Its id is
    /// `id`, or the lowest free one.
    pub fn add_simple_rule(
        &mut self,
        name: &str,
        root: &str,
        failure_domain: &str,
        device_class: Option<&str>,
        mode: RuleMode,
        rule_type: u8,
        id: Option<u32>,
    ) -> Result<u32, EditError> {
        let (id, ruleset) = self.free_rule(name, id)?;
        let take = self.item_id(root).ok_or_else(|| EditError::NoSuchName(root.to_owned()))?;
        let type_id = if failure_domain.is_empty() {
            0
        } else {
            self.type_id(failure_domain).ok_or_else(|| EditError::NoSuchType(failure_domain.to_owned()))?
        };
        let take = self.take_of_class(take, device_class)?;
        let rule = simple_rule(ruleset, rule_type, take, type_id, mode);
        self.put_rule(id, name, rule)?;
        Ok(id)
    }

    /// Makes a rule for erasure-coded pools of up to `max_size` chunks whose steps are given: whether each
    /// goes on to devices, how many buckets it takes (0: as many as are wanted), and of which type.
    /// Source: ErasureCodeLrc::create_rule.
    pub fn add_stepped_rule<'a>(
        &mut self,
        name: &str,
        root: &str,
        device_class: Option<&str>,
        steps: impl IntoIterator<Item = (bool, i32, &'a str)>,
        max_size: u8,
    ) -> Result<u32, EditError> {
        let (id, ruleset) = self.free_rule(name, None)?;
        let take = self.item_id(root).ok_or_else(|| EditError::NoSuchName(root.to_owned()))?;
        let take = self.take_of_class(take, device_class)?;
        let mut made = PATIENT.to_vec();
        made.push(Step::take(take));
        for (leaf, count, kind) in steps {
            let type_id = self.type_id(kind).ok_or_else(|| EditError::NoSuchType(kind.to_owned()))?;
            let op = if leaf { Step::CHOOSELEAF_INDEP } else { Step::CHOOSE_INDEP };
            made.push(Step::new(op, count, type_id));
        }
        made.push(Step::emit());
        let rule = Rule { ruleset, rule_type: RULE_ERASURE, min_size: 3, max_size, steps: made };
        self.put_rule(id, name, rule)?;
        Ok(id)
    }

    /// The id and ruleset of a new rule: those asked for, or the lowest free ones.
    fn free_rule(&self, name: &str, id: Option<u32>) -> Result<(u32, u8), EditError> {
        if self.rule_id(name).is_some() {
            return Err(EditError::NameExists(name.to_owned()));
        }
        let id = match id {
            Some(id) if self.rule_number_is_taken(id) => return Err(EditError::RuleExists(id)),
            Some(id) => id,
            None => (0..).find(|id| !self.rule_number_is_taken(*id)).unwrap_or(u32::MAX),
        };
        Ok((id, u8::try_from(id).map_err(|_| EditError::NoFreeId)?))
    }

    /// The part of a root that has the devices of a class.
    fn take_of_class(&self, root: i32, device_class: Option<&str>) -> Result<i32, EditError> {
        let Some(name) = device_class else {
            return Ok(root);
        };
        let no_class = || EditError::NoSuchClass(name.to_owned());
        let class = self.class_id(name).ok_or_else(no_class)?;
        self.class_buckets.get(&root).and_then(|m| m.get(&class)).copied().ok_or_else(no_class)
    }

    /// Puts a rule under an id and name that are free.
    pub fn put_rule(&mut self, id: u32, name: &str, rule: Rule) -> Result<(), EditError> {
        let index = id as usize;
        if index >= MAX_RULES {
            return Err(EditError::NoFreeId);
        }
        if self.rules.len() <= index {
            self.rules.resize(index + 1, None);
        }
        match self.rules.get_mut(index) {
            Some(slot) if slot.is_none() => *slot = Some(rule),
            _ => return Err(EditError::RuleExists(id)),
        }
        self.rule_names.insert(id as i32, name.to_owned());
        Ok(())
    }

    pub fn remove_rule(&mut self, id: u32) -> Result<(), EditError> {
        self.rule(id).ok_or_else(|| EditError::NoSuchRule(id.to_string()))?;
        self.transact(|map| {
            if let Some(slot) = map.rules.get_mut(id as usize) {
                *slot = None;
            }
            map.rule_names.remove(&(id as i32));
            map.rebuild_shadow_trees()
        })
    }

    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let id = self.rule_id(from).ok_or_else(|| EditError::NoSuchRule(from.to_owned()))?;
        if self.rule_id(to).is_some() {
            return Err(EditError::NameExists(to.to_owned()));
        }
        self.rule_names.insert(id, to.to_owned());
        Ok(())
    }

    fn rule_number_is_taken(&self, id: u32) -> bool {
        self.rule(id).is_some() || self.rules.iter().flatten().any(|r| u32::from(r.ruleset) == id)
    }
}

/// More tries than usual: a rule that keeps positions leaves a gap where it finds nothing.
const PATIENT: [Step; 2] =
    [Step::new(Step::SET_CHOOSELEAF_TRIES, 5, 0), Step::new(Step::SET_CHOOSE_TRIES, 100, 0)];

fn simple_rule(ruleset: u8, rule_type: u8, take: i32, type_id: i32, mode: RuleMode) -> Rule {
    let mut steps = Vec::new();
    let (op, min_size, max_size) = match (mode, type_id) {
        (RuleMode::Firstn, 0) => (Step::CHOOSE_FIRSTN, 1, 10),
        (RuleMode::Firstn, _) => (Step::CHOOSELEAF_FIRSTN, 1, 10),
        (RuleMode::Indep, 0) => (Step::CHOOSE_INDEP, 3, 20),
        (RuleMode::Indep, _) => (Step::CHOOSELEAF_INDEP, 3, 20),
    };
    if mode == RuleMode::Indep {
        steps.extend(PATIENT);
    }
    steps.extend([Step::take(take), Step::new(op, 0, type_id), Step::emit()]);
    Rule { ruleset, rule_type, min_size, max_size, steps }
}
