//! What all requests hold together, and how much of it those of one address may.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// What counts as one address: a host with IPv6 has as many as it likes in its network of 64 bits.
pub fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

/// A bound for all; of what others leave one address may take half.
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
        let address = place(address);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_address) = &mut *taken;
        let own = by_address.get(&address).copied().unwrap_or_default();
        let (all_then, own_then) = (all.checked_add(count)?, own.checked_add(count)?);
        // A share that nothing is held of is given whatever its size: it may be larger than half.
        let left = self.bound.saturating_sub(all.saturating_sub(own));
        let fits = all_then <= self.bound && (own == 0 || own_then <= left.div_ceil(2));
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
    fn two_addresses_leave_something_and_a_network_is_one() {
        let shares = Shares::new(64);
        let mut held = Vec::new();
        for address in [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]] {
            held.extend(std::iter::from_fn(|| shares.take(address.into(), 1)));
        }
        assert_eq!(held.len(), 32 + 16 + 8);
        let host = |n: u128| IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8 << 96) + n));
        let of_host: Vec<_> = (0..64).map_while(|n| shares.take(host(n), 1)).collect();
        assert_eq!(of_host.len(), 4);
    }

    #[test]
    fn numbers_do_not_overflow() {
        let (shares, one) = (Shares::new(usize::MAX), IpAddr::from([10, 0, 0, 1]));
        let _all = shares.take(one, usize::MAX).unwrap();
        assert!(shares.take(one, 1).is_none());
    }
}
