//! Placement of many inputs at once: the first try of every position is drawn for all inputs together, bucket by
//! bucket in vector registers; what collides or is out goes on one by one, in the mapper.

use pulp::Arch;

use crate::choose::{Perms, straw2_draws};
use crate::lanes::draw_many;
use crate::mapper::{DRAW_COST, Knobs, Run, put, wanted};
use crate::{Bucket, BucketData, ChooseArgMap, CrushMap, DRAW_BUDGET, ITEM_NONE, Step};

/// Inputs that go through a rule together: enough to fill the vectors of hundreds of buckets.
const TOGETHER: usize = 1024;

/// Where the first try for one position leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First {
    /// The item of the level wanted; [`ITEM_NONE`] when it is not known.
    pub(crate) item: i32,
    /// The device below it, or the item itself when that is one; [`ITEM_NONE`] when no device is wanted.
    pub(crate) leaf: i32,
    /// What the draws cost, in the budget's measure.
    pub(crate) cost: u32,
}

impl First {
    const UNKNOWN: Self = Self { item: ITEM_NONE, leaf: ITEM_NONE, cost: 0 };

    /// How many positions are tried beforehand below a bucket that `numrep` items are wanted of, with room for `left`.
    pub(crate) fn count(numrep: i32, left: usize) -> usize {
        usize::try_from(numrep).unwrap_or(0).min(left)
    }
}

/// Memory of [`CrushMap::place_all`], to be reused between calls, also for other rules and maps.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// For each input, one after the other, as many items as the result has.
    working: Vec<i32>,
    output: Vec<i32>,
    placed: Vec<i32>,
    /// By input: items in `working`, items in `placed`, what may still be spent.
    sizes: Vec<usize>,
    placed_sizes: Vec<usize>,
    budgets: Vec<u64>,
    leaves: Vec<i32>,
    perms: Perms,
    firsts: Vec<First>,
    descent: Descent,
}

impl CrushMap {
    /// [`Self::do_rule`] for each of `inputs`: `each` gets the input's index and its devices, in order. Several times
    /// as fast for hundreds of inputs, and the same bit for bit.
    pub fn place_all(
        &self,
        rule: u32,
        inputs: &[u32],
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
        batch: &mut Batch,
        mut each: impl FnMut(usize, &[i32]),
    ) {
        let args = choose_args.and_then(|id| self.choose_args_with_fallback(id));
        let steps = self.rule(rule).map_or(&[][..], |r| &r.steps);
        for (number, some) in inputs.chunks(TOGETHER).enumerate() {
            if result_max > 0 {
                batch.run(steps, Job { map: self, inputs: some, result_max, weights, args });
            }
            for i in 0..some.len() {
                let size = if result_max > 0 { at(&batch.placed_sizes, i) } else { 0 };
                let placed = batch.placed.get(i * result_max..i * result_max + size);
                each(number * TOGETHER + i, placed.unwrap_or(&[]));
            }
        }
    }
}

/// What a rule is run for.
#[derive(Clone, Copy)]
struct Job<'a> {
    map: &'a CrushMap,
    inputs: &'a [u32],
    /// Not 0.
    result_max: usize,
    weights: &'a [u32],
    args: Option<&'a ChooseArgMap>,
}

fn at(list: &[usize], i: usize) -> usize {
    list.get(i).copied().unwrap_or(0)
}

impl Batch {
    /// All steps of a rule; the devices are in `placed` then.
    fn run(&mut self, steps: &[Step], job: Job<'_>) {
        let Job { map, inputs, result_max, .. } = job;
        for list in [&mut self.working, &mut self.output, &mut self.placed] {
            list.clear();
            list.resize(inputs.len() * result_max, ITEM_NONE);
        }
        self.leaves.clear();
        self.leaves.resize(result_max, ITEM_NONE);
        for list in [&mut self.sizes, &mut self.placed_sizes] {
            list.clear();
            list.resize(inputs.len(), 0);
        }
        self.budgets.clear();
        self.budgets.resize(inputs.len(), DRAW_BUDGET);
        let mut knobs = Knobs::of(map);
        for step in steps {
            match step.op {
                Step::TAKE if map.can_take(step.arg1) => {
                    self.working.chunks_mut(result_max).for_each(|w| put(w, 0, step.arg1));
                    self.sizes.iter_mut().for_each(|s| *s = 1);
                }
                Step::TAKE => {}
                Step::CHOOSE_FIRSTN
                | Step::CHOOSE_INDEP
                | Step::CHOOSELEAF_FIRSTN
                | Step::CHOOSELEAF_INDEP => {
                    self.try_first(job, step, &knobs);
                    self.choose(job, step, &knobs);
                }
                Step::EMIT => self.emit(result_max),
                _ => knobs.set(step),
            }
        }
    }

