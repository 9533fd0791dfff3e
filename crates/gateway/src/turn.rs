//! Locks on objects that gateways work off one at a time: lists of buckets that expire, and of garbage.

use bytes::Bytes;
use classes::client::lock;
use rgw::RawObject;
use types::{Errno, Utime};

use crate::{Error, Plan, Request};

/// Source: ClsLockType::EXCLUSIVE in src/cls/lock/cls_lock_types.h.
pub(crate) const EXCLUSIVE: u8 = 1;

/// A lock, and how long it holds when nobody gives it back.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub object: RawObject,
    pub name: &'static [u8],
    pub cookie: Bytes,
    pub seconds: u32,
}

impl Turn {
    /// Does something while the lock is held; `Raced` where somebody else holds it.
    pub fn hold<T: Send + 'static>(self, work: impl FnOnce() -> Plan<T> + Send + 'static) -> Plan<T> {
        let args = lock::LockArgs {
            name: Bytes::from_static(self.name),
            kind: EXCLUSIVE,
            cookie: self.cookie.clone(),
            tag: Bytes::new(),
            description: Bytes::new(),
            duration: Utime::new(self.seconds, 0),
            flags: 0,
        };
        let taken = Plan::ask(Request::new(self.object.clone()).call(&lock::LOCK, &args));
        let taken = taken.when(Error::Rados(Errno::EBUSY), Error::Raced);
        taken.when(Error::Rados(Errno::EEXIST), Error::Raced).and_then(move |_| {
            work().then(move |done| {
                let args = lock::UnlockArgs { name: Bytes::from_static(self.name), cookie: self.cookie };
                let back = Request::new(self.object).call(&lock::UNLOCK, &args);
                Plan::ask(back).then(move |_| Plan::Done(done))
            })
        })
    }
}
