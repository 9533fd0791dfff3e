//! The OSD's device, with a handle for each thread that flushes.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use runtime::{FileDevice, Seal, Sealed};
use store::Device;

/// One device behind one seal.
#[derive(Clone)]
pub(crate) struct Devices {
    /// For the store: reads, and the flush when it is opened.
    pub store: Arc<dyn Device>,
    /// For commits, wherever they are executed: there is one at a time.
    pub commits: Arc<dyn Device>,
    pub checkpoints: Arc<dyn Device>,
    /// For reads that requests wait for.
    pub reads: Arc<dyn Device>,
    pub seal: Seal,
}

/// The medium of stores: their files as they are, or, in a build for tests, a bad medium.
#[derive(Debug, Clone, Copy, Default)]
pub struct Medium {
    #[cfg(feature = "test-medium")]
    pub(crate) twin: Option<runtime::Twin>,
}

impl Medium {
    /// In a build for tests `LOLIGO_TWIN` chooses a bad one; see `runtime::Twin`.
    pub fn chosen() -> Result<Self> {
        #[cfg(feature = "test-medium")]
        if let Ok(text) = std::env::var("LOLIGO_TWIN").as_deref().map(str::trim) {
            if !text.is_empty() {
                let twin = runtime::Twin::parse(text).map_err(|e| anyhow::anyhow!("LOLIGO_TWIN: {e}"))?;
                tracing::warn!("LOLIGO_TWIN={text}: the stores are on a bad medium, for tests");
                return Ok(Self { twin: Some(twin) });
            }
        }
        Ok(Self::default())
    }
}

impl Devices {
    pub fn open(path: &Path, medium: Medium) -> Result<Self> {
        Self::open_on(path, medium).with_context(|| format!("cannot open {}", path.display()))
    }

    fn open_on(path: &Path, medium: Medium) -> std::io::Result<Self> {
        #[cfg(feature = "test-medium")]
        if let Some(twin) = medium.twin {
            let device = runtime::TwinDevice::open(path, twin)?;
            let others = [device.another()?, device.another()?, device.another()?];
            return Ok(Self::behind_one_seal(device, others));
        }
        let Medium { .. } = medium;
        Self::open_file(path)
    }

    fn open_file(path: &Path) -> std::io::Result<Self> {
        let device = FileDevice::open(path)?;
        let others = [device.another()?, device.another()?, device.another()?];
        Ok(Self::behind_one_seal(device, others))
    }

    fn behind_one_seal<D: Device + 'static>(store: D, [commits, checkpoints, reads]: [D; 3]) -> Self {
        let seal = Seal::default();
        let sealed = |device: D| Arc::new(Sealed::new(device, seal.clone())) as Arc<dyn Device>;
        Self {
            store: sealed(store),
            commits: sealed(commits),
            checkpoints: sealed(checkpoints),
            reads: sealed(reads),
            seal: seal.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use runtime::Twin;
    use store::{FormatOptions, ObjectKey, Options, Store, StoreError, Txn};
    use types::{Fsid, HObject, PoolId, SnapId};

    use super::*;

    fn formatted(dir: &tempfile::TempDir) -> PathBuf {
        let path = dir.path().join("block");
        let device = FileDevice::create(&path, 16 << 20).expect("created");
        let ids = FormatOptions { fsid: Fsid([1; 16]), osd_uuid: Fsid([2; 16]), log_bytes: None };
        Store::format(&device, ids).expect("formatted");
        path
    }

    fn open(path: &Path, twin: Option<Twin>) -> (Devices, Store) {
        let devices = Devices::open(path, Medium { twin }).expect("opened");
        let store = Store::open(Arc::clone(&devices.store), Options::default()).expect("a store");
        (devices, store)
    }

    fn object(name: &str) -> ObjectKey {
        let object = HObject { pool: PoolId(1), name: name.into(), snap: SnapId::HEAD, ..HObject::min() };
        ObjectKey::replicated(object)
    }

    fn write(store: &mut Store, name: &str) {
        let mut txn = Txn::new();
        txn.write(&object(name), 0, bytes::Bytes::from(name.repeat(1_000)));
        store.submit(txn).expect("accepted");
    }

    fn holds(store: &mut Store, name: &str) -> bool {
        store.read(&object(name), 0, 1 << 20).expect("read") == name.repeat(1_000).as_bytes()
    }

    /// The sync of opening is the first; then the commit of `a`, and the one that fails.
    const THIRD: Option<Twin> =
        Some(Twin { fail_sync: Some(3), power_loss: None, delay: std::time::Duration::ZERO });

    #[test]
    fn a_commit_is_no_success_when_the_checkpoint_beside_it_was_told_of_the_failure() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = formatted(&dir);
        let (devices, mut store) = open(&path, THIRD);
        write(&mut store, "a");
        let done = store.take_commit().expect("a commit").execute(devices.commits.as_ref());
        store.committed(done).expect("the second sync works");
        let checkpoint = store.take_checkpoint().expect("a checkpoint");
        write(&mut store, "b");
        let commit = store.take_commit().expect("a commit");
        assert!(checkpoint.execute(devices.checkpoints.as_ref()).is_err(), "it is told");
        let done = commit.execute(devices.commits.as_ref());
        assert!(done.is_err(), "nothing is acknowledged behind it");
        assert!(store.committed(done).is_err());
        assert!(matches!(store.read(&object("a"), 0, 1), Err(StoreError::Stopped)), "no read is answered");
        drop((devices, store));
        let (_devices, mut store) = open(&path, None);
        assert!(holds(&mut store, "a") && !holds(&mut store, "b"));
    }

    #[test]
    fn a_superblock_is_not_published_when_the_commit_beside_it_was_told_of_the_failure() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = formatted(&dir);
        let (devices, mut store) = open(&path, Some(Twin { fail_sync: Some(4), ..THIRD.expect("a twin") }));
        write(&mut store, "a");
        let done = store.take_commit().expect("a commit").execute(devices.commits.as_ref());
        store.committed(done).expect("the second sync works");
        let built = store.take_checkpoint().expect("a build").execute(devices.checkpoints.as_ref());
        store.checkpointed(built).expect("the third sync works");
        write(&mut store, "b");
        let commit = store.take_commit().expect("a commit");
        let publish = store.take_checkpoint().expect("the switch of the superblock");
        assert!(commit.execute(devices.commits.as_ref()).is_err(), "it is told");
        let before = std::fs::read(&path).expect("the medium");
        assert!(publish.execute(devices.checkpoints.as_ref()).is_err(), "nothing is published behind it");
        assert!(std::fs::read(&path).expect("the medium") == before, "not even in part");
        drop((devices, store));
        let (_devices, mut store) = open(&path, None);
        assert!(holds(&mut store, "a") && !holds(&mut store, "b"));
    }

    #[test]
    fn each_handle_is_told_of_a_failure_also_without_the_seal() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = formatted(&dir);
        let one = runtime::TwinDevice::open(&path, THIRD.expect("a twin")).expect("opened");
        let two = one.another().expect("another handle");
        one.flush().and_then(|()| two.flush()).expect("two syncs work");
        two.write_at(0, &[7; 4096]).expect("written");
        assert!(one.flush().is_err(), "the third fails");
        assert!(two.flush().is_err(), "it fails for the thread whose write it lost as well");
    }
}