    /// The first tries of one step for all inputs, into `firsts`.
    fn try_first(&mut self, job: Job<'_>, step: &Step, knobs: &Knobs) {
        let Job { map, inputs, result_max, args, .. } = job;
        self.firsts.clear();
        self.descent.active.clear();
        let numrep = wanted(step, result_max);
        for ((x, working), size) in inputs.iter().zip(self.working.chunks(result_max)).zip(&self.sizes) {
            let mut tried = 0;
            for item in working.iter().take(*size) {
                if numrep <= 0 || map.bucket(*item).is_none() {
                    continue;
                }
                let Some(bucket) = CrushMap::bucket_index(*item) else { continue };
                let count = First::count(numrep, result_max - tried);
                tried += count;
                for r in 0..count as u32 {
                    let first = self.firsts.len() as u32;
                    let so_far = SoFar { first, item: ITEM_NONE, cost: 0 };
                    self.descent.active.push(Active { x: *x, r, bucket: bucket as u32, so_far });
                    self.firsts.push(First::UNKNOWN);
                }
            }
        }
        let goal = Goal {
            type_id: step.arg2,
            to_leaf: matches!(step.op, Step::CHOOSELEAF_FIRSTN | Step::CHOOSELEAF_INDEP),
            firstn: matches!(step.op, Step::CHOOSE_FIRSTN | Step::CHOOSELEAF_FIRSTN),
            knobs,
        };
        self.descent.run(map, args, &goal, &mut self.firsts);
    }

    /// The step itself, input by input.
    fn choose(&mut self, job: Job<'_>, step: &Step, knobs: &Knobs) {
        let Job { map, inputs, result_max, weights, args } = job;
        let mut firsts = self.firsts.as_slice();
        let perms = &mut self.perms;
        let mut run = Run { map, weights, args, x: 0, perms, budget: 0 };
        let lists = self.working.chunks(result_max).zip(self.output.chunks_mut(result_max));
        let state = self.sizes.iter_mut().zip(&mut self.budgets);
        for ((x, (working, output)), (size, budget)) in inputs.iter().zip(lists).zip(state) {
            if *size == 0 {
                continue;
            }
            run.perms.clear();
            (run.x, run.budget) = (*x, *budget);
            let working = working.get(..*size).unwrap_or(&[]);
            *size = run.choose_step(step, knobs, working, &mut firsts, output, &mut self.leaves);
            *budget = run.budget;
        }
        std::mem::swap(&mut self.working, &mut self.output);
    }

    fn emit(&mut self, result_max: usize) {
        let lists = self.working.chunks(result_max).zip(self.placed.chunks_mut(result_max));
        let sizes = self.sizes.iter_mut().zip(&mut self.placed_sizes);
        for ((working, placed), (size, placed_size)) in lists.zip(sizes) {
            for item in working.iter().take(*size) {
                if let Some(slot) = placed.get_mut(*placed_size) {
                    *slot = *item;
                    *placed_size += 1;
                }
            }
            *size = 0;
        }
    }
}

/// What a step looks for.
struct Goal<'a> {
    type_id: i32,
    to_leaf: bool,
    firstn: bool,
    knobs: &'a Knobs,
}

/// A first try on its way down: the next draw.
#[derive(Debug, Clone, Copy)]
struct Active {
    x: u32,
    r: u32,
    /// Index of the bucket to draw from.
    bucket: u32,
    so_far: SoFar,
}

/// What a try has come to.
#[derive(Debug, Clone, Copy, Default)]
struct SoFar {
    /// Index of its [`First`].
    first: u32,
    /// The item of the level wanted, once drawn; [`ITEM_NONE`] before.
    item: i32,
    cost: u32,
}

/// What an item of a bucket is.
#[derive(Debug, Clone, Copy)]
struct Kind {
    item: i32,
    /// 0 for devices, [`UNUSABLE`] for what cannot be drawn.
    type_id: i32,
    /// Index of the bucket that it is.
    bucket: u32,
}

const UNUSABLE: i32 = -1;

impl Kind {
    fn of(map: &CrushMap, item: i32) -> Self {
        if item >= 0 {
            return Self { item, type_id: if item < map.max_devices { 0 } else { UNUSABLE }, bucket: 0 };
        }
        let index = CrushMap::bucket_index(item).and_then(|i| u32::try_from(i).ok());
        let type_id = map.bucket(item).map_or(UNUSABLE, |b| i32::from(b.type_id));
        Self { item, type_id, bucket: index.unwrap_or(0) }
    }
}

/// First tries that descend together, one level at a time.
#[derive(Debug, Clone, Default)]
struct Descent {
    active: Vec<Active>,
    next: Vec<Active>,
    /// By bucket: where its tries begin below, and where the next one goes.
    ends: Vec<u32>,
    /// The tries, ordered by bucket.
    x: Vec<u32>,
    r: Vec<u32>,
    so_far: Vec<SoFar>,
    picks: Vec<u32>,
    kinds: Vec<Kind>,
    inverse: Vec<f32>,
    arch: Arch,
}

