//! The placement function: runs a rule for an input.
//!
//! Source: crush_do_rule, crush_choose_firstn, crush_choose_indep in src/crush/mapper.c. Results are equal bit for
//! bit to Ceph's, for every map that [`CrushMap::validate`] accepts, as long as the step budget lasts.

use crate::batch::First;
use crate::choose::{Perms, choose};
use crate::hash::hash32_2;
use crate::{Bucket, ChooseArgMap, CrushMap, ITEM_NONE, ITEM_UNDEF, Step};

/// What one run of a rule may cost: each draw from a bucket costs its items and [`DRAW_COST`]. Real rules need
/// thousands; a rule with absurd try counts would otherwise take hours. At the bound a run takes about a tenth of a
/// second and leaves the rest of its result empty.
pub const DRAW_BUDGET: u64 = 16 << 20;
pub(crate) const DRAW_COST: u64 = 16;

/// Memory of a run, to be reused between runs, also of other rules and maps.
#[derive(Debug, Clone)]
pub struct Scratch {
    working: Vec<i32>,
    output: Vec<i32>,
    leaves: Vec<i32>,
    perms: Perms,
    budget: u64,
    spent: u64,
    exhausted: bool,
}

impl Default for Scratch {
    fn default() -> Self {
        Self::with_budget(DRAW_BUDGET)
    }
}

impl Scratch {
    /// For runs that may cost `budget` each; see [`DRAW_BUDGET`].
    pub fn with_budget(budget: u64) -> Self {
        let (working, output, leaves) = (Vec::new(), Vec::new(), Vec::new());
        Self { working, output, leaves, perms: Perms::default(), budget, spent: 0, exhausted: false }
    }

    /// What the last run cost, in the budget's measure.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Whether the last run ended because its budget did, so that its result is not what Ceph would compute.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }
}

impl CrushMap {
    /// The devices for input `x`, at most `result_max`; holes of indep rules are [`ITEM_NONE`].
    ///
    /// `weights` are the devices' in/out weights (16.16, `0x10000` is in); devices behind its end are out.
    /// `choose_args` names the weight sets, with the fallback of [`Self::choose_args_with_fallback`]; `None` uses none.
    pub fn do_rule(
        &self,
        rule: u32,
        x: i32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
    ) -> Vec<i32> {
        let mut out = Vec::new();
        self.do_rule_into(rule, x, result_max, weights, choose_args, &mut Scratch::default(), &mut out);
        out
    }

    /// [`Self::do_rule`] into `out`, which is cleared first. Allocates only what `scratch` and `out` lack.
    pub fn do_rule_into(
        &self,
        rule: u32,
        x: i32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
        scratch: &mut Scratch,
        out: &mut Vec<i32>,
    ) {
        out.clear();
        let Scratch { working, output, leaves, perms, budget, spent, exhausted } = scratch;
        (*spent, *exhausted) = (0, false);
        let Some(rule) = self.rule(rule) else { return };
        if result_max == 0 {
            return;
        }
        for list in [&mut *working, &mut *output, &mut *leaves] {
            list.clear();
            list.resize(result_max, ITEM_NONE);
        }
        perms.clear();
        let args = choose_args.and_then(|id| self.choose_args_with_fallback(id));
        let mut run = Run { map: self, weights, args, x: x as u32, perms, budget: *budget };
        let mut knobs = Knobs::of(self);
        let mut size = 0;
        for step in &rule.steps {
            match step.op {
                Step::TAKE => {
                    if self.can_take(step.arg1) {
                        put(working, 0, step.arg1);
                        size = 1;
                    }
                }
                Step::CHOOSE_FIRSTN
                | Step::CHOOSE_INDEP
                | Step::CHOOSELEAF_FIRSTN
                | Step::CHOOSELEAF_INDEP => {
                    if size > 0 {
                        size = run.choose_step(
                            step,
                            &knobs,
                            working.get(..size).unwrap_or(&[]),
                            &mut &[][..],
                            output,
                            leaves,
                        );
                        std::mem::swap(working, output);
                    }
                }
                Step::EMIT => {
                    out.extend(working.iter().take(size).take(result_max - out.len()));
                    size = 0;
                }
                _ => knobs.set(step),
            }
        }
        *spent = budget.saturating_sub(run.budget);
        *exhausted = run.budget == 0;
    }

