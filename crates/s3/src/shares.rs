//! What all requests hold together, and how much of it those of one address may.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// A bound for all, half of which one address may take.
#[derive(Debug)]
pub struct Shares {
    bound: usize,
    taken: Mutex<(usize, HashMap<IpAddr, usize>)>,
}

/// Is given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    of: Arc<Shares>,
    address: IpAddr,
    count: usize,
}

impl Shares {
    pub fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self { bound, taken: Mutex::default() })
    }

    pub fn is_empty(&self) -> bool {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).0 == 0
    }

    /// Nothing when there is no room.
    pub fn take(self: &Arc<Self>, address: IpAddr, count: usize) -> Option<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_address) = &mut *taken;
        let own = by_address.get(&address).copied().unwrap_or_default();
        let (all_then, own_then) = (all.checked_add(count)?, own.checked_add(count)?);
        // A share that nothing is held of is given whatever its size: it may be larger than half.
        let fits = all_then <= self.bound && (own == 0 || own_then <= self.bound.div_ceil(2));
        fits.then(|| {
            *all = all_then;
            by_address.insert(address, own_then);
            Share { of: Arc::clone(self), address, count }
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_address) = &mut *taken;
        *all = all.saturating_sub(self.count);
        if let Some(own) = by_address.get_mut(&self.address) {
            *own = own.saturating_sub(self.count);
            if *own == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_half_to_others() {
        let (shares, one, other) = (Shares::new(4), IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let held: Vec<_> = (0..2).map(|_| shares.take(one, 1).unwrap()).collect();
        assert!(shares.take(one, 1).is_none());
        let others = shares.take(other, 2).unwrap();
        assert!(shares.take(IpAddr::from([10, 0, 0, 3]), 1).is_none());
        drop(held);
        assert!(shares.take(one, 1).is_some());
        drop(others);
        assert_eq!(*shares.taken.lock().unwrap(), (0, HashMap::new()));
    }

    #[test]
    fn numbers_do_not_overflow() {
        let (shares, one) = (Shares::new(usize::MAX), IpAddr::from([10, 0, 0, 1]));
        let _all = shares.take(one, usize::MAX).unwrap();
        assert!(shares.take(one, 1).is_none());
    }
}