impl Descent {
    /// Takes all active tries down as far as they get. Those that end without success stay unknown, for the mapper
    /// knows what happens then.
    fn run(&mut self, map: &CrushMap, args: Option<&ChooseArgMap>, goal: &Goal<'_>, firsts: &mut [First]) {
        // A valid map is no deeper than that.
        for _ in 0..2 * crate::MAX_DEPTH {
            if self.active.is_empty() {
                return;
            }
            self.order_by_bucket(map.buckets.len());
            self.next.clear();
            let mut begin = 0;
            for (bucket, b) in map.buckets.iter().enumerate() {
                let end = self.ends.get(bucket).map_or(begin, |e| *e as usize);
                if let (true, Some(b)) = (end > begin, b) {
                    self.draw(map, args, goal, b, begin..end, firsts);
                }
                begin = end;
            }
            std::mem::swap(&mut self.active, &mut self.next);
        }
    }

    /// A counting sort.
    fn order_by_bucket(&mut self, buckets: usize) {
        self.ends.clear();
        self.ends.resize(buckets + 1, 0);
        for a in &self.active {
            if let Some(count) = self.ends.get_mut(a.bucket as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for end in &mut self.ends {
            sum += *end;
            *end = sum;
        }
        let tries = self.active.len();
        for list in [&mut self.x, &mut self.r, &mut self.picks] {
            list.resize(tries, 0);
        }
        self.so_far.resize(tries, SoFar::default());
        let (x, r, so_far) = (&mut self.x, &mut self.r, &mut self.so_far);
        for a in &self.active {
            // Each bucket's begin moves up to its end.
            let Some(place) = self.ends.get_mut(a.bucket as usize) else { continue };
            let to = *place as usize;
            *place += 1;
            if let (Some(x), Some(r), Some(so_far)) = (x.get_mut(to), r.get_mut(to), so_far.get_mut(to)) {
                (*x, *r, *so_far) = (a.x, a.r, a.so_far);
            }
        }
    }

    /// Draws from one bucket for its tries, and says where each goes on.
    fn draw(
        &mut self,
        map: &CrushMap,
        args: Option<&ChooseArgMap>,
        goal: &Goal<'_>,
        b: &Bucket,
        tries: std::ops::Range<usize>,
        firsts: &mut [First],
    ) {
        let BucketData::Straw2 { item_weights } = &b.data else { return };
        let arg = args.and_then(|a| a.get(b.id));
        if b.items.is_empty() || arg.is_some_and(|a| a.weight_sets.len() > 1) {
            return;
        }
        let (ids, weights) = straw2_draws(b, item_weights, arg, 0);
        let lists = (self.x.get(tries.clone()), self.r.get(tries.clone()), self.picks.get_mut(tries.clone()));
        let (Some(x), Some(r), Some(picks)) = lists else { return };
        draw_many(self.arch, (b.hash, ids, weights), x, r, picks, &mut self.inverse);
        self.kinds.clear();
        self.kinds.extend(b.items.iter().map(|item| Kind::of(map, *item)));
        let cost = (b.items.len() as u64 + DRAW_COST).min(u64::from(u32::MAX)) as u32;
        let so_far = self.so_far.get(tries).unwrap_or(&[]);
        for (((pick, x), r), so_far) in picks.iter().zip(x).zip(r).zip(so_far) {
            let Some(kind) = self.kinds.get(*pick as usize) else { continue };
            let cost = so_far.cost.saturating_add(cost);
            if let Some((r, item)) = goal.go_on(kind, *r, so_far.item) {
                let so_far = SoFar { first: so_far.first, item, cost };
                self.next.push(Active { x: *x, r, bucket: kind.bucket, so_far });
            } else if let (Some(found), Some(first)) =
                (goal.found(kind, so_far.item), firsts.get_mut(so_far.first as usize))
            {
                *first = First { cost, ..found };
            }
        }
    }
}

impl Goal<'_> {
    /// The `r` of the next draw of a try that drew an item of this kind with `r`, and the item that it has found of the
    /// level wanted; `None` at the try's end. `item` is what it had found before.
    #[inline]
    fn go_on(&self, kind: &Kind, r: u32, item: i32) -> Option<(u32, i32)> {
        if kind.type_id <= 0 {
            return None;
        }
        if item != ITEM_NONE || kind.type_id != self.type_id {
            return Some((r, item));
        }
        self.to_leaf.then(|| (self.knobs.first_leaf_r(self.firstn, r as i32) as u32, kind.item))
    }

    /// What a try has found that ends with an item of this kind.
    #[inline]
    fn found(&self, kind: &Kind, item: i32) -> Option<First> {
        let (item, cost) = (if item == ITEM_NONE { kind.item } else { item }, 0);
        let wanted = if item == kind.item { self.type_id } else { 0 };
        // A rule may ask for a level of any number, also for this one.
        if kind.type_id == UNUSABLE || kind.type_id != wanted {
            return None;
        }
        Some(First { item, leaf: if self.to_leaf { kind.item } else { ITEM_NONE }, cost })
    }
}