    pub(crate) fn can_take(&self, item: i32) -> bool {
        if item >= 0 { item < self.max_devices } else { self.bucket(item).is_some() }
    }
}

pub(crate) fn put(list: &mut [i32], at: usize, item: i32) {
    if let Some(slot) = list.get_mut(at) {
        *slot = item;
    }
}

fn at(list: &[i32], at: usize) -> i32 {
    list.get(at).copied().unwrap_or(ITEM_NONE)
}

/// The try counts in force; set steps change them for the rest of the rule.
pub(crate) struct Knobs {
    tries: u32,
    /// 0 when no step has set it.
    leaf_tries: u32,
    descend_once: bool,
    local_retries: u32,
    local_fallback_retries: u32,
    vary_r: u32,
    stable: bool,
}

impl Knobs {
    pub(crate) fn of(map: &CrushMap) -> Self {
        let t = &map.tunables;
        Self {
            // The tunable counts retries, a rule's step counts tries.
            tries: t.choose_total_tries.wrapping_add(1),
            leaf_tries: 0,
            descend_once: t.chooseleaf_descend_once != 0,
            local_retries: t.choose_local_tries,
            local_fallback_retries: t.choose_local_fallback_tries,
            vary_r: u32::from(t.chooseleaf_vary_r),
            stable: t.chooseleaf_stable != 0,
        }
    }

    pub(crate) fn set(&mut self, step: &Step) {
        let Ok(n) = u32::try_from(step.arg1) else { return };
        match step.op {
            Step::SET_CHOOSE_TRIES if n > 0 => self.tries = n,
            Step::SET_CHOOSELEAF_TRIES if n > 0 => self.leaf_tries = n,
            Step::SET_CHOOSE_LOCAL_TRIES => self.local_retries = n,
            Step::SET_CHOOSE_LOCAL_FALLBACK_TRIES => self.local_fallback_retries = n,
            Step::SET_CHOOSELEAF_VARY_R => self.vary_r = n,
            Step::SET_CHOOSELEAF_STABLE => self.stable = n != 0,
            _ => {}
        }
    }

    /// The `r` of the first try for a device below the item that was drawn with `r`, the first try of its position.
    pub(crate) fn first_leaf_r(&self, firstn: bool, r: i32) -> i32 {
        if !firstn {
            return r.wrapping_add(r);
        }
        (if self.stable { 0 } else { r }).wrapping_add(self.parent_r(r))
    }

    /// What the search for a device adds to its own `r`, below an item of a firstn step drawn with `r`.
    fn parent_r(&self, r: i32) -> i32 {
        if self.vary_r == 0 { 0 } else { r.wrapping_shr(self.vary_r - 1) }
    }
}

/// How many items a step asks for below each item it starts from; not above 0 for none.
pub(crate) fn wanted(step: &Step, result_max: usize) -> i32 {
    if step.arg1 > 0 {
        return step.arg1;
    }
    step.arg1.saturating_add(i32::try_from(result_max).unwrap_or(i32::MAX))
}

/// What one choose asks for.
#[derive(Clone, Copy)]
struct Want<'a> {
    /// Items to choose.
    numrep: i32,
    /// The level they are of.
    type_id: i32,
    tries: u32,
    /// Tries of the search for a device below each item; `None` when the items themselves are wanted.
    leaf_tries: Option<u32>,
    /// The `r` of the outer choose, for a search for devices.
    parent_r: i32,
    /// Where the first tries lead, by position; empty when they have not been drawn beforehand.
    firsts: &'a [First],
}

pub(crate) struct Run<'a> {
    pub(crate) map: &'a CrushMap,
    pub(crate) weights: &'a [u32],
    pub(crate) args: Option<&'a ChooseArgMap>,
    pub(crate) x: u32,
    pub(crate) perms: &'a mut Perms,
    /// What the run may still cost.
    pub(crate) budget: u64,
}

