//! Enumerating the states that a crash may leave between two flushes.

use crate::device::{Fate, Image, SimDevice, Write};

/// The medium at a flush, and the writes that came before the next one.
#[derive(Clone)]
pub struct Epoch {
    pub(crate) base: Image,
    pub(crate) writes: Vec<Write>,
}

/// What becomes of each write of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashPlan {
    pub fates: Vec<Fate>,
    /// Indexes of the writes in the order they reach the medium.
    pub order: Vec<usize>,
}

impl Epoch {
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// A device that holds what the plan leaves.
    pub fn crash(&self, len: u64, sector: usize, fates: &[Fate], order: &[usize]) -> SimDevice {
        let mut image = self.base.clone();
        for &i in order {
            let w = &self.writes[i];
            match &fates[i] {
                Fate::Lost => {}
                Fate::Kept => image.write(w.offset, &w.data),
                Fate::Torn(kept) => {
                    for s in (0..w.sectors(sector)).filter(|s| kept[*s]) {
                        let piece = w.data.slice(s * sector..w.data.len().min((s + 1) * sector));
                        image.write(w.offset + (s * sector) as u64, &piece);
                    }
                }
            }
        }
        SimDevice::from_image(image, len, sector)
    }
}

/// Every subset of up to 12 writes; of more, all prefixes, all single and all paired losses. Besides, each write torn
/// before and after each of its sectors (at most `max_tears` of them), with the others kept or lost.
pub fn crash_plans(writes: &[Write], sector: usize, max_tears: usize) -> Vec<CrashPlan> {
    let n = writes.len();
    let mut kept: Vec<Vec<bool>> = Vec::new();
    if n <= 12 {
        kept.extend((0..1u32 << n).map(|mask| (0..n).map(|i| mask & (1 << i) != 0).collect()));
    } else {
        kept.extend((0..=n).map(|end| (0..n).map(|i| i < end).collect::<Vec<_>>()));
        for a in 0..n {
            kept.extend((a..n).map(|b| (0..n).map(|i| i != a && i != b).collect::<Vec<_>>()));
        }
    }
    let order: Vec<usize> = (0..n).collect();
    let whole = |keep: &bool| if *keep { Fate::Kept } else { Fate::Lost };
    let plan = |fates: Vec<Fate>| CrashPlan { fates, order: order.clone() };
    let mut plans: Vec<CrashPlan> = kept.iter().map(|k| plan(k.iter().map(whole).collect())).collect();
    for torn in 0..n {
        let sectors = writes[torn].sectors(sector);
        let step = (2 * sectors).div_ceil(max_tears.max(1)).max(1);
        for cut in (1..sectors).step_by(step) {
            for front in [true, false] {
                for others in [true, false] {
                    let mut fates = vec![whole(&others); n];
                    fates[torn] = Fate::Torn((0..sectors).map(|s| (s < cut) == front).collect());
                    plans.push(plan(fates));
                }
            }
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_epochs_are_enumerated_whole() {
        let w = Write { offset: 0, data: vec![0; 4096].into() };
        let plans = crash_plans(&[w.clone(), w.clone()], 512, 100);
        assert_eq!(plans.len(), 4 + 2 * 7 * 4);
        let many = vec![w; 20];
        assert_eq!(crash_plans(&many, 4096, 0).len(), 21 + 210);
    }
}
