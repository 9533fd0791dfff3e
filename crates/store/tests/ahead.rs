//! What an OSD reads when it starts is announced to the device before: for the log's transactions, and of its
//! PGs.

#[allow(unused_imports, reason = "shared by several tests")]
mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use store::{Device, DeviceError, Space, Store, Txn};
use testkit::SimDevice;
use types::{PgId, PoolId, SpgId};

/// A device that counts reads by whether they were announced.
struct Watched {
    inner: Arc<SimDevice>,
    announced: Mutex<Vec<(u64, u64)>>,
    expected: AtomicUsize,
    surprises: AtomicUsize,
}

impl Watched {
    fn bytes(&self) -> u64 {
        self.announced.lock().expect("a lock").iter().map(|(_, len)| len).sum()
    }
}

impl Device for Watched {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let announced = self.announced.lock().expect("a lock");
        let (end, known) = (offset + buf.len() as u64, announced.iter());
        let hit = known.into_iter().any(|(at, len)| *at <= offset && end <= at + len);
        if hit { &self.expected } else { &self.surprises }.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }

    fn will_read(&self, ranges: &[(u64, u64)]) {
        let mut announced = self.announced.lock().expect("a lock");
        for (at, len) in ranges {
            let doubled = announced.iter().any(|(a, l)| *at < a + l && *a < at + len);
            assert!(!doubled, "announced twice: {at} {len}");
            announced.push((*at, *len));
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

fn reopened(device: &Arc<SimDevice>) -> (Arc<Watched>, Store) {
    let watched = Watched {
        inner: device.clone(),
        announced: Mutex::default(),
        expected: AtomicUsize::new(0),
        surprises: AtomicUsize::new(0),
    };
    let watched = Arc::new(watched);
    let store = Store::open(watched.clone(), common::small_options()).expect("open");
    (watched, store)
}

#[test]
fn the_keys_of_pgs_are_announced_before_they_are_read_and_nothing_else_is() {
    let device = common::new_device(64 << 20, 4 << 20);
    let (watched, mut store) = reopened(&device);
    store.will_read_pgs();
    assert_eq!((watched.bytes(), store.spaces().expect("read")), (0, Vec::new()), "an empty store");
    drop(store);

    let mut store = common::open(&device);
    let pgs = (0..40).map(|seed| Space::Pg(SpgId::replicated(PgId::new(PoolId(1), seed))));
    for space in pgs.chain([Space::Meta]) {
        let mut txn = Txn::new();
        for key in 0..250u32 {
            txn.set(space, key.to_be_bytes().to_vec(), vec![7u8; 200]);
        }
        store.submit(txn).expect("submit");
        common::commit_all(&mut store, device.as_ref());
    }
    common::checkpoint(&mut store, device.as_ref());
    drop(store);

    let (watched, mut store) = reopened(&device);
    watched.surprises.store(0, Ordering::Relaxed);
    store.will_read_pgs();
    let spaces = store.spaces().expect("read");
    assert_eq!(spaces.len(), 41);
    for space in spaces.into_iter().filter(|s| *s != Space::Meta) {
        assert_eq!(store.scan(space, &[], None, 1000).expect("read").len(), 250);
    }
    let (expected, surprises) =
        (watched.expected.load(Ordering::Relaxed), watched.surprises.load(Ordering::Relaxed));
    assert!(expected > 250, "2 MB and more are hundreds of pages: {expected}");
    // `spaces` looks where the keys of no PG begin, too.
    assert!(surprises <= 3, "{surprises} of {expected} reads came unannounced");
    assert!(watched.bytes() < 4 << 20, "2.2 MB of keys: {}", watched.bytes());
}

#[test]
fn what_the_log_changes_is_announced_before_it_is_replayed() {
    let device = common::new_device(64 << 20, 4 << 20);
    let mut store = common::open(&device);
    let [space, removed] = [0, 1].map(|seed| Space::Pg(SpgId::replicated(PgId::new(PoolId(1), seed))));
    let attribute = vec![7u8; 300];
    for part in 0..10u32 {
        let mut txn = Txn::new();
        for i in part * 300..part * 300 + 300 {
            txn.set_attr(&common::object(u64::from(i)), "_", attribute.clone());
            txn.set(space, i.to_be_bytes().to_vec(), vec![7u8; 200]);
            txn.set(removed, i.to_be_bytes().to_vec(), vec![7u8; 200]);
        }
        store.submit(txn).expect("submit");
        common::commit_all(&mut store, device.as_ref());
    }
    common::checkpoint(&mut store, device.as_ref());
    let mut txn = Txn::new();
    txn.drop_space(removed);
    store.submit(txn).expect("submit");
    for i in 0..200u32 {
        let mut txn = Txn::new();
        txn.set_attr(&common::object(u64::from(i * 15)), "b", attribute.clone());
        txn.unset_range(space, (i * 10).to_be_bytes().to_vec(), (i * 10 + 10).to_be_bytes().to_vec());
        store.submit(txn).expect("submit");
    }
    common::commit_all(&mut store, device.as_ref());
    drop(store);

    let (watched, mut store) = reopened(&device);
    let (expected, surprises) =
        (watched.expected.load(Ordering::Relaxed), watched.surprises.load(Ordering::Relaxed));
    assert!(expected > 250, "{expected} pages of the tree");
    assert!(surprises < 40, "{surprises} reads: superblock, map, log and a few pages");
    assert_eq!(store.scan(space, &[], None, 10_000).expect("read").len(), 1000);
}