/// What came of one draw.
pub(crate) enum Draw<'a> {
    /// An inner bucket: go on there.
    Descend(&'a Bucket),
    /// An item that cannot be used in this position at all.
    Bad,
    Collides,
    Rejected,
    Got(i32),
}

impl<'a> Run<'a> {
    /// One choose step over the `working` set; how many items `output` holds afterwards. `firsts` are the first tries
    /// of [`First::count`] positions for each bucket of the working set, or nothing; what is used leaves the front.
    pub(crate) fn choose_step(
        &mut self,
        step: &Step,
        knobs: &Knobs,
        working: &[i32],
        firsts: &mut &[First],
        output: &mut [i32],
        leaves: &mut [i32],
    ) -> usize {
        let firstn = matches!(step.op, Step::CHOOSE_FIRSTN | Step::CHOOSELEAF_FIRSTN);
        let to_leaf = matches!(step.op, Step::CHOOSELEAF_FIRSTN | Step::CHOOSELEAF_INDEP);
        let result_max = output.len();
        let (mut size, mut tried) = (0, 0);
        for &item in working {
            let numrep = wanted(step, result_max);
            let (true, Some(bucket)) = (numrep > 0, self.map.bucket(item)) else { continue };
            let (Some(out), Some(out2)) = (output.get_mut(size..), leaves.get_mut(size..)) else { break };
            let (own, others) = firsts.split_at(First::count(numrep, result_max - tried).min(firsts.len()));
            (*firsts, tried) = (others, tried + own.len());
            let mut want = Want {
                numrep,
                type_id: step.arg2,
                tries: knobs.tries,
                leaf_tries: None,
                parent_r: 0,
                firsts: own,
            };
            let count = result_max - size;
            if firstn {
                let once = if knobs.descend_once { 1 } else { knobs.tries };
                let leaf_tries = if knobs.leaf_tries > 0 { knobs.leaf_tries } else { once };
                want.leaf_tries = to_leaf.then_some(leaf_tries);
                size += self.firstn(bucket, &want, knobs, out, 0, count, out2);
            } else {
                want.leaf_tries = to_leaf.then_some(knobs.leaf_tries.max(1));
                let left = count.min(numrep as usize);
                self.indep(bucket, &want, out, 0, left, out2);
                size += left;
            }
        }
        if to_leaf {
            output.iter_mut().zip(leaves.iter()).take(size).for_each(|(o, leaf)| *o = *leaf);
        }
        size
    }

    /// Chooses distinct items, closing gaps; how many `out` holds from its start.
    fn firstn(
        &mut self,
        bucket: &'a Bucket,
        want: &Want<'_>,
        knobs: &Knobs,
        out: &mut [i32],
        start: usize,
        mut count: usize,
        out2: &mut [i32],
    ) -> usize {
        let mut outpos = start;
        let mut rep = if knobs.stable { 0 } else { start as i32 };
        while rep < want.numrep && count > 0 && self.budget > 0 {
            if let Some(item) = self.firstn_one(bucket, want, knobs, rep, out, outpos, count, out2) {
                put(out, outpos, item);
                outpos += 1;
                count -= 1;
            }
            rep += 1;
        }
        outpos
    }

    /// The item for replica `rep`: descends again, from the top or in the same bucket, until one fits or tries end.
    fn firstn_one(
        &mut self,
        bucket: &'a Bucket,
        want: &Want<'_>,
        knobs: &Knobs,
        rep: i32,
        out: &[i32],
        outpos: usize,
        count: usize,
        out2: &mut [i32],
    ) -> Option<i32> {
        if let Some(first) = self.first(want, rep as usize, out.get(..outpos)?) {
            let leaf_taken = || out2.iter().take(outpos).any(|leaf| *leaf == first.leaf);
            if rep as usize == outpos && (want.leaf_tries.is_none() || !leaf_taken()) {
                put(out2, outpos, first.leaf);
                self.budget -= u64::from(first.cost);
                return Some(first.item);
            }
        }
        let mut failed = 0u32;
        loop {
            let mut within = bucket;
            let mut failed_here = 0u32;
            loop {
                let r = rep.wrapping_add(want.parent_r).wrapping_add(failed as i32);
                let item = self.firstn_item(within, knobs, r, failed_here, outpos);
                let collided = match self.firstn_judge(item, want, knobs, r, out, outpos, count, out2) {
                    Draw::Got(item) => return Some(item),
                    Draw::Bad => return None,
                    Draw::Descend(inner) => {
                        within = inner;
                        continue;
                    }
                    Draw::Collides => true,
                    Draw::Rejected => false,
                };
                failed = failed.wrapping_add(1);
                failed_here = failed_here.wrapping_add(1);
                let all_here = (within.items.len() as u32).wrapping_add(knobs.local_fallback_retries);
                if (collided && failed_here <= knobs.local_retries)
                    || (knobs.local_fallback_retries > 0 && failed_here <= all_here)
                {
                    continue;
                }
                if failed < want.tries {
                    break;
                }
                return None;
            }
        }
    }

