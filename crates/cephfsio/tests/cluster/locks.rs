//! Locks against the other client.

use cephfs::{Answer, Call};
use messages::fs::{FileLock, LockKind, LockType};
use types::Errno;

use crate::setup::{Bed, create, with_folder};

#[test]
fn a_lock_keeps_the_other_client_out_until_it_ends() {
    with_folder("locks", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let dir = *dir;
        let mut other = bed.other();
        let (handle, _) = create(mount, dir, "file").await;
        let lock = |lock| FileLock { owner: 7, lock, ..FileLock::default() };
        let flock = |lock, wait| Call::Lock { handle, kind: LockKind::FLOCK, lock, wait };
        mount.call(flock(lock(LockType::EXCL), false)).await.expect("locked");
        other.is(&format!("keep('{path}/file', 'r+')"), "None");
        let try_lock =
            format!("error(lambda: f.flock(kept['{path}/file'], fcntl.LOCK_EX | fcntl.LOCK_NB, 1))");
        other.is(&try_lock, "11");
        // It waits, and gets it when it is free.
        other.tell(&format!("f.flock(kept['{path}/file'], fcntl.LOCK_EX, 1)"));
        mount.call(flock(lock(LockType::UNLOCK), false)).await.expect("unlocked");
        assert_eq!(other.hear(), "0");
        let refused = mount.call(flock(lock(LockType::SHARED), false)).await.expect_err("taken");
        assert_eq!(refused.errno(), Some(Errno::EAGAIN));
        let test = Call::TestLock { handle, kind: LockKind::FLOCK, lock: lock(LockType::SHARED) };
        let Answer::Lock(found) = mount.call(test).await.expect("told") else { panic!("a lock") };
        assert_eq!((found.lock, found.owner), (LockType::EXCL, 1));
        let waiting = mount.call(flock(lock(LockType::SHARED), true));
        other.tell(&format!("f.flock(kept['{path}/file'], fcntl.LOCK_UN, 1)"));
        waiting.await.expect("it became free");
        assert_eq!(other.hear(), "0");
        mount.call(flock(lock(LockType::UNLOCK), false)).await.expect("unlocked");
    });
}

/// Whoever waited for it is gone: it must not be given to nobody.
#[test]
fn a_lock_that_is_given_up_is_not_taken() {
    with_folder("given-up", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let mut other = bed.other();
        let (handle, _) = create(mount, *dir, "file").await;
        let lock = |lock| FileLock { owner: 7, lock, ..FileLock::default() };
        let call = |lock| Call::Lock { handle, kind: LockKind::FLOCK, lock, wait: true };
        other.is(&format!("keep('{path}/file', 'r+')"), "None");
        let theirs = |how: &str| format!("f.flock(kept['{path}/file'], fcntl.{how}, 1)");
        other.is(&theirs("LOCK_EX"), "0");
        let test = Call::TestLock { handle, kind: LockKind::FLOCK, lock: lock(LockType::EXCL) };
        tokio::select! {
            biased;
            _ = mount.call(call(lock(LockType::EXCL))) => panic!("the other one has it"),
            // The server has heard of the wait when it answers this.
            found = mount.call(test) => drop(found.expect("told")),
        }
        other.is(&theirs("LOCK_UN"), "0");
        // This waits for ever if we have it.
        other.is(&theirs("LOCK_EX"), "0");
    });
}
