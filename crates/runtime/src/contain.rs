//! Keeps a panic to the daemon that it happened in, where one process runs several.
//!
//! A core that panicked may have done half of something, so its daemon ends and starts again from what is
//! durable. The other daemons of the process share nothing with it but the runtime, and go on. Code that
//! calls into a daemon does so through [`contained`]. A panic anywhere else, in code that all daemons share,
//! ends the process.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

thread_local! {
    /// How many calls of `contained` this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where this thread's last panic was.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `body`. If it panics, the error says how and where; nothing that `body` has changed may be used after
/// that.
pub fn contained<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    DEPTH.set(DEPTH.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    DEPTH.set(DEPTH.get() - 1);
    outcome.map_err(|panic| {
        let place = PLACE.take();
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        format!("it panicked{at}: {}", words(panic.as_ref()))
    })
}

/// Runs a future as [`contained`] runs a function.
pub async fn contained_async<T>(body: impl Future<Output = T>) -> Result<T, String> {
    let mut body = Box::pin(body);
    std::future::poll_fn(|cx| match contained(|| body.as_mut().poll(cx)) {
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(how) => Poll::Ready(Err(how)),
    })
    .await
}

fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "without words",
    }
}

/// Installs a panic hook: from now on a panic aborts the process unless [`contained`] catches it, or
/// `is_contained` says that something else on this thread will. Call it once.
pub fn end_on_other_panics(is_contained: fn() -> bool) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        if DEPTH.get() == 0 && !is_contained() {
            std::process::abort();
        }
        PLACE.set(info.location().map(ToString::to_string).unwrap_or_default());
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_words_and_what_returns_is_passed_on() {
        assert_eq!(contained(|| 7), Ok(7));
        let inner = contained(|| contained(|| panic!("inside {}", 1)).map(|()| 8));
        assert!(inner.is_ok_and(|inner| inner.is_err_and(|e| e.ends_with("inside 1"))));
        let without = contained(|| std::panic::panic_any(3));
        assert!(without.is_err_and(|e| e.ends_with("without words")));
        assert_eq!(DEPTH.get(), 0);
    }

    #[tokio::test]
    async fn so_do_those_of_a_future() {
        assert_eq!(contained_async(async { 7 }).await, Ok(7));
        let late = contained_async(async {
            tokio::task::yield_now().await;
            assert!(std::env::args().count() == 0, "later");
        });
        assert!(late.await.is_err_and(|e| e.ends_with("later")));
    }
}