    /// Draws from a bucket: by its permutation once local retries have failed often enough. `None` when it is empty.
    fn firstn_item(
        &mut self,
        b: &Bucket,
        knobs: &Knobs,
        r: i32,
        failed_here: u32,
        outpos: usize,
    ) -> Option<i32> {
        let exhaustive = knobs.local_fallback_retries > 0
            && failed_here as usize >= b.items.len() / 2
            && failed_here > knobs.local_fallback_retries;
        if exhaustive && !b.items.is_empty() {
            self.charge(0);
            return Some(self.perms.choose(b, self.x, r as u32));
        }
        self.draw(b, r, outpos)
    }

    fn firstn_judge(
        &mut self,
        item: Option<i32>,
        want: &Want<'_>,
        knobs: &Knobs,
        r: i32,
        out: &[i32],
        outpos: usize,
        count: usize,
        out2: &mut [i32],
    ) -> Draw<'a> {
        if self.budget == 0 {
            return Draw::Bad;
        }
        let Some(item) = item else { return Draw::Rejected };
        let inner = match classify(self.map, item, want.type_id) {
            Ok(inner) => inner,
            Err(draw) => return draw,
        };
        if out.iter().take(outpos).any(|o| *o == item) {
            return Draw::Collides;
        }
        if let Some(tries) = want.leaf_tries {
            match inner {
                Some(inner) => {
                    let numrep = if knobs.stable { 1 } else { outpos as i32 + 1 };
                    let parent_r = knobs.parent_r(r);
                    let leaf = Want { numrep, type_id: 0, tries, leaf_tries: None, parent_r, firsts: &[] };
                    if self.firstn(inner, &leaf, knobs, out2, outpos, count, &mut []) <= outpos {
                        return Draw::Rejected;
                    }
                }
                None => put(out2, outpos, item),
            }
        }
        if inner.is_none() && self.is_out(item) { Draw::Rejected } else { Draw::Got(item) }
    }

    /// Chooses items that keep their positions: `out[start..start + left]`, with holes where none was found.
    fn indep(
        &mut self,
        bucket: &'a Bucket,
        want: &Want<'_>,
        out: &mut [i32],
        start: usize,
        mut left: usize,
        out2: &mut [i32],
    ) {
        let end = start + left;
        for list in [&mut *out, &mut *out2] {
            list.iter_mut().take(end).skip(start).for_each(|o| *o = ITEM_UNDEF);
        }
        let mut failed = 0u32;
        while left > 0 && failed < want.tries && self.budget > 0 {
            for rep in start..end {
                if at(out, rep) == ITEM_UNDEF {
                    if let Some(item) = self.indep_one(bucket, want, rep, failed, out, start..end, out2) {
                        put(out, rep, item);
                        left -= 1;
                    }
                }
            }
            failed += 1;
        }
        for list in [out, out2] {
            list.iter_mut().take(end).skip(start).filter(|o| **o == ITEM_UNDEF).for_each(|o| *o = ITEM_NONE);
        }
    }

    /// One descent for position `rep`. `None` leaves it open for another try; [`ITEM_NONE`] gives it up.
    fn indep_one(
        &mut self,
        bucket: &'a Bucket,
        want: &Want<'_>,
        rep: usize,
        failed: u32,
        out: &[i32],
        range: std::ops::Range<usize>,
        out2: &mut [i32],
    ) -> Option<i32> {
        if failed == 0 {
            if let Some(first) = self.first(want, rep, out.get(range.clone())?) {
                put(out2, rep, first.leaf);
                self.budget -= u64::from(first.cost);
                return Some(first.item);
            }
        }
        let mut within = bucket;
        loop {
            let uniform = matches!(within.data, crate::BucketData::Uniform { .. });
            let whole = within.items.len() as u32 % (want.numrep as u32).max(1) == 0;
            let stride = if uniform && whole { want.numrep.wrapping_add(1) } else { want.numrep };
            let r = (rep as i32).wrapping_add(want.parent_r).wrapping_add(stride.wrapping_mul(failed as i32));
            let item = self.draw(within, r, range.start)?;
            if self.budget == 0 {
                return None;
            }
            let inner = match classify(self.map, item, want.type_id) {
                Ok(inner) => inner,
                Err(Draw::Descend(inner)) => {
                    within = inner;
                    continue;
                }
                Err(_) => {
                    put(out2, rep, ITEM_NONE);
                    return Some(ITEM_NONE);
                }
            };
            if out.get(range.clone()).is_some_and(|o| o.contains(&item)) {
                return None;
            }
            if let Some(tries) = want.leaf_tries {
                match inner {
                    Some(inner) => {
                        let leaf =
                            Want { type_id: 0, tries, leaf_tries: None, parent_r: r, firsts: &[], ..*want };
                        self.indep(inner, &leaf, out2, rep, 1, &mut []);
                        if at(out2, rep) == ITEM_NONE {
                            return None;
                        }
                    }
                    None => put(out2, rep, item),
                }
            }
            return if inner.is_none() && self.is_out(item) { None } else { Some(item) };
        }
    }

    /// Where the first try for position `rep` leads, when that is known and nothing speaks against it; else the try is
    /// made step by step. `taken` are the items that it may not meet.
    fn first<'f>(&self, want: &Want<'f>, rep: usize, taken: &[i32]) -> Option<&'f First> {
        let first = want.firsts.get(rep)?;
        let device = if want.leaf_tries.is_some() { first.leaf } else { first.item };
        let fits = first.item != ITEM_NONE
            && self.budget > u64::from(first.cost)
            && !taken.contains(&first.item)
            && (device < 0 || !self.is_out(device));
        fits.then_some(first)
    }

    /// Draws from a bucket by its algorithm; `None` when it is empty.
    fn draw(&mut self, b: &Bucket, r: i32, position: usize) -> Option<i32> {
        self.charge(b.items.len() as u64);
        if b.items.is_empty() {
            return None;
        }
        let arg = self.args.and_then(|a| a.get(b.id));
        Some(choose(b, self.perms, self.x, r as u32, arg, position))
    }

    fn charge(&mut self, items: u64) {
        self.budget = self.budget.saturating_sub(items + DRAW_COST);
    }

    /// Whether a device is out, wholly or for this input. Source: is_out.
    fn is_out(&self, item: i32) -> bool {
        let weight = usize::try_from(item).ok().and_then(|i| self.weights.get(i)).copied().unwrap_or(0);
        match weight {
            0x1_0000.. => false,
            0 => true,
            w => hash32_2(self.x, item as u32) & 0xffff >= w,
        }
    }
}

/// Sorts a drawn item: of the level wanted (a bucket or, as `None`, a device), on the way there, or unusable.
pub(crate) fn classify(map: &CrushMap, item: i32, type_id: i32) -> Result<Option<&Bucket>, Draw<'_>> {
    if item >= map.max_devices {
        return Err(Draw::Bad);
    }
    if item >= 0 {
        return if type_id == 0 { Ok(None) } else { Err(Draw::Bad) };
    }
    match map.bucket(item) {
        Some(b) if i32::from(b.type_id) == type_id => Ok(Some(b)),
        Some(b) => Err(Draw::Descend(b)),
        None => Err(Draw::Bad),
    }
}
