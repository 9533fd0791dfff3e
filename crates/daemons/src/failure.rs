//! Why a daemon ended by itself, and whether it may come back.

use std::fmt;
use std::sync::OnceLock;

use tokio::sync::watch;

/// Why a daemon ended although nobody stopped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For the log and `loligo status`.
    pub why: String,
    /// Whether the daemon may work once it is started again from what its medium holds. It may after an EIO
    /// or a panic, but not when the monitors refuse its key.
    pub may_pass: bool,
}

impl Failure {
    /// A failure after which a new start may work.
    pub fn passing(why: impl Into<String>) -> Self {
        Self { why: why.into(), may_pass: true }
    }

    /// A failure that a new start would meet again.
    pub fn lasting(why: impl Into<String>) -> Self {
        Self { why: why.into(), may_pass: false }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The error of a start that would fail again, however often it is tried.
#[derive(Debug)]
pub struct Lasting(pub String);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lasting {}

/// The failure of a daemon that could not be started.
impl From<&anyhow::Error> for Failure {
    fn from(error: &anyhow::Error) -> Self {
        let is_missing = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
        let lasts = error.chain().any(|cause| {
            cause.is::<Lasting>()
                || cause.downcast_ref::<std::io::Error>().is_some_and(is_missing)
                || matches!(
                    cause.downcast_ref::<store::StoreError>(),
                    Some(store::StoreError::Foreign(_) | store::StoreError::Newer { .. })
                )
        });
        Self { why: format!("{error:#}"), may_pass: !lasts }
    }
}

/// How a daemon's end reaches whoever waits for it. Only the first end counts.
#[derive(Debug)]
pub(crate) struct EndOf<T> {
    first: OnceLock<T>,
    told: watch::Sender<bool>,
}

impl<T: Clone> EndOf<T> {
    pub fn new() -> Self {
        Self { first: OnceLock::new(), told: watch::Sender::new(false) }
    }

    /// Tells the daemon's end, after `closing` has closed what the daemon holds. `end` is kept before that: a
    /// part of the daemon that runs into something closed tells an end as well, which must not take the place
    /// of the cause.
    pub fn tell(&self, end: T, closing: impl FnOnce()) {
        let _ = self.first.set(end);
        closing();
        self.told.send_replace(true);
    }

    /// Waits until an end was told, and gives the first.
    pub async fn heard(&self) -> T {
        let told = self.told.subscribe().wait_for(|told| *told).await.is_ok();
        match self.first.get().filter(|_| told) {
            Some(end) => end.clone(),
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_start_is_tried_again_where_that_may_help() {
        let io = |kind| anyhow::Error::from(std::io::Error::from(kind)).context("cannot open block");
        let store = |e: store::StoreError| anyhow::Error::from(e).context("the store cannot be opened");
        let eio = store::DeviceError::Io { op: store::DeviceOp::Read, offset: 0, len: 0, errno: 5 };
        let lasting =
            Err::<(), _>(Lasting("another cluster's".into())).context("osd.0").expect_err("an error");
        for (error, may_pass) in [
            (io(std::io::ErrorKind::NotFound), false),
            (io(std::io::ErrorKind::Other), true),
            (store(store::StoreError::Foreign(store::Foreign::NotAStore)), false),
            (store(eio.into()), true),
            (lasting, false),
            (anyhow::anyhow!("the port is in use"), true),
        ] {
            let failure = Failure::from(&error);
            assert_eq!(failure, Failure { why: format!("{error:#}"), may_pass });
        }
    }

    #[tokio::test]
    async fn the_first_end_counts() {
        let end = EndOf::new();
        end.tell(1, || {});
        end.tell(2, || {});
        assert_eq!(end.heard().await, 1);
    }

    #[tokio::test]
    async fn who_runs_into_what_an_end_closes_is_not_its_cause() {
        let end = EndOf::new();
        end.tell("a panic", || end.tell("the device is closed", || {}));
        assert_eq!(end.heard().await, "a panic");
    }
}
